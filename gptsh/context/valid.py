"""What of a session is sent: pure, built fresh for each call, and valid for strict servers. The file stays as it is."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gptsh.content import calls
from gptsh.content.foreign import translated
from gptsh.context.tokens import Size
from gptsh.errors import TooLong, UsageError
from gptsh.jsonio import as_dict
from gptsh.messages import (
    Block,
    Call,
    Message,
    blocks_of,
    is_empty,
    parts_of,
    says_nothing,
    starts_turn,
    text_of,
    with_blocks,
)
from gptsh.models.cost import filled_window

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

    def budget(self, beside: int) -> int | None:
        """Tokens that messages may take beside so many of system prompt and tools."""
        return None if self.prompt is None else max(0, self.prompt - beside)


class Context(NamedTuple):
    """What is sent. ``size`` is of the whole prompt, ``system`` what of it are system prompt and tools, in tokens.

    ``included``, ``summarized`` and ``left_out`` count messages of the session.
    """

    messages: list[Message]
    strategy: str
    size: Size
    system: int
    room: Room
    included: int
    summarized: int = 0
    left_out: int = 0
    compaction: str | None = None  # the id of the one that it is sent under

    def report(self) -> dict[str, Any]:
        """What is told of it. Tokens are those of the messages, as the budget is; ``at_most`` is what is acted on."""
        return {
            "strategy": self.strategy,
            "tokens": max(0, self.size.tokens - self.system),
            "at_most": max(0, self.size.at_most - self.system),
            "budget": self.room.budget(self.system),
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


def taken(size: Size, room: Room, params: Mapping[str, Any], messages: Sequence[Message] = ()) -> int:
    """Tokens that a prompt and its answer take together, as far as that can be told before.

    ``messages`` are the session's: more than a window that its last answer has filled.
    """
    asked = _asked(params)
    if asked is None:
        asked = _LEAST_ANSWER if room.window is None else min(room.reserve, _USUAL_ANSWER)
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    return max(size.at_most, (last and filled_window(last)) or 0) + asked


def _asked(params: Mapping[str, Any]) -> int | None:
    """Tokens of the answer, as far as a parameter says so."""
    limits = [params[name] for name in ("max_tokens", "max_completion_tokens") if type(params.get(name)) is int]
    return max(0, limits[0]) if limits else None


def spoken(messages: Iterable[Message]) -> list[Message]:
    """What of a session's messages (see ``cuts.as_sent``) can be sent, in our vocabulary: no empty answer."""
    said = (own for message in messages for own in translated(message))
    return [own for own in said if own["role"] != "assistant" or not is_empty(own)]


def build(
    messages: Sequence[Message], system: str | None, size: Size, room: Room, *, advice: str = "", fixed: int = 0
) -> Context:
    """The messages (see ``spoken``) behind the system prompt, in an order that strict servers take.

    ``size`` is what all takes, ``fixed`` what of it stands in front of them: system prompt, schema and tools.

    Raises TooLong, with both numbers and ``advice``, when that is more than there is room for; UsageError where the
    question says nothing: some servers leave it out, and refuse a prompt that is empty or ends with an answer.
    """
    if room.prompt is not None and size.tokens > room.prompt:
        window = f"of {room.window:,}, {room.reserve:,} kept for the answer"
        raise TooLong(
            f"the prompt takes about {size.tokens:,} tokens and the window has room for {room.prompt:,} ({window})",
            f"shorten it, or choose a larger window with -m{advice}",
        )
    said = spoken(messages)
    prompt = join_adjacent(pair_calls([message for message in said if message["role"] != "system"]))
    if not prompt or (starts_turn(prompt[-1]) and says_nothing(prompt[-1])):
        raise UsageError("the question says nothing", "give words or pipe text in")
    return Context(head_of(system, said) + prompt, "full", size, fixed, room, included=len(said))


def head_of(system: str | None, said: Sequence[Message]) -> list[Message]:
    """The system prompt, behind those that stand among the messages: some servers take one, and at the beginning."""
    words = [text_of(message) for message in said if message["role"] == "system"]
    text = "\n\n".join(dict.fromkeys(filter(None, [*words, system])))
    return [{"role": "system", "content": text}] if text else []


# ---- answers and questions in a row


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
            joined[-1] = _one_answer(before, message)
        else:
            joined.append(message)
    return joined


def _one_answer(before: Message, message: Message) -> Message:
    """Two answers as one, block by block, a blank line between them.

    What a model signed, or its provider wants back, goes on of both where one model gave both, else of the later alone.
    """
    ours = all(message.get(key) == before.get(key) for key in ("provider", "model"))
    first = [(kind, block) for kind, block in blocks_of(before) if ours or kind != "thinking"]
    if refusal := before.get("refusal"):
        first = [*_with_paragraph(first), ("text", {"type": "text", "text": refusal})]
    joined = with_blocks(message, [*_with_paragraph(first), *blocks_of(message)])
    if replay := _replays(as_dict(before.get("replay")) if ours else {}, as_dict(message.get("replay"))):
        joined["replay"] = replay
    else:
        joined.pop("replay", None)
    return joined


