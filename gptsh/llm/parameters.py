"""Decide which parameters and reasoning efforts a model accepts, and name them as its API does."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from gptsh.config.accounts import Target
from gptsh.jsonio import JsonObject, as_dict
from gptsh.messages import token_count
from gptsh.models.facts import OPENAIS, is_openai_reasoning, likely_facts

# ---- efforts
#
# Reasoning efforts (``-p reasoning_effort``): one scale for all models, and which efforts of it a
# model accepts.

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_LOW_TO_HIGH = ("low", "medium", "high")
_LOW_TO_XHIGH = (*_LOW_TO_HIGH, "xhigh")
_LOW_TO_MAX = (*_LOW_TO_XHIGH, "max")
# Providers that take these from every model, and adapt them themselves if need be.
_OF_PROVIDERS = {"mistral": ("none", "high"), "deepseek": EFFORTS, "openrouter": EFFORTS}
# Families by the beginning of a name, for models that are not in the table, and for what it does
# not say; the first one that matches. A newer version is taken for the last known one.
_FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gpt-oss", _LOW_TO_HIGH),
    (r"gpt-[6-9][.0-9]*-astra|gpt-6\.[0-9]+-sol", _LOW_TO_MAX),
    (r"gpt-(?:5\.[6-9]|[6-9]|[1-9][0-9])", ("none", *_LOW_TO_MAX)),
    (r"gpt-5\.1", ("none", *_LOW_TO_HIGH)),
    (r"gpt-5\.", ("none", *_LOW_TO_XHIGH)),
    ("gpt-5", ("minimal", *_LOW_TO_HIGH)),
    ("o[0-9]", _LOW_TO_HIGH),
    (r"claude-[a-z]+-4[-.]6(?![0-9])", ("none", *_LOW_TO_HIGH, "max")),
    # They take a number of tokens.
    (r"claude-(?:[0-9]|[a-z]+-(?:3|4(?![-.](?:[6-9]|[1-9][0-9])(?![0-9]))))", EFFORTS),
    (r"claude-(?:fable|mythos)-", _LOW_TO_MAX),
    (r"claude-opus-(?:5[-.](?:[5-9]|[1-9][0-9])(?![0-9])|[6-9](?![0-9]))", _LOW_TO_MAX),
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
    """Return the accepted effort that is nearest, of two the lower one; None if there is none.

    ``none`` becomes the lowest. Any other effort asks for reasoning, so it never becomes ``none``.
    """
    if effort in accepted:
        return effort
    wanted = EFFORTS.index(effort)
    levels = [level for level in EFFORTS[1:] if level in accepted]
    return min(levels, key=lambda level: abs(EFFORTS.index(level) - wanted), default=None)


def accepted_efforts(provider: str, name: str, api: str) -> frozenset[str]:
    """Return the efforts that a model accepts.

    They are from the table, else by its family; all of an unknown model.
    """
    model_facts = likely_facts(provider, name)
    bare_name = name.rpartition("/")[2].lower()
    levels = model_facts.entry.get("reasoning_effort_levels")
    if isinstance(levels, list):
        return frozenset(levels)
    if provider in _OF_PROVIDERS:
        return frozenset(_OF_PROVIDERS[provider])
    if re.match(_HIGH_ALONE, bare_name):
        return frozenset({"high"})
    if api == "ollama" and "gpt-oss" not in bare_name:
        return frozenset({"none", *_LOW_TO_HIGH, "max"})

    accepted = {*(_LOW_TO_HIGH if api == "gemini" else EFFORTS)}
    for pattern, efforts in _FAMILIES:
        if re.match(pattern, bare_name):
            accepted = {*efforts}
            break
    for effort in EFFORTS:
        is_accepted = model_facts.can(f"{effort}_reasoning_effort")
        if is_accepted:
            accepted.add(effort)
        elif is_accepted is False:
            accepted.discard(effort)
    if model_facts.entry.get("thinking_always_on") and not can_think_between_tools(bare_name):
        accepted.discard("none")
    if api == "chat" and is_openai_reasoning(bare_name):
        accepted.discard("max")  # only the Responses API has it
    return frozenset(accepted)


def can_think_between_tools(name: str) -> bool:
    """Whether a Claude that always thinks can be asked to think only between tool calls."""
    return bool(re.match(_BETWEEN_TOOLS, name))


# ---- parameter forms
#
# The names and places of generation parameters in each API.
#
# Each ``_name_for_…`` changes the parameters of chat completions in place, as its API has them,
# and returns what it leaves out: names, or a few words. Parameters that are in the API's own form
# already win.


def _take_out(fields: JsonObject, names: Iterable[str]) -> list[str]:
    """Remove parameters with these names; return the names of those that were there."""
    found = [name for name in names if name in fields]
    for name in found:
        del fields[name]
    return found


# ---- chat completions, and Ollama's API


def _name_for_chat(fields: JsonObject, target: Target) -> list[str]:
    """Name seed and limit as the vendor does, and ask for the effort in its way."""
    if "seed" in fields:
        fields[target.account.vendor.seed_name] = fields.pop("seed")
    is_openais = target.provider in OPENAIS and is_openai_reasoning(target.model)
    limits_thinking = is_openais or "limit" in target.refusals
    if limits_thinking and "max_tokens" in fields:
        fields["max_completion_tokens"] = fields.pop("max_tokens")
    effort = fields.get("reasoning_effort")
    if not isinstance(effort, str):
        return []
    del fields["reasoning_effort"]
    own = _effort(effort, target)
    if own is None:
        return ["reasoning_effort"]
    if isinstance(fields.get("reasoning"), dict):  # OpenRouter's and Together's, with further keys
        fields["reasoning"] = {**as_dict(own.get("reasoning")), **fields["reasoning"]}
    for name, value in own.items():
        fields.setdefault(name, value)
    return []


def _effort(effort: str, target: Target) -> JsonObject | None:
    """The fields that request an effort from a provider; None if it has none."""
    thinks = effort != "none"
    level: JsonObject = {"reasoning_effort": effort}
    switch: JsonObject = {"thinking": {"type": "enabled" if thinks else "disabled"}}
    match target.account.vendor.effort_style:
        case "with thinking":
            return switch | level if thinks else switch
        case "switch":
            return switch
        case "switch for k2" if target.model.startswith("kimi-k2"):
            return switch
        case "enable":
            return {"enable_thinking": thinks}
        case "template":
            return {"chat_template_kwargs": {"enable_thinking": thinks}}
        case "with switch":
            reasoning: JsonObject = {"reasoning": {"enabled": thinks}}
            return reasoning | level if thinks else reasoning
        case "object":
            return {"reasoning": {"effort": effort}}
        case "think":
            return {"think": effort if thinks else False}
        case "nothing":
            return None
    return level


# ---- OpenAI's Responses API

# A session may have such parameters from another provider.
_UNKNOWN_TO_RESPONSES = (
    "seed",
    "stop",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
)
_MIN_OUTPUT = 16  # tokens: a smaller limit is refused


def _name_for_responses(fields: JsonObject) -> list[str]:
    """Rename the parameters of chat completions, and leave out those that this API lacks."""
    if "max_tokens" in fields:
        limit = fields.pop("max_tokens")
        if type(limit) is int:
            limit = max(limit, _MIN_OUTPUT)
        fields.setdefault("max_output_tokens", limit)
    if "reasoning_effort" in fields:
        effort = fields.pop("reasoning_effort")
        fields["reasoning"] = {"effort": effort, **as_dict(fields.get("reasoning"))}
    if "verbosity" in fields:
        fields["text"] = {"verbosity": fields.pop("verbosity"), **as_dict(fields.get("text"))}
    if "response_format" in fields:
        answer_format = _flat(fields.pop("response_format"))
        fields["text"] = {"format": answer_format, **as_dict(fields.get("text"))}
    if isinstance(fields.get("tools"), list):
        fields["tools"] = [_flat(tool) for tool in fields["tools"]]
    if "tool_choice" in fields:
        fields["tool_choice"] = _flat(fields["tool_choice"])
    return _take_out(fields, _UNKNOWN_TO_RESPONSES)


def _flat(value: object) -> Any:
    """A tool or a format of chat completions, with the fields of its type beside the type."""
    fields = as_dict(value)
    kind = fields.get("type")
    inner = fields.get(kind) if isinstance(kind, str) else None
    return {"type": kind, **inner} if isinstance(inner, dict) else value


# ---- Google's API

# What stands beside ``generationConfig`` in a request.
_BESIDE_CONFIG = (
    "toolConfig",
    "safetySettings",
    "cachedContent",
    "store",
    "labels",
    "serviceTier",
    "tools",
)
_RENAMED = {"max_tokens": "maxOutputTokens", "stop": "stopSequences"}
_UNKNOWN_TO_GEMINI = (
    "n",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "verbosity",
    "parallel_tool_calls",
    "user",
)
_OF_THINKING = ("thinkingLevel", "thinkingBudget", "includeThoughts")
_WITH_BUDGET = "gemini-2"  # models that take a number of tokens; others take a level
# Google's own mapping, for its OpenAI-compatible API.
_GOOGLES_BUDGETS = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 24576,
    "max": 24576,
}
_ALWAYS_THINKS = "gemini-2.5-pro"
_LEAST_BUDGET = 128
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}  # of calls, by ``tool_choice``


def _name_for_gemini(fields: JsonObject, model: str) -> list[str]:
    """Give each parameter of chat completions Google's spelling, and put it in its place."""
    unknown = _take_out(fields, _UNKNOWN_TO_GEMINI)
    thinking: JsonObject = {}
    if "reasoning_effort" in fields:
        thinking = _google_thinking(fields.pop("reasoning_effort"), model)
    beside: JsonObject = {}
    choice = fields.get("tool_choice")
    if isinstance(choice, (str, dict)):
        del fields["tool_choice"]
        beside["toolConfig"] = {"functionCallingConfig": _calling_mode(choice)}
    if isinstance(fields.get("tools"), list):
        beside["tools"] = [_google_tool(tool) for tool in fields.pop("tools")]
    if isinstance(fields.get("stop"), str):
        fields["stop"] = [fields["stop"]]

    config: JsonObject = {}
    if isinstance(fields.get("response_format"), dict):
        answer_format = fields.pop("response_format")
        config["responseMimeType"] = "application/json"
        schema = as_dict(answer_format.get("json_schema") or answer_format).get("schema")
        if schema:
            config["responseJsonSchema"] = schema
    for name, value in fields.items():
        google_name = _RENAMED.get(name) or _camel_case(name)
        if google_name == "generationConfig":
            config |= as_dict(value)
        elif google_name in _BESIDE_CONFIG:
            beside[google_name] = value
        else:
            config[google_name] = value
    thinking |= as_dict(config.get("thinkingConfig"))
    thinking |= {name: config.pop(name) for name in _OF_THINKING if name in config}
    if thinking:
        config["thinkingConfig"] = thinking

    fields.clear()
    fields.update(beside)
    if config:
        fields["generationConfig"] = config
    return unknown


