"""Convert messages from other tools' formats when a session is read, and to OpenAI's when one is sent."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import cast

from gptsh.content.attachments import PDF, media_in, media_of, not_sent, part_label, url_part
from gptsh.jsonio import as_dict
from gptsh.messages import (
    Block,
    Message,
    Part,
    Role,
    blocks_of,
    is_text,
    labelled_text,
    parts_of,
    text_of,
    text_part,
    with_blocks,
)

# ---- from other tools' formats
#
# Conversion of messages in the shapes of other tools and APIs, done once: when a session is read.

# Our role for each. An unknown role becomes ``user``, so that the message is sent.
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "developer": "system",
    "function": "tool",
    "model": "assistant",
    "ai": "assistant",
}
_SHARED = ("id", "parent", "timestamp", "source")  # keys that each tool result gets from its message
_STREAMS = {"stdout", "stderr", "interrupted", "isImage", "exception"}  # keys that only a shell's result has


def normalize_message(message: Message) -> list[Message]:
    """Return the message with our roles and parts; several messages if a user's message contains tool results.

    All of these have the id of the original. Calls of OpenAI's old function API get ids from the functions' names.
    """
    old_role: str = message["role"]
    if old_role in ("user", "assistant") and isinstance(message.get("content"), str) and "function_call" not in message:
        return [message]  # nearly all messages
    role = _ROLES.get(old_role, "user")
    result: Message = message if old_role == role else {**message, "role": role}
    content = result.get("content")
    if isinstance(content, list):
        parts = list(map(_part, content))
        result = {**result, "content": parts}
        if role == "user" and any(part.get("type") == "tool_result" for part in parts):
            return _split_results(result)
    if old_role == "function":
        result = {**result, "tool_call_id": f"call_{result.get('name')}"}
    return [_answer(result) if role == "assistant" else result]


def _part(part: Part) -> Part:
    """Convert a text of the Responses API, or an image or document of Anthropic's; return other parts unchanged."""
    kind, source = part.get("type"), as_dict(part.get("source"))
    if kind in ("input_text", "output_text"):
        return {**part, "type": "text"}
    data = source.get("url" if source.get("type") == "url" else "data")
    if kind not in ("image", "document") or not isinstance(data, str):
        return part
    title = part["title"] if isinstance(part.get("title"), str) else None
    rest = {key: value for key, value in part.items() if key not in ("type", "source", "title")}
    if source.get("type") == "text":
        return {**rest, **text_part(title or "document", data)}
    media_type = str(source.get("media_type") or ("image/png" if kind == "image" else PDF))
    url = f"data:{media_type};base64,{data}" if source.get("type") == "base64" else data
    return {**rest, **url_part("image/" if kind == "image" else media_type, url, title)}


def _answer(message: Message) -> Message:
    """Move the tool calls, thinking and refusal of an answer from its content to their own keys."""
    legacy = as_dict(as_dict(message).get("function_call"))
    types = [part.get("type") for part in parts_of(message)]
    if not legacy and not any(kind in types for kind in ("tool_use", "thinking", "redacted_thinking", "refusal")):
        return message
    blocks: list[Block] = []
    refusals = [message.get("refusal") or ""]
    for kind, block in blocks_of(message):
        match block.get("type") if kind == "text" else None:
            case "tool_use":
                blocks.append(("tool_call", _call(block)))
            case "thinking" | "redacted_thinking":
                blocks.append(("thinking", block))
            case "refusal":
                refusals.append(str(block.get("refusal") or ""))
            case _:
                blocks.append((kind, block))
    if legacy and not message.get("tool_calls"):
        blocks.append(("tool_call", {"id": f"call_{legacy.get('name')}", "type": "function", "function": legacy}))
    answer = with_blocks(message, blocks)
    as_dict(answer).pop("function_call", None)
    if any(refusals):
        answer["refusal"] = "".join(refusals)
    return answer


def _call(part: Part) -> Part:
    call_id, call_input = part.get("id"), part.get("input")
    arguments = _as_string({} if call_input is None else call_input)
    function = {"name": part.get("name"), "arguments": arguments}
    call = {"id": call_id if isinstance(call_id, str) else "", "type": "function", "function": function}
    return {**call, "caller": part["caller"]} if "caller" in part else call


