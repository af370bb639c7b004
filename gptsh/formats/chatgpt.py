"""ChatGPT's data export, ``conversations.json``: of each conversation the branch that was last shown.

Messages are nodes of a tree. A call of a tool is an answer whose ``recipient`` is the tool. Files stand beside the
export under names of their own: what points to them is kept, and none is opened.
"""

from collections.abc import Iterator
from typing import Any

from gptsh.formats.conversation import Conversation, branch_to, read_each, tool_call, without
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import Part
from gptsh.models.cost import REASONS

NAME = "chatgpt"
# What stands in a message without a word that anybody said.
_QUIET = {"text", "multimodal_text", "thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"}


def read(source: Source) -> Results | None:
    """A session for each conversation of the export, or of one that stands alone."""
    found = [source.value] if isinstance(source.value, dict) else source.value
    if not any(isinstance(one.get("mapping"), dict) for one in as_dicts(found)):
        return None
    return read_each(source, lambda value: _conversation(source, value), found)


def _conversation(source: Source, value: dict[str, Any]) -> Conversation:
    key = str(value.get("conversation_id") or value["id"])
    session = Conversation(source, NAME, key, title=value.get("title"), provider="openai")
    session.created_at, session.updated_at = _moment(value.get("create_time")), _moment(value.get("update_time"))
    session.model, nodes = value.get("default_model_slug"), value["mapping"]
    thinking: list[Part] = []  # of the answer to come
    call = None

    def said(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        nonlocal thinking, call
        record = as_dict(node.get("message"))
        content, about = as_dict(record.get("content")), as_dict(record.get("metadata"))
        kind = content.get("content_type")
        if kind == "user_editable_context":
            session.system = "\n\n".join(filter(None, (content.get("user_profile"), content.get("user_instructions"))))
        if kind == "thoughts":
            words = ["\n\n".join(filter(None, (one.get("summary"), one.get("content")))) for one in content["thoughts"]]
            thinking += [{"type": "thinking", "thinking": text} for text in words if text]
        parts = [_part(part) for part in content.get("parts") or [content.get("text") or content.get("result")] if part]
        if not parts and kind not in _QUIET:
            parts = [{**content, "type": kind}]
        if not content or not parts or about.get("is_visually_hidden_from_conversation"):  # nobody said it
            return
        message = _message(record, about, parts)
        if message["role"] == "assistant":
            message |= {"thinking": thinking} if thinking else {}
            thinking, call = [], record["id"] if "tool_calls" in message else call
        elif message["role"] == "tool":
            message |= without({"tool_call_id": call, "name": record["author"].get("name")})
            message |= {"is_error": True} if kind == "system_error" else {}
        session.model = message.get("model", session.model)
        yield message

    for node in branch_to(value.get("current_node") or next(reversed(nodes), None), nodes, "parent"):
        session.add_record(said, node)
    return session


def _message(record: dict[str, Any], about: dict[str, Any], parts: list[Part]) -> dict[str, Any]:
    parts = parts + [{**file, "type": "attachment"} for file in as_dicts(about.get("attachments"))]
    words = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    role, to = record["author"]["role"], record.get("recipient") or "all"
    found = {"id": record["id"], "timestamp": _moment(record.get("create_time")), "role": role, "content": words}
    if role == "assistant":
        reason = as_dict(about.get("finish_details")).get("type")
        answer = {"model": about.get("model_slug"), "finish_reason": REASONS.get(str(reason), reason)}
        found |= {"provider": "openai", **without(answer)}
        if to != "all":
            text = "".join(part.get("text", "") for part in parts)
            found |= {"content": None, "tool_calls": [tool_call(record["id"], to, text)]}
    return found


def _part(part: Any) -> Part:
    """A text, what was spoken as text, and what points to a file as it came."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part["content_type"] == "audio_transcription":
        return {"type": "text", "text": part["text"]}
    return {**part, "type": part["content_type"]}


def _moment(seconds: Any) -> float | None:
    return seconds * 1000 if isinstance(seconds, (int, float)) else None