def _camel_case(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _google_thinking(effort: object, model: str) -> JsonObject:
    """An effort as tokens for 2.5, and as a level for later models."""
    if not re.match(_WITH_BUDGET, model):
        return {"thinkingLevel": str(effort).upper()}
    budget = _GOOGLES_BUDGETS.get(str(effort))
    if budget is None:
        return {}
    least = _LEAST_BUDGET if model.startswith(_ALWAYS_THINKS) else 0
    return {"thinkingBudget": budget or least}


def _calling_mode(choice: str | JsonObject) -> JsonObject:
    """OpenAI's ``tool_choice`` in Google's form."""
    if isinstance(choice, str):
        return {"mode": _MODES.get(choice, choice.upper())}
    return {"mode": "ANY", "allowedFunctionNames": [_flat(choice).get("name")]}


def _google_tool(tool: object) -> object:
    """A function in OpenAI's form as Google's; other tools are unchanged."""
    function = as_dict(_flat(tool))
    if function.get("type") != "function":
        return tool
    declaration = {"parametersJsonSchema": function.get("parameters") or {}}
    for key in ("name", "description"):
        if key in function:
            declaration[key] = function[key]
    return {"functionDeclarations": [declaration]}


# ---- Anthropic's API

# A session may have such parameters from another provider.
_UNKNOWN_TO_CLAUDE = ("seed", "presence_penalty", "frequency_penalty")
_REFUSED_WITH_THINKING = ("temperature", "top_p", "top_k")
_BUDGETS = {
    "minimal": 1024,
    "low": 1024,
    "medium": 2048,
    "high": 16384,
    "xhigh": 16384,
    "max": 16384,
}
_MIN_BUDGET = 1024


def _name_for_claude(fields: JsonObject, target: Target) -> list[str]:
    """Ask for thinking in Claude's way, and leave out what Anthropic's API would refuse."""
    omissions: list[str] = []
    effort = fields.get("reasoning_effort")
    if isinstance(effort, str):
        del fields["reasoning_effort"]
        thinking = _thinking(effort, target, fields.get("max_tokens"))
        if thinking is None:
            omissions.append("reasoning_effort")
        for name, value in (thinking or {}).items():
            fields.setdefault(name, value)
    omissions += _take_out(fields, _refused_by_claude(fields, target))
    temperature = fields.get("temperature")
    if isinstance(temperature, (int, float)) and temperature > 1:
        del fields["temperature"]  # 1 is the default
        omissions.append("temperature above 1")
    if "temperature" in fields and _take_out(fields, ["top_p"]):
        omissions.append("top_p beside temperature")
    if "stop" in fields:
        stop = fields.pop("stop")
        stops = stop if isinstance(stop, list) else [stop]
        sent = [text for text in stops if not isinstance(text, str) or text.strip()]
        if len(sent) < len(stops):
            omissions.append("blank stop sequence")
        fields["stop_sequences"] = sent
    return omissions


def _refused_by_claude(fields: JsonObject, target: Target) -> list[str]:
    """What Anthropic's API does not know, or refuses beside thinking, or from this model."""
    refused = [*_UNKNOWN_TO_CLAUDE]
    if as_dict(fields.get("thinking")).get("type") in ("enabled", "adaptive"):
        refused += _REFUSED_WITH_THINKING
        if fields.get("temperature") == 1:
            refused.remove("temperature")
    forces_tools = as_dict(fields.get("tool_choice")).get("type") in ("any", "tool")
    if forces_tools and likely_facts(target.provider, target.model).can("forced_tool_use") is False:
        refused.append("tool_choice")
    return refused


def _thinking(effort: str, target: Target, limit: object) -> JsonObject | None:
    """The fields that make Claude think, or not; None if the model does not support that."""
    facts = likely_facts(target.provider, target.model)
    refusals = target.refusals
    if "adaptive" not in refusals and (facts.can("adaptive_thinking") or "budget" in refusals):
        if effort == "none":
            kind = "between_tools" if can_think_between_tools(target.model) else "disabled"
            return {"thinking": {"type": kind}}
        # Without ``display``, thinking comes as a signature without text.
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort},
        }
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


