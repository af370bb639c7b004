"""Encode a request's JSON body, parse JSON that a server sent, and a tool call's arguments."""

import contextlib
import json
import math
from collections.abc import Iterator
from typing import Any

from gptsh.errors import ModelError, NoAnswer
from gptsh.jsonio import as_dict
from gptsh.text import is_unicode

ADVICE = "is the base URL right?"
_PIECE = 1_000_000  # characters of a text that are encoded at once
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode(payload: Any) -> bytes:
    """Encode JSON as UTF-8. U+FFFD replaces a lone surrogate, which comes from an undecodable byte of a pipe.

    Long texts are encoded in pieces: whole, the text of the JSON would take up to four bytes per character.
    """
    return b"".join(_encoded(payload))


def _encoded(value: Any) -> Iterator[bytes]:
    """The JSON of a value, in pieces."""
    if isinstance(value, dict):
        separator = b"{"
        for key, item in value.items():
            yield b"%b%b:" % (separator, _encode_whole(key))
            yield from _encoded(item)
            separator = b","
        yield b"}" if value else b"{}"
    elif isinstance(value, (list, tuple)):
        separator = b"["
        for item in value:
            yield separator
            yield from _encoded(item)
            separator = b","
        yield b"]" if value else b"[]"
    elif isinstance(value, str) and len(value) > _PIECE:
        yield b'"'
        for start in range(0, len(value), _PIECE):
            yield _encode_whole(value[start : start + _PIECE])[1:-1]
        yield b'"'
    else:
        yield _encode_whole(value)


def _encode_whole(value: Any) -> bytes:
    """The JSON of a value, in one piece."""
    text = _encoder.encode(value)
    if is_unicode(text):
        return text.encode()
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def load(data: bytes) -> dict[str, Any]:
    """Parse a JSON object, with infinities as null.

    Raises NoAnswer if there is no data, ModelError or TooLong for an error that is not in an object: Google sends a
    list of one error.
    """
    if not data.strip():
        raise NoAnswer("the server's answer is empty", ADVICE)
    try:
        payload = _parse(data)
    except (ValueError, RecursionError) as err:
        raise ModelError(f"the response is not JSON: {err}", ADVICE, detail=debug_text(data)) from err
    if isinstance(payload, dict):
        return payload
    from gptsh.llm.error_bodies import message_in
    from gptsh.llm.reported_errors import reported_error

    reason = message_in(payload)
    if not reason:
        raise ModelError("the response is not a JSON object", ADVICE)
    first = as_dict(payload[0]) if isinstance(payload, list) else {}
    raise reported_error(first.get("error") or reason, first)


def as_object(arguments: str) -> dict[str, Any]:
    """The arguments of a tool call as an object; anything else is wrapped in one."""
    if not arguments.strip():
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        value = _parse(arguments.encode("utf-8", "surrogatepass"))
        if isinstance(value, dict):
            return value
    return {"arguments": arguments}


def _parse(data: bytes) -> Any:
    """Parse JSON, with infinities and NaN as null: they could not be saved."""
    return json.loads(data, parse_constant=lambda _: None, parse_float=_finite)


def _finite(text: str) -> float | None:
    value = float(text)  # 1e999 is infinite
    return value if math.isfinite(value) else None


def debug_text(data: bytes) -> str:
    """The beginning of a body, for --debug."""
    return data[:2000].decode("utf-8", "replace")
