"""Resolve a reference (``-s 0``, an id, a prefix, ``@NAME``) to a file of a session, and find all files of a session.

File names are enough for all of it, except to order sessions of the same second: their heads are read. A copy of a
session that a sync tool left beside it, such as ``20251027-091530-7x2m (conflicted copy).json``, is a part of it.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from math import inf
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from gptsh.config.folders import app_folder
from gptsh.core import deletions, files, session_files
from gptsh.errors import BadSession, UnknownSession

FILENAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}\.json")
INDEX = re.compile("[0-9]{1,9}")
ID = slice(16, 20)  # of a file name
SEE_LIST = "see gptsh --list-sessions"  # the advice for an unknown reference
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"

_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9._:-]{0,63}")
_SECOND = slice(0, 15)  # of a file name: yyyyMMdd-HHMMSS
_MAX_LISTED = 10
_LONGEST_POINTER = 1000  # bytes of the file of an ``@NAME``
_BESIDE = re.compile(r"([0-9]{8}-[0-9]{6}-[0-9a-z]{4})(.+)", re.DOTALL)  # what begins as the name of a session file
_LENGTH = 25  # of the name of a session file

_MARK = re.compile(r"\.[0-9a-f]{8}\.deleted")  # follows the beginning

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
    return bool(marks) and deletions.are_deleted(files_of(filename), marks)


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
        if len(name) != _LENGTH and (match := _BESIDE.fullmatch(name)):
            if _is_copy(name):
                copies.setdefault(f"{match[1]}.json", []).append(name)
            elif _MARK.fullmatch(match[2]):
                marks.setdefault(f"{match[1]}.json", []).append(name)
    for same in copies.values():
        same.sort()
    _known()[folder] = version, Beside(copies, marks)
    return names


def _is_copy(name: str) -> bool:
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


# ---- references


def split_ref(ref: str) -> tuple[str, str | None]:
    """Split ``REF@POINT`` into ``(REF, POINT)``; the point is None if no ``@`` follows the first character."""
    at = ref.rfind("@")
    return (ref[:at], ref[at + 1 :]) if at > 0 else (ref, None)


def is_name(ref: str) -> bool:
    """Whether a text can be an ``@NAME``."""
    return bool(_NAME.fullmatch(ref))


def pin_ref(ref: str) -> str:
    """Return the reference with a file name instead of an index, id or prefix, so that it needs no second search."""
    base, point = split_ref(ref)
    return ref if base.startswith("@") else filename_of(base) + ("" if point is None else f"@{point}")


def resolve_session_ref(ref: str) -> str:
    """Return the id of the session that a reference names; the point of ``REF@POINT`` is ignored.

    A reference is an index (0 = newest), an id, a unique prefix of one, a file name or an ``@NAME``.
    Raises UnknownSession, a ValueError, with the candidates of an ambiguous prefix.
    """
    base, _ = split_ref(ref)
    return filename_of(base)[ID]


def filename_of(ref: str) -> str:
    """Return the file name of the session that a reference without a point names; ``path_of`` adds the folder.

    Raises as ``resolve_session_ref`` does.
    """
    if ref.startswith("@"):
        if name := filename_of_name(ref):
            return name
        raise UnknownSession(f"no session is named {ref}", _name_advice(ref))
    if INDEX.fullmatch(ref):
        count = 0
        for count, name in enumerate(newest_first(), 1):
            if count > int(ref):
                return name
        available = f"there are {count}, 0 is the newest" if count else "there are none"
        raise UnknownSession(f"there is no session {ref}", available)
    if FILENAME.fullmatch(ref) and exists(ref):
        return ref
    candidates: list[str] = []
    # Sessions are read twice: another run may move a file back from the archive while both folders are read.
    for folder in (sessions_folder(), archive_folder(), sessions_folder()):
        if ref and not candidates:
            candidates = [name for name in session_names(folder) if name[ID].startswith(ref)]
    exact = [name for name in candidates if name[ID] == ref]
    names = sorted(exact or candidates, reverse=True)
    if not names:
        raise UnknownSession(f"no session {ref!r}", _name_advice(f"@{ref}"))
    if len(names) > 1:
        choices = names if exact else [name[ID] for name in names]
        raise UnknownSession(f"{ref!r} is ambiguous", f"it could be {abbreviate(choices)}")
    return names[0]


def ref_of(filename: str) -> str:
    """Return the reference for a command line: the id, or the file name if the id looks like an index."""
    return filename if filename[ID].isdigit() else filename[ID]


def abbreviate(names: Sequence[str]) -> str:
    """Return the names in one line: ten, then how many more."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{', '.join(names[:_MAX_LISTED])}{more}"


