"""nanobot's sessions: a line of metadata, then a message a line. What it wrote comes out again byte for byte.

Its Python releases and its Go port write the same keys in other orders and styles, so the text of each line is kept.
"""

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from gptsh.content.attachments import Kind, media_in
from gptsh.content.passages import one_text
from gptsh.context.valid import sendable
from gptsh.core.document import Document
from gptsh.formats.conversation import Conversation, label, utc
from gptsh.formats.openai import from_chat, json_line, openai_content, plain_call
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict, as_dicts, parse_json
from gptsh.messages import REASONING_FIELDS, THINKING_BLOCKS, Message

NAME = "nanobot"
_METADATA, _STATE = "metadata", "provider_state"  # records that are no messages
_COUNTS = ("last_archived", "last_consolidated")  # how many messages are in the memory; 0.3.5 writes both
_CHECKPOINT = {"session_key", "base_message_count", "checkpoint"}  # of a turn that goes on, beside its session
_IMAGES: tuple[Kind, ...] = ("image",)  # what stands in a message there besides text
_UNSAFE = re.compile(r'[<>:"/\\|?*]')


# ---- in


def read(source: Source) -> Results | None:
    """The session of a file that has a line of metadata"""
    if any(value.get("_type") == _METADATA for value in source.first):
        return _session(source).results(allow_empty=True)
    if source.first and source.first[0].keys() >= _CHECKPOINT:
        return iter([source.skipped("a turn that nanobot had not put into its session yet")])
    return None


def _session(source: Source) -> Conversation:
    head = [found for found in source.lines if found.value.get("_type") == _METADATA][-1]
    records = [found for found in source.lines if found.value.get("_type") != _METADATA]
    named, created = head.value.get("key"), head.value.get("created_at")
    stem = source.path.stem.replace("_", ":", 1) if source.path else ""  # before 2026-02-20 no line had the key
    name = named if isinstance(named, str) and named.strip() else stem
    began = created or next((found.value["timestamp"] for found in records if "timestamp" in found.value), "")
    title = label(as_dict(head.value.get("metadata")).get("title")) or name
    count = sum(map(_counts, (found.value for found in records)))
    offset = next((head.value[key] for key in _COUNTS if type(head.value.get(key)) is int), 0)
    offset = offset if 0 <= offset <= count else 0  # as nanobot understands it
    session = Conversation(
        source, NAME, f"{name} {began}".strip(), title=title, created_at=created,
        updated_at=head.value.get("updated_at"), skipped=source.broken,
        extra={"name": name, "header": head.raw, "count": count, "offset": offset},
    )  # fmt: skip
    passed: list[str] = []  # records that are no messages of ours, in front of one
    counted = 0
    for found in records:
        value, kind = found.value, found.value.get("_type")
        counted += _counts(value)
        is_message = kind != _STATE and (not isinstance(kind, str) or isinstance(value.get("role"), str))
        # nanobot rewrites its messages, so what tells one from another is who said it, and when.
        said = {"id": session.derived_id([value["timestamp"], value.get("role")])} if value.get("timestamp") else {}
        if is_message and session.add_message(
            {**from_chat(value), **said, "source": {"lines": [*passed, found.raw]}}, found.number
        ):
            passed = []
        else:
            passed = [*passed, found.raw]
        if counted == offset:
            session.consolidated = len(session.messages)
    if passed:
        session.extra["after"] = passed
    return session


def _counts(value: Mapping[str, Any]) -> bool:
    """Whether nanobot takes a record for a message: whatever else it is."""
    return value.get("_type") not in (_METADATA, _STATE)


# ---- its name there


def session_key(doc: Document, name: str | None) -> str:
    """The session's key in nanobot: its own where it came from there, else its ``@NAME``, else ``gptsh:<id>``."""
    return str(_imported(doc).get("name") or (name or "").removeprefix("@") or f"gptsh:{doc['id']}")


def file_names(key: str) -> tuple[str, str]:
    """The names of its file, as nanobot had them up to 0.2.2 and has them since 0.3.0."""
    encoded = base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    return f"{_UNSAFE.sub('_', key.replace(':', '_')).strip()}.jsonl", f"{encoded}.jsonl"


def _imported(doc: Document) -> dict[str, Any]:
    """What is known of the file that a session came from; nothing where that was none of nanobot's."""
    found = as_dict(doc["meta"].get("imported"))
    return found if found.get("format") == NAME else {}


