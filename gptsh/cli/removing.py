"""The options that delete, archive or prune sessions. All references are resolved before anything changes."""

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gptsh.cli import lists, stdio
from gptsh.cli.asking import confirm
from gptsh.cli.options import Flags
from gptsh.core import listing, references, retention, sessions, snapshots
from gptsh.core.listing import SessionSummary, display_title
from gptsh.core.references import ID, INDEX, abbreviate
from gptsh.core.retention import Change
from gptsh.errors import GptshError, UsageError
from gptsh.render.list_lines import listing_line
from gptsh.text import one_line, quantity

_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}


def delete_sessions(flags: Flags) -> int:
    """Delete sessions permanently; on a terminal only those that the user confirms.

    Raises UsageError for an index in a script without ``--yes``: the next new session changes what it refers to.
    """
    versions: dict[str, str | None] = dict(_filenames(flags.delete_session))
    if not flags.yes and stdio.is_terminal(sys.stdin):
        versions = {filename: version for filename in versions if (version := _confirm(filename)) is not None}
    elif not flags.yes and (index := next(filter(INDEX.fullmatch, flags.delete_session), None)):
        raise UsageError(f"{index}: an index moves with each new session", "name the session by its id, or add --yes")
    return run_changes(flags, retention.remove(versions))


def _confirm(filename: str) -> str | None:
    """Ask the user; return when the session was last used, "" if its file cannot be read, None if the user says no."""
    summary = listing.summary_at(filename)
    if confirm(f"Delete session {description(filename, summary)} permanently?"):
        return summary["updated_at"] if summary else ""
    stdio.note(f"session {filename[ID]} was not deleted")
    return None


def archive_sessions(flags: Flags) -> int:
    """Move sessions to the archive."""
    return run_changes(flags, retention.remove(_filenames(flags.archive_session), archive=True))


def delete_snapshot(flags: Flags) -> int:
    """Delete the snapshot of ``REF@NAME``. Raises UsageError if there is none."""
    ref, name = references.split_ref(flags.delete_snapshot or "")
    if not name:
        raise UsageError(f"{ref} names no snapshot", "name it as REF@NAME: --show-session REF lists them")
    filename = references.filename_of(ref)
    doc = sessions.load_session(filename)
    sessions.save_session(doc, lambda saved: snapshots.delete(saved, name), at=filename)
    fields = {"session": filename[ID], "snapshot": name, "state": "deleted"}
    line = one_line(f"deleted snapshot {name} of session {filename[ID]}")
    stdio.write_lines(lists.lines_of(flags, [fields], lambda _: line, lambda item: item))
    return 0


def prune_sessions(flags: Flags) -> int:
    """Delete or archive old sessions; without ``--yes`` only list them."""
    if flags.keep is None and flags.older_than is None and not flags.unanswered:
        raise UsageError("--prune-sessions needs to know which", "add --keep N, --older-than AGE or --unanswered")
    if flags.archive and flags.archived:
        raise UsageError("--archive and --archived exclude each other")
    # An hour for --unanswered: a question that is younger may be waiting for its answer.
    age = "1h" if flags.unanswered and flags.older_than is None else flags.older_than
    before = _parse_age(age) if age is not None else None
    # --limit is the number to prune
    items = lists.or_note(lists.matching_sessions(flags._replace(limit=None)), lists.nothing_found(flags))
    if flags.unanswered:
        items = (item for item in items if item["messages"] == item["turns"] == 1)
    old = retention.select_to_prune(items, flags.keep, before, flags.limit)
    if flags.yes and old:
        versions = {item["filename"]: item["updated_at"] for item in old}
        return run_changes(flags, retention.remove(versions, archive=flags.archive, from_archive=flags.archived))
    stdio.write_lines(lists.lines_of(flags, old, listing_line, lists.session_object))
    stdio.note(_preview(old, archives=flags.archive))
    return 0


def _filenames(refs: Sequence[str]) -> dict[str, None]:
    """The file names of all references, as keys. Raises UsageError for a bad reference."""
    for ref in refs:
        if references.split_ref(ref)[1] is not None:
            raise UsageError(f"{ref}: a point is not a session", "name the session alone")
    return dict.fromkeys(map(references.filename_of, refs))


def _parse_age(age: str) -> datetime:
    """The time that was ``12h``, ``30d``, ``2w`` or ``1y`` ago, at most a century. Raises UsageError."""
    match = re.fullmatch("([0-9]{1,6})([hdwy])", age)
    hours = int(match[1]) * _HOURS[match[2]] if match else 0
    if not 0 < hours <= 100 * _HOURS["y"]:
        expected = "hours, days, weeks or years, such as 12h, 30d, 2w or 1y"
        raise UsageError(f"--older-than: expected {expected}, not {age[:20]!r}")
    return datetime.now(UTC) - timedelta(hours=hours)


def _preview(old: Sequence[SessionSummary], *, archives: bool) -> str:
    """The note that says what ``--yes`` would do."""
    verb = "archived" if archives else "deleted"
    if not old:
        return f"no session would be {verb}"
    names_by_file = references.names_by_file()
    names = [name for item in old for name in names_by_file.get(item["filename"], ())]
    with_names = f", {abbreviate(names)} among them" if names else ""
    return f"{quantity(len(old), 'session')} would be {verb}{with_names}: --yes does it"


def run_changes(flags: Flags, changes: Iterator[Change]) -> int:
    """Make all changes, and print a line for each. Raises the error that stopped them."""
    lists.write_changes(flags, _with_notes(changes), change_line, _object)
    return 0


def _with_notes(changes: Iterator[Change]) -> Iterator[Change]:
    """Yield the changes that are made; print a note for each session that was not changed.

    The hint of an error lists the sessions that were changed before.
    """
    changed_ids: list[str] = []
    try:
        for change in changes:
            if change.state in ("used", "gone"):
                stdio.note(change_line(change))
            else:
                changed_ids.append(change.filename[ID])
                yield change
    except GptshError as err:
        err.hint = f"done before: {abbreviate(changed_ids)}" if changed_ids else ""
        raise


def change_line(change: Change) -> str:
    """One line about a change: what happened to the session."""
    session = change.filename[ID]
    if change.state == "used":
        return f"session {session} is kept: it was used or archived meanwhile"
    if change.state == "gone":
        return f"session {session} was deleted meanwhile"
    return f"{change.state} {description(change.filename, change.was, *change.names)}"


def description(filename: str, summary: SessionSummary | None, *names: str) -> str:
    """A session in one line: its id, title and turns, and the names that point to it."""
    title, size = "", "not readable"
    if summary:
        title, size = display_title(summary["title"], summary["preview"]), quantity(summary["turns"], "turn")
    return one_line(f"{filename[ID]} {title} ({', '.join((size, *names))})")


def _object(change: Change) -> dict[str, Any]:
    return {
        "session": change.filename[ID],
        "state": change.state,
        "title": change.was["title"] if change.was else None,
        "turns": change.was["turns"] if change.was else None,
        "file": change.filename,
        "names": list(change.names),
    }