# ---- accepted parameters
#
# Which generation parameters (``-p``) a model takes: what it would refuse is left out, the effort
# is the nearest.
#
# A refusal that its server gave is remembered by name: ``-p temperature``, ``-p
# reasoning_effort=none``.

_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty")
# They ignore it; later ones are to refuse it.
_GEMINI_WITHOUT_SAMPLING = r"gemini-(?:3\.[6-9]|[4-9]|[1-9][0-9])"
_KIMI_THAT_REASONS = r"(?i)kimi-k(?:2\.[5-9]|[3-9])"


class FittedParams(NamedTuple):
    """The parameters to send, and what is left out because the model would refuse it.

    ``omissions`` are names, or a few words.
    """

    fields: JsonObject
    omissions: list[str]


def fit_params(params: Mapping[str, object], target: Target) -> FittedParams:
    """Adapt the user's parameters to a model, without what its server has refused.

    litellm knows the names and the forms: for it they are only removed, and the effort is the
    nearest.
    """
    fields = dict(params)
    effort = effort_for(params, target)
    refusals = {*target.refusals}
    if effort:
        fields["reasoning_effort"] = effort
    else:
        refusals.add(of_param("reasoning_effort"))
    omissions = _take_out(fields, [name for name in params if of_param(name) in refusals])
    omissions += _take_out(fields, _refused_sampling(target.provider, target.model, fields))
    if target.api == "litellm":
        return FittedParams(fields, omissions)

    if "max_completion_tokens" in fields:
        limit = fields.pop("max_completion_tokens")
        fields.setdefault("max_tokens", limit)
    match target.api:
        case "responses":
            omissions += _name_for_responses(fields)
        case "gemini":
            omissions += _name_for_gemini(fields, target.model)
        case "anthropic":
            omissions += _name_for_claude(fields, target)
        case _:
            omissions += _name_for_chat(fields, target)
    return FittedParams(fields, omissions)


