"""Find, load, save, name and fork sessions, and make titles: functions also for scripts.

One JSON file per session, found by index, id, prefix, file name or ``@NAME``. Saving is a union
under the store's lock: writers never overwrite each other, and a session only grows. An archived
session returns with its next message. docs/api.md has the functions for scripts.
"""

import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gptsh import files
from gptsh.core import document, folders, locks, turns
from gptsh.core.document import VERSION, Document
from gptsh.core.folders import (
    FILENAME,
    ID,
    archive_folder,
    exists,
    path_of,
    resolve_session_ref,
    sessions_folder,
)
from gptsh.core.listing import SessionSummary, find_project, list_sessions
from gptsh.errors import BadSession, SessionGone, StoreError
from gptsh.jsonio import JsonObject, as_str
from gptsh.messages import (
    Message,
    just_after,
    new_message_id,
    starts_turn,
    sum_costs,
    timestamp,
)

if TYPE_CHECKING:
    from gptsh.core.document_types import AgentInfo, Meta, ProviderInfo

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

Note = Callable[[str], None]
Change = Callable[[Document], object]

_MAX_LISTED = 5  # malformed keys in a note
_NOT_SAVED = "this turn is not saved"
_UNSAVED = "the session cannot be saved"


def get_sessions_dir(config: Mapping[str, object] | None = None) -> Path:
    """Return ``${XDG_STATE_HOME:-~/.local/state}/gptsh/sessions``, created with mode 0700.

    Raises OSError.
    """
    folder = sessions_folder()
    folders.make_private(folder.parent)
    folders.make_private(folder)
    return folder


# ---- reading


def load_session(id_or_filename: str, note: Note | None = None) -> Document:
    """Return the document of an id, a file name or any other reference; a point is ignored.

    ``note`` gets one line if malformed parts were left out.
    Raises UnknownSession, or BadSession with path and cause if the messages cannot be read.
    """
    ref, _ = folders.split_ref(id_or_filename)
    return _read(path_of(folders.filename_of(ref)), note)


def load_at(ref: str, note: Note | None = None) -> Document:
    """Return the document of ``REF``, or as it was at ``REF@POINT``. Raises as ``load_session``."""
    doc = load_session(ref, note)
    _, point = folders.split_ref(ref)
    return turns.at_point(doc, point) if point else doc


