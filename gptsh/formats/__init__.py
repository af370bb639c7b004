"""Sessions as other tools keep them, read and written: one file per format, values only, nothing is printed."""
