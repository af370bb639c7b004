"""Import the data exports of ChatGPT and Claude.ai (``conversations.json``)."""

from collections.abc import Iterator
from itertools import groupby

from gptsh.formats.source import (
    Conversation,
    ForeignMessage,
    Results,
    Source,
    branch_to,
    read_each,
    tool_call,
    without,
)
from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.messages import Part
from gptsh.models.usage import FINISH_REASONS

# ---- chatgpt
#
# Import of ChatGPT's data export, ``conversations.json``: each conversation in the branch that was
# last shown.
#
# Messages are nodes of a tree. A tool call is an answer whose ``recipient`` is the tool. Files are
# beside the export: references to them are stored as they are, and no file is opened.

CHATGPT = "chatgpt"
# Content types whose records are left out if they have no parts. Of any other type, the whole content becomes a part.
_EMPTY = {"text", "multimodal_text", "thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"}


def read_chatgpt(source: Source) -> Results | None:
    """A session for each conversation of an export, or for a file with a single conversation."""
    if not any(isinstance(value.get("mapping"), dict) for value in source.first_items):
        return None

    def read(value: object) -> Conversation:
        return _chatgpt_conversation(source, as_dict(value))

    return read_each(source, read, source.items())


def _chatgpt_conversation(source: Source, value: JsonObject) -> Conversation:
    key = str(value.get("conversation_id") or value["id"])
    session = Conversation(source, CHATGPT, key, title=value.get("title"), provider="openai")
    session.created_at, session.updated_at = value.get("create_time"), value.get("update_time")
    session.model, nodes = value.get("default_model_slug"), value["mapping"]
    thinking: list[Part] = []  # of the next answer
    call_id = None  # of a tool call without a result

    def messages_of(node: JsonObject) -> Iterator[ForeignMessage]:
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


def _message(record: JsonObject, metadata: JsonObject, parts: list[Part]) -> ForeignMessage:
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


def _part(part: str | Part) -> Part:
    """A text or a transcribed text as text; a reference to a file unchanged."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part["content_type"] == "audio_transcription":
        return {"type": "text", "text": part["text"]}
    return {**part, "type": part["content_type"]}


# ---- claude ai
#
# Import of Claude.ai's data export, ``conversations.json``: each conversation in the branch that
# was last shown.
#
# An answer has its thinking, its tool calls and their results as blocks. Of an uploaded file, the
# export has the name and the extracted text.

CLAUDE_AI = "claude-ai"
_BLOCK_KEYS = {  # the keys that are read of each type; the others are for the web page
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "name", "content", "is_error"),
}


def read_claude_ai(source: Source) -> Results | None:
    """A session for each conversation of an export, or for a file with a single conversation."""
    if not any(isinstance(value.get("chat_messages"), list) for value in source.first_items):
        return None

    def read(value: object) -> Conversation:
        return _claude_conversation(source, as_dict(value))

    return read_each(source, read, source.items())


def _claude_conversation(source: Source, value: JsonObject) -> Conversation:
    session = Conversation(source, CLAUDE_AI, str(value["uuid"]), title=value.get("name"), provider="anthropic")
    session.created_at, session.updated_at = value.get("created_at"), value.get("updated_at")
    session.model, records = value.get("model"), value["chat_messages"]
    if any("parent_message_uuid" in record for record in records):  # older exports have no branches
        newest = max(reversed(records), key=lambda record: record.get("created_at") or "")  # of equal times the last
        leaf = value.get("current_leaf_message_uuid") or newest["uuid"]
        records = branch_to(leaf, {record["uuid"]: record for record in records}, "parent_message_uuid")
    for record in records:
        session.add_record(_messages, record)
    return session


def _messages(record: JsonObject) -> Iterator[ForeignMessage]:
    """A question with its attached texts and the names of other files; or an answer, split at its tool results."""
    moment, blocks = {"timestamp": record.get("created_at")}, _blocks(record)
    if record["sender"] == "human":
        parts = [block for block in blocks if block.get("text")]
        for file in as_dicts(record.get("attachments")):
            text, name = file.get("extracted_content") or "", file.get("file_name") or "attachment"
            parts.append({"type": "text", "text": text, "source": name})
        for file in as_dicts(record.get("files")):
            parts.append({**file, "type": "attachment", "source": file.get("file_name") or "attachment"})
        content = parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts
        yield {"id": record["uuid"], "role": "user", "content": content, **moment}
        return
    for at, (is_result, group) in enumerate(groupby(blocks, lambda block: block["type"] == "tool_result")):
        ident = {} if at else {"id": record["uuid"]}
        yield {**ident, "role": "user" if is_result else "assistant", "content": [*group], **moment}


def _blocks(record: JsonObject) -> list[Part]:
    """The blocks as in Anthropic's API. Older exports lack call ids: there, results are in the order of the calls."""
    converted: list[Part] = []
    pending: list[str] = []  # ids of calls without a result
    for at, block in enumerate(record.get("content") or [{"type": "text", "text": record["text"]}]):
        keys = _BLOCK_KEYS.get(block["type"], tuple(block))
        new = {"type": block["type"], **{key: block[key] for key in keys if block.get(key) not in (None, [])}}
        if new["type"] == "tool_use":
            pending.append(new.setdefault("id", f"{record['uuid']}:{at}"))
        elif new["type"] == "tool_result" and pending:
            new.setdefault("tool_use_id", pending.pop(0))
        for item in as_dicts(new.get("content")):
            if item.get("type") == "knowledge":  # a page that a web search found
                item |= {"type": "text", "text": "\n".join(filter(None, map(item.get, ("title", "url", "text"))))}
        converted.append(new)
    return converted
