"""Work out what options mean, and run the jobs on stored sessions."""

import re
import sys
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple

from gptsh.cli.options import FILTERS, LABELS, MATCHING, STDIN, Flags
from gptsh.errors import UsageError
from gptsh.terminal import stdio

if TYPE_CHECKING:
    from gptsh.config.settings import Settings
    from gptsh.manage.lists import Filters
    from gptsh.turn.options import TurnOptions


# ---- what options mean

SAVE_HINT = "leave out --no-save, GPTSH_NO_SAVE, or save = false under [sessions]"


def filters_of(flags: Flags) -> "Filters":
    """Return the filters that the options set."""
    from gptsh.manage.lists import Filters

    since = since_of(flags.since) if flags.since is not None else None
    return Filters(
        flags.agent,
        flags.model,
        tags=flags.tag,
        here=flags.here,
        archived=flags.archived,
        limit=flags.limit,
        since=since,
    )


def refuse_filters(flags: Flags, named_by: str) -> None:
    """Raise UsageError if the command line filters sessions; ``named_by`` names one."""
    chosen = chosen_filters(flags)
    if chosen:
        problem = f"{chosen[0]} filters sessions, but {named_by} names one"
        raise UsageError(problem, "leave one of them out")


def chosen_filters(flags: Flags) -> list[str]:
    """Return the options on the command line that choose among sessions."""
    return [name for name in flags.given if name in FILTERS]


_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}
_DAYS = {"today": 0, "yesterday": 1}
_AGES = "12h, 30d, 2w or 1y"


def moment_before(age: str) -> datetime | None:
    """Return the time ``12h``, ``30d``, ``2w`` or ``1y`` ago, or None for another form.

    The time is a century ago at most.
    """
    match = re.fullmatch("([0-9]{1,6})([hdwy])", age)
    if match is None:
        return None
    hours = int(match[1]) * _HOURS[match[2]]
    if not 0 < hours <= 100 * _HOURS["y"]:
        return None
    return datetime.now(UTC) - timedelta(hours=hours)


def older_than(age: str) -> datetime:
    """Return the time that ``--older-than`` means. Raises UsageError."""
    before = moment_before(age)
    if before is None:
        expected = f"hours, days, weeks or years, such as {_AGES}"
        raise UsageError(f"--older-than: expected {expected}, not {age[:20]!r}")
    return before


def since_of(value: str) -> datetime:
    """Return the time that ``--since`` means: an age, or the local midnight that begins a day.

    Raises UsageError.
    """
    begin = moment_before(value)
    if begin:
        return begin
    try:
        if value in _DAYS:
            day = date.today() - timedelta(_DAYS[value])
        else:
            day = date.fromisoformat(value)
        return datetime.combine(day, time()).astimezone()
    except (ValueError, OverflowError, OSError) as err:
        forms = f"an age such as {_AGES}, or a day: 2026-11-01, today or yesterday"
        raise UsageError(f"--since: expected {forms}, not {value[:20]!r}") from err


def session_ref(flags: Flags, config: "Settings") -> str | None:
    """Return the reference from the command line, else the environment; None for a new session.

    Raises UsageError.
    """
    if flags.continue_:
        from gptsh.core import folders, listing
        from gptsh.manage.lists import current_project

        latest = listing.latest_in_project(current_project())
        if latest is None:
            problem = "no session was used in this project yet"
            raise UsageError(problem, "start one, or see --list-sessions")
        return folders.ref_of(latest)
    if flags.session is not None:
        return flags.session
    return None if flags.new else config.session


def time_limit(flags: Flags, config: "Settings") -> float | None:
    """Return the seconds that the run may take; None: no limit. Raises UsageError."""
    from gptsh.config import settings

    if flags.timeout is None:
        return config.timeout
    try:
        return settings.positive_seconds(flags.timeout)
    except ValueError as err:
        raise UsageError(f"--timeout: {err}") from err


def chosen_tools(flags: Flags) -> tuple[str, ...] | None:
    """Return the names of the tools by ``--no-tools`` or ``--tools``; None without either."""
    if flags.no_tools:
        return ()
    if flags.tools is None:
        return None
    names = [name.strip() for name in flags.tools.split(",")]
    return tuple(name for name in names if name)


