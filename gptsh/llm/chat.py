"""The OpenAI chat completions API: write a request's JSON body, read a response into an ``Answer``. No network here.

Providers differ in where they put usage, how they name reasoning, whether tool-call deltas have an index, and whether
errors come inside a stream of status 200. All forms are accepted from every provider.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.content import openai_parts
from gptsh.content.answer import Answer
from gptsh.content.passages import one_text
from gptsh.errors import GptshError, ModelError
from gptsh.jsonio import as_dict, as_dicts, parse_json
from gptsh.llm import reading_loop, sse
from gptsh.llm.error_bodies import reported_error
from gptsh.llm.json_bodies import ADVICE, debug_text
from gptsh.llm.request_tools import openai_schema, schema_as_text, take_tools
from gptsh.llm.sse import DONE
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
from gptsh.models.accepted_parameters import fit_params, lacks_effort_beside_tools
from gptsh.models.names import is_answer_of
from gptsh.models.providers import Provider
from gptsh.models.token_usage import usage_from

if TYPE_CHECKING:
    from gptsh.llm.http import Response

REFUSABLE = {
    "stream_options": "stream_options",
    "response_format": "(?i)response.?format|json.?schema",
    "limit": "max_completion_tokens",  # OpenAI's newer models, through a gateway
}
# Keys saved because a provider may want them back: reasoning in pieces, signed (OpenRouter, Vercel, MiniMax); the
# signature of an answer without calls (Google); the text read from a file, so that it is not paid for twice
# (OpenRouter). Citations and unknown keys are of no use to a later request, and are not saved.
REPLAY_KEYS = (REASONING_DETAILS, "extra_content", "annotations")
_UNANSWERED = "(no answer)"
_CALL_KEYS, _FUNCTION_KEYS = ("id", "type", "function"), ("name", "arguments")
_ANY = "any"  # index or id of a tool call
_GROWING_KEYS = ("text", "summary", "data")  # of a reasoning detail: their pieces are concatenated


def path(_request: Request, _provider: Provider) -> str:
    """The path of the request's URL, after the base URL."""
    return "/chat/completions"


def body(request: Request, provider: Provider, refusals: Collection[str] = (), _servers: Any = None) -> dict[str, Any]:
    """The JSON body, without the refused fields."""
    if "response_format" in refusals:
        request = schema_as_text(request)
    messages: list[dict[str, Any]] = []
    for message in openai_parts.move_tool_media(request.messages):
        is_after_tool = message["role"] == "user" and messages and messages[-1]["role"] == "tool"
        if is_after_tool and not provider.user_after_tool:
            messages.append({"role": "assistant", "content": _UNANSWERED})
        messages.append(_message(message, provider, request.model))
    if provider.marked_models and re.match(provider.marked_models, provider.model):
        _mark_cache(messages, provider, has_tools=bool(request.tools))
    payload = {"model": provider.model, "messages": messages, **fit_params(request.params, provider, refusals).fields}
    if tools := take_tools(payload, request, provider, _declare):
        payload["tools"] = tools
        if lacks_effort_beside_tools(refusals):
            payload["reasoning_effort"] = "none"
    if request.schema is not None:  # not strict, which supports only part of JSON Schema: gptsh checks the answer
        answer_format = {"name": "answer", "schema": request.schema}
        payload["response_format"] = {"type": "json_schema", "json_schema": answer_format}
    if request.stream:
        payload["stream"] = True
        if provider.stream_options and "stream_options" not in refusals:
            payload["stream_options"] = {"include_usage": True}
    return payload


def _declare(tools: Sequence[Tool]) -> list[Part]:
    """Tools in the API's form."""
    declared: list[Part] = []
    for tool in tools:
        function = {"name": tool.name, "description": tool.description, "parameters": openai_schema(tool)}
        declared.append({"type": "function", "function": function})
    return declared


def _mark_cache(messages: list[dict[str, Any]], provider: Provider, *, has_tools: bool) -> None:
    """Mark in place where the prompt is cached: the system prompt and the last two questions.

    As in Anthropic's own API, a first question without tools gets no mark: most are not continued.
    """
    if not (has_tools or any(message["role"] == "assistant" for message in messages)):
        return
    time = {} if provider.cache == "5m" else {"ttl": provider.cache}
    questions = [message for message in messages if message["role"] == "user"]
    for message in (*(message for message in messages[:1] if message["role"] == "system"), *questions[-2:]):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
        texts = [at for at, part in enumerate(parts) if part.get("type") == "text" and part.get("text")]
        if texts:
            parts[texts[-1]] = {**parts[texts[-1]], "cache_control": {"type": "ephemeral", **time}}
            message["content"] = parts


