"""Speak chat completions, the API of OpenAI and most others: write requests, read answers."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gptsh.config.accounts import Refused, Target
from gptsh.content import shapes
from gptsh.content.answer import Answer
from gptsh.content.passages import one_text
from gptsh.errors import GptshError, ModelError
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_list, as_str
from gptsh.llm import stream
from gptsh.llm.stream import (
    DONE,
    Refusable,
    error_fields,
    not_an_answer,
    openai_function,
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
    Message,
    Part,
    Request,
)
from gptsh.models.usage import usage_from

if TYPE_CHECKING:
    from gptsh.llm.call_pieces import CallPieces

# ---- answers
#
# Read an answer: text, reasoning, tool calls in pieces, sources (citations), usage.
#
# Providers differ in where they put usage, how they name reasoning, whether tool-call deltas have
# an index, and whether errors come inside a stream of status 200. All forms are accepted from every
# provider.

# Keys saved because a provider may want them back: reasoning in pieces, signed (OpenRouter, Vercel,
# MiniMax); the signature of an answer without calls (Google); the text read from a file, so that it
# is not paid for twice (OpenRouter). Citations and unknown keys are not saved.
REPLAY_KEYS = (REASONING_DETAILS, "extra_content", "annotations")
_GROWING_KEYS = ("text", "summary", "data")  # of a reasoning detail: their pieces are concatenated


def _gateway_error(problem: str, hint: str = "", detail: str = "") -> ModelError:
    """Return the error of a gateway whose own provider failed."""
    failure = ModelError(problem, hint, detail=detail)
    failure.can_retry = True
    failure.may_fall_back = True
    return failure


class Reader(stream.Reader):
    """Writes the chunks of one answer into an ``Answer``; an unstreamed answer is one chunk."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._calls: CallPieces | None = None  # once there are any
        self._finish: str | None = None
        self._tier: str | None = None
        self._done = False
        self._thinking: list[str] = []  # pieces of the thinking block that has no signature yet
        self._known_items: set[str] = set()  # of ``replay``, as JSON

    @staticmethod
    def split(body: JsonObject) -> Iterator[JsonObject]:
        """Split a ``chat.completion`` into the chunks of a stream."""
        if as_dicts(body.get("choices")):
            yield body
            yield DONE
            return
        if error := _error_in(body):
            raise error
        if "choices" not in body:
            raise not_an_answer("a chat completion", body)
        raise _gateway_error("the provider sent no answer", "ask again", detail=json.dumps(body))

    def add(self, chunk: JsonObject) -> bool:
        """Read one chunk; return whether it was the last."""
        if chunk is DONE:
            self._done = True
            return True
        answer = self.answer
        response_id = answer.response_id or chunk.get("id")  # the first counts
        model = answer.resolved_model or chunk.get("model")
        self.add_names(response_id, model)
        self._add_usage(chunk)
        self._add_pages(chunk)
        for choice in as_dicts(chunk.get("choices")):
            if choice.get("index") in (0, None):  # only the first of several answers (n=2)
                self._add_choice(choice)
        if error := _error_in(chunk):
            raise error
        if self._finish == "error":
            raise _gateway_error("the provider ended the answer with an error")
        if self._finish:
            answer.finish(self._reason())
        return False

    def _add_usage(self, chunk: JsonObject) -> None:
        """Read the usage: at the top, in the choice (Moonshot), or in ``x_groq``.

        A later null does not count.
        """
        self._tier = as_str(chunk.get("service_tier")) or self._tier
        holders = [chunk]
        holders += as_dicts(chunk.get("choices"))[:1]
        holders.append(as_dict(chunk.get("x_groq")))
        for holder in holders:
            usage = as_dict(holder.get("usage"))
            if usage:
                self.answer.usage = usage_from(usage, self._tier)
                return

    def _add_pages(self, chunk: JsonObject) -> None:
        """Add the pages that Perplexity and xAI list beside the choices, in their order.

        The answer refers to the first as ``[1]``.
        """
        for page in as_dicts(chunk.get("search_results")):
            self.answer.add_source(page.get("url"), page.get("title"))
        for url in as_list(chunk.get("citations")):
            self.answer.add_source(url)

    def end(self) -> None:
        """Add the tool calls, complete or not: only now do they no longer change."""
        if self._calls:
            for call in self._calls.complete():
                self.answer.add_call(call)
        if self._done or self.answer.finished:
            self.answer.finish(self._reason())

    def _reason(self) -> str | None:
        """Return the finish reason; after calls, "stop" or an empty one (xAI) is "tool_calls"."""
        if self._calls and self._finish in ("stop", ""):
            return "tool_calls"
        return self._finish or None

    def _add_choice(self, choice: JsonObject) -> None:
        answer = self.answer
        delta = as_dict(choice.get("delta"))
        # An answer that is not streamed is a message. Some servers send the message so far with
        # each delta, too: it does not count.
        is_complete = not delta
        if is_complete:
            delta = as_dict(choice.get("message"))
        self._add_reasoning(delta)
        content = delta.get("content")
        answer.add_text(as_str(content))
        self._add_parts(as_dicts(content))
        refusal = as_str(delta.get("refusal"))
        if refusal:
            answer.add_refusal(refusal)
        for piece in as_dicts(delta.get("tool_calls")):
            self._add_call_piece(piece, is_complete=is_complete)
        self._save_replay(delta, is_complete=is_complete)
        reason = as_str(choice.get("finish_reason"))
        if reason:  # a later chunk may have an empty one
            self._finish = reason
            stop_sequence = as_str(choice.get("stop_reason"))  # so named by vLLM and SGLang
            answer.stop_sequence = stop_sequence or None

    def _add_call_piece(self, piece: JsonObject, *, is_complete: bool) -> None:
        if self._calls is None:
            from gptsh.llm.call_pieces import CallPieces

            self._calls = CallPieces()
        self._calls.add(piece, is_complete=is_complete)

    def _add_parts(self, parts: list[JsonObject]) -> None:
        """Add content in parts, which Mistral sends."""
        for part in parts:
            if part.get("type") == "thinking":
                for piece in as_dicts(part.get("thinking")):
                    self.answer.add_reasoning(as_str(piece.get("text")), "thinking")
            else:
                self.answer.add_text(as_str(part.get("text")))

    def _add_reasoning(self, delta: JsonObject) -> None:
        """Add reasoning once, of the first name that is set: some servers send it under two."""
        blocks = as_dicts(delta.get(THINKING_BLOCKS))
        if blocks:
            self._add_thinking_blocks(blocks)
            return
        for name in REASONING_FIELDS:
            text = as_str(delta.get(name))
            if text:
                self.answer.add_reasoning(text, name)
                return
        for detail in as_dicts(delta.get(REASONING_DETAILS)):
            self.answer.add_reasoning(as_str(detail.get("text")), "reasoning")
            self.answer.add_reasoning(as_str(detail.get("summary")), "reasoning")

    def _add_thinking_blocks(self, blocks: list[JsonObject]) -> None:
        """Add litellm's blocks: pieces of text, then the signature of the whole block."""
        for block in blocks:
            block.pop("index", None)  # the place of the block in the answer, from litellm 1.110 on
            text = as_str(block.get("thinking"))
            if text:
                self._thinking.append(text)
                self.answer.add_reasoning(text, THINKING_BLOCKS)
            if block.get("type") != "thinking":
                self.answer.add_thinking(block)
            elif block.get("signature"):
                self.answer.add_thinking({**block, "thinking": "".join(self._thinking)})
                self._thinking = []

    def _save_replay(self, delta: JsonObject, *, is_complete: bool) -> None:
        """Save what the provider may want back, and the pages that the answer cites."""
        replay = self.answer.replay
        for piece in as_dicts(delta.get(REASONING_DETAILS)):
            details = replay.setdefault(REASONING_DETAILS, [])
            if is_complete or not details or not _continues(details[-1], piece):
                details.append({**piece})
            else:
                self._extend_detail(details[-1], piece)
        extra = as_dict(delta.get("extra_content"))
        if extra:
            replay["extra_content"] = {**replay.get("extra_content", {}), **extra}
        for note in as_dicts(delta.get("annotations")):
            page = as_dict(note.get("url_citation"))
            self.answer.add_source(page.get("url"), page.get("title"))
            if note.get("type") == "file":
                self._add_once(replay.setdefault("annotations", []), note)
        provider_fields = as_dict(delta.get(PROVIDER_FIELDS))
        for signature in as_list(provider_fields.get(THOUGHT_SIGNATURES)):
            if isinstance(signature, str):
                fields = replay.setdefault(PROVIDER_FIELDS, {THOUGHT_SIGNATURES: []})
                self._add_once(fields[THOUGHT_SIGNATURES], signature)

    def _extend_detail(self, detail: JsonObject, piece: JsonObject) -> None:
        """Add a piece to a reasoning detail: its texts grow, and its signature comes as a whole."""
        for key, value in piece.items():
            is_text = isinstance(value, str) and isinstance(detail.get(key), str)
            if is_text and key in _GROWING_KEYS:
                self.answer.extend_text(detail, key, value)
            elif value is not None:
                detail[key] = value

    def _add_once(self, items: list[object], item: object) -> None:
        """Add an item unless it has come before."""
        encoded = json.dumps(item, sort_keys=True)
        if encoded not in self._known_items:
            self._known_items.add(encoded)
            items.append(item)


