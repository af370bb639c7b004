"""An answer as it is written: what a terminal shows at every moment, against the same answer drawn whole."""

import contextlib
import re
import resource
import termios
import threading
import time
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.render.drawing import Canvas
from gptsh.render.live import Region
from gptsh.terminal.stdio import TerminalStyle
from tests.support.emulator import DOCUMENTS, Emulator, emulate
from tests.support.home import Home, wait_until
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import Hold, ModelServer, answer
from tests.support.terminal import Terminal

BOLD = TerminalStyle(styles=True, colors=False)


def canvas(emulator: Emulator, *, live: bool) -> Canvas:
    return Canvas(emulator, BOLD, lambda: emulator.size, Region() if live else None)


# ---- what is drawn

LINES = st.sampled_from(
    [
        "x = 1",
        "",
        f"# {'漢字' * 30}",
        "\ty('a')",
        '"""',
        "👩‍👩‍👧⚠️1️⃣" * 9,
        "- item",
        "> quote",
        "| a | b |",
    ]
)
CODE = st.lists(LINES, max_size=40).map("\n".join).map("```py\n{}\n```\n".format)
SOURCES = st.lists(DOCUMENTS | CODE, max_size=4).map("".join)


@settings(max_examples=40)
@given(SOURCES, st.lists(st.integers(1, 60), min_size=1), st.integers(20, 120), st.integers(5, 40))
def test_what_left_the_screen_is_final_and_in_the_end_all_is_as_if_drawn_whole(
    source: str, sizes: list[int], columns: int, rows: int
) -> None:
    whole = Emulator(columns, rows)
    emulator = Emulator(columns, rows)
    once = canvas(whole, live=False)
    live = canvas(emulator, live=True)
    once.add(source)
    once.finish()
    final = whole.all_rows
    at = 0
    seen = 0
    for size in cycle(sizes):
        live.add(source[at : at + size])
        live.draw()
        gone = emulator.scrollback(seen)
        assert gone == final[seen : seen + len(gone)]
        at = at + size
        seen = seen + len(gone)
        if at >= len(source):
            break
    live.finish()
    assert emulator.rows == whole.rows
    if "```" not in source:  # of code that left the screen the colours may have become others
        assert emulator.cells[: len(whole.rows)] == whole.cells[: len(whole.rows)]


TABLE = "| a | b |\n|---|---|\n| long | 1 |\n"
STAGES = {
    "a paragraph": ("Some **bo", ["Some **bo"], "ld** words", ["Some bold words"]),
    "marks that may become anything": ("Steps:\n-", ["Steps:"], " one", ["Steps:", "", " • one"]),
    "an item": ("1. a\n2", [" 1. a"], ". b `c", [" 1. a", " 2. b `c"]),
    "a quote": ("> a\n> b c", ["│ a", "│ b c"], "\n\nd", ["│ a", "│ b c", "", "d"]),
    "code, line by line": ("```py\nx = 1\ny =", ["x = 1"], " 2\n", ["x = 1", "y = 2"]),
    "code in an item": ("- a\n  ```\n  x\n  yy", [" • a", "   x"], "\n  ```", [" • a", "   x", "   yy"]),
    "a fence that opens": ("a\n\n```pyth", ["a"], "on\nx\n", ["a", "", "x"]),
    "a table": (TABLE, TABLE.splitlines(), "\n", ["a      b", "────────", "long   1"]),
    "wide letters": ("漢字" * 8, ["漢字" * 5, "漢字" * 3], "漢", ["漢字" * 5, "漢字" * 3 + "漢"]),
    "a long line of code": ("```\n" + "x" * 45, [""], "\n", ["x" * 20, "x" * 20, "xxxxx"]),
    "a paragraph taller than the screen": ("a\nb\nc\nd\ne\nf", list("cdef"), "\n\n", list("abcdef")),
    "a table taller than the screen": (f"{TABLE}| 1 |\n| 2 |\n", ["|---|---|", "| long | 1 |", "| 1 |", "| 2 |"], "\n",
                                       ["a      b", "────────", "long   1", "1", "2"]),
    "code in an item taller than the screen": ("- a\n  ```\n  b\n  c\n  d\n  e\n  f\n",
                                               [" • a", *map("   {}".format, "bcdef")],
                                               "  ```\n\nend\n", [" • a", *map("   {}".format, "bcdef"), "", "end"]),
    "code taller than the screen": ("~~~\na\nb\nc\nd\ne\nf\n", list("abcdef"), "~~~\n", list("abcdef")),
}  # fmt: skip


@pytest.mark.parametrize("name", STAGES)
def test_what_is_seen_of_a_block_that_is_open(name: str) -> None:
    first, early, more, late = STAGES[name]
    emulator = Emulator(20, 5 if "taller" in name else 20)
    live = canvas(emulator, live=True)
    for piece, shown in ((first, early), (more, late)):
        live.add(piece)
        live.draw()
        assert emulator.rows == shown


# ---- the command

SAID = "whole\n\n- one\n- **tw"


def in_mid_answer(lab: Home, model: ModelServer, *more: str) -> tuple[Terminal, threading.Event]:
    hold = model.halt(SAID, *more, after=1)
    terminal = Terminal(lab, "go", env={"TERM": "xterm-256color"})
    terminal.until(rb"\*\*tw")
    return terminal, hold


def test_words_are_seen_before_their_block_ends_and_what_is_typed_is_not(
    lab: Home, model: ModelServer
) -> None:
    terminal, hold = in_mid_answer(lab, model, "o**\n", "- three")
    modes = termios.tcgetattr(terminal.fd)
    terminal.write("ls\nsome\n" * 3)
    time.sleep(0.1)
    terminal.resize(60)
    hold.set()
    seen, code = terminal.close()
    assert code == 0
    assert emulate(seen.decode()).rows == ["whole", "", " • one", " • two", " • three"]
    assert not modes[3] & termios.ECHO


