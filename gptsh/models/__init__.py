"""Facts of models, without a request: abilities, windows, prices."""
