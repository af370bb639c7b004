"""The conversation: its lines, its commands, its prompt."""
