"""What providers say when they refuse: statuses and error bodies of every shape seen, as one line without secrets."""

import json
import re
import time
from collections.abc import Collection, Mapping
from typing import Any

from gptsh.config.secret import MASK, is_secret_name, mask
from gptsh.errors import GptshError, ModelError, TooLong
from gptsh.jsonio import as_dict
from gptsh.models.providers import Provider

_WIDTH = 400  # characters of an error line
_KEYS = ("message", "detail", "error", "msg", "details")
_AGAIN = (408, 409, 429)  # and every 5xx
_SERVER_ERROR = 500
# What an error inside an answer is called, or its status, where another try may do better.
_PASSING = (
    "(?i)408|409|429|5[0-9][0-9]|(?:engine_)?overloaded(?:_error)?|rate_limit_(?:error|exceeded)|api_error|timeout_error"
    "|server_error|internal_server_error|service_unavailable|unavailable|resource_exhausted"
)
_HOPELESS = r'option \\?"\w+\\?" must be of type'  # Ollama finds it while it loads a model: 500
# Words, and schemas, whose names are the user's own.
_NO_PARAMETERS = ("messages", "response_format", "format", "output_config", "properties")
# How servers say that a prompt does not fit: OpenAI and vLLM, llama.cpp, Anthropic, Google, Mistral, Ollama, others.
_TOO_LONG = (  # not compiled, as few servers refuse
    r"(?i)context_length_exceeded|exceed_context_size|ContextWindowExceeded|maximum context length"
    r"|(?:exceed\w*|beyond|(?:larg|long|great)er than) (?:the |its )?"
    r"(?:model's |available |maximum |max |allowed )*(?:context|input token|input length)"
    r"|exceeds (?:the )?maximum allowed length \(\d+ tokens"
    r"|prompt (?:is )?too long|input (?:is )?too long|context (?:length|size|window) (?:has been |was )?exceeded"
    r"|input token count .{0,40}(?:exceeds|supports)|maximum (?:prompt|model) length|context length (?:of|is) only"
    r"|too many tokens: |context window exceeds|(?:input|prompt) tokens (?:\(\d+\) )?exceed|n_keep .{0,20}n_ctx"
    r"|prompt token count .{0,40}exceeds|exceeded model token limit|range of input length|configured context size"
    r"|`max_new_tokens` must be <=|`inputs` must have less than|current length is .{0,20}while limit is"
)
_ESCAPED = r"\\{1,8}u([0-9a-fA-F]{4})"  # as in JSON, which may stand in JSON
_N = r"((?<!\d)(?:\d{1,3}(?:[,._'\u2019\u00a0\u202f]\d{3})+|\d{1,12})\b)"
# How they name the window, the surest way first. A figure behind "requested" or "at least" is the prompt's.
_WINDOW = (
    rf"\bn_ctx\W{{1,6}}{_N}",
    rf"(?:too long|context limit): [^>]{{1,60}}> {_N}|\[1, {_N}\]|\b{_N} maximum context length",
    r"(?:\b(?:context|allowed|max|maximum|less than)\b|limit|supports up to|cannot exceed|must be <=)"
    rf"(?:[^.;:\d]{{0,40}}|:) \(?{_N}",
)
_WINDOWS = range(256, 10**8 + 1)  # what can be one
_MOST_TIMES = 16  # the window: a larger figure is no size of a prompt
_REFUSED_FOR_LENGTH = (400, 413, 422, 500)


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes, provider: Provider) -> GptshError:
    """A refusing response as an error: what to do, and when to try again. ``headers`` have lower-case names."""
    reason, detail, name = said(body), body.decode("utf-8", "replace"), provider.name
    if status in _REFUSED_FOR_LENGTH and means_too_long(detail):
        return too_long(f"{name} has no room for the prompt: {reason}", reason, detail)
    reason = f"({status}){': ' if reason else ''}{reason}"
    what, todo = f"{name} refused {reason}", ""
    if status in (401, 403):
        where = f"[providers.{name}]"
        source = provider.key_var or next(iter(provider.key_vars), f"api_key_env under {where}")
        what = f"{name} refused the key {reason}"
        todo = f"check {f'api_key_command under {where}' if provider.key_command else source}"
    elif "location" in headers and 300 <= status < 400:  # not followed: the key would go along
        what, todo = f"{url} redirects to {headers['location']}", "change base_url"
    elif status == 404:  # the model or the path
        pulls = provider.api == "ollama" and "model" in reason
        what = f"{url} does not know {provider.model!r} {reason}"
        todo = f"ollama pull {provider.model}, or see -m" if pulls else "see -m and base_url"
    elif "not support tools" in reason:
        what, todo = f"{provider.model} takes no tools {reason}", "choose another model with -m"
    err, hint = ModelError(what, todo, detail=detail), headers.get("x-should-retry")
    may_pass = hint == "true" or (hint != "false" and (status in _AGAIN or status >= _SERVER_ERROR))
    err.status, err.retry_after = status, retry_after(headers)
    err.can_retry = may_pass and not re.search(_HOPELESS, detail)
    return err


