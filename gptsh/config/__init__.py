"""Settings from config.toml and the environment: agents, providers, tool servers."""
