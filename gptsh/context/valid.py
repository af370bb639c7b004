"""What of a session is sent: pure, built fresh for each call, and valid for strict servers. The file stays as it is."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from gptsh.content.passages import one_text
from gptsh.errors import UsageError
from gptsh.jsonio import parsed
from gptsh.messages import (
    Call,
    Message,
    blocks_of,
    is_blank,
    is_empty,
    parts_of,
    starts_turn,
    text_of,
    with_blocks,
)
from gptsh.models.names import is_by

_LEAST_ANSWER = 1000  # tokens, where the window is not known
_NO_RESULT = "error: this tool call was interrupted and has no result"


class Room(NamedTuple):
    """A model's window in tokens (None: unknown), and the share of it that is kept for the answer.

    ``asked`` are the tokens of the answer where a parameter says so.
    """

    window: int | None
    share: float = 0
    asked: int | None = None

    @property
    def reserve(self) -> int:
        """Tokens that are kept for the answer."""
        if self.asked is not None:
            return self.asked
        return _LEAST_ANSWER if self.window is None else int(self.window * self.share)

    @property
    def prompt(self) -> int | None:
        """Tokens that a prompt may take, its system prompt included."""
        return None if self.window is None else max(0, self.window - self.reserve)

    def budget(self, beside: int) -> int | None:
        """Tokens that messages may take beside so many of system prompt and tools."""
        return None if self.prompt is None else max(0, self.prompt - beside)


def sendable(messages: Iterable[Message]) -> list[Message]:
    """What of a session's messages (see ``cuts.as_sent``) can be sent: no empty answer."""
    return [message for message in messages if message["role"] != "assistant" or not is_empty(message)]


def build(messages: Sequence[Message], system: str | None, provider: str, model: str) -> list[Message]:
    """The messages (see ``sendable``) behind the system prompt, in an order that strict servers take; none for none.

    A system prompt goes behind those that stand among the messages: some servers take one, and at the beginning.
    Raises UsageError where the prompt is blank: some servers leave it out, and refuse a prompt that is empty or
    ends with an answer.
    """
    prompt = join_adjacent(pair_calls([one for one in messages if one["role"] != "system"], provider, model))
    if messages and (not prompt or (starts_turn(prompt[-1]) and is_blank(prompt[-1]))):
        raise UsageError("the prompt is blank", "give words or pipe text in")
    words = [text_of(message) for message in messages if message["role"] == "system"]
    text = "\n\n".join(dict.fromkeys(filter(None, [*words, system])))
    return [{"role": "system", "content": text}, *prompt] if text else prompt


# ---- roles, calls and their results

UNREADABLE = "arguments"  # under it stand arguments that are no JSON object, as they came
_UNNAMED, _LONGEST_NAME = "unknown", 64
# The ids that a provider takes for calls; who is not listed takes all that are its model's own.
_IDS = {
    "openai": "[!-~]{1,40}",
    "azure": "[!-~]{1,40}",
    "anthropic": "[a-zA-Z0-9_-]{1,64}",
    "mistral": "[a-zA-Z0-9]{9}",
}


def join_adjacent(messages: Sequence[Message]) -> list[Message]:
    """Questions in a row as one, answers in a row as one, since strict servers want the roles to alternate.

    Unanswered questions leave the former, two runs that answered one question at once the latter: then all that goes
    back besides words is of the last answer.
    """
    runs: list[list[Message]] = []
    for message in messages:
        before = runs[-1][-1] if runs else None
        asks_on = before is not None and _asks(message) and _asks(before)
        answers_on = before is not None and message["role"] == "assistant" == before["role"]
        if before and (asks_on or (answers_on and not before.get("tool_calls"))):
            runs[-1].append(message)
        else:
            runs.append([message])
    joined: list[Message] = []
    for *earlier, last in runs:
        if earlier and _asks(last):
            last = {"role": "user", "content": [part for message in (*earlier, last) for part in parts_of(message)]}
        elif words := "".join(f"{said}\n\n" for said in map(one_text, earlier) if said):
            last = with_blocks(last, [("text", {"type": "text", "text": words}), *blocks_of(last)])
        joined.append(last)
    return joined


def _asks(message: Message) -> bool:
    return starts_turn(message) or bool(message.get("repair"))


