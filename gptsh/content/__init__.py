"""What stands in a message: attachments, tool calls, the answer."""
