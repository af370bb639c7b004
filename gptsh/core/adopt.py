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

from gptsh.core import document, files, listing, references, sessions
from gptsh.core.document import VERSION, Document
from gptsh.core.loose import as_dict
from gptsh.core.messages import Block, Message, blocks_of, just_after, timestamp
from gptsh.core.references import FILENAME, ID, get_archive_dir, get_sessions_dir, make_private, names_in
from gptsh.errors import BadSession, StoreError

Origin = tuple[str, str]  # a format, and what identifies a session in it
_FORMAT = "gptsh"
_OWN_WORDS = "markdown"  # whose keys are those of sessions of ours
_LOCK = ".import"


class Adopted(NamedTuple):
    """What became of a document: its file, and the document there now.

    ``added`` of its messages the store had not, ``completed`` of them it had in part.
    """

    state: Literal["imported", "grown", "known"]
    filename: str
    doc: Document
    added: int = 0
    completed: int = 0


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
        """Put what is new into the session, and how its source tells of it now; all else of it stays as it is."""
        told = {message["id"]: message for message in doc["messages"]}
        held = [_completed(message, told.get(message["id"])) for message in theirs["messages"]]
        messages = document.join_messages(doc["messages"], held)
        joined = {**theirs, "messages": messages}
        if _format_of(theirs) == _format_of(doc) != _FORMAT:
            _retold(joined, doc, theirs)
        if joined == theirs:
            return Adopted("known", path.name, theirs)
        sessions.refuse_newer(theirs, path.name)
        joined["updated_at"] = max(theirs["updated_at"], doc["updated_at"])
        self._write(joined, path)
        completed = sum(new is not old for new, old in zip(held, theirs["messages"], strict=True))
        return Adopted("grown", path.name, joined, len(messages) - len(held), completed)

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
        return Adopted("imported", path.name, doc, len(doc["messages"]))

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
    form, key = imported.get("format"), imported.get("key")
    found: list[Any] = [(_FORMAT, f"{head['id']} {head.get('created_at')}"), (form, key)]
    found += [(_FORMAT, key)] if form == _OWN_WORDS else []
    return [(form, key) for form, key in found if isinstance(form, str) and isinstance(key, str)]


def _format_of(head: Document) -> str:
    return str(as_dict(head["meta"].get("imported")).get("format", _FORMAT))


def _is_copy(one: Document, other: Document) -> bool:
    """Whether two documents of one origin are copies of one session.

    They share a message, and none of those that they share is told otherwise; or neither has any.
    """
    ours = {message["id"]: message for message in one["messages"]}
    shared = [(ours[message["id"]], message) for message in other["messages"] if message["id"] in ours]
    if not (ours and other["messages"]):
        return bool(one["created_at"] == other["created_at"])
    return bool(shared) and all(_goes_on(new, old) or _goes_on(old, new) for new, old in shared)


def _goes_on(new: Message, old: Message) -> bool:
    """Whether a message is the other one, or begins with all of it."""
    ours, theirs = blocks_of(new), blocks_of(old)
    if new["role"] != old["role"] or len(ours) < len(theirs):
        return False
    pairs = list(zip(ours, theirs, strict=False))
    return not pairs or (all(_same(*pair) for pair in pairs[:-1]) and _begins(*pairs[-1]))


def _same(one: Block, other: Block) -> bool:
    return one[0] == other[0] and _plain(one[1]) == _plain(other[1])


def _begins(one: Block, other: Block) -> bool:
    """Whether a block is the other one, or a text that begins with it."""
    texts = (one[1].get("text"), other[1].get("text"))
    longer = isinstance(texts[0], str) and isinstance(texts[1], str) and texts[0].startswith(texts[1])
    return _same(one, other) or (
        longer and _same((one[0], {**one[1], "text": ""}), (other[0], {**other[1], "text": ""}))
    )


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    """The block without what we note on it: how it was cut when it was sent."""
    return {key: value for key, value in block.items() if key != "cut"}


def _completed(old: Message, new: Message | None) -> Message:
    """The message that is kept, or the one that its source tells further now: it had not ended when it was read."""
    if (
        new is None
        or new["role"] != "assistant"
        or not _goes_on(new, old)
        or (_goes_on(old, new) and not (new.get("finish_reason") and not old.get("finish_reason")))
    ):
        return old
    whole: Message = {**old, **new}
    return whole


def _retold(joined: Document, doc: Document, theirs: Document) -> None:
    """Take over what a source says of its session now; who answers next only where nothing was asked here."""
    joined["title"] = theirs["title"] or doc["title"]
    joined["meta"] = {**theirs["meta"], "imported": doc["meta"]["imported"]}
    joined["context"] = {**theirs["context"], "consolidated": document.further(joined["messages"], doc, theirs)}
    if {message["id"] for message in theirs["messages"]} <= {message["id"] for message in doc["messages"]}:
        carried = {key: value for key, value in doc["usage"].items() if key == "carried_tokens"}
        joined["usage"] = {**theirs["usage"], "tokens": doc["usage"]["tokens"], **carried}
        joined["agent"], joined["provider"] = doc["agent"], doc["provider"]


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
