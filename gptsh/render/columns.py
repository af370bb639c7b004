"""Text in the columns of a terminal: how many it takes, and what of it fits."""

from unicodedata import category, east_asian_width


def columns(text: str) -> int:
    """Columns that the text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """One line as lines of ``width`` columns, parted at blanks; a longer word stays whole, to be copied.

    ``indent`` is in columns, of all lines but the first, whose beginning of so many characters stays as it is.
    """
    first, *words = text[indent:].split(" ")
    lines = [text[:indent] + first]
    for word in words:
        if columns(lines[-1]) + 1 + columns(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * indent + word)
    return lines


def beginning(text: str, width: int) -> str:
    """The text, cut at its end with a mark where it takes more than ``width`` columns."""
    if columns(text) <= width:
        return text
    start = text[: max(0, width)]
    while start and columns(start) >= width:
        start = start[:-1]
    return f"{start.rstrip()}…" if width > 0 else ""


def end(text: str, width: int) -> str:
    """The same with its beginning cut off: the end of a name tells more."""
    if columns(text) <= width:
        return text
    rest = text[-width:] if width > 0 else ""
    while rest and columns(rest) >= width:
        rest = rest[1:]
    return f"…{rest}" if width > 0 else ""
