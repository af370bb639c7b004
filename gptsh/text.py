"""Text made safe to show: control characters made visible for a terminal, marks escaped for Markdown."""

import re

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


# ---- Markdown

# What Markdown takes for a mark within a line. An underscore between letters is none, nor is a # but at the end.
_MARKS = (  # patterns are compiled where they are used: few runs need them
    r"[\\`*\[<$]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~|(?<=\s)#(?=#*$)"
)
_LANGUAGE = r"[A-Za-z0-9+#-]{1,20}"
_FENCE = r"(?m)^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$"


def escaped(text: str) -> str:
    """The text on one line, each mark with a backslash before it."""
    return re.sub(_MARKS, r"\\\g<0>", " ".join(text.split()))


def literal(text: str) -> str:
    """The text on one line, as a code span."""
    line = " ".join(text.split())
    marks, gap = "`" * (_longest_run(line) + 1), " " if "`" in (line[:1], line[-1:]) else ""
    return f"{marks}{gap}{line}{gap}{marks}"


def fences(text: str, language: str = "") -> tuple[str, str]:
    """What stands before and behind a text so that it is code, whatever it holds."""
    fence = "`" * max(3, _longest_run(text) + 1)
    known = language if re.fullmatch(_LANGUAGE, language) else ""
    return f"{fence}{known}\n", f"{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def fenced(text: str, language: str = "") -> str:
    """The text as a block of code that nothing in it can end."""
    before, behind = fences(text, language)
    return f"{before}{text}{behind}"


def quoted(text: str) -> str:
    """The text as a quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def left_open(text: str) -> str:
    """The fence that a text opens and does not close, as that of an answer broken off does; else nothing."""
    fence = ""
    for found in re.finditer(_FENCE, text.replace("\r\n", "\n").replace("\r", "\n")):
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return fence


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
