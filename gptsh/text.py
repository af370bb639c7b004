"""Text for people: control characters made visible, the columns of a terminal, shortening, Markdown's marks escaped."""

import re
from datetime import datetime

# C0 but newline and tab, and DEL, as their control pictures; as escapes, which have no pictures, C1 and what reorders
# the letters around it. The marks of a direction (U+200E, U+200F, U+061C) do no more than any letter of a script, and
# joiners belong to scripts and emoji: these stay as they are.
_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE |= {0x7F: "\u2421", **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}}
_VISIBLE |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def visible(text: str) -> str:
    """The text with control characters shown instead of obeyed, for whatever goes to a terminal.

    A carriage return that a newline follows says nothing, and is left out.
    """
    return text.replace("\r\n", "\n").translate(_VISIBLE)


class Pieces:
    """``visible`` for a text that comes in pieces: a carriage return at a piece's end waits for what follows it."""

    def __init__(self) -> None:
        self._held = ""

    def visible(self, piece: str) -> str:
        """The next piece, as it is shown."""
        text = self._held + piece
        self._held = "\r" if text.endswith("\r") else ""
        return visible(text[: -1 if self._held else None])


def is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogates, which stand for bytes that were no UTF-8."""
    return text.isascii() or not re.search("[\ud800-\udfff]", text)


# ---- one line


def one_line(text: str) -> str:
    """The text with its white space folded, so that it can neither end its line nor begin another one."""
    return " ".join(text.split())


def shortened(text: str, length: int) -> str:
    """The text on one line, cut to ``length`` characters with an ellipsis."""
    folded = one_line(text[: 8 * length])
    return folded if len(folded) <= length else folded[: length - 1].rstrip() + "…"


def counted(count: int, what: str) -> str:
    """A number of things: ``1 message``, ``2,000 messages``."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def shown_size(size: int) -> str:
    """A number of bytes: ``1 byte``, ``512 bytes``, ``34.1 kB`` (of 1,000 bytes each)."""
    if size < 1000:
        return counted(size, "byte")
    number, unit = size / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if round(number, 1) >= 1000:
            number, unit = number / 1000, larger
    return f"{number:.1f} {unit}"


def in_usd(cost: float) -> str:
    """A cost: with cents from a dollar on, below it with up to six digits."""
    digits = f"{cost:,.2f}" if cost >= 1 else f"{cost:.6f}".rstrip("0").rstrip(".")
    return f"{digits} USD"


def local_time(moment: str) -> str:
    """``yyyy-MM-dd HH:mm`` in local time, from ISO 8601; what is no time stays as it is."""
    try:
        # A third of the time that strftime takes, for lists of 10,000.
        return datetime.fromtimestamp(datetime.fromisoformat(moment).timestamp()).isoformat(" ", "minutes")
    except (ValueError, OverflowError, OSError):
        return moment


# ---- columns of a terminal

_COLOURED = "\ufe0f"  # makes an emoji of the character before it


def columns(text: str) -> int:
    """How many columns the text takes, as far as terminals agree; a control character takes one."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth, wcwidth  # noqa: PLC0415 - 40 ms; most texts are ASCII

    width = wcswidth(text)
    return width if width >= 0 else sum(abs(wcwidth(character)) for character in text)


def row_starts(text: str, width: int) -> list[int]:
    """Where each row but the first begins, if a line is cut into rows of so many columns. Tab stops are 8 apart.

    Terminals differ in how wide a joined or coloured emoji is: the widest counts.
    """
    if text.isascii() and "\t" not in text:
        return [*range(width, len(text), width)]
    from wcwidth import wcwidth  # noqa: PLC0415 - as above

    starts, column = [], 0
    for at, character in enumerate(text):
        wide = 8 - column % 8 if character == "\t" else abs(wcwidth(character)) or int(character == _COLOURED)
        if column and column + wide > width:
            starts.append(at)
            column = 0
        column += wide
    return starts


def beginning(text: str, width: int) -> str:
    """As much of the beginning as fits ``width`` columns, with an ellipsis where something is missing."""
    if columns(text) <= width:
        return text
    start = text[: max(0, width)]
    while start and columns(start) >= width:
        start = start[:-1]
    return f"{start.rstrip()}…" if width > 0 else ""


def end(text: str, width: int) -> str:
    """As much of the end as fits ``width`` columns, with an ellipsis where something is missing."""
    if columns(text) <= width:
        return text
    rest = text[-width:] if width > 0 else ""
    while rest and columns(rest) >= width:
        rest = rest[1:]
    return f"…{rest}" if width > 0 else ""


# ---- Markdown that shows a text as it is

# What Markdown takes for a mark within a line. An underscore between letters is none, nor is a # but at the end.
_MARKS = r"[\\`*\[<$]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~|(?<=\s)#(?=#*$)"


def escaped(text: str) -> str:
    """The text on one line, each mark with a backslash before it."""
    return re.sub(_MARKS, r"\\\g<0>", one_line(text))


def literal(text: str) -> str:
    """The text on one line, as a code span."""
    line = one_line(text)
    marks, gap = "`" * (_longest_run(line) + 1), " " if "`" in (line[:1], line[-1:]) else ""
    return f"{marks}{gap}{line}{gap}{marks}"


def fences(text: str, language: str = "") -> tuple[str, str]:
    """What stands before and behind a text so that it is code, whatever it holds."""
    fence = "`" * max(3, _longest_run(text) + 1)
    known = language if re.fullmatch(r"[A-Za-z0-9+#-]{1,20}", language) else ""
    return f"{fence}{known}\n", f"{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def fenced(text: str, language: str = "") -> str:
    """The text as a block of code that nothing in it can end."""
    before, behind = fences(text, language)
    return f"{before}{text}{behind}"


def quoted(text: str) -> str:
    """The text as a quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def left_open(text: str) -> str:
    """The fence that a text opens and does not close, as an interrupted answer does; else nothing."""
    fence = ""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for found in re.finditer(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", text, re.MULTILINE):
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return fence


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
