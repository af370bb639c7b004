"""Speak chat completions, the API of OpenAI and most others: write requests, read answers."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gptsh.config.accounts import Target
from gptsh.content import shapes
from gptsh.content.answer import Answer
from gptsh.content.passages import one_text
from gptsh.errors import GptshError, ModelError
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str, parse_json
from gptsh.llm import stream
from gptsh.llm.stream import (
    ADVICE,
    DONE,
    Refusable,
    debug_text,
    error_fields,
    openai_schema,
    reported_error,
    take_tools,
)
from gptsh.messages import (
    PARTIAL_REASONS,
    PROVIDER_FIELDS,
    REASONING_DETAILS,
    REASONING_FIELDS,
    THINKING_BLOCKS,
    THOUGHT_SIGNATURES,
    Call,
    Event,
    Message,
    Part,
    Request,
    Tool,
)
from gptsh.models.usage import usage_from

if TYPE_CHECKING:
    from gptsh.llm.http import Response


# ---- answers
#
# Read an answer of the chat completions API: text, reasoning, tool calls in pieces, sources
# (citations), usage.
#
# Providers differ in where they put usage, how they name reasoning, whether tool-call deltas have
# an index, and whether errors come inside a stream of status 200. All forms are accepted from every
# provider.

# Keys saved because a provider may want them back: reasoning in pieces, signed (OpenRouter, Vercel, MiniMax); the
# signature of an answer without calls (Google); the text read from a file, so that it is not paid for twice
# (OpenRouter). Citations and unknown keys are of no use to a later request, and are not saved.
REPLAY_KEYS = (REASONING_DETAILS, "extra_content", "annotations")
_ANY = "any"  # index or id of a tool call
_GROWING_KEYS = ("text", "summary", "data")  # of a reasoning detail: their pieces are concatenated


def as_chunks(payload: JsonObject, body: bytes) -> Iterator[JsonObject]:
    """A ``chat.completion`` as the chunks of a stream. --debug shows ``body`` if it is not one."""
    if as_dicts(payload.get("choices")):
        yield from (payload, DONE)
        return
    if error := _error_in(payload):
        raise error
    if "choices" not in payload:
        raise ModelError("the response is not a chat completion", ADVICE, detail=debug_text(body))
    failure = ModelError("the provider sent no answer", "ask again", detail=debug_text(body))
    failure.can_retry = failure.may_fall_back = True  # a gateway whose own provider failed
    raise failure


class Reader(stream.Reader):
    """Writes the chunks of one answer into an ``Answer``; an unstreamed answer is one chunk."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._calls = _Calls()
        self._finish: str | None = None
        self._tier: str | None = None
        self._done = False
        self._thinking: list[str] = []  # pieces of the thinking block that has no signature yet
        self._known_items: set[str] = set()  # of ``replay``, as JSON

    def add(self, chunk: JsonObject) -> bool:
        """Read one chunk; whether it was the last. Raises ModelError or TooLong for an error in it."""
        answer = self.answer
        if chunk is DONE:
            self._done = True
            return True
        answer.response_id = answer.response_id or as_str(chunk.get("id")) or None
        answer.resolved_model = answer.resolved_model or as_str(chunk.get("model")) or None
        choices = as_dicts(chunk.get("choices"))
        self._add_usage(chunk, choices)
        self._add_sources(chunk)
        for choice in choices:
            if choice.get("index") in (0, None):  # only the first of several answers (n=2)
                self._add_choice(choice)
        if error := _error_in(chunk):
            raise error
        if self._finish == "error":
            failure = ModelError("the provider broke the answer off with an error")
            failure.can_retry = failure.may_fall_back = True
            raise failure
        if self._finish:
            answer.finish(self._reason())
        return False

    def end(self) -> None:
        """Add the tool calls, complete or not: only now do they no longer change."""
        for call in self._calls.calls:
            self.answer.add_call(call.whole())
        if self._done or self.answer.finished:
            self.answer.finish(self._reason())

    def _reason(self) -> str | None:
        """The finish reason; with tool calls, "stop" or an empty reason (xai) becomes "tool_calls"."""
        if self._calls.calls and self._finish in ("stop", ""):
            return "tool_calls"
        return self._finish or None

    def _add_usage(self, chunk: JsonObject, choices: list[JsonObject]) -> None:
        """Read usage at the top, in the choice (moonshot), or in x_groq; a later null does not overwrite it."""
        self._tier = as_str(chunk.get("service_tier")) or self._tier
        for place in (chunk, *choices[:1], as_dict(chunk.get("x_groq"))):
            if usage := as_dict(place.get("usage")):
                self.answer.usage = usage_from(usage, self._tier)
                return

    def _add_sources(self, chunk: JsonObject) -> None:
        """Add the pages that Perplexity and xAI list beside the choices; the answer's ``[1]`` is the first of them."""
        for page in as_dicts(chunk.get("search_results")):
            self.answer.add_source(page.get("url"), page.get("title"))
        citations = chunk.get("citations")
        for url in citations if isinstance(citations, list) else ():
            self.answer.add_source(url)

    def _add_choice(self, choice: JsonObject) -> None:
        delta = as_dict(choice.get("delta"))
        whole = as_dict(choice.get("message"))  # some servers send the whole message so far beside a delta
        self._add_delta(delta or whole, is_whole=not delta)
        if reason := as_str(choice.get("finish_reason")):  # a later chunk may have an empty one
            self._finish = reason
            self.answer.stop_sequence = as_str(choice.get("stop_reason")) or None  # so named by vLLM and SGLang

    def _add_delta(self, delta: JsonObject, *, is_whole: bool) -> None:
        answer = self.answer
        self._add_reasoning(delta)
        content = delta.get("content")
        answer.add_text(as_str(content))
        for part in as_dicts(content):  # content in parts is Mistral's
            if part.get("type") == "thinking":
                for piece in as_dicts(part.get("thinking")):
                    answer.add_reasoning(as_str(piece.get("text")), "thinking")
            else:
                answer.add_text(as_str(part.get("text")))
        if refusal := as_str(delta.get("refusal")):
            answer.add_refusal(refusal)
        for call in as_dicts(delta.get("tool_calls")):
            self._calls.add(call, is_whole=is_whole)
        self._save_replay(delta, is_whole=is_whole)

    def _add_reasoning(self, delta: JsonObject) -> None:
        """Add reasoning once: some servers send the same under two names. The first one that is not empty counts."""
        if blocks := as_dicts(delta.get(THINKING_BLOCKS)):
            self._add_thinking_blocks(blocks)
            return
        for name in REASONING_FIELDS:
            if text := as_str(delta.get(name)):
                self.answer.add_reasoning(text, name)
                return
        details = as_dicts(delta.get(REASONING_DETAILS))
        texts = [as_str(detail.get(key)) for detail in details for key in ("text", "summary")]
        self.answer.add_reasoning("".join(texts), "reasoning")

    def _add_thinking_blocks(self, blocks: list[JsonObject]) -> None:
        """Add litellm's blocks: it sends pieces of text, then the signature of the whole block."""
        for block in blocks:
            block.pop("index", None)  # the place of the block in the answer, from litellm 1.110 on
            if text := as_str(block.get("thinking")):
                self._thinking.append(text)
                self.answer.add_reasoning(text, THINKING_BLOCKS)
            if block.get("type") != "thinking":
                self.answer.add_thinking(block)
            elif block.get("signature"):
                self.answer.add_thinking({**block, "thinking": "".join(self._thinking)})
                self._thinking = []

    def _save_replay(self, delta: JsonObject, *, is_whole: bool) -> None:
        """Save what the provider may want back, and the pages that the answer cites."""
        replay = self.answer.replay
        for piece in as_dicts(delta.get(REASONING_DETAILS)):
            self._add_detail(replay.setdefault(REASONING_DETAILS, []), piece, is_whole=is_whole)
        if extra := as_dict(delta.get("extra_content")):
            replay["extra_content"] = {**replay.get("extra_content", {}), **extra}
        for note in as_dicts(delta.get("annotations")):
            page = as_dict(note.get("url_citation"))
            self.answer.add_source(page.get("url"), page.get("title"))
            if note.get("type") == "file":
                self._add_once(replay.setdefault("annotations", []), note)
        signatures = as_dict(delta.get(PROVIDER_FIELDS)).get(THOUGHT_SIGNATURES)
        for signature in signatures if isinstance(signatures, list) else ():
            if isinstance(signature, str):
                known = replay.setdefault(PROVIDER_FIELDS, {THOUGHT_SIGNATURES: []})
                self._add_once(known[THOUGHT_SIGNATURES], signature)

    def _add_detail(self, details: list[JsonObject], piece: JsonObject, *, is_whole: bool) -> None:
        """Add a reasoning detail: a piece of the last one, which is signed as a whole, or a new one."""
        last = details[-1] if details and not is_whole else {}
        if not last or not _continues(last, piece):
            details.append(dict(piece))
            return
        for key, value in piece.items():
            if key in _GROWING_KEYS and isinstance(value, str) and isinstance(last.get(key), str):
                self.answer.extend_text(last, key, value)
            elif value is not None:
                last[key] = value

    def _add_once(self, items: list[object], item: object) -> None:
        """Add an item unless it has come before."""
        name = json.dumps(item, sort_keys=True)
        if name not in self._known_items:
            self._known_items.add(name)
            items.append(item)


