"""Import and export nanobot's sessions: a line of metadata, then a message a line.

The Python releases and the Go port of nanobot write the same keys in different orders and styles,
so the text of each line is stored.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from gptsh.content.attachments import Kind, media_in
from gptsh.content.passages import one_text
from gptsh.context.sendable import make_sendable
from gptsh.core.document import Document
from gptsh.formats.openai import from_chat, json_line, openai_content, plain_call
from gptsh.formats.source import (
    Conversation,
    ForeignMessage,
    Line,
    Results,
    Source,
    label,
    utc,
)
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str, parse_json
from gptsh.messages import REASONING_FIELDS, TAGGED, THINKING_BLOCKS, Message, Part, final_answer

NAME = "nanobot"
_METADATA = "metadata"  # ``_type`` of the records that are not messages
_STATE = "provider_state"
# How many messages are in the memory. nanobot 0.3.5 writes both, and reads the first.
_OFFSET_KEYS = ("last_archived", "last_consolidated")
# In a file about a turn that is not finished.
_CHECKPOINT = {"session_key", "base_message_count", "checkpoint"}
_IMAGES: tuple[Kind, ...] = ("image",)  # that a message can have besides text
_UNSAFE = re.compile(r'[<>:"/\\|?*]')


# ---- import


def read(source: Source) -> Results | None:
    """Return the session of a file with a line of metadata."""
    if any(value.get("_type") == _METADATA for value in source.first):
        return _session(source).results(allow_empty=True)
    if source.first and source.first[0].keys() >= _CHECKPOINT:
        why = "an unfinished turn that nanobot has not saved in its session"
        return iter([source.skipped(why)])
    return None


def _session(source: Source) -> Conversation:
    """Return the session in the lines: metadata, of which the last line counts, and records."""
    headers: list[Line] = []
    records: list[Line] = []
    for line in source.lines:
        if line.value.get("_type") == _METADATA:
            headers.append(line)
        else:
            records.append(line)
    header = headers[-1]
    session = _new_session(source, header, records)
    offset = session.extra["offset"]

    number = 0  # of the record, as nanobot counts them
    text_lines: list[str] = []  # since the last message: records that are none, and the next one
    for line in records:
        if _is_counted(line.value):
            number += 1
        text_lines.append(_text(line))
        if _is_message(line.value):
            message = _message(line.value, session)
            message["source"] = {"lines": text_lines}
            if session.add_message(message, line.number):
                text_lines = []
        if number == offset:
            session.consolidated = len(session.messages)
    if text_lines:
        session.extra["after"] = text_lines
    return session


def _new_session(source: Source, header: Line, records: list[Line]) -> Conversation:
    """Return the session as its line of metadata describes it, without messages."""
    metadata = header.value
    name = as_str(metadata.get("key")).strip()
    if not name and source.path:  # before 2026-02-20 no line had the key
        name = source.path.stem.replace("_", ":", 1)
    start = metadata.get("created_at")
    for line in records:
        start = start or line.value.get("timestamp")
    count = sum(1 for line in records if _is_counted(line.value))
    title = label(as_dict(metadata.get("metadata")).get("title"))
    return Conversation(
        source,
        NAME,
        f"{name} {start or ''}".strip(),
        title=title or name,
        created_at=metadata.get("created_at"),
        updated_at=metadata.get("updated_at"),
        skipped=source.bad_lines,
        extra={
            "name": name,
            "header": _text(header),
            "count": count,
            "offset": _offset(metadata, count),
        },
    )


def _offset(metadata: JsonObject, count: int) -> int:
    """Return how many of the messages are in the memory; like nanobot, 0 if that is invalid."""
    for key in _OFFSET_KEYS:
        offset = metadata.get(key)
        if type(offset) is int and 0 <= offset <= count:
            return offset
    return 0


def _message(value: JsonObject, session: Conversation) -> ForeignMessage:
    """Return the message in a record, which has the keys of OpenAI's API and a time."""
    message = from_chat(value)
    moment = value.get("timestamp")
    if moment:  # nanobot rewrites content, so the time and the role identify a message
        message["id"] = session.derived_id([moment, value.get("role")])
    return message


def _text(line: Line) -> str:
    """Return the text of a line, byte for byte; of an item of an array, its JSON."""
    return line.text or json_line(line.value)


def _is_counted(value: JsonObject) -> bool:
    """Return whether nanobot counts a record as a message."""
    return value.get("_type") not in (_METADATA, _STATE)


def _is_message(value: JsonObject) -> bool:
    """Return whether a record is a message, even a malformed one.

    A record with another type is one only if it has a role.
    """
    record_type = value.get("_type")
    if record_type == _STATE:
        return False
    return isinstance(value.get("role"), str) or not isinstance(record_type, str)


# ---- the session's name in nanobot


def session_key(doc: Document, name: str | None) -> str:
    """Return the key in nanobot: that of the import, else its ``@NAME``, else ``gptsh:<id>``."""
    own_key = name.removeprefix("@") if name else f"gptsh:{doc['id']}"
    return str(_imported(doc).get("name") or own_key)


def file_names(key: str) -> tuple[str, str]:
    """Return the names of the session's file: for nanobot up to 0.2.2, and since 0.3.0."""
    old_name = _UNSAFE.sub("_", key.replace(":", "_")).strip()
    encoded = base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).decode()
    return f"{old_name}.jsonl", f"{encoded.rstrip('=')}.jsonl"


def _imported(doc: Document) -> JsonObject:
    """Return what the import stored about the session's file; empty if nanobot had none."""
    imported = as_dict(doc["meta"].get("imported"))
    return imported if imported.get("format") == NAME else {}


# ---- export


