"""``-e``: the question is written in the user's editor."""

import re
from pathlib import Path

import pytest

from tests.support.home import Home, Result, lab_config, texts
from tests.support.server import ModelServer


def edited(home: Home, script: str, *args: str, stdin: str | None = None) -> Result:
    """A run whose editor is a shell script; ``$1`` is its file, and ``seen`` what was in it."""
    path = home.folder / "my editor"
    path.write_text(f'#!/bin/sh\ncp "$1" "{home.folder}/seen"\n{script}\n')
    path.chmod(0o755)
    env = {"VISUAL": f"'{path}'", "EDITOR": "false", "TMPDIR": str(home.folder)}
    return home.run("-e", *args, env=env, stdin=stdin)


def seen(home: Home) -> str:
    """What the editor was given."""
    return (home.folder / "seen").read_text()


def writing(text: str) -> str:
    """A script that puts a text above what is in the file."""
    return f'{{ printf "{text}"; cat "$1"; }} > "$1.new"; mv "$1.new" "$1"'


@pytest.fixture
def home(home: Home) -> Home:
    home.env["GPTSH_MODEL"] = "echo"
    return home


def test_the_question_is_what_is_above_the_line_and_the_last_answer_is_below(
    home: Home,
) -> None:
    home.run("first")
    assert edited(home, writing("# a heading\\\\nand words\\\\n"), "-s", "0") == (
        "You said: # a heading\nand words\n", "", 0,
    )  # fmt: skip
    assert re.search(
        r"(?m)\A\n\n# -+ >8 -+\n(# .*\n)+#\n# The last answer:\n#\n# You said: first\n\Z",
        seen(home),
    )
    assert texts(home.doc())[2] == "user: # a heading\nand words"
    assert not [*home.folder.glob("gptsh-*")]


def test_words_are_in_the_editor_and_piped_text_is_shown_and_sent(home: Home) -> None:
    run = edited(home, 'sed -i 1s/review/praise/ "$1"', "review", "this", stdin="line 1\nline 2\n")
    assert run == ("You said: praise this\n\nline 1\nline 2\n", "", 0)
    assert seen(home).startswith("review this\n\n# ---")
    assert seen(home).endswith("# Standard input:\n#\n# line 1\n# line 2\n")


@pytest.mark.parametrize(
    ("script", "note", "code"),
    [("true", "the question is empty, so nothing was asked", 0),
     (': > "$1"', "the question is empty, so nothing was asked", 0),
     ("exit 3", "the editor .* ended with exit status 3: set VISUAL or EDITOR", 2),
     ('rm "$1"', "the question cannot be edited: .*No such file.*", 2)],
)  # fmt: skip
def test_without_a_question_nothing_is_asked(home: Home, script: str, note: str, code: int) -> None:
    out, err, exit_code = edited(home, script, stdin="piped")
    assert out == ""
    assert exit_code == code
    assert home.files() == []
    assert re.fullmatch(f"gptsh: {note}\n", err)


def test_a_question_that_is_not_saved_is_left_in_a_file(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model))
    model.script(status=401)
    out, err, code = edited(home, writing("my words"), "--no-save", "-m", "lab/m")
    (path,) = re.findall(r"your question is in (.*)", err)
    assert out == ""
    assert code == 1
    assert Path(path).read_text() == "my words"
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_the_time_limit_does_not_count_the_writing(home: Home) -> None:
    assert edited(home, f"sleep 0.6; {writing('slow')}", "--timeout", "0.5") == (
        "You said: slow\n",
        "",
        0,
    )
