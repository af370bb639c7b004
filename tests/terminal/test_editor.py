"""The prompt of a conversation, where the screen is the point: keys, paste, menu, sizes, and the status line."""

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from prompt_toolkit.history import FileHistory

from tests.support.home import COMMAND, Home, texts
from tests.support.programs import needs
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer, answer
from tests.support.terminal import Conversation, Terminal

PROMPT = r"^> *$"


def typed(home: Home) -> list[str]:
    """What was kept of what was typed."""
    return [*reversed([*FileHistory(home.state / "typed").load_history_strings()])]


def asked(home: Home) -> list[str]:
    """The questions of the only session."""
    return [line.removeprefix("user: ") for line in texts(home.doc()) if line.startswith("user: ")]


# ---- on a screen


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


@needs_tmux
def test_a_long_paste_is_shown_by_its_ends_and_sent_whole(home: Home) -> None:
    lines = "\n".join(f"line {number}" for number in range(1, 41))
    with Tmux(home, "-i", "-m", "echo", size=(140, 24)) as tmux:
        tmux.until(PROMPT)
        tmux.write("look: ")
        tmux.paste(f"{lines}\n")
        tmux.until(r"^> look: \[line 1 … 40 lines … line 40\] *$")
        tmux.paste(lines.replace("line", "row"))
        tmux.keys("BSpace")
        tmux.write("what is it?")
        tmux.paste(f"\t{'word ' * 1000}end")
        tmux.until(
            r"^> look: \[line 1 … 40 lines … line 40\]what is it\?\[word.*… … 1 line … .*word end\] *$"
        )
        tmux.keys("Enter")
        tmux.until(PROMPT)
    assert asked(home) == [f"look: {lines}\nwhat is it?\t{'word ' * 1000}end"]
    assert typed(home) == asked(home)


@needs_tmux
def test_the_users_editor_changes_the_line_and_one_that_fails_leaves_it(home: Home) -> None:
    script = home.folder / "my editor"
    script.write_text(
        '#!/bin/sh\nkill -INT $PPID\ngrep -q ONE "$1" && exit 3\nsed -i "s/one/ONE/" "$1"\nprintf "\\ntwo\\n" >> "$1"\n'
    )
    script.chmod(0o755)
    with Tmux(home, "-i", "-m", "echo", env={"VISUAL": f"'{script}'", "EDITOR": "false"}) as tmux:
        tmux.until(PROMPT)
        tmux.write("one")
        tmux.keys("C-x", "C-e")
        tmux.until(r"^> ONE *\n  two$")
        tmux.keys("C-x", "C-e")
        tmux.until(r"status\s+3")  # what is typed before is the editor's
        tmux.write("!")
        assert "Traceback" not in tmux.until("two!")
        assert home.files() == []
        tmux.keys("Enter")
        tmux.until("You said: ONE")
        tmux.until(PROMPT)
    assert asked(home) == ["ONE\ntwo!"]


@needs_tmux
@pytest.mark.parametrize(
    ("script", "screen", "question"),
    [("true", "^> draft *$", "draft"),
     ('rm "$1"', "^gptsh: .*No such file", "draft"), ("printf 'caf\\351' >\"$1\"", "^> caf. *$", "caf\udce9"),
     ('seq 99 >"$1"', r"^> \[1 … 99 lines … 99\]", "\n".join(map(str, range(1, 100))))],
)  # fmt: skip
def test_whatever_an_editor_leaves_the_prompt_goes_on(
    home: Home, script: str, screen: str, question: str
) -> None:
    editor = home.folder / "editor"
    editor.write_text(f"#!/bin/sh\n{script}\n")
    editor.chmod(0o755)
    with Tmux(home, "-i", "-m", "echo", env={"EDITOR": str(editor)}) as tmux:
        tmux.until(PROMPT)
        tmux.write("draft")
        tmux.keys("C-x", "C-e")
        tmux.until(screen)
        tmux.keys("Enter")
        tmux.until(PROMPT)
    assert asked(home) == [question]


