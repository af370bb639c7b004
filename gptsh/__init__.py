"""gptsh asks a language model from the shell and keeps every conversation as a JSON file."""

__version__ = "0.1.0"
