"""Answers of the OpenAI chat completions API: response bytes to an ``Answer``. No network here.

Providers differ in where usage stands, how reasoning is named, whether tool-call deltas have an index, and in sending
errors inside a stream of status 200; all of it is read here, by shape and not by provider.
"""

import json
from collections.abc import Iterator
from typing import Any

from gptsh.content.answer import Answer
from gptsh.errors import GptshError, ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import sse
from gptsh.llm.failures import reported
from gptsh.llm.payloads import ADVICE, load, shown
from gptsh.messages import DETAILS, FIELDS, REASONING_FIELDS, SIGNATURES, THINKING, Call
from gptsh.models.cost import usage_from

# What is kept besides because a provider may want it back: reasoning in pieces, signed (OpenRouter, Vercel, MiniMax);
# the signature of an answer without calls (Google); what was read from a file, so that it is not paid for twice
# (OpenRouter). Other keys that we do not know, and citations, say nothing to a later request and are not kept.
WANTED_BACK = (DETAILS, "extra_content", "annotations")
DONE: dict[str, Any] = {}  # stands for ``data: [DONE]``
_GROWS = ("text", "summary", "data")  # of a piece of reasoning


def payloads(chunks: Iterator[bytes], content_type: str) -> Iterator[dict[str, Any]]:
    """The objects of a body, streamed or whole as it shows: some servers answer either way whatever was asked.

    DONE is the last one of an answer that ended properly. Raises ModelError for what is no answer.
    """
    streamed, chunks = sse.peeked(chunks, content_type)
    if not streamed:
        body = b"".join(chunks)
        yield from whole(load(body), shown(body))
        return
    for name, data in sse.payloads(chunks):
        if data.strip() == b"[DONE]":
            yield DONE
            return
        if data.strip():
            payload = load(data)
            if name == "error":
                payload["error"] = payload.get("error") or _words_of(payload)
            yield payload


def whole(payload: dict[str, Any], told: str) -> Iterator[dict[str, Any]]:
    """The same of a ``chat.completion`` object; ``told`` is what --debug shows of one that is none."""
    if not as_dicts(payload.get("choices")):
        raise _error_in(payload) or ModelError("the response is no chat completion", ADVICE, detail=told)
    yield payload
    yield DONE


