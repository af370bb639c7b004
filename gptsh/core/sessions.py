"""The functions of the store, for gptsh itself and for scripts: docs/api.md shows them.

One JSON file per session, found by index, id, prefix, file name or ``@NAME``. Saving is a union under the store's lock,
so writers never overwrite each other and a session only grows. An archived one comes back with its next message.
"""

import contextlib
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptsh.core import document, files, references
from gptsh.core.document import VERSION, Document
from gptsh.core.listing import SessionSummary, find_project, list_sessions
from gptsh.core.references import FILENAME, ID, resolve_session_ref, sessions_folder
from gptsh.errors import BadSession, GptshError, SessionGone, StoreError
from gptsh.messages import (
    Message,
    just_after,
    new_message_id,
    starts_turn,
    sum_costs,
    text_of,
    timestamp,
    without_reasoning,
)

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

_NAMED = 5  # malformed keys in a note
_NOT_SAVED = "this turn is not saved"
TITLE_SOURCE = 2000  # characters of the first question that the title is made from
TITLE_WIDTH = 80
TITLE_TOKENS = 24
TITLE_SYSTEM = (
    "You generate a short, human-friendly title for a conversation based solely on the first user message. "
    "Return 3–7 plain words in Title Case. No punctuation, no quotes, no extra text."  # noqa: RUF001
)


def get_sessions_dir(config: Mapping[str, Any] | None = None) -> Path:
    """``${XDG_STATE_HOME:-~/.local/state}/gptsh/sessions``, created for its owner alone. Raises OSError."""
    folder = sessions_folder()
    references.make_private(folder.parent)
    references.make_private(folder)
    return folder


# ---- reading


def load_session(id_or_filename: str, note: Note | None = None) -> Document:
    """The whole document of an id, a file name or any other reference, without its point.

    ``note`` gets one line where something malformed was left out. Raises UnknownSession, or BadSession naming path and
    cause where the messages cannot be read.
    """
    return _read(references.path_of(references.filename_of(references.split_ref(id_or_filename)[0])), note)


def load_at(ref: str, note: Note | None = None) -> Document:
    """The document of ``REF`` or as it stood at ``REF@POINT``. Raises as ``load_session``."""
    doc, (_, point) = load_session(ref, note), references.split_ref(ref)
    return document.at_point(doc, point) if point else doc


def _read(path: Path, note: Note | None = None) -> Document:
    try:
        try:
            doc, malformed = files.read_document(path)
        except FileNotFoundError:  # another run moved it to the archive, or back, since it was found
            (other,) = {sessions_folder(), references.archive_folder()} - {path.parent}
            doc, malformed = files.read_document(other / path.name)
    except OSError as err:
        raise BadSession(f"{path}: {err.strerror}", "the file is left as it is") from err
    except ValueError as err:
        raise BadSession(f"{path}: {err}", "the file is left as it is") from err
    if malformed and note:
        more = ", …" if len(malformed) > _NAMED else ""
        note(f"session {doc['id']}: left out what is malformed: {', '.join(malformed[:_NAMED])}{more}")
    return doc


# ---- making and growing


def new_session_doc(
    agent_info: dict[str, Any],
    provider_info: dict[str, Any],
    *,
    output: str | None,
    mcp_allowed_servers: list[str] | None,
    cwd: str | None = None,
) -> Document:
    """A document that is not on disk yet. Its id is settled by the first save, should another have taken it."""
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
    """A new session that begins with the messages of ``doc``, which ``load_at`` cut at ``point``."""
    new = document.blank(new_id(()), timestamp())
    fresh = {key: new[key] for key in ("version", "id", "created_at", "updated_at", "usage", "stats")}
    of_it_alone = ("mcp_approved", "imported", "imported_at")
    meta = {key: value for key, value in doc["meta"].items() if key not in of_it_alone}
    meta["forked_from"] = f"{doc['id']}@{point}"
    return {**doc, **fresh, "meta": meta, "messages": list(doc["messages"])}


def new_id(taken: Sequence[str] | set[str]) -> str:
    """Four characters of base36 that are not taken, and not all digits, since those are indexes."""
    while True:
        candidate = "".join(random.choices(references.BASE36, k=4))
        if not candidate.isdigit() and candidate not in taken:
            return candidate


