"""List sessions by the first lines of their files, and find the last one of a project."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypedDict, TypeVar

from gptsh.core.document import Document, Head, read_head
from gptsh.core.folders import (
    ID,
    archive_folder,
    names_by_file,
    newest_first,
    path_of,
    session_names,
    sessions_folder,
)
from gptsh.jsonio import JsonObject, as_dict, is_cost
from gptsh.messages import token_count
from gptsh.text import one_line, shorten

# ---- listing
#
# What ``--list-sessions`` knows of each session, newest first, from the head of its file;
# unreadable files, too.

Item = TypeVar("Item")
UNTITLED = "(untitled)"
_BEGINNING = 60  # characters of a first question shown instead of a title
_TITLE_WIDTH = 500  # characters of a title that are shown: one of megabytes takes seconds


class SessionSummary(TypedDict):
    """One row of a list, read from the head of a session file. Times are UTC, ``cost`` is USD.

    ``index`` is None for an archived session. ``names`` are the ``@NAME``s that point at it.
    """

    index: int | None
    id: str
    names: list[str]
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
    """A session file that a list skips, and the cause."""

    path: Path
    cause: str


def scan_sessions(
    prefix: str = "", *, archived: bool = False
) -> Iterator[SessionSummary | Unreadable]:
    """Yield each session whose id begins with ``prefix``, newest first, one file at a time.

    ``archived`` reads the archive instead. Sessions that are left out keep their index.
    """
    folder = archive_folder() if archived else sessions_folder()
    path = str(folder)
    names = names_by_file()
    for index, name in enumerate(newest_first(folder)):
        if not name[ID].startswith(prefix):
            continue
        head = try_read(f"{path}/{name}", read_head)
        if isinstance(head, Unreadable):
            yield head
        elif head is not None:
            shown_index = None if archived else index
            yield summary_of(head, shown_index, name, names.get(name, ()))


def list_sessions(limit: int | None = None) -> list[SessionSummary]:
    """Return the readable sessions, newest first, at most ``limit``."""
    readable = (item for item in scan_sessions() if isinstance(item, dict))
    return list(islice(readable, limit))


def last_written() -> Iterator[SessionSummary]:
    """Return an iterator over the readable sessions, newest file first; their ``index`` is None.

    Raises BadSession, before iteration, if the folder cannot be read.
    """
    names = names_by_file()
    files = by_file_time(sessions_folder())
    rows = (summary_at(name, names.get(name, ())) for _, name in files)
    return (row for row in rows if row is not None)


def all_paths() -> list[str]:
    """Return the path of each session, also of archived ones, and each session once."""
    paths = {}
    for folder in (archive_folder(), sessions_folder()):  # the second wins
        for name in session_names(folder):
            paths[name] = f"{folder}/{name}"
    return list(paths.values())


def try_read(path: str, read: Callable[[str], Item]) -> Item | Unreadable | None:
    """Return the result of ``read``, or its failure; None if the file was just deleted."""
    try:
        return read(path)
    except FileNotFoundError as err:
        if not os.path.islink(path):
            return None
        cause = f"dangling link: {err.strerror}"
    except OSError as err:
        cause = err.strerror or str(err)
    except ValueError as err:
        cause = str(err)
    except MemoryError:
        cause = "too large for this machine's memory"
    return Unreadable(Path(path), cause)


def summary_of(
    head: Head,
    index: int | None,
    filename: str,
    names: Sequence[str] = (),
) -> SessionSummary:
    """Return the list row of a document or its head. A malformed value counts as missing."""
    agent = as_dict(head.get("agent"))
    meta = as_dict(head.get("meta"))
    usage = as_dict(head.get("usage"))
    stats = as_dict(head.get("stats"))
    created = _text(head, "created_at") or ""
    title = _text(head, "title")
    cost = usage.get("cost")
    tags = meta.get("tags")
    if not isinstance(tags, list):
        tags = []
    return {
        "index": index,
        "id": str(head["id"]),
        "names": [*names],
        "filename": filename,
        "created_at": created,
        "updated_at": _text(head, "updated_at") or created,
        "title": one_line(title[:_TITLE_WIDTH]) if title else None,
        "agent": _text(agent, "name"),
        "model": _text(agent, "model"),
        "provider": _text(as_dict(head.get("provider")), "name"),
        "turns": token_count(stats.get("turns")) or 0,
        "messages": token_count(stats.get("messages")) or 0,
        "tokens": token_count(as_dict(usage.get("tokens")).get("total")),
        "cost": cost if is_cost(cost) else None,
        "tags": [tag for tag in tags if isinstance(tag, str)],
        "project": _text(meta, "project"),
        "forked_from": _text(meta, "forked_from"),
        "preview": _text(stats, "preview") or "",
    }


def _text(table: Head, key: str) -> str | None:
    value = table.get(key)
    return value if value and isinstance(value, str) else None


def summary_at(filename: str, names: Sequence[str] = ()) -> SessionSummary | None:
    """Return the list row of a session in either folder, or None if it cannot be read."""
    head = try_read(str(path_of(filename)), read_head)
    return summary_of(head, None, filename, names) if isinstance(head, dict) else None


def used_at(item: SessionSummary) -> datetime | None:
    """Return when a session was last used; None if its file has no valid time."""
    try:
        return datetime.fromisoformat(item["updated_at"]).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def display_title(title: str | None, preview: str) -> str:
    """Return the title, or else the beginning of the first question in quotes."""
    if title:
        return title[:_TITLE_WIDTH]
    return f'"{shorten(preview, _BEGINNING)}"' if preview else UNTITLED


def title_of(doc: Document) -> str:
    """Return the title of a document as ``display_title`` does."""
    return display_title(doc["title"], doc["stats"]["preview"])


def imported_at(meta: JsonObject) -> float:
    """Return when a session was imported, in seconds since 1970; 0 if it was not."""
    try:
        return datetime.fromisoformat(meta["imported_at"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0


def by_file_time(folder: Path) -> list[tuple[float, str]]:
    """Return the file time (seconds since 1970) and the name of each session, newest first."""
    dated = []
    for name in session_names(folder):
        with contextlib.suppress(OSError):  # just deleted, or a dangling link
            dated.append((os.stat(f"{folder}/{name}").st_mtime, name))
    return sorted(dated, reverse=True)


# ---- projects
#
# The project of a session: the nearest folder with a ``.git``; which session was used last in a
# project (``-c``).

_PRECISION = 2.0  # seconds; of file times, on any file system


def find_project(cwd: str) -> str:
    """Return the nearest folder from ``cwd`` upwards that has a ``.git``, else ``cwd`` itself."""
    for folder in (cwd, *map(str, Path(cwd).parents)):
        if os.path.exists(f"{folder}/.git"):  # unlike Path.exists, False without permission
            return folder
    return cwd


def latest_in_project(project: str) -> str | None:
    """Return the file name of the session with the latest turn in this project, or None."""
    folder = sessions_folder()
    latest = 0.0
    latest_name = None
    for file_time, name in by_file_time(folder):
        if file_time < latest - _PRECISION:  # a file is written after each of its turns
            break
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            meta = as_dict(read_head(f"{folder}/{name}").get("meta"))
            used_at = as_dict(meta.get("used_in"))[project]
            used = min(datetime.fromisoformat(used_at).timestamp(), file_time, time.time())
            if used > latest:
                latest = used
                latest_name = name
    return latest_name
