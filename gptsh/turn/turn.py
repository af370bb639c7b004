"""Ask one question: send requests, run tools, fall back, save the answer, fill in its JSON object."""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from gptsh.config.accounts import Target
from gptsh.config.settings import cost_of
from gptsh.content.answer import CONTENT_FILTER, Answer, answer_error, is_open
from gptsh.context.tokens import Prompt, was_truncated
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
from gptsh.jsonio import JsonObject
from gptsh.messages import Call, Message, Tools, calls_to_run, final_answer, sum_costs, text_of, user_message
from gptsh.render.report import as_error
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.text import quantity
from gptsh.turn.engine import Engine, Setup
from gptsh.turn.options import TurnOptions
from gptsh.turn.prompt import Planner, report_of
from gptsh.turn.screen import Screen
from gptsh.turn.session import Session
from gptsh.turn.titles import Title

if TYPE_CHECKING:
    from gptsh.context.answer_schema import AnswerSchema
    from gptsh.core.snapshots import SessionEvent
    from gptsh.render.writer import Spinner
    from gptsh.turn.approval import Approval

_MAX_REFUSALS = 2  # of a prompt as too long, after which the turn asks with a shorter one: sizes are estimates
_STATE_PERIOD = 2.0  # seconds between two looks at what a server that has not answered is doing
_LOADING = ("loading", "downloading")  # the states of llama.cpp's router that take minutes


