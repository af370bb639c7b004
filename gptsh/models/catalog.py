"""The data files that litellm packages, read without importing it, which takes seconds.

The model table has one entry a model: provider, mode, windows, prices in USD per token, ``supports_*``. One entry is
found by its bytes in 1 ms; parsing the whole 3 MB takes 11 ms.
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
    """A file of the litellm package; empty where it lacks the file."""
    from importlib.util import find_spec  # noqa: PLC0415 - few runs need it

    spec = find_spec("litellm")  # of a top-level name only: find_spec("litellm.x") would import litellm
    paths = (Path(root, *parts) for root in (spec and spec.submodule_search_locations) or ())
    path = next((path for path in paths if path.exists()), None)
    return path.read_bytes() if path else b""


def _parsed(data: bytes) -> dict[str, Entry]:
    """The objects of a JSON object by key; none where it is something else."""
    try:
        found = as_dict(json.loads(data))
    except (ValueError, RecursionError):
        return {}
    return {key: entry for key, entry in found.items() if isinstance(entry, dict)}


@cache
def entry(key: str) -> Entry | None:
    """The object under exactly this key of the model table, as it would be after parsing all of it."""
    data, quoted = _read(_MODELS), json.dumps(key).encode()
    start = data.find(quoted)
    if start < 0:
        return None
    end = data.find(b"\n    }", start)
    if data[start - 5 : start] == b"\n    " and end > 0 and (found := _parsed(b"{" + data[start : end + 6] + b"}")):
        return found.get(key)
    return entries().get(key)  # inside of something else, or indented otherwise


@cache
def entries() -> dict[str, Entry]:
    """All models by key: the bare name for a model's own vendor, else ``provider/name``."""
    return _parsed(_read(_MODELS))


@cache
def family_rules() -> list[tuple[str, Entry]]:
    """``(pattern, entry)``: what holds for all models with such a name, as far as the table does not know one."""
    rules = as_dicts((entry("fallback_generalizations") or {}).get("rules"))
    return [(rule["pattern"], rule["model_info"]) for rule in rules if {"pattern", "model_info"} <= rule.keys()]


@cache
def compatible_endpoints() -> dict[str, Entry]:
    """Providers that speak OpenAI's dialect, by name: ``base_url``, ``api_key_env``, ``api_base_env``, ``headers``."""
    listed = _parsed(_read("llms", "openai_like", "providers.json"))
    return {name: found for name, found in listed.items() if {"base_url", "api_key_env"} <= found.keys()}


@cache
def provider_names() -> frozenset[str]:
    """The providers that litellm reaches, as far as its data files list them."""
    listed = as_dict(_parsed(_read("provider_endpoints_support_backup.json")).get("providers"))
    return frozenset(listed) | {str(found.get("litellm_provider")) for found in entries().values()}
