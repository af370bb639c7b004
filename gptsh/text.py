"""Write text for people: on one line, in columns of a terminal, with control characters visible."""

import re
from datetime import datetime

# C0 (except newline and tab) and DEL become control pictures, C1 and bidirectional controls that
# reorder text become escapes. Direction marks (U+200E, U+200F, U+061C), which act like letters, and
# joiners of scripts and emoji stay.
_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE[0x7F] = "\u2421"
_VISIBLE |= {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
_VISIBLE |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def visible(text: str) -> str:
    """Return the text with control characters made visible, for output to a terminal.

    A carriage return before a newline is removed.
    """
    if text.isprintable():  # nearly always; it is much faster than ``translate``
        return text
    return text.replace("\r\n", "\n").translate(_VISIBLE)


class VisiblePieces:
    """``visible`` for a text in pieces: a carriage return at an end waits for the next piece."""

    def __init__(self) -> None:
        self._pending = ""

    def visible(self, piece: str) -> str:
        """Return the next piece with control characters made visible."""
        text = self._pending + piece
        self._pending = ""
        if text.endswith("\r"):
            self._pending = "\r"
            text = text[:-1]
        return visible(text)


def is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogates, which stand for bytes that are not UTF-8."""
    return not re.search("[\ud800-\udfff]", text)


def join_surrogates(text: str) -> str:
    """Return the text with surrogate pairs combined, whose halves were in two pieces."""
    if is_unicode(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


# ---- one line


def one_line(text: str) -> str:
    """Return the text on one line, with white space collapsed and control characters visible."""
    return visible(" ".join(text.split()))


def shorten(text: str, length: int) -> str:
    """Return the text on one line, cut to ``length`` characters with an ellipsis.

    Control characters remain.
    """
    line = " ".join(text[: 8 * length].split())  # a text may have megabytes
    if len(line) <= length:
        return line
    return line[: length - 1].rstrip() + "…"


def html_title(text: str) -> str:
    """Return the title of a page in HTML; "" for any other text, such as plain text or JSON."""
    match = re.search(r"(?is)\A\s*<.*?<title[^>]*>([^<]+)", text)
    if not match:
        return ""
    from html import unescape

    return " ".join(unescape(match[1]).split())


# ---- names that are alike

_MIN_START = 3  # letters of a name that say which one is meant
_MIN_LETTERS = 0.8  # likeness by letters; below it, other names are as near


def likeness(name: str, other: str) -> float:
    """Return how much alike two names are, from 0 to 1: by words in common, or by letters.

    The order of the words does not matter, nor does a plural. The start of a name is half of it.
    """
    from difflib import SequenceMatcher

    words = _words(name)
    others = _words(other)
    score = len(words & others) / max(len(words | others), 1)
    if len(name) >= _MIN_START and other.startswith(name):
        score = max(score, 0.5)
    matcher = SequenceMatcher(None, name.lower(), other.lower())
    if matcher.real_quick_ratio() >= _MIN_LETTERS:  # ``ratio`` of a long text takes seconds
        by_letters = matcher.ratio()
        if by_letters >= _MIN_LETTERS:
            score = max(score, by_letters)
    return score


def _words(name: str) -> set[str]:
    """Return the words of a name such as ``a_b``, ``a-b``, ``a.b`` or ``aB``, in the singular."""
    separate = re.sub("([a-z])([A-Z])", r"\1 \2", name).lower()
    words = set()
    for word in re.findall("[a-z0-9]+", separate):
        singular = re.sub("ies$", "y", word)
        words.add(re.sub("s$", "", singular))
    return words


# ---- numbers and times


def quantity(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 message``, ``2,000 messages``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_size(size: int) -> str:
    """Return a number of bytes for people: ``1 byte``, ``512 bytes``, ``34.1 kB`` (of 1,000)."""
    if size < 1000:
        return quantity(size, "byte")
    number = size / 1000
    for unit in ("kB", "MB", "GB"):
        if round(number, 1) < 1000:
            return f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def format_usd(cost: float) -> str:
    """Return a cost for a sentence: two decimals from 1 USD on, below that up to six."""
    digits = f"{cost:,.2f}" if cost >= 1 else f"{cost:.6f}".rstrip("0").rstrip(".")
    return f"{digits} USD"


def dollars(cost: float, decimals: int) -> str:
    """Return a cost for a table or a status line, such as ``$0.0123``, or ``<$0.0001``."""
    smallest = 10**-decimals
    if 0 < cost < smallest / 2:  # its digits would all be 0
        return f"<${smallest:.{decimals}f}"
    return f"${cost:,.{decimals}f}"


_EXACT = 10_000  # smaller numbers are not rounded
_ROUNDED_UP = 999.95  # with one decimal this would be shown as 1000.0


def short_number(number: float) -> str:
    """Return a number in at most six characters, such as 9,999, 12.3k or 1.2M."""
    if number < _EXACT:
        return f"{number:,}"
    for unit in "kMG":
        number /= 1000
        if number < _ROUNDED_UP:
            return f"{number:.1f}{unit}"
    return f"{number / 1000:.1f}T"


def local_time(moment: str) -> str:
    """Return ISO 8601 as ``yyyy-MM-dd HH:mm`` in local time; an invalid time on one line."""
    try:
        timestamp = datetime.fromisoformat(moment).timestamp()
        # Three times as fast as strftime, for lists of 10,000.
        return datetime.fromtimestamp(timestamp).isoformat(" ", "minutes")
    except (ValueError, OverflowError, OSError):
        return one_line(moment)


# ---- columns of a terminal

_EMOJI_SELECTOR = "\ufe0f"  # makes a coloured emoji of the character before it


def columns(text: str) -> int:
    """Return the columns of the text in most terminals; a control character counts as one."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth, wcwidth

    width = wcswidth(text)
    if width >= 0:
        return width
    return sum(abs(wcwidth(character)) for character in text)  # -1 for a control character


def pad(text: str, width: int) -> str:
    """Return the text with blanks after it, so that it fills ``width`` columns."""
    return text + " " * (width - columns(text))


def row_starts(text: str, width: int) -> list[int]:
    """Return where each row after the first begins if a line is wrapped at ``width`` columns.

    Tabs stop every 8. Terminals differ on the width of joined and coloured emoji: the widest
    counts.
    """
    if text.isascii() and "\t" not in text:
        return [*range(width, len(text), width)]
    from wcwidth import wcwidth

    starts = []
    column = 0
    for index, character in enumerate(text):
        if character == "\t":
            cells = 8 - column % 8
        else:
            cells = abs(wcwidth(character)) or int(character == _EMOJI_SELECTOR)
        if column and column + cells > width:
            starts.append(index)
            column = 0
        column += cells
    return starts


def wrapped(text: str, width: int) -> list[str]:
    """Return a line as rows of at most ``width`` columns, broken between words.

    A longer word is a row of its own.
    """
    rows: list[str] = []
    for word in text.split(" "):
        if rows and columns(f"{rows[-1]} {word}") <= width:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows


def truncate_end(text: str, width: int) -> str:
    """Return the beginning of the text that fits ``width`` columns, with an ellipsis if cut."""
    if columns(text) <= width:
        return text
    start = text[: max(0, width)]
    while start and columns(start) >= width:
        start = start[:-1]
    return f"{start.rstrip()}…" if width > 0 else ""


def truncate_start(text: str, width: int) -> str:
    """Return the end of the text that fits ``width`` columns, with an ellipsis if cut."""
    return truncate_end(text[::-1], width)[::-1]


# ---- plain text as Markdown

# Markdown's marks within a line. Underscores count unless they are between letters, a # only at
# the end.
_MARKS = r"[\\`*\[<$]|&(?=[#\w])|(?<!\w)_++|(?<!_)_++(?![^\W_])|~(?=~)|(?<=~)~|(?<=\s)#(?=#*$)"


def escape_markdown(text: str) -> str:
    """Return the text on one line, with a backslash before each mark."""
    return re.sub(_MARKS, _with_backslashes, one_line(text))


def _with_backslashes(mark: re.Match[str]) -> str:
    return "".join(f"\\{character}" for character in mark[0])


def code_span(text: str) -> str:
    """Return the text on one line, as a code span."""
    line = one_line(text)
    fence = "`" * (_most_backticks(line) + 1)
    gap = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{gap}{line}{gap}{fence}"


def code_block(text: str, language: str = "") -> str:
    """Return the text as a code block, in a fence that is longer than any in the text."""
    fence = "`" * max(3, _most_backticks(text) + 1)
    label = language if re.fullmatch(r"[A-Za-z0-9+#-]{1,20}", language) else ""
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{label}\n{text}{end}{fence}"


def block_quote(text: str) -> str:
    """Return the text as a block quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def open_fence(text: str) -> str:
    """Return the code fence that a text, such as a partial answer, does not close; else ""."""
    fence = ""
    for line in re.split("\r\n?|\n", text):
        match = re.fullmatch(" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)", line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and not match[2].strip():
            fence = ""
    return fence


def _most_backticks(text: str) -> int:
    """Return the number of backticks in the longest run of them."""
    return max(map(len, re.findall("`+", text)), default=0)
