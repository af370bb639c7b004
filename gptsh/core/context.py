"""What of a session is sent: pure, built fresh for each call, and valid for strict servers. The file stays as it is."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from gptsh.core.messages import Call, Message, Part, is_empty, parts_of, starts_turn
from gptsh.core.tokens import Count, of_system
from gptsh.errors import TooLong

_PARAGRAPH: Part = {"type": "text", "text": "\n\n"}
_USUAL_ANSWER = 4096  # tokens: the quarter of a large window is far more than answers take
_LEAST_ANSWER = 1000  # tokens, where the window is not known
_NO_RESULT = "error: this tool call was interrupted and has no result"


class Room(NamedTuple):
    """A model's window in tokens (None: unknown), and what of it is kept for the answer."""

    window: int | None
    reserve: int = 0

    @property
    def prompt(self) -> int | None:
        """Tokens that a prompt may take, its system prompt included."""
        return None if self.window is None else max(0, self.window - self.reserve)


class Context(NamedTuple):
    """What is sent. ``size`` is of the whole prompt, ``system`` what of it are system prompt and tools, in tokens.

    ``included``, ``summarized`` and ``left_out`` count messages of the session.
    """

    messages: list[Message]
    strategy: str
    size: Count
    system: int
    room: Room
    included: int
    summarized: int = 0
    left_out: int = 0

    def report(self) -> dict[str, Any]:
        """What is told of it. Tokens are those of the messages, as the budget is; ``at_most`` is what is acted on."""
        likely = self.size.likely - round(self.system * self.size.likely / max(1, self.size.safe))
        budget = None if self.room.prompt is None else max(0, self.room.prompt - self.system)
        return {
            "strategy": self.strategy,
            "tokens": max(0, likely),
            "at_most": max(0, self.size.safe - self.system),
            "budget": budget,
            "window": self.room.window,
            "included": self.included,
            "summarized": self.summarized,
            "left_out": self.left_out,
        }


def room_for(window: int | None, params: Mapping[str, Any], reserve: float) -> Room:
    """What a window leaves to the prompt: ``reserve`` is the share that the answer gets where no parameter says it."""
    if window is None:
        return Room(None)
    asked = _asked(params)
    return Room(window, int(window * reserve) if asked is None else asked)


def least_window(prompt: int, params: Mapping[str, Any], reserve: float) -> float:
    """The smallest window that has room for so many tokens beside the answer."""
    asked = _asked(params)
    return prompt / max(0.01, 1 - reserve) if asked is None else prompt + asked


def taken(size: Count, room: Room, params: Mapping[str, Any]) -> int:
    """Tokens that a prompt and its answer take together, as far as that can be told before."""
    asked = _asked(params)
    if asked is None:
        asked = _LEAST_ANSWER if room.window is None else min(room.reserve, _USUAL_ANSWER)
    return size.safe + asked


def _asked(params: Mapping[str, Any]) -> int | None:
    """Tokens of the answer, as far as a parameter says so."""
    limits = [params[name] for name in ("max_tokens", "max_completion_tokens") if type(params.get(name)) is int]
    return max(0, limits[0]) if limits else None


def build(
    messages: Sequence[Message], system: str | None, size: Count, room: Room, *, advice: str = "", beside: int = 0
) -> Context:
    """All of the messages (see ``cuts.as_sent``) behind the system prompt, in an order that strict servers take.

    ``size`` is what they take, ``beside`` the tokens of what goes along: the definitions of tools.

    Raises TooLong, with both numbers and ``advice``, when that is more than there is room for.
    """
    if room.prompt is not None and size.safe > room.prompt:
        window = f"of {room.window:,}, {room.reserve:,} kept for the answer"
        raise TooLong(
            f"the prompt takes up to {size.safe:,} tokens and the window has room for {room.prompt:,} ({window})",
            f"shorten it, or choose a larger window with -m{advice}",
        )
    said = [message for message in messages if _says_something(message)]
    head: list[Message] = [{"role": "system", "content": system}] if system else []
    return Context(
        head + join_adjacent(pair_calls(said)),
        "full",
        size,
        of_system(system) + beside,
        room,
        included=len(said),
    )


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