class _GrowingCall:
    """A tool call while its pieces arrive. ``id``: None until it is known."""

    def __init__(self, call_id: str | None) -> None:
        self.id = call_id
        self._name = ""
        self._arguments: list[str] = []  # pieces
        self._has_closing_brace = False  # at the end of the arguments
        self._more: JsonObject = {}  # unknown keys, such as thought signatures
        self._more_of_function: JsonObject = {}

    def begins_another(self, delta: JsonObject) -> bool:
        """Whether a delta, whose index and id fit or are missing, is nevertheless the beginning of another call.

        The arguments are parsed only where an object may have ended and another may begin: they may have megabytes.
        """
        function = as_dict(delta.get("function"))
        name = as_str(function.get("name"))
        has_both_ids = as_str(delta.get("id")) and self.id is not None
        if not name or has_both_ids or not self._has_closing_brace:
            return False
        arguments = function.get("arguments") or ""
        is_repeated = name == self._name and not arguments
        continues = isinstance(arguments, str) and arguments.lstrip()[:1] not in ("", "{", "[")
        return not (is_repeated or continues) and _is_object("".join(self._arguments))

    def add(self, delta: JsonObject) -> None:
        """Add the name, the arguments and the unknown keys of a delta."""
        function = as_dict(delta.get("function"))
        self._name = self._name or as_str(function.get("name"))
        arguments = function.get("arguments")
        if arguments is not None:
            self._add_arguments(arguments if isinstance(arguments, str) else json.dumps(arguments))
        for key, value in function.items():
            if key not in ("name", "arguments"):
                self._more_of_function.setdefault(key, value)
        for key, value in delta.items():
            if key not in ("index", "id", "type", "function") and value not in (None, ""):
                self._more.setdefault(key, value)

    def _add_arguments(self, piece: str) -> None:
        self._arguments.append(piece)
        if end := piece.rstrip()[-1:]:
            self._has_closing_brace = end == "}"

    def whole(self) -> Call:
        """The call with all that has arrived."""
        function = {"name": self._name, "arguments": "".join(self._arguments), **self._more_of_function}
        return {"id": self.id or "", "type": "function", "function": function, **self._more}


