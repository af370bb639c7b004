"""Import gptsh's own documents of every version, and Markdown that it exported."""

import codecs
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import partial

from gptsh.core import document
from gptsh.core.document import VERSION, Document
from gptsh.formats.source import Line, Results, Source, read_values
from gptsh.jsonio import JsonObject, as_dict, parse_json
from gptsh.text import quantity

# ---- gptsh
#
# gptsh's own session documents, of every version, as in its files and in ``-o json``.

NAME = "gptsh"
# In the documents of every version, the first one included.
_TABLES = ("agent", "provider", "usage", "meta")
_OURS = b'{"version":'  # begins each file of the store; core/document.py has its layout
_CONTEXT = b'"context":'
# Keys of a line that --show-session -o jsonl writes.
_MESSAGE = {"id", "parent", "timestamp", "role", "content"}


def read(source: Source) -> Results | None:
    """Return the document; advice for messages without their session; None for any other file."""
    doc = source.value
    first = source.first[0] if source.first and not source.is_array else {}
    if source.start.startswith(_OURS) and not doc:
        has_messages = isinstance(first.get("messages"), list)
        return _documents(source) if has_messages else _rescued(source)
    if first.keys() >= _MESSAGE:
        how = "export both with --export-session REF --format json"
        return iter([source.skipped(f"messages of gptsh without their session: {how}")])
    return _document(source, doc) if _is_document(doc) else None


def _is_document(value: JsonObject) -> bool:
    """Return whether an object is a session document, of the first gptsh or of a later one."""
    if not isinstance(value.get("messages"), list):
        return False
    if "version" not in value:
        return all(isinstance(value.get(table), dict) for table in _TABLES)
    return isinstance(value["version"], int) and isinstance(value.get("id"), str)


def _documents(source: Source) -> Results:
    """Yield the documents of an export of several sessions, which has one on each line."""
    for line in source.records():
        if isinstance(line, Line):
            yield from _document(source, line.value)
        else:
            yield line


def _document(source: Source, doc: JsonObject) -> Results:
    """Yield the document in our current version, or why it cannot be read."""
    if doc.get("version", 0) > VERSION:
        yield source.skipped(f"written by a newer gptsh (version {doc['version']})")
        return
    if "id" not in doc:  # the first gptsh has the id in the file name alone
        name = source.path.stem if source.path else ""
        doc = {**doc, "id": name.rpartition("-")[2]}
    try:
        parsed, _ = document.parse_document(doc)
    except ValueError as err:
        yield source.skipped(str(err))
        return
    yield parsed


def _rescued(source: Source) -> Results:
    """Yield what is whole of a torn file, and a note of what is lost.

    The first line of the file has all but the context and the messages, which follow, a line each.
    """
    first, *lines = source.data.split(b"\n")
    doc = _parsed(first.removesuffix(b",") + b"}")
    if not doc:
        yield source.skipped(source.json_error)
        return
    messages: list[JsonObject] = []
    context = JsonObject()
    for line in lines:
        text = line.removesuffix(b",")
        if text.startswith(_CONTEXT):
            context = _parsed(b"{" + text + b"}")
            continue
        message = _parsed(text)
        if isinstance(message.get("role"), str):
            messages.append(message)
    if messages:
        yield from _document(source, {**doc, **context, "messages": messages})

    lost = []
    total = as_dict(doc.get("stats")).get("messages")
    if isinstance(total, int) and total > len(messages):
        lost.append(quantity(total - len(messages), "message"))
    if not context:
        lost.append("its summaries and snapshots")
    unread = " and ".join(lost) or "its end"
    yield source.skipped(f"the file is incomplete; could not read {unread}")


def _parsed(text: bytes) -> JsonObject:
    """Return the object of JSON text; empty if it is none."""
    try:
        return as_dict(parse_json(text.decode()))
    except (ValueError, RecursionError):
        return {}


# ---- markdown
#
# Markdown, exported and imported: the text that ``render/session.py`` writes, then a comment
# with the document.
#
# The comment is the last line: ``<!-- gptsh {"text": HASH, "session": {…}} -->``. The hash of the
# transcript ignores white space, so other line ends, a BOM or stripped blanks do not change it.

MARKDOWN = "markdown"
_START = b"\n<!-- gptsh "  # of the comment; no JSON in it contains it, nor its end
_END = b" -->"
_BLOCK = 1 << 20  # bytes, in which the comment's start is sought


def write_markdown(doc: Document, transcript: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of the transcript, each with a blank line, then the comment; valid UTF-8."""
    digest = hashlib.sha256()
    for piece in transcript:
        text = piece.encode("utf-8", "replace").decode()
        digest.update(_without_space(text))
        yield f"{text}\n\n"
    start = _START.decode().removeprefix("\n")
    yield f'{start}{{"text": "{digest.hexdigest()}", "session": {{'
    for key, value in doc.items():
        if key != "messages":
            yield f"{_quoted(key)}: {_quoted(value)}, "
    yield '"messages": ['
    separator = ""
    for message in doc["messages"]:  # one at a time: a session may have 100 MB
        yield separator + _quoted(message)
        separator = ", "
    yield f"]}}}}{_END.decode()}\n"


def _quoted(value: object) -> str:
    """Return JSON in ASCII in which nothing ends a comment."""
    return json.dumps(value).replace("--", "-\\u002d").replace(">", "\\u003e")


def _without_space(text: str) -> bytes:
    """Return what is hashed of a transcript."""
    return "".join(text.split()).encode()


def read_markdown(source: Source) -> Results | None:
    """Return the document in the last line, or why it cannot be read; None if not Markdown."""
    comment = _find_comment(source)
    if comment:
        start, end = comment
        return _session(source, start, end)
    if not source.path or source.path.suffix != ".md":
        return None
    why = "its last line contains no session: import the complete file that --export-session wrote"
    return iter([source.skipped(why)._replace(is_foreign=True)])


def _find_comment(source: Source) -> tuple[int, int] | None:
    """Return where the comment at the end of a file starts, and where its JSON ends.

    Return None if the file has no comment.
    """
    start = max(0, source.size - _BLOCK)
    tail = b"".join(source.blocks(start)).rstrip()
    end = start + len(tail) - len(_END)
    if not tail.endswith(b"}" + _END):
        return None
    while _START not in tail and start > 0:
        overlap = start + len(_START)  # the comment may start between two blocks
        start = max(0, start - _BLOCK)
        tail = b"".join(source.blocks(start, overlap))
    if _START not in tail:
        return None
    return start + tail.rindex(_START), end


def _session(source: Source, start: int, end: int) -> Results:
    """Yield the document in a comment, unless the text before it was edited since."""
    try:
        comment = next(read_values(partial(source.blocks, start + len(_START), end)), None)
        fields = as_dict(comment)
        if fields.get("text") != _digest(source, start):
            how = "undo it, or branch with -s REF@N and ask"
            yield source.skipped(f"its text was edited, and the edit would be lost: {how}")
            return
        yield document.parse_document(fields.get("session"))[0]
    except (ValueError, RecursionError) as err:
        yield source.skipped(f"the session on its last line cannot be read: {err}")


def _digest(source: Source, end: int) -> str:
    """Return the hash of the transcript, which ends at ``end``."""
    digest = hashlib.sha256()
    for text in codecs.iterdecode(source.blocks(0, end), "utf-8-sig"):
        digest.update(_without_space(text))
    return digest.hexdigest()
