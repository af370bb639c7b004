"""Sessions deleted, archived or pruned: all references are resolved first, then each result is printed as it comes."""

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gptsh.cli import lists, stdio
from gptsh.cli.approval import confirm
from gptsh.cli.options import Flags
from gptsh.core import listing, references, retention, sessions
from gptsh.core.listing import SessionSummary, display_title
from gptsh.core.references import ID, INDEX, abbreviate
from gptsh.core.retention import Change
from gptsh.errors import GptshError, OutputError, UsageError
from gptsh.render.lists import listing_line
from gptsh.text import one_line, quantity, visible

_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}


def delete_sessions(flags: Flags) -> int:
    """Delete the sessions of the references for good: on a terminal those that the user says yes to.

    Raises UsageError for an index that a script gives without ``--yes``: it means another session before long.
    """
    chosen: dict[str, str | None] = dict(_chosen(flags.delete_session))
    if not flags.yes and stdio.is_terminal(sys.stdin) and stdio.is_terminal(sys.stderr):
        chosen = {filename: seen for filename in chosen if (seen := _confirmed(filename)) is not None}
    elif not flags.yes and (moving := next(filter(INDEX.fullmatch, flags.delete_session), None)):
        raise UsageError(f"{moving}: an index moves with each new session", "name the session by its id, or add --yes")
    return run_changes(flags, retention.remove(chosen))


def _confirmed(filename: str) -> str | None:
    """When the session that the user wants to be deleted was last used, empty where its file does not say; None: no."""
    item = listing.summary_at(filename)
    if confirm(f"Delete session {visible(_described(filename, item))} for good?"):
        return item["updated_at"] if item else ""
    stdio.note(f"session {filename[ID]} stays")
    return None


def archive_sessions(flags: Flags) -> int:
    """Move the sessions of the references to the archive."""
    return run_changes(flags, retention.remove(_chosen(flags.archive_session), archive=True))


def delete_snapshot(flags: Flags) -> int:
    """Delete the snapshot of ``REF@NAME``. Raises UsageError where there is none."""
    ref, name = references.split_ref(flags.delete_snapshot or "")
    if not name:
        raise UsageError(f"{ref} names no snapshot", "name it as REF@NAME: --show-session REF lists them")
    filename = references.filename_of(ref)
    sessions.save_session(sessions.load_session(filename), at=filename, without_snapshot=name)
    done = {"session": filename[ID], "snapshot": name, "state": "deleted"}
    line = one_line(f"deleted snapshot {name} of session {filename[ID]}")
    stdio.write_lines(lists.lines_of(flags, [done], lambda _: line, lambda item: item))
    return 0


def prune_sessions(flags: Flags) -> int:
    """Delete or archive old sessions with ``--yes``; without it list them."""
    if flags.keep is None and flags.older_than is None and not flags.unanswered:
        raise UsageError("--prune-sessions needs to know which", "add --keep N, --older-than AGE or --unanswered")
    before = _moment(flags.older_than) if flags.older_than is not None else None
    items = lists.passing(flags._replace(limit=None))  # which is how many go
    if flags.unanswered:
        items = (item for item in items if item["messages"] == item["turns"] == 1)
    going = retention.select_to_prune(items, flags.keep, before, flags.limit)
    if flags.yes and going:
        chosen = {item["filename"]: item["updated_at"] for item in going}
        return run_changes(flags, retention.remove(chosen, archive=flags.archive))
    stdio.write_lines(lists.lines_of(flags, going, listing_line, lists.session_object))
    stdio.note(_what_would_be(going, archives=flags.archive))
    return 0


def _chosen(refs: Sequence[str]) -> dict[str, None]:
    """The file names of all references. Raises UsageError for a bad one, before anything is done."""
    for ref in refs:
        if references.split_ref(ref)[1] is not None:
            raise UsageError(f"{ref}: a point is no session", "name the session alone")
    return dict.fromkeys(map(references.filename_of, refs))


def _moment(age: str) -> datetime:
    """When a time such as ``12h``, ``30d``, ``2w`` or ``1y`` ago was, at most a century. Raises UsageError."""
    given = re.fullmatch("([0-9]{1,6})([hdwy])", age)
    hours = int(given[1]) * _HOURS[given[2]] if given else 0
    if not 0 < hours <= 100 * _HOURS["y"]:
        expected = "hours, days, weeks or years, such as 12h, 30d, 2w or 1y"
        raise UsageError(f"--older-than: expected {expected}, not {age[:20]!r}")
    return datetime.now(UTC) - timedelta(hours=hours)


def _what_would_be(going: Sequence[SessionSummary], *, archives: bool) -> str:
    done = "archived" if archives else "deleted"
    if not going:
        return f"no session would be {done}"
    names = references.names_by_file()
    named = [name for item in going for name in names.get(item["filename"], ())]
    among = f", {abbreviate(named)} among them" if named else ""
    return f"{quantity(len(going), 'session')} would be {done}{among}: --yes does it"


def run_changes(flags: Flags, changes: Iterator[Change]) -> int:
    """Do it all, and print a line for each. Raises the failure that ended it."""
    work = _work(changes)
    try:
        stdio.write_lines(lists.lines_of(flags, work, change_line, _object))
    except (BrokenPipeError, OutputError):  # the reader has left, and the sessions are to go all the same
        for _ in work:
            pass
        raise
    return 0


def _work(changes: Iterator[Change]) -> Iterator[Change]:
    """The changes, as they are made; a note for each session that stays. A failure names what was done before."""
    done: list[str] = []
    try:
        for change in changes:
            if change.state in ("used", "gone"):
                stdio.note(change_line(change))
            else:
                done.append(change.filename[ID])
                yield change
    except GptshError as err:
        err.hint = f"done before: {abbreviate(done)}" if done else ""
        raise


def change_line(change: Change) -> str:
    """What became of a session, always one line."""
    session = change.filename[ID]
    if change.state == "used":
        return f"session {session} stays: it was used or archived meanwhile"
    if change.state == "gone":
        return f"session {session} was deleted meanwhile"
    return f"{change.state} {_described(change.filename, change.was, *change.names)}"


def _described(filename: str, was: SessionSummary | None, *names: str) -> str:
    """A session in a line: its id, what it is called, its turns, the names that point at it."""
    title, size = "", "not readable"
    if was:
        title, size = display_title(was["title"], was["preview"]), quantity(was["turns"], "turn")
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