class _Calls:
    """The tool calls of one answer while their pieces arrive."""

    def __init__(self) -> None:
        self.calls: list[_GrowingCall] = []
        # The place of the latest call by index and id, each of which may be None or ``_ANY``.
        self._latest: dict[tuple[int | str | None, str | None], int] = {}

    def add(self, delta: JsonObject, *, is_whole: bool) -> None:
        """Add a delta to the last call of its index and id, or to a new call; a whole call is always new.

        Some servers give each call the same index, or neither index nor id. Then a name after complete arguments begins
        a new call. Some send an empty id or name, which is ignored (mistral, dashscope, groq).
        """
        index = delta["index"] if isinstance(delta.get("index"), int) else None
        call_id = as_str(delta.get("id")) or None
        place = None if is_whole else self._place_of(index, call_id)
        if place is None or self.calls[place].begins_another(delta):
            place = self._begin(index, call_id)
        elif call_id and self.calls[place].id is None:
            self._learn_id(place, index, call_id)
        self.calls[place].add(delta)

    def _place_of(self, index: int | None, call_id: str | None) -> int | None:
        """The place of the last call of the same index and id, or of one that had none."""
        indexes = (_ANY,) if index is None else (index, None)
        ids = (_ANY,) if call_id is None else (call_id, None)
        places = [self._latest[at, known] for at in indexes for known in ids if (at, known) in self._latest]
        return max(places, default=None)

    def _begin(self, index: int | None, call_id: str | None) -> int:
        """Begin a call and return its place."""
        self.calls.append(_GrowingCall(call_id))
        place = len(self.calls) - 1
        self._latest |= {(at, known): place for at in (index, _ANY) for known in (call_id, _ANY)}
        return place

    def _learn_id(self, place: int, index: int | None, call_id: str) -> None:
        """Give a call its id, which came later than its beginning."""
        self.calls[place].id = call_id
        for at in {index, None, _ANY}:
            if self._latest.get((at, None)) == place:
                del self._latest[at, None]
                self._latest[at, call_id] = place


