"""Show answers, sessions and lists: as text, drawn Markdown, JSON or HTML."""
