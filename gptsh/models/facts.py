"""Look up a model in litellm's table (window, abilities, prices) without importing litellm."""

import json
import re
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.messages import full_name, token_count

# ---- catalog
#
# The model table and other data files that litellm packages, read without importing it, which takes
# seconds.
#
# The model table has one entry per model: provider, mode, windows, prices in USD per token,
# ``supports_*``. Finding one entry by its bytes takes 1 ms; parsing all 3 MB takes 11 ms.

_MODELS = "model_prices_and_context_window_backup.json"

Entry = JsonObject  # of litellm's data files


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
def table_entry(key: str) -> Entry | None:
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
    return table_entries().get(key)  # the key is in another object, or the indentation differs


@cache
def table_entries() -> dict[str, Entry]:
    """Return all models by key: the bare name for the vendor's own models, else ``provider/name``."""
    return _objects_in(_read(_MODELS))


@cache
def family_rules() -> list[tuple[str, Entry]]:
    """Return ``(pattern, entry)`` pairs: the facts of models with such a name that have no entry."""
    rules = as_dicts((table_entry("fallback_generalizations") or {}).get("rules"))
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
    return frozenset(endpoints) | {str(model.get("litellm_provider")) for model in table_entries().values()}


# ---- facts
#
# What is known of a model: the provider of a bare name; its window, abilities and prices in the
# packaged table.

# Not compiled, to save 1 ms: most runs need no pattern.
_OPENAI_NAME = r"(?i)(gpt-[0-9]|chatgpt-|o[0-9](?![a-z]))[-.0-9a-z]*"
_OPENAI_REASONING = r"(?i)(?:ft:)?(?:o[0-9]|gpt-(?:[5-9]|[1-9][0-9])(?!.*chat))[-.:0-9a-z]*"
_GEMINI_THAT_REASONS = r"gemini-(?:(?:2\.5|[3-9][.0-9]*)-)?(?:flash|pro|flash-lite)(?:-latest|-preview)?"
# The version within a name, and what stands before and after it, without a date.
_VERSIONED = r"(?P<beginning>[^0-9]*)(?P<version>[0-9]{1,2}(?:[.-][0-9]{1,2})?)(?![0-9])(?P<end>.*?)(?:-20[-0-9]*)?$"
_CHAT_MODES = ("chat", "responses")
OPENAIS = ("openai", "azure")  # providers of OpenAI's models, which refuse the same parameters
# The table's name for a provider: the name in our requests.
_ROUTED_AS = {"ai21": "ai21_chat", "bedrock_converse": "bedrock"}


# ---- names


def split_model(model: str) -> tuple[str | None, str]:
    """Split ``provider/name`` into ``(provider, name)``; for a bare name the provider is looked up, or None.

    OpenAI's names are recognized; for others the packaged table decides, then its family rules.
    """
    provider, slash, name = model.partition("/")
    if slash:
        return provider, name
    if re.fullmatch(_OPENAI_NAME, model):
        return "openai", model
    if model == "echo":
        return "echo", model
    entry = table_entry(model)
    if entry and entry.get("mode") in _CHAT_MODES:
        return _request_name(entry), model
    rules = ((pattern, info.get("litellm_provider")) for pattern, info in family_rules())
    owners = (owner for pattern, owner in rules if isinstance(owner, str) and re.search(pattern, model, re.IGNORECASE))
    return next(owners, None), model


def with_provider(model: str, otherwise: str | None = None) -> str:
    """Return a model as PROVIDER/NAME: a bare name gets its known provider, else ``otherwise``."""
    return full_name(model, split_model(model)[0] or otherwise) or model


def _request_name(entry: Entry) -> str:
    """Return the provider of an entry by the name that requests use."""
    provider = str(entry.get("litellm_provider"))
    return "vertex_ai" if provider.startswith("vertex_ai") else _ROUTED_AS.get(provider, provider)


def is_openai_reasoning(name: str) -> bool:
    """Whether a model is of OpenAI's reasoning series: no sampling parameters, ``max_completion_tokens``."""
    return bool(re.fullmatch(_OPENAI_REASONING, name.rpartition("/")[2]))


def may_reason(provider: str, name: str) -> bool:
    """Whether a model may reason before it answers: unless its name or the table excludes it.

    The names of OpenAI and Google are enough, so that the table is not read: that takes 4 ms.
    """
    if re.fullmatch(_OPENAI_NAME, name):
        return is_openai_reasoning(name)
    if re.fullmatch(_GEMINI_THAT_REASONS, name):
        return True
    return likely_facts(provider, name).can("reasoning") is not False


# ---- facts


_NO_ENTRY: Entry = {}


