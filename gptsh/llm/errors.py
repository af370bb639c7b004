"""Read refusals of providers, in every known form of status and error body, as one error line without secrets."""

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gptsh.config.secret import MASK, is_secret_name, mask
from gptsh.errors import GptshError, LoadingModel, ModelError, TooLong
from gptsh.jsonio import as_dict
from gptsh.models.providers import Provider

_WIDTH = 400  # characters of an error line
_READ = 4096  # characters of an error that patterns search
_KEYS = ("message", "detail", "error", "msg", "details")
_RETRY_STATUSES = (408, 409, 429)  # and every 5xx
_SERVER_ERROR = 500
_UNAVAILABLE = (401, 402, 403, 404, 408, 410, 429)  # the key, the credit, the model or the rate: of this provider alone
# The codes, statuses and types of errors inside an answer that a retry may avoid.
_TEMPORARY = (
    "(?i)408|409|429|5[0-9][0-9]|(?:engine_)?overloaded(?:_error)?|rate_limit_(?:error|exceeded)|api_error|timeout_error"
    "|server_error|internal_server_error|service_unavailable|unavailable|resource_exhausted"
)
_RETRY_DELAY = r'"retryDelay": ?"([0-9]{1,9}(?:\.[0-9]{1,9})?)s"'
_LOADING = "(?i)loading model|model .{0,99}is (?:currently |still )?loading"  # llama.cpp, Hugging Face
_UNKNOWN_MODEL = "model_not_found|model '[^']{1,200}' not found"  # of OpenAI's Responses API, llama.cpp's router
_BAD_KEY = "API_KEY_INVALID|API key not valid"  # Google's status for it is 400
_NEVER_RETRY = r'option \\?"\w+\\?" must be of type'  # Ollama's 500 for a wrong parameter
# Keys of texts and schemas: names inside them are the user's own, not those of parameters.
_NOT_MASKED = ("messages", "response_format", "format", "output_config", "properties")
# Errors for a prompt that does not fit: OpenAI and vLLM, llama.cpp, Anthropic, Google, Mistral, Ollama, others.
_TOO_LONG = (  # not compiled: few runs need it
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
_INPUT = r"""["']input\\*["']\s*:"""  # under which pydantic's errors repeat the request (Mistral, vLLM)
_ESCAPED = r"\\{1,8}u([0-9a-fA-F]{4})"  # a JSON escape, maybe nested in JSON strings
_N = r"((?<!\d)(?:\d{1,3}(?:[,._'\u2019\u00a0\u202f]\d{3})+|\d{1,12})\b)"
# How errors name the window, the most reliable first. A figure after "requested" or "at least" is the prompt's.
_WINDOW = (
    rf"\bn_ctx\W{{1,6}}{_N}",
    rf"(?:too long|context limit): [^>]{{1,60}}> {_N}|\[1, {_N}\]|\b{_N} maximum context length",
    r"(?:\b(?:context|allowed|max|maximum|less than)\b|limit|supports up to|cannot exceed|must be <=)"
    rf"(?:[^.;:\d]{{0,40}}|:) \(?{_N}",
)
_WINDOWS = range(256, 10**8 + 1)  # valid windows
_MAX_PROMPT = 16  # times the window: a larger figure is not the size of a prompt
_TOO_LONG_STATUSES = (400, 413, 422, 500)


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes, provider: Provider) -> GptshError:
    """The error for a response that is not 200, with advice and when to retry. ``headers`` have lower-case names."""
    reason, detail, name = message_in_body(body), body.decode("utf-8", "replace"), provider.name
    if status in _TOO_LONG_STATUSES and means_too_long(detail):
        return too_long(f"{name} has no room for the prompt: {reason}", reason, detail)
    if status == 503 and re.search(_LOADING, reason):
        loading = LoadingModel(f"{name} is loading {provider.model}", detail=detail)
        loading.status, loading.retry_after = status, retry_after(headers, detail)
        return loading
    reason = f"({status}){': ' if reason else ''}{reason}"
    what, todo = f"{name} {'failed' if status >= _SERVER_ERROR else 'refused'} {reason}", ""
    if status in (401, 403) or re.search(_BAD_KEY, detail):
        where = f"[providers.{name}]"
        source = provider.key_var or next(iter(provider.key_vars), f"api_key_env under {where}")
        what = f"{name} refused the key {reason}"
        todo = f"check {f'api_key_command under {where}' if provider.key_command else source}"
        if provider.is_cloud and not provider.key:
            todo = "run ollama signin"
    elif "location" in headers and 300 <= status < 400:  # not followed: it would get the key
        what, todo = f"{url} redirects to {headers['location']}", "change base_url"
    elif "was retired" in reason:
        what, todo = f"{name} no longer has {provider.model!r} {reason}", "choose another model with -m"
    elif "model is not loaded" in reason:  # llama.cpp's router
        todo = "load it there, or start the server without --no-models-autoload"
    elif status == 404 or re.search(_UNKNOWN_MODEL, detail):  # the model or the path
        can_pull = provider.api == "ollama" and "model" in reason
        what = f"{url} does not know {provider.model!r} {reason}"
        todo = f"ollama pull {provider.model}, or see -m" if can_pull else "see -m and base_url"
    elif "not support tools" in reason:
        what, todo = f"{provider.model} takes no tools {reason}", "choose another model with -m"
    err, hint = ModelError(what, todo, detail=detail), headers.get("x-should-retry")
    is_temporary = hint == "true" or (hint != "false" and (status in _RETRY_STATUSES or status >= _SERVER_ERROR))
    err.status, err.retry_after = status, retry_after(headers, detail)
    err.can_retry = is_temporary and not re.search(_NEVER_RETRY, detail[:_READ])
    is_unavailable = status in _UNAVAILABLE or status >= _SERVER_ERROR or "was retired" in reason
    err.may_fall_back = is_unavailable or bool(re.search(f"{_BAD_KEY}|{_UNKNOWN_MODEL}", detail))
    return err


