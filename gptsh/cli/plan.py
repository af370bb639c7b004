"""What is sent: the messages made valid, counted, and where they do not fit shortened, into a request.

Nothing is saved or sent here, but where a plan needs a summary first: then the small model is asked, and that is saved.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.cli import stdio
from gptsh.cli.app import App, TurnSetup
from gptsh.cli.options import Flags
from gptsh.cli.session import Session
from gptsh.cli.show import Screen
from gptsh.config import settings
from gptsh.config.settings import Settings
from gptsh.content.answer import Ask, Request, Tools
from gptsh.content.attachments import ABILITIES, NAMES, Kind, media_in
from gptsh.context import shorten, tokens, valid
from gptsh.context.strategies import FULL, Choice, CompactedPrompt
from gptsh.context.tokens import BYTES, Size, Target
from gptsh.context.valid import Room
from gptsh.core import document
from gptsh.errors import GptshError, ModelError, StoreError, TooLong, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message, timestamp
from gptsh.models.cost import filled_window
from gptsh.models.facts import facts, split_model
from gptsh.models.providers import DIRECT
from gptsh.text import counted

if TYPE_CHECKING:
    from gptsh.context.compaction import Chooser
    from gptsh.context.summaries import SmallModel

_ASK_FROM = 2000  # tokens of a prompt, or of prompt and answer; fewer fit any model, whose window is not looked up
_SUMMARY_CALLS = 4  # of the small model in one run
_OLLAMA_MIN_WINDOW = 4096  # tokens of the smallest window that Ollama is asked for
_USUAL_ANSWER = 4096  # tokens: the quarter of a large window is far more than answers take
_SHARE = 0.6  # of the room: a question that is cut leaves the rest to what was said before it
_LEAST_GAIN = 0.9  # times what was sent: a server that refused that is not asked again with more


class Plan(NamedTuple):
    """What is sent: how much of the session, into how much room, ``fixed`` tokens of it beside the messages."""

    choice: Choice
    room: Room
    fixed: int
    request: Request

    def report(self) -> dict[str, Any]:
        """What is told of it. Tokens are those of the messages, as the budget is; ``at_most`` is what is acted on."""
        sent, size = self.choice.prompt, self.choice.size
        return {
            "strategy": self.choice.strategy,
            "tokens": max(0, size.tokens - self.fixed),
            "at_most": max(0, size.at_most - self.fixed),
            "budget": self.room.budget(self.fixed),
            "window": self.room.window,
            "included": sent.included,
            "summarized": sent.summarized,
            "left_out": sent.left_out,
        }


class Planner:
    """Plans each request of a turn. ``costs`` are those of the calls for summaries, in USD."""

    def __init__(self, app: App, flags: Flags, who: TurnSetup, session: Session, tools: Tools | None) -> None:
        """Raises ToolServerError, and UsageError where the model does not take what is attached."""
        self.agent, self.form, self.screen = who.agent, who.form, Screen(who.form)
        self.model, self.rules = who.agent.model or "", app.settings.context
        limits = [who.agent.params.get(name) for name in ("max_tokens", "max_completion_tokens")]
        asked = next((limit for limit in limits if type(limit) is int), None)
        self.room = Room(None, self.rules.reserve, None if asked is None else max(0, asked))
        self.costs: list[float | None] = []
        self._settings, self._client, self._flags, self._session = app.settings, app.client, flags, session
        self._provider = app.settings.providers.of(self.model)
        self.provider = self._provider.name
        self._tools = tools.tools() if tools else ()
        if tools and tools.missing:
            stdio.note(f"the session goes on without some of its tools: {', '.join(tools.missing)}")
        self._counts = False  # whether prompts are counted: it was not certain that they are small
        self._believes = True  # what was reported of earlier prompts of the session
        self._calls = _SUMMARY_CALLS
        self._noted = 0  # questions that the user knows to be left out
        messages = session.doc["messages"]
        self._lacks = self._unsupported(messages)
        self._memory = self._read_memory() if who.agent.memory and who.agent.system != "" else ""
        self._settle_front()
        self._find_window(messages)
        if self._memory:  # no more of it than a small window has room for
            self._settle_front()
        if flags.truncate:
            self._truncate(messages, flags.truncate)

    # ---- what is sent

    def plan(self, messages: Sequence[Message], *, dry: bool = False) -> Plan:
        """What is sent of the messages. ``dry``: a new compaction is not kept, and a summary that it takes not made.

        Raises TooLong, and what a summary raises that is waited for.
        """
        # A turn that began with too little to look for the window may have grown beyond what fits any.
        if not dry and self.room.window is None and self._size(self._sendable(messages)).tokens > _ASK_FROM:
            self._find_window(messages)
        return self._planned(self._choose(messages, dry=dry), messages, dry=dry)

    def refit(self, refused: TooLong, plan: Plan, messages: Sequence[Message]) -> Plan | None:
        """What is sent into the window that a refusal names; None where it names none, or nothing can be shorter."""
        window, before = refused.window, sum(map(tokens.count_message, plan.request.messages))
        if window is None or not self.rules.compact:
            return None
        self._client.servers.learn(self.model, window)
        self.room = self.room._replace(window=window)
        # A prompt that is refused takes more than there is room for, whatever it was counted as.
        taken = refused.prompt or self.room.prompt or 0
        self._believes, self._scale, self._counts = False, max(1.0, taken / max(1, before)), True
        choice = self._choose(messages, reason="refused")
        if sum(map(tokens.count_message, choice.prompt.messages)) > _LEAST_GAIN * before:
            return None
        try:
            return self._planned(choice, messages)
        except TooLong:
            return None

    def _choose(self, messages: Sequence[Message], *, dry: bool = False, reason: str = "auto") -> Choice:
        """How much of the messages is sent."""
        if not self._session.doc["context"].get("compaction") and not self._flags.compact:
            sendable = self._sendable(messages)
            size, budget = self._size(sendable), self.room.budget(self.fixed)
            if not self.rules.compact or budget is None or size.tokens - self.fixed <= self.rules.compact_at * budget:
                return Choice(FULL, CompactedPrompt(sendable, len(sendable)), size)
        chooser = self.chooser(messages, dry=dry)
        return (self._flags.compact and chooser.compact()) or chooser.choose(reason)

    def chooser(self, messages: Sequence[Message], *, dry: bool = False) -> "Chooser":
        """What chooses how the messages are sent; ``dry``: with summaries that are not made yet."""
        from gptsh.context.compaction import Chooser  # noqa: PLC0415 - most sessions are small

        state, make = self._session.doc["context"], self._summarise
        if dry:
            state = {**state, "summaries": [*state["summaries"]]}
            make = partial(_placeholder_summary, state["summaries"])
        budget = self.room.budget(self.fixed)
        return Chooser(
            self._sendable(messages), state, self._size, budget, self.fixed, self.rules, make, self._summary_failed
        )

    def _planned(self, choice: Choice, messages: Sequence[Message], *, dry: bool = False) -> Plan:
        """The request for what was chosen. What does not fit is never kept: TooLong is raised before."""
        size, room = choice.size, self.room
        if room.prompt is not None and size.tokens > room.prompt:
            advice, asked = "-m", document.question_index(messages)
            if not self.rules.compact and asked:
                advice += '; compact = "auto" under [context] sends less of the session'
            mine = messages[asked if self.rules.compact else 0 :]
            if self._flags.truncate is None and any(map(shorten.attached_texts, mine)):
                advice += "; --truncate cuts what is piped or attached"
            window = f"of {room.window:,}, {room.reserve:,} kept for the answer"
            raise TooLong(
                f"the prompt takes about {size.tokens:,} tokens and the window has room for {room.prompt:,} ({window})",
                f"shorten it, or choose a larger window with {advice}",
            )
        is_sent = not (dry and choice.is_new) and not self._flags.dry_run
        if is_sent and choice.is_new:
            self.keep_compaction(choice, messages)
        if is_sent and (questions := choice.prompt.omitted_questions) > self._noted:
            self._noted = questions
            is_left = "is" if questions == 1 else "are"
            stdio.note(f"{counted(questions, 'earlier question')} {is_left} left out: the session outgrew the window")
        sent = valid.build(choice.prompt.messages, self._system, self.provider, self.model)
        answer = room.reserve if room.asked is not None else min(room.reserve, _USUAL_ANSWER)
        last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
        taken = max(size.at_most, (last and filled_window(last)) or 0) + answer  # of a full window it is more
        stream = not self._flags.no_stream
        request = Request(self.model, sent, dict(self.agent.params), stream, self._schema, self._tools, taken)
        return Plan(choice, room, self.fixed, request)

    # ---- sizes

    @property
    def fixed(self) -> int:
        """Tokens of what stands in front of the messages, or beside them."""
        if self._counts:
            return sum(map(tokens.count_text, self._before))
        return sum(map(tokens.upper_bound, self._before)) // BYTES

    def _sendable(self, messages: Sequence[Message]) -> list[Message]:
        """The messages of a session as this model can read them."""
        cuts = self._session.doc["context"]["cuts"]
        return valid.sendable(
            shorten.as_sent(message, self._lacks, cuts.get(message.get("id"), ())) for message in messages
        )

    def _size(self, sendable: Sequence[Message], under: str | None = None, exact: bool = False) -> Size:
        """Tokens that messages take when they are sent under a compaction, what stands in front of them included.

        Nothing is counted for as long as it is certain that all is below the mark at which a new compaction is made;
        nor for Ollama in any window that it is given.
        """
        limits = [_OLLAMA_MIN_WINDOW] if self._provider.api == "ollama" else []
        limits += [] if self.room.prompt is None else [round(self.rules.compact_at * self.room.prompt)]
        self._counts = self._counts or exact
        return tokens.size_of(
            sendable,
            self._before,
            Target(self.model if self._believes else None, self.provider, under),
            skip_below=0 if self._counts else min(limits, default=None),
            skip_above=self.room.prompt,
            scale=lambda: self._scale,
        )

    @cached_property
    def _scale(self) -> float | None:
        """What counts are multiplied with, by the reports of earlier prompts of the session.

        Reading it switches from estimates to counted tokens.
        """
        self._counts = True
        everything = self._sendable(self._session.doc["messages"])
        return tokens.scale_of(everything, self._before, Target(self.model, self.provider))

    def _find_window(self, messages: Sequence[Message]) -> None:
        """Learn what the model's window leaves. For a prompt that fits any it is looked up only where it is shown."""
        size, truncates = self._size(self._sendable(messages)).tokens, self._flags.truncate is not None
        answer = size // 3 if self.room.asked is None else self.room.asked
        asks = size > _ASK_FROM or truncates
        window = self._provider.context_window
        if asks or size + answer > _ASK_FROM or self._flags.dry_run or self.form.structured:
            window = self._client.servers.window(self.model, ask=asks)
        if truncates and window is None:
            way = f"set context_window under [providers.{self.provider}]"
            raise UsageError(f"--truncate: the window of {self.model} is not known", way)
        self.room = self.room._replace(window=window)

    def _truncate(self, messages: Sequence[Message], end: str) -> None:
        """Truncate piped and attached text until all fits or nothing is left to truncate; the session says where.

        Where the session can be compacted that is the text of the question alone, and what was said before keeps its
        share of the room, or all that it takes if that is less.
        """
        choice, limit = self._choose(messages, dry=True), self.room.prompt or 0
        if choice.size.tokens <= limit and not choice.prompt.omitted_questions and not choice.is_new:
            return
        self._believes, self._scale = False, None  # no earlier report is of what is sent now
        context = self._session.doc["context"]
        asked = document.question_index(messages) if self.rules.compact else 0
        before, own = messages[:asked], messages[asked:]
        texts = {message["id"]: shorten.attached_texts(message) for message in own}
        known = {ident: cuts for ident, cuts in context["cuts"].items() if ident not in texts}

        def size_of(part: Sequence[Message], cuts: Mapping[str, shorten.Cuts]) -> int:
            self._session.doc["context"] = {**context, "cuts": {**known, **cuts}}
            return self._size(self._sendable(part), exact=True).tokens

        if before:
            rest = round(self.rules.compact_at * limit) - (size_of(before, {}) - size_of([], {}))
            limit = max(round(_SHARE * limit), rest)
        whole = {ident: [[at, 0, len(part["text"])] for at, part in parts.items()] for ident, parts in texts.items()}
        room = limit - size_of(own, whole)
        cuts: dict[str, shorten.Cuts] = {}
        size = size_of(own, cuts)
        while size > limit and (new := shorten.truncate(own, room, end)) is not None:
            cuts, size = new, size_of(own, new)
            room -= max(1, size - limit)  # where more was reported of what stays than is counted
        for ident, of_message in cuts.items():
            for place, start, stop in of_message:
                part = texts[ident][place]
                what = f"{stop - start:,} of {len(part['text']):,} characters cut from its {end}"
                stdio.note(f"{part['source']}: {what}")

    # ---- what goes along

    def _settle_front(self) -> None:
        """Settle the system prompt and the schema that are sent.

        A schema goes as a field where the model is known to take it, in words where not, as both where none knows.
        """
        self._system, self._schema, shape = self.agent.system, None, self.form.shape
        if self._memory:
            from gptsh.context.memory import system_with_memory  # noqa: PLC0415 - few agents have one

            self._system = system_with_memory(self._system, self._memory, self.room.window)
        if shape:
            from gptsh.context.answer_schema import system_with_schema  # noqa: PLC0415 - few answers have one

            # Ollama takes one for every model, and shows it to none.
            provider = self._provider
            takes = None if provider.api == "ollama" else facts(provider.name, provider.model).can("response_schema")
            if takes or (takes is None and provider.api in DIRECT):
                self._schema = shape.schema
            if not takes:
                self._system = system_with_schema(self._system, shape.schema)
        schema = "" if self._schema is None else json.dumps(self._schema)
        definitions = [json.dumps(tool._asdict(), ensure_ascii=False) for tool in self._tools]
        self._before = [text for text in (self._system, schema, *definitions) if text]

    def _read_memory(self) -> str:
        """What the agent remembers. A memory that cannot be read is worth a note, and no answer."""
        from gptsh.context import memory  # noqa: PLC0415 - few agents have one

        try:
            return memory.read_memory(self.agent.name)
        except StoreError as err:
            stdio.note(str(err))
            return ""

    def _unsupported(self, messages: Sequence[Message]) -> frozenset[Kind]:
        """The kinds of attachments in the session that the model is known not to take; a note says how many there are,
        those among them that its API has no place for.

        Raises UsageError where the question that is asked has one.
        """
        found = [(message, part, media) for message in messages for part, media in media_in(message)]
        if not found:
            return frozenset()
        client, model, asked = self._client, self.model, next(iter(messages[document.question_index(messages) :]), None)
        lacks = frozenset(
            k for k in {media.kind for *_, media in found} if client.servers.can(model, ABILITIES[k]) is False
        )
        left = []
        for message, part, media in found:
            if message is asked and media.kind in lacks:
                raise UsageError(f"{model} takes no {NAMES[media.kind]}", "choose another model with -m")
            if media.kind in lacks:
                left.append(NAMES[media.kind])
            elif message["role"] != "assistant" and not client.accepts(model, part):
                left.append(f"{NAMES[media.kind]} of that form")
        if left:
            what = f"{counted(len(left), 'attachment')} of the session not sent"
            stdio.note(f"{what}: {model} takes no {', no '.join(sorted(set(left)))}")
        return lacks

    # ---- compaction

    def keep_compaction(self, choice: Choice, messages: Sequence[Message]) -> None:
        """Keep a new compaction in the document, with a snapshot of where the session stood; and say so."""
        from gptsh.core import snapshots  # noqa: PLC0415 - most sessions are small

        doc, record, end = self._session.doc, choice.record or {}, None
        if document.unfinished(messages):  # who goes back asks again: it stands before the question
            asked = messages[document.question_index(messages)].get("id")
            end = next((at for at, message in enumerate(doc["messages"]) if message["id"] == asked), None) or None
        known = snapshots.automatic_at(doc, end)  # one a turn: what is compacted in its rounds is compacted already
        happened = [] if known else snapshots.record(doc, self.rules.snapshots, tokens=record.get("before"), end=end)
        doc["context"]["compaction"] = record
        kept = self._session.save(*happened, fsync=self._flags.compact)
        name = known or (happened[0][1]["snapshot"]["name"] if happened else None)
        what = f"~{record['before']:,} tokens of the session are sent as ~{record['after']:,} ({record['strategy']})"
        stdio.note(f"{what}; snapshot {doc['id']}@{name}" if name and kept else what)
        self._session.emit("compressed", **compaction_report(choice))

    def _summarise(
        self, older: Sequence[Message], fresh: Sequence[Message], previous: str | None, size: int
    ) -> dict[str, Any]:
        """A summary of the older messages, put into the document with what it cost. Raises GptshError."""
        from gptsh.context import summaries  # noqa: PLC0415 - most sessions are small

        model = settings.small_model(self._settings, self.agent) or self.model
        if split_model(model)[0] == "echo":
            raise ModelError("echo makes no summaries", "model_small names a model that does")
        if self._calls < 1:
            raise ModelError(f"{_SUMMARY_CALLS} calls for summaries were made in this run")
        small, text = make_small_model(self._settings, self._client, self._client.ask, model), ""
        try:
            with self.screen.spinning(f"summarising {len(fresh):,} messages with {model}"):
                text = summaries.summarise(small, previous, fresh, tokens=size, calls=self._calls)
        finally:
            self._calls -= max(1, small.calls)
            for usage in small.spent:
                self.costs.append(small.price(usage))
                document.add_call(self._session.doc, "summary", model, usage, self.costs[-1])
            if small.spent and not text:
                self._session.save(fsync=self._flags.compact)
        record = summaries.new_summary(older, text, model)
        self._session.doc["context"]["summaries"].append(record)
        if previous and (then := tokens.count_text(previous)) > summaries.LENGTH_TOLERANCE * size:
            self._session.emit("summary_aged", before=then, after=record["tokens"])
        return record

    def _summary_failed(self, err: GptshError) -> None:
        self._session.emit("compression_error", error=str(err))
        stdio.note(f"no summary could be made: {err}")


