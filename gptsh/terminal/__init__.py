"""The streams, the terminal and the signals of the process; programs that it starts there."""
