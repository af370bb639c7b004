"""Import the sessions of codelet, nanocoder and OLLM-CLI."""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path

from gptsh.formats.source import (
    Conversation,
    ForeignMessage,
    Line,
    Results,
    Source,
    answer_fields,
    content_of,
    not_empty,
    provider_name,
    take,
    unchecked_call,
    utc,
    with_raw,
    with_rest,
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
# The store is read with a manifest.
CODELET_PATHS = r"/blobs/[0-9a-f]{2}/[0-9a-f]{64}$|/messages/messages\.(idx|jsonl)$"
_ENVELOPE = {"uuid", "timestamp", "type", "provider", "message"}
_RECORD = {"id", "content_hash", "created_at", "role", "content"}
_MANIFEST = {"id", "name", "project", "created_at", "updated_at", "messages"}
_EXTRA_KEYS = ("forked_from", "merged_from", "compaction", "token_usage")
_BLOB = re.compile(r"blob:sha256:([0-9a-f]{64})")


def read_codelet(source: Source) -> Results | None:
    """Return the session of a manifest, or that of all messages in a file or a store."""
    if source.value.keys() >= _MANIFEST:
        return _manifest_session(source).results()
    if not any(map(_is_codelet, source.first)):
        return None
    records = _records(source)
    session = Conversation(source, CODELET, next(iter(records)), skipped=source.bad_lines)
    read = partial(_codelet_messages, session)
    for line in records.values():
        session.add_record(read, line.value, line.number)
    return session.results()


def _is_codelet(value: JsonObject) -> bool:
    """Return whether an object is a record of a store, or an envelope; Claude Code's are similar."""
    if value.keys() >= _RECORD:
        return True
    return value.keys() >= _ENVELOPE and "sessionId" not in value


def _manifest_session(source: Source) -> Conversation:
    """Return the session of a manifest, which has the ids of messages in the store beside it."""
    manifest = source.value
    session = Conversation.of_record(
        source,
        CODELET,
        str(manifest["id"]),
        manifest,
        title="name",
        cwd="project",
        created_at="created_at",
        updated_at="updated_at",
        provider="provider",
    )
    session.extra = not_empty(manifest, _EXTRA_KEYS)
    store = source.sibling("..", "messages", "messages.jsonl")
    records = _store(store.path, store.modified) if store and store.path else {}
    read = partial(_codelet_messages, session)
    for item in as_dicts(manifest["messages"]):
        ident = str(item.get("message_id"))
        if ident in records:
            session.add_record(read, records[ident].value)
        else:
            session.skip(f"message {ident:.40}: not in the store beside it")
    return session


@lru_cache(maxsize=1)
def _store(path: Path, _modified: float | None) -> dict[str, Line]:
    """Return the records of a store by id, cached for all its manifests until the file changes."""
    return _records(Source(str(path), path))


def _records(source: Source) -> dict[str, Line]:
    """Return the records or envelopes by id; the last line with an id counts."""
    records = {}
    for line in source.lines:
        ident = line.value.get("id", line.value.get("uuid"))
        records[str(ident)] = line
    return records


def _codelet_messages(session: Conversation, value: JsonObject) -> Iterator[ForeignMessage]:
    """Yield the message in an envelope, or in a record of the store.

    The ``metadata`` of a record is an envelope. All three roles are checked: the tool itself
    records an answer of text alone as a question.
    """
    envelope = as_dict(value["metadata"]) if value.keys() >= _RECORD else value
    message = as_dict(envelope.get("message"))
    inner = message if "content" in message else value
    content = inner["content"]
    if isinstance(content, list):
        raw = envelope.get("toolUseResult")
        if raw is not None:
            content = with_raw(content, raw)
        content = [_with_blobs(part, session) for part in content]
    new = {
        "id": value.get("id", envelope.get("uuid")),
        "timestamp": envelope.get("timestamp", value.get("created_at")),
        "role": "user",
        "content": content,
    }
    if "assistant" in (inner.get("role"), envelope.get("type"), value.get("role")):
        new["role"] = "assistant"
        new |= _answer(message, envelope)
    yield new


def _answer(message: JsonObject, envelope: JsonObject) -> ForeignMessage:
    """Return what only an answer has."""
    answer = answer_fields(message)
    if answer.get("finish_reason") == "unknown":
        del answer["finish_reason"]
    fields = {
        "provider": provider_name(envelope.get("provider")),
        "request_id": envelope.get("requestId"),
    }
    return answer | without(fields)


def _with_blobs(part: Part, session: Conversation) -> object:
    """Return the part with its blob references resolved; a text if its data is missing."""
    skipped_before = len(session.skipped)
    resolved = _resolve(part, session)
    is_complete = len(session.skipped) == skipped_before
    if is_complete or part["type"] in ("tool_result", "tool_use"):
        return resolved
    return {"type": "text", "text": f"[{part['type']}: missing]"}


def _resolve(value: object, session: Conversation) -> object:
    """Return a value with the text of a blob in place of each reference; skip what is missing."""
    if isinstance(value, dict):
        resolved = {key: _resolve(item, session) for key, item in value.items()}
        return resolved.get("_blob_ref", resolved)
    reference = _BLOB.fullmatch(value) if isinstance(value, str) else None
    if not reference:
        return value
    # The name is a hash, so it names no other file.
    digest = reference[1]
    blob = session.source.sibling("..", "blobs", digest[:2], digest)
    if blob and hashlib.sha256(blob.data).hexdigest() == digest:
        return blob.data.decode()
    session.skip(f"{value}: missing, or its hash is not its name")
    return value


# ---- nanocoder
#
# nanocoder's sessions and checkpoints, each a JSON file.

NANOCODER = "nanocoder"
NANOCODER_PATHS = r"/nanocoder/sessions/sessions\.json$|/checkpoints/[^/]+/(metadata\.json$|files/)"
_SESSION_KEYS = {
    "id",
    "title",
    "createdAt",
    "lastAccessedAt",
    "provider",
    "model",
    "workingDirectory",
    "messages",
}
_CHECKPOINT_KEYS = ("description", "filesChanged")
# In a checkpoint's metadata.json.
_METADATA_KEYS = {"name", "timestamp", "messageCount", "filesChanged", "provider"}
_OPENAI_KEYS = ("role", "content", "tool_call_id", "name")  # which nanocoder shares


def read_nanocoder(source: Source) -> Results | None:
    """Return the session; a checkpoint is also a session."""
    value = source.value
    if not isinstance(value.get("messages"), list):
        return None
    if value.keys() >= _SESSION_KEYS:
        session = Conversation.of_record(
            source,
            NANOCODER,
            str(value["id"]),
            value,
            title="title",
            cwd="workingDirectory",
            created_at="createdAt",
            updated_at="lastAccessedAt",
            model="model",
            provider="provider",
        )
    else:
        file = source.sibling("metadata.json")
        metadata = file.value if file else {}
        if not metadata.keys() >= _METADATA_KEYS:
            return None
        session = _checkpoint(source, metadata)
    for record in value["messages"]:
        session.add_record(_nanocoder_messages, record)
    return session.results()


def _checkpoint(source: Source, metadata: JsonObject) -> Conversation:
    """Return the session of a checkpoint, as the file beside it describes it, without messages."""
    session = Conversation.of_record(
        source,
        NANOCODER,
        f"checkpoint {metadata['name']} {metadata['timestamp']}",
        metadata,
        title="name",
        created_at="timestamp",
        updated_at="timestamp",
    )
    provider = as_dict(metadata["provider"])
    session.model = provider.get("model")
    session.provider = provider.get("name")
    session.extra = not_empty(metadata, _CHECKPOINT_KEYS)
    return session


def _nanocoder_messages(record: JsonObject) -> Iterator[ForeignMessage]:
    """Yield a message. Only the text of a result shows an error, so ``is_error`` is not set."""
    rest = dict(record)
    message = take(rest, _OPENAI_KEYS)
    calls = []
    for call in rest.pop("tool_calls", None) or ():
        function = call["function"]
        calls.append(unchecked_call(call["id"], function["name"], function["arguments"]))
    if calls:
        message["tool_calls"] = calls
    reasoning = rest.pop("reasoning", None)
    if reasoning is not None:
        message["replay"] = {"reasoning": str(reasoning)}
    structured = rest.pop("structuredContent", None)
    if structured is not None:
        message["raw"] = {"structured": structured}
    images = rest.pop("images", None)
    if images:
        text = record["content"]
        parts = [{"type": "text", "text": text}] if text else []
        parts += [_image(image) for image in images]
        message["content"] = parts
    yield with_rest(message, rest)


def _image(image: JsonObject) -> Part:
    """Return an image as a part of OpenAI's API, with the keys that have no place in it."""
    url = f"data:{image['mediaType']};base64,{image['data']}"
    part = {"type": "image_url", "image_url": {"url": url}}
    return part | without(image, "mediaType", "data")


# ---- ollm
#
# OLLM-CLI's sessions, histories and snapshots, each a JSON file.

OLLM = "ollm"
OLLM_PATHS = r"/snapshots-index\.json$|/snapshot-map\.json$"
_LAYOUTS = ({"startTime", "toolCalls"}, {"checkpointRecords"}, {"id", "timestamp", "userMessages"})
_OLLM_SAME = ("id", "role", "timestamp", "name", "content")


def read_ollm(source: Source) -> Results | None:
    """Return the session, in one of the three layouts; a snapshot is also a session."""
    value = source.value
    if not isinstance(value.get("messages"), list) or "sessionId" not in value:
        return None
    if not any(value.keys() >= layout for layout in _LAYOUTS):
        return None
    metadata = as_dict(value.get("metadata"))
    key = str(value["sessionId"])
    if "id" in value:  # of a snapshot
        key += f"/{value['id']}"
    model = value.get("model", metadata.get("model"))
    last_update = metadata.get("lastUpdate", value.get("timestamp"))
    session = Conversation(
        source,
        OLLM,
        key,
        title=value.get("summary"),
        model=None if model == "unknown" else model,
        provider=value.get("provider"),
        created_at=value.get("startTime", metadata.get("startTime")),
        updated_at=value.get("lastActivity", last_update),
    )
    for record in _sorted_by_time(_ollm_records(value)):
        is_call = "args" in as_dict(record)
        session.add_record(_ollm_call if is_call else _ollm_messages, record)
    return session.results()


def _ollm_records(value: JsonObject) -> list[JsonObject]:
    """Return the messages and tool calls of a session, or of a snapshot with older questions."""
    present = {str(record.get("id")) for record in as_dicts(value["messages"])}
    records = []
    for key in ("archivedUserMessages", "userMessages"):
        for record in as_dicts(value.get(key)):
            if str(record.get("id")) not in present:
                records.append(record)
    records += value["messages"]
    return records + as_dicts(value.get("toolCalls"))


def _sorted_by_time(records: list[JsonObject]) -> list[JsonObject]:
    """Return the records sorted by time, stable; one without a time stays after its neighbour."""
    timed: list[tuple[str, JsonObject]] = []
    latest = ""
    for record in records:
        latest = utc(as_dict(record).get("timestamp")) or latest
        timed.append((latest, record))
    timed.sort(key=itemgetter(0))
    return [record for _, record in timed]


def _ollm_messages(record: JsonObject) -> Iterator[ForeignMessage]:
    """Yield a message, whose tool calls, if it has any, are in it."""
    rest = dict(record)
    message = take(rest, _OLLM_SAME)
    parts = rest.pop("parts", None)
    if parts:
        message["content"] = content_of(parts)
    calls = []
    for call in rest.pop("toolCalls", None) or ():
        calls.append(unchecked_call(call["id"], call["name"], call["args"]))
    if calls:
        message["tool_calls"] = calls
    call_id = rest.pop("toolCallId", None)
    if call_id is not None:
        message["tool_call_id"] = call_id
    yield with_rest(message, rest)


def _ollm_call(record: JsonObject) -> Iterator[ForeignMessage]:
    """Yield an answer with a single tool call, and the result, if there is one."""
    moment = record.get("timestamp")
    call = unchecked_call(record["id"], record["name"], record["args"])
    yield {"role": "assistant", "content": None, "tool_calls": [call], "timestamp": moment}
    result = record.get("result")
    if result is None:
        return
    content = result["llmContent"] if isinstance(result, dict) else result
    if not isinstance(content, str):
        content = json.dumps(content, ensure_ascii=False)
    message = {
        "role": "tool",
        "tool_call_id": record["id"],
        "name": record["name"],
        "content": content,
        "timestamp": moment,
    }
    raw = without(as_dict(result), "llmContent")
    if raw:
        message["raw"] = raw
    yield message