def _read(path: Path, note: Note | None = None) -> Document:
    """Return the document of a file. Raises BadSession."""
    try:
        try:
            doc, malformed = document.read_document(path)
        except FileNotFoundError:  # another run has just archived it, or moved it back
            is_archived = path.parent == archive_folder()
            other_folder = sessions_folder() if is_archived else archive_folder()
            doc, malformed = document.read_document(other_folder / path.name)
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
    agent_info: "AgentInfo",
    provider_info: "ProviderInfo",
    *,
    output: str | None,
    mcp_allowed_servers: list[str] | None,
    cwd: str | None = None,
) -> Document:
    """Return a document that is not on disk yet. Its first save may give it another id."""
    meta: Meta = {
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
    """Return a new session that begins with the messages of ``doc``.

    ``doc`` is the original, which ``load_at`` has cut at ``point``.
    """
    meta = doc["meta"].copy()
    meta.pop("imported", None)
    meta.pop("imported_at", None)
    meta.pop("used_in", None)
    meta["forked_from"] = f"{doc['id']}@{point}"
    return {
        **doc,
        **document.blank(new_id(()), timestamp()),
        "title": doc["title"],
        "provider": doc["provider"],
        "meta": meta,
        "agent": doc["agent"],
        "context": doc["context"],
        "messages": list(doc["messages"]),
    }


def new_id(used_ids: Collection[str]) -> str:
    """Return four unused characters of base36, not all digits: those are indexes."""
    while True:
        candidate = "".join(random.choices(folders.BASE36, k=4))
        if not candidate.isdigit() and candidate not in used_ids:
            return candidate


def append_messages(
    doc: Document,
    new_messages: Sequence[Message],
    usage_delta: JsonObject | None,
) -> list[Message]:
    """Add messages in place, and return them, each with an id, a parent and a time.

    Answers go to the end of the turn of their parent, if the first one names it; all others go to
    the end. ``usage_delta`` is what this turn used, never a running total. Its ``tokens`` replace
    those of the session. Its ``cost`` (USD) is set on the last new message unless that has one; the
    session's cost is the sum.
    """
    messages = doc["messages"]
    ids = [message["id"] for message in messages]
    parent_id = new_messages[0].get("parent") if new_messages else None
    position = ids.index(parent_id) + 1 if parent_id in ids else len(ids)
    while position < len(ids) and not starts_turn(messages[position]):
        position += 1

    added: list[Message] = []
    parent = ids[-1] if ids else None
    for message in new_messages:
        if starts_turn(message):
            position = len(messages)
        new: Message = {
            "id": new_message_id(),
            "parent": parent,
            "timestamp": timestamp(),
            **message,
        }
        messages.insert(position, new)
        added.append(new)
        parent = new["id"]
        position += 1

    if usage_delta:
        usage = doc["usage"]
        cost = usage_delta.get("cost")
        tokens = usage_delta.get("tokens") or {}
        known: dict[str, int | None] = {
            key: tokens[key] for key in document.TOKEN_KEYS if key in tokens
        }
        usage["tokens"] = {**usage["tokens"], **known}
        if not added:
            usage["carried"] = sum_costs([usage.get("carried"), cost])
        elif added[-1].get("cost") is None:
            added[-1]["cost"] = cost
    document.recount(doc)
    return added


# ---- saving


def save_session(
    doc: Document,
    change: Change | None = None,
    *,
    at: str | None = None,
    fsync: bool = True,
    touch: bool = True,
    note: Note | None = None,
) -> str:
    """Write the union of ``doc`` and its file, update ``doc`` from it, and return the path.

    The document is that of the file with its id and its time of creation; if there is none, it is
    saved as a new session. Keys that it lacks are filled in, and ids of its messages.

    ``change`` gets the union, under the lock, before it is written: so a title, a tag or a snapshot
    is changed in what is on disk then. What it raises ends the save.
    ``at`` is the file name of the document, which must still be there, or an ``@NAME`` for a new
    session. If another process used that name first, the document becomes part of that session.
    ``fsync`` waits for the disk, and for the lock as long as it takes.
    Without ``touch`` the times of the session and its file do not change.
    ``note`` gets a line if the lock is not free for a second, where the file system has no locks,
    once a day, and where other users can change the store, once.

    Raises SessionGone if there is no such session ``at`` that place any more, StoreError if it
    cannot be written, BadSession if its file must not be written.
    """
    _fill_in(doc)
    filename, new_name = _file_or_name(at)
    with files.as_store_error(_UNSAVED, sessions_folder()):
        folder = sessions_folder()
        if filename is None:
            get_sessions_dir()
            if note:
                folders.warn_about_permissions(note)
        wait = None if fsync else locks.SHORT_LOCK_WAIT
        with locks.locked(folder.parent, wait, note=note):
            path = _path_at(doc, filename, new_name)
            if path is None:
                names = _names_in_store()  # once for all three: there may be many thousand
                _sweep(names)
                path = _path_of_same(doc, names)
            if path is None:
                _identify(doc, names)
                path = folder / name_for(doc)

            stored = _read(path) if exists(path.name) else None
            refuse_newer(stored or doc, path.name)
            if stored and path.name == filename and stored["created_at"] != doc["created_at"]:
                problem = f"another session now has the id {doc['id']}"
                raise SessionGone(problem, _NOT_SAVED)
            new = _union(doc, stored)
            if change:
                change(new)
            if touch:
                _touch(new)
            path = _write(new, path, stored, fsync=fsync, touch=touch)
            doc.update(new)  # before anything below fails: it is on disk now
            if new_name:
                folders.point_name(new_name, path.name, fsync=fsync)
    return str(path)


def _union(doc: Document, stored: Document | None) -> Document:
    """Return the union of a document and its file, None if it has none yet."""
    if stored is None:
        return doc.copy()
    turns.add_keys(stored["messages"], doc["messages"])
    return turns.merge(doc, stored)


def _touch(doc: Document) -> None:
    """Set the time of the last change: now, but later than the creation."""
    now = timestamp()
    created = doc["created_at"]
    doc["updated_at"] = now if now > created else just_after(created)


def _write(new: Document, path: Path, stored: Document | None, *, fsync: bool, touch: bool) -> Path:
    """Write a session and return its path: from the archive it returns with its next message."""
    from gptsh.core.usage import write_session

    times = None
    if stored and not touch:
        status = path.stat()
        times = (status.st_atime_ns, status.st_mtime_ns)
    has_grown = stored is None or len(new["messages"]) > len(stored["messages"])
    if has_grown and path.parent != sessions_folder():
        from gptsh.core import retention

        path = retention.move_session(path, sessions_folder())
    write_session(path, new, fsync=fsync, times=times)
    return path


def name_session(name: str, filename: str, *, fsync: bool = True) -> None:
    """Let an ``@NAME`` point at a session, no longer at another one. Raises StoreError."""
    folder = sessions_folder()
    wait = None if fsync else locks.SHORT_LOCK_WAIT
    with files.as_store_error(_UNSAVED, folder), locks.locked(folder.parent, wait):
        folders.point_name(name, filename, fsync=fsync, moves=True)


def _fill_in(doc: Document) -> None:
    """Add the missing keys and message ids to a document that a script made. Raises StoreError."""
    has_keys = doc.get("id") and "context" in doc and "calls" in doc["usage"]
    if has_keys and all("id" in message for message in doc["messages"]):
        return
    try:
        messages = [{"id": new_message_id(), **message} for message in doc.get("messages", ())]
        given = {**doc, "messages": messages}
        session_id = doc.get("id") or new_id(())
        full, malformed = document.parse_document(given, session_id, timestamp())
    except (TypeError, ValueError) as err:
        raise StoreError(f"{_UNSAVED}: {err}") from err
    if malformed:
        raise StoreError(f"{_UNSAVED}: {', '.join(malformed)} has the wrong type")
    cast("dict[str, object]", doc).clear()  # so that its keys get the order of the file
    doc.update(full)


def refuse_newer(doc: Document, filename: str) -> None:
    """Raise BadSession for a document of a newer gptsh, which may be read but not written."""
    if doc["version"] > VERSION:
        advice = f"update gptsh, or fork it: -s {folders.ref_of(filename)}@"
        raise BadSession(f"{path_of(filename)} was written by a newer gptsh", advice)


def _file_or_name(at: str | None) -> tuple[str | None, str | None]:
    """Return a file name and None, or None and an ``@NAME``; None and None for no place."""
    if not at:
        return None, None
    return (at, None) if FILENAME.fullmatch(at) else (None, at)


def _path_at(doc: Document, filename: str | None, new_name: str | None) -> Path | None:
    """Return the path of the document's file, or of the file of an ``@NAME`` that is in use.

    Raises SessionGone if there is no file of that name any more.
    """
    if filename and not exists(filename):
        raise SessionGone(f"session {doc['id']} was deleted by another process", _NOT_SAVED)
    if new_name:
        filename = folders.filename_of_name(new_name)
    return path_of(filename) if filename else None


_Names = dict[Path, list[str]]  # the names in each folder of the store


def _names_in_store() -> _Names:
    """Return the names in all folders that may have session files or temporary files."""
    sessions = sessions_folder()
    places = (sessions, archive_folder(), folders.names_folder(), sessions.parent)
    return {place: folders.names_in(place) for place in places}


def _sweep(names: _Names) -> None:
    """Remove the temporary files of killed processes from the store."""
    for folder, entries in names.items():
        files.sweep(folder, entries)


def _session_names(names: _Names) -> Iterator[str]:
    return filter(FILENAME.fullmatch, chain.from_iterable(names.values()))


def _path_of_same(doc: Document, names: _Names) -> Path | None:
    """Return the path of the file that a script has saved this document to, if any."""
    for name in _session_names(names):
        if name[ID] == doc["id"] and _is_of_time(path_of(name), doc["created_at"]):
            return path_of(name)
    return None


def _identify(doc: Document, names: _Names) -> None:
    """Give a new document a time of creation in UTC that has passed, and an id that is not used."""
    created = datetime.fromisoformat(doc["created_at"])
    doc["created_at"] = min(timestamp(created), timestamp())
    used_ids = {name[ID] for name in _session_names(names)}
    is_valid = re.fullmatch("[0-9a-z]{4}", doc["id"]) and not doc["id"].isdigit()
    if not is_valid or doc["id"] in used_ids:
        doc["id"] = new_id(used_ids)


def _is_of_time(path: Path, created_at: str) -> bool:
    """Return whether a session file was created at this time, as far as it can be read."""
    try:
        stored = as_str(document.read_head(str(path)).get("created_at"))
        return datetime.fromisoformat(stored) == datetime.fromisoformat(created_at)
    except (OSError, ValueError, TypeError):
        return False


def name_for(doc: Document) -> str:
    """Return the file name of a new document."""
    stamp = re.sub("[-:]", "", doc["created_at"][:19]).replace("T", "-")
    return f"{stamp}-{doc['id']}.json"


# ---- titles
#
# For scripts. ``core/titles.py`` has the request, ``turn/titles.py`` asks for the title of a turn.


def generate_title(
    first_user: str,
    *,
    small_model: str | None,
    llm: Callable[..., Any],
) -> str | None:
    """Return a title that ``small_model`` makes from the first question, or None if that fails.

    ``llm`` is a program's own client: a function that takes ``model``, ``messages`` and parameters
    by name, such as ``litellm.completion``, or an object with ``chat.completions.create``. It
    returns text or a chat completion.
    """
    from gptsh.core.titles import title_in, title_request

    if not small_model or not first_user.strip():
        return None
    request = title_request(first_user, small_model)
    try:
        complete = llm.chat.completions.create if hasattr(llm, "chat") else llm
        result = complete(model=request.model, messages=request.messages, **request.params)
        if not isinstance(result, str):
            for key in ("choices", 0, "message", "content"):
                is_item = isinstance(result, (dict, list))
                result = result[key] if is_item else getattr(result, str(key))
    except Exception:  # noqa: BLE001 - the client is the program's own
        return None
    return title_in(result) if isinstance(result, str) else None


def resolve_small_model(agent_conf: JsonObject, provider_conf: JsonObject) -> str | None:
    """Return the ``model_small`` of the agent, else of the provider, else None."""
    return agent_conf.get("model_small") or provider_conf.get("model_small")
