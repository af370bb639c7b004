"""The content of messages: attachments, tool calls, prompts with names, the answer and whether it is whole."""
