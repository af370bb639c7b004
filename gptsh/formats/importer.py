"""Recognise the format of an import, and add its sessions to the store without duplicates."""

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gptsh import files
from gptsh.core import document, folders, listing, locks, sessions, turns
from gptsh.core.document import VERSION, Document
from gptsh.core.folders import FILENAME, ID, archive_folder, session_names, sessions_folder
from gptsh.core.turns import join_messages, merge
from gptsh.core.usage import write_session
from gptsh.errors import BadSession
from gptsh.formats import chat_exports, claude_code, coding_agents, gptsh, llm, nanobot, openai
from gptsh.formats.source import Results, Source
from gptsh.jsonio import JsonObject, as_dict
from gptsh.messages import Message, blocks_of, just_after, safe_params, text_of, timestamp
from gptsh.terminal import stdio

if TYPE_CHECKING:
    from gptsh.core.document_types import AgentInfo

# ---- readers
#
# Each has a function that returns the sessions of a file, or None for a file of another format.
# They are tried in this order. ``IGNORED_PATHS`` matches the paths of files that belong to a format
# but hold no session.

_READERS = {
    llm.NAME: llm.read,
    claude_code.NAME: claude_code.read,
    gptsh.NAME: gptsh.read,
    coding_agents.CODELET: coding_agents.read_codelet,
    coding_agents.NANOCODER: coding_agents.read_nanocoder,
    coding_agents.OLLM: coding_agents.read_ollm,
    chat_exports.DEEPSEEK: chat_exports.read_deepseek,
    chat_exports.CHATGPT: chat_exports.read_chatgpt,
    chat_exports.CLAUDE_AI: chat_exports.read_claude_ai,
    nanobot.NAME: nanobot.read,
    openai.NAME: openai.read,
    gptsh.MARKDOWN: gptsh.read_markdown,
}
NAMES = tuple(_READERS)
_IGNORED = (
    claude_code.IGNORED_PATHS,
    coding_agents.CODELET_PATHS,
    coding_agents.NANOCODER_PATHS,
    coding_agents.OLLM_PATHS,
)
IGNORED_PATHS = re.compile("|".join(_IGNORED))
_AICHAT_MODEL = re.compile(rb"(?m)^model: .")
_AICHAT_MESSAGES = re.compile(rb"(?m)^messages:\s*$")
_CODEX_WAY = """jq -c '.payload | select(.type == "message") \
| {role, content: [.content[].text] | join("")}' FILE | gptsh --import-session -"""
_ZIP = b"PK\x03\x04"


def read(source: Source) -> tuple[str, Results] | None:
    """Return the name of a file's format, its sessions and what cannot be read of them.

    Return None for an unknown format. Raises BadInput for a file that cannot be read.
    """
    for name, read_format in _READERS.items():
        results = read_format(source)
        if results is not None:
            return name, results
    advice = _advice_on(source)
    return ("", iter([source.skipped(advice)])) if advice else None


def _advice_on(source: Source) -> str:
    """Return how to import a file of a known tool whose format has no reader; else ""."""
    if source.start.startswith(_ZIP):
        return "a zip archive: unpack it, and import the folder"
    if _AICHAT_MODEL.search(source.start) and _AICHAT_MESSAGES.search(source.start):
        return "a session of aichat: import it with yq -o json FILE | gptsh --import-session -"
    if source.path and source.path.suffix == ".gob":
        return "a conversation of mods: pass its text on with mods --show ID | gptsh"
    if any(map(_is_codex, source.first)):
        return f"a session of Codex: import its messages with {_CODEX_WAY}"
    return ""


def _is_codex(value: JsonObject) -> bool:
    """Return whether an object is a record of Codex."""
    if not value.keys() >= {"timestamp", "type", "payload"}:
        return False
    return value["type"] in ("session_meta", "response_item", "turn_context")


# ---- importer
#
# Take sessions from elsewhere into the store. An origin identifies each, and a session that the
# store has gets what is new in a copy of it.
#
# An imported document is not trusted: it gets a new file name and no time in the future. It is
# merged into a session only if they share a message and do not contradict each other. The store
# loses nothing.

Origin = tuple[str, str]  # a format, and the key of a session in it
_OURS = "gptsh"  # our own format: its answers are complete, so a longer one was edited
_UNSAVED = "the session cannot be saved"


class Imported(NamedTuple):
    """The result of one import: the file, and its document now.

    ``added`` is the number of messages that are new in the store, ``completed`` that of messages it
    had only in part.
    """

    state: Literal["imported", "grown", "known"]
    filename: str
    doc: Document
    added: int = 0
    completed: int = 0


def _store_locked() -> contextlib.AbstractContextManager[None]:
    """Wait for the lock of the store as long as other runs have it: an import may be half done."""
    return locks.locked(sessions_folder().parent, wait=None, note=stdio.note)


