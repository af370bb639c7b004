"""Facts about models and providers that need no request: abilities, windows, prices, parameters."""