# ---- out


def write(doc: Document, key: str) -> Iterator[str]:
    """The session as nanobot's own manager writes it, line by line. System messages are left out: it has its own."""
    imported = _imported(doc)
    lines: list[str] = []
    count = offset = 0
    names: dict[str, Any] = {}  # of functions, by the ids of calls
    for message in doc["messages"]:
        names.update({call["id"]: call["function"].get("name") for call in message.get("tool_calls") or ()})
        came = as_dict(as_dict(message).get("source")) if imported else {}
        if not (new := _kept(came.get("lines"))):
            new = [json_line(_written(one, names)) for one in sendable([message]) if one["role"] != "system"]
        count += sum(_counts(parse_json(text)) for text in new)
        lines += new
        if message["id"] == doc["context"].get("consolidated"):
            offset = count
    rest = _kept(imported.get("after"))
    count += sum(_counts(parse_json(text)) for text in rest)
    now = {"name": key, "count": count, "offset": offset, "title": doc["title"] or imported.get("title")}
    header = _kept([imported.get("header")])
    if not header or now != {name: imported.get(name) for name in now}:
        header = [_header(doc, key, offset, parse_json(header[0]) if header else {}, imported.get("title"))]
    yield from (f"{text}\n" for text in (*header, *lines, *rest))


def _kept(lines: object) -> list[str]:
    """The lines that were kept as they came; none where one is no object on a line: the document may be anybody's."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        if isinstance(lines, list) and all("\n" not in text and isinstance(parse_json(text), dict) for text in lines):
            return lines
    return []


def _header(doc: Document, key: str, offset: int, had: dict[str, Any], title: object) -> str:
    """The line of metadata: what it had, with what is another now."""
    metadata = as_dict(had.get("metadata"))
    if doc["title"] and doc["title"] != title:
        metadata = {**metadata, "title": doc["title"]}
    counts = [name for name in _COUNTS if name in had or not had or name == _COUNTS[-1]]
    times = {}
    for name in ("created_at", "updated_at"):
        came = had.get(name) if isinstance(had.get(name), str) and utc(had[name]) == doc[name] else None
        times[name] = datetime.fromisoformat(came).isoformat() if came else _local(doc[name])
    return json_line({"_type": _METADATA, "key": key, **times, "metadata": metadata, **dict.fromkeys(counts, offset)})


def _local(moment: str) -> str:
    """A time of ours as nanobot stamps: local, without saying so."""
    return datetime.fromisoformat(moment).astimezone().replace(tzinfo=None).isoformat()


def _written(message: Message, names: Mapping[str, Any]) -> dict[str, Any]:
    """A message of ours with nanobot's keys in its order."""
    said: dict[str, Any] = {"role": message["role"]}
    if message["role"] == "user":
        said["content"] = openai_content(message, _IMAGES)
    elif message["role"] == "assistant":
        calls = [plain_call(call) for call in message.get("tool_calls") or ()]
        said |= {"content": one_text(message), **({"tool_calls": calls} if calls else {}), **_thought(message)}
    else:
        ident = message.get("tool_call_id")
        found = {"tool_call_id": ident, "name": message.get("name") or names.get(ident or "")}
        said |= {key: value for key, value in found.items() if value}
        has_images = any(media.kind == "image" for _, media in media_in(message))
        said["content"] = openai_content(message, _IMAGES) if has_images else one_text(message)
    moment = utc(message.get("timestamp"))
    return said | ({"timestamp": _local(moment)} if moment else {})


def _thought(message: Message) -> dict[str, Any]:
    """An answer's reasoning: what is signed in blocks, which nanobot sends back, all else as text, which it may."""
    replay, blocks = as_dict(message.get("replay")), as_dicts(message.get("thinking"))
    signed = [block for block in blocks if block.get("signature") or block.get("type") == "redacted_thinking"]
    texts = [said for key in REASONING_FIELDS if isinstance(said := replay.get(key), str)]
    texts += ["\n\n".join(str(block.get("thinking", "")) for block in blocks if block not in signed)]
    text = next(filter(None, texts), "")
    if not text and not signed:
        return {}
    return {REASONING_FIELDS[0]: text, **({THINKING_BLOCKS: signed} if signed else {})}
