"""Sessions deleted for good, put away, or pruned: first all of them are found, then each is told as it goes."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from gptsh.cli import lists, stdio
from gptsh.cli.options import Flags
from gptsh.core import archive, references
from gptsh.core.archive import Change, Target
from gptsh.core.listing import SessionSummary
from gptsh.core.references import ID, in_short
from gptsh.errors import GptshError, OutputError, UsageError
from gptsh.render.plain import listing_line
from gptsh.text import counted, one_line


def delete_sessions(flags: Flags) -> int:
    """Delete the sessions of the references for good, and say what of them stays."""
    return carry_out(flags, archive.delete(_targets(flags.delete_session)))


def archive_sessions(flags: Flags) -> int:
    """Move the sessions of the references to the archive."""
    return carry_out(flags, archive.put_away(_targets(flags.archive_session)))


def prune_sessions(flags: Flags) -> int:
    """Delete old sessions, or put them away, where ``--yes`` says so; else list them."""
    if flags.keep is None and flags.older_than is None:
        raise UsageError("--prune-sessions needs to know which", "add --keep N, --older-than AGE, or both")
    before = _moment(flags.older_than) if flags.older_than is not None else None
    items = lists.passing(flags._replace(limit=None))  # which is how many go
    going = archive.to_prune(items, flags.keep, before, flags.limit)
    if flags.yes and going:
        targets = [Target(item["filename"], item["updated_at"]) for item in going]
        return carry_out(flags, archive.put_away(targets) if flags.archive else archive.delete(targets))
    stdio.write_lines(lists.lines_of(flags, going, listing_line, lists.session_object))
    stdio.note(_what_would_be(going, archives=flags.archive))
    return 0


def _targets(refs: Sequence[str]) -> list[Target]:
    """The sessions of all references, each once. Raises UsageError for a bad one, before anything is done."""
    for ref in refs:
        if references.split_ref(ref)[1] is not None:
            raise UsageError(f"{ref}: a point is no session", "name the session alone")
    return [Target(filename) for filename in dict.fromkeys(map(references.filename_of, refs))]


def _moment(age: str) -> datetime:
    try:
        return datetime.now(UTC) - archive.age(age)
    except ValueError as err:
        raise UsageError(f"--older-than: {err}") from err


def _what_would_be(going: Sequence[SessionSummary], *, archives: bool) -> str:
    done = "archived" if archives else "deleted"
    if not going:
        return f"no session would be {done}"
    names = references.names_by_file()
    named = [name for item in going for name in names.get(item["filename"], ())]
    among = f", {in_short(named)} among them" if named else ""
    return f"{counted(len(going), 'session')} would be {done}{among}: --yes does it"


# ---- doing it, telling it


def carry_out(flags: Flags, changes: Iterator[Change]) -> int:
    """Do it all, and tell each. Raises the failure that ended it."""
    work = _work(changes)
    try:
        stdio.write_lines(lists.lines_of(flags, work, told, _object))
    except (BrokenPipeError, OutputError):  # the reader has left, and the sessions are to go all the same
        for _ in work:
            pass
        raise
    return 0


def _work(changes: Iterator[Change]) -> Iterator[Change]:
    """The changes, as they are made; a note for each session that stays."""
    done: list[str] = []
    for change in _made(changes, done):
        if change.state in ("used", "gone"):
            stdio.note(told(change))
        else:
            done.append(change.filename[ID])
            yield change


def _made(changes: Iterator[Change], done: Sequence[str]) -> Iterator[Change]:
    """The same; a failure says what was ``done`` before."""
    try:
        yield from changes
    except GptshError as err:
        err.hint = f"done before: {in_short(done)}" if done else ""
        raise


def told(change: Change) -> str:
    """What became of a session, and what of it stays, always one line."""
    session = change.filename[ID]
    if change.state == "used":
        return f"session {session} stays: it was used or archived meanwhile"
    if change.state == "gone":
        return f"session {session} was deleted meanwhile"
    title, size = "", "not readable"
    if was := change.was:
        title, size = lists.called(was["title"], was["preview"]), counted(was["turns"], "turn")
    what = f"{change.state} {session} {title} ({', '.join((size, *change.names))})"
    return one_line("; ".join((what, *_stays(change))))


def _stays(change: Change) -> Iterator[str]:
    if len(change.forks) == 1:
        yield f"its fork {change.forks[0]} stays"
    elif change.forks:
        yield f"its forks {in_short(change.forks)} stay"
    if change.memory:
        yield f"what it told the memory of {in_short(change.memory)} stays"
    if change.link:
        yield f"it was a link, and {change.link} stays"


def _object(change: Change) -> dict[str, Any]:
    return {
        "session": change.filename[ID],
        "state": change.state,
        "title": change.was["title"] if change.was else None,
        "turns": change.was["turns"] if change.was else None,
        "file": change.filename,
        "names": list(change.names),
        "forks": list(change.forks),
        "memory": list(change.memory),
    }
