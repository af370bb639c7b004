"""gptsh's own session documents, of every version, as in its files and in ``-o json``."""

from gptsh.core import document
from gptsh.core.document import VERSION, Document
from gptsh.formats.source import Results, Source

NAME = "gptsh"
_TABLES = ("agent", "provider", "usage", "meta")  # in the documents of every version, the first one included
_MESSAGE = {"id", "parent", "timestamp", "role", "content"}  # keys of a line that --show-session -o jsonl writes


def read(source: Source) -> Results | None:
    """The document. Messages without their session are skipped with advice; None for any other file."""
    doc = source.value
    if source.first and source.first[0].keys() >= _MESSAGE:
        why = "messages of gptsh without their session: export both with --export-session REF --format json"
        return iter([source.skipped(why)])
    if not isinstance(doc, dict) or not isinstance(doc.get("messages"), list):
        return None
    is_versioned = isinstance(doc.get("version"), int) and isinstance(doc.get("id"), str)
    is_first = "version" not in doc and all(isinstance(doc.get(table), dict) for table in _TABLES)
    return _sessions(source, doc) if is_versioned or is_first else None


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
