"""A turn carried out: the question saved, the model asked, its tools run, the answer shown, saved and told."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from gptsh.cli import show, stdio
from gptsh.cli.calls import Calls
from gptsh.cli.fitting import Built, Fitter, Hands
from gptsh.cli.keeper import Keeper
from gptsh.cli.prepare import Job
from gptsh.cli.reporter import Reporter, in_words
from gptsh.cli.signals import Ended, Endings
from gptsh.cli.title import title_thread
from gptsh.core import document, sessions, tokens
from gptsh.core.context import Context
from gptsh.core.messages import (
    BROKEN_OFF,
    Call,
    Message,
    Reasoning,
    Refusal,
    Retrying,
    Text,
    ToolCall,
    Usage,
    new_message_id,
    sum_costs,
    text_of,
    user_message,
)
from gptsh.core.settings import Settings
from gptsh.core.shape import Shape
from gptsh.core.turn import Request, Round, calls_to_run, shortcoming
from gptsh.errors import GptshError, Incomplete, Misshapen, NoAnswer, OutputError, TimedOut, TooLong, UsageError
from gptsh.render import structured

Fit = Callable[[], Built]  # what is sent; raises TooLong, and Ended while a summary is waited for


class _Outcome(NamedTuple):
    """What came of asking: the answer as far as it came, and what keeps it from being a whole one."""

    message: Message | None
    failure: BaseException | None  # GptshError, Ended, or OSError where stdout could not be written
    part: str | None = None  # what the form takes of its text

    @property
    def text(self) -> str | None:
        """The words of the answer, a refusal behind them; None where there is none."""
        return None if self.message is None else text_of(self.message) + self.message.get("refusal", "")


class Run:
    """Save the question, ask, show, save the answer, wait for the title; then say what went wrong.

    Signals are held back throughout, but where the answer, its reader and the title are waited for.
    """

    def __init__(self, job: Job, keeper: Keeper, endings: Endings, reporter: Reporter) -> None:
        self._job, self._keeper, self._endings, self._reporter = job, keeper, endings, reporter
        self._form = job.form
        self._heard = endings.heard(job.client.ask)
        self._title = title_thread(job, keeper)
        self._sent = job.context
        self.sent: Built | None = None  # the last request, once it goes out
        self._seen = list(job.doc["messages"])  # of the session, and what this run adds; saving brings others' turns
        self._said = False  # whether words of an earlier round are shown
        self._costs: list[float | None] = []
        self._time_is_up = False
        self._notes: list[str] = []  # to be said behind the answer
        self._screen = show.Screen(endings.released)
        self._writer = self._screen.writer(self._form)
        self._calls = Calls(job.tools, job.doc, self._screen, endings) if job.tools else None
        hands = Hands(
            job.settings,
            job.client,
            self._heard,
            self._screen.turning,
            self._writer.tell,
            partial(keeper.save, durable=False),
        )
        self._fitter = Fitter(job.sending, job.doc, hands)

    def carry_out(self) -> int:
        """All of it; the exit code."""
        with self._endings.held():
            self._keep_question(self._job.question)
            job = self._job
            outcome = self._asked(partial(self._fitter.carried_out, job.choice, job.spoken, (job.context, job.request)))
            if self._form.shape:
                outcome = self._in_shape(outcome, self._form.shape)
            self._endings.disarm()
            outcome = self._remembered(self._told(self._judged(self._titled(self._delivered(outcome)))))
            _raise(outcome.failure, self._keeper.where(outcome.message))
        return self._keeper.failure.exit_code if self._keeper.failure else 0

    # ---- asking

    def _asked(self, fit: Fit) -> _Outcome:
        """The outcome of a turn, with what the form takes of it. A signal ends the taking, too."""
        outcome = self._in_rounds(fit)
        if outcome.failure or not self._form.shape:  # nothing more is asked
            self._endings.disarm()
        if outcome.text is None:
            return outcome
        try:
            with self._endings.released():
                return outcome._replace(part=self._form.of(outcome.text))
        except Ended as ended:
            return outcome._replace(part=outcome.text, failure=outcome.failure or ended)

    def _in_rounds(self, fit: Fit) -> _Outcome:
        """Ask, run the tools that the answer calls, ask again with their results: until it calls no more."""
        outcome, request = self._fitted(fit)
        rounds = 1
        while outcome.failure is None and request and (calls := calls_to_run(outcome.message, request)):
            failure = self._run_tools(calls) if rounds < self._fitter.sending.max_rounds else _endless(rounds)
            if failure:
                outcome = outcome._replace(failure=failure)
                break
            before, rounds = outcome, rounds + 1
            outcome, request = self._fitted(partial(self._fitter.fitted, self._seen))
            if outcome.message is None:  # then the calls are what arrived last
                outcome = outcome._replace(message=before.message)
        if outcome.failure and request and calls_to_run(outcome.message, request):
            self._keeper.save(durable=True)
        return outcome

    def _fitted(self, fit: Fit) -> tuple[_Outcome, Request | None]:
        """One request, brought into the window before; once more where the server names a smaller one than is known."""
        try:
            sent, request = fit()
        except (GptshError, Ended) as err:
            return _Outcome(None, err), None
        outcome = self._ask(sent, request)
        if not isinstance(outcome.failure, TooLong) or outcome.message is not None:
            return outcome, request
        try:
            again = self._fitter.refitted(outcome.failure, sent, self._seen)
        except Ended as err:
            return _Outcome(None, err), None
        return (self._ask(*again), again[1]) if again else (outcome, request)

    def _ask(self, sent: Context, request: Request) -> _Outcome:
        """One request, shown as it comes and saved, however it ends."""
        answer = Round(self._heard(request))
        failure: BaseException | None = GptshError("a fault of gptsh")  # until it is known to be none
        self._sent, self.sent = sent, (sent, request)
        try:
            failure = self._show(answer)
        finally:
            message = answer.message(_why(failure, answer))
            calls = calls_to_run(message, request)
            message = self._keep(message, durable=not calls)  # else once a round, with the results
        if failure is None and message is not None and not calls:
            failure = shortcoming(message)
        return _Outcome(message, failure)

    def _show(self, answer: Round) -> BaseException | None:
        """Write the answer as it comes; what ended it before its time, or None."""
        try:
            with self._screen.turning(f"waiting for {self._job.sending.model}"):
                self._write(answer)
        except (GptshError, Ended, OSError) as err:
            if isinstance(err, NoAnswer) and self._fitter.sending.room.window is None:
                return self._nothing_to_a_large_prompt(err)
            if not (answer.finished and isinstance(err, Ended) and err.by_deadline):
                return err
            self._time_is_up = True  # but the answer is whole, only its usage did not come in time
            self._endings.disarm()
        return None

    def _nothing_to_a_large_prompt(self, err: NoAnswer) -> NoAnswer:
        """Some servers drop a prompt that is too long for them without a word."""
        sending = self._job.sending
        what = f"{sending.model} answered nothing to a prompt of about {self._sent.size.likely:,} tokens"
        todo = f"if that is too long for it, set context_window under [providers.{sending.provider}]"
        return NoAnswer(f"{what}, and its window is not known", todo, detail=err.detail)

    def _write(self, answer: Round) -> None:
        said = False
        for event in answer:
            if isinstance(event, Retrying):
                self._screen.spinner.say(f"{event.why}; again in {event.seconds:.1f} s")
            elif isinstance(event, (Text, Reasoning, Refusal, ToolCall)):
                self._screen.spinner.say("the answer comes")
                if self._title and self._title.goes_beside:
                    self._title.start()
            if isinstance(event, (Text, Refusal)) and not said:
                said = True
                if self._said and not (self._form.held or self._form.structured):
                    self._writer.write(Text("\n"))  # apart from the words of the round before
            self._writer.write(event)
        self._said = self._said or said
        self._writer.close()

    # ---- tools

    def _run_tools(self, calls: Sequence[Call]) -> BaseException | None:
        """Run what may run, and keep the results; what ended it before its time."""
        results: dict[str, Message] = {}
        failure: BaseException | None = GptshError("a fault of gptsh")
        try:
            failure = self._collect(calls, results)
        finally:
            self._keep_results([results[call["id"]] for call in calls if call["id"] in results])
        return failure

    def _collect(self, calls: Sequence[Call], results: dict[str, Message]) -> BaseException | None:
        try:
            for event in self._calls.results(calls) if self._calls else ():
                results[event.message["tool_call_id"]] = event.message
                self._writer.write(event)
        except (GptshError, Ended, OSError) as err:
            return err
        return None

    def _judged(self, outcome: _Outcome) -> _Outcome:
        """A whole answer for which a tool call was denied is not all that was asked for."""
        return outcome._replace(failure=outcome.failure or (self._calls.denied if self._calls else None))

    def _in_shape(self, outcome: _Outcome, shape: Shape) -> _Outcome:
        """The answer, if it conforms; else that to one more question, which shows the model what is wrong."""
        outcome, faults = self._held_against(shape, outcome)
        if not faults:
            return outcome
        if self._time_is_up:
            return outcome._replace(failure=_misshapen(faults))
        question = self._append(user_message(shape.repair(faults), ()))
        try:
            self._fitter.fits(self._seen)
        except TooLong:
            return outcome._replace(failure=_misshapen(faults))
        self._keep_question(question)
        second = self._asked(partial(self._fitter.fitted, self._seen))
        if second.message is None:  # then the first one is what arrived
            return outcome._replace(failure=second.failure)
        second, faults = self._held_against(shape, second)
        return second._replace(failure=_misshapen(faults)) if faults else second

    def _held_against(self, shape: Shape, outcome: _Outcome) -> tuple[_Outcome, list[str]]:
        """The outcome, and what is wrong with a whole answer. Looking for that may take for ever, or be impossible."""
        if outcome.failure:
            return outcome, []
        try:
            with self._endings.released():
                return outcome, shape.faults(outcome.part or "")
        except (Ended, UsageError) as err:
            return outcome._replace(failure=err), []

    # ---- keeping

    def _keep_question(self, question: str) -> None:
        is_new = document.is_unsaved(self._job.doc)
        self._keeper.save(durable=False)
        if self._keeper.keeps:
            if is_new:
                self._writer.tell("session_created", session=self._job.doc["id"])
            for kind, fields in self._job.happened if question == self._job.question else ():
                self._writer.tell(kind, **fields)
            self._writer.tell("message_recorded", id=question, role="user")

    def _keep(self, message: Message | None, *, durable: bool) -> Message | None:
        """Save the answer, with where it came from; nothing where nothing came."""
        if message is None:
            return None
        sending, usage = self._job.sending, message.get("usage")
        message["agent"], message["model"], message["provider"] = sending.agent.name, sending.model, sending.provider
        message["cost"] = _cost(self._job.settings, sending.model, usage)
        self._costs.append(message["cost"])
        message["estimated"] = self._sent.size.plain
        if self._sent.compaction:
            message["compaction"] = self._sent.compaction
        if self._notices_a_cut(usage, self._sent):
            del message["estimated"]  # what was read of it says nothing about the whole
        self._append(message, {"tokens": usage})
        self._keeper.save(durable=durable)
        if self._keeper.keeps:
            self._writer.tell("message_recorded", id=message["id"], role="assistant")
            self._writer.tell("session_saved", session=self._job.doc["id"])
        return message

    def _keep_results(self, results: Sequence[Message]) -> None:
        """Save what the tools gave."""
        for message in results:
            self._append(message)
        self._keeper.save(durable=True)
        if self._keeper.keeps:
            for message in results:
                self._writer.tell("message_recorded", id=message["id"], role="tool")

    def _append(self, message: Message, usage_delta: dict[str, Any] | None = None) -> str:
        """Add a message behind what this run has seen, whatever others add to the session; its id."""
        message["id"], message["parent"] = new_message_id(), self._seen[-1]["id"]
        sessions.append_messages(self._job.doc, [message], usage_delta)
        self._seen.append(message)
        return message["id"]

    def _notices_a_cut(self, usage: Usage | None, sent: Context) -> bool:
        """Whether the server has read less than was sent; the user will be told so behind the answer."""
        reported = usage["prompt"] if usage else None
        if not reported or not tokens.was_cut(reported, sent.size, sent.messages):
            return False
        self._notes.append(
            f"{self._job.sending.provider} read {reported:,} tokens of a prompt of about {sent.size.likely:,}: "
            "it cut the rest without saying so; give it a larger window, or set context_window to the one it has"
        )
        return True

    # ---- showing

    def _delivered(self, outcome: _Outcome) -> _Outcome:
        """With the rest of it shown: what was held back until it was whole, or what arrived of it on stderr."""
        if isinstance(outcome.failure, (Ended, OSError)):
            self._screen.lose_patience()
        if not isinstance(outcome.failure, OSError):
            outcome = self._tried(outcome, partial(self._deliver, outcome))
        outcome = self._tried(outcome, self._endings.listen)
        for text in self._notes:
            stdio.note(text)
        return outcome

    def _deliver(self, outcome: _Outcome) -> None:
        self._writer.close()
        if self._form.structured or not isinstance(self._writer, structured.HeldWriter):
            self._screen.finish()
        elif outcome.text and outcome.failure:
            stdio.say(outcome.text if outcome.text.endswith("\n") else f"{outcome.text}\n")
        elif outcome.part:
            self._writer.deliver(outcome.part)

    def _tried(self, outcome: _Outcome, show: Callable[[], None]) -> _Outcome:
        """With something shown. A signal ends the patience with its reader: what was begun goes out, if it is taken."""
        try:
            show()
        except Ended as ended:
            self._screen.lose_patience()
            return self._tried(outcome._replace(failure=outcome.failure or ended), self._screen.finish)
        except OSError as err:
            return outcome._replace(failure=outcome.failure or err)
        return outcome

    def _titled(self, outcome: _Outcome) -> _Outcome:
        """With the title saved. Ctrl-C only means that the title is not worth the wait.

        It is waited for where the server has ended the answer; else one that came already is kept.
        """
        title, has_ended = None, bool(outcome.message and _ended_by_server(outcome.message))
        if not self._title:
            return outcome
        try:
            if has_ended and not isinstance(outcome.failure, Ended):
                with self._endings.released():
                    self._title.start()  # where it does not go beside the answer
                    title = self._title.wait()
        except Ended as ended:
            outcome = outcome if ended.by_user else outcome._replace(failure=outcome.failure or ended)
        title = title or self._title.arrived
        cost = _cost(self._job.settings, self._title.model, self._title.usage)
        if self._keeper.keep_title(title, self._title.model, cost):
            self._writer.tell("title", title=title)
        return outcome

    def _told(self, outcome: _Outcome) -> _Outcome:
        """With the answer's object, or the last events, for who reads them. What comes behind that is too late."""
        if not self._form.structured:
            return outcome
        for before in (self._writer.close, self._screen.ready, self._endings.listen):
            outcome = self._tried(outcome, before)
        self._reporter.told = True
        if isinstance(outcome.failure, OSError):
            return outcome
        written = self._tried(outcome, partial(self._writer.conclude, self._object(outcome)))
        if self._screen.finished:
            self._endings.forget()
            return outcome
        return written

    def _remembered(self, outcome: _Outcome) -> _Outcome:
        """With what the agent's memory lacks put there, where that is due. The exit code was told before, in JSON."""
        if outcome.failure or not (self._keeper.keeps and self._job.sending.agent.memory):
            return outcome
        from gptsh.cli.remember import AfterTurn  # noqa: PLC0415 - few agents have one

        if self._screen.finished:
            stdio.let_go()
        after = AfterTurn(self._job.settings, self._job.client, self._endings)
        ended = after.carry_out(self._job.doc, self._keeper)
        return outcome if self._reporter.told else outcome._replace(failure=ended)

    def _object(self, outcome: _Outcome) -> dict[str, Any]:
        """The answer for a program."""
        message: Mapping[str, Any] = outcome.message or {}
        return {
            **structured.ANSWER,
            **{key: message.get(key) for key in ("finish_reason", "usage")},
            "id": message.get("id") if self._keeper.keeps else None,
            "session": self._job.doc["id"] if self._keeper.keeps else None,
            "text": outcome.part,
            "model": self._job.sending.model,
            "provider": self._job.sending.provider,
            "cost": sum_costs([*self._costs, *self._fitter.costs]),
            "tool_calls": (self._calls and self._calls.made) or message.get("tool_calls", []),
            "context": self._sent.report(),
            "error": self._error(outcome),
        }

    def _error(self, outcome: _Outcome) -> dict[str, Any] | None:
        failure = in_words(outcome.failure) if isinstance(outcome.failure, Ended) else outcome.failure
        failure = failure or self._keeper.failure
        if not isinstance(failure, GptshError):
            return None
        return structured.error(str(failure), self._keeper.where(outcome.message), failure.exit_code)


