"""Config.toml and the environment: their keys, the settings, agents, providers, tool servers, and what they decide."""
