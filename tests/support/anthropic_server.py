"""A server on loopback with Anthropic's Messages API, which refuses what the real one refuses.

It signs the thinking that it sends and checks these signatures.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from typing import Any

from tests.support.server import ModelServer, Script

FIELDS = {
    "model", "messages", "max_tokens", "system", "stream", "stop_sequences", "temperature", "top_p", "top_k", "tools",
    "tool_choice", "thinking", "output_config", "metadata", "service_tier", "container", "cache_control",
}  # fmt: skip
BLOCKS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "server_tool_use": {"id", "name", "input", "caller"},
    "web_search_tool_result": {"tool_use_id", "content"},
}
OF_USER = ("text", "image", "document", "tool_result")
OF_ASSISTANT = tuple(set(BLOCKS) - {"image", "document"})
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
MARKS = 4
_ID = re.compile("[a-zA-Z0-9_-]+")
_THINKS_BY_DEFAULT = re.compile("claude-[a-z]+-([5-9]|4-[6-9])")  # for 4-6 to 4-8, no table says so


class Refused(Exception):
    """An error of the API: its message and its status."""

    def __init__(self, what: str, status: int = 400, kind: str = "invalid_request_error") -> None:
        super().__init__(what)
        self.status = status
        self.kind = kind


def _refuse_if(wrong: object, why: str) -> None:
    """Raise Refused if the condition is true."""
    if wrong:
        raise Refused(why)


def signature(thinking: str) -> str:
    """The server's signature of a thinking text."""
    return base64.b64encode(hmac.new(b"key", thinking.encode(), hashlib.sha256).digest()).decode()


