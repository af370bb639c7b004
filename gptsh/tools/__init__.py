"""Tools for models: MCP servers, each a program that gptsh starts, or a URL."""
