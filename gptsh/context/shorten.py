"""Shorten long texts: what ``--truncate`` cuts, very long tool results, and old ones. The session keeps them whole."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from gptsh.content import attachments
from gptsh.context.tokens import MARK, count_text, truncate_tokens
from gptsh.jsonio import as_dict, parse_json
from gptsh.messages import Message, Part, is_text, parts_of, text_of

# What is left out of a question: [index of the part, first character left out, first character after the gap] each.
# A session stores them in ``context.cuts``, by message id.
Cuts = Sequence[Sequence[int]]

_LINE = "[gptsh: {removed:,} of {whole:,} characters are left out here]\n"
_LINE_TOKENS = 40
_MIN_TOKENS = 64  # of a truncated text: a shorter excerpt is useless
_LONGEST_RESULT, _RESULT_END = 200_000, 99_900  # characters of a tool result; of either end of a longer one


# ---- messages as the model reads them


def as_sent(message: Message, lacks: Collection[attachments.Kind] = (), cuts: Cuts = ()) -> Message:
    """The message as a model reads it, with a line in place of each omitted text.

    Omitted are the ``cuts``, the middle of a very long tool result, and attachments of the kinds in ``lacks``, which
    the model does not accept.
    """
    if message["role"] == "tool":
        message = _map_parts(message, _ends)
    elif cuts and isinstance(message["content"], list):
        parts = list(message["content"])
        for at, start, stop in cuts:
            parts[at] = _without(parts[at], start, stop)
        message = {**message, "content": parts}
    return attachments.without_media(message, lacks)


def _ends(part: Part) -> Part:
    length = len(part["text"]) if is_text(part) else 0
    return _without(part, _RESULT_END, length - _RESULT_END) if length > _LONGEST_RESULT else part


def _without(part: Part, start: int, stop: int) -> Part:
    """The part with a line in place of the characters from ``start`` to ``stop`` of its text."""
    text = part["text"]
    before = text[:start] if not start or text[start - 1] == "\n" else f"{text[:start]}\n"
    return {**part, "text": f"{before}{_LINE.format(removed=stop - start, whole=len(text))}{text[stop:]}"}


def _map_parts(message: Message, change: Callable[[Part], Part]) -> Message:
    """The message with each part replaced by ``change(part)``; the same object if no part changes."""
    parts = parts_of(message)
    new = [change(part) for part in parts]
    if all(part is old for part, old in zip(new, parts, strict=True)):
        return message
    return {**message, "content": new[0]["text"] if isinstance(message["content"], str) else new}


# ---- --truncate


def attached_texts(message: Message) -> dict[int, Part]:
    """The piped and attached texts of a question, by their index among its parts."""
    parts = enumerate(parts_of(message)) if message["role"] == "user" else ()
    return {at: part for at, part in parts if is_text(part) and "source" in part}


def truncate(messages: Sequence[Message], max_tokens: int, end: str) -> dict[str, Cuts] | None:
    """Cut the largest piped and attached texts so that all such texts together take ``max_tokens``.

    ``end`` is where text is left out: head, tail or middle. None if hardly anything of a text would remain.
    """
    texts = {(message["id"], at): part["text"] for message in messages for at, part in attached_texts(message).items()}
    sizes = {key: count_text(text) for key, text in texts.items()}
    remaining = limit = max_tokens
    for rank, size in enumerate(sorted(sizes.values())):  # find the size that every larger text is cut to
        limit = remaining // (len(sizes) - rank)
        if size > limit:
            break
        remaining -= size
    if limit < min(_MIN_TOKENS, max(sizes.values(), default=0)):
        return None
    cuts: dict[str, Cuts] = {}
    for (message_id, at), text in texts.items():
        size, room = sizes[message_id, at], limit - _LINE_TOKENS
        if size > limit:
            length, tokens = len(text) * room // size, size
            while tokens > room:
                before = {"head": 0, "tail": length, "middle": length // 2}[end]
                start, stop = _at_lines(text, before, len(text) - (length - before))
                tokens = count_text(text[:start]) + count_text(text[stop:])
                length = min(length - 1, length * room // max(1, tokens))
            cuts[message_id] = [*cuts.get(message_id, ()), [at, start, stop]]
    return cuts


def _at_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """Extend a cut to whole lines on each side where that costs at most half of the text that remains there."""
    if 0 < start < len(text) and (line := text.rfind("\n", start // 2, start) + 1):
        start = line
    if 0 < stop < len(text) and (line := text.find("\n", stop - 1, stop + (len(text) - stop) // 2) + 1):
        stop = line
    return start, stop


# ---- older messages

_END = 400  # characters of either end of an older text that are sent
_SLACK = 400  # characters beyond both ends that are not worth cutting


def pruned(message: Message) -> Message:
    """Shorten an older tool result or attachment to both ends, in whole lines; the same object if that saves nothing.

    Media in a tool result becomes a line that names it.
    """

    def shorter(part: Part) -> Part:
        if message["role"] == "tool" and attachments.media_of(part):
            part = attachments.not_sent(part, "left out to save room")
        is_old = message["role"] == "tool" or (message["role"] == "user" and "source" in part)
        if not is_old or not is_text(part) or len(part["text"]) <= 2 * _END + _SLACK:
            return part
        new = _without(part, *_at_lines(part["text"], _END, len(part["text"]) - _END))
        return new if count_text(new["text"]) < count_text(part["text"]) else part

    return _map_parts(message, shorter)


def cut_text(message: Message, max_tokens: int) -> Message:
    """Cut an answer or a tool result to both ends of its text.

    What a provider wants back verbatim goes, since the text changes.
    """
    text = text_of(message)
    shorter = truncate_tokens(text, max_tokens, ends=True) or MARK
    new: Any = {key: value for key, value in message.items() if key not in ("thinking", "replay", "order")}
    new["content"] = shorter
    return message if shorter == text else cast(Message, new)


# ---- files that tools worked on

_PATH_KEYS = "(?i)(?:file|notebook|old|new|absolute)?[_-]?paths?|files?|file[_-]?name"  # of a call's arguments
_LONGEST_PATH = 300  # characters


def touched_files(messages: Sequence[Message]) -> dict[str, list[str]]:
    """Map each file that tool calls named to the names of those tools, in the order in which they were last named.

    Failed calls do not count.
    """
    files: dict[str, list[str]] = {}
    failed_ids = {message.get("tool_call_id") for message in messages if message.get("is_error")}
    for call in (call for message in messages for call in message.get("tool_calls") or ()):
        try:
            arguments = as_dict(parse_json(call["function"]["arguments"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            continue
        tool = call["function"].get("name")
        if call.get("id") in failed_ids or not isinstance(tool, str):
            continue
        values = [value for key, value in arguments.items() if re.fullmatch(_PATH_KEYS, key)]
        paths = [path for value in values for path in (value if isinstance(value, list) else [value])]
        for path in paths:
            if isinstance(path, str) and 0 < len(path) <= _LONGEST_PATH and "\n" not in path:
                files[path] = [name for name in files.pop(path, ()) if name != tool] + [tool]
    return files
