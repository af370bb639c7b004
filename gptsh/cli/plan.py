"""What is asked of whom: agent, model and form, then what of the session is sent, and into how much room.

Nothing is saved or sent here, but where a plan needs a summary first: then the small model is asked, and that is saved.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import Opened, Session, agent_for
from gptsh.cli.show import Form, Screen
from gptsh.config import settings
from gptsh.config.forms import STRUCTURED
from gptsh.config.mcp_servers import ToolServer
from gptsh.config.settings import Agent, Settings
from gptsh.content.answer import Ask, Request, Tools
from gptsh.content.attachments import ABILITIES, NAMES, Kind, media_in
from gptsh.context import shorten, tokens, valid
from gptsh.context.strategies import FULL, Choice, CompactedPrompt
from gptsh.context.tokens import BYTES, Size, Target
from gptsh.context.valid import Room
from gptsh.core import document, references, sessions
from gptsh.core.document import Document
from gptsh.errors import ConfigError, GptshError, ModelError, OutputError, StoreError, TooLong, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message, timestamp
from gptsh.models.cost import filled_window
from gptsh.models.facts import facts, near_parameter, split_model
from gptsh.models.names import safe_params
from gptsh.models.providers import DIRECT
from gptsh.text import counted

if TYPE_CHECKING:
    from gptsh.cli.turn import App
    from gptsh.context.compaction import Chooser, Summarise
    from gptsh.context.summaries import Small
    from gptsh.core.snapshots import Happening

ASK_FROM = 2000  # tokens of a prompt, or of prompt and answer; fewer fit any model, whose window is not looked up
SUMMARY_CALLS = 4  # of the small model in one run
OLLAMA_LEAST = 4096  # tokens of the smallest window that Ollama is asked for
_USUAL_ANSWER = 4096  # tokens: the quarter of a large window is far more than answers take
_SHARE = 0.6  # of the room: a question that is cut leaves the rest to what was said before it
_LEAST_GAIN = 0.9  # times what was sent: a server that refused that is not asked again with more


# ---- who answers


class Respondent(NamedTuple):
    """Who answers, in which form, with the tools of which servers: all that is known before the question is read."""

    agent: Agent  # its model under its full name
    form: Form
    servers: list[ToolServer]


def resolve(app: "App", flags: Flags, stored: Document | None) -> Respondent:
    """What can end in exit 2 whatever is asked: agent, model, key, parameters, schema, tools.

    The agent gets its model under its full name; a note says what that refuses. The reporter learns the form of the
    output. Markdown is for a person: in a pipe it is rendered only where the command line itself asks for it. Raises
    ConfigError and UsageError.
    """
    agent = with_tools(agent_for(flags, app.settings, stored), flags, app.settings, stored)
    output = flags.output or app.settings.output or agent.output
    if output in STRUCTURED and flags.interactive:  # what is configured is for programs
        output = None
    if output not in STRUCTURED:
        person = stdio.is_terminal(stdio.answers_to())
        output = "markdown" if flags.output == "markdown" or (person and output != "text") else "text"
    if flags.extract and flags.schema is not None:
        raise UsageError("-x and --schema exclude each other", "JSON loses its fence by --schema alone")
    shape = None
    if flags.schema is not None:
        from gptsh.context.answer_schema import Shape  # noqa: PLC0415 - few answers have one

        shape = Shape(flags.schema)
    app.reporter.output = output
    if agent.model is None:
        raise no_model(app.client)
    servers = app.settings.tool_servers.chosen(agent.tools) if agent.tools else []
    agent = agent._replace(model=app.client.servers.named(agent.model))
    if left_out := app.client.prepare(agent.model or "", agent.params, tools=bool(agent.tools)):
        stdio.note(f"{agent.model} takes no {', '.join(left_out)}: left out")
    for name in agent.params:
        if near := near_parameter(name):
            stdio.note(f"the parameter {name} is sent as it is: did you mean {near}?")
    return Respondent(agent, Form(output, flags.extract, shape, not flags.no_reasoning), servers)


def with_tools(agent: Agent, flags: Flags, loaded: Settings, stored: Document | None) -> Agent:
    """The agent with the tools that are wanted: the command line's, else the session's, else its own."""
    names = None if stored is None or chooses_tools(flags) else stored["meta"].get("mcp_allowed_servers")
    if not isinstance(names, list):
        return agent._replace(tools=flags.tools_of(agent.tools))
    known = []
    for name in names:  # as far as they are still configured
        try:
            known += [name] if isinstance(name, str) and loaded.tool_servers.chosen([name]) else []
        except ConfigError as err:
            stdio.note(f"the session goes on without some of its tools: {err}")
    return agent._replace(tools=tuple(known))


def chooses_tools(flags: Flags) -> bool:
    """Whether the command line says which tools there are to be, from now on."""
    return flags.no_tools or flags.tools is not None or flags.agent is not None


def no_model(client: Client) -> ConfigError:
    """What is wrong where nothing says which model is asked: the ways to say it."""
    near = client.servers.local_models()
    ways = "use -m PROVIDER/MODEL, GPTSH_MODEL, a key such as OPENAI_API_KEY, or model under [agents.default], which "
    ways += "gptsh --init writes"
    offered = f"; local models: {', '.join(near)}" if near else "; -m echo works offline"
    return ConfigError("no model is chosen", ways + offered)


# ---- the question in its session


def begin(
    flags: Flags, loaded: Settings, question: Message | None, opened: Opened, who: Respondent
) -> "tuple[Document, list[Happening]]":
    """The document with the question in it, and what is to be reported of snapshots once it is saved.

    Without a question the session is taken as it stands. Its agent and provider are those of this turn. Raises
    UsageError; nothing is saved.
    """
    agent, stored = who.agent, opened.doc
    info = {
        "name": agent.name,
        "model": agent.model,
        "model_small": agent.model_small,
        "params": safe_params(agent.params),
        "system": agent.system,
    }
    provider = {"name": loaded.providers.of(agent.model or "").name}
    if stored is None:
        try:
            cwd = os.getcwd()
        except FileNotFoundError:
            cwd = None
        names = list(agent.tools)
        doc = sessions.new_session_doc(info, provider, output=who.form.output, mcp_allowed_servers=names, cwd=cwd)
    else:
        meta = {**stored["meta"], "output": who.form.output}
        if chooses_tools(flags):
            meta["mcp_allowed_servers"] = list(agent.tools)
        doc = {**stored, "meta": meta, "agent": {**stored["agent"], **info}}
        doc["provider"] = {**stored["provider"], **provider}
    happened: list[Happening] = []
    point = references.split_ref(opened.ref)[1] if opened.ref else None
    if point and not document.is_numbered(point):
        origin, _ = references.split_ref(doc["meta"]["forked_from"])
        happened.append(("snapshot_restored", {"snapshot": point, "session": origin}))
    if flags.snapshot is not None:
        from gptsh.core import snapshots  # noqa: PLC0415 - few runs take one

        size = tokens.roughly(doc["messages"])
        happened += snapshots.record(doc, loaded.context.snapshots, name=flags.snapshot, tokens=size)
    if question is not None:
        sessions.append_messages(doc, [question], None)
    return doc, happened


def refuse_answered(opened: Opened) -> None:
    """Raise UsageError where a session has no question without an answer, which could be asked again."""
    if opened.doc is None or not document.unfinished(opened.doc["messages"]):
        raise UsageError(
            f"no prompt, and session {opened.ref} has no question without an answer", "give words or pipe text in"
        )


# ---- what is sent


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

    def __init__(self, app: "App", flags: Flags, who: Respondent, session: Session, tools: Tools | None) -> None:
        """Raises ToolServerError, and UsageError where the model does not take what is attached."""
        self.agent, self.form, self.screen = who.agent, who.form, Screen(who.form)
        self.model, self.rules = who.agent.model or "", app.settings.context
        limits = [who.agent.params.get(name) for name in ("max_tokens", "max_completion_tokens")]
        asked = next((limit for limit in limits if type(limit) is int), None)
        self.room = Room(None, self.rules.reserve, None if asked is None else max(0, asked))
        self.max_rounds = app.settings.max_rounds if tools else 1
        self.costs: list[float | None] = []
        self._settings, self._client, self._flags, self._session = app.settings, app.client, flags, session
        self._provider = app.settings.providers.of(self.model)
        self.provider = self._provider.name
        self._doc = session.doc
        self._memory = _memory(who.agent) if who.agent.memory and who.agent.system != "" else ""
        self._lacks = self._unsupported(self._doc["messages"])
        self._tools = tools.tools() if tools else ()
        if tools and tools.missing:
            stdio.note(f"the session goes on without some of its tools: {', '.join(tools.missing)}")
        self._counts = False  # whether prompts are counted: it was not certain that they are small
        self._scale: float | None = None  # of counts, where a refusal has told how far they are from the truth
        self._truncates = False  # whether piped or attached text was truncated in this run
        self._calls = SUMMARY_CALLS
        self._noted = 0  # questions that the user knows to be left out
        self._scales: dict[int, float | None] = {}  # by the number of messages
        self._imagination: list[dict[str, Any]] = []  # summaries that are not made yet
        self._send_in_front(None)
        self._find_window()

    # -- what is sent

    def first(self) -> Plan:
        """What is sent of the session as it stands; a summary that this takes is not made yet. Raises TooLong."""
        messages, end = self._doc["messages"], self._flags.truncate
        choice = self._chosen(messages, self.imagined)
        if end and (choice.size.tokens > (self.room.prompt or 0) or choice.prompt.questions or choice.is_new):
            self._truncates = True
            self._truncate(messages, end)
            choice = self._chosen(messages, self.imagined)
        return self._planned(choice, messages)

    def kept(self, plan: Plan) -> Plan:
        """The first plan once the question is saved: a new compaction is made now, and kept."""
        return self.next(self._doc["messages"]) if plan.choice.is_new else self._noting(plan)

    def next(self, messages: Sequence[Message]) -> Plan:
        """What is sent of the messages. Raises TooLong, and what a summary raises that is waited for."""
        # A turn that began with too little to look for the window may have grown beyond what fits any.
        if self.room.window is None and self._size(self.spoken(messages)).tokens > ASK_FROM:
            self.room = self.room._replace(window=self._client.servers.window(self.model, ask=True))
        return self._kept(self._chosen(messages, self.summarise), messages)

    def check(self, messages: Sequence[Message]) -> None:
        """Raise TooLong where not even the least of the messages fits."""
        self._planned(self._chosen(messages, self.imagined), messages)

    def refit(self, refused: TooLong, plan: Plan, messages: Sequence[Message]) -> Plan | None:
        """What is sent into the window that a refusal names; None where it names none, or nothing can be shorter."""
        window, before = refused.window, sum(map(tokens.count_message, plan.request.messages))
        if window is None or not self.rules.compact:
            return None
        self._client.servers.learn(self.model, window)
        self.room = self.room._replace(window=window)
        # A prompt that is refused takes more than there is room for, whatever it was counted as.
        taken = refused.prompt or self.room.prompt or 0
        self._scale, self._counts = max(1.0, taken / max(1, before)), True
        choice = self._chosen(messages, self.summarise, reason="refused")
        if sum(map(tokens.count_message, choice.prompt.messages)) > _LEAST_GAIN * before:
            return None
        try:
            return self._kept(choice, messages)
        except TooLong:
            return None

    def _chosen(self, messages: Sequence[Message], summarise: "Summarise", reason: str = "auto") -> Choice:
        """What of the messages is sent."""
        if not self._doc["context"].get("compaction") and not self._flags.compact:
            spoken = self.spoken(messages)
            size = self._size(spoken)
            budget = self.room.budget(self._fixed)
            if not self.rules.compact or budget is None or size.tokens - self._fixed <= self.rules.compact_at * budget:
                return Choice(FULL, CompactedPrompt(spoken, len(spoken)), size)
        chooser = self.chooser(messages, summarise)
        return (self._flags.compact and chooser.compact()) or chooser.choose(reason)

    def chooser(self, messages: Sequence[Message], summarise: "Summarise") -> "Chooser":
        """What chooses how the messages are sent, with such summaries."""
        from gptsh.context.compaction import Chooser  # noqa: PLC0415 - most sessions are small

        state = self._doc["context"]
        if summarise == self.imagined:
            state = {**state, "summaries": [*state.get("summaries", ())]}
            self._imagination = state["summaries"]
        budget = self.room.budget(self._fixed)
        return Chooser(
            self.spoken(messages), state, self._size, budget, self._fixed, self.rules, summarise, self._summary_failed
        )

    def _kept(self, choice: Choice, messages: Sequence[Message]) -> Plan:
        """The plan of a choice. What does not fit all the same is never built, so that it is not kept either."""
        plan = self._planned(choice, messages)
        if choice.is_new:
            self.keep_compaction(choice, messages)
        return self._noting(plan)

    def _noting(self, plan: Plan) -> Plan:
        """The plan, the user knowing what it leaves out."""
        questions = plan.choice.prompt.questions
        if questions > self._noted:
            self._noted = questions
            is_left = "is" if questions == 1 else "are"
            stdio.note(f"{counted(questions, 'earlier question')} {is_left} left out: the session outgrew the window")
        return plan

    def _planned(self, choice: Choice, messages: Sequence[Message]) -> Plan:
        """The request for what was chosen of a session's messages; where it has none yet, for none. Raises TooLong."""
        size, room = choice.size, self.room
        if room.prompt is not None and size.tokens > room.prompt:
            advice, asked = "-m", document.asked_at(messages)
            if not self.rules.compact and asked:
                advice += '; compact = "auto" under [context] sends less of the session'
            mine = messages[asked if self.rules.compact else 0 :]
            if self._flags.truncate is None and any(map(shorten.attached, mine)):
                advice += "; --truncate cuts what is piped or attached"
            window = f"of {room.window:,}, {room.reserve:,} kept for the answer"
            raise TooLong(
                f"the prompt takes about {size.tokens:,} tokens and the window has room for {room.prompt:,} ({window})",
                f"shorten it, or choose a larger window with {advice}",
            )
        sent = valid.build(choice.prompt.messages, self._system, self.provider, self.model)
        answer = room.reserve if room.asked is not None else min(room.reserve, _USUAL_ANSWER)
        last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
        taken = max(size.at_most, (last and filled_window(last)) or 0) + answer  # of a full window it is more
        stream = not self._flags.no_stream
        request = Request(self.model, sent, dict(self.agent.params), stream, self._schema, self._tools, taken)
        return Plan(choice, room, self._fixed, request)

    def _truncate(self, messages: Sequence[Message], end: str) -> None:
        """Truncate piped and attached text until all fits or nothing is left to truncate; the session says where.

        Where the session can be compacted that is the text of the question alone, and what was said before keeps its
        share of the room, or all that it takes if that is less.
        """
        limit = self.room.prompt or 0
        asked = document.asked_at(messages) if self.rules.compact else 0
        before, own = messages[:asked], messages[asked:]
        texts = {message["id"]: shorten.attached(message) for message in own}
        known = {ident: cuts for ident, cuts in self._doc["context"]["cuts"].items() if ident not in texts}

        def size_of(part: Sequence[Message], cuts: Mapping[str, shorten.Cuts]) -> int:
            self._doc["context"] = {**self._doc["context"], "cuts": {**known, **cuts}}
            return self._size(self.spoken(part), exact=True).tokens

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

    # -- sizes

    def spoken(self, messages: Sequence[Message]) -> list[Message]:
        """The messages of a session as this model can read them."""
        cuts = self._doc["context"]["cuts"]
        return valid.spoken(
            shorten.as_sent(message, self._lacks, cuts.get(message.get("id"), ())) for message in messages
        )

    @property
    def _fixed(self) -> int:
        """Tokens of what stands in front of the messages, or beside them."""
        if self._counts:
            return sum(map(tokens.count_text, self._before))
        return sum(map(tokens.at_most, self._before)) // BYTES

    def _size(self, spoken: Sequence[Message], under: str | None = None, exact: bool = False) -> Size:
        """Tokens that messages take when they are sent under a compaction, what stands in front of them included.

        Nothing is counted for as long as it is certain that all is below the mark at which a new compaction is made;
        nor for Ollama in any window that it is given.
        """
        limits = [OLLAMA_LEAST] if self._provider.api == "ollama" else []
        limits += [] if self.room.prompt is None else [round(self.rules.compact_at * self.room.prompt)]
        self._counts = self._counts or exact
        # Behind a truncation no earlier report is of what is sent now; behind a refusal none is to be believed.
        own = not self._truncates and self._scale is None

        def scale() -> float | None:
            self._counts = True
            if not own:
                return self._scale
            everything = self.spoken(self._doc["messages"])
            if len(everything) not in self._scales:
                known = tokens.scale_of(everything, self._before, Target(self.model, self.provider))
                self._scales[len(everything)] = known
            return self._scales[len(everything)]

        return tokens.size_of(
            spoken,
            self._before,
            Target(self.model if own else None, self.provider, under),
            small=0 if self._counts else min(limits, default=None),
            most=self.room.prompt,
            scale=scale,
        )

    def _find_window(self) -> None:
        """Learn what the model's window leaves. For a prompt that fits any it is looked up only where it is shown."""
        size, truncates = self._size(self.spoken(self._doc["messages"])).tokens, self._flags.truncate is not None
        answer = size // 3 if self.room.asked is None else self.room.asked
        asks = size > ASK_FROM or truncates
        if asks or size + answer > ASK_FROM or self._flags.dry_run or self.form.structured:
            window = self._client.servers.window(self.model, ask=asks)
        else:
            window = self._provider.context_window
        if truncates and window is None:
            way = f"set context_window under [providers.{self.provider}]"
            raise UsageError(f"--truncate: the window of {self.model} is not known", way)
        self.room = self.room._replace(window=window)
        if self._memory and window is not None:  # no more of it than a small window has room for
            self._send_in_front(window)

    # -- what goes along

    def _send_in_front(self, window: int | None) -> None:
        """Settle the system prompt and the schema that are sent into a window.

        A schema goes as a field where the model is known to take it, in words where not, as both where none knows.
        """
        self._system, self._schema, shape = self.agent.system, None, self.form.shape
        if self._memory:
            from gptsh.context.memory import in_system  # noqa: PLC0415 - few agents have one

            self._system = in_system(self._system, self._memory, window)
        if shape:
            from gptsh.context.answer_schema import in_words  # noqa: PLC0415 - few answers have one

            # Ollama takes one for every model, and shows it to none.
            provider = self._provider
            takes = None if provider.api == "ollama" else facts(provider.name, provider.model).can("response_schema")
            if takes or (takes is None and provider.api in DIRECT):
                self._schema = shape.schema
            if not takes:
                self._system = in_words(self._system, shape.schema)
        schema = "" if self._schema is None else json.dumps(self._schema)
        definitions = [json.dumps(tool._asdict(), ensure_ascii=False) for tool in self._tools]
        self._before = [text for text in (self._system, schema, *definitions) if text]

    def _unsupported(self, messages: Sequence[Message]) -> frozenset[Kind]:
        """The kinds of attachments in the session that the model is known not to take; a note says how many there are,
        those among them that its API has no place for.

        Raises UsageError where the question that is asked has one.
        """
        found = [(message, part, media) for message in messages for part, media in media_in(message)]
        if not found:
            return frozenset()
        client, model, asked = self._client, self.model, next(iter(messages[document.asked_at(messages) :]), None)
        lacks = frozenset(
            k for k in {media.kind for *_, media in found} if client.servers.can(model, ABILITIES[k]) is False
        )
        left = []
        for message, part, media in found:
            if message is asked and media.kind in lacks:
                raise UsageError(f"{model} takes no {NAMES[media.kind]}", "choose another model with -m")
            if media.kind in lacks:
                left.append(NAMES[media.kind])
            elif message["role"] != "assistant" and not client.takes(model, part):
                left.append(f"{NAMES[media.kind]} of that form")
        if left:
            what = f"{counted(len(left), 'attachment')} of the session not sent"
            stdio.note(f"{what}: {model} takes no {', no '.join(sorted(set(left)))}")
        return lacks

    # -- compaction

    def compact(self, happened: "Sequence[Happening]", reporter: Reporter) -> int:
        """Show what a compaction would do to what is sent, or with ``--apply`` does; the exit code.

        Raises GptshError where the summary that it takes cannot be had: then the session is as it was, and labelled.
        """
        doc, writer, applies = self._doc, self.screen.writer, self._flags.apply and not self._flags.dry_run
        if not document.turns(doc["messages"]):
            raise UsageError(f"session {doc['id']} has nothing yet to compact")
        chooser = self.chooser(doc["messages"], self.imagined)
        now, then = chooser.current(), chooser.compact()
        if applies:
            if self._flags.labels and self._session.save(durable=True):  # whatever comes of the compaction
                for kind, fields in happened:
                    writer.tell(kind, **fields)
            try:
                then = self.chooser(doc["messages"], self.summarise).compact() if then else None
                if then:
                    self.keep_compaction(then, doc["messages"])
            except GptshError as err:
                writer.tell("compression_error", error=str(err))
                with contextlib.suppress(OSError):
                    writer.close()
                raise
        if then is None:
            writer.tell("compression_skipped", reason="nothing would be shorter")
        failure, size = self._session.failure, max(0, now.size.tokens - self._fixed)
        result = {
            "session": doc["meta"].get("forked_from") if document.is_unsaved(doc) else doc["id"],
            "changes": then is not None,
            "applied": then is not None and applies and failure is None,
            **_described(then or now),
            "before": then.record["before"] if then and then.record else size,
            "after": then.record["after"] if then and then.record else size,
            "budget": self.room.budget(self._fixed),
            "window": self.room.window,
            "error": None,
        }
        reporter.told = True
        if not self.form.structured:
            from gptsh.render.lists import compaction_lines  # noqa: PLC0415 - few sessions are compacted by hand

            stdio.write_lines(compaction_lines(result))
        else:
            from gptsh.render import structured  # noqa: PLC0415 - the same

            result["error"] = failure and structured.error(str(failure), "", failure.exit_code)
            try:
                writer.conclude(result)
            except BrokenPipeError:
                raise
            except OSError as err:
                raise OutputError(f"the output cannot be written: {err.strerror}") from err
        if failure:
            raise failure
        return 0

    def keep_compaction(self, choice: Choice, messages: Sequence[Message]) -> None:
        """Keep a new compaction in the document, with a snapshot of where the session stood; and say so."""
        from gptsh.core import snapshots  # noqa: PLC0415 - most sessions are small

        doc, record, end = self._doc, choice.record or {}, None
        if document.unfinished(messages):  # who goes back asks again: it stands before the question
            asked = messages[document.asked_at(messages)].get("id")
            end = next((at for at, message in enumerate(doc["messages"]) if message["id"] == asked), None) or None
        known = snapshots.automatic_at(doc, end)  # one a turn: what is compacted in its rounds is compacted already
        happened = [] if known else snapshots.record(doc, self.rules.snapshots, tokens=record.get("before"), end=end)
        doc["context"]["compaction"] = record
        kept = self._session.save(durable=self._flags.compact)
        named = {item["id"]: item for item in doc["context"]["snapshots"]}  # another run may have taken the name
        for kind, fields in happened if kept else ():
            if kind == "snapshot_created":
                fields["snapshot"] = named.get(fields["snapshot"]["id"], fields["snapshot"])
                known = fields["snapshot"]["name"]
            self.screen.writer.tell(kind, **fields)
        snapshot = f"; snapshot {doc['id']}@{known}" if known and kept else ""
        what = f"~{record['before']:,} tokens of the session are sent as ~{record['after']:,}"
        stdio.note(f"{what} ({record['strategy']}){snapshot}")
        self.screen.writer.tell("compressed", **_described(choice))

    def imagined(
        self, older: Sequence[Message], fresh: Sequence[Message], previous: str | None, size: int
    ) -> dict[str, Any]:
        """The record of a summary that is not made yet; it would hardly be longer than a third of what it tells."""
        size = min(size, (tokens.count_text(previous or "") + sum(map(tokens.count_message, fresh))) // 3)
        text = "[a summary of what is older, made when this is sent]"
        ends = {"first": older[0].get("id"), "last": older[-1].get("id")}
        record = {"id": "pending", "created_at": timestamp(), "text": text, "tokens": size, "pending": True, **ends}
        self._imagination.append(record)
        return record

    def summarise(
        self, older: Sequence[Message], fresh: Sequence[Message], previous: str | None, size: int
    ) -> dict[str, Any]:
        """A summary of the older messages, put into the document with what it cost. Raises GptshError."""
        from gptsh.context import summaries  # noqa: PLC0415 - most sessions are small

        model = settings.small_model(self._settings, self.agent) or self.model
        if split_model(model)[0] == "echo":
            raise ModelError("echo makes no summaries", "model_small names a model that does")
        if self._calls < 1:
            raise ModelError(f"{SUMMARY_CALLS} calls for summaries were made in this run")
        small, text = small_of(self._settings, self._client, self._client.ask, model), ""
        try:
            with self.screen.turning(f"summarising {len(fresh):,} messages with {model}"):
                text = summaries.summarise(small, previous, fresh, tokens=size, calls=self._calls)
        finally:
            self._calls -= max(1, small.calls)
            for usage in small.spent:
                self.costs.append(small.price(usage))
                document.add_call(self._doc, "summary", model, usage, self.costs[-1])
            if small.spent and not text:
                self._session.save(durable=self._flags.compact)
        record = summaries.new_summary(older, text, model)
        self._doc["context"]["summaries"].append(record)
        if previous and (then := tokens.count_text(previous)) > summaries.LONGER * size:
            self.screen.writer.tell("summary_aged", before=then, after=record["tokens"])
        return record

    def _summary_failed(self, err: GptshError) -> None:
        self.screen.writer.tell("compression_error", error=str(err))
        stdio.note(f"no summary could be made: {err}")


def small_of(loaded: Settings, client: Client, ask: Ask, model: str) -> "Small":
    """A small model; ``ask`` is as ``client.ask``. Its window is looked up when it is wanted first."""
    from gptsh.context.summaries import Small  # noqa: PLC0415 - few runs ask one for more than a title

    price = partial(settings.cost_of, loaded, model)
    return Small(
        ask, model, partial(client.servers.window, model, ask=True), partial(client.servers.learn, model), price
    )


def _memory(agent: Agent) -> str:
    """What the agent remembers. A memory that cannot be read is worth a note, and no answer."""
    from gptsh.context import memory  # noqa: PLC0415 - few agents have one

    try:
        return memory.read_memory(agent.name)
    except StoreError as err:
        stdio.note(str(err))
        return ""


# ---- shown instead of asked


def print_request(client: Client, plan: Plan, form: Form) -> int:
    """Print model, API, window and tokens; for a program the request itself, its keys masked. Nothing is sent."""
    from gptsh.render import lists, structured  # noqa: PLC0415 - most requests are sent

    if form.structured:
        stdio.write_lines([structured.line({**described(client, plan), "error": None})])
    else:
        stdio.write_lines(lists.context_lines(client.api(plan.request), plan.report(), plan.request))
    return 0


def described(client: Client, plan: Plan) -> dict[str, Any]:
    """A request as it is sent, its keys masked, and what it has of the session."""
    request = plan.request
    api, preview = client.api(request), client.preview(request)
    return {"model": request.model, "api": api, **preview, "context": plan.report()}


def _described(choice: Choice) -> dict[str, Any]:
    """What a compaction came to, for a program."""
    record, sent = choice.record or {}, choice.prompt
    sizes = {key: record.get(key) for key in ("reason", "before", "after")}
    counts = {"included": sent.included, "summarized": sent.summarized, "left_out": sent.left_out}
    return {"strategy": choice.strategy, **sizes, **counts}
