"""One question and its answer: planned, asked, shown, saved. Knows no command line."""
