"""Which generation parameters (``-p``) a model takes: what it would refuse is left out, the effort is the nearest.

A refusal that its server gave is remembered by name: ``-p temperature``, ``-p reasoning_effort=none``.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from gptsh.models.efforts import EFFORTS, accepted_efforts, nearest_effort
from gptsh.models.facts import OPENAIS, Facts, is_openai_reasoning, likely_facts
from gptsh.models.parameter_forms import in_form
from gptsh.models.providers import Provider
from gptsh.records import NamedTuple

_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty")
_GEMINI_WITHOUT_SAMPLING = r"gemini-(?:3\.[6-9]|[4-9]|[1-9][0-9])"  # they ignore it; later ones are to refuse it
_KIMI_THAT_REASONS = r"(?i)kimi-k(?:2\.[5-9]|[3-9])"
_BOTH_APIS = {"chat", "responses"}  # refused: a gateway lacks the one that takes an effort beside tools
# Families that reason first, and can spend a small token limit on that alone; for names not in the table.
_THINKS = (
    r"(?i)gpt-oss|deepseek-(v[4-9]|r[0-9]|reasoner)|grok-(?!.*non-reasoning)|kimi-k|glm-[4-9]|qwen-?3|qwq|magistral|"
    r"nemotron|minimax|sonar-.*reason|think|reason"
)
_REASONING_HEADROOM = 1976  # tokens for reasoning: with a small limit the answer of a reasoning model is empty


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
    accepted = dict(params)
    if "reasoning_effort" in accepted:
        accepted["reasoning_effort"] = effort
    refused = [name for name in params if of_param(name) in refusals or (name == "reasoning_effort" and not effort)]
    for name in refused:
        del accepted[name]
    refused_sampling = _refused_sampling(provider.name, provider.model, accepted)
    for name in refused_sampling:
        del accepted[name]
    fields, unknown = in_form(accepted, provider, refusals)
    return FittedParams(fields, refused + refused_sampling + unknown, effort)


def adaptations(params: Mapping[str, Any], provider: Provider, refusals: Collection[str] = ()) -> list[str]:
    """What is not sent as the user asked, each in words that follow the model's name."""
    fitted, asked = fit_params(params, provider, refusals), params.get("reasoning_effort")
    lines = [f"takes no {', '.join(fitted.omissions)}: left out"] if fitted.omissions else []
    if fitted.effort and fitted.effort != asked:
        lines.append(f"takes no reasoning_effort {asked}: {fitted.effort} is sent")
    if asked not in (None, "none") and lacks_effort_beside_tools(refusals):
        lines.append("takes no reasoning_effort beside tools: with them none is sent")
    return lines


def of_param(name: str) -> str:
    """Return the name of the refusal of a parameter."""
    return f"-p {name}"


def of_effort(effort: str) -> str:
    """Return the name of the refusal of an effort."""
    return of_param(f"reasoning_effort={effort}")


def lacks_effort_beside_tools(refusals: Collection[str]) -> bool:
    """Return whether OpenAI's server refuses an effort beside tools, and lacks the API in which it takes both."""
    return set(refusals) >= _BOTH_APIS


def _effort_for(params: Mapping[str, Any], provider: Provider, refusals: Collection[str]) -> Any:
    """The effort to ask of a model: the nearest that it accepts; the user's own if it is not on the scale."""
    effort = params.get("reasoning_effort")
    if effort not in EFFORTS:
        return effort
    accepted = accepted_efforts(provider.name, provider.model, provider.api)
    return nearest_effort(effort, [level for level in accepted if of_effort(level) not in refusals])


def _refused_sampling(provider: str, name: str, params: Mapping[str, Any]) -> list[str]:
    """Return the sampling parameters among ``params`` for which the model would refuse the request."""
    sampling = [key for key in _SAMPLING if key in params and (key, params[key]) != ("temperature", 1)]
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


def small_params(model_facts: Facts, tokens: int) -> dict[str, Any]:
    """Return parameters for a text of ``tokens`` tokens, such as a title: temperature 0.2, and that limit.

    A reasoning model gets more tokens for it, and a low effort.
    """
    limit = tokens + _REASONING_HEADROOM
    name, reasons = model_facts.name, model_facts.can("reasoning")
    is_gemini = model_facts.provider == "gemini" and reasons is True
    if is_openai_reasoning(name) or "gpt-oss" in name or model_facts.can("adaptive_thinking") or is_gemini:
        return {"reasoning_effort": "low", "max_tokens": limit}
    if reasons or (reasons is None and re.search(_THINKS, name)):
        return {"max_tokens": limit}
    return {"temperature": 0.2, "max_tokens": tokens}
