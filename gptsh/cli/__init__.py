"""The command line: its options, and a file for each job."""
