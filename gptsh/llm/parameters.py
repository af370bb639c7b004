"""Decide which parameters and reasoning efforts a model accepts, and name them as its API does."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from gptsh.config.accounts import Refused, Target
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

# Providers that accept these from every model, and adapt them themselves if need be.
_PROVIDER_EFFORTS = {
    "mistral": ("none", "high"),
    "deepseek": EFFORTS,
    "openrouter": EFFORTS,
}
_OLLAMA_EFFORTS = ("none", *_LOW_TO_HIGH, "max")


class _Family(NamedTuple):
    """The models whose names begin with a pattern, and the efforts that they accept."""

    names: str
    efforts: tuple[str, ...]


_FROM_5_5 = r"(?:5[-.](?:[5-9]|[1-9][0-9])|[6-9])(?![0-9])"  # the versions of a Claude
# For models that are not in the table of models, and for what the table does not say. The first row
# that matches counts: within a vendor, exceptions come before older versions, and these before the
# row for the rest, so that a version that is still unknown is taken for the last known one.
# ``(?![0-9])`` ends a version: ``4-6`` is one, ``4-20250514`` has a date.
_FAMILIES = (
    _Family("gpt-oss", efforts=_LOW_TO_HIGH),
    _Family(r"gpt-[6-9][.0-9]*-astra", efforts=_LOW_TO_MAX),
    _Family(r"gpt-6\.[0-9]+-sol", efforts=_LOW_TO_MAX),
    _Family(r"gpt-5\.1", efforts=("none", *_LOW_TO_HIGH)),
    _Family(r"gpt-5\.[2-5]", efforts=("none", *_LOW_TO_XHIGH)),
    _Family(r"gpt-5(?![.0-9])", efforts=("minimal", *_LOW_TO_HIGH)),
    _Family("gpt-(?:[5-9]|[1-9][0-9])", efforts=("none", *_LOW_TO_MAX)),
    _Family("o[0-9]", efforts=_LOW_TO_HIGH),
    _Family(r"claude-[a-z]+-4[-.]6(?![0-9])", efforts=("none", *_LOW_TO_HIGH, "max")),
    _Family(r"claude-[a-z]+-4[-.](?:[7-9]|[1-9][0-9])(?![0-9])", efforts=("none", *_LOW_TO_MAX)),
    _Family("claude-(?:[0-9]|[a-z]+-[34])", efforts=EFFORTS),  # they take a number of tokens
    _Family("claude-(?:fable|mythos)-", efforts=_LOW_TO_MAX),
    _Family(f"claude-opus-{_FROM_5_5}", efforts=_LOW_TO_MAX),
    _Family("claude-", efforts=("none", *_LOW_TO_MAX)),
    _Family("gemini-2", efforts=EFFORTS),  # they take a number of tokens, too
    _Family(r"gemini-3(?:\.[156])?-flash", efforts=("minimal", *_LOW_TO_HIGH)),
    _Family("gemini-|gemma", efforts=_LOW_TO_HIGH),
    _Family("grok-", efforts=("none", *_LOW_TO_XHIGH)),
    _Family("kimi-k[3-9]", efforts=("low", "high", "max")),
)


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
    """Return the efforts that a model accepts; all of them if nothing is known about it.

    A list in the table of models counts most, then what the provider or Ollama accepts for every
    model, then the family, with what else the table says.
    """
    model_facts = likely_facts(provider, name)
    bare_name = name.rpartition("/")[2].lower()
    levels = model_facts.entry.get("reasoning_effort_levels")
    if isinstance(levels, list):
        return frozenset(levels)
    if provider in _PROVIDER_EFFORTS:
        return frozenset(_PROVIDER_EFFORTS[provider])
    if bare_name.startswith("gpt-5-pro"):  # the table is wrong about it
        return frozenset({"high"})
    if api == "ollama" and "gpt-oss" not in bare_name:
        return frozenset(_OLLAMA_EFFORTS)

    accepted = {*_family_efforts(bare_name, api)}
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


def _family_efforts(bare_name: str, api: str) -> tuple[str, ...]:
    """Return the efforts of a model's family.

    For an unknown model these are all efforts, or those of Google's newest models.
    """
    for family in _FAMILIES:
        if re.match(family.names, bare_name):
            return family.efforts
    return _LOW_TO_HIGH if api == "gemini" else EFFORTS


def can_think_between_tools(name: str) -> bool:
    """Return whether a Claude that always thinks can be asked to think only between tool calls."""
    return bool(re.match(f"claude-sonnet-{_FROM_5_5}", name))


# ---- parameter forms
#
# The names and places of generation parameters in each API.
#
# Each ``_name_for_…`` turns the parameters of chat completions into those of its API, in place,
# and returns what it leaves out: names, or a few words. A parameter that the user has given in the
# API's own form is kept.


def _remove(fields: JsonObject, names: Iterable[str]) -> list[str]:
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
    limits_thinking = is_openais or Refused.LIMIT in target.refusals
    if limits_thinking and "max_tokens" in fields:
        fields["max_completion_tokens"] = fields.pop("max_tokens")
    effort = fields.get("reasoning_effort")
    if not isinstance(effort, str):
        return []
    del fields["reasoning_effort"]
    vendor_fields = _effort_fields(effort, target)
    if vendor_fields is None:
        return ["reasoning_effort"]
    if isinstance(fields.get("reasoning"), dict):  # OpenRouter's and Together's, with further keys
        fields["reasoning"] = {**as_dict(vendor_fields.get("reasoning")), **fields["reasoning"]}
    for name, value in vendor_fields.items():
        fields.setdefault(name, value)
    return []


def _effort_fields(effort: str, target: Target) -> JsonObject | None:
    """Return the fields that request an effort in the vendor's style; None if it has no such field.

    Some vendors have only a switch, some a switch beside the effort, each under its own name.
    """
    thinks = effort != "none"
    level: JsonObject = {"reasoning_effort": effort} if thinks else {}
    switch: JsonObject = {"thinking": {"type": "enabled" if thinks else "disabled"}}
    match target.account.vendor.effort_style:
        case "with thinking":
            return switch | level
        case "switch":
            return switch
        case "switch for k2" if target.model.startswith("kimi-k2"):
            return switch
        case "with switch":
            return {"reasoning": {"enabled": thinks}, **level}
        case "object":
            return {"reasoning": {"effort": effort}}
        case "enable":
            return {"enable_thinking": thinks}
        case "template":
            return {"chat_template_kwargs": {"enable_thinking": thinks}}
        case "think":
            return {"think": effort if thinks else False}
        case "nothing":
            return None
    return {"reasoning_effort": effort}


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
        answer_format = _flatten(fields.pop("response_format"))
        fields["text"] = {"format": answer_format, **as_dict(fields.get("text"))}
    if isinstance(fields.get("tools"), list):
        fields["tools"] = [_flatten(tool) for tool in fields["tools"]]
    if "tool_choice" in fields:
        fields["tool_choice"] = _flatten(fields["tool_choice"])
    return _remove(fields, _UNKNOWN_TO_RESPONSES)


def _flatten(value: object) -> Any:
    """Return a tool or a format of chat completions as the Responses API has it.

    ``{"type": "function", "function": {…}}`` becomes ``{"type": "function", …}``.
    """
    fields = as_dict(value)
    type_name = fields.get("type")
    if isinstance(type_name, str) and isinstance(fields.get(type_name), dict):
        return {"type": type_name, **fields[type_name]}
    return value


# ---- Google's API

# What is beside ``generationConfig`` in a request, and not in it.
_TOP_LEVEL = (
    "toolConfig",
    "safetySettings",
    "cachedContent",
    "store",
    "labels",
    "serviceTier",
    "tools",
)
_GOOGLE_NAMES = {"max_tokens": "maxOutputTokens", "stop": "stopSequences"}
_UNKNOWN_TO_GEMINI = (
    "n",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "verbosity",
    "parallel_tool_calls",
    "user",
)
_THINKING_KEYS = ("thinkingLevel", "thinkingBudget", "includeThoughts")
_WITH_BUDGET = "gemini-2"  # models that take a number of tokens; others take a level
# Google's own mapping, for its OpenAI-compatible API.
_GOOGLE_BUDGETS = {
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
_CALLING_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}  # by ``tool_choice``


def _name_for_gemini(fields: JsonObject, model: str) -> list[str]:
    """Give each parameter of chat completions Google's name, and put it in its place."""
    omissions = _remove(fields, _UNKNOWN_TO_GEMINI)
    thinking: JsonObject = {}
    if "reasoning_effort" in fields:
        thinking = _google_thinking(fields.pop("reasoning_effort"), model)
    top_level = _google_tools(fields)
    config = _google_answer_format(fields)
    if isinstance(fields.get("stop"), str):
        fields["stop"] = [fields["stop"]]
    for name, value in fields.items():
        google_name = _GOOGLE_NAMES.get(name) or _camel_case(name)
        if google_name == "generationConfig":
            config |= as_dict(value)
        elif google_name in _TOP_LEVEL:
            top_level[google_name] = value
        else:
            config[google_name] = value

    thinking |= as_dict(config.get("thinkingConfig"))
    for name in _THINKING_KEYS:
        if name in config:
            thinking[name] = config.pop(name)
    if thinking:
        config["thinkingConfig"] = thinking

    fields.clear()
    fields.update(top_level)
    if config:
        fields["generationConfig"] = config
    return omissions


