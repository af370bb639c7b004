"""Plan a request: the system prompt, memory, and the messages that fit."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from gptsh.context import sendable
from gptsh.context.sendable import build_messages, make_sendable
from gptsh.context.tokens import AUTO, REFUSED, Estimator, Prompt, count_message
from gptsh.core import turns
from gptsh.errors import NoAnswer, StoreError, TooLong
from gptsh.messages import Message, Request, Tools
from gptsh.models.facts import exact_facts
from gptsh.models.usage import filled_window
from gptsh.models.vendors import DIRECT
from gptsh.terminal import stdio
from gptsh.turn.engine import Engine, Setup
from gptsh.turn.exclusions import Exclusions
from gptsh.turn.options import TurnOptions
from gptsh.turn.screen import Screen
from gptsh.turn.session import Session

if TYPE_CHECKING:
    from gptsh.context.compaction import Compactor, Summarise
    from gptsh.context.memory import RecordedTexts
    from gptsh.core.document_types import ContextState, Cuts
    from gptsh.render.outline import PromptReport
    from gptsh.turn.small_model import Summariser


# A prompt that needs a summary first asks the small model for it and saves it. Nothing else is sent
# or saved here.

# Tokens of a prompt, or of prompt and answer; below that no server is asked for its window.
_FITS_ANY_MODEL = 2000
_TYPICAL_ANSWER = 4096  # tokens; a quarter of a large window is far more than answers take


def report_of(prompt: Prompt) -> "PromptReport":
    """Return a prompt for ``-o json`` and ``--dry-run``.

    Tokens and budget are those of the messages alone; ``fixed`` those of system prompt and tools.
    """
    budget = prompt.budget
    return {
        "strategy": prompt.strategy,
        "tokens": prompt.message_tokens,
        "at_most": max(0, prompt.at_most - budget.fixed),
        "fixed": budget.fixed,
        "budget": budget.limit,
        "window": budget.window,
        "included": prompt.included,
        "summarized": prompt.summarized,
        "left_out": prompt.left_out,
        "omitted": prompt.omitted,
    }


class Planner:
    """Makes the prompts of a turn that has begun in its session, for one model.

    Call ``begin`` first. What changes from one prompt to the next has an owner each: the
    ``Estimator`` the window and how tokens are counted, ``RecordedTexts`` the memory and the
    project's file, ``exclusions`` what is left out, the session its messages, cuts, compactions
    and costs.
    """

    def __init__(
        self,
        engine: Engine,
        options: TurnOptions,
        setup: Setup,
        session: Session,
        tools: Tools | None,
        screen: Screen,
    ) -> None:
        self.agent = setup.agent
        self.output = setup.output
        self.model = setup.agent.model or ""
        self.target = engine.settings.providers.for_model(self.model)
        self.provider = self.target.provider
        self.rules = engine.settings.context
        self.exclusions = Exclusions(engine.client, self.model)
        self._engine = engine
        self._client = engine.client
        self._options = options
        self._session = session
        self._tools = tools
        self._screen = screen
        self._recorded: RecordedTexts | None = None
        self._system: str | None = None
        self._estimator = Estimator(
            self.model,
            self.provider,
            self.rules,
            _max_tokens(self.agent.params),
            self._history,
            is_ollama=self.target.api == "ollama",
        )
        request = Request(
            self.model,
            [],
            params=dict(self.agent.params),
            stream=options.stream,
            web=self.agent.web,
            shows_reasoning=self.output.reasoning,
        )
        self._draft = Prompt(request, self._estimator.budget)  # without its messages

    # ---- the prompts of a turn

    def begin(self) -> None:
        """Find out what can be sent and what fits; print notes about what is not sent.

        Raises ToolServerError, and UsageError if the model does not accept an attachment of the
        question.
        """
        if self._tools:
            request = self._draft.request._replace(tools=self._tools.tools())
            self._draft = self._draft._replace(request=request)
            if self._tools.missing:
                names = ", ".join(self._tools.missing)
                stdio.note(f"the session continues without some of its tools: {names}")
        self.exclusions.find_in(self._session.messages)
        # An empty system prompt has neither memory nor project's file.
        if self.agent.system != "" and (self.agent.memory or self.agent.project_file):
            self._record_texts()
        self._build_texts()
        self._look_up_window()
        if self._recorded:  # only part of a memory fits into a small window
            self._build_texts()
        self._truncate()

    def estimate(self) -> Prompt:
        """Make a prompt that is not sent: save nothing, and ask for no summary.

        A placeholder is where it needs one. Raises TooLong.
        """
        prompt = self._choose(self.estimating_compactor, AUTO)
        self._check_length(prompt)
        if prompt.is_new and self._options.dry_run:  # show it as it would be sent
            self._move_texts_up(prompt)
        return self._complete(prompt)

    def plan(self) -> Prompt:
        """Make the prompt of the next request, and save its new compaction.

        Raises TooLong, and GptshError for a summary that failed.
        """
        if self._estimator.window is None:  # the turn may have been too small for that until now
            self._look_up_window()
        return self._make(AUTO)

    def refit(self, refusal: TooLong, prompt: Prompt) -> Prompt | None:
        """Make a prompt for the window that a refusal names; None if there is none."""
        if refusal.window is None or not (self.rules.compact or self._options.truncate):
            return None
        self._client.windows.learn(self.model, refusal.window)
        self._estimator.window = refusal.window
        # The refused prompt takes more tokens than the limit, whatever the estimate was.
        actual = refusal.prompt or self._estimator.budget.whole or 0
        counted = sum(map(count_message, prompt.request.messages))
        self._estimator.learn(actual, counted)
        self._truncate()
        try:
            return self._make(REFUSED)
        except TooLong:
            return None

    def _make(self, reason: str) -> Prompt:
        """Make a prompt that can be sent, and save its new compaction, whose reason this is.

        Raises TooLong before saving.
        """
        prompt = self._choose(self.compactor, reason)
        self._check_length(prompt)
        if prompt.is_new:
            from gptsh.turn.shortening import save_compaction

            fsync = self._options.compact
            save_compaction(self._session, prompt, self.rules.snapshots, fsync=fsync)
            self._move_texts_up(prompt)
        return self._complete(prompt)

    def compactor(self) -> "Compactor":
        """Return what compacts the session, with summaries that the small model makes."""
        return self._new_compactor(self._session.doc["context"], self._summariser.summarise)

    def estimating_compactor(self) -> "Compactor":
        """Return what shows a compaction of the session, with placeholders for new summaries."""
        from gptsh.turn.small_model import placeholder_summary

        state = self._session.doc["context"]
        summaries = [*state["summaries"]]  # the placeholders are not saved
        summarise = partial(placeholder_summary, summaries)
        return self._new_compactor({**state, "summaries": summaries}, summarise)

    def _new_compactor(self, state: "ContextState", summarise: "Summarise") -> "Compactor":
        from gptsh.context.compaction import Compactor

        return Compactor(
            self._sendable(self._session.messages, state["cuts"]),
            state,
            self._draft,
            self._estimator,
            summarise,
            self._summariser.note_failure,
        )

    # ---- a prompt that is too long

    def explain(self, refusal: TooLong) -> TooLong:
        """Return the error for a prompt that cannot be shortened any more, and its advice."""
        advice = self._advice_on_length()
        if refusal.window is None and self._estimator.window is None:
            setting = f"context_window under [providers.{self.provider}]"
            advice += f"; set {setting}, and gptsh sends less of a long session"
        err = TooLong(str(refusal), advice, detail=refusal.detail)
        is_asked_again = self._session.is_saved and turns.unanswered(self._session.messages)
        if is_asked_again and not self._options.interactive:
            changed = "--truncate tail" if self._can_truncate() else "-m MODEL"
            command = f"gptsh -s {self._session.ref} {changed}"
            err.hint = f"the question is saved: '{command}' asks it again"
        return err

    def explain_silence(self, err: NoAnswer, prompt: Prompt) -> NoAnswer:
        """Return the error of an empty answer.

        If the window is unknown, the prompt may be too long.
        """
        if prompt.budget.window is not None:
            return err
        problem = f"{self.model} returned an empty answer"
        problem += f" to a prompt of about {prompt.tokens:,} tokens"
        advice = f"if that is too long for it, set context_window under [providers.{self.provider}]"
        return NoAnswer(f"{problem}, and its context window is unknown", advice, detail=err.detail)

    def _check_length(self, prompt: Prompt) -> None:
        """Raise TooLong if a prompt does not fit into the window."""
        if prompt.fits:
            return
        budget = prompt.budget
        problem = f"the prompt takes about {prompt.tokens:,} tokens"
        limit = f"the window has room for {budget.whole:,}"
        reserved = f"of {budget.window:,}, {budget.reserve:,} reserved for the answer"
        raise TooLong(f"{problem}, but {limit} ({reserved})", self._advice_on_length())

    def _advice_on_length(self) -> str:
        """Return what the user can do about a prompt that is too long."""
        advice = "shorten it, or choose a model with a larger window with -m"
        if not self.rules.compact and turns.question_index(self._session.messages):
            advice += '; compact = "auto" under [context] sends less of the session'
        if self._can_truncate():
            advice += "; --truncate cuts what is piped or attached"
        if self._estimator.max_tokens is not None:
            advice += ", or lower max_tokens"
        return advice

    def _can_truncate(self) -> bool:
        """Return whether --truncate, not given yet, would find text to cut."""
        if self._options.truncate is not None:
            return False
        messages = self._session.messages[self._start_of_cuts() :]
        return any(map(sendable.attached_texts, messages))

    # ---- before the first prompt

    def _record_texts(self) -> None:
        """Record memory and project's file in the session if they have changed."""
        from gptsh.context.memory import RecordedTexts

        self._recorded = RecordedTexts(self.agent, self._session.doc)
        try:
            self._recorded.record_changes()
        except StoreError as err:
            stdio.note(str(err))
        self._recorded.move_up(self._session.doc["context"].get("compaction"))

    def _build_texts(self) -> None:
        """Build the texts beside the messages, and count with them from now on.

        The schema is a field of the request if the model accepts that, else words in the system
        prompt; if it is unknown, both.
        """
        system = self.agent.system
        schema = None
        if self._recorded:
            system = self._recorded.in_system_prompt(system, self._estimator.window)
        if self.output.schema:
            from gptsh.context.answer_schema import system_with_schema

            wanted = self.output.schema.schema
            accepts = self._accepts_schema()
            if accepts or (accepts is None and self.target.api in DIRECT):
                schema = wanted
            if not accepts:
                system = system_with_schema(system, wanted)
        request = self._draft.request._replace(schema=schema)
        self._system = system
        self._draft = self._draft._replace(request=request)

        texts = [system or ""]
        for tool in request.tools:
            texts.append(json.dumps(tool._asdict(), ensure_ascii=False))
        if schema is not None:
            texts.append(json.dumps(schema))
        self._estimator.texts = texts

    def _accepts_schema(self) -> bool | None:
        """Return whether the model accepts a schema as a field; None if that is unknown."""
        target = self.target
        if target.api == "ollama":  # it accepts one for every model, but does not show it to it
            return None
        return exact_facts(target.provider, target.model).can("response_schema")

    def _look_up_window(self) -> None:
        """Look up the model's window; for a prompt that fits any model only if the user sees it."""
        size = self._whole().tokens
        answer_tokens = self._estimator.max_tokens
        if answer_tokens is None:
            answer_tokens = size // 3
        asks_server = size > _FITS_ANY_MODEL or self._options.truncate is not None
        is_shown = self._options.dry_run or self.output.is_structured
        window = self.target.account.context_window
        if asks_server or size + answer_tokens > _FITS_ANY_MODEL or is_shown:
            window = self._client.windows.of(self.model, ask=asks_server)
        self._estimator.window = window

    def _truncate(self) -> None:
        """Cut piped and attached text if the prompt does not fit, and ``--truncate`` is given."""
        end = self._options.truncate
        if end is None:
            return
        limit = self._estimator.budget.whole
        if limit is None:  # the server may refuse the prompt, and name its window
            return
        prompt = self._choose(self.estimating_compactor, AUTO)
        if prompt.fits and not prompt.omitted["questions"] and not prompt.is_new:
            return
        from gptsh.turn.shortening import Truncation

        self._estimator.forget_reports()
        start = self._start_of_cuts()
        earlier = self._session.messages[:start]
        question = self._session.messages[start:]
        threshold = int(self.rules.compact_at * limit)
        truncation = Truncation(self._session, end, self._counted, self._estimator.scale)
        truncation.cut_to_fit(earlier, question, limit, threshold)

    def _start_of_cuts(self) -> int:
        """Return the index of the first message that is cut like a question.

        If nothing is compacted, the earlier questions are sent whole, so they are cut, too.
        """
        return turns.question_index(self._session.messages) if self.rules.compact else 0

    # ---- what is sent

    def _choose(self, make_compactor: "Callable[[], Compactor]", reason: str) -> Prompt:
        """Choose what is sent: all messages if they fit, else a compaction."""
        if not self._session.doc["context"].get("compaction") and not self._options.compact:
            whole = self._whole()
            threshold = whole.budget.threshold
            if threshold is None or whole.message_tokens <= threshold or not self.rules.compact:
                return whole
        compactor = make_compactor()
        if self._options.compact:
            compacted = compactor.compact()
            if compacted:
                return compacted
        return compactor.choose(reason)

    def _whole(self) -> Prompt:
        """Return the prompt that sends all of the messages."""
        sent = self._sendable(self._session.messages, self._session.doc["context"]["cuts"])
        prompt = self._draft.with_messages(sent)._replace(included=len(sent))
        return self._estimator.estimated(prompt)

    def _counted(self, messages: Sequence[Message], cuts: "Mapping[str, Cuts]") -> Prompt:
        """Return the prompt that sends these messages with these cuts, counted."""
        return self._estimator.counted(self._draft.with_messages(self._sendable(messages, cuts)))

    def _history(self) -> Sequence[Message]:
        """Return the whole session as this model reads it, with what other runs have added."""
        doc = self._session.doc
        return self._sendable(doc["messages"], doc["context"]["cuts"])

    def _sendable(self, messages: Sequence[Message], cuts: "Mapping[str, Cuts]") -> list[Message]:
        """Return the messages as this model reads them, with these cuts."""
        kinds = self.exclusions.kinds
        sent = []
        for message in self.exclusions.apply(messages):
            sent.append(sendable.as_sent(message, kinds, cuts.get(message["id"], ())))
        if self._recorded:
            sent = self._recorded.in_questions(sent, self._estimator.window)
        return make_sendable(sent)

    @cached_property
    def _summariser(self) -> "Summariser":
        from gptsh.turn.small_model import Summariser

        return Summariser(
            self._engine.settings,
            self._client,
            self.agent,
            self._session,
            self._screen,
            fsync=self._options.compact,
        )

    def _move_texts_up(self, prompt: Prompt) -> None:
        """Put changed memory into the system prompt: a new compaction changes the beginning."""
        if self._recorded:
            self._recorded.move_up(prompt.compaction)
            self._build_texts()

    def _complete(self, prompt: Prompt) -> Prompt:
        """Return the prompt with its whole request."""
        sent = build_messages(prompt.request.messages, self._system, self.provider, self.model)
        tokens = self._tokens_with_answer(prompt)
        return prompt._replace(request=self._draft.request._replace(messages=sent, tokens=tokens))

    def _tokens_with_answer(self, prompt: Prompt) -> int:
        """Return the tokens of prompt and answer, for a server that loads a model for them."""
        answer_tokens = prompt.budget.reserve
        if self._estimator.max_tokens is None:
            answer_tokens = min(answer_tokens, _TYPICAL_ANSWER)
        prompt_tokens = prompt.at_most
        for message in reversed(self._session.messages):
            if message["role"] == "assistant":  # if it has filled its window, this needs more
                prompt_tokens = max(prompt_tokens, filled_window(message) or 0)
                break
        return prompt_tokens + answer_tokens


def _max_tokens(params: Mapping[str, object]) -> int | None:
    """Return the tokens of the answer, if a parameter sets them."""
    for name in ("max_tokens", "max_completion_tokens"):
        value = params.get(name)
        if type(value) is int:
            return max(0, value)
    return None
