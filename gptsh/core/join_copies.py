"""``--join-copies``: each session joined with its conflict copies, and those deleted that another machine deleted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from gptsh.core import archive, copies, files, locks
from gptsh.core.document import VERSION, Document
from gptsh.core.session_folders import (
    FILENAME,
    archive_folder,
    beside,
    copies_in,
    is_deleted,
    marks_of,
    names_in,
    path_of,
    sessions_folder,
)
from gptsh.records import NamedTuple


class Join(NamedTuple):
    """What became of a session with copies or marks: ``copies`` were joined and removed.

    ``left_alone`` are other files, and why. ``doc`` is None if the session itself is one of them. ``deleted``: another
    machine had deleted it, and now it is deleted here. ``is_back``: another machine went on, so the marks were removed.
    """

    filename: str
    doc: Document | None = None
    copies: Sequence[Path] = ()
    left_alone: Sequence[tuple[Path, str]] = ()
    deleted: bool = False
    is_back: bool = False


def join_all() -> Iterator[Join]:
    """Join each session in either folder with its copies, one at each step of the iterator, oldest first.

    Sessions that another machine deleted are deleted, and old marks removed.
    Raises StoreError, StoreBusy, or BadSession for an unreadable folder.
    """
    folder, archive_path = sessions_folder(), archive_folder()
    copies.sweep_marks()
    names, archived = {*names_in(folder)}, {*names_in(archive_path)}
    in_both = filter(FILENAME.fullmatch, names & archived)
    with_copies = {*copies_in(folder), *copies_in(archive_path)}
    for filename in sorted({*in_both, *with_copies, *beside(folder).marks.keys() & (names | archived)}):
        saving = files.as_store_error("the session cannot be saved", folder)
        with saving, locks.locked(folder.parent / ".lock"):
            join = _join(path_of(filename))
        yield join


def _join(path: Path) -> Join:
    """Join a session with its copies, under the lock. Raises OSError, StoreError."""
    filename = path.name
    try:
        whole = copies.read(path)
    except FileNotFoundError:  # deleted meanwhile
        return Join(filename)
    except (OSError, ValueError) as err:
        return Join(filename, left_alone=[(path, getattr(err, "strerror", None) or str(err))])
    if whole.doc["version"] > VERSION:
        return Join(filename, left_alone=[(path, "it was written by a newer gptsh")])
    if is_deleted(filename):
        copies.remove_deleted(filename)
        return Join(filename, whole.doc, deleted=True)
    if whole.copies:
        archive.write_whole(whole, path, path)
    marks = marks_of(filename)
    for mark in marks:
        mark.unlink(missing_ok=True)
    return Join(filename, whole.doc, whole.copies, whole.left_alone, is_back=bool(marks))
