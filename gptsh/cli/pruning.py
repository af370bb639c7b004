"""``--prune-sessions``: delete or archive old sessions, or those whose question has no answer."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gptsh.cli.options import Flags
from gptsh.cli.resolve import filters_of
from gptsh.core import folders, retention
from gptsh.core.folders import abbreviate
from gptsh.core.listing import SessionSummary
from gptsh.errors import UsageError
from gptsh.manage import lists, removing
from gptsh.render.lists import listing_line
from gptsh.terminal import stdio
from gptsh.text import quantity

_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}


def prune_sessions(flags: Flags) -> int:
    """Delete or archive old sessions; without ``--yes`` only list them. ``--limit`` is the number to prune."""
    if flags.keep is None and flags.older_than is None and not flags.unanswered:
        raise UsageError("--prune-sessions needs to know which", "add --keep N, --older-than AGE or --unanswered")
    if flags.archive and flags.archived:
        raise UsageError("--archive and --archived exclude each other")
    # An hour for --unanswered: a question that is younger may be waiting for its answer.
    age = "1h" if flags.unanswered and flags.older_than is None else flags.older_than
    before = _parse_age(age) if age is not None else None
    filters = filters_of(flags)
    items = lists.or_note(lists.matching_sessions(filters._replace(limit=None)), lists.nothing_found(filters))
    if flags.unanswered:
        items = (item for item in items if item["messages"] == item["turns"] == 1)
    old = retention.select_to_prune(items, flags.keep, before, flags.limit)
    if flags.yes and old:
        versions = {item["filename"]: item["updated_at"] for item in old}
        changes = retention.remove(versions, archive=flags.archive, from_archive=flags.archived)
        return removing.run_changes(changes, flags.output)
    stdio.write_lines(lists.lines_of(old, listing_line, lists.session_object, flags.output))
    stdio.note(_preview(old, archives=flags.archive))
    return 0


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
    names_by_file = folders.names_by_file()
    names = [name for item in old for name in names_by_file.get(item["filename"], ())]
    with_names = f", {abbreviate(names)} among them" if names else ""
    return f"{quantity(len(old), 'session')} would be {verb}{with_names}: --yes does it"
