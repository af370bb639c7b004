"""Control characters made visible: what a model or a file supplied is shown by a terminal, never obeyed."""

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


def one_line(text: str) -> str:
    """The text with its white space folded, so that it can neither end its line nor begin another one."""
    return " ".join(text.split())


class Pieces:
    """``visible`` for a text that comes in pieces: a carriage return at a piece's end waits for what follows it."""

    def __init__(self) -> None:
        self._held = ""

    def visible(self, piece: str) -> str:
        """The next piece, as it is shown."""
        text = self._held + piece
        self._held = "\r" if text.endswith("\r") else ""
        return visible(text[: -1 if self._held else None])
