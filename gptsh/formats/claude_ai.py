"""Import of Claude.ai's data export, ``conversations.json``: each conversation in the branch that was last shown.

An answer has its thinking, its tool calls and their results as blocks. Of an uploaded file, the export has the name and
the extracted text.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from gptsh.formats.conversation import Conversation, branch_to, read_each
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dicts
from gptsh.messages import Part

NAME = "claude-ai"
_BLOCK_KEYS = {  # the keys that are read of each type; the others are for the web page
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "name", "content", "is_error"),
}


def read(source: Source) -> Results | None:
    """A session for each conversation of an export, or for a file with a single conversation."""
    if not any(isinstance(value.get("chat_messages"), list) for value in source.first_items):
        return None
    return read_each(source, lambda value: _conversation(source, value), source.items())


def _conversation(source: Source, value: dict[str, Any]) -> Conversation:
    session = Conversation(source, NAME, str(value["uuid"]), title=value.get("name"), provider="anthropic")
    session.created_at, session.updated_at = value.get("created_at"), value.get("updated_at")
    session.model, records = value.get("model"), value["chat_messages"]
    if any("parent_message_uuid" in record for record in records):  # older exports have no branches
        newest = max(reversed(records), key=lambda record: record.get("created_at") or "")  # of equal times the last
        leaf = value.get("current_leaf_message_uuid") or newest["uuid"]
        records = branch_to(leaf, {record["uuid"]: record for record in records}, "parent_message_uuid")
    for record in records:
        session.add_record(_messages, record)
    return session


def _messages(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
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


def _blocks(record: dict[str, Any]) -> list[Part]:
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
