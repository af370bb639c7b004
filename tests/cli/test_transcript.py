"""``--show-session`` for reading: words in full, calls and results in a line each."""

import json
from typing import Any

from tests.support.home import Home


def shown(home: Home, *messages: dict[str, Any]) -> list[str]:
    """The transcript of a session of these messages, without its header."""
    home.run("-m", "echo", "q")
    path, doc = home.files()[0], home.doc()
    path.write_text(json.dumps({**doc, "messages": messages}))
    run = home.run("--show-session", "0")
    assert (run.code, run.stderr) == (0, "")
    return [line for line in run.stdout[run.stdout.index("\n## ") :].split("\n") if line]


def test_calls_and_results_are_a_line_each(home: Home) -> None:
    long = json.dumps({"path": "/home", "words": "x y\n" * 100})
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": long}}
    texts = [{"type": "text", "text": "Let me."}, {"type": "text", "text": "And?"}]
    lines = shown(
        home,
        {"role": "assistant", "content": texts, "tool_calls": [call], "order": ["text:0", "tool_call:0", "text:1"]},
        {"role": "tool", "name": "ls", "tool_call_id": "c1", "content": "\na.txt\n" + "b.txt\n" * 500},
        {"role": "tool", "tool_call_id": "c1", "content": "one line\n", "is_error": True},
        {"role": "tool", "tool_call_id": "c1", "content": None},
    )
    assert lines[:2] == ["## assistant", "Let me."]
    assert lines[2].startswith('`[tool call ls({"path": "/home", "words": "x y\\nx y')
    assert len(lines[2]) < 150
    assert lines[2].endswith("…)]`")
    assert lines[3:] == [
        "And?",
        "## tool (ls)",
        "`a.txt [3.0 kB]`",
        "## tool",
        "`[error] one line`",
        "## tool",
        "`[nothing]`",
    ]


def test_reasoning_is_measured_and_a_refusal_shown(home: Home) -> None:
    blocks = [
        {"type": "thinking", "thinking": "x" * 1200, "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
    ]
    lines = shown(
        home,
        {"role": "assistant", "content": "a", "thinking": blocks},
        {"role": "assistant", "content": "", "refusal": "I cannot.", "replay": {"reasoning": "hm", "d": [1]}},
    )
    assert lines == [
        "## assistant", "`[thinking, 1,200 characters]`", "`[thinking, not readable]`", "a",
        "## assistant", "`[thinking, 2 characters]`", "I cannot.",
    ]  # fmt: skip


def test_what_nobody_knows_is_named(home: Home) -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "out"}]}
    use = {"type": "tool_use", "id": "c1", "name": "ls", "input": {"p": 1}}
    lines = shown(
        home,
        {"role": "assistant", "content": [use, {"type": "unheard_of"}]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
        {"role": "notice", "content": "x"},
    )
    assert lines == [
        "## assistant", '`[tool call ls({"p": 1})]`', "`[unheard_of]`", "## user", "`out`", "and?", "## notice", "x",
    ]  # fmt: skip
