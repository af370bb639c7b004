"""The functions of the store, for gptsh and for scripts (docs/api.md): list, find, load, save, name and fork sessions.

One JSON file per session, found by index, id, prefix, file name or ``@NAME``. Saving is a union under the store's lock:
writers never overwrite each other, and a session only grows. An archived session returns with its next message.
"""

import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptsh import files
from gptsh.core import document, locks, references, session_files, session_folders, turns
from gptsh.core.document import VERSION, Document
from gptsh.core.projects import find_project
from gptsh.core.references import resolve_session_ref
from gptsh.core.session_folders import FILENAME, ID, archive_folder, exists, path_of, sessions_folder
from gptsh.core.title_prompt import generate_title, resolve_small_model
from gptsh.errors import BadSession, SessionGone, StoreError
from gptsh.messages import Message, just_after, new_message_id, starts_turn, sum_costs, timestamp

__all__ = [
    "SessionSummary",
    "append_messages",
    "fork_session",
    "generate_title",
    "get_sessions_dir",
    "list_sessions",
    "load_at",
    "load_session",
    "name_session",
    "new_session_doc",
    "resolve_session_ref",
    "resolve_small_model",
    "save_session",
]

if TYPE_CHECKING:
    from gptsh.core.listing import SessionSummary

Note = Callable[[str], None]
Change = Callable[[Document], object]

_MAX_LISTED = 5  # malformed keys in a note
_NOT_SAVED = "this turn is not saved"
_UNSAVED = "the session cannot be saved"


def __getattr__(name: str) -> Any:
    """Import the type of the rows of a list when a script asks for it."""
    if name == "SessionSummary":
        from gptsh.core.listing import SessionSummary

        return SessionSummary
    raise AttributeError(f"module {__name__} has no attribute {name}")


def get_sessions_dir(config: Mapping[str, Any] | None = None) -> Path:
    """Return ``${XDG_STATE_HOME:-~/.local/state}/gptsh/sessions``, created with mode 0700. Raises OSError."""
    folder = sessions_folder()
    session_folders.make_private(folder.parent)
    session_folders.make_private(folder)
    return folder


# ---- reading


def list_sessions(limit: int | None = None) -> "list[SessionSummary]":
    """Return the sessions, newest first, at most ``limit``. Files that cannot be read are left out."""
    from gptsh.core import listing

    return listing.list_sessions(limit)


def load_session(id_or_filename: str, note: Note | None = None) -> Document:
    """Return the document of an id, a file name or any other reference; a point is ignored.

    ``note`` gets one line if malformed parts were left out.
    Raises UnknownSession, or BadSession with path and cause if the messages cannot be read.
    """
    return _read(path_of(references.filename_of(references.split_ref(id_or_filename)[0])), note)


def load_at(ref: str, note: Note | None = None) -> Document:
    """Return the document of ``REF``, or as it stood at ``REF@POINT``. Raises as ``load_session`` does."""
    doc, (_, point) = load_session(ref, note), references.split_ref(ref)
    return turns.at_point(doc, point) if point else doc


def _read(path: Path, note: Note | None = None) -> Document:
    """Return the document of a file. Raises BadSession."""
    try:
        try:
            doc, malformed = session_files.read_document(path)
        except FileNotFoundError:  # another run has just archived it, or moved it back
            (other,) = {sessions_folder(), archive_folder()} - {path.parent}
            doc, malformed = session_files.read_document(other / path.name)
    except OSError as err:
        raise BadSession(f"{path}: {err.strerror}", "the file was not changed") from err
    except ValueError as err:
        way = "the file was not changed; gptsh --import-session may rescue its messages"
        raise BadSession(f"{path}: {err}", way) from err
    if note and malformed:
        more = ", …" if len(malformed) > _MAX_LISTED else ""
        listed = ", ".join(malformed[:_MAX_LISTED])
        note(f"session {doc['id']}: left out malformed keys: {listed}{more}")
    return doc


# ---- creating and appending


def new_session_doc(
    agent_info: dict[str, Any],
    provider_info: dict[str, Any],
    *,
    output: str | None,
    mcp_allowed_servers: list[str] | None,
    cwd: str | None = None,
) -> Document:
    """Return a document that is not on disk yet. The first save changes its id if another session has it."""
    meta = {
        "output": output,
        "cwd": cwd,
        "project": find_project(cwd) if cwd else None,
        "tags": [],
        "forked_from": None,
        "mcp_allowed_servers": mcp_allowed_servers or [],
    }
    blank = document.blank(new_id(()), timestamp())
    return {**blank, "provider": provider_info, "agent": agent_info, "meta": meta}


