"""What providers say when they refuse: statuses and error bodies of every shape seen, as one line without secrets."""

import json
import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gptsh.config.secret import MASK, masked, names_a_secret
from gptsh.errors import GptshError, ModelError, TooLong
from gptsh.jsonio import as_dict
from gptsh.models.providers import Provider

_WIDTH = 400  # characters of an error line
_KEYS = ("message", "detail", "error", "msg", "details")
_AGAIN = (408, 409, 429)  # and every 5xx
_SERVER_ERROR = 500
# What an error inside an answer is called, or its status, where another try may do better.
_PASSING = re.compile(
    "408|409|429|5[0-9][0-9]|(?:engine_)?overloaded(?:_error)?|rate_limit_(?:error|exceeded)|api_error|timeout_error"
    "|server_error|internal_server_error|service_unavailable|unavailable|resource_exhausted",
    re.IGNORECASE,
)
_HOPELESS = re.compile(r'option \\?"\w+\\?" must be of type')  # Ollama finds it while it loads a model: 500
# Words, and schemas, whose names are the user's own.
_NO_PARAMETERS = ("messages", "response_format", "format", "output_config", "properties")
# How servers say that a prompt does not fit: OpenAI and vLLM, llama.cpp, Anthropic, Google, Mistral, Ollama, others.
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|ContextWindowExceeded|maximum context length"
    r"|(?:exceed\w*|beyond|(?:larg|long|great)er than) (?:the |its )?"
    r"(?:model's |available |maximum |max |allowed )*(?:context|input token|input length)"
    r"|exceeds (?:the )?maximum allowed length \(\d+ tokens"
    r"|prompt (?:is )?too long|input (?:is )?too long|context (?:length|size|window) (?:has been |was )?exceeded"
    r"|input token count .{0,40}(?:exceeds|supports)|maximum (?:prompt|model) length|context length (?:of|is) only"
    r"|too many tokens: |context window exceeds|(?:input|prompt) tokens (?:\(\d+\) )?exceed|n_keep .{0,20}n_ctx"
    r"|prompt token count .{0,40}exceeds|exceeded model token limit|range of input length|configured context size"
    r"|`max_new_tokens` must be <=|`inputs` must have less than|current length is .{0,20}while limit is",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\{1,8}u([0-9a-fA-F]{4})")  # as in JSON, which may stand in JSON
_FIGURE = r"(?<!\d)(?:\d{1,3}(?:[,._'\u2019\u00a0\u202f]\d{3})+|\d{1,12})\b"
_N = f"({_FIGURE})"
# What they call the window, and the prompt: fields first, then words. "Length" alone is either's name. What may be
# the prompt and its answer together is not read, nor what is said to be less than the prompt ("at least").
_WINDOW = (
    rf"\bn_ctx\W{{1,6}}{_N}",
    rf"(?:too long|context limit): {_FIGURE}(?: tokens)?(?: \+ {_FIGURE})? > {_N}",
    r"(?:context|allowed(?: input)?|max(?:imum)? (?:prompt|model|input)) (?:length|size|window)"
    rf"(?:(?: of| is)(?: only)? |: | \(){_N}",
    r"(?:(?:maximum number of tokens allowed|exceed model maximum|configured limit of|exceeds the limit of|limit is"
    r"|limit for this model is|model token limit:|supports up to|cannot exceed|must be <=|must have less than) \(?"
    rf"|\[1, ){_N}",
    rf"\b{_N} maximum context length",
)
_PROMPT = (
    rf"\bn_prompt_tokens\W{{1,6}}{_N}",
    rf"\bn_keep\W{{1,6}}{_N}",
    rf"too long: {_N}(?: tokens|,)|context limit: {_N} \+",
    rf"(?:(?:request|input|prompt|(?:prompt|requested) tokens) \(|prompt \(length ){_N}(?: tokens)?\)",
    r"(?:messages resulted in|request (?:contains|has)|prompt (?:contains|has)|input token count(?: is)?|input length"
    rf"|prompt token count of|keep the first|given:) \(?{_N}(?! char)",
    rf"{_N} tokens from the input",
)
_PART = rf"{_N} (?:in (?:the |your )?(?:messages|functions|tools|prompt)\b|of \w+ input)"  # beside the answer's
_WINDOWS, _PROMPTS = range(256, 10**8 + 1), range(1, 10**9)  # what can be one
_REFUSED_FOR_LENGTH = (400, 413, 422, 500)


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes, provider: Provider) -> GptshError:
    """A refusing response as an error: what was said, what to do, and whether another try may do better.

    TooLong where the prompt does not fit, else ModelError. ``headers`` have lower-case names.
    """
    reason, detail = said(body), body.decode("utf-8", "replace")
    if status in _REFUSED_FOR_LENGTH and means_too_long(detail):
        return too_long(f"{provider.name} has no room for the prompt: {reason}", reason, detail)
    reason = f"({status}){': ' if reason else ''}{reason}"
    if status in (401, 403):
        key = source_of_key(provider)
        err = ModelError(f"{provider.name} refused the key {reason}", f"check {key}", detail=detail)
    elif "location" in headers and 300 <= status < 400:  # not followed: the key would go along
        err = ModelError(f"{url} redirects to {headers['location']}", "change base_url")
    elif status == 404:  # the model or the path
        pull = f"ollama pull {provider.model}, or see -m" if provider.wire == "ollama" and "model" in reason else ""
        err = ModelError(
            f"{url} does not know {provider.model!r} {reason}", pull or "see -m and base_url", detail=detail
        )
    elif "not support tools" in reason:
        err = ModelError(f"{provider.model} takes no tools {reason}", "choose another model with -m", detail=detail)
    else:
        err = ModelError(f"{provider.name} refused {reason}", detail=detail)
    return _judged(err, status, headers)


