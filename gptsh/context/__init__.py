"""What of a session is sent: sizes, strategies, summaries, memory. No network here, no terminal."""
