"""The command line: its options, and what each job does with them."""
