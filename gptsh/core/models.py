"""Facts about models: whose a name is, window, output limit, abilities, price, and which parameters are refused."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gptsh.core import table

_OPENAI_NAME = re.compile(r"(gpt(?!-oss)|chatgpt|o[0-9])[-.0-9a-z]*", re.IGNORECASE)
_OPENAI_REASONING = re.compile(
    r"(?:.*/)?(?:ft:)?(?:o[0-9]|gpt-(?:[5-9]|[1-9][0-9])(?!.*chat))[-.:0-9a-z]*", re.IGNORECASE
)
_GPT_VERSION = re.compile(r"gpt-([0-9]+)(?:\.([0-9]+))?(?!.*chat)", re.IGNORECASE)
_FIRST_WITHOUT_TOOLS_ON_CHAT = (5, 4)
_KIMI_THAT_REASONS = re.compile(r"kimi-k(?:2\.[5-9]|[3-9])", re.IGNORECASE)
# Families that think before they speak, and spend a small token limit on that alone; for names not in the table.
_THINKS = re.compile(
    r"gpt-oss|deepseek-(v[4-9]|r[0-9]|reasoner)|grok-(?!.*non-reasoning)|kimi-k|glm-[4-9]|qwen-?3|qwq|magistral|"
    r"nemotron|minimax|sonar-.*reason|think|reason",
    re.IGNORECASE,
)
_TITLE_TOKENS = 24
_TITLE_TOKENS_REASONING = 2000  # room to think first: a small cap gives reasoning models a blank title
_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty")
_SPOKEN = ("chat", "responses")
_ROUTED_AS = {
    "ai21": "ai21_chat",
    "bedrock_converse": "bedrock",
}  # the table's name for a provider: what it is asked as


# ---- names


def split_model(model: str) -> tuple[str | None, str]:
    """``provider/name`` as ``(provider, name)``; the provider of a bare name is None where none is known.

    A bare name is OpenAI's by its look, or belongs to whom the packaged table, then its routing rules say.
    """
    provider, slash, name = model.partition("/")
    if slash:
        return provider, name
    if _OPENAI_NAME.fullmatch(model):
        return "openai", model
    return ("echo" if model == "echo" else _owner(model)), model


def _owner(name: str) -> str | None:
    found = table.entry(name)
    if found and found.get("mode") in _SPOKEN:
        listed = str(found.get("litellm_provider"))
        return "vertex_ai" if listed.startswith("vertex_ai") else _ROUTED_AS.get(listed, listed)
    rules = table.routing_rules()
    return next((provider for pattern, provider in rules if re.search(pattern, name, re.IGNORECASE)), None)


def near_names(name: str) -> list[str]:
    """Known models whose names are like this one, as ``-m`` takes them, at most three."""
    from difflib import get_close_matches  # noqa: PLC0415 - only an error asks

    keys = [key for key, entry in table.entries().items() if entry.get("mode") == "chat"]
    known = {key.rpartition("/")[2]: key for key in sorted(keys, key=len, reverse=True)}  # the vendor's own comes last
    return [known[match] for match in get_close_matches(name, known, 3, 0.75)]


def is_openai_reasoning(name: str) -> bool:
    """Whether a model is of OpenAI's reasoning series: no sampling parameters, ``max_completion_tokens``."""
    return bool(_OPENAI_REASONING.fullmatch(name))


# ---- facts


class Facts(NamedTuple):
    """What the packaged table says about a model of a provider; nothing for a model that it does not know."""

    provider: str
    name: str
    entry: Mapping[str, Any] = {}

    @property
    def window(self) -> int | None:
        """Tokens that a prompt may have."""
        return _tokens(self.entry.get("max_input_tokens"))

    @property
    def output_limit(self) -> int | None:
        """Tokens that an answer may have."""
        return _tokens(self.entry.get("max_output_tokens"))

    @property
    def prices(self) -> tuple[float, float] | None:
        """USD per token in and out, before tiers and caches; None where they are not known."""
        known = [self.entry.get(f"{way}_cost_per_token") for way in ("input", "output")]
        return None if known == [None, None] else (known[0] or 0.0, known[1] or 0.0)

    def can(self, ability: str) -> bool | None:
        """Whether it can do something, such as ``vision``, ``reasoning``, ``function_calling``; None is unknown."""
        known = self.entry.get(f"supports_{ability}")
        return known if isinstance(known, bool) else None

    @property
    def speaks_chat(self) -> bool:
        """Whether it is reached by chat completions, and not by another API of its provider alone."""
        reached_by = self.entry.get("supported_endpoints") or ["/v1/chat/completions"]
        return self.entry.get("mode") != "responses" and "/v1/chat/completions" in reached_by


def facts(provider: str | None, name: str) -> Facts:
    """The facts of a model, under the name by which its provider knows it."""
    if provider is None:
        return Facts("", name)
    entry = table.entry(f"{provider}/{name}") or _bare(provider, name)
    return Facts(provider, name, entry or {})


def _bare(provider: str, name: str) -> table.Entry | None:
    found = table.entry(name)
    return found if found and str(found.get("litellm_provider")).startswith(provider) else None


def models_of(provider: str) -> Iterator[Facts]:
    """The models of a provider that can be talked to, in the table's order."""
    for key, entry in table.entries().items():
        owner, _, name = key.rpartition("/") if "/" not in key else key.partition("/")
        if entry.get("mode") in _SPOKEN and entry.get("litellm_provider") == provider and owner in ("", provider):
            yield Facts(provider, name, entry)


def _tokens(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value > 0 else None


# ---- parameters


def refused(provider: str, name: str, params: Mapping[str, Any]) -> list[str]:
    """The sampling parameters among ``params`` that the model would refuse the whole request for."""
    given = [key for key in _SAMPLING if key in params]
    if not given:  # the table need not be read
        return []
    known = facts(provider, name)
    if known.can("sampling_params") is False:
        return given
    if known.provider == "openai" and is_openai_reasoning(known.name):
        return [] if _effort(known, params) == "none" else given
    if known.provider == "moonshot" and _KIMI_THAT_REASONS.match(known.name):
        return [key for key in given if params[key] != 1]
    return []


def _effort(known: Facts, params: Mapping[str, Any]) -> Any:
    """The reasoning effort in force: what is asked for, else the model's own."""
    return params.get("reasoning_effort") or known.entry.get("default_reasoning_effort")


def chat_refuses_tools(known: Facts, params: Mapping[str, Any]) -> bool:
    """Whether chat completions refuse function tools to this model of OpenAI: from gpt-5.4 on, where it reasons.

    Source: https://github.com/BerriAI/litellm/issues/34569.
    """
    version = _GPT_VERSION.match(known.name)
    if known.provider != "openai" or not version:
        return False
    if (int(version[1]), int(version[2] or 0)) < _FIRST_WITHOUT_TOOLS_ON_CHAT:
        return False
    return _effort(known, params) != "none" or known.can("none_reasoning_effort") is False


def title_params(known: Facts) -> dict[str, Any]:
    """Parameters for a title: 0.2 and 24 tokens; for a model that thinks first, room and what it takes of effort."""
    if is_openai_reasoning(known.name) or "gpt-oss" in known.name:
        return {"reasoning_effort": "low", "max_tokens": _TITLE_TOKENS_REASONING}
    thinks = known.can("reasoning")
    if thinks or (thinks is None and _THINKS.search(known.name)):
        return {"max_tokens": _TITLE_TOKENS_REASONING}
    return {"temperature": 0.2, "max_tokens": _TITLE_TOKENS}
