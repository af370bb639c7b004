"""Anthropic's Messages API: write a request's JSON body, read a response into an ``Answer``. No network here.

Messages are blocks under alternating roles, every tool call with its result. Unknown events, deltas and blocks are no
error. If an answer has a block for which a message has no key, all its blocks are saved, so that they can be sent back.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.content.answer import Answer
from gptsh.content.attachments import Media, media_of, name_of, not_sent
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import reading_loop, sse
from gptsh.llm.error_bodies import reported_error
from gptsh.llm.json_bodies import ADVICE, as_object, debug_text
from gptsh.llm.request_tools import schema_as_text, take_tools
from gptsh.messages import (
    PARTIAL_REASONS,
    THINKING_BLOCKS,
    Call,
    Event,
    Message,
    Part,
    Request,
    Tool,
    blocks_of,
    is_text,
    labelled_text,
    parts_of,
    reasoning_from,
    system_text,
    text_of,
    token_count,
)
from gptsh.models.accepted_parameters import fit_params
from gptsh.models.facts import likely_facts
from gptsh.models.names import is_answer_of
from gptsh.models.providers import Provider
from gptsh.models.token_usage import FINISH_REASONS, usage_from
from gptsh.text import join_surrogates

if TYPE_CHECKING:
    from gptsh.llm.http import Response

REFUSABLE = {
    "budget": r"thinking\.type\.enabled\W{1,4}is not supported",
    "adaptive": "(?i)adaptive thinking is not supported",
    "display": r"thinking[.\w]*\.display\b",
    "schema": "(?i)output[_. ]?(?:config|format)|compiled grammar",
    "thinking": "`?signature`? in|different conversation|thinking.{0,60}(?:modified|signature|contain)"
    "|cannot (?:contain|be) `?(?:redacted_)?thinking|(?:[Ee]xpected|first block must be) `?thinking",
}
THINKING_TYPES = ("thinking", "redacted_thinking")
BLOCKS = "blocks"  # key of ``replay``: all blocks of an answer, if a message has no key for one of them
_DEFAULT_LIMIT = 4096  # tokens of an answer of an unknown model
_MIN_ANSWER = 1024  # tokens in addition to thinking
# The keys that the API accepts in a block of each type; it refuses others. A type that is not listed belongs to a tool
# that the provider runs, and is sent back unchanged.
_KEYS: dict[str, tuple[str, ...]] = {
    "text": ("text", "citations"),
    "image": ("source",),
    "document": ("source", "title", "context", "citations"),
    "tool_use": ("id", "name", "input", "caller"),
    "tool_result": ("tool_use_id", "content", "is_error"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
_CALL_KEYS = ("id", "type", "function", "name", "input")  # of a call in our form or in the API's
_VALUES = ("const", "enum", "default", "examples")  # keywords of JSON Schema with values, which are no schemas
_MAPS = ("properties", "$defs", "definitions")  # those with schemas by name
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
PAUSED = "pause_turn"  # the server's own tools take long: it continues the answer when it gets it back
_PARTIAL = (*PARTIAL_REASONS, PAUSED)
_NO_OUTPUT = "(no output)"
_NO_QUESTION = "(no question)"


def path(_request: Request, _provider: Provider) -> str:
    """The path of the request's URL, after the base URL."""
    return "/messages"


