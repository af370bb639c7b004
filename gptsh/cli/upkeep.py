"""Prune old sessions (``--prune-sessions``), and consolidate memories (``--consolidate``)."""

import os
from typing import NamedTuple

from gptsh.cli.jobs import filters_of, older_than, refuse_filters, session_ref, time_limit
from gptsh.cli.options import Flags
from gptsh.config import settings
from gptsh.core import folders, retention, sessions
from gptsh.core.folders import abbreviate
from gptsh.core.listing import SessionSummary
from gptsh.errors import UsageError
from gptsh.llm.client import Client
from gptsh.manage import lists
from gptsh.manage.lists import ChangeWriter, matching_sessions, nothing_found, or_note
from gptsh.manage.removing import ChangeReport
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.text import one_line, quantity
from gptsh.turn.agents import stored_agent
from gptsh.turn.budget import Budget
from gptsh.turn.small_model import Consolidated, Consolidation, has_memory

# ---- pruning
#
# ``--prune-sessions``: delete or archive old sessions, or those whose question has no answer.


def prune_sessions(flags: Flags) -> int:
    """Delete or archive old sessions; without ``--yes`` only list them."""
    if flags.keep is None and flags.older_than is None and not flags.unanswered:
        ways = "add --keep N, --older-than AGE or --unanswered"
        raise UsageError("--prune-sessions needs a condition", ways)
    if flags.archive and flags.archived:
        raise UsageError("--archive and --archived cannot be used together")
    old = _old_sessions(flags)
    if not old or not flags.yes:
        _show_old(old, flags)
        return 0
    versions = {item["filename"]: item["updated_at"] for item in old}
    with ChangeReport(flags.output) as report:
        if flags.archive:
            retention.archive(versions, report.write)
        else:
            retention.delete(versions, report.write, from_archive=flags.archived)
    return 0


def _old_sessions(flags: Flags) -> list[SessionSummary]:
    """Return the sessions to prune, least recently used first."""
    age = flags.older_than
    if age is None and flags.unanswered:
        age = "1h"  # a younger question may be waiting for its answer
    before = older_than(age) if age is not None else None
    filters = filters_of(flags)
    # The limit is for the sessions to prune, not for those to choose from.
    matching = matching_sessions(filters._replace(limit=None))
    items = or_note(matching, nothing_found(filters))
    if flags.unanswered:
        items = (item for item in items if item["messages"] == item["turns"] == 1)
    return retention.select_to_prune(items, flags.keep, before=before, limit=flags.limit)


def _show_old(old: list[SessionSummary], flags: Flags) -> None:
    """List the sessions that ``--yes`` would delete or archive, and say so."""
    lines = lists.lines_of(
        old,
        lists.session_line(flags.output),
        fields=lists.session_object,
        output=flags.output,
    )
    lists.show(lines, flags.output, safe=lists.shows_rows(flags.output))
    verb = "archived" if flags.archive else "deleted"
    if not old:
        stdio.note(f"no session would be {verb}")
        return
    note = f"{quantity(len(old), 'session')} would be {verb}"
    names = []
    for item in old:
        names += item["names"]
    if names:
        note += f", {abbreviate(names)} among them"
    stdio.note(f"{note}; add --yes to do it")


# ---- consolidating
#
# ``--consolidate``: add what is new in sessions to the memories of their agents.


class _Target(NamedTuple):
    """A session whose agent's memory gets what is new."""

    session: str
    filename: str
    agent: str


def consolidate(flags: Flags) -> int:
    """Print a line for each session that had something new; return the first failure's code.

    Raises UsageError, and Interrupted after the last line.
    """
    config = settings.load(os.environ, flags.config)
    if flags.no_save or not config.sessions.save:
        raise UsageError("--consolidate and --no-save cannot be used together")
    interrupts = Interrupts(time_limit(flags, config))
    client = Client(config, os.environ)
    if config.limits.per_day is not None:
        client.budget = Budget(config, None)
    consolidation = Consolidation(config, client, interrupts)
    named = _named_session(flags, consolidation)
    targets = [named] if named else _matching_sessions(flags)
    if not any(agent.memory for agent in config.agents.readable()):
        stdio.note("no agent has a memory: set memory = true under [agents.NAME]")

    writer = ChangeWriter(_result_line, dict, flags.output, interruptible=True)
    with interrupts, interrupts.shielded(), writer:
        for target in reversed(targets):  # the oldest session first
            result = consolidation.run(target.session, target.filename, target.agent)
            if named or _has_news(result):
                writer.write(result)
            if consolidation.is_over:
                break
    if consolidation.interrupted:
        consolidation.interrupted.reported = True
        raise consolidation.interrupted
    return consolidation.exit_code


def _has_news(result: Consolidated) -> bool:
    return bool(result["messages"] or result["error"])


def _result_line(result: Consolidated) -> str:
    outcome = quantity(result["messages"], "message")
    if result["error"]:
        outcome = f"failed after {outcome}" if result["messages"] else "failed"
    return one_line(f"{result['session']} ({result['agent']}) {outcome}")


def _matching_sessions(flags: Flags) -> list[_Target]:
    """Return the sessions that the filters choose, newest first."""
    filters = filters_of(flags)
    targets = []
    for item in or_note(matching_sessions(filters), nothing_found(filters)):
        agent = item["agent"] or "default"
        targets.append(_Target(item["id"], item["filename"], agent=agent))
    return targets


def _named_session(flags: Flags, consolidation: Consolidation) -> _Target | None:
    """Return the session of ``-s`` or ``-c``; None if neither is given.

    Raises UsageError if it cannot be consolidated.
    """
    # ``new`` leaves GPTSH_SESSION out.
    ref = session_ref(flags.changed(new=True), consolidation.settings)
    if ref is None:
        return None
    refuse_filters(flags, "-s or -c")
    _, point = folders.split_ref(ref)
    if point is not None:
        raise UsageError(f"{ref}: a point cannot be consolidated", "name only the session")
    filename = folders.filename_of(ref)
    doc = sessions.load_session(filename)
    agent = consolidation.agent_of(doc)
    name = stored_agent(doc).name
    if not agent.memory:
        problem = f"agent {name!r} of session {doc['id']} has no memory"
        raise UsageError(problem, f"set memory under [agents.{name}]")
    if not has_memory(agent):
        raise UsageError("echo cannot write a memory", f"set model_small under [agents.{name}]")
    return _Target(doc["id"], filename, agent=name)
