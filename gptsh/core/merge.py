"""Sessions from elsewhere merged into the store: found again by their origin, never in the place of another.

What a document says of itself is not trusted: it gets a file name of ours, no approvals and no time in the future. It
joins a session only where it has one of its messages and contradicts none of them; nothing that is here is lost.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gptsh.core import document, files, listing, references, sessions, snapshots
from gptsh.core.document import VERSION, Document
from gptsh.core.references import FILENAME, ID, archive_folder, names_in, sessions_folder
from gptsh.errors import BadSession
from gptsh.jsonio import as_dict
from gptsh.messages import Message, blocks_of, just_after, timestamp
from gptsh.models.names import safe_params

Origin = tuple[str, str]  # a format, and what identifies a session in it
_OURS = "gptsh"  # no other tool's: its answers are whole, so a longer one is an edit
_LOCK = ".import"
_UNSAVED = "the session cannot be saved"


class Imported(NamedTuple):
    """What became of a document: its file, and the document there now.

    ``added`` of its messages the store had not, ``completed`` of them it had in part.
    """

    state: Literal["imported", "grown", "known"]
    filename: str
    doc: Document
    added: int = 0
    completed: int = 0


@contextlib.contextmanager
def importing() -> Iterator["Importer"]:
    """Take sessions in, one import at a time; what was written is on the disk at the end.

    Raises StoreBusy while another import goes on, StoreError where the store cannot be written.
    """
    saving = partial(files.as_store_error, _UNSAVED, sessions_folder())
    with contextlib.ExitStack() as held:
        with saving():
            folder = sessions.get_sessions_dir()
            held.enter_context(files.locked(folder.parent / _LOCK))
        importer = Importer()
        try:
            yield importer
        finally:
            with saving():
                for path in importer.written:  # together: one at a time takes ten times as long
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        files.sync(path)
                if importer.written:
                    files.sync(folder)


class Importer:
    """The store, as an import sees it: which session came from where, and which ids are taken."""

    def __init__(self) -> None:
        self.written: list[Path] = []
        self._known: dict[Origin, list[str]] = {}  # file names
        self._ids: set[str] = set()
        for folder in (sessions_folder(), archive_folder()):
            for name in filter(FILENAME.fullmatch, names_in(folder)):
                head = listing.try_read(f"{folder}/{name}", files.read_head)
                self._remember(name, head if isinstance(head, dict) else None)

    def _remember(self, filename: str, head: Document | None) -> None:
        self._ids.add(filename[ID])
        for origin in _origins(head) if head else ():
            self._known.setdefault(origin, []).append(filename)

    def take(self, doc: Document) -> Imported:
        """Save a document under a name of ours, or what is new in it where it is known.

        Raises BadSession where the session that it is a copy of must not be written, StoreError as ``save_session``.
        """
        doc, folder = _sanitized(doc), sessions_folder()
        names = dict.fromkeys(name for origin in _origins(doc) for name in self._known.get(origin, ()))
        saving = files.as_store_error(_UNSAVED, folder)
        with saving, files.locked(folder.parent / ".lock"):
            for name in names:
                path = references.path_of(name)
                found = listing.try_read(str(path), files.read_document)
                if found and not isinstance(found, listing.Unreadable) and is_copy(doc, found[0]):
                    theirs = found[0]
                    new = joined(doc, theirs)
                    if new == theirs:
                        return Imported("known", name, theirs)
                    sessions.refuse_newer(theirs, name)
                    self._write(new, path, path.stat().st_mtime_ns)
                    before = {message["id"]: message for message in theirs["messages"]}
                    completed = sum(before.get(message["id"], message) != message for message in new["messages"])
                    return Imported("grown", name, new, len(new["messages"]) - len(before), completed)
            if not FILENAME.fullmatch(f"20000101-000000-{doc['id']}.json") or doc["id"].isdigit():
                doc["id"] = ""
            if not doc["id"] or doc["id"] in self._ids:
                doc["id"] = sessions.new_id(self._ids)
            name = sessions.name_for(doc)
            self._write(doc, folder / name, int(datetime.fromisoformat(doc["updated_at"]).timestamp() * 1e9))
        self._remember(name, doc)
        return Imported("imported", name, doc, len(doc["messages"]))

    def name(self, name: str, filename: str) -> None:
        """Let an ``@NAME`` that is free mean an imported session. Raises StoreError."""
        folder = sessions_folder()
        with files.as_store_error(_UNSAVED, folder), files.locked(folder.parent / ".lock"):
            references.point_name(name, filename, fsync=True)

    def _write(self, doc: Document, path: Path, used: int) -> None:
        """``used`` is the time of the file: what is imported is not what was used last."""
        files.write_document(path, doc, fsync=False)
        os.utime(path, ns=(used, used))
        self.written.append(path)


def _origins(head: Document) -> list[Origin]:
    """What identifies a session: its id and its beginning, and where it was imported from."""
    imported = as_dict(as_dict(head.get("meta")).get("imported"))
    form, key = imported.get("format"), imported.get("key")
    found: list[Any] = [(_OURS, f"{head['id']} {head.get('created_at')}"), (form, key)]
    return [(form, key) for form, key in found if isinstance(form, str) and isinstance(key, str)]


def _sanitized(doc: Document) -> Document:
    """The document without what only its owner may set here: approvals, offered tools, times to come."""
    if doc["version"] > VERSION:
        raise BadSession("it was written by a newer gptsh", "update")
    now = timestamp()
    created = min(timestamp(datetime.fromisoformat(doc["created_at"])), now)
    updated = max(min(timestamp(datetime.fromisoformat(doc["updated_at"])), now), just_after(created))
    meta = {key: value for key, value in doc["meta"].items() if key != "mcp_approved"}
    imported = meta.get("imported") or {"format": _OURS, "key": f"{doc['id']} {doc['created_at']}"}
    meta |= {"imported": {**imported, "as_of": updated}, "mcp_allowed_servers": [], "imported_at": now}
    agent = {**doc["agent"], "params": safe_params(doc["agent"].get("params") or {})}
    marked: list[Any] = [  # that it was not written here: it goes into no memory
        {**message, "source": {**as_dict(as_dict(message).get("source")), "imported": True}}
        for message in doc["messages"]
    ]
    return {**doc, "created_at": created, "updated_at": updated, "meta": meta, "agent": agent, "messages": marked}


# ---- copies


def _format_of(doc: Document) -> str:
    return str((doc["meta"].get("imported") or {}).get("format", _OURS))


def is_copy(doc: Document, theirs: Document) -> bool:
    """Whether two documents of one origin are copies of one session.

    They share a message. Ours do not differ in any that they share. Another tool's are one branch: it has what was
    imported last, or no more than is here. One message may be another text there by now.
    """
    ours = {message["id"]: message for message in doc["messages"]}
    shared = [message for message in theirs["messages"] if message["id"] in ours]
    if not (ours and theirs["messages"]):
        return bool(doc["created_at"] == theirs["created_at"])
    if _format_of(doc) == _OURS:
        pairs = [(ours[message["id"]], message) for message in shared]
        return bool(pairs) and all(_extends(one, other) and _extends(other, one) for one, other in pairs)
    came = [message["id"] for message in theirs["messages"] if document.is_imported(message)]
    return bool(shared) and (came[-1:] == [shared[-1]["id"]] or ours.keys() <= set(came))


def _extends(new: Message, old: Message) -> bool:
    """Whether a message is the other one, or begins with all of it."""
    ours, theirs = blocks_of(new), blocks_of(old)
    last = len(theirs) - 1
    if new["role"] != old["role"] or len(ours) < len(theirs) or (theirs and ours[:last] != theirs[:last]):
        return False
    if not theirs or ours[last] == theirs[last]:
        return True
    (kind, block), (other_kind, other) = ours[last], theirs[last]
    texts = block.get("text"), other.get("text")
    same = kind == other_kind and {**block, "text": ""} == {**other, "text": ""}
    return same and isinstance(texts[0], str) and isinstance(texts[1], str) and texts[0].startswith(texts[1])


def joined(doc: Document, theirs: Document) -> Document:
    """What the store has with what is new in a copy of it; ``theirs`` itself where nothing is.

    Who answers next is not the copy's to say.
    """
    incoming = {message["id"]: message for message in doc["messages"]}
    held: dict[str, Message] = {}
    for message in theirs["messages"]:
        new = incoming.get(message["id"])
        ended = new and new.get("finish_reason") and not message.get("finish_reason")
        if new and new["role"] == "assistant" and _extends(new, message) and (ended or not _extends(message, new)):
            message = {**message, **new}  # it had not ended when it was read
        held[message["id"]] = message
    if [ident for ident in incoming if ident in held] == [*held]:  # all of it came from there, in this order
        messages = [held.get(ident, message) for ident, message in incoming.items()]
    else:
        messages = document.join_messages(doc["messages"], [*held.values()])
    result, meta = {**theirs, "messages": messages}, theirs["meta"]
    had, now = meta.get("imported") or {}, doc["meta"]["imported"]
    came = {message["id"] for message in theirs["messages"] if document.is_imported(message)}
    is_later = _format_of(theirs) == _format_of(doc) != _OURS and came <= incoming.keys()  # it lacks nothing
    is_later = is_later and now["as_of"] >= str(had.get("as_of") or "")
    if theirs["title"] is None or (is_later and theirs["title"] == had.get("title")):  # else it was set here
        result["title"] = doc["title"] or theirs["title"]
    if is_later and {**had, "as_of": None} != {**now, "as_of": None}:
        result["meta"] = meta = {**meta, "imported": now}
    if messages != theirs["messages"]:
        merged = document.merge(doc, theirs)
        result["context"] = {**merged["context"], "snapshots": snapshots.merge({**doc, "updated_at": ""}, theirs, None)}
        result["usage"] = {**theirs["usage"], "calls": merged["usage"]["calls"]}
        result["meta"] = {**meta, "tags": [*dict.fromkeys([*meta["tags"], *doc["meta"]["tags"]])]}
        if _format_of(doc) == _OURS:  # what is in an agent's memory is a matter of each machine
            result["context"]["consolidated"] = theirs["context"]["consolidated"]
        if messages[-1]["id"] == doc["messages"][-1]["id"]:  # it is the newest copy
            latest = ("tokens", "carried_tokens")
            result["usage"] |= {key: doc["usage"][key] for key in latest if key in doc["usage"]}
    return {**result, "updated_at": max(theirs["updated_at"], doc["updated_at"])} if result != theirs else theirs
