"""The data files that litellm packages, read without importing it, which takes seconds.

The model table has one entry a model: provider, mode, windows, prices in USD per token, ``supports_*``. One entry is
found by its bytes in 1 ms; parsing the whole 3 MB takes 11 ms. What another version has in another shape is left out.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from gptsh.jsonio import as_dicts

_PRICES = "model_prices_and_context_window_backup.json"
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


def load(text: bytes | str) -> dict[str, Entry]:
    """The objects of a JSON object by key; none where it is something else."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {key: found for key, found in parsed.items() if isinstance(found, dict)} if isinstance(parsed, dict) else {}


def find(data: bytes, key: str) -> Entry | None:
    """The object under a key of a JSON object of objects, as it would be after parsing all of it."""
    quoted = json.dumps(key).encode()
    start = data.find(quoted)
    if start < 0:
        return None
    line = data[data.rfind(b"\n", 0, start) + 1 : start]
    end = data.find(b"\n    }", start)
    if line == b"    " and end > 0 and (found := load(b"{" + data[start : end + 6] + b"}")):
        return found.get(key)
    return load(data).get(key)  # inside of something else, or indented otherwise


@cache
def entry(key: str) -> Entry | None:
    """The entry of one model under exactly this key."""
    return None if key in _NO_MODELS else find(_read(_PRICES), key)


@cache
def entries() -> dict[str, Entry]:
    """All models by key: the bare name for a model's own vendor, else ``provider/name``."""
    return {key: found for key, found in load(_read(_PRICES)).items() if key not in _NO_MODELS}


@cache
def family_rules() -> list[tuple[str, Entry]]:
    """``(pattern, entry)``: what holds for all models with such a name, as far as the table does not know one."""
    rules = as_dicts((find(_read(_PRICES), _RULES) or {}).get("rules"))
    found = [(rule.get("pattern"), rule.get("model_info")) for rule in rules]
    return [(pattern, info) for pattern, info in found if isinstance(pattern, str) and isinstance(info, dict)]


@cache
def compatible_endpoints() -> dict[str, Entry]:
    """Providers that speak OpenAI's dialect, by name: ``base_url``, ``api_key_env``, ``api_base_env``, ``headers``."""
    listed = load(_read("llms", "openai_like", "providers.json"))
    needed = ("base_url", "api_key_env")
    return {name: found for name, found in listed.items() if all(isinstance(found.get(key), str) for key in needed)}


@cache
def provider_names() -> frozenset[str]:
    """The providers that litellm reaches, as far as its data files tell."""
    listed = load(_read("provider_endpoints_support_backup.json")).get("providers", {})
    of_models = {found.get("litellm_provider") for found in entries().values()}
    return frozenset(name for name in (*listed, *of_models) if isinstance(name, str))
