"""``--compact``: what a compaction would do to what is sent of a session, or with ``--apply`` did."""

from collections.abc import Mapping, Sequence
from typing import Any

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted, Interrupts, each
from gptsh.cli.options import Flags
from gptsh.cli.plan import Planner, described
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import Session
from gptsh.cli.show import Form, Screen
from gptsh.core import document
from gptsh.errors import GptshError, UsageError
from gptsh.llm.client import Client
from gptsh.render import structured
from gptsh.render.lists import FACTS, compaction_lines


def compact(
    planner: Planner,
    session: Session,
    happened: list[tuple[str, dict[str, Any]]],
    flags: Flags,
    client: Client,
    interrupts: Interrupts,
    reporter: Reporter,
) -> int:
    """Print messages, tokens before and after, and the strategy; the exit code.

    Raises GptshError where the summary that it takes cannot be had: then the session is as it was, and labelled.
    """
    doc, form, applies = session.doc, planner.form, flags.apply and not flags.dry_run
    if not document.turns(doc["messages"]):
        raise UsageError(f"session {doc['id']} has nothing yet to compact")
    events: list[dict[str, Any]] = []

    def report(kind: str, **fields: Any) -> None:
        events.append({"type": kind, **fields})

    chooser = planner.chooser(doc["messages"], planner.imagined)
    now, then = chooser.current(), chooser.compact()
    if applies:
        with interrupts.shielded():
            if flags.labels and session.save(durable=True):  # whatever comes of the compaction
                for kind, fields in happened:
                    report(kind, **fields)
            planner.serve(
                lambda request, answer: each(client.ask(request, answer)),
                Screen().turning,
                report,
                lambda: session.save(durable=True),
            )
            try:
                then = planner.chooser(doc["messages"], planner.summarise).compact() if then else None
                if then:
                    planner.keep_compaction(then, doc["messages"])
            except (GptshError, Interrupted) as err:
                if form.output == "jsonl":
                    failed = [{"type": "compression_error", "error": str(err)}] if isinstance(err, GptshError) else []
                    stdio.write_lines(map(structured.line, [*events, *failed]))
                raise
    if then is None:
        report("compression_skipped", reason="nothing would be shorter")
    failure, fixed = session.failure, planner.fixed(now.size)
    size = max(0, now.size.tokens - fixed)
    result = {
        "session": doc["meta"].get("forked_from") if document.is_unsaved(doc) else doc["id"],
        "changes": then is not None,
        "applied": then is not None and applies and failure is None,
        **described(then or now),
        "before": then.record["before"] if then and then.record else size,
        "after": then.record["after"] if then and then.record else size,
        "budget": planner.room.budget(fixed),
        "window": planner.room.window,
        "error": failure and structured.error(str(failure), "", failure.exit_code),
    }
    reporter.told = True
    _print(result, events, form)
    if failure:
        raise failure
    return 0


def _print(result: Mapping[str, Any], events: Sequence[Mapping[str, Any]], form: Form) -> None:
    if not form.structured:
        stdio.write_facts(compaction_lines(result), FACTS)
        return
    objects = [result] if form.output == "json" else [*events, {"type": "done", **result}]
    stdio.write_lines(map(structured.line, objects))