def reported_error(error: Any, payload: Mapping[str, Any]) -> GptshError:
    """The error for one inside an answer; --debug prints ``payload``. An overload can be retried."""
    reason, detail = message_in(error), json.dumps(payload)
    what = f"the provider reported: {reason or 'an error'}"
    if means_too_long(json.dumps(error)):
        return too_long(what, reason, detail)
    err, codes = ModelError(what, detail=detail), as_dict(error)
    err.can_retry = any(re.fullmatch(_TEMPORARY, str(codes.get(key))) for key in ("code", "status", "type"))
    err.may_fall_back, err.retry_after = err.can_retry, retry_after({}, detail)
    return err


def means_too_long(text: str) -> bool:
    """Whether an error means that the prompt does not fit the model's window."""
    return bool(re.search(_TOO_LONG, own_words(text)))


def own_words(text: str) -> str:
    """The beginning of an error, up to where it repeats the request: for patterns, which are slow in a long text."""
    own = re.split(_INPUT, text[:_READ], maxsplit=1)[0]
    return re.sub(_ESCAPED, lambda match: chr(int(match[1], 16)), own)  # such as \u003e


def too_long(what: str, reason: str, detail: str) -> TooLong:
    """The error for a prompt that does not fit, with the window and the prompt's tokens if the server names them.

    The largest figure above the window is the prompt's, perhaps including its answer.
    """
    err = TooLong(what, detail=detail)
    for text in map(own_words, (reason, detail)):
        matches = (match for pattern in _WINDOW for match in re.finditer(pattern, text, re.IGNORECASE))
        figures = (_figures(match[0]) for match in matches)
        err.window = err.window or next((group[-1] for group in figures if group and group[-1] in _WINDOWS), None)
        window = err.window or 0
        sizes = [figure for figure in _figures(text) if window < figure < _MAX_PROMPT * window]
        err.prompt = err.prompt or max(sizes, default=None)
    return err


def _figures(text: str) -> list[int]:
    """The integers in a text, with any thousands separator."""
    return [int(re.sub(r"\D", "", digits)) for digits in re.findall(_N, text)]


def retry_after(headers: Mapping[str, str], detail: str = "") -> float | None:
    """Seconds to wait by the server's ``retry-after-ms``, its ``retry-after`` in seconds or as a date, or its error.

    Google names a ``retryDelay`` in the error itself, ``detail``.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if text.replace(".", "", 1).isdecimal():
            return float(text) * scale
    if match := re.search(_RETRY_DELAY, detail):
        return float(match[1])
    if "retry-after" not in headers:
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a rare form of a rare header

    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def message_in_body(body: bytes) -> str:
    """The provider's message in an error body; the whole text if the body is not JSON."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        payload = body.decode("utf-8", "replace")
    return message_in(payload)


def message_in(payload: Any, depth: int = 4) -> str:
    """The first string where providers put their message, as in ``{"error": {"message": "…"}}``, bare, or in a list."""
    if isinstance(payload, str):
        return " ".join(payload.split())
    inner = []
    if isinstance(payload, list):
        inner = payload[:1]
    elif depth and isinstance(payload, dict):
        inner = [payload.get(key) for key in _KEYS]
    return next(filter(None, (message_in(item, depth - 1) for item in inner)), "")


def without_secrets(err: GptshError, secrets: Collection[str]) -> GptshError:
    """The same error, with secrets masked wherever they could be shown, then shortened to one line."""
    text = mask(str(err), secrets)
    err.args = (text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",)
    err.detail = mask(err.detail, secrets)
    cause: BaseException | None = err
    while cause is not None:  # --debug shows the causes
        if cause.__cause__ is not None and mask(repr(cause.__cause__), secrets) != repr(cause.__cause__):
            cause.__cause__ = cause.__context__ = None
        cause = cause.__cause__
    return err


def secret_parameters(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts that ``without_secret_parameters`` masks, and of a header its token without the scheme."""
    if isinstance(value, str) and is_secret:
        yield from {value, value.rpartition(" ")[2]}
    elif isinstance(value, list):
        for item in value:
            yield from secret_parameters(item, is_secret=is_secret)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _NOT_MASKED:
                yield from secret_parameters(inner, is_secret=is_secret or _names_secrets(name))


def _names_secrets(name: str) -> bool:
    return is_secret_name(name) or name.lower().endswith("headers")


def without_secret_parameters(value: Any, *, hide: bool = False) -> Any:
    """A request with every text masked whose key names a secret or headers. Numbers are not secret."""
    if isinstance(value, str):
        return MASK if hide else value
    if isinstance(value, list):
        return [without_secret_parameters(item, hide=hide) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: inner if name in _NOT_MASKED else without_secret_parameters(inner, hide=hide or _names_secrets(name))
        for name, inner in value.items()
    }
