"""Read an error of any provider: the message in its body, and after how long to retry, from its headers or body."""

import json
import re
import time
from collections.abc import Mapping
from typing import Any

_READ = 4096  # characters of an error that patterns search
_MESSAGE_KEYS = ("message", "detail", "error", "msg", "details")
_RETRY_DELAY = r'"retryDelay": ?"([0-9]{1,9}(?:\.[0-9]{1,9})?)s"'  # Google
_INPUT = r"""["']input\\*["']\s*:"""  # under which pydantic's errors repeat the request (Mistral, vLLM)
_ESCAPED = r"\\{1,8}u([0-9a-fA-F]{4})"  # a JSON escape, maybe nested in JSON strings


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
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
