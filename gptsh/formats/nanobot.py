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
from gptsh.formats.source import Conversation, Line, Results, Source, label, utc, without
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str, parse_json
from gptsh.messages import REASONING_FIELDS, TAGGED, THINKING_BLOCKS, Message, Part, final_answer

NAME = "nanobot"
_METADATA, _STATE = "metadata", "provider_state"  # ``_type`` of records that are not messages
_OFFSET_KEYS = (
    "last_archived",
    "last_consolidated",
)  # how many messages are in the memory; 0.3.5 writes both
_CHECKPOINT = {
    "session_key",
    "base_message_count",
    "checkpoint",
}  # in a file about a turn that is not finished
_IMAGES: tuple[Kind, ...] = ("image",)  # that a message can have besides text
_UNSAFE = re.compile(r'[<>:"/\\|?*]')


# ---- import


def read(source: Source) -> Results | None:
    """The session of a file with a line of metadata."""
    if any(value.get("_type") == _METADATA for value in source.first):
        return _session(source).results(allow_empty=True)
    if source.first and source.first[0].keys() >= _CHECKPOINT:
        why = "an unfinished turn that nanobot has not saved in its session"
        return iter([source.skipped(why)])
    return None


def _session(source: Source) -> Conversation:
    header = JsonObject()
    header_text = ""
    records: list[Line] = []
    for line in source.lines:
        if line.value.get("_type") == _METADATA:  # the last one counts
            header = line.value
            header_text = _text(line)
        else:
            records.append(line)
    name = as_str(header.get("key")).strip()
    if not name and source.path:  # before 2026-02-20 no line had the key
        name = source.path.stem.replace("_", ":", 1)
    times = [header.get("created_at"), *(line.value.get("timestamp") for line in records)]
    start = next(filter(None, times), "")
    total = sum(_is_counted(line.value) for line in records)
    offset = 0
    for key in reversed(_OFFSET_KEYS):
        if type(header.get(key)) is int and 0 <= header[key] <= total:  # like nanobot
            offset = header[key]
    session = Conversation(
        source,
        NAME,
        f"{name} {start}".strip(),
        title=label(as_dict(header.get("metadata")).get("title")) or name,
        created_at=header.get("created_at"),
        updated_at=header.get("updated_at"),
        skipped=source.bad_lines,
        extra={"name": name, "header": header_text, "count": total, "offset": offset},
    )

    others: list[str] = []  # records that are not messages, before the next message
    count = 0
    for line in records:
        value = line.value
        kind = value.get("_type")
        count += _is_counted(value)
        message = {**from_chat(value), "source": {"lines": [*others, _text(line)]}}
        moment = value.get("timestamp")
        if moment:  # nanobot rewrites content, so the time and the role identify a message
            message["id"] = session.derived_id([moment, value.get("role")])
        has_role = isinstance(value.get("role"), str)
        is_message = kind != _STATE and (has_role or not isinstance(kind, str))
        if is_message and session.add_message(message, line.number):
            others.clear()
        else:
            others.append(_text(line))
        if count == offset:
            session.consolidated = len(session.messages)
    if others:
        session.extra["after"] = others
    return session


def _text(line: Line) -> str:
    return line.text or json_line(line.value)


def _is_counted(value: JsonObject) -> bool:
    """Whether nanobot counts a record as a message."""
    return value.get("_type") not in (_METADATA, _STATE)


# ---- the session's name in nanobot


def session_key(doc: Document, name: str | None) -> str:
    """The session's key in nanobot: that of the import, else its ``@NAME``, else ``gptsh:<id>``."""
    return str(_imported(doc).get("name") or (name or "").removeprefix("@") or f"gptsh:{doc['id']}")


def file_names(key: str) -> tuple[str, str]:
    """The names of the session's file: for nanobot up to 0.2.2, and since 0.3.0."""
    encoded = base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    return f"{_UNSAFE.sub('_', key.replace(':', '_')).strip()}.jsonl", f"{encoded}.jsonl"


def _imported(doc: Document) -> JsonObject:
    """What the import stored about the session's file of nanobot; empty if there was none."""
    imported = as_dict(doc["meta"].get("imported"))
    return imported if imported.get("format") == NAME else {}


# ---- export


