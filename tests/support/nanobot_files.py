"""Session files of each version of nanobot. (A module named nanobot.py would hide the real one.)"""

import json
from typing import Any

HEADER = {"_type": "metadata", "key": "cli:direct", "created_at": "2026-02-23T10:00:00.123456",
          "updated_at": "2026-02-23T10:00:30", "metadata": {}, "last_consolidated": 0}  # fmt: skip
USER = {"role": "user", "content": "hi \u2028 é", "timestamp": "2026-02-23T10:00:01.000001"}
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "é"}'}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "hm",
           "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": ""}],
           "timestamp": "2026-02-23T10:00:02"}  # fmt: skip
RESULT = {
    "role": "tool",
    "tool_call_id": "c1",
    "name": "ls",
    "content": "a\nb",
    "timestamp": "2026-02-23T10:00:03",
}
ANSWER = {
    "role": "assistant",
    "content": "done",
    "timestamp": "2026-02-23T10:00:04.5",
    "latency_ms": 12,
}
STATE = {
    "_type": "provider_state",
    "state": {"kind": "x", "version": 1, "payload": {"a": "\u2029"}},
}


def python(*values: object) -> str:
    """Lines in the style of the Python nanobot."""
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values)


def go(*values: object, sort: bool = True) -> str:
    """Lines in the style of the Go port."""
    lines = (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort)
        for value in values
    )
    return (
        "".join(f"{line}\n" for line in lines)
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def without(record: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The record without these keys."""
    return {key: value for key, value in record.items() if key not in keys}


NOW = {"timestamp": "2026-02-23T10:00:30Z"}
GO_HEADER = {**HEADER, "created_at": "2026-02-23T10:00:00Z", "updated_at": "2026-02-23T10:00:30Z"}
GO_USER = {**USER, **NOW}
ERAS = {
    "python, February": python(HEADER, USER, CALLING, RESULT, ANSWER),
    "main, with a state": python({**HEADER, "metadata": {"title": "A  title"}}, STATE, USER, CALLING, RESULT, ANSWER),
    "0.3.5, with both counts": python(
        {**without(HEADER, "last_consolidated"), "last_archived": 2, "last_consolidated": 2},
        USER, ANSWER, USER, ANSWER,
    ),
    "consolidated": python({**HEADER, "last_consolidated": 3}, USER, CALLING, RESULT, ANSWER),
    "more keys of each message": python(
        HEADER, {**USER, "media": ["/a.png"], "sender_id": 3, "_meta": {"a": 1.0}}, {**ANSWER, "tools_used": ["ls"]},
        {**USER, "id": "own", "usage": "much", "parent": 3, "source": None, "cost": 1e3},
    ),
    "go": go(GO_HEADER, GO_USER, {**ANSWER, **NOW, "tools_used": ["ls"]}),
    "go, head": go(GO_HEADER) + go(GO_USER, {**CALLING, **NOW}, sort=False),
}  # fmt: skip
