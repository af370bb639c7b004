"""Import of ChatGPT's data export, ``conversations.json``: each conversation in the branch that was last shown.

Messages are nodes of a tree. A tool call is an answer whose ``recipient`` is the tool. Files are beside the export:
references to them are stored as they are, and no file is opened.
"""

from collections.abc import Iterator
from typing import Any

from gptsh.formats.conversation import Conversation, branch_to, read_each, tool_call, without
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import Part
from gptsh.models.usage import FINISH_REASONS

NAME = "chatgpt"
# Content types whose records are left out if they have no parts. Of any other type, the whole content becomes a part.
_EMPTY = {"text", "multimodal_text", "thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"}


def read(source: Source) -> Results | None:
    """A session for each conversation of an export, or for a file with a single conversation."""
    if not any(isinstance(value.get("mapping"), dict) for value in source.first_items):
        return None
    return read_each(source, lambda value: _conversation(source, value), source.items())


def _conversation(source: Source, value: dict[str, Any]) -> Conversation:
    key = str(value.get("conversation_id") or value["id"])
    session = Conversation(source, NAME, key, title=value.get("title"), provider="openai")
    session.created_at, session.updated_at = value.get("create_time"), value.get("update_time")
    session.model, nodes = value.get("default_model_slug"), value["mapping"]
    thinking: list[Part] = []  # of the next answer
    call_id = None  # of a tool call without a result

    def messages_of(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        nonlocal thinking, call_id
        record = as_dict(node.get("message"))
        content, metadata = as_dict(record.get("content")), as_dict(record.get("metadata"))
        kind = content.get("content_type")
        if kind == "user_editable_context":
            session.system = "\n\n".join(filter(None, (content.get("user_profile"), content.get("user_instructions"))))
        if kind == "thoughts":
            pairs = [(thought.get("summary"), thought.get("content")) for thought in content["thoughts"]]
            texts = ["\n\n".join(filter(None, pair)) for pair in pairs]
            thinking += [{"type": "thinking", "thinking": text} for text in texts if text]
        text = "\n".join(filter(None, (content.get("title"), content.get("url"), content.get("text"))))
        parts = [_part(part) for part in content.get("parts") or [text or content.get("result")] if part]
        for file in as_dicts(metadata.get("attachments")):
            parts.append({**file, "type": "attachment", **without({"source": file.get("name")})})
        if not parts and kind not in _EMPTY:
            parts = [{**content, "type": kind}]
        if not content or not parts or metadata.get("is_visually_hidden_from_conversation"):
            return
        message = _message(record, metadata, parts)
        answered_call, call_id = call_id, None
        if message["role"] == "assistant":
            message |= {"thinking": thinking} if thinking else {}
            thinking, call_id = [], record["id"] if "tool_calls" in message else None
        elif message["role"] == "tool":
            name = record["author"].get("name")
            if not answered_call:  # a search in uploaded files, for example: the export has no call for it
                answered_call, call = record["id"], tool_call(record["id"], name or "tool", "")
                yield {"timestamp": message["timestamp"], "role": "assistant", "content": None, "tool_calls": [call]}
            message |= without({"tool_call_id": answered_call, "name": name})
            message |= {"is_error": True} if kind == "system_error" else {}
        session.model = message.get("model", session.model)
        yield message

    for node in branch_to(value.get("current_node") or next(reversed(nodes), None), nodes, "parent"):
        session.add_record(messages_of, node)
    return session


def _message(record: dict[str, Any], metadata: dict[str, Any], parts: list[Part]) -> dict[str, Any]:
    content = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    role, recipient = record["author"]["role"], record.get("recipient") or "all"
    message = {"id": record["id"], "timestamp": record.get("create_time"), "role": role, "content": content}
    if role == "assistant":
        reason = as_dict(metadata.get("finish_details")).get("type")
        answer = {"model": metadata.get("model_slug"), "finish_reason": FINISH_REASONS.get(str(reason), reason)}
        message |= {"provider": "openai", **without(answer)}
        if recipient != "all":
            text = "".join(part.get("text", "") for part in parts)
            message |= {"content": None, "tool_calls": [tool_call(record["id"], recipient, text)]}
    return message


def _part(part: Any) -> Part:
    """A text or a transcribed text as text; a reference to a file unchanged."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part["content_type"] == "audio_transcription":
        return {"type": "text", "text": part["text"]}
    return {**part, "type": part["content_type"]}
