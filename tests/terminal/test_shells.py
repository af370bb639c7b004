"""``--shell-integration``: Alt-E in real shells, typed in tmux; the words on the line become a command, or stay."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.home import Home, wait_until
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer, answer

# How each shell is started with the file ``.zshrc`` of the home alone, and what sets its prompt.
STARTS = {
    "bash": ("bash --rcfile ~/.zshrc -i", "PS1='> '\n"),
    "zsh": ("zsh -d -i", "PS1='> '\n"),
    "fish": (
        "fish --no-config -i -C 'source ~/.zshrc'",
        "function fish_prompt; echo -n '> '; end\n",
    ),
}
each_shell = pytest.mark.parametrize("shell", STARTS)


def start(home: Home, shell: str) -> Tmux:
    """The shell in tmux, with the binding."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    command, prompt = STARTS[shell]
    (home.folder / ".zshrc").write_text(prompt + home.run("--shell-integration", shell).stdout)
    path = f"{Path(sys.executable).parent}:{home.env['PATH']}"
    screen = Tmux(home, env={"PATH": path, "INPUTRC": "/dev/null"}, shell=command)
    screen.until("^> ?$")
    return screen


@needs_tmux
@each_shell
def test_a_wish_becomes_one_command_that_is_not_run_and_can_be_edited(
    lab: Home, model: ModelServer, shell: str
) -> None:
    model.say("Sure:\n```sh\necho one | tr -d o\n```\n", model="m")
    with start(lab, shell) as screen:
        screen.write("remove the o's -- please")
        screen.keys("M-e")
        screen.until(r"^> echo one \| tr -d o$")
        screen.say(" | tr n N")
        screen.until("^Ne$")
        system, question = model.sent[0]["messages"]
        assert f"a {shell} command line on {os.uname().sysname}" in system["content"]
        assert question["content"] == "remove the o's -- please"
        assert lab.files() == []


@needs_tmux
@each_shell
def test_after_an_error_one_line_is_shown_and_the_words_stay(
    lab: Home, model: ModelServer, shell: str
) -> None:
    model.refuse(401, {"error": {"message": "no"}}, model="m")
    model.say("true", model="m")
    with start(lab, shell) as screen:
        screen.write("a wish")
        screen.keys("M-e")
        screen.until(r"^gptsh: .* refused (.*\n)+> a wish$")
        assert screen.screen().count("gptsh: ") == 1
        screen.keys("M-e")
        screen.until(r"^> true$")


@needs_tmux
@each_shell
def test_ctrl_c_ends_the_request_and_the_words_stay(
    lab: Home, model: ModelServer, shell: str
) -> None:
    never = threading.Event()
    model.script(never, *answer("x"), model="m")
    model.say("echo again", model="m")
    with start(lab, shell) as screen:
        screen.write("a wish")
        screen.keys("M-e")
        wait_until(lambda: model.sent)
        screen.keys("C-c")
        screen.until(r"^> a wish$(?!\n> a wish)")
        screen.write(", once more")
        screen.until(r"^> a wish, once more$")
        screen.keys("M-e")
        screen.until(r"^> echo again$")
        assert [sent["messages"][-1]["content"] for sent in model.sent] == [
            "a wish",
            "a wish, once more",
        ]
        screen.keys("C-c")  # as ever
        screen.until(r"^> ?\n*\Z")
    never.set()


def test_a_configured_agent_answers_and_keeps_the_built_in_prompt_if_it_has_none(
    lab: Home, model: ModelServer
) -> None:
    config = lab.config.read_text()
    for table, expected in (
        ('[agents.shell]\nmodel = "lab/other"\n', "a fish command line"),
        ('[agents.shell]\nsystem = "Mine."\n', "Mine."),
        ('[agents.shell]\nsystem = ""\n', None),
    ):
        lab.configure(config + table)
        lab.run("-a", "shell", "--no-save", "x", env={"SHELL": "/usr/bin/fish"})
        first = model.sent[-1]["messages"][0]
        assert expected in first["content"] if expected else first["role"] == "user"
    assert [sent["model"] for sent in model.sent] == ["other", "m", "m"]


@each_shell
def test_the_script_is_short_and_of_its_shell(home: Home, shell: str) -> None:
    script = home.run("--shell-integration", shell)
    assert script.code == 0
    assert script.stderr == ""
    assert 10 < len(script.stdout.splitlines()) < 25
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script.stdout.encode(), check=True)
    assert home.run("--shell-integration", "tcsh").code == 2


EVIL = "\x1b]52;c;eA==\x07a\x9b31m\u202eb\u2066c\x7fd\x85e é€→\u200d \U0001f600\xa0ä"


@needs_tmux
@each_shell
def test_no_control_character_reaches_the_line(lab: Home, model: ModelServer, shell: str) -> None:
    """Of the answer: an operating system command, C1 and bidirectional controls; letters beside them stay."""
    model.say(f"```sh\nprintf %s '{EVIL}'\n```\n", model="m")
    with start(lab, shell) as screen:
        screen.write("a wish")
        screen.keys("M-e")
        screen.until("^> printf ")
        screen.say(" > line; echo done")
        screen.until("^done$")
    assert (lab.cwd / "line").read_text() == "]52;c;eA==a31mbcde é€→\u200d \U0001f600\xa0ä"


@pytest.mark.slow
@needs_tmux
@each_shell
def test_behind_a_completed_name_its_value_can_be_typed_at_once(home: Home, shell: str) -> None:
    with start(home, shell) as screen:
        load = {"zsh": "autoload -U compinit; compinit -u -d .dump; "}.get(shell, "")
        script = home.run(env={"_GPTSH_COMPLETE": f"{shell}_source"}).stdout
        (home.cwd / ".complete").write_text(script)
        screen.say(f"{load}. ./.complete; echo re''ady")
        screen.until("^ready")
        screen.write("gptsh -p temp")
        screen.keys("Tab")
        screen.until("temperature=")
        screen.write("0 --agen")
        screen.keys("Tab")
        screen.until("--agent")
        screen.write("def")
        screen.keys("Tab")
        screen.until("default")
        screen.write("x")
        screen.until("^> gptsh -p temperature=0 --agent default x")
