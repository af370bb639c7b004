"""The first fenced block of an answer."""

import re

_LINE_END = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_FENCE = re.compile(r"^ {0,3}(?:`{3,}[^`\r\n]*|~{3,}[^\r\n]*)$", re.MULTILINE)


def first_block(text: str) -> str | None:
    """The content of the first fenced code block, wherever it stands (in a list, in a quote); None where there is none.

    It is what stands there, less the indent and the marks of what it stands in. A fence that is never closed goes on to
    the end.
    """
    if "```" not in text and "~~~" not in text:
        return None
    from gptsh.render.dialect import DEEPEST, parser  # noqa: PLC0415 - 30 ms that only an answer with a fence costs

    tokens = parser().disable("inline").parse(text)
    for token in tokens:
        if token.type == "fence" and token.map:
            return _source(token.content, _LINE_END.split(text)[token.map[0] + 1 :])
    if all(token.level < DEEPEST - 1 for token in tokens):
        return None
    # What is nested so deeply takes along all that follows, a fence that ends it too.
    outside = _FENCE.search(text.replace("\r", "\n"))
    return first_block(text[outside.start() :]) if outside else None


def _source(content: str, lines: list[str]) -> str:
    """The content of a block as its lines have it: the parser changes line ends and NUL."""
    wanted = content.removesuffix("\n").split("\n") if content else []
    return "".join(_behind_prefix(line, len(kept), kept) for kept, line in zip(wanted, lines, strict=False))


def _behind_prefix(line: str, size: int, kept: str) -> str:
    """The end of a line that the parser kept; blanks in front of it may be what is left of a tab."""
    body = line.rstrip("\r\n")
    own = len(kept.lstrip(" ")) if not body.replace("\0", "\ufffd").endswith(kept) else size
    return kept[: size - own] + line[len(body) - own :]
