"""A server on loopback with OpenAI's Responses API, which refuses what the real one refuses.

It seals the reasoning that it sends, and checks that sealed reasoning comes back whole, before what it produced.
"""

import hashlib
import json
from typing import Any

from tests.support.anthropic_server import named
from tests.support.server import ModelServer, Script

USAGE = {
    "input_tokens": 11, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 16,
}  # fmt: skip
FIELDS = {
    "model", "input", "instructions", "stream", "store", "include", "reasoning", "text", "max_output_tokens",
    "temperature", "top_p", "tools", "tool_choice", "parallel_tool_calls", "prompt_cache_key", "service_tier",
    "metadata", "truncation", "top_logprobs",
}  # fmt: skip
USER_PARTS = {"input_text": {"text"}, "input_image": {"image_url", "detail"},
              "input_file": {"filename", "file_data", "file_url"}}  # fmt: skip
# Of each item: the keys that must be there, and those that may.
ITEMS: dict[str, tuple[set[str], set[str]]] = {
    "message": ({"role", "content"}, {"id", "status", "phase"}),
    "reasoning": ({"id", "summary"}, {"encrypted_content", "content", "status"}),
    "function_call": ({"call_id", "name", "arguments"}, {"id", "status", "namespace"}),
    "function_call_output": ({"call_id", "output"}, set()),
    "web_search_call": ({"id", "status"}, {"action"}),
}
# What may come after reasoning.
FOLLOWERS = ("message", "reasoning", "function_call", "web_search_call")


def sealed(text: str) -> str:
    """The encrypted form of a thought."""
    return hashlib.sha256(text.encode()).hexdigest() + text.encode().hex()


def reasoning(name: str, *summary: str) -> dict[str, Any]:
    """An item of reasoning."""
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {
        "id": f"rs_{name}",
        "type": "reasoning",
        "summary": parts,
        "encrypted_content": sealed(name),
    }


def message(text: str, name: str = "1", **more: Any) -> dict[str, Any]:
    """An item with a text of the model."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant", "content": [part],
            **more}  # fmt: skip


def refusal(text: str) -> dict[str, Any]:
    """An item with a refusal."""
    return {**message(""), "content": [{"type": "refusal", "refusal": text}]}


def function_call(call_id: str, name: str, arguments: str = "{}") -> dict[str, Any]:
    """An item with a call of a function."""
    return {"id": f"fc_{call_id}", "type": "function_call", "status": "completed", "call_id": call_id, "name": name,
            "arguments": arguments}  # fmt: skip


def search(name: str = "1") -> dict[str, Any]:
    """An item of the server's own search."""
    return {"id": f"ws_{name}", "type": "web_search_call", "status": "completed",
            "action": {"type": "search", "query": "weather"}}  # fmt: skip


