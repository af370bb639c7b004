"""Where sessions are and what a reference to one means: the folder, file names, ``@NAME`` pointers.

Everything here is found by file names alone, but for sessions of one second, whose heads are read.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote

from gptsh.config.folders import own_folder
from gptsh.core import files
from gptsh.errors import BadSession, UnknownSession

FILENAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}\.json")
INDEX = re.compile("[0-9]{1,9}")
ID = slice(16, 20)  # of a file name
SEE_LIST = "see gptsh --list-sessions"  # what can be done about a reference that means nothing
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"

_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9._:-]{0,63}")
_SECOND = slice(0, 15)  # of a file name: yyyyMMdd-HHMMSS
_SHOWN = 10


def sessions_folder() -> Path:
    """``${XDG_STATE_HOME:-~/.local/state}/gptsh/sessions``, on macOS too. It may not exist."""
    return own_folder("state") / "sessions"


def archive_folder() -> Path:
    """The folder of archived sessions: in no list, still found by id and name. It may not exist."""
    return sessions_folder().parent / "archive"


def path_of(filename: str) -> Path:
    """The file of a session: in the archive where it is there alone, else among the sessions."""
    path, archived = sessions_folder() / filename, archive_folder() / filename
    return archived if not os.path.lexists(path) and os.path.lexists(archived) else path


def exists(filename: str) -> bool:
    """Whether a session is there, in either folder."""
    return os.path.lexists(path_of(filename))


def make_private(folder: Path) -> None:
    """Create the folder for its owner alone; the first gptsh left its own open to all."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        with contextlib.suppress(PermissionError):  # somebody else's, and shared on purpose
            folder.chmod(0o700)


def names_in(folder: Path) -> list[str]:
    """The names in a folder; none where there is no such folder. Raises BadSession when it cannot be read."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as err:
        raise BadSession(f"{folder}: {err.strerror}") from err


def newest_first(folder: Path | None = None) -> Iterator[str]:
    """File names, newest first. Those of one second go by ``created_at``, which has milliseconds."""
    folder = folder or sessions_folder()
    names = filter(FILENAME.fullmatch, sorted(names_in(folder), reverse=True))  # of an index only the newest matter
    for _, group in groupby(names, key=lambda name: name[_SECOND]):
        same = list(group)
        if len(same) > 1:
            created: dict[str, str] = {}
            for name in same:
                with contextlib.suppress(OSError, ValueError):
                    created[name] = str(files.read_head(f"{folder}/{name}").get("created_at", ""))
            same.sort(key=lambda name: created.get(name, ""), reverse=True)
        yield from same


# ---- references


def split_ref(ref: str) -> tuple[str, str | None]:
    """``REF@POINT`` as ``(REF, POINT)``; the point is None without an ``@`` behind the first character."""
    at = ref.rfind("@")
    return (ref[:at], ref[at + 1 :]) if at > 0 else (ref, None)


def is_name(ref: str) -> bool:
    """Whether a text can be an ``@NAME``."""
    return bool(_NAME.fullmatch(ref))


def pinned(ref: str) -> str:
    """The reference with a file name in place of an index, an id or a prefix: no folder need be read again for it."""
    base, point = split_ref(ref)
    return ref if base.startswith("@") else filename_of(base) + ("" if point is None else f"@{point}")


def resolve_session_ref(ref: str) -> str:
    """The id that a reference means: index (0 = newest), id, unique id prefix, file name or ``@NAME``.

    Of ``REF@POINT`` it is the session's id. Raises UnknownSession, a ValueError, with the candidates of an
    ambiguous prefix.
    """
    base, _ = split_ref(ref)
    return filename_of(base)[ID]


def filename_of(ref: str) -> str:
    """The file name that a reference without a point means; ``path_of`` says in which folder it is.

    Raises as ``resolve_session_ref``.
    """
    if ref.startswith("@"):
        if name := filename_named(ref):
            return name
        raise UnknownSession(f"no session is named {ref}", SEE_LIST)
    if INDEX.fullmatch(ref):
        count = 0
        for count, name in enumerate(newest_first(), 1):
            if count > int(ref):
                return name
        kept = f"{count} are kept, 0 is the newest" if count else "none is kept"
        raise UnknownSession(f"there is no session {ref}", kept)
    if FILENAME.fullmatch(ref) and exists(ref):
        return ref
    # What another run moves meanwhile may be in neither of the two when that one is read.
    folders = (sessions_folder(), archive_folder(), sessions_folder()) if ref else ()
    found = (
        [name for name in names_in(folder) if FILENAME.fullmatch(name) and name[ID].startswith(ref)]
        for folder in folders
    )
    names = sorted(next(filter(None, found), ()), reverse=True)
    if not names:
        raise UnknownSession(f"no session {ref!r}", SEE_LIST)
    exact = [name for name in names if name[ID] == ref]
    if len(exact or names) > 1:
        ids = [name if exact else name[ID] for name in exact or names]
        raise UnknownSession(f"{ref!r} is ambiguous", f"it could be {abbreviated(ids)}")
    return (exact or names)[0]


def ref_of(filename: str) -> str:
    """What means the session of a file: its id, but where that would be taken for an index."""
    return filename if filename[ID].isdigit() else filename[ID]


def abbreviated(names: Sequence[str]) -> str:
    """The names in a line: ten, then how many more."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


# ---- names


def names_folder() -> Path:
    """The folder of the pointers: a file for each ``@NAME``, which holds a file name. It may not exist."""
    return sessions_folder().parent / "names"


def names_by_file() -> dict[str, list[str]]:
    """Each ``@NAME`` by the alphabet, under the file name of the session that it points at. Raises BadSession."""
    names: dict[str, list[str]] = {}
    for name in sorted(f"@{unquote(entry)}" for entry in names_in(names_folder())):
        if is_name(name) and (filename := filename_named(name)):
            names.setdefault(filename, []).append(name)
    return names


def filename_named(name: str) -> str | None:
    """The file name of the session that an ``@NAME`` points at; None where it dangles or was never used.

    Raises UnknownSession for a name with characters that names do not have, BadSession for a pointer that cannot be
    read.
    """
    if not is_name(name):
        raise UnknownSession(
            f"{name!r} is no name", "an @NAME has letters, digits, '.', '_', ':' and '-', a letter first"
        )
    try:
        filename = files.read_bytes(pointer_of(name)).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as err:
        raise BadSession(f"{pointer_of(name)}: {err.strerror}") from err
    return filename if FILENAME.fullmatch(filename) and exists(filename) else None


def point_name(name: str, filename: str, *, fsync: bool) -> None:
    """Let an ``@NAME`` that is free point at a session; under the store's lock. Raises OSError."""
    if filename_named(name) is None:
        make_private(names_folder())
        files.replace(pointer_of(name), f"{filename}\n".encode(), fsync=fsync)


def pointer_of(name: str) -> Path:
    """The file of an ``@NAME``. Capitals are percent-encoded, too: some file systems fold case."""
    return names_folder() / safe_name(name[1:])


def safe_name(text: str) -> str:
    """A name for a file or a folder, another one for each text: what might lead elsewhere is percent-encoded."""
    plain = frozenset(f"{BASE36}._-".encode())
    safe = "".join(chr(c) if c in plain else f"%{c:02X}" for c in text.encode("utf-8", "surrogatepass"))
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe or "%"
