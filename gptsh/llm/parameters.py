"""Generation parameters as a model takes them: its names, its way to set the effort, and what it would refuse."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gptsh.jsonio import as_dict
from gptsh.models.facts import OPENAIS, is_openai_reasoning, likely_facts, refused_params
from gptsh.models.providers import Provider

_LIMITS = ("max_tokens", "max_completion_tokens")
# Anthropic's API
_UNKNOWN_THERE = ("seed", "presence_penalty", "frequency_penalty")  # a session may bring them from another provider
_NOT_BESIDE_THINKING = ("temperature", "top_p", "top_k")
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096, "xhigh": 8192, "max": 16384}  # as LiteLLM's
_LEAST_BUDGET = 1024


class Fitted(NamedTuple):
    """What is sent, and what is left out because the model would refuse the request for it: names, or a few words."""

    sent: dict[str, Any]
    left_out: list[str]


def fit(params: Mapping[str, Any], provider: Provider) -> Fitted:
    """The user's parameters for a model. litellm knows the names that its models use, but not what they refuse."""
    left_out = refused_params(provider.name, provider.model, params) if params else []
    sent = {key: value for key, value in params.items() if key not in left_out}
    if provider.api == "litellm" or not sent:
        return Fitted(sent, left_out)
    is_claude = provider.api == "anthropic"
    for limit in [sent.pop(name) for name in _LIMITS if name in sent][:1]:
        counts_all = provider.name in OPENAIS and is_openai_reasoning(provider.model)
        sent[_LIMITS[counts_all and not is_claude]] = limit
    if isinstance(effort := sent.get("reasoning_effort"), str):
        del sent["reasoning_effort"]
        asked = _thinking(effort, provider, sent.get("max_tokens")) if is_claude else _effort(effort, provider)
        left_out += [] if asked is not None else ["reasoning_effort"]
        sent = {**(asked or {}), **sent}  # what is said in the API's own words counts
    return _for_claude(sent, left_out) if is_claude else Fitted(sent, left_out)


def _effort(effort: str, provider: Provider) -> dict[str, Any] | None:
    """How a provider is asked for an effort; None where it cannot be."""
    thinks = effort != "none"
    switch = {"thinking": {"type": "enabled" if thinks else "disabled"}}
    match provider.effort:
        case "none or high":
            return {"reasoning_effort": "high" if thinks else "none"}
        case "high or max":
            most = "max" if effort in ("xhigh", "max") else "high"
            return switch | ({"reasoning_effort": most} if thinks else {})
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
        case "think" if "gpt-oss" in provider.model and thinks:  # Ollama's switch has three positions for it
            return {"think": {"minimal": "low", "low": "low", "medium": "medium"}.get(effort, "high")}
        case "think":
            return {"think": thinks}
        case "nothing":
            return None
    return {"reasoning_effort": effort}


# ---- Anthropic's API


def _thinking(effort: str, provider: Provider, limit: Any) -> dict[str, Any] | None:
    """How Claude is asked to think, or not to; None where the model cannot be asked for that."""
    known = likely_facts(provider.name, provider.model)
    if known.can("adaptive_thinking"):
        if effort == "none":
            return None if known.entry.get("thinking_always_on") else {"thinking": {"type": "disabled"}}
        if effort in ("xhigh", "max") and not known.can(f"{effort}_reasoning_effort"):
            effort = "high"
        level = "low" if effort == "minimal" else effort
        # Unless it is displayed, only the signature of a thought comes, without its text.
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}
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


def _for_claude(sent: dict[str, Any], left_out: list[str]) -> Fitted:
    """Without what its API does not know, or refuses beside thinking, by its value or beside another parameter."""
    thinks = as_dict(sent.get("thinking")).get("type") in ("enabled", "adaptive")
    refuses = [name for name in (*_UNKNOWN_THERE, *(_NOT_BESIDE_THINKING if thinks else ())) if name in sent]
    if sent.get("temperature") == 1 and "temperature" in refuses:
        refuses.remove("temperature")
    sent = {name: value for name, value in sent.items() if name not in refuses}
    heat = sent.get("temperature")
    if isinstance(heat, (int, float)) and heat > 1:
        del sent["temperature"]  # 1 is the default
        refuses.append("temperature above 1")
    if "top_p" in sent and "temperature" in sent:
        del sent["top_p"]
        refuses.append("top_p beside temperature")
    if "stop" in sent:
        stop = sent.pop("stop")
        stops = stop if isinstance(stop, list) else [stop]
        sent["stop_sequences"] = [one for one in stops if not isinstance(one, str) or one.strip()]
        refuses += ["blank stop sequence"] if len(sent["stop_sequences"]) < len(stops) else []
    return Fitted(sent, left_out + refuses)
