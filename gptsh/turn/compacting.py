"""Compact a session (``--compact``): show what would change, or make it."""

import contextlib
from typing import TYPE_CHECKING

from gptsh.context.tokens import Prompt
from gptsh.core import document, turns
from gptsh.errors import GptshError, UsageError
from gptsh.render import structured
from gptsh.render.outline import CompactionReport, compaction_lines
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.turn.engine import Engine, Setup
from gptsh.turn.options import TurnOptions
from gptsh.turn.prompt import Planner
from gptsh.turn.screen import Screen
from gptsh.turn.session import Session
from gptsh.turn.shortening import compaction_report, save_compaction

if TYPE_CHECKING:
    from gptsh.core.document_types import Compaction


def compact(
    engine: Engine,
    options: TurnOptions,
    interrupts: Interrupts,
    session: Session,
    setup: Setup,
) -> None:
    """Show what a compaction would change, or with ``--apply`` make it.

    Raises GptshError if its summary fails; the session is then labelled, but not compacted.
    """
    engine.client.deadline = interrupts.deadline
    session.begin(None, setup.agent, setup.output.form, options, engine.settings)
    screen = Screen(setup.output)
    session.emit = screen.writer.emit
    if not turns.starts_of(session.messages):
        raise UsageError(f"session {session.doc['id']} has nothing to compact yet")

    planner = Planner(engine, options, setup, session, None, screen)
    planner.begin()
    compactor = planner.estimating_compactor()
    current = compactor.current()
    compacted = compactor.compact()
    applies = options.apply and not options.dry_run
    if applies:
        if options.has_labels:  # saved even if the compaction fails
            session.save(fsync=True)
        if compacted:
            compacted = _apply(planner, session, screen)
    if compacted is None:
        session.emit("compression_skipped", reason="nothing would be shorter")

    result = _report(session, current, compacted, applies=applies)
    engine.reporter.reported = True
    if setup.output.is_structured:
        with stdio.output_errors():
            screen.writer.conclude(result)
    else:
        stdio.write_lines(compaction_lines(result))
    if session.failure:
        raise session.failure


def _apply(planner: Planner, session: Session, screen: Screen) -> Prompt | None:
    """Compact the session with real summaries, and save that; None if nothing would be shorter.

    Raises GptshError, which the output reports as an event.
    """
    try:
        compacted = planner.compactor().compact()
        if compacted:
            save_compaction(session, compacted, planner.rules.snapshots, fsync=True)
        return compacted
    except GptshError as err:
        session.emit("compression_error", error=str(err))
        with contextlib.suppress(OSError):
            screen.writer.close()
        raise


def _report(
    session: Session,
    current: Prompt,
    compacted: Prompt | None,
    *,
    applies: bool,
) -> CompactionReport:
    """Return what a compaction changes or has changed; ``applies``: it was to be saved."""
    failure = session.failure
    prompt = compacted or current
    record: Compaction = {}
    if compacted:
        record = compacted.compaction or {}
    session_ref: str | None = session.doc["id"]
    if document.was_never_saved(session.doc):  # nobody can use its id: name what it is a fork of
        session_ref = session.doc["meta"].get("forked_from")
    return {
        "session": session_ref,
        "changes": compacted is not None,
        "applied": compacted is not None and applies and failure is None,
        **compaction_report(prompt),
        "before": record.get("before", current.message_tokens),
        "after": record.get("after", current.message_tokens),
        "budget": prompt.budget.limit,
        "window": prompt.budget.window,
        "error": structured.error(failure, "") if failure else None,
    }
