"""An answer drawn as Markdown: closed blocks as lines, the open block below them. The only file that imports rich.

rich wraps lines, lays out tables and highlights code. This file writes the escape sequences, so no others can occur.
Importing this module takes 0.15 s: it is imported while gptsh waits for the answer.
"""

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
from gptsh.render.plain import Look, Sink
from gptsh.text import row_starts, visible

Line = list[Segment]

_NARROWEST = 16  # columns; deeper nesting exceeds the width, and the terminal wraps it
_COLUMN = 8  # minimum width of a table column, with the space around it
_UNBOUNDED = 1 << 20  # columns
_RULE = 40  # columns of a horizontal rule: a longer one would wrap in a smaller window

# Two of the terminal's own colours, which are legible on white and on black: yellow, green and cyan are not legible on
# white, xterm's blue is not on black.
_PLAIN = Style()
_DIM = Style(dim=True)
_CODE = Style(color="magenta")
_LINK = Style(underline=True)
_HEADINGS = {"h1": Style(bold=True, underline=True, color="magenta"), "h2": Style(bold=True, color="magenta")}
_HEADING = Style(bold=True)
_INLINE = {"em": Style(italic=True), "strong": Style(bold=True), "s": Style(strike=True), "a": _LINK}
_BULLET = Style(color="magenta")
_CODE_STYLES = {
    _DIM: "Comment",
    _CODE: "Keyword Operator.Word Name.Decorator Name.Attribute Generic.Subheading",
    _HEADING: "Name.Function Name.Class Name.Tag Generic.Inserted Generic.Heading",
    Style(color="red"): "Name.Exception Literal.String Literal.Number Generic.Deleted",
}
_THEME = ANSISyntaxTheme(
    {tuple(kind.split(".")): style for style, kinds in _CODE_STYLES.items() for kind in kinds.split()}
)


class Canvas:
    """Draws an answer: each block once, when it is closed, at the width of that moment.

    With a ``region`` ``draw`` also shows the open blocks below. ``size``: columns and rows of the terminal. ``begun``:
    a blank line goes before the next block. Raises OSError as ``out`` does.
    """

    def __init__(self, out: Sink, look: Look, size: Callable[[], tuple[int, int]], region: Region | None) -> None:
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
            self._draw([])

    def draw(self) -> None:
        """Draw what has arrived."""
        if self.region:
            self._closed += self._blocks.look()
            self._draw(self._blocks.open())

    def finish(self) -> None:
        """Close and draw all blocks. A later piece begins a new block."""
        self._closed += self._blocks.finish()
        self._draw([])

    def _draw(self, opened: list[Block]) -> None:
        width, height = self._size()
        final: list[str] = []  # lines to write above the region
        # Lines of code that a smaller window has pushed off the screen are final.
        if self.region and self._region_heights:
            lost_rows = self.region.lost(width, height)
            if scrolled := sum(1 for rows in accumulate(self._region_heights) if rows <= lost_rows):
                self._final_lines += scrolled
                self._final_width = self._final_width or self.region.width
            self._region_heights = []
        # Closed blocks are final: write what of them is not on the screen yet.
        if closed := self._closed:
            self._closed = []
            page = _page(self._look, self._final_width or width)
            final = [page.paint(line) for line in self._lines(page, closed)[self._final_lines :]]
            self._final_lines = self._final_width = 0
            self.begun = True
        if not self.region:
            if final:
                self._out.draw("".join(f"{line}\n" for line in final))
            return
        # The region gets the last rows of the open blocks. Lines of code above them are final.
        page = _page(self._look, self._final_width or width)
        lines = self._lines(page, opened)[self._final_lines :]
        in_code, rows, room = bool(opened) and is_code(opened[-1]), list[str](), max(1, height - 1)
        while lines and len(rows) < room:
            line_rows = page.rows(lines[-1], width)
            if in_code and len(line_rows) + len(rows) > room:
                break
            rows = line_rows + rows
            lines.pop()
            self._region_heights = [len(line_rows), *self._region_heights] if in_code else []
        if lines and in_code:
            final += [page.paint(line) for line in lines]
            self._final_lines += len(lines)
            self._final_width = self._final_width or width
        if frame := self.region.frame(final, rows[-room:], width):
            self._out.draw(frame)

    def _lines(self, page: "Page", blocks: list[Block]) -> list[Line]:
        lines: list[Line] = []
        for at, block in enumerate(blocks):
            lines += [[]] if block.spaced and (at or self.begun) else []
            lines += page.lines(block)
        return lines


