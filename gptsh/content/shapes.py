"""Convert messages of other tools when a session is read, and to OpenAI's form when one is sent."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import cast

from gptsh.content.attachments import PDF, media_in, media_of, not_sent, part_label, url_part
from gptsh.jsonio import JsonObject, as_dict, as_str
from gptsh.messages import (
    Block,
    Message,
    Part,
    Role,
    blocks_of,
    is_text,
    labelled_text,
    make_call,
    parts_of,
    text_of,
    text_part,
    with_blocks,
)

# ---- from other tools' formats
#
# Done once: when a session is read.

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
# Types of parts that are keys of an answer, or tool calls, with us.
_MOVED = ("tool_use", "thinking", "redacted_thinking", "refusal")
_SHARED = ("id", "parent", "timestamp", "source")  # that each tool result gets from its message
# Keys that only the result of a shell has.
_STREAMS = {"stdout", "stderr", "interrupted", "isImage", "exception"}


def normalize_message(message: Message) -> list[Message]:
    """Return the message with our roles and parts.

    A user's message with tool results becomes several, which all have its id. Calls of OpenAI's old
    function API get ids from the functions' names.
    """
    old_role: str = message["role"]
    content = message.get("content")
    is_usual = old_role in ("user", "assistant") and isinstance(content, str)
    if is_usual and "function_call" not in message:
        return [message]
    role = _ROLES.get(old_role, "user")
    if old_role != role:
        message = {**message, "role": role}
    if isinstance(content, list):
        parts = [*map(_convert_part, content)]
        message = {**message, "content": parts}
        if role == "user" and any(part.get("type") == "tool_result" for part in parts):
            return _split_results(message)
    if old_role == "function":
        call_id = f"call_{message.get('name')}"
        message = {**message, "tool_call_id": call_id}
    if role == "assistant":
        message = _convert_answer(message)
    return [message]


def _convert_part(part: Part) -> Part:
    """Convert a text of the Responses API, or an image or document of Anthropic's API."""
    part_type = part.get("type")
    if part_type in ("input_text", "output_text"):
        return {**part, "type": "text"}
    if part_type in ("image", "document"):
        return _convert_media(part)
    return part


def _convert_media(part: Part) -> Part:
    """Convert an image or document of Anthropic's API; return it unchanged without its data."""
    source = as_dict(part.get("source"))
    source_type = source.get("type")
    data_key = "url" if source_type == "url" else "data"
    data = source.get(data_key)
    if not isinstance(data, str):
        return part
    title = as_str(part.get("title")) or None
    rest = {key: part[key] for key in part if key not in ("type", "source", "title")}
    if source_type == "text":
        return {**rest, **text_part(title or "document", data)}
    is_image = part["type"] == "image"
    default_type = "image/png" if is_image else PDF
    media_type = str(source.get("media_type") or default_type)
    url = data
    if source_type == "base64":
        url = f"data:{media_type};base64,{data}"
    if is_image:  # also if its source names another type
        media_type = "image/"
    return {**rest, **url_part(media_type, url, title)}


def _convert_answer(message: Message) -> Message:
    """Move the calls, thinking and refusal of an answer from its content to their own keys."""
    legacy_call = as_dict(as_dict(message).get("function_call"))
    has_moved = any(part.get("type") in _MOVED for part in parts_of(message))
    if not legacy_call and not has_moved:
        return message
    blocks: list[Block] = []
    refusal = message.get("refusal") or ""
    for kind, block in blocks_of(message):
        part_type = block.get("type") if kind == "text" else None
        if part_type == "tool_use":
            call = make_call(block.get("id"), block.get("name"), block.get("input"))
            if "caller" in block:
                call["caller"] = block["caller"]
            blocks.append(("tool_call", call))
        elif part_type in ("thinking", "redacted_thinking"):
            blocks.append(("thinking", block))
        elif part_type == "refusal":
            refusal += str(block.get("refusal") or "")
        else:
            blocks.append((kind, block))
    if legacy_call and not message.get("tool_calls"):
        call_id = f"call_{legacy_call.get('name')}"
        call = {"id": call_id, "type": "function", "function": legacy_call}
        blocks.append(("tool_call", call))
    answer = with_blocks(message, blocks)
    as_dict(answer).pop("function_call", None)
    if refusal:
        answer["refusal"] = refusal
    return answer


