"""Resolve references (an index, id, prefix or @NAME) to files, and find the folders of the store."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from pathlib import Path
from urllib.parse import unquote

from gptsh import files
from gptsh.core import document
from gptsh.errors import BadSession, UnknownSession
from gptsh.files import app_folder

# ---- session folders
#
# The folders of the store, and which names in them are session files, newest first.
#
# File names are enough, except to order sessions of the same second: their heads are read. A file
# of any other name is left alone.

FILENAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}\.json")
ID = slice(16, 20)  # of a file name
_SECOND = slice(0, 15)  # of a file name: yyyyMMdd-HHMMSS
# What Syncthing, Dropbox, Nextcloud and iCloud call the other version of a session that two machines continued.
_CONFLICT_COPY = re.compile(
    r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}(\.sync-conflict-.*| \(.*conflict.*\)| [0-9]+)\.json", re.DOTALL
)


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
    """The path of a session file: in the archive if it exists only there, else among the sessions."""
    path = sessions_folder() / filename
    archived = archive_folder() / filename
    return archived if os.path.lexists(archived) and not os.path.lexists(path) else path


def exists(filename: str) -> bool:
    """Whether a session exists, in either folder."""
    return os.path.lexists(path_of(filename))


def files_of(filename: str) -> list[Path]:
    """The files of a session: one in either folder if a move to another disk was interrupted."""
    folders = [sessions_folder(), archive_folder()]
    paths = [folder / filename for folder in folders if os.path.lexists(folder / filename)]
    return paths[:1] if same_folder(*folders) else paths


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


def names_in(folder: Path) -> list[str]:
    """The file names in a folder; none if it does not exist. Raises BadSession if it cannot be read."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as err:
        raise BadSession(f"{folder}: {err.strerror}") from err


def session_names(folder: Path) -> Iterator[str]:
    """Return the names of the session files in a folder, in any order. Raises BadSession if it cannot be read."""
    return filter(FILENAME.fullmatch, names_in(folder))


def conflict_copies(folder: Path) -> list[str]:
    """Return the names of files that a sync tool left beside session files, sorted.

    Raises BadSession if the folder cannot be read.
    """
    return sorted(filter(_CONFLICT_COPY.fullmatch, names_in(folder)))


def newest_first(folder: Path | None = None) -> Iterator[str]:
    """Yield file names, newest first; those of the same second by ``created_at``, which has milliseconds."""
    folder = folder or sessions_folder()
    names = filter(FILENAME.fullmatch, sorted(names_in(folder), reverse=True))  # lazy: index 0 needs one group
    for _, group in groupby(names, key=lambda name: name[_SECOND]):
        same = list(group)
        if len(same) > 1:
            created: dict[str, str] = {}
            for name in same:
                with contextlib.suppress(OSError, ValueError):
                    created[name] = str(document.read_head(f"{folder}/{name}").get("created_at", ""))
            same.sort(key=lambda name: created.get(name, ""), reverse=True)
        yield from same


# ---- references
#
# Resolve a reference to a session: an index (``-s 0``), an id, a unique prefix, a file name or an
# ``@NAME``.

INDEX = re.compile("[0-9]{1,9}")
SEE_LIST = "see gptsh --list-sessions"  # the advice for an unknown reference
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"

_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9._:-]{0,63}")
_MAX_LISTED = 10
_LONGEST_POINTER = 1000  # bytes of the file of an ``@NAME``


def split_ref(ref: str) -> tuple[str, str | None]:
    """Split ``REF@POINT`` into ``(REF, POINT)``; the point is None if no ``@`` follows the first character.

    The folders of a path may have an ``@`` in their names.
    """
    at = ref.rfind("@")
    return (ref[:at], ref[at + 1 :]) if at > 0 and "/" not in ref[at:] else (ref, None)


def is_name(ref: str) -> bool:
    """Whether a text can be an ``@NAME``."""
    return bool(_NAME.fullmatch(ref))


def pin_ref(ref: str) -> str:
    """Return the reference with a file name instead of an index, id or prefix, so that it needs no second search."""
    base, point = split_ref(ref)
    return ref if base.startswith("@") else filename_of(base) + ("" if point is None else f"@{point}")


def resolve_session_ref(ref: str) -> str:
    """Return the id of the session that a reference names; the point of ``REF@POINT`` is ignored.

    A reference is an index (0 = newest), an id, a unique prefix of one, a file name, its path or an ``@NAME``.
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
    name = os.path.basename(ref)
    if "/" in ref and FILENAME.fullmatch(name) and _is_same_file(ref, path_of(name)):
        return name
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


def is_reference(word: str) -> bool:
    """Whether a word names an existing session, other than by the beginning of its id. Raises BadSession."""
    base, _ = split_ref(word)
    try:
        name = filename_of(base)
    except UnknownSession:
        return False
    return base in (name, name[ID]) or bool(INDEX.fullmatch(base)) or base.startswith("@") or "/" in base


def _is_same_file(path: str, session: Path) -> bool:
    try:
        return os.path.samefile(path, session)
    except (OSError, ValueError):
        return False


def ref_of(filename: str) -> str:
    """Return the reference for a command line: the id, or the file name if the id looks like an index."""
    return filename if filename[ID].isdigit() else filename[ID]


def abbreviate(names: Sequence[str]) -> str:
    """Return the names in one line: ten, then how many more."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{', '.join(names[:_MAX_LISTED])}{more}"


# ---- names


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
    from difflib import get_close_matches

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


def free_names(names: Iterable[str], filename: str) -> None:
    """Remove the pointers of these ``@NAME``s, as far as they still point at this session. Raises OSError."""
    for name in names:
        pointer = pointer_of(name)
        with contextlib.suppress(FileNotFoundError):
            if files.read_bytes(pointer, _LONGEST_POINTER).decode("utf-8", "replace").strip() == filename:
                pointer.unlink()


def pointer_of(name: str) -> Path:
    """The path of the pointer of an ``@NAME``. Capitals are percent-encoded: some file systems ignore case."""
    return names_folder() / safe_name(name[1:])


def safe_name(text: str) -> str:
    """Return a file name that is unique to the text: characters other than ``a-z0-9._-`` are percent-encoded."""
    plain = frozenset(f"{BASE36}._-".encode())
    safe = "".join(chr(c) if c in plain else f"%{c:02X}" for c in text.encode("utf-8", "surrogatepass"))
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe or "%"


def typed_file() -> Path:
    """The path of the lines that were typed in conversations, as prompt_toolkit writes them; it may not exist.

    Raises ConfigError without a home folder.
    """
    return app_folder("state") / "typed"