def response(*items: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    """A whole response."""
    return {"id": "resp_1", "object": "response", "created_at": 0, "model": "gpt-6.1-sol-2026-10-01", "status": status,
            "error": None, "incomplete_details": None, "output": list(items), "usage": USAGE, **more}  # fmt: skip


def events(*items: dict[str, Any], status: str = "completed", **more: Any) -> list[dict[str, Any]]:
    """The events of a response, its texts in pieces of eight characters."""
    begun = response(status="in_progress") | {"usage": None}
    result: list[dict[str, Any]] = [
        {"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")
    ]
    for index, item in enumerate(items):
        at = {"item_id": item["id"], "output_index": index}
        empty = {key: value for key, value in item.items() if key != "encrypted_content"}
        for key in {"content", "summary", "arguments"} & set(item):
            empty[key] = "" if key == "arguments" else []
        result.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        result += [{**at, "sequence_number": len(result), **delta} for delta in _deltas(item)]
        result.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [
        *result,
        {"type": f"response.{status}", "response": response(*items, status=status, **more)},
    ]


def _deltas(item: dict[str, Any]) -> list[dict[str, Any]]:
    """What is streamed of an item."""
    texts: list[tuple[dict[str, Any], str]] = []
    for part in item.get("content", ()):
        kind = part["type"].removeprefix("output_")
        texts.append(({"type": f"response.{part['type']}.delta", "content_index": 0}, part[kind]))
    for at, part in enumerate(item.get("summary", ())):
        texts.append(
            ({"type": "response.reasoning_summary_text.delta", "summary_index": at}, part["text"])
        )
    if item["type"] == "function_call":
        texts.append(({"type": "response.function_call_arguments.delta"}, item["arguments"]))
    return [
        {**event, "delta": text[at : at + 8]}
        for event, text in texts
        for at in range(0, len(text), 8)
    ]


def stream(*items: dict[str, Any], **more: Any) -> list[bytes]:
    """The same as server-sent events."""
    return [named(event) for event in events(*items, **more)]


def complaint(body: dict[str, Any]) -> str | None:
    """The API's error for a request; None if it is valid."""
    if unknown := set(body) - FIELDS:
        return f"Unknown parameter: '{min(unknown)}'."
    if type(body.get("max_output_tokens", 16)) is not int or body.get("max_output_tokens", 16) < 16:
        return "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
    if not body.get("input"):
        return "Missing required parameter: 'input'."
    for tool in body.get("tools", ()):
        if tool["type"] == "function" and not {"name", "parameters", "strict"} <= set(tool):
            return "Missing required parameter: 'tools[0].name'."
    return _wrong_items(body["input"])


def _wrong_items(items: list[dict[str, Any]]) -> str | None:
    calls: set[str] = set()
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        wrong = _wrong_keys(kind, item, index)
        if wrong is None and kind == "message":
            wrong = _wrong_message(item)
        if wrong is None and kind == "reasoning":
            wrong = _wrong_reasoning(item, items[index + 1 :])
        if wrong is None and kind in ("function_call", "function_call_output"):
            wrong = _wrong_call(item, calls)
        if wrong is not None:
            return wrong
    return f"No tool output found for function call {min(calls)}." if calls else None


def _wrong_keys(kind: str, item: dict[str, Any], index: int) -> str | None:
    if kind not in ITEMS:
        return f"Invalid value: '{kind}'."
    required, optional = ITEMS[kind]
    keys = set(item) - {"type"}
    if not required <= keys <= required | optional:
        return f"Unknown or missing parameter: 'input[{index}]' {sorted(item)}"
    return None


def _wrong_reasoning(item: dict[str, Any], following: list[dict[str, Any]]) -> str | None:
    seal = item.get("encrypted_content") or ""
    if sealed(bytes.fromhex(seal[64:]).decode()) != seal:
        return "The encrypted content could not be verified. Code: invalid_encrypted_content"
    if not following or following[0].get("type") not in FOLLOWERS:
        return f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
    return None


def _wrong_call(item: dict[str, Any], calls: set[str]) -> str | None:
    """Add a call to the open ones, or take away the one that is answered."""
    call_id = item["call_id"]
    if item["type"] == "function_call_output":
        if call_id not in calls:
            return f"No tool call found for function call output with call_id {call_id}."
        calls.remove(call_id)
        return None
    if call_id in calls or not isinstance(item["arguments"], str):
        return "Duplicate call"
    calls.add(call_id)
    return None


def _wrong_message(item: dict[str, Any]) -> str | None:
    if item["role"] not in ("user", "assistant", "system", "developer"):
        return f"Invalid value: '{item['role']}'."
    if isinstance(item["content"], str):
        return None if item["content"] else "Invalid content: empty"
    for part in item["content"]:
        kind = part["type"]
        keys = set(part) - {"type"}
        if item["role"] == "assistant":
            if (kind, keys) != ("output_text", {"text", "annotations"}) and kind != "refusal":
                return f"Invalid value: '{kind}'."
        elif keys - USER_PARTS.get(kind, set()) or kind not in USER_PARTS:
            return f"Invalid value: '{kind}' {keys}."
    return None


class ResponsesServer(ModelServer):
    """Echoes the last text of the user. A queued answer waits for a valid request."""

    def answer(self, *items: dict[str, Any], model: str = "", **more: Any) -> None:
        """Queue a streamed answer of these items."""
        self.script(*stream(*items, **more), model=model)

    def _next(self, body: Any) -> Script:
        if "input" not in (body or {}):
            return super()._next(body)
        if not self.requests[-1].path.endswith("/responses"):
            return _json(404, {"error": {"message": "Invalid URL"}})
        if wrong := complaint(body):
            fault = {"message": wrong, "type": "invalid_request_error", "param": None, "code": None}
            return _json(400, {"error": fault})
        queue = self._scripts[body.get("model", "")] or self._scripts[""]
        return queue.popleft() if queue else self._default(body)

    def _default(self, body: Any) -> Script:
        content = body["input"][-1].get("content") or body["input"][-1]["output"]
        text = (
            content
            if isinstance(content, str)
            else " ".join(part.get("text", part["type"]) for part in content)
        )
        items = (reasoning("x", "Thinking."), message(f"You said: {text}", phase="final_answer"))
        if not body.get("stream"):
            return _json(200, response(*items))
        return Script(200, {"Content-Type": "text/event-stream"}, tuple(stream(*items)), "chunked")


def _json(status: int, payload: Any) -> Script:
    return Script(
        status, {"Content-Type": "application/json"}, (json.dumps(payload).encode(),), "length"
    )
