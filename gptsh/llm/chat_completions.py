"""The OpenAI chat completions dialect: a request to its JSON body, response bytes to events.

No network here. Providers differ in where usage stands, how reasoning is named, whether tool-call deltas have an
index, and in sending errors inside a stream of status 200; all of it is read here, by shape and not by provider.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gptsh.core.messages import (
    Call,
    Event,
    Finished,
    Identified,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Usage,
    Used,
    new_message_id,
    parts_of,
    text_of,
    text_parts_of,
)
from gptsh.core.models import is_openai_reasoning
from gptsh.core.turn import Request
from gptsh.errors import ModelError
from gptsh.llm import sse
from gptsh.llm.failures import message_in

_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
_MESSAGE_KEYS = ("role", "tool_calls", "tool_call_id", "name")
_PART_KEYS_OF_OURS = ("source",)


# ---- the request


def body(request: Request, model: str, *, provider: str, stream_options: bool) -> dict[str, Any]:
    """The JSON body. ``model`` is the name by which the provider knows it."""
    params = dict(request.params)
    if provider == "openai" and is_openai_reasoning(model) and "max_tokens" in params:
        params["max_completion_tokens"] = params.pop("max_tokens")
    sent: dict[str, Any] = {"model": model, "messages": [_message(m) for m in request.messages], **params}
    if request.stream:
        sent["stream"] = True
        if stream_options:
            sent["stream_options"] = {"include_usage": True}
    return sent


def _message(message: Message) -> dict[str, Any]:
    """A message without what only gptsh knows. Text goes as one string, which every server takes."""
    known: Mapping[str, Any] = message
    sent = {key: known[key] for key in _MESSAGE_KEYS if key in known}
    parts = parts_of(message)
    if text_parts_of(message) == parts:
        return {**sent, "content": text_of(message) or message.get("refusal") or ("" if parts else _nothing(message))}
    return {**sent, "content": [_part(part) for part in parts]}


def _nothing(message: Message) -> str | None:
    return None if message.get("tool_calls") else ""


def _part(part: Part) -> Part:
    return {key: value for key, value in part.items() if key not in _PART_KEYS_OF_OURS}


# ---- the response


def read_whole(data: bytes) -> Iterator[Event]:
    """The events of an answer that came in one piece. Raises ModelError when it is no answer."""
    answer = _Answer()
    payload = _load(data)
    choices = [{**choice, "delta": choice.get("message")} for choice in _dicts(payload.get("choices"))]
    if not choices and "error" not in payload:
        raise ModelError("the response is no chat completion", "is the base URL right?", detail=_shown(data))
    yield from answer.take({**payload, "choices": choices})
    yield from answer.end()


def read_stream(chunks: Iterable[bytes]) -> Iterator[Event]:
    """The events of a streamed answer, as they come. Raises ModelError for an error inside or a stream cut off."""
    answer, done = _Answer(), False
    for _, data in sse.payloads(chunks):
        if data.strip() == b"[DONE]":
            done = True
            break
        yield from answer.take(_load(data))
    if not done and not answer.finished:
        raise ModelError("the stream broke off before the answer was complete")
    yield from answer.end()


def _load(data: bytes) -> dict[str, Any]:
    try:
        payload = json.loads(data, parse_constant=lambda _: None, parse_float=_finite)
    except (ValueError, RecursionError) as err:
        raise ModelError(f"the response is garbage: {err}", "is the base URL right?", detail=_shown(data)) from err
    if not isinstance(payload, dict):
        raise ModelError("the response is no JSON object", "is the base URL right?", detail=_shown(data))
    return payload


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None  # 1e999 could not be saved


def _shown(data: bytes) -> str:
    return data[:2000].decode("utf-8", "replace")


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class _Answer:
    """What accumulates over the chunks of one answer: tool calls, usage, the reason for ending."""

    def __init__(self) -> None:
        self.finished = False
        self._finish: str | None = None
        self._id: str | None = None
        self._usage: dict[str, Any] | None = None
        self._calls = _Calls()

    def take(self, chunk: dict[str, Any]) -> Iterator[Event]:
        """The events of one chunk."""
        _refuse_error(chunk)
        if self._id is None and isinstance(chunk.get("id"), str) and chunk["id"]:
            self._id = chunk["id"]
            yield Identified(None, self._id)
        choices = _dicts(chunk.get("choices"))
        self._usage = _usage_in(chunk, choices) or self._usage  # a later null never overwrites it
        for choice in choices[:1]:
            yield from self._take_delta(_dict(choice.get("delta")))
            if reason := choice.get("finish_reason"):
                self._finish, self.finished = str(reason), True

    def _take_delta(self, delta: dict[str, Any]) -> Iterator[Event]:
        # Some servers send the same reasoning under two names: the first one that says something counts.
        field = next((f for f in _REASONING_FIELDS if isinstance(delta.get(f), str) and delta[f]), None)
        if field:
            yield Reasoning(delta[field], field)
        yield from _content(delta.get("content"))
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            yield Refusal(delta["refusal"])
        for call in _dicts(delta.get("tool_calls")):
            self._calls.take(call)

    def end(self) -> Iterator[Event]:
        """What is known only now."""
        calls = self._calls.whole()
        yield from map(ToolCall, calls)
        if self._usage is not None:
            yield Used(usage_from(self._usage))
        if self._finish == "error":
            raise ModelError("the provider broke the answer off with an error")
        yield Finished("tool_calls" if calls and self._finish in ("stop", "", None) else self._finish)


def _refuse_error(chunk: dict[str, Any]) -> None:
    error = chunk.get("error") or (chunk if chunk.get("object") == "error" else None)
    if error:
        raise ModelError(f"the provider reported: {message_in(error) or 'an error'}", detail=json.dumps(chunk))


def _content(content: object) -> Iterator[Event]:
    """Text; of a list (mistral) the text and thinking parts."""
    if isinstance(content, str) and content:
        yield Text(content)
    for part in _dicts(content):
        if part.get("type") == "thinking":
            inner = (piece.get("text") for piece in _dicts(part.get("thinking")))
            yield from (Reasoning(text, "thinking") for text in inner if isinstance(text, str) and text)
        elif isinstance(part.get("text"), str) and part["text"]:
            yield Text(part["text"])


class _Calls:
    """Tool calls from their deltas: by index, else by id, else the last one goes on until a name begins another.

    A new id at a used index begins another call too; an empty id or name says nothing (mistral, dashscope, groq).
    """

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._at: dict[int | str, int] = {}

    def take(self, delta: dict[str, Any]) -> None:
        index, call_id = delta.get("index"), delta.get("id")
        keys: list[int | str] = [index] if isinstance(index, int) else []
        keys += [call_id] if call_id and isinstance(call_id, str) else []
        place = self._place(keys, delta)
        if place is None:
            place = len(self._calls)
            self._calls.append({"function": {"name": "", "arguments": ""}})
        self._at.update(dict.fromkeys(keys, place))
        _merge_call(self._calls[place], delta)

    def _place(self, keys: list[int | str], delta: dict[str, Any]) -> int | None:
        """Where the call that this delta goes on stands; None for a new call."""
        if not keys:
            starts = _dict(delta.get("function")).get("name") or not self._calls
            return None if starts else len(self._calls) - 1
        place = next((self._at[key] for key in keys if key in self._at), None)
        if place is not None and isinstance(keys[-1], str) and self._calls[place].get("id") not in (None, keys[-1]):
            return None
        return place

    def whole(self) -> list[Call]:
        """The calls, each with an id and a type; keys we do not know (thought signatures) are kept."""
        calls = []
        for call in self._calls:
            identified = {"id": call.get("id") or f"call_{new_message_id()[:8]}", "type": "function"}
            calls.append({**identified, **{k: v for k, v in call.items() if k != "id"}})
        return calls


def _merge_call(call: Call, delta: dict[str, Any]) -> None:
    function = _dict(delta.get("function"))
    if isinstance(function.get("name"), str):
        call["function"]["name"] = call["function"]["name"] or function["name"]
    arguments = function.get("arguments")
    if arguments is not None:
        call["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
    for key, value in delta.items():
        if key not in ("index", "function") and value not in (None, "") and (key != "id" or isinstance(value, str)):
            call[key] = value


# ---- usage


def _usage_in(chunk: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Usage at the top of the chunk, in the choice (moonshot), or in ``x_groq``."""
    places = [chunk.get("usage"), *(choice.get("usage") for choice in choices[:1])]
    places.append(_dict(chunk.get("x_groq")).get("usage"))
    return next((place for place in places if isinstance(place, dict) and place), None)


def usage_from(raw: dict[str, Any]) -> Usage:
    """The provider's usage in our names, with cached tokens under any of theirs."""
    prompt_details = _dict(raw.get("prompt_tokens_details"))
    prompt, completion, total = (_tokens(raw.get(f"{key}_tokens")) for key in ("prompt", "completion", "total"))
    reasoning = _tokens(_dict(raw.get("completion_tokens_details")).get("reasoning_tokens"))
    if reasoning and None not in (prompt, completion) and total == (prompt or 0) + (completion or 0) + reasoning:
        completion = (completion or 0) + reasoning  # xai counts reasoning beside the completion
    cached = (prompt_details.get("cached_tokens"), raw.get("prompt_cache_hit_tokens"), raw.get("cached_tokens"))
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    return {
        "prompt": prompt,
        "completion": completion,
        "total": total,
        "reasoning_tokens": reasoning,
        "cached_tokens": next((_tokens(value) for value in cached if value is not None), None),
        "cache_write_tokens": _tokens(prompt_details.get("cache_write_tokens")),
        "raw": raw,
    }


def _tokens(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None