def test_of_many_words_at_once_few_frames_are_drawn(lab: Home, model: ModelServer) -> None:
    model.say(*["word "] * 2000)
    seen, code = Terminal(lab, "go").close()
    frames = seen.count(b"\x1b[?2026h")
    assert code == 0
    assert seen.count(b"\x1b[?2026l") == frames
    assert 0 < frames < 200  # twenty a second at most


def test_ctrl_c_in_mid_block_shows_what_came_once(lab: Home, model: ModelServer) -> None:
    terminal, hold = in_mid_answer(lab, model)
    terminal.write("\x03")
    seen, code = terminal.close()
    hold.set()
    *rows, note = emulate(seen.decode()).rows
    assert code == 130
    assert rows == ["whole", "", " • one", " • **tw"]
    assert note.startswith("gptsh: the partial answer is saved: ")


def test_the_deadline_is_heard_in_a_long_line_of_blanks(lab: Home, model: ModelServer) -> None:
    hold = model.halt(" " * 60_000 + "x", after=1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen, code = Terminal(lab, "--timeout", "1", "go").close()
    hold.set()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert code == 124
    assert b"timed out" in seen
    assert after.ru_utime - before.ru_utime < 5  # it was half a minute


@pytest.mark.slow
def test_ctrl_c_ends_the_drawing_of_a_long_paragraph_within_a_second(
    lab: Home, model: ModelServer
) -> None:
    hold = Hold()
    model.script(*answer("first ", *["some words in one paragraph\n" * 1_000] * 200)[:-3], hold)
    terminal = Terminal(lab, "go", env={"TERM": "xterm-256color"})
    terminal.until(b"paragraph")
    hold.reached.wait(20)
    started = time.monotonic()
    terminal.write("\x03")
    seen, code = terminal.close()
    seconds = time.monotonic() - started
    hold.set()
    assert code == 130
    assert b"gptsh: the partial answer is saved: " in seen
    assert seconds < 4  # on a machine that does other things as well; it was a minute
    reply = lab.doc()["messages"][1]
    assert reply["finish_reason"] == "interrupted"
    assert reply["content"].split()[:3] == ["first", "some", "words"]
    assert seen.rfind(b"\x1b[?7h") > seen.rfind(b"\x1b[?7l")  # the terminal wraps long lines again


SHELL = """bash --norc -ic '"$@"; echo stopped; read; fg; echo over; read' bash {}"""
BEGINNINGS = ("whole$", " • one$", " • two", " • three", "end$")


@needs_tmux
def test_a_run_that_is_stopped_leaves_whole_blocks_and_goes_on(
    lab: Home, model: ModelServer
) -> None:
    hold = model.halt(SAID, "o** " + "word " * 12 + "\n", "- three\n\nend", after=1)
    with Tmux(lab, "go", size=(60, 20), shell=SHELL) as tmux:
        tmux.until(r"^ • \*\*tw$")
        tmux.keys("C-z")
        stopped = tmux.until("^stopped")
        assert "whole" in stopped
        assert "tw" not in stopped
        tmux.keys("Enter")
        tmux.until(r"^ • \*\*tw$")
        tmux.resize(20, 20)
        hold.set()
        tmux.until("^over")
        seen = tmux.screen(history=True)
        assert [len(re.findall(f"^{start}", seen, re.MULTILINE)) for start in BEGINNINGS] == [1] * 5
        tmux.write("typed")
        tmux.until("typed")  # the terminal draws again what is typed


@needs_tmux
def test_a_screen_that_becomes_smaller_keeps_each_line_of_code_once(
    lab: Home, model: ModelServer
) -> None:
    holds = threading.Event(), threading.Event()
    first, *rest = answer(
        "```\n" + "".join(f"line {n}\n" for n in range(40)), "line 40\n", "```\nend"
    )[1:]
    model.script(first, holds[0], rest[0], holds[1], *rest[1:])
    with Tmux(lab, "go", size=(60, 20)) as tmux:
        wait_until(lambda: "line 0\n" in tmux.screen(history=True))
        tmux.resize(40, 8)
        holds[0].set()
        tmux.until("^line 40$")
        tmux.resize(5, 8)
        holds[1].set()
        tmux.until("^end")
        seen = "".join(tmux.screen(history=True).split())
        assert [number for number in range(41) if seen.count(f"line{number}line") != 1] == [40]


WORDS = [f"w{number}" for number in range(12)]
LENGTHS = {"shorter than the screen": " ", "taller than the screen": "  \n"}


@needs_tmux
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="tmux's defaults"),
        pytest.param({"scroll-on-clear": "off"}, id="scroll-on-clear off", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("length", LENGTHS)
def test_tmux_shows_each_word_once_wherever_the_answer_begins(
    lab: Home, model: ModelServer, length: str, options: dict[str, str]
) -> None:
    rows = (1, 5, 8)
    height = 8
    for _ in rows:
        pieces = answer(*(f"{word}{LENGTHS[length]}" for word in WORDS), "\n\nend")
        model.script(*(step for piece in pieces for step in (piece, 0.07)))
    with contextlib.ExitStack() as stack:
        for screen in [
            stack.enter_context(
                Tmux(
                    lab,
                    "go",
                    size=(60, height),
                    options=options,
                    shell=f"printf '\\033[{row}H'; {{}}; echo over",
                )
            )
            for row in rows
        ]:
            screen.until("^over")
            seen = screen.screen(history=True).partition("over")[0]
            assert seen.split() == [*WORDS, "end"]
