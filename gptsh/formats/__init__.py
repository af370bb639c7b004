"""The session files of other tools, read and written. Nothing here prints."""
