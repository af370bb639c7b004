"""The commands of a conversation: one table, and what each does."""
