"""Requests to models: the only package that connects to a model's server."""
