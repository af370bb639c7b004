"""A home whose default model is a vendor's, on a strict server of the test's own."""

from tests.support.home import Home

KEYS = {"openai": "sk-openai", "anthropic": "sk-ant-very-secret", "gemini": "AIza-key"}


def at_vendor(home: Home, model: str, base_url: str, more: str = "") -> Home:
    """Configure the home: ``model`` is PROVIDER/NAME, its provider's server is at ``base_url``; no titles, one retry.

    ``more`` are further keys of the provider.
    """
    provider = model.partition("/")[0]
    home.configure(
        f'[agents.default]\nmodel = "{model}"\n[sessions]\ntitles = "off"\n[network]\nretries = 1\n'
        f'[providers.{provider}]\nbase_url = "{base_url}"\n{more}'
    )
    home.env[f"{provider.upper()}_API_KEY"] = KEYS.get(provider, f"{provider}-key")
    return home
