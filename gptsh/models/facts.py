"""Facts about models: whose a name is, window, abilities, prices, and which parameters are refused."""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from typing import Any, NamedTuple

from gptsh.jsonio import as_dicts
from gptsh.messages import token_count
from gptsh.models import catalog
from gptsh.models.names import full_name

# Not compiled, which takes 1 ms in all: most runs need none.
_OPENAI_NAME = r"(?i)(gpt-[0-9]|chatgpt-|o[0-9](?![a-z]))[-.0-9a-z]*"
_OPENAI_REASONING = r"(?i)(?:ft:)?(?:o[0-9]|gpt-(?:[5-9]|[1-9][0-9])(?!.*chat))[-.:0-9a-z]*"
_GPT_VERSION = r"(?i)gpt-([0-9]{1,3})(?:\.([0-9]{1,3}))?(?!.*chat)"
_FIRST_WITHOUT_TOOLS_ON_CHAT = (5, 4)
_KIMI_THAT_REASONS = r"(?i)kimi-k(?:2\.[5-9]|[3-9])"
# Families that think before they speak, and spend a small token limit on that alone; for names not in the table.
_THINKS = (
    r"(?i)gpt-oss|deepseek-(v[4-9]|r[0-9]|reasoner)|grok-(?!.*non-reasoning)|kimi-k|glm-[4-9]|qwen-?3|qwq|magistral|"
    r"nemotron|minimax|sonar-.*reason|think|reason"
)
_REASONING_HEADROOM = 1976  # tokens beside those of the text: a small cap gives reasoning models a blank answer
_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty")
# What some model takes, by the names of OpenAI, Anthropic, Ollama, OpenRouter, llama.cpp and vLLM; the table has none.
_PARAMETERS = (
    "temperature", "top_p", "top_k", "top_a", "min_p", "typical_p", "max_tokens", "max_completion_tokens", "min_tokens",
    "stop", "stop_sequences", "seed", "n", "best_of", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "repeat_penalty", "repeat_last_n", "logit_bias", "logprobs", "top_logprobs", "response_format", "verbosity",
    "reasoning_effort", "reasoning", "reasoning_format", "thinking", "thinking_budget", "thinking_level", "think",
    "enable_thinking", "include_reasoning", "chat_template_kwargs", "tools", "tool_choice", "parallel_tool_calls",
    "web_search_options", "modalities", "audio", "prediction", "metadata", "store", "user", "service_tier",
    "safety_identifier", "prompt_cache_key", "stream_options", "output_config", "cache_control", "extra_body",
    "num_ctx", "num_predict", "num_keep", "num_gpu", "num_thread", "keep_alive", "options", "mirostat", "mirostat_tau",
    "mirostat_eta", "tfs_z", "provider", "models", "transforms", "plugins", "safety_settings", "safe_prompt", "grammar",
    "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "ignore_eos", "cache_prompt",
)  # fmt: skip
_CHAT_MODES = ("chat", "responses")
OPENAIS = ("openai", "azure")  # who serves OpenAI's models, with what these refuse
# The table's name for a provider: what it is asked as.
_ROUTED_AS = {"ai21": "ai21_chat", "bedrock_converse": "bedrock"}


# ---- names


def split_model(model: str) -> tuple[str | None, str]:
    """``provider/name`` as ``(provider, name)``; the provider of a bare name is None where none is known.

    A bare name is OpenAI's by its look, or belongs to whom the packaged table, then its routing rules say.
    """
    provider, slash, name = model.partition("/")
    if slash:
        return provider, name
    if re.fullmatch(_OPENAI_NAME, model):
        return "openai", model
    if model == "echo":
        return "echo", model
    found = catalog.entry(model)
    if found and found.get("mode") in _CHAT_MODES:
        return _asked_as(found), model
    rules = ((pattern, info.get("litellm_provider")) for pattern, info in catalog.family_rules())
    owners = (owner for pattern, owner in rules if isinstance(owner, str) and re.search(pattern, model, re.IGNORECASE))
    return next(owners, None), model


def with_provider(model: str, otherwise: str | None = None) -> str:
    """A model as PROVIDER/NAME, a bare name with the provider whose it is, else with the one that is named here."""
    return full_name(model, split_model(model)[0] or otherwise) or model


def _asked_as(entry: Mapping[str, Any]) -> str:
    """The provider of an entry, under the name by which it is asked."""
    listed = str(entry.get("litellm_provider"))
    return "vertex_ai" if listed.startswith("vertex_ai") else _ROUTED_AS.get(listed, listed)


def is_openai_reasoning(name: str) -> bool:
    """Whether a model is of OpenAI's reasoning series: no sampling parameters, ``max_completion_tokens``."""
    return bool(re.fullmatch(_OPENAI_REASONING, name.rpartition("/")[2]))


# ---- facts


