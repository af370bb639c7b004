"""Read in an error what a server refuses, so that the client asks again without it.

This file is imported only after an error. What a server refuses is remembered for the model under a
name: one of ``Refused``, ``-p temperature`` or ``-p reasoning_effort=none``.
"""

import re
from collections.abc import Iterable

from gptsh.config.accounts import Refused, Target
from gptsh.errors import ModelError
from gptsh.llm.parameters import EFFORTS, effort_for, effort_refusal, param_refusal
from gptsh.llm.servers import OTHER_API
from gptsh.llm.stream import Api, Refusable, make_body
from gptsh.llm.wordings import own_words
from gptsh.messages import Request
from gptsh.models.vendors import DIRECT

# ---- fields and APIs

_STATUSES = (400, 404, 422, 500)  # of a refusal; OpenAI sends 404 for an item, Ollama 500
_NOT_SERVED = (404, 405, 501)  # statuses of a server that does not have an API
# What a server may refuse through any API, and ``make_body`` can leave out.
_OF_ALL_APIS = {
    Refused.STREAM: Refusable(
        names=("stream",),
        wording="(?i)verified to stream"
        "|stream(?:ing)? (?:is |are )?(?:not |un)(?:supported|allowed|enabled)"
        r"|not support stream|not (?:allowed|permitted|enabled) to stream",
    ),
    Refused.SYSTEM: Refusable(
        names=("instructions", "systemInstruction", "system_instruction", "system"),
        wording="(?i)developer instruction is not (?:enabled|supported)"
        r"|not support (?:the )?\W?(?:system|developer)\b"
        r"|\b(?:system|developer)\W? (?:role|message|prompt|instruction)s? "
        r"(?:is |are )?(?:not |un)support"
        "|only user and assistant roles are supported|conversation roles must alternate",
    ),
}
# What an error names if a server does not have the Responses API, or if it serves a model or its
# tools only through this API.
_NAMES_RESPONSES = "(?i)/responses|responses (?:api|endpoint|operation)"
# Such an error shows that the server has the API, but not the model.
_UNKNOWN_MODEL = "(?i)model_not_found|model.{1,200}(?:not found|not exist|unknown)"


def refused_by(err: ModelError, request: Request, target: Target, api: Api) -> set[str]:
    """Return what else to leave out of a request, because an error refuses it.

    The set is empty if the request would be the same without it. If the server does not have the
    API, the set has the API's name.
    """
    if target.api not in DIRECT:
        return set()
    text = own_words(err.detail)
    fields = set()
    if err.status in _STATUSES:
        fields = _refused_fields(text, request, target, api)
    return fields or _refused_api(text, err.status, target)


def _refused_fields(text: str, request: Request, target: Target, api: Api) -> set[str]:
    """Return the fields and parameters of a request that an error refuses."""
    effort = effort_for(request.params, target)
    new = unsupported_efforts(text, effort) | unsupported_params(text, request.params)
    for field, refusable in {**_OF_ALL_APIS, **api.REFUSABLE}.items():
        if refuses_field(text, refusable.names) or re.search(refusable.wording, text):
            new.add(field)
    new -= target.refusals
    if not new:
        return new
    without = target._replace(refusals=target.refusals | new)
    is_same = make_body(api, request, without) == make_body(api, request, target)
    return set() if is_same else new


def _refused_api(text: str, status: int | None, target: Target) -> set[str]:
    """Return the target's API, if an error means that OpenAI's other API may work instead.

    Some servers do not have the Responses API. OpenAI serves many models, or their tools, only
    through it.
    """
    other = OTHER_API.get(target.api)
    is_refused = status in _STATUSES and bool(re.search(_NAMES_RESPONSES, text))
    if target.api == "responses":
        is_missing = status in _NOT_SERVED and not re.search(_UNKNOWN_MODEL, text)
        is_refused = target.account.has_custom_base and (is_refused or is_missing)
    if other is None or not is_refused:
        return set()
    # Chat completions refused tools with reasoning, but accept tools without reasoning.
    goes_back = target.api == "responses" and target.api not in target.refusals
    return {target.api} if goes_back or other not in target.refusals else set()


# ---- parameters and efforts

