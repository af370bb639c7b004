"""Sessions from elsewhere taken into the store: found again where they are known, never in the place of another.

What a document says of itself is not trusted: it gets a file name of ours, no approvals, no time in the future, and it
joins a session only where it has one of its messages.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gptsh.core import document, files, listing, references, sessions
from gptsh.core.document import VERSION, Document
from gptsh.core.loose import as_dict
from gptsh.core.messages import just_after, timestamp
from gptsh.core.references import FILENAME, ID, get_archive_dir, get_sessions_dir, make_private, names_in
from gptsh.errors import BadSession, StoreError

Origin = tuple[str, str]  # a format, and what identifies a session in it
_FORMAT = "gptsh"
_LOCK = ".import"


class Adopted(NamedTuple):
    """What became of a document: its file, and how many of its messages the store had not."""

    state: Literal["imported", "grown", "known"]
    filename: str
    added: int


@contextlib.contextmanager
def adopting() -> Iterator["Shelf"]:
    """Take sessions in, one import at a time; what was added is on the disk behind it.

    Raises StoreBusy while another import goes on, StoreError where the store cannot be written.
    """
    folder = get_sessions_dir()
    try:
        make_private(folder.parent)
        make_private(folder)
        lock = files.locked(folder.parent / _LOCK)
        with lock:
            shelf = Shelf(folder)
            try:
                yield shelf
            finally:
                if shelf.has_written:
                    os.sync()  # once for all: to wait for each of 10,000 files would take minutes
    except OSError as err:
        raise StoreError(f"the session cannot be saved: {err.filename or folder}: {err.strerror}") from err


class Shelf:
    """The store, as an import sees it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.has_written = False
        self._known: dict[Origin, list[str]] = {}
        self._ids: set[str] = set()
        self._as_of: tuple[int, ...] | None = None
        for name, head in listing.scan_heads():
            self._remember(name, head)

    def _remember(self, filename: str, head: Document) -> None:
        for origin in _origins(head):
            self._known.setdefault(origin, []).append(filename)

    def adopt(self, doc: Document) -> Adopted:
        """Save a document under a name of ours, or what is new in it where it is known.

        Raises BadSession where the session that it is a copy of must not be written, StoreError as ``save_session``.
        """
        doc = _tamed(doc)
        names = dict.fromkeys(name for origin in _origins(doc) for name in self._known.get(origin, ()))
        with files.locked(self._folder.parent / ".lock"):
            for name in names:
                path = references.path_of(name)
                theirs = listing.found(str(path), files.read_document)
                if isinstance(theirs, dict) and _is_copy(doc, theirs):
                    return self._joined(doc, theirs, path)
            return self._new(doc)

    def _joined(self, doc: Document, theirs: Document, path: Path) -> Adopted:
        """Put what is new into the session; all else of it stays as it is."""
        messages = document.join_messages(doc["messages"], theirs["messages"])
        added = len(messages) - len(theirs["messages"])
        if not added:
            return Adopted("known", path.name, 0)
        sessions.refuse_newer(theirs, path.name)
        joined = {**theirs, "messages": messages, "updated_at": max(theirs["updated_at"], doc["updated_at"])}
        self._write(joined, path)
        return Adopted("grown", path.name, added)

    def _new(self, doc: Document) -> Adopted:
        taken = self._taken()
        is_ours = FILENAME.fullmatch(f"20000101-000000-{doc['id']}.json") and not doc["id"].isdigit()
        if not is_ours or doc["id"] in taken:
            doc["id"] = sessions.new_id(taken)
        path = self._folder / sessions.name_for(doc)
        self._write(doc, path)
        self._remember(path.name, doc)
        self._ids.add(doc["id"])
        self._as_of = self._moment()
        return Adopted("imported", path.name, len(doc["messages"]))

    def _write(self, doc: Document, path: Path) -> None:
        document.count(doc)
        files.replace(path, files.to_bytes(document.ordered(doc)), durable=False)
        used = datetime.fromisoformat(doc["updated_at"]).timestamp()
        os.utime(path, (used, used))  # what was brought in is not what was used last
        self.has_written = True

    def _taken(self) -> set[str]:
        """The ids that are taken; the folders are read again only when somebody else has changed them."""
        if self._as_of != self._moment():
            folders = (self._folder, get_archive_dir())
            self._ids = {name[ID] for folder in folders for name in names_in(folder)}
        return self._ids

    def _moment(self) -> tuple[int, ...]:
        folders = (self._folder, get_archive_dir())
        return tuple(folder.stat().st_mtime_ns if folder.exists() else 0 for folder in folders)


def _origins(head: Document) -> list[Origin]:
    """What identifies a session: its id and its beginning, and where it was brought in from."""
    imported = as_dict(head.get("meta", {}).get("imported"))
    found: list[Any] = [(_FORMAT, f"{head['id']} {head.get('created_at')}")]
    found.append((imported.get("format"), imported.get("key")))
    return [(form, key) for form, key in found if isinstance(form, str) and isinstance(key, str)]


def _is_copy(one: Document, other: Document) -> bool:
    """Whether two documents of one origin are copies of one session: they share a message, or neither has any."""
    ids = {message["id"] for message in one["messages"]}
    theirs = [message["id"] for message in other["messages"]]
    return not ids.isdisjoint(theirs) if ids and theirs else one["created_at"] == other["created_at"]


def _tamed(doc: Document) -> Document:
    """The document without what only its owner may say here: what was allowed, what is offered, times to come."""
    if doc["version"] > VERSION:
        raise BadSession("it was written by a newer gptsh", "update")
    now = timestamp()
    created = min(_utc(doc["created_at"]), now)
    updated = max(min(_utc(doc["updated_at"]), now), just_after(created))
    meta = {key: value for key, value in doc["meta"].items() if key != "mcp_approved"}
    meta.setdefault("imported", {"format": _FORMAT, "key": f"{doc['id']} {doc['created_at']}"})
    meta["mcp_allowed_servers"] = []
    return {**doc, "created_at": created, "updated_at": updated, "meta": meta}


def _utc(moment: str) -> str:
    return timestamp(datetime.fromisoformat(moment))
