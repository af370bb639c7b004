"""gptsh's own session documents, of every version, as its files and ``-o json`` have them."""

from collections.abc import Iterator
from typing import Any

from gptsh.core import document
from gptsh.core.document import VERSION, Document
from gptsh.formats.source import Reader, Source, Unread

_FORMAT = "gptsh"
_TABLES = ("agent", "provider", "usage", "meta")  # that the first gptsh wrote, and every one since


def _recognises(source: Source) -> bool:
    doc = source.json
    if not isinstance(doc, dict) or not isinstance(doc.get("messages"), list):
        return False
    if "version" in doc:
        return isinstance(doc["version"], int) and isinstance(doc.get("id"), str)
    return all(isinstance(doc.get(table), dict) for table in _TABLES)


def _read(source: Source) -> Iterator[Document | Unread]:
    doc: Any = source.json
    if doc.get("version", 0) > VERSION:
        yield source.unread(f"of version {doc['version']}, by a newer gptsh")
        return
    if "id" not in doc:  # the first gptsh took it from the file's name
        doc = {**doc, "id": source.path.stem.rpartition("-")[2] if source.path else ""}
    try:
        yield document.complete(doc)[0]
    except ValueError as err:
        yield source.unread(str(err))


READER = Reader(_FORMAT, _recognises, _read)
