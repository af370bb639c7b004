"""The built-in offline model: it says back what it was told. To try a pipe, and for tests; never chosen silently."""

import re
from collections.abc import Iterator

from gptsh.content.answer import Request
from gptsh.content.media import shown
from gptsh.llm.routes import Route
from gptsh.messages import Event, Finished, Message, Text, Used, labelled, parts_of, text_of


def open_echo(request: Request, _route: Route) -> Iterator[Event]:
    """The transport to it."""
    return _ask(request)


def _ask(request: Request) -> Iterator[Event]:
    """``You said: `` and the last user message, word by word; a word counts as a token."""
    said = next((_said(m) for m in reversed(request.messages) if m["role"] == "user"), "")
    words = ["You said: ", *re.findall(r"\S+\s*|\s+", said)]
    for word in words if request.stream else ["".join(words)]:
        yield Text(word)
    prompt = sum(len(text_of(message).split()) for message in request.messages)
    completion = len(words) + 1
    yield Used(
        {
            "prompt": prompt,
            "completion": completion,
            "total": prompt + completion,
            "reasoning_tokens": None,
            "cached_tokens": None,
            "cache_write_tokens": None,
            "raw": {},
        }
    )
    yield Finished("stop")


def _said(question: Message) -> str:
    return "\n\n".join(labelled(part) if "text" in part else shown(part) for part in parts_of(question))
