"""The functions of the store, for gptsh itself and for scripts: docs/api.md shows them.

One JSON file per session, found by index, id, prefix, file name or ``@NAME``. Saving is a union under the store's lock:
writers never overwrite each other, and a session only grows. An archived session returns with its next message.
"""

import contextlib
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptsh.core import archive, copies, document, files, references
from gptsh.core.document import VERSION, Document
from gptsh.core.listing import SessionSummary, find_project, list_sessions
from gptsh.core.references import FILENAME, ID, resolve_session_ref, sessions_folder
from gptsh.errors import BadSession, GptshError, SessionGone, StoreError
from gptsh.messages import (
    Message,
    final_answer,
    just_after,
    new_message_id,
    starts_turn,
    sum_costs,
    text_of,
    timestamp,
)
from gptsh.text import one_line

if TYPE_CHECKING:
    from gptsh.content.answer import Ask

__all__ = [
    "SessionSummary",
    "append_messages",
    "fork_session",
    "generate_title",
    "get_sessions_dir",
    "list_sessions",
    "load_at",
    "load_session",
    "new_session_doc",
    "resolve_session_ref",
    "resolve_small_model",
    "save_session",
]

Note = Callable[[str], None]

_MAX_LISTED = 5  # malformed keys in a note
_NOT_SAVED = "this turn is not saved"
TITLE_SOURCE = 2000  # characters of the first question that the title is made from
TITLE_WIDTH = 80
TITLE_TOKENS = 24
TITLE_SYSTEM = (
    "You generate a short, human-friendly title for a conversation based solely on the first user message. "
    "Return 3–7 plain words in Title Case. No punctuation, no quotes, no extra text."  # noqa: RUF001
)


def get_sessions_dir(config: Mapping[str, Any] | None = None) -> Path:
    """Return ``${XDG_STATE_HOME:-~/.local/state}/gptsh/sessions``, created with mode 0700. Raises OSError."""
    folder = sessions_folder()
    references.make_private(folder.parent)
    references.make_private(folder)
    return folder


# ---- reading


def load_session(id_or_filename: str, note: Note | None = None) -> Document:
    """Return the document of an id, a file name or any other reference; a point is ignored.

    ``note`` gets one line if malformed parts were left out.
    Raises UnknownSession, or BadSession with path and cause if the messages cannot be read.
    """
    return _read(references.path_of(references.filename_of(references.split_ref(id_or_filename)[0])), note)


def load_at(ref: str, note: Note | None = None) -> Document:
    """Return the document of ``REF``, or as it stood at ``REF@POINT``. Raises as ``load_session`` does."""
    doc, (_, point) = load_session(ref, note), references.split_ref(ref)
    return document.at_point(doc, point) if point else doc


def _read(path: Path, note: Note | None = None) -> Document:
    """Return the document of a file, joined with the copies of it. Raises BadSession."""
    whole = _read_whole(path)
    if note:
        if whole.malformed:
            more = ", …" if len(whole.malformed) > _MAX_LISTED else ""
            listed = ", ".join(whole.malformed[:_MAX_LISTED])
            note(f"session {whole.doc['id']}: left out malformed keys: {listed}{more}")
        if references.marks_of(path.name):
            note(copies.is_back_line(path.name))
        for other, cause in whole.left_alone:
            if other.name != path.name:
                note(copies.left_alone_line(other, cause))
    return whole.doc


