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
from gptsh.core.document import Document
from gptsh.core.references import FILENAME, ID, archive_folder, names_in, newest_first, path_of, sessions_folder
from gptsh.jsonio import as_dict, is_cost
from gptsh.messages import token_count
from gptsh.text import shortened

Item = TypeVar("Item")
UNTITLED = "(untitled)"
_BEGINNING = 60  # characters of a first question that stands for a title
_PRECISION = 0.001  # seconds, of the times in a session; those of files are finer
_TITLE = 500  # characters of a title that are shown: one of megabytes takes seconds


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
    path = str(folder)
    for index, name in enumerate(newest_first(folder)):
        if name[ID].startswith(prefix):
            head = try_read(f"{path}/{name}", files.read_head)
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
    return list(islice((item for item in scan_sessions() if isinstance(item, dict)), limit))


def summary_of(head: Document, index: int | None, filename: str) -> SessionSummary:
    """The list row of a document or its head. A malformed value counts as an absent one."""
    tables = map(head.get, ("agent", "provider", "meta", "usage", "stats"))
    agent, provider, meta, usage, stats = [table if isinstance(table, dict) else {} for table in tables]
    texts: list[Any] = [
        head.get("created_at"), head.get("updated_at"), head.get("title"), agent.get("name"), agent.get("model"),
        provider.get("name"), meta.get("project"), meta.get("forked_from"), stats.get("preview"),
    ]  # fmt: skip
    # No function for each of them: a list of 10,000 sessions comes here 10,000 times.
    texts = [text if isinstance(text, str) and text else None for text in texts]
    created, updated, title, name, model, owner, project, forked_from, preview = texts
    turns, messages, cost, tags = stats.get("turns"), stats.get("messages"), usage.get("cost"), meta.get("tags")
    return {
        "index": index,
        "id": head["id"],
        "filename": filename,
        "created_at": created or "",
        "updated_at": updated or created or "",
        "title": title and title[:_TITLE],
        "agent": name,
        "model": model,
        "provider": owner,
        "turns": turns if isinstance(turns, int) else 0,
        "messages": messages if isinstance(messages, int) else 0,
        "tokens": token_count(as_dict(usage.get("tokens")).get("total")),
        "cost": cost if is_cost(cost) else None,
        "tags": [tag for tag in tags if isinstance(tag, str)] if tags and isinstance(tags, list) else [],
        "project": project,
        "forked_from": forked_from,
        "preview": preview or "",
    }


def summary_at(filename: str) -> SessionSummary | None:
    """The row of a session, wherever its file is; None for one that cannot be read."""
    head = try_read(str(path_of(filename)), files.read_head)
    return summary_of(head, None, filename) if isinstance(head, dict) else None


def display_title(title: str | None, preview: str) -> str:
    """What a session is called in a line: its title, else how its first question begins, in quotes."""
    return title or (f'"{shortened(preview, _BEGINNING)}"' if preview else UNTITLED)


def latest_in_project(project: str) -> str | None:
    """The file name of the session of this project that was written last, by file time; None where there is none.

    What was brought in counts once it was gone on with here.
    """
    folder = sessions_folder()
    for written, name in by_file_time(folder):
        with contextlib.suppress(OSError, ValueError):
            meta = as_dict(files.read_head(f"{folder}/{name}").get("meta"))
            if meta.get("project") == project and written > imported_at(meta) + _PRECISION:
                return name
    return None


def last_written() -> Iterator[SessionSummary]:
    """The sessions that can be read, as they are read, that of the newest file first; none has an index.

    Raises BadSession at once where the folder cannot be read.
    """
    folder = sessions_folder()
    heads = ((name, try_read(f"{folder}/{name}", files.read_head)) for _, name in by_file_time(folder))
    return (summary_of(head, None, name) for name, head in heads if isinstance(head, dict))


def by_file_time(folder: Path) -> list[tuple[float, str]]:
    """When each session's file was written, in seconds since 1970, and its name; the newest first."""
    dated = []
    for name in filter(FILENAME.fullmatch, names_in(folder)):
        with contextlib.suppress(OSError):
            dated.append((os.stat(f"{folder}/{name}").st_mtime, name))
    return sorted(dated, reverse=True)


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


def title_of(doc: Document) -> str:
    """The title, and where there is none a word for that."""
    return (doc["title"] or UNTITLED)[:_TITLE]
