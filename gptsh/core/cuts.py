"""Cutting what is sent: what is left out, and what the model reads in its place.

Piped and attached text is cut so that a prompt fits: a cut stands on its part as ``"cut": [start, end]``, in
characters. What a tool gave is cut where it is long. The text itself stays whole in the session.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gptsh.core import media
from gptsh.core.messages import Message, Part, text_parts_of
from gptsh.core.tokens import estimate

_LEAST = 64  # tokens that a part keeps; less of it says nothing
_MARK = "[gptsh: {removed:,} of {whole:,} characters are left out here]\n"
_MARK_TOKENS = 40
_SENT_OF_TOOL = 200_000  # bytes of UTF-8 of what a tool gave
_TOOL_MARK = "\n[gptsh: {removed:,} of {whole:,} bytes are left out here]\n"


class Cut(NamedTuple):
    """What went of one text, in characters."""

    source: str
    removed: int
    whole: int


def as_sent(message: Message, lacks: Collection[media.Kind] = ()) -> Message:
    """The message as a model reads it: each cut carried out, with a line that says so in its place.

    The same for what the model does not take: ``lacks`` are the kinds of it.
    """
    message = media.without(message, lacks)
    if message["role"] == "tool":
        return _tool_as_sent(message)
    if not any("cut" in part for part in text_parts_of(message)):
        return message
    return {**message, "content": [_carried_out(part) for part in message["content"] or ()]}  # type: ignore[arg-type]


def _tool_as_sent(message: Message) -> Message:
    """What a tool gave, with the middle of its longest texts left out where together they are too long."""
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part["text"] for part in text_parts_of(message)]
    if 4 * sum(map(len, texts)) <= _SENT_OF_TOOL:  # a character has four bytes at most
        return message
    level = common_level([len(_encoded(text)) for text in texts], _SENT_OF_TOOL)
    if isinstance(content, str):
        return {**message, "content": _ends(content, level)}
    return _with_parts(message, {id(p): {**p, "text": _ends(p["text"], level)} for p in text_parts_of(message)})


def _ends(text: str, size: int) -> str:
    """Head and tail of a text that has more than ``size`` bytes, cut between characters, with a line between them."""
    data = _encoded(text)
    if len(data) <= size:
        return text
    half = max(0, size - len(_TOOL_MARK) - 2 * len(f"{len(data):,}")) // 2
    head, tail = half, len(data) - half
    while _is_inside(data, head):
        head -= 1
    while _is_inside(data, tail):
        tail += 1
    mark = _TOOL_MARK.format(removed=tail - head, whole=len(data))
    return f"{_decoded(data[:head])}{mark}{_decoded(data[tail:])}"


def _is_inside(data: bytes, at: int) -> bool:
    """Whether a character stands on both sides of this place."""
    return 0 < at < len(data) and data[at] & 0xC0 == 0x80  # a byte that goes on with a character


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _carried_out(part: Part) -> Part:
    start, end = _span_of(part)
    if start >= end:
        return part
    rest = {key: value for key, value in part.items() if key != "cut"}
    return {**rest, "text": left_out(part["text"], start, end)}


def left_out(text: str, start: int, end: int) -> str:
    """The text without the characters from ``start`` to ``end``, with a line in their place that says so."""
    mark = _MARK.format(removed=end - start, whole=len(text))
    before = text[:start] if not start or text[start - 1] == "\n" else f"{text[:start]}\n"
    return f"{before}{mark}{text[end:]}"


def _span_of(part: Part) -> tuple[int, int]:
    """Where a part is cut; (0, 0) for one that is not, or whose mark makes no sense."""
    cut, text = part.get("cut"), part.get("text")
    if not isinstance(text, str) or not isinstance(cut, list) or len(cut) != 2:  # start, end
        return 0, 0
    start, end = cut
    sound = type(start) is type(end) is int and 0 <= start <= end <= len(text)
    return (start, end) if sound else (0, 0)


def without(messages: Sequence[Message]) -> list[Message]:
    """The messages, their piped and attached text empty: what is left when all of it is cut."""
    return [
        _with_parts(message, {id(part): {**part, "text": ""} for part in attached(message)}) for message in messages
    ]


def cut(messages: Sequence[Message], room: int, end: str) -> tuple[list[Message], list[Cut]] | None:
    """The messages with the largest of their piped and attached texts cut so that together these take ``room`` tokens.

    ``end`` says what goes: head, tail or middle. None where hardly anything of them would be left.
    """
    parts = [part for message in messages for part in attached(message)]
    sizes = [estimate(part["text"]) for part in parts]
    level = common_level(sizes, room)
    if level < min(_LEAST, max(sizes, default=0)):
        return None
    shortened = {
        id(part): _cut(part, size, level - _MARK_TOKENS, end)
        for part, size in zip(parts, sizes, strict=True)
        if size > level
    }
    cuts = [Cut(part["source"], part["cut"][1] - part["cut"][0], len(part["text"])) for part in shortened.values()]
    return [_with_parts(message, shortened) for message in messages], cuts


def attached(message: Message) -> list[Part]:
    """The piped and attached texts of a question."""
    return [part for part in text_parts_of(message) if "source" in part] if message["role"] == "user" else []


def _with_parts(message: Message, new: dict[int, Part]) -> Message:
    content = message.get("content")
    if not isinstance(content, list) or not any(id(part) in new for part in content):
        return message
    return {**message, "content": [new.get(id(part), part) for part in content]}


def common_level(sizes: Sequence[int], room: int) -> int:
    """The size that every larger one is brought down to, so that all together take ``room``."""
    left, level = room, 0
    for place, size in enumerate(sorted(sizes)):
        level = left // (len(sizes) - place)
        if size > level:
            return level
        left -= size
    return max(sizes, default=room)


def _cut(part: Part, size: int, room: int, end: str) -> Part:
    """The part with the mark of a cut that leaves at most ``room`` tokens of it."""
    text = part["text"]
    kept = len(text) * room // size
    start, stop = _span(text, kept, end)
    while (left := estimate(text[:start]) + estimate(text[stop:])) > room:
        kept = min(kept - 1, kept * room // left)
        start, stop = _span(text, kept, end)
    return {**part, "cut": [start, stop]}


def _span(text: str, kept: int, end: str) -> tuple[int, int]:
    """What to leave out so that at most ``kept`` characters stay, from a line break to a line break."""
    ahead = {"head": 0, "tail": kept, "middle": kept // 2}[end]
    return at_lines(text, ahead, len(text) - (kept - ahead))


def at_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """What to leave out, from a line break to a line break where that takes no more than half of what stays there."""
    if 0 < start < len(text) and (line := text.rfind("\n", start // 2, start) + 1):
        start = line
    if 0 < stop < len(text) and (line := text.find("\n", stop - 1, stop + (len(text) - stop) // 2) + 1):
        stop = line
    return start, stop
