"""Import the sessions of codelet, nanocoder and OLLM-CLI."""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from gptsh.formats.source import (
    Conversation,
    ForeignMessage,
    Line,
    Record,
    Results,
    Source,
    answer_fields,
    provider_name,
    tool_call,
    utc,
    with_raw,
    without,
)
from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.messages import Part

# ---- codelet
#
# Sessions of codelet and fspec: lines of envelopes, or a store of all messages and manifests that
# refer to them.
#
# Long content is in blobs: files named by the SHA-256 of their content.

CODELET = "codelet"
CODELET_PATHS = (
    r"/blobs/[0-9a-f]{2}/[0-9a-f]{64}$|/messages/messages\.(idx|jsonl)$"  # the store is read with a manifest
)
_ENVELOPE = {"uuid", "timestamp", "type", "provider", "message"}
_RECORD = {"id", "content_hash", "created_at", "role", "content"}
_MANIFEST = {"id", "name", "project", "created_at", "updated_at", "messages"}
_EXTRA_KEYS = ("forked_from", "merged_from", "compaction", "token_usage")
_BLOB = re.compile(r"blob:sha256:([0-9a-f]{64})")


def read_codelet(source: Source) -> Results | None:
    """The session of a manifest, or of a file of envelopes, or of a store with all its messages."""
    value = source.value
    if isinstance(value, dict) and value.keys() >= _MANIFEST and isinstance(value["messages"], list):
        session = _manifest_session(source, value)
    elif any(one.keys() >= _RECORD or (one.keys() >= _ENVELOPE and "sessionId" not in one) for one in source.first):
        records = _records(source)
        session = Conversation(source, CODELET, next(iter(records)), skipped=source.bad_lines)
        for line in records.values():
            session.add_record(lambda line: [_codelet_message(line.value, session)], line, line.number)
    else:
        return None
    for message in session.messages:  # the last message with a model or provider decides
        session.model, session.provider = message.get("model", session.model), message.get("provider", session.provider)
    return session.results()


def _manifest_session(source: Source, manifest: JsonObject) -> Conversation:
    session = Conversation(source, CODELET, str(manifest["id"]), title=manifest["name"], cwd=manifest["project"])
    session.created_at, session.updated_at = manifest["created_at"], manifest["updated_at"]
    session.provider = provider_name(manifest.get("provider"))
    session.extra = {key: manifest[key] for key in _EXTRA_KEYS if manifest.get(key)}
    store = (source.path or Path("?")).parent / ".." / "messages" / "messages.jsonl"
    status = store.stat() if store.is_file() else None
    records = _store(store, (status.st_mtime_ns, status.st_size, status.st_ino)) if status else {}
    for item in as_dicts(manifest["messages"]):
        ident = str(item.get("message_id"))
        if ident in records:
            session.add_record(lambda line: [_codelet_message(line.value, session)], records[ident])
        else:
            session.skipped.append(source.skipped(f"message {ident:.40}: not in the store beside it"))
    return session


@lru_cache(maxsize=1)
def _store(path: Path, _stamp: tuple[int, ...]) -> dict[str, Line]:
    """The records of a store by id, cached for all its manifests until the file changes."""
    return _records(Source(str(path), path))


def _records(source: Source) -> dict[str, Line]:
    """The records or envelopes by id; the last line with an id counts."""
    return {str(line.value.get("id", line.value.get("uuid"))): line for line in source.lines}


def _codelet_message(value: JsonObject, session: Conversation) -> ForeignMessage:
    """The message in an envelope, or in a record of the store, whose ``metadata`` is an envelope.

    All three roles are checked: the tool itself records an answer of text alone as a question.
    """
    envelope = as_dict(value["metadata"]) if value.keys() >= _RECORD else value
    message = as_dict(envelope.get("message"))
    inner = message if "content" in message else value
    content = inner["content"]
    if isinstance(content, list):
        raw = envelope.get("toolUseResult")
        content = [_with_blobs(part, session) for part in (content if raw is None else with_raw(content, raw))]
    moment = envelope.get("timestamp", value.get("created_at"))
    new = {"id": value.get("id", envelope.get("uuid")), "timestamp": moment, "role": "user", "content": content}
    if "assistant" not in (inner.get("role"), envelope.get("type"), value.get("role")):
        return new
    if message.get("stop_reason") == "unknown":
        message = {**message, "stop_reason": None}
    extra = {"provider": provider_name(envelope.get("provider")), "request_id": envelope.get("requestId")}
    return {**new, "role": "assistant", **answer_fields(message), **without(extra)}


