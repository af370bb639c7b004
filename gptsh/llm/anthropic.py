"""Write requests to Anthropic's Messages API, with Claude's thinking and prompt caching."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gptsh.config.accounts import Refused, Target
from gptsh.content.answer import Answer
from gptsh.content.attachments import Media, media_of, name_of
from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.llm import anthropic_answers
from gptsh.llm.anthropic_answers import BLOCKS, PAUSED, THINKING_TYPES
from gptsh.llm.stream import (
    NO_QUESTION,
    Refusable,
    add_turn,
    as_object,
    placeholder,
    take_tools,
)
from gptsh.messages import (
    PARTIAL_REASONS,
    Call,
    Event,
    Finished,
    Message,
    Part,
    Request,
    blocks_of,
    is_text,
    labelled_text,
    parts_of,
    reasoning_from,
    system_text,
    text_of,
    token_count,
)
from gptsh.models.facts import likely_facts

if TYPE_CHECKING:
    from hashlib import blake2b


# ---- prompt cache
#
# Mark where a prompt is cached (``cache_control``) for Claude, in Anthropic's API and in chat
# completions.
#
# So a session pays for its history once. A first question without tools gets no mark: caching it
# costs a quarter more, and most are not continued. OpenAI's Responses API has a
# ``prompt_cache_key`` instead, in ``responses.py``.


def mark_payload(payload: JsonObject, target: Target) -> None:
    """Mark a request of Anthropic's API, in place: its beginning, and the ends of some messages.

    The mark at the end is for the next request; those before it find the cache of the last one.
    """
    messages: list[Part] = payload["messages"]
    if not _is_worth_it(messages, has_tools=bool(payload.get("tools"))):
        return
    for name in ("system", "tools"):
        if payload.get(name):
            payload[name] = _with_mark(payload[name], target)
            break
    questions = [message for message in messages if message["role"] == "user"]
    starts = []  # the questions that begin a turn
    for message in questions:
        if any(block["type"] != "tool_result" for block in message["content"]):
            starts.append(message)
    for message in (*questions[-2:], *starts[-2:-1]):
        message["content"] = _with_mark(message["content"], target)


def mark_chat(messages: list[JsonObject], target: Target, *, has_tools: bool) -> None:
    """Mark messages of chat completions, in place: the system prompt, the last two questions."""
    if not _is_worth_it(messages, has_tools=has_tools):
        return
    system = [message for message in messages[:1] if message["role"] == "system"]
    questions = [message for message in messages if message["role"] == "user"]
    for message in (*system, *questions[-2:]):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
        for index in reversed(range(len(parts))):
            if parts[index].get("type") == "text" and parts[index].get("text"):
                parts[index] = {**parts[index], "cache_control": _mark(target)}
                message["content"] = parts
                break


def _is_worth_it(messages: list[Part], *, has_tools: bool) -> bool:
    return has_tools or any(message["role"] == "assistant" for message in messages)


def _with_mark(blocks: list[object], target: Target) -> list[object]:
    """The blocks with a mark at their end: the prompt up to there is cached."""
    last = blocks[-1]
    if not isinstance(last, dict):
        return blocks
    return [*blocks[:-1], {**last, "cache_control": _mark(target)}]


def _mark(target: Target) -> dict[str, str]:
    if target.account.cache == "5m":  # the default
        return {"type": "ephemeral"}
    return {"type": "ephemeral", "ttl": target.account.cache}


# ---- thinking
#
# Thinking (reasoning) of Claude in a request: ask for it to be shown, and leave out what the API
# would refuse.
#
# Newer models refuse thinking before which something else stands than when it arrived; older ones
# refuse some in a loop of tool calls.


def show_thinking(params: JsonObject, request: Request, target: Target) -> None:
    """Ask for summaries of thinking, in place: newer models send none unasked.

    Beside tools, newer models write even their remarks between two calls as thinking.
    """
    entry = likely_facts(target.provider, target.model).entry
    thinks_unasked = entry.get("thinking_always_on") or entry.get("thinking_on_by_default")
    is_wanted = request.shows_reasoning or request.tools or request.web
    is_set = "thinking" in params or "tool_choice" in params
    is_refused = target.refusals & {Refused.ADAPTIVE, Refused.DISPLAY}
    if thinks_unasked and is_wanted and not is_set and not is_refused:
        params["thinking"] = {"type": "adaptive", "display": "summarized"}
    thinking = params.get("thinking")
    if isinstance(thinking, dict) and Refused.DISPLAY in target.refusals:
        params["thinking"] = {key: value for key, value in thinking.items() if key != "display"}


def fit_to_tool_loop(params: JsonObject, messages: list[Part], target: Target) -> None:
    """Make thinking agree with an unfinished loop of tool calls, in place: else it is refused.

    A model with a thinking budget thinks once, at the start of the loop. If it did not, thinking is
    turned off.
    """
    loop = _answers_of_turn(messages)
    kind = as_dict(params.get("thinking")).get("type")
    if kind == "enabled" and loop and loop[0]["content"][0]["type"] not in THINKING_TYPES:
        del params["thinking"]
        kind = "disabled"
    facts = likely_facts(target.provider, target.model)
    thinks_by_default = facts.can("adaptive_thinking") or not facts.can("reasoning")
    if kind == "disabled" or (kind is None and not thinks_by_default):
        for message in loop:
            message["content"] = without_thinking(message["content"])


def _answers_of_turn(messages: list[Part]) -> list[Part]:
    """The answers since the last question that has no tool results."""
    answers: list[Part] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers.insert(0, message)
        elif all(block["type"] != "tool_result" for block in message["content"]):
            break
    return answers


def drop_unbound(head: JsonObject, messages: list[Part], prefixes: dict[int, str]) -> None:
    """Drop thinking before which something else stood when it arrived, in place.

    Newer models refuse it. ``head`` has the system prompt and the tools. ``prefixes`` are digests
    of what stood before a message then, by its index. So a changed system prompt, a compaction or a
    missing tool drops the thinking of all answers before; later thinking goes back again.
    """
    if not prefixes:
        return
    digest = _head_digest(head)
    for index, message in enumerate(messages):
        if prefixes.get(index, digest.hexdigest()) != digest.hexdigest():
            message["content"] = without_thinking(message["content"])
        _add_message(digest, message)


def prefix(payload: JsonObject) -> str:
    """A digest of a request without cache marks: the thinking in its answer is bound to it."""
    digest = _head_digest(payload)
    for message in payload["messages"]:
        _add_message(digest, message)
    return digest.hexdigest()


def _head_digest(payload: JsonObject) -> "blake2b":
    """The digest of a system prompt and tools."""
    import hashlib

    head = [_without_marks(payload.get(name)) for name in ("system", "tools")]
    return hashlib.blake2b(json.dumps(head).encode(), digest_size=8)


def _add_message(digest: "blake2b", message: Part) -> None:
    content = message["content"]
    blocks = _text(content) if isinstance(content, str) else _without_marks(content)
    digest.update(json.dumps([message["role"], blocks]).encode())


def _without_marks(blocks: object) -> object:
    """The blocks without their cache marks."""
    if isinstance(blocks, list):
        return [_without_marks(block) for block in blocks]
    if isinstance(blocks, dict):
        return {key: value for key, value in blocks.items() if key != "cache_control"}
    return blocks


def without_thinking(blocks: list[Part]) -> list[Part]:
    """The blocks of an answer that are no thinking."""
    return [block for block in blocks if block["type"] not in THINKING_TYPES]


# ---- requests
#
# Write a request: blocks under alternating roles, tool calls with their results.

REFUSABLE = {
    Refused.BUDGET: Refusable(names=("thinking.type.enabled",)),
    Refused.ADAPTIVE: Refusable(wording="(?i)adaptive thinking is not supported"),
    Refused.DISPLAY: Refusable(
        names=(
            "thinking.display",
            "thinking.adaptive.display",
            "thinking.enabled.display",
        ),
    ),
    Refused.SCHEMA: Refusable(wording=r"(?i)output_config\.format|output_format|compiled grammar"),
    Refused.THINKING: Refusable(
        wording="`?signature`? in|different conversation"
        "|thinking.{0,60}(?:modified|signature|contain)"
        "|cannot (?:contain|be) `?(?:redacted_)?thinking"
        "|(?:[Ee]xpected|first block must be) `?thinking"
    ),
}
Reader = anthropic_answers.Reader
_MAX_PAUSES = 10  # how often a server may pause one answer
_DEFAULT_LIMIT = 4096  # tokens of an answer of an unknown model
_MIN_ANSWER = 1024  # tokens in addition to thinking
# The keys that the API accepts in a block of each type; it refuses others. A type that is not
# listed belongs to a tool that the provider runs, and is sent back unchanged.
_KEYS: dict[str, tuple[str, ...]] = {
    "text": ("text", "citations"),
    "image": ("source",),
    "document": ("source", "title", "context", "citations"),
    "tool_use": ("id", "name", "input", "caller"),
    "tool_result": ("tool_use_id", "content", "is_error"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
_VALUES = ("const", "enum", "default", "examples")  # keywords of JSON Schema with values
_MAPS = ("properties", "$defs", "definitions")  # those with schemas by name
_MEDIA_TYPES = {
    "image": ("image/jpeg", "image/png", "image/gif", "image/webp"),
    "document": ("application/pdf",),
}
_NO_OUTPUT = "(no output)"


def path(_target: Target) -> str:
    """The path of the request's URL, after the base URL."""
    return "/messages"


