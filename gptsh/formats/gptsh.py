"""gptsh's own session documents, of every version, as in its files and in ``-o json``."""

from itertools import chain
from typing import Any

from gptsh.core import document
from gptsh.core.document import VERSION, Document
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict, parse_json
from gptsh.text import quantity

NAME = "gptsh"
_TABLES = ("agent", "provider", "usage", "meta")  # in the documents of every version, the first one included
_OURS = b'{"version":'  # begins each file of the store; core/session_files.py has its layout
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


def _parsed(text: bytes) -> Any:
    """The value of JSON text; None if it is none."""
    try:
        return parse_json(text.decode())
    except (ValueError, RecursionError):
        return None


def _sessions(source: Source, doc: Document) -> Results:
    if doc.get("version", 0) > VERSION:
        yield source.skipped(f"written by a newer gptsh (version {doc['version']})")
        return
    if "id" not in doc:  # the first gptsh has the id in the file name alone
        doc = {**doc, "id": source.path.stem.rpartition("-")[2] if source.path else ""}
    try:
        yield document.parse_document(doc)[0]
    except ValueError as err:
        yield source.skipped(str(err))
