"""Read what servers say in an error: its message, what the message means, how long to wait.

Only an error imports this file. Its patterns are not compiled before they are needed.
"""

import contextlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from gptsh.jsonio import JsonObject, as_dict, as_str
from gptsh.text import html_title

# ---- error bodies
#
# Read an error of any provider: the message in its body, and after how long to retry, from its
# headers or body.

_SEARCHED = 4096  # characters of an error that patterns search
_MESSAGE_KEYS = ("message", "detail", "error", "msg", "details", "errors", "title")
_RETRY_DELAY = r'"retryDelay": ?"([0-9]{1,9}(?:\.[0-9]{1,9})?)s"'  # Google
# In words, as in "try again in 7m12.5s" and "your quota will reset after 12 hours".
_PAUSE = (
    "(?i)(?:again|retry|resets?) (?:in|after) "
    r"((?:[0-9.]{1,12} ?(?:ms|[dhms])[a-z]{0,7}[ ,]{0,2}){1,4})"
)
_NUMBER_AND_UNIT = r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|[dhms])"
_LONGEST_PAUSE = 1e9  # seconds that a header can name
_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
# Under which pydantic's errors repeat the request (Mistral, vLLM).
_INPUT = r"""["']input\\*["']\s*:"""
_ESCAPED = r"\\{1,8}u([0-9a-fA-F]{4})"  # a JSON escape, maybe nested in JSON strings


def message_in(payload: object, depth: int = 8) -> str:
    """Return the first string where providers put their message, else a text as a whole.

    The message may be as in ``{"error": {"message": "…"}}``, bare, or in a list; in JSON or events
    within a text, or in the title of a page. ``depth`` limits how deep it is searched.
    """
    if isinstance(payload, str):
        message = _first_message(_objects_in(payload), depth)
        return message or html_title(payload) or " ".join(payload.split())
    if isinstance(payload, list):
        return _first_message(payload[:1], depth)
    if isinstance(payload, dict):
        # What another provider said to a gateway tells more than the gateway's own words.
        message = _upstream_message(payload, depth)
        return message or _first_message([payload.get(key) for key in _MESSAGE_KEYS], depth)
    return ""


def _first_message(payloads: Iterable[object], depth: int) -> str:
    """Return the first message in some payloads, which are one level deeper."""
    if depth == 0:
        return ""
    for payload in payloads:
        message = message_in(payload, depth - 1)
        if message:
            return message
    return ""


def _upstream_message(error: JsonObject, depth: int) -> str:
    """Return what a provider behind OpenRouter said, after that provider's name."""
    metadata = as_dict(error.get("metadata"))
    message = _first_message([metadata.get("raw")], depth)
    provider = as_str(metadata.get("provider_name"))
    return f"{provider}: {message}" if message and provider else message


def _objects_in(text: str) -> list[object]:
    """Return the JSON in a text that has nothing else, or in the data of server-sent events."""
    candidates = [text]
    if re.match(r"\s*(?:data|event|id|retry)?:", text):
        lines = text.splitlines()
        candidates = [line.removeprefix("data:") for line in lines if line.startswith("data:")]
    found: list[object] = []
    for candidate in candidates:
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(candidate))
    return found


def own_words(text: str) -> str:
    """Return the beginning of an error, up to where it repeats the request.

    The beginning is for patterns, which are slow in a long text.
    """
    own = re.split(_INPUT, text[:_SEARCHED], maxsplit=1)[0]
    return re.sub(_ESCAPED, lambda match: chr(int(match[1], 16)), own)  # such as \\u003e


def retry_after(headers: Mapping[str, str], detail: str = "") -> float | None:
    """Return the seconds to wait, as the server says; None if it does not.

    The result is the longer pause of what the headers and the error itself, ``detail``, name.
    """
    pauses = [_pause_in_headers(headers), _pause_in(detail)]
    return max((pause for pause in pauses if pause is not None), default=None)