# How an error names the efforts that a model accepts.
_LIST = (
    r"(?i)(?:(?:supported|valid|allowed|accepted|available|possible) "
    r"(?:values|levels|efforts|options)(?: are| is)?"
    r"|(?:must|should|can only|expected to) be|expected one of)\b([^.}]*)"
)
_OTHER_NAMES = {"none": "|false|disabled|between_tools"}  # in an API's own form
# The parameter itself, but neither another parameter of reasoning nor thinking in the messages.
_PARAMETER = (
    r"\W{0,2}(?:reasoning[._ ]?effort|output_config\.effort|reasoning(?!\.)"
    r"|thinking\.type\.(?:disabled|between_tools)"
    r"|(?<!adaptive )thinking(?! block|\.)(?:[_ ](?:level|config))?)\b"
)
_UNSUPPORTED = (
    r"un(?:supported|known|recognized)[a-z :]{0,40}" + _PARAMETER,
    r"not support(?: the)?(?: parameter| argument)?:?" + _PARAMETER,
    _PARAMETER
    + r"\W{1,8}(?:\w+\W{1,4}){0,4}"
    + r"(?:is|are) (?:not |un)(?:supported|permitted|allowed|known)",
)
_OF_OTHER_PARAMETER = r'"param": ?"(?!.{0,20}(?:effort|reasoning|think))[^"]'
# Parameters that are left out if a server refuses them, by their names in chat completions.
_OPTIONAL = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "verbosity",
    "tool_choice",
    "parallel_tool_calls",
)
_ENGLISH_WORDS = ("seed", "stop")
# An effort is refused only together with tools. The other API accepts both.
_BESIDE_TOOLS = "(?i)function tools with reasoning_effort"
# What comes before the name of a field that an error refuses, and after it.
_BEFORE_NAME = (
    r"(?:un(?:supported|known|recognized|expected)|extra|not support(?:ed)?)(?: the)?(?: request)?"
    r" (?:parameter|argument|field|name|key|propert|input|option)\w*(?:\(s\))?"
    r"(?: supplied| not permitted| in object)?:?\W{1,5}"
)
_AFTER_NAME = (
    r"\W{1,5}(?:is |are |was )?(?:not (?:be )?(?:supported|permitted|allowed)"
    r"|extra inputs are not permitted|un(?:supported|known|recognized|expected))"
)


def refuses_field(text: str, names: Iterable[str]) -> bool:
    """Return whether an error refuses a field with one of these names, or a part of it.

    OpenAI names the field in ``param``, pydantic in ``loc``, others in a fixed wording. A word in
    other prose does not count.
    """
    plain = text.replace('\\"', '"')  # an error inside another's text
    return any(_points_to(plain, name) or _words_unsupported(plain, name) for name in names)


def _points_to(text: str, name: str) -> bool:
    """Return whether the ``param`` or the ``loc`` of an error is a field, or a part of it."""
    steps = [re.escape(step) for step in name.split(".")]
    param = r"\.".join(steps)
    loc = r'",\s*"'.join(steps)
    return bool(re.search(rf'"param":\s*"{param}[".\[]|"loc":\s*\["body",\s*"{loc}"', text))


def _words_unsupported(text: str, name: str) -> bool:
    """Return whether an error calls a field unsupported in a fixed wording."""
    field = re.escape(name)
    return bool(re.search(rf"(?i){_BEFORE_NAME}{field}\b|(?<![\w.]){field}{_AFTER_NAME}", text))


def unsupported_params(text: str, params: Iterable[str]) -> set[str]:
    """Return the refusals of the optional parameters that an error calls unsupported."""
    optional = [name for name in params if name in _OPTIONAL]
    return {param_refusal(name) for name in optional if _calls_unsupported(text, name)}


def _calls_unsupported(text: str, name: str) -> bool:
    """Return whether an error calls a parameter unsupported, in snake or camel case."""
    if name in _ENGLISH_WORDS:
        return _words_unsupported(text, name)
    spelled = rf"(?<![a-z_]){name.replace('_', '_?')}(?![a-z_])"
    before = rf"(?:un(?:supported|known|recognized)|not support(?:ed)?\b)[^.]{{0,40}}{spelled}"
    refused = "not (?:be )?(?:support|permitted|allowed)|unsupported|deprecated"
    after = rf"{spelled}[^.]{{0,60}}(?:{refused})"
    return bool(re.search(f"(?i){before}|{after}", text))


def unsupported_efforts(text: str, effort: object) -> set[str]:
    """Return the refusals of efforts in an error for a request with ``effort``.

    If the error lists the accepted efforts, all others are refused. Else the sent one is refused if
    the error names it, else all are.
    """
    if effort not in EFFORTS:
        return set()
    if re.search(_OF_OTHER_PARAMETER, text) or re.search(_BESIDE_TOOLS, text):
        return set()
    sent = str(effort)
    listed = _listed_efforts(text, sent)
    if listed:
        return {effort_refusal(level) for level in EFFORTS if level == sent or level not in listed}
    if not any(re.search(f"(?i){pattern}", text) for pattern in _UNSUPPORTED):
        return set()
    if _is_named(sent, text):
        return {effort_refusal(sent)}
    return {effort_refusal(level) for level in EFFORTS}


def _listed_efforts(text: str, sent: str) -> list[str]:
    """Return the efforts that an error lists as accepted; none if it is about something else."""
    names_list = re.search(_LIST, text)
    if not names_list:
        return []
    is_about_effort = re.search("(?i)effort|think", text)
    if not is_about_effort and not _is_named(sent, text[: names_list.start()]):
        return []
    return [level for level in EFFORTS if _is_named(level, names_list[1])]


def _is_named(effort: str, text: str) -> bool:
    """Return whether a text has an effort as a word, or its name in an API's own form."""
    others = _OTHER_NAMES.get(effort, "")
    return bool(re.search(rf"(?i)(?<![a-z])(?:{effort}{others})(?![a-z])", text))
