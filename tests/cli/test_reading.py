"""``--show-session`` as people read it: its header, ``--full``, rendered, through a pager."""

import html
import json
import os
import re
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from gptsh.render.drawing import draw_markdown
from gptsh.render.session import transcript
from gptsh.terminal.stdio import TerminalStyle
from tests.support.home import Home
from tests.support.programs import needs
from tests.support.sessions import put
from tests.support.stages import settle
from tests.support.terminal import Terminal

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "ls", "arguments": '{"path":"*a* `b`"}'},
}
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
    keep(home, SOME, meta=meta, **moments)
    home.run("-s", "aaaa@1", "-m", "echo", "on")
    home.run("--archive-session", "aaaa")
    header = home.run("--show-session", "aaaa").stdout.partition("\n\n## ")[0].split("\n")
    assert header == [
        "# A \\* Talk", "", "- session: aaaa, archived", "- dates: 2026-11-20 08:00 to 2026-11-21 09:16",
        "- agent: default", "- models: lab/m1, lab/m2", "- turns: 1 (4 messages)",
        "- tokens: 3,110 in all, 2,000 in the latest prompt",
        "- cost: 0.25043 USD", "- tags: a_b, \\_c", "- imported from: llm",
    ]  # fmt: skip
    assert "- forked from: aaaa@1\n" in home.run(*SHOW).stdout


OPENED: list[str] = []  # paths of files, since the hook can be taken away no more
sys.addaudithook(lambda event, args: OPENED.append(str(args[0])) if event == "open" else None)


@pytest.mark.parametrize("args", [
    "--show-session 1", "--show-session 1 -o json", "--export-session 1", "--export-session 1 --format html",
    "--export-session bbbb --format markdown", "-s 1 -m echo again", "-s 1@1 -m echo again", "-s 1 --title T",
    "-s 1 --snapshot here", "--delete-session 1 --yes", "--archive-session bb",
])  # fmt: skip
def test_what_is_about_one_session_opens_no_other(home: Home, args: str) -> None:
    for second, ident in enumerate(("aaaa", "bbbb", "cccc")):
        path = put(home, ident, 1)
        path.rename(path.with_name(f"20250101-00000{second}-{ident}.json"))
    OPENED.clear()
    assert home.run(*args.split()).code == 0
    opened = {path[-9:-5] for path in OPENED if re.search("-[abc]{4}.json$", path)}
    assert opened == {"bbbb"}


@pytest.mark.parametrize(("answers", "line"), [
    ([{"content": "", "cost": 0.25}, {"content": "x"}], "- cost: at least 0.25 USD"),  # not wholly known
    ([{"content": "x", "cost": 1234.567}], "- cost: 1,234.57 USD"),
    ([{"content": "x", "model": "m", "finish_reason": "STOP"}], "## assistant (m)"),
    ([{"content": "x", "model": "m", "finish_reason": "length"}], "## assistant (m) \\[length]"),
])  # fmt: skip
def test_a_line_of_it(home: Home, answers: list[dict[str, Any]], line: str) -> None:
    keep(home, [SOME[0], *({"role": "assistant", **answer} for answer in answers)])
    assert line in home.run(*SHOW).stdout.splitlines()