def _with_paragraph(blocks: list[Block]) -> list[Block]:
    """The blocks, their last text ended by a blank line."""
    texts = [at for at, (kind, block) in enumerate(blocks) if kind == "text" and isinstance(block.get("text"), str)]
    if not texts:
        return blocks
    kind, block = blocks[texts[-1]]
    return [*blocks[: texts[-1]], (kind, {**block, "text": f"{block['text']}\n\n"}), *blocks[texts[-1] + 1 :]]


def _replays(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What goes back with two answers: texts of one name one behind the other, of all else the later.

    A list tells an answer piece by piece. One behind the other they tell both; that of one would leave out the other.
    """
    both: dict[str, Any] = {}
    for key, value in {**one, **other}.items():
        pair = one.get(key), other.get(key)
        if all(isinstance(given, str) for given in pair):
            both[key] = "\n\n".join(given for given in pair if given)
        elif all(isinstance(given, list) for given in pair):
            both[key] = [item for given in pair for item in given or ()]
        elif not isinstance(value, list):
            both[key] = value
    return both


# ---- calls and results


def pair_calls(messages: Sequence[Message], shaped: Callable[[Call, str], Call] = calls.sound) -> list[Message]:
    """Every tool call as servers take it, no two with one id, its result directly behind it, in the order of the calls.

    ``shaped`` makes a call with an id of one as it came. A missing result becomes an error; one without a call is left
    out.
    """
    owned = _by_answer(messages)
    ids = calls.Unique()
    paired: list[Message] = []
    for at, message in enumerate(messages):
        asked = message.get("tool_calls")
        if message["role"] == "assistant" and asked:
            whole = [shaped(call, ids.of(call["id"])) for call in asked]
            paired.append(calls.with_calls(message, whole))
            results = _in_order(asked, owned.get(at, []))
            paired += [_result(own, call["id"]) for own, call in zip(results, whole, strict=True)]
        elif message["role"] != "tool":
            paired.append(message)
    return paired


def _by_answer(messages: Sequence[Message]) -> dict[int, list[Message]]:
    """The results under the place of the answer that asked for them.

    That is the one to which their ``parent`` leads, else the last one before them with a call of that id: two runs that
    answer one question at once leave both answers in front of both results, and some servers use the same ids again in
    every turn. A result that names no call is the last answer's.
    """
    places: dict[str | None, int] = {}  # by id of an answer and of its results
    callers: dict[str, int] = {}  # by id of a call
    latest: int | None = None
    owned: dict[int, list[Message]] = {}
    for at, message in enumerate(messages):
        owner: int | None = None
        if message["role"] == "assistant" and message.get("tool_calls"):
            owner = latest = at
            callers.update({call["id"]: at for call in message["tool_calls"]})
        elif message["role"] == "tool":
            owner = _owner(message, messages, places, callers, latest)
            if owner is not None:
                owned.setdefault(owner, []).append(message)
        if owner is not None and message.get("id"):
            places[message["id"]] = owner
    return owned


def _owner(
    result: Message,
    messages: Sequence[Message],
    places: Mapping[str | None, int],
    callers: Mapping[str, int],
    latest: int | None,
) -> int | None:
    named, parent = result.get("tool_call_id"), result.get("parent")
    owner = places.get(parent) if isinstance(parent, str) else None
    if owner is not None and (not named or any(call["id"] == named for call in messages[owner]["tool_calls"])):
        return owner
    return callers.get(named) if named else latest


def _in_order(asked: Sequence[Call], results: Sequence[Message]) -> list[Message | None]:
    """The result of each call: of several the last one, since it is what is known now; None where there is none.

    Calls of one id have theirs in turn. What names no call is for the first one without, of the same function.
    """
    times = Counter(call["id"] for call in asked)
    named: dict[str | None, list[Message]] = {}
    for result in results:
        named.setdefault(result.get("tool_call_id") or None, []).append(result)
    unnamed = named.pop(None, [])
    found: list[Message | None] = []
    for call in asked:
        own = named.get(call["id"], [])
        found.append((own.pop(0) if times[call["id"]] > 1 else own[-1]) if own else None)
    for at, call in enumerate(asked):
        fits = [result for result in unnamed if result.get("name") in (None, "", call["function"].get("name"))]
        if found[at] is None and fits:
            found[at] = fits[0]
            unnamed.remove(fits[0])
    return found


def _result(own: Message | None, call_id: str) -> Message:
    if own is None:
        return {"role": "tool", "tool_call_id": call_id, "content": _NO_RESULT, "is_error": True}
    content = own.get("content")
    return {**own, "tool_call_id": call_id, "content": "" if content is None else content}