def named(payload: dict[str, Any]) -> bytes:
    """One SSE event with its name."""
    return b"event: %s\ndata: %s\n\n" % (payload["type"].encode(), json.dumps(payload).encode())


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """One content block."""
    inside = [
        named({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas
    ]
    begin = named({"type": "content_block_start", "index": index, "content_block": start})
    return [begin, *inside, named({"type": "content_block_stop", "index": index})]


def thought(index: int, *pieces: str, signed: str | None = None) -> list[bytes]:
    """A thinking block, by default with the server's signature."""
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signed = signature("".join(pieces)) if signed is None else signed
    start = {"type": "thinking", "thinking": "", "signature": ""}
    return block(index, start, *deltas, {"type": "signature_delta", "signature": signed})


def said(index: int, *pieces: str) -> list[bytes]:
    """A text block."""
    return block(
        index,
        {"type": "text", "text": ""},
        *({"type": "text_delta", "text": piece} for piece in pieces),
    )


def tool(index: int, call_id: str, name: str, *pieces: str) -> list[bytes]:
    """A tool call with its arguments in pieces of JSON."""
    start = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(
        index, start, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    )


USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 5,
    "output_tokens": 1,
}


def stream(
    *blocks: list[bytes], stop: str | None = "end_turn", usage: dict[str, int] | None = None
) -> list[bytes]:
    """A well-formed stream. Default usage: 10 new tokens, 5 read from the cache, 3 written to it, 15 output tokens."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "c", "stop_reason": None,
            "usage": {**USAGE, **(usage or {})}}  # fmt: skip
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        named({"type": "message_start", "message": head}),
        named({"type": "ping"}),
        *(event for events in blocks for event in events),
        named({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}}),
        named({"type": "message_stop"}),
    ]


# ---- validation of requests


def check(body: Any, headers: dict[str, str]) -> None:
    """Raise Refused for a request that the real API would refuse."""
    if "x-api-key" not in headers and not headers.get("authorization", "").startswith("Bearer "):
        raise Refused("x-api-key header is required", 401, "authentication_error")
    _refuse_if(
        headers.get("anthropic-version") != "2023-06-01", "anthropic-version: header is required"
    )
    for message in body.get("messages") or ():
        if isinstance(message.get("content"), str):  # the API's short form of one text
            message["content"] = [{"type": "text", "text": message["content"]}]
    for field in sorted(set(body) - FIELDS):
        raise Refused(f"{field}: Extra inputs are not permitted")
    _refuse_if(
        type(body.get("max_tokens")) is not int or body["max_tokens"] < 1,
        "max_tokens: Field required",
    )
    _check_sampling(body)
    _check_thinking(body)
    _check_tools(body)
    _check_closed((body.get("output_config") or {}).get("format", {}).get("schema"))
    messages = body.get("messages")
    _refuse_if(
        not messages or not isinstance(messages, list), "messages: at least one message is required"
    )
    for at, message in enumerate(messages):
        _check_message(at, message)
    _check_calls(messages)
    _check_end(messages, body)
    if len(marks(body)) > MARKS:
        raise Refused(
            f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks(body))}."
        )


def complaint(body: dict[str, Any]) -> str | None:
    """The API's error for a request with a key; None if the request is valid."""
    try:
        check(body, HEADERS)
    except Refused as err:
        return str(err)
    return None


def _check_sampling(body: dict[str, Any]) -> None:
    _refuse_if(not 0 <= body.get("temperature", 1) <= 1, "temperature: range: 0..1")
    if "temperature" in body and "top_p" in body:
        raise Refused(
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        )
    if not all(isinstance(stop, str) and stop.strip() for stop in body.get("stop_sequences", ())):
        raise Refused("stop_sequences: each stop sequence must contain non-whitespace")


def _check_thinking(body: dict[str, Any]) -> None:
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens", 0)
        _refuse_if(
            budget < 1024,
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        )
        _refuse_if(
            body["max_tokens"] <= budget,
            "`max_tokens` must be greater than `thinking.budget_tokens`",
        )
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
    if thinking.get("type") in ("enabled", "adaptive"):
        _refuse_if(
            body.get("temperature", 1) != 1,
            "`temperature` may only be set to 1 when thinking is enabled.",
        )
        _refuse_if(
            "top_k" in body or body.get("top_p", 1) < 0.95,
            "`top_k` must be unset when thinking is enabled.",
        )


def _check_tools(body: dict[str, Any]) -> None:
    for at, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") == "web_search_20250305":
            unknown = set(tool) - {"type", "name", "max_uses", "cache_control"}
            _refuse_if(
                unknown or tool.get("name") != "web_search", f"tools.{at}.web_search: Extra inputs"
            )
            continue
        unknown = set(tool) - {
            "name",
            "description",
            "input_schema",
            "cache_control",
            "type",
            "strict",
        }
        if unknown:
            raise Refused(f"tools.{at}.custom.{min(unknown)}: Extra inputs are not permitted")
        if not re.fullmatch("[a-zA-Z0-9_-]{1,128}", tool.get("name", "")):
            raise Refused(f"tools.{at}.custom.name: String should match pattern")
        if (
            not isinstance(tool.get("input_schema"), dict)
            or tool["input_schema"].get("type") != "object"
        ):
            raise Refused(f"tools.{at}.custom.input_schema: Field required")
        if {"oneOf", "allOf", "anyOf"} & set(tool["input_schema"]):
            why = "input_schema does not support oneOf, allOf, or anyOf at the top level"
            raise Refused(f"tools.{at}.custom.input_schema: {why}")
    if "tool_choice" in body and not (isinstance(body["tool_choice"], dict) and body.get("tools")):
        raise Refused("tool_choice: may only be specified while providing tools.")


def _check_closed(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            raise Refused(
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be false"
            )
        _refuse_if(
            "minimum" in schema or "oneOf" in schema,
            "output_config.format.schema: a property is not supported",
        )
        schema = [
            inner
            for key, inner in schema.items()
            if key not in ("const", "enum", "default", "examples")
        ]
    for inner in schema if isinstance(schema, list) else ():
        _check_closed(inner)


def _check_message(at: int, message: Any) -> None:
    role = message.get("role")
    if role != ("user", "assistant")[at % 2]:
        raise Refused(
            f"messages.{at}: roles must alternate between user and assistant, beginning with user"
        )
    if (
        set(message) != {"role", "content"}
        or not isinstance(message["content"], list)
        or not message["content"]
    ):
        raise Refused(f"messages.{at}: content must be blocks")
    for place, part in enumerate(message["content"]):
        _check_block(
            f"messages.{at}.content.{place}", part, OF_USER if role == "user" else OF_ASSISTANT
        )
    kinds = [part["type"] for part in message["content"]]
    if any("thinking" in kind for kind in kinds) and "thinking" not in kinds[0]:
        raise Refused(
            f"messages.{at}.content.0: the first block must be `thinking` or `redacted_thinking`"
        )
    _refuse_if(
        "thinking" in kinds[-1],
        f"messages.{at}: The final block in an assistant message cannot be `{kinds[-1]}`.",
    )


def _check_block(where: str, part: Any, allowed: tuple[str, ...]) -> None:
    kind = part.get("type")
    _refuse_if(
        kind not in allowed,
        f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags",
    )
    unknown = (
        set(part) - BLOCKS[kind] - {"type", *(() if "thinking" in kind else ("cache_control",))}
    )
    if unknown:
        raise Refused(f"{where}.{kind}.{min(unknown)}: Extra inputs are not permitted")
    if kind == "text":
        blank = not isinstance(part.get("text"), str) or not part["text"].strip()
        _refuse_if(blank, f"{where}: text content blocks must contain non-whitespace text")
    if kind == "thinking":
        forged = part.get("signature") != signature(part["thinking"])
        _refuse_if(forged, f"{where}: Invalid `signature` in `thinking` block")
    checks = {"image": _check_source, "document": _check_source, "tool_use": _check_tool_use,
              "tool_result": _check_result}  # fmt: skip
    if kind in checks:
        checks[kind](where, part)


def _check_source(where: str, part: dict[str, Any]) -> None:
    source = part["source"]
    if set(source) - {"type", "media_type", "data", "url"} or set(part.get("citations") or ()) - {
        "enabled"
    }:
        raise Refused(f"{where}: Extra inputs are not permitted")
    kinds = IMAGES if part["type"] == "image" else ("application/pdf",)
    if source["type"] == "url":
        _refuse_if(
            not source["url"].startswith("https://"),
            f"{where}.source.url: Only HTTPS URLs are supported.",
        )
    elif source["type"] == "text":
        plain = (
            part["type"] == "document"
            and source.get("media_type") == "text/plain"
            and source.get("data")
        )
        _refuse_if(not plain, f"{where}.source: Input should be 'text/plain'")
    else:
        known = source["type"] == "base64" and source.get("media_type") in kinds
        _refuse_if(not known, f"{where}.source.base64.media_type: Input should be one of {kinds}")
        try:
            base64.b64decode(source["data"], validate=True)
        except (binascii.Error, TypeError) as err:
            raise Refused(f"{where}.source.base64: invalid base64 data") from err


def _check_tool_use(where: str, part: dict[str, Any]) -> None:
    _refuse_if(
        not isinstance(part.get("input"), dict),
        f"{where}.tool_use.input: Input should be a valid dictionary",
    )
    if not _ID.fullmatch(part.get("id", "")) or not re.fullmatch(
        "[a-zA-Z0-9_-]{1,128}", part.get("name", "")
    ):
        raise Refused(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")


def _check_result(where: str, part: dict[str, Any]) -> None:
    content = part.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for at, inner in enumerate(blocks):
        _check_block(f"{where}.tool_result.content.{at}", inner, ("text", "image", "document"))
        if part.get("is_error") and inner["type"] != "text":
            raise Refused(
                f"{where}.tool_result: all content must be type text if `is_error` is true"
            )


def _check_calls(messages: list[dict[str, Any]]) -> None:
    """Check that each call has its result at the start of the next message, and that ids are unique."""
    seen: set[str] = set()
    pending: list[str] = []
    for at, message in enumerate(messages):
        results = [
            part["tool_use_id"] for part in message["content"] if part["type"] == "tool_result"
        ]
        _refuse_if(
            len(results) != len(set(results)),
            f"messages.{at}: each tool_use must have a single result",
        )
        _refuse_if(
            set(results) - set(pending),
            f"messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks",
        )
        if set(pending) - set(results):
            raise Refused(
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after"
            )
        if any(part["type"] != "tool_result" for part in message["content"][: len(results)]):
            raise Refused(f"messages.{at}: `tool_result` blocks must come first")
        pending = [part["id"] for part in message["content"] if part["type"] == "tool_use"]
        _refuse_if(
            len(pending) != len(set(pending)) or seen & set(pending),
            f"messages.{at}: `tool_use` ids must be unique",
        )
        seen |= set(pending)
    _refuse_if(
        pending,
        "messages: `tool_use` ids were found without `tool_result` blocks immediately after",
    )


def _check_end(messages: list[dict[str, Any]], body: dict[str, Any]) -> None:
    last = messages[-1]["content"][-1]
    if (
        messages[-1]["role"] == "assistant"
        and last["type"] == "text"
        and last["text"] != last["text"].rstrip()
    ):
        raise Refused("messages: final assistant content cannot end with trailing whitespace")
    kinds = [part["type"] for message in messages for part in message["content"]]
    if "tool_use" in kinds and not body.get("tools"):
        raise Refused("Requests which include `tool_use` or `tool_result` blocks must define tools")
    _check_loop(messages, body)


def _check_loop(messages: list[dict[str, Any]], body: dict[str, Any]) -> None:
    """Check a tool loop: thinking blocks only with thinking on; with a budget, the first block must be thinking."""
    kind = (body.get("thinking") or {}).get("type") or (
        "adaptive" if _THINKS_BY_DEFAULT.match(body["model"]) else "disabled"
    )
    loop: list[list[dict[str, Any]]] = []
    for message in messages:
        if message["role"] == "assistant":
            loop.append(message["content"])
        elif message["content"][0]["type"] != "tool_result":
            loop = []
    if kind == "enabled" and loop and "thinking" not in loop[0][0]["type"]:
        raise Refused(
            f"Expected `thinking` or `redacted_thinking`, but found `{loop[0][0]['type']}`."
        )
    if kind == "disabled" and any(
        "thinking" in part["type"] for content in loop for part in content
    ):
        raise Refused("When thinking is disabled, an `assistant` message in the final position cannot contain "
                      "`thinking`. To use thinking blocks, enable `thinking` in your request.")  # fmt: skip


def prompt(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a prompt in the order of the cache: tools, system, messages."""
    of_messages = [part for message in body["messages"] for part in message["content"]]
    return [*(body.get("tools") or ()), *(body.get("system") or ()), *of_messages]


def marks(body: dict[str, Any]) -> list[int]:
    """The indexes of the blocks with a cache mark."""
    return [at for at, part in enumerate(prompt(body)) if "cache_control" in part]


def prefixes(body: dict[str, Any]) -> list[str]:
    """The cached prefixes of a prompt: up to each cache mark."""
    bare = [
        {key: value for key, value in part.items() if key != "cache_control"}
        for part in prompt(body)
    ]
    return [json.dumps(bare[: at + 1], sort_keys=True) for at in marks(body)]


class AnthropicServer(ModelServer):
    """Echoes the last text of the user, with the usage of its cache. A queued answer waits for a valid request."""

    def __init__(self) -> None:
        super().__init__()
        self._cache: set[str] = set()

    def _next(self, body: Any) -> Script:
        if "messages" not in (body or {}):
            return super()._next(body)
        try:
            check(body, self.requests[-1].headers)
        except Refused as err:
            return _json(
                err.status, {"type": "error", "error": {"type": err.kind, "message": str(err)}}
            )
        return super()._next(body)

    def _default(self, body: Any) -> Script:
        text = json.dumps(
            [{k: v for k, v in part.items() if k != "cache_control"} for part in prompt(body)]
        )
        cached = [prefix for prefix in prefixes(body) if prefix in self._cache]
        new = [prefix for prefix in prefixes(body) if prefix not in self._cache]
        self._cache |= set(new)
        read = max(map(len, cached), default=0)
        written = max(map(len, new), default=read) - read
        usage = {"input_tokens": len(text) - read - written, "cache_read_input_tokens": read,
                 "cache_creation_input_tokens": written}  # fmt: skip
        words = [part["text"] for part in body["messages"][-1]["content"] if part["type"] == "text"]
        return _answer(
            f"You said: {words[-1] if words else ''}", usage, streams=body.get("stream") is True
        )


def _answer(text: str, usage: dict[str, int], *, streams: bool) -> Script:
    if streams:
        pieces = [text[at : at + 8] for at in range(0, len(text), 8)]
        sent = stream(said(0, *pieces), usage=usage)
        return Script(200, {"Content-Type": "text/event-stream"}, tuple(sent), "chunked")
    message = {"id": "msg_2", "type": "message", "role": "assistant", "content": [{"type": "text", "text": text}],
               "stop_reason": "end_turn", "usage": {**usage, "output_tokens": 15}}  # fmt: skip
    return _json(200, message)


def _json(status: int, payload: dict[str, Any]) -> Script:
    headers = {"Content-Type": "application/json", "request-id": "req_x"}
    return Script(status, headers, (json.dumps(payload).encode(),), "length")
