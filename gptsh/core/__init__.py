"""Values and files: no terminal, no network."""