@contextlib.contextmanager
def importing() -> Iterator["Importer"]:
    """Import sessions in the block; at its end they are on disk. Waits for another import.

    Raises StoreBusy if that does not go on, StoreError if the store cannot be written.
    """
    saving = partial(files.as_store_error, _UNSAVED, sessions_folder())
    with contextlib.ExitStack() as stack:
        with saving():
            folder = sessions.get_sessions_dir()
            # Not the lock of the store, which each save holds.
            stack.enter_context(locks.locked(folder))
        importer = Importer()
        try:
            yield importer
        finally:
            with saving():
                importer.sync()


class Importer:
    """Adds documents to the store: it has the ids there, and the origins of each session."""

    def __init__(self) -> None:
        self._written: list[Path] = []
        self._filenames: dict[Origin, list[str]] = {}
        self._ids: set[str] = set()
        for folder in (sessions_folder(), archive_folder()):
            for name in session_names(folder):
                self._ids.add(name[ID])
                head = listing.try_read(f"{folder}/{name}", document.read_head)
                if isinstance(head, dict):
                    self._remember(name, head)

    def sync(self) -> None:
        """Write all files to disk at once: fsync after each takes ten times as long."""
        for path in self._written:
            with contextlib.suppress(FileNotFoundError):  # another process has just deleted it
                files.sync(path)
        for folder in {path.parent for path in self._written}:
            files.sync(folder)

    def _remember(self, filename: str, head: document.Head) -> None:
        for origin in _origins(head):
            self._filenames.setdefault(origin, []).append(filename)

    def add(self, doc: Document) -> Imported:
        """Save a document under a new name, or merge it into the session of which it is a copy.

        Raises BadSession if that session must not be written, StoreError as ``save_session`` does.
        """
        doc = _sanitized(doc)
        folder = sessions_folder()
        with files.as_store_error(_UNSAVED, folder), _store_locked():
            for origin in _origins(doc):
                for name in self._filenames.get(origin, ()):
                    imported = self._merge(doc, name)
                    if imported:
                        return imported
            self._ensure_new_id(doc)
            name = sessions.name_for(doc)
            updated = datetime.fromisoformat(doc["updated_at"])
            self._write(doc, folder / name, int(updated.timestamp() * 1e9))
        self._ids.add(doc["id"])
        self._remember(name, doc)
        return Imported("imported", name, doc, added=len(doc["messages"]))

    def _ensure_new_id(self, doc: Document) -> None:
        """Give the document another id if its own is taken, or would be read as an index."""
        is_name = FILENAME.fullmatch(f"20000101-000000-{doc['id']}.json")
        if doc["id"].isdigit() or not is_name or doc["id"] in self._ids:
            doc["id"] = sessions.new_id(self._ids)
        while folders.exists(sessions.name_for(doc)):  # another run has just taken the id
            doc["id"] = sessions.new_id(self._ids)

    def _merge(self, doc: Document, name: str) -> Imported | None:
        """Add to a stored session what is new in a copy of it; return None if it is no copy."""
        path = folders.path_of(name)
        read = listing.try_read(str(path), document.read_document)
        if read is None or isinstance(read, listing.Unreadable):
            return None
        stored, _ = read
        copy = _with_our_ids(doc, stored)
        if not is_copy(copy, stored):
            return None
        new = merge_copy(copy, stored)
        if new == stored:
            return Imported("known", name, stored)
        sessions.refuse_newer(stored, name)
        self._write(new, path, path.stat().st_mtime_ns)

        stored_messages = {message["id"]: message for message in stored["messages"]}
        completed = 0
        for message in new["messages"]:
            if message["id"] in stored_messages and message != stored_messages[message["id"]]:
                completed += 1
        added = len(new["messages"]) - len(stored_messages)
        return Imported("grown", name, new, added=added, completed=completed)

    def name(self, name: str, filename: str) -> None:
        """Let an unused ``@NAME`` point at an imported session. Raises StoreError."""
        folder = sessions_folder()
        with files.as_store_error(_UNSAVED, folder), _store_locked():
            folders.point_name(name, filename, fsync=True)

    def _write(self, doc: Document, path: Path, file_time: int) -> None:
        """Write the document; its file gets ``file_time`` (ns), as an import is no use of it."""
        write_session(path, doc, fsync=False, times=(file_time, file_time))
        self._written.append(path)


def _origins(head: document.Head) -> list[Origin]:
    """Return the origins of a session: its own, and where it comes from."""
    origins = [(_OURS, _own_key(head))]
    imported = as_dict(as_dict(head.get("meta")).get("imported"))
    name = imported.get("format")
    key = imported.get("key")
    if isinstance(name, str) and isinstance(key, str):
        origins.append((name, key))
    return origins


def _own_key(head: document.Head) -> str:
    return f"{head['id']} {head.get('created_at')}"


