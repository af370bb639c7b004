"""The streams, the terminal and the signals of the process; other programs in its terminal."""
