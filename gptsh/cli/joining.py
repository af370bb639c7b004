"""The options that join versions of a session: copies that sync tools leave behind, and two branches of git."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gptsh.cli.options import Flags
from gptsh.core import copies, files, listing
from gptsh.core.join_copies import Join, join_all
from gptsh.core.session_folders import ID
from gptsh.manage import lists, removing
from gptsh.process import stdio


def join_copies(flags: Flags) -> int:
    """Join all sessions with their copies, delete those that another machine deleted, and print a line for each."""
    changes = (join for join in _with_notes(join_all()) if join.copies or join.deleted)
    lists.write_changes(lists.or_note(changes, "no session has a copy"), _line, _object, flags.output)
    return 0


def merge_for_git(flags: Flags) -> int:
    """Join two versions of a session into the second file: a merge driver of git. A failure is a conflict for git."""
    _, ours, theirs = flags.merge_driver or ("", "", "")
    with files.as_store_error("the versions cannot be joined", Path(ours)):
        copies.merge_files(Path(ours), Path(theirs))
    return 0


def _with_notes(joins: Iterator[Join]) -> Iterator[Join]:
    """Yield the joins; print a note for each file that was left alone, and each session that is back."""
    for join in joins:
        for path, cause in join.left_alone:
            stdio.note(copies.left_alone_line(path, cause))
        if join.is_back:
            stdio.note(copies.is_back_line(join.filename))
        yield join


def _line(join: Join) -> str:
    number, doc = len(join.copies), join.doc or {}
    summary = listing.summary_of(doc, None, join.filename) if doc else None
    session = removing.description(join.filename, summary)
    copies_of_it = f"{number} {'copy' if number == 1 else 'copies'}"
    return f"deleted {session}: another machine did" if join.deleted else f"joined {copies_of_it} into {session}"


def _object(join: Join) -> dict[str, Any]:
    doc = join.doc or {}
    return {
        "session": join.filename[ID],
        "state": "deleted" if join.deleted else "joined",
        "title": doc.get("title"),
        "turns": doc["stats"]["turns"] if doc else None,
        "file": join.filename,
        "copies": [path.name for path in join.copies],
    }