def write(doc: Document, key: str) -> Iterator[str]:
    """The session in the lines that nanobot would write.

    System messages are left out: nanobot has its own.
    """
    imported = _imported(doc)
    lines: list[str] = []
    count = offset = 0
    names: dict[str, object] = {}  # id of a tool call: name of its function
    for message in doc["messages"]:
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"].get("name")
        origin = as_dict(as_dict(message).get("source")) if imported else {}
        new = _valid_lines(origin.get("lines"))
        if not new:
            sent = [one for one in make_sendable([message]) if one["role"] != "system"]
            new = [json_line(_to_nanobot(one, names)) for one in sent]
        count += sum(_is_counted(parse_json(text)) for text in new)
        lines += new
        if message["id"] == doc["context"].get("consolidated"):
            offset = count
    rest = _valid_lines(imported.get("after"))
    count += sum(_is_counted(parse_json(text)) for text in rest)

    current = {
        "name": key,
        "count": count,
        "offset": offset,
        "title": doc["title"] or imported.get("title"),
    }
    header = _valid_lines([imported.get("header")])
    if not header or current != {name: imported.get(name) for name in current}:
        old = parse_json(header[0]) if header else {}
        header = [_header(doc, key, offset, old=old, title=imported.get("title"))]
    for text in (*header, *lines, *rest):
        yield f"{text}\n"


def _valid_lines(lines: object) -> list[str]:
    """The stored lines; none if one is no JSON object on one line: no document is trusted."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        if isinstance(lines, list) and "\n" not in "".join(lines):
            return lines if all(isinstance(parse_json(text), dict) for text in lines) else []
    return []


def _header(doc: Document, key: str, offset: int, *, old: JsonObject, title: object) -> str:
    """The line of metadata: ``old`` with the current values; ``title`` is the imported one."""
    new: JsonObject = {"_type": _METADATA, "key": key}
    for name in ("created_at", "updated_at"):
        is_same = isinstance(old.get(name), str) and utc(old[name]) == doc[name]
        new[name] = datetime.fromisoformat(old[name]).isoformat() if is_same else _local(doc[name])
    new["metadata"] = as_dict(old.get("metadata"))
    if doc["title"] and doc["title"] != title:
        new["metadata"] = {**new["metadata"], "title": doc["title"]}
    for name in _OFFSET_KEYS:
        if name in old or not old or name == _OFFSET_KEYS[-1]:
            new[name] = offset
    return json_line(new)


def _local(moment: str) -> str:
    """Our timestamp in nanobot's format: local time without a zone."""
    return datetime.fromisoformat(moment).astimezone().replace(tzinfo=None).isoformat()


def _to_nanobot(message: Message, names: Mapping[str, object]) -> JsonObject:
    """Our message with nanobot's keys, in its order. ``names`` has functions by tool call id."""
    new: JsonObject = {"role": message["role"]}
    if message["role"] == "user":
        new["content"] = openai_content(message, _IMAGES)
    elif message["role"] == "assistant":
        new["content"] = one_text(final_answer(message))
        calls = [plain_call(call) for call in message.get("tool_calls") or ()]
        if calls:
            new["tool_calls"] = calls
        new |= _reasoning(message)
    else:
        ident = message.get("tool_call_id")
        name = message.get("name") or names.get(ident or "")
        new |= without({"tool_call_id": ident or None, "name": name or None})
        has_images = any(media.kind == "image" for _, media in media_in(message))
        new["content"] = openai_content(message, _IMAGES) if has_images else one_text(message)
    moment = utc(message.get("timestamp"))
    if moment:
        new["timestamp"] = _local(moment)
    return new


def _reasoning(message: Message) -> JsonObject:
    """The reasoning of an answer: signed blocks, which nanobot sends back, and the rest as text."""
    replay = as_dict(message.get("replay"))
    texts = [as_str(replay.get(key)) for key in (*REASONING_FIELDS, TAGGED)]
    signed: list[Part] = []
    unsigned: list[str] = []
    for block in as_dicts(message.get("thinking")):
        if block.get("signature") or block.get("type") == "redacted_thinking":
            signed.append(block)
        else:
            unsigned.append(str(block.get("thinking", "")))
    text = next(filter(None, [*texts, "\n\n".join(unsigned)]), "")
    if signed:
        return {REASONING_FIELDS[0]: text, THINKING_BLOCKS: signed}
    return {REASONING_FIELDS[0]: text} if text else {}