def turn_options(flags: Flags, config: "Settings") -> "TurnOptions":
    """Return the options of the turns.

    Raises UsageError for a parameter or a time limit of another form.
    """
    from gptsh.turn.options import TurnOptions, parse_params

    params, removals = parse_params(flags.param)
    return TurnOptions(
        agent=flags.agent,
        model=flags.model,
        system=flags.system,
        params=params,
        removed_params=removals,
        web=_chosen(on=flags.web, off=flags.no_web),
        fallback=flags.fallback,
        max_cost=flags.max_cost,
        tools=chosen_tools(flags),
        output=flags.output,
        block=flags.block or ("" if flags.extract else None),
        schema=flags.schema,
        show_reasoning=_chosen(on=flags.reasoning, off=flags.no_reasoning),
        stream=not flags.no_stream,
        truncate=flags.truncate,
        title=flags.title,
        tags=flags.tag,
        removed_tags=flags.untag,
        name=flags.name,
        snapshot=flags.snapshot,
        save=not flags.no_save,
        dry_run=flags.dry_run,
        compact=flags.compact,
        apply=flags.apply,
        interactive=flags.interactive,
        timeout=time_limit(flags, config),
        config_file=flags.config,
    )


def _chosen(*, on: bool, off: bool) -> bool | None:
    """Return what an option and its opposite choose; None without either."""
    return not off if on or off else None


class Sources(NamedTuple):
    """Where a question comes from, beside its words: files and standard input."""

    paths: tuple[str, ...]
    pipe_index: int | None  # the place of what is piped among the paths; None: it is not read
    waits_for_pipe: bool  # another program has not written to it yet


def question_sources(flags: Flags, config: "Settings") -> Sources:
    """Return what ``-f`` and stdin give a question.

    Raises UsageError if ``-f -`` has nothing to read.
    """
    paths = tuple(path for path in flags.file if path != STDIN)
    pipe_index = None
    if STDIN in flags.file:
        _check_stdin(flags)
        pipe_index = flags.file.index(STDIN)
    elif config.read_stdin and not flags.no_stdin:
        shows_compaction = flags.compact and not flags.apply
        if not (flags.retry or shows_compaction):  # which take no prompt
            pipe_index = len(paths)
    waits_for_pipe = pipe_index is not None and stdio.is_pending(sys.stdin)
    return Sources(paths, pipe_index, waits_for_pipe=waits_for_pipe)


def _check_stdin(flags: Flags) -> None:
    """Raise UsageError if ``-f -`` cannot be read."""
    if flags.no_stdin:
        raise UsageError("-f - and --no-stdin cannot be used together")
    if sys.stdin is None:
        raise UsageError("-f - reads standard input, which is closed")
    if stdio.is_terminal(sys.stdin):
        raise UsageError("-f - reads standard input, which is a terminal", "pipe a file in")


def check_labels(flags: Flags, config: "Settings") -> None:
    """Raise UsageError for labels of a session that is not saved, or an invalid ``--name``."""
    labels = [name for name in flags.given if name in LABELS]
    if labels and (flags.no_save or not config.sessions.save):
        raise UsageError(f"{labels[0]} needs a saved session", SAVE_HINT)
    if flags.name is not None:
        from gptsh.core import folders

        folders.filename_of_name(flags.name)  # raises for invalid characters


# ---- the jobs on stored sessions


def list_sessions(flags: Flags) -> int:
    """List sessions (``--list-sessions``)."""
    from gptsh.manage import lists

    return lists.list_sessions(filters_of(flags), flags.output)


def search_sessions(flags: Flags) -> int:
    """Search sessions (``--search-sessions``)."""
    from gptsh.manage import lists

    return lists.search_sessions(flags.search_sessions or "", filters_of(flags), flags.output)


def show_usage(flags: Flags) -> int:
    """Show tokens and costs (``--usage``)."""
    from gptsh.manage.usage import show_usage

    return show_usage(flags.session, filters_of(flags), flags.output)


def show_session(flags: Flags) -> int:
    """Show a session (``--show-session``)."""
    from gptsh.manage import show

    return show.show_session(flags.show_session or "", flags.output, full=flags.full)


def export_sessions(flags: Flags) -> int:
    """Export sessions (``--export-session``).

    Raises UsageError unless there are either references or filters.
    """
    from gptsh.manage import show

    refs = [ref for ref in flags.export_session if ref != MATCHING]
    if refs:
        refuse_filters(flags, "--export-session")
    elif not chosen_filters(flags):
        ways = "name one, or choose some with --since, --here, --tag or --limit"
        raise UsageError("--export-session needs a session", ways)
    return show.export_sessions(refs, filters_of(flags), flags.format or "markdown")


def delete_sessions(flags: Flags) -> int:
    """Delete sessions (``--delete-session``)."""
    from gptsh.manage import removing

    return removing.delete_sessions(flags.delete_session, flags.output, yes=flags.yes)


def archive_sessions(flags: Flags) -> int:
    """Move sessions to the archive (``--archive-session``)."""
    from gptsh.manage import removing

    return removing.archive_sessions(flags.archive_session, flags.output)


def delete_snapshot(flags: Flags) -> int:
    """Delete a snapshot (``--delete-snapshot``)."""
    from gptsh.manage import removing

    return removing.delete_snapshot(flags.delete_snapshot or "", flags.output)
