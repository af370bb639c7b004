"""A session as Markdown, to read or export: a header, then each message under its role, model and time."""

from collections.abc import Iterator, Sequence

from gptsh.content.passages import Passage, partial_reason, passages
from gptsh.core.document import Document
from gptsh.core.listing import title_of
from gptsh.messages import Message
from gptsh.render.details import Detail
from gptsh.text import block_quote, code_block, code_span, escape_markdown, local_time, open_fence


def transcript(doc: Document, facts: Sequence[Detail], *, full: bool = False) -> Iterator[str]:
    """Markdown, to be joined by blank lines. Calls, results and thinking get one line, or all with ``full``."""
    yield f"# {escape_markdown(title_of(doc))}"
    yield "\n".join(f"- {label}: {escape_markdown(value)}" for label, value in facts)
    for message in doc["messages"]:
        yield from message_pieces(message, full=full)


def message_pieces(message: Message, *, full: bool = False) -> Iterator[str]:
    """The Markdown of one message: a heading, then its passages; to be joined by blank lines."""
    name, time = message.get("model") or message.get("name"), message.get("timestamp")
    reason = partial_reason(message)
    author = f"{message['role']} ({name})" if name else message["role"]
    words = filter(None, (author, time and local_time(time), reason and f"[{reason}]"))
    yield f"## {escape_markdown(' '.join(words))}"
    for passage in passages(message, indented=full):
        yield from _full(passage) if full else _in_short(passage)


def _in_short(passage: Passage) -> Iterator[str]:
    match passage.kind:
        case "words" | "refusal" | "pages":
            yield _closed(passage.text or "")
        case "file":
            yield code_span(f"[{passage.line}]")
            yield code_block(passage.text or "", passage.language)
        case "result":
            yield code_span(passage.line)
        case _:
            yield code_span(f"[{passage.line}]")


def _full(passage: Passage) -> Iterator[str]:
    if passage.kind not in ("call", "result", "thinking") or passage.text is None:
        yield from _in_short(passage)
        return
    yield code_span(" ".join([f"[{passage.title}]", *map(str, passage.media)]))
    if passage.text:
        yield block_quote(passage.text) if passage.kind == "thinking" else code_block(passage.text, passage.language)


def _closed(text: str) -> str:
    """The text with an unclosed fence closed, since more text follows."""
    fence = open_fence(text)
    return f"{text}\n{fence}" if fence else text
