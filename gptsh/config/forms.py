"""The forms that output can have, in a file of their own: a help text needs nothing else of ``core``."""

STRUCTURED = ("json", "jsonl")  # those for programs
OUTPUTS = ("text", "markdown", *STRUCTURED)
FORMATS = ("json", "markdown", "html", "openai", "nanobot")  # that a session is exported in
