"""The OpenAI chat completions API: a request to its JSON body, response bytes to an ``Answer``. No network here.

Providers differ in where usage stands, how reasoning is named, whether tool-call deltas have an index, and in sending
errors inside a stream of status 200; all of it is read here, by shape and not by provider.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gptsh.content import openai_parts
from gptsh.content.answer import Answer, Request
from gptsh.content.passages import one_text
from gptsh.errors import GptshError, ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import sse
from gptsh.llm.errors import reported
from gptsh.llm.parameters import fit
from gptsh.llm.sse import ADVICE, DONE, debug_text
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
)
from gptsh.models.cost import usage_from
from gptsh.models.facts import OPENAIS
from gptsh.models.names import is_answer_of
from gptsh.models.providers import Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Response

PATH = "/chat/completions"
REFUSABLE = {
    "stream_options": "stream_options",
    "response_format": "(?i)response.?format|json.?schema",
}
# What is kept besides because a provider may want it back: reasoning in pieces, signed (OpenRouter, Vercel, MiniMax);
# the signature of an answer without calls (Google); what was read from a file, so that it is not paid for twice
# (OpenRouter). Other keys that we do not know, and citations, say nothing to a later request and are not kept.
WANTED_BACK = (REASONING_DETAILS, "extra_content", "annotations")
_UNANSWERED = "(no answer)"
_CALL_KEYS, _FUNCTION_KEYS = ("id", "type", "function"), ("name", "arguments")
_LONGEST_DESCRIPTION = 1024  # characters, of OpenAI's tools; whether its newest models take more is told nowhere
_SIGNATURE = "thought_signature"
_GROWS = ("text", "summary", "data")  # of a piece of reasoning


def body(request: Request, provider: Provider, refused: Collection[str] = (), _servers: Any = None) -> dict[str, Any]:
    """The JSON body, without the fields that are refused."""
    if request.schema is not None and "response_format" in refused:
        from gptsh.context.answer_schema import messages_with_schema  # noqa: PLC0415 - few answers have a schema

        request = request._replace(messages=messages_with_schema(request.messages, request.schema), schema=None)
    messages: list[dict[str, Any]] = []
    for message in openai_parts.move_tool_media(request.messages):
        is_behind_tool = message["role"] == "user" and messages and messages[-1]["role"] == "tool"
        if is_behind_tool and not provider.user_after_tool:
            messages.append({"role": "assistant", "content": _UNANSWERED})
        messages.append(_message(message, provider, request.model))
    sent = {"model": provider.model, "messages": messages, **fit(request.params, provider).sent}
    if request.tools:
        sent["tools"] = []
    for tool in request.tools:
        text = tool.description
        if provider.name in OPENAIS and len(text) > _LONGEST_DESCRIPTION:  # cut at a word
            text = text[:_LONGEST_DESCRIPTION]
            text = (re.sub(r"\s*\S*\Z", "", text) or text[:-1]) + "…"
        # OpenAI refuses the arguments of a tool without properties.
        parameters = {**tool.parameters, "properties": tool.parameters.get("properties") or {}}
        function = {"name": tool.name, "description": text, "parameters": parameters}
        sent["tools"].append({"type": "function", "function": function})
    if request.schema is not None:  # not strict, which takes a part of JSON Schema only: the answer is checked here
        form = {"name": "answer", "schema": request.schema}
        sent["response_format"] = {"type": "json_schema", "json_schema": form}
    if request.stream:
        sent["stream"] = True
        if provider.stream_options and "stream_options" not in refused:
            sent["stream_options"] = {"include_usage": True}
    return sent


def accepts(part: Part, provider: Provider) -> bool:
    """Whether a question has a place for what a part carries."""
    return openai_parts.accepts(part, provider.parts)


def read(response: "Response", _provider: Provider, answer: Answer, _servers: Any = None) -> Iterator[Event]:
    """What is seen of the answer."""
    found = sse.objects(response.chunks(), response.headers.get("content-type", ""), as_chunks)
    return sse.read(found, Reader(answer), response.limit_wait)


def _message(message: Message, provider: Provider, model: str) -> dict[str, Any]:
    """A message without what only gptsh, or only another model, knows; ``model`` is as ``-m`` takes it."""
    known: Mapping[str, Any] = message
    sent: dict[str, Any]
    if message["role"] == "assistant":
        sent = _answer(message, provider, model)
    elif message["role"] == "tool":
        sent = {"tool_call_id": message.get("tool_call_id"), "content": one_text(message)}
    else:
        sent = {"content": openai_parts.question_content(message, provider.parts)}
    named = {"name": known["name"]} if known.get("name") and isinstance(known["name"], str) else {}
    return {"role": message["role"], **sent, **named}


def _answer(message: Message, provider: Provider, model: str) -> dict[str, Any]:
    """An answer: its words, its calls, and what goes back. Servers mirror parts, and some refuse them.

    What is signed or sealed is for the model that made it; reasoning in plain text its provider wants of any.
    """
    own, replay = is_answer_of(message, provider.name, model), as_dict(message.get("replay"))
    text, calls = one_text(message), message.get("tool_calls")
    sent: dict[str, Any] = {}
    if own and replay:
        sent = {key: replay.get(key) for key in WANTED_BACK}
        details = as_dicts(replay.get(REASONING_DETAILS))
        # The last piece of reasoning of an answer that broke off is not whole, unless it is signed.
        torn = message.get("finish_reason") in PARTIAL_REASONS and details and "text" in details[-1]
        sent[REASONING_DETAILS] = details[:-1] if torn and not details[-1].get("signature") else details
    if own and provider.api == "litellm":
        blocks = [b for b in as_dicts(message.get("thinking")) if b.get("signature") or b.get("type") != "thinking"]
        sent |= {THINKING_BLOCKS: blocks, PROVIDER_FIELDS: as_dict(replay.get(PROVIDER_FIELDS))}
    if calls:
        through_litellm = provider.api == "litellm"
        sent["tool_calls"] = [_call(call, own=own, through_litellm=through_litellm) for call in calls]
        if provider.wants_reasoning:
            known = replay if message.get("provider") == provider.name else {}
            sent |= {key: known[key] for key in REASONING_FIELDS if known.get(key)} or {REASONING_FIELDS[0]: " "}
    sent = {key: value for key, value in sent.items() if value}
    if text or not calls or provider.is_local:  # llama-cpp-python refuses null
        sent["content"] = text
    elif provider.accepts_null:
        sent["content"] = None
    return sent


def _call(call: Call, *, own: bool, through_litellm: bool) -> Call:
    """A call, for its own model with its thought's signature: Google takes it beside, litellm within the function."""
    function = {key: value for key, value in call["function"].items() if through_litellm or key in _FUNCTION_KEYS}
    if not own:
        plain = {key: value for key, value in function.items() if key in _FUNCTION_KEYS}
        return {**{key: call[key] for key in _CALL_KEYS}, "function": plain}
    kept = {key: value for key, value in call.items() if value is not None}
    beside = as_dict(as_dict(call.get("extra_content")).get("google")).get(_SIGNATURE)
    within = as_dict(call["function"].get(PROVIDER_FIELDS)).get(_SIGNATURE)
    if through_litellm and beside and not within:
        function[PROVIDER_FIELDS] = {_SIGNATURE: beside}
    if within and not beside and not through_litellm:
        kept["extra_content"] = {"google": {_SIGNATURE: within}}
    return {**kept, "function": function}


