"""The process: its streams, terminal, signals and pager; no session and no model."""
