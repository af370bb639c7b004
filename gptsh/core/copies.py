"""Read a session file and its conflict copies as one document, in any order the same; ``session_folders`` finds them.

A copy is what a sync tool leaves beside the file of a session: with its name, something in or behind that, and its
time of creation. What cannot be read, or belongs to another session, is left alone.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from gptsh.core import deletions, document, files, session_files
from gptsh.core.document import Document
from gptsh.core.merge import join_messages, merge, take_agent
from gptsh.core.session_folders import ID, archive_folder, beside, copies_in, files_of, path_of, sessions_folder
from gptsh.errors import BadSession
from gptsh.jsonio import encode_json, parse_json
from gptsh.records import NamedTuple

if TYPE_CHECKING:
    from gptsh.core.usage import Counted


_ANOTHER = "it is another session"  # why a file was left alone


class Whole(NamedTuple):
    """A session with what its copies add.

    ``malformed`` are paths of parts that were left out. ``left_alone`` are files that are no copies of it, and why.
    """

    doc: Document
    malformed: list[str]
    copies: list[Path]
    left_alone: list[tuple[Path, str]]


def read(path: Path) -> Whole:
    """Return the session that has this path, whether a file is there or copies alone.

    Raises ValueError if its own file is not a session, OSError if that cannot be read.
    """
    others = [other for other in files_of(path.name) if other != path]
    if not others or os.path.lexists(path):
        doc, malformed = session_files.read_document(path)
        found = [(path, doc)]
    else:
        malformed, found = [], []
    left_alone = []
    for other in others:
        try:
            found.append((other, session_files.parse_file(files.read_bytes(other), str(path))[0]))
        except FileNotFoundError:  # another run has just joined it
            pass
        except OSError as err:
            left_alone.append((other, err.strerror or str(err)))
        except ValueError as err:
            left_alone.append((other, str(err)))
    if not found:
        if left_alone:
            raise ValueError(left_alone[0][1])
        raise FileNotFoundError(2, os.strerror(2), str(path))
    created = found[0][1]["created_at"]
    left_alone += [(other, _ANOTHER) for other, doc in found if doc["created_at"] != created]
    found = [(other, doc) for other, doc in found if doc["created_at"] == created]
    whole = join([doc for _, doc in found])
    return Whole(whole, malformed, [other for other, _ in found if other != path], left_alone)


def merge_files(ours: Path, theirs: Path) -> None:
    """Write the union of two versions of a session to the file of the first; the names of the files do not matter.

    Raises BadSession if one is not readable, was written by a newer gptsh, or is another session; OSError.
    """
    docs = [_parse(path) for path in (ours, theirs)]
    if len({(doc["id"], doc["created_at"]) for doc in docs}) > 1:
        raise BadSession(f"{ours} and {theirs} are two sessions", "keep one of them by hand")
    session_files.write_document(ours, join(docs), fsync=False)


def _parse(path: Path) -> Document:
    try:
        doc, _ = document.parse_document(parse_json(files.read_bytes(path).decode()))
    except (ValueError, RecursionError) as err:
        raise BadSession(f"{path}: {err}", "the file was not changed") from err
    if doc["version"] > document.VERSION:
        raise BadSession(f"{path} was written by a newer gptsh", "update gptsh")
    return doc


def left_alone_line(path: Path, cause: str) -> str:
    """One line about a file that looks like a copy and is none."""
    return f"{path} was not joined: {cause}"


def is_back_line(filename: str) -> str:
    """One line about a session that marks do not delete."""
    return f"session {filename[ID]} is back: it was deleted on one machine and continued on another"


def to_delete(filename: str) -> list[Path]:
    """Return all files of a session, also those that cannot be read, but none of another session."""
    every_file = files_of(filename)
    if len(every_file) < 2:
        return every_file
    try:
        left_alone = dict(read(path_of(filename)).left_alone)
    except (OSError, ValueError):
        left_alone = {}
    return [file for file in every_file if left_alone.get(file) != _ANOTHER]


def mark_deleted(filename: str) -> None:
    """Write a mark for other machines that this session is deleted, unless it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        deletions.write_mark(sessions_folder(), read(path_of(filename)).doc, filename)


