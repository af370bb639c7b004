"""Generation parameters as a model takes them: its names, its way to say effort, and what it would refuse."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gptsh.core.models import OPENAIS, is_openai_reasoning, refused
from gptsh.core.providers import Effort, Endpoint

_LIMITS = ("max_tokens", "max_completion_tokens")


class Fitted(NamedTuple):
    """What is sent, and the names of what is left out because the model would refuse the request for it."""

    sent: dict[str, Any]
    left_out: list[str]


def fit(params: Mapping[str, Any], provider: str, name: str, endpoint: Endpoint) -> Fitted:
    """The user's parameters for one model. litellm knows the names that its models use, but not what they refuse."""
    left_out = refused(provider, name, params)
    sent = {key: value for key, value in params.items() if key not in left_out}
    if endpoint.wire == "litellm":
        return Fitted(sent, left_out)
    for limit in [sent.pop(name) for name in _LIMITS if name in sent][:1]:
        counted = provider in OPENAIS and is_openai_reasoning(name)
        sent[_LIMITS[counted]] = limit
    effort = sent.get("reasoning_effort")
    if isinstance(effort, str):
        del sent["reasoning_effort"]
        said = _EFFORTS[endpoint.effort](name, effort)
        sent |= said
        left_out += [] if said else ["reasoning_effort"]
    return Fitted(sent, left_out)


def _high_or_max(_name: str, effort: str) -> dict[str, Any]:
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled"}, "reasoning_effort": "max" if effort in ("xhigh", "max") else "high"}


def _switch(_name: str, effort: str) -> dict[str, Any]:
    return {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}


def _switch_for_k2(name: str, effort: str) -> dict[str, Any]:
    return _switch(name, effort) if name.startswith("kimi-k2") else {"reasoning_effort": effort}


def _with_switch(_name: str, effort: str) -> dict[str, Any]:
    if effort == "none":
        return {"reasoning": {"enabled": False}}
    return {"reasoning": {"enabled": True}, "reasoning_effort": effort}


def _think(name: str, effort: str) -> dict[str, Any]:
    """Ollama's switch, which for gpt-oss has three positions."""
    if effort == "none" or "gpt-oss" not in name:
        return {"think": effort != "none"}
    return {"think": {"minimal": "low", "low": "low", "medium": "medium"}.get(effort, "high")}


_EFFORTS: dict[Effort, Callable[[str, str], dict[str, Any]]] = {
    "as is": lambda _name, effort: {"reasoning_effort": effort},
    "none or high": lambda _name, effort: {"reasoning_effort": "none" if effort == "none" else "high"},
    "high or max": _high_or_max,
    "switch": _switch,
    "switch for k2": _switch_for_k2,
    "enable": lambda _name, effort: {"enable_thinking": effort != "none"},
    "template": lambda _name, effort: {"chat_template_kwargs": {"enable_thinking": effort != "none"}},
    "with switch": _with_switch,
    "nothing": lambda _name, _effort: {},
    "think": _think,
}