def _read_whole(path: Path) -> copies.Whole:
    try:
        try:
            return copies.read(path)
        except FileNotFoundError:  # another run has just archived it, or moved it back
            (other,) = {sessions_folder(), references.archive_folder()} - {path.parent}
            return copies.read(other / path.name)
    except OSError as err:
        raise BadSession(f"{path}: {err.strerror}", "the file was not changed") from err
    except ValueError as err:
        raise BadSession(f"{path}: {err}", "the file was not changed") from err


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
    not_inherited = ("mcp_approved", "imported", "imported_at", "used_in")
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
    *,
    title: str | None = None,
    tags: Sequence[str] = (),
    name: str | None = None,
    at: str | None = None,
    fsync: bool = True,
    touch: bool = True,
    agent_wins: bool = False,
    keep_snapshots: int | None = None,
    without_snapshot: str | None = None,
    wait: float | None = None,
    note: Note | None = None,
) -> str:
    """Write the union of ``doc`` and its file, update ``doc`` from it, and return the path.

    Keys that ``doc`` lacks are filled in, and ids of its messages.
    ``title`` is one that the user set; ``tags`` are added; ``name`` is an ``@NAME`` that moves to the session.
    ``at`` is the file name of the document, or an ``@NAME`` for a new session. If another process used that name first,
    the document becomes part of that session, with its id.
    ``fsync`` waits for the disk; without it, the wait for the lock is short too.
    Without ``touch`` the times of the session and its file do not change.
    With ``agent_wins``, ``agent`` and ``provider`` of ``doc`` win even if it adds no message.
    ``keep_snapshots`` is how many automatic snapshots remain when ``doc`` adds one; None keeps all.
    ``without_snapshot`` names a snapshot to delete.
    ``wait`` is how many seconds to wait for the lock. ``note`` gets a line where the file system has no locks, once a
    day, and where other users can change the store, once.
    Raises SessionGone if the session was deleted since it was read, StoreError if it cannot be written, BadSession if
    its file must not be written, UsageError for an unknown snapshot.
    """
    has_keys = doc.get("id") and "context" in doc and "calls" in doc["usage"]
    if not (has_keys and all("id" in message for message in doc["messages"])):
        _fill_in(doc)
    is_new = doc["updated_at"] == doc["created_at"]  # each save makes updated_at later
    with files.as_store_error("the session cannot be saved", sessions_folder()):
        folder = get_sessions_dir() if is_new else sessions_folder()
        if note and is_new and (line := references.note_on_others()):
            note(line)
        wait = (files.LOCK_WAIT if fsync else files.SHORT_LOCK_WAIT) if wait is None else wait
        with files.locked(folder.parent / ".lock", wait, note):
            path = _path_for(doc, at, is_new=is_new)
            whole = None if is_new and not references.exists(path.name) else _read_whole(path)
            theirs = whole.doc if whole else {**doc, "messages": [], "title": None}
            refuse_newer(theirs, path.name)
            if not is_new and theirs["created_at"] != doc["created_at"]:
                raise SessionGone(f"session {doc['id']} was replaced by another of the same id", _NOT_SAVED)
            new = document.merge(
                doc, theirs, title=title, tags=tags, keep_snapshots=keep_snapshots, agent_wins=agent_wins
            )
            if without_snapshot is not None:
                from gptsh.core import snapshots  # noqa: PLC0415 - rarely needed

                snapshots.delete(new, without_snapshot)
            if touch:
                now = timestamp()
                new["updated_at"] = now if now > new["created_at"] else just_after(new["created_at"])
            is_there = os.path.lexists(path)
            status = path.stat() if is_there and not touch else None
            # They are a part of the session, which is on disk then; and what was deleted went on.
            outdated = [*whole.copies, *references.marks_of(path.name)] if fsync and whole else []
            with references.writing(path.name):
                if path.parent != folder and len(new["messages"]) > len(theirs["messages"]):
                    path = archive.move(path, folder) if is_there else folder / path.name
                files.write_document(path, new, fsync=fsync)
                for file in outdated:
                    file.unlink(missing_ok=True)
            if status:
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            doc.update(new)  # before anything below fails: it is on disk now
            if at and at.startswith("@"):
                references.point_name(at, path.name, fsync=fsync)
            if name is not None:
                references.point_name(name, path.name, fsync=fsync, moves=True)
    return str(path)


def _fill_in(doc: Document) -> None:
    """Add the missing keys and message ids to a document that a script made. Raises StoreError."""
    try:
        messages = [{"id": new_message_id(), **message} for message in doc.get("messages", ())]
        session_id = doc.get("id") or new_id(())
        full, malformed = document.parse_document({**doc, "messages": messages}, session_id, timestamp())
    except (TypeError, ValueError) as err:
        raise StoreError(f"the session cannot be saved: {err}") from err
    if malformed:
        raise StoreError(f"the session cannot be saved: {', '.join(malformed)} has the wrong type")
    doc.clear()  # so that its keys get the order of the file
    doc.update(full)


def refuse_newer(doc: Document, filename: str) -> None:
    """Raise BadSession for a document of a newer gptsh, which may be read but not written."""
    if doc["version"] > VERSION:
        advice = f"update gptsh, or fork it: -s {references.ref_of(filename)}@"
        raise BadSession(f"{references.path_of(filename)} was written by a newer gptsh", advice)


