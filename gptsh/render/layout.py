"""The layout of Markdown on a terminal: a block becomes lines: paragraphs wrapped, lists and quotes indented."""

from collections.abc import Iterable, Iterator, Sequence

from markdown_it.token import Token
from rich.console import JustifyMethod
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from gptsh.render.blocks import Block, Blocks
from gptsh.render.highlight import code_lines
from gptsh.render.inline import inline_text
from gptsh.render.markdown_parser import siblings
from gptsh.render.styled_lines import Line, paint, plain_lines, wrapped
from gptsh.render.tables import table_lines
from gptsh.render.theme import BULLET, DIM, HEADING, HEADINGS, PLAIN
from gptsh.terminal.stdio import Look

_NARROWEST = 16  # columns; deeper nesting exceeds the width, and the terminal wraps it
_RULE = 40  # columns of a horizontal rule: a longer one would wrap in a smaller window


def drawn(texts: Iterable[str], look: Look, width: int) -> Iterator[str]:
    """Lines for a terminal: each text is a separate document, with a blank line between two."""
    layout, begun = Layout(look, width), False
    for text in texts:
        for number, block in enumerate(Blocks().whole(text)):
            if begun and (block.spaced or not number):
                yield ""
            begun = True
            yield "\n".join(paint(line, look) for line in layout.lines(block))


class Layout:
    """Lays out blocks for a terminal of ``width`` columns."""

    def __init__(self, look: Look, width: int) -> None:
        self._look, self._width = look, width

    def lines(self, block: Block) -> list[Line]:
        """The block as lines."""
        if block.tokens:
            return self._elements(block.tokens, block, self._width)
        return plain_lines("\n".join(block.lines).strip("\n").split("\n"))

    def _elements(self, tokens: Sequence[Token], block: Block, width: int) -> list[Line]:
        """The lines of elements one below the other, with a blank line where the source has one."""
        lines: list[Line] = []
        for element in siblings(tokens):
            if lines and _follows_blank_line(element, block):
                lines.append([])
            lines += self._element(element, block, max(width, _NARROWEST))
        return lines

    def _element(self, tokens: Sequence[Token], block: Block, width: int) -> list[Line]:
        token = tokens[0]
        match token.type:
            case "blockquote_open":
                content = self._elements(tokens[1:-1], block, width - 2)
                return [[Segment("│ " if line else "│", DIM), *line] for line in content]
            case "bullet_list_open" | "ordered_list_open":
                return list(self._list(tokens, block, width))
            case "table_open":
                return self._table(tokens, block, width)
            case "heading_open":
                return wrapped(self._text(tokens[1], HEADINGS.get(token.tag, HEADING)), width)
            case "fence" | "code_block":
                return code_lines(token)
            case "hr":
                return [[Segment("─" * min(width, _RULE), DIM)]]
            case "raw":
                return plain_lines(token.content.split("\n"))
            case "html_block":
                return wrapped(Text(token.content.rstrip("\n")), width)
        return wrapped(self._text(tokens[1], PLAIN), width)

    def _list(self, tokens: Sequence[Token], block: Block, width: int) -> Iterator[Line]:
        for index, item in enumerate(siblings(tokens[1:-1])):
            if index and _follows_blank_line(item, block):
                yield []
            marker = f"{item[0].info:>2}. " if item[0].info else " • "
            content = self._elements(item[1:-1], block, width - len(marker))
            first = content[0] if content else []
            yield [Segment(marker if first else marker.rstrip(), BULLET), *first]
            for line in content[1:]:
                yield [Segment(" " * len(marker)), *line] if line else line

    def _table(self, tokens: Sequence[Token], block: Block, width: int) -> list[Line]:
        end = (tokens[0].map or [0, 0])[1]
        if block.is_open and end >= len(block.lines):  # another row may make it wider
            return plain_lines(tokens[0].content.split("\n"))
        cells = [
            list(siblings(row[1:-1]))
            for part in siblings(tokens[1:-1])  # its head, its body
            for row in siblings(part[1:-1])
        ]
        texts = [[self._text(cell[1], PLAIN) for cell in row] for row in cells]
        return table_lines(texts, [_side(cell[0]) for cell in cells[0]], width)

    def _text(self, token: Token, style: Style) -> Text:
        return inline_text(token, style, self._look)


def _follows_blank_line(element: Sequence[Token], block: Block) -> bool:
    """Whether a blank line stands before an element in the source of its block, between the marks of quotes."""
    start = element[0].map[0] if element[0].map else 0
    return not block.lines[start - 1].strip(" \t>")


def _side(cell: Token) -> JustifyMethod:
    """How the column of a table is aligned, by the cell of its head."""
    match str(cell.attrs.get("style", "")).removeprefix("text-align:"):
        case "right":
            return "right"
        case "center":
            return "center"
    return "left"