def _placeholder_summary(
    summaries: list[dict[str, Any]],
    older: Sequence[Message],
    fresh: Sequence[Message],
    previous: str | None,
    size: int,
) -> dict[str, Any]:
    """The record of a summary that is not made yet; it would hardly be longer than a third of what it tells."""
    size = min(size, (tokens.count_text(previous or "") + sum(map(tokens.count_message, fresh))) // 3)
    text = "[a summary of what is older, made when this is sent]"
    ends = {"first": older[0].get("id"), "last": older[-1].get("id")}
    record = {"id": "pending", "created_at": timestamp(), "text": text, "tokens": size, "pending": True, **ends}
    summaries.append(record)
    return record


def make_small_model(loaded: Settings, client: Client, ask: Ask, model: str) -> "SmallModel":
    """A small model; ``ask`` is as ``client.ask``. Its window is looked up when it is wanted first."""
    from gptsh.context.summaries import SmallModel  # noqa: PLC0415 - few runs ask one for more than a title

    price = partial(settings.cost_of, loaded, model)
    return SmallModel(
        ask, model, partial(client.servers.window, model, ask=True), partial(client.servers.learn, model), price
    )


def compaction_report(choice: Choice) -> dict[str, Any]:
    """What a compaction came to, for a program."""
    record, sent = choice.record or {}, choice.prompt
    sizes = {key: record.get(key) for key in ("reason", "before", "after")}
    counts = {"included": sent.included, "summarized": sent.summarized, "left_out": sent.left_out}
    return {"strategy": choice.strategy, **sizes, **counts}