# ---- answers


def as_chunks(payload: dict[str, Any], body: bytes) -> Iterator[dict[str, Any]]:
    """What a stream would have brought of a ``chat.completion``; ``body`` is what --debug shows of one that is none."""
    if not as_dicts(payload.get("choices")):
        raise _error_in(payload) or ModelError("the response is no chat completion", ADVICE, detail=debug_text(body))
    yield from (payload, DONE)


class Reader(sse.Reader):
    """Writes the chunks of one answer into it, or the one object that it is."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._calls: list[tuple[int | None, Call]] = []  # with its index
        self._finish: str | None = None
        self._done = False
        self._thought: list[str] = []  # the thinking block that has no signature yet

    def add(self, chunk: dict[str, Any]) -> bool:
        """One chunk; whether it was the last. Raises ModelError or TooLong for an error in it."""
        answer = self.answer
        if chunk is DONE:
            self._done = True
            return True
        answer.response_id = answer.response_id or _text(chunk.get("id"))
        answer.resolved_model = answer.resolved_model or _text(chunk.get("model"))
        choices = as_dicts(chunk.get("choices"))
        # At the top, in the choice (moonshot), or in x_groq; a later null never overwrites it.
        places = [chunk, *choices[:1], as_dict(chunk.get("x_groq"))]
        if usage := next(filter(None, (as_dict(place.get("usage")) for place in places)), None):
            answer.usage = usage_from(usage)
        for choice in choices:
            if choice.get("index") in (0, None):  # more than one answer (n=2) would be one too many
                self._take_delta(as_dict(choice.get("delta") or choice.get("message")), whole="message" in choice)
                if isinstance(reason := choice.get("finish_reason"), str):
                    self._finish = reason
                    answer.stop_sequence = _text(choice.get("stop_reason"))  # vLLM's and SGLang's word
        if error := _error_in(chunk):
            raise error
        if self._finish == "error":
            raise ModelError("the provider broke the answer off with an error")
        if self._finish:
            answer.finish(self._reason())
        return False

    def end(self) -> None:
        """The tool calls, as far as they came: they are known only now."""
        for _, call in self._calls:  # keys that we do not know (thought signatures) are kept
            self.answer.add_call({**call, "id": call["id"] or ""})
        if self._done or self.answer.finished:
            self.answer.finish(self._reason())

    def _reason(self) -> str | None:
        """Why it ended; a "stop", or a reason that is empty (xai), means the tool calls where there are some."""
        return "tool_calls" if self._calls and self._finish in ("stop", "") else self._finish or None

    def _take_delta(self, delta: dict[str, Any], *, whole: bool) -> None:
        answer = self.answer
        self._take_reasoning(delta)
        content = delta.get("content")
        answer.add_text(_text(content) or "")
        for part in as_dicts(content):  # mistral's
            if part.get("type") == "thinking":
                for piece in as_dicts(part.get("thinking")):
                    answer.add_reasoning(_text(piece.get("text")) or "", "thinking")
            else:
                answer.add_text(_text(part.get("text")) or "")
        if refusal := _text(delta.get("refusal")):
            answer.add_refusal(refusal)
        for call in as_dicts(delta.get("tool_calls")):
            self._take_call(call)
        if delta.keys() & {*WANTED_BACK, PROVIDER_FIELDS}:
            self._keep(delta, whole=whole)

    def _take_reasoning(self, delta: dict[str, Any]) -> None:
        answer = self.answer
        # Some servers send the same reasoning under two names: the first one that says something counts.
        field = next((name for name in REASONING_FIELDS if _text(delta.get(name))), None)
        blocks = as_dicts(delta.get(THINKING_BLOCKS))
        for block in blocks:  # as litellm passes them on: pieces of text, then the signature of them all
            if text := _text(block.get("thinking")):
                self._thought.append(text)
                answer.add_reasoning(text, THINKING_BLOCKS)
            if block.get("type") != "thinking":
                answer.add_thinking(block)
            elif block.get("signature"):
                answer.add_thinking({**block, "thinking": "".join(self._thought)})
                self._thought = []
        if field and not blocks:
            answer.add_reasoning(delta[field], field)
        elif not blocks:
            details = as_dicts(delta.get(REASONING_DETAILS))
            texts = (_text(detail.get(key)) for detail in details for key in ("text", "summary"))
            answer.add_reasoning("".join(filter(None, texts)), "reasoning")

    def _take_call(self, delta: dict[str, Any]) -> None:
        """What one delta has of a call: the one of its index, else of its id, else the last one.

        A new id at a used index begins another call, and so does a name where index and id are missing; an empty id or
        name says nothing (mistral, dashscope, groq).
        """
        index = delta["index"] if isinstance(delta.get("index"), int) else None
        call_id, function = _text(delta.get("id")), as_dict(delta.get("function"))
        call: Call | None = None
        for at, one in reversed(self._calls):
            if index is None and call_id is None:  # the last one goes on, if it is not whole
                call = None if function.get("name") and one["function"]["arguments"].endswith("}") else one
                break
            is_there = index is not None and at == index and None in (call_id, one["id"])
            if is_there or (call_id == one["id"] and (index == at or None in (index, at))):
                call = one
                break
        if call is None:
            call = {"id": call_id, "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append((index, call))
        call["id"] = call["id"] or call_id
        inner, arguments = call["function"], function.get("arguments")
        inner["name"] = inner["name"] or _text(function.get("name")) or ""
        if arguments is not None:
            inner["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
        inner |= {key: value for key, value in function.items() if key not in inner}
        call |= {key: v for key, v in delta.items() if key not in ("index", *call) and v not in (None, "")}

    def _keep(self, delta: dict[str, Any], *, whole: bool) -> None:
        """What the provider may want back. What is signed goes back as one piece, not in those in which it came."""
        replay = self.answer.replay
        for piece in as_dicts(delta.get(REASONING_DETAILS)):
            kept = replay.setdefault(REASONING_DETAILS, [])
            last = kept[-1] if kept and not whole else {}
            same = (
                last.get(key) == piece.get(key) or None in (last.get(key), piece.get(key)) for key in ("index", "id")
            )
            if not last or last.get("type") != piece.get("type") or not all(same):
                kept.append(dict(piece))
                continue
            for key, value in piece.items():
                if key in _GROWS and isinstance(value, str) and isinstance(last.get(key), str):
                    last[key] += value
                elif value is not None:
                    last[key] = value
        if extra := as_dict(delta.get("extra_content")):
            replay["extra_content"] = {**replay.get("extra_content", {}), **extra}
        for note in as_dicts(delta.get("annotations")):
            if note.get("type") == "file" and note not in (files := replay.setdefault("annotations", [])):
                files.append(note)
        signed = as_dict(delta.get(PROVIDER_FIELDS)).get(THOUGHT_SIGNATURES)
        for signature in signed if isinstance(signed, list) else ():
            known = replay.setdefault(PROVIDER_FIELDS, {THOUGHT_SIGNATURES: []})[THOUGHT_SIGNATURES]
            if isinstance(signature, str) and signature not in known:
                known.append(signature)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _error_in(chunk: dict[str, Any]) -> GptshError | None:
    """The error that a payload reports: under ``error``, in a choice, or bare in the place of an answer."""
    error = chunk.get("error")
    for choice in as_dicts(chunk.get("choices")):
        error = error or choice.get("error")
    bare = not {"choices", "usage", "object"} & set(chunk) and {"message", "detail", "msg"} & set(chunk)
    if not error and (bare or "error" in (chunk.get("object"), chunk.get("type"))):
        error = sse.error_fields(chunk)
    return reported(error, chunk) if error else None
