"""Break a short answer of each API at each of its bytes: no broken answer may count as complete."""

import multiprocessing
import re
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dev.stress.table import Row, Table
from tests.support import anthropic_server, gemini_server, ollama_server, responses_server, server
from tests.support.home import Home

PIECES = ("An answer ", "of a few words, ", "é 😀.")
FLIPPED_BIT = 0x80  # flipping it makes the byte invalid UTF-8
TIMEOUT = 10  # seconds after which a run counts as hung
HEADS = ("API", "How", "Tried", "Taken for complete", "Shown and not saved", "Tracebacks", "Hung")


class Api(NamedTuple):
    """One API: its model, config and server, the bytes of an answer, and the text that marks its end."""

    model: str
    config: str
    body: bytes
    end: bytes
    server: Callable[[], server.ModelServer]


APIS = {
    "Chat Completions": Api(
        "lab/m", '[providers.lab]\nbase_url = "{server.base_url}"',
        b"".join(server.answer(*PIECES)), b'"finish_reason": "stop"', server.ModelServer,
    ),
    "Anthropic": Api(
        "anthropic/claude-sonnet-4-5", '[providers.anthropic]\nbase_url = "{server.base_url}"',
        b"".join(anthropic_server.stream(anthropic_server.said(0, *PIECES))), b'"stop_reason": "end_turn"',
        anthropic_server.AnthropicServer,
    ),
    "Ollama": Api(
        "ollama/m", '[providers.ollama]\nbase_url = "{server.root}"',
        ollama_server.ndjson(*map(ollama_server.line, PIECES), ollama_server.last()), b'"done": true',
        ollama_server.OllamaServer,
    ),
    "Responses": Api(
        "openai/gpt-6.1-sol", '[providers.openai]\nbase_url = "{server.base_url}"\napi = "responses"',
        b"".join(responses_server.stream(responses_server.message("".join(PIECES)))),
        b'"type": "response.completed"', responses_server.ResponsesServer,
    ),
    "generateContent": Api(
        "gemini/gemini-3.8-flash", '[providers.gemini]\nbase_url = "{server.google_url}"',
        b"".join(gemini_server.stream({"text": "".join(PIECES)})), b'"finishReason": "STOP"',
        gemini_server.GeminiServer,
    ),
}  # fmt: skip


class Outcome(NamedTuple):
    """The result of one run."""

    taken_for_complete: bool
    lost: bool
    traceback: bool
    hung: bool


def every_byte(step: int) -> Table:
    """Break the answer of each API at every ``step``-th byte."""
    rows = []
    for how, workers in (("cut", 2), ("corrupted", 2), ("stalled", 8)):  # a stalled run only waits
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            for name, api in APIS.items():
                places = [(name, how, at) for at in range(0, len(api.body), step)]
                outcomes = list(pool.map(_outcome, places, chunksize=10))
                counts = [sum(column) for column in zip(*outcomes, strict=True)]
                rows.append(Row((name, how, len(places), *counts), not any(counts)))
    return Table("Streams that break", _TEXT, HEADS, rows)


def _outcome(place: tuple[str, str, int]) -> Outcome:
    name, how, at = place
    api, home, model = APIS[name], *_home(name)
    corrupt = bytearray(api.body)
    if how == "corrupted":
        corrupt[at] ^= FLIPPED_BIT
    release = threading.Event()
    steps: dict[str, tuple[Any, ...]] = {
        "cut": (api.body[:at], server.Cut), "stalled": (api.body[:at], release), "corrupted": (bytes(corrupt),)
    }  # fmt: skip
    kind = "application/x-ndjson" if name == "Ollama" else "text/event-stream"
    model.forget()
    for _ in range(5):  # gptsh may ask again if the stream breaks before the first word
        model.script(*(step for step in steps[how] if step != b""), headers={"Content-Type": kind})
    for path in home.files():
        path.unlink()
    started = time.monotonic()
    run = home.run("-m", api.model, "--title", "t", "hi")
    seconds = time.monotonic() - started
    release.set()
    answers = [
        message["content"]
        for doc in home.docs()
        for message in doc["messages"]
        if message["role"] == "assistant"
    ]
    saved = answers[-1] if answers else ""
    last = api.body.index(api.end)
    end = last + len(re.split(rb"[\r\n]", api.body[last:], maxsplit=1)[0])
    missing = len(saved) < len("".join(PIECES))
    return Outcome(
        run.code == 0 and (missing if how == "corrupted" else at < end),
        run.stdout.removesuffix("\n") != saved,
        "Traceback" in run.stderr,
        seconds > TIMEOUT,
    )


@cache
def _home(name: str) -> tuple[Home, server.ModelServer]:
    api = APIS[name]
    home, model = Home(Path(tempfile.mkdtemp(prefix="gptsh-streams-"))), api.server()
    home.env |= {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}
    timeouts = "[network]\nidle_timeout = 0.3\nfirst_byte_timeout = 0.3\nretries = 0\n"
    home.configure(f"{api.config.format(server=model)}\n{timeouts}")
    return home, model


_TEXT = f"""\
A server on loopback sends {len("".join(PIECES))} characters in the format of each API. At each byte of the stream, the
connection is cut, stalls, or delivers a byte that is not UTF-8. *Taken for complete* counts runs that ended with 0
before the end of the answer had arrived."""