def accepts(part: Part, provider: Provider) -> bool:
    """Whether a question can carry this part, which is not text."""
    return openai_parts.accepts(part, provider.parts)


def read(response: "Response", _provider: Provider, answer: Answer, _servers: Any = None) -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events."""
    payloads = sse.objects(response.chunks(), response.headers.get("content-type", ""), as_chunks)
    return reading_loop.read(payloads, Reader(answer), response.limit_wait)


def _message(message: Message, provider: Provider, model: str) -> dict[str, Any]:
    """A message without the keys of gptsh or of another model; ``model`` is a value for ``-m``."""
    fields: dict[str, Any]
    if message["role"] == "assistant":
        fields = _answer(message, provider, model)
    elif message["role"] == "tool":
        fields = {"tool_call_id": message.get("tool_call_id"), "content": one_text(message)}
    else:
        fields = {"content": openai_parts.question_content(message, provider.parts)}
    return {"role": message["role"], **fields, **openai_parts.author_name(message)}


def _answer(message: Message, provider: Provider, model: str) -> dict[str, Any]:
    """An answer: its text, its tool calls, and what the provider wants back. Some servers refuse other keys.

    Signed or encrypted reasoning is only for the model that made it; plain text is for any model of the provider.
    """
    is_own, replay = is_answer_of(message, provider.name, model), as_dict(message.get("replay"))
    text, calls = one_text(message), message.get("tool_calls")
    fields: dict[str, Any] = {}
    if is_own and replay:
        fields = {key: replay.get(key) for key in REPLAY_KEYS}
        details = as_dicts(replay.get(REASONING_DETAILS))
        # The last reasoning detail of a partial answer may be incomplete, unless it is signed.
        is_torn = message.get("finish_reason") in PARTIAL_REASONS and details and "text" in details[-1]
        fields[REASONING_DETAILS] = details[:-1] if is_torn and not details[-1].get("signature") else details
    if is_own and provider.api == "litellm":
        blocks = [b for b in as_dicts(message.get("thinking")) if b.get("signature") or b.get("type") != "thinking"]
        fields |= {THINKING_BLOCKS: blocks, PROVIDER_FIELDS: as_dict(replay.get(PROVIDER_FIELDS))}
    if calls:
        through_litellm = provider.api == "litellm"
        fields["tool_calls"] = [_call(call, is_own=is_own, through_litellm=through_litellm) for call in calls]
        if provider.wants_reasoning:
            reasoning = replay if message.get("provider") == provider.name else {}
            texts = {key: reasoning[key] for key in REASONING_FIELDS if reasoning.get(key)}
            fields |= texts or {REASONING_FIELDS[0]: " "}
    fields = {key: value for key, value in fields.items() if value}
    if text or not calls or provider.is_local:  # llama-cpp-python refuses null
        fields["content"] = text
    elif provider.accepts_null:
        fields["content"] = None
    return fields


def _call(call: Call, *, is_own: bool, through_litellm: bool) -> Call:
    """A tool call; its own model gets what it sent beside the function, and litellm also what it put inside."""
    function = {key: value for key, value in call["function"].items() if through_litellm or key in _FUNCTION_KEYS}
    if not is_own:
        plain = {key: value for key, value in function.items() if key in _FUNCTION_KEYS}
        return {**{key: call[key] for key in _CALL_KEYS}, "function": plain}
    return {**{key: value for key, value in call.items() if value is not None}, "function": function}


# ---- answers


def as_chunks(payload: dict[str, Any], body: bytes) -> Iterator[dict[str, Any]]:
    """A ``chat.completion`` as the chunks of a stream. --debug shows ``body`` if it is not one."""
    if not as_dicts(payload.get("choices")):
        if error := _error_in(payload):
            raise error
        if "choices" not in payload:
            raise ModelError("the response is not a chat completion", ADVICE, detail=debug_text(body))
        failure = ModelError("the provider sent no answer", "ask again", detail=debug_text(body))
        failure.can_retry = failure.may_fall_back = True  # a gateway whose own provider failed
        raise failure
    yield from (payload, DONE)


class Reader(reading_loop.Reader):
    """Writes the chunks of one answer into an ``Answer``; an unstreamed answer is one chunk."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._calls: list[Call] = []
        self._latest: dict[tuple[Any, Any], int] = {}  # of the calls by index and id, of each or ``_ANY``: its place
        self._finish: str | None = None
        self._tier: str | None = None
        self._done = False
        self._thinking: list[str] = []  # pieces of the thinking block that has no signature yet

    def add(self, chunk: dict[str, Any]) -> bool:
        """Read one chunk; whether it was the last. Raises ModelError or TooLong for an error in it."""
        answer = self.answer
        if chunk is DONE:
            self._done = True
            return True
        answer.response_id = answer.response_id or _text(chunk.get("id"))
        answer.resolved_model = answer.resolved_model or _text(chunk.get("model"))
        choices = as_dicts(chunk.get("choices"))
        self._tier = _text(chunk.get("service_tier")) or self._tier
        # Usage is at the top, in the choice (moonshot), or in x_groq; a later null does not overwrite it.
        places = [chunk, *choices[:1], as_dict(chunk.get("x_groq"))]
        if usage := next(filter(None, (as_dict(place.get("usage")) for place in places)), None):
            answer.usage = usage_from(usage, self._tier)
        self._add_sources(chunk)
        for choice in choices:
            if choice.get("index") in (0, None):  # only the first of several answers (n=2)
                delta = choice.get("delta")  # some servers send the whole message so far beside it
                self._add_delta(as_dict(delta or choice.get("message")), is_whole=not delta)
                if reason := _text(choice.get("finish_reason")):  # a later chunk may have an empty one
                    self._finish = reason
                    answer.stop_sequence = _text(choice.get("stop_reason"))  # so named by vLLM and SGLang
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
        for call in self._calls:  # with unknown keys, such as thought signatures
            self.answer.add_call({**call, "id": call["id"] or ""})
        if self._done or self.answer.finished:
            self.answer.finish(self._reason())

    def _reason(self) -> str | None:
        """The finish reason; with tool calls, "stop" or an empty reason (xai) becomes "tool_calls"."""
        return "tool_calls" if self._calls and self._finish in ("stop", "") else self._finish or None

    def _add_delta(self, delta: dict[str, Any], *, is_whole: bool) -> None:
        answer = self.answer
        self._add_reasoning(delta)
        content = delta.get("content")
        answer.add_text(_text(content) or "")
        for part in as_dicts(content):  # content in parts is Mistral's
            if part.get("type") == "thinking":
                for piece in as_dicts(part.get("thinking")):
                    answer.add_reasoning(_text(piece.get("text")) or "", "thinking")
            else:
                answer.add_text(_text(part.get("text")) or "")
        if refusal := _text(delta.get("refusal")):
            answer.add_refusal(refusal)
        for call in as_dicts(delta.get("tool_calls")):
            self._add_call_delta(call, is_whole=is_whole)
        if delta.keys() & {*REPLAY_KEYS, PROVIDER_FIELDS}:
            self._save_replay(delta, is_whole=is_whole)

    def _add_reasoning(self, delta: dict[str, Any]) -> None:
        answer = self.answer
        # Some servers send the same reasoning under two names: the first one that is not empty counts.
        field = next((name for name in REASONING_FIELDS if _text(delta.get(name))), None)
        blocks = as_dicts(delta.get(THINKING_BLOCKS))
        for block in blocks:  # litellm sends pieces of text, then the signature of the whole block
            block.pop("index", None)  # the place of the block in the answer, from litellm 1.110 on
            if text := _text(block.get("thinking")):
                self._thinking.append(text)
                answer.add_reasoning(text, THINKING_BLOCKS)
            if block.get("type") != "thinking":
                answer.add_thinking(block)
            elif block.get("signature"):
                answer.add_thinking({**block, "thinking": "".join(self._thinking)})
                self._thinking = []
        if field and not blocks:
            answer.add_reasoning(delta[field], field)
        elif not blocks:
            details = as_dicts(delta.get(REASONING_DETAILS))
            texts = (_text(detail.get(key)) for detail in details for key in ("text", "summary"))
            answer.add_reasoning("".join(filter(None, texts)), "reasoning")

    def _add_call_delta(self, delta: dict[str, Any], *, is_whole: bool) -> None:
        """Add a delta to the last call of its index and id, or to a new call; a whole call is always new.

        Some servers give each call the same index, or neither index nor id. Then a name after complete arguments begins
        a new call. Some send an empty id or name, which is ignored (mistral, dashscope, groq).
        """
        index = delta["index"] if isinstance(delta.get("index"), int) else None
        call_id, function = _text(delta.get("id")), as_dict(delta.get("function"))
        name, call = _text(function.get("name")), None
        if not is_whole:
            # A call of the same index and id, or of one that had none.
            indexes, ids = ((_ANY,) if key is None else (key, None) for key in (index, call_id))
            place = max((self._latest.get((at, known), -1) for at in indexes for known in ids), default=-1)
            call = self._calls[place] if place >= 0 else None
        if call and name and None in (call_id, call["id"]) and _is_object(call["function"]["arguments"]):
            is_repeated = name == call["function"]["name"] and not function.get("arguments")
            call = call if is_repeated else None
        if call is None:
            call = {"id": call_id, "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append(call)
            place = len(self._calls) - 1
            self._latest |= {(at, known): place for at in (index, _ANY) for known in (call_id, _ANY)}
        elif call["id"] is None and call_id:
            call["id"] = call_id
            keys = [(at, None) for at in (index, None, _ANY) if self._latest.get((at, None)) == place]
            self._latest |= {(at, call_id): place for at, _ in keys}
            for key in keys:
                del self._latest[key]
        inner, arguments = call["function"], function.get("arguments")
        inner["name"] = inner["name"] or name or ""
        if arguments is not None:
            inner["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
        inner |= {key: value for key, value in function.items() if key not in inner}
        call |= {key: v for key, v in delta.items() if key not in ("index", *call) and v not in (None, "")}

    def _add_sources(self, chunk: dict[str, Any]) -> None:
        """Add the pages that Perplexity and xAI list beside the choices; the answer's ``[1]`` is the first of them."""
        for page in as_dicts(chunk.get("search_results")):
            self.answer.add_source(page.get("url"), page.get("title"))
        citations = chunk.get("citations")
        for url in citations if isinstance(citations, list) else ():
            self.answer.add_source(url)

    def _save_replay(self, delta: dict[str, Any], *, is_whole: bool) -> None:
        """Save what the provider may want back. Pieces of one signed reasoning detail are joined."""
        replay = self.answer.replay
        for piece in as_dicts(delta.get(REASONING_DETAILS)):
            details = replay.setdefault(REASONING_DETAILS, [])
            last = details[-1] if details and not is_whole else {}
            is_same = all(
                last.get(key) == piece.get(key) or None in (last.get(key), piece.get(key)) for key in ("index", "id")
            )
            if not last or last.get("type") != piece.get("type") or not is_same:
                details.append(dict(piece))
                continue
            for key, value in piece.items():
                if key in _GROWING_KEYS and isinstance(value, str) and isinstance(last.get(key), str):
                    last[key] += value
                elif value is not None:
                    last[key] = value
        if extra := as_dict(delta.get("extra_content")):
            replay["extra_content"] = {**replay.get("extra_content", {}), **extra}
        for note in as_dicts(delta.get("annotations")):
            page = as_dict(note.get("url_citation"))
            self.answer.add_source(page.get("url"), page.get("title"))
            if note.get("type") == "file" and note not in (files := replay.setdefault("annotations", [])):
                files.append(note)
        signatures = as_dict(delta.get(PROVIDER_FIELDS)).get(THOUGHT_SIGNATURES)
        for signature in signatures if isinstance(signatures, list) else ():
            known_signatures = replay.setdefault(PROVIDER_FIELDS, {THOUGHT_SIGNATURES: []})[THOUGHT_SIGNATURES]
            if isinstance(signature, str) and signature not in known_signatures:
                known_signatures.append(signature)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(parse_json(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _error_in(chunk: dict[str, Any]) -> GptshError | None:
    """The error in a payload: under ``error``, in a choice, or instead of an answer."""
    error = chunk.get("error")
    for choice in as_dicts(chunk.get("choices")):
        error = error or choice.get("error")
    is_error = not {"choices", "usage", "object"} & set(chunk) and {"message", "detail", "msg"} & set(chunk)
    if not error and (is_error or "error" in (chunk.get("object"), chunk.get("type"))):
        error = sse.error_fields(chunk)
    return reported_error(error, chunk) if error else None
