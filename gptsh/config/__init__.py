"""What config.toml and the environment say: settings, agents, accounts at providers, tool servers."""
