"""What providers say when they refuse: error bodies of every shape seen, as one line."""

import json
from typing import Any

_WIDTH = 300
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
    text = " ".join((found or "").split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


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
