"""Tools that a model may call: MCP servers, which are programs that are started for a run, or URLs."""
