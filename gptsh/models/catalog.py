"""The data files that litellm packages, read without importing it, which takes seconds.

The model table has one entry a model: provider, mode, windows, prices in USD per token, ``supports_*``. One entry is
found by its bytes in 1 ms; parsing the whole 3 MB takes 11 ms. What another version has in another shape is left out.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from gptsh.jsonio import as_dict, as_dicts

_MODELS = "model_prices_and_context_window_backup.json"
_RULES = "fallback_generalizations"
_NO_MODELS = ("sample_spec", _RULES)

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


def _find(key: str) -> Entry | None:
    """The object under a key of the model table, as it would be after parsing all of it."""
    data, quoted = _read(_MODELS), json.dumps(key).encode()
    start = data.find(quoted)
    if start < 0:
        return None
    end = data.find(b"\n    }", start)
    if data[start - 5 : start] == b"\n    " and end > 0 and (found := _parsed(b"{" + data[start : end + 6] + b"}")):
        return found.get(key)
    return _parsed(data).get(key)  # inside of something else, or indented otherwise


@cache
def entry(key: str) -> Entry | None:
    """The entry of one model under exactly this key."""
    return None if key in _NO_MODELS else _find(key)


@cache
def entries() -> dict[str, Entry]:
    """All models by key: the bare name for a model's own vendor, else ``provider/name``."""
    return {key: found for key, found in _parsed(_read(_MODELS)).items() if key not in _NO_MODELS}


@cache
def family_rules() -> list[tuple[str, Entry]]:
    """``(pattern, entry)``: what holds for all models with such a name, as far as the table does not know one."""
    rules = as_dicts((_find(_RULES) or {}).get("rules"))
    found = [(rule.get("pattern"), rule.get("model_info")) for rule in rules]
    return [(pattern, info) for pattern, info in found if isinstance(pattern, str) and isinstance(info, dict)]


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