def body(request: Request, target: Target) -> JsonObject:
    """The JSON body, without what the server refuses."""
    params = {**request.params}
    if request.schema is not None:
        schema_format = {"type": "json_schema", "schema": _close_objects(request.schema)}
        output_config = as_dict(params.get("output_config"))
        params["output_config"] = {**output_config, "format": schema_format}
    show_thinking(params, request, target)
    system = _text(system_text(request.messages))
    messages, prefixes = _conversation(request.messages, target)
    tools = _tools(params, request, target, messages)
    drop_unbound({"system": system or None, **params, **tools}, messages, prefixes)
    fit_to_tool_loop(params, messages, target)
    limit = params.pop("max_tokens", None)

    payload: JsonObject = {"model": target.model}
    payload["max_tokens"] = _limit(target, params) if limit is None else limit
    if system:
        payload["system"] = system
    payload["messages"] = messages
    payload |= params
    if request.stream:
        payload["stream"] = True
    payload |= tools
    mark_payload(payload, target)
    if not _is_worth_it(messages, has_tools=bool(tools)):  # else the places of marks change
        for message in messages:
            message["content"] = _plain(message["content"])
    return payload


def _plain(blocks: list[Part]) -> str | list[Part]:
    """One text as a string, which small servers require; else the blocks."""
    is_text_alone = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return blocks[0]["text"] if is_text_alone else blocks


