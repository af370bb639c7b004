"""Answers in the OpenAI dialect: response bytes to events.

No network here. Providers differ in where usage stands, how reasoning is named, whether tool-call deltas have an
index, and in sending errors inside a stream of status 200; all of it is read here, by shape and not by provider.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gptsh.errors import BrokenOff, GptshError, ModelError, TimedOut, TooLong
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import sse
from gptsh.llm.failures import reported
from gptsh.llm.payloads import ADVICE, Pairs, load, shown
from gptsh.messages import (
    DETAILS,
    FIELDS,
    REASONING_FIELDS,
    SIGNATURES,
    THINKING,
    Call,
    Event,
    Finished,
    Identified,
    Reasoning,
    Refusal,
    Text,
    Thought,
    ToolCall,
    Used,
    Verbatim,
    new_call_id,
)
from gptsh.models.reported import usage_from

# What is kept besides because a provider may want it back: reasoning in pieces, signed (OpenRouter, Vercel, MiniMax);
# the signature of an answer without calls (Google); what was read from a file, so that it is not paid for twice
# (OpenRouter). Other keys that we do not know, and citations, say nothing to a later request and are not kept.
WANTED_BACK = (DETAILS, "extra_content", "annotations")
DONE: dict[str, Any] = {}  # stands for ``data: [DONE]``


def read_whole(data: bytes) -> Iterator[Event]:
    """The events of an answer that came in one piece. Raises ModelError when it is no answer."""
    payload = load(data)
    yield from read_completion(payload, shown(data))


def read_completion(payload: dict[str, Any], told: str) -> Iterator[Event]:
    """The events of a ``chat.completion`` object; ``told`` is what --debug tells of one that is none."""
    answer = _Answer(whole=True)
    choices = [{**choice, "delta": choice.get("message")} for choice in as_dicts(payload.get("choices"))]
    if not choices:
        raise _error_in(payload) or ModelError("the response is no chat completion", ADVICE, detail=told)
    yield from answer.take({**payload, "choices": choices})
    yield from answer.end()


def read_stream(chunks: Iterable[bytes], on_finish: Callable[[], None] = lambda: None) -> Iterator[Event]:
    """The events of a streamed answer, as they come; see ``read_chunks``."""
    return read_chunks(_loaded(chunks), on_finish)


def _loaded(chunks: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], bool]]:
    for name, data in sse.payloads(chunks):
        if data.strip() == b"[DONE]":
            yield DONE, False
            return
        if data.strip():
            yield load(data), name == "error"


def read_chunks(
    chunks: Iterable[tuple[dict[str, Any], bool]], on_finish: Callable[[], None] = lambda: None
) -> Iterator[Event]:
    """The events of ``chat.completion.chunk`` objects, each with whether the server called it an error; DONE ends them.

    ``on_finish`` is called when only usage may still come. Raises ModelError for an error inside, or chunks that end
    too early. What is known by then (usage, whole tool calls) still comes before. Trouble after the reason for ending
    was given takes nothing from a complete answer.
    """
    answer = _Answer()
    failure: GptshError = BrokenOff("the stream broke off before the answer was complete")
    try:
        for chunk, failed in chunks:
            if chunk is DONE:
                answer.finished = True
                break
            yield from answer.take(chunk, failed=failed)
            if answer.finished:
                yield answer.ending()
                on_finish()
    except (ModelError, TimedOut, TooLong) as err:
        failure = err
    if not answer.finished:
        yield from answer.known()
        raise failure
    yield from answer.end()


class _Answer:
    """What accumulates over the chunks of one answer, ``whole`` in one: calls, usage, the reason for ending."""

    def __init__(self, *, whole: bool = False) -> None:
        self.finished = False
        self._wanted_back = _WantedBack(whole=whole)
        self._finish: str | None = None
        self._id: str | None = None
        self._usage: dict[str, Any] | None = None
        self._calls = _Calls()
        self._thought: list[str] = []  # the thinking block that has no signature yet
        self._pairs = Pairs()

    def take(self, chunk: dict[str, Any], *, failed: bool = False) -> Iterator[Event]:
        """The events of one chunk. Raises ModelError for an error; ``failed`` says that the server called it one."""
        error, was_finished = _error_in(chunk, failed=failed), self.finished
        if self._id is None and isinstance(chunk.get("id"), str) and chunk["id"]:
            self._id = chunk["id"]
            yield Identified(None, self._id)
        choices = as_dicts(chunk.get("choices"))
        self._usage = _usage_in(chunk, choices) or self._usage  # a later null never overwrites it
        for choice in choices:
            if choice.get("index") in (0, None):  # more than one answer (n=2) would be one too many
                yield from self._take_delta(as_dict(choice.get("delta")))
                if isinstance(reason := choice.get("finish_reason"), str):
                    self._finish, self.finished = reason, self.finished or bool(reason)
        if error:
            self.finished = was_finished
            raise error

    def _take_delta(self, delta: dict[str, Any]) -> Iterator[Event]:
        # Some servers send the same reasoning under two names: the first one that says something counts.
        field = next((f for f in REASONING_FIELDS if isinstance(delta.get(f), str) and delta[f]), None)
        if blocks := as_dicts(delta.get(THINKING)):
            yield from self._take_thoughts(blocks)
        elif field:
            yield Reasoning(delta[field], field)
        elif text := _text_in(as_dicts(delta.get(DETAILS))):
            yield Reasoning(text, "reasoning")
        self._wanted_back.take(delta)
        for event in _content(delta.get("content")):
            yield Text(self._pairs.joined(event.text)) if isinstance(event, Text) else event
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            yield Refusal(delta["refusal"])
        for call in as_dicts(delta.get("tool_calls")):
            self._calls.take(call)

    def _take_thoughts(self, blocks: list[dict[str, Any]]) -> Iterator[Event]:
        """Thinking as litellm passes it on: pieces of text, then one piece with the signature of the whole block."""
        for block in blocks:
            text = block.get("thinking")
            if isinstance(text, str) and text:
                self._thought.append(text)
                yield Reasoning(text, THINKING)
            if block.get("type") != "thinking":
                yield Thought(block)
            elif block.get("signature"):
                yield Thought({**block, "thinking": "".join(self._thought)})
                self._thought = []

    def known(self) -> Iterator[Event]:
        """The last half of a pair, what goes back, tool calls and usage, as far as they came."""
        if half := self._pairs.rest():
            yield Text(half)
        yield from self._wanted_back.known()
        yield from map(ToolCall, self._calls.whole())
        if self._usage is not None:
            yield Used(usage_from(self._usage))

    def end(self) -> Iterator[Event]:
        """What is known only now."""
        yield from self.known()
        if self._finish == "error":
            raise ModelError("the provider broke the answer off with an error")
        yield self.ending()

    def ending(self) -> Finished:
        """Why it ended; a "stop", or a reason that is empty (xai), means the tool calls where there are some."""
        return Finished("tool_calls" if self._calls.any and self._finish in ("stop", "") else self._finish or None)


def _error_in(chunk: dict[str, Any], *, failed: bool = False) -> GptshError | None:
    """The error that a payload reports: under ``error``, in a choice, or bare in the place of an answer."""
    error = chunk.get("error")
    for choice in as_dicts(chunk.get("choices")):
        error = error or choice.get("error")
    bare = not {"choices", "usage", "object"} & set(chunk)
    if not error and (failed or bare or "error" in (chunk.get("object"), chunk.get("type"))):
        error = {key: value for key, value in chunk.items() if key in ("message", "detail", "msg")} or failed
    if not error:
        return None
    return reported(error, chunk)


def _content(content: object) -> Iterator[Event]:
    """Text; of a list (mistral) the text and thinking parts."""
    if isinstance(content, str) and content:
        yield Text(content)
    for part in as_dicts(content):
        if part.get("type") == "thinking":
            inner = (piece.get("text") for piece in as_dicts(part.get("thinking")))
            yield from (Reasoning(text, "thinking") for text in inner if isinstance(text, str) and text)
        elif isinstance(part.get("text"), str) and part["text"]:
            yield Text(part["text"])


# ---- what goes back

_Key = tuple[int | None, str | None]  # of a tool call: its index and its id, as far as they are known
_GROWS = ("text", "summary", "data")  # of a piece of reasoning


def _text_in(details: list[dict[str, Any]]) -> str:
    """What a person can read of pieces of reasoning."""
    texts = [detail.get(key) for detail in details for key in ("text", "summary")]
    return "".join(text for text in texts if isinstance(text, str))


class _WantedBack:
    """What the provider may want back, from its deltas. What is signed must go back as one piece, not in the pieces
    in which it came; those of an answer that came ``whole`` are whole."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._details: list[dict[str, list[str]]] = []  # what grows of each
        self._fixed: list[dict[str, Any]] = []  # the rest of each
        self._extra: dict[str, Any] = {}
        self._files: list[dict[str, Any]] = []
        self._signatures: list[str] = []

    def take(self, delta: dict[str, Any]) -> None:
        """Note what one delta has of it."""
        for piece in as_dicts(delta.get(DETAILS)):
            self._take_detail(piece)
        self._extra |= as_dict(delta.get("extra_content"))
        notes = as_dicts(delta.get("annotations"))
        self._files += [note for note in notes if note.get("type") == "file" and note not in self._files]
        signed = as_dict(delta.get(FIELDS)).get(SIGNATURES)
        for signature in signed if isinstance(signed, list) else ():
            self._signatures += [signature] if isinstance(signature, str) and signature not in self._signatures else []

    def _take_detail(self, piece: dict[str, Any]) -> None:
        if self._whole or not self._fixed or not _goes_on(self._fixed[-1], piece):
            self._fixed.append({})
            self._details.append({})
        for key, value in piece.items():
            if key in _GROWS and isinstance(value, str):
                self._details[-1].setdefault(key, []).append(value)
            if value is not None or key not in self._fixed[-1]:
                self._fixed[-1][key] = value

    def known(self) -> Iterator[Event]:
        """All of it, under the provider's own keys."""
        grown = ({key: "".join(pieces) for key, pieces in detail.items()} for detail in self._details)
        details = [{**fixed, **texts} for fixed, texts in zip(self._fixed, grown, strict=True)]
        for field, value in zip(WANTED_BACK, (details, self._extra, self._files), strict=True):
            if value:
                yield Verbatim(field, value)
        if self._signatures:
            yield Verbatim(FIELDS, {SIGNATURES: self._signatures})


