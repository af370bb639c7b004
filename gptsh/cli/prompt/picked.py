"""The list that a session is picked from, as lines of a screen: fragments of text, each with the name of its style.

Nothing is wider than the screen. What a character takes is measured by ``cells``, as whoever draws it will.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from re import compile as compiled
from typing import NamedTuple

from gptsh.cli.prompt.picking import Picking, Row
from gptsh.core.listing import UNTITLED
from gptsh.core.references import ID
from gptsh.text import counted, one_line, visible

Cells = Callable[[str], int]  # columns that one character takes: 0, 1 or 2
Line = list[tuple[str, str]]  # style and text; a style is a word of STYLES, or empty

STYLES = ("dim", "head", "picked", "ask")
# What joins emoji into one, colours them or tells how to draw them: terminals differ in how wide that becomes.
_JOINERS = compiled("(?<=[\u2190-\u2bff\U0001f000-\U0001faff\ufe0f])\u200d|[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")
_LONGEST = 2000  # characters of a title that are looked at
_AGE, _TURNS, _MODEL = 4, 11, 18  # columns
_LONGEST_MODEL = 32  # columns; it gets more than _MODEL where the titles leave it
_ENOUGH = 40  # columns of a title; of a longer one it gets no more
_LEAST = 30  # columns of a title, for the sake of which turns and model are left out
_MESSAGE = 4  # lines
_MINUTE, _HOUR, _DAY, _WEEK, _YEAR = 60, 3600, 86400, 7 * 86400, 365 * 86400  # seconds

_KEYS = (
    ("↑↓ Enter resume", "type to filter, or / first", "n new", "d delete", "q quit"),
    ("Enter resume", "type or / to filter", "n new", "d delete", "q quit"),
    ("Enter", "/ filter", "n new", "d delete", "q quit"),
    ("Enter", "/", "n new", "d del", "q quit"),
)
_FILTERING = (
    ("↑↓ Enter resume", "Del delete", "Esc shows all again"),
    ("Enter resume", "Del delete", "Esc all"),
    ("Enter resume", "Esc all"),
)
_ASKING = (("y and Enter deletes it for good", "anything else keeps it"), ("y Enter deletes", "else it stays"))
_EMPTY = (("n new", "q quit"),)


class Drawn(NamedTuple):
    """A screen: its lines, which of the list's lines is its first, and column and row of the cursor where it shows."""

    lines: list[Line]
    top: int
    cursor: tuple[int, int] | None


# ---- text