def _with_blobs(part: Part, session: Conversation) -> object:
    """The part with its blob references resolved. A part that lacks its data or thinking becomes a text about that."""
    missing: list[str] = []

    def resolved(value: object) -> object:
        if isinstance(value, dict):
            inner = {key: resolved(item) for key, item in value.items()}
            return inner.get("_blob_ref", inner)
        if not isinstance(value, str):
            return value
        reference = _BLOB.fullmatch(value)
        if not reference:
            return value
        digest = reference[1]
        blob = session.source.sibling("..", "blobs", digest[:2], digest)
        if blob and hashlib.sha256(blob.data).hexdigest() == digest:
            return blob.data.decode()
        missing.append(value)
        return value

    new = resolved(part)
    session.skipped += [session.source.skipped(f"{name}: missing, or its hash is not its name") for name in missing]
    if missing and part["type"] not in ("tool_result", "tool_use"):
        return {"type": "text", "text": f"[{part['type']}: missing]"}
    return new


# ---- nanocoder
#
# nanocoder's sessions and checkpoints, each a JSON file.

NANOCODER = "nanocoder"
NANOCODER_PATHS = r"/nanocoder/sessions/sessions\.json$|/checkpoints/[^/]+/(metadata\.json$|files/)"
_SESSION_KEYS = {"id", "title", "createdAt", "lastAccessedAt", "provider", "model", "workingDirectory", "messages"}
_METADATA_KEYS = {"name", "timestamp", "messageCount", "filesChanged", "provider"}  # in a checkpoint's metadata.json
_NANOCODER_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "structuredContent", "images")


def read_nanocoder(source: Source) -> Results | None:
    """The session; a checkpoint is also a session."""
    value = source.value
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return None
    if value.keys() >= _SESSION_KEYS:
        session = Conversation(source, NANOCODER, str(value["id"]), title=value["title"], cwd=value["workingDirectory"])
        session.created_at, session.updated_at = value["createdAt"], value["lastAccessedAt"]
        session.model, session.provider = value["model"], provider_name(value["provider"])
    else:  # a checkpoint
        file = source.sibling("metadata.json")
        metadata = as_dict(file.value if file else None)
        if not metadata.keys() >= _METADATA_KEYS:
            return None
        name, moment, provider = metadata["name"], metadata["timestamp"], as_dict(metadata["provider"])
        session = Conversation(source, NANOCODER, f"checkpoint {name} {moment}", title=name)
        session.created_at = session.updated_at = moment
        session.model, session.provider = provider.get("model"), provider_name(provider.get("name"))
        session.extra = {key: metadata[key] for key in ("description", "filesChanged") if metadata.get(key)}
    for record in value["messages"]:
        session.add_record(_nanocoder_message, record)
    return session.results()


def _nanocoder_message(record: JsonObject) -> Iterator[ForeignMessage]:
    """A message. Only the text of a tool result shows that it is an error, so ``is_error`` is not set."""
    names = ("role", "content", "tool_call_id", "name")
    message: ForeignMessage = {name: record[name] for name in names if name in record}
    if record.get("tool_calls"):
        calls = [(call["id"], call["function"]) for call in record["tool_calls"]]
        message["tool_calls"] = [tool_call(ident, function["name"], function["arguments"]) for ident, function in calls]
    if record.get("reasoning") is not None:
        message["replay"] = {"reasoning": str(record["reasoning"])}
    if record.get("structuredContent") is not None:
        message["raw"] = {"structured": record["structuredContent"]}
    if record.get("images"):
        message["content"] = [{"type": "text", "text": record["content"]}] if record["content"] else []
        for image in record["images"]:
            url = f"data:{image['mediaType']};base64,{image['data']}"
            rest = without(image, "mediaType", "data")
            message["content"].append({"type": "image_url", "image_url": {"url": url}, **rest})
    rest = without(record, *_NANOCODER_KEYS)
    yield message | ({"source": rest} if rest else {})


