"""The only folder that opens a socket to a model."""