class Facts(NamedTuple):
    """Facts from the packaged table about a model of a provider; none for a model that is not in it.

    ``has_config_prices``: the prices are from the config file.
    """

    provider: str
    name: str
    entry: Entry = _NO_ENTRY
    has_config_prices: bool = False

    @property
    def window(self) -> int | None:
        """The maximum number of prompt tokens."""
        return token_count(self.entry.get("max_input_tokens")) or None

    @property
    def prices(self) -> tuple[float, float] | None:
        """USD per prompt token and per answer token, before tiers and caches; None if unknown."""
        first_tier = next(iter(as_dicts(self.entry.get("tiered_pricing"))), {})
        keys = ("input_cost_per_token", "output_cost_per_token")
        prices = [self.entry.get(key, first_tier.get(key)) for key in keys]
        return None if prices == [None, None] else (prices[0] or 0.0, prices[1] or 0.0)

    def can(self, ability: str) -> bool | None:
        """Whether the model has an ability, such as ``vision``, ``reasoning``, ``function_calling``; None: unknown."""
        value = self.entry.get(f"supports_{ability}")
        return value if isinstance(value, bool) else None


def exact_facts(provider: str | None, name: str) -> Facts:
    """Return the facts of a model, by the name that its provider uses."""
    if provider is None:
        return Facts("", name)
    for key in (name, f"{provider}/{name}"):  # the bare one first: most are OpenAI's
        entry = table_entry(key)
        if entry and provider in (_request_name(entry), entry.get("litellm_provider")):
            return Facts(provider, name, entry)
    return Facts(provider, name)


@cache
def likely_facts(provider: str | None, name: str) -> Facts:
    """Return the facts of a model; for one that is not in the table, those of its family."""
    exact = exact_facts(provider, name)
    if exact.entry:
        return exact
    infos = [info for pattern, info in family_rules() if re.search(pattern, name, re.IGNORECASE)]
    family = exact._replace(entry={key: value for info in infos for key, value in info.items()})
    if family.can("adaptive_thinking") and not family.can("legacy_thinking"):  # which the rules do not say
        return family._replace(entry={**family.entry, "supports_sampling_params": False})
    return family


@cache
def window_of_family(provider: str, name: str) -> int | None:
    """Return the window of the nearest relative of a model that is not in the table; None: unknown.

    Relatives have the same name but for the version, else at least the same beginning. The nearest
    version counts, and of several models the smallest window. VENDOR/NAME may be a router's name:
    then the models of the vendor count, or those of that name at any provider.
    """
    bare_name = name.rpartition("/")[2]
    match = re.match(_VERSIONED, bare_name)
    if not match:
        return None
    version = _number(match["version"])
    has_vendor = "/" in name
    owner = (split_model(bare_name)[0] if has_vendor else None) or provider
    relatives = []
    for known in _chat_models():
        relative = re.match(_VERSIONED, known.name.rpartition("/")[2])
        if not known.window or not relative or relative["beginning"] != match["beginning"]:
            continue
        is_foreign = known.provider != owner
        ends_otherwise = relative["end"] != match["end"]
        if is_foreign and (ends_otherwise or not has_vendor):
            continue
        distance = abs(_number(relative["version"]) - version)
        relatives.append((is_foreign, ends_otherwise, distance, known.window))
    if not relatives:
        return likely_facts(provider, name).window
    return min(relatives)[-1]


def _number(version: str) -> float:
    """A version as a number: 5-5 is 5.5."""
    return float(version.replace("-", "."))


def models_of(provider: str) -> Iterator[Facts]:
    """Yield the chat models of a provider that are not retired, in the table's order."""
    for known in _chat_models():
        if known.provider == provider:
            yield known


def _chat_models() -> Iterator[Facts]:
    """Yield the chat models of all providers that are not retired, in the table's order."""
    today = date.today().isoformat()
    for key, entry in table_entries().items():
        if entry.get("mode") not in _CHAT_MODES or str(entry.get("deprecation_date") or "9") < today:
            continue
        provider = _request_name(entry)
        prefix = f"{provider}/"
        if "/" not in key or key.startswith(prefix):
            yield Facts(provider, key.removeprefix(prefix), entry)


# ---- parameters for a short text

# Families that reason first, and can spend a small token limit on that alone; for names not in the table.
_THINKS = (
    r"(?i)gpt-oss|deepseek-(v[4-9]|r[0-9]|reasoner)|grok-(?!.*non-reasoning)|kimi-k|glm-[4-9]|qwen-?3|qwq|magistral|"
    r"nemotron|minimax|sonar-.*reason|think|reason"
)
_REASONING_HEADROOM = 1976  # tokens for reasoning: with a small limit the answer of a reasoning model is empty


def small_params(model_facts: Facts, tokens: int) -> JsonObject:
    """Return parameters for a text of ``tokens`` tokens, such as a title: temperature 0.2, and that limit.

    A reasoning model gets more tokens for it, and a low effort.
    """
    limit = tokens + _REASONING_HEADROOM
    name, reasons = model_facts.name, model_facts.can("reasoning")
    is_gemini = model_facts.provider == "gemini" and reasons is True
    if is_openai_reasoning(name) or "gpt-oss" in name or model_facts.can("adaptive_thinking") or is_gemini:
        return {"reasoning_effort": "low", "max_tokens": limit}
    if reasons or (reasons is None and re.search(_THINKS, name)):
        return {"max_tokens": limit}
    return {"temperature": 0.2, "max_tokens": tokens}