# ---- ollm
#
# OLLM-CLI's sessions, histories and snapshots, each a JSON file.

OLLM = "ollm"
OLLM_PATHS = r"/snapshots-index\.json$|/snapshot-map\.json$"
_LAYOUTS = ({"startTime", "toolCalls"}, {"checkpointRecords"}, {"id", "timestamp", "userMessages"})
_OLLM_KEYS = ("id", "role", "content", "parts", "timestamp", "toolCalls", "toolCallId", "name")


def read_ollm(source: Source) -> Results | None:
    """The session, in one of the three layouts; a snapshot is also a session."""
    value = source.value
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list) or "sessionId" not in value:
        return None
    if not any(value.keys() >= layout for layout in _LAYOUTS):
        return None
    metadata, ids = as_dict(value.get("metadata")), [value["sessionId"], *([value["id"]] if "id" in value else [])]
    model = value.get("model", metadata.get("model"))
    session = Conversation(
        source, OLLM, "/".join(map(str, ids)), title=value.get("summary"),
        model=None if model == "unknown" else model, provider=provider_name(value.get("provider")),
        created_at=value.get("startTime", metadata.get("startTime")),
        updated_at=value.get("lastActivity", metadata.get("lastUpdate", value.get("timestamp"))),
    )  # fmt: skip
    present = {str(record.get("id")) for record in as_dicts(value["messages"])}
    older = [*as_dicts(value.get("archivedUserMessages")), *as_dicts(value.get("userMessages"))]  # of a snapshot
    older = [record for record in older if str(record.get("id")) not in present]
    calls = as_dicts(value.get("toolCalls"))  # of a session
    records = _sorted_by_time([*older, *value["messages"], *calls])
    for record in records:
        session.add_record(_call if "args" in as_dict(record) else _ollm_message, record)
    return session.results()


def _sorted_by_time(records: list[Record]) -> list[Record]:
    """The records sorted by time, stable; a record without a time has that of the record before it."""
    last, times = "", []
    for record in records:
        last = utc(as_dict(record).get("timestamp")) or last
        times.append(last)
    return [record for _, record in sorted(zip(times, records, strict=True), key=lambda pair: pair[0])]


def _ollm_message(record: JsonObject) -> Iterator[ForeignMessage]:
    names = ("id", "role", "timestamp", "name", "content")
    message: ForeignMessage = {name: record[name] for name in names if name in record}
    if parts := record.get("parts"):
        message["content"] = parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts
    if record.get("toolCalls"):
        message["tool_calls"] = [tool_call(call["id"], call["name"], call["args"]) for call in record["toolCalls"]]
    if record.get("toolCallId") is not None:
        message["tool_call_id"] = record["toolCallId"]
    rest = without(record, *_OLLM_KEYS)
    yield message | ({"source": rest} if rest else {})


def _call(record: JsonObject) -> Iterator[ForeignMessage]:
    """An answer with a single tool call, and the result, if there is one."""
    moment, calls = record.get("timestamp"), [tool_call(record["id"], record["name"], record["args"])]
    yield {"role": "assistant", "content": None, "tool_calls": calls, "timestamp": moment}
    if record.get("result") is not None:
        result = record["result"] if isinstance(record["result"], dict) else {"llmContent": record["result"]}
        content = result["llmContent"]
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        raw = without(result, "llmContent")
        message = {"role": "tool", "tool_call_id": record["id"], "name": record["name"], "content": text}
        yield {**message, "timestamp": moment, **({"raw": raw} if raw else {})}