def accepts(part: Part, _target: Target) -> bool:
    """Whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and _source(media) is not None


def read_to_end(
    payload: JsonObject,
    answer: Answer,
    send: Callable[[JsonObject], Iterator[Event]],
) -> Iterator[Event]:
    """Yield the events of the answer to a body; whenever the server pauses it, ask to continue.

    ``send`` sends a body and yields the events of what comes.
    """
    messages = payload["messages"]
    for pauses in range(_MAX_PAUSES + 1):
        is_last = pauses == _MAX_PAUSES
        for event in send({**payload, "messages": messages}):
            if event != Finished(PAUSED) or is_last:
                yield event
        if answer.has_thinking and answer.prefix is None:
            answer.prefix = prefix(payload)
        if answer.finish_reason != PAUSED or is_last:
            return
        answer.finished = False
        answer.finish_reason = None
        answer.limit = None  # it holds for each piece, and the usage is of all
        blocks = [_with_known_keys(block) for block in answer.replay[BLOCKS]]
        messages = [*payload["messages"], {"role": "assistant", "content": blocks}]


# ---- tools, schema, limit


def _tools(
    params: JsonObject,
    request: Request,
    target: Target,
    messages: list[Part],
) -> JsonObject:
    """The tools of a request. Without any, those called earlier are defined, but are forbidden."""
    tools, offered = take_tools(params, request, target)
    for tool in offered:
        declared = {"name": tool.name, "description": tool.description}
        tools.append({**declared, "input_schema": tool.parameters})
    if tools:
        return {"tools": tools}
    names = {}
    for message in messages:
        for block in message["content"]:
            if block["type"] == "tool_use":
                names[block["name"]] = {"type": "object"}
    if not names:
        return {}
    tools = [{"name": name, "input_schema": schema} for name, schema in names.items()]
    return {"tools": tools, "tool_choice": {"type": "none"}}


def _close_objects(schema: object, *, is_map: bool = False) -> object:
    """The schema, with ``additionalProperties: false`` in objects that do not set it.

    The API refuses open ones. ``is_map``: its keys are names of schemas, not keywords.
    """
    if isinstance(schema, list):
        return [_close_objects(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result: JsonObject = {}
    for key, value in schema.items():
        if key in _VALUES and not is_map:
            result[key] = value
        else:
            result[key] = _close_objects(value, is_map=key in _MAPS and not is_map)
    if result.get("type") == "object":
        return {"additionalProperties": False, **result}
    return result


def _limit(target: Target, params: JsonObject) -> int:
    """The ``max_tokens`` if the user sets none: the API requires one."""
    facts = likely_facts(target.provider, target.model)
    window = target.account.context_window or facts.window
    limit = token_count(facts.entry.get("max_output_tokens")) or _DEFAULT_LIMIT
    if window:
        limit = min(limit, window // 4)
    budget = token_count(as_dict(params.get("thinking")).get("budget_tokens"))
    return max(limit, budget + _MIN_ANSWER if budget else 1)


# ---- messages


def _conversation(
    conversation: Sequence[Message],
    target: Target,
) -> tuple[list[Part], dict[int, str]]:
    """The messages in the API's form, and the saved prefixes by their indexes."""
    messages: list[Part] = []
    prefixes: dict[int, str] = {}
    first_thinking = reasoning_from(conversation)
    for index, message in enumerate(conversation):
        thinks = index >= first_thinking and Refused.THINKING not in target.refusals
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message, target, thinks=thinks)
        if not blocks:
            continue
        count = len(messages)
        add_turn(messages, role, {"content": blocks}, no_question=_text(NO_QUESTION)[0])
        if len(messages) > count and "prefix" in message:
            prefixes[len(messages) - 1] = message["prefix"]
    for entry in messages:
        blocks = entry["content"]
        if blocks[0]["type"] not in THINKING_TYPES:  # of joined answers, the second may think
            blocks = without_thinking(blocks)
        entry["content"] = [_with_known_keys(block) for block in blocks]
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last["type"] == "text":
            last["text"] = last["text"].rstrip()  # the API refuses white space at the end
    return messages, prefixes


