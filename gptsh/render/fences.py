"""The fenced blocks of an answer."""

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_FENCE = re.compile(r"^ {0,3}(?:`{3,}[^`\r\n]*|~{3,}[^\r\n]*)$", re.MULTILINE)


def first_block(text: str) -> str | None:
    """The content of the first fenced code block; None where there is none. See ``blocks``."""
    return next(blocks(text), None)


def blocks(text: str) -> Iterator[str]:
    """The content of each fenced code block, wherever it stands (in a list, in a quote).

    It is what stands there, less the indent and the marks of what it stands in. A fence that is never closed goes on to
    the end.
    """
    if "```" not in text and "~~~" not in text:
        return
    from gptsh.render.dialect import DEEPEST, parser  # noqa: PLC0415 - 30 ms that only an answer with a fence costs

    tokens = parser().disable("inline").parse(text)
    found = [(token.content, token.map[0]) for token in tokens if token.type == "fence" and token.map]
    lines = _LINE_END.split(text) if found else []
    for content, start in found:
        yield _source(content, lines[start + 1 :])
    if found or all(token.level < DEEPEST - 1 for token in tokens):
        return
    # What is nested so deeply takes along all that follows, a fence that ends it too.
    outside = _FENCE.search(text.replace("\r", "\n"))
    if outside:
        yield from blocks(text[outside.start() :])


def _source(content: str, lines: list[str]) -> str:
    """The content of a block as its lines have it: the parser changes line ends and NUL."""
    wanted = content.removesuffix("\n").split("\n") if content else []
    return "".join(_behind_prefix(line, len(kept), kept) for kept, line in zip(wanted, lines, strict=False))


def _behind_prefix(line: str, size: int, kept: str) -> str:
    """The end of a line that the parser kept; blanks in front of it may be what is left of a tab."""
    body = line.rstrip("\r\n")
    own = len(kept.lstrip(" ")) if not body.replace("\0", "\ufffd").endswith(kept) else size
    return kept[: size - own] + line[len(body) - own :]