def _continues(detail: JsonObject, piece: JsonObject) -> bool:
    """Return whether a piece has the type of a reasoning detail, and its index and id, if any."""
    for key in ("index", "id"):
        earlier = detail.get(key)
        new = piece.get(key)
        if earlier is not None and new is not None and earlier != new:
            return False
    return bool(detail.get("type") == piece.get("type"))


def _error_in(chunk: JsonObject) -> GptshError | None:
    """Return the error in a payload: under ``error``, in a choice, or instead of an answer."""
    error = chunk.get("error")
    for choice in as_dicts(chunk.get("choices")):
        error = error or choice.get("error")
    if not error and _is_error(chunk):
        error = error_fields(chunk)
    return reported_error(error, chunk) if error else None


def _is_error(chunk: JsonObject) -> bool:
    """Return whether a payload is itself an error: by its type, or without keys of an answer."""
    if "error" in (chunk.get("object"), chunk.get("type")):
        return True
    if chunk.keys() & {"choices", "usage", "object"}:
        return False
    return bool(chunk.keys() & {"message", "detail", "msg"})


# ---- requests
#
# Write a request, for each provider that has this API.

REFUSABLE = {
    Refused.STREAM_OPTIONS: Refusable(names=("stream_options",)),
    Refused.SCHEMA: Refusable(
        names=("response_format",),
        wording="(?i)response.?format|json_schema",
    ),
    # By OpenAI's newer models, through a gateway.
    Refused.LIMIT: Refusable(wording="(?i)use .?max_completion_tokens"),
}
_UNANSWERED = "(no answer)"