def _blocks(message: Message, target: Target, *, thinks: bool) -> list[Part]:
    """A message as blocks; the system prompt has none here."""
    match message["role"]:
        case "system":
            return []
        case "assistant":
            return _answer(message, target, thinks=thinks)
        case "tool":
            return [_result(message)]
    blocks: list[Part] = []
    for part in parts_of(message):
        if is_text(part) and part["text"].strip():
            part = {**part, "text": labelled_text(part)}
        blocks += _blocks_of_part(part)
    return blocks


def _with_known_keys(block: Part) -> Part:
    """A block with the keys that the API accepts."""
    keys = _KEYS.get(block["type"], tuple(block))
    return {key: block[key] for key in ("type", *keys) if key in block}


def _text(text: str) -> list[Part]:
    """A text block, or none for a blank text, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _blocks_of_part(part: Part) -> list[Part]:
    """A part of a question or a tool result as blocks; text for what the API does not accept."""
    if is_text(part):
        return _text(part["text"])
    media = media_of(part)
    source = _source(media) if media else None
    if media is None or source is None:
        return _text(placeholder(part))
    if media.kind == "image":
        return [{"type": "image", "source": source}]
    block: Part = {"type": "document", "source": source}
    if title := name_of(part):
        block["title"] = title
    context = part.get("context")
    if context and isinstance(context, str):
        block["context"] = context
    if as_dict(part.get("citations")).get("enabled") is True:
        block["citations"] = {"enabled": True}
    return [block]


def _source(media: Media) -> Part | None:
    """The source of an image or a document in the API's form; None if it is not accepted."""
    media_types = _MEDIA_TYPES.get(media.kind)
    if media_types is None:
        return None
    if media.url is not None:
        return {"type": "url", "url": media.url} if media.url.startswith("https://") else None
    if media.media_type not in media_types:
        return None
    return {"type": "base64", "media_type": media.media_type, "data": media.data}


