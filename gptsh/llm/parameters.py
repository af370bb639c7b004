"""Generation parameters as a model takes them: its names, its way to say effort, and what it would refuse."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gptsh.jsonio import as_dict
from gptsh.models.facts import OPENAIS, Facts, is_openai_reasoning, likely_facts, refused
from gptsh.models.providers import Effort, Provider

_LIMITS = ("max_tokens", "max_completion_tokens")

# Anthropic's API
_UNKNOWN_THERE = ("seed", "presence_penalty", "frequency_penalty")  # a session may bring them from another provider
_NOT_BESIDE_THINKING = ("temperature", "top_p", "top_k")
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096, "xhigh": 8192, "max": 16384}  # as LiteLLM's
_LEAST_BUDGET = 1024
_FORCED = ("any", "tool")
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


class Fitted(NamedTuple):
    """What is sent, and what is left out because the model would refuse the request for it: names, or a few words."""

    sent: dict[str, Any]
    left_out: list[str]


def fit(params: Mapping[str, Any], provider: Provider) -> Fitted:
    """The user's parameters for one model. litellm knows the names that its models use, but not what they refuse."""
    name = provider.model
    left_out = refused(provider.name, name, params)
    sent = {key: value for key, value in params.items() if key not in left_out}
    if provider.wire == "litellm":
        return Fitted(sent, left_out)
    if provider.wire == "anthropic":
        return _for_anthropic(sent, left_out, likely_facts(provider.name, name))
    for limit in [sent.pop(name) for name in _LIMITS if name in sent][:1]:
        counted = provider.name in OPENAIS and is_openai_reasoning(name)
        sent[_LIMITS[counted]] = limit
    effort = sent.get("reasoning_effort")
    if isinstance(effort, str):
        del sent["reasoning_effort"]
        said = _EFFORTS[provider.effort](name, effort)
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


# ---- Anthropic's API


def _for_anthropic(sent: dict[str, Any], left_out: list[str], known: Facts) -> Fitted:
    """Under its names; what it knows in another provider's shape is translated, all else goes as it is."""
    for limit in [sent.pop(name) for name in _LIMITS if name in sent][:1]:
        sent["max_tokens"] = limit
    if "stop" in sent:
        stop = sent.pop("stop")
        sent["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if isinstance(sent.get("tools"), list):
        sent["tools"] = [_tool(tool) for tool in sent["tools"]]
    if "tool_choice" in sent:
        sent["tool_choice"] = _tool_choice(sent["tool_choice"])
    refuses = [name for name in _UNKNOWN_THERE if name in sent]
    effort = sent.get("reasoning_effort")
    if isinstance(effort, str):
        del sent["reasoning_effort"]
        thinking = _thinking(effort, known, sent.get("max_tokens"))
        sent = {**(thinking or {}), **sent}  # what is said in its own words counts
        refuses += [] if thinking is not None else ["reasoning_effort"]
    refuses += _refused_beside_thinking(sent, known)
    sent = {name: value for name, value in sent.items() if name not in refuses}
    return Fitted(sent, left_out + refuses + _out_of_bounds(sent))


def _out_of_bounds(sent: dict[str, Any]) -> list[str]:
    """Take away what is refused by its value, or beside another parameter; what that was, in words."""
    gone, heat = [], sent.get("temperature")
    if isinstance(heat, (int, float)) and heat > 1:
        del sent["temperature"]  # 1 is the default
        gone.append("temperature above 1")
    if "top_p" in sent and "temperature" in sent:
        del sent["top_p"]
        gone.append("top_p beside temperature")
    stops = sent.get("stop_sequences")
    if isinstance(stops, list) and any(map(_is_blank, stops)):
        sent["stop_sequences"] = [stop for stop in stops if not _is_blank(stop)]
        gone.append("blank stop sequence")
    return gone


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _thinking(effort: str, known: Facts, limit: Any) -> dict[str, Any] | None:
    """How thinking is asked for, or not; None where the model cannot be asked for that."""
    if known.can("adaptive_thinking"):
        if effort != "none":
            # Else only its signature comes, without its text.
            return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": _level(effort, known)}
        return None if known.entry.get("thinking_always_on") else {"thinking": {"type": "disabled"}}
    if effort == "none":
        return {}  # it does not think unless asked to
    if known.can("reasoning") is False or effort not in _BUDGETS:
        return None
    budget = _BUDGETS[effort]
    if type(limit) is int:  # the limit is on thinking and answer together
        budget = min(budget, max(_LEAST_BUDGET, limit // 2))
        if limit <= budget:
            return None
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _level(effort: str, known: Facts) -> dict[str, Any]:
    """The effort as the model knows it: the lowest is low, and of the highest not all know both."""
    if effort in ("xhigh", "max") and not known.can(f"{effort}_reasoning_effort"):
        effort = "high"
    return {"effort": "low" if effort == "minimal" else effort}


def _refused_beside_thinking(sent: Mapping[str, Any], known: Facts) -> list[str]:
    """What is refused of a model that thinks, as a parameter says or by nature."""
    kind = as_dict(sent.get("thinking")).get("type")
    forces = as_dict(sent.get("tool_choice")).get("type") in _FORCED
    refuses = ["tool_choice"] if forces and (kind == "enabled" or known.can("forced_tool_use") is False) else []
    if kind not in ("enabled", "adaptive"):
        return refuses
    return refuses + [
        name for name in _NOT_BESIDE_THINKING if name in sent and (name, sent[name]) != ("temperature", 1)
    ]


def _tool(tool: Any) -> Any:
    """A tool of OpenAI's shape in Anthropic's; any other one as it is."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        return tool
    named = {key: function[key] for key in ("name", "description") if key in function}
    return {**named, "input_schema": function.get("parameters") or {"type": "object", "properties": {}}}


def _tool_choice(choice: Any) -> Any:
    """OpenAI's shape in Anthropic's; any other one as it is."""
    if isinstance(choice, str):
        return {"type": _CHOICES.get(choice, choice)}
    function = as_dict(as_dict(choice).get("function"))
    return {"type": "tool", "name": function["name"]} if "name" in function else choice
