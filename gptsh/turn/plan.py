"""Plan a request: make the messages valid, count their tokens, and compact them if they do not fit.

A plan that needs a summary first asks the small model for it and saves it. Nothing else is sent or saved here.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.config import agent_choice, pricing
from gptsh.config.settings import Settings
from gptsh.content.answer import Ask
from gptsh.content.attachments import ABILITIES, NAMES, Kind, media_in
from gptsh.content.tool_calls import Tools
from gptsh.context import shorten, strategies, tokens, valid
from gptsh.context.strategies import FULL, Choice, CompactedPrompt
from gptsh.context.token_limits import TokenLimits, compaction_mark
from gptsh.context.tokens import BYTES, Size, Target
from gptsh.core import document, turns
from gptsh.errors import GptshError, ModelError, StoreError, TooLong, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message, Request, timestamp
from gptsh.models.facts import facts, split_model
from gptsh.models.providers import DIRECT
from gptsh.models.token_usage import filled_window
from gptsh.process import stdio
from gptsh.render import outline
from gptsh.text import quantity
from gptsh.turn.app import App, TurnSetup
from gptsh.turn.show import Screen
from gptsh.turn.turn_options import TurnOptions
from gptsh.turn.turn_session import TurnSession

if TYPE_CHECKING:
    from gptsh.context.compaction import Chooser
    from gptsh.context.summaries import SmallModel

_FITS_ANY_MODEL = 2000  # tokens of a prompt, or of prompt and answer; below that no server is asked for its window
_MAX_SUMMARY_CALLS = 4  # calls of the small model in one run
_OLLAMA_MIN_WINDOW = 4096  # tokens of the smallest window that Ollama is asked for
_TYPICAL_ANSWER = 4096  # tokens; a quarter of a large window is far more than answers take
_QUESTION_SHARE = 0.6  # of the prompt, for a question that is cut; the rest is for the earlier messages
_MAX_RETRY_SIZE = 0.9  # times the size of a refused prompt; a larger one would be refused again


class Plan(NamedTuple):
    """One request: the messages that are sent, the window, and the ``fixed`` tokens of system prompt and tools."""

    choice: Choice
    limits: TokenLimits
    fixed: int
    request: Request

    def report(self) -> dict[str, Any]:
        """The plan for ``-o json`` and ``--dry-run``. Tokens and budget are those of the messages alone."""
        prompt, size = self.choice.prompt, self.choice.size
        return {
            "strategy": self.choice.strategy,
            "tokens": max(0, size.tokens - self.fixed),
            "at_most": max(0, size.at_most - self.fixed),
            "budget": self.limits.budget(self.fixed),
            "window": self.limits.window,
            "included": prompt.included,
            "summarized": prompt.summarized,
            "left_out": prompt.left_out,
            "omitted": strategies.omissions(prompt),
        }


class Planner:
    """Plans each request of a turn. ``costs`` are those of the calls for summaries, in USD."""

    def __init__(
        self, app: App, options: TurnOptions, setup: TurnSetup, session: TurnSession, tools: Tools | None
    ) -> None:
        """Raises ToolServerError, and UsageError if the model does not accept an attachment of the question."""
        self.agent, self.form, self.screen = setup.agent, setup.form, Screen(setup.form)
        self.model, self.rules = setup.agent.model or "", app.settings.context
        limits = [setup.agent.params.get(name) for name in ("max_tokens", "max_completion_tokens")]
        max_tokens = next((limit for limit in limits if type(limit) is int), None)
        self.limits = TokenLimits(None, self.rules.reserve, None if max_tokens is None else max(0, max_tokens))
        self.costs: list[float | None] = []
        self._settings, self._client, self._options, self._session = app.settings, app.client, options, session
        self._provider = app.settings.providers.for_model(self.model)
        self.provider = self._provider.name
        self._tools = tools.tools() if tools else ()
        if tools and tools.missing:
            stdio.note(f"the session continues without some of its tools: {', '.join(tools.missing)}")
        self._uses_tokenizer = False  # until a prompt may be too large for an estimate from its bytes
        self._trusts_reports = True  # the token counts that servers reported for earlier prompts of the session
        self._summary_calls_left = _MAX_SUMMARY_CALLS
        messages = session.doc["messages"]
        self._unsupported_kinds = self._find_unsupported(messages)
        self._has_memory = setup.agent.memory and setup.agent.system != ""
        self._remembering: Message | None = None  # the question whose memory stands in the system prompt
        self._project_file = setup.agent.project_file if setup.agent.system != "" else None
        self._introducing: Message | None = None  # the question whose file of the project stands there
        if self._has_memory or self._project_file:
            self._note_files(messages)
        self._build_prefix()
        self._find_window(messages)
        if self._has_memory:  # a small window has room for a part of it only
            self._build_prefix()
        if options.truncate:
            self._truncate(messages, options.truncate)

    # ---- the plan

    def plan(self, messages: Sequence[Message], *, dry: bool = False) -> Plan:
        """Plan the next request. ``dry``: save no new compaction, and put a placeholder where it needs a summary.

        Raises TooLong, and GptshError for a summary that failed.
        """
        # The turn may have been too small to look up the window, and have grown since.
        if not dry and self.limits.window is None and self._size(self._sendable(messages)).tokens > _FITS_ANY_MODEL:
            self._find_window(messages)
        return self._build_plan(self._choose(messages, dry=dry), messages, dry=dry)

    def refit(self, refusal: TooLong, plan: Plan, messages: Sequence[Message]) -> Plan | None:
        """Plan again for the window that a refusal names; None if it names none, or the prompt cannot be shorter."""
        window, refused_size = refusal.window, sum(map(tokens.count_message, plan.request.messages))
        if window is None or not (self.rules.compact or self._options.truncate):
            return None
        self._client.windows.learn(self.model, window)
        self.limits = self.limits._replace(window=window)
        # The refused prompt takes more tokens than the limit, whatever the estimate was.
        actual_size = refusal.prompt or self.limits.prompt or 0
        self._scale = max(1.0, actual_size / max(1, refused_size))
        self._trusts_reports, self._uses_tokenizer = False, True
        if self._options.truncate:
            self._truncate(messages, self._options.truncate)
        choice = self._choose(messages, reason="refused")
        if sum(map(tokens.count_message, choice.prompt.messages)) > _MAX_RETRY_SIZE * refused_size:
            return None
        try:
            return self._build_plan(choice, messages)
        except TooLong:
            return None

    def explain(self, refusal: TooLong, messages: Sequence[Message]) -> TooLong:
        """The refusal of a prompt that cannot be shortened any more, with what the user can do."""
        advice = self._advice_on_length(messages)
        if refusal.window is None and self.limits.window is None:
            advice += f"; set context_window under [providers.{self.provider}], and gptsh sends less of a long session"
        err = TooLong(str(refusal), advice, detail=refusal.detail)
        if self._session.is_saved and not self._options.interactive:
            changed = "--truncate tail" if self._can_truncate(messages) else "-m MODEL"
            err.hint = f"the question is saved: 'gptsh -s {self._session.ref} {changed}' asks it again"
        return err

    def _advice_on_length(self, messages: Sequence[Message]) -> str:
        """What the user can do about a prompt that is too long."""
        advice = "shorten it, or choose a larger window with -m"
        if not self.rules.compact and turns.question_index(messages):
            advice += '; compact = "auto" under [context] sends less of the session'
        if self._can_truncate(messages):
            advice += "; --truncate cuts what is piped or attached"
        if self.limits.max_tokens is not None:
            advice += ", or lower max_tokens"
        return advice

    def _can_truncate(self, messages: Sequence[Message]) -> bool:
        """Whether --truncate, not given yet, would find text to cut."""
        start = turns.question_index(messages) if self.rules.compact else 0
        return self._options.truncate is None and any(map(shorten.attached_texts, messages[start:]))

    def _choose(self, messages: Sequence[Message], *, dry: bool = False, reason: str = "auto") -> Choice:
        """Choose what is sent: all messages if they fit, else a compaction."""
        if not self._session.doc["context"].get("compaction") and not self._options.compact:
            sendable = self._sendable(messages)
            size, budget = self._size(sendable), self.limits.budget(self.fixed)
            fits = budget is None or size.tokens - self.fixed <= compaction_mark(budget, self.rules)
            if fits or not self.rules.compact:
                return Choice(FULL, CompactedPrompt(sendable, len(sendable)), size)
        chooser = self.chooser(messages, dry=dry)
        return (self._options.compact and chooser.compact()) or chooser.choose(reason)

    def chooser(self, messages: Sequence[Message], *, dry: bool = False) -> "Chooser":
        """The chooser of the compaction; ``dry``: with placeholders instead of new summaries."""
        from gptsh.context.compaction import Chooser  # noqa: PLC0415 - most sessions are small

        state, summarise = self._session.doc["context"], self._summarise
        if dry:
            state = {**state, "summaries": [*state["summaries"]]}
            summarise = partial(_placeholder_summary, state["summaries"])
        budget = self.limits.budget(self.fixed)
        return Chooser(
            self._sendable(messages), state, self._size, budget, self.fixed, self.rules, summarise, self._summary_failed
        )

    def _build_plan(self, choice: Choice, messages: Sequence[Message], *, dry: bool = False) -> Plan:
        """Build the request for a choice, and save its compaction if it is new. Raises TooLong before saving."""
        size, limits = choice.size, self.limits
        if limits.prompt is not None and size.tokens > limits.prompt:
            window = f"{limits.prompt:,} (of {limits.window:,}, {limits.reserve:,} reserved for the answer)"
            error = f"the prompt takes about {size.tokens:,} tokens and the window has room for {window}"
            raise TooLong(error, self._advice_on_length(messages))
        is_sent = not (dry and choice.is_new) and not self._options.dry_run
        if is_sent and choice.is_new:
            self.keep_compaction(choice, messages)
        if choice.is_new and (self._has_memory or self._project_file):
            self._find_noted(choice.record)
            self._build_prefix()
        prompt = valid.build(choice.prompt.messages, self._system, self.provider, self.model)
        answer_tokens = limits.reserve if limits.max_tokens is not None else min(limits.reserve, _TYPICAL_ANSWER)
        last_answer = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
        full_window = (last_answer and filled_window(last_answer)) or 0  # the next prompt needs more than that
        total_tokens = max(size.at_most, full_window) + answer_tokens
        stream = self._options.stream
        params, web, shows_reasoning = dict(self.agent.params), self.agent.web, self.form.reasoning
        request = Request(
            self.model, prompt, params, stream, self._schema, self._tools, total_tokens, web, shows_reasoning
        )
        return Plan(choice, limits, self.fixed, request)

    # ---- sizes

    @property
    def fixed(self) -> int:
        """Tokens of the system prompt, the schema and the tool definitions."""
        if self._uses_tokenizer:
            return sum(map(tokens.count_text, self._prefix))
        return self.prefix_bytes // BYTES

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the system prompt, the schema and the tool definitions: it shows later how much they have grown."""
        return sum(map(tokens.upper_bound, self._prefix))

    def _sendable(self, messages: Sequence[Message]) -> list[Message]:
        """The messages in the form in which this model reads them."""
        cuts = self._session.doc["context"]["cuts"]
        sent = [
            shorten.as_sent(message, self._unsupported_kinds, cuts.get(message.get("id"), ())) for message in messages
        ]
        if self._has_memory:
            from gptsh.context.memory import with_memory  # noqa: PLC0415 - few agents have a memory

            base = self._remembering.get("id") if self._remembering else None
            for at, message in enumerate(sent):
                if "memory" in message and message.get("id") != base:
                    sent[at] = with_memory(message, self.limits.window)
        if self._project_file:
            from gptsh.context.project_file import with_project_file  # noqa: PLC0415 - few agents have one

            base = self._introducing.get("id") if self._introducing else None
            for at, message in enumerate(sent):
                if "project_file" in message and message.get("id") != base:
                    sent[at] = with_project_file(message, self._project_file)
        return valid.sendable(sent)

    def _size(self, sendable: Sequence[Message], under: str | None = None, exact: bool = False) -> Size:
        """Tokens of a prompt of these messages, ``under`` the compaction of this id.

        Estimates from bytes while the prompt is certainly below the mark for a new compaction, and for Ollama below its
        smallest window; counts with the tokenizer otherwise, or if ``exact``.
        """
        limits = [_OLLAMA_MIN_WINDOW] if self._provider.api == "ollama" else []
        limits += [] if self.limits.prompt is None else [compaction_mark(self.limits.prompt, self.rules)]
        self._uses_tokenizer = self._uses_tokenizer or exact
        return tokens.size_of(
            sendable,
            self._prefix,
            Target(self.model if self._trusts_reports else None, self.provider, under),
            estimate_below=0 if self._uses_tokenizer else min(limits, default=None),
            estimate_above=self.limits.prompt,
            scale=lambda: self._scale,
        )

    @cached_property
    def _scale(self) -> float | None:
        """The factor from counted to actual tokens, from the servers' reports of earlier prompts; None: unknown.

        Reading it switches from estimates to the tokenizer.
        """
        self._uses_tokenizer = True
        everything = self._sendable(self._session.doc["messages"])
        return tokens.scale_of(everything, self._prefix, Target(self.model, self.provider))

    def _find_window(self, messages: Sequence[Message]) -> None:
        """Look up the model's window; for a prompt that fits any model only if the user sees it."""
        size, truncates = self._size(self._sendable(messages)).tokens, self._options.truncate is not None
        answer_tokens = size // 3 if self.limits.max_tokens is None else self.limits.max_tokens
        asks_server = size > _FITS_ANY_MODEL or truncates
        is_shown = self._options.dry_run or self.form.is_structured
        window = self._provider.context_window
        if asks_server or size + answer_tokens > _FITS_ANY_MODEL or is_shown:
            window = self._client.windows.of(self.model, ask=asks_server)
        self.limits = self.limits._replace(window=window)

    def _truncate(self, messages: Sequence[Message], end: str) -> None:
        """Cut piped and attached text until the prompt fits or no text is left; record the cuts in the session.

        If the session can be compacted, the question is cut first: the earlier messages keep their share of the prompt,
        or their size if that is smaller. Then their texts are cut if that makes a compaction unnecessary.
        """
        limit = self.limits.prompt
        if limit is None:  # the server may refuse the prompt, and name its window
            return
        choice = self._choose(messages, dry=True)
        if choice.size.tokens <= limit and not choice.prompt.omitted_questions and not choice.is_new:
            return
        if self._trusts_reports:
            self._trusts_reports, self._scale = False, None  # the reports are of other prompts
        question_at = turns.question_index(messages) if self.rules.compact else 0
        earlier, question = messages[:question_at], messages[question_at:]
        if not earlier:
            self._cut(question, question, limit, end)
            return
        mark = compaction_mark(limit, self.rules)
        earlier_size = self._exact_size(messages) - self._exact_size(question)
        self._cut(question, question, max(round(_QUESTION_SHARE * limit), mark - earlier_size), end)
        if self._session.doc["context"]["compaction"] is None and self._exact_size(messages) > mark:
            self._cut(earlier, messages, mark, end, or_leave=True)

    def _exact_size(self, messages: Sequence[Message]) -> int:
        """Tokens of these messages as they are sent now, with the fixed ones."""
        return self._size(self._sendable(messages), exact=True).tokens

    def _cut(
        self, cuttable: Sequence[Message], sent: Sequence[Message], limit: int, end: str, *, or_leave: bool = False
    ) -> None:
        """Cut the texts of ``cuttable`` until ``sent``, of which they are a part, takes ``limit`` tokens.

        With ``or_leave`` they stay as they are if that is not enough.
        """
        before = self._session.doc["context"]
        texts = {message["id"]: shorten.attached_texts(message) for message in cuttable}
        other_cuts = {ident: cuts for ident, cuts in before["cuts"].items() if ident not in texts}

        def size_with(cuts: Mapping[str, shorten.Cuts]) -> int:
            self._session.doc["context"] = {**before, "cuts": {**other_cuts, **cuts}}
            return self._exact_size(sent)

        # The room for text is what remains when all of it is cut.
        cut_all = {ident: [[at, 0, len(part["text"])] for at, part in parts.items()] for ident, parts in texts.items()}
        room = limit - size_with(cut_all)
        cuts: dict[str, shorten.Cuts] = {}
        size = size_with(cuts)
        while size > limit and (new := shorten.truncate(cuttable, room, end)) is not None:
            cuts, size = new, size_with(new)
            room -= max(1, size - limit)  # the text that is left may take more tokens than its count
        if or_leave and size > limit:
            self._session.doc["context"] = before
            return
        for ident, message_cuts in cuts.items():
            for place, start, stop in message_cuts:
                part = texts[ident][place]
                amount = f"{stop - start:,} of {len(part['text']):,} characters"
                stdio.note(f"{part['source']}: {amount} cut from its {end}")

    # ---- system prompt, schema, memory, attachments

    def _build_prefix(self) -> None:
        """Build the texts that are sent beside the messages: system prompt, schema and tool definitions.

        The schema is a field of the request if the model accepts that, else words in the system prompt; if it is
        unknown, both.
        """
        self._system, self._schema, answer_schema = self.agent.system, None, self.form.schema
        if self._introducing is not None:
            from gptsh.context.project_file import system_with_project_file  # noqa: PLC0415 - few agents have one

            self._system = system_with_project_file(self._system, self._introducing["project_file"])
        if self._remembering is not None:
            from gptsh.context.memory import system_with_memory  # noqa: PLC0415 - few agents have a memory

            self._system = system_with_memory(self._system, self._remembering["memory"], self.limits.window)
        if answer_schema:
            from gptsh.context.answer_schema import system_with_schema  # noqa: PLC0415 - few answers have a schema

            # Ollama accepts a schema for every model, but the model does not see it: so it is sent as both.
            provider = self._provider
            accepts = None if provider.api == "ollama" else facts(provider.name, provider.model).can("response_schema")
            if accepts or (accepts is None and provider.api in DIRECT):
                self._schema = answer_schema.schema
            if not accepts:
                self._system = system_with_schema(self._system, answer_schema.schema)
        schema = "" if self._schema is None else json.dumps(self._schema)
        definitions = [json.dumps(tool._asdict(), ensure_ascii=False) for tool in self._tools]
        self._prefix = [text for text in (self._system, schema, *definitions) if text]

    def _note_files(self, messages: Sequence[Message]) -> None:
        """Record the agent's memory and the file of the project in a new question, if they have changed.

        Prints a note if one of them cannot be read.
        """
        from gptsh.context import memory, project_file  # noqa: PLC0415 - few agents have them

        try:
            if self._has_memory:
                memory.note_text(messages, memory.read_memory(self.agent.name))
            if self._project_file:
                memory.note_text(messages, project_file.read_project_file(self._project_file), project_file.KEY)
        except StoreError as err:
            stdio.note(str(err))
        self._find_noted(self._session.doc["context"].get("compaction"))

    def _find_noted(self, record: strategies.Record | None) -> None:
        """Find the memory and the file of the project that stand in the system prompt under this compaction."""
        from gptsh.context import memory  # noqa: PLC0415 - few agents have a memory

        messages, compacted = self._session.doc["messages"], 0
        if record and record.get("strategy") in (strategies.SUMMARY, strategies.MINIMAL):
            upto = record.get("upto")
            compacted = next((at for at, message in enumerate(messages, 1) if message["id"] == upto), 0)
        if self._has_memory:
            self._remembering = memory.known_from_start(messages, compacted)
        if self._project_file:
            self._introducing = memory.known_from_start(messages, compacted, "project_file")

    def _find_unsupported(self, messages: Sequence[Message]) -> frozenset[Kind]:
        """The kinds of attachments that the model does not accept. A note reports how many are not sent, including
        those that its API cannot carry.

        Raises UsageError if the current question has an attachment of these kinds.
        """
        attachments = [(message, part, media) for message in messages for part, media in media_in(message)]
        if not attachments:
            return frozenset()
        client, model = self._client, self.model
        question = next(iter(messages[turns.question_index(messages) :]), None)
        kinds = {media.kind for *_, media in attachments}
        unsupported_kinds = frozenset(kind for kind in kinds if client.can(model, ABILITIES[kind]) is False)
        left_out = []
        for message, part, media in attachments:
            if message is question and media.kind in unsupported_kinds:
                raise UsageError(f"{model} takes no {NAMES[media.kind]}", "choose another model with -m")
            if media.kind in unsupported_kinds:
                left_out.append(NAMES[media.kind])
            elif message["role"] != "assistant" and not client.accepts(model, part):
                left_out.append(f"{NAMES[media.kind]} of that form")
        if left_out:
            number = quantity(len(left_out), "attachment")
            stdio.note(f"{number} of the session not sent: {model} takes no {', no '.join(sorted(set(left_out)))}")
        return unsupported_kinds

    # ---- compaction

    def keep_compaction(self, choice: Choice, messages: Sequence[Message]) -> None:
        """Save a new compaction with a snapshot of the session before it, and note its size."""
        from gptsh.core import snapshots  # noqa: PLC0415 - most sessions are small

        doc, record, end = self._session.doc, choice.record or {}, None
        if turns.unfinished(messages):  # the snapshot ends before the question: a user who returns to it asks again
            question = messages[turns.question_index(messages)].get("id")
            end = next((at for at, message in enumerate(doc["messages"]) if message["id"] == question), None)
        previous = doc["context"]["compaction"] or {}
        events = []
        name = snapshots.automatic_at(doc, end)
        if not name and end != 0:  # one snapshot a turn, though it may compact again; none before the first question
            events = snapshots.record(doc, self.rules.snapshots, tokens=record.get("before"), end=end)
            name = events[0][1]["snapshot"]["name"] if events else None
        doc["context"]["compaction"] = record
        is_saved = self._session.save(*events, fsync=self._options.compact)
        report = f"~{record['before']:,} tokens of the session are sent as ~{record['after']:,} ({record['strategy']})"
        stdio.note(f"{report}; snapshot {doc['id']}@{name}" if name and is_saved else report)
        if record["omitted"] != previous.get("omitted") and (what := outline.omitted_words(record["omitted"])):
            stdio.note(f"left out, since the session outgrew the window: {what}")
        self._session.emit("compressed", **compaction_report(choice))

    def _summarise(
        self, older: Sequence[Message], fresh: Sequence[Message], previous: str | None, size: int
    ) -> dict[str, Any]:
        """Make a summary of the older messages and record it and its cost in the document. Raises GptshError."""
        from gptsh.context import summaries  # noqa: PLC0415 - most sessions are small

        model = agent_choice.small_model(self._settings, self.agent) or self.model
        if split_model(model)[0] == "echo":
            raise ModelError("echo makes no summaries", "model_small names a model that does")
        if self._summary_calls_left < 1:
            raise ModelError(f"{_MAX_SUMMARY_CALLS} calls for summaries were made in this run")
        small, text = make_small_model(self._settings, self._client, self._client.ask, model), ""
        try:
            with self.screen.spinning(f"summarising {len(fresh):,} messages with {model}"):
                text = summaries.summarise(small, previous, fresh, tokens=size, calls=self._summary_calls_left)
        finally:
            self._summary_calls_left -= max(1, small.calls)
            for usage in small.spent:
                self.costs.append(small.price(usage))
                document.add_call(self._session.doc, "summary", model, usage, self.costs[-1])
            if small.spent and not text:
                self._session.save(fsync=self._options.compact)
        record = summaries.new_summary(older, text, model)
        self._session.doc["context"]["summaries"].append(record)
        if previous and (previous_size := tokens.count_text(previous)) > summaries.LENGTH_TOLERANCE * size:
            self._session.emit("summary_aged", before=previous_size, after=record["tokens"])
        return record

    def _summary_failed(self, err: GptshError) -> None:
        self._session.emit("compression_error", error=str(err))
        stdio.note(f"no summary could be made: {err}")


