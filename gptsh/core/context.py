"""What of a session is sent: pure, built fresh for each call, and valid for strict servers. The file stays as it is."""

from collections.abc import Sequence
from itertools import takewhile

from gptsh.core.messages import Call, Message, Part, is_empty, parts_of, starts_turn

_PARAGRAPH: Part = {"type": "text", "text": "\n\n"}
_NO_RESULT = "error: this tool call was interrupted and has no result"


def build(messages: Sequence[Message], system: str | None) -> list[Message]:
    """The system prompt, then the messages as a model may be shown them."""
    head: list[Message] = [{"role": "system", "content": system}] if system else []
    return head + join_adjacent(pair_calls([message for message in messages if _says_something(message)]))


def _says_something(message: Message) -> bool:
    return message["role"] != "assistant" or not is_empty(message)


def join_adjacent(messages: Sequence[Message]) -> list[Message]:
    """Questions in a row as one, answers in a row as one, since strict servers want the roles to alternate.

    Unanswered questions leave the former, two runs that answered one question at once the latter.
    """
    joined: list[Message] = []
    for message in messages:
        before = joined[-1] if joined else None
        if before and starts_turn(message) and starts_turn(before):
            joined[-1] = {"role": "user", "content": [*parts_of(before), *parts_of(message)]}
        elif before and message["role"] == "assistant" == before["role"] and not before.get("tool_calls"):
            refused: list[Part] = [{"type": "text", "text": before["refusal"]}] if before.get("refusal") else []
            joined[-1] = {**message, "content": [*parts_of(before), *refused, _PARAGRAPH, *parts_of(message)]}
        else:
            joined.append(message)
    return joined


def pair_calls(messages: Sequence[Message]) -> list[Message]:
    """Every tool call with a result directly behind it: a missing one becomes an error, a stray one is left out.

    Results count up to the next answer only, since some servers use the same call ids again in every turn.
    """
    paired: list[Message] = []
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            continue
        paired.append(message)
        if calls := message.get("tool_calls"):
            following = takewhile(lambda later: later["role"] != "assistant", messages[at + 1 :])
            results = {later["tool_call_id"]: later for later in following if later.get("tool_call_id")}
            paired += [results.get(call["id"]) or _missing(call) for call in calls]
    return paired


def _missing(call: Call) -> Message:
    return {"role": "tool", "tool_call_id": call["id"], "content": _NO_RESULT, "is_error": True}