def path(_target: Target) -> str:
    """Return the path of the request's URL, after the base URL."""
    return "/chat/completions"


def body(request: Request, target: Target) -> JsonObject:
    """Return the JSON body, without the refused fields."""
    vendor = target.account.vendor
    messages: list[JsonObject] = []
    last_role = ""
    for message in shapes.move_tool_media(request.messages):
        role = message["role"]
        if role == "user" and last_role == "tool" and not vendor.user_after_tool:
            messages.append({"role": "assistant", "content": _UNANSWERED})
        messages.append(_message(message, target))
        last_role = role
    if vendor.cache_marks_for and re.match(vendor.cache_marks_for, target.model):
        from gptsh.llm.anthropic import mark_chat

        mark_chat(messages, target, has_tools=bool(request.tools))

    payload: JsonObject = {"model": target.model, "messages": messages}
    payload |= request.params
    tools, offered = take_tools(payload, request, target)
    for tool in offered:
        tools.append({"type": "function", "function": openai_function(tool)})
    if tools:
        payload["tools"] = tools
        if target.refuses_effort_beside_tools:
            payload["reasoning_effort"] = "none"
    if request.schema is not None:
        # Not strict, which supports only part of JSON Schema: gptsh checks the answer.
        answer_format = {"name": "answer", "schema": request.schema}
        payload["response_format"] = {"type": "json_schema", "json_schema": answer_format}
    if request.stream:
        payload["stream"] = True
        if vendor.stream_options and Refused.STREAM_OPTIONS not in target.refusals:
            payload["stream_options"] = {"include_usage": True}
    return payload


