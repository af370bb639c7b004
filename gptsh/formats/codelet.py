"""Sessions of codelet and fspec: lines of envelopes, or a store of all messages and manifests that refer to them.

Long content is in blobs: files named by the SHA-256 of their content.
"""

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from gptsh.formats.conversation import Conversation, answer_fields, provider_name, with_raw, without
from gptsh.formats.source import Line, Results, Source
from gptsh.jsonio import as_dict, as_dicts

NAME = "codelet"
IGNORED_PATHS = (
    r"/blobs/[0-9a-f]{2}/[0-9a-f]{64}$|/messages/messages\.(idx|jsonl)$"  # the store is read with a manifest
)
_ENVELOPE = {"uuid", "timestamp", "type", "provider", "message"}
_RECORD = {"id", "content_hash", "created_at", "role", "content"}
_MANIFEST = {"id", "name", "project", "created_at", "updated_at", "messages"}
_EXTRA_KEYS = ("forked_from", "merged_from", "compaction", "token_usage")
_BLOB = re.compile(r"blob:sha256:([0-9a-f]{64})")


def read(source: Source) -> Results | None:
    """The session of a manifest, or of a file of envelopes, or of a store with all its messages."""
    value = source.value
    if isinstance(value, dict) and value.keys() >= _MANIFEST and isinstance(value["messages"], list):
        session = _manifest_session(source, value)
    elif any(one.keys() >= _RECORD or (one.keys() >= _ENVELOPE and "sessionId" not in one) for one in source.first):
        records = _records(source)
        session = Conversation(source, NAME, next(iter(records)), skipped=source.bad_lines)
        for line in records.values():
            session.add_record(lambda line: [_message(line.value, session)], line, line.number)
    else:
        return None
    for message in session.messages:  # the last message with a model or provider decides
        session.model, session.provider = message.get("model", session.model), message.get("provider", session.provider)
    return session.results()


def _manifest_session(source: Source, manifest: dict[str, Any]) -> Conversation:
    session = Conversation(source, NAME, str(manifest["id"]), title=manifest["name"], cwd=manifest["project"])
    session.created_at, session.updated_at = manifest["created_at"], manifest["updated_at"]
    session.provider = provider_name(manifest.get("provider"))
    session.extra = {key: manifest[key] for key in _EXTRA_KEYS if manifest.get(key)}
    store = (source.path or Path("?")).parent / ".." / "messages" / "messages.jsonl"
    status = store.stat() if store.is_file() else None
    records = _store(store, (status.st_mtime_ns, status.st_size, status.st_ino)) if status else {}
    for item in as_dicts(manifest["messages"]):
        ident = str(item.get("message_id"))
        if ident in records:
            session.add_record(lambda line: [_message(line.value, session)], records[ident])
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


def _message(value: dict[str, Any], session: Conversation) -> dict[str, Any]:
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


def _with_blobs(part: dict[str, Any], session: Conversation) -> dict[str, Any]:
    """The part with its blob references resolved. A part that lacks its data or thinking becomes a text about that."""
    missing: list[str] = []

    def resolved(value: Any) -> Any:
        if isinstance(value, dict):
            inner = {key: resolved(item) for key, item in value.items()}
            return inner.get("_blob_ref", inner)
        reference = _BLOB.fullmatch(value) if isinstance(value, str) else None
        if not reference:
            return value
        digest = reference[1]
        blob = session.source.sibling("..", "blobs", digest[:2], digest)
        if blob and hashlib.sha256(blob.data).hexdigest() == digest:
            return blob.data.decode()
        missing.append(value)
        return value

    new: dict[str, Any] = resolved(part)
    session.skipped += [session.source.skipped(f"{name}: missing, or its hash is not its name") for name in missing]
    if missing and part["type"] not in ("tool_result", "tool_use"):
        return {"type": "text", "text": f"[{part['type']}: missing]"}
    return new
