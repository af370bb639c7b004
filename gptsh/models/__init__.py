"""Facts about models and built-in providers, without a request: abilities, windows, prices, parameters, efforts."""
