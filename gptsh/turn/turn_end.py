"""What follows an answer: the rest is shown, a denied call is reported; title, JSON object, memory and archive."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gptsh.config.settings import Settings
from gptsh.errors import Denied, GptshError, StoreBusy
from gptsh.messages import sum_costs
from gptsh.render.report import as_error
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.turn.answer_display import AnswerDisplay
from gptsh.turn.app import App
from gptsh.turn.plan import Plan
from gptsh.turn.request_loop import RequestLoop
from gptsh.turn.turn_record import TurnRecord
from gptsh.turn.turn_session import TurnSession


class TurnEnd:
    """Ends a turn after its last request. ``plan`` is what it would have sent first, if it sent nothing."""

    def __init__(
        self,
        app: App,
        interrupts: Interrupts,
        session: TurnSession,
        loop: RequestLoop,
        record: TurnRecord,
        display: AnswerDisplay,
        plan: Plan,
    ) -> None:
        self._app, self._interrupts, self._session, self._plan = app, interrupts, session, plan
        self._loop, self._record, self._display = loop, record, display

    def finish(self, failure: BaseException | None) -> BaseException | None:
        """Show the rest, see to the title, write the JSON object, update the memory; return the first failure."""
        form, display = self._loop.setup.form, self._display
        failure = self._show_rest(failure)
        self._loop.title.turn_ends(has_answer=self._record.last_answer is not None)
        failure = failure or self._denial()
        if form.is_structured:
            self._app.reporter.reported = True
            failure = display.write_safely(display.writer.close, failure)
            if isinstance(failure, OSError):
                return failure
            result = self._json_result(failure)
            failure_after_json = display.write_safely(partial(display.writer.conclude, result), failure)
            if not display.screen.is_written:
                return failure_after_json
            self._interrupts.discard_pending()
        if failure or not (self._session.is_saved and self._loop.setup.agent.memory):
            return failure
        return self._update_memory()

    def _show_rest(self, failure: BaseException | None) -> BaseException | None:
        """Show what of the answer is not shown yet, then the notes; return the first failure."""
        display, record, model = self._display, self._record, self._loop.planner.model
        if isinstance(failure, (Interrupted, OSError)):
            display.screen.limit_waiting()
        if not isinstance(failure, OSError):
            deliver = partial(display.deliver, record.final_text, record.sources, has_failed=failure is not None)
            failure = display.write_safely(deliver, failure)
        if failure is None:  # the server may have refused something that was then left out
            agent = self._loop.setup.agent
            self._app.note_adaptations(model, agent.params, web=agent.web)
        if ending := self._app.client.ending_note(model):
            record.notes.append(ending)
        for text in record.notes:
            stdio.note(text)
        return failure

    def _denial(self) -> Denied | None:
        """The failure of a turn in which a tool call was denied."""
        approval = self._loop.approval
        if approval is None or not approval.denied:
            return None
        names = ", ".join(dict.fromkeys(approval.denied))
        way = "set auto_approve under its [mcp.servers.NAME]"
        return Denied(
            f"a tool call was denied: {names}", "" if approval.has_terminal else f"approve it on a terminal, or {way}"
        )

    def _update_memory(self) -> BaseException | None:
        """Update the agent's memory if that is due; return a signal that the JSON object has not reported."""
        from gptsh.turn.consolidation import Consolidation

        if self._display.screen.is_written:
            stdio.detach_stdout()
        consolidation = Consolidation(self._app.settings, self._app.client, self._interrupts)
        memory_failure = consolidation.after_turn(self._session)
        return None if self._app.reporter.reported else memory_failure  # the JSON has reported the exit code already

    def _json_result(self, failure: BaseException | None) -> dict[str, Any]:
        """The JSON object of ``-o json``."""
        from gptsh.render import structured

        session, planner, record, form = self._session, self._loop.planner, self._record, self._loop.setup.form
        message: Mapping[str, Any] = record.last_answer or {}
        error = None
        cause = as_error(failure) if isinstance(failure, Interrupted) else failure or session.failure
        if isinstance(cause, GptshError):
            self._app.reporter.add_config_path(cause)
            hint = cause.hint or session.resume_hint(record.last_answer)
            error = structured.error(str(cause), hint, cause.exit_code)
        return {
            **structured.ANSWER,
            **{key: message.get(key) for key in ("finish_reason", "usage")},
            "id": message.get("id") if session.is_saved else None,
            "session": session.doc["id"] if session.is_saved else None,
            "text": form.select(record.final_text) if record.last_answer else None,
            "model": planner.model,
            "provider": planner.provider,
            "cost": sum_costs([*record.costs, *planner.costs]),
            "tool_calls": record.calls or message.get("tool_calls", []),
            "sources": [{"url": url, "title": title} for url, title in record.sources.items()],
            "context": (record.sent_plan or self._plan).report(),
            "error": error,
        }


def archive_old(config: Settings, interrupts: Interrupts, filename: str) -> None:
    """Archive old sessions after a turn that started the session of this file.

    The reader already has the whole answer, and signals are ignored.
    """
    from gptsh.core import retention

    stdio.detach_stdout()
    with interrupts.ignored():
        try:
            retention.archive_old(config.sessions, filename)
        except StoreBusy:  # the next new session does it
            return
        except (GptshError, OSError) as err:
            stdio.note(f"no old session was archived: {err}")