class Facts(NamedTuple):
    """What the packaged table says about a model of a provider; nothing for a model that it does not know.

    ``has_own_prices``: those of the config file stand in the place of the table's.
    """

    provider: str
    name: str
    entry: Mapping[str, Any] = {}
    has_own_prices: bool = False

    @property
    def window(self) -> int | None:
        """Tokens that a prompt may have."""
        return token_count(self.entry.get("max_input_tokens")) or None

    @property
    def prices(self) -> tuple[float, float] | None:
        """USD per token in and out, before tiers and caches; None where they are not known."""
        first = next(iter(as_dicts(self.entry.get("tiered_pricing"))), {})
        known = [self.entry.get(name, first.get(name)) for name in ("input_cost_per_token", "output_cost_per_token")]
        return None if known == [None, None] else (known[0] or 0.0, known[1] or 0.0)

    def can(self, ability: str) -> bool | None:
        """Whether it can do something, such as ``vision``, ``reasoning``, ``function_calling``; None is unknown."""
        known = self.entry.get(f"supports_{ability}")
        return known if isinstance(known, bool) else None

    @property
    def has_chat_api(self) -> bool:
        """Whether it is reached by chat completions, and not by another API of its provider alone."""
        listed = self.entry.get("supported_endpoints") or ["/v1/chat/completions"]
        return self.entry.get("mode") != "responses" and "/v1/chat/completions" in listed


def facts(provider: str | None, name: str) -> Facts:
    """The facts of a model, under the name by which its provider knows it."""
    if provider is None:
        return Facts("", name)
    for key in (name, f"{provider}/{name}"):  # the bare one first: most are OpenAI's
        found = catalog.entry(key)
        if found and provider in (_asked_as(found), found.get("litellm_provider")):
            return Facts(provider, name, found)
    return Facts(provider, name)


@cache
def likely_facts(provider: str | None, name: str) -> Facts:
    """The facts of a model; of one that is newer than the table those of its family."""
    known = facts(provider, name)
    if known.entry:
        return known
    infos = [info for pattern, info in catalog.family_rules() if re.search(pattern, name, re.IGNORECASE)]
    family = known._replace(entry={key: value for info in infos for key, value in info.items()})
    if family.can("adaptive_thinking") and not family.can("legacy_thinking"):  # the rules do not say it, its models do
        return family._replace(entry={**family.entry, "supports_sampling_params": False})
    return family


def models_of(provider: str) -> Iterator[Facts]:
    """The models of a provider that can be talked to today, in the table's order."""
    prefix, today = f"{provider}/", date.today().isoformat()
    for key, entry in catalog.entries().items():
        is_named = "/" not in key or key.startswith(prefix)
        is_retired = str(entry.get("deprecation_date") or "9") < today
        if is_named and not is_retired and entry.get("mode") in _CHAT_MODES and _asked_as(entry) == provider:
            yield Facts(provider, key.removeprefix(prefix), entry)


# ---- parameters


def similar_parameter(name: str) -> str | None:
    """The parameter that was likely meant by a name that no model is known to take; None for any other name."""
    if name in _PARAMETERS:
        return None
    from difflib import get_close_matches  # noqa: PLC0415 - few names are unknown

    return next(iter(get_close_matches(name.lower(), _PARAMETERS, 1, 0.8)), None)


def refused_params(provider: str, name: str, params: Mapping[str, Any]) -> list[str]:
    """The sampling parameters among ``params`` that the model would refuse the whole request for."""
    given = [key for key in _SAMPLING if key in params and (key, params[key]) != ("temperature", 1)]
    if not given:  # the table need not be read
        return []
    known = likely_facts(provider, name)
    if known.can("sampling_params") is False:
        return given
    if provider in OPENAIS and is_openai_reasoning(name):
        return [] if _does_not_reason(known, params) else given
    if provider == "moonshot" and re.match(_KIMI_THAT_REASONS, name):
        return [key for key in given if params[key] != 1]
    return []


def _does_not_reason(known: Facts, params: Mapping[str, Any]) -> bool:
    """Whether the effort in force, what is asked for or else the model's own, is none."""
    effort = params.get("reasoning_effort") or known.entry.get("default_reasoning_effort")
    return effort == "none" and known.can("none_reasoning_effort") is not False


def chat_refuses_tools(known: Facts, params: Mapping[str, Any]) -> bool:
    """Whether chat completions refuse function tools to this model of OpenAI: from gpt-5.4 on, where it reasons.

    Source: https://github.com/BerriAI/litellm/issues/34569.
    """
    version = re.match(_GPT_VERSION, known.name)
    if known.provider not in OPENAIS or not version:
        return False
    if (int(version[1]), int(version[2] or 0)) < _FIRST_WITHOUT_TOOLS_ON_CHAT:
        return False
    return not _does_not_reason(known, params)


def small_params(known: Facts, tokens: int) -> dict[str, Any]:
    """Parameters for a text of so many tokens, such as a title: 0.2, and that limit.

    A model that thinks first gets room for it, and what it takes of effort.
    """
    roomy = tokens + _REASONING_HEADROOM
    if is_openai_reasoning(known.name) or "gpt-oss" in known.name or known.can("adaptive_thinking"):
        return {"reasoning_effort": "low", "max_tokens": roomy}
    thinks = known.can("reasoning")
    if thinks or (thinks is None and re.search(_THINKS, known.name)):
        return {"max_tokens": roomy}
    return {"temperature": 0.2, "max_tokens": tokens}
