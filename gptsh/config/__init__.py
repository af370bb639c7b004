"""Settings and the environment: what config.toml may hold, providers, tool servers."""
