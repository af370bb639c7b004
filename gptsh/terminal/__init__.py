"""The streams, the terminal and the signals of the process, and other programs that it starts there."""
