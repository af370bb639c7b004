"""What lists have in common: the sessions that the filters let through, and lines for people or for programs."""

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
from gptsh.errors import UsageError
from gptsh.models.names import full_name, matches_model

Item = TypeVar("Item")
Session = TypeVar("Session", bound=SessionSummary)
_BETWEEN_WRITES = 0.05  # seconds


def lines_of(
    flags: Flags, items: Iterable[Item], line: Callable[[Item], str], fields: Callable[[Item], Mapping[str, Any]]
) -> Iterator[str]:
    """The lines of a list: for people, or for programs where ``-o`` asks for it."""
    if flags.output not in STRUCTURED:
        return map(line, items)
    from gptsh.render import structured  # noqa: PLC0415 - a list for people needs no JSON

    return structured.listing(map(fields, items), flags.output)


def together(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a long list, those of a moment in one piece, so that each need not be written for itself."""
    held: list[str] = []
    written = 0.0
    for line in lines:
        held.append(line)
        if time.monotonic() > written + _BETWEEN_WRITES:
            yield "\n".join(held)
            held, written = [], time.monotonic()
    if held:
        yield "\n".join(held)


def session_object(item: SessionSummary) -> dict[str, Any]:
    """What a list for programs has of a session, and of what was found in it."""
    return {key: value for key, value in item.items() if key not in ("filename", "marks")}


def passing(flags: Flags) -> Iterator[SessionSummary]:
    """The sessions that the filters let through, as they are read; a note for each that cannot be read."""
    return filtered(flags, listing.scan_sessions(archived=flags.archived))


def filtered(flags: Flags, items: Iterable[Session | Unreadable]) -> Iterator[Session]:
    """Those that the filters let through, as ``passing``; behind the last of ``--limit`` no further one is read."""
    return islice(_filtered(flags, items), flags.limit)


def _filtered(flags: Flags, items: Iterable[Session | Unreadable]) -> Iterator[Session]:
    project = current_project() if flags.here else None
    all_pass = not (flags.agent or flags.model or flags.tag or flags.here)  # to ask for each of 10,000 takes its time
    passed = 0
    for item in items:
        if isinstance(item, Unreadable):
            stdio.note(f"skipped {item.path}: {item.cause}")
        elif all_pass or (
            is_chosen(flags, project, item["agent"], item["project"], item["tags"])
            and matches_model(full_name(item["model"], item["provider"]), flags.model)
        ):
            passed += 1
            yield item
    if flags.model and not passed:
        stdio.note(f"nothing found with a model like {flags.model}")


def is_chosen(flags: Flags, here: str | None, agent: str | None, project: str | None, tags: list[str]) -> bool:
    """Whether a session of this agent and project, with these tags, is one that the filters let through."""
    return (
        (flags.agent is None or agent == flags.agent)
        and (here is None or project == here)
        and set(flags.tag) <= set(tags)
    )


def current_project() -> str:
    """The project of the working folder. Raises UsageError where that was deleted."""
    try:
        cwd = os.getcwd()
    except FileNotFoundError as err:
        raise UsageError("the working folder does not exist any more") from err
    return listing.find_project(cwd)
