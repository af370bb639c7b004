"""Import of sessions from elsewhere: an origin identifies each, and none replaces another.

An imported document is not trusted: it gets a new file name, no approvals and no time in the future. It is merged into
a session only if they share a message and do not contradict each other. The store loses nothing.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gptsh.core import copies, files, listing, locks, references, session_files, sessions, snapshots, turns
from gptsh.core.document import VERSION, Document
from gptsh.core.merge import join_messages, merge
from gptsh.core.references import FILENAME, ID, archive_folder, session_names, sessions_folder
from gptsh.errors import BadSession
from gptsh.jsonio import as_dict
from gptsh.messages import Message, blocks_of, just_after, timestamp
from gptsh.models.parameters import safe_params

Origin = tuple[str, str]  # a format, and the key of a session in it
_OURS = "gptsh"  # our own format: its answers are complete, so a longer one was edited
_LOCK = ".import"
_UNSAVED = "the session cannot be saved"


class Imported(NamedTuple):
    """The result of one import: the file, and its document now.

    ``added`` is the number of messages that are new in the store, ``completed`` that of messages it had only in part.
    """

    state: Literal["imported", "grown", "known"]
    filename: str
    doc: Document
    added: int = 0
    completed: int = 0


@contextlib.contextmanager
def importing() -> Iterator["Importer"]:
    """Import sessions in the block, one import at a time; at its end they are on disk.

    Raises StoreBusy during another import, StoreError if the store cannot be written.
    """
    saving = partial(files.as_store_error, _UNSAVED, sessions_folder())
    with contextlib.ExitStack() as stack:
        with saving():
            folder = sessions.get_sessions_dir()
            stack.enter_context(locks.locked(folder.parent / _LOCK))
        importer = Importer()
        try:
            yield importer
        finally:
            with saving():
                for path in importer.written:  # all at the end: fsync after each takes ten times as long
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        files.sync(path)
                if importer.written:
                    files.sync(folder)


class Importer:
    """Adds documents to the store: it has the ids there, and the origins of each session."""

    def __init__(self) -> None:
        self.written: list[Path] = []
        self._filenames: dict[Origin, list[str]] = {}
        self._ids: set[str] = set()
        for folder in (sessions_folder(), archive_folder()):
            names, read_head = [*session_names(folder)], copies.head_reader(folder)
            for name in names:
                head = listing.try_read(f"{folder}/{name}", read_head)
                self._remember(name, head if isinstance(head, dict) else None)

    def _remember(self, filename: str, head: Document | None) -> None:
        self._ids.add(filename[ID])
        for origin in _origins(head) if head else ():
            self._filenames.setdefault(origin, []).append(filename)

    def add(self, doc: Document) -> Imported:
        """Save a document under a new name, or merge it into the session of which it is a copy.

        Raises BadSession if that session must not be written, StoreError as ``save_session`` does.
        """
        doc, folder = _sanitized(doc), sessions_folder()
        names = dict.fromkeys(name for origin in _origins(doc) for name in self._filenames.get(origin, ()))
        saving = files.as_store_error(_UNSAVED, folder)
        with saving, locks.locked(folder.parent / ".lock"):
            for name in names:
                path = references.path_of(name)
                whole = listing.try_read(str(path), lambda path: copies.read(Path(path)))
                if whole is None or isinstance(whole, listing.Unreadable):
                    continue
                stored = whole.doc
                copy = _with_our_ids(doc, stored)
                if is_copy(copy, stored):
                    new = merge_copy(copy, stored)
                    if new == stored:
                        return Imported("known", name, stored)
                    sessions.refuse_newer(stored, name)
                    self._write(new, path, int(copies.time_reader(path.parent)(str(path)) * 1e9))
                    before = {message["id"]: message for message in stored["messages"]}
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
        """Let an unused ``@NAME`` point at an imported session. Raises StoreError."""
        folder = sessions_folder()
        with files.as_store_error(_UNSAVED, folder), locks.locked(folder.parent / ".lock"):
            references.point_name(name, filename, fsync=True)

    def _write(self, doc: Document, path: Path, file_time: int) -> None:
        """Write the document; its file gets ``file_time`` (ns), since an import is no use of the session."""
        marks = references.marks_of(path.name)
        with references.writing(path.name):
            session_files.write_document(path, doc, fsync=False)
            for mark in marks:  # it was deleted, and is imported again
                mark.unlink(missing_ok=True)
        os.utime(path, ns=(file_time, file_time))
        self.written.append(path)


def _origins(head: Document) -> list[Origin]:
    """Return the origins of a session: its own id and creation time, and where it was imported from."""
    imported = as_dict(as_dict(head.get("meta")).get("imported"))
    form, key = imported.get("format"), imported.get("key")
    origins: list[Any] = [(_OURS, f"{head['id']} {head.get('created_at')}"), (form, key)]
    return [(form, key) for form, key in origins if isinstance(form, str) and isinstance(key, str)]


def _sanitized(doc: Document) -> Document:
    """Return the document without approvals, offered tools and uses, which belong to the user; no future times."""
    if doc["version"] > VERSION:
        raise BadSession("it was written by a newer gptsh", "update gptsh")
    now = timestamp()
    created = min(timestamp(datetime.fromisoformat(doc["created_at"])), now)
    updated = max(min(timestamp(datetime.fromisoformat(doc["updated_at"])), now), just_after(created))
    meta = {key: value for key, value in doc["meta"].items() if key not in ("mcp_approved", "used_in")}
    imported = meta.get("imported") or {"format": _OURS, "key": f"{doc['id']} {doc['created_at']}"}
    meta |= {"imported": {**imported, "as_of": updated}, "mcp_allowed_servers": [], "imported_at": now}
    agent = {**doc["agent"], "params": safe_params(doc["agent"].get("params") or {})}
    marked: list[Any] = [  # as imported: an agent's memory ignores them
        {**message, "source": {**as_dict(as_dict(message).get("source")), "imported": True}}
        for message in doc["messages"]
    ]
    return {**doc, "created_at": created, "updated_at": updated, "meta": meta, "agent": agent, "messages": marked}


# ---- copies


def _format_of(doc: Document) -> str:
    return str((doc["meta"].get("imported") or {}).get("format", _OURS))


def _with_our_ids(doc: Document, stored: Document) -> Document:
    """Return another tool's document with our ids of the messages that were written here and exported to the tool.

    Their roles and times identify them.
    """
    if _format_of(doc) == _OURS:
        return doc
    ours = {
        (message["role"], message.get("timestamp")): message["id"]
        for message in stored["messages"]
        if not turns.is_imported(message)
    }
    ids = {item["id"]: ours.get((item["role"], item.get("timestamp")), item["id"]) for item in doc["messages"]}
    messages = [{**item, "id": ids[item["id"]], "parent": ids.get(item.get("parent"))} for item in doc["messages"]]
    consolidated = ids.get(doc["context"]["consolidated"])
    return {**doc, "messages": messages, "context": {**doc["context"], "consolidated": consolidated}}


def is_copy(doc: Document, stored: Document) -> bool:
    """Whether a document is a copy of the stored one, which has the same origin.

    They share a message and do not contradict each other. Two of our own format agree on each shared message. Another
    tool's may have changed a message since; it must have the message that was imported last, or no message that was not
    imported.
    """
    incoming = {message["id"]: message for message in doc["messages"]}
    shared = [message for message in stored["messages"] if message["id"] in incoming]
    if not (incoming and stored["messages"]):
        return bool(doc["created_at"] == stored["created_at"])
    if _format_of(doc) == _OURS:
        pairs = [(incoming[message["id"]], message) for message in shared]
        return bool(pairs) and all(_extends(new, old) and _extends(old, new) for new, old in pairs)
    imported = [message["id"] for message in stored["messages"] if turns.is_imported(message)]
    has_all_imported = bool(imported) and imported[-1] in incoming
    return has_all_imported or (bool(shared) and incoming.keys() <= set(imported))


def _extends(new: Message, old: Message) -> bool:
    """Whether a message equals the old one, or begins with all of it."""
    new_blocks, old_blocks = blocks_of(new), blocks_of(old)
    last = len(old_blocks) - 1
    if (
        new["role"] != old["role"]
        or len(new_blocks) < len(old_blocks)
        or (old_blocks and new_blocks[:last] != old_blocks[:last])
    ):
        return False
    if not old_blocks or new_blocks[last] == old_blocks[last]:
        return True
    (kind, block), (other_kind, other) = new_blocks[last], old_blocks[last]
    texts = block.get("text"), other.get("text")
    is_same_block = kind == other_kind and {**block, "text": ""} == {**other, "text": ""}
    return is_same_block and isinstance(texts[0], str) and isinstance(texts[1], str) and texts[0].startswith(texts[1])


def merge_copy(doc: Document, stored: Document) -> Document:
    """Return the stored document with what is new in a copy of it, or ``stored`` itself if nothing is.

    ``agent`` and ``provider`` do not change.
    """
    incoming = {message["id"]: message for message in doc["messages"]}
    merged_by_id: dict[str, Message] = {}
    for message in stored["messages"]:
        new = incoming.get(message["id"])
        has_ended = new and new.get("finish_reason") and not message.get("finish_reason")
        if new and new["role"] == "assistant" and _extends(new, message) and (has_ended or not _extends(message, new)):
            message = {**message, **new}  # the copy in the store was still incomplete
        merged_by_id[message["id"]] = message
    common = [message_id for message_id in incoming if message_id in merged_by_id]
    if common == [*merged_by_id]:  # the copy has all stored messages, in the same order
        messages = [merged_by_id.get(message_id, message) for message_id, message in incoming.items()]
    else:
        messages = join_messages(doc["messages"], [*merged_by_id.values()])
    result, meta = {**stored, "messages": messages}, stored["meta"]
    old_import, new_import = meta.get("imported") or {}, doc["meta"]["imported"]
    imported = {message["id"] for message in stored["messages"] if turns.is_imported(message)}
    # The copy is newer if it has all imported messages and was last changed later.
    is_newer = _format_of(stored) == _format_of(doc) != _OURS and imported <= incoming.keys()
    is_newer = is_newer and new_import["as_of"] >= str(old_import.get("as_of") or "")
    # A title that differs from the imported one was set here.
    if stored["title"] is None or (is_newer and stored["title"] == old_import.get("title")):
        result["title"] = doc["title"] or stored["title"]
    if is_newer and {**old_import, "as_of": None} != {**new_import, "as_of": None}:
        result["meta"] = meta = {**meta, "imported": new_import}
    if messages != stored["messages"]:
        merged = merge(doc, stored)
        result["context"] = {**merged["context"], "snapshots": snapshots.merge({**doc, "updated_at": ""}, stored)}
        result["usage"] = {**stored["usage"], "calls": merged["usage"]["calls"]}
        result["meta"] = {**meta, "tags": [*dict.fromkeys([*meta["tags"], *doc["meta"]["tags"]])]}
        if _format_of(doc) == _OURS:  # an agent's memory belongs to each machine
            result["context"]["consolidated"] = stored["context"]["consolidated"]
        if messages[-1]["id"] == doc["messages"][-1]["id"]:  # the copy is the newer one
            latest = ("tokens", "carried_tokens")
            result["usage"] |= {key: doc["usage"][key] for key in latest if key in doc["usage"]}
    return {**result, "updated_at": max(stored["updated_at"], doc["updated_at"])} if result != stored else stored
