"""The options that join versions of a session: copies that sync tools leave behind, and two branches of git."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gptsh.cli import lists, removing, stdio
from gptsh.cli.options import Flags
from gptsh.core import archive, copies, files, listing
from gptsh.core.archive import Join
from gptsh.core.references import ID
from gptsh.text import one_line


def join_copies(flags: Flags) -> int:
    """Join all sessions with their copies, and print a line for each that had any."""
    joined = lists.or_note((join for join in _with_notes(archive.join_all()) if join.copies), "no session has a copy")
    lists.write_changes(flags, joined, _line, _object)
    return 0


def merge_for_git(flags: Flags) -> int:
    """Join two versions of a session into the second file: a merge driver of git. A failure is a conflict for git."""
    _, ours, theirs = flags.merge_driver or ("", "", "")
    with files.as_store_error("the versions cannot be joined", Path(ours)):
        copies.merge_files(Path(ours), Path(theirs))
    return 0


def _with_notes(joins: Iterator[Join]) -> Iterator[Join]:
    """Yield the joins; print a note for each file that was left alone."""
    for join in joins:
        for path, cause in join.left_alone:
            stdio.note(copies.left_alone_line(path, cause))
        yield join


def _line(join: Join) -> str:
    number = len(join.copies)
    copies_of_it = f"{number} {'copy' if number == 1 else 'copies'}"
    summary = listing.summary_at(join.filename)
    return one_line(f"joined {copies_of_it} into {removing.description(join.filename, summary)}")


def _object(join: Join) -> dict[str, Any]:
    doc = join.doc or {}
    return {
        "session": join.filename[ID],
        "state": "joined",
        "title": doc.get("title"),
        "turns": doc["stats"]["turns"] if doc else None,
        "file": join.filename,
        "copies": [path.name for path in join.copies],
    }