def body(request: Request, provider: Provider, refusals: Collection[str] = (), _servers: Any = None) -> dict[str, Any]:
    """The JSON body, without what is refused (names of ``REFUSABLE``)."""
    if "schema" in refusals:
        request = schema_as_text(request)
    params, conversation = fit_params(request.params, provider, refusals).fields, request.messages
    if request.schema is not None:
        schema_format = {"format": {"type": "json_schema", "schema": _close_objects(request.schema)}}
        params["output_config"] = as_dict(params.get("output_config")) | schema_format
    _show_thinking(params, request, provider, refusals)
    system, messages, starts, prefixes = _conversation(conversation, provider, thinking="thinking" not in refusals)
    tool_names = [block["name"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    tools: dict[str, Any] = {}
    if offered := take_tools(params, request, provider, _declare):
        tools["tools"] = offered
    elif tool_names:  # without tools now: define those called earlier, but forbid calls
        tools["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in dict.fromkeys(tool_names)]
        tools["tool_choice"] = {"type": "none"}
    _drop_unbound({"system": system or None, **params, **tools}, messages, prefixes)
    _reconcile(params, messages, provider)
    limit = params.pop("max_tokens", None)
    payload: dict[str, Any] = {
        "model": provider.model,
        "max_tokens": _limit(provider, params) if limit is None else limit,
        **({"system": system} if system else {}),
        "messages": messages,
        **params,
        **({"stream": True} if request.stream else {}),
        **tools,
    }
    # Mark where the prompt is cached, so that a session pays for its history once. A first question without tools gets
    # no mark: caching it costs a quarter more, and most are not continued. The mark at the end is for the next request;
    # the marks before it find the cache of the last one.
    if not (payload.get("tools") or any(message["role"] == "assistant" for message in messages)):
        return payload
    head = next((name for name in ("system", "tools") if payload.get(name) and isinstance(payload[name], list)), None)
    if head:
        payload[head] = _mark_cache(payload[head], provider)
    user_indexes = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at in {*user_indexes[-2:], *starts[-2:-1]}:
        messages[at] = {**messages[at], "content": _mark_cache(messages[at]["content"], provider)}
    return payload


def accepts(part: Part, _provider: Provider) -> bool:
    """Whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and _source(media) is not None


def read(response: "Response", _provider: Provider, answer: Answer, _servers: Any = None) -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events."""
    payloads = sse.objects(response.chunks(), response.headers.get("content-type", ""), as_events)
    return reading_loop.read(payloads, Reader(answer), response.limit_wait)


def _declare(tools: Sequence[Tool]) -> list[Part]:
    """Tools in the API's form."""
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]


def _close_objects(schema: Any, *, is_map: bool = False) -> Any:
    """The schema, with ``additionalProperties: false`` in objects that do not set it: the API refuses open ones.

    ``is_map``: its keys are the user's names of schemas, not keywords.
    """
    if isinstance(schema, list):
        return [_close_objects(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: value if key in _VALUES and not is_map else _close_objects(value, is_map=key in _MAPS and not is_map)
        for key, value in schema.items()
    }
    return {"additionalProperties": False, **result} if result.get("type") == "object" else result


def _show_thinking(params: dict[str, Any], request: Request, provider: Provider, refusals: Collection[str]) -> None:
    """Ask for summaries of thinking where they are wanted, in place: newer models send none unasked.

    Beside tools, newer models write even their remarks between two calls as thinking.
    """
    entry = likely_facts(provider.name, provider.model).entry
    thinks_unasked = entry.get("thinking_always_on") or entry.get("thinking_on_by_default")
    is_wanted = (request.shows_reasoning or request.tools or request.web) and "tool_choice" not in params
    if thinks_unasked and is_wanted and "thinking" not in params and not {"adaptive", "display"} & {*refusals}:
        params["thinking"] = {"type": "adaptive", "display": "summarized"}
    thinking = params.get("thinking")
    if isinstance(thinking, dict) and "display" in refusals:
        params["thinking"] = {key: value for key, value in thinking.items() if key != "display"}


def _limit(provider: Provider, params: dict[str, Any]) -> int:
    """The ``max_tokens`` for an answer that the user does not limit: the API requires one."""
    facts = likely_facts(provider.name, provider.model)
    window = provider.context_window or facts.window
    max_output = token_count(facts.entry.get("max_output_tokens")) or _DEFAULT_LIMIT
    limit = min(max_output, window // 4) if window else max_output
    budget = token_count(as_dict(params.get("thinking")).get("budget_tokens")) or 0
    return max(limit, budget + _MIN_ANSWER if budget else 1)


def _reconcile(params: dict[str, Any], messages: list[Part], provider: Provider) -> None:
    """Make thinking agree with an unfinished loop of tool calls, in place: else the API refuses the request.

    A model with a thinking budget thinks once, at the start of the loop. If it did not, thinking is turned off.
    """
    loop: list[Part] = []  # the answers since the last question that has no tool results
    for message in reversed(messages):
        if message["role"] == "assistant":
            loop.insert(0, message)
        elif all(block["type"] != "tool_result" for block in message["content"]):
            break
    kind = as_dict(params.get("thinking")).get("type")
    if kind == "enabled" and loop and loop[0]["content"][0]["type"] not in THINKING_TYPES:
        del params["thinking"]
        kind = "disabled"
    facts = likely_facts(provider.name, provider.model)
    thinks_by_default = facts.can("adaptive_thinking") or not facts.can("reasoning")
    if kind == "disabled" or (kind is None and not thinks_by_default):
        for message in loop:
            message["content"] = _drop_thinking(message["content"])


def _mark_cache(blocks: list[Any], provider: Provider) -> list[Any]:
    """The blocks with a mark at their end: the prompt up to there is cached."""
    if not isinstance(blocks[-1], dict):
        return blocks
    time = {} if provider.cache == "5m" else {"ttl": provider.cache}  # the shorter one is the default
    return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral", **time}}]


def _conversation(
    conversation: Sequence[Message], provider: Provider, *, thinking: bool
) -> tuple[list[Part], list[Part], list[int], list[str | None]]:
    """The system prompt, the messages, the indexes of those that begin a turn, and the saved prefix of each message.

    ``thinking``: include thinking.
    """
    system = _text(system_text(conversation))
    messages: list[Part] = []
    starts, first_thinking = [], reasoning_from(conversation)
    prefixes: list[str | None] = []
    for at, message in enumerate(conversation):
        role = "assistant" if message["role"] == "assistant" else "user"
        if message["role"] == "system":
            continue
        if role == "assistant":
            blocks = _answer(message, provider, thinking=thinking and at >= first_thinking)
        elif message["role"] == "tool":
            blocks = [_result(message)]
        else:
            blocks = [block for part in parts_of(message) for block in _blocks_of_part(part)]
        if not blocks:
            continue
        if role == "assistant" and not messages:  # the first message must be the user's
            messages.append({"role": "user", "content": _text(_NO_QUESTION)})
            prefixes.append(None)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
            prefixes.append(message.get("prefix"))
        if message["role"] == "user":
            starts.append(len(messages) - 1)
    for entry in messages:
        blocks = entry["content"]
        if blocks[0]["type"] not in THINKING_TYPES:  # two joined answers, only the second with thinking
            blocks = _drop_thinking(blocks)
        entry["content"] = [
            {key: block[key] for key in ("type", *_KEYS.get(block["type"], block)) if key in block} for block in blocks
        ]
    last = messages[-1]["content"][-1] if messages and messages[-1]["role"] == "assistant" else {}
    if last.get("type") == "text":
        last["text"] = last["text"].rstrip()  # the API refuses white space at the end
    return system, messages, starts, prefixes


def _text(text: str) -> list[Part]:
    """A text block, or none for a blank text, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _blocks_of_part(part: Part, *, with_source: bool = True, text_only: bool = False) -> list[Part]:
    """A part of a question or a tool result as blocks; text for what the API does not accept, or ``text_only``."""
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return _text(labelled_text(part) if with_source and part["text"].strip() else part["text"])
    media = None if text_only else media_of(part)
    source = _source(media) if media else None
    if media is None or source is None:
        return [_placeholder(part)]
    if media.kind == "image":
        return [{"type": "image", "source": source}]
    citations = {"enabled": True} if as_dict(part.get("citations")).get("enabled") is True else None
    context = part["context"] if isinstance(part.get("context"), str) else None
    more = {"title": name_of(part), "context": context, "citations": citations}
    return [{"type": "document", "source": source, **{key: value for key, value in more.items() if value}}]


def _source(media: Media) -> Part | None:
    """The source of an image or a document in the API's form; None if the API does not accept it."""
    if media.kind in ("audio", "video"):
        return None
    if media.url is not None:
        return {"type": "url", "url": media.url} if media.url.startswith("https://") else None
    types = _IMAGES if media.kind == "image" else ("application/pdf",)
    return {"type": "base64", "media_type": media.media_type, "data": media.data} if media.media_type in types else None


def _placeholder(part: Part) -> Part:
    """A text in place of a part that is not sent."""
    return {"type": "text", "text": labelled_text(not_sent(part, "this API does not take it"))}


def _answer(message: Message, provider: Provider, *, thinking: bool) -> list[Part]:
    """The blocks of an answer: the saved ones if they are complete, else made from its parts.

    Thinking is sent only to the model that signed it. Saved blocks of a partial answer are not used: the API may refuse
    them.
    """
    is_own, calls = message.get("provider") == provider.name, message.get("tool_calls") or []
    thinks = thinking and is_answer_of(message, provider.name, f"{provider.name}/{provider.model}")
    blocks = as_dicts(as_dict(message.get("replay")).get(BLOCKS)) if is_own else []
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    text = "".join(block["text"] for block in blocks if block.get("type") == "text")
    if blocks and message.get("finish_reason") not in _PARTIAL and text == text_of(message) and len(uses) == len(calls):
        valid = {id(use): use | _tool_use(call, is_own=is_own) for use, call in zip(uses, calls, strict=True)}
        blocks = [valid.get(id(block), block) for block in blocks]
    else:
        blocks = []
        for kind, block in blocks_of(message):
            if kind == "tool_call":
                blocks.append(_tool_use(block, is_own=is_own))
            elif kind == "thinking":
                blocks += [block] if block.get("type") in THINKING_TYPES else []
            elif not is_text(block):
                blocks.append(_placeholder(block))
            elif blocks and blocks[-1]["type"] == "text":  # join adjacent texts
                blocks[-1] = {"type": "text", "text": blocks[-1]["text"] + block["text"]}
            else:
                blocks.append({"type": "text", "text": block["text"]})
        blocks += _text(message.get("refusal") or "")
    result = []
    for block in blocks:
        is_thinking, is_blank = block["type"] in THINKING_TYPES, block["type"] == "text" and not block["text"].strip()
        if not is_blank and (not is_thinking or (thinks and (block.get("signature") or block.get("data")))):
            result.append(block)
    while result and result[-1]["type"] in THINKING_TYPES:  # an answer must not end in thinking
        result.pop()
    return result


def _drop_unbound(head: dict[str, Any], messages: list[Part], prefixes: Sequence[str | None]) -> None:
    """Drop thinking before which something else stood when it arrived, in place: newer models refuse it.

    ``head`` has the system prompt and the tools. ``prefixes``: what stood before each message then; None if unknown. So
    a changed system prompt, a compaction or a missing tool drops the thinking of all answers before; later thinking
    goes back again.
    """
    if not any(prefixes):
        return
    digest = _prefix_digest(head)
    for message, expected in zip(messages, prefixes, strict=True):
        if expected is not None and expected != digest.hexdigest():
            message["content"] = _drop_thinking(message["content"])
        _add_message(digest, message)


def prefix(payload: dict[str, Any]) -> str:
    """A digest of a request: the thinking in its answer is bound to it. Cache marks do not count."""
    digest = _prefix_digest(payload)
    for message in payload["messages"]:
        _add_message(digest, message)
    return str(digest.hexdigest())


def _prefix_digest(payload: dict[str, Any]) -> Any:
    import hashlib  # noqa: PLC0415 - loads OpenSSL, and few answers think

    head = [_without_marks(payload.get(name)) for name in ("system", "tools")]
    return hashlib.blake2b(json.dumps(head).encode(), digest_size=8)


def _add_message(digest: Any, message: Part) -> None:
    digest.update(json.dumps([message["role"], _without_marks(message["content"])]).encode())


def _without_marks(blocks: Any) -> Any:
    """The blocks without their cache marks."""
    if not isinstance(blocks, list):
        return blocks
    return [
        {key: value for key, value in block.items() if key != "cache_control"} if isinstance(block, dict) else block
        for block in blocks
    ]


def _drop_thinking(blocks: list[Part]) -> list[Part]:
    return [block for block in blocks if block["type"] not in THINKING_TYPES]


def _tool_use(call: Call, *, is_own: bool) -> Part:
    """A valid call as a block. ``is_own``: the call came from this provider, so its ``caller`` is sent back."""
    function = call["function"]
    block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": as_object(function["arguments"])}
    return {**block, "caller": call["caller"]} if is_own and "caller" in call else block


def _result(message: Message) -> Part:
    """A tool result as a block."""
    is_error = bool(message.get("is_error"))
    groups = (_blocks_of_part(part, with_source=False, text_only=is_error) for part in parts_of(message))
    blocks = [block for group in groups for block in group]
    result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": blocks or _NO_OUTPUT}
    return {**result, "is_error": True} if is_error else result


# ---- answers


def continued(payload: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """The body with the blocks of a paused answer, with which the server continues it."""
    blocks = [
        {key: block[key] for key in ("type", *_KEYS.get(block["type"], block)) if key in block}
        for block in answer.replay[BLOCKS]
    ]
    return {**payload, "messages": [*payload["messages"], {"role": "assistant", "content": blocks}]}


def _sum(earlier: dict[str, Any], usage: dict[str, Any]) -> dict[str, Any]:
    """The usage of two requests: numbers are added, other values are the later ones."""
    result = {**earlier, **usage}
    for key in earlier.keys() & usage.keys():
        one, other = earlier[key], usage[key]
        if isinstance(one, dict) and isinstance(other, dict):
            result[key] = _sum(one, other)
        elif token_count(one) is not None and token_count(other) is not None:
            result[key] = one + other
    return result


def as_events(message: dict[str, Any], body: bytes) -> Iterator[dict[str, Any]]:
    """A message as the events of a stream. --debug shows ``body`` if it is not one."""
    if message.get("type") == "error" or "error" in message:
        yield {"type": "error", **message}
    elif not isinstance(message.get("content"), list):
        raise ModelError("the response is not a message", ADVICE, detail=debug_text(body))
    else:
        yield {"type": "message_start", "message": message}
        for at, block in enumerate(as_dicts(message["content"])):
            yield {"type": "content_block_start", "index": at, "content_block": block}
            yield {"type": "content_block_stop", "index": at}
        yield {"type": "message_delta", "delta": message}
        yield {"type": "message_stop"}


class Reader(reading_loop.Reader):
    """Writes the events of one answer into an ``Answer``."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._earlier_usage = as_dict(answer.usage and answer.usage["raw"])  # of an answer that was paused
        self._usage: dict[str, Any] = {}
        self._finish: str | None = None
        self._done = False
        self._open_blocks: dict[Any, dict[str, Any]] = {}  # unfinished blocks, by index
        self._blocks = as_dicts(answer.replay.get(BLOCKS))

    def add(self, payload: dict[str, Any]) -> bool:
        """Read one event; whether it was the last. Raises ModelError or TooLong for an error in it."""
        kind, index = payload.get("type"), payload.get("index")
        index = index if isinstance(index, int) else None
        message, delta = as_dict(payload.get("message")), as_dict(payload.get("delta"))
        if kind == "error" or payload.get("error"):
            raise reported_error(payload.get("error") or payload, payload)
        if kind == "message_stop":
            self._done = True
            return True
        # Each figure replaces the earlier one; null is ignored.
        usage = as_dict(message.get("usage")) | as_dict(payload.get("usage"))
        self._usage |= {key: value for key, value in usage.items() if value is not None}
        if kind == "message_start":
            for key, name in (("id", "response_id"), ("model", "resolved_model")):
                if isinstance(message.get(key), str):
                    setattr(self.answer, name, message[key])
        elif kind == "content_block_start":
            self._end_block(index)  # some servers do not send content_block_stop
            start = as_dict(payload.get("content_block"))
            self._open_blocks[index] = {key: v for key, v in start.items() if key == "type" or not isinstance(v, str)}
            self._add_piece(self._open_blocks[index], start)
        elif kind == "content_block_delta" and index in self._open_blocks:
            self._add_piece(self._open_blocks[index], delta)
        elif kind == "content_block_stop":
            self._end_block(index)
        elif kind == "message_delta":
            details = as_dict(delta.get("stop_details"))
            explanation, category = details.get("explanation"), details.get("category")
            words = [explanation, f"({category})" if isinstance(category, str) and category else ""]
            if refusal := " ".join(word for word in words if isinstance(word, str) and word):
                self.answer.add_refusal(refusal)
            if isinstance(delta.get("stop_reason"), str):
                self._finish, stop = delta["stop_reason"], delta.get("stop_sequence")
                self.answer.stop_sequence = stop if isinstance(stop, str) else None
                self._finish_answer()
        return False

    def end(self) -> None:
        """Write unfinished blocks, among them tool calls, and usage."""
        for index in list(self._open_blocks):
            self._end_block(index)
        if self._done or self.answer.finished:
            self._finish_answer()
        elif self._usage:
            self._write_usage()

    def _write_usage(self) -> None:
        self.answer.usage = usage_from(_sum(self._earlier_usage, self._usage))

    def _finish_answer(self) -> None:
        if self._usage:
            self._write_usage()
        if self._finish == PAUSED:
            self.answer.replay[BLOCKS] = list(self._blocks)
        self.answer.finish(FINISH_REASONS.get(self._finish or "", self._finish))

    def _add_piece(self, block: dict[str, Any], piece: dict[str, Any]) -> None:
        """Add a piece to a block; of an unknown kind of piece its texts, under their own keys."""
        for key, value in piece.items():
            if key == "citation":
                block["citations"] = [*as_dicts(block.get("citations")), value]
            elif key != "type" and isinstance(value, str):
                block[key] = (block[key] if isinstance(block.get(key), str) else "") + value
        kind = block.get("type")
        text = piece.get(str(kind))
        if kind == "text" and isinstance(text, str):
            self.answer.add_text(text)
        elif kind == "thinking" and isinstance(text, str):
            self.answer.add_reasoning(text, THINKING_BLOCKS)

    def _end_block(self, index: Any) -> None:
        """Save a block in the form that an unstreamed answer has."""
        if index not in self._open_blocks:
            return
        pieces = self._open_blocks.pop(index)
        block = {key: join_surrogates(v) if isinstance(v, str) else v for key, v in pieces.items()}
        kind, arguments = block.get("type"), block.pop("partial_json", "")
        if not isinstance(kind, str) or (kind == "text" and not isinstance(block.get("text"), str)):
            return
        initial_input = json.dumps(block["input"], ensure_ascii=False) if block.get("input") else "{}"
        if arguments:
            block["input"] = as_object(arguments)
        self._blocks.append(block)
        for citation in as_dicts(block.get("citations")):
            self.answer.add_source(citation.get("url"), citation.get("title"))
        if kind in THINKING_TYPES:
            self.answer.add_thinking({key: value for key, value in block.items() if key != "signature" or value})
        elif kind == "tool_use":  # its arguments as received, other fields under their own keys
            function = {"name": str(block.get("name") or ""), "arguments": arguments or initial_input}
            more = {key: value for key, value in block.items() if key not in _CALL_KEYS}
            self.answer.add_call({"id": str(block.get("id") or ""), "type": "function", "function": function, **more})
        if BLOCKS in self.answer.replay or block.get("citations") or kind not in (*THINKING_TYPES, "tool_use", "text"):
            self.answer.replay[BLOCKS] = list(self._blocks)