def _camel_case(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _google_thinking(effort: object, model: str) -> JsonObject:
    """Return an effort as a number of tokens for 2.5, and as a level for later models."""
    if not re.match(_WITH_BUDGET, model):
        return {"thinkingLevel": str(effort).upper()}
    budget = _GOOGLE_BUDGETS.get(str(effort))
    if budget is None:
        return {}
    if budget == 0 and model.startswith(_ALWAYS_THINKS):
        budget = _LEAST_BUDGET
    return {"thinkingBudget": budget}


def _google_answer_format(fields: JsonObject) -> JsonObject:
    """Remove ``response_format``, and return the fields that Google has for it."""
    if not isinstance(fields.get("response_format"), dict):
        return {}
    answer_format = fields.pop("response_format")
    config: JsonObject = {"responseMimeType": "application/json"}
    schema = as_dict(answer_format.get("json_schema") or answer_format).get("schema")
    if schema:
        config["responseJsonSchema"] = schema
    return config


def _google_tools(fields: JsonObject) -> JsonObject:
    """Remove ``tool_choice`` and ``tools``, and return the fields that Google has for them."""
    top_level: JsonObject = {}
    choice = fields.get("tool_choice")
    if isinstance(choice, (str, dict)):
        del fields["tool_choice"]
        top_level["toolConfig"] = {"functionCallingConfig": _calling_mode(choice)}
    if isinstance(fields.get("tools"), list):
        top_level["tools"] = [_google_tool(tool) for tool in fields.pop("tools")]
    return top_level


def _calling_mode(choice: str | JsonObject) -> JsonObject:
    """Return OpenAI's ``tool_choice`` in Google's form."""
    if isinstance(choice, str):
        return {"mode": _CALLING_MODES.get(choice, choice.upper())}
    return {"mode": "ANY", "allowedFunctionNames": [_flatten(choice).get("name")]}


def _google_tool(tool: object) -> object:
    """Return a function in OpenAI's form as Google's; other tools are unchanged."""
    function = as_dict(_flatten(tool))
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
_CLAUDE_BUDGETS = {
    "minimal": 1024,
    "low": 1024,
    "medium": 2048,
    "high": 16384,
    "xhigh": 16384,
    "max": 16384,
}
_MIN_BUDGET = 1024  # tokens: a smaller one is refused


def _name_for_claude(fields: JsonObject, target: Target) -> list[str]:
    """Ask for thinking in Claude's way, and leave out what Anthropic's API would refuse."""
    omissions: list[str] = []
    effort = fields.get("reasoning_effort")
    if isinstance(effort, str):
        del fields["reasoning_effort"]
        thinking = _thinking(effort, target, fields.get("max_tokens"))
        if thinking is None:
            omissions.append("reasoning_effort")
        else:
            for name, value in thinking.items():
                fields.setdefault(name, value)
    omissions += _remove(fields, _refused_by_claude(fields, target))

    temperature = fields.get("temperature")
    if isinstance(temperature, (int, float)) and temperature > 1:
        del fields["temperature"]  # 1 is the default
        omissions.append("temperature above 1")
    if "temperature" in fields and _remove(fields, ["top_p"]):
        omissions.append("top_p together with temperature")

    if "stop" in fields:
        stop = fields.pop("stop")
        stops = stop if isinstance(stop, list) else [stop]
        fields["stop_sequences"] = [text for text in stops if not _is_blank(text)]
        if len(fields["stop_sequences"]) < len(stops):
            omissions.append("blank stop sequences")
    return omissions


def _is_blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()


def _refused_by_claude(fields: JsonObject, target: Target) -> list[str]:
    """Return the parameters that Anthropic's API refuses: always, with thinking, or for a model."""
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
    """Return the fields that make Claude think, or not; None if the model does not support that.

    Newer models are asked for an effort, older ones for a budget in tokens. ``limit`` is the
    ``max_tokens`` that the user has set.
    """
    facts = likely_facts(target.provider, target.model)
    refuses_budget = Refused.BUDGET in target.refusals
    is_adaptive = facts.can("adaptive_thinking") or refuses_budget
    if is_adaptive and Refused.ADAPTIVE not in target.refusals:
        return _adaptive_thinking(effort, target.model)
    if effort == "none":
        return {}  # these models do not think by default
    if facts.can("reasoning") is False or refuses_budget or effort not in _CLAUDE_BUDGETS:
        return None
    budget = _CLAUDE_BUDGETS[effort]
    if type(limit) is not int:
        limit = token_count(facts.entry.get("max_output_tokens"))
    if limit:  # it is for thinking and answer together: at least half is left to the answer
        budget = min(budget, max(_MIN_BUDGET, limit // 2))
        if limit <= budget:
            return None
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _adaptive_thinking(effort: str, model: str) -> JsonObject:
    """Return the fields for a Claude that decides itself how long it thinks."""
    if effort != "none":
        # Without ``display``, thinking comes as a signature without text.
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort},
        }
    if can_think_between_tools(model):
        return {"thinking": {"type": "between_tools"}}
    return {"thinking": {"type": "disabled"}}


# ---- accepted parameters
#
# Which generation parameters (``-p``) a model accepts: what it would refuse is left out, and of
# efforts the nearest is sent. What its server has refused before is remembered by name, as in
# ``-p temperature`` and ``-p reasoning_effort=none``.

_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty")
# These models ignore it; later ones are to refuse it.
_GEMINI_WITHOUT_SAMPLING = r"gemini-(?:3\.[6-9]|[4-9]|[1-9][0-9])"
_KIMI_THAT_REASONS = r"(?i)kimi-k(?:2\.[5-9]|[3-9])"


class FittedParams(NamedTuple):
    """The parameters to send, and what is left out because the model would refuse it.

    ``omissions`` are names of parameters, or a few words.
    """

    fields: JsonObject
    omissions: list[str]


def fit_params(params: Mapping[str, object], target: Target) -> FittedParams:
    """Adapt the user's parameters to a model, without what its server has refused.

    The parameters are not renamed for litellm, which knows the names of each API itself.
    """
    fields = dict(params)
    effort = effort_for(params, target)
    refused = [name for name in params if param_refusal(name) in target.refusals]
    if effort:
        fields["reasoning_effort"] = effort
    elif "reasoning_effort" not in refused:
        refused.append("reasoning_effort")
    omissions = _remove(fields, refused)
    omissions += _remove(fields, _refused_sampling(target.provider, target.model, fields))
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
    """Return what is not sent as the user asked, each in words that follow the model's name."""
    lines = []
    omissions = fit_params(params, target).omissions
    if omissions:
        lines.append(f"does not support {', '.join(omissions)}; ignored")
    asked = params.get("reasoning_effort")
    effort = effort_for(params, target)
    if effort and effort != asked:
        lines.append(f"does not support reasoning_effort={asked}; sending {effort}")
    if asked not in (None, "none") and target.refuses_effort_beside_tools:
        lines.append("does not support reasoning_effort with tools; sending none with them")
    return lines


def param_refusal(name: str) -> str:
    """Return the name under which the refusal of a parameter is remembered."""
    return f"-p {name}"


def effort_refusal(effort: str) -> str:
    """Return the name under which the refusal of an effort is remembered."""
    return param_refusal(f"reasoning_effort={effort}")


def effort_for(params: Mapping[str, object], target: Target) -> object:
    """Return the effort to ask of a model: the nearest that it accepts; None if there is none.

    What the user has set is returned unchanged if it is not on the scale.
    """
    effort = params.get("reasoning_effort")
    if effort not in EFFORTS:
        return effort
    accepted = accepted_efforts(target.provider, target.model, target.api)
    levels = [level for level in accepted if effort_refusal(level) not in target.refusals]
    return nearest_effort(effort, levels)


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
