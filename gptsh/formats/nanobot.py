"""Import and export nanobot's sessions: a line of metadata, then a message a line.

The Python releases and the Go port of nanobot write the same keys in different orders and styles,
so the text of each line is stored.
"""

import base64
import contextlib
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
    headers = [line for line in source.lines if line.value.get("_type") == _METADATA]
    records = [line for line in source.lines if line.value.get("_type") != _METADATA]
    header = headers[-1]  # the last one counts
    name = as_str(header.value.get("key")).strip()
    if not name and source.path:  # before 2026-02-20 no line had the key
        name = source.path.stem.replace("_", ":", 1)
    start = header.value.get("created_at")
    for line in records:
        start = start or line.value.get("timestamp")
    count = sum(_is_counted(line.value) for line in records)
    offset = _offset(header.value, count)
    session = Conversation(
        source,
        NAME,
        f"{name} {start or ''}".strip(),
        title=label(as_dict(header.value.get("metadata")).get("title")) or name,
        created_at=header.value.get("created_at"),
        updated_at=header.value.get("updated_at"),
        skipped=source.bad_lines,
        extra={"name": name, "header": _text(header), "count": count, "offset": offset},
    )

    number = 0  # of the record, as nanobot counts them
    others: list[str] = []  # records that are not messages, before the next message
    for line in records:
        number += _is_counted(line.value)
        others.append(_text(line))
        if _is_message(line.value):
            message = _message(line.value, session)
            if session.add_message({**message, "source": {"lines": others}}, line.number):
                others = []
        if number == offset:
            session.consolidated = len(session.messages)
    if others:
        session.extra["after"] = others
    return session


def _offset(header: JsonObject, count: int) -> int:
    """Return how many of the messages are in the memory; like nanobot, 0 if that is invalid."""
    for key in _OFFSET_KEYS:
        offset = header.get(key)
        if type(offset) is int and 0 <= offset <= count:
            return offset
    return 0


def _message(value: JsonObject, session: Conversation) -> ForeignMessage:
    message = from_chat(value)
    moment = value.get("timestamp")
    if moment:  # nanobot rewrites content, so the time and the role identify a message
        message["id"] = session.derived_id([moment, value.get("role")])
    return message


def _text(line: Line) -> str:
    return line.text or json_line(line.value)


def _is_counted(value: JsonObject) -> bool:
    """Return whether nanobot counts a record as a message."""
    return value.get("_type") not in (_METADATA, _STATE)


def _is_message(value: JsonObject) -> bool:
    """Return whether a record is a message, even a malformed one.

    A type of its own says what else.
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
    names: dict[str, object] = {}  # id of a tool call: name of its function
    for message in doc["messages"]:
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"].get("name")
        origin = as_dict(as_dict(message).get("source")) if imported else {}
        known_lines = _valid_lines(origin.get("lines"))
        lines += known_lines
        if not known_lines:
            for sent in make_sendable([message]):
                if sent["role"] != "system":
                    lines.append(json_line(_to_nanobot(sent, names)))
        if message["id"] == doc["context"].get("consolidated"):
            offset = _count(lines)
    lines += _valid_lines(imported.get("after"))

    title = doc["title"] or imported.get("title")
    facts = {"name": key, "count": _count(lines), "offset": offset, "title": title}
    header = _valid_lines([imported.get("header")])
    if not header or imported | facts != imported:
        old_header = parse_json(header[0]) if header else {}
        header = [_header(doc, key, offset, old=old_header, old_title=imported.get("title"))]
    for line in header + lines:
        yield f"{line}\n"


def _valid_lines(lines: object) -> list[str]:
    """Return the stored lines; none if one is no JSON object on one line: files are not trusted."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        if isinstance(lines, list) and "\n" not in "".join(lines):
            return lines if all(isinstance(parse_json(line), dict) for line in lines) else []
    return []


def _count(lines: list[str]) -> int:
    return sum(_is_counted(parse_json(line)) for line in lines)


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
        if name in old or not old or name == "last_consolidated":
            header[name] = offset
    return json_line(header)


def _time(moment: str, old: object = None) -> str:
    """Return our timestamp as nanobot writes it: local time without a zone, unless it had one."""
    if isinstance(old, str) and utc(old) == moment:
        return datetime.fromisoformat(old).isoformat()
    return datetime.fromisoformat(moment).astimezone().replace(tzinfo=None).isoformat()


def _to_nanobot(message: Message, names: Mapping[str, object]) -> JsonObject:
    """Return our message with nanobot's keys, in its order.

    ``names`` has the functions by the ids of their calls.
    """
    role = message["role"]
    new: JsonObject = {"role": role}
    if role == "user":
        new["content"] = openai_content(message, _IMAGES)
    elif role == "assistant":
        new["content"] = one_text(final_answer(message))
        calls = [plain_call(call) for call in message.get("tool_calls") or ()]
        if calls:
            new["tool_calls"] = calls
        new |= _reasoning(message)
    else:
        call_id = message.get("tool_call_id")
        if call_id:
            new["tool_call_id"] = call_id
        name = message.get("name") or names.get(call_id or "")
        if name:
            new["name"] = name
        has_images = any(media.kind == "image" for _, media in media_in(message))
        new["content"] = openai_content(message, _IMAGES) if has_images else one_text(message)
    moment = utc(message.get("timestamp"))
    if moment:
        new["timestamp"] = _time(moment)
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
    if signed:
        return {REASONING_FIELDS[0]: text, THINKING_BLOCKS: signed}
    return {REASONING_FIELDS[0]: text} if text else {}