def _path_for(doc: Document, at: str | None, *, is_new: bool) -> Path:
    """Return the path to write to, under the lock. The document's id may change, but only before its first save."""
    folder = sessions_folder()
    if not is_new:
        if references.exists(name := at if at and FILENAME.fullmatch(at) else name_for(doc)):
            return references.path_of(name)
        for name in (*references.session_names(folder), *references.session_names(references.archive_folder())):
            if name[ID] == doc["id"]:
                return references.path_of(name)
        raise SessionGone(f"session {doc['id']} was deleted meanwhile", _NOT_SAVED)
    if at and (joined := references.filename_of_name(at)):
        doc["id"] = joined[ID]
        return references.path_of(joined)
    used_ids = set()
    for place in (folder, references.archive_folder(), references.names_folder(), folder.parent):
        names = references.names_in(place)
        files.sweep(place, names)
        for name in references.deleted_among(names):
            archive.remove_deleted(name)
        used_ids |= {name[ID] for name in names}
    if doc["id"] in used_ids:
        doc["id"] = new_id(used_ids)
    return folder / name_for(doc)


def name_for(doc: Document) -> str:
    """Return the file name of a new document."""
    stamp = doc["created_at"][:19].replace("-", "").replace(":", "").replace("T", "-")
    return f"{stamp}-{doc['id']}.json"


# ---- a first question that got no answer

_RETRY_WITHIN = 3600  # seconds in which the same question continues the same session


def _unanswered_file() -> Path:
    """The file that names the latest session whose first question got no answer."""
    return sessions_folder().parent / "unanswered"


def remember_unanswered(filename: str) -> None:
    """Record that the first question of a session got no answer, for ``take_unanswered``."""
    with contextlib.suppress(OSError):  # the same question then begins a second session
        files.replace(_unanswered_file(), filename.encode(), fsync=False)


def take_unanswered(question: Message) -> str | None:
    """Return the file name of the session in which this question got no answer, within an hour, in this project.

    Of several runs that ask at once, only one gets it; None for the others.
    """
    try:
        if time.time() - _unanswered_file().stat().st_mtime > _RETRY_WITHIN:
            return None
        filename = files.read_bytes(_unanswered_file()).decode()
        doc = load_session(filename)
        is_same = [message["content"] for message in doc["messages"]] == [question["content"]]
        if not is_same or doc["meta"].get("project") != find_project(os.getcwd()):
            return None
        _unanswered_file().unlink()
    except (OSError, BadSession, ValueError):  # ValueError: also UnknownSession
        return None
    return filename


# ---- titles


def generate_title(first_user: str, *, small_model: str | None, llm: "Ask") -> str | None:
    """Return a title of a few words from the first question, generated by ``small_model``, or None if that fails.

    It is the answer's first line after any reasoning, without quotes and final punctuation.
    """
    if not small_model or not first_user.strip():
        return None
    from gptsh.content.answer import Answer  # noqa: PLC0415 - lists need no title
    from gptsh.content.think_tags import is_open  # noqa: PLC0415 - lists need no title
    from gptsh.messages import Request  # noqa: PLC0415 - lists need no title
    from gptsh.models.facts import likely_facts, small_params, split_model  # noqa: PLC0415 - lists need no model

    source = first_user[:TITLE_SOURCE]
    messages: list[Message] = [{"role": "system", "content": TITLE_SYSTEM}, {"role": "user", "content": source}]
    params = small_params(likely_facts(*split_model(small_model)), TITLE_TOKENS)
    answer = Answer()
    try:
        for _ in llm(Request(small_model, messages, params, stream=False), answer):
            pass
    except GptshError:
        return None
    if (message := answer.message()) is None:
        return None
    text = text_of(final_answer(message)).strip()
    if is_open(text):
        return None
    line = one_line(text.split("\n", 1)[0])
    return line.strip("\"'`*#“”‘’ ").rstrip(".!,;: ")[:TITLE_WIDTH].rstrip() or None  # noqa: RUF001


def resolve_small_model(agent_conf: Mapping[str, Any], provider_conf: Mapping[str, Any]) -> str | None:
    """Return the ``model_small`` of the agent, else of the provider, else None."""
    return agent_conf.get("model_small") or provider_conf.get("model_small")
