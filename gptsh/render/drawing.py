"""Draw blocks of Markdown in colour: text, tables, highlighted code, themes."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise

from markdown_it.token import Token
from pygments.lexer import Lexer
from rich import box
from rich.color import ColorSystem
from rich.console import Console, JustifyMethod
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text

from gptsh.render.live import Region
from gptsh.render.markdown import Block, Blocks, count_quick, is_code, siblings
from gptsh.render.writer import Sink
from gptsh.terminal.stdio import TerminalStyle
from gptsh.text import row_starts, visible

# ---- theme
#
# The colours and styles of Markdown on a terminal: of headings, links, list marks, and of the words
# in code.

# Two of the terminal's own colours, which are legible on white and on black: yellow, green and cyan are not legible on
# white, xterm's blue is not on black.
PLAIN = Style()
DIM = Style(dim=True)
CODE = Style(color="magenta")
BULLET = Style(color="magenta")
LINK = Style(underline=True)
HEADING = Style(bold=True)  # of the third level and below
HEADINGS = {"h1": Style(bold=True, underline=True, color="magenta"), "h2": Style(bold=True, color="magenta")}
TABLE_HEAD = Style(bold=True)
INLINE = {"em": Style(italic=True), "strong": Style(bold=True), "s": Style(strike=True), "a": LINK}  # by HTML tag
TOKENS = {  # the kinds of words in code, as Pygments names them
    DIM: "Comment",
    CODE: "Keyword Operator.Word Name.Decorator Name.Attribute Generic.Subheading",
    HEADING: "Name.Function Name.Class Name.Tag Generic.Inserted Generic.Heading",
    Style(color="red"): "Name.Exception Literal.String Literal.Number Generic.Deleted",
}


# ---- styled lines
#
# Lines of styled text: as they are, or wrapped at a width; and what is written for them, with
# escape sequences.
#
# Only ``paint`` makes escape sequences of styles, so no others can occur.

Line = list[Segment]


@cache
def console() -> Console:
    """What rich measures and wraps with. It writes nothing; each use states its width."""
    return Console(file=io.StringIO(), width=80, height=25, color_system=None, legacy_windows=False, _environ={})


def plain_lines(lines: Sequence[str]) -> list[Line]:
    """Lines without styles."""
    return [[Segment(line)] for line in lines]


def wrapped(text: Text, width: int) -> list[Line]:
    """A text as lines of at most ``width`` columns, broken between words where that is possible."""
    is_short = text.cell_len <= width and not {"\n", "\t"}.intersection(text.plain)
    lines = [text] if is_short else text.wrap(console(), width, overflow="fold")
    for line in lines:
        line.rstrip()
    return [[part for part in Segment.simplify(line.render(console())) if part.text] for line in lines]


def stripped(line: Line) -> Line:
    """The line without the spaces at its end."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())] if line else []


def paint(line: Line, look: TerminalStyle) -> str:
    """A line as text with escape sequences, without its newline."""
    return "".join(_painted(visible(text), style, look) for text, style, _ in line)


def paint_rows(line: Line, width: int, look: TerminalStyle) -> list[str]:
    """A line as rows of at most ``width`` columns, each as ``paint`` returns it."""
    starts = row_starts("".join(visible(segment.text) for segment in line), width)
    rows, at = [""], 0
    for text, style, _ in line:
        shown = visible(text)
        end = at + len(shown)
        breaks = [start for start in starts if at < start < end]
        for start, stop in pairwise([at, *breaks, end]):
            if start in starts:
                rows.append("")
            rows[-1] += _painted(shown[start - at : stop - at], style, look)
        at = end
    return rows


def _painted(text: str, style: Style | None, look: TerminalStyle) -> str:
    if style is None or not text or not look.styles:
        return text
    if not look.colors:
        style = style.without_color
    return style.render(text, color_system=ColorSystem.STANDARD)


# ---- tables
#
# A table on a terminal: with wrapped cells where it is too wide, without columns where the terminal
# is too narrow.

_COLUMN = 8  # minimum width of a column, with the space around it
_UNBOUNDED = 1 << 20  # columns


