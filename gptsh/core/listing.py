"""What stands in the store: its sessions as lists tell of them, newest first, read from the heads of their files.

A list yields what it could not read beside what it could.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar

from gptsh.core import document, files
from gptsh.core.document import Document, stats, tags_of, turns
from gptsh.core.references import FILENAME, ID, get_archive_dir, get_sessions_dir, names_in, newest_first
from gptsh.jsonio import as_dict
from gptsh.messages import token_count
from gptsh.models.names import full_name
from gptsh.text import in_usd, local_time

Item = TypeVar("Item")
Fact = tuple[str, str]  # a label and a few words
UNTITLED = "(untitled)"


class SessionSummary(TypedDict):
    """What a list tells of a session, read from the head of its file. Times are UTC, cost is USD.

    ``index`` is None in the archive: no index means what is there.
    """

    index: int | None
    id: str
    filename: str
    created_at: str
    updated_at: str
    title: str | None
    agent: str | None
    model: str | None
    provider: str | None
    turns: int
    messages: int
    tokens: int | None
    cost: float | None
    tags: list[str]
    project: str | None
    preview: str


class Unreadable(NamedTuple):
    """A session file that a list skips, and why."""

    path: Path
    cause: str


def scan_sessions(prefix: str = "", *, archived: bool = False) -> Iterator[SessionSummary | Unreadable]:
    """Every session whose id begins with ``prefix``, newest first, as it is read; ``archived``: those put away.

    What is left out or cannot be read keeps its index: nothing renumbers.
    """
    folder = get_archive_dir() if archived else get_sessions_dir()
    for index, name in enumerate(newest_first(folder)):
        if name[ID].startswith(prefix):
            head = try_read(f"{folder}/{name}", files.read_head)
            if isinstance(head, Unreadable):
                yield head
            elif head is not None:
                yield summary_of(head, None if archived else index, name)


def scan_documents() -> Iterator[Document | Unreadable]:
    """Every whole document, those in the archive among them, oldest first, as it is read."""
    folders = (get_sessions_dir(), get_archive_dir())
    names = ((name, folder) for folder in folders for name in names_in(folder) if FILENAME.fullmatch(name))
    for name, folder in sorted(names):
        doc = try_read(f"{folder}/{name}", files.read_document)
        if doc is not None:
            yield doc


def scan_heads() -> Iterator[tuple[str, Document]]:
    """The file name and the head of each readable session, newest first, then those in the archive."""
    for folder in (get_sessions_dir(), get_archive_dir()):
        for name in newest_first(folder):
            head = try_read(f"{folder}/{name}", files.read_head)
            if isinstance(head, dict):
                yield name, head


def try_read(path: str, read: Callable[[str], Item]) -> Item | Unreadable | None:
    """What ``read`` makes of a file; None where the file was deleted meanwhile, which needs no note."""
    try:
        return read(path)
    except FileNotFoundError as err:
        return Unreadable(Path(path), f"dangling link: {err.strerror}") if os.path.islink(path) else None
    except OSError as err:
        return Unreadable(Path(path), err.strerror or str(err))
    except ValueError as err:
        return Unreadable(Path(path), str(err))


def list_sessions(limit: int | None = None) -> list[SessionSummary]:
    """Summaries of the sessions that can be read, newest first, ``limit`` at most."""
    readable = (item for item in scan_sessions() if not isinstance(item, Unreadable))
    return list(islice(readable, limit))


def summary_of(head: Document, index: int | None, filename: str) -> SessionSummary:
    """What a list prints of a document or its head. ``stats`` are derived: a malformed one counts as 0, or as empty."""
    agent, meta, usage = head.get("agent", {}), head.get("meta", {}), head.get("usage", {})
    stats: dict[str, Any] = head.get("stats", {})
    turns, messages, preview = stats.get("turns"), stats.get("messages"), stats.get("preview")
    created: str = head.get("created_at", "")
    return {
        "index": index,
        "id": head["id"],
        "filename": filename,
        "created_at": created,
        "updated_at": head.get("updated_at", created),
        "title": head.get("title") or None,
        "agent": agent.get("name"),
        "model": agent.get("model"),
        "provider": head.get("provider", {}).get("name"),
        "turns": turns if isinstance(turns, int) else 0,
        "messages": messages if isinstance(messages, int) else 0,
        "tokens": (usage.get("tokens") or {}).get("total"),
        "cost": usage.get("cost"),
        "tags": document.tags_of({"meta": meta}),
        "project": meta.get("project"),
        "preview": preview if isinstance(preview, str) else "",
    }


def latest_in_project(project: str) -> str | None:
    """The file name of the session of this project that was written last, by file time; None where there is none.

    What was brought in counts once it was gone on with here.
    """
    folder = get_sessions_dir()
    dated = []
    for name in filter(FILENAME.fullmatch, names_in(folder)):
        with contextlib.suppress(OSError):
            dated.append(((folder / name).stat().st_mtime, name))
    for written, name in sorted(dated, reverse=True):
        with contextlib.suppress(OSError, ValueError):
            meta = files.read_head(folder / name).get("meta", {})
            if meta.get("project") == project and not written <= imported_at(meta):
                return name
    return None


def imported_at(meta: Mapping[str, Any]) -> float:
    """When a session was imported, in seconds since 1970; 0 for one that was not."""
    try:
        return datetime.fromisoformat(meta["imported_at"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0


def find_project(cwd: str) -> str:
    """The nearest folder from ``cwd`` upwards that has a ``.git``, else ``cwd`` itself."""
    for folder in (cwd, *map(str, Path(cwd).parents)):
        if os.path.exists(f"{folder}/.git"):  # unlike Path.exists, False where a folder may not be searched
            return folder
    return cwd


# ---- the facts of one session, for people


def title_of(doc: Document) -> str:
    """The title, and where there is none a word for that."""
    return doc["title"] or UNTITLED


def portrait(doc: Document, *, archived: bool = False) -> list[Fact]:
    """The facts of a session as it was read, at a point what is known of it there; those that are none are left out.

    Values may be of any characters.
    """
    from gptsh.core import usage  # noqa: PLC0415 - a list sums up nothing

    spent, counts, meta = usage.count([doc]).total, stats(doc["messages"]), doc["meta"]
    facts = [
        ("session", f"{doc['id']}{', archived' if archived else ''}"),
        ("dates", f"{local_time(doc['created_at'])} to {local_time(max(_end(doc), doc['created_at']))}"),
        ("agent", doc["agent"].get("name") or ""),
        ("models" if len(models := _models(doc)) > 1 else "model", ", ".join(models)),
        ("turns", f"{counts['turns']} ({counts['messages']} messages)"),
        ("tokens", _tokens(doc, spent["total"])),
        ("cost", _cost(spent)),
        ("tags", ", ".join(tags_of(doc))),
        ("forked from", _word(meta.get("forked_from"))),
        ("imported from", _word(as_dict(meta.get("imported")).get("format"))),
        *_context(doc),
    ]
    return [fact for fact in facts if fact[1]]


def _end(doc: Document) -> str:
    """When the last of these messages was said; where that is not known, when the session was used last."""
    said = doc["messages"][-1].get("timestamp") if doc["messages"] else None
    return said or str(doc["updated_at"])


def _models(doc: Document) -> list[str]:
    """Each model that answered, in order; where none did, the one that would."""
    answers = [message for message in doc["messages"] if message["role"] == "assistant"]
    said = ((_word(item.get("model")), _word(item.get("provider"))) for item in answers)
    named = dict.fromkeys(full_name(model, provider) for model, provider in said if model)
    next_one = full_name(doc["agent"].get("model"), doc["provider"].get("name"))
    return [name for name in named or (next_one,) if name]


def _tokens(doc: Document, total: int | None) -> str:
    """What all answers used, and the latest prompt alone: that is what the session has grown to."""
    used = (as_dict(message.get("usage")).get("prompt") for message in reversed(doc["messages"]))
    prompt = next((count for value in used if (count := token_count(value)) is not None), None)
    known = [(total, "in all"), (prompt, "in the latest prompt")]
    return ", ".join(f"{count:,} {what}" for count, what in known if count is not None)


def _cost(spent: dict[str, Any]) -> str:
    """In USD; ``at least`` where that of some answer is unknown."""
    if spent["cost"] is None:
        return ""
    return f"{'at least ' if spent['unpriced'] else ''}{in_usd(spent['cost'])}"


def _context(doc: Document) -> Iterator[Fact]:
    """Each snapshot, the compaction in force, and how many summaries there are."""
    context, at = doc["context"], _places(doc)
    yield from (("snapshot", told) for told in snapshots_of(doc))
    if force := context.get("compaction"):
        sizes = [f"{size:,}" if (size := force.get(key)) is not None else "?" for key in ("before", "after")]
        sent = f"{at.get(force.get('upto'), 0)} messages, {' → '.join(sizes)} tokens"
        yield "compaction", f"{force.get('strategy')}, {sent}"
    if told := sum(item.get("text") is not None for item in context["summaries"]):
        yield "summaries", str(told)


def snapshots_of(doc: Document) -> Iterator[str]:
    """Each snapshot of a session in a few words, oldest first."""
    messages, at = doc["messages"], _places(doc)
    for item in doc["context"]["snapshots"]:
        behind = at.get(item.get("message"), 0)
        turn = len(turns(messages[:behind]))
        size = "" if item.get("tokens") is None else f", ~{item['tokens']:,} tokens"
        when = f", {local_time(item['created_at'])}" if item.get("created_at") else ""
        yield f"{item.get('name')}{when}, after turn {turn} ({behind} messages){size}{_taken(item.get('reason'))}"


def _taken(reason: object) -> str:
    return {"asked": ", by hand", "auto": ", automatic"}.get(_word(reason), "")


def _places(doc: Document) -> dict[str | None, int]:
    """How many messages there are up to each one, by its id."""
    return {message["id"]: place for place, message in enumerate(doc["messages"], 1)}


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
