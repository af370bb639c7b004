"""Read in an error which parameter (-p) or effort a model refuses; ``refused_fields`` decides to ask again without it.

A refusal has a name, under which it is remembered for the model: ``-p temperature``, ``-p reasoning_effort=none``.
"""

import re
from collections.abc import Iterable

from gptsh.models.accepted_parameters import EFFORTS, of_effort, of_param

# How an error names the efforts that a model accepts.
_LIST = (
    r"(?i)(?:(?:supported|valid|allowed|accepted|available|possible) (?:values|levels|efforts|options)(?: are| is)?|"
    r"(?:must|should|can only|expected to) be|expected one of)\b([^.}]*)"
)
_OTHER_NAMES = {"none": "|false|disabled|between_tools"}  # in an API's own form
# The parameter itself: not another of reasoning's, no thinking that was sent back.
_PARAMETER = (
    r"\W{0,2}(?:reasoning[._ ]?effort|output_config\.effort|reasoning(?!\.)"
    r"|thinking\.type\.(?:disabled|between_tools)|(?<!adaptive )thinking(?! block|\.)(?:[_ ](?:level|config))?)\b"
)
_UNSUPPORTED = (
    r"un(?:supported|known|recognized)[a-z :]{0,40}" + _PARAMETER,
    r"not support(?: the)?(?: parameter| argument)?:?" + _PARAMETER,
    _PARAMETER + r"\W{1,8}(?:\w+\W{1,4}){0,4}(?:is|are) (?:not |un)(?:supported|permitted|allowed|known)",
)
_OF_OTHER_PARAMETER = r'"param": ?"(?!.{0,20}(?:effort|reasoning|think))[^"]'
# Parameters without which an answer is still worth having, in the names of chat completions.
_OPTIONAL = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "seed", "stop",
    "logit_bias", "logprobs", "top_logprobs", "verbosity", "tool_choice", "parallel_tool_calls",
)  # fmt: skip
_ENGLISH_WORDS = ("seed", "stop")
_BESIDE_TOOLS = "(?i)function tools with reasoning_effort"  # refused because of the tools: the other API takes both
# What comes before the name of a field that an error refuses, and after it.
_BEFORE_NAME = (
    r"(?:un(?:supported|known|recognized|expected)|extra|not support(?:ed)?)(?: the)?(?: request)?"
    r" (?:parameter|argument|field|name|key|propert|input|option)\w*(?:\(s\))?(?: supplied| not permitted| in object)?"
    r":?\W{1,5}"
)
_AFTER_NAME = (
    r"\W{1,5}(?:is |are |was )?(?:not (?:be )?(?:supported|permitted|allowed)|extra inputs are not permitted"
    r"|un(?:supported|known|recognized|expected))"
)


def refuses_field(text: str, names: Iterable[str]) -> bool:
    """Whether an error refuses a field with one of these names, or a part of it.

    Its ``param`` says so, as OpenAI sends it, its ``loc``, as pydantic does, or a set wording. A
    word in prose does not.
    """
    plain = text.replace('\\"', '"')  # an error inside another's text
    return any(_points_to(plain, name) or _words_unsupported(plain, name) for name in names)


def _points_to(text: str, name: str) -> bool:
    """Whether the ``param`` or the ``loc`` of an error is a field, or a part of it."""
    steps = [re.escape(step) for step in name.split(".")]
    param = r"\.".join(steps)
    loc = r'",\s*"'.join(steps)
    return bool(re.search(rf'"param":\s*"{param}[".\[]|"loc":\s*\["body",\s*"{loc}"', text))


def _words_unsupported(text: str, name: str) -> bool:
    """Whether an error calls a field unsupported in a set wording."""
    field = re.escape(name)
    return bool(re.search(rf"(?i){_BEFORE_NAME}{field}\b|(?<![\w.]){field}{_AFTER_NAME}", text))


def unsupported_params(text: str, params: Iterable[str]) -> set[str]:
    """Return the refusals of the optional parameters among ``params`` that an error calls unsupported."""
    return {of_param(name) for name in params if name in _OPTIONAL and _calls_unsupported(text, name)}


def _calls_unsupported(text: str, name: str) -> bool:
    """Whether an error calls a parameter unsupported, in snake or camel case."""
    if name in _ENGLISH_WORDS:
        return _words_unsupported(text, name)
    spelled = rf"(?<![a-z_]){name.replace('_', '_?')}(?![a-z_])"
    before = rf"(?:un(?:supported|known|recognized)|not support(?:ed)?\b)[^.]{{0,40}}{spelled}"
    after = rf"{spelled}[^.]{{0,60}}(?:not (?:be )?(?:support|permitted|allowed)|unsupported|deprecated)"
    return bool(re.search(f"(?i){before}|{after}", text))


def unsupported_efforts(text: str, effort: object) -> set[str]:
    """Return the refusals of efforts in an error for a request with ``effort``.

    If the error names the accepted ones, it refuses all others; else the one that was sent; else the parameter.
    """
    if effort not in EFFORTS or re.search(_OF_OTHER_PARAMETER, text) or re.search(_BESIDE_TOOLS, text):
        return set()
    sent = str(effort)
    if listed := _listed_efforts(text, sent):
        return {of_effort(level) for level in EFFORTS if level == sent or level not in listed}
    if not any(re.search(f"(?i){pattern}", text) for pattern in _UNSUPPORTED):
        return set()
    return {of_effort(sent)} if _is_named(sent, text) else {of_effort(level) for level in EFFORTS}


def _listed_efforts(text: str, sent: str) -> list[str]:
    """The efforts that an error lists as accepted; none if it is not about the effort that was sent."""
    names_list = re.search(_LIST, text)
    if not names_list:
        return []
    is_about_effort = _is_named(sent, text[: names_list.start()]) or re.search("(?i)effort|think", text)
    return [level for level in EFFORTS if _is_named(level, names_list[1])] if is_about_effort else []


def _is_named(effort: str, text: str) -> bool:
    """Whether a text has an effort as a word, or its name in an API's own form."""
    return bool(re.search(rf"(?i)(?<![a-z])(?:{effort}{_OTHER_NAMES.get(effort, '')})(?![a-z])", text))