def append_messages(doc: Document, new_messages: Sequence[Message], usage_delta: dict[str, Any] | None) -> None:
    """Add messages in place, giving each an id, its parent and its time where it lacks them.

    One that names its parent goes to the end of that one's turn, any other to the end of all. ``usage_delta`` is what
    one turn used, never a running total: ``tokens`` replaces the session's, ``cost`` (USD) goes to the last of the new
    messages unless that one knows its own, and is summed from there.
    """
    messages, usage = doc["messages"], doc["usage"]
    anchor = new_messages[0].get("parent") if new_messages else None
    added: Message | None = None
    for message in new_messages:
        parent = added["id"] if added else messages[-1]["id"] if messages else None
        added = {"id": new_message_id(), "parent": parent, "timestamp": timestamp(), **message}
        end = len(messages)
        if not starts_turn(added):
            end = next((place for place in range(end, 0, -1) if messages[place - 1]["id"] == anchor), end)
            while end < len(messages) and not starts_turn(messages[end]):
                end += 1
        messages.insert(end, added)
    if usage_delta:
        cost, tokens = usage_delta.get("cost"), usage_delta.get("tokens") or {}
        usage["tokens"] = {**usage["tokens"], **{key: tokens[key] for key in document.TOKEN_KEYS if key in tokens}}
        if added is None:
            usage["carried"] = sum_costs([usage.get("carried"), cost])
        elif added.get("cost") is None:
            added["cost"] = cost
    document.update_totals(doc)


# ---- saving


def save_session(
    doc: Document,
    *,
    title: str | None = None,
    tags: Sequence[str] = (),
    at: str | None = None,
    fsync: bool = True,
    touch: bool = True,
    moves: bool = False,
    keep_snapshots: int | None = None,
    without_snapshot: str | None = None,
) -> str:
    """Write the union of ``doc`` and its file, bring ``doc`` up to date with it, and return the path.

    Keys that ``doc`` lacks are filled in, and ids of its messages. ``title`` is one set by hand; ``tags`` are added.
    ``at`` is the file name that the document was read from, or an ``@NAME`` for a new session: where another process
    was first to use it, the document joins that session and takes its id. ``fsync`` waits for the disk; without it
    the lock is not waited for long either. Without ``touch`` the times of the session stay. ``moves``: ``agent`` and
    ``provider`` of ``doc`` count though it brings no message. ``keep_snapshots`` automatic ones stay where ``doc``
    brings one, None keeps all; ``without_snapshot`` names one to delete.
    Raises SessionGone when the session was deleted since it was read, StoreError when it cannot be written, BadSession
    when its file must not be, UsageError for an unknown snapshot.
    """
    if not ("context" in doc and "calls" in doc["usage"] and all("id" in message for message in doc["messages"])):
        _fill(doc)
    is_new = doc["updated_at"] == doc["created_at"]  # saving always moves the one beyond the other
    with files.as_store_error("the session cannot be saved", sessions_folder()):
        folder = get_sessions_dir() if is_new else sessions_folder()
        with files.locked(folder.parent / ".lock", files.LOCK_WAIT if fsync else files.SHORT_LOCK_WAIT):
            path = _place(doc, at, is_new=is_new)
            theirs = {**doc, "messages": [], "title": None} if is_new and not os.path.lexists(path) else _read(path)
            if theirs["version"] > VERSION:
                refuse_newer(theirs, path.name)
            if not is_new and theirs["created_at"] != doc["created_at"]:
                raise SessionGone(f"session {doc['id']} was replaced by another of the same id", _NOT_SAVED)
            new = document.merge(doc, theirs, title=title, tags=tags, keep_snapshots=keep_snapshots, moves=moves)
            if without_snapshot is not None:
                from gptsh.core import snapshots  # noqa: PLC0415 - few are deleted

                snapshots.delete(new, without_snapshot)
            if touch:
                now = timestamp()
                new["updated_at"] = now if now > new["created_at"] else just_after(new["created_at"])
            written = None if touch else path.stat()
            if path.parent != folder and len(new["messages"]) > len(theirs["messages"]):
                path = path.replace(folder / path.name)
            files.write_document(path, new, fsync=fsync)
            if written:
                os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))
            doc.update(new)  # it is on disk now, whatever fails below
            if at and at.startswith("@"):
                references.point_name(at, path.name, fsync=fsync)
    return str(path)


def _fill(doc: Document) -> None:
    """Give a document that a script made the keys that it lacks, and its messages ids. Raises StoreError."""
    try:
        messages = [{"id": new_message_id(), **message} for message in doc.get("messages", ())]
        full, malformed = document.complete({**doc, "messages": messages}, doc.get("id") or new_id(()), timestamp())
    except (TypeError, ValueError) as err:
        raise StoreError(f"the session cannot be saved: {err}") from err
    if malformed:
        raise StoreError(f"the session cannot be saved: {', '.join(malformed)} has the wrong type")
    doc.clear()  # for the order of its keys
    doc.update(full)


