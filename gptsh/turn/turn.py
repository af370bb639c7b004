"""Ask one question: send requests, run tools, fall back, save and show the answer."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from gptsh.config.settings import cost_of
from gptsh.content.answer import CONTENT_FILTER, Answer, answer_error, is_open
from gptsh.context.tokens import Prompt, was_truncated
from gptsh.core import document, locks, sessions, turns
from gptsh.errors import (
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
from gptsh.messages import (
    Call,
    Message,
    Request,
    Tools,
    answer_text,
    calls_to_run,
    sum_costs,
    text_of,
    user_message,
)
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

_MAX_REFUSALS = 2  # of a prompt as too long, after which the turn asks with a shorter one
_STATE_PERIOD = 2.0  # seconds between two looks at what a server that has not answered is doing
_FROM_OUTSIDE = (Interrupted, OSError)  # a signal, the deadline, a reader that left
_LOADING = ("loading", "downloading")  # the states of llama.cpp's router that take minutes


class Turn:
    """One question and its answer.

    Every failure and signal is an exception. ``_ask_and_save`` catches the one that ends the
    asking, and ``_finish`` those that end the showing; the first of them ends the turn. A signal
    may be raised anywhere except around a save and after the answer. ``session`` and ``prompt``,
    the newest one that was sent, are valid after a failure, too.
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
        """Begin the turn in the session, and save nothing. Raises UsageError.

        If there is no question, the turn answers the one that the session has left unanswered.
        """
        stored = session.stored
        if question is None and not (stored and turns.unfinished(stored["messages"])):
            problem = f"session {session.given_ref} has no unanswered question"
            raise UsageError(problem, "add a prompt, or pipe text in")
        # A session continues without some of its tools; ``all`` names no server.
        continues_tools = stored is not None and not options.chooses_tools
        self._may_lack_tools = continues_tools or options.tools == ("all",)
        session.begin(question, setup.agent, setup.output.form, options, engine.settings)
        self.session = session
        self.prompt: Prompt | None = None
        self._engine = engine
        self._options = options
        self._interrupts = interrupts
        self._setup = setup  # of the model that is asked: a fallback replaces it
        self._fallbacks = [*setup.fallbacks]
        self._messages = session.messages
        self._last_answer: Message | None = None
        self._calls: list[Call] = []  # that ran, or were denied
        self._sources: dict[str, str | None] = {}  # titles of the cited pages, by URL
        self._not_offered: list[str] = []  # names of tools that were called, and do not exist
        self._notes: list[str] = []  # printed after the answer
        self._timed_out = False  # after the whole answer, so that nothing more is asked
        self._failure: GptshError | Interrupted | OSError | None = None  # the first one
        self._screen = Screen(setup.output)
        self._title = Title(engine, session, options)
        self._planner: Planner
        self._tools: Tools | None = None
        self._approval: Approval | None = None

    def run(self) -> int:
        """Run the whole turn; return 0, or 1 if the complete answer could not be saved.

        Raises GptshError for every other failure, Interrupted for a signal or the deadline. Saves
        nothing if the session does not fit the window and cannot be compacted.
        """
        engine = self._engine
        session = self.session
        interrupts = self._interrupts
        engine.client.deadline = interrupts.deadline
        is_new = document.was_never_saved(session.doc)
        servers = self._setup.servers
        with engine.open_tools(servers, interrupts, lenient=self._may_lack_tools) as self._tools:
            try:
                self._planner = self._begin_planning(self._setup)
                # Too long is exit 6 here, before anything is saved.
                self.prompt = self._planner.estimate()
            except (ToolServerError, Interrupted) as err:
                if servers:  # starting them may have taken long
                    self._save_question(err)
                raise
            if self._options.dry_run:
                from gptsh.turn.preview import print_request

                print_request(engine, self.prompt, self._setup.output)
                return 0
            if engine.client.budget:
                engine.client.budget.check(self.prompt.request)
            with self._screen.exclusive(interrupts.before_kill):
                self._ask_and_save(self.prompt)
        rules = engine.settings.sessions
        archives = rules.archive_after_days or rules.max_sessions
        if is_new and session.is_saved and session.filename and archives:
            self._archive_old(session.filename)
        return session.failure.exit_code if session.failure else 0

    def _begin_planning(self, setup: Setup) -> Planner:
        """Return a planner for the model of a setup. Raises as ``Planner.begin``."""
        planner = Planner(
            self._engine,
            self._options,
            setup,
            session=self.session,
            tools=self._tools,
            screen=self._screen,
        )
        planner.begin()
        return planner

    def _save_question(self, err: ToolServerError | Interrupted) -> None:
        """Save the question of a turn that ends before it asks; the error says how to ask again."""
        with self._interrupts.ignored():
            self.session.save(fsync=True)
        err.hint = self.session.resume_hint(None)
        session_id = self.session.doc["id"] if self.session.is_saved else None
        self._engine.reporter.session = session_id

    def _ask_and_save(self, prompt: Prompt) -> None:
        """Save the question, ask until there is an answer that the options accept, and conclude.

        Each answer is saved in ``_receive``, complete or partial, each round of tool results in
        ``_run_tools``. Raises the failure or signal that ended the turn. A reader that left early
        is not a failure.
        """
        session = self.session
        output = self._setup.output
        session.emit = self._screen.writer.emit
        if self._tools:
            from gptsh.turn.approval import Approval

            self._approval = Approval(self._tools, session, self._not_offered)
        question = self._messages[turns.question_index(self._messages)]
        # Other runs do not send a question that is claimed, as long as it has no answer.
        claim = locks.claim_of_turn(question["id"])
        try:
            with locks.claim(claim) if session.saves else nullcontext():
                recorded = {"id": question["id"], "role": "user"}
                session.save(("message_recorded", recorded), fsync=False)
                if prompt.is_new:  # its summary was only estimated: make it and save it
                    prompt = self._planner.plan()
                self._ask_until_answered(prompt)
                if output.schema:
                    self._check_schema(output.schema)
                output.check_block(self._text)
        except (GptshError, Interrupted, OSError) as err:
            self._failure = err
        # What has arrived is on disk, or ``session.failure`` says why not. From here on a signal
        # waits, except while a slow reader is waited for.
        with self._interrupts.shielded():
            self._interrupts.cancel_deadline()
            self._engine.client.end_turn()
            self._finish()
        failure = self._failure
        if isinstance(failure, OSError) and not isinstance(failure, BrokenPipeError):
            failure = OutputError(f"the answer cannot be written: {failure.strerror}")
        if isinstance(failure, (GptshError, Interrupted)):
            failure.hint = failure.hint or session.resume_hint(self._last_answer)
            raise failure

    # ---- until there is an answer

    def _ask_until_answered(self, prompt: Prompt) -> None:
        """Ask, run the tools that the answer calls, and ask again, until it calls none."""
        rounds = 0
        while True:
            try:
                request = self._ask(prompt)
            except TooExpensive as err:
                if rounds == 0:
                    raise
                self.session.save(fsync=True)
                raise Incomplete(str(err)) from None
            calls = calls_to_run(self._last_answer, request)
            if not calls:
                return
            rounds += 1
            if self._approval is None or rounds >= self._engine.settings.max_rounds:
                self.session.save(fsync=True)
                error = f"the model still calls tools after {quantity(rounds, 'round')}"
                raise Incomplete(error, "continue the session, or raise max_rounds under [mcp]")
            self._run_tools(calls, self._approval)
            prompt = self._planner.plan()

    def _ask(self, prompt: Prompt) -> Request:
        """Send the request; until an answer starts, fall back to a shorter prompt or another model.

        Return the request that was answered.
        """
        refusals = 0
        answer_before = self._last_answer
        while True:
            try:
                self._receive(prompt)
                return prompt.request
            except (ModelError, TimedOut) as err:
                if self._last_answer is not answer_before:  # a part of it has arrived, and is saved
                    raise
                if self._planner.exclusions.learn(err, self._messages):
                    # Without the images that the server has refused.
                    prompt = self._planner.plan()
                else:
                    prompt = self._plan_fallback(err)
            except TooLong as err:
                # The window is smaller than it seemed: the refusal says how large it is, as a rule.
                refusals += 1
                is_final = refusals > _MAX_REFUSALS or self._last_answer is not answer_before
                shorter = None if is_final else self._planner.refit(err, prompt)
                if shorter is None:
                    raise self._planner.explain(err) from None
                prompt = shorter

    def _plan_fallback(self, err: GptshError) -> Prompt:
        """Make the prompt again for the next model that can be asked; the turn stays with it.

        Raises ``err`` if there is none, or if the turn has an answer or a tool's result already.
        """
        has_begun = self._last_answer is not None or not turns.unanswered(self._messages)
        if has_begun or not err.may_fall_back:
            raise err
        while self._fallbacks:
            agent = self._fallbacks.pop(0)
            try:
                setup = self._setup._replace(agent=self._engine.with_full_model(agent))
                self._engine.print_notes(self._engine.adaptations(setup.agent))
                planner = self._begin_planning(setup)
                prompt = planner.plan()
            except GptshError as unusable:
                stdio.note(f"cannot fall back to {agent.model}: {unusable}")
                continue
            # This model is sent no secrets, nor the list of models that OpenRouter asks itself.
            dropped = self._setup.agent.params.keys() - setup.agent.params.keys()
            without = f", without {', '.join(sorted(dropped))}" if dropped else ""
            stdio.note(f"{err}; asking {planner.model} instead{without}")
            self._setup = setup
            self._planner = planner
            return prompt
        raise err

    def _check_schema(self, schema: "AnswerSchema") -> None:
        """Check the answer against the schema; if it does not conform, ask once for a repair.

        Raises SchemaMismatch.
        """
        faults = schema.faults(self._setup.output.select(self._text))
        if faults and not self._timed_out:
            self._ask_for_repair(schema.repair(faults))
            faults = schema.faults(self._setup.output.select(self._text))
        if faults:
            raise SchemaMismatch(f"the answer does not match --schema: {faults[0]}")

    def _ask_for_repair(self, text: str) -> None:
        """Ask for the answer again, unless the prompt is too long with that."""
        request = user_message(text, ())
        request["repair"] = True  # the user did not write it: it starts no turn
        event = self._append(request)
        try:
            prompt = self._planner.plan()
        except TooLong:
            return
        self.session.save(event, fsync=False)
        self._ask_until_answered(prompt)

    # ---- one request

    def _receive(self, prompt: Prompt) -> None:
        """Send one request; show its answer as it arrives, and save it, complete or partial.

        Raises GptshError for an answer that is incomplete or empty, and what ended it early.
        """
        answer = Answer()
        self.prompt = prompt
        try:
            self._show_while_arriving(prompt.request, answer)
        except BaseException as err:  # whatever it is, what has arrived is saved
            message = self._save_arrived(answer, prompt, err)
            if isinstance(err, NoAnswer):
                raise self._planner.explain_silence(err, prompt) from None
            by_deadline = isinstance(err, Interrupted) and err.by_deadline
            if not (by_deadline and answer.finished):
                raise
            self._timed_out = True  # which is no failure: only the usage is missing
        else:
            message = self._save_arrived(answer, prompt, None)
        self._screen.close_answer()
        if message is not None and not calls_to_run(message, prompt.request):
            self._check_answer(message)

    def _save_arrived(
        self,
        answer: Answer,
        prompt: Prompt,
        failure: BaseException | None,
    ) -> Message | None:
        """Save what has arrived until a failure, or the whole answer; return it, None for nothing.

        A second signal waits for that.
        """
        with self._interrupts.shielded():
            if isinstance(failure, _FROM_OUTSIDE):
                self._interrupts.cancel_deadline()
            if isinstance(failure, Filtered):
                answer.finish(CONTENT_FILTER)  # so that the question is known to be refused
            message = answer.message(_partial_reason(failure, answer))
            if message is not None:
                self._save_answer(message, prompt)
        return message

    def _show_while_arriving(self, request: Request, answer: Answer) -> None:
        """Send a request; collect its answer in ``answer``, and show it as it arrives."""
        planner = self._planner
        begin_title = partial(self._title.begin, self._setup.agent)
        with self._screen.spinning(planner.model) as spinner:
            if spinner.is_visible and planner.target.is_self_hosted:
                explain = partial(self._explain_wait, spinner)
                threading.Thread(target=explain, daemon=True).start()
            events = self._engine.client.ask(request, answer)
            self._screen.show(events, answer, begin_title)

    def _check_answer(self, answer: Message) -> None:
        """Raise GptshError for an answer that is cut off, refused or empty.

        The calls of such an answer cannot run, so remember their names for a note.
        """
        failure = answer_error(answer)
        if failure:
            raise failure
        if self._planner.target.reads_think_tags and is_open(text_of(answer)):
            raise Incomplete("the answer is incomplete: its reasoning has no end")
        for call in answer.get("tool_calls") or ():
            self._not_offered.append(str(call["function"].get("name")))

    def _explain_wait(self, spinner: "Spinner") -> None:
        """In a thread: let the spinner show that a self-hosted server is loading its model."""
        model = self._planner.model
        provider = self._planner.provider
        while spinner.still_waits(_STATE_PERIOD):
            state = self._engine.client.model_lists.state(model)
            if state is None:
                return
            _, _, name = model.partition("/")
            reason = f"{provider} is {state} {name}" if state in _LOADING else ""
            spinner.explain(reason)

    # ---- what is added to the session

    @property
    def _text(self) -> str:
        """The text of the last answer, "" without one."""
        return answer_text(self._last_answer) if self._last_answer else ""

    def _append(self, message: Message) -> "SessionEvent":
        """Add a message to this turn, whatever other runs add to the session; return the event."""
        message["parent"] = self._messages[-1]["id"]
        usage_delta = None
        if message["role"] == "assistant":
            usage_delta = {"tokens": message.get("usage")}
        [added] = sessions.append_messages(self.session.doc, [message], usage_delta)
        self._messages.append(added)
        return "message_recorded", {"id": added["id"], "role": added["role"]}

    def _save_answer(self, message: Message, prompt: Prompt) -> None:
        """Save an answer, complete or partial, with its agent, model, provider and cost."""
        session = self.session
        planner = self._planner
        planner.exclusions.remember()
        usage = message.get("usage")
        message["agent"] = planner.agent.name
        message["model"] = planner.model
        message["provider"] = planner.provider
        message["cost"] = cost_of(self._engine.settings, planner.model, usage) if usage else None
        self.session.costs.append(message["cost"])
        for page in message.get("sources", ()):
            self._sources[page["url"]] = page["title"]
        if usage:
            message["prefix_bytes"] = prompt.fixed_bytes
            session.emit("usage", usage=usage)
            read = usage["prompt"]
            # The usage of echo counts words.
            if planner.provider != "echo" and read and was_truncated(read, prompt):
                message["server_truncated"] = True  # its report of tokens is of no use later
                self._note_truncation(read, prompt.tokens)
        if prompt.compaction:
            message["compaction"] = prompt.compaction["id"]
        recorded = self._append(message)
        self._last_answer = self._messages[-1]
        saved = ("session_saved", {"session": session.doc["id"]})
        # The results of its tool calls are written through to the disk, and it with them.
        has_calls = bool(calls_to_run(message, prompt.request))
        session.save(recorded, saved, fsync=not has_calls)

    def _note_truncation(self, read: int, sent: int) -> None:
        """Note after the answer how many of the tokens that were sent the server has read."""
        self._notes.append(
            f"{self._planner.provider} silently truncated the prompt: it read {read:,} of about "
            f"{sent:,} tokens; give it a larger window, or set context_window to its real size"
        )

    # ---- tools

    def _run_tools(self, calls: Sequence[Call], approval: "Approval") -> None:
        """Run the approved calls, show the results as they arrive, and save them in call order."""
        results: dict[str, Message] = {}
        self._calls += calls
        try:
            for event in approval.run(calls, self._screen):
                results[event.message["tool_call_id"]] = event.message
                self._screen.writer.write(event)
        finally:
            # After Ctrl-C the calls without a result stay open: the session continues with them.
            with self._interrupts.shielded():
                recorded = []
                for call in calls:
                    if call["id"] in results:
                        recorded.append(self._append(results[call["id"]]))
                self.session.save(*recorded, fsync=True)

    # ---- after the answer

    def _finish(self) -> None:
        """Show the rest, see to the title, write the JSON object, update the memory.

        All but the title is saved before. A failure ends only its own step, and the turn ends with
        the first one; no memory is updated after a failure.
        """
        self._show_rest()
        self._title.end(has_answer=self._last_answer is not None)
        if self._failure is None and self._approval:
            self._failure = self._approval.denial()
        if self._setup.output.is_structured:
            self._write_json()
        if self._failure is None and self.session.is_saved and self._setup.agent.memory:
            self._update_memory()

    def _write(self, write: Callable[[], None]) -> None:
        """Write a part of the output; a failure counts unless the turn has failed before."""
        failure = self._screen.write_safely(write)
        if self._failure is None:
            self._failure = failure

    def _show_rest(self) -> None:
        """Show what of the answer is not shown yet, then the notes."""
        screen = self._screen
        failure = self._failure
        if isinstance(failure, (Interrupted, OSError)):
            screen.limit_waiting()
        if not isinstance(failure, OSError):
            has_failed = failure is not None
            self._write(partial(screen.deliver, self._text, self._sources, has_failed=has_failed))
        if self._failure is None:  # the server may have refused something that was then left out
            self._engine.print_notes(self._engine.adaptations(self._setup.agent))
        if self._not_offered:
            called = ", ".join(dict.fromkeys(self._not_offered))
            stdio.note(f"the model called a tool that was not offered, so it did not run: {called}")
        for text in self._notes:
            stdio.note(text)
        ending = self._engine.client.ending_note(self._planner.model)
        if ending:
            stdio.note(ending)

    def _write_json(self) -> None:
        """Write the rest of the events, and the JSON object with the failure of the turn."""
        screen = self._screen
        self._engine.reporter.reported = True
        self._write(screen.writer.close)
        if isinstance(self._failure, OSError):  # nobody reads the object
            return
        reported = self._failure
        self._write(partial(screen.writer.conclude, self._json_result(reported)))
        if screen.is_written:  # what it says is final: a signal that came during it is dropped
            self._failure = reported
            self._interrupts.discard_pending()

    def _update_memory(self) -> None:
        """Update the agent's memory if that is due; a signal counts unless JSON says otherwise."""
        from gptsh.turn.small_model import Consolidation

        if self._screen.is_written:
            stdio.detach_stdout()
        consolidation = Consolidation(self._engine.settings, self._engine.client, self._interrupts)
        interrupted = consolidation.after_turn(self.session)
        if not self._engine.reporter.reported:
            self._failure = interrupted

    def _json_result(self, failure: GptshError | Interrupted | None) -> JsonObject:
        """Return the JSON object of ``-o json``, with the failure of the turn or of its save."""
        from gptsh.render import structured

        session = self.session
        planner = self._planner
        message: Mapping[str, object] = self._last_answer or {}
        error = None
        cause = failure or session.failure
        if isinstance(cause, Interrupted):
            cause = as_error(cause)
        if cause:
            self._engine.reporter.add_config_path(cause)
            error = structured.error(cause, cause.hint or session.resume_hint(self._last_answer))
        return {
            **structured.ANSWER,
            "finish_reason": message.get("finish_reason"),
            "usage": message.get("usage"),
            "id": message.get("id") if session.is_saved else None,
            "session": session.doc["id"] if session.is_saved else None,
            "text": self._setup.output.select(self._text) if self._last_answer else None,
            "model": planner.model,
            "provider": planner.provider,
            "cost": sum_costs(session.costs),
            "tool_calls": self._calls or message.get("tool_calls", []),
            "sources": [{"url": url, "title": title} for url, title in self._sources.items()],
            "context": report_of(self.prompt) if self.prompt else None,
            "error": error,
        }

    def _archive_old(self, filename: str) -> None:
        """Archive old sessions, as ``[sessions]`` says, after a turn that started one.

        The reader already has the whole answer, and signals are ignored.
        """
        from gptsh.core import retention

        stdio.detach_stdout()
        with self._interrupts.ignored():
            try:
                retention.archive_old(self._engine.settings.sessions, filename)
            except StoreBusy:  # the next new session does it
                return
            except (GptshError, OSError) as err:
                stdio.note(f"no old session was archived: {err}")


def _partial_reason(failure: BaseException | None, answer: Answer) -> str | None:
    """Return why an answer is partial; None if the server has completed it."""
    if failure is None:
        return None
    if answer.finished and isinstance(failure, (*_FROM_OUTSIDE, Filtered)):
        return None
    if isinstance(failure, TimedOut):
        return "timeout"
    if isinstance(failure, Interrupted) and failure.by_deadline:
        return "timeout"
    return "interrupted" if isinstance(failure, _FROM_OUTSIDE) else "error"
