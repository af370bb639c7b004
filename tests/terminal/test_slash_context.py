"""Slash commands about what is sent: files, tools, the context before and behind a request, compaction by hand."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.attached import a_png
from tests.support.home import Home, lab_config
from tests.support.paths import SUPPORT
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer
from tests.support.talks import Talker, asked, for_summaries, force, long, talker
from tests.support.tools import call, calling

__all__ = ["long", "talker"]  # fixtures

SERVER = SUPPORT / "tool_server.py"
LARGE = (250, 60)
KEY = {"LAB_KEY": "hidden-key", "PAGER": "cat"}


def tooled(home: Home, model: ModelServer) -> Path:
    """A home whose agent has a tool server; the file that has a line for each start of it."""
    started = home.cwd / "started"
    script = f"echo x >> {shlex.quote(str(started))}; exec {shlex.join([sys.executable, str(SERVER)])}"
    more = f'[sessions]\ntitles = "off"\n[mcp.servers.good]\ncommand = "/bin/sh"\nargs = ["-c", {json.dumps(script)}]\n'
    text = lab_config(model, f'{more}auto_approve = ["*"]\n')
    home.configure(text.replace('model = "lab/m"', 'model = "lab/m"\ntools = ["good"]'))
    return started


def attachments(home: Home, model: ModelServer) -> None:
    """A home with files that can be sent and one that cannot."""
    home.configure(lab_config(model, 'api_key_env = "LAB_KEY"\n[sessions]\ntitles = "off"\n'))
    (home.cwd / "a b.txt").write_text("some words\x1b[2J\n")
    (home.folder / "shot.png").write_bytes(a_png(640, 480))
    (home.cwd / "data.zip").write_bytes(b"PK\x03\x04" + bytes(99))


@pytest.mark.slow
@needs_tmux
def test_before_the_first_turn_and_behind_it(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, 'api_key_env = "LAB_KEY"\ncontext_window = 9000\n[sessions]\ntitles = "off"\n'))
    with Tmux(home, "-i", env=KEY, size=LARGE) as tmux:
        before = tmux.did("/context")
        assert "window      9,000 tokens" in before
        assert "included    0 messages" in before
        assert "nothing was sent yet" in tmux.did("/debug context")
        assert "there is nothing to compact yet" in tmux.did("/compact")
        assert tmux.did("/usage") == "no answers"
        assert tmux.did("/usage all") == "no answers"
        assert tmux.did("/file") == "no file waits"
        tmux.did("one")
        assert "included    2 messages" in tmux.did("/context")
        assert "included    1 messages" in tmux.did("/debug context")
        assert "\nlab/m " in tmux.did("/usage")
        assert "takes all" in tmux.did("/usage lab/m")
        assert "lab/m" in tmux.did("/usage all")
    assert len(model.sent) == 1


@pytest.mark.slow
@needs_tmux
def test_files_wait_for_the_next_question(home: Home, model: ModelServer) -> None:
    attachments(home, model)
    with Tmux(home, "-i", env=KEY, size=LARGE) as tmux:
        # what cannot be sent is not attached
        assert "missing: No such file" in tmux.did("/file 'a b.txt' missing")
        assert "data.zip is" in tmux.did("/file 'a b.txt' data.zip")
        assert "/dev/null is no regular file" in tmux.did("/file /dev/null")
        assert "no closing quotation" in tmux.did("/file a b.txt'")
        assert tmux.did("/file") == "no file waits"
        # what can be waits
        assert re.fullmatch("a b.txt  15 .*\ngptsh: 1 file waits for your next question", tmux.did("/file 'a b.txt'"))
        assert "shot.png  " in tmux.did("/file ~/shot.png 'a b.txt'")
        assert len(tmux.did("/file").splitlines()) == 2
        tmux.until(r"^new session .* \+2 files")
        waiting = tmux.did("/context")
        assert "included    1 messages" in waiting
        assert "shot.png [image/png" in waiting
        assert tmux.did("/file -") == "no file waits"
    assert model.sent == []


@pytest.mark.slow
@needs_tmux
def test_files_go_with_a_question_and_are_read_again_as_the_model_got_them(home: Home, model: ModelServer) -> None:
    attachments(home, model)
    model.say("fine")
    with Tmux(home, "-i", env=KEY, size=LARGE) as tmux:
        tmux.did("/file 'a b.txt' ~/shot.png")
        tmux.did("look")
        look, text, image = model.sent[-1]["messages"][0]["content"]
        assert look["text"] == "look"
        assert text["text"] == "a b.txt:\nsome words\x1b[2J\n"
        assert image["type"] == "image_url"
        tmux.until(rf"^{home.doc()['id']} .*tokens$")
        assert tmux.did("/file") == "no file waits"
        sent = tmux.did("/debug context")
        assert "included    1 messages" in sent
        assert f"request     POST {model.base_url}/chat/completions" in sent
        assert "***" in sent
        assert "hidden-key" not in sent
        assert "parameter   stream = true" in sent
        whole = f"--- 1. user\nlook\na b.txt:\nsome words␛[2J\n\n[{home.folder}/shot.png, image/png, "
        assert whole in sent


@pytest.mark.slow
@needs_tmux
def test_a_file_that_is_gone_leaves_the_question_at_the_prompt(home: Home) -> None:
    note = home.cwd / "note"
    note.write_text("words")
    with Tmux(home, "-i", "-m", "echo", "--no-save") as tmux:
        tmux.did("/file note")
        note.unlink()
        assert "No such file" in tmux.did("/file")
        tmux.say("look")
        tmux.until(r"^gptsh: note: No such file.*\n+> look$")
        tmux.keys("C-u")
        tmux.did("/file -")
        assert "You said: look" in tmux.did("look")
        # in memory alone
        assert "included    2 messages" in tmux.did("/context")
        assert "--- 1. user\nlook" in tmux.did("/debug context")
        assert "echo " in tmux.did("/usage")
        assert "session     not on disk" in tmux.did("/compact")
        assert "a compaction that is not saved is none" in tmux.did("/compact --apply")
        assert "/compact takes --apply" in tmux.did("/compact now")
    assert home.files() == []


@pytest.mark.slow
@needs_tmux
def test_tools_are_chosen_and_only_a_turn_starts_their_servers(home: Home, model: ModelServer) -> None:
    started = tooled(home, model)
    with Tmux(home, "-i", size=LARGE, env={"PAGER": "cat"}) as tmux:
        assert tmux.did("/tools").startswith("good\ngptsh: what their tools are is known")
        assert "without the tools of good" in tmux.did("/context")
        assert "there is no tool server 'bad': known are good" in tmux.did("/tools good,bad")
        assert "/tools none stands alone: leave out none, or all the others" in tmux.did("/tools good, none")
        assert tmux.did("/tools none") == "no tools"
        tmux.did("one")
        assert "tools" not in model.sent[-1]
        assert not started.exists()
        assert tmux.did("/tools good__add,good__fail").startswith("good__add, good__fail\n")
        assert not started.exists()
        model.script(*calling(call("add", a=1, b=2)))
        tmux.did("two")
        assert [tool["function"]["name"] for tool in model.sent[-1]["tools"]] == ["good__add", "good__fail"]
        assert tmux.did("/tools") == "good__add  Add two numbers.\ngood__fail  Say that it failed."
        assert "tools       2, " in tmux.did("/context")
        sent = tmux.did("/debug context")
        assert "--- tool good__add\nAdd two numbers.\n{" in sent
        assert '[tool call good__add]\n{\n  "a": 1,\n  "b": 2\n}\n\n--- 5. tool\n[result]\n3' in sent
        assert started.read_text() == "x\n"
        # those of the agent again, none of which runs
        assert tmux.did("/tools -").startswith("good\n")
        assert "without the tools of good" in tmux.did("/context")
        assert started.read_text() == "x\n"


@pytest.mark.slow
@needs_tmux
def test_a_session_is_compacted_by_hand(long: Home, talker: Talker) -> None:
    (long.cwd / "note").write_text("words")
    before = long.files()[0].read_bytes()
    with Tmux(long, "-i", "-s", "0@-1", size=LARGE) as tmux:
        assert "strategy    summary" in tmux.did("/compact")
        assert "which is not on disk: its next turn saves it" in tmux.did("/compact --apply")
    with Tmux(long, "-i", "-s", "0", size=LARGE) as tmux:
        tmux.did("/file note")
        shown = tmux.did("/compact")
        assert "strategy    summary" in shown
        assert long.files()[0].read_bytes() == before
        assert asked(talker) == for_summaries(talker) == []
        assert "strategy    summary" in tmux.did("/compact --apply")
        assert force(long)["reason"] == "asked"
        assert tmux.did("/file").startswith("note  ")
        assert "strategy    summary" in tmux.did("/context")
        assert "nothing was sent yet" in tmux.did("/debug context")
        tmux.did("and now?")
        tmux.until(r"^> *$")
        tmux.say("/debug context")  # which is long: the pager shows its beginning
        assert "strategy    summary" in tmux.until(r"^:$")
        tmux.keys("q")
        assert "as now: nothing would be shorter" in tmux.did("/compact --apply")
    assert len(long.files()) == 1