class Reader:
    """Writes the chunks of one answer into it, or the one object that it is."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._calls = _Calls()
        self._finish: str | None = None
        self._done = False
        self._thought: list[str] = []  # the thinking block that has no signature yet

    def take(self, chunk: dict[str, Any]) -> bool:
        """One chunk; whether it was the last. Raises ModelError or TooLong for an error in it."""
        answer = self._answer
        if chunk is DONE:
            self._done = True
            return True
        answer.response_id = answer.response_id or _text(chunk.get("id"))
        answer.resolved_model = answer.resolved_model or _text(chunk.get("model"))
        choices = as_dicts(chunk.get("choices"))
        if usage := _usage_in(chunk, choices):  # a later null never overwrites it
            answer.usage = usage_from(usage)
        for choice in choices:
            if choice.get("index") in (0, None):  # more than one answer (n=2) would be one too many
                self._take_delta(as_dict(choice.get("delta") or choice.get("message")), whole="message" in choice)
                if isinstance(reason := choice.get("finish_reason"), str):
                    self._finish = reason
        if error := _error_in(chunk):
            raise error
        if self._finish == "error":
            raise ModelError("the provider broke the answer off with an error")
        if self._finish:
            answer.finish(self._reason())
        return False

    def end(self) -> None:
        """The tool calls, as far as they came: they are known only now."""
        for call in self._calls.whole():
            self._answer.add_call(call)
        if self._done or self._answer.finished:
            self._answer.finish(self._reason())

    def _reason(self) -> str | None:
        """Why it ended; a "stop", or a reason that is empty (xai), means the tool calls where there are some."""
        return "tool_calls" if self._calls.any and self._finish in ("stop", "") else self._finish or None

    def _take_delta(self, delta: dict[str, Any], *, whole: bool) -> None:
        answer, details = self._answer, as_dicts(delta.get(DETAILS))
        # Some servers send the same reasoning under two names: the first one that says something counts.
        field = next((name for name in REASONING_FIELDS if _text(delta.get(name))), None)
        if blocks := as_dicts(delta.get(THINKING)):
            self._take_thoughts(blocks)
        elif field:
            answer.add_reasoning(delta[field], field)
        else:
            texts = (_text(detail.get(key)) for detail in details for key in ("text", "summary"))
            answer.add_reasoning("".join(filter(None, texts)), "reasoning")
        self._keep(delta, details, whole=whole)
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
            self._calls.take(call)

    def _take_thoughts(self, blocks: list[dict[str, Any]]) -> None:
        """Thinking as litellm passes it on: pieces of text, then one piece with the signature of the whole block."""
        for block in blocks:
            if text := _text(block.get("thinking")):
                self._thought.append(text)
                self._answer.add_reasoning(text, THINKING)
            if block.get("type") != "thinking":
                self._answer.add_thought(block)
            elif block.get("signature"):
                self._answer.add_thought({**block, "thinking": "".join(self._thought)})
                self._thought = []

    def _keep(self, delta: dict[str, Any], details: list[dict[str, Any]], *, whole: bool) -> None:
        """What the provider may want back. What is signed goes back as one piece, not in those in which it came."""
        replay = self._answer.replay
        for piece in details:
            kept = replay.setdefault(DETAILS, [])
            if kept and not whole and _goes_on(kept[-1], piece):
                _add(kept[-1], piece)
            else:
                kept.append(dict(piece))
        if extra := as_dict(delta.get("extra_content")):
            replay["extra_content"] = {**replay.get("extra_content", {}), **extra}
        for note in as_dicts(delta.get("annotations")):
            if note.get("type") == "file" and note not in (files := replay.setdefault("annotations", [])):
                files.append(note)
        signed = as_dict(delta.get(FIELDS)).get(SIGNATURES)
        for signature in signed if isinstance(signed, list) else ():
            known = replay.setdefault(FIELDS, {SIGNATURES: []})[SIGNATURES]
            if isinstance(signature, str) and signature not in known:
                known.append(signature)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _words_of(payload: dict[str, Any]) -> Any:
    """What an error says that stands bare in the place of an answer."""
    return {key: payload[key] for key in ("message", "detail", "msg", "code", "type") if key in payload} or True


def _error_in(chunk: dict[str, Any]) -> GptshError | None:
    """The error that a payload reports: under ``error``, in a choice, or bare in the place of an answer."""
    error = chunk.get("error")
    for choice in as_dicts(chunk.get("choices")):
        error = error or choice.get("error")
    bare = not {"choices", "usage", "object"} & set(chunk) and {"message", "detail", "msg"} & set(chunk)
    if not error and (bare or "error" in (chunk.get("object"), chunk.get("type"))):
        error = _words_of(chunk)
    return reported(error, chunk) if error else None


def _goes_on(last: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Whether a piece of reasoning goes on with the last one: of its type, and no other number or id."""
    same = (last.get(key) == piece.get(key) or None in (last.get(key), piece.get(key)) for key in ("index", "id"))
    return last.get("type") == piece.get("type") and all(same)


def _add(last: dict[str, Any], piece: dict[str, Any]) -> None:
    for key, value in piece.items():
        if key in _GROWS and isinstance(value, str) and isinstance(last.get(key), str):
            last[key] += value
        elif value is not None:
            last[key] = value


class _Calls:
    """Tool calls from their deltas: by index, else by id, else the last one goes on.

    A new id at a used index begins another call, and so does a name where index and id are missing; an empty id or
    name says nothing (mistral, dashscope, groq).
    """

    def __init__(self) -> None:
        self._calls: list[tuple[int | None, Call]] = []  # with its index

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._calls)

    def take(self, delta: dict[str, Any]) -> None:
        """What one delta has of a call."""
        index = delta["index"] if isinstance(delta.get("index"), int) else None
        call_id, function = _text(delta.get("id")), as_dict(delta.get("function"))
        call = self._find(index, call_id, function.get("name"))
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

    def _find(self, index: int | None, call_id: str | None, name: Any) -> Call | None:
        """The call that a delta goes on; None where it begins one."""
        for at, call in reversed(self._calls):
            if index is None and call_id is None:  # the last one, if it is not whole
                return None if name and call["function"]["arguments"].endswith("}") else call
            is_there = index is not None and at == index and None in (call_id, call["id"])
            if is_there or (call_id == call["id"] and (index == at or None in (index, at))):
                return call
        return None

    def whole(self) -> list[Call]:
        """The calls; keys that we do not know (thought signatures) are kept."""
        return [{**call, "id": call["id"] or ""} for _, call in self._calls]


def _usage_in(chunk: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Usage at the top of the chunk, in the choice (moonshot), or in ``x_groq``."""
    places = [chunk.get("usage"), *(choice.get("usage") for choice in choices[:1])]
    places.append(as_dict(chunk.get("x_groq")).get("usage"))
    return next((place for place in places if isinstance(place, dict) and place), None)