class Turn:
    """One question and its answer.

    Every failure and signal is an exception, which ``_ask_and_save`` catches once. A signal may be raised anywhere
    except around a save and after the answer. ``session`` and ``sent_plan``, the last plan that was sent, are valid
    after a failure, too.
    """

    def __init__(
        self,
        engine: Engine,
        options: TurnOptions,
        interrupts: Interrupts,
        session: Session,
        question: Message | None,
        setup: Setup,
    ) -> None:
        """Begin the turn in the session, and save nothing. Raises UsageError if there is nothing to ask."""
        stored = session.stored
        if question is None and not (stored and turns.unfinished(stored["messages"])):
            error = f"no prompt, and session {session.given_ref} has no question without an answer"
            is_terminal = stdio.is_terminal(sys.stdin)
            way = f", or continue it with gptsh -i -s {session.given_ref}" if is_terminal else ""
            raise UsageError(error, f"give words or pipe text in{way}")
        continues_tools = stored is not None and not options.chooses_tools
        self._may_lack_tools = continues_tools or options.tools == ("all",)  # which names no server
        session.begin(question, setup.agent, setup.output.form, options, engine.settings)
        self.session = session
        self.sent_plan: Prompt | None = None
        self._first_plan: Prompt  # what the turn would have sent first, if it sent nothing
        self._engine = engine
        self._options = options
        self._interrupts = interrupts
        self._setup = setup  # of the model that is asked: a fallback replaces it
        self._fallbacks = [*setup.fallbacks]
        # The messages that this turn knows; saving adds those of other runs to ``session.doc``.
        self._messages: list[Message] = list(session.doc["messages"])
        question_at = turns.question_index(self._messages)
        self._question_id = self._messages[question_at]["id"] if self._messages[question_at:] else ""
        self._last_answer: Message | None = None
        self._calls: list[Call] = []  # that ran, or were denied
        self._costs: list[float | None] = []  # of the answers, and of summaries for models that were given up
        self._sources: dict[str, str | None] = {}  # titles of the pages that the answers cite, by URL
        self._notes: list[str] = []  # printed after the answer
        self._timed_out = False
        self._screen: Screen
        self._planner: Planner
        self._title: Title
        self._tools: Tools | None = None
        self._approval: Approval | None = None

    def run(self) -> int:
        """Run the whole turn; return 0, or 1 if the complete answer could not be saved.

        Raises GptshError for every other failure, Interrupted for a signal or the deadline. Saves nothing if the
        session does not fit the window and cannot be compacted.
        """
        engine, session, interrupts = self._engine, self.session, self._interrupts
        engine.client.deadline = interrupts.deadline
        engine.limit_cost(self._setup.agent)
        is_new = document.is_unsaved(session.doc)
        servers = self._setup.servers
        with engine.open_tools(servers, interrupts, lenient=self._may_lack_tools) as self._tools:
            try:
                self._screen = Screen(self._setup.output)
                self._planner = self._new_planner(self._setup)
                plan = self._planner.plan(self._messages, dry=True)
            except (ToolServerError, Interrupted) as err:
                if servers:  # starting them may have taken long
                    self._save_question(err)
                raise
            if self._options.dry_run:
                from gptsh.turn.preview import print_request

                return print_request(engine, plan, self._setup.output)
            if engine.client.budget:
                engine.client.budget.check(plan.request)
            if is_new:
                session.pending_events.insert(0, ("session_created", {"session": session.doc["id"]}))
            with self._screen.exclusive(interrupts.before_kill):
                self._ask_and_save(plan)
        if is_new and session.is_saved:
            self._archive_old()
        return session.failure.exit_code if session.failure else 0

    def _new_planner(self, setup: Setup) -> Planner:
        return Planner(self._engine, self._options, setup, self.session, self._tools, self._screen)

    def _save_question(self, err: ToolServerError | Interrupted) -> None:
        """Save the question of a turn that ends before it asks, and say in the error how to ask it again."""
        with self._interrupts.ignored():
            self.session.save(fsync=True)
        err.hint = self.session.resume_hint(None)
        self._engine.reporter.session = self.session.doc["id"] if self.session.is_saved else None

    def _ask_and_save(self, plan: Prompt) -> None:
        """Save the question, ask, show and save the answer.

        Raises the failure or signal that ended the turn. A reader that left early is not a failure.
        """
        session, interrupts = self.session, self._interrupts
        self._first_plan = plan
        session.emit = self._screen.writer.emit
        self._title = Title(self._engine, session, self._setup.agent, self._options)
        if self._tools:
            from gptsh.turn.approval import Approval

            self._approval = Approval(self._tools, session)
        failure: BaseException | None = None
        claim = locks.claim(locks.claim_of_turn(self._question_id)) if session.is_saved else nullcontext()
        try:
            with claim:
                session.save(("message_recorded", {"id": self._question_id, "role": "user"}), fsync=False)
                self._answer_question(plan)
        except (GptshError, Interrupted, OSError) as err:
            failure = err
        with interrupts.shielded():
            interrupts.cancel_deadline()
            self._engine.client.end_turn()
            failure = self._finish(failure)
        if isinstance(failure, OSError) and not isinstance(failure, BrokenPipeError):
            failure = OutputError(f"the answer cannot be written: {failure.strerror}")
        if isinstance(failure, (GptshError, Interrupted)):
            failure.hint = failure.hint or session.resume_hint(self._last_answer)
            raise failure

    # ---- until there is an answer

    def _answer_question(self, plan: Prompt) -> None:
        """Ask until there is an answer that ``--schema`` and ``--block`` accept. Raises the failure or signal."""
        if plan.is_new:  # a new compaction was only estimated so far: make its summary and save it
            plan = self._plan()
        self._ask_until_answered(plan)
        output = self._setup.output
        if output.schema:
            self._check_schema(output.schema)
        output.check_block(self._final_text)

    def _plan(self) -> Prompt:
        return self._planner.plan(self._messages)

    def _ask_until_answered(self, plan: Prompt) -> None:
        """Ask, run the tools that the answer calls, and ask again with their results, until it calls none."""
        rounds = 0
        while True:
            try:
                request_plan = self._ask_until_accepted(plan)
            except TooExpensive as err:
                if rounds == 0:
                    raise
                self.session.save(fsync=True)
                raise Incomplete(str(err)) from None
            calls = calls_to_run(self._last_answer, request_plan.request)
            if not calls:
                return
            rounds += 1
            if self._approval is None or rounds >= self._engine.settings.max_rounds:
                self.session.save(fsync=True)
                error = f"the model still calls tools after {quantity(rounds, 'round')}"
                raise Incomplete(error, "continue the session, or raise max_rounds under [mcp]")
            self._run_tools(calls, self._approval)
            plan = self._plan()

    def _ask_until_accepted(self, plan: Prompt) -> Prompt:
        """Send a request, and as long as nothing of an answer arrives, a shorter one or one to another model.

        Return the plan of the request that was answered.
        """
        refusals = 0
        while True:
            previous_answer = self._last_answer
            try:
                self._ask(plan)
                return plan
            except (ModelError, TimedOut) as err:
                has_answer = self._last_answer is not previous_answer
                if not has_answer and self._planner.not_sent.learn(err, self._messages):
                    plan = self._plan()
                else:
                    plan = self._plan_fallback(err)
            except TooLong as err:
                refusals += 1
                may_retry = refusals <= _MAX_REFUSALS and self._last_answer is previous_answer
                shorter = self._planner.refit(err, plan, self._messages) if may_retry else None
                if shorter is None:
                    raise self._planner.explain(err, self._messages) from None
                plan = shorter

    def _plan_fallback(self, err: GptshError) -> Prompt:
        """Plan the request again for the next model that can be asked; this turn stays with it.

        Raises ``err`` if there is none, or if a part of an answer or a tool's result has arrived already.
        """
        is_begun = self._last_answer is not None or not turns.unanswered(self._messages)
        while err.may_fall_back and self._fallbacks and not is_begun:
            agent = self._fallbacks.pop(0)
            try:
                setup = self._setup._replace(agent=self._engine.prepared(agent))
                planner = self._new_planner(setup)
                plan = planner.plan(self._messages)
            except GptshError as unusable:
                stdio.note(f"{agent.model} cannot be asked instead: {unusable}")
                continue
            secrets = sorted(self._setup.agent.params.keys() - setup.agent.params.keys())
            without = f", without {', '.join(secrets)}" if secrets else ""
            stdio.note(f"{err}; asking {planner.model} instead{without}")
            self._costs += self._planner.costs
            self._setup = setup
            self._planner = planner
            self._title = Title(self._engine, self.session, setup.agent, self._options)
            return plan
        raise err

    def _check_schema(self, schema: "AnswerSchema") -> None:
        """Check the answer against the schema; if it does not conform, ask once for a repair. Raises SchemaMismatch."""
        for may_repair in (True, False):
            faults = schema.faults(self._setup.output.select(self._final_text))
            if not faults:
                return
            mismatch = SchemaMismatch(f"the answer is not what --schema asks: {faults[0]}")
            if self._timed_out or not may_repair:
                raise mismatch
            request = user_message(schema.repair(faults), ())
            request["repair"] = True  # the user did not write it: it starts no turn
            event = self._append(request)
            try:
                plan = self._plan()
            except TooLong:
                raise mismatch from None
            self.session.save(event, fsync=False)
            self._ask_until_answered(plan)

    # ---- one request

    def _ask(self, plan: Prompt) -> None:
        """Send one request, show and save its answer. Raises GptshError for one that is incomplete or empty."""
        previous_answer = self._last_answer
        self._receive(plan)
        self._screen.close_answer()
        answer = self._last_answer
        if answer is None or answer is previous_answer or calls_to_run(answer, plan.request):
            return
        if failure := answer_error(answer):
            raise failure
        if self._target.reads_think_tags and is_open(text_of(answer)):
            raise Incomplete("the answer is incomplete: its reasoning has no end")
        self._note_not_offered([str(call["function"].get("name")) for call in answer.get("tool_calls") or ()])

    @property
    def _target(self) -> Target:
        """What is asked: a model, at a provider."""
        return self._engine.settings.providers.for_model(self._planner.model)

    def _receive(self, plan: Prompt) -> None:
        """Send one request; show the answer as it arrives, and save it, complete or partial."""
        answer, model = Answer(), self._planner.model
        partial_reason: str | None = "error"  # None: the server has completed the answer
        self.sent_plan = plan
        try:
            with self._screen.spinning(f"waiting for {model}") as spinner:
                if spinner.is_visible and self._target.is_self_hosted:
                    threading.Thread(target=self._explain_wait, args=(spinner,), daemon=True).start()
                self._screen.show(self._engine.client.ask(plan.request, answer), self._title.answer_begins)
            partial_reason = None
        except NoAnswer as err:
            if plan.budget.window is not None:
                raise
            error = f"{model} answered nothing to a prompt of about {plan.tokens:,} tokens"
            advice = f"if that is too long for it, set context_window under [providers.{self._planner.provider}]"
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
            if answer.finished:
                partial_reason = None
            else:
                partial_reason = "timeout" if self._timed_out else "interrupted"
            if not (answer.finished and self._timed_out):  # else only the usage is missing
                raise
        finally:
            with self._interrupts.shielded():
                message = answer.message(partial_reason)
                self._screen.remember_rest(answer.text)
                if message is not None:
                    self._save_answer(message, plan)

    def _explain_wait(self, spinner: "Spinner") -> None:
        """In a thread: let the spinner show that a self-hosted server is loading its model."""
        model, provider = self._planner.model, self._planner.provider
        while spinner.still_waits(_STATE_PERIOD):
            state = self._engine.client.model_lists.state(model)
            if state is None:
                return
            spinner.explain(f"{provider} is {state} {model.partition('/')[2]}" if state in _LOADING else "")

    # ---- what is added to the session

    @property
    def _final_text(self) -> str:
        """The text of the last answer without commentary, then its refusal; empty without an answer."""
        if self._last_answer is None:
            return ""
        answer = final_answer(self._last_answer)
        return text_of(answer) + answer.get("refusal", "")

    def _append(self, message: Message) -> "SessionEvent":
        """Add a message to this turn, whatever other runs add to the session; return the event to emit."""
        message["parent"] = self._messages[-1]["id"]
        usage_delta = {"tokens": message.get("usage")} if message["role"] == "assistant" else None
        self._messages += sessions.append_messages(self.session.doc, [message], usage_delta)
        return "message_recorded", {"id": self._messages[-1]["id"], "role": message["role"]}

    def _save_answer(self, message: Message, plan: Prompt) -> None:
        """Save an answer, complete or partial, with its agent, model, provider and cost."""
        session, planner = self.session, self._planner
        planner.not_sent.remember()
        usage = message.get("usage")
        message["agent"] = planner.agent.name
        message["model"] = planner.model
        message["provider"] = planner.provider
        message["cost"] = cost_of(self._engine.settings, planner.model, usage) if usage else None
        self._costs.append(message["cost"])
        self._sources |= {page["url"]: page["title"] for page in message.get("sources", ())}
        if usage:
            message["prefix_bytes"] = plan.fixed_bytes
            session.emit("usage", usage=usage)
        if plan.compaction:
            message["compaction"] = plan.compaction["id"]
        self._mark_truncated(message, plan)
        event = self._append(message)
        self._last_answer = self._messages[-1]
        has_calls = bool(calls_to_run(message, plan.request))
        # The tool results are saved with fsync.
        session.save(event, ("session_saved", {"session": session.doc["id"]}), fsync=not has_calls)

    def _mark_truncated(self, message: Message, plan: Prompt) -> None:
        """Mark an answer to a prompt that the server has cut silently; its report of tokens is of no use later."""
        usage, provider = message.get("usage"), self._planner.provider
        prompt_tokens = usage["prompt"] if usage and provider != "echo" else None  # echo counts words
        if prompt_tokens and was_truncated(prompt_tokens, plan):
            message["server_truncated"] = True
            self._notes.append(
                f"{provider} read {prompt_tokens:,} tokens of a prompt of about {plan.tokens:,}: "
                "it cut the rest without saying so; give it a larger window, or set context_window to the one it has"
            )

    # ---- tools

    def _run_tools(self, calls: Sequence[Call], approval: "Approval") -> None:
        """Run the approved calls, show the results as they arrive, and save them in the order of the calls."""
        results: dict[str, Message] = {}
        self._calls += calls
        try:
            for event in approval.run(calls, self._screen):
                results[event.message["tool_call_id"]] = event.message
                self._screen.writer.write(event)
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
            self._notes.append(f"the model called a tool that was not offered, so it did not run: {called}")

    # ---- after the answer

    def _finish(self, failure: BaseException | None) -> BaseException | None:
        """Show the rest, see to the title, write the JSON object, update the memory; return the first failure."""
        screen = self._screen
        failure = self._show_rest(failure)
        self._title.turn_ends(has_answer=self._last_answer is not None)
        failure = failure or self._denial()
        if self._setup.output.is_structured:
            self._engine.reporter.reported = True
            failure = screen.write_safely(screen.writer.close, failure)
            if isinstance(failure, OSError):
                return failure
            conclude: Callable[[], None] = partial(screen.writer.conclude, self._json_result(failure))
            failure_after_json = screen.write_safely(conclude, failure)
            if not screen.is_written:
                return failure_after_json
            self._interrupts.discard_pending()
        if failure or not (self.session.is_saved and self._setup.agent.memory):
            return failure
        return self._update_memory()

    def _show_rest(self, failure: BaseException | None) -> BaseException | None:
        """Show what of the answer is not shown yet, then the notes; return the first failure."""
        screen, model = self._screen, self._planner.model
        if isinstance(failure, (Interrupted, OSError)):
            screen.limit_waiting()
        if not isinstance(failure, OSError):
            has_failed = failure is not None
            deliver = partial(screen.deliver, self._final_text, self._sources, has_failed=has_failed)
            failure = screen.write_safely(deliver, failure)
        if failure is None:  # the server may have refused something that was then left out
            agent = self._setup.agent
            self._engine.note_adaptations(model, agent.params, web=agent.web)
        if ending := self._engine.client.ending_note(model):
            self._notes.append(ending)
        for text in self._notes:
            stdio.note(text)
        return failure

    def _denial(self) -> Denied | None:
        """The failure of a turn in which a tool call was denied."""
        approval = self._approval
        if approval is None or not approval.denied:
            return None
        names = ", ".join(dict.fromkeys(approval.denied))
        way = "approve it on a terminal, or set auto_approve under its [mcp.servers.NAME]"
        return Denied(f"a tool call was denied: {names}", "" if approval.has_terminal else way)

    def _update_memory(self) -> BaseException | None:
        """Update the agent's memory if that is due; return a signal that the JSON object has not reported."""
        from gptsh.turn.small_model import Consolidation

        if self._screen.is_written:
            stdio.detach_stdout()
        consolidation = Consolidation(self._engine.settings, self._engine.client, self._interrupts)
        interrupted = consolidation.after_turn(self.session)
        return None if self._engine.reporter.reported else interrupted  # the JSON has reported the exit code already

    def _json_result(self, failure: BaseException | None) -> JsonObject:
        """The JSON object of ``-o json``."""
        from gptsh.render import structured

        session, planner = self.session, self._planner
        message: Mapping[str, object] = self._last_answer or {}
        error = None
        cause = as_error(failure) if isinstance(failure, Interrupted) else failure or session.failure
        if isinstance(cause, GptshError):
            self._engine.reporter.add_config_path(cause)
            hint = cause.hint or session.resume_hint(self._last_answer)
            error = structured.error(str(cause), hint, cause.exit_code)
        return {
            **structured.ANSWER,
            "finish_reason": message.get("finish_reason"),
            "usage": message.get("usage"),
            "id": message.get("id") if session.is_saved else None,
            "session": session.doc["id"] if session.is_saved else None,
            "text": self._setup.output.select(self._final_text) if self._last_answer else None,
            "model": planner.model,
            "provider": planner.provider,
            "cost": sum_costs([*self._costs, *planner.costs]),
            "tool_calls": self._calls or message.get("tool_calls", []),
            "sources": [{"url": url, "title": title} for url, title in self._sources.items()],
            "context": report_of(self.sent_plan or self._first_plan),
            "error": error,
        }

    def _archive_old(self) -> None:
        """Archive old sessions, as ``[sessions]`` says, after a turn that started one.

        The reader already has the whole answer, and signals are ignored.
        """
        rules, filename = self._engine.settings.sessions, self.session.filename
        if filename is None or not (rules.archive_after_days or rules.max_sessions):
            return
        from gptsh.core import retention

        stdio.detach_stdout()
        with self._interrupts.ignored():
            try:
                retention.archive_old(rules, filename)
            except StoreBusy:  # the next new session does it
                return
            except (GptshError, OSError) as err:
                stdio.note(f"no old session was archived: {err}")
