"""Import gptsh's own documents of every version, and Markdown that it exported."""

import codecs
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from gptsh.core import document
from gptsh.core.document import VERSION, Document
from gptsh.formats.source import Results, Source, read_values
from gptsh.jsonio import JsonObject, as_dict, parse_json
from gptsh.text import quantity

# ---- gptsh
#
# gptsh's own session documents, of every version, as in its files and in ``-o json``.

NAME = "gptsh"
_TABLES = ("agent", "provider", "usage", "meta")  # in the documents of every version, the first one included
_OURS = b'{"version":'  # begins each file of the store; core/document.py has its layout
_MESSAGES = b'"messages":['
_END = b"]}"
_MESSAGE = {"id", "parent", "timestamp", "role", "content"}  # keys of a line that --show-session -o jsonl writes


def read(source: Source) -> Results | None:
    """The document. Messages without their session are skipped with advice; None for any other file."""
    doc = source.value
    if source.start.startswith(_OURS) and doc is None:
        return _rescued(source)
    if source.first and source.first[0].keys() >= _MESSAGE:
        why = "messages of gptsh without their session: export both with --export-session REF --format json"
        return iter([source.skipped(why)])
    if not isinstance(doc, dict) or not isinstance(doc.get("messages"), list):
        return None
    is_versioned = isinstance(doc.get("version"), int) and isinstance(doc.get("id"), str)
    is_first = "version" not in doc and all(isinstance(doc.get(table), dict) for table in _TABLES)
    return _sessions(source, doc) if is_versioned or is_first else None


def _rescued(source: Source) -> Results | None:
    """What is whole of a torn file, line by line; None without its first line."""
    first, *lines = source.data.split(b"\n")
    doc = _parsed(first.removesuffix(b",") + b"}")
    if not isinstance(doc, dict):
        return None
    messages = []
    has_context = False
    for line in lines:
        text = line.removesuffix(b",")
        if text.startswith(b'"context":'):
            context = _parsed(b"{" + text + b"}")
            has_context = isinstance(context, dict)
            doc |= context if isinstance(context, dict) else {}
        elif text and text not in (_MESSAGES, _END):
            message = _parsed(text)
            is_whole = isinstance(message, dict) and isinstance(message.get("role"), str)
            messages += [message] if is_whole else []
    total = as_dict(doc.get("stats")).get("messages")
    lost = [quantity(total - len(messages), "message")] if isinstance(total, int) and total > len(messages) else []
    lost += [] if has_context else ["its summaries and snapshots"]
    skipped = source.skipped(f"the file is torn; not read: {' and '.join(lost) or 'its end'}")
    sessions = _sessions(source, {**doc, "messages": messages}) if messages else iter(())
    return chain(sessions, [skipped])


def _parsed(text: bytes) -> object:
    """The value of JSON text; None if it is none."""
    try:
        return parse_json(text.decode())
    except (ValueError, RecursionError):
        return None


def _sessions(source: Source, doc: JsonObject) -> Results:
    if doc.get("version", 0) > VERSION:
        yield source.skipped(f"written by a newer gptsh (version {doc['version']})")
        return
    if "id" not in doc:  # the first gptsh has the id in the file name alone
        doc = {**doc, "id": source.path.stem.rpartition("-")[2] if source.path else ""}
    try:
        yield document.parse_document(doc)[0]
    except ValueError as err:
        yield source.skipped(str(err))


# ---- markdown
#
# Markdown, exported and imported: the text that ``render/session.py`` writes, then a comment
# with the document.
#
# The comment is the last line: ``<!-- gptsh {"text": HASH, "session": {…}} -->``. The hash of the
# transcript ignores white space, so other line ends, a BOM or stripped blanks do not change it.

MARKDOWN = "markdown"
_START, _COMMENT_END = b"\n<!-- gptsh ", b" -->"  # of the comment; no JSON in it contains either
_BLOCK = 1 << 20  # bytes, in which the comment's start is sought


def write_markdown(doc: Document, transcript: Iterable[str]) -> Iterator[str]:
    """The pieces of the transcript, separated by blank lines, then the comment. All of it is valid UTF-8."""
    digest = _Digest()
    for number, piece in enumerate(transcript):
        text = piece.encode("utf-8", "replace").decode()
        digest.add(text)
        yield f"\n\n{text}" if number else text
    yield f"\n\n{_START.decode()[1:]}{{{_quoted('text')}: {_quoted(digest.text())}, {_quoted('session')}: {{"
    for number, (key, value) in enumerate(doc.items()):
        yield f"{', ' * bool(number)}{_quoted(key)}: "
        yield from _list(doc["messages"]) if key == "messages" else [_quoted(value)]
    yield f"}}}}{_COMMENT_END.decode()}\n"


def _list(items: Iterable[object]) -> Iterator[str]:
    """The JSON of a list, one item at a time: a session may have 100 MB."""
    yield "["
    for number, item in enumerate(items):
        yield f"{', ' * bool(number)}{_quoted(item)}"
    yield "]"


def _quoted(value: object) -> str:
    """JSON in ASCII in which nothing ends a comment."""
    return json.dumps(value).replace("--", "-\\u002d").replace(">", "\\u003e")


class _Digest:
    """The hash of a transcript without its white space."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, text: str) -> None:
        """Add a part of the transcript."""
        self._hash.update("".join(text.split()).encode())

    def text(self) -> str:
        """The hash of all parts, in hex digits."""
        return self._hash.hexdigest()


def read_markdown(source: Source) -> Results | None:
    """The document in the last line, or why it cannot be read; None for a file that does not look like Markdown."""
    comment = _find_comment(source)
    if comment:
        return _session(source, *comment)
    if not source.path or source.path.suffix != ".md":
        return None
    why = "its last line holds no session: import the complete file that --export-session wrote"
    return iter([source.skipped(why)._replace(is_foreign=True)])


def _find_comment(source: Source) -> tuple[int, int] | None:
    """Where the comment at the end of a file starts, and where its JSON ends; None if it has none."""
    start = max(0, source.size - _BLOCK)
    tail = b"".join(source.blocks(start)).rstrip()
    end = start + len(tail) - len(_COMMENT_END)
    if not tail.endswith(b"}" + _COMMENT_END):
        return None
    while (found := tail.rfind(_START)) < 0 and start > 0:
        before = max(0, start - _BLOCK)
        tail = b"".join(source.blocks(before, start + len(_START)))
        start = before
    return (start + found, end) if found >= 0 else None


def _session(source: Source, start: int, end: int) -> Results:
    try:
        read_comment = partial(source.blocks, start + len(_START), end)
        data = as_dict(next(read_values(read_comment), None))
        digest, decoder = _Digest(), codecs.getincrementaldecoder("utf-8-sig")()
        for block in source.blocks(0, start):
            digest.add(decoder.decode(block))
        if data.get("text") != digest.text():
            why = "its text was edited, and the edit would be lost: undo it, or branch with -s REF@N and ask"
            yield source.skipped(why)
            return
        yield document.parse_document(data.get("session"))[0]
    except (ValueError, RecursionError) as err:
        yield source.skipped(f"the session on its last line cannot be read: {err}")
