"""A turn: the question saved, the model asked, its tools run, the answer shown and saved, the failure raised.

What ends it before its time is an exception, which is caught once, in ``Turn.run``. All of it is shielded from signals
but for the waiting: for the model, a tool, the user, a reader that stalls, the title.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gptsh.cli import show, stdio
from gptsh.cli.approval import Approval
from gptsh.cli.interrupts import Interrupted, Interrupts, each, waiting
from gptsh.cli.plan import Plan, Planner
from gptsh.cli.reporter import Reporter, in_words
from gptsh.cli.session import Session
from gptsh.config import settings
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer, Ask, Request, Tools, calls_to_run, result_of, shortcoming
from gptsh.context import tokens
from gptsh.context.answer_schema import Shape
from gptsh.core import document, sessions
from gptsh.errors import (
    Denied,
    GptshError,
    Incomplete,
    Misshapen,
    NoAnswer,
    OutputError,
    TimedOut,
    TooLong,
)
from gptsh.llm.client import Client
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
    ToolResult,
    Usage,
    new_message_id,
    sum_costs,
    text_of,
    user_message,
    words_of,
)
from gptsh.models.facts import split_model
from gptsh.render import structured
from gptsh.text import shortened

if TYPE_CHECKING:
    from gptsh.core.snapshots import Happening

_TITLE_WAIT = 5.0  # seconds that a finished answer waits for its title
Fit = Callable[[], Plan]  # raises TooLong, and Interrupted while a summary is waited for


class Turn:
    """One question that is ready to be asked, and what comes of it.

    ``message`` is what the model said last, ``sent`` the last request as it went out.
    """

    def __init__(
        self,
        loaded: Settings,
        client: Client,
        session: Session,
        planner: Planner,
        tools: Tools | None,
        interrupts: Interrupts,
        reporter: Reporter,
    ) -> None:
        """Raises TooLong where the session does not fit, and cannot be made to; nothing is saved then."""
        self.message: Message | None = None
        self.sent: Plan | None = None
        self._settings, self._client, self._session, self._planner = loaded, client, session, planner
        self._tools, self._interrupts, self._reporter = tools, interrupts, reporter
        self._doc, self._form = session.doc, planner.form
        self._plan = planner.first()
        self._seen = list(self._doc["messages"])  # of the session, and what this turn adds; saving brings others' turns
        self._words_shown = False  # whether words of an earlier round are on the screen
        self._text: str | None = None  # what the form takes of the answer
        self._costs: list[float | None] = []
        self._time_is_up = False
        self._notes: list[str] = []  # to be said behind the answer
        self._calls_made: list[Call] = []
        self._approval = Approval(tools, self._doc) if tools else None
        self._title = title_of(loaded, client, session, planner)
        self._screen = show.Screen()
        self._writer = self._screen.writer(self._form)
        save = partial(session.save, durable=False)
        planner.serve(
            lambda request, answer: each(client.ask(request, answer)), self._screen.turning, self._writer.tell, save
        )

    def run(self, happened: "list[Happening]") -> int:
        """All of it; the exit code. ``happened`` is reported once the question is saved.

        Raises GptshError for every failure, Interrupted for a signal.
        """
        planner = self._planner
        failure: BaseException | None = None
        with self._interrupts.shielded():
            self._save_question(planner.asked(), happened)
            try:
                self._rounds(partial(planner.kept, self._plan))
                if self._form.shape:
                    self._conform(self._form.shape)
            except (GptshError, Interrupted, OSError) as err:
                failure = err
            self._interrupts.disarm()
            failure = self._finish(self._take_text(failure))
            if isinstance(failure, OSError) and not isinstance(failure, BrokenPipeError):
                failure = OutputError(f"the answer cannot be written: {failure.strerror}")
            if isinstance(failure, (GptshError, Interrupted)):
                failure.hint = failure.hint or self._session.how_to_go_on(self.message)
                raise failure
        return self._session.failure.exit_code if self._session.failure else 0

    # ---- asking

    def _rounds(self, fit: Fit) -> None:
        """Ask, run the tools that the answer calls, ask again with their results: until it calls no more."""
        rounds = 0
        while True:
            request, rounds = self._answered(fit), rounds + 1
            calls = calls_to_run(self.message, request)
            if not calls:
                return
            try:
                if rounds >= self._planner.max_rounds:
                    what = f"the model still calls tools after {rounds} round{'s' if rounds > 1 else ''}"
                    raise Incomplete(what, "go on with the session, or raise max_rounds under [mcp]")
                self._run_tools(calls)
            except BaseException:
                self._session.save(durable=True)
                raise
            fit = partial(self._planner.next, self._seen)

    def _answered(self, fit: Fit) -> Request:
        """The request that was answered: brought into the window before, and again where a refusal names one."""
        plan, before = fit(), self.message
        for again in (True, True, False):  # what is sent shorter may take more tokens than what it is told by
            try:
                self._ask(plan)
                break
            except TooLong as err:
                shorter = self._planner.refit(err, plan, self._seen) if again and self.message is before else None
                if shorter is None:
                    raise
                plan = shorter
        return plan.request

    def _ask(self, plan: Plan) -> None:
        """One request, shown as it comes and saved, however it ends."""
        answer, request = Answer(), plan.request
        ended: str | None = "error"
        self._plan = self.sent = plan
        try:
            with self._screen.turning(f"waiting for {self._planner.model}"):
                self._show(each(self._client.ask(request, answer)))
            ended = None
        except (GptshError, Interrupted, OSError) as err:
            if answer.finished and isinstance(err, Interrupted) and err.by_deadline:
                self._time_is_up, ended = True, None  # the answer is whole, only its usage did not come in time
                self._interrupts.disarm()
            else:
                ended = _why(err, answer)
                if isinstance(err, NoAnswer):
                    raise self._with_size(err) from None
                raise
        finally:
            if message := answer.message(ended):
                self._keep(message, durable=not calls_to_run(message, request))  # else with the results
        if message and not calls_to_run(message, request) and (lacking := shortcoming(message)):
            raise lacking

    def _show(self, events: Iterator[Event]) -> None:
        """Write the answer as it comes. Raises what ends it before its time."""
        has_said = False
        for event in events:
            if isinstance(event, Retrying):
                self._screen.spinner.say(f"{event.why}; again in {event.seconds:.1f} s")
            elif isinstance(event, (Text, Reasoning, Refusal, ToolCall)):
                self._screen.spinner.say("the answer comes")
                if self._title and self._title.goes_beside:
                    self._title.start()
            if isinstance(event, (Text, Refusal)) and not has_said:
                has_said = True
                if self._words_shown and not (self._form.held or self._form.structured):
                    self._writer.write(Text("\n"))  # apart from the words of the round before
            self._writer.write(event)
        self._words_shown = self._words_shown or has_said
        self._writer.close()

    def _with_size(self, err: NoAnswer) -> NoAnswer:
        """Some servers drop a prompt that is too long for them without a word."""
        planner = self._planner
        if planner.room.window is not None:
            return err
        what = f"{planner.model} answered nothing to a prompt of about {self._plan.context.size.tokens:,} tokens"
        todo = f"if that is too long for it, set context_window under [providers.{planner.provider}]"
        return NoAnswer(f"{what}, and its window is not known", todo, detail=err.detail)

    # ---- tools

    def _run_tools(self, calls: Sequence[Call]) -> None:
        """Run what may run, show the results as they come, and keep them in the order of the calls."""
        results: dict[str, Message] = {}
        self._calls_made += calls
        try:
            for event in self._results(calls):
                results[event.message["tool_call_id"]] = event.message
                self._writer.write(event)
        finally:
            kept = [results[call["id"]] for call in calls if call["id"] in results]
            for message in kept:
                self._append(message)
            self._session.save(durable=True)
            if self._session.is_kept:
                for message in kept:
                    self._writer.tell("message_recorded", id=message["id"], role="tool")

    def _results(self, calls: Sequence[Call]) -> Iterator[ToolResult]:
        """What is denied first, then what runs, as it ends. Raises ToolServerError behind the last result that came."""
        assert self._tools, "only an answer to a request with tools has calls to run"
        assert self._approval, "which comes with them"
        allowed = []
        for call in calls:
            with waiting():
                why = self._approval.refusal(call)
            if why is None:
                allowed.append(call)
            else:
                yield ToolResult(result_of(call, why))
        if stdio.is_terminal(sys.stderr):  # in a pipe nobody reads it
            for call in allowed:
                said = f"{call['function'].get('name', '')} {call['function'].get('arguments', '')}"
                stdio.say(f"{shortened(said, stdio.width(sys.stderr) - 1)}\n")
        names = ", ".join(str(call["function"].get("name")) for call in allowed)
        with self._screen.turning(f"running {names}"):
            yield from each(self._tools.run(allowed))

    # ---- a schema

    def _conform(self, shape: Shape) -> None:
        """See that the answer conforms; where it does not, ask once more, with what is wrong. Raises Misshapen."""
        faults = self._faults(shape)
        if not faults:
            return
        misshapen = Misshapen(f"the answer is not what --schema asks: {faults[0]}")
        if self._time_is_up:
            raise misshapen
        question = self._append(user_message(shape.repair(faults), ()))
        try:
            self._planner.check(self._seen)
        except TooLong:
            raise misshapen from None
        self._save_question(question)
        self._rounds(partial(self._planner.next, self._seen))
        if faults := self._faults(shape):
            raise Misshapen(f"the answer is not what --schema asks: {faults[0]}")

    def _faults(self, shape: Shape) -> list[str]:
        """What is wrong with a whole answer. To look for that may take for ever, or be impossible: UsageError."""
        with waiting():
            return shape.faults(self._form.of(_said(self.message)))

    # ---- keeping

    def _save_question(self, question: str, happened: "Sequence[Happening]" = ()) -> None:
        is_new = document.is_unsaved(self._doc)
        self._session.save(durable=False)
        if self._session.is_kept:
            if is_new:
                self._writer.tell("session_created", session=self._doc["id"])
            for kind, fields in happened:
                self._writer.tell(kind, **fields)
            self._writer.tell("message_recorded", id=question, role="user")

    def _keep(self, message: Message, *, durable: bool) -> None:
        """Save the answer, with where it came from."""
        planner, usage, sent = self._planner, message.get("usage"), self._plan.context
        message["agent"], message["model"], message["provider"] = planner.agent.name, planner.model, planner.provider
        message["cost"] = _cost(self._settings, planner.model, usage)
        if usage:
            self._writer.tell("usage", usage=usage)
        self._costs.append(message["cost"])
        if sent.compaction:
            message["compaction"] = sent.compaction
        reported = usage["prompt"] if usage else None
        if reported and tokens.was_cut(reported, sent.size, sent.messages):
            message["server_truncated"] = True
            self._notes.append(
                f"{planner.provider} read {reported:,} tokens of a prompt of about {sent.size.tokens:,}: "
                "it cut the rest without saying so; give it a larger window, or set context_window to the one it has"
            )
        self._append(message, {"tokens": usage})
        self.message = message
        self._session.save(durable=durable)
        if self._session.is_kept:
            self._writer.tell("message_recorded", id=message["id"], role="assistant")
            self._writer.tell("session_saved", session=self._doc["id"])

    def _append(self, message: Message, usage_delta: dict[str, Any] | None = None) -> str:
        """Add a message behind what this turn has seen, whatever others add to the session; its id."""
        message["id"], message["parent"] = new_message_id(), self._seen[-1]["id"]
        sessions.append_messages(self._doc, [message], usage_delta)
        self._seen.append(message)
        return message["id"]

    # ---- what comes behind the answer

    def _take_text(self, failure: BaseException | None) -> BaseException | None:
        """Take what the form takes of the answer. A signal ends the taking, too: then it is all of it."""
        if self.message is None:
            return failure
        try:
            with waiting():
                self._text = self._form.of(_said(self.message))
        except Interrupted as err:
            self._text = _said(self.message)
            return failure or err
        return failure

    def _finish(self, failure: BaseException | None) -> BaseException | None:
        """The rest shown, the title kept, the object written, the memory brought on; what went wrong first."""
        if isinstance(failure, (Interrupted, OSError)):
            self._screen.lose_patience()
        if not isinstance(failure, OSError):
            failure = self._attempt(partial(self._deliver, failure), failure)
        failure = self._attempt(self._interrupts.check, failure)
        for text in self._notes:
            stdio.note(text)
        failure = self._keep_title(failure)
        if failure is None and self._approval and self._approval.denied:
            names = ", ".join(dict.fromkeys(self._approval.denied))
            way = "approve it on a terminal, or set auto_approve under its [mcp.servers.NAME]"
            failure = Denied(f"a tool call was denied: {names}", way)
        if self._form.structured:
            failure = self._conclude(failure)
        if failure or not (self._session.is_kept and self._planner.agent.memory):
            return failure
        from gptsh.cli.memory import Consolidation  # noqa: PLC0415 - few agents have a memory

        if self._screen.finished:
            stdio.let_go()
        ended = Consolidation(self._settings, self._client, self._interrupts).behind_turn(self._session)
        return None if self._reporter.told else ended  # the exit code was reported before, in JSON

    def _attempt(self, do: Callable[[], None], failure: BaseException | None) -> BaseException | None:
        """Show something. A signal ends the patience with its reader: what was begun goes out, if it is taken."""
        try:
            do()
        except Interrupted as err:
            self._screen.lose_patience()
            return self._attempt(self._screen.finish, failure or err)
        except OSError as err:
            return failure or err
        return failure

    def _deliver(self, failure: BaseException | None) -> None:
        """Show what was held back until the answer was whole, or on stderr what arrived of it."""
        self._writer.close()
        said = _said(self.message)
        if self._form.structured or not isinstance(self._writer, structured.HeldWriter):
            self._screen.finish()
        elif said and failure:
            stdio.say(said if said.endswith("\n") else f"{said}\n")
        elif self._text:
            self._writer.deliver(self._text)

    def _keep_title(self, failure: BaseException | None) -> BaseException | None:
        """Keep the title. Where the server has ended the answer it is waited for; else one that came already counts.

        Ctrl-C only means that it is not worth the wait.
        """
        thread, reason = self._title, self.message and self.message.get("finish_reason")
        if thread is None:
            return failure
        try:
            if reason not in (None, *BROKEN_OFF) and not isinstance(failure, Interrupted):
                thread.start()  # where it does not go beside the answer
                with waiting():
                    thread.wait()
        except Interrupted as err:
            failure = failure if err.by_user else failure or err
        cost = _cost(self._settings, thread.model, thread.usage)
        if self._session.keep_title(thread.title, thread.model, thread.usage, cost):
            self._writer.tell("title", title=thread.title)
        return failure

    def _conclude(self, failure: BaseException | None) -> BaseException | None:
        """Write the answer's object, or the last events. What comes behind that is too late."""
        for before in (self._writer.close, self._screen.ready, self._interrupts.check):
            failure = self._attempt(before, failure)
        self._reporter.told = True
        if isinstance(failure, OSError):
            return failure
        written = self._attempt(partial(self._writer.conclude, self._object(failure)), failure)
        if not self._screen.finished:
            return written
        self._interrupts.forget()
        return failure

    def _object(self, failure: BaseException | None) -> dict[str, Any]:
        """The answer for a program."""
        message: Mapping[str, Any] = self.message or {}
        is_kept, error = self._session.is_kept, None
        failed = in_words(failure) if isinstance(failure, Interrupted) else failure or self._session.failure
        if isinstance(failed, GptshError):
            error = structured.error(str(failed), self._session.how_to_go_on(self.message), failed.exit_code)
        return {
            **structured.ANSWER,
            **{key: message.get(key) for key in ("finish_reason", "usage")},
            "id": message.get("id") if is_kept else None,
            "session": self._doc["id"] if is_kept else None,
            "text": self._text,
            "model": self._planner.model,
            "provider": self._planner.provider,
            "cost": sum_costs([*self._costs, *self._planner.costs]),
            "tool_calls": self._calls_made or message.get("tool_calls", []),
            "context": self._plan.context.report(),
            "error": error,
        }


