"""Parse Markdown into blocks while it arrives, and find the blocks of code in an answer."""

import re
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache, partial
from typing import NamedTuple
from unicodedata import east_asian_width

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline, emphasis, strikethrough
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from gptsh.text import VisiblePieces

# ---- markdown parser
#
# The Markdown that gptsh reads: CommonMark, tables, strikethrough, formulas as they are written;
# its code blocks.

_DEEPEST = 20  # levels; markdown-it drops deeper content
# Some lexers take quadratic time for code that they cannot read.
_LONGEST_CODE = 1 << 13  # characters of code that is highlighted
_LONGEST_LINE = 1000  # characters of one line of it
_FORMULA = re.compile(
    r"\\\([^`]{0,1000}?\\\)"
    r"|\\\[[^`]{0,1000}?\\\]"
    r"|\$\$[^`]{0,1000}?\$\$"
    r"|\$(?![\s$])[^`$]{0,1000}(?<![\s\\])\$(?![\w$])"  # not the dollars of two prices
)
# A line that begins or ends a code block, behind the marks of lists and quotes.
_FENCE = re.compile(
    r"[\s>]*+(?:(?:[-+*]|\d{1,9}[.)])\s++)*+(?P<marks>`{3,}+|~{3,}+)(?P<info>[^`]*+)"
)
_MARKDOWN = ("markdown", "md")


# ---- the parser


def parser(*disabled_rules: str) -> MarkdownIt:
    """Return a parser whose table tokens have their source as content.

    Link definitions are text, since they may arrive too late.
    """
    markdown = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("strikethrough")
    markdown.disable(["reference", *disabled_rules])
    # Directly before paragraphs: what begins a heading or an item is not the head of a table.
    markdown.block.ruler.before("lheading", "grid", _table, {"alt": ["paragraph"]})
    markdown.inline.ruler.before("escape", "formula", _formula)
    markdown.inline.ruler.at("emphasis", partial(_emphasis, emphasis.tokenize))
    markdown.inline.ruler.at("strikethrough", partial(_emphasis, strikethrough.tokenize))
    return markdown


# Creating a parser takes longer than parsing a message.
_whole_parser = cache(parser)
_outline_parser = cache(partial(parser, "inline"))  # leaves what is inside lines unparsed


