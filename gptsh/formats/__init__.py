"""The session files of other tools, read and written: one file per format. Nothing here prints."""