def _split_results(message: Message) -> list[Message]:
    """Return the tool results in a user's message as separate messages, then the rest, if any."""
    results: list[Message] = []
    rest: list[Part] = []
    for part in parts_of(message):
        if part.get("type") != "tool_result":
            rest.append(part)
            continue
        content = part.get("content")
        if isinstance(content, list):
            items = (item if isinstance(item, dict) else {"type": "text", "text": _as_string(item)} for item in content)
            content = list(map(_part, items))
        else:
            content = _as_string(content)
        result = cast("Message", {key: value for key, value in message.items() if key in _SHARED})
        result.update({"role": "tool", "content": content})
        if isinstance(part.get("name"), str):
            result["name"] = part["name"]
        if isinstance(part.get("is_error"), bool):
            result["is_error"] = part["is_error"]
        if isinstance(part.get("tool_use_id"), str):
            result["tool_call_id"] = part["tool_use_id"]
        if (structured := part.get("tool_use_result")) is not None:  # Claude Code and codelet write it
            is_raw = isinstance(structured, dict) and not _STREAMS.isdisjoint(structured)
            result["raw"] = structured if is_raw else {"structured": structured}
        results.append(result)
    return [*results, {**message, "content": rest}] if rest else results


def _as_string(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- openai parts
#
# The parts of a message in the shapes of OpenAI's chat API, and of others that follow it.


def question_content(message: Message, shapes: str) -> str | list[Part]:
    """Return the content of a question: a string if all of it is text, as every server accepts, else a list of parts.

    ``shapes`` selects the shapes of documents and audio: ``openai`` or ``mistral``.
    """
    parts = [part if is_text(part) else _api_part(part, shapes) for part in parts_of(message)]
    if all(map(is_text, parts)):
        return text_of({**message, "content": parts})
    texts = [{"type": "text", "text": labelled_text(part)} if is_text(part) else part for part in parts]
    return [part for part in texts if part.get("text") != ""]


def author_name(message: Message) -> dict[str, str]:
    """Return the message's ``name`` under this key, or an empty dict if OpenAI would refuse it."""
    name = message.get("name")
    return {"name": name} if isinstance(name, str) and re.fullmatch(r"[^\s<|\\/>]{1,64}", name) else {}


def accepts(part: Part, shapes: str) -> bool:
    """Whether the API can carry the media of a part: only Mistral's accepts documents by URL."""
    media = media_of(part)
    if media is None or media.kind == "video":
        return False
    return media.data is not None or media.kind == "image" or shapes == "mistral"


def _api_part(part: Part, shapes: str) -> Part:
    """Return a media part in the API's shape, or a text that says what is not sent."""
    media = media_of(part)
    if media is None or not accepts(part, shapes):
        return not_sent(part, "this API does not take it")
    if shapes == "mistral" and media.kind == "document":
        return {"type": "document_url", "document_url": part["file"]["file_data"]}
    if shapes == "mistral" and media.kind == "audio":
        return {"type": "input_audio", "input_audio": media.data}
    kind = part["type"]
    value = part[kind]
    return {"type": kind, kind: value if isinstance(value, dict) else {"url": value}}


def move_tool_media(messages: Iterable[Message]) -> list[Message]:
    """Move the media of tool results into a question after them: this API's results are text only."""
    result: list[Message] = []
    media_parts: list[Part] = []
    for message in messages:
        if message["role"] == "tool":
            if tool_media := list(media_in(message)):
                source = message.get("name") or message.get("tool_call_id")
                for part, media in tool_media:
                    label = f"{media.kind} of the tool result above ({source}):"
                    media_parts += [{"type": "text", "text": label}, part]
                message = {**message, "content": "\n".join(map(part_label, parts_of(message)))}
        elif media_parts and message["role"] == "user":  # before its own parts: roles must alternate
            message = {**message, "content": [*media_parts, *parts_of(message)]}
            media_parts = []
        elif media_parts:
            result.append({"role": "user", "content": media_parts})
            media_parts = []
        result.append(message)
    return [*result, {"role": "user", "content": media_parts}] if media_parts else result