def sweep_marks() -> None:
    """Remove old marks of deleted sessions."""
    folder = sessions_folder()
    deletions.sweep(folder / mark for marks in beside(folder).marks.values() for mark in marks)


def remove_deleted(filename: str) -> None:
    """Remove the files of a session that another machine deleted. Raises OSError."""
    for file in to_delete(filename):
        file.unlink(missing_ok=True)


def head_reader(folder: Path) -> Callable[[str], Document]:
    """Return ``read_head`` for the sessions in a folder; of one with copies it returns the whole document."""
    copies = copies_in(folder)
    if not copies:
        return session_files.read_head
    return lambda path: read(Path(path)).doc if os.path.basename(path) in copies else session_files.read_head(path)


def usage_reader() -> "Callable[[str], Counted]":
    """Return ``session_files.read_usage``; of a session with copies it counts the whole document."""
    from gptsh.core import usage

    folders = sessions_folder(), archive_folder()
    with_copies = {f"{folder}/{name}" for folder in folders for name in copies_in(folder)}
    if not with_copies:
        return session_files.read_usage
    return lambda path: usage.counted(read(Path(path)).doc) if path in with_copies else session_files.read_usage(path)


def time_reader(folder: Path) -> Callable[[str], float]:
    """Return a function that tells when a session in this folder, or a copy of it, was last changed: since 1970."""
    copies = copies_in(folder)

    def newest(path: str) -> float:
        names = copies.get(os.path.basename(path), ())
        times = [_file_time(f"{folder}/{name}") for name in names]
        return max(times) if names and not os.path.lexists(path) else max([*times, _file_time(path)])

    return newest if copies else _file_time


def _file_time(path: str) -> float:
    return os.stat(path, follow_symlinks=os.path.exists(path)).st_mtime


def join(docs: Sequence[Document]) -> Document:
    """Return the union of several copies of one session. What only one of them can decide, the newest one does."""
    if len(docs) == 1:
        return docs[0]
    *older, newest = sorted(docs, key=_age)
    return reduce(_join, older[::-1], newest)


def _age(doc: Document) -> tuple[str, bytes]:
    """What copies are sorted by; on every machine in the same order."""
    return str(doc["updated_at"]), encode_json({**doc, "messages": [message["id"] for message in doc["messages"]]})


def _join(newer: Document, older: Document) -> Document:
    """Return the union of two copies. Turns of the older one alone come before those of the newer one alone."""
    new = merge({**older, "updated_at": ""}, newer)
    document.add_tags(new, older["meta"]["tags"])
    messages = {message["id"]: message for message in newer["messages"]}
    ordered = join_messages(newer["messages"], older["messages"])
    new["messages"] = [messages.get(message["id"], message) for message in ordered]
    new["version"] = max(newer["version"], older["version"])
    take_agent(new, newer)
    new["usage"]["tokens"] = newer["usage"]["tokens"]
    _drop_stale(new, (newer, older))
    document.update_totals(new)
    return new


def _drop_stale(new: Document, sources: Sequence[Document]) -> None:
    """Remove summaries and a compaction of messages that other turns now stand among: those were not summarized."""
    ids = [message["id"] for message in new["messages"]]

    def is_current(last: str | None) -> bool:
        known = ([message["id"] for message in doc["messages"]] for doc in sources)
        starts = [set(each[: each.index(last) + 1]) for each in known if last in each]
        return last in ids and set(ids[: ids.index(last) + 1]) in starts

    context = new["context"]
    summaries = [item for item in context["summaries"] if is_current(item.get("last"))]
    compaction = context["compaction"]
    if compaction and not is_current(compaction.get("upto")):
        compaction = None
    new["context"] = {**context, "summaries": summaries, "compaction": compaction}
