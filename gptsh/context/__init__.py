"""Which part of a session is sent: token counts, strategies, summaries, memory. No network, no terminal."""
