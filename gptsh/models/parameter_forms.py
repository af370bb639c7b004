"""The names and places of generation parameters in each API: seed, limits, reasoning effort, stop, tool choice."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from gptsh.jsonio import as_dict
from gptsh.messages import token_count
from gptsh.models.efforts import has_between_tools
from gptsh.models.facts import OPENAIS, is_openai_reasoning, likely_facts
from gptsh.models.providers import Provider

_LIMITS = ("max_tokens", "max_completion_tokens")  # the first one counts
# OpenAI's Responses API. A session may have such parameters from another provider.
_UNKNOWN_TO_RESPONSES = ("seed", "stop", "n", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs")
_MOVED = (("reasoning_effort", "reasoning", "effort"), ("verbosity", "text", "verbosity"))  # name, new name: key in it
_MIN_OUTPUT = 16  # tokens: a smaller limit is refused
# Anthropic's API
_UNKNOWN_TO_CLAUDE = ("seed", "presence_penalty", "frequency_penalty")  # a session may have them from another provider
_REFUSED_WITH_THINKING = ("temperature", "top_p", "top_k")
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 16384, "xhigh": 16384, "max": 16384}
_MIN_BUDGET = 1024
# Google's API. It has its own name for each parameter; those that stand beside ``generationConfig`` in a request:
_BESIDE_CONFIG = ("toolConfig", "safetySettings", "cachedContent", "store", "labels", "serviceTier", "tools")
_RENAMED = {"max_tokens": "maxOutputTokens", "max_completion_tokens": "maxOutputTokens", "stop": "stopSequences"}
_UNKNOWN_TO_GEMINI = ("n", "logit_bias", "logprobs", "top_logprobs", "verbosity", "parallel_tool_calls", "user")
_WITH_BUDGET = "gemini-2"  # models that take a number of tokens; others take a level
_GOOGLES_BUDGETS = {  # Google's own mapping, for its OpenAI-compatible API
    "none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576,
}  # fmt: skip
_ALWAYS_THINKS, _LEAST_BUDGET = "gemini-2.5-pro", 128
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}  # of calls, by OpenAI's ``tool_choice``


def in_form(
    params: Mapping[str, Any], provider: Provider, refusals: Collection[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters as the provider's API names them, and what is left out: names, or a few words.

    Parameters that are in the API's own form already win. litellm takes them all in the form of chat completions.
    """
    fields = dict(params)
    match provider.api:
        case "litellm":
            return fields, []
        case "responses":
            return _for_responses(fields)
        case "gemini":
            return _for_gemini(fields, provider.model)
        case "anthropic":
            return _for_claude(fields, provider, refusals)
    return _for_chat(fields, provider, refusals)


def _rename_limit(fields: dict[str, Any], new_name: str) -> None:
    """Give the limit of the answer's tokens the name that the API has for it."""
    limits = [fields.pop(name) for name in _LIMITS if name in fields]
    if limits:
        fields[new_name] = limits[0]


# ---- chat completions, and Ollama's API