LONG_CALL = {
    **CALL,
    "function": {"name": "ls", "arguments": json.dumps({"path": "/home", "words": "x y\n" * 100})},
}
# A message, and the lines that are shown of it.
SHOWN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a call, where it was": (
        {"role": "assistant", "content": [{"type": "text", "text": "Let me."}, {"type": "text", "text": "And?"}],
         "tool_calls": [LONG_CALL], "order": ["text:0", "tool_call:0", "text:1"]},
        ["## assistant", "Let me.", '`[tool call ls({"path": "/home", "words": "x y\\nx y…', "And?"],
    ),
    "a long result": (
        {"role": "tool", "name": "ls", "content": "\na.txt\n" + "b.txt\n" * 500}, ["## tool (ls)", "`a.txt [3.0 kB]`"]),
    "a failed one": ({"role": "tool", "content": "one line\n", "is_error": True}, ["## tool", "`[error] one line`"]),
    "a part that nobody knows": (
        {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}, "source": "a.mp4"}]},
        ["## user", "`[a.mp4, video_url]`"],
    ),
    "thinking": (
        {"role": "assistant", "content": "a",
         "thinking": [{"type": "thinking", "thinking": "x" * 1200}, {"type": "redacted_thinking", "data": "d"}]},
        ["## assistant", "`[thinking, 1,200 characters]`", "`[thinking, not readable]`", "a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", SHOWN)
def test_a_message_is_shown(home: Home, row: str) -> None:
    message, expected = SHOWN[row]
    keep(home, [message])
    run = home.run(*SHOW)
    assert run.code == 0
    assert run.stderr == ""
    lines = [line for line in run.stdout[run.stdout.index("\n## ") :].split("\n") if line]
    assert all(len(line) < 150 for line in lines)
    shown = [
        want if want.endswith("…") and line.startswith(want[:-1]) else line
        for line, want in zip(lines, expected, strict=True)
    ]
    assert shown == expected


def test_full_shows_all_of_calls_results_and_thinking(home: Home) -> None:
    keep(home, SOME)
    run = home.run(*SHOW, "--full")
    assert run.code == 0
    assert run.stderr == ""
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
    (home.cwd / "a.log").write_text("10:00 up")
    home.run("-m", "echo", "-f", "notes.txt", "-f", "a.log", "one", stdin="log")
    shown = home.run(*SHOW).stdout
    assert "`[notes.txt]`\n\n```\nremember\n```\n" in shown
    assert "`[a.log]`\n\n```\n10:00 up\n```\n" in shown
    assert "`[stdin]`\n\n```\nlog\n```\n" in shown


WAYS = [SHOW, ("--export-session", "0"), ("--export-session", "0", "--format", "html")]


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_the_system_prompt_and_the_parameters_are_shown(home: Home, way: tuple[str, ...]) -> None:
    params = (
        "-p",
        "temperature=0.2",
        "-p",
        "seed=7",
        "-p",
        "reasoning_effort=low",
        "-p",
        'stop=["END", "ü"]',
    )
    home.run("-m", "echo", "--system", "Answer *briefly*,\nand kindly.", *params, "hi")
    text = re.sub(
        r"<[^>]*>|[*\\]", "", html.unescape(home.run(*way).stdout).partition("\n<!-- gptsh")[0]
    )
    assert re.search(
        r'parameters(: )?temperature=0.2, reasoning_effort=low, seed=7, stop=\["END","ü"\]\n', text
    )
    assert re.search(r"(?i)\n(## )?system prompt\n+Answer briefly,\nand kindly.\n", text)
    assert text.index("kindly") < text.index("You said")


def test_an_export_with_a_system_prompt_is_imported_again(home: Home) -> None:
    home.run("-m", "echo", "--system", "Be brief.\n\n```\nopen", "-p", "seed=7", "hi")
    text = home.run("--export-session", "0").stdout
    other = home.elsewhere()
    assert other.run("--import-session", "-", stdin=text).code == 0
    assert other.doc()["agent"] == home.doc()["agent"]


def test_a_pipe_gets_markdown_and_rendered_what_asks_for_it(home: Home) -> None:
    keep(home, SOME)
    assert "**what** is here?" in home.run(*SHOW, env={"PAGER": "false"}).stdout
    drawn = home.run(*SHOW, "-o", "markdown").stdout
    assert drawn.startswith("A * Talk\n\n • session: ")
    assert "\n\nwhat is here?\n\n" in drawn
    assert (
        '\n\n`[tool call ls({"path":"*a* `b`"})]`\n\n' in drawn
    )  # without colours a code span keeps its marks
    assert (
        "\x1b[1mwhat\x1b[0m is here?"
        in home.run(*SHOW, "-o", "markdown", env={"FORCE_COLOR": "1"}).stdout
    )


@pytest.mark.parametrize("pager", ["cat", "", "no-such-pager", "sed 's/^/=/'"])
def test_a_terminal_gets_it_rendered_through_what_pager_there_is(home: Home, pager: str) -> None:
    keep(home, SOME)
    seen, code = Terminal(home, *SHOW, env={"PAGER": pager}).close()
    assert code == 0
    assert b"\x1b[1mwhat\x1b[0m is here?" in seen
    assert (b"\n=" in seen) is pager.startswith("sed")


def times_woken(pid: int) -> int:
    """How often a process has waited for something, on Linux; else 0."""
    threads = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(
        int(found)
        for one in threads
        for found in re.findall(r"\nvoluntary_ctxt_switches:\s*(\d+)", one.read_text())
    )


@pytest.mark.slow
@needs("less")
def test_less_is_the_usual_one_and_leaving_it_early_is_no_failure(home: Home) -> None:
    keep(home, LONG)
    terminal = Terminal(home, *SHOW)
    terminal.until(rb"\n:\x1b")
    os.write(terminal.fd, b"\x03 ")  # Ctrl-C is the pager's, which goes on to the next page
    terminal.until(rb"\n:\x1b(.|\n)*\n:\x1b")
    assert os.waitpid(terminal.pid, os.WNOHANG) == (0, 0)
    settle(terminal)
    woken = times_woken(terminal.pid)
    time.sleep(1)
    assert (
        times_woken(terminal.pid) < woken + 15
    )  # Ctrl-C is not sent again and again to who leaves it to a child
    os.write(terminal.fd, b"q")
    seen, code = terminal.close()
    assert code == 0
    assert b"gptsh:" not in seen
    assert b"Traceback" not in seen
    assert b"line 199" not in seen


def test_pages_are_drawn_as_they_are_read(home: Home) -> None:
    keep(home, SOME)
    endless: Any = {**home.doc(), "messages": cycle(SOME)}
    lines = islice(
        draw_markdown(
            transcript(endless, (), full=True), TerminalStyle(styles=False, colors=False), 80
        ),
        999,
    )
    assert sum("what is here?" in line for line in lines) > 9


def read(home: Home) -> list[Any]:
    """The whole session as a CommonMark reader takes it."""
    return MarkdownIt("commonmark").enable("strikethrough").parse(home.run(*SHOW, "--full").stdout)


@pytest.mark.parametrize(
    "title", ["a_b_ *c* `d` ~~e~~ \\", "# x", "[a](b) <b> &amp; ![c]", "| - 1. # a #"]
)
@pytest.mark.parametrize("result", ["```\na\n```\n~~~\n````", "`````` \n a"])
def test_a_title_is_shown_as_it_is_and_nothing_ends_a_fence_from_within(
    home: Home, title: str, result: str
) -> None:
    keep(home, [*SOME[:2], {**SOME[2], "content": f"x{result}x"}], title=f"x {title}")
    found = read(home)
    assert "".join(part.content for part in found[1].children) == f"x {title}"
    assert [token.content for token in found if token.type == "fence"][1:] == [f"x{result}x\n"]
