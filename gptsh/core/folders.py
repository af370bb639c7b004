"""Find the folders of the store, and the file that a reference (an index, id, @NAME) names."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
# What Syncthing, Dropbox, Nextcloud and iCloud call the other version of a session that two
# machines continued.
_CONFLICT_COPY = re.compile(
    r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}(\.sync-conflict-.*| \(.*conflict.*\)| [0-9]+)\.json", re.DOTALL
)


def sessions_folder() -> Path:
    """Return ``${XDG_STATE_HOME:-~/.local/state}/gptsh/sessions``, on macOS too.

    The folder may not exist.
    """
    return app_folder("state") / "sessions"


def archive_folder() -> Path:
    """Return the folder of archived sessions. They are in no list, but an id or name finds them."""
    return app_folder("state") / "archive"


def names_folder() -> Path:
    """Return the folder of pointers: one file for each ``@NAME``, which contains a file name."""
    return app_folder("state") / "names"


def path_of(filename: str) -> Path:
    """Return the path of a session file: in the archive only if it is not among the sessions."""
    path = sessions_folder() / filename
    archived = archive_folder() / filename
    return archived if os.path.lexists(archived) and not os.path.lexists(path) else path


def exists(filename: str) -> bool:
    """Return whether a session exists, in either folder."""
    return os.path.lexists(path_of(filename))


def make_private(folder: Path) -> None:
    """Create a folder with mode 0700, or set that mode: gptsh-cli 0.8 left its folder open to all.

    Raises OSError.
    """
    files.refuse_foreign_links(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        # A folder of another user is shared on purpose.
        with contextlib.suppress(PermissionError):
            folder.chmod(0o700)


def warn_about_permissions(note: Callable[[str], object]) -> None:
    """Note, only once, that a folder of the store belongs to others or can be changed by them."""
    state = app_folder("state")
    for folder in (state, sessions_folder(), archive_folder(), names_folder()):
        problem = _access_of_others(folder)
        if problem and files.stamp_if_due(state / ".others.noted", inf):
            note(f"{folder} {problem}: gptsh follows only your own links there")
            return


def _access_of_others(folder: Path) -> str:
    """Return what others can do with a folder; "" for nothing, or if there is no such folder."""
    try:
        status = folder.stat()
    except OSError:
        return ""
    if files.is_foreign(status):
        return "belongs to another user"
    if status.st_mode & 0o022:
        return "can be changed by other users"
    return ""


def names_in(folder: Path) -> list[str]:
    """Return the file names in a folder, which may not exist.

    Raises BadSession if it is unreadable.
    """
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as err:
        raise BadSession(f"{folder}: {err.strerror}") from err


def session_names(folder: Path) -> Iterator[str]:
    """Return the names of the session files in a folder, in any order. Raises BadSession."""
    return filter(FILENAME.fullmatch, names_in(folder))


def conflict_copies(folder: Path) -> list[str]:
    """Return the names of files that a sync tool left beside session files. Raises BadSession."""
    return [name for name in names_in(folder) if _CONFLICT_COPY.fullmatch(name)]


def newest_first(folder: Path | None = None) -> Iterator[str]:
    """Yield file names, newest first; those of the same second by their ``created_at``."""
    folder = folder or sessions_folder()

    def created_at(name: str) -> str:
        try:
            return str(document.read_head(f"{folder}/{name}").get("created_at", ""))
        except (OSError, ValueError):
            return ""

    # Only the names that are needed are compared: index 0 needs one second.
    names = filter(FILENAME.fullmatch, sorted(names_in(folder), reverse=True))
    for _, group in groupby(names, key=lambda name: name[_SECOND]):
        same = list(group)
        if len(same) > 1:
            same.sort(key=created_at, reverse=True)
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
    """Split ``REF@POINT`` into ``(REF, POINT)``; without a point that is None.

    The first character of an ``@NAME``, and an ``@`` in the folders of a path, begin no point.
    """
    base, _, point = ref.rpartition("@")
    if not base or "/" in point:
        return ref, None
    return base, point


def is_name(ref: str) -> bool:
    """Return whether a text can be an ``@NAME``."""
    return bool(_NAME.fullmatch(ref))


def pin_ref(ref: str) -> str:
    """Return the reference with a file name instead of an index, id or prefix: no second search."""
    base, point = split_ref(ref)
    if base.startswith("@"):
        return ref
    return filename_of(base) + ("" if point is None else f"@{point}")


def resolve_session_ref(ref: str) -> str:
    """Return the id of the session that a reference names; the point of ``REF@POINT`` is ignored.

    A reference is an index (0 = newest), an id, a unique prefix of one, a file name, its path or an
    ``@NAME``. Raises UnknownSession, a ValueError, with the candidates of an ambiguous prefix.
    """
    base, _ = split_ref(ref)
    return filename_of(base)[ID]


def filename_of(ref: str) -> str:
    """Return the file name of the session that a reference without a point names.

    ``path_of`` adds the folder. Raises as ``resolve_session_ref`` does.
    """
    if ref.startswith("@"):
        named = filename_of_name(ref)
        if named is None:
            raise UnknownSession(f"no session is named {ref}", _name_advice(ref))
        return named
    if INDEX.fullmatch(ref):
        return _name_at(int(ref))
    return _name_of_path(ref) or _name_of_id(ref)


def _name_of_path(ref: str) -> str | None:
    """Return the file name that a reference has, alone or at the end of its path; else None."""
    name = os.path.basename(ref)
    if FILENAME.fullmatch(name) and exists(name):
        with contextlib.suppress(OSError, ValueError):
            if name == ref or os.path.samefile(ref, path_of(name)):
                return name
    return None


def _name_of_id(ref: str) -> str:
    """Return the file name of an id or a unique prefix of one. Raises UnknownSession."""
    candidates: list[str] = []
    # Sessions are read twice: another run may move a file back from the archive in between.
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


def _name_at(index: int) -> str:
    """Return the file name of a session in the list. Raises UnknownSession."""
    count = 0
    for name in newest_first():
        if count == index:
            return name
        count += 1
    available = f"there are {count}, 0 is the newest" if count else "there are none"
    raise UnknownSession(f"there is no session {index}", available)


def is_reference(word: str) -> bool:
    """Return whether a word names a session, but not by the beginning of its id.

    Raises BadSession.
    """
    base, _ = split_ref(word)
    try:
        name = filename_of(base)
    except UnknownSession:
        return False
    is_path_or_name = "/" in base or base.startswith("@")
    return is_path_or_name or base in (name, name[ID]) or bool(INDEX.fullmatch(base))


def ref_of(filename: str) -> str:
    """Return the reference for a command line: the id, but the file name if that is all digits."""
    return filename if filename[ID].isdigit() else filename[ID]


def abbreviate(names: Sequence[str]) -> str:
    """Return the names in one line: ten, then how many more."""
    line = ", ".join(names[:_MAX_LISTED])
    hidden = len(names) - _MAX_LISTED
    return f"{line} and {hidden} more" if hidden > 0 else line


# ---- names


def names_by_file() -> dict[str, list[str]]:
    """Return the sorted ``@NAME``s by the file names in them, without those that cannot be read.

    The session of a file name may be deleted. Raises BadSession for an unreadable folder.
    """
    names: dict[str, list[str]] = {}
    for entry in names_in(names_folder()):
        name = f"@{unquote(entry)}"
        if is_name(name):
            with contextlib.suppress(OSError):
                names.setdefault(_read_pointer(entry), []).append(name)
    return {filename: sorted(same) for filename, same in names.items()}


def names_in_use() -> Iterator[tuple[str, str]]:
    """Yield each ``@NAME`` that has a session, and its file name. Raises BadSession."""
    for filename, names in names_by_file().items():
        if FILENAME.fullmatch(filename) and exists(filename):
            for name in names:
                yield name, filename


def similar_name(name: str) -> str | None:
    """Return the ``@NAME`` in use that a user may have meant, or None. Raises BadSession."""
    from difflib import get_close_matches

    names = [other for other, _ in names_in_use()]
    similar = get_close_matches(name, names, n=1, cutoff=0.7)
    return similar[0] if similar else None


def _name_advice(name: str) -> str:
    """Return the advice for a reference that names no session."""
    similar = similar_name(name)
    return f"did you mean {similar}?" if similar else SEE_LIST


def filename_of_name(name: str) -> str | None:
    """Return the file name of the session that an ``@NAME`` points at, or None if there is none.

    Raises UnknownSession for a name with invalid characters, BadSession for an unreadable pointer.
    """
    if not is_name(name):
        expected = "an @NAME has letters, digits, '.', '_', ':' and '-', a letter first"
        raise UnknownSession(f"{name!r} is not a valid name", expected)
    try:
        filename = _read_pointer(safe_name(name[1:]))
    except FileNotFoundError:
        return None
    except OSError as err:
        raise BadSession(f"{_pointer_of(name)}: {err.strerror}") from err
    return filename if FILENAME.fullmatch(filename) and exists(filename) else None


def point_name(name: str, filename: str, *, fsync: bool, moves: bool = False) -> None:
    """Let an ``@NAME`` point at a session; one in use only if it ``moves``. Raises OSError.

    The caller holds the store's lock.
    """
    if moves or filename_of_name(name) is None:
        make_private(names_folder())
        files.replace(_pointer_of(name), f"{filename}\n".encode(), fsync=fsync)


def free_names(names: Iterable[str], filename: str) -> None:
    """Remove these ``@NAME``s, if they still point at this session. Raises OSError."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if _read_pointer(safe_name(name[1:])) == filename:
                _pointer_of(name).unlink()


def _read_pointer(entry: str) -> str:
    """Return the file name in a file of the folder of names. Raises OSError."""
    data = files.read_bytes(f"{names_folder()}/{entry}", _LONGEST_POINTER)
    return data.decode("utf-8", "replace").strip()


def _pointer_of(name: str) -> Path:
    """Return the path of the pointer of an ``@NAME``."""
    return names_folder() / safe_name(name[1:])


def safe_name(text: str) -> str:
    """Return a file name that is unique to the text, also where file systems ignore case.

    Characters other than ``a-z0-9._-`` are percent-encoded.
    """
    plain = frozenset(f"{BASE36}._-".encode())
    data = text.encode("utf-8", "surrogatepass")
    safe = "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in data)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe or "%"


def typed_file() -> Path:
    """Return the path of the lines that were typed in conversations, as prompt_toolkit writes them.

    Raises ConfigError without a home folder.
    """
    return app_folder("state") / "typed"
