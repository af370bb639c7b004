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

    spec = find_spec("litellm")  # find_spec("litellm.x") would import litellm
    if spec is None or spec.origin is None:
        return b""
    try:
        return Path(spec.origin).parent.joinpath(*parts).read_bytes()
    except OSError:
        return b""


def _objects_in(data: bytes) -> dict[str, Entry]:
    """Return the objects in a JSON object by key; none for any other JSON."""
    try:
        table = as_dict(json.loads(data))
    except (ValueError, RecursionError):
        return {}
    return {key: entry for key, entry in table.items() if isinstance(entry, dict)}


@cache
def table_entry(key: str) -> Entry | None:
    """Return the object under exactly this key of the model table, as parsing all of it would."""
    data = _read(_MODELS)
    start = data.find(json.dumps(key).encode() + b":")
    if start < 0:
        return None
    end = data.find(b"\n    }", start) + len(b"\n    }")
    entry = _objects_in(b"{" + data[start:end] + b"}").get(key)
    return entry or table_entries().get(key)  # the key is in another object, or indented otherwise


@cache
def table_entries() -> dict[str, Entry]:
    """Return all models by key: the bare name for the vendor's own, else ``provider/name``."""
    return _objects_in(_read(_MODELS))


@cache
def family_rules() -> list[tuple[str, Entry]]:
    """Return a pattern of names each, with the facts of models that have no entry."""
    rules = as_dicts((table_entry("fallback_generalizations") or {}).get("rules"))
    return [(rule["pattern"], rule["model_info"]) for rule in rules if "model_info" in rule]


@cache
def compatible_endpoints() -> dict[str, Entry]:
    """Return providers with OpenAI's API by name.

    Each has ``base_url`` and ``api_key_env``, and may have ``api_base_env`` and ``headers``.
    """
    providers = _objects_in(_read("llms", "openai_like", "providers.json"))
    return {name: entry for name, entry in providers.items() if "api_key_env" in entry}


@cache
def provider_names() -> frozenset[str]:
    """Return the names of the providers in litellm's data files."""
    support = _objects_in(_read("provider_endpoints_support_backup.json"))
    names = {str(entry.get("litellm_provider")) for entry in table_entries().values()}
    return frozenset(names.union(support.get("providers", ())))


# ---- facts
#
# What is known of a model: the provider of a bare name; its window, abilities and prices in the
# packaged table.

# Not compiled, to save 1 ms: most runs need no pattern.
_OPENAI_NAME = r"(?i)(gpt-[0-9]|chatgpt-|o[0-9](?![a-z]))[-.0-9a-z]*"
_OPENAI_REASONING = r"(?i)(?:ft:)?(?:o[0-9]|gpt-(?:[5-9]|[1-9][0-9])(?!.*chat))[-.:0-9a-z]*"
_GEMINI_THAT_REASONS = (
    r"gemini-(?:(?:2\.5|[3-9][.0-9]*)-)?"
    r"(?:flash|pro|flash-lite)(?:-latest|-preview)?"
)
_CHAT_MODES = ("chat", "responses")
OPENAIS = ("openai", "azure")  # providers of OpenAI's models, which refuse the same parameters
# The table's name for a provider: the name in our requests.
_ROUTED_AS = {"ai21": "ai21_chat", "bedrock_converse": "bedrock"}


# ---- names


def split_model(model: str) -> tuple[str | None, str]:
    """Split ``provider/name``; for a bare name the provider is looked up, or None.

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
    for pattern, info in family_rules():
        owner = info.get("litellm_provider")
        if isinstance(owner, str) and re.search(pattern, model, re.IGNORECASE):
            return owner, model
    return None, model


def with_provider(model: str) -> str:
    """Return a model as PROVIDER/NAME, if the provider is known."""
    return full_name(model, split_model(model)[0]) or model


def _request_name(entry: Entry) -> str:
    """Return the provider of an entry by the name that requests use."""
    provider = str(entry.get("litellm_provider"))
    return "vertex_ai" if provider.startswith("vertex_ai") else _ROUTED_AS.get(provider, provider)


def is_openai_reasoning(name: str) -> bool:
    """Return whether a model is of OpenAI's reasoning series.

    These models have no sampling parameters, and ``max_completion_tokens``.
    """
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
    """Facts from the packaged table about a model of a provider; none if it is not there.

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
        entry = self.entry
        tiers = as_dicts(entry.get("tiered_pricing"))
        if tiers:
            entry = {**tiers[0], **entry}
        prompt = entry.get("input_cost_per_token")
        answer = entry.get("output_cost_per_token")
        if prompt is None and answer is None:
            return None
        return (prompt or 0.0, answer or 0.0)

    def can(self, ability: str) -> bool | None:
        """Return whether the model has an ability, such as ``vision`` or ``reasoning``.

        Return None if that is unknown.
        """
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
    entry: Entry = {}
    for pattern, info in family_rules():
        if re.search(pattern, name, re.IGNORECASE):
            entry |= info
    family = exact._replace(entry=entry)
    if family.can("adaptive_thinking") and not family.can("legacy_thinking"):
        entry["supports_sampling_params"] = False  # which the rules do not say
    return family


def models_of(provider: str) -> list[Facts]:
    """Return the chat models of a provider that are not retired, in the table's order."""
    return [facts for facts in chat_models() if facts.provider == provider]


def chat_models() -> Iterator[Facts]:
    """Yield the chat models of all providers that are not retired, in the table's order."""
    today = date.today().isoformat()
    for key, entry in table_entries().items():
        is_retired = str(entry.get("deprecation_date") or "9") < today  # "9": after any date
        if entry.get("mode") not in _CHAT_MODES or is_retired:
            continue
        provider = _request_name(entry)
        prefix = f"{provider}/"
        if "/" not in key or key.startswith(prefix):
            yield Facts(provider, key.removeprefix(prefix), entry)


# ---- parameters for a short text

# Families that reason first; for names that are not in the table.
_THINKS = (
    r"(?i)gpt-oss|deepseek-(v[4-9]|r[0-9]|reasoner)|grok-(?!.*non-reasoning)|kimi-k|glm-[4-9]"
    r"|qwen-?3|qwq|magistral|nemotron|minimax|sonar-.*reason|think|reason"
)
# Tokens for reasoning: with a small limit the answer of a reasoning model would be empty.
_REASONING_HEADROOM = 1976


def small_params(model_facts: Facts, tokens: int) -> JsonObject:
    """Return parameters for a text of ``tokens`` tokens, such as a title.

    The parameters are temperature 0.2 and that limit. A reasoning model gets more tokens, and a low
    effort.
    """
    limit = tokens + _REASONING_HEADROOM
    name = model_facts.name
    reasons = model_facts.can("reasoning")
    has_efforts = (
        is_openai_reasoning(name)
        or "gpt-oss" in name
        or model_facts.can("adaptive_thinking")
        or (model_facts.provider == "gemini" and reasons)
    )
    if has_efforts:
        return {"reasoning_effort": "low", "max_tokens": limit}
    if reasons or (reasons is None and re.search(_THINKS, name)):
        return {"max_tokens": limit}
    return {"temperature": 0.2, "max_tokens": tokens}
