"""The prompt of a conversation: real keys, in tmux and on a pseudo-terminal."""

import json
import os
import re
import shlex
import signal
from pathlib import Path

import pytest

from tests.support.home import COMMAND, Home, texts
from tests.support.screens import Tmux, needs_tmux
from tests.support.terminal import Terminal

PROMPT = r"^> *$"


def typed(home: Home) -> list[str]:
    """What was kept of what was typed."""
    path = home.state / "typed.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def asked(home: Home) -> list[str]:
    """The questions of the only session."""
    return [line.removeprefix("user: ") for line in texts(home.doc()) if line.startswith("user: ")]


def prompt(home: Home, *args: str, ignored: tuple[int, ...] = (), **env: str) -> Terminal:
    """A conversation with echo on a pseudo-terminal, its prompt ready."""
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in ignored}
    try:
        terminal = Terminal(home, "-i", "-m", "echo", *args, env=env)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    terminal.until(b"> " if env.get("TERM") == "dumb" else b"echo")
    return terminal


@needs_tmux
def test_lines_of_several_lines_come_by_paste_by_alt_enter_and_by_a_backslash(home: Home) -> None:
    with Tmux(home, "-i", "-m", "echo") as tmux:
        tmux.until(PROMPT)
        tmux.paste("one\n\ttwo\nthree\n")
        tmux.until("^  three *$")
        tmux.keys("Enter")
        tmux.until("^three$")
        tmux.until(PROMPT)
        tmux.write("four")
        tmux.keys("M-Enter")
        tmux.write("five\\")
        tmux.keys("Enter")
        tmux.write("six\\\\")
        tmux.until(r"^> four *\n  five *\n  six\\\\")
        tmux.keys("Enter")
        tmux.until(r"You said: four\nfive")
        assert asked(home) == ["one\n\ttwo\nthree", "four\nfive\nsix\\\\"]
        tmux.until(PROMPT)
        tmux.keys("Up")
        tmux.until(r"^> four *\n  five *\n  six")


@pytest.mark.slow
@needs_tmux
def test_a_paste_of_ten_thousand_lines_is_one_message(home: Home) -> None:
    text = "\n".join(f"line {number} of a log that somebody wants to have explained" for number in range(10_000))
    with Tmux(home, "-i", "-m", "echo", size=(40, 12)) as tmux:
        tmux.until(PROMPT)
        tmux.paste(text)
        tmux.until("line 9999")
        tmux.write(" and so on")
        tmux.until("and so on")
        tmux.keys("Enter")
        tmux.until(PROMPT)
    assert asked(home) == [f"{text} and so on"]
    assert typed(home) == []  # beyond what is kept of an entry


@needs_tmux
def test_the_users_editor_changes_the_line_and_sends_nothing(home: Home) -> None:
    script = home.folder / "my editor"
    script.write_text('#!/bin/sh\nls "$(dirname "$2")" > "$1"\nsed -i "s/one/ONE/" "$2"\nprintf "two\\n" >> "$2"\n')
    script.chmod(0o755)
    seen = home.folder / "seen"
    editors = {"VISUAL": f"'{script}' {seen}", "EDITOR": "false"}
    with Tmux(home, "-i", "-m", "echo", env=editors) as tmux:
        tmux.until(PROMPT)
        tmux.write("one")
        tmux.keys("C-x", "C-e")
        tmux.until(r"^> ONE *\n  two$")
        tmux.write("!")
        tmux.until("two!")
        assert home.files() == []
        tmux.keys("Enter")
        tmux.until("You said: ONE")
        tmux.until(PROMPT)
    assert asked(home) == ["ONE\ntwo!"]
    assert seen.read_text() == "message.md\n"


@needs_tmux
def test_an_editor_that_fails_leaves_the_line(home: Home) -> None:
    with Tmux(home, "-i", "-m", "echo", env={"VISUAL": "", "EDITOR": "no-such-editor"}) as tmux:
        tmux.until(PROMPT)
        tmux.write("as it was")
        tmux.keys("C-x", "C-e")
        seen = tmux.until("no-such-editor failed")
        tmux.write(", still")
        tmux.until("as it was, still")
        assert "Traceback" not in seen
        assert "ENTER" not in seen


@needs_tmux
def test_ctrl_c_and_sigint_clear_the_line_and_ctrl_d_leaves(home: Home) -> None:
    with Tmux(home, "-i", "-m", "echo") as tmux:
        tmux.until(PROMPT)
        tmux.write("given up")
        tmux.until("given up")
        tmux.keys("C-c")
        tmux.until(PROMPT)
        tmux.write("from outside")
        tmux.until("from outside")
        for _ in range(3):
            os.kill(tmux.pid, signal.SIGINT)
        tmux.until(rf"from outside\n{PROMPT[1:]}")
        tmux.say("sent")
        tmux.until("You said: sent")
        tmux.until(PROMPT)
        tmux.keys("C-d")
        assert tmux.code() == 0
    assert asked(home) == typed(home) == ["sent"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_prompt_and_what_was_typed_is_kept(home: Home, signum: int) -> None:
    terminal = prompt(home)
    terminal.write("not sent\x1b\rbut dear")
    terminal.until(b"but dear")
    os.kill(terminal.pid, signum)
    seen, code = terminal.close()
    assert code == 128 + signum
    assert b"Traceback" not in seen
    assert typed(home) == ["not sent\nbut dear"]


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,)], ids=["told", "not told"])
def test_a_terminal_that_goes_away_ends_the_prompt(home: Home, ignored: tuple[int, ...]) -> None:
    terminal = prompt(home, ignored=ignored)
    terminal.write("not sent")
    terminal.until(b"not sent")
    os.close(terminal.fd)
    code = os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
    assert code == (0 if ignored else -signal.SIGHUP)
    assert typed(home) == ["not sent"]