def fork_session(doc: Document, point: str) -> Document:
    """Return a new session that begins with the messages of ``doc``, which ``load_at`` cut at ``point``."""
    new = document.blank(new_id(()), timestamp())
    fresh = {key: new[key] for key in ("version", "id", "created_at", "updated_at", "usage", "stats")}
    not_inherited = ("imported", "imported_at", "used_in")
    meta = {key: value for key, value in doc["meta"].items() if key not in not_inherited}
    meta["forked_from"] = f"{doc['id']}@{point}"
    return {**doc, **fresh, "meta": meta, "messages": list(doc["messages"])}


def new_id(used_ids: Sequence[str] | set[str]) -> str:
    """Return four characters of base36 that are not in use, and not all digits: those are indexes."""
    while True:
        candidate = "".join(random.choices(references.BASE36, k=4))
        if not candidate.isdigit() and candidate not in used_ids:
            return candidate


def append_messages(
    doc: Document, new_messages: Sequence[Message], usage_delta: dict[str, Any] | None
) -> list[Message]:
    """Add messages in place, and return them; each gets an id, a parent and a time if it lacks them.

    If the first names its parent, answers go to the end of the parent's turn; otherwise messages go to the end.
    ``usage_delta`` is what this turn used, never a running total. Its ``tokens`` replace those of the session. Its
    ``cost`` (USD) is set on the last new message unless that has one; the session's cost is the sum.
    """
    messages, usage = doc["messages"], doc["usage"]
    anchor = new_messages[0].get("parent") if new_messages else None
    added: list[Message] = []
    parent = messages[-1]["id"] if messages else None
    for message in new_messages:
        added.append({"id": new_message_id(), "parent": parent, "timestamp": timestamp(), **message})
        end = len(messages)
        if not starts_turn(message):
            end = next((length for length in range(end, 0, -1) if messages[length - 1]["id"] == anchor), end)
            while end < len(messages) and not starts_turn(messages[end]):
                end += 1
        messages.insert(end, added[-1])
        parent = added[-1]["id"]
    if usage_delta:
        cost, tokens = usage_delta.get("cost"), usage_delta.get("tokens") or {}
        usage["tokens"] = {**usage["tokens"], **{key: tokens[key] for key in document.TOKEN_KEYS if key in tokens}}
        if not added:
            usage["carried"] = sum_costs([usage.get("carried"), cost])
        elif added[-1].get("cost") is None:
            added[-1]["cost"] = cost
    document.update_totals(doc)
    return added


# ---- saving


def save_session(
    doc: Document,
    change: Change | None = None,
    *,
    at: str | None = None,
    fsync: bool = True,
    touch: bool = True,
    wait: float | None = None,
    note: Note | None = None,
) -> str:
    """Write the union of ``doc`` and its file, update ``doc`` from it, and return the path.

    The document is that of the file with its id and its time of creation; if there is none, it is saved as a new
    session. Keys that it lacks are filled in, and ids of its messages.
    ``change`` gets the union, under the lock, before it is written: so a title, a tag or a snapshot is changed in what
    is on disk then. What it raises ends the save.
    ``at`` is the file name of the document, which must still be there, or an ``@NAME`` for a new session. If another
    process used that name first, the document becomes part of that session, with its id.
    ``fsync`` waits for the disk; without it, the wait for the lock is short too.
    Without ``touch`` the times of the session and its file do not change.
    ``wait`` is how many seconds to wait for the lock. ``note`` gets a line where the file system has no locks, once a
    day, and where other users can change the store, once.
    Raises SessionGone if there is no such session ``at`` that place any more, StoreError if it cannot be written,
    BadSession if its file must not be written.
    """
    _fill_in(doc)
    if wait is None:
        wait = locks.LOCK_WAIT if fsync else locks.SHORT_LOCK_WAIT
    with files.as_store_error(_UNSAVED, sessions_folder()):
        if at and FILENAME.fullmatch(at):
            folder = sessions_folder()
        else:
            folder = get_sessions_dir()
            if note and (line := session_folders.note_on_others()):
                note(line)
        with locks.locked(folder.parent, wait, note):
            path = _path_for(doc, at)
            stored = _read(path) if exists(path.name) else None
            refuse_newer(stored or doc, path.name)
            if stored and path.name == at and stored["created_at"] != doc["created_at"]:
                raise SessionGone(f"session {doc['id']} was replaced by another of the same id", _NOT_SAVED)
            new = {**doc}
            if stored:
                from gptsh.core.merge import add_keys, merge

                add_keys(stored["messages"], doc["messages"])
                new = merge(doc, stored)
            if change:
                change(new)
            if touch:
                now = timestamp()
                new["updated_at"] = now if now > new["created_at"] else just_after(new["created_at"])
            path = _write(new, path, stored, fsync=fsync, touch=touch)
            doc.update(new)  # before anything below fails: it is on disk now
            if at and at.startswith("@"):
                references.point_name(at, path.name, fsync=fsync)
    return str(path)


