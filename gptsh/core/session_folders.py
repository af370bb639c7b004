"""The folders of the store: which names in them are session files (newest first), conflict copies, deletion marks.

File names are enough, except to order sessions of the same second: their heads are read. A copy of a session that a
sync tool left beside it, such as ``20251027-091530-7x2m (conflicted copy).json``, is a part of it.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from math import inf
from pathlib import Path

from gptsh.config.folders import app_folder
from gptsh.core import files, session_files
from gptsh.errors import BadSession
from gptsh.records import NamedTuple

FILENAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}\.json")
ID = slice(16, 20)  # of a file name
_SECOND = slice(0, 15)  # of a file name: yyyyMMdd-HHMMSS
_BESIDE = r"(?s)([0-9]{8}-[0-9]{6}-[0-9a-z]{4})(.+)"  # what begins as the name of a session file
_LENGTH = 25  # of the name of a session file
_MARK = r"\.[0-9a-f]{8}\.deleted"  # follows the beginning

Names = Mapping[str, Sequence[str]]  # by the name of a session file
Version = tuple[int, ...]  # of a folder; () if it does not exist


class Beside(NamedTuple):
    """What a folder has besides session files: copies of sessions, and marks of deleted ones."""

    copies: Names
    marks: Names


def sessions_folder() -> Path:
    """``${XDG_STATE_HOME:-~/.local/state}/gptsh/sessions``, on macOS too. It may not exist."""
    return app_folder("state") / "sessions"


def archive_folder() -> Path:
    """The folder of archived sessions. They are in no list, but an id or name finds them. It may not exist."""
    return sessions_folder().parent / "archive"


def names_folder() -> Path:
    """The folder of pointers: one file for each ``@NAME``, which contains a file name. It may not exist."""
    return sessions_folder().parent / "names"


def path_of(filename: str) -> Path:
    """The path of a session file: in the archive if it exists only there, else among the sessions.

    There is no file at this path if only copies of the session exist.
    """
    path, archived = sessions_folder() / filename, archive_folder() / filename
    if os.path.lexists(path) or filename in copies_in(path.parent):
        return path
    return archived if os.path.lexists(archived) or filename in copies_in(archived.parent) else path


def exists(filename: str) -> bool:
    """Whether a session exists, in either folder, and be it as a copy alone."""
    return bool(files_of(filename)) and not is_deleted(filename)


def is_deleted(filename: str) -> bool:
    """Whether the session was deleted on another machine, and its files are still here, unchanged."""
    marks = marks_of(filename)
    if not marks:
        return False
    from gptsh.core.deletions import are_deleted

    return are_deleted(files_of(filename), marks)


def marks_of(filename: str) -> list[Path]:
    """The marks that say that this session was deleted."""
    folder = sessions_folder()
    return [folder / mark for mark in beside(folder).marks.get(filename, ())]


def files_of(filename: str) -> list[Path]:
    """Every file of a session: those with this name in both folders, then its copies there."""
    folders = sessions_folder(), archive_folder()
    paths = [folder / filename for folder in folders if os.path.lexists(folder / filename)]
    copies = [folder / copy for folder in folders for copy in copies_in(folder).get(filename, ())]
    if len(paths) + len(copies) > 1 and same_folder(*folders):
        return list({path.name: path for path in (*paths[::-1], *copies[::-1])}.values())
    return [*paths, *copies]


def same_folder(first: Path, second: Path) -> bool:
    """Whether both paths lead to one folder."""
    with contextlib.suppress(OSError):
        return os.path.samefile(first, second)
    return False


def make_private(folder: Path) -> None:
    """Create a folder with mode 0700, or set that mode: gptsh-cli 0.8 left its folder open to all. Raises OSError."""
    files.refuse_foreign_links(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        with contextlib.suppress(PermissionError):  # owned by another user, who shares it on purpose
            folder.chmod(0o700)


def note_on_others() -> str | None:
    """A line about a folder of the store that others have or can change, the first time; else None."""
    state = sessions_folder().parent
    for folder in (state, sessions_folder(), archive_folder(), names_folder()):
        with contextlib.suppress(OSError):
            status = folder.stat()
            what = "belongs to another user" if files.is_foreign(status) else "can be changed by other users"
            if (files.is_foreign(status) or status.st_mode & 0o022) and files.is_due(state / ".others.noted", inf):
                return f"{folder} {what}: gptsh follows only your own links there"
    return None


@cache
def _known() -> dict[Path, tuple[Version, Beside]]:
    """What is known of each folder that was listed, with its version then."""
    return {}


def _version_of(folder: Path) -> Version:
    try:
        status = os.stat(folder)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def names_in(folder: Path) -> list[str]:
    """The file names in a folder; none if it does not exist. Raises BadSession if it cannot be read.

    The same pass finds what is ``beside`` the sessions.
    """
    version = _version_of(folder)
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    except OSError as err:
        raise BadSession(f"{folder}: {err.strerror}") from err
    copies: dict[str, list[str]] = {}
    marks: dict[str, list[str]] = {}
    for name in names:
        if len(name) != _LENGTH and (match := re.fullmatch(_BESIDE, name)):
            if _is_copy(name):
                copies.setdefault(f"{match[1]}.json", []).append(name)
            elif re.fullmatch(_MARK, match[2]):
                marks.setdefault(f"{match[1]}.json", []).append(name)
    for same in copies.values():
        same.sort()
    _known()[folder] = version, Beside(copies, marks)
    return names


def _is_copy(name: str) -> bool:
    """Whether a name that begins as a session's can be a conflict copy, such as ``… (conflicted copy).json``."""
    return ".json" in name and not name.endswith(".tmp")  # that is a file before it replaces another