@needs_tmux
def test_the_status_line_says_that_a_session_was_deleted_elsewhere(home: Home) -> None:
    with Tmux(home, "-i", "-m", "echo") as tmux:
        tmux.until(PROMPT)
        tmux.write("one\n")
        tmux.until("You said: one")
        ident = home.doc()["id"]
        tmux.until(f"^ *{ident} · ")
        assert home.run("--delete-session", ident).code == 0
        tmux.write("/help new\n")
        tmux.until(f"^ *{ident}, deleted · ")


@needs_tmux
def test_what_was_typed_comes_back_in_another_conversation(home: Home) -> None:
    with Conversation(home, "-m", "echo") as talk:
        for line in ("bread and butter", "salt", "salt", "/help new"):
            talk.does(line)
    assert typed(home) == ["bread and butter", "salt", "salt", "/help new"]
    file = home.state / "typed"
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    old = "".join(
        f"\n# 2026-01-01\n+{number:05} {'x' * 90}\n" for number in range(11_000)
    )  # more than is kept
    file.write_text(old + file.read_text())
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
    assert file.read_text().endswith("+/help new\n")
    assert file.stat().st_size <= 1 << 19


@needs_tmux
def test_commands_are_completed_in_a_menu_and_a_low_line_rises(home: Home) -> None:
    home.run("-m", "echo", "--title", "Bread And Butter", "hi")
    ident = home.doc()["id"]
    with Tmux(home, "-i", "-m", "echo", size=(40, 24)) as tmux:
        tmux.until("^new session · echo$")
        tmux.write("/he")
        tmux.until(r"^ +/help +Show all")
        assert "[0;2m" in tmux.screen(styles=True)
        tmux.keys("Tab", "Tab")
        tmux.until(r"^> /help *$")
        tmux.until(r"^ +resume +Continue")
        tmux.write("exi")
        tmux.keys("Tab")
        tmux.until(r"^> /help exit *\nnew session")  # where it was before
        tmux.keys("Enter")
        tmux.until("Exit, as do exit, quit")
        tmux.until(PROMPT)
        tmux.paste(
            "/resume butter"
        )  # what is typed letter by letter may still be completed when Tab comes
        tmux.until("^> /resume butter *$")
        tmux.keys("Tab")
        tmux.until(f"^> /resume {ident} *$")
        tmux.keys("C-u")
        tmux.write("/szz")
        tmux.until(r"^> /szz *\n\s*\nnew session")  # there is room for a menu
        tmux.keys("C-u")
        tmux.until(r"^> *\nnew session")
        tmux.say("/zzz")
        tmux.until("^gptsh: there is no command /zzz\n  → /help shows all; a line that begins")


@needs_tmux
def test_the_status_line_tells_session_model_tokens_and_cost(home: Home) -> None:
    home.configure(
        '[agents.default]\nmodel = "echo"\n[sessions]\ntitles = "off"\n[agents.other]\nmodel = "gpt-4o"\n'
    )
    home.run("--title", "Bread\x1b[31m", "hi")
    doc = home.doc()
    doc["usage"] = {"tokens": {"total": 12_800}, "cost": 0.0123}
    doc["messages"][-1]["cost"] = 0.0123
    doc["agent"] = {"name": "other", "model": "gpt-4o"}
    doc["provider"] = {"name": "openai"}
    Path(home.files()[0]).write_text(json.dumps(doc))
    with Tmux(
        home,
        "-i",
        "-s",
        doc["id"],
        env={"OPENAI_API_KEY": "sk-none", "NO_COLOR": "1"},
        size=(100, 10),
    ) as tmux:
        tmux.until(
            rf"^{doc['id']} · Bread␛\[31m · openai/gpt-4o · 12\.8k of 128k tokens · \$0\.0123$"
        )
        tmux.resize(44, 10)
        tmux.until(rf"^{doc['id']} · openai/gpt-4o · 12\.8k of 128k tokens$")
        assert not re.search(r"\x1b\[[0-9;]*[349][0-8]", tmux.screen(styles=True))


@needs_tmux
def test_the_status_line_leaves_out_the_folder_of_a_model(home: Home) -> None:
    home.configure('[providers.own]\nbase_url = "http://127.0.0.1:9/v1"\n')
    with Tmux(home, "-i", "-m", "own//models/q8/Qwen3.gguf", size=(100, 10)) as tmux:
        tmux.until(
            r"^new session · own/Qwen3\.gguf · /help"
        )  # llama.cpp's server names it by its path