def _split_results(message: Message) -> list[Message]:
    """Return the tool results in a user's message as separate messages, then the rest, if any."""
    messages: list[Message] = []
    rest: list[Part] = []
    shared = {key: value for key, value in message.items() if key in _SHARED}
    for part in parts_of(message):
        if part.get("type") == "tool_result":
            messages.append(cast("Message", {**shared, **_convert_result(part)}))
        else:
            rest.append(part)
    if rest:
        messages.append({**message, "content": rest})
    return messages


def _convert_result(part: Part) -> JsonObject:
    """Return the keys of a message for a tool result of Anthropic's API."""
    content = part.get("content")
    result: JsonObject = {"role": "tool"}
    if isinstance(content, list):
        parts = [item if isinstance(item, dict) else _text(item) for item in content]
        result["content"] = [*map(_convert_part, parts)]
    else:
        result["content"] = _text(content)["text"]
    if isinstance(part.get("name"), str):
        result["name"] = part["name"]
    if isinstance(part.get("is_error"), bool):
        result["is_error"] = part["is_error"]
    if isinstance(part.get("tool_use_id"), str):
        result["tool_call_id"] = part["tool_use_id"]
    structured = part.get("tool_use_result")  # Claude Code and codelet write it
    if isinstance(structured, dict) and structured.keys() & _STREAMS:
        result["raw"] = structured
    elif structured is not None:
        result["raw"] = {"structured": structured}
    return result


def _text(value: object) -> Part:
    """Return a value as a text part: None is empty, what is no text becomes JSON."""
    if value is None:
        value = ""
    elif not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": value}


# ---- openai parts
#
# The parts of a message in the shapes of OpenAI's chat API, and of others that follow it.


def question_content(message: Message, shapes: str) -> str | list[Part]:
    """Return the content of a question: a string if all of it is text, else a list of parts.

    Every server accepts a string. ``shapes`` selects the shapes of documents and audio: ``openai``
    or ``mistral``.
    """
    parts = []
    for part in parts_of(message):
        if not is_text(part):
            part = _api_part(part, shapes)
        parts.append(part)
    if all(map(is_text, parts)):
        return text_of({**message, "content": parts})
    sent: list[Part] = []
    for part in parts:
        if not is_text(part):
            sent.append(part)
        elif text := labelled_text(part):
            sent.append({"type": "text", "text": text})
    return sent


def author_name(message: Message) -> dict[str, str]:
    """Return the message's ``name`` under this key, or an empty dict if OpenAI would refuse it."""
    name = message.get("name")
    if isinstance(name, str) and re.fullmatch(r"[^\s<|\\/>]{1,64}", name):
        return {"name": name}
    return {}


def accepts(part: Part, shapes: str) -> bool:
    """Return whether the API can carry the media of a part."""
    media = media_of(part)
    if media is None or media.kind == "video":
        return False
    if media.data is not None or media.kind == "image":
        return True
    return shapes == "mistral"  # which alone accepts documents by URL


def _api_part(part: Part, shapes: str) -> Part:
    """Return a media part in the API's shape, or a text that says what is not sent."""
    media = media_of(part)
    if media is None or not accepts(part, shapes):
        return not_sent(part, "this API does not accept it")
    if shapes == "mistral" and media.kind == "document":
        return {"type": "document_url", "document_url": part["file"]["file_data"]}
    if shapes == "mistral" and media.kind == "audio":
        return {"type": "input_audio", "input_audio": media.data}
    part_type = part["type"]
    value = part[part_type]
    if not isinstance(value, dict):
        value = {"url": value}
    return {"type": part_type, part_type: value}


def move_tool_media(messages: Iterable[Message]) -> list[Message]:
    """Move the media of tool results into a question after them: these are text only."""
    moved: list[Message] = []
    waiting: list[Part] = []
    for message in messages:
        if message["role"] == "tool":
            media_parts = _labelled_media(message)
            if media_parts:
                waiting += media_parts
                labels = map(part_label, parts_of(message))
                message = {**message, "content": "\n".join(labels)}
        elif waiting and message["role"] == "user":
            # Before its own parts: a question of its own would be one of two in a row.
            message = {**message, "content": [*waiting, *parts_of(message)]}
            waiting = []
        elif waiting:
            moved.append({"role": "user", "content": waiting})
            waiting = []
        moved.append(message)
    if waiting:
        moved.append({"role": "user", "content": waiting})
    return moved


def _labelled_media(message: Message) -> list[Part]:
    """Return the media of a tool result, each after a text that says where it is from."""
    source = message.get("name") or message.get("tool_call_id")
    parts: list[Part] = []
    for part, media in media_in(message):
        label = f"{media.kind} of the tool result above ({source}):"
        parts += [{"type": "text", "text": label}, part]
    return parts