def _said(message: Message | None) -> str:
    """The words of an answer, a refusal behind them."""
    return text_of(message) + message.get("refusal", "") if message else ""


def _why(err: BaseException, answer: Answer) -> str | None:
    """The finish reason of an answer that this ended; None where it is whole all the same."""
    if answer.finished and isinstance(err, (Interrupted, OSError)):
        return None
    if isinstance(err, TimedOut) or (isinstance(err, Interrupted) and err.by_deadline):
        return "timeout"
    return "error" if isinstance(err, GptshError) else "interrupted"


def _cost(loaded: Settings, model: str, usage: Usage | None) -> float | None:
    """USD for one call; None where it is not known."""
    return None if usage is None else settings.cost_of(loaded, model, usage)


# ---- the title


class Title:
    """Asked once, in a daemon thread that an ending process does not wait for. It saves nothing itself.

    ``goes_beside`` the answer, so that it costs no time: but a server of one's own may have one slot, or end an answer
    when another request arrives, and is asked behind it.
    """

    def __init__(self, first_user: str, model: str, llm: Ask, *, goes_beside: bool) -> None:
        self.title: str | None = None
        self.usage: Usage | None = None
        self.model, self.goes_beside = model, goes_beside
        self._first_user, self._llm = first_user, llm
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; a second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def wait(self) -> None:
        """Wait for it, as long as it is worth."""
        self._thread.join(_TITLE_WAIT)

    def _run(self) -> None:
        self.title = sessions.generate_title(self._first_user, small_model=self.model, llm=self._ask)

    def _ask(self, request: Request, answer: Answer) -> Iterator[Event]:
        try:
            yield from self._llm(request, answer)
        finally:
            self.usage = answer.usage


def title_of(loaded: Settings, client: Client, session: Session, planner: Planner) -> Title | None:
    """What will ask for a title; None where the session has one, or none is wanted."""
    messages = session.doc["messages"]
    starts = document.turns(messages)
    first_turn = len(starts) == 1 and document.unanswered(messages)
    small = settings.small_model(loaded, planner.agent)
    offline = "echo" in (session.doc["provider"]["name"], split_model(small or "echo")[0])
    if not loaded.sessions.titles or not first_turn or not session.wants_title or small is None or offline:
        return None
    provider, _ = loaded.providers.of(small)
    return Title(words_of(messages[starts[0]]), small, client.ask, goes_beside=provider.is_hosted)
