"""What all lists share: filtering sessions, and formatting lines for users or programs."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.config.forms import STRUCTURED
from gptsh.core import listing
from gptsh.core.listing import SessionSummary, Unreadable
from gptsh.errors import OutputError, UsageError
from gptsh.models.names import full_name, matches_model

Item = TypeVar("Item")
Session = TypeVar("Session", bound=SessionSummary)
_WRITE_INTERVAL = 0.05  # seconds


def lines_of(
    flags: Flags, items: Iterable[Item], line: Callable[[Item], str], fields: Callable[[Item], Mapping[str, Any]]
) -> Iterator[str]:
    """Format the items of a list: with ``line`` for users, with ``fields`` for ``-o json`` and ``jsonl``."""
    if flags.output not in STRUCTURED:
        return map(line, items)
    from gptsh.render import structured  # noqa: PLC0415 - only JSON needs it

    return structured.listing(map(fields, items), flags.output)


def write_changes(
    flags: Flags,
    changes: Iterator[Item],
    line: Callable[[Item], str],
    fields: Callable[[Item], Mapping[str, Any]],
    *,
    interruptible: bool = False,
) -> None:
    """Make changes, each by a step of the iterator, and write a line for each.

    If stdout cannot be written, make the other changes before its error is raised, as ``stdio.write_lines`` does.
    """
    try:
        stdio.write_lines(lines_of(flags, changes, line, fields), interruptible=interruptible)
    except (BrokenPipeError, OutputError):
        for _ in changes:
            pass
        raise


def batches(lines: Iterable[str]) -> Iterator[str]:
    """Join the lines of a long list that arrive within 50 ms: one write for many lines."""
    batch: list[str] = []
    last_write = 0.0
    for line in lines:
        batch.append(line)
        if time.monotonic() > last_write + _WRITE_INTERVAL:
            yield "\n".join(batch)
            batch, last_write = [], time.monotonic()
    if batch:
        yield "\n".join(batch)


def session_object(item: SessionSummary) -> dict[str, Any]:
    """The fields of a listed or found session for programs."""
    return {key: value for key, value in item.items() if key not in ("filename", "marks")}


def matching_sessions(flags: Flags) -> Iterator[SessionSummary]:
    """The sessions that match the filters, read one by one; each unreadable one gets a note."""
    return filter_sessions(flags, listing.scan_sessions(archived=flags.archived))


def filter_sessions(flags: Flags, items: Iterable[Session | Unreadable]) -> Iterator[Session]:
    """The items that match the filters, up to ``--limit``; no further item is read. Unreadable ones get a note."""
    return islice(_matching(flags, items), flags.limit)


def _matching(flags: Flags, items: Iterable[Session | Unreadable]) -> Iterator[Session]:
    project = current_project() if flags.here else None
    has_filters = flags.agent or flags.model or flags.tag or flags.here  # checked once: lists may have 10,000 items
    for item in items:
        if isinstance(item, Unreadable):
            stdio.note(f"skipped {item.path}: {item.cause}")
        elif not has_filters or (
            matches_filters(flags, project, item["agent"], item["project"], item["tags"])
            and matches_model(full_name(item["model"], item["provider"]), flags.model)
        ):
            yield item


def or_note(items: Iterable[Item], text: str) -> Iterator[Item]:
    """The items of a list; if there are none, a note with the text, unless that is empty."""
    is_empty = True
    for item in items:
        is_empty = False
        yield item
    if is_empty and text:
        stdio.note(text)


def nothing_found(flags: Flags, without_filters: str = "") -> str:
    """What to say of a list of sessions that is empty, such as ``nothing found with the tag work``."""
    words = [f"with the tag {tag}" for tag in flags.tag]
    words += [f"with the agent {flags.agent}"] if flags.agent else []
    words += [f"with a model like {flags.model}"] if flags.model else []
    words += ["in this project"] if flags.here else []
    if flags.limit == 0:
        return ""
    return f"nothing found {', '.join(words)}" if words else without_filters


def matches_filters(flags: Flags, here: str | None, agent: str | None, project: str | None, tags: list[str]) -> bool:
    """Whether a session's agent, project and tags match ``-a``, ``--here`` and ``--tag``; ``here`` is the project."""
    return (
        (flags.agent is None or agent == flags.agent)
        and (here is None or project == here)
        and set(flags.tag) <= set(tags)
    )


def current_project() -> str:
    """The project of the working directory. Raises UsageError if that was deleted."""
    try:
        cwd = os.getcwd()
    except FileNotFoundError as err:
        raise UsageError("the working folder does not exist any more") from err
    return listing.find_project(cwd)