def _ended_by_server(message: Message) -> bool:
    """Whether the server gave a reason for ending, be the answer whole or cut by a limit."""
    return message.get("finish_reason") not in (None, *BROKEN_OFF)


def _endless(rounds: int) -> Incomplete:
    what = f"the model still calls tools after {rounds} round{'s' if rounds > 1 else ''}"
    return Incomplete(what, "go on with the session, or raise max_rounds under [mcp]")


def _misshapen(faults: list[str]) -> Misshapen:
    return Misshapen(f"the answer is not what --schema asks: {faults[0]}")


def _why(failure: BaseException | None, answer: Round) -> str | None:
    """The finish reason of an answer that we know is partial; None for a whole one."""
    match failure:
        case None:
            return None
        case Ended() | OSError() if answer.finished:
            return None
        case TimedOut() | Ended(by_deadline=True):
            return "timeout"
        case GptshError():
            return "error"
    return "interrupted"


def _cost(loaded: Settings, model: str, usage: Usage | None) -> float | None:
    """USD for one call; None where it is not known."""
    if usage is None:
        return None
    from gptsh.core import pricing  # noqa: PLC0415 - the answer is out; the request need not wait for it

    return pricing.of_call(loaded, model, usage)


def _raise(failure: BaseException | None, where: str) -> None:
    match failure:
        case None | BrokenPipeError():
            return
        case OSError():
            failure = OutputError(f"the answer cannot be written: {failure.strerror}")
            failure.hint = where
        case GptshError() | Ended():
            failure.hint = failure.hint or where
    raise failure
