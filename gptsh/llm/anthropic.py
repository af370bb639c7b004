"""Anthropic's Messages API: a request to its JSON body. No network here.

Messages are blocks under alternating roles, every tool call with its result.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.content.answer import Answer, Request
from gptsh.content.attachments import Media, media_of, name_of, not_sent
from gptsh.context.answer_schema import asked_in_words
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import sse
from gptsh.llm.anthropic_stream import BLOCKS, THOUGHTS, Reader, payloads
from gptsh.llm.parameters import fit
from gptsh.llm.sse import as_object
from gptsh.messages import (
    BROKEN_OFF,
    Call,
    Event,
    Message,
    Part,
    blocks_of,
    labelled,
    parts_of,
    text_of,
    text_parts_of,
    token_count,
)
from gptsh.models.facts import Facts, likely_facts
from gptsh.models.names import is_by
from gptsh.models.providers import Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Response
    from gptsh.llm.servers import Servers

PATH = "/messages"
_USUAL_LIMIT = 4096  # tokens of an answer of a model that nothing is known about
_LEAST_ANSWER = 1024  # tokens beside thinking
_MARK = {"cache_control": {"type": "ephemeral"}}
REFUSABLE = {
    "schema": re.compile("output[_. ]?(?:config|format)|compiled grammar", re.IGNORECASE),
    "thinking": re.compile(
        "`?signature`? in|different conversation|thinking.{0,60}(?:modified|signature|contain)"
        "|cannot (?:contain|be) `?(?:redacted_)?thinking|(?:[Ee]xpected|first block must be) `?thinking"
    ),
}
# By type of a block, the keys that the API takes beside it; any other is refused. What is not listed belongs to a tool
# that the provider runs, and goes back as it came.
_KEYS: dict[str, tuple[str, ...]] = {
    "text": ("text", "citations"),
    "image": ("source",),
    "document": ("source", "title", "context", "citations"),
    "tool_use": ("id", "name", "input", "caller"),
    "tool_result": ("tool_use_id", "content", "is_error"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PARTIAL = (*BROKEN_OFF, "pause_turn")
_OF_SERVER = re.compile("server_tool_use|mcp_tool_use|mcp_tool_result|container_upload|[a-z_]+_tool_result")
_NO_OUTPUT = "(no output)"
_NO_QUESTION = "(no question)"


def read(
    response: "Response", _provider: Provider, answer: Answer, _servers: "Servers | None" = None
) -> Iterator[Event]:
    """What is seen of the answer."""
    found = payloads(response.chunks(), response.headers.get("content-type", ""))
    return sse.read(found, Reader(answer), response.hurry)


def body(
    request: Request, provider: Provider, refused: Collection[str] = (), _servers: "Servers | None" = None
) -> dict[str, Any]:
    """The JSON body, without what is refused, by the names of ``REFUSABLE``."""
    params = fit(request.params, provider).sent
    asked = request.messages
    if request.schema is not None and "schema" in refused:
        asked = asked_in_words(asked, request.schema)
    elif request.schema is not None:
        form = {"format": {"type": "json_schema", "schema": _closed(request.schema)}}
        params["output_config"] = as_dict(params.get("output_config")) | form
    said = conversation(asked, provider.name, provider.model, thinking="thinking" not in refused)
    _agree(params, _loop(said.messages), likely_facts(provider.name, provider.model))
    limit = params.pop("max_tokens", None)
    sent: dict[str, Any] = {
        "model": provider.model,
        "max_tokens": _limit(provider, params) if limit is None else limit,
        **({"system": said.system} if said.system else {}),
        "messages": said.messages,
        **params,
        **_tools(request, params, said),
        **({"stream": True} if request.stream else {}),
    }
    return _marked(sent, said)


def _closed(schema: Any) -> Any:
    """The schema, its objects closed where they do not say whether they are: open ones are refused."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **closed} if closed.get("type") == "object" else closed


