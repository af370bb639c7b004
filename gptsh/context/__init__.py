"""Choose what is sent of a session: tokens, strategies, summaries, memory. No network."""