def _placeholder_summary(
    summaries: list[dict[str, Any]], older: Sequence[Message], fresh: Sequence[Message], previous: str | None, size: int
) -> dict[str, Any]:
    """The record of a summary that is not made yet; its size is estimated as a third of its source at most."""
    size = min(size, (tokens.count_text(previous or "") + sum(map(tokens.count_message, fresh))) // 3)
    text = "[a summary of what is older, made when this is sent]"
    ends = {"first": older[0].get("id"), "last": older[-1].get("id")}
    record = {"id": "pending", "created_at": timestamp(), "text": text, "tokens": size, "pending": True, **ends}
    summaries.append(record)
    return record


def make_small_model(config: Settings, client: Client, ask: Ask, model: str) -> "SmallModel":
    """Make a small model, asked through ``ask`` (as ``client.ask``). Its window is looked up on first use."""
    from gptsh.context.summaries import SmallModel  # noqa: PLC0415 - few runs ask it for more than a title

    price = partial(pricing.cost_of, config, model)
    return SmallModel(
        ask, model, partial(client.windows.of, model, ask=True), partial(client.windows.learn, model), price
    )


def compaction_report(choice: Choice) -> dict[str, Any]:
    """The result of a compaction, for events and JSON."""
    record, prompt = choice.record or {}, choice.prompt
    sizes = {key: record.get(key) for key in ("reason", "before", "after")}
    counts = {"included": prompt.included, "summarized": prompt.summarized, "left_out": prompt.left_out}
    return {"strategy": choice.strategy, **sizes, **counts, "omitted": strategies.omissions(prompt)}
