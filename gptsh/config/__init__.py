"""What config.toml and the environment say: settings, agents, accounts, tool servers."""