def pair_calls(
    messages: Sequence[Message], provider: str, model: str | None = None, *, readable: bool = True
) -> list[Message]:
    """Every tool call as servers take it, no two with one id, its result directly behind it, in the order of the calls.

    An id that the provider would refuse, or that an earlier call has, becomes ``call00001`` and so on: nine letters and
    digits, which all take. ``model`` is the one that is asked: its own ids go back as they came where its provider sets
    no limits, since some gateways keep a signature in them. A missing result becomes an error; one without a call is
    left out. ``readable``: arguments become the text of a JSON object, whatever they are.
    """
    if not any(message["role"] == "tool" or message.get("tool_calls") for message in messages):
        return [*messages]
    results = _results(messages)
    pattern = _IDS.get(provider, _IDS["openai"])
    taken: set[str] = set()
    ours = (f"call{number:05}" for number in count(1))
    paired: list[Message] = []
    for at, message in enumerate(messages):
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        if calls:
            ids = [call["id"] for call in calls]
            takes_any = provider not in _IDS and model is not None and is_by(message, provider, model)
            new = []
            for own in ids:
                fits = own and own not in taken and (takes_any or re.fullmatch(pattern, own))
                new.append(own if fits else next(one for one in ours if one not in taken))
                taken.add(new[-1])
            made = [_called(call, i, readable=readable) for call, i in zip(calls, new, strict=True)]
            paired.append(_with_calls(message, made, dict(zip(ids, new, strict=True))))
            for own, call_id in zip(ids, new, strict=True):
                given = results.get((at, own))  # of several the last one is what is known now
                result = given.pop(0 if ids.count(own) > 1 else -1) if given else None
                found: Message = result or {"role": "tool", "content": _NO_RESULT, "is_error": True}
                paired.append({**found, "tool_call_id": call_id, "content": found.get("content") or ""})
        elif message["role"] != "tool":
            paired.append(message)
    return paired


def _results(messages: Sequence[Message]) -> dict[tuple[int, str], list[Message]]:
    """The results of each call, by the place of its answer and the call's id as it came.

    The answer is that to which their ``parent`` leads, else the last one before them with a call of that id: two runs
    that answer one question at once leave both answers in front of both results, and some servers use the same ids
    again in every turn.
    """
    places: dict[Any, int] = {}  # of the answer, by id of it and of its results
    callers: dict[str, int] = {}  # the last one, by id of a call
    found: dict[tuple[int, str], list[Message]] = {}
    for at, message in enumerate(messages):
        place: int | None = None
        if message["role"] == "assistant" and message.get("tool_calls"):
            place = at
            callers |= {call["id"]: at for call in message["tool_calls"]}
        elif message["role"] == "tool":
            call_id, parent = message.get("tool_call_id") or "", message.get("parent")
            place = places.get(parent) if isinstance(parent, str) else None
            if place is None or all(call["id"] != call_id for call in messages[place]["tool_calls"]):
                place = callers.get(call_id)
            if place is not None:
                found.setdefault((place, call_id), []).append(message)
        if place is not None and message.get("id"):
            places[message["id"]] = place
    return found


def _with_calls(message: Message, made: list[Call], ids: Mapping[str, str]) -> Message:
    """The answer with these calls. What goes back and names a call by its id (signed reasoning) follows."""
    changed: Message = {**message, "tool_calls": made}
    replay = message.get("replay")
    if isinstance(replay, dict) and any(own != new for own, new in ids.items()):
        changed["replay"] = {
            key: [
                {**one, "id": ids.get(one["id"], one["id"])} if isinstance(one, dict) and one.get("id") else one
                for one in value
            ]
            if isinstance(value, list)
            else value
            for key, value in replay.items()
        }
    return changed


def _called(call: Call, call_id: str, *, readable: bool) -> Call:
    """The call with this id, a type, a name that servers allow, and its arguments as text."""
    name, arguments = call["function"].get("name"), call["function"].get("arguments")
    name = re.sub("[^a-zA-Z0-9_-]", "_", name)[:_LONGEST_NAME] if isinstance(name, str) else ""
    if readable or not isinstance(arguments, str):
        arguments = _readable(arguments)
    return {
        **call,
        "id": call_id,
        "type": "function",
        "function": {**call["function"], "name": name or _UNNAMED, "arguments": arguments},
    }


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
