"""A turn: what is sent planned, the question saved, the model asked, its tools run, the answer shown and saved.

What ends it before its time is an exception, which is caught once, in ``Turn._ask_and_save``. A signal may be raised
anywhere but around a save and behind the answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gptsh.cli import stdio
from gptsh.cli.app import App, TurnSetup
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.options import Flags
from gptsh.cli.plan import Plan, Planner
from gptsh.cli.reporter import as_error
from gptsh.cli.session import OpenedSession, start_session
from gptsh.cli.title import title_thread
from gptsh.config import settings
from gptsh.content.answer import Answer, Tools, calls_to_run, shortcoming
from gptsh.context import tokens
from gptsh.core import document, sessions
from gptsh.errors import (
    Denied,
    GptshError,
    Incomplete,
    Misshapen,
    NoAnswer,
    OutputError,
    StoreBusy,
    TimedOut,
    TooLong,
    ToolServerError,
    UsageError,
)
from gptsh.messages import (
    BROKEN_OFF,
    Call,
    Event,
    Message,
    Reasoning,
    Refusal,
    Retrying,
    Text,
    ToolCall,
    new_message_id,
    starts_turn,
    sum_costs,
    text_of,
    user_message,
)
from gptsh.text import counted

if TYPE_CHECKING:
    from gptsh.cli.approval import Approval
    from gptsh.context.answer_schema import AnswerSchema
    from gptsh.core.snapshots import SessionEvent

_TITLE_WAIT = 5.0  # seconds that a finished answer waits for its title


class Turn:
    """One question asked, or a session compacted by hand: from what is sent to what is done behind the answer.

    ``session`` and ``sent``, the last plan that went out, say how far it came, also where it failed.
    """

    _planner: Planner
    _plan: Plan

    def __init__(
        self,
        app: App,
        flags: Flags,
        interrupts: Interrupts,
        opened: OpenedSession,
        question: Message | None,
        who: TurnSetup,
    ) -> None:
        """Raises UsageError where there is nothing to ask."""
        if question is None and not (flags.compact or (opened.doc and document.unfinished(opened.doc["messages"]))):
            what = f"no prompt, and session {opened.ref} has no question without an answer"
            raise UsageError(what, "give words or pipe text in")
        self.session = start_session(opened, question, who.agent, who.form.output, flags, app.settings)
        self.sent: Plan | None = None
        self._app, self._flags, self._interrupts, self._who = app, flags, interrupts, who
        self._only_compacts = flags.compact and question is None
        self._resumes = opened.doc is not None and not flags.chooses_tools
        self._seen = list(self.session.doc["messages"])  # and what this turn adds: saving brings others' turns
        self._question = next((one["id"] for one in self._seen[document.question_index(self._seen) :]), "")
        self._message: Message | None = None  # what the model said last
        self._words_shown = False  # whether words of an earlier round are on the screen
        self._shown, self._unshown = 0, ""  # characters of an answer that were written, and what is left of it
        self._costs: list[float | None] = []
        self._time_is_up = False
        self._notes: list[str] = []  # to be said behind the answer
        self._approval: Approval | None = None
        self._calls_made: list[Call] = []

    def run(self) -> int:
        """All of it; the exit code. Raises GptshError for every failure, Interrupted for a signal and the deadline.

        Where the session does not fit, and cannot be made to, nothing is saved.
        """
        app, flags, interrupts, session, who = self._app, self._flags, self._interrupts, self.session, self._who
        app.client.deadline = interrupts.deadline
        if self._only_compacts:
            from gptsh.cli.preview import compact  # noqa: PLC0415 - few sessions are compacted by hand

            return compact(Planner(app, flags, who, session, None), session, flags, app.reporter)
        is_new = document.is_unsaved(session.doc)
        with app.open_tools(who.servers, interrupts, lenient=self._resumes) as tools:
            try:
                self._planner = Planner(app, flags, who, session, tools)
                self._plan = self._planner.plan(self._seen, dry=True)
            except (ToolServerError, Interrupted) as err:
                if who.servers:  # which may take their time
                    with interrupts.ignored():
                        session.save(fsync=True)
                    err.hint = session.resume_hint(None)
                    app.reporter.session = session.doc["id"] if session.is_saved else None
                raise
            if flags.dry_run:
                from gptsh.cli.preview import print_request  # noqa: PLC0415 - most requests are sent

                return print_request(app.client, self._plan, who.form)
            if is_new:
                session.due.insert(0, ("session_created", {"session": session.doc["id"]}))
            with self._planner.screen.exclusive(interrupts.before_kill):
                self._ask_and_save(tools)
        rules = app.settings.sessions
        if is_new and session.is_saved and session.name and (rules.archive_after_days or rules.max_sessions):
            self._archive_old(session.name)
        return session.failure.exit_code if session.failure else 0

    def _ask_and_save(self, tools: Tools | None) -> None:
        """From saving the question on. Raises what ended it before its time."""
        session, shape = self.session, self._who.form.shape
        failure: BaseException | None = None
        self._screen, self._writer = self._planner.screen, self._planner.screen.writer
        session.emit = self._writer.emit
        if tools:
            from gptsh.cli.approval import Approval  # noqa: PLC0415 - few runs have tools

            self._approval = Approval(tools, session.doc)
        self._title = None if self._flags.title else title_thread(self._app, session, self._who.agent)
        try:
            session.save(("message_recorded", {"id": self._question, "role": "user"}), fsync=False)
            plan = self._plan
            self._rounds(self._planner.plan(self._seen) if plan.choice.is_new else plan)
            if shape:
                self._conform(shape)
        except (GptshError, Interrupted, OSError) as err:
            failure = err
        with self._interrupts.shielded():
            self._interrupts.cancel_deadline()
            failure = self._finish(failure)
        if isinstance(failure, OSError) and not isinstance(failure, BrokenPipeError):
            failure = OutputError(f"the answer cannot be written: {failure.strerror}")
        if isinstance(failure, (GptshError, Interrupted)):
            if self._message is None and session.is_saved and session.name and self._is_first:
                sessions.remember_unanswered(session.name)
            failure.hint = failure.hint or session.resume_hint(self._message)
            raise failure

    # ---- asking

    def _rounds(self, plan: Plan) -> None:
        """Ask, run the tools that the answer calls, ask again with their results: until it calls no more.

        Where a refusal names a window the same is asked again with less, twice: what is sent shorter may take more
        tokens than what it is told by.
        """
        rounds = refusals = 0
        while True:
            before = self._message
            try:
                self._ask(plan)
            except TooLong as err:
                refusals += 1
                may_fit = refusals < 3 and self._message is before
                shorter = self._planner.refit(err, plan, self._seen) if may_fit else None
                if shorter is None:
                    raise
                plan = shorter
                continue
            calls = calls_to_run(self._message, plan.request)
            if not calls:
                return
            refusals, rounds = 0, rounds + 1
            if self._approval is None or rounds >= self._app.settings.max_rounds:
                self.session.save(fsync=True)
                what = f"the model still calls tools after {counted(rounds, 'round')}"
                raise Incomplete(what, "go on with the session, or raise max_rounds under [mcp]")
            self._run_tools(calls, self._approval)
            plan = self._planner.plan(self._seen)

    def _ask(self, plan: Plan) -> None:
        """One request, shown as it comes and saved, however it ends."""
        answer, planner = Answer(), self._planner
        ended: str | None = "error"
        self._plan = self.sent = plan
        try:
            with self._screen.spinning(f"waiting for {planner.model}"):
                self._show(self._app.client.ask(plan.request, answer))
            ended = None
        except NoAnswer as err:
            if planner.room.window is not None:
                raise
            what = f"{planner.model} answered nothing to a prompt of about {plan.choice.size.tokens:,} tokens"
            todo = f"if that is too long for it, set context_window under [providers.{planner.provider}]"
            raise NoAnswer(f"{what}, and its window is not known", todo, detail=err.detail) from None
        except TimedOut:
            ended = "timeout"
            raise
        except (Interrupted, OSError) as err:
            self._interrupts.cancel_deadline()
            self._time_is_up = isinstance(err, Interrupted) and err.by_deadline
            ended = None if answer.finished else "timeout" if self._time_is_up else "interrupted"
            if not (answer.finished and self._time_is_up):  # then only the usage did not come in time
                raise
        finally:
            with self._interrupts.shielded():
                if message := answer.message(ended):
                    self._unshown = _said(message)[self._shown :]  # came between a piece and its showing
                    self._keep(message, fsync=not calls_to_run(message, plan.request))  # else with the results
        if message and not calls_to_run(message, plan.request) and (lacking := shortcoming(message)):
            raise lacking

    def _show(self, events: Iterator[Event]) -> None:
        """Write the answer as it comes. Raises what ends it before its time; of an event all is shown or nothing."""
        form, title, self._shown = self._who.form, self._title, 0
        for event in events:
            if isinstance(event, Retrying):
                self._screen.spinner.set_text(f"{event.why}; again in {event.seconds:.1f} s")
            elif isinstance(event, (Text, Reasoning, Refusal, ToolCall)):
                self._screen.spinner.set_text("the answer comes")
                if title and title.is_parallel and title.ident is None and self._is_first:
                    title.start()
            with self._interrupts.shielded(), self._screen.showing():
                if isinstance(event, (Text, Refusal)):
                    if self._words_shown and not (self._shown or form.is_buffered or form.structured):
                        self._writer.write(Text("\n"))  # apart from the words of the round before
                    self._shown += len(event.text)
                self._writer.write(event)
        self._words_shown = self._words_shown or self._shown > 0
        self._writer.close()

    # ---- tools

    def _run_tools(self, calls: Sequence[Call], approval: "Approval") -> None:
        """Run what may run, show the results as they come, and keep them in the order of the calls."""
        results: dict[str, Message] = {}
        self._calls_made += calls
        try:
            for event in approval.run(calls, self._screen):
                results[event.message["tool_call_id"]] = event.message
                self._writer.write(event)
        finally:
            with self._interrupts.shielded():
                kept = [results[call["id"]] for call in calls if call["id"] in results]
                self.session.save(*map(self._append, kept), fsync=True)

    # ---- a schema

    def _conform(self, shape: "AnswerSchema") -> None:
        """See that the answer conforms; where it does not, ask once more, with what is wrong. Raises Misshapen."""
        for again in (True, False):
            faults = shape.faults(self._who.form.select(_said(self._message)))
            if not faults:
                return
            misshapen = Misshapen(f"the answer is not what --schema asks: {faults[0]}")
            if self._time_is_up or not again:
                raise misshapen
            question = user_message(shape.repair(faults), ())
            question["repair"] = True  # it is no turn of the user
            recorded = self._append(question)
            try:
                plan = self._planner.plan(self._seen)
            except TooLong:
                raise misshapen from None
            self.session.save(recorded, fsync=False)
            self._rounds(plan)

    # ---- keeping

    def _keep(self, message: Message, *, fsync: bool) -> None:
        """Save the answer, with where it came from."""
        planner, usage, sent = self._planner, message.get("usage"), self._plan.choice
        message["agent"], message["model"], message["provider"] = planner.agent.name, planner.model, planner.provider
        message["cost"] = settings.cost_of(self._app.settings, planner.model, usage) if usage else None
        self._costs.append(message["cost"])
        if usage:
            self._writer.emit("usage", usage=usage)
        if sent.record:
            message["compaction"] = sent.record["id"]
        reported = usage["prompt"] if usage and planner.provider != "echo" else None  # which counts words
        if reported and tokens.was_truncated(reported, sent.size, self._plan.request.messages):
            message["server_truncated"] = True
            self._notes.append(
                f"{planner.provider} read {reported:,} tokens of a prompt of about {sent.size.tokens:,}: "
                "it cut the rest without saying so; give it a larger window, or set context_window to the one it has"
            )
        recorded = self._append(message)
        self._message = message
        self.session.save(recorded, ("session_saved", {"session": self.session.doc["id"]}), fsync=fsync)

    def _append(self, message: Message) -> "SessionEvent":
        """Add a message behind what this turn has seen, whatever others add to the session; what is told of it."""
        message["id"], message["parent"] = new_message_id(), self._seen[-1]["id"]
        delta = {"tokens": message.get("usage")} if message["role"] == "assistant" else None
        sessions.append_messages(self.session.doc, [message], delta)
        self._seen.append(message)
        return "message_recorded", {"id": message["id"], "role": message["role"]}

    # ---- what comes behind the answer

    def _finish(self, failure: BaseException | None) -> BaseException | None:
        """The rest shown, the title kept, the object written, the memory brought on; what went wrong first."""
        if isinstance(failure, (Interrupted, OSError)):
            self._screen.limit_waiting()
        if not isinstance(failure, OSError):
            failure = self._attempt(partial(self._deliver, failure), failure)
        for text in self._notes:
            stdio.note(text)
        failure = self._keep_title(failure)
        if failure is None and self._approval and self._approval.denied:
            names = ", ".join(dict.fromkeys(self._approval.denied))
            way = "approve it on a terminal, or set auto_approve under its [mcp.servers.NAME]"
            failure = Denied(f"a tool call was denied: {names}", way)
        if self._who.form.structured:
            self._app.reporter.reported = True
            failure = self._attempt(self._writer.close, failure)
            if isinstance(failure, OSError):
                return failure
            ended = self._attempt(partial(self._writer.conclude, self._object(failure)), failure)
            if not self._screen.finished:
                return ended
            self._interrupts.discard_pending()
        if failure or not (self.session.is_saved and self._who.agent.memory):
            return failure
        from gptsh.cli.memory import Consolidation  # noqa: PLC0415 - few agents have a memory

        if self._screen.finished:
            stdio.detach_stdout()
        memories = Consolidation(self._app.settings, self._app.client, self._interrupts)
        ended = memories.behind_turn(self.session)
        return None if self._app.reporter.reported else ended  # the exit code was reported before, in JSON

    def _attempt(self, do: Callable[[], None], failure: BaseException | None) -> BaseException | None:
        """Show something. A signal ends the patience with its reader: what was begun goes out, if it is taken."""
        try:
            with self._interrupts.waiting():
                do()
        except Interrupted as err:
            self._screen.limit_waiting()
            return self._attempt(self._screen.finish, failure or err)
        except OSError as err:
            return failure or err
        return failure

    def _deliver(self, failure: BaseException | None) -> None:
        """Show what was held back until the answer was whole, or on stderr what arrived of it."""
        said, form = _said(self._message), self._who.form
        if self._unshown:
            self._writer.write(Text(self._unshown))
        self._writer.close()
        if form.structured or not form.is_buffered:
            self._screen.finish()
        elif said and failure:
            stdio.write_stderr(said if said.endswith("\n") else f"{said}\n")
        elif text := form.select(said):
            self._writer.deliver(text)

    @property
    def _is_first(self) -> bool:
        """Whether the question is the session's first: of runs that begin it together one asks for a title."""
        first = next(filter(starts_turn, self.session.doc["messages"]))
        return bool(first["id"] == self._question)

    def _keep_title(self, failure: BaseException | None) -> BaseException | None:
        """Keep the title. Where the server has ended the answer it is waited for; else one that came already counts.

        Ctrl-C only means that it is not worth the wait.
        """
        thread, reason = self._title, self._message and self._message.get("finish_reason")
        if thread is None or not self._is_first:
            return failure
        try:
            if reason not in (None, *BROKEN_OFF) and not isinstance(failure, Interrupted):
                if thread.ident is None:
                    thread.start()
                with self._interrupts.waiting():
                    thread.join(_TITLE_WAIT)
        except Interrupted as err:
            failure = failure if err.by_user else failure or err
            self._interrupts.reset_ctrl_c()
        usage = thread.answer.usage
        cost = settings.cost_of(self._app.settings, thread.model, usage) if usage else None
        self.session.keep_title(thread.title, thread.model, usage, cost)
        return failure

    def _object(self, failure: BaseException | None) -> dict[str, Any]:
        """The answer for a program."""
        from gptsh.render import structured  # noqa: PLC0415 - a person reads no objects

        session, planner, form = self.session, self._planner, self._who.form
        message: Mapping[str, Any] = self._message or {}
        error = None
        failed = as_error(failure) if isinstance(failure, Interrupted) else failure or session.failure
        if isinstance(failed, GptshError):
            self._app.reporter.add_config_path(failed)
            error = structured.error(str(failed), session.resume_hint(self._message), failed.exit_code)
        return {
            **structured.ANSWER,
            **{key: message.get(key) for key in ("finish_reason", "usage")},
            "id": message.get("id") if session.is_saved else None,
            "session": session.doc["id"] if session.is_saved else None,
            "text": form.select(_said(self._message)) if self._message else None,
            "model": planner.model,
            "provider": planner.provider,
            "cost": sum_costs([*self._costs, *planner.costs]),
            "tool_calls": self._calls_made or message.get("tool_calls", []),
            "context": self._plan.report(),
            "error": error,
        }

    def _archive_old(self, name: str) -> None:
        """Archive old sessions behind a turn that began a new one, the file of which is ``name``.

        The run is over: its reader has the end of the answer, and a signal comes too late.
        """
        from gptsh.core import retention  # noqa: PLC0415 - few configure it

        stdio.detach_stdout()
        with self._interrupts.ignored():
            try:
                retention.archive_old(self._app.settings.sessions, name)
            except StoreBusy:  # the next new session does it
                return
            except (GptshError, OSError) as err:
                stdio.note(f"no old session was archived: {err}")


def _said(message: Message | None) -> str:
    """The words of an answer, a refusal behind them."""
    return text_of(message) + message.get("refusal", "") if message else ""
