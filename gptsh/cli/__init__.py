"""The command line: options in, one job out, and the only place that prints errors."""
