"""A message in the shapes of another tool or API, brought into ours. Done once: when a session is read."""

import json
from typing import Any

from gptsh.content.attachments import PDF, url_part
from gptsh.jsonio import as_dict
from gptsh.messages import Block, Message, Part, blocks_of, parts_of, text_part, with_blocks

# By role: ours. An unknown one is the user's, so that nothing is left out of what is sent.
_ROLES = {
    **{role: role for role in ("system", "user", "assistant", "tool")},
    **{"developer": "system", "function": "tool", "model": "assistant", "ai": "assistant"},
}
_SHARED = ("id", "parent", "timestamp", "source")  # of a message that carries results, by each of them
_STREAMS = {"stdout", "stderr", "interrupted", "isImage", "exception"}  # what a shell's result is told by


def normalize_message(message: Message) -> list[Message]:
    """The message with our roles and parts; several where a user's message carries results of tools.

    All of these have the id of the one. The functions of OpenAI's first API get ids by their names.
    """
    said: str = message["role"]
    if said in ("user", "assistant") and isinstance(message.get("content"), str) and "function_call" not in message:
        return [message]  # as nearly all are
    role = _ROLES.get(said, "user")
    own: Any = message if said == role else {**message, "role": role}
    if isinstance(own.get("content"), list):
        own = {**own, "content": list(map(_part, own["content"]))}
        if role == "user" and any(part.get("type") == "tool_result" for part in own["content"]):
            return _results_apart(own)
    if said == "function":
        own = {**own, "tool_call_id": f"call_{own.get('name')}"}
    return [_answer(own) if role == "assistant" else own]


def _part(part: Part) -> Part:
    """A text of the Responses API, an image or a document of Anthropic's as ours; any other part as it is."""
    kind, source = part.get("type"), as_dict(part.get("source"))
    if kind in ("input_text", "output_text"):
        return {**part, "type": "text"}
    given = source.get("url" if source.get("type") == "url" else "data")
    if kind not in ("image", "document") or not isinstance(given, str):
        return part
    title = part["title"] if isinstance(part.get("title"), str) else None
    rest = {key: value for key, value in part.items() if key not in ("type", "source", "title")}
    if source.get("type") == "text":
        return {**rest, **text_part(title or "document", given)}
    media_type = str(source.get("media_type") or ("image/png" if kind == "image" else PDF))
    url = f"data:{media_type};base64,{given}" if source.get("type") == "base64" else given
    return {**rest, **url_part("image/" if kind == "image" else media_type, url, title)}


def _answer(message: Message) -> Message:
    """An answer with its calls, thinking and refusal beside its content."""
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
    own: Any = with_blocks(message, blocks)
    own.pop("function_call", None)
    if any(refusals):
        own["refusal"] = "".join(refusals)
    return own  # type: ignore[no-any-return]


def _call(part: Part) -> Part:
    own, given = part.get("id"), part.get("input")
    arguments = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
    function = {"name": part.get("name"), "arguments": arguments}
    call = {"id": own if isinstance(own, str) else "", "type": "function", "function": function}
    return {**call, "caller": part["caller"]} if "caller" in part else call


def _results_apart(message: Message) -> list[Message]:
    """The results of tools in a user's message as messages of their own, then the rest, if there is any."""
    results: list[Message] = []
    rest: list[Part] = []
    for part in parts_of(message):
        if part.get("type") != "tool_result":
            rest.append(part)
            continue
        content: Any = part.get("content")
        if isinstance(content, list):
            content = [
                _part(item) if isinstance(item, dict) else {"type": "text", "text": _words(item)} for item in content
            ]
        else:
            content = _words(content)
        result: Any = {key: value for key, value in message.items() if key in _SHARED}
        result |= {"role": "tool", "content": content}
        for key, kind in (("name", str), ("is_error", bool)):
            if isinstance(part.get(key), kind):
                result[key] = part[key]
        if isinstance(part.get("tool_use_id"), str):
            result["tool_call_id"] = part["tool_use_id"]
        if (beside := part.get("tool_use_result")) is not None:  # as Claude Code and codelet have it
            is_raw = isinstance(beside, dict) and not _STREAMS.isdisjoint(beside)
            result["raw"] = beside if is_raw else {"structured": beside}
        results.append(result)
    return [*results, {**message, "content": rest}] if rest else results


def _words(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
