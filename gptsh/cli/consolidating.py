"""``--consolidate``: add what is new in sessions to the memories of their agents."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from gptsh.cli.options import FILTERS, Flags
from gptsh.cli.resolve import filters_of, session_ref, time_limit
from gptsh.config import settings
from gptsh.core import folders, sessions
from gptsh.errors import UsageError
from gptsh.llm.client import Client
from gptsh.manage.lists import matching_sessions, nothing_found, or_note, write_changes
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.text import one_line, quantity
from gptsh.turn.options import stored_agent
from gptsh.turn.small_model import Consolidation, has_memory


def consolidate(flags: Flags) -> int:
    """Print a line for each session that had something new; return the exit code of the first failure.

    Raises UsageError, and Interrupted after the last line.
    """
    config = settings.load(os.environ, flags.config)
    if flags.no_save or not config.sessions.save:
        raise UsageError("--consolidate writes a memory, and nothing is to be saved", "leave out --no-save")
    interrupts = Interrupts(time_limit(flags, config))
    client = Client(config, os.environ)
    if config.limits.per_day is not None:
        from gptsh.turn.budget import budget_of

        client.budget = budget_of(config, None)
    consolidation = Consolidation(config, client, interrupts)
    named_session = _named_session(flags, consolidation)
    if named_session:
        targets = [named_session]
    else:
        items = or_note(matching_sessions(filters_of(flags)), nothing_found(filters_of(flags)))
        targets = [(item["id"], item["filename"], item["agent"] or "default") for item in items]
    if not any(agent.memory for agent in config.agents.readable()):
        stdio.note("no agent has a memory: agents.NAME.memory = true gives it one")

    def results() -> Iterator[dict[str, Any]]:
        for target in reversed(targets):
            result = consolidation.run(*target)
            if named_session or result["messages"] or result["error"]:
                yield result
            if consolidation.is_over:
                return

    def line(result: Mapping[str, Any]) -> str:
        outcome = quantity(result["messages"], "message")
        if result["error"]:
            outcome = f"failed after {outcome}" if result["messages"] else "failed"
        return one_line(f"{result['session']} ({result['agent']}) {outcome}")

    with interrupts, interrupts.shielded():
        write_changes(results(), line, dict, flags.output, interruptible=True)
    if consolidation.interrupted:
        consolidation.interrupted.reported = True
        raise consolidation.interrupted
    return consolidation.exit_code


def _named_session(flags: Flags, consolidation: Consolidation) -> tuple[str, str, str] | None:
    """Id, file name and agent of the session of ``-s`` or ``-c``. Raises UsageError if it cannot be consolidated."""
    ref = session_ref(flags.changed(new=True), consolidation.settings)  # new: ignore GPTSH_SESSION
    if ref is None:
        return None
    if names := [name for name in flags.given if name in FILTERS]:
        raise UsageError(f"{names[0]} chooses among sessions, and -s or -c names one", "leave one of them out")
    if folders.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be consolidated", "name the session alone")
    filename = folders.filename_of(ref)
    doc = sessions.load_session(filename)
    agent, name = consolidation.agent_of(doc), stored_agent(doc).name
    if not agent.memory:
        raise UsageError(f"agent {name!r} of session {doc['id']} has no memory", f"set memory under [agents.{name}]")
    if not has_memory(agent):
        raise UsageError("echo can remember nothing", f"set model_small under [agents.{name}]")
    return doc["id"], filename, name
