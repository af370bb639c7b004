"""Draw blocks of Markdown in colour by rich: text, tables, highlighted code.

Importing this module takes 0.15 s, most of it for rich: it is imported while gptsh waits for the
answer.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain

from markdown_it.tree import SyntaxTreeNode
from rich import box
from rich.color import ColorSystem
from rich.console import Console, JustifyMethod
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text

from gptsh.render.live import Region, count_fitting
from gptsh.render.markdown import Block, Blocks, count_quick, ends_in_code, lines_of
from gptsh.terminal.stdio import Sink, TerminalStyle
from gptsh.text import row_starts, visible

# ---- theme
#
# A colour has one meaning, and is legible on white and on black. Of the terminal's own 16 only red
# and magenta are, and red is for errors. So the others are of 256, and missing where there are 16.

PLAIN = Style()
DIM = Style(dim=True)
CODE = Style(color="color(30)")
STRING = Style(color="color(28)")
_OWN_COLORS = 16
HEADING = Style(bold=True)  # of the third level and below
HEADINGS = {
    "h1": Style(bold=True, underline=True, color="magenta"),
    "h2": Style(bold=True, color="magenta"),
}
LINK = Style(underline=True)
INLINE = {"em": Style(italic=True), "strong": Style(bold=True), "s": Style(strike=True)}
STYLES_OF_CODE = {  # by the names of Pygments
    "Comment": DIM,
    "Keyword": CODE,
    "Operator.Word": CODE,
    "Name.Decorator": CODE,
    "Name.Attribute": CODE,
    "Name.Function": HEADING,
    "Name.Class": HEADING,
    "Name.Tag": HEADING,
    "Literal.String": STRING,
    "Literal.Number": STRING,
    "Generic.Heading": HEADING,
    "Generic.Subheading": CODE,
    "Generic.Inserted": HEADING,
}


# ---- lines
#
# A line is a ``Text`` without control characters. Only ``paint`` makes escape sequences of styles,
# so no others can occur.

_WORD = re.compile(r"(\S++)\s*+")  # with the space after it


@cache
def console() -> Console:
    """Return what rich measures and wraps with. It writes nothing; each use states its width."""
    return Console(file=io.StringIO(), width=80, height=25, legacy_windows=False, _environ={})


def plain_lines(source: str) -> list[Text]:
    """Return the lines of a text as they are."""
    return [Text(line) for line in source.split("\n")]


def wrap(text: Text, width: int) -> list[Text]:
    """Return a text as lines of at most ``width`` columns, broken between words if possible.

    A longer URL is on a line of its own, which the terminal wraps: so it is one URL to it.
    """
    lines: list[Text] = []
    for line in text.split(allow_blank=True):
        edges: list[int] = []  # where a longer URL begins, where it ends, and so on
        for word in _WORD.finditer(line.plain):
            if len(word[1]) > width and "://" in word[1]:
                edges += word.span()
        if not edges:
            lines += line.wrap(console(), width)
            continue
        is_url = False
        for piece in line.divide(edges):
            if is_url:
                lines.append(piece)
            elif piece:
                lines += piece.wrap(console(), width)
            is_url = not is_url
    for line in lines:
        line.rstrip()
    return lines


def indent(line: Text, mark: str, style: Style) -> Text:
    """Return a line after a mark, without the blanks of the mark if the line is empty."""
    if not line:
        mark = mark.rstrip()
    return Text.assemble((mark, style), line)


def paint(line: Text, terminal: TerminalStyle) -> str:
    """Return a line as text with escape sequences, without its newline."""
    if not terminal.styles:
        return line.plain
    painted = ""
    for text, style, _ in Segment.simplify(line.render(console())):
        shown_style = _with_known_color(style or PLAIN, terminal)
        painted += shown_style.render(text, color_system=ColorSystem.EIGHT_BIT)
    return painted


def _with_known_color(style: Style, terminal: TerminalStyle) -> Style:
    """Return a style without its colour if the terminal does not have it."""
    number = style.color.number if style.color else None
    is_own_color = number is not None and number < _OWN_COLORS
    if terminal.many_colors or (terminal.colors and is_own_color):
        return style
    return style.without_color


# ---- elements


def inline_text(nodes: Sequence[SyntaxTreeNode], style: Style, terminal: TerminalStyle) -> Text:
    """Return what is inside a line as styled text. A line break in the source is one here."""
    text = Text()
    for node in nodes:
        match node.type:
            case "em" | "strong" | "s":
                text.append(inline_text(node.children, style + INLINE[node.type], terminal))
            case "link":
                label = inline_text(node.children, style + LINK, terminal)
                text.append(label)
                text.append(_target(node, "href", label.plain), style + DIM)
            case "image":
                text.append(visible(node.content or "image"), style)
                text.append(_target(node, "src", node.content), style + DIM)
            case "code_inline" if terminal.many_colors:
                text.append(visible(node.content), style + CODE)
            case "code_inline":
                text.append(visible(f"`{node.content}`"), style)
            case "softbreak" | "hardbreak":
                text.append("\n")
            case "html_inline" if node.content.lower().replace(" ", "") in _BREAKS:
                text.append("\n")
            case _:
                text.append(visible(node.content), style)
    return text


_BREAKS = ("<br>", "<br/>")  # common in tables


def _target(node: SyntaxTreeNode, key: str, label: str) -> str:
    """Return the URL of a link or an image in parentheses; nothing if its text is the URL."""
    url = visible(str(node.attrs[key]))
    title = visible(str(node.attrs.get("title", "")))
    if url in (label, f"mailto:{label}"):
        return ""
    return f' ({url} "{title}")' if title else f" ({url})"


_COLUMN = 8  # minimum width of a column, with the space around it
_MIN_TEXT = 4  # columns of text that a column keeps
_UNBOUNDED = 1 << 20  # columns


def table_lines(rows: list[list[Text]], sides: list[JustifyMethod], width: int) -> list[Text]:
    """Return the lines of a table; its first row is its head. ``sides`` align the columns.

    The table has no columns if the terminal is too narrow.
    """
    head, *body = rows
    if len(head) * _COLUMN > width:
        return wrap(Text("\n").join(Text(" | ").join(row) for row in rows), width)
    table = Table(
        box=box.SIMPLE,
        show_edge=False,
        pad_edge=False,
        border_style=DIM,
        header_style=HEADING,
    )
    for text, side in zip(head, sides, strict=True):
        min_width = min(_MIN_TEXT, text.cell_len)
        table.add_column(text, justify=side, overflow="fold", min_width=min_width)
    for row in body:
        table.add_row(*row)

    unbounded = console().options.update(width=_UNBOUNDED)
    natural_width = console().measure(table, options=unbounded).maximum
    table.show_lines = natural_width > width  # a rule between rows of more than one line
    bounded = console().options.update(width=width)
    lines = []
    for segments in console().render_lines(table, bounded, pad=False):
        line = Text()
        for segment in segments:
            line.append(segment.text, segment.style)
        line.rstrip()
        lines.append(line)
    return lines


_THEME = ANSISyntaxTheme({tuple(name.split(".")): style for name, style in STYLES_OF_CODE.items()})


def code_lines(block: SyntaxTreeNode) -> list[Text]:
    """Return the lines of code to copy: neither wrapped nor changed, nothing added.

    The name of a language that is highlighted is not shown.
    """
    label = visible(block.info.strip())
    language, _, title = label.partition(" ")
    if _syntax(language):
        label = title.strip()
    lines = block.content.removesuffix("\n").split("\n")
    beginning = "".join(f"{line}\n" for line in lines[: count_quick(lines)])
    highlighted = _highlighted(language, beginning)

    drawn_lines = [Text.assemble((label, DIM))] if label else []
    drawn_lines += highlighted
    drawn_lines += map(Text, lines[len(highlighted) :])
    return drawn_lines


@lru_cache(maxsize=4)
def _syntax(language: str) -> Syntax | None:
    """Return what highlights a language; None if that is not known."""
    syntax = Syntax("", language, theme=_THEME, tab_size=0)
    return syntax if language and syntax.lexer else None


@lru_cache(maxsize=4)
def _highlighted(language: str, code: str) -> list[Text]:
    """Return lines of code in colours; none if the language is unknown or its lexer changes code.

    The code that is open is drawn again and again, hence the cache.
    """
    syntax = _syntax(language)
    if syntax is None:
        return []
    text = syntax.highlight(code)
    return list(text.split()) if text.plain == code else []


# ---- layout

_NARROWEST = 16  # columns; deeper nesting exceeds the width, and the terminal wraps it
_TASKS = {"[ ] ": " ☐ ", "[x] ": " ☑ ", "[X] ": " ☑ "}  # how an item of a task list begins
_RULE = 40  # columns of a horizontal rule: a longer one would wrap in a smaller window


def draw_markdown(texts: Iterable[str], terminal: TerminalStyle, width: int) -> Iterator[str]:
    """Yield lines for a terminal: each text is a document, with a blank line between two."""
    has_begun = False
    for text in texts:
        document = Blocks()
        document.add(text)
        for number, block in enumerate(document.finish()):
            if has_begun and (block.is_spaced or number == 0):
                yield ""
            has_begun = True
            lines = Layout(block, terminal).lines(width)
            yield "\n".join(paint(line, terminal) for line in lines)


class Layout:
    """Lays out a block for a terminal."""

    def __init__(self, block: Block, terminal: TerminalStyle) -> None:
        self._block = block
        self._terminal = terminal

    def lines(self, width: int) -> list[Text]:
        """Return the block as lines of at most ``width`` columns, where that is possible."""
        if self._block.elements:
            return self._elements(self._block.elements, width)
        return plain_lines("\n".join(self._block.lines).strip("\n"))

    def _elements(self, nodes: Sequence[SyntaxTreeNode], width: int) -> list[Text]:
        """Return elements one below the other, with a blank line where the source has one."""
        lines: list[Text] = []
        for node in nodes:
            if lines and self._follows_blank_line(node):
                lines.append(Text())
            lines += self._element(node, max(width, _NARROWEST))
        return lines

    def _follows_blank_line(self, node: SyntaxTreeNode) -> bool:
        """Return whether there is a blank line before an element, apart from marks of quotes."""
        start, _ = lines_of(node)
        return not self._block.lines[start - 1].strip(" \t>")

    def _element(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        match node.type:
            case "blockquote":
                content = self._elements(node.children, width - 2)
                return [indent(line, "│ ", DIM) for line in content]
            case "bullet_list" | "ordered_list":
                return self._elements(node.children, width)
            case "list_item":
                return self._item(node, width)
            case "table":
                return self._table(node, width)
            case "heading":
                return wrap(self._text(node, HEADINGS.get(node.tag, HEADING)), width)
            case "fence" | "code_block":
                return code_lines(node)
            case "hr":
                return [Text.assemble(("─" * min(width, _RULE), DIM))]
            case "raw":
                return plain_lines(node.content)
            case "html_block":
                return wrap(Text(node.content.rstrip("\n")), width)
        return wrap(self._text(node), width)

    def _item(self, item: SyntaxTreeNode, width: int) -> list[Text]:
        """Return an item of a list after its mark; an empty item is a mark alone."""
        number = item.info
        mark = f"{number:>2}. " if number else " • "
        first, *others = self._elements(item.children, width - len(mark)) or [Text()]
        is_task = (
            self._terminal.colors
            and not number
            and first.plain[:4] in _TASKS
            and item.children[0].type == "paragraph"
        )
        if is_task:
            mark = _TASKS[first.plain[:4]]
            first = first[4:]
        margin = " " * len(mark)
        lines = [indent(first, mark, PLAIN)]
        for line in others:
            lines.append(indent(line, margin, PLAIN))
        return lines

    def _table(self, table: SyntaxTreeNode, width: int) -> list[Text]:
        _, end = lines_of(table)
        if self._block.is_open and end >= len(self._block.lines):
            return plain_lines(table.content)  # another row may make it wider
        rows = [node for node in table.walk() if node.type == "tr"]
        sides = [_side(cell) for cell in rows[0].children]
        texts = []
        for row in rows:
            texts.append([self._text(cell) for cell in row.children])
        return table_lines(texts, sides, width)

    def _text(self, node: SyntaxTreeNode, style: Style = PLAIN) -> Text:
        """Return the text of a paragraph, a heading or a cell."""
        return inline_text(node.children[0].children, style, self._terminal)


def _side(cell: SyntaxTreeNode) -> JustifyMethod:
    """Return how the column of a table is aligned, by the cell of its head."""
    match cell.attrs.get("style"):
        case "text-align:right":
            return "right"
        case "text-align:center":
            return "center"
    return "left"


# ---- canvas
#
# An answer drawn on a terminal while it arrives: closed blocks as final lines, the open block
# redrawn below them.


class Canvas:
    """Draws an answer: each block once, when it is closed, at the width of that moment.

    If there is a ``region``, it shows the open block below. ``size``: columns and rows of the
    terminal. ``has_begun``: a blank line goes before the next block. Raises OSError as ``out``
    does.
    """

    def __init__(
        self,
        out: Sink,
        terminal: TerminalStyle,
        size: Callable[[], tuple[int, int]],
        region: Region | None,
    ) -> None:
        self.has_begun = False
        self.region = region
        self._out = out
        self._terminal = terminal
        self._size = size
        self._blocks = Blocks()
        self._final_count = 0  # lines of the open code that are above the region, and final
        self._heights: list[int] = []  # rows of each line of the open code in the region
        self._width = 0  # of the open block; once it has final lines, it keeps its width

    def add(self, text: str) -> None:
        """Add a piece of the answer."""
        self._blocks.add(text)

    def draw(self) -> None:
        """Draw what has arrived."""
        closed = self._blocks.take_closed()
        self._draw(closed, self._blocks.open_blocks() if self.region else [])

    def finish(self) -> None:
        """Close and draw all blocks. A later piece begins a new block."""
        self._draw(self._blocks.finish(), [])

    def _draw(self, closed: list[Block], opened: list[Block]) -> None:
        """Write what has become final, and the open blocks as the new region below."""
        region = self.region  # Ctrl-Z may take it away
        width, height = self._size()
        if region:  # a smaller window has pushed lines off the screen
            self._final_count += count_fitting(self._heights, region.lost(width, height))
            self._heights = []
        if self._final_count == 0:
            self._width = width
        final = self._lines(closed)
        if closed:
            final = final[self._final_count :]
            self._final_count = 0
            self._width = width
            self.has_begun = True

        if region:
            code, rows = self._open_rows(opened, width, max(1, height - 1))
            frame = region.frame(self._paint(final + code), self._paint(rows), width)
        else:
            frame = "".join(f"{line}\n" for line in self._paint(final))
        if frame:
            self._out.draw(frame)

    def _open_rows(
        self, opened: list[Block], width: int, height: int
    ) -> tuple[list[Text], list[Text]]:
        """Return the lines of open code that do not fit any more, and the rows below them.

        These lines are final from now on. Of anything else that is open only the last rows are
        shown: it may still change, and is drawn whole when its block is closed.
        """
        lines = self._lines(opened)[self._final_count :]
        rows_of_lines = [line.divide(row_starts(line.plain, width)) for line in lines]
        final_count = 0
        if opened and ends_in_code(opened[-1].elements):
            heights = [len(rows) for rows in rows_of_lines]
            final_count = len(lines) - count_fitting(reversed(heights), height)
            self._final_count += final_count
            self._heights = heights[final_count:]
        rows = list(chain.from_iterable(rows_of_lines[final_count:]))
        return lines[:final_count], rows[-height:]

    def _lines(self, blocks: list[Block]) -> list[Text]:
        lines: list[Text] = []
        for block in blocks:
            if block.is_spaced and (lines or self.has_begun):
                lines.append(Text())
            lines += Layout(block, self._terminal).lines(self._width)
        return lines

    def _paint(self, lines: list[Text]) -> list[str]:
        return [paint(line, self._terminal) for line in lines]
