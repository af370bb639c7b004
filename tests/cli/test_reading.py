"""``--show-session`` as people read it: its header, ``--full``, rendered, through a pager."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.support.home import Home
from tests.support.sessions import put
from tests.support.terminal import Terminal

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path":"*a* `b`"}'}}
SOME: list[dict[str, Any]] = [
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
LONG = [{"role": "user", "content": f"# line {n}\n\n- a\n- b\n" * 500} for n in range(200)]
SHOW = ("--show-session", "0")


def keep(home: Home, messages: list[dict[str, Any]], **more: Any) -> Path:
    """A session of these messages, the only one."""
    path = put(home, "aaaa", 0, **{"title": "A * Talk", **more})
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "messages": messages}))
    return path


def test_the_header_tells_what_there_is_to_know(home: Home) -> None:
    meta = {"tags": ["a_b", "_c"], "imported": {"format": "llm"}}
    moments = {"created_at": "2026-11-20T08:00:00.000Z", "updated_at": "2026-11-21T09:16:00.000Z"}
    path = keep(home, SOME, meta=meta, **moments)
    for _ in range(2):
        home.run("-s", "aaaa@1", "-m", "echo", "on")
    younger, older = (doc["id"] for doc in home.docs()[:2])
    home.run("--archive-session", "aaaa")
    header = home.run("--show-session", "aaaa").stdout.partition("\n\n## ")[0].split("\n")
    assert header == [
        "# A \\* Talk",
        "",
        "- session: aaaa, archived",
        "- dates: 2026-11-20 08:00 to 2026-11-21 09:16",
        "- agent: default",
        "- models: lab/m1, lab/m2",
        "- turns: 1 (4 messages)",
        "- tokens: 3,110 in all, 2,000 in the latest prompt",
        "- cost: 0.25043 USD",
        "- tags: a_b, \\_c",
        f"- forks: {younger}, {older}",
        "- imported from: llm",
    ]
    (home.sessions / "20200101-000000-bbbb.json").write_text("{torn")  # no fork for all that anybody knows
    assert f"- forks: {younger}, {older}\n" in home.run("--show-session", "aaaa").stdout
    assert "- forked from: aaaa@1\n" in home.run("--show-session", younger).stdout
    (home.state / "archive" / path.name).unlink()
    assert home.run("--show-session", older).code == 0


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ([{"content": "", "cost": 0.25}, {"content": "x"}], "- cost: at least 0.25 USD"),  # not wholly known
        ([{"content": "x", "cost": 1234.567}], "- cost: 1,234.57 USD"),
        ([{"content": "x", "model": "m", "finish_reason": "end_turn"}], "## assistant (m)"),
        ([{"content": "x", "model": "m", "finish_reason": "STOP"}], "## assistant (m)"),
        ([{"content": "x", "model": "m", "finish_reason": "length"}], "## assistant (m) \\[length]"),
    ],
)
def test_a_line_of_it(home: Home, answers: list[dict[str, Any]], line: str) -> None:
    keep(home, [SOME[0], *({"role": "assistant", **answer} for answer in answers)])
    assert line in home.run(*SHOW).stdout.splitlines()


def test_full_shows_all_of_calls_results_and_thinking(home: Home) -> None:
    keep(home, SOME)
    run = home.run(*SHOW, "--full")
    assert (run.code, run.stderr) == (0, "")
    assert run.stdout[run.stdout.index("## assistant") :] == (
        "## assistant (m1)\n\n`[thinking]`\n\n> Look\n> first.\n\n"
        '`[tool call ls]`\n\n```json\n{\n  "path": "*a* `b`"\n}\n```\n\n'
        "## tool (ls)\n\n`[result]`\n\n`````\na *b*\n````\nc\n`````\n\n"
        "## assistant (lab/m2) \\[length]\n\n```py\nx = 1\n```\n"
    )
    folded = home.run(*SHOW).stdout
    assert '\n``[tool call ls({"path":"*a* `b`"})]``\n' in folded
    assert "\n`a *b* [12 bytes]`\n" in folded
    assert home.run("--full", "hi").code == 2


def test_what_was_attached_is_shown_under_its_name(home: Home) -> None:
    (home.cwd / "notes.txt").write_text("remember")
    home.run("-m", "echo", "-f", "notes.txt", "one", stdin="log")
    shown = home.run(*SHOW).stdout
    assert "`[notes.txt]`\n\n```\nremember\n```\n" in shown
    assert "`[stdin]`\n\n```\nlog\n```\n" in shown


# ---- rendered


def test_a_pipe_gets_markdown_and_rendered_what_asks_for_it(home: Home) -> None:
    keep(home, SOME)
    assert "**what** is here?" in home.run(*SHOW, env={"PAGER": "false"}).stdout
    drawn = home.run(*SHOW, "-o", "markdown").stdout
    assert drawn.startswith("A * Talk\n\n • session: ")
    assert "\n\nwhat is here?\n\n" in drawn
    assert '\n\n`[tool call ls({"path":"*a* `b`"})]`\n\n' in drawn  # without colours a code span keeps its marks
    assert "\x1b[1mwhat\x1b[0m is here?" in home.run(*SHOW, "-o", "markdown", env={"FORCE_COLOR": "1"}).stdout


@pytest.mark.parametrize("pager", ["cat", "", "no-such-pager", "sed 's/^/=/'"])
def test_a_terminal_gets_it_rendered_through_what_pager_there_is(home: Home, pager: str) -> None:
    keep(home, SOME)
    seen, code = Terminal(home, *SHOW, env={"PAGER": pager}).close()
    assert code == 0
    assert b"\x1b[1mwhat\x1b[0m is here?" in seen
    assert (b"\n=" in seen) is pager.startswith("sed")


@pytest.mark.skipif(not shutil.which("less"), reason="has no less")
def test_less_is_the_usual_one_and_leaving_it_early_is_no_failure(home: Home) -> None:
    keep(home, LONG)
    terminal = Terminal(home, *SHOW)
    terminal.until(b":")
    os.write(terminal.fd, b"\x03 ")  # Ctrl-C is the pager's, which goes on to the next page
    terminal.until(rb":(.|\n)*:")
    assert os.waitpid(terminal.pid, os.WNOHANG) == (0, 0)
    os.write(terminal.fd, b"q")
    seen, code = terminal.close()
    assert (code, b"gptsh:" in seen, b"Traceback" in seen, b"line 199" in seen) == (0, False, False, False)


def test_a_signal_waits_for_the_pager(home: Home) -> None:
    keep(home, LONG)
    pager = "echo begun; read x </dev/tty; cat >/dev/null; echo over"
    terminal = Terminal(home, *SHOW, env={"PAGER": pager})
    terminal.until(b"begun")
    os.kill(terminal.pid, signal.SIGTERM)
    os.write(terminal.fd, b"\n")
    seen, code = terminal.close()
    assert (b"over" in seen, code) == (True, 143)


def test_the_first_page_of_a_long_session_comes_before_the_rest_is_drawn(home: Home) -> None:
    keep(home, LONG * 4)  # 10 MB, which takes minutes to draw
    with home.start(*SHOW, "-o", "markdown") as process:
        assert process.stdout
        assert process.stderr
        assert os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


# ---- how text is spelled

LINE = st.text(st.sampled_from("a_*`~#$[]()<>&;!\\- |:.") | st.characters(codec="utf-8", categories=["L"]), max_size=30)
own_home = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(home: Home) -> list[Any]:
    """The whole session as a CommonMark reader takes it."""
    return MarkdownIt("commonmark").enable("strikethrough").parse(home.run(*SHOW, "--full").stdout)


@own_home
@given(LINE)
def test_a_title_is_shown_as_it_is_whatever_its_characters(home: Home, title: str) -> None:
    keep(home, [], title=f"x {title}")
    shown = "".join(part.content for part in read(home)[1].children)
    assert shown == f"x {title}".strip() == shown.strip()


@own_home
@given(st.text(st.sampled_from("a~` \n"), max_size=40))
@example("```\na\n```\n~~~\n````")
def test_nothing_ends_the_fence_of_a_result_from_within(home: Home, result: str) -> None:
    keep(home, [*SOME[:2], {**SOME[2], "content": f"x{result}x"}])
    assert [token.content for token in read(home) if token.type == "fence"][1:] == [f"x{result}x\n"]
