"""What the prompt and the lists do for who types: hints, words that are meant as commands, lines that fit."""

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from gptsh.cli.slash.commands import is_command, slip
from gptsh.render.columns import columns, wrapped
from gptsh.render.picked import screen, width_of
from gptsh.render.status import Status, status_line
from tests.support.home import Home, texts
from tests.support.picking import NOW, listed, row, text_of
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer, answer
from tests.support.terminal import Terminal

PROMPT = r"^> *$"


@pytest.mark.parametrize("line", ["exit", "Quit ", ":q", "help", "?", "/"])
def test_a_line_that_is_meant_as_a_command_is_no_question(line: str) -> None:
    assert slip(line)
    assert not is_command(line)
    assert slip(f" {line}") is slip(f"{line} me") is None


@given(st.text("ab é日\u0301", max_size=60), st.integers(1, 30), st.integers(0, 12))
def test_a_line_is_parted_at_blanks_alone(text: str, width: int, indent: int) -> None:
    lines = wrapped(text, width, indent)
    assert text == " ".join([lines[0], *(line[indent:] for line in lines[1:])])
    for line in lines:
        assert columns(line) <= width or " " not in line[indent:]


@pytest.mark.parametrize(
    ("width", "told"),
    [(80, "new session · echo · /help shows the commands"), (40, "new session · echo · /help"),
     (20, "new session · echo")],
)  # fmt: skip
def test_the_hint_stands_where_there_is_room(width: int, told: str) -> None:
    assert status_line(Status("new session", model="echo", hint="/help shows the commands"), width) == told


def test_models_take_what_the_titles_leave_on_every_row() -> None:
    model = "mistral/mistral-large-latest"
    rows = [row(1, "Short")._replace(model="echo"), row(2, "A Name for the New Option", days=2)._replace(model=model)]
    for width in (80, 88, 200):
        lines = [text_of(line) for line in screen(listed(*rows), (width, 10), NOW, get_cwidth, 0).lines[1:3]]
        assert lines[1].endswith(f"3 turns  {model}")
        assert lines[0].index("echo") == lines[1].index(model)
        assert {width_of(line, get_cwidth) for line in lines} == {width}
    short = [text_of(line) for line in screen(listed(rows[0]), (80, 10), NOW, get_cwidth, 0).lines]
    assert short[1].endswith("3 turns  echo")


def test_del_deletes_where_a_filter_stands() -> None:
    picking = listed(row(1))
    picking.type_in("tit")
    feet = [text_of(screen(picking, (width, 10), NOW, get_cwidth, 0).lines[-1]) for width in (80, 40, 24)]
    assert feet == [
        "↑↓ Enter resume   Del delete   Esc shows all again", "Enter resume   Del delete   Esc all",
        "Enter resume   Esc all",
    ]  # fmt: skip


@needs_tmux
def test_del_asks_about_what_a_filter_left(home: Home) -> None:
    home.run("-m", "echo", "a needle")
    with Tmux(home, "-r") as tmux:
        tmux.until("a needle")
        tmux.write("needle")
        tmux.until("^Filter: needle +1 of 1")
        tmux.keys("DC")
        tmux.until("^Delete .* a needle")
        tmux.write("y")
        tmux.keys("Enter")
        tmux.until("^deleted ")
    assert home.files() == []


@needs_tmux
def test_a_narrow_screen_gets_whole_words_and_a_low_line_that_rises(home: Home) -> None:
    with Tmux(home, "-i", "-m", "echo", size=(40, 24)) as tmux:
        tmux.until("^new session · echo · /help$")
        tmux.write("/he")
        tmux.until(r"^ /help ")
        assert "[0;2m" in tmux.screen(styles=True)
        tmux.keys("Tab", "Tab")
        tmux.write("x")
        tmux.until(r"^> /help x *\nnew session")  # where it stood before
        tmux.keys("C-u")
        tmux.say("exit")
        tmux.until("^gptsh: /exit leaves; a blank in front\nsends the line as it is$")
        tmux.until(PROMPT)
        tmux.say(" exit")
        tmux.until("^You said:  exit$")
        tmux.until(PROMPT)
        assert re.search(r"\ntokens   \d+ in all, \d in the latest\n         prompt\n", tmux.did("/session info"))
        assert '"exit"' in tmux.did("/sessions")


@pytest.mark.parametrize(("ahead", "asked"), [("\x04", ["go"]), ("half\x04", ["go"]), ("more\r\x04", ["go", "more"])])
def test_what_is_typed_while_an_answer_comes_waits_for_the_prompt(
    lab: Home, model: ModelServer, ahead: str, asked: list[str]
) -> None:
    release = threading.Event()
    start, *rest = answer("one")
    model.script(start, release, *rest)
    model.say("two")
    terminal = Terminal(lab, "-i")
    terminal.until(b"/help shows")
    terminal.write("go\r")
    terminal.until(b"waiting for lab")
    terminal.write(ahead)
    release.set()
    if ahead.startswith("half"):
        terminal.until(rb"one(.|\n)*2004h(.|\n)*half")
        terminal.write("\x15\x04")
    seen, code = terminal.close()
    assert code == 0
    assert b"is kept" in seen
    assert [line[6:] for line in texts(lab.doc()) if line.startswith("user: ")] == asked


def test_ctrl_d_is_no_at_a_question_of_a_conversation(home: Home) -> None:
    terminal = Terminal(home, "-i", "-m", "echo", "hi")
    terminal.until(b"You said: hi(.|\n)*echo")
    terminal.write("/session delete\r")
    terminal.until(rb"\[n\]o: ")
    terminal.write("\x04")
    terminal.until(rb"\[n\]o: (.|\n)*2004h(.|\n)*echo")
    terminal.write("\x04")
    assert terminal.close()[1] == 0
    assert len(home.files()) == 1


def test_a_plain_prompt_shows_what_is_to_be_typed_again(home: Home) -> None:
    terminal = Terminal(home, "-i", "-m", "echo", env={"TERM": "dumb"})
    terminal.until(b"> ")
    terminal.write("one\\\ntwo\n")
    terminal.until(b"You said: one\r\ntwo\r\n\r\n> ")
    terminal.write("/undo\n")
    terminal.until(b"to be typed again:\r\none\r\ntwo\r\n> ")
    terminal.write("\x04")
    assert terminal.close()[1] == 0


def test_what_is_pasted_while_an_answer_comes_stays_one_message(lab: Home, model: ModelServer) -> None:
    release = threading.Event()
    start, *rest = answer("one")
    model.script(start, release, *rest)
    terminal = Terminal(lab, "-i", "go")
    terminal.until(b"waiting for lab")
    terminal.write("\x1b[200~first\n/exit\nlast\x1b[201~")
    release.set()
    terminal.until(b"last")
    terminal.write("\r")
    terminal.until(b"You said: first\r\n/exit\r\nlast")
    terminal.until(rb"last(.|\n)*2004h(.|\n)*2004h")
    terminal.write("\x04")
    assert terminal.close()[1] == 0
    assert texts(lab.doc())[2] == "user: first\n/exit\nlast"
