"""Markdown on a terminal: what each kind of block looks like, when it is out, and that nothing in it is obeyed."""

import json
import re
import shlex
import threading
from collections.abc import Iterator
from itertools import cycle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gptsh.messages import Event, Finished, Reasoning, Text
from gptsh.render.drawing import Canvas
from gptsh.render.painter import Painter
from gptsh.render.writer import ReasoningStream
from gptsh.terminal.stdio import TerminalStyle
from tests.support.emulator import DOCUMENTS, emulate
from tests.support.home import COMMAND, Home
from tests.support.server import ModelServer, answer, chunk, event
from tests.support.terminal import Terminal

PLAIN = TerminalStyle(styles=False, colors=False)
BOLD = TerminalStyle(styles=True, colors=False)
COLORED = TerminalStyle(styles=True, colors=True)
SGR = re.compile(r"\x1b\[[0-9;]*m")
OURS = re.compile(r"\r?\x1b\[(\?(7|2026)[hl]|[0-9;]*[mAJK])")
CONTROLS = {
    *map(chr, range(0x20)),
    "\x7f",
    *map(chr, range(0x80, 0xA0)),
    *"\u202a\u202e\u2066\u2069",
} - {"\n", "\t"}


class Paper:
    """A sink that keeps what is written, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def write(self, text: str) -> None:
        self.pieces.append(text)

    draw = write

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def canvas(paper: Paper, how: TerminalStyle = PLAIN, width: int = 60) -> Canvas:
    return Canvas(paper, how, lambda: (width, 24), None)


def rendered(*pieces: str, how: TerminalStyle = PLAIN, width: int = 60) -> str:
    paper = Paper()
    shown = canvas(paper, how, width)
    for piece in pieces:
        shown.add(piece)
        shown.draw()
    shown.finish()
    return paper.text


def cut(text: str, sizes: list[int]) -> Iterator[str]:
    for size in cycle(sizes):
        if not text:
            return
        yield text[:size]
        text = text[size:]


# ---- what a block looks like

BLOCKS = {
    "heading": ("# One\n## Two ##\nThree\n---\n", "One\n\nTwo\n\nThree\n"),
    "paragraph": ("a *b* **c** ~~d~~ __e__\n", "a b c d e\n"),
    "long paragraph": ("word " * 9, "word word word word\nword word word word\nword\n"),
    "long word": ("x" * 45, f"{'x' * 20}\n{'x' * 20}\nxxxxx\n"),
    "a long URL is one": ("- see http://a.b/" + "x" * 20 + " it", " • see\n   http://a.b/" + "x" * 20 + "\n   it\n"),
    "emphasis beside wide punctuation": ("これは**「x」**な*\uff08y\uff09*", "これは「x」な\uff08y\uff09\n"),
    "deleted text beside it": ("これは~~「x」~~な", "これは「x」な\n"),
    "wide letters": ("漢字" * 8, f"{'漢字' * 5}\n{'漢字' * 3}\n"),
    "line ends": ("a\nb  \nc\\\nd\r\ne", "a\nb\nc\nd\ne\n"),
    "inline code": ("run `rm *x*`", "run `rm *x*`\n"),
    "rule": ("a\n\n***\nb", f"a\n\n{'─' * 20}\n\nb\n"),
    "bullets": ("- a\n- b\n  c\n+ d", " • a\n • b\n   c\n\n • d\n"),
    "loose list": ("- a\n\n- b\n\n  c\n- d", " • a\n\n • b\n\n   c\n • d\n"),
    "numbers": ("9. a\n9. b\n9. c", " 9. a\n 9. b\n 9. c\n"),
    "nested list": ("1. a\n   - b\n     1. c\n2. d", " 1. a\n     • b\n        1. c\n 2. d\n"),
    "long item": ("- " + "word " * 5, " • word word word\n   word word\n"),
    "code in an item": ("- a\n  ```sh\n  ls  -l\n\n  cd\n  ```\n- b", " • a\n   ls  -l\n\n   cd\n • b\n"),
    "code in a list is not cut": ("1. a\n   ```make\n   all:\n   \tcc 'y y'  $< # z \n   ```",
                               " 1. a\n    all:\n    \tcc 'y y'  $< # z \n"),
    "tasks": ("- [ ] a\n- [x] b", " • [ ] a\n • [x] b\n"),
    "quote": ("> a\nb\n>\n> - c\n>> d", "│ a\n│ b\n│\n│  • c\n│ │ d\n"),
    "fence": ("a\n```python\nif x:\n\n\tpass \n```\nb", "a\n\nif x:\n\n\tpass \n\nb\n"),
    "long code": ("```\n" + "x = 1; " * 9 + "\n```", "x = 1; " * 9 + "\n"),
    "open fence": ("~~~\n# x\n```\n", "# x\n```\n"),
    "unknown language": ("``` no-such {a=b}\nx\n```", "no-such {a=b}\nx\n"),
    "what follows a language": ("```bash ls -la\n```\n\n~~~ py title='x'\na\n~~~", "ls -la\n\n\ntitle='x'\na\n"),
    "indented code": ("    a\n\n      b\n\nc", "a\n\n  b\n\nc\n"),
    "table": ("|a|b|\n|:-:|-:|\n|`x`|1|\n|longer|22|", "  a       b\n───────────\n `x`      1\nlonger   22\n"),
    "line breaks in a table": ("|a|b|\n|-|-|\n|x<br>y|1<BR />2|\n", "a   b\n─────\nx   1\ny   2\n"),
    "a table in an item": ("1. |a|b|\n   |-|-|\n   |1|2|", " 1. a   b\n    ─────\n    1   2\n"),
    "a heading over a rule of bars": ("# A | B\n---|---\n", "A | B\n\n---|---\n"),
    "narrow table": ("|a|b|c|\n|-|-|-|\n|1|2|3|", "a | b | c\n1 | 2 | 3\n"),
    "html": ("a <b>b</b>\n\n<div>\nc\n</div>\n\n<!-- d -->", "a <b>b</b>\n\n<div>\nc\n</div>\n\n<!-- d -->\n"),
    "link": ("[a](http://b) <http://c>", "a (http://b)\nhttp://c\n"),
    "mail": ("<a@b.org>", "a@b.org\n"),
    "image": ("![cat](c.png) ![](d)", "cat (c.png) image\n(d)\n"),
    "definition": ("[x][r]\n\n[r]: http://r\n[q]: u", "[x][r]\n\n[r]: http://r\n[q]: u\n"),
    "definition alone": ("[Answer]: yes", "[Answer]: yes\n"),
    "formulas": ("\\(a_1*b*\\) \\[ \\frac{a}{b}\n c \\] $a*b*c$", "\\(a_1*b*\\) \\[\n\\frac{a}{b}\n c \\] $a*b*c$\n"),
    "display": ("$$\na & b \\\\ *c* \\{\n$$", "$$\na & b \\\\ *c* \\{\n$$\n"),
    "prices": ("$5 *or* $6, \\( `x`", "$5 or $6, ( `x`\n"),
    "entities": ("&copy; &amp; \\*a\\*", "© & *a*\n"),
    "nothing": (" \n\n", ""),
    "images within images": ("![" * 1500 + "x" + "](u)" * 1500, None),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block(name: str) -> None:
    source, expected = BLOCKS[name]
    shown = rendered(source, width=20)
    assert "x" in shown if expected is None else shown == expected
    assert rendered(*source, width=20) == shown


def test_styles_are_three_colours_that_are_legible_everywhere_and_no_links() -> None:
    source = '# H\n\n**b** `c` [l](http://u)\n\n- i\n\n```python\ndef f(): return "s"  # c\n```\n\n|a|\n|-|\n|1|\n'
    colored = rendered(source, how=COLORED)
    codes = {code for sequence in SGR.findall(colored) for code in sequence[2:-1].split(";")}
    assert codes - {*map(str, range(10))} == {
        "35"
    }  # the others are for errors, or illegible on white or on black
    assert "\x1b[1;4;35mH\x1b[0m" in colored
    many = rendered(source, how=COLORED._replace(many_colors=True))
    assert "\x1b[38;5;30mc\x1b[0m" in many
    assert '\x1b[38;5;28m"s"\x1b[0m' in many
    colors = re.findall(r"38;5;(\d+)|;(3\d)m|\[(3\d)m", many)
    assert {"".join(color) for color in colors} == {"28", "30", "35"}
    assert "\x1b[38;5;30mreturn" in many
    assert "\x1b]" not in colored
    assert rendered("```\nx\n```\n\n    y\n", how=COLORED) == "x\n\ny\n"
    bold = rendered(source, how=BOLD)
    assert {code for sequence in SGR.findall(bold) for code in sequence[2:-1].split(";")} <= {
        *map(str, range(10))
    }
    assert "\x1b[1mb\x1b[0m `c`" in bold  # without colours code keeps its marks
    assert SGR.sub("", bold) == rendered(source)


def test_tasks_have_boxes_where_there_are_colours() -> None:
    source = "- [ ] a\n- [x] b\n- [X] c\n- [y] d\n\n1. [x] e\n\n-     [x] code\n"
    assert (
        rendered(source, how=COLORED) == " ☐ a\n ☑ b\n ☑ c\n • [y] d\n\n 1. [x] e\n\n • [x] code\n"
    )
    assert rendered(source, how=BOLD).startswith(" • [ ] a\n • [x] b\n")


def test_no_line_ends_in_spaces() -> None:
    source = (
        "a  \nb\n\n> c\n>\n> d\n\n|a|b|\n|-|-|\n|1||\n\n- x\n-\n\n```sh\nls\n```\n" + "word " * 40
    )
    assert not re.search(r"[ \t]$", SGR.sub("", rendered(source, how=COLORED)), re.MULTILINE)


LINES = [f"word{number} of a line" for number in range(3_000)]
LONG = {  # the source, and what is shown between the first words and the last
    "a paragraph in one line": (" ".join(LINES), None),
    "a paragraph of many lines": ("\n".join(LINES), "\n".join(LINES)),
    "one word": ("x" * 200_000, None),
    "code": ("```py\n{}\n```".format("\n\n    ".join(LINES)), "\n\n    ".join(LINES)),
    "code with blanks in a long line": (f"```\n{'a b' * 50_000}\n```", None),
    "code in an item": ("- item\n\n  ```\n  {}\n  ```".format("\n  ".join(LINES)), None),
    "a quote": ("> " + "\n> ".join(LINES), "> " + "\n> ".join(LINES)),
    "a table": (
        "|a|\n|-|\n|{}|".format("|\n|".join(LINES)),
        "|a|\n|-|\n|{}|".format("|\n|".join(LINES)),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_a_block_that_is_too_long_is_plain_and_what_follows_is_not(name: str) -> None:
    source, expected = LONG[name]
    document = f"the **start**\n\n{source}\n\nthe **end**\n\n- item\n"
    shown = rendered(*cut(document, [1_000, 7, 70_000]), width=60)
    assert shown.startswith("the start\n\n")
    assert shown.endswith("\n\nthe end\n\n • item\n")
    between = shown.removeprefix("the start\n\n").removesuffix("\n\nthe end\n\n • item\n")
    if expected is not None:
        assert between == expected
    marks = str.maketrans("", "", "•-`py \n")
    assert between.translate(marks) == source.translate(marks)


# ---- when it is out


def test_items_of_a_list_are_out_one_by_one() -> None:
    paper = Paper()
    shown = canvas(paper)
    seen = []
    for line in ("1. a\n", "   b\n", "2. c\n", "\n", "3. d\n", "e\n", "\n", "f\n"):
        shown.add(line)
        shown.draw()
        seen.append(paper.text)
    assert seen == [
        "",
        "",
        *[" 1. a\n    b\n"] * 2,
        *[(two := " 1. a\n    b\n 2. c\n")] * 3,
        f"{two}\n 3. d\n    e\n",
    ]
    shown.finish()
    assert paper.text == f"{two}\n 3. d\n    e\n\nf\n"


@pytest.mark.parametrize(
    ("source", "behind"),
    [("```sh\nls\n\ncd\n", "```\n"), ("# a", "\n"), ("a\nb\n", "\n"), ("a\n", "---\n"), ("|a|\n|-|\n|b|\n", "\n"),
     ("> a\n> b\n", "\n"), ("***", "\n"), ("    a\n\n", "b\n"), ("<div>\na\n", "\n"), ("1. a\n", "- b\n")],
)  # fmt: skip
def test_a_block_is_out_when_it_is_complete_and_not_before(source: str, behind: str) -> None:
    paper = Paper()
    shown = canvas(paper)
    for char in source:
        shown.add(char)
        shown.draw()
    assert paper.pieces == []
    shown.add(behind)
    shown.draw()
    assert len(paper.pieces) == 1


@settings(max_examples=50)
@given(DOCUMENTS, st.lists(st.integers(1, 9), min_size=1), st.integers(1, 80))
@example("- a\n\n- b\n1. c\n", [1], 40)
def test_how_a_document_is_cut_up_on_its_way_changes_nothing(
    source: str, sizes: list[int], width: int
) -> None:
    assert rendered(*cut(source, sizes), width=width) == rendered(source, width=width)


MARKS = ["- ", "* ", "1. ", "> ", "\n", "\n\n", "  ", "    ", "# ", "---\n", "`", "**", "*", "~~", "|", "|-|-|\n",
         "<b>", "<div>", "</div>\n", "\\", "\n> ", "![", "](", "[", "<", ">", ")", "&amp;", "\t", "===\n", "~~~\n",
         "]: ", "\n\n[", "$", "$$", "\\(", "\\)", "~~~python ", "~~~sh\n", "1. ~~~js\n", "> ~~~yaml\n",
         "|a|\n|-|\n"]  # fmt: skip


# Q is in no language's name: what is one is not shown behind a fence.
WORDS = st.from_regex("[a-z]{0,20}Q[a-z]{0,10}[ \n]", fullmatch=True)


@given(st.lists(st.sampled_from(MARKS) | WORDS, max_size=30))
def test_no_letter_is_lost(pieces: list[str]) -> None:
    source = "".join(pieces)
    words = "".join(piece for piece in pieces if "Q" in piece)
    shown = rendered(source, width=40)
    assert all(words.count(char) <= shown.count(char) for char in set(words) - {" ", "\n"})


# ---- what comes between, behind and too late


def test_reasoning_between_parts_of_an_answer_keeps_its_place() -> None:
    paper = Paper()
    terminal = Painter(paper, ReasoningStream(paper, shared=True), PLAIN, None)
    thought = [Reasoning("so "), Reasoning("that")]
    events: list[Event] = [
        *thought,
        Text("The answer "),
        *thought,
        Text("is 42.\n\nOr"),
        *thought,
        Finished("stop"),
    ]
    for item in events:
        terminal.write(item)
    terminal.close()
    assert paper.text == "so that\n\nThe answer\n\nso that\n\nis 42.\n\nOr\n\nso that\n"


# ---- nothing is obeyed

NASTY = st.sampled_from(
    ["&#27;", "&#x9b;31m", "&#13;", "&#7;", "&#127;", "&NewLine;", "\x1b]52;c;ZXZpbA==\x07", "\x1b]8;;http://e\x1b\\x",
     "[x](http://a/%1b[31m)", "[x](<http://a/\x1b[31m>)", "<http://a/%1b%9b%0d>", "[x](y '&#27;[2J')", "\x1bP1$r\x1b\\",
     "```\n\x1b[2J\n```\n", "```\x1b[31m\nx\n```\n", "~~~py\n'\x9b2J\r'\n~~~\n", "![\x1b](\x07)", "![&#27;](%1b)",
     "|\x1b|\n|-|\n|&#27;|\n", "`\x1b`", "<b \x1b>", "<div \x1b[2J>\n", "\r", "\r\n", "\x00", "\x0b", "\x0c", "\x85",
     "[&#27;]: http://&#27; '&#27;'\n", "[&#27;]", "\\\x1b", "# \x1b\n", "- \x9b\n", "> \x08\n", "\x1b[", "31m"]
)  # fmt: skip
EVIL = st.lists(
    NASTY | st.text(st.sampled_from(sorted(CONTROLS)) | st.characters(), max_size=6), max_size=20
)


@settings(max_examples=100)
@given(EVIL.map("".join), st.integers(1, 80))
def test_no_control_character_is_drawn(source: str, width: int) -> None:
    assert not CONTROLS & set(rendered(source, width=width))
    assert not CONTROLS & set(SGR.sub("", rendered(source, how=COLORED, width=width)))


# ---- the command

SAMPLE = "# Title\n\nSome **bold** text.\n\n- one\n- two\n\n```python\nx = 'y'\n```\n"
LAYOUT = "Title\n\nSome bold text.\n\n • one\n • two\n\nx = 'y'\n"
COLORS = "\x1b[1;4;35mTitle\x1b[0m\n\nSome \x1b[1mbold\x1b[0m text.\n\n • one\n • two\n\nx = 'y'\n"
STYLES = COLORS.replace(";35m", "m")
MANY_COLORS = COLORS.replace("'y'", "\x1b[38;5;28m'y'\x1b[0m")
EVIL_SAID, EVIL_SHOWN = "a\x1b[2J\x9b31m&#27;]0;x\x07", "a␛[2J\\x9b31m\ufffd]0;x␇\n"
THOUGHT = ("I think", "\nso")
NUMBER = '{"type":"object","required":["n"]}'
SEEN: dict[str, tuple[list[str], dict[str, str], str, tuple[str, ...], str]] = {  # options, environment, said, thought
    "colours": ([], {}, SAMPLE, (), COLORS),
    "256 colours": ([], {"TERM": "xterm-256color"}, SAMPLE, (), MANY_COLORS),
    "256 colours of a terminal with all": ([], {"COLORTERM": "truecolor"}, SAMPLE, (), MANY_COLORS),
    "no colours": ([], {"NO_COLOR": "1"}, SAMPLE, (), STYLES),
    "a dumb terminal": ([], {"TERM": "dumb"}, SAMPLE, (), LAYOUT),
    "text by an option": (["-o", "text"], {}, SAMPLE, (), SAMPLE),
    "text by the environment": ([], {"GPTSH_OUTPUT": "text"}, SAMPLE, (), SAMPLE),
    "the option before the environment": (["-o", "markdown"], {"GPTSH_OUTPUT": "text"}, SAMPLE, (), COLORS),
    "nothing is obeyed": ([], {}, EVIL_SAID, (), EVIL_SHOWN),
    "nothing is obeyed as text": (["-o", "text"], {}, EVIL_SAID.replace("&#27;", "\ufffd"), (), EVIL_SHOWN),
    "reasoning is dimmed": ([], {}, "yes", THOUGHT, "\x1b[2mI think\x1b[0m\x1b[2m\nso\x1b[0m\n\nyes\n"),
    "reasoning on a dumb terminal": ([], {"TERM": "dumb"}, "yes", THOUGHT, "I think\nso\n\nyes\n"),
    "no reasoning": (["--no-reasoning"], {}, "yes", THOUGHT, "yes\n"),
    "a block of code": (["-x"], {}, "Do:\n```sh\nls *.py\n```\nDone.", (), "ls *.py\n"),
    "a block of code as Markdown": (["-o", "markdown", "-x"], {}, "```\n*a*\n```", (), "*a*\n"),
    "an answer to a schema": (["--schema", NUMBER], {}, '```json\n{"n":1}\n```', (), '{"n":1}\n'),
}  # fmt: skip


AGAIN = ("text by the environment", "nothing is obeyed as text", "reasoning on a dumb terminal", "no reasoning",
         "a block of code as Markdown", "256 colours of a terminal with all",
         "the option before the environment")  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in AGAIN)) for name in SEEN]
)
def test_what_a_terminal_shows(lab: Home, model: ModelServer, name: str) -> None:
    args, env, said, thought, shown = SEEN[name]
    model.script(*(event(chunk({"reasoning": text})) for text in thought), *answer(*cut(said, [7])))
    seen, code = Terminal(lab, *args, "go", env=env).close()
    assert emulate(seen.decode()).cells == emulate(shown).cells
    assert code == 0
    assert env.get("TERM") != "dumb" or seen.decode().replace("\r\n", "\n") == shown
    assert lab.doc()["messages"][1]["content"] == said


EVIL_BYTES = "# a\n\x1b[31m\x9b\x07**b**\r\n"


@pytest.mark.parametrize(
    ("args", "env", "said", "printed"),
    [
        ([], {}, EVIL_BYTES, EVIL_BYTES),
        ([], {"GPTSH_OUTPUT": "markdown"}, EVIL_BYTES, EVIL_BYTES),
        ([], {"FORCE_COLOR": "1"}, EVIL_BYTES, EVIL_BYTES),
        (["-o", "markdown"], {}, SAMPLE, LAYOUT),
        (["-o", "markdown"], {"FORCE_COLOR": "1"}, SAMPLE, COLORS),
        (["-o", "markdown"], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, SAMPLE, STYLES),
        (["-o", "markdown"], {"FORCE_COLOR": "0"}, SAMPLE, LAYOUT),
        (["-o", "markdown"], {"COLUMNS": "20"}, "word " * 8, "word word word word\n" * 2),
        (["-o", "markdown"], {"COLUMNS": "wide"}, "word " * 17, "word " * 15 + "word\nword\n"),
    ],
)
def test_what_a_pipe_gets(
    lab: Home, model: ModelServer, args: list[str], env: dict[str, str], said: str, printed: str
) -> None:
    model.say(*cut(said, [9]))
    assert lab.run(*args, "go", env=env) == (printed, "", 0)


def test_names_with_escapes_are_shown_on_a_terminal(lab: Home, model: ModelServer) -> None:
    lab.run("hi", "--title", "two\n\x1b[2J\u2028lines\x9b")
    hold = threading.Event()
    model.script(hold, *answer("yes"))
    for args, shown in (
        (["-m", "lab/\x1b[31mred", "--no-save", "go"], "lab/␛[31mred"),
        (["--list-sessions"], "two ␛[2J lines\\x9b"),
        (["-f", "no\x1b]0;such\x07", "go"], "no␛]0;such␇"),
    ):
        terminal = Terminal(lab, *args)
        terminal.until(re.escape(shown).encode())
        hold.set()
        seen = terminal.close()[0].decode()
        assert len(emulate(seen).rows) == 1
        assert not CONTROLS & set(OURS.sub("", seen.replace("\r\n", "\n")))
    shown = (
        Terminal(lab, "--show-session", "0", "-o", "text", env={"PAGER": "cat"}).close()[0].decode()
    )
    assert not CONTROLS & set(shown.replace("\r\n", "\n"))


def test_a_terminal_is_not_read_as_stdin(lab: Home, model: ModelServer) -> None:
    assert Terminal(lab, "hello").close()[1] == 0
    assert model.sent[0]["messages"][-1]["content"] == "hello"
    seen, code = Terminal(lab).close()
    assert code == 2
    assert b"no prompt" in seen


@pytest.mark.slow
def test_no_line_of_the_spinner_wraps(lab: Home, model: ModelServer) -> None:
    said = "请求过于频繁" * 9 + "\ta\tb"
    model.refuse(429, {"error": {"message": said}}, {"Retry-After": "1"})
    terminal = Terminal(lab, "-m", "lab/a\n\tb", "hello")
    terminal.resize(40)
    seen, code = terminal.close()
    frames = seen.decode().split("\r\x1b[K")
    assert code == 0
    assert any(said[:2] in frame for frame in frames)
    for frame in (OURS.sub("", frame) for frame in frames[:-1]):
        assert len(frame) + len(re.findall("[\u3000-\u9fff]", frame)) < 40
        assert not set(frame) & {"\t", "\n", "␊"}


def test_the_last_block_is_out_when_the_answer_is_whole_whatever_still_comes(
    lab: Home, model: ModelServer
) -> None:
    hold = threading.Event()
    model.script(*answer("one\n\ntwo", usage=None)[:-1], hold)
    terminal = Terminal(lab, "go")
    terminal.until(rb"two", seconds=8)
    hold.set()
    assert terminal.close()[1] == 0


@pytest.mark.parametrize("code", ["java\n" + "the quick brown fox jumps over the lazy dog\n" * 1400,
                                  f"make\n{'x' * 60_000}\n"], ids=["words", "a long line"])  # fmt: skip
def test_words_in_the_wrong_language_do_not_freeze_the_end(code: str) -> None:
    """Some lexers take the square of what they cannot read; the limit is the timeout of the suite."""
    assert code.partition("\n")[2] in rendered(f"intro\n\n```{code}```\n")


@pytest.mark.slow
@pytest.mark.parametrize("piped", [False, True])
def test_a_long_import_shows_a_bar_which_leaves_nothing(home: Home, piped: bool) -> None:
    path = home.cwd / "conversations.json"
    chats = []
    for at in range(4000):
        node = {
            "message": {
                "id": f"q{at}",
                "author": {"role": "user"},
                "content": {"parts": ["word " * 200]},
            }
        }
        chats.append({"conversation_id": f"c{at}", "mapping": {"n": node}, "current_node": "n"})
    path.write_text(json.dumps(chats))
    command = ["sh", "-c", f"{shlex.join(COMMAND)} --import-session {path}" + " > out" * piped]
    terminal = Terminal(home, command=command, env={"NO_COLOR": "1"}, columns=60)
    seen = terminal.until(rb"\[#+-*\] [0-9]+%, [0-9,]+ sessions")
    assert b"100%" not in seen
    seen, code = terminal.close()
    *_, last = seen.replace(b"\r\n", b"\n").splitlines()
    assert last.rpartition(b"\x1b[K")[2] == b"gptsh: 4,000 sessions: 4,000 imported"
    assert code == 0
    lines = (home.cwd / "out").read_bytes() if piped else seen
    assert len(re.findall(rb"(?m)^(?:\r\x1b\[K)*(?:.*\x1b\[K)?imported ", lines)) == 4000