def drawn(texts: Iterable[str], look: Look, width: int) -> Iterator[str]:
    """Lines for a terminal: each text is a separate document, with a blank line between two."""
    page, begun = Page(look, width), False
    for text in texts:
        for number, block in enumerate(Blocks().whole(text)):
            if begun and (block.spaced or not number):
                yield ""
            begun = True
            yield "\n".join(map(page.paint, page.lines(block)))


@cache
def _page(look: Look, width: int) -> "Page":
    return Page(look, width)


class Page:
    """Draws blocks for a terminal of ``width`` columns."""

    def __init__(self, look: Look, width: int) -> None:
        self._look, self._width = look, width
        self._console = Console(
            file=io.StringIO(), width=width, height=25, color_system=None, legacy_windows=False, _environ={}
        )

    def lines(self, block: Block) -> list[Line]:
        """The block as lines."""
        if block.tokens:
            return self._blocks(block.tokens, block, self._width)
        return _raw("\n".join(block.lines).strip("\n").split("\n"))

    def paint(self, line: Line) -> str:
        """A line as text with escape sequences, without its newline."""
        return "".join(self._painted(visible(text), style) for text, style, _ in line)

    def rows(self, line: Line, width: int) -> list[str]:
        """A line as rows of at most ``width`` columns, each as ``paint`` returns it."""
        starts = row_starts("".join(visible(segment.text) for segment in line), width)
        rows, at = [""], 0
        for text, style, _ in line:
            shown = visible(text)
            end = at + len(shown)
            for start, stop in pairwise([at, *(start for start in starts if at < start < end), end]):
                if start in starts:
                    rows.append("")
                rows[-1] += self._painted(shown[start - at : stop - at], style)
            at = end
        return rows

    def _painted(self, text: str, style: Style | None) -> str:
        if style is None or not text or not self._look.styles:
            return text
        return (style if self._look.colors else style.without_color).render(text, color_system=ColorSystem.STANDARD)

    def _blocks(self, tokens: Sequence[Token], block: Block, width: int) -> list[Line]:
        """The lines of blocks, with a blank line where the source has one."""
        lines: list[Line] = []
        for element in siblings(tokens):
            at = element[0].map[0] if element[0].map else 0
            if lines and not block.lines[at - 1].strip(" \t>"):
                lines.append([])
            lines += self._element(element, block, max(width, _NARROWEST))
        return lines

    def _element(self, tokens: Sequence[Token], block: Block, width: int) -> list[Line]:
        token = tokens[0]
        match token.type:
            case "blockquote_open":
                content = self._blocks(tokens[1:-1], block, width - 2)
                return [[Segment("│ " if line else "│", _DIM), *line] for line in content]
            case "bullet_list_open" | "ordered_list_open":
                return list(self._list(tokens, block, width))
            case "table_open":
                return self._table(tokens, block, width)
            case "heading_open":
                return self._wrapped(self._inline(tokens[1], _HEADINGS.get(token.tag, _HEADING)), width)
            case "fence" | "code_block":
                return _code(token)
            case "hr":
                return [[Segment("─" * min(width, _RULE), _DIM)]]
            case "raw":
                return _raw(token.content.split("\n"))
            case "html_block":
                return self._wrapped(Text(token.content.rstrip("\n")), width)
        return self._wrapped(self._inline(tokens[1], _PLAIN), width)

    def _list(self, tokens: Sequence[Token], block: Block, width: int) -> Iterator[Line]:
        for index, item in enumerate(siblings(tokens[1:-1])):
            if index and item[0].map and not block.lines[item[0].map[0] - 1].strip(" \t>"):
                yield []
            marker = f"{item[0].info:>2}. " if item[0].info else " • "
            content = self._blocks(item[1:-1], block, width - len(marker))
            first = content[0] if content else []
            yield [Segment(marker if first else marker.rstrip(), _BULLET), *first]
            for line in content[1:]:
                yield [Segment(" " * len(marker)), *line] if line else line

    def _table(self, tokens: Sequence[Token], block: Block, width: int) -> list[Line]:
        source, at = tokens[0].content.split("\n"), tokens[0].map or [0, 0]
        if block.is_open and at[1] >= len(block.lines):  # another row may make it wider
            return _raw(source)
        rows = [
            [(cell[0], self._inline(cell[1], _PLAIN)) for cell in siblings(row[1:-1])]
            for part in siblings(tokens[1:-1])
            for row in siblings(part[1:-1])
        ]
        head, body = rows[0], rows[1:]
        if len(head) * _COLUMN > width:
            joined = (Text(" | ").join(text for _, text in row) for row in rows)
            return [line for text in joined for line in self._wrapped(text, width)]
        table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, border_style=_DIM, header_style=Style(bold=True))
        for cell, text in head:
            side = str(cell.attrs.get("style", "")).removeprefix("text-align:")
            justify: JustifyMethod = "right" if side == "right" else "center" if side == "center" else "left"
            table.add_column(text, justify=justify, overflow="fold", min_width=min(4, text.cell_len))
        for row in body:
            table.add_row(*(text for _, text in row))
        options = self._console.options
        natural = self._console.measure(table, options=options.update(width=_UNBOUNDED)).maximum
        table.show_lines = natural > width  # a rule between rows of more than one line
        return [_stripped(line) for line in self._console.render_lines(table, options.update(width=width), pad=False)]

    def _wrapped(self, text: Text, width: int) -> list[Line]:
        is_short = text.cell_len <= width and not {"\n", "\t"}.intersection(text.plain)
        lines = [text] if is_short else text.wrap(self._console, width, overflow="fold")
        for line in lines:
            line.rstrip()
        return [[part for part in Segment.simplify(line.render(self._console)) if part.text] for line in lines]

    def _inline(self, token: Token, base: Style) -> Text:
        """The text of a paragraph, a heading or a cell. A line break in the source is one on the terminal."""
        text = Text(end="")
        styles = [base]
        links: list[tuple[int, Token]] = []  # where the text of each begins
        for part in token.children or ():
            if part.nesting == 1:
                styles.append(styles[-1] + _INLINE.get(part.tag, _PLAIN))
                if part.type == "link_open":
                    links.append((len(text), part))
            elif part.nesting == -1:
                styles.pop()
                if part.type == "link_close":
                    start, link = links.pop()
                    _append(text, _target(link, "href", text.plain[start:]), styles[-1] + _DIM)
            else:
                self._append_leaf(text, part, styles[-1])
        return text

    def _append_leaf(self, text: Text, part: Token, style: Style) -> None:
        match part.type:
            case "softbreak" | "hardbreak":
                _append(text, "\n", style)
            case "html_inline" if part.content.lower().replace(" ", "") in ("<br>", "<br/>"):  # common in tables
                _append(text, "\n", style)
            case "code_inline" if self._look.colors:
                _append(text, part.content, style + _CODE)
            case "code_inline":
                _append(text, f"`{part.content}`", style)
            case "image":
                _append(text, part.content or "image", style)
                _append(text, _target(part, "src", part.content), style + _DIM)
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


def _stripped(line: Line) -> Line:
    """The line without the spaces at its end."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())] if line else []


def _code(token: Token) -> list[Line]:
    """Code to copy: not wrapped, nothing added. The name of a language that is highlighted is not shown."""
    lines = visible(token.content).removesuffix("\n").split("\n")
    language, _, info = token.info.strip().partition(" ")
    colored = _highlighted(language, "\n".join(lines[: count_quick(lines)])) if language else None
    info = token.info.strip() if colored is None else info.strip()
    label = [[Segment(info, _DIM)]] if info else []
    return label + (colored or []) + _raw(lines[len(colored or ()) :])


@lru_cache(maxsize=4)
def _highlighted(language: str, code: str) -> list[Line] | None:
    """Highlighted lines of code; empty if the lexer changes the code, None without a lexer."""
    lexer = _lexer(language)
    if lexer is None or not code:
        return None if lexer is None else []
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


def _raw(lines: Sequence[str]) -> list[Line]:
    return [[Segment(line)] for line in lines]
