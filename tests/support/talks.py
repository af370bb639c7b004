"""Long talks in small windows: a server that counts prompts by its own measure, and what each request contains."""

import json
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tests.support.home import Home
from tests.support.long_sessions import SUMMARY, prose, question, reply, tool_use, usage_of
from tests.support.server import ModelServer, Script, answer, prompt_tokens, unstreamed

IMAGE_TOKENS = 800  # of one image, whatever its size
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63606060000000040001f61738550000"
    "000049454e44ae426082"
)


class Talk(NamedTuple):
    """A kind of talk: the window, the words of a question and an answer, the server's tokens for each of cl100k."""

    window: int
    asked: int
    answered: int
    factor: float = 1.0
    small: bool = True
    image: bool = False
    tools: bool = False


class Turn(NamedTuple):
    """A turn: exit code, notes, the ``context`` of the report, the requests to the model and to the small model."""

    code: int
    notes: str
    context: dict[str, Any]
    requests: list[dict[str, Any]]
    summaries: int
    question: str
    last_answer: str  # before the question


class Counter(ModelServer):
    """Answers in prose, reports and enforces its window, and counts ``factor`` tokens for each of cl100k."""

    def __init__(self, talk: Talk) -> None:
        super().__init__()
        self._talk = talk
        self._dice = random.Random(5)
        self.report_window(talk.window, "m", "s")

    def count(self, body: dict[str, Any]) -> int:
        """The tokens of a prompt."""
        images = json.dumps(body).count('"image_url":')
        return round(prompt_tokens(body) * self._talk.factor) + images * IMAGE_TOKENS

    def _default(self, body: Any) -> Script:
        size = self.count(body)
        window = self._talk.window
        if size + (body.get("max_tokens") or 0) > window:
            error = f"This model's maximum context length is {window} tokens. Your messages resulted in {size}."
            content = json.dumps(
                {"error": {"message": error, "code": "context_length_exceeded"}}
            ).encode()
            return Script(400, {"Content-Type": "application/json"}, (content,), "length")
        text = (
            SUMMARY
            if body["model"] == "s" or not body.get("stream")
            else prose(self._dice, self._talk.answered)
        )
        usage = usage_of(size, round(self._talk.factor * len(text) / 5))
        if not body.get("stream"):
            return unstreamed(text, usage=usage)
        return Script(
            200, {"Content-Type": "text/event-stream"}, tuple(answer(text, usage=usage)), "chunked"
        )


CONFIG = """[agents.default]
model = "lab/m"
{small}
[providers.lab]
base_url = "{base_url}"
[sessions]
titles = "off"
[network]
retries = 0
"""


def turns_of(home: Home, talk: Talk, turns: int) -> Iterator[Turn]:
    """Have this talk, each turn as its own run. With ``tools`` every fifth turn gets a tool's result."""
    server = Counter(talk)
    dice = random.Random(3)
    home.configure(
        CONFIG.format(base_url=server.base_url, small='model_small = "lab/s"' if talk.small else "")
    )
    (home.cwd / "shot.png").write_bytes(PNG)
    try:
        last_answer = ""
        for number in range(turns):
            if talk.tools and number % 5 == 1:
                last_answer = prose(dice, 60)
                _append(
                    home,
                    [question("Look"), *tool_use(number, prose(dice, 400)), reply(last_answer)],
                )
            start = len(server.sent)
            asks = f"Fact-{number}: {prose(dice, talk.asked)}"
            files = ["-f", "shot.png"] if talk.image and not number else []
            run = home.run(*(["-s", "0"] if number else []), "-o", "json", *files, asks)
            report = json.loads(run.stdout or "{}")
            asked = [body for body in server.sent[start:] if body and body.get("messages")]
            to_model = [body for body in asked if body["model"] == "m"]
            context = report.get("context") or {}
            summaries = len(asked) - len(to_model)
            yield Turn(run.code, run.stderr, context, to_model, summaries, asks, last_answer)
            last_answer = report.get("text") or ""
    finally:
        server.close()


def _append(home: Home, messages: list[dict[str, Any]]) -> None:
    """Put these messages at the end of the newest session."""
    (path,) = home.files()
    doc = json.loads(path.read_text())
    last = doc["messages"][-1]
    doc["messages"] += [
        {"id": f"{last['id']}-{at}", "timestamp": last["timestamp"], **one}
        for at, one in enumerate(messages)
    ]
    path.write_text(json.dumps(doc))


def growing(turns: Sequence[Turn]) -> int:
    """How many requests begin with the whole previous one, byte for byte."""
    bodies = [json.dumps(request["messages"]) for turn in turns for request in turn.requests]
    return sum(after.startswith(before[:-1]) for before, after in pairwise(bodies))
