"""Sessions from elsewhere taken into the store: found again where they are known, never in the place of another.

What a document says of itself is not trusted: it gets a file name of ours, no approvals, no time in the future, and it
joins a session only where it has one of its messages and tells none of them otherwise.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gptsh.core import copies, document, files, listing, references, sessions
from gptsh.core.document import VERSION, Document
from gptsh.core.references import FILENAME, ID, get_archive_dir, get_sessions_dir, make_private, names_in
from gptsh.errors import BadSession, StoreBusy, StoreError
from gptsh.jsonio import as_dict
from gptsh.messages import Message, just_after, timestamp
from gptsh.models.names import safe_params

Origin = tuple[str, str]  # a format, and what identifies a session in it
_OWN_WORDS = "markdown"  # whose keys are those of sessions of ours
_LOCK = ".import"
_TRIES = 10  # to write what another process does not write at the same time
_LARGEST = 200_000_000  # bytes of a session


class Adopted(NamedTuple):
    """What became of a document: its file, and the document there now.

    ``added`` of its messages the store had not, ``completed`` of them it had in part.
    """

    state: Literal["imported", "grown", "known"]
    filename: str
    doc: Document
    added: int = 0
    completed: int = 0


class _Change(NamedTuple):
    """What is to be written where: ``seen`` tells the file that it was joined with from any later one."""

    adopted: Adopted
    path: Path
    data: bytes = b""
    seen: tuple[int, ...] | None = None


@contextlib.contextmanager
def adopting() -> Iterator["Shelf"]:
    """Take sessions in, one import at a time; what was added is on the disk behind it.

    Raises StoreBusy while another import goes on, StoreError where the store cannot be written.
    """
    folder = get_sessions_dir()
    with contextlib.ExitStack() as held:
        with _saving(folder):
            make_private(folder.parent)
            make_private(folder)
            held.enter_context(files.locked(folder.parent / _LOCK))
        shelf = Shelf(folder)
        try:
            yield shelf
        finally:
            if shelf.has_written:
                os.sync()  # once for all: to wait for each of 10,000 files would take minutes


@contextlib.contextmanager
def _saving(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise StoreError(f"the session cannot be saved: {err.filename or folder}: {err.strerror}") from err


class Shelf:
    """The store, as an import sees it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.has_written = False
        self._known: dict[Origin, list[str]] = {}
        self._messages: dict[str, frozenset[int]] = {}  # of sessions of one origin: hashes of their messages' ids
        self._ids: set[str] = set()
        self._as_of: tuple[int, ...] | None = None
        for name, head in listing.scan_heads():
            self._remember(name, head)

    def _remember(self, filename: str, head: Document) -> None:
        for origin in _origins(head):
            self._known.setdefault(origin, []).append(filename)

    def adopt(self, doc: Document) -> Adopted:
        """Save a document under a name of ours, or what is new in it where it is known.

        What is written is made without the store's lock, and again where the file was written meanwhile.
        Raises BadSession where the session that it is a copy of must not be written, StoreError as ``save_session``.
        """
        doc = _tamed(doc)
        for _ in range(_TRIES):
            change = self._change(doc)
            with _saving(self._folder):
                if change.adopted.state == "known" or self._is_done(change):
                    return change.adopted
        raise StoreBusy(f"{change.path} is written all the time", "try again")

    def _change(self, doc: Document) -> _Change:
        names = dict.fromkeys(name for origin in _origins(doc) for name in self._known.get(origin, ()))
        own = _hashes(doc)
        for name in names:
            if own and own.isdisjoint(self._messages.get(name, own)):
                continue
            path = references.path_of(name)
            seen, theirs = _signature(path), listing.try_read(str(path), files.read_document)
            if isinstance(theirs, dict):
                if len(names) > 1:  # each of them is read once, however many there are
                    self._messages[name] = _hashes(theirs)
                if copies.is_copy(doc, theirs):
                    return _grown(copies.joined(doc, theirs), theirs, path, seen)
        return self._new(doc)

    def _new(self, doc: Document) -> _Change:
        taken = self._taken()
        is_ours = FILENAME.fullmatch(f"20000101-000000-{doc['id']}.json") and not doc["id"].isdigit()
        if not is_ours or doc["id"] in taken:
            doc["id"] = sessions.new_id(taken)
        adopted = Adopted("imported", sessions.name_for(doc), doc, len(doc["messages"]))
        return _Change(adopted, self._folder / adopted.filename, _written(doc))

    def _is_done(self, change: _Change) -> bool:
        """Write it, unless the file was written meanwhile, or the id taken. Raises OSError."""
        state, filename, doc, *_ = change.adopted
        with files.locked(self._folder.parent / ".lock"):
            if _signature(change.path) != change.seen or (state == "imported" and doc["id"] in self._taken()):
                return False
            files.replace(change.path, change.data, durable=False)
            used = int(datetime.fromisoformat(doc["updated_at"]).timestamp() * 1e9)
            used = change.seen[1] if change.seen else used  # what was brought in is not what was used last
            os.utime(change.path, ns=(used, used))
            self.has_written = True
            if state == "imported":
                self._remember(filename, doc)
                self._ids.add(doc["id"])
                self._as_of = self._moment()
            return True

    def _taken(self) -> set[str]:
        """The ids that are taken; the folders are read again only when somebody else has changed them."""
        if self._as_of != (now := self._moment()):
            folders = (self._folder, get_archive_dir())
            self._ids, self._as_of = {name[ID] for folder in folders for name in names_in(folder)}, now
        return self._ids

    def _moment(self) -> tuple[int, ...]:
        folders = (self._folder, get_archive_dir())
        return tuple(folder.stat().st_mtime_ns if folder.exists() else 0 for folder in folders)