def reported(error: Any, payload: Mapping[str, Any]) -> GptshError:
    """An error that stands in an answer; ``payload`` is what --debug prints. An overload may soon be over."""
    reason, detail = message_in(error), json.dumps(payload)
    what = f"the provider reported: {reason or 'an error'}"
    if means_too_long(json.dumps(error)):
        return too_long(what, reason, detail)
    err, codes = ModelError(what, detail=detail), as_dict(error)
    kinds = [str(codes.get(key)) for key in ("code", "status", "type")]
    err.retry = any(_PASSING.fullmatch(kind) for kind in kinds)
    return err


def means_too_long(text: str) -> bool:
    """Whether an error says that the prompt does not fit the model's window."""
    return bool(_TOO_LONG.search(_unescaped(text)))


def too_long(what: str, reason: str, detail: str) -> TooLong:
    """The error for a prompt that does not fit, with the window and the size of the prompt that the server names.

    They are looked for in ``reason``, its words, then in ``detail``, all that it sent.
    """
    err = TooLong(what, detail=detail)
    for text in map(_unescaped, (reason, detail)):
        err.window = err.window or _named(_WINDOW, text, _WINDOWS)
        err.prompt = err.prompt or _in_parts(text) or _named(_PROMPT, text, _PROMPTS)
    return err


def _in_parts(text: str) -> int | None:
    """The sum of the prompt's parts, where they stand in brackets: messages, tools, images."""
    brackets = (re.findall(_PART, inside, re.IGNORECASE) for inside in re.findall(r"\(([^()]{1,200})\)", text))
    size = sum(map(_count, next(filter(None, brackets), ())))
    return size if size in _PROMPTS else None


def _named(ways: Iterable[str], text: str, sane: range) -> int | None:
    """The first sane figure that stands in one of the ways, in their order."""
    found = (match for way in ways for match in re.finditer(way, text, re.IGNORECASE))
    counts = (_count(next(filter(None, match.groups()))) for match in found)
    return next((count for count in counts if count in sane), None)


def _count(figure: str) -> int:
    """Whatever separates its thousands."""
    return int(re.sub(r"\D", "", figure))


def _unescaped(text: str) -> str:
    """The text with ``\\u003e`` and its like as what they stand for."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def _judged(err: ModelError, status: int, headers: Mapping[str, str]) -> ModelError:
    """The same error, with its status and whether and when to try again."""
    hint = headers.get("x-should-retry")
    err.status = status
    err.retry = hint == "true" or (hint != "false" and (status in _AGAIN or status >= _SERVER_ERROR))
    err.retry = err.retry and not _HOPELESS.search(err.detail)
    err.after = retry_after(headers)
    return err


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if text.replace(".", "", 1).isdecimal():
            return float(text) * scale
    return _until(headers["retry-after"]) if "retry-after" in headers else None


def _until(date: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a rare form of a rare header

    try:
        moment = parsedate_to_datetime(date)
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def said(body: bytes) -> str:
    """The provider's message in an error body; the beginning of the body where it holds none; empty if that is."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        payload = body.decode("utf-8", "replace")
    return message_in(payload)


def message_in(payload: Any) -> str:
    """The first string found where providers put their message: ``{"error": {"message"}}``, bare, or in a list."""
    found = _find(payload, 4)
    return " ".join((found or "").split())


def without_secrets(err: GptshError, secrets: Collection[str]) -> GptshError:
    """The same error, with the secrets masked wherever they could be shown, and then cut to the width of a line."""
    text = masked(str(err), secrets)
    err.args = (text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",)
    err.detail = masked(err.detail, secrets)
    cause: BaseException | None = err
    while cause is not None:  # --debug shows what it came from
        if cause.__cause__ is not None and masked(repr(cause.__cause__), secrets) != repr(cause.__cause__):
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
        else without_secret_parameters(inner, hides=hides or names_a_secret(name) or name.lower().endswith("headers"))
        for name, inner in value.items()
    }


def _find(payload: Any, depth: int) -> str | None:
    if isinstance(payload, str) and payload.strip():
        return payload
    if not depth:
        return None
    inner: list[Any] = []
    if isinstance(payload, list):
        inner = payload[:1]
    elif isinstance(payload, dict):
        inner = [payload[key] for key in _KEYS if key in payload]
    return next((text for item in inner if (text := _find(item, depth - 1))), None)


def source_of_key(provider: Provider) -> str:
    """Where the user would look for the key."""
    if provider.key_command:
        return f"api_key_command under [providers.{provider.name}]"
    return provider.key_var or next(iter(provider.key_vars), f"[providers.{provider.name}]")