def _sanitized(doc: Document) -> Document:
    """Return the document without future times, and without tools and uses of another user.

    The messages of the document are marked as imported: an agent's memory has them once the session
    is used here. Raises BadSession if a newer gptsh wrote it.
    """
    if doc["version"] > VERSION:
        raise BadSession("it was written by a newer gptsh", "update gptsh")
    now = timestamp()
    created = timestamp(datetime.fromisoformat(doc["created_at"]))
    created = min(created, now)
    updated = timestamp(datetime.fromisoformat(doc["updated_at"]))
    updated = min(updated, now)

    meta = doc["meta"].copy()
    meta.pop("used_in", None)
    meta["imported"] = meta.get("imported") or {"format": _OURS, "key": _own_key(doc)}
    meta["imported_at"] = now
    meta["mcp_allowed_servers"] = []
    params = safe_params(doc["agent"].get("params") or {})
    agent: AgentInfo = {**doc["agent"], "params": params}
    messages: list[Any] = []
    for message in doc["messages"]:
        source = as_dict(as_dict(message).get("source"))
        messages.append({**message, "source": {**source, "imported": True}})
    return {
        **doc,
        "created_at": created,
        "updated_at": max(updated, just_after(created)),
        "meta": meta,
        "agent": agent,
        "messages": messages,
    }


# ---- copies


def _format_of(doc: Document) -> str:
    """Return the format that a session was imported from; ``_OURS`` if it was not."""
    imported = doc["meta"].get("imported") or {}
    return str(imported.get("format", _OURS))


def _with_our_ids(doc: Document, stored: Document) -> Document:
    """Return another tool's document with our ids of the messages that the tool got from here.

    The roles and times of the messages identify them.
    """
    if _format_of(doc) == _OURS:
        return doc
    ours: dict[tuple[str, str | None], str] = {}
    for message in stored["messages"]:
        if not turns.is_imported(message):
            ours[message["role"], message.get("timestamp")] = message["id"]
    ids: dict[str | None, str] = {}
    messages: list[Message] = []
    for message in doc["messages"]:
        moment = message.get("timestamp")
        our_id = ours.get((message["role"], moment), message["id"])
        ids[message["id"]] = our_id
        messages.append({**message, "id": our_id, "parent": ids.get(message.get("parent"))})
    consolidated = ids.get(doc["context"]["consolidated"])
    return {
        **doc,
        "messages": messages,
        "context": {**doc["context"], "consolidated": consolidated},
    }


def is_copy(doc: Document, stored: Document) -> bool:
    """Return whether a document is a copy of the stored one, which has the same origin.

    A copy and its original share a message and do not contradict each other. Two of our own format
    agree on each shared message. Another tool's may have changed a message since; it must have the
    message that was imported last, or no message that was not imported.
    """
    if not doc["messages"] or not stored["messages"]:
        return bool(doc["created_at"] == stored["created_at"])
    incoming = {message["id"]: message for message in doc["messages"]}
    shared = [message for message in stored["messages"] if message["id"] in incoming]
    if _format_of(doc) == _OURS:
        return bool(shared) and all(_agree(message, incoming[message["id"]]) for message in shared)
    imported = [message["id"] for message in stored["messages"] if turns.is_imported(message)]
    if imported and imported[-1] in incoming:
        return True
    return bool(shared) and incoming.keys() <= set(imported)


def _agree(message: Message, other: Message) -> bool:
    """Return whether two messages with one id have the same role and content."""
    return message["role"] == other["role"] and blocks_of(message) == blocks_of(other)


def merge_copy(doc: Document, stored: Document) -> Document:
    """Return the stored document with what is new in a copy of it; an equal one if nothing is.

    The title of the copy is taken unless another one was set here. ``agent`` and ``provider`` do
    not change.
    """
    is_ours = _format_of(doc) == _OURS
    incoming = {message["id"]: message for message in doc["messages"]}
    messages = []
    for message in stored["messages"]:
        new_message = incoming.get(message["id"])
        messages.append(_completed(message, new_message) if new_message else message)
    if not is_ours and join_messages(doc["messages"], messages) == stored["messages"]:
        return stored
    new = merge({**doc, "updated_at": ""}, {**stored, "messages": messages})
    new["agent"] = stored["agent"]
    new["provider"] = stored["provider"]
    new["meta"] = stored["meta"]
    imported = stored["meta"].get("imported") or {}
    if stored["title"] in (None, imported.get("title")):
        new["title"] = doc["title"] or stored["title"]
    if is_ours:
        # The user may have removed the tag that another tool's session got at its import. The
        # memory belongs to each machine, a summary to the turns of its own file.
        document.change_tags(new, doc["meta"]["tags"])
        new["context"]["compaction"] = stored["context"]["compaction"]
        new["context"]["summaries"] = stored["context"]["summaries"]
        new["context"]["consolidated"] = stored["context"]["consolidated"]
    elif _format_of(stored) == _format_of(doc):
        new["meta"] = {**stored["meta"], "imported": doc["meta"]["imported"]}
    if {**new, "updated_at": stored["updated_at"]} == stored:
        return stored
    return {**new, "updated_at": max(stored["updated_at"], doc["updated_at"])}


def _completed(message: Message, new: Message) -> Message:
    """Return an imported answer as the copy has it if it is longer: it had not ended before."""
    if message["role"] != "assistant" or not turns.is_imported(message):
        return message
    is_longer = _length(new) > _length(message)
    return {**message, **new} if is_longer else message


def _length(message: Message) -> tuple[int, int]:
    """Return the number of blocks and of characters."""
    return len(blocks_of(message)), len(text_of(message))
