"""Sessions that outgrow a window, on disk as runs leave them, and what a model server was asked about them."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import events
from tests.support.home import Home, Result
from tests.support.server import ModelServer, Script, answer, prompt_tokens, whole

NAMES = ["parser", "writer", "lexer", "index", "cache", "queue", "router", "signal", "ledger", "archive", "garden"]
DOES = ["keeps", "drops", "reads", "sends", "joins", "sorts", "marks", "holds", "opens", "turns", "counts", "moves"]
TOLD = "They built the parser and then the writer."
WINDOW, BUDGET = 8192, 6144  # tokens; a quarter is the answer's
TURNS = 70  # of the session that all begins with; it takes about 9,000 tokens
CONFIG = """[agents.default]
model = "lab/m"
model_small = "lab/s"
[providers.lab]
base_url = "{base_url}"
[sessions]
titles = "off"
[network]
retries = 0
{more}"""


def configure(home: Home, model: ModelServer, more: str = "") -> None:
    """The model is ``lab/m``, the one for summaries ``lab/s``; nothing is tried again."""
    home.configure(CONFIG.format(base_url=model.base_url, more=more))


# ---- sessions


def prose(dice: random.Random, words: int) -> str:
    """So many words that say nothing twice in the same way."""
    said = [dice.choice(DOES if at % 2 else NAMES) for at in range(words - 1)]
    return " ".join([*said, str(dice.randrange(1000))])


def question(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def attached(words: str, name: str, text: str) -> dict[str, Any]:
    """A question with a text that was piped or attached."""
    return question([{"type": "text", "text": words}, {"type": "text", "text": text, "source": name}])


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "model": "lab/m", "provider": "lab"}


def tool_use(number: int, result: Any, tool: str = "read_file", **arguments: Any) -> list[dict[str, Any]]:
    """A call and its result."""
    function = {"name": tool, "arguments": json.dumps(arguments or {"path": f"src/part_{number}.py"})}
    made = [{"id": f"call_{number}", "type": "function", "function": function}]
    asked = {**reply(""), "content": None, "tool_calls": made}
    return [asked, {"role": "tool", "tool_call_id": f"call_{number}", "name": tool, "content": result}]


def chat(turns: int, *, words: int = 12, of_answers: int = 60, seed: int = 1) -> list[dict[str, Any]]:
    """Questions, each with its number, and answers."""
    dice = random.Random(seed)
    pairs = ((question(f"Q{at:04}: {prose(dice, words)}"), reply(prose(dice, of_answers))) for at in range(turns))
    return [message for pair in pairs for message in pair]


def kept(
    home: Home, messages: Sequence[Any], *, small: str = "lab/s", model: str = "lab/m", ident: str = "7x2m", **more: Any
) -> dict[str, Any]:
    """A session of these messages, put on disk; the document as it is there."""
    stamped, before = [], None
    for at, message in enumerate(messages):
        moment = f"2026-01-01T{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}.000Z"
        stamped.append({"id": f"{ident}-{at}", "parent": before, "timestamp": moment, **message})
        before = stamped[-1]["id"]
    doc = {
        "version": 1, "id": ident, "title": None, "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": "2026-01-02T00:00:00.000Z", "provider": {"name": model.partition("/")[0]},
        "agent": {"name": "default", "model": model, "model_small": small, "params": {}, "system": None},
        "context": {"summaries": [], "snapshots": [], "compaction": None, "cuts": {}, "consolidated": None}, **more,
        "messages": stamped,
    }  # fmt: skip
    home.sessions.mkdir(parents=True, exist_ok=True)
    path_of(home, ident).write_text(json.dumps(doc))
    return doc


def path_of(home: Home, ident: str = "7x2m") -> Path:
    return home.sessions / f"20260101-000000-{ident}.json"


def questions(doc: dict[str, Any]) -> list[str]:
    return [message["content"] for message in doc["messages"] if message["role"] == "user"]


# ---- servers


class Talker(ModelServer):
    """Answers of ``words`` words, ``TOLD`` from ``s``, with a usage by its own count; a window enforced and told."""

    words = 60

    def __init__(self, window: int) -> None:
        super().__init__()
        self._dice = random.Random(5)
        self.window = window
        self.tell(window, "m", "s")

    def _default(self, body: Any) -> Script:
        asked_for = super()._default(body)
        if asked_for.status != 200:
            return asked_for
        said = TOLD if body["model"] == "s" else prose(self._dice, self.words)
        usage = report(prompt_tokens(body), prompt_tokens({"messages": [{"content": said}]}))
        streamed = asked_for._replace(steps=tuple(answer(said, usage=usage)))
        return streamed if body.get("stream") else whole(said, usage=usage)


def report(prompt: int, completion: int = 2) -> dict[str, int]:
    """The usage of an answer."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def sum_up(model: ModelServer, *texts: str) -> None:
    """Queue summaries."""
    for text in texts:
        model.whole(text, model="s")


def too_long(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}}


def asked(model: ModelServer) -> list[dict[str, Any]]:
    """The questions that the model was asked, without those for summaries."""
    return [body for body in model.sent if body and body.get("messages") and body["model"] != "s"]


def for_summaries(model: ModelServer) -> list[dict[str, Any]]:
    """The questions for summaries."""
    return [body for body in model.sent if body and body.get("messages") and body["model"] == "s"]


def text_in(body: dict[str, Any]) -> str:
    """All words of a request."""
    words: list[str] = []
    for message in body["messages"]:
        content = message.get("content") or ""
        words += [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        words += [str(call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    return "\n".join(words)


# ---- homes


@pytest.fixture
def talker() -> Iterator[Talker]:
    """A model with answers of some length and a small window, which it enforces and tells."""
    server = Talker(WINDOW)
    yield server
    server.close()


@pytest.fixture
def long(home: Home, talker: Talker) -> Home:
    """A home with one session, which is to be compacted when it goes on."""
    configure(home, talker)
    kept(home, chat(TURNS))
    return home


@pytest.fixture
def untold(home: Home, talker: Talker) -> Home:
    """A longer session at a server that does not tell its window."""
    talker.pages.clear()
    configure(home, talker)
    kept(home, chat(100))
    return home


def force(home: Home) -> dict[str, Any]:
    """The compaction in force."""
    return dict(home.doc()["context"]["compaction"])


def kinds(run: Result) -> list[str]:
    """The types of the events, of each kind in a row one."""
    found = [event["type"] for event in events(run)]
    return [kind for at, kind in enumerate(found) if kind != "text" or found[at - 1] != "text"]
