"""The content of messages: attachments, templates, answers, and the shapes that other tools use."""
