"""Tool calls as servers take them: ids, names, arguments. For what is sent; the file keeps them as they came."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, count
from typing import Any

from gptsh.jsonio import parsed
from gptsh.messages import Call, Message
from gptsh.models.names import is_by
from gptsh.models.providers import OPENAI_ID, IdShape

UNREADABLE = "arguments"  # under it stand arguments that are no JSON object, as they came
_UNNAMED, _LONGEST_NAME = "unknown", 64
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def fitting(ids: Iterable[str], shape: IdShape, kept: Collection[str] = ()) -> dict[str, str]:
    """Each id as a provider takes it: itself where it fits or is ``kept``, else one made of it. No two become alike.

    What an id becomes depends on those before it alone, so that a prompt that grows keeps its beginning.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for own in ids:
        if own not in found:
            fits = own in kept or re.fullmatch(shape.pattern, own) is not None
            candidates = chain([own] if fits else [], _made(own, shape.length))
            found[own] = next(candidate for candidate in candidates if candidate not in taken)
            taken.add(found[own])
    return found


def _made(own: str, length: int) -> Iterator[str]:
    """Ids of letters and digits that nobody else's id becomes, but for a chance of one in many millions."""
    from hashlib import sha256  # noqa: PLC0415 - most ids fit

    for attempt in count():
        number = int.from_bytes(sha256(f"{attempt} {own}".encode("utf-8", "surrogatepass")).digest())
        letters = []
        for _ in range(length):
            number, at = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[at])
        yield "".join(letters)


def fitted(messages: Sequence[Message], provider: str, shape: IdShape | None, model: str = "") -> list[Message]:
    """The messages of a prompt with ids that the provider takes, on calls and results alike.

    Without a ``shape`` those of ``model`` go back as they came, however long: some gateways keep a signature in them.
    """
    calls = [(is_by(message, provider, model), call["id"]) for message, call in _calls(messages)]
    kept = {call_id for own, call_id in calls if own and shape is None}
    ids = fitting((call_id for _, call_id in calls), shape or OPENAI_ID, kept)
    return [_renamed(message, ids) for message in messages]


def _calls(messages: Sequence[Message]) -> Iterator[tuple[Message, Call]]:
    return ((message, call) for message in messages for call in message.get("tool_calls") or ())


def _renamed(message: Message, ids: dict[str, str]) -> Message:
    if message["role"] == "tool":
        own = message.get("tool_call_id", "")
        return message if ids.get(own, own) == own else {**message, "tool_call_id": ids[own]}
    calls = message.get("tool_calls") or ()
    if all(ids[call["id"]] == call["id"] for call in calls):
        return message
    return with_calls(message, [{**call, "id": ids[call["id"]]} for call in calls])


def with_calls(message: Message, new: list[Call]) -> Message:
    """The answer with these calls in the place of its own, one for one; what names a call by its id follows."""
    ids: dict[str, str] = {old["id"]: call["id"] for old, call in zip(message["tool_calls"], new, strict=True)}
    changed: Message = {**message, "tool_calls": new}
    if isinstance(message.get("replay"), dict) and any(own != made for own, made in ids.items()):
        changed["replay"] = {key: _following(value, ids) for key, value in message["replay"].items()}
    return changed


def _following(value: Any, ids: dict[str, str]) -> Any:
    """What goes back with an answer: pieces of reasoning that sign a call, or a whole call, have the call's id."""
    if isinstance(value, list):
        return [_following(item, ids) for item in value]
    own = value.get("id") if isinstance(value, dict) else None
    return {**value, "id": ids[own]} if isinstance(own, str) and own in ids else value


class Unique:
    """Gives every call of a prompt an id of its own: some servers use the same ones in every turn."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}  # that an id was asked for; those that are given among them

    def of(self, own: str) -> str:
        """The id of the next call, which came with ``own``: the same unless an earlier call has it."""
        candidate = base = own or "call"
        while candidate in self._times:
            self._times[base] += 1
            candidate = f"{base}_{self._times[base]}"
        self._times[candidate] = 1
        return candidate


def sound(call: Call, call_id: str) -> Call:
    """The call as every server takes it: with this id, a type, a name that servers allow, readable arguments."""
    return _called(call, call_id, _readable(call["function"].get("arguments")))


def as_written(call: Call, call_id: str) -> Call:
    """The same, but that the text of its arguments is what the model wrote, JSON or not."""
    said = call["function"].get("arguments")
    return _called(call, call_id, said if isinstance(said, str) else _readable(said))


def _called(call: Call, call_id: str, arguments: str) -> Call:
    said = call["function"].get("name")
    name = re.sub("[^a-zA-Z0-9_-]", "_", said)[:_LONGEST_NAME] if isinstance(said, str) else ""
    function = {**call["function"], "name": name or _UNNAMED, "arguments": arguments}
    return {**call, "id": call_id, "type": "function", "function": function}


def _readable(arguments: object) -> str:
    """Arguments as the text of a JSON object: what came where it is one. Servers parse it, and refuse all the rest."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return "{}"
    if isinstance(arguments, str):
        try:
            whole = isinstance(parsed(arguments), dict)
        except (ValueError, RecursionError):
            whole = False
        if whole:
            return arguments
    value = arguments if isinstance(arguments, dict) else {UNREADABLE: arguments}
    return json.dumps(value, ensure_ascii=False)