def _for_chat(
    fields: dict[str, Any], provider: Provider, refusals: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """Name seed and limit as the provider does, and ask for the effort in its way."""
    if "seed" in fields:
        fields[provider.seed] = fields.pop("seed")
    limits_thinking = "limit" in refusals or (provider.name in OPENAIS and is_openai_reasoning(provider.model))
    _rename_limit(fields, "max_completion_tokens" if limits_thinking else "max_tokens")
    effort = fields.get("reasoning_effort")
    if not isinstance(effort, str):
        return fields, []
    del fields["reasoning_effort"]
    own = _effort(effort, provider)
    if own is None:
        return fields, ["reasoning_effort"]
    if isinstance(fields.get("reasoning"), dict):  # OpenRouter's and Together's, with further keys
        fields["reasoning"] = {**as_dict(own.get("reasoning")), **fields["reasoning"]}
    return {**own, **fields}, []


def _effort(effort: str, provider: Provider) -> dict[str, Any] | None:
    """The fields that request an effort from a provider; None if it has none."""
    thinks = effort != "none"
    switch = {"thinking": {"type": "enabled" if thinks else "disabled"}}
    match provider.effort:
        case "with thinking":
            return switch | ({"reasoning_effort": effort} if thinks else {})
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
        case "object":
            return {"reasoning": {"effort": effort}}
        case "think":
            return {"think": effort if thinks else False}
        case "nothing":
            return None
    return {"reasoning_effort": effort}


# ---- OpenAI's Responses API


def _for_responses(fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Rename the parameters of chat completions, and leave out those that this API does not know."""
    limits = [fields.pop(name) for name in _LIMITS if name in fields]
    if limits:
        limit = max(limits[0], _MIN_OUTPUT) if type(limits[0]) is int else limits[0]
        fields.setdefault("max_output_tokens", limit)
    for name, outer, inner in _MOVED:
        if name in fields:
            fields[outer] = {inner: fields.pop(name), **as_dict(fields.get(outer))}
    if "response_format" in fields:
        fields["text"] = {"format": _flat(fields.pop("response_format")), **as_dict(fields.get("text"))}
    if isinstance(fields.get("tools"), list):
        fields["tools"] = [_flat(tool) for tool in fields["tools"]]
    if "tool_choice" in fields:
        fields["tool_choice"] = _flat(fields["tool_choice"])
    unknown = [name for name in _UNKNOWN_TO_RESPONSES if name in fields]
    return {name: value for name, value in fields.items() if name not in unknown}, unknown


def _flat(value: Any) -> Any:
    """A tool or a format of chat completions with the fields, which are under its type's name, beside its type."""
    inner = value.get(value.get("type")) if isinstance(value, dict) and isinstance(value.get("type"), str) else None
    return {"type": value["type"], **inner} if isinstance(inner, dict) else value


# ---- Google's API


def _for_gemini(fields: dict[str, Any], model: str) -> tuple[dict[str, Any], list[str]]:
    """Rename the parameters of chat completions, and put each in its place; others are sent under Google's spelling."""
    unknown = [name for name in _UNKNOWN_TO_GEMINI if name in fields]
    config: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    for name, value in fields.items():
        google_name = _RENAMED.get(name) or re.sub("_([a-z])", lambda match: match[1].upper(), name)
        if name in unknown:
            continue
        if name == "reasoning_effort":
            config["thinkingConfig"] = {**_google_thinking(value, model), **as_dict(config.get("thinkingConfig"))}
        elif google_name in ("thinkingLevel", "thinkingBudget", "includeThoughts"):
            config["thinkingConfig"] = {**as_dict(config.get("thinkingConfig")), google_name: value}
        elif name == "response_format":
            schema = _flat(_flat(value).get("json_schema") or value).get("schema")
            config["responseMimeType"] = "application/json"
            if schema:
                config["responseJsonSchema"] = schema
        elif name == "tool_choice":
            beside["toolConfig"] = {"functionCallingConfig": _calling_mode(value)}
        elif name == "tools" and isinstance(value, list):
            beside["tools"] = [_google_tool(tool) for tool in value]
        elif google_name == "generationConfig":
            config |= as_dict(value)
        elif google_name in _BESIDE_CONFIG:
            beside[google_name] = value
        else:
            config[google_name] = [value] if (name, type(value)) == ("stop", str) else value
    if config:
        beside["generationConfig"] = config
    return beside, unknown


def _google_thinking(effort: Any, model: str) -> dict[str, Any]:
    """An effort as tokens for 2.5, and as a level for later models."""
    if re.match(_WITH_BUDGET, model):
        least = _LEAST_BUDGET if model.startswith(_ALWAYS_THINKS) else 0
        return {"thinkingBudget": _GOOGLES_BUDGETS[effort] or least} if effort in _GOOGLES_BUDGETS else {}
    return {"thinkingLevel": str(effort).upper()}


def _calling_mode(choice: Any) -> dict[str, Any]:
    """OpenAI's ``tool_choice`` in Google's form."""
    if isinstance(choice, str):
        return {"mode": _MODES.get(choice, choice.upper())}
    return {"mode": "ANY", "allowedFunctionNames": [_flat(choice).get("name")]}


def _google_tool(tool: Any) -> Any:
    """A function in OpenAI's form as Google's; other tools are unchanged."""
    function = _flat(tool)
    if as_dict(function).get("type") != "function":
        return tool
    kept = {key: function[key] for key in ("name", "description") if key in function}
    return {"functionDeclarations": [{**kept, "parametersJsonSchema": function.get("parameters") or {}}]}


# ---- Anthropic's API


def _for_claude(
    fields: dict[str, Any], provider: Provider, refusals: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """Ask for thinking in Claude's way, and leave out what Anthropic's API does not know or would refuse."""
    _rename_limit(fields, "max_tokens")
    omissions: list[str] = []
    effort = fields.get("reasoning_effort")
    if isinstance(effort, str):
        del fields["reasoning_effort"]
        thinking = _thinking(effort, provider, fields.get("max_tokens"), refusals)
        if thinking is None:
            omissions.append("reasoning_effort")
        else:
            fields = {**thinking, **fields}
    refused = _refused_by_claude(fields, provider)
    omissions += refused
    fields = {name: value for name, value in fields.items() if name not in refused}
    temperature = fields.get("temperature")
    if isinstance(temperature, (int, float)) and temperature > 1:
        del fields["temperature"]  # 1 is the default
        omissions.append("temperature above 1")
    if "top_p" in fields and "temperature" in fields:
        del fields["top_p"]
        omissions.append("top_p beside temperature")
    if "stop" in fields:
        stop = fields.pop("stop")
        stops = stop if isinstance(stop, list) else [stop]
        fields["stop_sequences"] = [text for text in stops if not isinstance(text, str) or text.strip()]
        if len(fields["stop_sequences"]) < len(stops):
            omissions.append("blank stop sequence")
    return fields, omissions


def _refused_by_claude(fields: dict[str, Any], provider: Provider) -> list[str]:
    """The parameters that Anthropic's API does not know, or refuses beside thinking, or from this model."""
    refused = [name for name in _UNKNOWN_TO_CLAUDE if name in fields]
    if as_dict(fields.get("thinking")).get("type") in ("enabled", "adaptive"):
        refused += [name for name in _REFUSED_WITH_THINKING if name in fields]
    if fields.get("temperature") == 1 and "temperature" in refused:
        refused.remove("temperature")
    forces_tools = as_dict(fields.get("tool_choice")).get("type") in ("any", "tool")
    if forces_tools and likely_facts(provider.name, provider.model).can("forced_tool_use") is False:
        refused.append("tool_choice")
    return refused


def _thinking(effort: str, provider: Provider, limit: Any, refusals: Collection[str]) -> dict[str, Any] | None:
    """The fields that make Claude think, or not; None if the model does not support that."""
    facts = likely_facts(provider.name, provider.model)
    if "adaptive" not in refusals and (facts.can("adaptive_thinking") or "budget" in refusals):
        if effort == "none":
            return {"thinking": {"type": "between_tools" if has_between_tools(provider.model) else "disabled"}}
        # Without ``display``, thinking comes as a signature without text.
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}
    if effort == "none":
        return {}  # these models do not think by default
    if facts.can("reasoning") is False or "budget" in refusals or effort not in _BUDGETS:
        return None
    budget = _BUDGETS[effort]
    if type(limit) is not int:
        limit = token_count(facts.entry.get("max_output_tokens"))
    if limit:  # limits thinking and answer together
        budget = min(budget, max(_MIN_BUDGET, limit // 2))
        if limit <= budget:
            return None
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}
