"""The folders of the store, and which names in them are session files, newest first.

File names are enough, except to order sessions of the same second: their heads are read. A file of any other name is
left alone.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from itertools import groupby
from math import inf
from pathlib import Path

from gptsh import files
from gptsh.core import session_files
from gptsh.errors import BadSession
from gptsh.files import app_folder

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
                    created[name] = str(session_files.read_head(f"{folder}/{name}").get("created_at", ""))
            same.sort(key=lambda name: created.get(name, ""), reverse=True)
        yield from same
