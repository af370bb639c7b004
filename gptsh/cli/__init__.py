"""The command line: parses the options, runs one job, and prints notes and errors."""
