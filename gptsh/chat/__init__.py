"""The conversation (``-i``): its loop, its commands, its prompt, the list of sessions."""
