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
from gptsh.llm.conversations import (
    NO_QUESTION,
    add_turn,
    placeholder,
)
from gptsh.llm.stream import (
    Refusable,
    as_object,
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
# So a session pays for its history once. A first question without tools gets no mark, because
# caching it costs a quarter more and most are not continued. OpenAI's Responses API has a
# ``prompt_cache_key`` instead, see ``responses.py``.


def mark_payload(payload: JsonObject, target: Target) -> None:
    """Mark the beginning and the ends of some messages in a request to Anthropic's API, in place.

    The mark at the end is for the next request; those before it find the cache of the last one.
    """
    messages: list[Part] = payload["messages"]
    if not _is_worth_it(messages, has_tools=bool(payload.get("tools"))):
        return
    for name in ("system", "tools"):  # the system prompt comes after the tools and includes them
        if payload.get(name):
            payload[name] = _with_mark(payload[name], target)
            break
    questions = [message for message in messages if message["role"] == "user"]
    starts = [message for message in questions if not _has_only_results(message)]
    ends = questions[-2:]
    ends += starts[-2:-1]
    for message in ends:
        message["content"] = _with_mark(message["content"], target)


def mark_chat(messages: list[JsonObject], target: Target, *, has_tools: bool) -> None:
    """Mark the system prompt and the last two questions of chat completions, in place."""
    if not _is_worth_it(messages, has_tools=has_tools):
        return
    ends = [message for message in messages[:1] if message["role"] == "system"]
    questions = [message for message in messages if message["role"] == "user"]
    ends += questions[-2:]
    for message in ends:
        _mark_last_text(message, target)


def _mark_last_text(message: JsonObject, target: Target) -> None:
    """Mark the last text of a message. Media behind it are not cached: they can have no mark."""
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for index in reversed(range(len(content))):
        part = content[index]
        if part.get("type") == "text" and part.get("text"):
            marked = _with_mark(content[: index + 1], target)
            message["content"] = marked + content[index + 1 :]
            return


def _is_worth_it(messages: list[Part], *, has_tools: bool) -> bool:
    """Return whether a later request is likely to begin with these messages."""
    return has_tools or any(message["role"] == "assistant" for message in messages)


def _has_only_results(message: Part) -> bool:
    """Return whether a message has only tool results, so that it does not begin a turn."""
    return all(block["type"] == "tool_result" for block in message["content"])


def _with_mark(blocks: list[object], target: Target) -> list[object]:
    """Return the blocks with a mark at their end, so that the prompt up to there is cached."""
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
# Ask for Claude's thinking (reasoning) to be shown, and leave out thinking that the API would
# refuse.
#
# Newer models refuse thinking if anything before it has changed since it arrived. Older models
# refuse some thinking in a loop of tool calls.


def show_thinking(params: JsonObject, request: Request, target: Target) -> None:
    """Ask for summaries of thinking, in place, because newer models send none unasked.

    With tools, newer models write even their remarks between two calls as thinking.
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
    """Make thinking agree with an unfinished loop of tool calls, in place.

    The API refuses the request otherwise. A model with a thinking budget thinks once, at the start
    of the loop. If it did not, thinking is turned off.
    """
    loop = _answers_of_turn(messages)
    mode = as_dict(params.get("thinking")).get("type")
    if mode == "enabled" and loop and loop[0]["content"][0]["type"] not in THINKING_TYPES:
        del params["thinking"]
        mode = "disabled"
    facts = likely_facts(target.provider, target.model)
    thinks_by_default = facts.can("adaptive_thinking") or not facts.can("reasoning")
    if mode == "disabled" or (mode is None and not thinks_by_default):
        for message in loop:
            message["content"] = without_thinking(message["content"])


def _answers_of_turn(messages: list[Part]) -> list[Part]:
    """Return the answers since the last question that has no tool results."""
    answers: list[Part] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers.insert(0, message)
        # Words that the user adds to results do not begin a new loop.
        elif all(block["type"] != "tool_result" for block in message["content"]):
            break
    return answers


def drop_unbound(head: JsonObject, messages: list[Part], prefixes: dict[int, str]) -> None:
    """Drop thinking if anything before it has changed since it arrived, in place.

    Newer models refuse it. ``head`` has the system prompt and the tools. ``prefixes`` has, by the
    index of a message, a digest of all that came before it when it arrived. So a changed system
    prompt, a compaction or a missing tool drops the thinking of all earlier answers, and only
    thinking of later answers is sent.
    """
    if not prefixes:
        return
    digest = _head_digest(head)
    for index, message in enumerate(messages):
        if index in prefixes and prefixes[index] != digest.hexdigest():
            message["content"] = without_thinking(message["content"])
        _add_message(digest, message)


def prefix(payload: JsonObject) -> str:
    """Return a digest of a request without marks, to which the thinking in its answer is bound."""
    digest = _head_digest(payload)
    for message in payload["messages"]:
        _add_message(digest, message)
    return digest.hexdigest()


def _head_digest(payload: JsonObject) -> "blake2b":
    """Return the digest of a system prompt and tools."""
    import hashlib

    head = [_without_marks(payload.get(name)) for name in ("system", "tools")]
    return hashlib.blake2b(json.dumps(head).encode(), digest_size=8)


def _add_message(digest: "blake2b", message: Part) -> None:
    """Add a message to a digest, the same for one text as a string and as a block."""
    content = message["content"]
    blocks = _text(content) if isinstance(content, str) else _without_marks(content)
    digest.update(json.dumps([message["role"], blocks]).encode())


def _without_marks(blocks: object) -> object:
    """Return the blocks without their cache marks."""
    if isinstance(blocks, list):
        return [_without_marks(block) for block in blocks]
    if isinstance(blocks, dict):
        return {key: value for key, value in blocks.items() if key != "cache_control"}
    return blocks


def without_thinking(blocks: list[Part]) -> list[Part]:
    """Return the blocks of an answer without those of thinking."""
    return [block for block in blocks if block["type"] not in THINKING_TYPES]


# ---- requests
#
# The roles of a request alternate; a message is a list of blocks.

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
# Keywords of JSON Schema: those that have values, and those that have schemas by name.
_VALUE_KEYWORDS = ("const", "enum", "default", "examples")
_MAP_KEYWORDS = ("properties", "$defs", "definitions")
_MEDIA_TYPES = {
    "image": ("image/jpeg", "image/png", "image/gif", "image/webp"),
    "document": ("application/pdf",),
}
_NO_OUTPUT = "(no output)"


def path(_target: Target) -> str:
    """Return the path of the request's URL, after the base URL."""
    return "/messages"


def body(request: Request, target: Target) -> JsonObject:
    """Return the JSON body, without anything that the server has refused."""
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
    # Where some messages have marks, all stay lists of blocks: a message is then the same in the
    # next request, which has its marks elsewhere.
    if not _is_worth_it(messages, has_tools=bool(tools)):
        for message in messages:
            message["content"] = _plain(message["content"])
    return payload


def _plain(blocks: list[Part]) -> str | list[Part]:
    """Return one text as a string, because small servers require it; else the blocks."""
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return blocks


def accepts(part: Part, _target: Target) -> bool:
    """Return whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and _source(media) is not None


def read_to_end(
    payload: JsonObject,
    answer: Answer,
    send: Callable[[JsonObject], Iterator[Event]],
) -> Iterator[Event]:
    """Yield the events of the answer to a body. Ask the server to continue when it pauses.

    ``send`` sends a body and yields the events of the response.
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
        answer.limit = None  # it is that of one piece, but the usage is that of all pieces
        blocks = [_with_known_keys(block) for block in answer.replay[BLOCKS]]
        messages = [*payload["messages"], {"role": "assistant", "content": blocks}]


# ---- tools, schema, limit


def _tools(
    params: JsonObject,
    request: Request,
    target: Target,
    messages: list[Part],
) -> JsonObject:
    """Return the tools of a request, in the fields of its body.

    If the request has no tools, those that were called earlier are defined, but forbidden: the API
    refuses calls of undefined tools in the messages.
    """
    tools, offered = take_tools(params, request, target)
    for tool in offered:
        definition = {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.parameters,
        }
        tools.append(definition)
    if tools:
        return {"tools": tools}
    called = {}
    for message in messages:
        for block in message["content"]:
            if block["type"] == "tool_use":
                name = block["name"]
                called[name] = {"name": name, "input_schema": {"type": "object"}}
    if not called:
        return {}
    return {"tools": [*called.values()], "tool_choice": {"type": "none"}}


def _close_objects(schema: object) -> object:
    """Return the schema, with ``additionalProperties: false`` in objects that do not set it.

    The API refuses open ones.
    """
    if isinstance(schema, list):
        return [_close_objects(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result: JsonObject = {}
    for key, value in schema.items():
        if key in _VALUE_KEYWORDS:
            result[key] = value
        elif key in _MAP_KEYWORDS and isinstance(value, dict):
            result[key] = {name: _close_objects(inner) for name, inner in value.items()}
        else:
            result[key] = _close_objects(value)
    if result.get("type") == "object":
        return {"additionalProperties": False, **result}
    return result


def _limit(target: Target, params: JsonObject) -> int:
    """Return the ``max_tokens`` of a request if the user sets none, because the API requires it."""
    facts = likely_facts(target.provider, target.model)
    window = target.account.context_window or facts.window
    limit = token_count(facts.entry.get("max_output_tokens")) or _DEFAULT_LIMIT
    if window:
        limit = min(limit, window // 4)
    budget = token_count(as_dict(params.get("thinking")).get("budget_tokens"))
    if budget:
        limit = max(limit, budget + _MIN_ANSWER)
    return max(limit, 1)  # of a tiny window, a quarter is 0


# ---- messages


def _conversation(
    conversation: Sequence[Message],
    target: Target,
) -> tuple[list[Part], dict[int, str]]:
    """Return the messages in the API's form, and the saved prefixes by the indexes of these."""
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
        add_turn(messages, role, "content", blocks, no_question=_text(NO_QUESTION)[0])
        is_joined = len(messages) == count
        if "prefix" in message and not is_joined:
            prefixes[len(messages) - 1] = message["prefix"]
    for turn in messages:
        blocks = turn["content"]
        # Thinking must come first, but the second of two joined answers may have some.
        if blocks[0]["type"] not in THINKING_TYPES:
            blocks = without_thinking(blocks)
        turn["content"] = [_with_known_keys(block) for block in blocks]
    if messages and messages[-1]["role"] == "assistant":
        last_block = messages[-1]["content"][-1]
        if last_block["type"] == "text":  # the API refuses white space at its end
            last_block["text"] = last_block["text"].rstrip()
    return messages, prefixes


def _blocks(message: Message, target: Target, *, thinks: bool) -> list[Part]:
    """Return a message as blocks; none for the system prompt, which is not among the messages."""
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
            blocks += _text(labelled_text(part))
        else:
            blocks += _blocks_of_part(part)
    return blocks


def _with_known_keys(block: Part) -> Part:
    """Return a block with only the keys that the API accepts."""
    keys = _KEYS.get(block["type"], tuple(block))
    return {key: block[key] for key in ("type", *keys) if key in block}


def _text(text: str) -> list[Part]:
    """Return a text block, or none for a blank text, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _blocks_of_part(part: Part) -> list[Part]:
    """Return a part of a question or a tool result as blocks: a text if the API refuses it."""
    if is_text(part):
        return _text(part["text"])
    media = media_of(part)
    source = _source(media) if media else None
    if media is None or source is None:
        return _text(placeholder(part))
    if media.kind == "image":
        return [{"type": "image", "source": source}]
    block: Part = {"type": "document", "source": source}
    title = name_of(part)
    if title:
        block["title"] = title
    context = part.get("context")
    if context and isinstance(context, str):
        block["context"] = context
    if as_dict(part.get("citations")).get("enabled") is True:
        block["citations"] = {"enabled": True}
    return [block]


def _source(media: Media) -> Part | None:
    """Return the source of an image or a document in the API's form; None if it is not accepted."""
    media_types = _MEDIA_TYPES.get(media.kind)
    if media_types is None:
        return None
    if media.url is not None:
        is_accepted = media.url.startswith("https://")
        return {"type": "url", "url": media.url} if is_accepted else None
    if media.media_type not in media_types:
        return None
    return {"type": "base64", "media_type": media.media_type, "data": media.data}


def _answer(message: Message, target: Target, *, thinks: bool) -> list[Part]:
    """Return the saved blocks of an answer if they are complete, else blocks made from its parts.

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
    """Return the saved blocks of an answer of this provider, with its valid calls.

    The list is empty if the blocks do not fit the message. It is empty for a partial answer, too,
    because the API may refuse its blocks.
    """
    if message.get("finish_reason") in (*PARTIAL_REASONS, PAUSED):
        return []
    calls = [*(message.get("tool_calls") or [])]
    text = ""
    blocks: list[Part] = []
    for block in as_dicts(as_dict(message.get("replay")).get(BLOCKS)):
        if block.get("type") == "text":
            text += block["text"]
        elif block.get("type") == "tool_use":
            if not calls:
                return []
            block = {**block, **_tool_use(calls.pop(0), is_own=True)}
        blocks.append(block)
    if calls or text != text_of(message):
        return []
    return blocks


def _made_blocks(message: Message, *, is_own: bool) -> list[Part]:
    """Return blocks made from the parts of an answer of any model."""
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
    """Return whether the API accepts a block of an answer.

    It refuses blank text and unsigned thinking.
    """
    if block["type"] == "text":
        return bool(block["text"].strip())
    if block["type"] in THINKING_TYPES:
        return thinks and bool(block.get("signature") or block.get("data"))
    return True


def _tool_use(call: Call, *, is_own: bool) -> Part:
    """Return a valid call as a block, with the ``caller`` if this provider sent it (``is_own``)."""
    function = call["function"]
    arguments = as_object(function["arguments"])
    block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}
    if is_own and "caller" in call:
        block["caller"] = call["caller"]
    return block


def _result(message: Message) -> Part:
    """Return a tool result as a block. The API accepts only text in an error."""
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
