"""A session for reading, as Markdown: a header, then each message under who said it and when."""

from collections.abc import Iterator, Sequence

from gptsh.content.passages import Passage, partial, passages
from gptsh.core.document import Document
from gptsh.core.listing import title_of
from gptsh.render.details import Detail
from gptsh.text import escaped, fenced, left_open, literal, local_time, quoted


def transcript(doc: Document, facts: Sequence[Detail], *, full: bool = False) -> Iterator[str]:
    """Pieces of Markdown for a blank line between; calls, results and thinking a line each, with ``full`` whole."""
    yield f"# {escaped(title_of(doc))}"
    yield "\n".join(f"- {label}: {escaped(value)}" for label, value in facts)
    for message in doc["messages"]:
        who, at, early = message.get("model") or message.get("name"), message.get("timestamp"), partial(message)
        said_by = f"{message['role']} ({who})" if who else message["role"]
        words = filter(None, (said_by, at and local_time(at), early and f"[{early}]"))
        yield f"## {escaped(' '.join(words))}"
        for passage in passages(message):
            yield from _full(passage) if full else _folded(passage)


def _folded(passage: Passage) -> Iterator[str]:
    match passage.kind:
        case "words" | "refusal":
            yield _whole(passage.text or "")
        case "file":
            yield literal(f"[{passage.line}]")
            yield fenced(passage.text or "", passage.language)
        case "result":
            yield literal(passage.line)
        case _:
            yield literal(f"[{passage.line}]")


def _full(passage: Passage) -> Iterator[str]:
    if passage.kind not in ("call", "result", "thinking") or passage.text is None:
        yield from _folded(passage)
        return
    yield literal(" ".join([f"[{passage.title}]", *map(str, passage.media)]))
    if passage.text:
        yield quoted(passage.text) if passage.kind == "thinking" else fenced(passage.text, passage.language)


def _whole(text: str) -> str:
    """Words, a fence that they leave open closed, since more comes behind them."""
    fence = left_open(text)
    return f"{text}\n{fence}" if fence else text
