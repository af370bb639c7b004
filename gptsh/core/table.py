"""The data files that litellm packages, read without importing it, which takes seconds.

The model table has one entry a model: provider, mode, windows, prices in USD per token, ``supports_*``. Nearly every
entry is indented alike, so that one can be found by its bytes in 1 ms; parsing the whole 3 MB takes 11 ms.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

_PRICES = "model_prices_and_context_window_backup.json"
_NO_MODELS = ("sample_spec", "fallback_generalizations")

Entry = dict[str, Any]


@cache
def _read(*parts: str) -> bytes:
    """A file of the litellm package; an empty JSON object where it lacks the file."""
    from importlib.util import find_spec  # noqa: PLC0415 - few runs need it

    spec = find_spec("litellm")  # of a top-level name only: find_spec("litellm.x") would import litellm
    paths = (Path(root, *parts) for root in (spec and spec.submodule_search_locations) or ())
    path = next((path for path in paths if path.exists()), None)
    return path.read_bytes() if path else b"{}"


def entry(key: str) -> Entry | None:
    """The entry of one model under exactly this key."""
    raw, quoted = _read(_PRICES), json.dumps(key).encode()
    start = raw.find(b"\n    " + quoted + b": {")
    if start < 0:
        found = entries().get(key) if quoted + b": {" in raw else None
        return found if key not in _NO_MODELS else None
    end = raw.find(b"\n    }", start)
    found = json.loads(raw[start + len(quoted) + 7 : end + 6])
    return found if key not in _NO_MODELS else None


@cache
def entries() -> dict[str, Entry]:
    """All models by key: the bare name for a model's own vendor, else ``provider/name``."""
    parsed: dict[str, Entry] = json.loads(_read(_PRICES))
    return {key: found for key, found in parsed.items() if key not in _NO_MODELS}


def routing_rules() -> list[tuple[str, str]]:
    """``(pattern, provider)``: whose a bare name is that the table does not know yet."""
    rules = json.loads(_read(_PRICES)).get("fallback_generalizations", {}).get("rules", [])
    found = [(rule["pattern"], rule["model_info"].get("litellm_provider")) for rule in rules]
    return [(pattern, provider) for pattern, provider in found if provider]


def compatible_endpoints() -> dict[str, Entry]:
    """Providers that speak OpenAI's dialect, by name: ``base_url``, ``api_key_env``, ``api_base_env``, ``headers``."""
    return dict(json.loads(_read("llms", "openai_like", "providers.json")))


@cache
def provider_names() -> frozenset[str]:
    """The providers that litellm reaches, as far as its data files tell."""
    listed = json.loads(_read("provider_endpoints_support_backup.json")).get("providers", {})
    of_models = {found.get("litellm_provider") for found in entries().values()}
    return frozenset(name for name in (*listed, *of_models) if isinstance(name, str))
