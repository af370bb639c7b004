"""JSON as it goes out to a model and as it comes in."""

import json
import math
from typing import Any

from gptsh.errors import ModelError, NoAnswer
from gptsh.llm.failures import message_in
from gptsh.text import is_unicode

ADVICE = "is the base URL right?"


def encode(payload: Any) -> bytes:
    """JSON as it is sent. A lone surrogate (an undecodable byte of a pipe) is no UTF-8: U+FFFD goes in its place."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if is_unicode(text):  # without copies of two or four bytes a letter: it may hold images
        return text.encode()
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def load(data: bytes) -> dict[str, Any]:
    """A JSON object, its infinities as null. Raises NoAnswer for nothing, ModelError for anything else."""
    if not data.strip():
        raise NoAnswer("the server's answer is empty", ADVICE)
    try:
        payload = json.loads(data, parse_constant=lambda _: None, parse_float=_finite)
    except (ValueError, RecursionError) as err:
        raise ModelError(f"the response is garbage: {err}", ADVICE, detail=shown(data)) from err
    if not isinstance(payload, dict):
        said = message_in(payload)
        raise ModelError(f"the provider reported: {said}" if said else "the response is no JSON object", ADVICE)
    return payload


def as_object(arguments: str) -> dict[str, Any]:
    """The arguments of a tool call as an object; what is none is wrapped in one."""
    if not arguments.strip():
        return {}
    try:
        return load(arguments.encode("utf-8", "surrogatepass"))
    except ModelError:
        return {"arguments": arguments}


def paired(text: str) -> str:
    """The text, its surrogate pairs made whole: pieces that were joined may have the halves side by side."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


class Pairs:
    """Text that comes in pieces, its surrogate pairs made whole: some servers cut them in two."""

    def __init__(self) -> None:
        self._half = ""

    def joined(self, text: str) -> str:
        """The piece, with the half that was held back before it; a half at its end is held back."""
        if not self._half and is_unicode(text):
            return text
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return paired(text.removesuffix(self._half) if self._half else text)

    def rest(self) -> str:
        """The half that nothing came behind."""
        half, self._half = self._half, ""
        return half


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None  # 1e999 could not be saved


def shown(data: bytes) -> str:
    """What --debug tells of a body."""
    return data[:2000].decode("utf-8", "replace")
