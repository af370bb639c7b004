"""Facts about models, without a request: abilities, windows, prices."""