def _answer(message: Message, target: Target, *, thinks: bool) -> list[Part]:
    """The blocks of an answer: the saved ones if they are complete, else made from its parts.

    Thinking is sent only to the model that signed it.
    """
    is_own = message.get("provider") == target.provider
    thinks = thinks and target.gave(message)
    blocks = _saved_blocks(message) if is_own else []
    if not blocks:
        blocks = _made_blocks(message, is_own=is_own)
    sent = [block for block in blocks if _can_be_sent(block, thinks=thinks)]
    while sent and sent[-1]["type"] in THINKING_TYPES:  # an answer must not end in thinking
        sent.pop()
    return sent


def _saved_blocks(message: Message) -> list[Part]:
    """The saved blocks of an answer of this provider, with its valid calls.

    There are none if they do not fit the message, and of a partial answer: the API may refuse them.
    """
    if message.get("finish_reason") in (*PARTIAL_REASONS, PAUSED):
        return []
    calls = iter(message.get("tool_calls") or [])
    text = ""
    blocks: list[Part] = []
    for block in as_dicts(as_dict(message.get("replay")).get(BLOCKS)):
        if block.get("type") == "text":
            text += block["text"]
        elif block.get("type") == "tool_use":
            call = next(calls, None)
            if call is None:
                return []
            block = {**block, **_tool_use(call, is_own=True)}
        blocks.append(block)
    return blocks if text == text_of(message) and next(calls, None) is None else []


def _made_blocks(message: Message, *, is_own: bool) -> list[Part]:
    """The blocks of an answer, of whatever model, made from its parts."""
    blocks: list[Part] = []
    for kind, block in blocks_of(message):
        if kind == "tool_call":
            blocks.append(_tool_use(block, is_own=is_own))
        elif kind == "thinking":
            if block.get("type") in THINKING_TYPES:
                blocks.append(block)
        elif not is_text(block):
            blocks += _text(placeholder(block))
        elif blocks and blocks[-1]["type"] == "text":  # join adjacent texts
            blocks[-1] = {"type": "text", "text": blocks[-1]["text"] + block["text"]}
        else:
            blocks.append({"type": "text", "text": block["text"]})
    return blocks + _text(message.get("refusal") or "")


def _can_be_sent(block: Part, *, thinks: bool) -> bool:
    """Whether the API accepts a block of an answer: no blank text, and only signed thinking."""
    if block["type"] == "text":
        return bool(block["text"].strip())
    if block["type"] in THINKING_TYPES:
        return thinks and bool(block.get("signature") or block.get("data"))
    return True


def _tool_use(call: Call, *, is_own: bool) -> Part:
    """A valid call as a block. ``is_own``: the provider gets the ``caller`` back that it sent."""
    function = call["function"]
    arguments = as_object(function["arguments"])
    block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}
    if is_own and "caller" in call:
        block["caller"] = call["caller"]
    return block


def _result(message: Message) -> Part:
    """A tool result as a block. An error may have text alone."""
    is_error = bool(message.get("is_error"))
    blocks: list[Part] = []
    for part in parts_of(message):
        if is_error and not is_text(part):
            blocks += _text(placeholder(part))
        else:
            blocks += _blocks_of_part(part)
    result: Part = {
        "type": "tool_result",
        "tool_use_id": message.get("tool_call_id"),
        "content": blocks or _NO_OUTPUT,
    }
    if is_error:
        result["is_error"] = True
    return result
