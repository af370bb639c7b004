"""Jobs on stored sessions that need no model: list, search, show, export, delete, count."""
