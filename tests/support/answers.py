"""Parse what gptsh prints for programs; build answers of models."""

import json
from typing import Any

from tests.support.anthropic_server import named
from tests.support.home import Result


def memory_answer(memory_update: str, entry: str = "They talked.") -> str:
    return json.dumps({"history_entry": entry, "memory_update": memory_update})


def json_output(run: Result) -> Any:
    """The single JSON object on stdout."""
    assert run.stdout.count("\n") == 1
    return json.loads(run.stdout)


def events(run: Result) -> list[dict[str, Any]]:
    """The JSON objects on stdout, one a line."""
    return [json.loads(line) for line in run.stdout.splitlines()]


def responses(*pieces: str) -> list[bytes]:
    """A stream of OpenAI's Responses API."""
    message = {"id": "m1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    complete = {**message, "status": "completed",
             "content": [{"type": "output_text", "text": "".join(pieces), "annotations": []}]}  # fmt: skip
    base = {"id": "resp_1", "object": "response", "created_at": 0, "model": "gpt-5.5", "status": "in_progress",
            "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    done = {**base, "status": "completed", "output": [complete],
            "usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}}  # fmt: skip
    at = {"item_id": "m1", "output_index": 0, "content_index": 0}
    return [
        named({"type": "response.created", "response": base}),
        named({"type": "response.output_item.added", "output_index": 0, "item": message}),
        *(named({"type": "response.output_text.delta", **at, "delta": piece}) for piece in pieces),
        named({"type": "response.output_item.done", "output_index": 0, "item": complete}),
        named({"type": "response.completed", "response": done}),
    ]
