"""Run a turn: plan the request, save the question, ask the model, run its tools, show and save the answer.

Every failure and signal is an exception, caught once, in ``Turn._ask_and_save``. A signal may be raised anywhere except
around a save and after the answer.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from gptsh import threads
from gptsh.config import pricing
from gptsh.content.answer import Answer
from gptsh.content.tool_calls import Tools, calls_to_run
from gptsh.content.verdict import answer_error
from gptsh.context import prompt_size
from gptsh.core import claims, document, sessions, turns, unanswered
from gptsh.errors import (
    Denied,
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
from gptsh.messages import (
    Call,
    Event,
    Message,
    Reasoning,
    Refusal,
    Retrying,
    Text,
    ToolCall,
    final_answer,
    starts_turn,
    sum_costs,
    text_of,
    user_message,
)
from gptsh.process import stdio
from gptsh.process.interrupts import Interrupted, Interrupts
from gptsh.process.reporter import as_error
from gptsh.text import quantity
from gptsh.turn.app import App, TurnSetup
from gptsh.turn.plan import Plan, Planner
from gptsh.turn.show import Screen
from gptsh.turn.title import Titling
from gptsh.turn.turn_options import TurnOptions
from gptsh.turn.turn_session import OpenedSession, start_session

if TYPE_CHECKING:
    from gptsh.context.answer_schema import AnswerSchema
    from gptsh.core.snapshots import SessionEvent
    from gptsh.render.spinner import Spinner
    from gptsh.turn.approval import Approval

_STATE_PERIOD = 2.0  # seconds between two looks at what a server that has not answered is doing
_LOADING = ("loading", "downloading")  # the states of llama.cpp's router that take minutes


class Turn:
    """One question and its answer, or a compaction that the user asked for.

    ``session`` and ``sent_plan``, the last plan that was sent, are valid after a failure, too.
    """

    _planner: Planner  # set by ``run``
    _plan: Plan  # of the current request
    _tools: Tools | None

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
        self.sent_plan: Plan | None = None
        self._app, self._options, self._interrupts, self._setup = app, options, interrupts, setup
        self._only_compacts = options.compact and question is None
        continues_tools = opened.doc is not None and not options.chooses_tools
        self._may_lack_tools = continues_tools or options.tools == ("all",)  # which names no server
        # The messages that this turn knows and adds. ``session.doc`` may have more: saving merges those of other runs.
        self._messages = list(self.session.doc["messages"])
        question_index = turns.question_index(self._messages)
        self._question_id = next((message["id"] for message in self._messages[question_index:]), "")
        self._last_answer: Message | None = None
        self._has_shown_text = False  # in an earlier request of the turn
        self._shown_chars = 0  # of the current answer
        self._unshown_text = ""
        self._costs: list[float | None] = []
        self._timed_out = False
        self._deferred_notes: list[str] = []  # printed after the answer
        self._approval: Approval | None = None
        self._calls: list[Call] = []
        self._fallbacks = [*setup.fallbacks]
        self._sources: dict[str, str | None] = {}  # titles of the pages that the answers of this turn cite, by URL

    def run(self) -> int:
        """Run the whole turn; return 0, or 1 if the complete answer could not be saved.

        Raises GptshError for every other failure, Interrupted for a signal or the deadline. Saves nothing if the
        session does not fit the window and cannot be compacted.
        """
        app, options, interrupts, session, setup = self._app, self._options, self._interrupts, self.session, self._setup
        app.client.deadline = interrupts.deadline
        app.limit_cost(setup.agent)
        if self._only_compacts:
            from gptsh.turn.preview import compact  # noqa: PLC0415 - few sessions are compacted by hand

            screen = Screen(setup.form)
            planner = Planner(app, options, setup, session, None, screen)
            return compact(planner, session, screen, options, app.reporter)
        is_new = document.is_unsaved(session.doc)
        with app.open_tools(setup.servers, interrupts, lenient=self._may_lack_tools) as tools:
            try:
                self._screen = Screen(setup.form)
                self._planner = Planner(app, options, setup, session, tools, self._screen)
                self._plan = self._planner.plan(self._messages, dry=True)
            except (ToolServerError, Interrupted) as err:
                if setup.servers:  # starting them may have taken long: save the question
                    with interrupts.ignored():
                        session.save(fsync=True)
                    err.hint = session.resume_hint(None)
                    app.reporter.session = session.doc["id"] if session.is_saved else None
                raise
            if app.client.budget and not options.dry_run:
                app.client.budget.check(self._plan.request)
            if options.dry_run:
                from gptsh.turn.preview import print_request  # noqa: PLC0415 - most requests are sent

                return print_request(app, self._plan, setup.form)
            if is_new:
                session.pending_events.insert(0, ("session_created", {"session": session.doc["id"]}))
            with self._screen.exclusive(interrupts.before_kill):
                self._ask_and_save(tools)
        rules = app.settings.sessions
        if is_new and session.is_saved and session.filename and (rules.archive_after_days or rules.max_sessions):
            self._archive_old(session.filename)
        return session.failure.exit_code if session.failure else 0

    def _ask_and_save(self, tools: Tools | None) -> None:
        """Save the question, ask, show and save the answer.

        Raises the failure or signal that ended the turn. A reader that left early is not a failure.
        """
        session, schema = self.session, self._setup.form.schema
        failure: BaseException | None = None
        self._tools = tools
        self._writer = self._screen.writer
        session.emit = self._writer.emit
        if tools:
            from gptsh.turn.approval import Approval  # noqa: PLC0415 - few runs have tools

            self._approval = Approval(tools, session.doc)
        self._titling = Titling(self._app, session, self._setup.agent, self._options.config)
        claim = claims.held(claims.turn_of(self._question_id)) if session.is_saved else nullcontext()
        try:
            with claim:
                session.save(("message_recorded", {"id": self._question_id, "role": "user"}), fsync=False)
                # A new compaction was only estimated so far: make its summary and save it.
                plan = self._planner.plan(self._messages) if self._plan.choice.is_new else self._plan
                self._ask_until_answered(plan)
                if schema:
                    self._check_schema(schema)
                self._setup.form.check_block(_final_text(self._last_answer))
        except (GptshError, Interrupted, OSError) as err:
            failure = err
        with self._interrupts.shielded():
            self._interrupts.cancel_deadline()
            failure = self._finish(failure)
        if isinstance(failure, OSError) and not isinstance(failure, BrokenPipeError):
            failure = OutputError(f"the answer cannot be written: {failure.strerror}")
        if isinstance(failure, (GptshError, Interrupted)):
            if self._last_answer is None and session.is_saved and session.filename and self._is_first:
                unanswered.remember_unanswered(session.filename)
            failure.hint = failure.hint or session.resume_hint(self._last_answer)
            raise failure

    # ---- asking

    def _ask_until_answered(self, plan: Plan) -> None:
        """Ask, run the tools that the answer calls, and ask again with their results, until it calls none.

        If the server refuses a request as too long, ask again with a shorter one, at most twice: sizes are estimates.
        """
        rounds = refusals = 0
        while True:
            previous_answer = self._last_answer
            try:
                self._ask(plan)
            except (ModelError, TimedOut) as err:
                plan = self._plan_fallback(err)
                continue
            except TooExpensive as err:
                if rounds == 0:
                    raise
                self.session.save(fsync=True)
                raise Incomplete(str(err)) from None
            except TooLong as err:
                refusals += 1
                may_retry = refusals < 3 and self._last_answer is previous_answer
                shorter = self._planner.refit(err, plan, self._messages) if may_retry else None
                if shorter is None:
                    raise self._planner.explain(err, self._messages) from None
                plan = shorter
                continue
            calls = calls_to_run(self._last_answer, plan.request)
            if not calls:
                return
            refusals, rounds = 0, rounds + 1
            if self._approval is None or rounds >= self._app.settings.max_rounds:
                self.session.save(fsync=True)
                error = f"the model still calls tools after {quantity(rounds, 'round')}"
                raise Incomplete(error, "continue the session, or raise max_rounds under [mcp]")
            self._run_tools(calls, self._approval)
            plan = self._planner.plan(self._messages)

    def _plan_fallback(self, err: GptshError) -> Plan:
        """Plan the request again for the next model that can be asked; this turn stays with it.

        Raises ``err`` if there is none, or if a part of an answer or a tool's result has arrived already.
        """
        is_begun = self._last_answer is not None or not turns.unanswered(self._messages)
        while err.may_fall_back and self._fallbacks and not is_begun:
            agent = self._fallbacks.pop(0)
            try:
                setup = self._setup._replace(agent=self._app.prepared(agent))
                planner = Planner(self._app, self._options, setup, self.session, self._tools, self._screen)
                plan = planner.plan(self._messages)
            except GptshError as unusable:
                stdio.note(f"{agent.model} cannot be asked instead: {unusable}")
                continue
            stdio.note(f"{err}; asking {planner.model} instead")
            self._costs += self._planner.costs
            self._setup, self._planner = setup, planner
            self._titling = Titling(self._app, self.session, setup.agent, self._options.config)
            return plan
        raise err

    def _ask(self, plan: Plan) -> None:
        """Send one request; show the answer as it arrives, and save it, complete or partial."""
        answer, planner = Answer(), self._planner
        partial_reason: str | None = "error"  # None: the server has completed the answer
        self._plan = self.sent_plan = plan
        try:
            with self._screen.spinning(f"waiting for {planner.model}") as spinner:
                if spinner.is_visible and self._app.settings.providers.for_model(planner.model).is_local:
                    threads.start(threading.Thread(target=self._explain_wait, args=(spinner,), daemon=True))
                self._show(self._app.client.ask(plan.request, answer))
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
        except (Interrupted, OSError) as err:
            self._interrupts.cancel_deadline()
            self._timed_out = isinstance(err, Interrupted) and err.by_deadline
            partial_reason = None if answer.finished else "timeout" if self._timed_out else "interrupted"
            if not (answer.finished and self._timed_out):  # else only the usage is missing
                raise
        finally:
            with self._interrupts.shielded():
                if message := answer.message(partial_reason):
                    self._unshown_text = _answer_text(message)[self._shown_chars :]  # arrived as the signal came
                    has_calls = bool(calls_to_run(message, plan.request))
                    self._save_answer(message, fsync=not has_calls)  # the tool results are saved with fsync
        with self._interrupts.shielded(), self._screen.showing():
            self._writer.close()
        if message and not has_calls:
            if failure := answer_error(message):
                raise failure
            self._note_not_offered([str(call["function"].get("name")) for call in message.get("tool_calls") or ()])

    def _explain_wait(self, spinner: "Spinner") -> None:
        """In a thread: let the spinner show that a server of the user's own is loading its model."""
        model, provider = self._planner.model, self._planner.provider
        while spinner.still_waits(_STATE_PERIOD):
            state = self._app.client.model_lists.state(model)
            if state is None:
                return
            spinner.explain(f"{provider} is {state} {model.partition('/')[2]}" if state in _LOADING else "")

    def _show(self, events: Iterator[Event]) -> None:
        """Write the answer as it arrives, each event whole or not at all. Raises what ends the answer early."""
        form = self._setup.form
        self._shown_chars = 0
        for event in events:
            if isinstance(event, Retrying):
                self._screen.spinner.set_text(f"{event.why}; again in {event.seconds:.1f} s")
            elif isinstance(event, (Text, Reasoning, Refusal, ToolCall)):
                self._screen.spinner.set_text("receiving the answer")
                self._titling.answer_begins()
            with self._interrupts.shielded(), self._screen.showing():
                if isinstance(event, (Text, Refusal)):
                    is_plain = not (form.is_buffered or form.is_structured)
                    if self._has_shown_text and not self._shown_chars and is_plain:
                        self._writer.write(Text("\n"))  # separate it from the text of the previous round
                    self._shown_chars += len(event.text)
                self._writer.write(event)
        self._has_shown_text = self._has_shown_text or self._shown_chars > 0

    # ---- tools

    def _run_tools(self, calls: Sequence[Call], approval: "Approval") -> None:
        """Run the approved calls, show the results as they arrive, and save them in the order of the calls."""
        results: dict[str, Message] = {}
        self._calls += calls
        try:
            for event in approval.run(calls, self._screen):
                results[event.message["tool_call_id"]] = event.message
                self._writer.write(event)
        finally:
            with self._interrupts.shielded():
                in_order = [results[call["id"]] for call in calls if call["id"] in results]
                self.session.save(*map(self._append, in_order), fsync=True)

        self._note_not_offered(approval.not_offered)
        approval.not_offered.clear()

    def _note_not_offered(self, names: Sequence[str]) -> None:
        """Print a note after the answer about calls that did not run, if there are any."""
        if names:
            called = ", ".join(dict.fromkeys(names))
            self._deferred_notes.append(f"the model called a tool that was not offered, so it did not run: {called}")

    # ---- --schema

    def _check_schema(self, schema: "AnswerSchema") -> None:
        """Check the answer against the schema; if it does not conform, ask once for a repair. Raises SchemaMismatch."""
        for may_repair in (True, False):
            faults = schema.faults(self._setup.form.select(_final_text(self._last_answer)))
            if not faults:
                return
            mismatch = SchemaMismatch(f"the answer is not what --schema asks: {faults[0]}")
            if self._timed_out or not may_repair:
                raise mismatch
            request = user_message(schema.repair(faults), ())
            request["repair"] = True  # the user did not write it: it starts no turn
            event = self._append(request)
            try:
                plan = self._planner.plan(self._messages)
            except TooLong:
                raise mismatch from None
            self.session.save(event, fsync=False)
            self._ask_until_answered(plan)

    # ---- saving

    def _save_answer(self, message: Message, *, fsync: bool) -> None:
        """Save an answer with its agent, model, provider and cost."""
        planner, usage, choice = self._planner, message.get("usage"), self._plan.choice
        message["agent"], message["model"], message["provider"] = planner.agent.name, planner.model, planner.provider
        message["cost"] = pricing.cost_of(self._app.settings, planner.model, usage) if usage else None
        self._costs.append(message["cost"])
        self._sources |= {page["url"]: page["title"] for page in message.get("sources", ())}
        if usage:
            message["prefix_bytes"] = self._plan.fixed_bytes
            self._writer.emit("usage", usage=usage)
        if choice.record:
            message["compaction"] = choice.record["id"]
        prompt_tokens = usage["prompt"] if usage and planner.provider != "echo" else None  # echo counts words
        if prompt_tokens and prompt_size.was_truncated(prompt_tokens, choice.size, self._plan.request.messages):
            message["server_truncated"] = True
            self._deferred_notes.append(
                f"{planner.provider} read {prompt_tokens:,} tokens of a prompt of about {choice.size.tokens:,}: "
                "it cut the rest without saying so; give it a larger window, or set context_window to the one it has"
            )
        event = self._append(message)
        self._last_answer = self._messages[-1]
        self.session.save(event, ("session_saved", {"session": self.session.doc["id"]}), fsync=fsync)

    def _append(self, message: Message) -> "SessionEvent":
        """Add a message to this turn, whatever other runs add to the session; return the event to emit."""
        message["parent"] = self._messages[-1]["id"]
        usage_delta = {"tokens": message.get("usage")} if message["role"] == "assistant" else None
        self._messages += sessions.append_messages(self.session.doc, [message], usage_delta)
        return "message_recorded", {"id": self._messages[-1]["id"], "role": message["role"]}

    # ---- after the answer

    def _finish(self, failure: BaseException | None) -> BaseException | None:
        """Show the rest, see to the title, write the JSON object, update the memory; return the first failure."""
        if isinstance(failure, (Interrupted, OSError)):
            self._screen.limit_waiting()
        if not isinstance(failure, OSError):
            failure = self._write_safely(partial(self._deliver, failure), failure)
        if failure is None:  # the server may have refused something that was then left out
            agent = self._setup.agent
            self._app.note_adaptations(self._planner.model, agent.params, web=agent.web)
        if ending := self._app.client.ending_note(self._planner.model):
            self._deferred_notes.append(ending)
        for text in self._deferred_notes:
            stdio.note(text)
        self._titling.turn_ends(has_answer=self._last_answer is not None)
        if failure is None and self._approval and self._approval.denied:
            names = ", ".join(dict.fromkeys(self._approval.denied))
            way = "set auto_approve under its [mcp.servers.NAME]"
            advice = "" if self._approval.has_terminal else f"approve it on a terminal, or {way}"
            failure = Denied(f"a tool call was denied: {names}", advice)
        if self._setup.form.is_structured:
            self._app.reporter.reported = True
            failure = self._write_safely(self._writer.close, failure)
            if isinstance(failure, OSError):
                return failure
            result = self._json_result(failure)
            failure_after_json = self._write_safely(partial(self._writer.conclude, result), failure)
            if not self._screen.is_written:
                return failure_after_json
            self._interrupts.discard_pending()
        if failure or not (self.session.is_saved and self._setup.agent.memory):
            return failure
        from gptsh.turn.consolidation import Consolidation  # noqa: PLC0415 - few agents have a memory

        if self._screen.is_written:
            stdio.detach_stdout()
        consolidation = Consolidation(self._app.settings, self._app.client, self._interrupts)
        memory_failure = consolidation.after_turn(self.session)
        return None if self._app.reporter.reported else memory_failure  # the JSON has reported the exit code already

    def _write_safely(self, write: Callable[[], None], failure: BaseException | None) -> BaseException | None:
        """Write something; return the first failure. After a signal a slow reader is no longer waited for."""
        try:
            with self._interrupts.waiting():
                write()
        except Interrupted as err:
            self._screen.limit_waiting()
            return self._write_safely(self._screen.finish, failure or err)
        except OSError as err:
            return failure or err
        return failure

    def _deliver(self, failure: BaseException | None) -> None:
        """Show the rest of the answer, or all of a buffered one; after a failure a buffered one goes to stderr."""
        text, form = _final_text(self._last_answer), self._setup.form
        if self._unshown_text:
            self._writer.write(Text(self._unshown_text))
        self._writer.close()
        if form.is_structured or not form.is_buffered:
            self._screen.finish()
        elif text and failure:
            stdio.write_stderr(text if text.endswith("\n") else f"{text}\n")
        elif selected := form.select(text):
            self._writer.deliver(selected)
        if self._sources and not form.is_structured and stdio.is_terminal(sys.stderr):
            from gptsh.render.list_lines import source_lines  # noqa: PLC0415 - few answers cite pages

            stdio.write_stderr("\n" + "".join(f"{line}\n" for line in source_lines(self._sources)))

    @property
    def _is_first(self) -> bool:
        """Whether the question is the session's first."""
        first = next(filter(starts_turn, self.session.doc["messages"]))
        return bool(first["id"] == self._question_id)

    def _json_result(self, failure: BaseException | None) -> dict[str, Any]:
        """The JSON object of ``-o json``."""
        from gptsh.render import structured  # noqa: PLC0415 - only -o json and jsonl need it

        session, planner, form = self.session, self._planner, self._setup.form
        message: Mapping[str, Any] = self._last_answer or {}
        error = None
        cause = as_error(failure) if isinstance(failure, Interrupted) else failure or session.failure
        if isinstance(cause, GptshError):
            self._app.reporter.add_config_path(cause)
            error = structured.error(str(cause), cause.hint or session.resume_hint(self._last_answer), cause.exit_code)
        return {
            **structured.ANSWER,
            **{key: message.get(key) for key in ("finish_reason", "usage")},
            "id": message.get("id") if session.is_saved else None,
            "session": session.doc["id"] if session.is_saved else None,
            "text": form.select(_final_text(self._last_answer)) if self._last_answer else None,
            "model": planner.model,
            "provider": planner.provider,
            "cost": sum_costs([*self._costs, *planner.costs]),
            "tool_calls": self._calls or message.get("tool_calls", []),
            "sources": [{"url": url, "title": title} for url, title in self._sources.items()],
            "context": self._plan.report(),
            "error": error,
        }

    def _archive_old(self, filename: str) -> None:
        """Archive old sessions after a turn that started the session of this file.

        The reader already has the whole answer, and signals are ignored.
        """
        from gptsh.core import retention  # noqa: PLC0415 - few configurations ask for it

        stdio.detach_stdout()
        with self._interrupts.ignored():
            try:
                retention.archive_old(self._app.settings.sessions, filename)
            except StoreBusy:  # the next new session does it
                return
            except (GptshError, OSError) as err:
                stdio.note(f"no old session was archived: {err}")


def _answer_text(message: Message) -> str:
    """The text of an answer, then its refusal."""
    return text_of(message) + message.get("refusal", "")


def _final_text(message: Message | None) -> str:
    """The same without commentary; empty without an answer."""
    return _answer_text(final_answer(message)) if message else ""