def _write(new: Document, path: Path, stored: Document | None, *, fsync: bool, touch: bool) -> Path:
    """Write a session, under the lock, and return its path: from the archive it returns with its next message."""
    has_grown = stored is None or len(new["messages"]) > len(stored["messages"])
    status = path.stat() if stored and not touch else None
    if has_grown and path.parent != sessions_folder():
        from gptsh.core import archive

        path = archive.move(path, sessions_folder())
    session_files.write_document(path, new, fsync=fsync)
    if status:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return path


def name_session(name: str, filename: str, *, fsync: bool = True, wait: float = locks.LOCK_WAIT) -> None:
    """Let an ``@NAME`` point at a session, even if it points at another one now. Raises StoreError.

    ``wait`` is how many seconds to wait for the lock.
    """
    folder = sessions_folder()
    with files.as_store_error(_UNSAVED, folder), locks.locked(folder.parent, wait):
        references.point_name(name, filename, fsync=fsync, moves=True)


def _fill_in(doc: Document) -> None:
    """Add the missing keys and message ids to a document that a script made. Raises StoreError."""
    has_keys = doc.get("id") and "context" in doc and "calls" in doc["usage"]
    if has_keys and all("id" in message for message in doc["messages"]):
        return
    try:
        messages = [{"id": new_message_id(), **message} for message in doc.get("messages", ())]
        session_id = doc.get("id") or new_id(())
        full, malformed = document.parse_document({**doc, "messages": messages}, session_id, timestamp())
    except (TypeError, ValueError) as err:
        raise StoreError(f"{_UNSAVED}: {err}") from err
    if malformed:
        raise StoreError(f"{_UNSAVED}: {', '.join(malformed)} has the wrong type")
    doc.clear()  # so that its keys get the order of the file
    doc.update(full)


def refuse_newer(doc: Document, filename: str) -> None:
    """Raise BadSession for a document of a newer gptsh, which may be read but not written."""
    if doc["version"] > VERSION:
        advice = f"update gptsh, or fork it: -s {references.ref_of(filename)}@"
        raise BadSession(f"{path_of(filename)} was written by a newer gptsh", advice)


def _path_for(doc: Document, at: str | None) -> Path:
    """Return the path to write to, under the lock. The id of a new document, and a future time, may change."""
    if at and FILENAME.fullmatch(at):
        if not exists(at):
            raise SessionGone(f"session {doc['id']} was deleted meanwhile", _NOT_SAVED)
        return path_of(at)
    if at and (joined := references.filename_of_name(at)):
        doc["id"] = joined[ID]
        return path_of(joined)
    used_ids = set()
    for place in (sessions_folder(), archive_folder(), session_folders.names_folder(), sessions_folder().parent):
        names = session_folders.names_in(place)
        files.sweep(place, names)
        for name in names:
            used_ids.add(name[ID])
            if name[ID] == doc["id"] and FILENAME.fullmatch(name) and _is_of_time(path_of(name), doc["created_at"]):
                return path_of(name)
    doc["created_at"] = min(timestamp(datetime.fromisoformat(doc["created_at"])), timestamp())
    if doc["id"] in used_ids or not _is_id(doc["id"]):
        doc["id"] = new_id(used_ids)
    return sessions_folder() / name_for(doc)


def _is_of_time(path: Path, created_at: str) -> bool:
    """Whether a session file was created at this time, as far as it can be read."""
    try:
        stored = session_files.read_head(str(path)).get("created_at")
        return datetime.fromisoformat(stored or "") == datetime.fromisoformat(created_at)
    except (OSError, ValueError, TypeError):
        return False


def _is_id(value: str) -> bool:
    return bool(re.fullmatch("[0-9a-z]{4}", value)) and not value.isdigit()


def name_for(doc: Document) -> str:
    """Return the file name of a new document."""
    stamp = doc["created_at"][:19].replace("-", "").replace(":", "").replace("T", "-")
    return f"{stamp}-{doc['id']}.json"