@needs_tmux
def test_a_prompt_in_the_first_row_leaves_no_copy_of_its_drafts_in_the_scrollback(
    home: Home,
) -> None:
    with Tmux(home, "-i", "-m", "echo", shell="printf '\\033[H'; {}") as tmux:
        tmux.until(PROMPT)
        tmux.write("/mo")
        tmux.until("^ */model .*another one")  # the menu of commands is drawn
        tmux.keys("C-u")
        tmux.say("one")
        tmux.until(r"(?s)^You said: one$.*^> *$")
        seen = tmux.screen(history=True)
        assert seen.count("> one") == 1
        assert seen.count("/mo") == 0
        assert seen.count(" · echo") == 1


@needs_tmux
def test_the_status_line_estimates_what_no_server_reports(lab: Home, model: ModelServer) -> None:
    model.script(*answer("word " * 200, usage=None))
    with Tmux(lab, "-i", "one") as tmux:
        tmux.until(r"lab/m · ~2\d\d tokens$")


@needs_tmux
def test_what_is_to_be_asked_again_is_in_the_line_and_an_answer_in_the_clipboard(
    lab: Home, model: ModelServer
) -> None:
    said = "Do \x1b[31mthis:\n```sh\nls\n```\nor\n```sh\nrm x\n```\n"
    for number, text in enumerate((said, "no code")):
        model.say(text)
        lab.run(*["-s", "0"] * number, f"q{number}")
    with Tmux(lab, "-i", "-s", "0", size=(100, 30)) as tmux:
        tmux.until("no code")  # what was said is drawn above the first prompt
        for line in ("/copy code", "/copy 3"):
            assert "there is no such answer or code block" in tmux.did(line)
        assert "sent to the terminal" in tmux.did("/copy 1")
        assert tmux.clipboard() == said
        tmux.say("/undo")
        tmux.until(r"(?s)a fork after turn 1.*^> q1 *$")
        tmux.keys("C-u")
        for line, copied in (("/copy code", "rm x\n"), ("/copy code 1", "ls\n")):
            assert f"{len(copied)} characters sent" in tmux.did(line)
            assert tmux.clipboard() == copied
        assert "there is no such answer" in tmux.did("/copy code 3")
        assert "expected nothing" in tmux.did("/copy that")
        tmux.did("/model nobody/m")
        tmux.say("a long question")
        tmux.until(r"(?s)gptsh: .*nobody.*^> a long question$")


# ---- keys without a screen


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


def test_ctrl_c_and_sigint_clear_the_line_and_ctrl_d_leaves(home: Home) -> None:
    terminal = prompt(home)
    terminal.write("given up")
    terminal.until(b"given up")
    terminal.write("\x03")
    terminal.until(rb"given up(.|\n)*2004h(.|\n)*echo")
    terminal.write("from outside")
    terminal.until(b"from outside")
    os.kill(terminal.pid, signal.SIGINT)  # one: a second one at the empty line is worth a word
    terminal.until(rb"from outside(.|\n)*2004h(.|\n)*echo")
    terminal.write("sent\r")
    terminal.until(b"You said: sent(.|\n)*echo")
    terminal.write("gone\x03")
    terminal.until(rb"gone(.|\n)*2004h(.|\n)*echo")
    assert b"Ctrl-D exits" not in terminal.seen
    terminal.write("\x03")
    terminal.until(rb"Ctrl-D exits(.|\n)*2004h(.|\n)*echo")
    terminal.write("\x04")
    assert terminal.close()[1] == 0
    assert asked(home) == typed(home) == ["sent"]


def test_a_terminal_that_goes_away_without_a_signal_ends_the_prompt(home: Home) -> None:
    terminal = prompt(home, ignored=(signal.SIGHUP,))
    terminal.write("not sent")
    terminal.until(b"not sent")
    os.close(terminal.fd)
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 0
    assert typed(home) == ["not sent"]