def test_ctrl_z_suspends_and_the_line_comes_back(home: Home) -> None:
    shell = Terminal(home, command=["bash", "--norc", "--noprofile", "-i"], env={"PS1": "shell: "})
    shell.until(b"shell: ")
    shell.write(f"{shlex.join(COMMAND)} -i -m echo\n")
    shell.until(b"new session . echo|new session .. echo")
    shell.write("half a ")
    shell.until(b"half a")
    shell.write("\x1a")
    shell.until(b"Stopped")
    shell.seen = b""
    shell.write("fg\n")
    shell.until(b"half a")
    shell.write("line\r")
    shell.until(b"You said: half a line")
    shell.until(b"You said: half a line(.|\n)*echo")
    shell.write("\x04")
    shell.until(b"is kept")
    shell.write("exit\n")
    assert b"ENTER" not in shell.close()[0]
    assert asked(home) == ["half a line"]


@pytest.mark.slow
@needs_tmux
def test_what_was_typed_comes_back_in_another_conversation(home: Home) -> None:
    with Tmux(home, "-i", "-m", "echo") as tmux:
        for line in ("bread and butter", "salt", "salt", "/help new"):
            tmux.until(PROMPT)
            tmux.say(line)
        tmux.until("Start a new session")
    assert typed(home) == ["bread and butter", "salt", "/help new"]
    assert oct((home.state / "typed.jsonl").stat().st_mode & 0o777) == "0o600"
    with Tmux(home, "-i", "-m", "echo", "--no-save") as tmux:
        tmux.until("not saved")
        tmux.keys("Up")
        tmux.until("^> /help new")
        tmux.keys("Up")
        tmux.until("^> salt")
        tmux.keys("C-c")
        tmux.until(PROMPT)
        tmux.keys("C-r")
        tmux.write("and bu")
        tmux.until("bread and butter")
        tmux.keys("Enter")
        tmux.until("> bread and butter")
        tmux.write("!")
        tmux.keys("C-c")
        tmux.until(PROMPT)
        tmux.say("nowhere")
        tmux.until("You said: nowhere")
    assert typed(home)[-1] == "/help new"


def test_a_history_that_cannot_be_kept_is_one_note(home: Home) -> None:
    (home.state / "typed.jsonl").mkdir(parents=True)
    terminal = prompt(home)
    for line in (b"one", b"two"):
        terminal.write(f"{line.decode()}\r")
        terminal.until(b"You said: " + line)
        terminal.until(rb"You said: " + line + rb"(.|\n)*echo")
    terminal.write("\x04")
    seen, code = terminal.close()
    assert code == 0
    assert seen.count(b"typed.jsonl: Is a directory") == 1
    assert asked(home) == ["one", "two"]


@needs_tmux
def test_commands_and_what_stands_behind_them_are_completed(home: Home) -> None:
    with Tmux(home, "-i", "-m", "echo") as tmux:
        tmux.until(PROMPT)
        tmux.write("/he")
        tmux.until(r"^ +/help +Show the commands, or all about one\.")
        tmux.keys("Tab", "Tab")
        tmux.until(r"^> /help *$")
        tmux.until(r"^ +resume +Go on")
        tmux.write("exi")
        tmux.keys("Tab")
        tmux.until("^> /help exit$")
        tmux.keys("Enter")
        tmux.until("Leave; Ctrl-D")


@needs_tmux
def test_the_status_line_tells_session_model_tokens_and_cost(home: Home) -> None:
    home.configure('[agents.default]\nmodel = "echo"\n[sessions]\ntitles = "off"\n[agents.other]\nmodel = "gpt-4o"\n')
    home.run("--title", "Bread\x1b[31m", "hi")
    doc = home.doc()
    doc["usage"] = {"tokens": {"total": 12_800}, "cost": 0.0123}
    doc["messages"][-1]["cost"] = 0.0123
    doc["agent"] = {"name": "other", "model": "gpt-4o"}
    doc["provider"] = {"name": "openai"}
    Path(home.files()[0]).write_text(json.dumps(doc))
    key = {"OPENAI_API_KEY": "sk-none"}
    with Tmux(home, "-i", "-s", doc["id"], env=key, size=(100, 10)) as tmux:
        tmux.until(rf"^{doc['id']} Bread␛\[31m · openai/gpt-4o · 12,800 of 128,000 tokens, 10 % · 0\.0123 USD$")
        tmux.resize(40, 10)
        tmux.until(rf"^{doc['id']} · openai/gpt-4o · 10 % · 0\.0123 USD$")
    with Tmux(home, "-i", "-s", doc["id"], env={**key, "NO_COLOR": "1"}) as tmux:
        tmux.until("10 %")
        assert not re.search(r"\x1b\[[0-9;]*[349][0-8]", tmux.screen(styles=True))


def test_a_dumb_terminal_gets_a_plain_prompt(home: Home) -> None:
    terminal = prompt(home, TERM="dumb")
    terminal.write("one\\\n")
    terminal.until(rb"\n  $")
    terminal.write("two\n")
    terminal.until(rb"You said: one\r\ntwo\r\n\r\n> ")
    terminal.write("given up\x03")
    terminal.until(rb"\^C\r\n> ")
    terminal.write("\x04")
    seen, code = terminal.close()
    assert code == 0
    assert b"\x1b" not in seen
    assert asked(home) == typed(home) == ["one\ntwo"]


def test_a_signal_ends_a_plain_prompt(home: Home) -> None:
    terminal = prompt(home, TERM="dumb")
    terminal.write("half\\\n")
    terminal.until(rb"\n  $")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.close()[1] == 143
    assert typed(home) == ["half"]
