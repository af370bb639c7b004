"""Messages as other tools and providers shape them, in our vocabulary. For what is sent; the file stays as it is."""

import json
from typing import Any

from gptsh.jsonio import as_dict
from gptsh.messages import Block, Call, Message, Part, blocks_of, parts_of, with_blocks

# Whoever else speaks is heard as the user: nobody knows who it is, and nothing that was said is left out.
_ROLES: dict[str, Any] = {
    **{role: role for role in ("system", "user", "assistant", "tool")},
    "developer": "system",
    "function": "tool",
    "model": "assistant",
    "ai": "assistant",
}
_TEXTS = ("input_text", "output_text")  # as the Responses API calls them
_BLOCKS = ("tool_use", "thinking", "redacted_thinking", "refusal", *_TEXTS)


def translated(message: Message) -> list[Message]:
    """The message in our vocabulary; more than one where a user's message carries results of tools."""
    role = _ROLES.get(message["role"], "user")
    own: Message = message if message["role"] == role else {**message, "role": role}
    if isinstance(own.get("content"), str) and "function_call" not in own:
        return [own]
    types = {part["type"] for part in parts_of(own) if isinstance(part.get("type"), str)}
    if role == "assistant":
        legacy = not own.get("tool_calls") and as_dict(message.get("function_call"))
        return [_answer(own, legacy or None)] if legacy or types.intersection(_BLOCKS) else [own]
    if types.intersection(_TEXTS):
        own = {**own, "content": [_text(part) for part in parts_of(own)]}
    return _results_apart(own) if role == "user" and "tool_result" in types else [own]


def _answer(message: Message, legacy: dict[str, Any] | None) -> Message:
    """An answer whose calls, thinking and refusal stand in its content."""
    blocks = [_block(kind, block) for kind, block in blocks_of(message)]
    if legacy:
        blocks.append(("tool_call", {"id": "", "type": "function", "function": legacy}))
    own = with_blocks(message, [block for block in blocks if block[0] != "refusal"])
    refusals = [block["refusal"] for kind, block in blocks if kind == "refusal"]
    return {**own, "refusal": "".join([own.get("refusal") or "", *refusals])} if refusals else own


def _block(kind: str, block: dict[str, Any]) -> Block:
    match block.get("type") if kind == "text" else None:
        case "tool_use":
            return "tool_call", _call(block)
        case "thinking" | "redacted_thinking":
            return "thinking", block
        case "refusal" if isinstance(block.get("refusal"), str):
            return "refusal", block
    return kind, _text(block) if kind == "text" else block


def _call(part: Part) -> Call:
    own, given = part.get("id"), part.get("input")
    arguments = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
    function = {"name": part.get("name"), "arguments": arguments}
    call = {"id": own if isinstance(own, str) else "", "type": "function", "function": function}
    return {**call, "caller": part["caller"]} if "caller" in part else call


def _text(part: Part) -> Part:
    return {**part, "type": "text"} if part.get("type") in _TEXTS else part


def _results_apart(message: Message) -> list[Message]:
    """The results as messages of tools, then the rest, if there is any."""
    parts = parts_of(message)
    results = [_result(message, part) for part in parts if part.get("type") == "tool_result"]
    rest = [part for part in parts if part.get("type") != "tool_result"]
    return [*results, {**message, "content": rest}] if rest else results


def _result(message: Message, part: Part) -> Message:
    said: Any = part.get("content")
    result: Message = {"role": "tool", "content": _said(said), "parent": message.get("parent")}
    if "id" in message:
        result["id"] = message["id"]
    if isinstance(part.get("tool_use_id"), str):
        result["tool_call_id"] = part["tool_use_id"]
    if part.get("is_error") is True:
        result["is_error"] = True
    return result


def _said(content: Any) -> str | list[Part]:
    """A result's content: a text, or parts."""
    if isinstance(content, list):
        return [_text(item) if isinstance(item, dict) else {"type": "text", "text": _words(item)} for item in content]
    return _words(content)


def _words(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
