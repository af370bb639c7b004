"""Read an error body of any provider: its message and retry delay; and an error inside an answer as one of gptsh's."""

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from gptsh.errors import GptshError, ModelError
from gptsh.jsonio import as_dict

_READ = 4096  # characters of an error that patterns search
_MESSAGE_KEYS = ("message", "detail", "error", "msg", "details")
# The codes, statuses and types of errors inside an answer that a retry may avoid, and every 5xx.
_TEMPORARY = {
    "408", "409", "429",
    "overloaded_error", "rate_limit_error", "api_error", "timeout_error",  # Anthropic
    "server_error", "rate_limit_exceeded", "internal_server_error", "service_unavailable",  # OpenAI and others
    "overloaded", "engine_overloaded", "engine_overloaded_error",  # Moonshot and others
    "unavailable", "resource_exhausted",  # Google
}  # fmt: skip
_RETRY_DELAY = r'"retryDelay": ?"([0-9]{1,9}(?:\.[0-9]{1,9})?)s"'  # Google
_INPUT = r"""["']input\\*["']\s*:"""  # under which pydantic's errors repeat the request (Mistral, vLLM)
_ESCAPED = r"\\{1,8}u([0-9a-fA-F]{4})"  # a JSON escape, maybe nested in JSON strings


def reported_error(error: Any, payload: Mapping[str, Any]) -> GptshError:
    """The error for one inside an answer; --debug prints ``payload``. An overload can be retried."""
    from gptsh.llm.too_long import means_too_long, too_long  # noqa: PLC0415 - few answers have an error

    reason, detail = message_in(error), json.dumps(payload)
    what = f"the provider reported: {reason or 'an error'}"
    if means_too_long(json.dumps(error)):
        return too_long(what, reason, detail)
    err, fields = ModelError(what, detail=detail), as_dict(error)
    err.can_retry = any(_is_temporary(str(fields.get(key))) for key in ("code", "status", "type"))
    err.may_fall_back = err.can_retry
    err.retry_after = retry_after({}, detail)
    return err


def _is_temporary(code: str) -> bool:
    return code.lower() in _TEMPORARY or bool(re.fullmatch("5[0-9][0-9]", code))


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
        inner = [payload.get(key) for key in _MESSAGE_KEYS]
    return next(filter(None, (message_in(item, depth - 1) for item in inner)), "")


def own_words(text: str) -> str:
    """The beginning of an error, up to where it repeats the request: for patterns, which are slow in a long text."""
    own = re.split(_INPUT, text[:_READ], maxsplit=1)[0]
    return re.sub(_ESCAPED, lambda match: chr(int(match[1], 16)), own)  # such as \u003e


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
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
