"""Claude.ai's data export, ``conversations.json``: of each conversation the branch that was last shown.

An answer carries its thinking, its calls and their results as blocks. Of an uploaded file the export has the name, and
the text that was extracted from it.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from gptsh.formats.conversation import Conversation, branch_to, read_each
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dicts
from gptsh.messages import Part

NAME = "claude-ai"
_BLOCKS = {  # what is taken of each; their other keys are for the page that shows them
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "name", "content", "is_error"),
}


def read(source: Source) -> Results | None:
    """A session for each conversation of the export, or of one that stands alone."""
    found = [source.value] if isinstance(source.value, dict) else source.value
    if not any(isinstance(one.get("chat_messages"), list) for one in as_dicts(found)):
        return None
    return read_each(source, lambda value: _conversation(source, value), found)


def _conversation(source: Source, value: dict[str, Any]) -> Conversation:
    session = Conversation(source, NAME, str(value["uuid"]), title=value.get("name"), provider="anthropic")
    session.created_at, session.updated_at = value.get("created_at"), value.get("updated_at")
    session.model, records = value.get("model"), value["chat_messages"]
    if any("parent_message_uuid" in record for record in records):  # older exports have no branches
        newest = max(records, key=lambda record: record.get("created_at") or "")
        last = value.get("current_leaf_message_uuid") or newest["uuid"]
        records = branch_to(last, {record["uuid"]: record for record in records}, "parent_message_uuid")
    for record in records:
        session.add_record(_said, record)
    return session


def _said(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A question with the texts that were attached, and what names other files; an answer cut at its results."""
    moment, blocks = {"timestamp": record.get("created_at")}, _blocks(record)
    if record["sender"] == "human":
        parts = [block for block in blocks if block.get("text")]
        for file in as_dicts(record.get("attachments")):
            named = {"source": file.get("file_name") or "attachment"}
            parts.append({"type": "text", "text": file.get("extracted_content") or "", **named})
        parts += [{**file, "type": "attachment"} for file in as_dicts(record.get("files"))]
        words = parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts
        yield {"id": record["uuid"], "role": "user", "content": words, **moment}
        return
    for at, (is_result, some) in enumerate(groupby(blocks, lambda block: block["type"] == "tool_result")):
        named = {} if at else {"id": record["uuid"]}
        yield {**named, "role": "user" if is_result else "assistant", "content": [*some], **moment}


def _blocks(record: dict[str, Any]) -> list[Part]:
    """The blocks as Anthropic's API has them. Where an older export gives calls no ids, results answer in order."""
    found: list[Part] = []
    waiting: list[str] = []
    for at, block in enumerate(record.get("content") or [{"type": "text", "text": record["text"]}]):
        keys = _BLOCKS.get(block["type"], tuple(block))
        new = {"type": block["type"], **{key: block[key] for key in keys if block.get(key) not in (None, [])}}
        if new["type"] == "tool_use":
            waiting.append(new.setdefault("id", f"{record['uuid']}:{at}"))
        elif new["type"] == "tool_result" and waiting:
            new.setdefault("tool_use_id", waiting.pop(0))
        found.append(new)
    return found
