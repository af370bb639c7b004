"""Ask until the turn has its answer: rounds of tool calls, shorter prompts, fallback models, a repair for --schema."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gptsh.content.answer import CONTENT_FILTER, Answer, answer_error, is_open
from gptsh.core import turns
from gptsh.errors import (
    Filtered,
    GptshError,
    Incomplete,
    ModelError,
    NoAnswer,
    SchemaMismatch,
    TimedOut,
    TooExpensive,
    TooLong,
)
from gptsh.messages import Call, Message, Tools, calls_to_run, text_of, user_message
from gptsh.models.vendors import Provider
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.text import quantity
from gptsh.turn.answer_display import AnswerDisplay
from gptsh.turn.app import App, TurnSetup
from gptsh.turn.plan import Plan, Planner
from gptsh.turn.titles import Title
from gptsh.turn.turn_options import TurnOptions
from gptsh.turn.turn_record import TurnRecord
from gptsh.turn.turn_session import TurnSession

if TYPE_CHECKING:
    from gptsh.context.answer_schema import AnswerSchema
    from gptsh.render.writer import Spinner
    from gptsh.turn.approval import Approval

_STATE_PERIOD = 2.0  # seconds between two looks at what a server that has not answered is doing
_LOADING = ("loading", "downloading")  # the states of llama.cpp's router that take minutes


class RequestLoop:
    """Sends the requests of one turn, and saves the answers and tool results in its ``record``.

    ``setup``, ``planner`` and ``title`` are those of the model that is asked; a fallback replaces all three.
    """

    def __init__(
        self,
        app: App,
        options: TurnOptions,
        interrupts: Interrupts,
        session: TurnSession,
        setup: TurnSetup,
        planner: Planner,
        tools: Tools | None,
        record: TurnRecord,
        display: AnswerDisplay,
    ) -> None:
        self.setup, self.planner = setup, planner
        self.title = Title(app, session, setup.agent, options)
        self.approval = _approval_of(tools, session) if tools else None
        self._app, self._options, self._interrupts, self._session = app, options, interrupts, session
        self._tools, self._record, self._display = tools, record, display
        self._fallbacks = [*setup.fallbacks]
        self._timed_out = False

    def run(self, plan: Plan) -> None:
        """Ask until there is an answer that ``--schema`` and ``--block`` accept. Raises the failure or signal."""
        form = self.setup.form
        if plan.choice.is_new:  # a new compaction was only estimated so far: make its summary and save it
            plan = self.planner.plan(self._record.messages)
        self._ask_until_answered(plan)
        if form.schema:
            self._check_schema(form.schema)
        form.check_block(self._record.final_text)

    def _ask_until_answered(self, plan: Plan) -> None:
        """Ask, run the tools that the answer calls, and ask again with their results, until it calls none.

        If the server refuses a request as too long, ask again with a shorter one, at most twice: sizes are estimates.
        """
        rounds = refusals = 0
        while True:
            previous_answer = self._record.last_answer
            try:
                self._ask(plan)
            except (ModelError, TimedOut) as err:
                has_answer = self._record.last_answer is not previous_answer
                if not has_answer and self.planner.not_sent.learn(err, self._record.messages):
                    plan = self.planner.plan(self._record.messages)
                else:
                    plan = self._plan_fallback(err)
                continue
            except TooExpensive as err:
                if rounds == 0:
                    raise
                self._session.save(fsync=True)
                raise Incomplete(str(err)) from None
            except TooLong as err:
                refusals += 1
                may_retry = refusals < 3 and self._record.last_answer is previous_answer
                shorter = self.planner.refit(err, plan, self._record.messages) if may_retry else None
                if shorter is None:
                    raise self.planner.explain(err, self._record.messages) from None
                plan = shorter
                continue
            calls = calls_to_run(self._record.last_answer, plan.request)
            if not calls:
                return
            refusals, rounds = 0, rounds + 1
            if self.approval is None or rounds >= self._app.settings.max_rounds:
                self._session.save(fsync=True)
                error = f"the model still calls tools after {quantity(rounds, 'round')}"
                raise Incomplete(error, "continue the session, or raise max_rounds under [mcp]")
            self._run_tools(calls, self.approval)
            plan = self.planner.plan(self._record.messages)

    def _plan_fallback(self, err: GptshError) -> Plan:
        """Plan the request again for the next model that can be asked; this turn stays with it.

        Raises ``err`` if there is none, or if a part of an answer or a tool's result has arrived already.
        """
        is_begun = self._record.last_answer is not None or not turns.unanswered(self._record.messages)
        while err.may_fall_back and self._fallbacks and not is_begun:
            agent = self._fallbacks.pop(0)
            try:
                setup = self.setup._replace(agent=self._app.prepared(agent))
                screen = self._display.screen
                planner = Planner(self._app, self._options, setup, self._session, self._tools, screen)
                plan = planner.plan(self._record.messages)
            except GptshError as unusable:
                stdio.note(f"{agent.model} cannot be asked instead: {unusable}")
                continue
            secrets = sorted(self.setup.agent.params.keys() - setup.agent.params.keys())
            without = f", without {', '.join(secrets)}" if secrets else ""
            stdio.note(f"{err}; asking {planner.model} instead{without}")
            self._record.costs += self.planner.costs
            self.setup, self.planner = setup, planner
            self.title = Title(self._app, self._session, setup.agent, self._options)
            return plan
        raise err

    # ---- one request

    def _ask(self, plan: Plan) -> None:
        """Send one request, show and save its answer. Raises GptshError for one that is incomplete or empty."""
        previous_answer = self._record.last_answer
        self._receive(plan)
        self._display.close_answer()
        answer = self._record.last_answer
        if answer is None or answer is previous_answer or calls_to_run(answer, plan.request):
            return
        if failure := answer_error(answer):
            raise failure
        if self._provider.reads_think_tags and is_open(text_of(answer)):
            raise Incomplete("the answer is incomplete: its reasoning has no end")
        self._note_not_offered([str(call["function"].get("name")) for call in answer.get("tool_calls") or ()])

    @property
    def _provider(self) -> Provider:
        """The provider of the model that is asked."""
        return self._app.settings.providers.for_model(self.planner.model)

    def _receive(self, plan: Plan) -> None:
        """Send one request; show the answer as it arrives, and save it, complete or partial."""
        answer, planner = Answer(), self.planner
        partial_reason: str | None = "error"  # None: the server has completed the answer
        self._record.sent_plan = plan
        try:
            with self._display.screen.spinning(f"waiting for {planner.model}") as spinner:
                if spinner.is_visible and self._provider.is_own_server:
                    threading.Thread(target=self._explain_wait, args=(spinner,), daemon=True).start()
                self._display.show(self._app.client.ask(plan.request, answer), self.title.answer_begins)
            partial_reason = None
        except NoAnswer as err:
            if plan.limits.window is not None:
                raise
            error = f"{planner.model} answered nothing to a prompt of about {plan.choice.size.tokens:,} tokens"
            advice = f"if that is too long for it, set context_window under [providers.{planner.provider}]"
            raise NoAnswer(f"{error}, and its window is not known", advice, detail=err.detail) from None
        except TimedOut:
            partial_reason = "timeout"
            raise
        except Filtered:
            answer.finish(CONTENT_FILTER)  # so that the question is known to be refused
            partial_reason = None
            raise
        except (Interrupted, OSError) as err:
            self._interrupts.cancel_deadline()
            self._timed_out = isinstance(err, Interrupted) and err.by_deadline
            partial_reason = None if answer.finished else "timeout" if self._timed_out else "interrupted"
            if not (answer.finished and self._timed_out):  # else only the usage is missing
                raise
        finally:
            with self._interrupts.shielded():
                message = answer.message(partial_reason)
                self._display.remember_rest(answer.text)
                self._save_what_arrived(message, plan)

    def _save_what_arrived(self, message: Message | None, plan: Plan) -> None:
        """Save an answer, complete or partial; None: nothing has arrived."""
        if message is not None:
            self.planner.not_sent.remember()
            has_calls = bool(calls_to_run(message, plan.request))
            self._record.save_answer(message, plan, self.planner, fsync=not has_calls)  # the tool results: with fsync

    def _explain_wait(self, spinner: "Spinner") -> None:
        """In a thread: let the spinner show that a server of the user's own is loading its model."""
        model, provider = self.planner.model, self.planner.provider
        while spinner.still_waits(_STATE_PERIOD):
            state = self._app.client.model_lists.state(model)
            if state is None:
                return
            spinner.explain(f"{provider} is {state} {model.partition('/')[2]}" if state in _LOADING else "")

    # ---- tools

    def _run_tools(self, calls: Sequence[Call], approval: "Approval") -> None:
        """Run the approved calls, show the results as they arrive, and save them in the order of the calls."""
        results: dict[str, Message] = {}
        self._record.calls += calls
        try:
            for event in approval.run(calls, self._display.screen):
                results[event.message["tool_call_id"]] = event.message
                self._display.writer.write(event)
        finally:
            with self._interrupts.shielded():
                in_order = [results[call["id"]] for call in calls if call["id"] in results]
                self._session.save(*map(self._record.append, in_order), fsync=True)
        self._note_not_offered(approval.not_offered)
        approval.not_offered.clear()

    def _note_not_offered(self, names: Sequence[str]) -> None:
        """Print a note after the answer about calls that did not run, if there are any."""
        if names:
            called = ", ".join(dict.fromkeys(names))
            self._record.notes.append(f"the model called a tool that was not offered, so it did not run: {called}")

    # ---- --schema

    def _check_schema(self, schema: "AnswerSchema") -> None:
        """Check the answer against the schema; if it does not conform, ask once for a repair. Raises SchemaMismatch."""
        for may_repair in (True, False):
            faults = schema.faults(self.setup.form.select(self._record.final_text))
            if not faults:
                return
            mismatch = SchemaMismatch(f"the answer is not what --schema asks: {faults[0]}")
            if self._timed_out or not may_repair:
                raise mismatch
            request = user_message(schema.repair(faults), ())
            request["repair"] = True  # the user did not write it: it starts no turn
            event = self._record.append(request)
            try:
                plan = self.planner.plan(self._record.messages)
            except TooLong:
                raise mismatch from None
            self._session.save(event, fsync=False)
            self._ask_until_answered(plan)


def _approval_of(tools: Tools, session: TurnSession) -> "Approval":
    from gptsh.turn.approval import Approval

    return Approval(tools, session)