def table_lines(rows: Sequence[Sequence[Text]], sides: Sequence[JustifyMethod], width: int) -> list[Line]:
    """The lines of a table, whose first row is its head; ``sides``: how each column is aligned."""
    head, *body = rows
    if len(head) * _COLUMN > width:
        joined = (Text(" | ").join(row) for row in rows)
        return [line for text in joined for line in wrapped(text, width)]
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, border_style=DIM, header_style=TABLE_HEAD)
    for text, side in zip(head, sides, strict=True):
        table.add_column(text, justify=side, overflow="fold", min_width=min(4, text.cell_len))
    for row in body:
        table.add_row(*row)
    options = console().options
    natural_width = console().measure(table, options=options.update(width=_UNBOUNDED)).maximum
    table.show_lines = natural_width > width  # a rule between rows of more than one line
    return [stripped(line) for line in console().render_lines(table, options.update(width=width), pad=False)]


# ---- inline
#
# The text of a paragraph, a heading or a table cell on a terminal: emphasis, links with their URLs,
# code, images.

_BREAKS = ("<br>", "<br/>")  # in HTML; common in tables


def inline_text(token: Token, base: Style, look: TerminalStyle) -> Text:
    """The styled text of a token with inline content. A line break in the source is one on the terminal."""
    text = Text(end="")
    styles = [base]
    links: list[tuple[int, Token]] = []  # where the text of each begins
    for part in token.children or ():
        if part.nesting == 1:
            styles.append(styles[-1] + INLINE.get(part.tag, PLAIN))
            if part.type == "link_open":
                links.append((len(text), part))
        elif part.nesting == -1:
            styles.pop()
            if part.type == "link_close":
                start, link = links.pop()
                _append(text, _target(link, "href", text.plain[start:]), styles[-1] + DIM)
        else:
            _append_leaf(text, part, styles[-1], look)
    return text


def _append_leaf(text: Text, part: Token, style: Style, look: TerminalStyle) -> None:
    match part.type:
        case "softbreak" | "hardbreak":
            _append(text, "\n", style)
        case "html_inline" if part.content.lower().replace(" ", "") in _BREAKS:
            _append(text, "\n", style)
        case "code_inline" if look.colors:
            _append(text, part.content, style + CODE)
        case "code_inline":
            _append(text, f"`{part.content}`", style)
        case "image":
            _append(text, part.content or "image", style)
            _append(text, _target(part, "src", part.content), style + DIM)
        case _:  # text, HTML
            _append(text, part.content, style)


def _append(text: Text, more: str, style: Style) -> None:
    text.append(visible(more), style)


def _target(token: Token, key: str, shown: str) -> str:
    """The URL of a link or an image in parentheses; nothing if its text is the URL."""
    url, title = str(token.attrs.get(key, "")), token.attrs.get("title")
    if url in (shown, f"mailto:{shown}"):
        return ""
    return f' ({url} "{title}")' if title else f" ({url})"


# ---- highlight
#
# Code blocks on a terminal: in colours where their language is known. Lines are neither wrapped nor
# changed.

_THEME = ANSISyntaxTheme({tuple(kind.split(".")): style for style, kinds in TOKENS.items() for kind in kinds.split()})


def code_lines(token: Token) -> list[Line]:
    """The lines of code to copy: nothing added. The name of a language that is highlighted is not shown."""
    lines = visible(token.content).removesuffix("\n").split("\n")
    language, _, rest = token.info.strip().partition(" ")
    colored = _highlighted(language, "\n".join(lines[: count_quick(lines)])) if language else None
    label = token.info.strip() if colored is None else rest.strip()
    label_lines = [[Segment(label, DIM)]] if label else []
    colored = colored or []
    return [*label_lines, *colored, *plain_lines(lines[len(colored) :])]


@lru_cache(maxsize=4)
def _highlighted(language: str, code: str) -> list[Line] | None:
    """Highlighted lines of code; empty if the lexer changes the code, None without a lexer."""
    lexer = _lexer(language)
    if lexer is None:
        return None
    if not code:
        return []
    lines: list[Line] = [[]]
    for kind, text in lexer.get_tokens(f"{code}\n"):
        first, *more = text.split("\n")
        style = _THEME.get_style_for_token(kind)
        lines[-1].append(Segment(first, style))
        lines += ([Segment(part, style)] for part in more)
    if "\n".join("".join(segment.text for segment in line) for line in lines) != f"{code}\n":
        return []
    return [[segment for segment in Segment.simplify(line) if segment.text] for line in lines[:-1]]


@cache
def _lexer(language: str) -> Lexer | None:
    return Syntax("", language, tab_size=0).lexer


# ---- layout
#
# The layout of Markdown on a terminal: a block becomes lines: paragraphs wrapped, lists and quotes
# indented.

_NARROWEST = 16  # columns; deeper nesting exceeds the width, and the terminal wraps it
_RULE = 40  # columns of a horizontal rule: a longer one would wrap in a smaller window


