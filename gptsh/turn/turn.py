"""Run a turn: plan the request, save the question, ask the model, run its tools, show and save the answer.

Every failure and signal is an exception, caught once, in ``Turn._ask_and_save``. A signal may be raised anywhere except
around a save and after the answer.
"""

import sys
from contextlib import nullcontext

from gptsh.core import document, locks, turns
from gptsh.errors import GptshError, OutputError, ToolServerError, UsageError
from gptsh.messages import Message, Tools
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.turn.answer_display import AnswerDisplay
from gptsh.turn.app import App, TurnSetup
from gptsh.turn.plan import Plan, Planner
from gptsh.turn.request_loop import RequestLoop
from gptsh.turn.show import Screen
from gptsh.turn.turn_options import TurnOptions
from gptsh.turn.turn_record import TurnRecord
from gptsh.turn.turn_session import OpenedSession, start_session


class Turn:
    """One question and its answer, or a compaction that the user asked for.

    ``session`` and ``sent_plan`` are valid after a failure, too.
    """

    def __init__(
        self,
        app: App,
        options: TurnOptions,
        interrupts: Interrupts,
        opened: OpenedSession,
        question: Message | None,
        setup: TurnSetup,
    ) -> None:
        """Raises UsageError if there is nothing to ask."""
        if question is None and not (options.compact or (opened.doc and turns.unfinished(opened.doc["messages"]))):
            error = f"no prompt, and session {opened.ref} has no question without an answer"
            way = f", or continue it with gptsh -i -s {opened.ref}" if stdio.is_terminal(sys.stdin) else ""
            raise UsageError(error, f"give words or pipe text in{way}")
        self.session = start_session(opened, question, setup.agent, setup.form.output, options, app.settings)
        self._app, self._options, self._interrupts, self._setup = app, options, interrupts, setup
        self._record = TurnRecord(self.session, app.settings)
        self._only_compacts = options.compact and question is None
        continues_tools = opened.doc is not None and not options.chooses_tools
        self._may_lack_tools = continues_tools or options.tools == ("all",)  # which names no server

    @property
    def sent_plan(self) -> Plan | None:
        """The last plan that was sent; None if none was."""
        return self._record.sent_plan

    def run(self) -> int:
        """Run the whole turn; return 0, or 1 if the complete answer could not be saved.

        Raises GptshError for every other failure, Interrupted for a signal or the deadline. Saves nothing if the
        session does not fit the window and cannot be compacted.
        """
        app, options, interrupts, session, setup = self._app, self._options, self._interrupts, self.session, self._setup
        app.client.deadline = interrupts.deadline
        app.limit_cost(setup.agent)
        if self._only_compacts:
            from gptsh.turn.preview import compact

            screen = Screen(setup.form)
            planner = Planner(app, options, setup, session, None, screen)
            return compact(planner, session, screen, options, app.reporter)
        is_new = document.is_unsaved(session.doc)
        with app.open_tools(setup.servers, interrupts, lenient=self._may_lack_tools) as tools:
            try:
                screen = Screen(setup.form)
                planner = Planner(app, options, setup, session, tools, screen)
                plan = planner.plan(self._record.messages, dry=True)
            except (ToolServerError, Interrupted) as err:
                if setup.servers:  # starting them may have taken long: save the question
                    self._save_question(err)
                raise
            if app.client.budget and not options.dry_run:
                app.client.budget.check(plan.request)
            if options.dry_run:
                from gptsh.turn.preview import print_request

                return print_request(app, plan, setup.form)
            if is_new:
                session.pending_events.insert(0, ("session_created", {"session": session.doc["id"]}))
            with screen.exclusive(interrupts.before_kill):
                self._ask_and_save(planner, plan, tools, screen)
        rules = app.settings.sessions
        if is_new and session.is_saved and session.filename and (rules.archive_after_days or rules.max_sessions):
            from gptsh.turn.turn_end import archive_old

            archive_old(app.settings, interrupts, session.filename)
        return session.failure.exit_code if session.failure else 0

    def _save_question(self, err: ToolServerError | Interrupted) -> None:
        """Save the question of a turn that ends before it asks, and say in the error how to ask it again."""
        with self._interrupts.ignored():
            self.session.save(fsync=True)
        err.hint = self.session.resume_hint(None)
        self._app.reporter.session = self.session.doc["id"] if self.session.is_saved else None

    def _ask_and_save(self, planner: Planner, plan: Plan, tools: Tools | None, screen: Screen) -> None:
        """Save the question, ask, show and save the answer.

        Raises the failure or signal that ended the turn. A reader that left early is not a failure.
        """
        app, interrupts, session, setup, record = self._app, self._interrupts, self.session, self._setup, self._record
        display = AnswerDisplay(screen, setup.form, interrupts)
        session.emit = display.writer.emit
        loop = RequestLoop(app, self._options, interrupts, session, setup, planner, tools, record, display)
        failure: BaseException | None = None
        claim = locks.claim(locks.claim_of_turn(record.question_id)) if session.is_saved else nullcontext()
        try:
            with claim:
                session.save(("message_recorded", {"id": record.question_id, "role": "user"}), fsync=False)
                loop.run(plan)
        except (GptshError, Interrupted, OSError) as err:
            failure = err
        with interrupts.shielded():
            interrupts.cancel_deadline()
            from gptsh.turn.turn_end import TurnEnd

            failure = TurnEnd(app, interrupts, session, loop, record, display, plan).finish(failure)
        if isinstance(failure, OSError) and not isinstance(failure, BrokenPipeError):
            failure = OutputError(f"the answer cannot be written: {failure.strerror}")
        if isinstance(failure, (GptshError, Interrupted)):
            failure.hint = failure.hint or session.resume_hint(record.last_answer)
            raise failure
