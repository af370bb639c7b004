"""The store: session files, references, lists, search, usage. No terminal, no network."""