def drawn(texts: Iterable[str], look: TerminalStyle, width: int) -> Iterator[str]:
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

    def __init__(self, look: TerminalStyle, width: int) -> None:
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


# ---- canvas
#
# An answer drawn on a terminal while it arrives: closed blocks as final lines, the open block
# redrawn below them.
#
# Importing this module takes 0.15 s, most of it for rich: it is imported while gptsh waits for the
# answer.


class Canvas:
    """Draws an answer: each block once, when it is closed, at the width of that moment.

    With a ``region`` ``draw`` also shows the open blocks below. ``size``: columns and rows of the terminal. ``begun``:
    a blank line goes before the next block. Raises OSError as ``out`` does.
    """

    def __init__(
        self, out: Sink, look: TerminalStyle, size: Callable[[], tuple[int, int]], region: Region | None
    ) -> None:
        self.begun = False
        self.region = region
        self._out, self._look, self._size = out, look, size
        self._blocks = Blocks()
        self._closed: list[Block] = []  # not drawn yet
        self._final_lines = 0  # lines of the open code that have left the region, and will not change
        self._final_width = 0  # the width at which they were drawn; the rest of the code keeps it
        self._region_heights: list[int] = []  # rows of each line of open code in the region

    def add(self, text: str) -> None:
        """Add a piece of the answer. Without a region, draw the blocks that it closes."""
        self._closed += self._blocks.add(text)
        if not self.region:
            self._write_closed()

    def draw(self) -> None:
        """Draw what has arrived."""
        if self.region:
            self._closed += self._blocks.look()
            self._draw_frame(self.region, self._blocks.open())

    def finish(self) -> None:
        """Close and draw all blocks. A later piece begins a new block."""
        self._closed += self._blocks.finish()
        if self.region:
            self._draw_frame(self.region, [])
        else:
            self._write_closed()

    def _write_closed(self) -> None:
        width, _ = self._size()
        if lines := self._take_closed(width):
            self._out.draw("".join(f"{line}\n" for line in lines))

    def _draw_frame(self, region: Region, opened: list[Block]) -> None:
        """Write what has become final, and the open blocks as the new region below."""
        width, height = self._size()
        self._keep_scrolled_lines(region, width, height)
        closed_lines = self._take_closed(width)
        final_lines, rows = self._split_open(opened, width, max(1, height - 1))
        if frame := region.frame([*closed_lines, *final_lines], rows, width):
            self._out.draw(frame)

    def _keep_scrolled_lines(self, region: Region, width: int, height: int) -> None:
        """Count the lines of open code as final that a smaller window has pushed off the screen."""
        lost_rows = region.lost(width, height)
        scrolled = [rows for rows in accumulate(self._region_heights) if rows <= lost_rows]
        self._count_final(len(scrolled), region.width)
        self._region_heights = []

    def _take_closed(self, width: int) -> list[str]:
        """The closed blocks as lines, without those that are final already."""
        closed, self._closed = self._closed, []
        if not closed:
            return []
        lines = self._lines(closed, width)[self._final_lines :]
        self._final_lines = self._final_width = 0
        self.begun = True
        return [paint(line, self._look) for line in lines]

    def _split_open(self, opened: list[Block], width: int, room: int) -> tuple[list[str], list[str]]:
        """The open blocks as new final lines, and as the rows of the region: their last ones, at most ``room``.

        Lines of code above the region are final. Other lines above it are drawn when their block is closed.
        """
        in_code = bool(opened) and is_code(opened[-1])
        lines = self._lines(opened, width)[self._final_lines :]
        rows: list[str] = []
        heights: list[int] = []
        while lines and len(rows) < room:
            line_rows = paint_rows(lines[-1], width, self._look)
            if in_code and len(line_rows) + len(rows) > room:
                break  # a line of code is final as a whole
            lines.pop()
            rows = line_rows + rows
            heights = [len(line_rows), *heights]
        if not in_code:
            return [], rows[-room:]
        self._region_heights = heights
        self._count_final(len(lines), width)
        return [paint(line, self._look) for line in lines], rows

    def _count_final(self, count: int, width: int) -> None:
        """Count lines of the open code as final, drawn at this width."""
        if count:
            self._final_lines += count
            self._final_width = self._final_width or width

    def _lines(self, blocks: list[Block], width: int) -> list[Line]:
        layout = Layout(self._look, self._final_width or width)
        lines: list[Line] = []
        for at, block in enumerate(blocks):
            if block.spaced and (at or self.begun):
                lines.append([])
            lines += layout.lines(block)
        return lines
