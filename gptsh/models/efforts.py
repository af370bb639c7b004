"""Reasoning efforts (``-p reasoning_effort``): one scale for all models, and which efforts of it a model accepts."""

import re
from collections.abc import Collection

from gptsh.models.facts import is_openai_reasoning, likely_facts

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_LOW_TO_HIGH = ("low", "medium", "high")
_LOW_TO_XHIGH = (*_LOW_TO_HIGH, "xhigh")
_LOW_TO_MAX = (*_LOW_TO_XHIGH, "max")
# Providers that take these from every model, and adapt them themselves if need be.
_OF_PROVIDERS = {"mistral": ("none", "high"), "deepseek": EFFORTS, "openrouter": EFFORTS}
# Families by the beginning of a name, for models that the table lacks, and for what it does not say; the first one
# that matches. A newer version is taken for the last known one.
_FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gpt-oss", _LOW_TO_HIGH),
    (r"gpt-[6-9][.0-9]*-astra|gpt-6\.[0-9]+-sol", _LOW_TO_MAX),
    (r"gpt-(?:5\.[6-9]|[6-9]|[1-9][0-9])", ("none", *_LOW_TO_MAX)),
    (r"gpt-5\.1", ("none", *_LOW_TO_HIGH)),
    (r"gpt-5\.", ("none", *_LOW_TO_XHIGH)),
    ("gpt-5", ("minimal", *_LOW_TO_HIGH)),
    ("o[0-9]", _LOW_TO_HIGH),
    (r"claude-[a-z]+-4[-.]6(?![0-9])", ("none", *_LOW_TO_HIGH, "max")),
    (r"claude-(?:[0-9]|[a-z]+-(?:3|4(?![-.](?:[6-9]|[1-9][0-9])(?![0-9]))))", EFFORTS),  # they take a number of tokens
    (r"claude-(?:fable|mythos)-|claude-opus-(?:5[-.](?:[5-9]|[1-9][0-9])(?![0-9])|[6-9](?![0-9]))", _LOW_TO_MAX),
    ("claude-", ("none", *_LOW_TO_MAX)),
    ("gemini-2", EFFORTS),  # a number of tokens, too
    (r"gemini-3(?:\.[156])?-flash", ("minimal", *_LOW_TO_HIGH)),
    ("gemini-|gemma", _LOW_TO_HIGH),
    ("grok-", ("none", *_LOW_TO_XHIGH)),
    ("kimi-k[3-9]", ("low", "high", "max")),
)
_HIGH_ALONE = "gpt-5-pro"  # the table is wrong about it
_BETWEEN_TOOLS = r"claude-sonnet-(?:5[-.](?:[5-9]|[1-9][0-9])(?![0-9])|[6-9](?![0-9]))"


def nearest_effort(effort: str, accepted: Collection[str]) -> str | None:
    """Return the accepted effort that is nearest to ``effort``, of two the lower one; None if there is none.

    ``none`` becomes the lowest. Any other effort asks for reasoning, so it never becomes ``none``.
    """
    if effort in accepted:
        return effort
    wanted = EFFORTS.index(effort)
    levels = [level for level in EFFORTS[1:] if level in accepted]
    return min(levels, key=lambda level: abs(EFFORTS.index(level) - wanted), default=None)


def accepted_efforts(provider: str, name: str, api: str) -> frozenset[str]:
    """Return the efforts that a model accepts: from the table, else by its family; all of an unknown model."""
    model_facts, bare_name = likely_facts(provider, name), name.rpartition("/")[2].lower()
    levels = model_facts.entry.get("reasoning_effort_levels")
    if isinstance(levels, list):
        return frozenset(levels)
    if provider in _OF_PROVIDERS:
        return frozenset(_OF_PROVIDERS[provider])
    if re.match(_HIGH_ALONE, bare_name):
        return frozenset(("high",))
    if api == "ollama" and "gpt-oss" not in bare_name:
        return frozenset(("none", *_LOW_TO_HIGH, "max"))
    of_family = (efforts for pattern, efforts in _FAMILIES if re.match(pattern, bare_name))
    accepted = set(next(of_family, _LOW_TO_HIGH if api == "gemini" else EFFORTS))
    for effort in EFFORTS:
        match model_facts.can(f"{effort}_reasoning_effort"):
            case True:
                accepted.add(effort)
            case False:
                accepted.discard(effort)
    if model_facts.entry.get("thinking_always_on") and not has_between_tools(bare_name):
        accepted.discard("none")
    if api == "chat" and is_openai_reasoning(bare_name):
        accepted.discard("max")  # only the Responses API has it
    return frozenset(accepted)


def has_between_tools(name: str) -> bool:
    """Whether a Claude that always thinks can be asked to think only between tool calls: its least."""
    return bool(re.match(_BETWEEN_TOOLS, name))
