"""What is sent in place of a long text: truncated because the user asked for it, or pruned because it is old.

The messages themselves stay whole in the session.
"""

import re
from collections.abc import Callable, Collection, Sequence

from gptsh.content import attachments
from gptsh.context.tokens import count_text
from gptsh.jsonio import as_dict, parsed
from gptsh.messages import Message, Part, is_text, parts_of

# What is left out of a question: places of parts, each with the first character that is left out and the next that is
# not. In a session they stand in ``context.cuts``, by the id of the message.
Cuts = Sequence[Sequence[int]]

_LINE = "[gptsh: {removed:,} of {whole:,} characters are left out here]\n"
_LINE_TOKENS = 40
_LEAST = 64  # tokens that a truncated text keeps; less of it says nothing
_MOST_OF_RESULT, _END_OF_RESULT = 200_000, 99_900  # characters of what a tool gave, and of either end of more


# ---- what a model reads of a message


def as_sent(message: Message, lacks: Collection[attachments.Kind] = (), cuts: Cuts = ()) -> Message:
    """The message as a model reads it, with a line in place of what is left out: what ``cuts`` say, or the middle of a
    very long result of a tool. ``lacks`` are the kinds of attachments that the model does not take.
    """
    if message["role"] == "tool":
        message = _changed(message, _ends)
    elif cuts and isinstance(message["content"], list):
        parts = list(message["content"])
        for place, start, stop in cuts:
            parts[place] = _without(parts[place], start, stop)
        message = {**message, "content": parts}
    return attachments.without(message, lacks)


def _ends(part: Part) -> Part:
    length = len(part["text"]) if is_text(part) else 0
    return _without(part, _END_OF_RESULT, length - _END_OF_RESULT) if length > _MOST_OF_RESULT else part


def _without(part: Part, start: int, stop: int) -> Part:
    """The part without the characters of its text from ``start`` to ``stop``; a line says so in their place."""
    text = part["text"]
    before = text[:start] if not start or text[start - 1] == "\n" else f"{text[:start]}\n"
    return {**part, "text": f"{before}{_LINE.format(removed=stop - start, whole=len(text))}{text[stop:]}"}


def _changed(message: Message, change: Callable[[Part], Part]) -> Message:
    """The message with its parts changed; the same object where none is."""
    parts = parts_of(message)
    new = [change(part) for part in parts]
    if all(part is old for part, old in zip(new, parts, strict=True)):
        return message
    return {**message, "content": new[0]["text"] if isinstance(message["content"], str) else new}


# ---- --truncate


def attached_texts(message: Message) -> dict[int, Part]:
    """The piped and attached texts of a question, by their places among its parts."""
    parts = enumerate(parts_of(message)) if message["role"] == "user" else ()
    return {place: part for place, part in parts if is_text(part) and "source" in part}


def truncate(messages: Sequence[Message], max_tokens: int, end: str) -> dict[str, Cuts] | None:
    """What is left out, so that all piped and attached texts of the messages take so many tokens: of the largest.

    ``end`` is where: head, tail or middle. None where hardly anything of them would be left.
    """
    texts = {
        (message["id"], place): part["text"] for message in messages for place, part in attached_texts(message).items()
    }
    sizes = {key: count_text(text) for key, text in texts.items()}
    left = level = max_tokens
    for rank, size in enumerate(sorted(sizes.values())):  # the size that every larger one is brought down to
        level = left // (len(sizes) - rank)
        if size > level:
            break
        left -= size
    if level < min(_LEAST, max(sizes.values(), default=0)):
        return None
    cuts: dict[str, Cuts] = {}
    for (ident, place), text in texts.items():
        size, room = sizes[ident, place], level - _LINE_TOKENS
        if size > level:
            kept, taken = len(text) * room // size, size
            while taken > room:
                ahead = {"head": 0, "tail": kept, "middle": kept // 2}[end]
                start, stop = _at_lines(text, ahead, len(text) - (kept - ahead))
                taken = count_text(text[:start]) + count_text(text[stop:])
                kept = min(kept - 1, kept * room // max(1, taken))
            cuts[ident] = [*cuts.get(ident, ()), [place, start, stop]]
    return cuts


def _at_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """What to leave out, from a line break to a line break where that takes no more than half of what stays there."""
    if 0 < start < len(text) and (line := text.rfind("\n", start // 2, start) + 1):
        start = line
    if 0 < stop < len(text) and (line := text.find("\n", stop - 1, stop + (len(text) - stop) // 2) + 1):
        stop = line
    return start, stop


# ---- older messages

_END = 400  # characters of either end of an older text that stay
_SLACK = 400  # characters that may be more, or a line would only take the place of another


def pruned(message: Message) -> Message:
    """An older message with the ends of what a tool gave or the user attached, in whole lines; the same object where
    nothing is to be gained. What a tool gave and is no text becomes a line that names it.
    """

    def shorter(part: Part) -> Part:
        if message["role"] == "tool" and attachments.media_of(part):
            part = attachments.not_sent(part, "left out to save room")
        is_old = message["role"] == "tool" or (message["role"] == "user" and "source" in part)
        if not is_old or not is_text(part) or len(part["text"]) <= 2 * _END + _SLACK:
            return part
        new = _without(part, *_at_lines(part["text"], _END, len(part["text"]) - _END))
        return new if count_text(new["text"]) < count_text(part["text"]) else part

    return _changed(message, shorter)


# ---- files that were touched

_PATHS = "(?i)(?:file|notebook|old|new|absolute)?[_-]?paths?|files?|file[_-]?name"  # keys of arguments
_LONGEST_PATH = 300  # characters


def touched_files(messages: Sequence[Message]) -> dict[str, list[str]]:
    """The files that tool calls named, each with the names of those tools, in the order in which they were named last.

    No call counts that failed.
    """
    found: dict[str, list[str]] = {}
    failed = {message.get("tool_call_id") for message in messages if message.get("is_error")}
    for call in (call for message in messages for call in message.get("tool_calls") or ()):
        try:
            given = as_dict(parsed(call["function"]["arguments"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            continue
        tool = call["function"].get("name")
        named = [value for key, value in given.items() if re.fullmatch(_PATHS, key) and call.get("id") not in failed]
        for path in (one for value in named for one in (value if isinstance(value, list) else [value])):
            if isinstance(path, str) and isinstance(tool, str) and 0 < len(path) <= _LONGEST_PATH and "\n" not in path:
                found[path] = [name for name in found.pop(path, ()) if name != tool] + [tool]
    return found
