"""Adapt the user's generation parameters to a model: names, reasoning effort, what it would refuse; and its tools."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from gptsh.jsonio import as_dict
from gptsh.llm.unsupported_params import lacks_effort_beside_tools, of_effort, of_param
from gptsh.messages import Part, Request, Tool, token_count
from gptsh.models.efforts import EFFORTS, accepted_efforts, has_between_tools, nearest_effort
from gptsh.models.facts import OPENAIS, is_openai_reasoning, likely_facts, refused_params
from gptsh.models.providers import Provider

# Refused at the top of a tool's schema by OpenAI, and most of them by Anthropic.
_CONDITIONS = ("allOf", "anyOf", "oneOf", "enum", "const", "not")
_LIMITS = ("max_tokens", "max_completion_tokens")
# OpenAI's Responses API. A session may have such parameters from another provider.
_UNKNOWN_TO_RESPONSES = ("seed", "stop", "n", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs")
_MOVED = (("reasoning_effort", "reasoning", "effort"), ("verbosity", "text", "verbosity"))  # name, new name: key in it
_MIN_OUTPUT = 16  # tokens: a smaller limit is refused
# Anthropic's API
_UNKNOWN = ("seed", "presence_penalty", "frequency_penalty")  # a session may have them from another provider
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


class FittedParams(NamedTuple):
    """The parameters to send, and those left out because the model would refuse them: names, or a few words.

    ``effort``: the reasoning effort that the model accepts and the user's is nearest to.
    """

    fields: dict[str, Any]
    omissions: list[str]
    effort: Any


def fit_params(params: Mapping[str, Any], provider: Provider, refusals: Collection[str] = ()) -> FittedParams:
    """Adapt the user's parameters to a model, without what its server has refused.

    litellm knows the names and the forms: for it they are only removed, and the effort is the nearest.
    """
    effort = _effort_for(params, provider, refusals)
    refused = [name for name in params if of_param(name) in refusals or (name == "reasoning_effort" and not effort)]
    accepted = {name: value for name, value in params.items() if name not in refused}
    if "reasoning_effort" in accepted:
        accepted["reasoning_effort"] = effort
    fields, omissions = _fit(accepted, provider, refusals)
    return FittedParams(fields, refused + omissions, effort)


def adaptations(params: Mapping[str, Any], provider: Provider, refusals: Collection[str] = ()) -> list[str]:
    """What is not sent as the user asked, each in words that follow the model's name."""
    fitted, asked = fit_params(params, provider, refusals), params.get("reasoning_effort")
    lines = [f"takes no {', '.join(fitted.omissions)}: left out"] if fitted.omissions else []
    if fitted.effort and fitted.effort != asked:
        lines.append(f"takes no reasoning_effort {asked}: {fitted.effort} is sent")
    if asked not in (None, "none") and lacks_effort_beside_tools(refusals):
        lines.append("takes no reasoning_effort beside tools: with them none is sent")
    return lines


def _effort_for(params: Mapping[str, Any], provider: Provider, refusals: Collection[str]) -> Any:
    """The effort to ask of a model: the nearest that it accepts; the user's own if it is not on the scale."""
    effort = params.get("reasoning_effort")
    if effort not in EFFORTS:
        return effort
    accepted = accepted_efforts(provider.name, provider.model, provider.api)
    return nearest_effort(effort, [level for level in accepted if of_effort(level) not in refusals])