def _goes_on(last: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Whether a piece of reasoning goes on with the last one: of its type, and no other number or id."""
    same = (last.get(key) == piece.get(key) or None in (last.get(key), piece.get(key)) for key in ("index", "id"))
    return last.get("type") == piece.get("type") and all(same)


class _Calls:
    """Tool calls from their deltas: by index and id, else the last one goes on until a name begins another.

    Another index is another call, and so is a new id at a used index; an empty id or name says nothing (mistral,
    dashscope, groq).
    """

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._at: dict[_Key, int] = {}

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._calls)

    def take(self, delta: dict[str, Any]) -> None:
        """Note what one delta has of a call."""
        said, named = delta.get("index"), delta.get("id")
        index = said if isinstance(said, int) else None
        call_id = named if named and isinstance(named, str) else None
        place = self._place(index, call_id, delta)
        if place is None:
            place = len(self._calls)
            self._calls.append({"function": {"name": "", "arguments": ""}})
        self._at.update(dict.fromkeys(((index, call_id), (index, None), (None, call_id)), place))
        _merge_call(self._calls[place], delta)

    def _place(self, index: int | None, call_id: str | None, delta: dict[str, Any]) -> int | None:
        """Where the call that this delta goes on stands; None for a new call."""
        if index is None and call_id is None:
            return len(self._calls) - 1 if self._calls and not self._begins(delta) else None
        place = self._at.get((index, call_id))
        if place is None and index is not None and call_id is not None:  # one of them may have been missing so far
            at_index, of_id = self._at.get((index, None)), self._at.get((None, call_id))
            if at_index is not None and self._calls[at_index].get("id") in (None, call_id):
                return at_index
            return of_id if of_id is not None and not self._has_index(of_id) else None
        return place

    def _has_index(self, place: int) -> bool:
        return any(index is not None for (index, _), at in self._at.items() if at == place)

    def _begins(self, delta: dict[str, Any]) -> bool:
        """Whether a delta without index and id begins another call: the last one has another name or is whole."""
        name, last = as_dict(delta.get("function")).get("name"), self._calls[-1]["function"]
        return bool(name) and (name != last["name"] or _is_whole(last["arguments"]))

    def whole(self) -> list[Call]:
        """The calls, each with an id and a type; keys we do not know (thought signatures) are kept."""
        calls = []
        for call in self._calls:
            identified = {"id": call.get("id") or new_call_id(), "type": "function"}
            calls.append({**identified, **{k: v for k, v in call.items() if k != "id"}})
        return calls


def _is_whole(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _merge_call(call: Call, delta: dict[str, Any]) -> None:
    function = as_dict(delta.get("function"))
    if isinstance(function.get("name"), str):
        call["function"]["name"] = call["function"]["name"] or function["name"]
    arguments = function.get("arguments")
    if arguments is not None:
        call["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
    call["function"] |= {key: value for key, value in function.items() if key not in call["function"]}
    for key, value in delta.items():
        if key not in ("index", "function") and value not in (None, "") and (key != "id" or isinstance(value, str)):
            call[key] = value


# ---- usage


def _usage_in(chunk: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Usage at the top of the chunk, in the choice (moonshot), or in ``x_groq``."""
    places = [chunk.get("usage"), *(choice.get("usage") for choice in choices[:1])]
    places.append(as_dict(chunk.get("x_groq")).get("usage"))
    return next((place for place in places if isinstance(place, dict) and place), None)
