"""The conversation (``-i``): its loop, its commands, its prompt, the list to pick a session from."""