@needs("bash")
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
    shell.until(b"You said: half a line(.|\n)*echo")
    shell.write("\x04")
    shell.until(b"is saved")
    shell.write("exit\n")
    assert b"ENTER" not in shell.close()[0]
    assert asked(home) == ["half a line"]


def test_a_dumb_terminal_gets_a_plain_prompt(home: Home) -> None:
    with Conversation(home, "-m", "echo") as talk:
        talk.write("one\\\n")
        talk.until(rb"\n  \Z")
        assert talk.does("two") == "You said: one\ntwo"
        talk.plays(("/undo", "type your question again:\none\ntwo"))
        talk.write("given up\x03")
        assert "\x1b" not in talk.printed()
        assert "Ctrl-D exits" in talk.interrupt()
    assert typed(home) == ["one\ntwo", "/undo"]


def test_a_dumb_terminal_goes_on_behind_a_pipe(home: Home) -> None:
    command = ["sh", "-c", 'echo piped | "$0" -m gptsh -i -m echo', sys.executable]
    terminal = Terminal(home, command=command, env={"TERM": "dumb"})
    for line in ("two", "three"):
        terminal.until(rb"\n> \Z")
        terminal.write(f"{line}\n")
        terminal.until(f"You said: {line}\r\n".encode())
    terminal.write("/session delete\n")
    terminal.until(rb"permanently\? \[y/N\] \Z")
    terminal.write("n\n")
    terminal.until(b"was not deleted")
    terminal.write("\x04")
    assert terminal.close()[1] == 0
    assert asked(home) == ["piped\n", "two", "three"]


@pytest.mark.parametrize(("ahead", "expected"), [
    pytest.param("\x04", ["go"], marks=pytest.mark.slow),
    pytest.param("half\x04", ["go"], marks=pytest.mark.slow),
    ("more\r\x04", ["go", "more"]),
    ("\x1b[200~first\n/exit\nlast\x1b[201~\r\x04", ["go", "first\n/exit\nlast"]),
], ids=["Ctrl-D", "half a line", "a line", "a paste"])  # fmt: skip
def test_what_is_typed_while_an_answer_comes_waits_for_the_prompt(
    lab: Home, model: ModelServer, ahead: str, expected: list[str]
) -> None:
    release = model.halt("one", after=0)
    terminal = Terminal(lab, "-i", "go")
    terminal.until(b"lab/m")
    terminal.write(ahead)
    release.set()
    if ahead.startswith("half"):
        terminal.until(rb"one(.|\n)*2004h(.|\n)*half")
        terminal.write("\x15\x04")
    seen, code = terminal.close()
    assert code == 0
    assert b"is saved" in seen
    assert asked(lab) == expected


def test_what_was_typed_while_an_answer_came_is_the_next_line_behind_ctrl_c(
    lab: Home, model: ModelServer
) -> None:
    release = model.halt("one", after=0)
    terminal = Terminal(lab, "-i", "go")
    terminal.until(b"lab/m")
    terminal.write("and now")
    terminal.write("\x03")
    terminal.until(rb"is kept(.|\n)*2004h(.|\n)*and now")
    release.set()
    terminal.write("?\r")
    terminal.until(rb"You said: go\r\n\r\nand now\?(.|\n)*lab/m")
    terminal.write("\x04")
    assert terminal.close()[1] == 0
    assert asked(lab) == ["go", "and now?"]


def test_ctrl_d_is_no_at_a_question_of_a_conversation(home: Home) -> None:
    with Conversation(home, "-m", "echo", "hi") as talk:
        talk.asks("/session delete")
        talk.write("\x04")
        assert "was not deleted" in talk.printed()
    assert len(home.files()) == 1


@needs_tmux
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("/mo\tec\t", "/model echo"),
        ("/file x a\t\t", "/file x another-a"),
        ("/zz\t", "/zz"),
        ("a\tb", "ab"),
    ],
)
def test_tab_completes_at_once_what_was_typed_ahead(home: Home, typed: str, completed: str) -> None:
    for name in ("another-a", "another-b"):
        (home.cwd / name).touch()
    with Tmux(home, "-i", "-m", "echo", "--no-save") as tmux:
        tmux.until("not saved")
        tmux.write(typed)
        tmux.until(f"^> {completed}[- ]*$")