def write(doc: Document, key: str) -> Iterator[str]:
    """Yield the session in the lines that nanobot would write.

    System messages are left out: nanobot has its own. Lines that were imported are written as they
    were, byte for byte.
    """
    imported = _imported(doc)
    lines: list[str] = []
    offset = 0
    functions: dict[str, object] = {}  # id of a tool call: name of its function
    for message in doc["messages"]:
        for call in message.get("tool_calls") or ():
            functions[call["id"]] = call["function"].get("name")
        known_lines = _imported_lines(message) if imported else []
        lines += known_lines or _new_lines(message, functions)
        if message["id"] == doc["context"].get("consolidated"):
            offset = _count(lines)
    lines += _valid_lines(imported.get("after"))

    title = doc["title"] or imported.get("title")
    facts = {"name": key, "count": _count(lines), "offset": offset, "title": title}
    has_changed = imported | facts != imported
    header = _valid_lines([imported.get("header")])
    if has_changed or not header:
        old_header = parse_json(header[0]) if header else {}
        header = [_header(doc, key, offset, old=old_header, old_title=imported.get("title"))]
    for line in header + lines:
        yield f"{line}\n"


def _imported_lines(message: Message) -> list[str]:
    """Return the lines of the file that the message came from; none if they are not valid."""
    source = as_dict(as_dict(message).get("source"))
    return _valid_lines(source.get("lines"))


def _new_lines(message: Message, functions: Mapping[str, object]) -> list[str]:
    """Return the lines for a message that was not imported; none for a system message."""
    lines = []
    for sent in make_sendable([message]):
        if sent["role"] != "system":
            lines.append(json_line(_to_nanobot(sent, functions)))
    return lines


def _valid_lines(lines: object) -> list[str]:
    """Return stored lines, unless one is not a JSON object on one line: no file is trusted."""
    if not isinstance(lines, list):
        return []
    try:
        values = [parse_json(line) for line in lines]
    except (ValueError, TypeError, RecursionError):
        return []
    are_objects = all(isinstance(value, dict) for value in values)
    return lines if are_objects and "\n" not in "".join(lines) else []


def _count(lines: list[str]) -> int:
    """Return how many of the lines nanobot counts as messages."""
    return sum(1 for line in lines if _is_counted(parse_json(line)))


def _header(doc: Document, key: str, offset: int, *, old: JsonObject, old_title: object) -> str:
    """Return the line of metadata: the ``old`` one with the current values."""
    metadata = as_dict(old.get("metadata"))
    if doc["title"] and doc["title"] != old_title:
        metadata = {**metadata, "title": doc["title"]}
    header: JsonObject = {
        "_type": _METADATA,
        "key": key,
        "created_at": _time(doc["created_at"], old.get("created_at")),
        "updated_at": _time(doc["updated_at"], old.get("updated_at")),
        "metadata": metadata,
    }
    for name in _OFFSET_KEYS:
        # An old release does not know the first key, but all read the second.
        if name in old or not old or name == "last_consolidated":
            header[name] = offset
    return json_line(header)


def _time(moment: str, old: object = None) -> str:
    """Return our timestamp as nanobot writes it: local time without a zone, unless it had one."""
    if isinstance(old, str) and utc(old) == moment:
        return datetime.fromisoformat(old).isoformat()
    return datetime.fromisoformat(moment).astimezone().replace(tzinfo=None).isoformat()


def _to_nanobot(message: Message, functions: Mapping[str, object]) -> JsonObject:
    """Return our message with nanobot's keys, in its order.

    ``functions`` are the names of functions by the ids of their calls.
    """
    if message["role"] == "user":
        new = {"role": "user", "content": openai_content(message, _IMAGES)}
    elif message["role"] == "assistant":
        new = _answer(message)
    else:
        new = _result(message, functions)
    moment = utc(message.get("timestamp"))
    if moment:
        new["timestamp"] = _time(moment)
    return new


def _answer(message: Message) -> JsonObject:
    """Return an answer with nanobot's keys: its text, its tool calls, its reasoning."""
    new: JsonObject = {"role": "assistant", "content": one_text(final_answer(message))}
    calls = [plain_call(call) for call in message.get("tool_calls") or ()]
    if calls:
        new["tool_calls"] = calls
    return new | _reasoning(message)


def _result(message: Message, functions: Mapping[str, object]) -> JsonObject:
    """Return a tool result with nanobot's keys. Only one with images has its content in parts."""
    new: JsonObject = {"role": message["role"]}
    call_id = message.get("tool_call_id")
    if call_id:
        new["tool_call_id"] = call_id
    name = message.get("name") or functions.get(call_id or "")
    if name:
        new["name"] = name
    if any(media.kind == "image" for _, media in media_in(message)):
        new["content"] = openai_content(message, _IMAGES)
    else:
        new["content"] = one_text(message)
    return new


def _reasoning(message: Message) -> JsonObject:
    """Return an answer's reasoning: signed blocks, which nanobot sends back, the rest as text."""
    replay = as_dict(message.get("replay"))
    text = ""
    for key in (*REASONING_FIELDS, TAGGED):
        text = text or as_str(replay.get(key))
    signed: list[Part] = []
    unsigned: list[str] = []
    for block in as_dicts(message.get("thinking")):
        if block.get("signature") or block.get("type") == "redacted_thinking":
            signed.append(block)
        else:
            unsigned.append(str(block.get("thinking", "")))
    text = text or "\n\n".join(unsigned)

    reasoning: JsonObject = {}
    if text or signed:
        reasoning[REASONING_FIELDS[0]] = text
    if signed:
        reasoning[THINKING_BLOCKS] = signed
    return reasoning
