"""A session brought into the room that there is: compactions carried out, kept and told, for the length of one run."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.cli import stdio
from gptsh.cli.prepare import ASK_FROM
from gptsh.cli.sending import Sending
from gptsh.cli.small import small_of
from gptsh.core import context, document, settings
from gptsh.core.choice import Choice, Record, Session, Wanted
from gptsh.core.context import Context
from gptsh.core.document import Document
from gptsh.core.messages import Message, Usage, sum_costs
from gptsh.core.settings import Settings
from gptsh.core.small import Small
from gptsh.core.turn import Ask, Request
from gptsh.errors import GptshError, ModelError, TooLong
from gptsh.llm.client import Client

if TYPE_CHECKING:
    from gptsh.core.summaries import Made

CALLS = 4  # of the small model in one run, for summaries
_LEAST_GAIN = 0.9  # times what was sent: a server that refused that is not asked again with more
_SURE = 1.05  # times what a refusal counts is what is taken for true

Tell = Callable[..., None]  # an event's type and its fields
Built = tuple[Context, Request]


class Hands(NamedTuple):
    """What a fitter works with: who is asked for summaries, and how, and who is told what happened."""

    settings: Settings
    client: Client
    ask: Ask  # as ``client.ask``, where a signal may end the waiting
    waiting: Callable[[str], Any]  # a spinner to be entered, under its text
    tell: Tell
    keep: Callable[[], bool]  # saves the document; whether it is on disk


class Fitter:
    """Fits what is sent of a document into the window, and keeps in the document how.

    ``costs`` are those of the calls for summaries, in USD.
    """

    def __init__(self, sending: Sending, doc: Document, hands: Hands) -> None:
        self.sending, self._doc, self._hands = sending, doc, hands
        self.costs: list[float | None] = []
        self._calls = CALLS
        self._told = 0  # questions that the user knows to be left out

    def fitted(self, messages: Sequence[Message]) -> Built:
        """What is sent of the messages. Raises TooLong, and Interrupted while a summary is waited for."""
        spoken = self.sending.spoken(messages)
        self._look_at_the_window(spoken)
        choice = self.sending.chosen(spoken, self._doc["context"])
        return self.carried_out(choice, spoken, self.sending.built(choice, messages))

    def _look_at_the_window(self, spoken: Sequence[Message]) -> None:
        """Learn the window once a turn has grown beyond what fits any: it began with too little to ask for that."""
        sending = self.sending
        if sending.room.window is None and sending.measured(spoken, limit=ASK_FROM).safe > ASK_FROM:
            window = self._hands.client.window(sending.model, ask=True)
            room = context.room_for(window, sending.agent.params, sending.rules.reserve)
            self.sending = sending._replace(room=room)

    def fits(self, messages: Sequence[Message]) -> None:
        """Raise TooLong where not even the least of the messages fits."""
        spoken = self.sending.spoken(messages)
        self.sending.built(self.sending.chosen(spoken, self._doc["context"]), messages)

    def carried_out(self, choice: Choice, spoken: Sequence[Message], built: Built) -> Built:
        """What was chosen, in a request: as ``built``, but for a new compaction.

        That one is kept, with a snapshot of what was before it. What does not fit all the same is never built, so that
        it is not kept either.
        """
        if choice.made:
            choice = self.compacted(choice, spoken)
            built = self.sending.built(choice, self._doc["messages"])
        if choice.shortened.questions > self._told:
            self._told = choice.shortened.questions
            stdio.note(_left_out(self._told))
        return built

    def refitted(self, refused: TooLong, sent: Context, messages: Sequence[Message]) -> Built | None:
        """What is sent into the window that a refusal names; None where it names none, or nothing can be shorter."""
        window, params = refused.window, self.sending.agent.params
        if window is None or not self.sending.rules.compact:
            return None
        self._hands.client.learn(self.sending.model, window)
        room, scale = context.room_for(window, params, self.sending.rules.reserve), None
        if refused.prompt and room.prompt:  # then it is known how far our estimate is from what the server counts
            scale = _SURE * refused.prompt / sent.size.safe
            if scale > 1:
                room = room._replace(reserve=window - int(room.prompt / scale))
        self.sending = self.sending._replace(room=room, scale=min(1.0, scale) if scale else None)
        spoken = self.sending.spoken(messages)
        choice = self.sending.chosen(spoken, self._doc["context"])
        if not choice.record or choice.size.safe > _LEAST_GAIN * sent.size.safe:
            return None
        choice = choice._replace(record={**choice.record, "reason": "refused"})
        try:
            return self.carried_out(choice, spoken, self.sending.built(choice, messages))
        except TooLong:
            return None

    def compacted(self, choice: Choice, spoken: Sequence[Message]) -> Choice:
        """A new compaction, its summary made, kept in the document with a snapshot of what was before it.

        What is sent instead where no summary can be had; raises GptshError then where the user asked for it.
        """
        from gptsh.core import compaction  # noqa: PLC0415 - most sessions are small

        frame, rules, doc = self.sending.frame(spoken), self.sending.rules, self._doc
        wanted = choice.record or {}
        if choice.wanted:
            failed = self._sum_up(choice.wanted)
            session = Session(spoken, doc["context"])
            if failed is None:
                choice = compaction.with_summary(session, frame, rules, choice)
            else:
                self._hands.tell("compression_error", error=str(failed))
                if wanted.get("reason") == "asked":
                    raise failed
                stdio.note(f"no summary could be made: {failed}")
                choice = compaction.without_summary(session, frame, rules, choice)
        snapshot = self._put_in_force(choice, spoken, wanted.get("before"))
        if choice.record:
            stdio.note(_shortened(choice.record, snapshot))
            self._hands.tell("compressed", **told(choice))
        return choice

    def _put_in_force(self, choice: Choice, spoken: Sequence[Message], tokens: int | None) -> str | None:
        """Keep a compaction, with a snapshot of where the session stood; what that is called, if it is on disk."""
        from gptsh.core import snapshots  # noqa: PLC0415 - most sessions are small

        doc = self._doc
        end = _before(doc, spoken)
        known = snapshots.automatic_at(doc, end)  # one a turn: what is compacted in its rounds is compacted already
        happened = [] if known else snapshots.record(doc, self.sending.rules.snapshots, tokens=tokens, end=end)
        doc["context"]["compaction"] = choice.record
        if not self._hands.keep():
            return None
        named = {item["id"]: item for item in doc["context"]["snapshots"]}  # another run may have taken the name
        for kind, fields in happened:
            if kind == "snapshot_created":
                fields["snapshot"] = named.get(fields["snapshot"]["id"], fields["snapshot"])
                known = fields["snapshot"]["name"]
            self._hands.tell(kind, **fields)
        return f"{doc['id']}@{known}" if known else None

    def _sum_up(self, wanted: Wanted) -> GptshError | None:
        """Make the summary and put it into the document, with what it cost; why there is none."""
        from gptsh.core import summaries  # noqa: PLC0415 - the same

        hands = self._hands
        model = settings.small_model(hands.settings, self.sending.agent) or self.sending.model
        small = small_of(hands.settings, hands.client, hands.ask, model)
        spent: list[Usage] = []
        made: summaries.Made | None = None
        failure: GptshError | None = None
        try:
            with hands.waiting(f"summarising {len(wanted.messages):,} messages with {model}"):
                made = self._asked(small, wanted, spent)
        except GptshError as err:
            failure = err
        finally:
            self._calls -= max(1, len(spent), made.calls if made else 0)
            cost = sum_costs(map(small.price, spent))
            self.costs.append(cost)
            known = self._doc["context"]["summaries"]
            if made:
                known.append(summaries.new_summary(wanted.covered, made, model, cost))
            elif spent:
                known.append(summaries.paid(spent, model, cost))
                hands.keep()
        if made and wanted.previous and (then := wanted.previous.get("tokens") or 0) > summaries.LONGER * wanted.tokens:
            hands.tell("summary_aged", before=then, after=made.tokens)
        return failure

    def _asked(self, small: Small, wanted: Wanted, spent: list[Usage]) -> "Made":
        """The summary, in as many calls as are left. Raises GptshError, also for a model that nobody knows here."""
        from gptsh.core import summaries  # noqa: PLC0415 - the same

        if self._calls < 1:
            raise ModelError(f"{CALLS} calls for summaries were made in this run")
        before = wanted.previous["text"] if wanted.previous else None
        if before and not wanted.messages:
            return summaries.condense(small, before, to=wanted.tokens, spent=spent)
        material, tokens = wanted.messages, wanted.tokens
        return summaries.summarise(small, before, material, tokens=tokens, calls=self._calls, spent=spent)


def told(choice: Choice) -> dict[str, Any]:
    """What a compaction came to, for a program."""
    record, sent = choice.record or {}, choice.shortened
    sizes = {key: record.get(key) for key in ("reason", "before", "after")}
    counts = {"included": sent.included, "summarized": sent.summarized, "left_out": sent.left_out}
    return {"strategy": choice.strategy, **sizes, **counts}


def _before(doc: Document, spoken: Sequence[Message]) -> int | None:
    """How many messages stand before the question that is answered: who goes back asks again. None where none is."""
    if not document.unfinished(spoken):
        return None
    asked = spoken[document.turns(spoken)[-1]].get("id")
    return next((at for at, message in enumerate(doc["messages"]) if message["id"] == asked), None) or None


def _shortened(record: Record, snapshot: str | None) -> str:
    """What a compaction did, and the snapshot of what was before it."""
    what = f"~{record['before']:,} tokens of the session are sent as ~{record['after']:,} ({record['strategy']})"
    return f"{what}; snapshot {snapshot}" if snapshot else what


def _left_out(questions: int) -> str:
    what = "1 earlier question is" if questions == 1 else f"{questions:,} earlier questions are"
    return f"{what} left out: the session outgrew the window"