def age(seconds: float) -> str:
    """A time that is over, in one unit: ``5m``, ``3h``, ``2d``, ``4w``, ``2y``; less than a minute is ``now``."""
    for unit, letter in ((_YEAR, "y"), (_WEEK, "w"), (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= unit:
            return f"{int(seconds // unit)}{letter}"
    return "now"


def plain(text: str) -> str:
    """A text on one line, in which nothing is obeyed, and each character is as wide as it is by itself."""
    return _JOINERS.sub("", visible(one_line(text[:_LONGEST])))


def width_of(text: str, cells: Cells) -> int:
    """The columns that a text takes."""
    return sum(map(cells, text))


def cut(text: str, room: int, cells: Cells) -> str:
    """As much of a text as has room, with an ellipsis where something is missing."""
    if width_of(text, cells) <= room:
        return text
    return _head(text, room - 1, cells) + "…" if room > 0 else ""


def _head(text: str, room: int, cells: Cells) -> str:
    taken = 0
    for at, char in enumerate(text):
        taken += cells(char)
        if taken > room:
            return text[:at]
    return text


def _end(text: str, room: int, cells: Cells) -> str:
    """The end of a text that is typed, where the cursor is."""
    while width_of(text, cells) > room:
        text = text[1:]
    return text


def filled(text: str, room: int, cells: Cells) -> str:
    """A text cut to its room, and blanks up to its end."""
    text = cut(text, room, cells)
    return text + " " * (room - width_of(text, cells))


# ---- lines


def row_line(
    row: Row,
    width: int,
    now: float,
    cells: Cells,
    *,
    selected: bool = False,
    longest: tuple[int, int] = (_ENOUGH, _LONGEST_MODEL),
) -> Line:
    """A session: its age, its title or how it begins, turns and model where there is room for them.

    ``longest``: the columns of the list's longest title and model, as ``longest_of``.
    """
    before = f"{'> ' if selected else '  '}{age(now - row.used) if row.used else '?':>{_AGE}}  "
    room = width - len(before)
    with_turns = room - _TURNS >= _LEAST
    left = room - _TURNS - 2
    with_model = left - _MODEL >= _LEAST
    behind = f"{counted(row.turns, 'turn'):>{_TURNS}}" if with_turns else ""
    if with_model:
        behind += f"  {filled(plain(row.model or ''), min(max(_MODEL, left - longest[0]), longest[1]), cells)}"
    name = plain(row.title or row.preview) or UNTITLED
    named = filled(name, max(0, room - width_of(behind, cells)), cells)
    if selected:
        return [("picked", _head(f"{before}{named}{behind}", width, cells))]
    return [("dim", _head(before, width, cells)), ("" if row.title else "dim", named), ("dim", behind)]


def longest_of(rows: Sequence[Row], cells: Cells) -> tuple[int, int]:
    """The columns of the longest title and of the longest model, as far as they count: the same for each row."""
    title = max((_width_of(row.title, cells) for row in rows if row.title), default=0)
    model = max((_width_of(row.model, cells) for row in rows if row.model), default=0)
    return min(max(title, _LEAST), _ENOUGH), min(model, _LONGEST_MODEL)


@cache  # each row is asked for at each drawing
def _width_of(text: str, cells: Cells) -> int:
    return width_of(plain(text), cells)


def _heading(width: int) -> Line:
    return [("dim", f"── other projects {'─' * width}"[:width])]


def _fitting(choices: tuple[tuple[str, ...], ...], width: int, cells: Cells) -> Line:
    """The first of the choices that has room, each key apart from the next."""
    texts = [gap.join(keys) for keys in choices for gap in ("   ", "  ")]
    text = next((text for text in texts if width_of(text, cells) <= width), texts[-1])
    return [("dim", cut(text, width, cells))]


def _head_line(picking: Picking, width: int, cells: Cells) -> tuple[Line, int | None]:
    """What the list is, or its filter; how many it has; the column of the cursor."""
    busy = "…" if picking.reading or picking.searching else ""
    count = f"{len(picking.shown)} of {len(picking.rows)}" if picking.words else f"{len(picking.rows)}"
    counts = f" {count}{busy}"[:width]
    room = width - len(counts)
    if picking.filter is None:
        return [("head", filled("Sessions", room, cells)), ("dim", counts)], None
    typed = _typed("Filter: ", plain_typed(picking.filter), room, cells)
    return [("head", filled(typed, room, cells)), ("dim", counts)], width_of(typed, cells)


def plain_typed(text: str) -> str:
    """What was typed, as ``plain``, its blanks kept."""
    return _JOINERS.sub("", visible(text))


def _typed(before: str, text: str, room: int, cells: Cells) -> str:
    """What is typed behind a word, cut at its beginning; a column is left for the cursor."""
    before = cut(before, room // 2, cells)
    return before + _end(text, max(0, room - 1 - width_of(before, cells)), cells)


def _question(row: Row, answer: str, width: int, cells: Cells) -> tuple[Line, int]:
    """Whether to delete a session, on one line with its id and title; the column of the cursor."""
    typed = _end(plain_typed(answer), min(10, width // 4), cells)
    before, behind = f"Delete {row.filename[ID]} ", "? "
    room = width - len(before) - len(behind) - width_of(typed, cells) - 1
    name = cut(plain(row.title or row.preview) or UNTITLED, room, cells)
    text = _head(f"{before}{name}{behind}{typed}", width - 1, cells)
    return [("ask", text)], width_of(text, cells)


def _folded(text: str, width: int, cells: Cells) -> Iterator[str]:
    """A message on lines, the last of them cut."""
    text = plain(text)
    for _ in range(_MESSAGE - 1):
        head = _head(text, width, cells)
        if head != text and " " in head:
            head = head[: head.rindex(" ") + 1]
        yield head.rstrip()
        text = text[len(head) :]
        if not (text and head):
            return
    yield cut(text, width, cells)


def _foot(picking: Picking, width: int, cells: Cells) -> tuple[list[Line], int | None]:
    """What is asked or told, and the keys; the column of the cursor in the first of these lines."""
    if picking.asked:
        line, column = _question(picking.asked, picking.answer, width, cells)
        return [line, _fitting(_ASKING, width, cells)], column
    choices = _EMPTY if picking.is_empty else _KEYS if picking.filter is None else _FILTERING
    told = "deleting …" if picking.deleting else picking.message
    lines: list[Line] = [[("", line)] for line in _folded(told, width, cells)] if told else []
    return [*lines, _fitting(choices, width, cells)], None


def _nothing(picking: Picking) -> str:
    if picking.reading:
        return "reading …"
    if picking.searching:
        return "searching …"
    return "no session has all of these words" if picking.rows else "there is no session yet"


# ---- the screen


def screen(picking: Picking, size: tuple[int, int], now: float, cells: Cells, top: int) -> Drawn:
    """All of it, on so many columns and rows; ``top`` is what the last screen had."""
    width, height = size
    head, cursor = _head_line(picking, width, cells)
    foot, asking = _foot(picking, width, cells)
    foot = foot[: max(0, height - 2)]
    room = max(1, height - 1 - len(foot))
    top = _top(picking, room, top)
    line = partial(row_line, width=width, now=now, cells=cells, longest=longest_of(picking.rows, cells))
    body = [
        _heading(width) if index is None else line(picking.shown[index], selected=index == picking.at)
        for index in map(picking.row_at, range(top, min(top + room, picking.height)))
    ]
    if not body:
        body = [[("dim", cut(f"  {_nothing(picking)}", width, cells))]]
    body += [[]] * (room - len(body))
    row = 0
    if asking is not None:
        cursor, row = asking, 1 + room
    return Drawn([head, *body, *foot], top, None if cursor is None else (min(cursor, width - 1), row))


def _top(picking: Picking, room: int, top: int) -> int:
    """The first line that is shown: as it was, as far as the chosen row is in sight then, and no line stays empty."""
    at = picking.line_of(picking.at)
    first = at - 1 if room > 1 and at > 0 and picking.row_at(at - 1) is None else at  # with the heading above it
    return max(0, min(max(top, at - room + 1), first, picking.height - room))
