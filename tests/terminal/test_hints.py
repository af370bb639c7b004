"""Notes about what was likely meant: a word that is an option or a file, a URL as a file, no question at all."""

import pytest

from tests.support.emulator import emulate
from tests.support.home import Home
from tests.support.server import ModelServer
from tests.support.terminal import Terminal


@pytest.mark.parametrize(
    ("typed", "option"),
    [("models", "--list-models"), ("list-sessions", "--list-sessions"), ("help", "--help"), ("usage", "--usage"),
     ("init", "--init"), ("help me", None), ("Models", None), ("file", None), ("new", None)],
)  # fmt: skip
def test_a_word_that_is_a_name_of_ours_gets_a_note_and_is_asked(
    home: Home, typed: str, option: str | None
) -> None:
    home.configure('[agents.default]\nmodel = "echo"\noutput = "text"\n')
    note = ""
    if option:
        note = (
            f"gptsh: {typed!r} is sent to the model as a question; the option is gptsh {option}\n"
        )
    assert home.run(typed) == (f"You said: {typed}\n", note, 0)
    assert home.run(typed, stdin="of this").stderr == ""  # a question about what is piped in
    assert len(home.files()) == 2


def test_a_terminal_shows_the_note_about_a_word_before_the_answer(home: Home) -> None:
    home.configure('[agents.default]\nmodel = "echo"\noutput = "text"\n')
    seen, code = Terminal(home, "models", env={"NO_COLOR": "1"}, columns=200).close()
    note = "gptsh: 'models' is sent to the model as a question; the option is gptsh --list-models"
    assert seen.decode() == f"{note}\r\nYou said: models\r\n"
    assert code == 0


def test_a_word_that_is_the_path_of_a_file_gets_a_note_and_is_asked(home: Home) -> None:
    (home.cwd / "notes.txt").write_text("some text\n")
    (home.cwd / "notes").write_text("some text\n")
    (home.config.parent / "agents").mkdir(parents=True)
    (home.config.parent / "agents" / "sum.md").write_text("Sum up: {input}\n")
    note = "gptsh: sending 'notes.txt' as text; use -f notes.txt to attach the file\n"
    assert home.run("-m", "echo", "notes.txt") == ("You said: notes.txt\n", note, 0)
    assert home.run("-m", "echo", "-a", "sum", "notes.txt").stderr == note
    for args, stdin in ((["notes"], None), (["notes.txt"], "piped"), (["read", "notes.txt"], None)):
        assert home.run("-m", "echo", *args, stdin=stdin).stderr == ""


def test_without_a_question_on_a_terminal_the_conversation_is_named(home: Home) -> None:
    seen, code = Terminal(home, "-m", "echo", env={"NO_COLOR": "1"}, columns=200).close()
    assert code == 2
    assert seen.count(b"gptsh: no prompt") == 1
    assert b"gptsh -i opens a conversation" in seen
    assert "gptsh -i" not in home.run("-m", "echo").stderr


@pytest.mark.parametrize("args", [("-c",), ("-s", "@x"), ("-s", "@x", "-o", "text")])
def test_on_a_terminal_a_session_alone_shows_its_last_answer(
    home: Home, args: tuple[str, ...]
) -> None:
    home.run("-m", "echo", "-s", "@x", "hi")
    seen, code = Terminal(home, *args).close()
    assert code == 0
    assert emulate(seen.decode()).rows[:1] == ["You said: hi"]


def test_a_parameter_that_nobody_knows_is_sent_as_it_is(lab: Home, model: ModelServer) -> None:
    for name in ("temprature", "maxTokens", "top_k", "x_own"):
        assert lab.run("-p", f"{name}=1", "hi") == ("You said: hi\n", "", 0)
        assert model.sent[-1][name] == 1


def test_a_url_in_the_place_of_a_file_gets_the_way_to_send_what_is_there(home: Home) -> None:
    run = home.run("-m", "echo", "-f", "https://example.org/a.txt", "sum it up")
    assert run.code == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert (
        "https://example.org/a.txt: No such file or directory: curl -sSL https://example.org/a.txt | gptsh"
        in run.stderr
    )