def adaptations(params: Mapping[str, object], target: Target) -> list[str]:
    """What is not sent as the user asked, each in words that follow the model's name."""
    omissions = fit_params(params, target).omissions
    lines = []
    if omissions:
        lines.append(f"takes no {', '.join(omissions)}: left out")
    asked = params.get("reasoning_effort")
    effort = effort_for(params, target)
    if effort and effort != asked:
        lines.append(f"takes no reasoning_effort {asked}: {effort} is sent")
    if asked not in (None, "none") and target.refuses_effort_beside_tools:
        lines.append("takes no reasoning_effort beside tools: with them none is sent")
    return lines


def of_param(name: str) -> str:
    """Return the name of the refusal of a parameter."""
    return f"-p {name}"


def of_effort(effort: str) -> str:
    """Return the name of the refusal of an effort."""
    return of_param(f"reasoning_effort={effort}")


def effort_for(params: Mapping[str, object], target: Target) -> object:
    """The effort to ask of a model: the nearest that it accepts.

    The user's own if it is not on the scale.
    """
    effort = params.get("reasoning_effort")
    if effort not in EFFORTS:
        return effort
    accepted = accepted_efforts(target.provider, target.model, target.api)
    refusals = target.refusals
    return nearest_effort(effort, [level for level in accepted if of_effort(level) not in refusals])


def _refused_sampling(provider: str, name: str, params: Mapping[str, object]) -> list[str]:
    """Return the sampling parameters for which the model would refuse the request."""
    sampling = [key for key in _SAMPLING if key in params]
    if params.get("temperature") == 1:  # the default
        sampling.remove("temperature")
    if not sampling:  # the table is not needed
        return []
    model_facts = likely_facts(provider, name)
    if model_facts.can("sampling_params") is False:
        return sampling
    if provider in OPENAIS and is_openai_reasoning(name):
        effort = params.get("reasoning_effort") or model_facts.entry.get("default_reasoning_effort")
        return [] if effort == "none" else sampling
    if provider == "gemini" and re.match(_GEMINI_WITHOUT_SAMPLING, name):
        return sampling
    if provider == "moonshot" and re.match(_KIMI_THAT_REASONS, name):
        return [key for key in sampling if params[key] != 1]
    return []