def _fit(params: Mapping[str, Any], provider: Provider, refusals: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """The parameters as the API names them, and those left out."""
    omissions = refused_params(provider.name, provider.model, params) if params else []
    fields = {key: value for key, value in params.items() if key not in omissions}
    if provider.api == "litellm" or not fields:
        return fields, omissions
    if provider.api == "responses":
        return _for_responses(fields, omissions)
    if provider.api == "gemini":
        return _for_gemini(fields, omissions, provider.model)
    is_claude = provider.api == "anthropic"
    if "seed" in fields:
        fields[provider.seed] = fields.pop("seed")
    for limit in [fields.pop(name) for name in _LIMITS if name in fields][:1]:
        limits_thinking = "limit" in refusals or (provider.name in OPENAIS and is_openai_reasoning(provider.model))
        fields[_LIMITS[limits_thinking and not is_claude]] = limit
    if isinstance(effort := fields.get("reasoning_effort"), str):
        del fields["reasoning_effort"]
        limit = fields.get("max_tokens")
        own = _thinking(effort, provider, limit, refusals) if is_claude else _effort(effort, provider)
        omissions += [] if own is not None else ["reasoning_effort"]
        if own and isinstance(fields.get("reasoning"), dict):  # OpenRouter's and Together's, with further keys
            fields["reasoning"] = {**as_dict(own.get("reasoning")), **fields["reasoning"]}
        fields = {**(own or {}), **fields}  # parameters in the API's own form win
    return _for_claude(fields, omissions, provider) if is_claude else (fields, omissions)


def schema_as_text(request: Request) -> Request:
    """The request with its schema in the system prompt, for a server that refuses the field."""
    if request.schema is None:
        return request
    from gptsh.context.answer_schema import messages_with_schema  # noqa: PLC0415 - few answers have a schema

    return request._replace(messages=messages_with_schema(request.messages, request.schema), schema=None)


def take_tools(
    params: dict[str, Any], request: Request, provider: Provider, declare: Callable[[Sequence[Tool]], list[Part]]
) -> list[Part]:
    """All tools of a request: the user's own, removed from ``params``, the provider's web search, and the offered ones.

    ``declare`` writes the offered ones in the API's form.
    """
    own_tools = params.pop("tools", None)
    tools = [*own_tools] if isinstance(own_tools, list) else []
    if request.web and provider.web_search and provider.web_search.tool:
        tools.append({**provider.web_search.tool})
    return tools + declare([fit_tool(tool, provider) for tool in request.tools])


def openai_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments as OpenAI and Google want it: they require ``properties``."""
    return {**tool.parameters, "properties": tool.parameters.get("properties") or {}}


def fit_tool(tool: Tool, provider: Provider) -> Tool:
    """Move conditions at the top of a tool's schema into its description, and give the schema its type.

    A description that is too long for the provider is cut at a word.
    """
    tool = _with_plain_schema(tool)
    text, limit = tool.description, provider.longest_description
    if limit and len(text) > limit:
        text = text[:limit]
        text = (re.sub(r"\s*\S*\Z", "", text) or text[:-1]) + "…"
    return tool._replace(description=text)


def _with_plain_schema(tool: Tool) -> Tool:
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


def _for_responses(fields: dict[str, Any], omissions: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Rename the parameters of chat completions, and leave out those that this API does not know."""
    for limit in [fields.pop(name) for name in _LIMITS if name in fields][:1]:
        fields.setdefault("max_output_tokens", max(limit, _MIN_OUTPUT) if type(limit) is int else limit)
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
    return {name: value for name, value in fields.items() if name not in unknown}, omissions + unknown


def _flat(value: Any) -> Any:
    """A tool or a format of chat completions with the fields, which are under its type's name, beside its type."""
    inner = value.get(value.get("type")) if isinstance(value, dict) and isinstance(value.get("type"), str) else None
    return {"type": value["type"], **inner} if isinstance(inner, dict) else value


# ---- Google's API


def _for_gemini(fields: dict[str, Any], omissions: list[str], model: str) -> tuple[dict[str, Any], list[str]]:
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
            config |= {"responseMimeType": "application/json", **({"responseJsonSchema": schema} if schema else {})}
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
    return {**beside, **({"generationConfig": config} if config else {})}, omissions + unknown


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


def _for_claude(fields: dict[str, Any], omissions: list[str], provider: Provider) -> tuple[dict[str, Any], list[str]]:
    """Leave out what Anthropic's API does not know, or refuses: with thinking, by value, or with another parameter."""
    thinks = as_dict(fields.get("thinking")).get("type") in ("enabled", "adaptive")
    refusals = [name for name in (*_UNKNOWN, *(_REFUSED_WITH_THINKING if thinks else ())) if name in fields]
    if as_dict(fields.get("tool_choice")).get("type") in ("any", "tool"):
        may_force = likely_facts(provider.name, provider.model).can("forced_tool_use")
        refusals += ["tool_choice"] if may_force is False else []
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
    return fields, omissions + refusals
