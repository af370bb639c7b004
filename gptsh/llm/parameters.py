"""Adapt the user's generation parameters to a model: names, reasoning effort, what it would refuse; and its tools."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from gptsh.jsonio import as_dict
from gptsh.messages import Tool
from gptsh.models.facts import OPENAIS, is_openai_reasoning, likely_facts, refused_params
from gptsh.models.providers import Provider

# Refused at the top of a tool's schema by OpenAI, and most of them by Anthropic.
_CONDITIONS = ("allOf", "anyOf", "oneOf", "enum", "const", "not")
_LIMITS = ("max_tokens", "max_completion_tokens")
# Anthropic's API
_UNKNOWN = ("seed", "presence_penalty", "frequency_penalty")  # a session may have them from another provider
_REFUSED_WITH_THINKING = ("temperature", "top_p", "top_k")
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096, "xhigh": 8192, "max": 16384}  # as LiteLLM's
_MIN_BUDGET = 1024


class FittedParams(NamedTuple):
    """The parameters to send, and those left out because the model would refuse them: names, or a few words."""

    fields: dict[str, Any]
    omissions: list[str]


def fit_params(params: Mapping[str, Any], provider: Provider) -> FittedParams:
    """Adapt the user's parameters to a model. For litellm only refused ones are removed: it knows the names."""
    omissions = refused_params(provider.name, provider.model, params) if params else []
    fields = {key: value for key, value in params.items() if key not in omissions}
    if provider.api == "litellm" or not fields:
        return FittedParams(fields, omissions)
    is_claude = provider.api == "anthropic"
    for limit in [fields.pop(name) for name in _LIMITS if name in fields][:1]:
        limits_thinking = provider.name in OPENAIS and is_openai_reasoning(provider.model)
        fields[_LIMITS[limits_thinking and not is_claude]] = limit
    if isinstance(effort := fields.get("reasoning_effort"), str):
        del fields["reasoning_effort"]
        own = _thinking(effort, provider, fields.get("max_tokens")) if is_claude else _effort(effort, provider)
        omissions += [] if own is not None else ["reasoning_effort"]
        fields = {**(own or {}), **fields}  # parameters in the API's own form win
    return _for_claude(fields, omissions) if is_claude else FittedParams(fields, omissions)


def fit_tool(tool: Tool) -> Tool:
    """Move conditions at the top of a tool's schema into its description, and give the schema its type."""
    conditions = {key: tool.parameters[key] for key in _CONDITIONS if key in tool.parameters}
    schema = {key: value for key, value in tool.parameters.items() if key not in conditions} | {"type": "object"}
    if not conditions:
        return tool._replace(parameters=schema)
    rest = json.dumps(conditions, ensure_ascii=False, separators=(",", ":"))
    words = f"The arguments must also conform to this JSON Schema: {rest}"
    return Tool(tool.name, f"{tool.description}\n\n{words}" if tool.description else words, schema)


def _effort(effort: str, provider: Provider) -> dict[str, Any] | None:
    """The fields that request an effort from a provider; None if it has none."""
    thinks = effort != "none"
    switch = {"thinking": {"type": "enabled" if thinks else "disabled"}}
    match provider.effort:
        case "none or high":
            return {"reasoning_effort": "high" if thinks else "none"}
        case "high or max":
            level = "max" if effort in ("xhigh", "max") else "high"
            return switch | ({"reasoning_effort": level} if thinks else {})
        case "switch":
            return switch
        case "switch for k2" if provider.model.startswith("kimi-k2"):
            return switch
        case "enable":
            return {"enable_thinking": thinks}
        case "template":
            return {"chat_template_kwargs": {"enable_thinking": thinks}}
        case "with switch":
            return {"reasoning": {"enabled": thinks}, **({"reasoning_effort": effort} if thinks else {})}
        case "think" if "gpt-oss" in provider.model and thinks:  # Ollama has three levels for this model
            return {"think": {"minimal": "low", "low": "low", "medium": "medium"}.get(effort, "high")}
        case "think":
            return {"think": thinks}
        case "nothing":
            return None
    return {"reasoning_effort": effort}


# ---- Anthropic's API


def _thinking(effort: str, provider: Provider, limit: Any) -> dict[str, Any] | None:
    """The fields that make Claude think, or not; None if the model does not support that."""
    facts = likely_facts(provider.name, provider.model)
    if facts.can("adaptive_thinking"):
        if effort == "none":
            return None if facts.entry.get("thinking_always_on") else {"thinking": {"type": "disabled"}}
        if effort in ("xhigh", "max") and not facts.can(f"{effort}_reasoning_effort"):
            effort = "high"
        level = "low" if effort == "minimal" else effort
        # Without ``display``, thinking comes as a signature without text.
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}
    if effort == "none":
        return {}  # these models do not think by default
    if facts.can("reasoning") is False or effort not in _BUDGETS:
        return None
    budget = _BUDGETS[effort]
    if type(limit) is int:  # limits thinking and answer together
        budget = min(budget, max(_MIN_BUDGET, limit // 2))
        if limit <= budget:
            return None
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _for_claude(fields: dict[str, Any], omissions: list[str]) -> FittedParams:
    """Leave out what Anthropic's API does not know, or refuses: with thinking, by value, or with another parameter."""
    thinks = as_dict(fields.get("thinking")).get("type") in ("enabled", "adaptive")
    refusals = [name for name in (*_UNKNOWN, *(_REFUSED_WITH_THINKING if thinks else ())) if name in fields]
    if fields.get("temperature") == 1 and "temperature" in refusals:
        refusals.remove("temperature")
    fields = {name: value for name, value in fields.items() if name not in refusals}
    temperature = fields.get("temperature")
    if isinstance(temperature, (int, float)) and temperature > 1:
        del fields["temperature"]  # 1 is the default
        refusals.append("temperature above 1")
    if "top_p" in fields and "temperature" in fields:
        del fields["top_p"]
        refusals.append("top_p beside temperature")
    if "stop" in fields:
        stop = fields.pop("stop")
        stops = stop if isinstance(stop, list) else [stop]
        fields["stop_sequences"] = [text for text in stops if not isinstance(text, str) or text.strip()]
        refusals += ["blank stop sequence"] if len(fields["stop_sequences"]) < len(stops) else []
    return FittedParams(fields, omissions + refusals)