def _pause_in_headers(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of ``retry-after-ms`` or ``retry-after``, which may be a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if text.replace(".", "", 1).isdecimal():
            return min(float(text) * unit, _LONGEST_PAUSE)
    if "retry-after" not in headers:
        return None
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(headers["retry-after"])
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _pause_in(detail: str) -> float | None:
    """Return the seconds that an error names, in Google's ``retryDelay`` or in words."""
    delay = re.search(_RETRY_DELAY, detail)
    if delay:
        return float(delay[1])
    pause = re.search(_PAUSE, own_words(detail))
    if not pause:
        return None
    seconds = 0.0
    for number, unit in re.findall(_NUMBER_AND_UNIT, pause[1].lower()):
        seconds += float(number) * _UNITS[unit]
    return seconds


# ---- too long
#
# Recognise an error for a prompt that is too long, by how servers word it, and read the window and
# the size it names.


class Wording(NamedTuple):
    """How some servers word an error: a pattern, and an example that it matches."""

    server: str
    pattern: str
    example: str


# How servers say that a prompt does not fit the model's window; upper and lower case are equal.
TOO_LONG_WORDINGS = (
    Wording(
        server="OpenAI, Groq",
        pattern="context_length_exceeded",
        example='"code": "context_length_exceeded"',
    ),
    Wording(
        server="llama.cpp",
        pattern="exceed_context_size",
        example='"type": "exceed_context_size_error"',
    ),
    Wording(
        server="litellm",
        pattern="ContextWindowExceeded",
        example="litellm.ContextWindowExceededError: litellm.BadRequestError",
    ),
    Wording(
        server="OpenAI, vLLM, DeepSeek, OpenRouter, Mistral",
        pattern="maximum context length",
        example=(
            "This model's maximum context length is 4097 tokens. "
            "However, your messages resulted in 7575 tokens."
        ),
    ),
    Wording(
        server="OpenAI's Responses API, Anthropic, llama.cpp, SGLang, LM Studio, Ollama",
        pattern=(
            "(?:exceed(?:s|ed|ing)?|beyond|(?:larg|long|great)er than) (?:the |its )?"
            "(?:model's |available |maximum |max |allowed )*(?:context|input token|input length)"
        ),
        example=(
            "The input (61709 tokens) is longer than the model's context length (40960 tokens)."
        ),
    ),
    Wording(
        server="SGLang",
        pattern=r"exceeds (?:the )?maximum allowed length \(\d+ tokens",
        example="Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
    ),
    Wording(
        server="Anthropic, Fireworks, Ollama",
        pattern="prompt (?:is )?too long",
        example="prompt is too long: 208310 tokens > 200000 maximum",
    ),
    Wording(
        server="Bedrock",
        pattern="input (?:is )?too long",
        example="Input is too long for requested model.",
    ),
    Wording(
        server="others",
        pattern="context (?:length|size|window) (?:has been |was )?exceeded",
        example="the context window was exceeded",
    ),
    Wording(
        server="Google",
        pattern="input token count .{0,40}(?:exceeds|supports)",
        example=(
            "The input token count (1200293) exceeds "
            "the maximum number of tokens allowed (1048576)."
        ),
    ),
    Wording(
        server="xAI, vLLM",
        pattern="maximum (?:prompt|model) length",
        example=(
            "This model's maximum prompt length is 131072 but the request contains 136973 tokens."
        ),
    ),
    Wording(
        server="vLLM, LM Studio",
        pattern="context length (?:of|is) only",
        example=(
            "However, the model's context length is only 131072 tokens, "
            "resulting in a maximum input length of 98304."
        ),
    ),
    Wording(
        server="Cohere",
        pattern="too many tokens: ",
        example="too many tokens: size limit exceeded by 168512 tokens.",
    ),
    Wording(
        server="MiniMax",
        pattern="context window exceeds",
        example="invalid params, context window exceeds limit (2013)",
    ),
    Wording(
        server="Bedrock, OpenAI, DwarfStar",
        pattern=r"(?:input|prompt) tokens (?:\(\d+\) )?exceed",
        example="prompt tokens (210000) exceed model maximum (200000)",
    ),
    Wording(
        server="LM Studio",
        pattern="n_keep .{0,20}n_ctx",
        example="Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
    ),
    Wording(
        server="GitHub Copilot",
        pattern="prompt token count .{0,40}exceeds",
        example="prompt token count of 140000 exceeds the limit of 128000",
    ),
    Wording(
        server="Moonshot",
        pattern="exceeded model token limit",
        example="Your request exceeded model token limit: 262144 (requested: 300000)",
    ),
    Wording(
        server="Dashscope",
        pattern="range of input length",
        example="InvalidParameter: Range of input length should be [1, 983616]",
    ),
    Wording(
        server="DwarfStar",
        pattern="configured context size",
        example="Prompt has 300,000 tokens, but the configured context size is 131,072 tokens",
    ),
    Wording(
        server="text-generation-inference",
        pattern="`max_new_tokens` must be <=",
        example="`inputs` tokens + `max_new_tokens` must be <= 2048.",
    ),
    Wording(
        server="text-generation-inference",
        pattern="`inputs` must have less than",
        example="`inputs` must have less than 1024 tokens.",
    ),
    Wording(
        server="Cerebras",
        pattern="current length is .{0,20}while limit is",
        example="Current length is 9000 while limit is 8192",
    ),
)
# A figure, with any thousands separator.
_FIGURE = r"((?<!\d)(?:\d{1,3}(?:[,._'\u2019\u00a0\u202f]\d{3}){1,4}|\d{1,12})\b)"
# How they name the window, the most reliable first. The last figure in a match is the window, which
# has 131072 tokens in each example. A figure after "requested" or "at least" is the prompt's.
WINDOW_WORDINGS = (
    Wording(
        server="llama.cpp, LM Studio",
        pattern=rf"\bn_ctx\W{{1,6}}{_FIGURE}",
        example='"n_prompt_tokens": 140000, "n_ctx": 131072',
    ),
    Wording(
        server="Anthropic",
        pattern=rf"(?:too long|context limit): [^>]{{1,60}}> {_FIGURE}",
        example="prompt is too long: 140000 tokens > 131072",
    ),
    Wording(
        server="Dashscope",
        pattern=rf"\[1, {_FIGURE}\]",
        example="Range of input length should be [1, 131072]",
    ),
    Wording(
        server="Mistral",
        pattern=rf"\b{_FIGURE} maximum context length",
        example="too large for model with 131072 maximum context length",
    ),
    Wording(
        server="others: the first figure after the name of a limit",
        pattern=(
            r"(?:\b(?:context|allowed|max|maximum|less than)\b"
            r"|limit|supports up to|cannot exceed|must be <=)"
            rf"(?:[^.;:\d]{{0,40}}|:) \(?{_FIGURE}"
        ),
        example=(
            "This model's maximum context length is 131072 tokens. "
            "However, your messages resulted in 140000 tokens."
        ),
    ),
)
_VALID_WINDOWS = range(256, 10**8 + 1)
_MAX_PROMPT = 16  # times the window; a larger figure is not the size of a prompt


def means_too_long(text: str) -> bool:
    """Return whether an error means that the prompt does not fit the model's window."""
    words = own_words(text)
    return any(re.search(wording.pattern, words, re.IGNORECASE) for wording in TOO_LONG_WORDINGS)


def window_named_in(text: str) -> int | None:
    """Return the window that an error names: the last figure of the first match that can be one."""
    for wording in WINDOW_WORDINGS:
        for match in re.finditer(wording.pattern, text, re.IGNORECASE):
            figures = _figures(match[0])
            if figures and figures[-1] in _VALID_WINDOWS:
                return figures[-1]
    return None


def prompt_size_in(text: str, window: int) -> int | None:
    """Return the tokens of the prompt, as an error names them: the largest figure above the window.

    This figure may include the answer.
    """
    sizes = [figure for figure in _figures(text) if window < figure < _MAX_PROMPT * window]
    return max(sizes, default=None)


def _figures(text: str) -> list[int]:
    """Return the integers in a text, with any thousands separator."""
    return [int(re.sub(r"\D", "", digits)) for digits in re.findall(_FIGURE, text)]


# ---- other meanings
#
# Recognise what a status alone does not tell, such as a retired model or a spent quota.

Meaning = Literal[
    "loading",
    "bad key",
    "retired",
    "not loaded",
    "unknown model",
    "no tools",
    "images",
    "filter",
    "wrong type",
    "spent",
    "about the key",
]
STATUS_WORDINGS: dict[Meaning, tuple[Wording, ...]] = {
    "loading": (
        Wording(
            server="llama.cpp",
            pattern="(?i)loading model",
            example="Loading model",
        ),
        Wording(
            server="Hugging Face",
            pattern="(?i)model .{0,99}is (?:currently |still )?loading",
            example="Model lab/m is currently loading",
        ),
    ),
    "bad key": (  # with status 400
        Wording(
            server="Google",
            pattern="API_KEY_INVALID",
            example='"details": [{"reason": "API_KEY_INVALID"}]',
        ),
        Wording(
            server="Google",
            pattern="API key not valid",
            example="API key not valid. Please pass a valid API key.",
        ),
        Wording(
            server="OpenAI",
            pattern='"invalid_api_key"',
            example='{"code": "invalid_api_key", "param": null}',
        ),
    ),
    "retired": (
        Wording(
            server="Ollama's cloud",
            pattern="was retired",
            example='model "m" was retired on 2026-08-01',
        ),
    ),
    "not loaded": (
        Wording(
            server="llama.cpp's router",
            pattern="model is not loaded",
            example="model is not loaded",
        ),
    ),
    "unknown model": (  # with status 400
        Wording(
            server="OpenAI's Responses API",
            pattern="model_not_found",
            example='{"code": "model_not_found", "message": "does not exist"}',
        ),
        Wording(
            server="llama.cpp's router",
            pattern="model '[^']{1,200}' not found",
            example="model 'lab' not found",
        ),
    ),
    "no tools": (
        Wording(
            server="Ollama",
            pattern="not support tools",
            example="registry.ollama.ai/library/m does not support tools",
        ),
    ),
    "images": (
        Wording(
            server="Anthropic",
            pattern="(?i)could not process image|image format .{1,40} not supported",
            example="Could not process image",
        ),
        Wording(
            server="DeepSeek",
            pattern="unknown variant .image_url",
            example="messages[0]: unknown variant `image_url`, expected `text`",
        ),
        Wording(
            server="OpenRouter, Ollama",
            pattern="support image input",
            example="No endpoints found that support image input",
        ),
        Wording(
            server="llama.cpp",
            pattern="image input is not supported",
            example="image input is not supported - hint: …",
        ),
        Wording(
            server="Google",
            pattern="(?i)unable to process input image|image input modality",
            example="Unable to process input image.",
        ),
        Wording(
            server="Groq",
            pattern="content.{1,3}must be a string",
            example="messages[0].content must be a string",
        ),
        Wording(
            server="vLLM",
            pattern="not a multimodal model",
            example="lab/m is not a multimodal model",
        ),
        Wording(
            server="OpenAI",
            pattern=(
                r'"param":\s*"[^"]{1,60}image_url|image_parse_error'
                "|image_url is only supported"
            ),
            example='{"param": "messages[0].content[1].image_url", "code": "invalid_value"}',
        ),
    ),
    "filter": (
        Wording(
            server="Azure, Moonshot",
            pattern=r'"(?:code|type)":\s*"content_filter"',
            example='{"code": "content_filter", "param": "prompt"}',
        ),
        Wording(
            server="OpenAI",
            pattern="content_policy_violation|flagged as potentially violating",
            example='"code": "content_policy_violation"',
        ),
        Wording(
            server="DashScope",
            pattern="(?i)data_?inspection_?failed",
            example="<400> InternalError.Algo.DataInspectionFailed: Input text",
        ),
        Wording(
            server="DeepSeek",
            pattern="Content Exists Risk",
            example="Content Exists Risk",
        ),
        Wording(
            server="xAI",
            pattern="violates usage guidelines",
            example="Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO",
        ),
        Wording(
            server="Anthropic",
            pattern="blocked by content filtering policy",
            example="Output blocked by content filtering policy",
        ),
        Wording(
            server="OpenRouter",
            pattern="requires moderation",
            example='m requires moderation. Your input was flagged for "violence".',
        ),
        Wording(
            server="OpenRouter",
            pattern='"flagged_input"',
            example='"metadata": {"reasons": [], "flagged_input": "…"}',
        ),
        Wording(
            server="gateways",
            pattern=(
                "(?i)(?:input|prompt|content|message|request|question|text)s? "
                "(?:(?:was|were|is|are|has|have|been) ){0,2}(?:flagged|moderated)"
                "|flagged (?:by|as|for) |moderation_blocked"
                "|by (?:the |our )?(?:content )?moderation"
            ),
            example="Your prompt has been flagged by the safety system",
        ),
    ),
    "wrong type": (  # with status 500: a retry would not help
        Wording(
            server="Ollama",
            pattern=r'option \\?"\w+\\?" must be of type',
            example='option "num_ctx" must be of type integer',
        ),
    ),
    "spent": (  # the quota: a retry would not help, unless the error names a time
        Wording(
            server="OpenAI",
            pattern="insufficient_quota",
            example='"code": "insufficient_quota"',
        ),
        Wording(
            server="OpenAI, Google",
            pattern=r"(?i)\bbilling\b",
            example="check your plan and billing details",
        ),
        Wording(
            server="Anthropic",
            pattern="(?i)credit balance",
            example="Your credit balance is too low",
        ),
        Wording(
            server="DeepSeek, Moonshot, xAI",
            pattern=(
                "(?i)(?:insufficient|not enough|no more|out of|used all)"
                ".{0,30}(?:balance|credit|fund)"
            ),
            example="Insufficient Balance",
        ),
        Wording(
            server="Moonshot",
            pattern="exceeded_current_quota",
            example='"type": "exceeded_current_quota_error"',
        ),
    ),
    "about the key": (  # with status 403
        Wording(
            server="OpenAI, Anthropic, others",
            pattern=(
                r"(?i)\bkeys?\b|credential|authenticat|permission denied"
                r"|\b(?:access|auth|bearer|api|invalid|expired) token\b"
            ),
            example="The API key has no access to this project",
        ),
    ),
}


def means(meaning: Meaning, text: str) -> bool:
    """Return whether an error has one of the wordings of a meaning."""
    return any(re.search(wording.pattern, text) for wording in STATUS_WORDINGS[meaning])


def is_filtered(detail: str) -> bool:
    """Return whether an error means that the provider's filter refused the question."""
    return means("filter", own_words(detail))


def is_spent(detail: str) -> bool:
    """Return whether an error means that the quota is spent, without naming a time to wait for."""
    return means("spent", own_words(detail)) and _pause_in(detail) is None
