"""What providers say when they refuse: error bodies of every shape seen, as one line without secrets."""

import json
from collections.abc import Collection
from typing import Any

from gptsh.errors import GptshError

_WIDTH = 400  # characters of an error line
_KEYS = ("message", "detail", "error", "msg", "details")


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
    text = _masked(str(err), secrets)
    err.args = (text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",)
    err.detail = _masked(err.detail, secrets)
    cause: BaseException | None = err
    while cause is not None:  # --debug shows what it came from
        if cause.__cause__ is not None and _masked(repr(cause.__cause__), secrets) != repr(cause.__cause__):
            cause.__cause__ = cause.__context__ = None
        cause = cause.__cause__
    return err


def _masked(text: str, secrets: Collection[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


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
