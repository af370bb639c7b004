"""Sessions that outgrow a window, and the requests of a model server for them."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import events
from tests.support.home import Home, Result
from tests.support.server import ModelServer, Script, answer, prompt_tokens, unstreamed

NAMES = [
    "parser",
    "writer",
    "lexer",
    "index",
    "cache",
    "queue",
    "router",
    "signal",
    "ledger",
    "archive",
    "garden",
]
DOES = [
    "keeps",
    "drops",
    "reads",
    "sends",
    "joins",
    "sorts",
    "marks",
    "holds",
    "opens",
    "turns",
    "counts",
    "moves",
]
SUMMARY = "They built the parser and then the writer."
WINDOW, BUDGET = 8192, 6144  # tokens; a quarter is reserved for the answer
TURNS = 70  # of the first session; about 9,000 tokens
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
    """Set the model ``lab/m``, the small model ``lab/s``, and no retries."""
    home.configure(CONFIG.format(base_url=model.base_url, more=more))


# ---- sessions


def prose(dice: random.Random, words: int) -> str:
    """So many random words."""
    text = [dice.choice(DOES if at % 2 else NAMES) for at in range(words - 1)]
    return " ".join([*text, str(dice.randrange(1000))])


def question(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def attached(words: str, name: str, text: str) -> dict[str, Any]:
    """A question with a piped or attached text."""
    return question(
        [{"type": "text", "text": words}, {"type": "text", "text": text, "source": name}]
    )


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "model": "lab/m", "provider": "lab"}


def tool_use(
    number: int, result: Any, tool: str = "read_file", **arguments: Any
) -> list[dict[str, Any]]:
    """A tool call and its result."""
    function = {
        "name": tool,
        "arguments": json.dumps(arguments or {"path": f"src/part_{number}.py"}),
    }
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    answer = {**reply(""), "content": None, "tool_calls": calls}
    return [
        answer,
        {"role": "tool", "tool_call_id": f"call_{number}", "name": tool, "content": result},
    ]


def chat(
    turns: int, *, words: int = 12, of_answers: int = 60, seed: int = 1
) -> list[dict[str, Any]]:
    """Numbered questions and their answers."""
    dice = random.Random(seed)
    pairs = (
        (question(f"Q{at:04}: {prose(dice, words)}"), reply(prose(dice, of_answers)))
        for at in range(turns)
    )
    return [message for pair in pairs for message in pair]


def save(
    home: Home,
    messages: Sequence[Any],
    *,
    small: str | None = "lab/s",
    model: str = "lab/m",
    ident: str = "7x2m",
    **more: Any,
) -> dict[str, Any]:
    """Save a session with these messages; return its document."""
    stamped = []
    before = None
    for at, message in enumerate(messages):
        moment = f"2026-01-01T{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}.000Z"
        stamped.append({"id": f"{ident}-{at}", "parent": before, "timestamp": moment, **message})
        before = stamped[-1]["id"]
    doc = {
        "version": 1, "id": ident, "title": None, "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": "2026-01-02T00:00:00.000Z", "provider": {"name": model.partition("/")[0]},
        "agent": {"name": "default", "model": model, "model_small": small, "params": {}, "system": None},
        "context": {"summaries": [], "snapshots": [], "compaction": None, "cuts": {}, "noted": {},
                    "consolidated": None},
        **more,
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
    """Answers in ``words`` words, or SUMMARY as model ``s``, with counted usage; reports and enforces its window."""

    words = 60

    def __init__(self, window: int) -> None:
        super().__init__()
        self._dice = random.Random(5)
        self.window = window
        self.report_window(window, "m", "s")

    def _default(self, body: Any) -> Script:
        script = super()._default(body)
        if script.status != 200:
            return script
        text = SUMMARY if body["model"] == "s" else prose(self._dice, self.words)
        usage = usage_of(prompt_tokens(body), prompt_tokens({"messages": [{"content": text}]}))
        streamed = script._replace(steps=tuple(answer(text, usage=usage)))
        return streamed if body.get("stream") else unstreamed(text, usage=usage)


def usage_of(prompt: int, completion: int = 2) -> dict[str, int]:
    """The usage of an answer."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def queue_summaries(model: ModelServer, *texts: str) -> None:
    """Queue summaries."""
    for text in texts:
        model.unstreamed(text, model="s")


def too_long(message: str) -> dict[str, Any]:
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    }


def requests_to(model: ModelServer) -> list[dict[str, Any]]:
    """The requests to the model, without those for summaries."""
    return [body for body in model.sent if body and body.get("messages") and body["model"] != "s"]


def for_summaries(model: ModelServer) -> list[dict[str, Any]]:
    """The requests for summaries."""
    return [body for body in model.sent if body and body.get("messages") and body["model"] == "s"]


def text_in(body: dict[str, Any]) -> str:
    """All text of a request."""
    words: list[str] = []
    for message in body["messages"]:
        content = message.get("content") or ""
        words += (
            [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        )
        words += [str(call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    return "\n".join(words)


# ---- homes


@pytest.fixture
def talker() -> Iterator[Talker]:
    """A server with long answers and a small window, which it reports and enforces."""
    server = Talker(WINDOW)
    yield server
    server.close()


@pytest.fixture
def long_home(home: Home, talker: Talker) -> Home:
    """A home with one session that the next question compacts."""
    configure(home, talker)
    save(home, chat(TURNS))
    return home


@pytest.fixture
def unlisted(home: Home, talker: Talker) -> Home:
    """A home with a longer session; its server does not report its window."""
    talker.pages.clear()
    configure(home, talker)
    save(home, chat(100))
    return home


def compaction_of(home: Home) -> dict[str, Any]:
    """The active compaction."""
    return dict(home.doc()["context"]["compaction"])


def event_types(run: Result) -> list[str]:
    """The types of the events; adjacent text events count as one."""
    types = [event["type"] for event in events(run)]
    return [kind for at, kind in enumerate(types) if kind != "text" or types[at - 1] != "text"]
