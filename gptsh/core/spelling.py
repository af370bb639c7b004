"""Text spelled so that Markdown shows it as it is: on a line, in a fence, as a quote."""

import re

# What Markdown takes for a mark within a line. An underscore between letters is none, nor is a # but at the end.
_MARKS = re.compile(r"[\\`*\[<$]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~|(?<=\s)#(?=#*$)")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#-]{1,20}")
_FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", re.MULTILINE)


def escaped(text: str) -> str:
    """The text on one line, each mark with a backslash before it."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))


def literal(text: str) -> str:
    """The text on one line, as a code span."""
    line = " ".join(text.split())
    marks, gap = "`" * (_longest_run(line) + 1), " " if "`" in (line[:1], line[-1:]) else ""
    return f"{marks}{gap}{line}{gap}{marks}"


def fences(text: str, language: str = "") -> tuple[str, str]:
    """What stands before and behind a text so that it is code, whatever it holds."""
    fence = "`" * max(3, _longest_run(text) + 1)
    known = language if _LANGUAGE.fullmatch(language) else ""
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
    for found in _FENCE.finditer(text.replace("\r\n", "\n").replace("\r", "\n")):
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return fence


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
