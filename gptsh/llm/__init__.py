"""Requests to models: the only package that opens a socket to a model's server."""