def beside(folder: Path) -> Beside:
    """Return what the folder has besides session files. It is listed if it changed since it was listed last."""
    known = _known().get(folder)
    if known is None or known[0] != _version_of(folder):
        names_in(folder)
    return _known()[folder][1]


def copies_in(folder: Path) -> Names:
    """The names of copies in a folder, by the names of their session files."""
    return beside(folder).copies


@contextlib.contextmanager
def writing(filename: str) -> Iterator[None]:
    """In the block this process writes, moves or removes files of one session only.

    So it is known what else is in the folders, and none is listed again: of 100,000 files that takes 25 ms, under the
    lock.
    """
    known = _known()
    current = [folder for folder, (version, _) in known.items() if version == _version_of(folder)]
    yield
    for folder in current:
        before = known[folder][1]
        others = ({key: names for key, names in table.items() if key != filename} for table in before)
        left = ([name for name in table.get(filename, ()) if os.path.lexists(folder / name)] for table in before)
        after = ({**table, filename: names} if names else table for table, names in zip(others, left, strict=True))
        known[folder] = _version_of(folder), Beside(*after)


def _every_name(folder: Path) -> Collection[str]:
    """The names in a folder, with those of sessions that exist as copies alone, and without deleted ones."""
    names: Collection[str] = names_in(folder)
    if copies := copies_in(folder):
        names = {*names, *copies}
    deleted = deleted_among(names)
    return [name for name in names if name not in deleted] if deleted else names


def deleted_among(names: Iterable[str]) -> set[str]:
    """Return those of the names whose sessions were deleted on another machine."""
    marks = beside(sessions_folder()).marks
    return set(filter(is_deleted, marks.keys() & names)) if marks else set()


def session_names(folder: Path) -> Iterator[str]:
    """Return the names of the session files in a folder, in any order; also of those that exist as copies alone.

    Raises BadSession if the folder cannot be read.
    """
    return filter(FILENAME.fullmatch, _every_name(folder))


def newest_first(folder: Path | None = None) -> Iterator[str]:
    """Yield file names, newest first; those of the same second by ``created_at``, which has milliseconds."""
    folder = folder or sessions_folder()
    names = filter(FILENAME.fullmatch, sorted(_every_name(folder), reverse=True))  # lazy: index 0 needs one group
    for _, group in groupby(names, key=lambda name: name[_SECOND]):
        same = list(group)
        if len(same) > 1:
            created: dict[str, str] = {}
            for name in same:
                with contextlib.suppress(OSError, ValueError):
                    created[name] = str(session_files.read_head(f"{folder}/{name}").get("created_at", ""))
            same.sort(key=lambda name: created.get(name, ""), reverse=True)
        yield from same