def parse(markdown: MarkdownIt, text: str) -> list[Token]:
    """Return the tokens of a text; none if it is nested too deeply to be read as Markdown."""
    try:
        tokens = markdown.parse(text)
    except RecursionError:  # images within images
        return []
    return [] if any(token.level >= _DEEPEST - 1 for token in tokens) else tokens


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table and keep its source; as a ``raw`` token if a row has more cells than columns.

    Otherwise those cells would be lost.
    """
    first = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    if silent:
        return True

    opening = state.tokens[first]
    opening.content = state.getLines(start, state.line, state.blkIndent, False)
    column_count = sum(token.type == "th_open" for token in state.tokens[first:])
    if any(_has_more_cells(row, column_count) for row in opening.content.split("\n")):
        raw = Token("raw", "", 0, map=opening.map, level=opening.level, content=opening.content)
        raw.block = True
        state.tokens[first:] = [raw]
    return True


def _has_more_cells(row: str, column_count: int) -> bool:
    cells: list[str] = escapedSplit(row.strip())
    if cells[0] == "":  # before the first bar
        cells = cells[1:]
    return bool("".join(cells[column_count:]).strip())


def _formula(state: StateInline, silent: bool) -> bool:
    r"""Parse a formula as literal text: ``\(a_1\)``, ``\[ a*b*c \]``, ``$$ … $$``, ``$a*b$``."""
    formula = _FORMULA.match(state.src, state.pos, state.posMax)
    if not formula:
        return False
    if not silent:
        state.push("text", "", 0).content = formula[0]
    state.pos = formula.end()
    return True


def _emphasis(
    tokenize: Callable[[StateInline, bool], bool], state: StateInline, silent: bool
) -> bool:
    """Parse marks of emphasis. Beside a wide character, punctuation counts as a letter.

    So the marks in ``これは**「重要」**な`` are some, which CommonMark takes for text.
    """
    start = state.pos
    count = len(state.delimiters)
    if not tokenize(state, silent):
        return False
    before = state.src[start - 1 : start]
    after = state.src[state.pos : state.pos + 1]
    is_beside_wide = any(east_asian_width(char) in "WF" for char in before + after)
    if state.src[start] != "_" and is_beside_wide:
        for delimiter in state.delimiters[count:]:
            delimiter.open = bool(after.strip())
            delimiter.close = bool(before.strip())
    return True


# ---- reading


def elements_of(text: str) -> list[SyntaxTreeNode]:
    """Return the elements of a text; none if it is nested too deeply to be read as Markdown."""
    return SyntaxTreeNode(parse(_whole_parser(), text)).children


def _outline(text: str) -> list[SyntaxTreeNode]:
    """Return the elements of a text, without what is inside their lines."""
    return SyntaxTreeNode(_outline_parser().parse(text)).children


def lines_of(element: SyntaxTreeNode) -> tuple[int, int]:
    """Return the first line of an element, and the line after its last one."""
    return element.map or (0, 0)


def last_leaf(nodes: Sequence[SyntaxTreeNode]) -> SyntaxTreeNode | None:
    """Return the last element that has no others in it."""
    node = None
    while nodes:
        node = nodes[-1]
        nodes = node.children
    return node


def ends_in_code(nodes: Sequence[SyntaxTreeNode]) -> bool:
    """Return whether the last element, or what is last in it, is a fenced code block."""
    leaf = last_leaf(nodes)
    return leaf is not None and leaf.type == "fence"


def count_quick(lines: Sequence[str]) -> int:
    """Return how many of the first lines of code are short enough for any lexer."""
    total = 0
    for count, line in enumerate(lines):
        total += len(line) + 1
        if total > _LONGEST_CODE or len(line) > _LONGEST_LINE:
            return count
    return len(lines)


class CodeBlock(NamedTuple):
    """A fenced code block. ``is_cut_off``: its fence is open until the end of the text."""

    content: str
    language: str  # in lower case; "" without one
    is_cut_off: bool


def code_blocks(text: str) -> list[CodeBlock]:
    """Return the fenced code blocks, also those in lists and quotes.

    One that shows code blocks itself, such as a README, is whole, although its fence should have
    been longer than theirs.
    """
    document = SyntaxTreeNode(_outline_parser().parse(_with_longer_fences(text)))
    last = last_leaf(document.children)
    blocks = []
    for node in document.walk():
        if node.type == "fence":
            words = node.info.lower().split()
            language = words[0] if words else ""
            is_cut_off = node is last and not _has_closing_fence(node)
            blocks.append(CodeBlock(node.content, language, is_cut_off))
    return blocks


def _with_longer_fences(text: str) -> str:
    """Return a text in which each code block has a longer fence than the blocks inside it."""
    lines = text.split("\n")
    may_guess = True
    index = 0
    while index < len(lines):
        opening = _FENCE.fullmatch(lines[index])
        if opening:
            own = opening["marks"]
            guesses = may_guess and opening["info"].strip().lower() in _MARKDOWN
            inner, end = _longest_fence_inside(lines, index, own, guesses=guesses)
            if guesses and end == len(lines):  # a wrong guess has left it without an end
                may_guess = False
                inner, end = _longest_fence_inside(lines, index, own, guesses=False)
            if inner:
                _lengthen(lines, index, inner)
                if end < len(lines):
                    _lengthen(lines, end, inner)
            index = end
        index += 1
    return "\n".join(lines)


def _lengthen(lines: list[str], index: int, inner: str) -> None:
    """Make the fence in a line longer than another one."""
    mark = inner[:3]
    lines[index] = lines[index].replace(mark, inner + mark, 1)


def _longest_fence_inside(
    lines: Sequence[str], start: int, own: str, *, guesses: bool
) -> tuple[str, int]:
    """Return the longest fence that begins a block inside the one at a line, or "", and its end.

    ``own`` is the fence of the outer block. Its end is a line, or the number of lines if it has
    none. A fence with a language begins a block. One without ends the last block, but ``guesses``
    lets it begin one if text follows it directly.
    """
    longest = ""
    open_blocks: list[str] = []
    for index in range(start + 1, len(lines)):
        fence = _FENCE.fullmatch(lines[index])
        if not fence or not fence["marks"].startswith(own):
            continue
        marks = fence["marks"]
        begins = bool(fence["info"].strip())
        if guesses and not open_blocks and index + 1 < len(lines):
            begins = begins or bool(lines[index + 1].strip())
        if begins:
            longest = max(longest, marks, key=len)
            open_blocks.append(marks)
        elif not open_blocks:
            return longest, index
        elif marks.startswith(open_blocks[-1]):
            open_blocks.pop()
    return longest, len(lines)


def _has_closing_fence(fence: SyntaxTreeNode) -> bool:
    start, end = lines_of(fence)
    code_line_count = fence.content.removesuffix("\n").count("\n") + bool(fence.content)
    return end - start == code_line_count + 2


# ---- blocks
#
# A document that grows while it arrives, split into blocks that no later line can change. The last
# block is open until its own end: the end of a fence, the blank line after a paragraph. Each item
# of a list is a block.
#
# The open block is parsed and drawn again and again. One that becomes too long for that is cut:
# what follows of it is another block.

_CLOSED_BY_LAST_LINE = ("heading", "hr")
_CLOSED_BY_BLANK = ("paragraph", "table", "raw", "blockquote", "html_block")
_CODE = ("fence", "code_block")
_LISTS = ("bullet_list", "ordered_list")
_LONGEST_BLOCK = 50_000  # characters of a block that is read as Markdown
_MOST_LINES = 1_000  # of it
# The beginning of a line that may still become anything: it has only marks, or opens a code block.
_UNCLEAR = re.compile(
    r"[\s>]*+(([-+*]|\d{1,9}[.)])\s++)*+([-+*=_#|:`~\s]*|\d{1,9}[.)]?|(`{3}|~{3}).*)"
)


class Block(NamedTuple):
    """A block at the top level, or one item of a list there. Unless it is open, it is final."""

    elements: list[SyntaxTreeNode]  # none if it is plain: nested too deeply, or too long
    lines: list[str]  # its source; the maps of the elements count in these
    is_spaced: bool  # a blank line belongs before it
    is_open: bool = False


class Blocks:
    """A growing document. ``take_closed`` and ``finish`` return each block once, when it is closed."""

    def __init__(self) -> None:
        self._pieces = VisiblePieces()
        self._source = ""  # what is not closed, with control characters made visible
        self._before = ""  # the line before it
        self._in_list = False  # it continues a list, or a block that was cut

    def add(self, text: str) -> None:
        """Add a piece of the document."""
        self._source += self._pieces.visible(text)

    def take_closed(self) -> list[Block]:
        """Close and return the blocks that no later line can change."""
        blocks = self._take(is_final=False)
        complete, _, last_line = self._source.rpartition("\n")
        if _is_too_long(complete):
            blocks.append(self._cut(len(complete)))
        elif _is_too_long(last_line):
            line_start = len(self._source) - len(last_line)
            last_space = self._source.rfind(" ", line_start)
            blocks.append(self._cut(last_space + 1 or len(self._source)))
        return blocks

    def finish(self) -> list[Block]:
        """Close and return all blocks."""
        blocks = self._take(is_final=True)
        self._source = ""
        return blocks

    def open_blocks(self) -> list[Block]:
        """Return the open blocks as if the document ended here; of code only complete lines."""
        last_line = self._source.rpartition("\n")[2]
        complete = self._source.removesuffix(last_line)
        document = copy(self)  # nothing is closed here
        if ends_in_code(_outline(complete)) or _UNCLEAR.fullmatch(last_line):
            document._source = complete  # noqa: SLF001 - a copy of this object
        blocks = document.finish()
        if blocks:
            blocks[-1] = blocks[-1]._replace(is_open=True)
        return blocks

    def _take(self, *, is_final: bool) -> list[Block]:
        """Take the blocks that are closed, all if this is the end of the document."""
        end = len(self._source) if is_final else self._source.rfind("\n") + 1
        source = self._source[:end].removesuffix("\n")
        lines = source.split("\n")
        blocks: list[Block] = []
        closed_count = 0  # lines
        elements = _outline(f"{source}\n")
        for element in elements:
            is_last = element is elements[-1]
            is_closed = is_final or not is_last or _has_ended(element, len(lines))
            for stop in _ends_of_blocks(element, is_closed=is_closed):
                is_code = element.type in _CODE
                blocks.append(self._block(lines[closed_count:stop], is_code=is_code))
                self._before = lines[stop - 1]
                self._in_list = element.type in _LISTS
                closed_count = stop
            if is_closed:
                self._in_list = False

        closed_length = sum(len(line) + 1 for line in lines[:closed_count])
        self._source = self._source[closed_length:]
        return blocks

    def _cut(self, end: int) -> Block:
        """Close the open block at a position of the source. Code goes on with its fence."""
        text = self._source[:end]
        rest = self._source[end:].removeprefix("\n")
        lines = text.split("\n")
        elements = _outline(text)
        is_code = bool(elements) and elements[0].type in _CODE
        block = self._block(lines, is_code=is_code)
        self._before = lines[-1]
        last = last_leaf(elements)
        if last and last.type == "fence":
            self._before = lines[lines_of(last)[0]]
            rest = f"{self._before}\n{rest}"
        self._source = rest
        self._in_list = True
        return block

    def _block(self, lines: list[str], *, is_code: bool) -> Block:
        """Return the block of these lines; code is read as Markdown however long it is."""
        source = "\n".join([*lines, ""])
        is_plain = _is_too_long(source) and not is_code
        elements = [] if is_plain else elements_of(source)
        continues_list = self._in_list and bool(self._before.strip())
        return Block(elements, lines, is_spaced=not continues_list)


def _is_too_long(source: str) -> bool:
    return len(source) > _LONGEST_BLOCK or source.count("\n") > _MOST_LINES


def _ends_of_blocks(element: SyntaxTreeNode, *, is_closed: bool) -> list[int]:
    """Return the line after each block of an element that is closed: each item of a list is one."""
    ends = []
    if element.type in _LISTS:  # each item ends where the next one begins
        for item in element.children[1:]:
            ends.append(lines_of(item)[0])
    if is_closed:
        ends.append(lines_of(element)[1])
    return ends


def _has_ended(top: SyntaxTreeNode, line_count: int) -> bool:
    """Return whether the last block of so many lines is complete."""
    if top.type == "fence":
        return _has_closing_fence(top)
    if top.type in _CLOSED_BY_BLANK:
        return lines_of(top)[1] < line_count
    return top.type in _CLOSED_BY_LAST_LINE
