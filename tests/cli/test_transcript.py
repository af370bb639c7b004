"""``--show-session`` for reading: words in full, calls, results and thinking in a line each."""

import json
from typing import Any

import pytest

from tests.support.histories import of, put, words
from tests.support.home import Home

LONG = json.dumps({"path": "/home", "words": "x y\n" * 100})
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": LONG}}
SEALED = {"type": "redacted_thinking", "data": "d"}


def tool(content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c1", "content": content, **more}


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


# A message, and the lines that are shown of it.
SHOWN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a call, where it stood": (
        said([words("Let me."), words("And?")], tool_calls=[CALL], order=["text:0", "tool_call:0", "text:1"]),
        ["## assistant", "Let me.", '`[tool call ls({"path": "/home", "words": "x y\\nx y…', "And?"],
    ),
    "a long result": (tool("\na.txt\n" + "b.txt\n" * 500, name="ls"), ["## tool (ls)", "`a.txt [3.0 kB]`"]),
    "a failed one": (tool("one line\n", is_error=True), ["## tool", "`[error] one line`"]),
    "thinking": (
        said("a", thinking=[{"type": "thinking", "thinking": "x" * 1200, "signature": "s"}, SEALED]),
        ["## assistant", "`[thinking, 1,200 characters]`", "`[thinking, not readable]`", "a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", SHOWN)
def test_a_message_is_shown(home: Home, row: str) -> None:
    message, expected = SHOWN[row]
    put(home, of({**message, "timestamp": None}))
    run = home.run("--show-session", "7x2m")
    assert (run.code, run.stderr) == (0, "")
    lines = [line for line in run.stdout[run.stdout.index("\n## ") :].split("\n") if line]
    assert all(len(line) < 150 for line in lines)
    shown = [
        want if want.endswith("…") and line.startswith(want[:-1]) else line
        for line, want in zip(lines, expected, strict=True)
    ]
    assert shown == expected
