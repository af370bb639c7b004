"""The HTTP headers of a request. A header for one provider stands in that provider's row of ``models/vendors.py``."""

from gptsh import __version__
from gptsh.config.schema import MASK
from gptsh.models.vendors import BEARER, DIRECT, Provider


def headers(provider: Provider, *, mask_values: bool = False) -> dict[str, str]:
    """The provider's own headers, those of the config file, and the key in the provider's form.

    ``mask_values`` hides the last two. litellm adds those that any request has.
    """
    is_direct = provider.api in DIRECT
    result = {"content-type": "application/json", "user-agent": f"gptsh/{__version__}"} if is_direct else {}
    result |= provider.fixed_headers
    for name, value in provider.headers.items():
        result[name.lower()] = MASK if mask_values else value
    has_key = provider.key or (mask_values and provider.key_command)  # which a dry run does not run
    if has_key and is_direct:
        is_bearer = provider.key_var in provider.bearer_vars
        forms = BEARER if is_bearer else provider.key_headers
        for name, form in forms.items():
            result[name] = form.format(api_key=MASK if mask_values else provider.key)
    return result
