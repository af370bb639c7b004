"""``--show-session`` as people read it: its header, ``--full``, rendered, through a pager."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gptsh.core import listing
from gptsh.core.spelling import escaped, fenced, left_open, literal
from tests.support.home import Home
from tests.support.terminal import Terminal

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path":"*a* `b`"}'}}
SOME = [
    {"role": "user", "content": "**what** is here?", "timestamp": "2026-11-21T09:15:30.000Z"},
    {
        "role": "assistant", "content": "", "tool_calls": [CALL], "provider": "lab", "model": "m1",
        "thinking": [{"type": "thinking", "thinking": "Look\nfirst."}],
        "usage": {"prompt": 1000, "completion": 50}, "cost": 0.25,
    },
    {"role": "tool", "name": "ls", "tool_call_id": "c1", "content": "a *b*\n````\nc"},
    {"role": "assistant", "content": "```py\nx = 1", "model": "lab/m2", "finish_reason": "length",
     "usage": {"prompt": 2000, "completion": 60}, "cost": 0.00043},
]  # fmt: skip


def keep(home: Home, messages: list[dict[str, Any]] = SOME, **more: Any) -> Path:
    """A session of these messages, the only one."""
    home.run("-m", "echo", "q")
    path = home.files()[0]
    doc = {**json.loads(path.read_bytes()), "title": "A * Talk", **more}
    path.write_text(json.dumps({**doc, "messages": messages}))
    return path


def test_the_header_tells_what_there_is_to_know(home: Home) -> None:
    path = keep(home)
    ident = path.name[16:20]
    home.run("-s", f"{ident}@1", "-m", "echo", "on")
    home.run("-s", f"{ident}@1", "-m", "echo", "on")
    younger, older = (doc["id"] for doc in home.docs()[:2])
    doc = json.loads(path.read_bytes())
    path.write_text(json.dumps({**doc, "meta": {**doc["meta"], "tags": ["a_b", "_c"], "imported": {"format": "llm"}}}))
    (home.state / "archive").mkdir()
    put_away = path.rename(home.state / "archive" / path.name)
    run = home.run("--show-session", ident)
    when = doc["created_at"].replace("T", " ")[:16]
    header = run.stdout.partition("\n\n## ")[0].split("\n")
    assert header == [
        "# A \\* Talk",
        "",
        f"- session: {ident}, archived",
        f"- dates: {when} to {doc['updated_at'].replace('T', ' ')[:16]}",
        "- agent: default",
        "- models: lab/m1, lab/m2",
        "- turns: 1 (4 messages)",
        "- tokens: 3,110 in all, 2,000 in the latest prompt",
        "- cost: 0.25043 USD",
        "- tags: a_b, \\_c",
        f"- forks: {younger}, {older}",
        "- imported from: llm",
    ]
    assert f"- forked from: {ident}@1\n" in home.run("--show-session", younger).stdout
    put_away.unlink()
    assert home.run("--show-session", older).code == 0


@pytest.mark.parametrize(("point", "end"), [("", "03-05"), ("@1", "03-03"), ("@2", "03-05")])
def test_the_dates_end_with_the_last_message(home: Home, point: str, end: str) -> None:
    roles = ("user", "assistant", "user", "assistant")
    said = [{"role": role, "content": "x", "timestamp": f"2026-03-0{at}T10:00:00.000Z"}
            for at, role in enumerate(roles, 2)]  # fmt: skip
    keep(home, said, created_at="2026-03-01T10:00:00.000Z", updated_at="2026-03-09T10:00:00.000Z")
    assert f"- dates: 2026-03-01 10:00 to 2026-{end} 10:00\n" in home.run("--show-session", f"0{point}").stdout


def test_forks_are_found_wherever_they_are(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", home.env["XDG_STATE_HOME"])
    home.run("-m", "echo", "q")
    ident = home.doc()["id"]
    assert listing.forks_of(ident) == []
    home.run("-s", f"{ident}@", "-m", "echo", "on")
    fork = home.docs()[0]["id"]
    (home.sessions / "20200101-000000-aaaa.json").write_text("{torn")
    assert listing.forks_of(ident) == [fork]
    (home.state / "archive").mkdir()
    path = home.files()[0]
    path.rename(home.state / "archive" / path.name)
    assert listing.forks_of(ident) == [fork]
    assert listing.forks_of(ident[:3]) == []


def test_a_cost_that_is_not_wholly_known_is_at_least_that(home: Home) -> None:
    kept = keep(home, [SOME[0], SOME[1], {"role": "assistant", "content": "x"}])
    assert "- cost: at least 0.25 USD\n" in home.run("--show-session", kept.name).stdout
    kept = keep(home, [SOME[0], {"role": "assistant", "content": "x", "cost": 1234.567}])
    assert "- cost: 1,234.57 USD\n" in home.run("--show-session", kept.name).stdout


def test_full_shows_all_of_calls_results_and_thinking(home: Home) -> None:
    keep(home)
    run = home.run("--show-session", "0", "--full")
    assert (run.code, run.stderr) == (0, "")
    body = run.stdout[run.stdout.index("## assistant") :]
    assert body == (
        "## assistant (m1)\n\n`[thinking]`\n\n> Look\n> first.\n\n"
        '`[tool call ls]`\n\n```json\n{\n  "path": "*a* `b`"\n}\n```\n\n'
        "## tool (ls)\n\n`[result]`\n\n`````\na *b*\n````\nc\n`````\n\n"
        "## assistant (lab/m2) \\[length]\n\n```py\nx = 1\n```\n"
    )
    folded = home.run("--show-session", "0").stdout
    assert '\n``[tool call ls({"path":"*a* `b`"})]``\n' in folded
    assert "\n`a *b* [12 bytes]`\n" in folded
    assert "full" not in home.run("--show-session", "0@1", "--full").stdout
    assert home.run("--full", "hi").code == 2


# ---- rendered


def test_a_pipe_gets_markdown_and_rendered_what_asks_for_it(home: Home) -> None:
    keep(home)
    assert "**what** is here?" in home.run("--show-session", "0", env={"PAGER": "false"}).stdout
    drawn = home.run("--show-session", "0", "-o", "markdown").stdout
    assert drawn.startswith("A * Talk\n\n • session: ")
    assert "\n\nwhat is here?\n\n" in drawn
    assert '\n\n`[tool call ls({"path":"*a* `b`"})]`\n\n' in drawn  # without colours a code span keeps its marks
    forced = home.run("--show-session", "0", "-o", "markdown", env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b[1mwhat\x1b[0m is here?" in forced


@pytest.mark.parametrize("pager", ["cat", "", " ", "no-such-pager", "./", "sed 's/^/=/'"])
def test_a_terminal_gets_it_rendered_through_what_pager_there_is(home: Home, pager: str) -> None:
    keep(home)
    seen, code = Terminal(home, "--show-session", "0", env={"PAGER": pager}).close()
    assert code == 0
    assert b"\x1b[1mwhat\x1b[0m is here?" in seen
    assert (b"\n=" in seen) is pager.startswith("sed")
    seen, _ = Terminal(home, "--show-session", "0", env={"PAGER": pager, "NO_COLOR": "1"}).close()
    assert b"\x1b[1mwhat" in seen
    assert b"\x1b[35m" not in seen
    seen, _ = Terminal(home, "--show-session", "0", "-o", "text", env={"PAGER": pager}).close()
    assert b"**what** is here?" in seen


def test_the_pager_is_told_how_as_git_tells_it(home: Home) -> None:
    keep(home)
    tell = "cat >/dev/null; echo less=$LESS lv=$LV"
    assert b"less=FRX lv=-c" in Terminal(home, "--show-session", "0", env={"PAGER": tell}).close()[0]
    own = {"PAGER": tell, "LESS": "", "LV": "-a"}
    assert b"less= lv=-a" in Terminal(home, "--show-session", "0", env=own).close()[0]


@pytest.mark.skipif(not shutil.which("less"), reason="has no less")
def test_less_is_the_usual_one_and_leaves_at_once_what_fits(home: Home) -> None:
    keep(home, SOME[:1])
    terminal = Terminal(home, "--show-session", "0")
    terminal.resize(80)
    seen, code = terminal.close()
    assert code == 0
    assert b"what" in seen
    assert b"\x1b" not in Terminal(home, "--show-session", "0", env={"TERM": "dumb"}).close()[0]


@pytest.mark.skipif(not shutil.which("less"), reason="has no less")
def test_leaving_the_pager_early_is_no_failure(home: Home) -> None:
    keep(home, [{"role": "user", "content": f"line {n}\n" * 500} for n in range(200)])
    terminal = Terminal(home, "--show-session", "0")
    terminal.until(b":")
    os.write(terminal.fd, b"\x03")  # Ctrl-C is the pager's, which goes on
    time.sleep(0.3)
    assert os.waitpid(terminal.pid, os.WNOHANG) == (0, 0)
    os.write(terminal.fd, b"q")
    seen, code = terminal.close()
    assert code == 0
    assert b"gptsh:" not in seen
    assert b"Traceback" not in seen
    assert b"line 199" not in seen


def test_a_signal_waits_for_the_pager(home: Home) -> None:
    keep(home, [{"role": "user", "content": f"line {n}\n" * 500} for n in range(200)])
    terminal = Terminal(
        home, "--show-session", "0", env={"PAGER": "echo begun; read x </dev/tty; cat >/dev/null; echo over"}
    )
    terminal.until(b"begun")
    os.kill(terminal.pid, signal.SIGTERM)
    time.sleep(0.3)
    assert os.waitpid(terminal.pid, os.WNOHANG) == (0, 0)
    os.write(terminal.fd, b"\n")
    seen, code = terminal.close()
    assert b"over" in seen
    assert code == 143


def test_the_first_page_of_a_long_session_comes_before_the_rest_is_drawn(home: Home) -> None:
    keep(home, [{"role": "user", "content": f"# line {n}\n\n- a\n- b\n" * 2000} for n in range(200)])  # 5 MB
    with home.start("--show-session", "0", "-o", "markdown") as process:
        assert process.stdout
        assert process.stderr
        assert os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        assert process.wait(20) == 0  # to draw all of it takes minutes
        assert process.stderr.read() == b""


# ---- how text is spelled

LINE = st.text(st.sampled_from("a_*`~#$[]()<>&;!\\- \n\r|:.") | st.characters(codec="utf-8"), max_size=30)


def words(markdown: str) -> str:
    """What a CommonMark reader shows of a document of one paragraph."""
    tokens = MarkdownIt("commonmark").enable("strikethrough").parse(markdown)
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    return "".join(part.content for part in tokens[1].children or ())


@given(LINE)
def test_a_line_that_is_spelled_out_is_shown_as_it_is(text: str) -> None:
    text = text.replace("\0", "")
    line = " ".join(text.split())
    assert words(f"x {escaped(text)}") == f"x {line}".strip()
    if line:
        assert words(literal(text)) == line


@given(LINE)
def test_nothing_ends_a_fence_from_within(text: str) -> None:
    text = text.replace("\0", "")
    (token,) = MarkdownIt("commonmark").parse(fenced(text, "py"))
    assert token.info == "py"
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    assert token.content.removesuffix("\n") == lines.removesuffix("\n")


@pytest.mark.parametrize(
    ("text", "fence"),
    [("a", ""), ("```\na", "```"), ("```\na\n```", ""), ("~~~~ py\n~~~\n", "~~~~"), ("``` a`b\n", ""),
     ("```\n~~~\n```\n", ""), ("````\r\n```\r\n", "````"), ("```\n``` py\n", "```")],
)  # fmt: skip
def test_a_fence_that_is_left_open_is_known(text: str, fence: str) -> None:
    assert left_open(text) == fence


@pytest.mark.parametrize(("finish", "shown"), [("end_turn", ""), ("stop", ""), ("STOP", ""), ("length", "length]")])
def test_an_answer_that_is_whole_is_not_marked_whatever_its_provider_calls_that(
    home: Home, finish: str, shown: str
) -> None:
    home.run("-m", "echo", "hi")
    doc = home.doc()
    doc["messages"][1]["finish_reason"] = finish
    home.files()[0].write_text(json.dumps(doc))
    heading = next(line for line in home.run("--show-session", "0").stdout.splitlines() if "## assistant" in line)
    assert heading.endswith(shown or str(doc["messages"][1]["timestamp"][11:16]))
