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

from gptsh.core import files
from gptsh.core.document import Document, stats, tags_of, turns
from gptsh.core.references import FILENAME, ID, archive_folder, names_in, newest_first, path_of, sessions_folder
from gptsh.jsonio import as_dict, is_cost
from gptsh.messages import token_count
from gptsh.models.names import full_name
from gptsh.text import in_usd, local_time, shortened

Item = TypeVar("Item")
Fact = tuple[str, str]  # a label and a few words
UNTITLED = "(untitled)"
_BEGINNING = 60  # characters of a first question that stands for a title


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
    forked_from: str | None
    preview: str


class Unreadable(NamedTuple):
    """A session file that a list skips, and why."""

    path: Path
    cause: str


def scan_sessions(prefix: str = "", *, archived: bool = False) -> Iterator[SessionSummary | Unreadable]:
    """Every session whose id begins with ``prefix``, newest first, as it is read; ``archived``: those put away.

    What is left out or cannot be read keeps its index: nothing renumbers.
    """
    folder = archive_folder() if archived else sessions_folder()
    for index, name in enumerate(newest_first(folder)):
        if name[ID].startswith(prefix):
            head = try_read(f"{folder}/{name}", files.read_head)
            if isinstance(head, Unreadable):
                yield head
            elif head is not None:
                yield summary_of(head, None if archived else index, name)


def scan_documents() -> Iterator[Document | Unreadable]:
    """Every whole document, those in the archive among them, oldest first, as it is read."""
    folders = (sessions_folder(), archive_folder())
    names = ((name, folder) for folder in folders for name in names_in(folder) if FILENAME.fullmatch(name))
    for name, folder in sorted(names):
        read = try_read(f"{folder}/{name}", files.read_document)
        if read is not None:
            yield read if isinstance(read, Unreadable) else read[0]


def scan_heads() -> Iterator[tuple[str, Document]]:
    """The file name and the head of each readable session, newest first, then those in the archive."""
    for folder in (sessions_folder(), archive_folder()):
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
    """The list row of a document or its head. A malformed value counts as an absent one."""
    agent, meta, usage, stats = (as_dict(head.get(key)) for key in ("agent", "meta", "usage", "stats"))
    turns, messages, cost = stats.get("turns"), stats.get("messages"), usage.get("cost")
    tags = meta.get("tags")
    created = _text(head.get("created_at")) or ""
    return {
        "index": index,
        "id": head["id"],
        "filename": filename,
        "created_at": created,
        "updated_at": _text(head.get("updated_at")) or created,
        "title": _text(head.get("title")),
        "agent": _text(agent.get("name")),
        "model": _text(agent.get("model")),
        "provider": _text(as_dict(head.get("provider")).get("name")),
        "turns": turns if isinstance(turns, int) else 0,
        "messages": messages if isinstance(messages, int) else 0,
        "tokens": token_count(as_dict(usage.get("tokens")).get("total")),
        "cost": cost if is_cost(cost) else None,
        "tags": [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        "project": _text(meta.get("project")),
        "forked_from": _text(meta.get("forked_from")),
        "preview": _text(stats.get("preview")) or "",
    }


def summary_at(filename: str) -> SessionSummary | None:
    """The row of a session, wherever its file is; None for one that cannot be read."""
    head = try_read(str(path_of(filename)), files.read_head)
    return summary_of(head, None, filename) if isinstance(head, dict) else None


def _text(value: object) -> str | None:
    return value if value and isinstance(value, str) else None


def called(title: str | None, preview: str) -> str:
    """What a session is called in a line: its title, else how its first question begins, in quotes."""
    beginning = shortened(preview, _BEGINNING)
    return title or (f'"{beginning}"' if beginning else UNTITLED)


def latest_in_project(project: str) -> str | None:
    """The file name of the session of this project that was written last, by file time; None where there is none.

    What was brought in counts once it was gone on with here.
    """
    folder = sessions_folder()
    dated = []
    for name in filter(FILENAME.fullmatch, names_in(folder)):
        with contextlib.suppress(OSError):
            dated.append(((folder / name).stat().st_mtime, name))
    for written, name in sorted(dated, reverse=True):
        with contextlib.suppress(OSError, ValueError):
            meta = as_dict(files.read_head(folder / name).get("meta"))
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

    messages, meta, agent, context = doc["messages"], doc["meta"], doc["agent"], doc["context"]
    answers = [message for message in messages if message["role"] == "assistant"]
    named = [full_name(answer.get("model"), answer.get("provider")) for answer in answers]
    own = full_name(agent.get("model"), doc["provider"].get("name"))
    models = list(dict.fromkeys(filter(None, named))) or [own or ""]
    last = (messages[-1].get("timestamp") if messages else None) or doc["updated_at"]
    spent, counts = usage.count([doc]).total, stats(messages)
    prompts = (token_count(as_dict(message.get("usage")).get("prompt")) for message in reversed(messages))
    latest = next((prompt for prompt in prompts if prompt is not None), None)
    tokens = [(spent["total"], "in all"), (latest, "in the latest prompt")]
    cost = "" if spent["cost"] is None else f"{'at least ' * bool(spent['unpriced'])}{in_usd(spent['cost'])}"
    facts = [
        ("session", f"{doc['id']}{', archived' * archived}"),
        ("dates", f"{local_time(doc['created_at'])} to {local_time(max(last, doc['created_at']))}"),
        ("agent", agent.get("name") or ""),
        ("models" if len(models) > 1 else "model", ", ".join(models)),
        ("turns", f"{counts['turns']} ({counts['messages']} messages)"),
        ("tokens", ", ".join(f"{number:,} {what}" for number, what in tokens if number is not None)),
        ("cost", cost),
        ("tags", ", ".join(tags_of(doc))),
        ("forked from", meta.get("forked_from") or ""),
        ("imported from", _text(as_dict(meta.get("imported")).get("format")) or ""),
        *(("snapshot", line) for line in snapshots_of(doc)),
    ]
    if force := context["compaction"]:
        sizes = ["?" if force.get(key) is None else f"{force[key]:,}" for key in ("before", "after")]
        sent = f"{_places(doc).get(force.get('upto'), 0)} messages, {' → '.join(sizes)} tokens"
        facts.append(("compaction", f"{force.get('strategy')}, {sent}"))
    if summaries := sum(item.get("text") is not None for item in context["summaries"]):
        facts.append(("summaries", str(summaries)))
    return [fact for fact in facts if fact[1]]


def snapshots_of(doc: Document) -> Iterator[str]:
    """Each snapshot of a session in a few words, newest first."""
    messages, places = doc["messages"], _places(doc)
    for item in reversed(doc["context"]["snapshots"]):
        place = places.get(item.get("message"), 0)
        size = "" if item.get("tokens") is None else f", ~{item['tokens']:,} tokens"
        when = f", {local_time(item['created_at'])}" if item.get("created_at") else ""
        why = {"asked": ", by hand", "auto": ", automatic"}.get(item.get("reason") or "", "")
        turn = len(turns(messages[:place]))
        yield f"{item.get('name')}{when}, after turn {turn} ({place} messages){size}{why}"


def _places(doc: Document) -> dict[str | None, int]:
    """How many messages there are up to each one, by its id."""
    return {message["id"]: place for place, message in enumerate(doc["messages"], 1)}
