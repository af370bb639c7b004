"""A session compacted because the user asks for it: what would happen, or what did."""

from collections.abc import Mapping, Sequence
from typing import Any

from gptsh.cli import stdio
from gptsh.cli.fitting import Fitter, Hands, told
from gptsh.cli.interrupts import Interrupted, Interrupts, each
from gptsh.cli.options import Flags
from gptsh.cli.prepare import Draft, sending_for
from gptsh.cli.reporter import Reporter
from gptsh.cli.sending import Sending
from gptsh.cli.session import Session
from gptsh.cli.show import Form, Screen
from gptsh.core import choice, document
from gptsh.core.choice import Choice
from gptsh.core.compaction import compacted, current
from gptsh.core.messages import Message
from gptsh.errors import GptshError, UsageError
from gptsh.render import structured
from gptsh.render.plain import FACTS, compaction_lines


class Compact:
    """``--compact``: what would happen to a session, or with ``--apply`` did."""

    def __init__(
        self, drafted: Draft, flags: Flags, session: Session, interrupts: Interrupts, reporter: Reporter
    ) -> None:
        self._drafted, self._flags, self._session = drafted, flags, session
        self._interrupts, self._reporter = interrupts, reporter
        self._applies = flags.apply and not flags.dry_run
        self._events: list[dict[str, Any]] = []

    def run(self) -> int:
        """Print messages, tokens before and after, and the strategy; the exit code.

        Raises GptshError where the summary that it takes cannot be had: then the session is as it was, and labelled.
        """
        doc = self._drafted.doc
        if not document.turns(doc["messages"]):
            raise UsageError(f"session {doc['id']} has nothing yet to compact")
        sending, spoken = sending_for(self._drafted, self._flags, None)
        frame, messages = sending.frame(spoken), choice.Session(spoken, doc["context"])
        now = current(messages, frame)
        then = compacted(messages, frame, sending.rules)
        if self._applies:
            with self._interrupts.shielded():
                self._label()
                then = self._compacted(then, sending, spoken)
        if then is None:
            self._tell("compression_skipped", reason="nothing would be shorter")
        failure = self._session.failure
        report = {
            "session": doc["meta"].get("forked_from") if document.is_unsaved(doc) else doc["id"],
            "changes": then is not None,
            "applied": then is not None and self._applies and failure is None,
            **told(then or now),
            "before": now.size.without(frame.fixed),
            "after": (then or now).size.without(frame.fixed),
            "budget": frame.budget,
            "window": sending.room.window,
            "error": failure and structured.error(str(failure), "", failure.exit_code),
        }
        self._reporter.told = True
        _write(report, self._events, self._drafted.form)
        if failure:
            raise failure
        if self._applies and self._drafted.agent.memory:
            self._remember()
        return 0

    def _remember(self) -> None:
        """Put into memories what is due, as behind a turn. The exit code was told before, in JSON."""
        from gptsh.cli.remember import AfterTurn  # noqa: PLC0415 - few agents have one

        stdio.let_go()
        drafted = self._drafted
        after = AfterTurn(drafted.settings, drafted.client, self._interrupts)
        with self._interrupts.shielded():
            ended = after.run(drafted.doc, self._session)
        if ended and not drafted.form.structured:
            raise ended

    def _label(self) -> None:
        """Save what the command line says about the session itself, whatever comes of the compaction."""
        if self._flags.labels and self._session.save(durable=True):
            for kind, fields in self._drafted.happened:
                self._tell(kind, **fields)

    def _compacted(self, then: Choice | None, sending: Sending, spoken: Sequence[Message]) -> Choice | None:
        """The compaction carried out. Where it fails, who reads events has had them."""
        if then is None:
            return None
        drafted = self._drafted
        hands = Hands(
            settings=drafted.settings,
            client=drafted.client,
            ask=lambda request: each(drafted.client.ask(request)),
            waiting=Screen().turning,
            tell=self._tell,
            keep=lambda: self._session.save(durable=True),
        )
        try:
            return Fitter(sending, drafted.doc, hands).compacted(then, spoken)
        except (GptshError, Interrupted):
            if drafted.form.output == "jsonl":
                stdio.write_lines(map(structured.line, self._events))
            raise

    def _tell(self, kind: str, **fields: Any) -> None:
        self._events.append({"type": kind, **fields})


def _write(report: Mapping[str, Any], events: Sequence[Mapping[str, Any]], form: Form) -> None:
    if not form.structured:
        stdio.write_facts(compaction_lines(report), FACTS)
        return
    told_of = [report] if form.output == "json" else [*events, {"type": "done", **report}]
    stdio.write_lines(map(structured.line, told_of))