def reported(error: Any, payload: Mapping[str, Any]) -> GptshError:
    """An error that stands in an answer; ``payload`` is what --debug prints. An overload may soon be over."""
    reason, detail = message_in(error), json.dumps(payload)
    what = f"the provider reported: {reason or 'an error'}"
    if means_too_long(json.dumps(error)):
        return too_long(what, reason, detail)
    err, codes = ModelError(what, detail=detail), as_dict(error)
    err.can_retry = any(re.fullmatch(_PASSING, str(codes.get(key))) for key in ("code", "status", "type"))
    return err


def means_too_long(text: str) -> bool:
    """Whether an error says that the prompt does not fit the model's window."""
    return bool(re.search(_TOO_LONG, _unescaped(text)))


def too_long(what: str, reason: str, detail: str) -> TooLong:
    """The error for a prompt that does not fit, with the window that the server names, and what the prompt takes.

    The largest figure beyond the window is the prompt's, maybe with its answer.
    """
    err = TooLong(what, detail=detail)
    for text in map(_unescaped, (reason, detail)):
        named = (_figures(found[0]) for way in _WINDOW for found in re.finditer(way, text, re.IGNORECASE))
        err.window = err.window or next((one[-1] for one in named if one and one[-1] in _WINDOWS), None)
        most = _MOST_TIMES * (err.window or 0)
        err.prompt = err.prompt or max((one for one in _figures(text) if (err.window or 0) < one < most), default=None)
    return err


def _figures(text: str) -> list[int]:
    """The whole numbers of a text, whatever separates their thousands."""
    return [int(re.sub(r"\D", "", found)) for found in re.findall(_N, text)]


def _unescaped(text: str) -> str:
    """The text with ``\\u003e`` and its like as what they stand for."""
    return re.sub(_ESCAPED, lambda found: chr(int(found[1], 16)), text)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if text.replace(".", "", 1).isdecimal():
            return float(text) * scale
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a rare form of a rare header

    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def said(body: bytes) -> str:
    """The provider's message in an error body; the beginning of the body where it holds none; empty if that is."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        payload = body.decode("utf-8", "replace")
    return message_in(payload)


def message_in(payload: Any, depth: int = 4) -> str:
    """The first string found where providers put their message: ``{"error": {"message"}}``, bare, or in a list."""
    if isinstance(payload, str):
        return " ".join(payload.split())
    inner = (
        payload[:1]
        if isinstance(payload, list)
        else [payload.get(key) for key in _KEYS]
        if depth and isinstance(payload, dict)
        else []
    )
    return next(filter(None, (message_in(item, depth - 1) for item in inner)), "")


def without_secrets(err: GptshError, secrets: Collection[str]) -> GptshError:
    """The same error, with the secrets masked wherever they could be shown, and then cut to the width of a line."""
    text = mask(str(err), secrets)
    err.args = (text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",)
    err.detail = mask(err.detail, secrets)
    cause: BaseException | None = err
    while cause is not None:  # --debug shows what it came from
        if cause.__cause__ is not None and mask(repr(cause.__cause__), secrets) != repr(cause.__cause__):
            cause.__cause__ = cause.__context__ = None
        cause = cause.__cause__
    return err


def without_secret_parameters(value: Any, *, hides: bool = False) -> Any:
    """A request with every text masked that stands under a telling name, or among headers. Numbers are not secret."""
    if isinstance(value, str):
        return MASK if hides else value
    if isinstance(value, list):
        return [without_secret_parameters(item, hides=hides) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: inner
        if name in _NO_PARAMETERS
        else without_secret_parameters(inner, hides=hides or is_secret_name(name) or name.lower().endswith("headers"))
        for name, inner in value.items()
    }