def _limit(provider: Provider, params: dict[str, Any]) -> int:
    """Tokens of an answer whose length nobody has limited: the API wants a number."""
    known = likely_facts(provider.name, provider.model)
    window = provider.context_window or known.window
    most = token_count(known.entry.get("max_output_tokens")) or _USUAL_LIMIT
    limit = min(most, window // 4) if window else most
    budget = token_count(as_dict(params.get("thinking")).get("budget_tokens")) or 0
    return max(limit, budget + _LEAST_ANSWER if budget else 1)


def _loop(messages: list[Part]) -> list[Part]:
    """The answers since the last question that brings no results of tools: those of a loop that goes on."""
    answers: list[Part] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers.insert(0, message)
        elif all(block["type"] != "tool_result" for block in message["content"]):
            break
    return answers


def _agree(params: dict[str, Any], loop: list[Part], known: Facts) -> None:
    """Make thinking and a loop agree, in place: either is refused without the other.

    A model with a budget thinks once, where the loop begins. If another model began it, or no thought may go back,
    this one goes on without thinking, and without the thoughts in between. Newer models think unless told not to.
    """
    kind = as_dict(params.get("thinking")).get("type")
    if kind == "enabled" and loop and loop[0]["content"][0]["type"] not in THOUGHTS:
        del params["thinking"]
        kind = "disabled"
    thinks_unasked = known.can("adaptive_thinking") or not known.can("reasoning")
    if kind == "disabled" or (kind is None and not thinks_unasked):
        for message in loop:
            message["content"] = without_thoughts(message["content"])


def _tools(request: Request, params: dict[str, Any], said: "Conversation") -> dict[str, Any]:
    """The field that offers tools. Where none are offered any more those that were called are named, and forbidden."""
    if request.tools:
        offered = [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in request.tools]
        return {"tools": list(map(_with_one_object, offered))}
    if own := params.get("tools"):
        return {"tools": list(map(_with_one_object, own))} if isinstance(own, list) else {}
    called = [block["name"] for message in said.messages for block in message["content"] if block["type"] == "tool_use"]
    if not called:
        return {}
    named = [{"name": name, "input_schema": {"type": "object"}} for name in dict.fromkeys(called)]
    return {"tools": named, "tool_choice": {"type": "none"}}


def _with_one_object(tool: Any) -> Any:
    """A tool whose ``input_schema`` is one object: choices at its top are refused, and stand in its description."""
    schema = tool.get("input_schema") if isinstance(tool, dict) else None
    if not isinstance(schema, dict):
        return tool
    choices = {key: schema[key] for key in ("allOf", "anyOf", "oneOf") if key in schema}
    whole = {key: value for key, value in schema.items() if key not in choices}
    changed = {**tool, "input_schema": {**whole, "type": "object"}}
    if choices:
        told = json.dumps(choices, ensure_ascii=False, separators=(",", ":"))
        words = [tool.get("description"), f"The arguments must also conform to this JSON Schema: {told}"]
        changed["description"] = "\n\n".join(filter(None, words))
    return changed


def _marked(sent: dict[str, Any], said: "Conversation") -> dict[str, Any]:
    """The body with marks where its beginning is to be kept, so that a session pays for its history once.

    A first question without tools gets none: to keep it costs a quarter more, and most are never gone on with. Else
    the mark at the end serves the next request, and those before find what the last one left.
    """
    messages = said.messages
    if not (sent.get("tools") or any(message["role"] == "assistant" for message in messages)):
        return sent
    head = next((name for name in ("system", "tools") if sent.get(name) and isinstance(sent[name], list)), None)
    if head:
        sent[head] = _marked_at_end(sent[head])
    of_user = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at in {*of_user[-2:], *said.starts[-2:-1]}:
        messages[at] = {**messages[at], "content": _marked_at_end(messages[at]["content"])}
    return sent


def _marked_at_end(blocks: list[Any]) -> list[Any]:
    return [*blocks[:-1], {**blocks[-1], **_MARK}] if isinstance(blocks[-1], dict) else blocks


# ---- messages


class Conversation(NamedTuple):
    """What is said. ``starts``: which of the messages, by index, begin a turn."""

    system: list[Part]
    messages: list[Part]
    starts: list[int]


def conversation(messages: Sequence[Message], provider: str, model: str, *, thinking: bool = True) -> Conversation:
    """The messages of a context for one model. ``thinking``: whether it gets its own of before back."""
    said = Conversation([], [], [])
    for message in messages:
        if message["role"] == "system":
            said.system.extend(_text(text_of(message)))
        elif message["role"] == "assistant":
            _add(said, "assistant", _answer(message, provider, model if thinking else None))
        elif message["role"] == "tool":
            _add(said, "user", [_result(message)])
        elif blocks := [block for part in parts_of(message) for block in _asked(part)]:
            _add(said, "user", blocks)
            said.starts.append(len(said.messages) - 1)
    _settle(said.messages)
    for one in said.messages:
        one["content"] = list(map(_allowed, one["content"]))
    return said


def _allowed(block: Part) -> Part:
    """The block with the keys that the API takes, and so those inside it."""
    keys = ("type", *_KEYS.get(block["type"], block))
    sent = {key: value for key, value in block.items() if key in keys}
    if block["type"] == "tool_result" and isinstance(block.get("content"), list):
        sent["content"] = list(map(_allowed, block["content"]))
    return sent


def _add(said: Conversation, role: str, blocks: list[Part]) -> None:
    """Blocks of one role in a row are one message, and a user has the first word."""
    if not blocks:
        return
    if role == "assistant" and not said.messages:
        said.messages.append({"role": "user", "content": _text(_NO_QUESTION)})
    if said.messages and said.messages[-1]["role"] == role:
        said.messages[-1]["content"] += blocks
    else:
        said.messages.append({"role": role, "content": list(blocks)})


def _settle(messages: list[Part]) -> None:
    """What has thoughts must begin with one, and the last words may not end in white space."""
    for message in messages:
        if message["content"][0]["type"] not in THOUGHTS:  # two answers that were joined, the latter with thoughts
            message["content"] = without_thoughts(message["content"])
    blocks = messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else []
    if blocks and blocks[-1]["type"] == "text":
        blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"].rstrip()}


def _text(text: str) -> list[Part]:
    """A block, where it says something: an empty one is refused."""
    return [{"type": "text", "text": text}] if text.strip() else []


# ---- questions


def _asked(part: Part) -> list[Part]:
    """A part of a question, under the name of its source."""
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return _text(labelled(part)) if part["text"].strip() else []
    return [_media(part)]


def _media(part: Part) -> Part:
    """An image or a document; for what the API does not take, words that say so."""
    media = media_of(part)
    source = _source(media) if media else None
    if media is None or source is None:
        return _left_out(part)
    if media.kind == "image":
        return {"type": "image", "source": source}
    cited = {"enabled": True} if as_dict(part.get("citations")).get("enabled") is True else None
    more = {"title": name_of(part), "citations": cited}
    return {"type": "document", "source": source, **{key: value for key, value in more.items() if value}}


def takes(part: Part, _provider: Provider) -> bool:
    """Whether a question has a place for what a part carries."""
    media = media_of(part)
    return media is not None and _source(media) is not None


def _source(media: Media) -> Part | None:
    if media.kind == "audio":
        return None
    if media.url is not None:
        return {"type": "url", "url": media.url} if media.url.startswith("https://") else None
    kinds = _IMAGES if media.kind == "image" else ("application/pdf",)
    return {"type": "base64", "media_type": media.media_type, "data": media.data} if media.media_type in kinds else None


def _left_out(part: Part) -> Part:
    """What the model reads in the place of a part that it does not get."""
    return {"type": "text", "text": labelled(not_sent(part, "this API does not take it"))}


# ---- answers


def _answer(message: Message, provider: str, model: str | None) -> list[Part]:
    """The blocks of an answer. Its thinking is for the model alone that signed it; what is not signed is for nobody."""
    own = message.get("provider") == provider
    thinks = model is not None and is_by(message, provider, model)
    if kept := _kept(message) if own else []:
        return _ended([block for block in kept if block["type"] not in THOUGHTS or (thinks and _is_signed(block))])
    said: list[Part] = []
    for kind, block in blocks_of(message):
        if kind == "tool_call":
            said.append(_tool_use(block, own=own))
        elif kind == "text":
            _say(said, block, own=own)
        elif thinks and _is_signed(block):
            said.append(block)
    said += _text(message.get("refusal") or "")
    return _ended([block for block in said if not _is_blank(block)])


def _ended(blocks: list[Part]) -> list[Part]:
    """Without the thoughts at its end: no answer may end in one."""
    while blocks and blocks[-1]["type"] in THOUGHTS:
        blocks = blocks[:-1]
    return blocks


def without_thoughts(blocks: list[Part]) -> list[Part]:
    """All other blocks."""
    return [block for block in blocks if block["type"] not in THOUGHTS]


def _kept(message: Message) -> list[Part]:
    """The blocks as they came, where they were kept and are the whole answer; its calls as servers take them.

    Of an answer that was broken off they may be half of an exchange with a tool of the server's, which is refused; one
    that was joined with another is more than they are.
    """
    blocks = list(filter(_is_block, as_dicts(as_dict(message.get("replay")).get(BLOCKS))))
    calls = message.get("tool_calls") or []
    uses = [block for block in blocks if block["type"] == "tool_use"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    if message.get("finish_reason") in _PARTIAL or text != text_of(message) or len(uses) != len(calls):
        return []
    sound = {id(block): block | _tool_use(call, own=True) for block, call in zip(uses, calls, strict=True)}
    return [sound.get(id(block), block) for block in blocks if not _is_blank(block)]


def _is_block(part: Part) -> bool:
    return isinstance(part.get("type"), str) and (part["type"] != "text" or isinstance(part.get("text"), str))


def _is_of_server(part: Part) -> bool:
    """Whether a part belongs to a tool that the provider runs; what it does not know, it refuses."""
    return isinstance(part.get("type"), str) and bool(_OF_SERVER.fullmatch(part["type"]))


def _is_blank(block: Part) -> bool:
    return block["type"] == "text" and not block["text"].strip()


def _is_signed(block: Part) -> bool:
    kind = block.get("type")
    texts = [block.get(key) for key in _KEYS[kind]] if kind in THOUGHTS else [None]
    return all(isinstance(text, str) for text in texts) and bool(texts[-1])


def _say(said: list[Part], part: Part, *, own: bool) -> None:
    """Texts in a row are one; of another kind of part an answer takes only what came from here."""
    if not text_parts_of({"role": "assistant", "content": [part]}):
        media = media_of(part)
        said.append(part if own and media is None and _is_of_server(part) else _left_out(part))
    elif said and said[-1]["type"] == "text":
        said[-1] = {**said[-1], "text": said[-1]["text"] + part["text"]}
    else:
        said.append({"type": "text", "text": part["text"]})


# ---- tool calls and their results


def _tool_use(call: Call, *, own: bool) -> Part:
    """A call, which a context has made sound. ``own``: who called it, if the API said so, came from here."""
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": as_object(function["arguments"]),
        **({"caller": call["caller"]} if own and "caller" in call else {}),  # any other key is refused
    }


def _result(message: Message) -> Part:
    """What a tool gave. Of an error only words are taken."""
    failed = bool(message.get("is_error"))
    blocks = [block for part in parts_of(message) for block in _given(part, failed=failed)]
    words = all(block["type"] == "text" for block in blocks)
    content: Any = "".join(block["text"] for block in blocks) or _NO_OUTPUT if words else blocks
    error = {"is_error": True} if failed else {}
    return {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": content, **error}


def _given(part: Part, *, failed: bool) -> list[Part]:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return _text(part["text"])
    return [_left_out(part) if failed else _media(part)]
