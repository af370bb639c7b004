"""The model table and other data files that litellm packages, read without importing it, which takes seconds.

The model table has one entry per model: provider, mode, windows, prices in USD per token, ``supports_*``. Finding one
entry by its bytes takes 1 ms; parsing all 3 MB takes 11 ms.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from gptsh.jsonio import as_dict, as_dicts

_MODELS = "model_prices_and_context_window_backup.json"

Entry = dict[str, Any]


@cache
def _read(*parts: str) -> bytes:
    """Return a file of the litellm package; empty if there is none."""
    from importlib.util import find_spec

    spec = find_spec("litellm")  # of a top-level name only: find_spec("litellm.x") would import litellm
    paths = (Path(root, *parts) for root in (spec and spec.submodule_search_locations) or ())
    path = next((path for path in paths if path.exists()), None)
    return path.read_bytes() if path else b""


def _objects_in(data: bytes) -> dict[str, Entry]:
    """Return the objects in a JSON object by key; none for any other JSON."""
    try:
        table = as_dict(json.loads(data))
    except (ValueError, RecursionError):
        return {}
    return {key: entry for key, entry in table.items() if isinstance(entry, dict)}


@cache
def entry(key: str) -> Entry | None:
    """Return the object under exactly this key of the model table, as parsing the whole table would."""
    data, quoted = _read(_MODELS), json.dumps(key).encode() + b":"
    start = data.find(b"\n    " + quoted)
    if start < 0:
        start = data.find(b"\n" + quoted)  # one of its editors has forgotten the indentation
    if start < 0 and quoted not in data:  # as a value a name may be in many entries
        return None
    end = data.find(b"\n    }", start)
    if start >= 0 and end >= 0 and (table := _objects_in(b"{" + data[start : end + 6] + b"}")):
        return table.get(key)
    return entries().get(key)  # the key is in another object, or the indentation differs


@cache
def entries() -> dict[str, Entry]:
    """Return all models by key: the bare name for the vendor's own models, else ``provider/name``."""
    return _objects_in(_read(_MODELS))


@cache
def family_rules() -> list[tuple[str, Entry]]:
    """Return ``(pattern, entry)`` pairs: the facts of models with such a name that have no entry."""
    rules = as_dicts((entry("fallback_generalizations") or {}).get("rules"))
    return [(rule["pattern"], rule["model_info"]) for rule in rules if {"pattern", "model_info"} <= rule.keys()]


@cache
def compatible_endpoints() -> dict[str, Entry]:
    """Return providers with OpenAI's API by name: ``base_url``, ``api_key_env``, ``api_base_env``, ``headers``."""
    providers = _objects_in(_read("llms", "openai_like", "providers.json"))
    return {name: provider for name, provider in providers.items() if {"base_url", "api_key_env"} <= provider.keys()}


@cache
def provider_names() -> frozenset[str]:
    """Return the names of the providers in litellm's data files."""
    endpoints = as_dict(_objects_in(_read("provider_endpoints_support_backup.json")).get("providers"))
    return frozenset(endpoints) | {str(model.get("litellm_provider")) for model in entries().values()}
