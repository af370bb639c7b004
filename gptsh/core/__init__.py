"""The store: session files, references, lists, search. No terminal, no network."""
