"""An answer in many small pieces, in each API: four times the pieces take four times the time, not sixteen."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import anthropic_server as claude_api
from tests.support import gemini_server as google
from tests.support import ollama_server as llama
from tests.support.home import Home
from tests.support.ollama_server import OllamaServer
from tests.support.server import ModelServer, chunk, event

PIECE = "x" * 500


def chat(*deltas: dict[str, Any]) -> bytes:
    """A stream of chat completions with these deltas and a word."""
    chunks = [*map(chunk, deltas), chunk({"content": "done"}), chunk({}, "stop"), b"[DONE]"]
    return b"".join(map(event, chunks))


def call(arguments: str, **more: str) -> dict[str, Any]:
    """A delta with a piece of the first call."""
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments, **more}}]}


def claude(*events: dict[str, Any]) -> bytes:
    """A stream of Anthropic's Messages API with these events."""
    start = {
        "type": "message_start",
        "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}},
    }
    last = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 5},
    }
    return b"".join(map(claude_api.named, (start, *events, last, {"type": "message_stop"})))


def block(kind: str, *deltas: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """The events of one block of Claude's."""
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": kind, **more}}
    pieces = [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    return [start, *pieces, {"type": "content_block_stop", "index": 0}]


def broken_off(count: int) -> bytes:
    """A stream of the Responses API that ends within a call."""
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "ls", "arguments": ""}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    piece = {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": PIECE}
    return b"".join(map(claude_api.named, (added, *[piece] * count)))


def documents(*parts: dict[str, Any], size: int) -> bytes:
    """A stream of Google's with so many parts in each document."""
    starts = range(0, len(parts), size)
    return b"".join(
        google.event(google.document(*parts[at : at + size], finish="STOP")) for at in starts
    )


def details(count: int) -> bytes:
    return chat(
        *[{"reasoning_details": [{"type": "reasoning.text", "text": PIECE, "index": 0}]}] * count
    )


def citations(count: int) -> bytes:
    cited = [
        {"type": "citations_delta", "citation": {"url": f"http://x/{at}"}} for at in range(count)
    ]
    return claude(*block("text", *cited, text="done"))


ANSWERS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "arguments of a call": ("chat", lambda count: chat(*[call(PIECE, name="")] * count)),
    "the name in each piece": ("chat", lambda count: chat(*[call(f"{PIECE}}}", name="ls")] * count)),
    "signed reasoning": ("chat", details),
    "signatures": ("chat", lambda count: chat(
        *({"provider_specific_fields": {"thought_signatures": [f"{at}"]}} for at in range(count)))),
    "notes on files": ("chat", lambda count: chat(
        *({"annotations": [{"type": "file", "file": {"hash": f"{at}"}}]} for at in range(count)))),
    "words that wait": ("chat", lambda count: chat(*[{"content": PIECE}] * count)),
    "arguments for Claude's tool": ("anthropic", lambda count: claude(
        *block("tool_use", *[{"type": "input_json_delta", "partial_json": PIECE}] * count, id="t", name="ls"))),
    "Claude's citations": ("anthropic", citations),
    "Claude's searches": ("anthropic", lambda count: claude(
        *[event for at in range(count) for event in block("server_tool_use", id=f"t{at}", name="web_search")])),
    "arguments in the Responses API": ("responses", broken_off),
    "texts and calls in turns": ("gemini", lambda count: documents(
        *[part for at in range(count) for part in ({"text": "x"}, google.call("ls", {}, f"c{at}"))], size=500)),
    "calls after the end": ("gemini", lambda count: documents(
        *[google.call("ls", {}, f"c{at}") for at in range(count)], size=1)),
    "calls of Ollama": ("ollama", lambda count: llama.ndjson(
        *[llama.line(tool_calls=[{"function": {"name": "ls", "arguments": {}}}])] * count, llama.last())),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "arguments of a call",
        "arguments for Claude's tool",
        "arguments in the Responses API",
        "texts and calls in turns",
        "calls of Ollama",
    ],
)
def test_thousands_of_pieces_take_time_in_proportion(
    home: Home, model: ModelServer, name: str
) -> None:
    few, many = seconds_for(home, model, name, 1_500, 6_000)
    assert many < 6 * few


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_tens_of_thousands_of_pieces_take_time_in_proportion(
    home: Home, model: ModelServer, name: str
) -> None:
    few, many = seconds_for(home, model, name, 10_000, 40_000)
    assert many < 8 * few


def seconds_for(home: Home, model: ModelServer, name: str, few: int, many: int) -> list[float]:
    """The CPU time of a run whose answer has few pieces, and of one that has many."""
    api, make = ANSWERS[name]
    server = OllamaServer() if api == "ollama" else model
    home.configure(
        f'[agents.default]\nmodel = "lab/m"\n[sessions]\ntitles = "off"\n'
        f'[providers.lab]\nbase_url = "{server.base_url}"\napi = "{api}"\n'
    )
    seconds = []
    for count in (few, many):
        body = make(count)
        runs = []
        for _ in range(2):
            server.script(body)
            started = time.process_time()
            run = home.run(
                "--no-tools", "--no-stream" if name == "words that wait" else "--new", "go"
            )
            runs.append(time.process_time() - started)
        seconds.append(min(runs))
    assert run.code in (0, 1)
    (reply,) = [message for message in home.docs()[0]["messages"] if message["role"] == "assistant"]
    assert len(str(reply)) > many
    return seconds