# ---- names


def names_folder() -> Path:
    """The folder of pointers: one file for each ``@NAME``, which contains a file name. It may not exist."""
    return sessions_folder().parent / "names"


def names_by_file() -> dict[str, list[str]]:
    """Return the sorted ``@NAME``s by the file names in them, without those that cannot be read.

    The session of a file name may be deleted. Raises BadSession if the folder of names cannot be read.
    """
    names: dict[str, list[str]] = {}
    folder = str(names_folder())
    for entry in names_in(names_folder()):
        with contextlib.suppress(OSError):
            filename = files.read_bytes(f"{folder}/{entry}", _LONGEST_POINTER).decode("utf-8", "replace").strip()
            name = f"@{unquote(entry)}"
            if is_name(name):
                names.setdefault(filename, []).append(name)
    return {filename: sorted(same) for filename, same in names.items()}


def names_in_use() -> Iterator[tuple[str, str]]:
    """Yield each ``@NAME`` that has a session, and its file name. Raises BadSession as ``names_by_file``."""
    for filename, names in names_by_file().items():
        if FILENAME.fullmatch(filename) and exists(filename):
            yield from ((name, filename) for name in names)


def similar_name(name: str) -> str | None:
    """Return the ``@NAME`` in use that a user may have meant, or None. Raises BadSession."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a name without a session needs it

    names = [other for other, _ in names_in_use()]
    return next(iter(get_close_matches(name, names, 1, 0.7)), None)


def _name_advice(name: str) -> str:
    """The advice for a reference that names no session."""
    similar = similar_name(name)
    return f"did you mean {similar}?" if similar else SEE_LIST


def filename_of_name(name: str) -> str | None:
    """Return the file name of the session that an ``@NAME`` points at, or None if there is none.

    Raises UnknownSession for a name with invalid characters, BadSession if the pointer cannot be read.
    """
    if not is_name(name):
        raise UnknownSession(
            f"{name!r} is not a valid name", "an @NAME has letters, digits, '.', '_', ':' and '-', a letter first"
        )
    try:
        filename = files.read_bytes(pointer_of(name), _LONGEST_POINTER).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as err:
        raise BadSession(f"{pointer_of(name)}: {err.strerror}") from err
    return filename if FILENAME.fullmatch(filename) and exists(filename) else None


def point_name(name: str, filename: str, *, fsync: bool, moves: bool = False) -> None:
    """Let an ``@NAME`` point at a session; one in use only if it ``moves``. The caller holds the store's lock.

    Raises OSError.
    """
    if moves or filename_of_name(name) is None:
        make_private(names_folder())
        files.replace(pointer_of(name), f"{filename}\n".encode(), fsync=fsync)


def pointer_of(name: str) -> Path:
    """The path of the pointer of an ``@NAME``. Capitals are percent-encoded: some file systems ignore case."""
    return names_folder() / safe_name(name[1:])


def safe_name(text: str) -> str:
    """Return a file name that is unique to the text: characters other than ``a-z0-9._-`` are percent-encoded."""
    plain = frozenset(f"{BASE36}._-".encode())
    safe = "".join(chr(c) if c in plain else f"%{c:02X}" for c in text.encode("utf-8", "surrogatepass"))
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe or "%"
