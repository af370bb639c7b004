"""A session compacted because the user asks for it: what would happen, or what did."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gptsh.cli import stdio
from gptsh.cli.fitting import Fitter, Hands, told
from gptsh.cli.keeper import Keeper
from gptsh.cli.options import Flags
from gptsh.cli.prepare import Draft, sending_for
from gptsh.cli.show import Form, Screen
from gptsh.cli.signals import Endings
from gptsh.core import document
from gptsh.core.choice import Session
from gptsh.core.compaction import compacted, current
from gptsh.errors import UsageError
from gptsh.render import structured
from gptsh.render.plain import compaction_lines


def compact(drafted: Draft, flags: Flags, keeper: Keeper, endings: Endings) -> int:
    """Print messages, tokens before and after, and the strategy; with ``--apply`` do it. The exit code.

    Raises GptshError where the summary that it takes cannot be had: then all is as it was.
    """
    doc, apply = drafted.doc, flags.apply and not flags.dry_run
    if not document.turns(doc["messages"]):
        raise UsageError(f"session {doc['id']} has nothing yet to compact")
    sending, spoken = sending_for(drafted, flags, None)
    frame = sending.frame(spoken)
    now = current(Session(spoken, doc["context"]), frame)
    then = compacted(Session(spoken, doc["context"]), frame, sending.rules)
    events: list[dict[str, Any]] = []
    if then is None:
        events.append({"type": "compression_skipped", "reason": "nothing would be shorter"})
    if then and apply:
        screen = Screen(endings.released)
        hands = Hands(
            settings=drafted.settings,
            client=drafted.client,
            ask=endings.heard(drafted.client.ask),
            waiting=screen.turning,
            tell=lambda kind, **fields: events.append({"type": kind, **fields}),
            keep=lambda: keeper.save(durable=True),
        )
        with endings.held():
            then = Fitter(sending, doc, hands).compacted(then, spoken)
    report = {
        "session": doc["id"],
        "changes": then is not None,
        "applied": then is not None and apply and keeper.failure is None,
        **told(then or now),
        "before": now.size.without(frame.fixed),
        "after": (then or now).size.without(frame.fixed),
        "budget": frame.budget,
        "window": sending.room.window,
        "error": None,
    }
    stdio.write_lines(_lines(report, events, drafted.form))
    if keeper.failure:
        raise keeper.failure
    return 0


def _lines(report: Mapping[str, Any], events: Sequence[Mapping[str, Any]], form: Form) -> Iterator[str]:
    if not form.structured:
        return compaction_lines(report)
    told_of = [report] if form.output == "json" else [*events, {"type": "done", **report}]
    return map(structured.line, told_of)
