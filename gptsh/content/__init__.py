"""The content of messages: attachments, tool calls, the answer."""
