"""Where sessions are and what a reference to one means: the folder, file names, ``@NAME`` pointers.

Everything here is found by file names alone, but for sessions of one second, whose heads are read.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path

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


def memory_folder(agent: str) -> Path:
    """The folder of an agent's memory, whatever its name is. It may not exist."""
    return own_folder("state") / "memory" / safe_name(agent)


def archive_folder() -> Path:
    """The folder of archived sessions: in no list, still found by id and name. It may not exist."""
    return sessions_folder().parent / "archive"


def path_of(filename: str) -> Path:
    """The file of a session: in the archive where it is there alone, else among the sessions."""
    path, archived = sessions_folder() / filename, archive_folder() / filename
    return archived if not os.path.lexists(path) and os.path.lexists(archived) else path


def is_kept(filename: str) -> bool:
    """Whether a session is there, in either folder, also while it is moved from one to the other."""
    folders = (sessions_folder(), archive_folder(), sessions_folder())
    return any(os.path.lexists(folder / filename) for folder in folders)


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
    names = sorted(filter(FILENAME.fullmatch, names_in(folder)), reverse=True)
    for _, group in groupby(names, key=lambda name: name[_SECOND]):
        same = list(group)
        if len(same) > 1:
            same.sort(key=lambda name: _created_at(folder / name), reverse=True)
        yield from same


def _created_at(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return str(files.read_head(path).get("created_at", ""))
    return ""


# ---- references


def split_ref(ref: str) -> tuple[str, str | None]:
    """``REF@POINT`` as ``(REF, POINT)``; the point is None without an ``@`` behind the first character."""
    at = ref.rfind("@")
    return (ref[:at], ref[at + 1 :]) if at > 0 else (ref, None)


def is_name(ref: str) -> bool:
    """Whether a text can be an ``@NAME``."""
    return bool(_NAME.fullmatch(ref))


def is_new_name(ref: str) -> bool:
    """Whether the reference is an ``@NAME`` that points at no session yet.

    Raises UnknownSession for a name with characters that names do not have.
    """
    return ref.startswith("@") and filename_named(ref) is None


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
        name = filename_named(ref)
        if name is None:
            raise UnknownSession(f"no session is named {ref}", SEE_LIST)
        return name
    if INDEX.fullmatch(ref):
        return _at_index(int(ref))
    if FILENAME.fullmatch(ref) and is_kept(ref):
        return ref
    return _by_prefix(ref)


def ref_of(filename: str) -> str:
    """What means the session of a file: its id, but where that would be taken for an index."""
    return filename if filename[ID].isdigit() else filename[ID]


def _at_index(index: int) -> str:
    for name in islice(newest_first(), index, None):
        return name
    held = sum(1 for _ in newest_first())
    raise UnknownSession(
        f"there is no session {index}", f"{held} are kept, 0 is the newest" if held else "none is kept"
    )


def _by_prefix(ref: str) -> str:
    names: list[str] = []
    sessions = sessions_folder()
    for folder in (sessions, archive_folder(), sessions) if ref else ():  # it may come back out of the archive
        names = names or [name for name in newest_first(folder) if name[ID].startswith(ref)]
    if not names:
        raise UnknownSession(f"no session {ref!r}", SEE_LIST)
    exact = [name for name in names if name[ID] == ref]
    if len(exact or names) > 1:
        ids = [name if exact else name[ID] for name in exact or names]
        raise UnknownSession(f"{ref!r} is ambiguous", f"it could be {in_short(ids)}")
    return (exact or names)[0]


def in_short(names: Sequence[str]) -> str:
    """The names in a line: ten, then how many more."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _pointer(ref: str) -> Path:
    """The pointer file of an ``@NAME``: capitals are encoded, too, since some file systems fold case."""
    if not _NAME.fullmatch(ref):
        raise UnknownSession(
            f"{ref!r} is no name", "an @NAME has letters, digits, '.', '_', ':' and '-', a letter first"
        )
    return names_folder() / safe_name(ref[1:])


def safe_name(text: str) -> str:
    """A name for a file or a folder, another one for each text: what might lead elsewhere is percent-encoded."""
    plain = frozenset(f"{BASE36}._-".encode())
    safe = "".join(chr(c) if c in plain else f"%{c:02X}" for c in text.encode("utf-8", "surrogatepass"))
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe or "%"


def names_folder() -> Path:
    """The folder of the pointers. It may not exist."""
    return sessions_folder().parent / "names"


def used_names() -> Iterator[tuple[str, str]]:
    """Each ``@NAME`` that points at a session, and that session's file name, by the alphabet.

    Raises BadSession when they cannot be read.
    """
    for name, filename in _pointers():
        if is_kept(filename):
            yield name, filename


def names_by_file() -> dict[str, list[str]]:
    """Each ``@NAME`` by the file name that it points at, whether that is there or not. Raises BadSession."""
    names: dict[str, list[str]] = {}
    for name, filename in _pointers():
        names.setdefault(filename, []).append(name)
    return names


def _pointers() -> Iterator[tuple[str, str]]:
    plain = (re.sub("%([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), entry) for entry in names_in(names_folder()))
    for name in sorted(f"@{entry}" for entry in plain):
        if _NAME.fullmatch(name) and (filename := _pointed_at(name)):
            yield name, filename


def filename_named(ref: str) -> str | None:
    """The file name that an ``@NAME`` points at; None when it dangles or was never used."""
    filename = _pointed_at(ref)
    return filename if filename and is_kept(filename) else None


def _pointed_at(ref: str) -> str | None:
    pointer = _pointer(ref)
    try:
        name = files.read_bytes(str(pointer)).decode("utf-8", "replace").strip()
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as err:
        raise BadSession(f"{pointer}: {err.strerror}") from err
    return name if FILENAME.fullmatch(name) else None


def point_name(name: str, filename: str, *, durable: bool) -> None:
    """Let an ``@NAME`` that is free point at a session; under the store's lock. Raises OSError."""
    if filename_named(name) in (None, filename):
        pointer = _pointer(name)
        make_private(pointer.parent)
        files.replace(pointer, f"{filename}\n".encode(), durable=durable)


def free_name(name: str) -> None:
    """Let an ``@NAME`` point at nothing any more, under the store's lock. Raises OSError."""
    _pointer(name).unlink(missing_ok=True)