def accepts(part: Part, target: Target) -> bool:
    """Return whether a question can carry this part, which is not text."""
    return shapes.accepts(part, target.account.vendor.part_shapes)


def _message(message: Message, target: Target) -> JsonObject:
    """Return a message without the keys of gptsh or of another model."""
    fields: JsonObject
    if message["role"] == "assistant":
        fields = _answer(message, target)
    elif message["role"] == "tool":
        fields = {"tool_call_id": message.get("tool_call_id"), "content": one_text(message)}
    else:
        content = shapes.question_content(message, target.account.vendor.part_shapes)
        fields = {"content": content}
    return {"role": message["role"], **fields, **shapes.author_name(message)}


def _answer(message: Message, target: Target) -> JsonObject:
    """Return the fields of an answer: its text, its calls, and what the provider wants back.

    Some providers refuse other keys. Signed or encrypted reasoning is only for the model that made
    it; plain text is for any model of the provider.
    """
    vendor = target.account.vendor
    is_own = target.gave(message)
    through_litellm = target.api == "litellm"
    text = one_text(message)
    calls = message.get("tool_calls")
    fields: JsonObject = {}
    if is_own:
        fields |= _own_replay(message)
        if through_litellm:
            fields |= _litellm_replay(message)
    if calls:
        sent = [_call(call, is_own=is_own, through_litellm=through_litellm) for call in calls]
        fields["tool_calls"] = sent
        if vendor.wants_reasoning_back:
            fields |= _plain_reasoning(message, target)
    fields = {key: value for key, value in fields.items() if value}
    if text or not calls or target.is_self_hosted:  # llama-cpp-python refuses null
        fields["content"] = text
    elif vendor.accepts_null_content:
        fields["content"] = None
    return fields


def _own_replay(message: Message) -> JsonObject:
    """Return what the model that made an answer wants back."""
    replay = as_dict(message.get("replay"))
    details = as_dicts(replay.get(REASONING_DETAILS))
    if details and message.get("finish_reason") in PARTIAL_REASONS:
        last = details[-1]
        if "text" in last and not last.get("signature"):  # it may be incomplete
            details.pop()
    wanted = {key: replay.get(key) for key in REPLAY_KEYS}
    wanted[REASONING_DETAILS] = details
    return wanted


def _litellm_replay(message: Message) -> JsonObject:
    """Return what litellm wants back: thinking that is signed, and fields of the provider."""
    signed = []
    for block in as_dicts(message.get("thinking")):
        if block.get("signature") or block.get("type") != "thinking":
            signed.append(block)
    replay = as_dict(message.get("replay"))
    return {THINKING_BLOCKS: signed, PROVIDER_FIELDS: as_dict(replay.get(PROVIDER_FIELDS))}


def _plain_reasoning(message: Message, target: Target) -> JsonObject:
    """Return the reasoning before a call as plain text: a blank, if there is none.

    The provider requires some reasoning.
    """
    if message.get("provider") == target.provider:
        replay = as_dict(message.get("replay"))
        reasoning = {key: replay[key] for key in REASONING_FIELDS if replay.get(key)}
        if reasoning:
            return reasoning
    return {REASONING_FIELDS[0]: " "}


def _call(call: Call, *, is_own: bool, through_litellm: bool) -> Call:
    """Return a tool call without the keys that only its own model, or only litellm, may get."""
    function = call["function"]
    plain = {key: value for key, value in function.items() if key in ("name", "arguments")}
    if not is_own:
        return {"id": call["id"], "type": call["type"], "function": plain}
    fields = {key: value for key, value in call.items() if value is not None}
    return {**fields, "function": {**function} if through_litellm else plain}