def _grown(joined: Document, theirs: Document, path: Path, seen: tuple[int, ...] | None) -> _Change:
    if joined == theirs:
        return _Change(Adopted("known", path.name, theirs), path)
    sessions.refuse_newer(theirs, path.name)
    added = len(joined["messages"]) - len(theirs["messages"])
    adopted = Adopted("grown", path.name, joined, added, copies.completed(joined, theirs))
    return _Change(adopted, path, _written(joined), seen)


def _written(doc: Document) -> bytes:
    document.count(doc)
    data = files.to_bytes(document.ordered(doc))
    if len(data) > _LARGEST:
        raise BadSession(f"it would take more than {_LARGEST // 1_000_000} MB")
    return data


def _hashes(doc: Document) -> frozenset[int]:
    return frozenset(hash(message["id"]) for message in doc["messages"])


def _signature(path: Path) -> tuple[int, ...] | None:
    """What tells a file from any later one of its name; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _origins(head: Document) -> list[Origin]:
    """What identifies a session: its id and its beginning, and where it was brought in from."""
    imported = as_dict(head.get("meta", {}).get("imported"))
    form, key = imported.get("format"), imported.get("key")
    found: list[Any] = [(copies.OURS, f"{head['id']} {head.get('created_at')}"), (form, key)]
    found += [(copies.OURS, key)] if form == _OWN_WORDS else []
    return [(form, key) for form, key in found if isinstance(form, str) and isinstance(key, str)]


def _tamed(doc: Document) -> Document:
    """The document without what only its owner may say here: what was allowed, what is offered, times to come."""
    if doc["version"] > VERSION:
        raise BadSession("it was written by a newer gptsh", "update")
    now = timestamp()
    created = min(_utc(doc["created_at"]), now)
    updated = max(min(_utc(doc["updated_at"]), now), just_after(created))
    meta = {key: value for key, value in doc["meta"].items() if key != "mcp_approved"}
    if not isinstance(meta.get("imported"), dict):
        meta["imported"] = {"format": copies.OURS, "key": f"{doc['id']} {doc['created_at']}"}
    meta["imported"] = {**meta["imported"], "as_of": updated}
    meta |= {"mcp_allowed_servers": [], "imported_at": now}
    agent = {**doc["agent"], "params": safe_params(doc["agent"].get("params") or {})}
    messages = [_marked(message) for message in doc["messages"]]
    return {**doc, "created_at": created, "updated_at": updated, "meta": meta, "agent": agent, "messages": messages}


def _marked(message: Message) -> Message:
    """The message with a mark that it was not said here: no memory is told of it."""
    marked: dict[str, Any] = {**message, "source": {**as_dict(as_dict(message).get("source")), "imported": True}}
    return marked  # type: ignore[return-value]


def _utc(moment: str) -> str:
    return timestamp(datetime.fromisoformat(moment))