def refuse_newer(doc: Document, filename: str) -> None:
    """Raise BadSession for a document of a newer gptsh, which may be read but not written."""
    if doc["version"] > VERSION:
        advice = f"update, or fork it: -s {references.ref_of(filename)}@"
        raise BadSession(f"{references.path_of(filename)} was written by a newer gptsh", advice)


def _place(doc: Document, at: str | None, *, is_new: bool) -> Path:
    """The file of the document, under the lock. May change the document's id, and only before its first save."""
    folder = sessions_folder()
    if not is_new:
        if os.path.lexists(path := references.path_of(at if at and FILENAME.fullmatch(at) else name_for(doc))):
            return path
        for name in (*references.names_in(folder), *references.names_in(references.archive_folder())):
            if FILENAME.fullmatch(name) and name[ID] == doc["id"]:
                return references.path_of(name)
        raise SessionGone(f"session {doc['id']} was deleted meanwhile", _NOT_SAVED)
    if at and (first := references.filename_named(at)):
        doc["id"] = first[ID]
        return references.path_of(first)
    taken = set()
    for place in (folder, references.archive_folder(), references.names_folder(), folder.parent):
        names = references.names_in(place)
        files.sweep(place, names)
        taken |= {name[ID] for name in names}
    if doc["id"] in taken:
        doc["id"] = new_id(taken)
    return folder / name_for(doc)


def name_for(doc: Document) -> str:
    """The name of the file that a document begins in."""
    stamp = doc["created_at"][:19].replace("-", "").replace(":", "").replace("T", "-")
    return f"{stamp}-{doc['id']}.json"


# ---- a question asked again

_ASKED_AGAIN = 3600  # seconds within which the same words are the same question


def _unanswered() -> Path:
    """A file with the name of the session whose first question got no answer, of several the last."""
    return sessions_folder().parent / "unanswered"


def remember_unanswered(filename: str) -> None:
    """Remember a session whose first question got no answer, for ``take_unanswered``."""
    with contextlib.suppress(OSError):  # then the words asked again begin a second session
        files.replace(_unanswered(), filename.encode(), fsync=False)


def take_unanswered(question: Message) -> str | None:
    """The file name of the session that has just this question, asked in this project and hour, without an answer.

    One run alone gets it, though several ask the same.
    """
    try:
        if time.time() - _unanswered().stat().st_mtime > _ASKED_AGAIN:
            return None
        filename = files.read_bytes(_unanswered()).decode()
        doc = load_session(filename)
        is_same = [message["content"] for message in doc["messages"]] == [question["content"]]
        if not is_same or doc["meta"].get("project") != find_project(os.getcwd()):
            return None
        _unanswered().unlink()
    except (OSError, BadSession, ValueError):  # an unknown session is a ValueError, too
        return None
    return filename


# ---- titles


def generate_title(first_user: str, *, small_model: str | None, llm: "Ask") -> str | None:
    """A title of a few words from the first question alone, asked of ``small_model``; None where that failed.

    It is the first line that is no reasoning, without quotes and final punctuation.
    """
    if not small_model or not first_user.strip():
        return None
    from gptsh.content.answer import Answer, Request  # noqa: PLC0415 - a list asks for no title
    from gptsh.models.facts import likely_facts, small_params, split_model  # noqa: PLC0415 - the same

    words = first_user[:TITLE_SOURCE]
    ask: list[Message] = [{"role": "system", "content": TITLE_SYSTEM}, {"role": "user", "content": words}]
    params = small_params(likely_facts(*split_model(small_model)), TITLE_TOKENS)
    answer = Answer()
    try:
        for _ in llm(Request(small_model, ask, params, stream=False), answer):
            pass
    except GptshError:
        return None
    if (message := answer.message()) is None:
        return None
    line = " ".join(without_reasoning(text_of(message)).split("\n", 1)[0].split())
    return line.strip("\"'`*#“”‘’ ").rstrip(".!,;: ")[:TITLE_WIDTH].rstrip() or None  # noqa: RUF001


def resolve_small_model(agent_conf: Mapping[str, Any], provider_conf: Mapping[str, Any]) -> str | None:
    """The ``model_small`` of the agent, else that of the provider, else None: then the main model does its work."""
    return agent_conf.get("model_small") or provider_conf.get("model_small")
