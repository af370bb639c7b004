"""Cut texts: to a number of tokens, for ``--truncate``, and in older messages."""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from gptsh.content import attachments
from gptsh.context.sendable import attached_texts, map_parts, without_range
from gptsh.context.tokens import count_text, upper_bound
from gptsh.messages import Message, Part, is_text, text_of

if TYPE_CHECKING:
    from gptsh.core.document_types import Cuts

# ---- a text

MARK = "[…]"  # in place of omitted text


def truncate_end(text: str, max_tokens: int) -> str:
    """Cut the end of a text so that it takes ``max_tokens``; a mark shows where.

    Return "" if not even the mark fits.
    """
    return _truncate(text, max_tokens, thirds_before=3)


def truncate_middle(text: str, max_tokens: int) -> str:
    """Cut the middle of a text so that it takes ``max_tokens``; a mark shows where.

    Two thirds of what remains are its beginning. Return "" if not even the mark fits.
    """
    return _truncate(text, max_tokens, thirds_before=2)


def _truncate(text: str, max_tokens: int, *, thirds_before: int) -> str:
    """Cut a text so that so many thirds of what remains are before the mark."""
    if upper_bound(text) <= max_tokens:
        return text
    shorter = text
    length = len(text)
    size = count_text(text)
    while size > max_tokens:
        if not length:
            return ""
        length = min(length - 1, length * max(0, max_tokens) // size)
        before = thirds_before * length // 3
        after = length - before
        beginning = text[:before].rstrip()
        end = text[len(text) - after :].lstrip()
        shorter = f"{beginning} {MARK} {end}".strip()
        size = count_text(shorter)
    return shorter


# ---- --truncate

_LINE_TOKENS = 40  # of the line in place of what is left out
_MIN_TOKENS = 64  # of a truncated text: a shorter excerpt is useless


class _Text(NamedTuple):
    """A piped or attached text, and its size in tokens."""

    size: int
    message_id: str
    part_index: int
    text: str


def truncate(messages: Sequence[Message], excess: int, end: str) -> "Mapping[str, Cuts] | None":
    """Cut the largest piped and attached texts so that all of them take ``excess`` tokens less.

    ``end`` is where text is left out: head, tail or middle. Return the cuts by message id; None if
    hardly anything of a text would remain.
    """
    texts: list[_Text] = []
    for message in messages:
        for index, part in attached_texts(message).items():
            text = part["text"]
            size = count_text(text)
            texts.append(_Text(size, message["id"], part_index=index, text=text))
    if not texts:
        return None
    texts.sort(key=attrgetter("size"))
    limit = _largest_size([attached.size for attached in texts], excess)
    if limit < min(_MIN_TOKENS, texts[-1].size):
        return None
    cuts: dict[str, list[list[int]]] = {}
    for attached in texts:
        if attached.size > limit:
            start, stop = _cut(attached, limit - _LINE_TOKENS, end)
            cuts.setdefault(attached.message_id, []).append([attached.part_index, start, stop])
    return cuts


def _largest_size(sizes: Sequence[int], excess: int) -> int:
    """Return the size to which all larger texts are cut, so that they take ``excess`` tokens less.

    ``sizes`` are in ascending order.
    """
    remaining = sum(sizes) - excess
    limit = remaining
    for rank, size in enumerate(sizes):
        limit = remaining // (len(sizes) - rank)
        if size > limit:
            break
        remaining -= size
    return limit


def _cut(attached: _Text, max_tokens: int, end: str) -> tuple[int, int]:
    """Return where the text that is left out starts and stops, so that ``max_tokens`` remain."""
    text = attached.text
    length = len(text)
    size = attached.size
    while True:
        length = min(length - 1, length * max_tokens // max(1, size))
        lengths_before = {"head": 0, "tail": length, "middle": length // 2}
        before = lengths_before[end]
        after = length - before
        start, stop = _at_lines(text, before, len(text) - after)
        size = count_text(text[:start]) + count_text(text[stop:])
        if size <= max_tokens:
            return start, stop


def _at_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """Extend a cut to whole lines on each side.

    This may remove half of the text that remains there.
    """
    if 0 < start < len(text):
        line_end = text.rfind("\n", start // 2, start)
        if line_end >= 0:
            start = line_end + 1
    if 0 < stop < len(text):
        line_end = text.find("\n", stop - 1, stop + (len(text) - stop) // 2)
        if line_end >= 0:
            stop = line_end + 1
    return start, stop


# ---- older messages

_END = 400  # characters of either end of an older text that are sent
_SLACK = 400  # characters beyond both ends that are not worth cutting


def prune(message: Message) -> Message:
    """Shorten an older tool result or attachment to both ends, in whole lines.

    Media in a tool result becomes a line that names it.
    """
    return map_parts(message, partial(_prune_part, message["role"]))


def _prune_part(role: str, part: Part) -> Part:
    """Return a part of a message of this role, shortened if it is a result or an attachment."""
    if role == "tool" and attachments.media_of(part):
        part = attachments.not_sent(part, "left out to save room")
    is_attached = role == "user" and "source" in part
    if not is_text(part) or not (role == "tool" or is_attached):
        return part
    text = part["text"]
    if len(text) <= 2 * _END + _SLACK:
        return part
    start, stop = _at_lines(text, _END, len(text) - _END)
    return without_range(part, start, stop)


def cut_text(message: Message, max_tokens: int) -> Message:
    """Cut an answer or a tool result to both ends of its text.

    What a provider wants back verbatim is removed, because the text changes.
    """
    text = text_of(message)
    shorter = truncate_middle(text, max_tokens) or MARK
    if shorter == text:
        return message
    new: Message = {**message, "content": shorter}
    new.pop("thinking", None)
    new.pop("replay", None)
    new.pop("order", None)
    return new