def _continues(last: JsonObject, piece: JsonObject) -> bool:
    """Whether a reasoning detail is a further piece of the last one: of its type, index and id, if both have them."""
    if last.get("type") != piece.get("type"):
        return False
    pairs = [(last.get(key), piece.get(key)) for key in ("index", "id")]
    return all(known == new or None in (known, new) for known, new in pairs)


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(parse_json(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _error_in(chunk: JsonObject) -> GptshError | None:
    """The error in a payload: under ``error``, in a choice, or instead of an answer."""
    error = chunk.get("error")
    for choice in as_dicts(chunk.get("choices")):
        error = error or choice.get("error")
    is_error = not {"choices", "usage", "object"} & set(chunk) and {"message", "detail", "msg"} & set(chunk)
    if not error and (is_error or "error" in (chunk.get("object"), chunk.get("type"))):
        error = error_fields(chunk)
    return reported_error(error, chunk) if error else None


# ---- requests
#
# Write a request of the chat completions API, for each provider that has it.

REFUSABLE = {
    "stream_options": Refusable(names=("stream_options",)),
    "schema": Refusable(names=("response_format",), wording="(?i)response.?format|json_schema"),
    "limit": Refusable(wording="(?i)use .?max_completion_tokens"),  # OpenAI's newer models, through a gateway
}
_UNANSWERED = "(no answer)"
_CALL_KEYS, _FUNCTION_KEYS = ("id", "type", "function"), ("name", "arguments")


def path(_target: Target) -> str:
    """The path of the request's URL, after the base URL."""
    return "/chat/completions"


def body(request: Request, target: Target) -> JsonObject:
    """The JSON body, without the refused fields."""
    vendor = target.account.vendor
    messages: list[JsonObject] = []
    for message in shapes.move_tool_media(request.messages):
        is_after_tool = message["role"] == "user" and messages and messages[-1]["role"] == "tool"
        if is_after_tool and not vendor.user_after_tool:
            messages.append({"role": "assistant", "content": _UNANSWERED})
        messages.append(_message(message, target))
    if vendor.cache_marks_for and re.match(vendor.cache_marks_for, target.model):
        from gptsh.llm.anthropic import mark_chat

        mark_chat(messages, target, has_tools=bool(request.tools))
    payload: JsonObject = {"model": target.model, "messages": messages}
    if request.params:
        from gptsh.llm.parameters import fit_params

        payload |= fit_params(request.params, target).fields
    if tools := take_tools(payload, request, target, _declare):
        payload["tools"] = tools
        if target.refuses_effort_beside_tools:
            payload["reasoning_effort"] = "none"
    if request.schema is not None:  # not strict, which supports only part of JSON Schema: gptsh checks the answer
        answer_format = {"name": "answer", "schema": request.schema}
        payload["response_format"] = {"type": "json_schema", "json_schema": answer_format}
    if request.stream:
        payload["stream"] = True
        if vendor.stream_options and "stream_options" not in target.refusals:
            payload["stream_options"] = {"include_usage": True}
    return payload


def _declare(tools: Sequence[Tool]) -> list[Part]:
    """Tools in the API's form."""
    declared: list[Part] = []
    for tool in tools:
        function = {"name": tool.name, "description": tool.description, "parameters": openai_schema(tool)}
        declared.append({"type": "function", "function": function})
    return declared


def accepts(part: Part, target: Target) -> bool:
    """Whether a question can carry this part, which is not text."""
    return shapes.accepts(part, target.account.vendor.part_shapes)


def read(response: "Response", answer: Answer) -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events."""
    return stream.read_sse(response, as_chunks, Reader(answer))


def _message(message: Message, target: Target) -> JsonObject:
    """A message without the keys of gptsh or of another model."""
    fields: JsonObject
    if message["role"] == "assistant":
        fields = _answer(message, target)
    elif message["role"] == "tool":
        fields = {"tool_call_id": message.get("tool_call_id"), "content": one_text(message)}
    else:
        fields = {"content": shapes.question_content(message, target.account.vendor.part_shapes)}
    return {"role": message["role"], **fields, **shapes.author_name(message)}


def _answer(message: Message, target: Target) -> JsonObject:
    """An answer: its text, its tool calls, and what the provider wants back. Some servers refuse other keys.

    Signed or encrypted reasoning is only for the model that made it; plain text is for any model of the provider.
    """
    is_own = target.gave(message)
    through_litellm = target.api == "litellm"
    text, calls = one_text(message), message.get("tool_calls")
    fields: JsonObject = {}
    if is_own:
        fields |= _own_replay(message)
        if through_litellm:
            fields |= _litellm_replay(message)
    if calls:
        fields["tool_calls"] = [_call(call, is_own=is_own, through_litellm=through_litellm) for call in calls]
        if target.account.vendor.wants_reasoning_back:
            fields |= _plain_reasoning(message, target)
    fields = {key: value for key, value in fields.items() if value}
    if text or not calls or target.is_self_hosted:  # llama-cpp-python refuses null
        fields["content"] = text
    elif target.account.vendor.accepts_null_content:
        fields["content"] = None
    return fields


def _own_replay(message: Message) -> JsonObject:
    """What the model that made an answer wants back.

    The last reasoning detail of a partial answer may be incomplete, unless it is signed.
    """
    replay = as_dict(message.get("replay"))
    fields = {key: replay.get(key) for key in REPLAY_KEYS}
    details = as_dicts(replay.get(REASONING_DETAILS))
    if details and message.get("finish_reason") in PARTIAL_REASONS:
        last = details[-1]
        is_torn = "text" in last and not last.get("signature")
        details = details[:-1] if is_torn else details
    return {**fields, REASONING_DETAILS: details}


def _litellm_replay(message: Message) -> JsonObject:
    """What litellm wants back: thinking that is signed, and fields of the provider."""
    blocks = as_dicts(message.get("thinking"))
    signed = [block for block in blocks if block.get("signature") or block.get("type") != "thinking"]
    replay = as_dict(message.get("replay"))
    return {THINKING_BLOCKS: signed, PROVIDER_FIELDS: as_dict(replay.get(PROVIDER_FIELDS))}


def _plain_reasoning(message: Message, target: Target) -> dict[str, str]:
    """The reasoning before a tool call as plain text, which a provider may require: a blank one, if there is none."""
    replay = as_dict(message.get("replay")) if message.get("provider") == target.provider else {}
    return {key: replay[key] for key in REASONING_FIELDS if replay.get(key)} or {REASONING_FIELDS[0]: " "}


def _call(call: Call, *, is_own: bool, through_litellm: bool) -> Call:
    """A tool call; its own model gets what it sent beside the function, and litellm also what it put inside."""
    function = call["function"]
    plain = {key: value for key, value in function.items() if key in _FUNCTION_KEYS}
    if not is_own:
        return {**{key: call[key] for key in _CALL_KEYS}, "function": plain}
    fields = {key: value for key, value in call.items() if value is not None}
    return {**fields, "function": {**function} if through_litellm else plain}
