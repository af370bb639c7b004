"""Delete or archive sessions by reference, after asking the user."""

import sys
from collections.abc import Iterable, Sequence

from gptsh.core import folders, listing, retention, sessions, snapshots
from gptsh.core.folders import ID, INDEX, abbreviate
from gptsh.core.listing import SessionSummary, display_title
from gptsh.core.retention import Change
from gptsh.errors import GptshError, UsageError
from gptsh.manage import lists
from gptsh.manage.lists import ChangeWriter
from gptsh.terminal import stdio
from gptsh.terminal.asking import confirm
from gptsh.text import one_line, quantity


def delete_sessions(refs: Sequence[str], output: str | None = None, *, yes: bool = False) -> int:
    """Delete sessions permanently; on a terminal only those that the user confirms, unless ``yes``.

    Raises UsageError for an index in a script without ``yes``: a new session changes its meaning.
    """
    versions = _filenames(refs)
    if not yes:
        if stdio.is_terminal(sys.stdin):
            versions = _confirmed(versions)
        else:
            _refuse_indexes(refs)
    with ChangeReport(output) as report:
        retention.delete(versions, report.write)
    return 0


def _refuse_indexes(refs: Sequence[str]) -> None:
    """Raise UsageError for an index: between two runs of a script a new session may shift it."""
    for ref in refs:
        if INDEX.fullmatch(ref):
            problem = f"index {ref} changes with each new session"
            session_id = folders.filename_of(ref)[ID]
            raise UsageError(problem, f"use the id {session_id}, or add --yes")


def _confirmed(filenames: Iterable[str]) -> dict[str, str | None]:
    """Ask about each session; return when those to delete were last used, None if unreadable.

    ``retention.delete`` keeps a session that is used between the question and the answer.
    """
    versions: dict[str, str | None] = {}
    for filename in filenames:
        summary = listing.summary_at(filename)
        if confirm(f"Delete session {_describe(filename, summary)} permanently?"):
            versions[filename] = summary["updated_at"] if summary else None
        else:
            stdio.note(f"session {filename[ID]} was not deleted")
    return versions


def archive_sessions(refs: Sequence[str], output: str | None = None) -> int:
    """Move sessions to the archive."""
    filenames = _filenames(refs)
    with ChangeReport(output) as report:
        retention.archive(filenames, report.write)
    return 0


def delete_snapshot(point: str, output: str | None = None) -> int:
    """Delete the snapshot of ``REF@NAME``. Raises UsageError if there is none."""
    ref, name = folders.split_ref(point)
    if not name:
        todo = "write REF@NAME; --show-session REF lists the snapshots"
        raise UsageError(f"{ref} names no snapshot", todo)
    filename = folders.filename_of(ref)
    doc = sessions.load_session(filename)
    # The change is made in the union with the file, which another run may have changed.
    sessions.save_session(doc, lambda saved: snapshots.delete(saved, name), at=filename)
    result = {"session": filename[ID], "snapshot": name, "state": "deleted"}
    line = one_line(f"deleted snapshot {name} of session {filename[ID]}")
    stdio.write_lines(lists.lines_of([result], lambda _: line, dict, output))
    return 0


def _filenames(refs: Sequence[str]) -> dict[str, str | None]:
    """Return the file names of all references, as ``retention`` takes them, whenever last used.

    Raises UsageError for a point of a session, UnknownSession for a wrong reference.
    """
    for ref in refs:
        _, point = folders.split_ref(ref)
        if point is not None:
            raise UsageError(f"{ref} is a point of a session", "name only the session")
    return dict.fromkeys(map(folders.filename_of, refs))


class ChangeReport(ChangeWriter[Change]):
    """Prints a line for each session that was changed, and a note for each that was kept.

    The hint of an error that ends the block lists the sessions that were changed before.
    """

    def __init__(self, output: str | None) -> None:
        super().__init__(change_line, _fields, output)
        self._changed_ids: list[str] = []

    def write(self, change: Change) -> None:
        """Print what happened to a session."""
        if change.state in ("used", "gone"):
            stdio.note(change_line(change))
        else:
            self._changed_ids.append(change.filename[ID])
            super().write(change)

    def __exit__(self, error_type: object, err: BaseException | None, trace: object) -> None:
        """Complete the output and the hint of an error."""
        if isinstance(err, GptshError):
            err.hint = ""
            if self._changed_ids:
                err.hint = f"already done: {abbreviate(self._changed_ids)}"
        super().__exit__(error_type, err, trace)


def change_line(change: Change) -> str:
    """Return a line that says what happened to the session."""
    session = change.filename[ID]
    if change.state == "used":
        return f"session {session} was kept: another process has used or archived it"
    if change.state == "gone":
        return f"session {session} was deleted by another process"
    return f"{change.state} {_describe(change.filename, change.was, change.names)}"


def _describe(filename: str, summary: SessionSummary | None, names: Sequence[str] = ()) -> str:
    """Return the id of a session, its title, its number of turns, and the names that point to it.

    ``summary`` is None for an unreadable session.
    """
    title = ""
    facts = ["not readable"]
    if summary:
        title = display_title(summary["title"], summary["preview"])
        facts = [quantity(summary["turns"], "turn")]
    facts += names
    return one_line(f"{filename[ID]} {title} ({', '.join(facts)})")


def _fields(change: Change) -> dict[str, object]:
    """Return a change for programs."""
    return {
        "session": change.filename[ID],
        "state": change.state,
        "title": change.was["title"] if change.was else None,
        "turns": change.was["turns"] if change.was else None,
        "file": change.filename,
        "names": [*change.names],
    }
