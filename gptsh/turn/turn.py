"""Ask one question: send requests, run tools, fall back to other models, save and conclude the answer."""

import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from gptsh.config.settings import Settings
from gptsh.content.answer import CONTENT_FILTER, Answer, answer_error, is_open
from gptsh.context import tokens
from gptsh.core import document, locks, sessions, turns
from gptsh.errors import (
    Denied,
    Filtered,
    GptshError,
    Incomplete,
    ModelError,
    NoAnswer,
    OutputError,
    SchemaMismatch,
    StoreBusy,
    TimedOut,
    TooExpensive,
    TooLong,
    ToolServerError,
    UsageError,
)
from gptsh.messages import Call, Message, Tools, calls_to_run, final_answer, sum_costs, text_of, user_message
from gptsh.models.vendors import Provider
from gptsh.render.report import as_error
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.text import quantity
from gptsh.turn.engine import App, TurnSetup
from gptsh.turn.options import TurnOptions
from gptsh.turn.prompt import Plan, Planner
from gptsh.turn.screen import AnswerDisplay, Screen
from gptsh.turn.session import OpenedSession, TurnSession, start_session
from gptsh.turn.titles import Title

if TYPE_CHECKING:
    from gptsh.context.answer_schema import AnswerSchema
    from gptsh.core.snapshots import SessionEvent
    from gptsh.render.writer import Spinner
    from gptsh.turn.approval import Approval


# ---- turn record
#
# The messages that a turn adds to its session, each answer with its model and cost, and what was
# sent for them.


class TurnRecord:
    """The messages that a turn knows: those of the session before it, its question, and what it adds.

    ``session.doc`` may have more: saving merges those of other runs. ``sent_plan`` is the last plan that was sent.
    """

    def __init__(self, session: TurnSession, config: Settings) -> None:
        self.messages: list[Message] = list(session.doc["messages"])
        question_index = turns.question_index(self.messages)
        self.question_id: str = next((message["id"] for message in self.messages[question_index:]), "")
        self.sent_plan: Plan | None = None
        self.last_answer: Message | None = None
        self.calls: list[Call] = []  # that ran, or were denied
        self.costs: list[float | None] = []  # of the answers, and of summaries for models that were given up
        self.sources: dict[str, str | None] = {}  # titles of the pages that the answers cite, by URL
        self.notes: list[str] = []  # printed after the answer
        self._session, self._settings = session, config

    @property
    def final_text(self) -> str:
        """The text of the last answer without commentary; empty without an answer."""
        return answer_text(final_answer(self.last_answer)) if self.last_answer else ""

    def append(self, message: Message) -> "SessionEvent":
        """Add a message to this turn, whatever other runs add to the session; return the event to emit."""
        message["parent"] = self.messages[-1]["id"]
        usage_delta = {"tokens": message.get("usage")} if message["role"] == "assistant" else None
        self.messages += sessions.append_messages(self._session.doc, [message], usage_delta)
        return "message_recorded", {"id": self.messages[-1]["id"], "role": message["role"]}

    def save_answer(self, message: Message, plan: Plan, planner: Planner, *, fsync: bool) -> None:
        """Save the answer to a plan's request with its agent, model, provider and cost."""
        from gptsh.config.settings import cost_of

        usage = message.get("usage")
        message["agent"], message["model"], message["provider"] = planner.agent.name, planner.model, planner.provider
        message["cost"] = cost_of(self._settings, planner.model, usage) if usage else None
        self.costs.append(message["cost"])
        self.sources |= {page["url"]: page["title"] for page in message.get("sources", ())}
        if usage:
            message["prefix_bytes"] = plan.fixed_bytes
            self._session.emit("usage", usage=usage)
        if plan.choice.record:
            message["compaction"] = plan.choice.record["id"]
        self._mark_truncated(message, plan, planner.provider)
        event = self.append(message)
        self.last_answer = self.messages[-1]
        self._session.save(event, ("session_saved", {"session": self._session.doc["id"]}), fsync=fsync)

    def _mark_truncated(self, message: Message, plan: Plan, provider: str) -> None:
        """Mark an answer to a prompt that the server has cut silently; its report of tokens is of no use later."""
        usage, size = message.get("usage"), plan.choice.size
        prompt_tokens = usage["prompt"] if usage and provider != "echo" else None  # echo counts words
        if prompt_tokens and tokens.was_truncated(prompt_tokens, size, plan.request.messages):
            message["server_truncated"] = True
            self.notes.append(
                f"{provider} read {prompt_tokens:,} tokens of a prompt of about {size.tokens:,}: "
                "it cut the rest without saying so; give it a larger window, or set context_window to the one it has"
            )


def answer_text(message: Message) -> str:
    """The text of an answer, then its refusal."""
    return text_of(message) + message.get("refusal", "")


# ---- request loop
#
# Ask until the turn has its answer: rounds of tool calls, shorter prompts, fallback models, a
# repair for --schema.

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


# ---- turn end
#
# What follows an answer: the rest is shown, a denied call is reported; title, JSON object, memory
# and archive.


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
        from gptsh.turn.small_model import Consolidation

        if self._display.screen.is_written:
            stdio.detach_stdout()
        consolidation = Consolidation(self._app.settings, self._app.client, self._interrupts)
        memory_failure = consolidation.after_turn(self._session)
        return None if self._app.reporter.reported else memory_failure  # the JSON has reported the exit code already

    def _json_result(self, failure: BaseException | None) -> dict[str, object]:
        """The JSON object of ``-o json``."""
        from gptsh.render import structured

        session, planner, record, form = self._session, self._loop.planner, self._record, self._loop.setup.form
        message: Mapping[str, object] = record.last_answer or {}
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


# ---- turn
#
# Run a turn: plan the request, save the question, ask the model, run its tools, show and save the
# answer.
#
# Every failure and signal is an exception, caught once, in ``Turn._ask_and_save``. A signal may be
# raised anywhere except around a save and after the answer.


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

            failure = TurnEnd(app, interrupts, session, loop, record, display, plan).finish(failure)
        if isinstance(failure, OSError) and not isinstance(failure, BrokenPipeError):
            failure = OutputError(f"the answer cannot be written: {failure.strerror}")
        if isinstance(failure, (GptshError, Interrupted)):
            failure.hint = failure.hint or session.resume_hint(record.last_answer)
            raise failure
