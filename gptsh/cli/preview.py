"""What is shown instead of asked: a request, by ``--dry-run``; a compaction, by ``--compact``, which may be done."""

import contextlib
from typing import Any

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.cli.plan import Plan, Planner, compaction_report
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import Session
from gptsh.cli.show import Form
from gptsh.core import document
from gptsh.errors import GptshError, OutputError, UsageError
from gptsh.llm.client import Client
from gptsh.render import lists, structured


def print_request(client: Client, plan: Plan, form: Form) -> int:
    """Print model, API, window and tokens; for a program the request itself, its keys masked. Nothing is sent."""
    if form.structured:
        stdio.write_lines([structured.line({**request_of(client, plan), "error": None})])
    else:
        stdio.write_lines(lists.context_lines(client.api(plan.request), plan.report(), plan.request))
    return 0


def request_of(client: Client, plan: Plan) -> dict[str, Any]:
    """A request as it is sent, its keys masked, and what it has of the session."""
    request = plan.request
    api, preview = client.api(request), client.preview(request)
    return {"model": request.model, "api": api, **preview, "context": plan.report()}


def compact(planner: Planner, session: Session, flags: Flags, reporter: Reporter) -> int:
    """Show what a compaction would do to what is sent, or with ``--apply`` does; the exit code.

    Raises GptshError where the summary that it takes cannot be had: then the session is as it was, and labelled.
    """
    doc, writer, applies = session.doc, planner.screen.writer, flags.apply and not flags.dry_run
    messages = doc["messages"]
    session.emit = writer.emit
    if not document.turns(messages):
        raise UsageError(f"session {doc['id']} has nothing yet to compact")
    chooser = planner.chooser(messages, dry=True)
    now, then = chooser.current(), chooser.compact()
    if applies:
        if flags.has_labels:  # whatever comes of the compaction
            session.save(fsync=True)
        try:
            then = planner.chooser(messages).compact() if then else None
            if then:
                planner.keep_compaction(then, messages)
        except GptshError as err:
            writer.emit("compression_error", error=str(err))
            with contextlib.suppress(OSError):
                writer.close()
            raise
    if then is None:
        writer.emit("compression_skipped", reason="nothing would be shorter")
    failure, record = session.failure, (then.record if then else None) or {}
    size = max(0, now.size.tokens - planner.fixed)
    result = {
        "session": doc["meta"].get("forked_from") if document.is_unsaved(doc) else doc["id"],
        "changes": then is not None,
        "applied": then is not None and applies and failure is None,
        **compaction_report(then or now),
        "before": record.get("before", size),
        "after": record.get("after", size),
        "budget": planner.room.budget(planner.fixed),
        "window": planner.room.window,
        "error": failure and structured.error(str(failure), "", failure.exit_code),
    }
    reporter.reported = True
    if not planner.form.structured:
        stdio.write_lines(lists.compaction_lines(result))
    else:
        try:
            writer.conclude(result)
        except BrokenPipeError:
            raise
        except OSError as err:
            raise OutputError(f"the output cannot be written: {err.strerror}") from err
    if failure:
        raise failure
    return 0
