"""Sessions of codelet and fspec: envelopes as lines of JSON, a store of all messages, and manifests that pick theirs.

What is long stands in blobs beside them, each a file whose name is the hash of what it holds.
"""

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from gptsh.formats.conversation import Conversation, answer_fields, provider_name, without
from gptsh.formats.source import Line, Results, Source
from gptsh.jsonio import as_dict, as_dicts

NAME = "codelet"
IGNORED_PATHS = r"/blobs/[0-9a-f]{2}/[0-9a-f]{64}$|/messages/messages\.(idx|jsonl)$"  # manifests read the store
_ENVELOPE = {"uuid", "timestamp", "type", "provider", "message"}
_RECORD = {"id", "content_hash", "created_at", "role", "content"}
_MANIFEST = {"id", "name", "project", "created_at", "updated_at", "messages"}
_KEPT = ("forked_from", "merged_from", "compaction", "token_usage")
_BLOB = re.compile(r"blob:sha256:([0-9a-f]{64})")


def read(source: Source) -> Results | None:
    """The session of a manifest, or of all messages of a store or of envelopes."""
    value = source.value
    if isinstance(value, dict) and value.keys() >= _MANIFEST and isinstance(value["messages"], list):
        session = _of_manifest(source, value)
    elif any(one.keys() >= _RECORD or (one.keys() >= _ENVELOPE and "sessionId" not in one) for one in source.first):
        records = _records(source)
        session = Conversation(source, NAME, next(iter(records)), skipped=source.broken)
        for line in records.values():
            session.add_record(lambda line: [_message(line.value, session)], line, line.number)
    else:
        return None
    for message in session.messages:  # the last one that names it counts
        session.model, session.provider = message.get("model", session.model), message.get("provider", session.provider)
    return session.results()


def _of_manifest(source: Source, manifest: dict[str, Any]) -> Conversation:
    session = Conversation(source, NAME, str(manifest["id"]), title=manifest["name"], cwd=manifest["project"])
    session.created_at, session.updated_at = manifest["created_at"], manifest["updated_at"]
    session.provider = provider_name(manifest.get("provider"))
    session.extra = {key: manifest[key] for key in _KEPT if manifest.get(key)}
    store = (source.path or Path("?")).parent / ".." / "messages" / "messages.jsonl"
    found = store.stat() if store.is_file() else None
    records = _store(store, (found.st_mtime_ns, found.st_size, found.st_ino)) if found else {}
    for item in as_dicts(manifest["messages"]):
        ident = str(item.get("message_id"))
        if ident in records:
            session.add_record(lambda line: [_message(line.value, session)], records[ident])
        else:
            session.skipped.append(source.skipped(f"message {ident:.40}: not in the store beside it"))
    return session


@lru_cache(maxsize=1)
def _store(path: Path, _stamp: tuple[int, ...]) -> dict[str, Line]:
    """The records of a store by id, read once for all its manifests."""
    return _records(Source(str(path), path))


def _records(source: Source) -> dict[str, Line]:
    """The records or envelopes by id; the latest line of an id counts."""
    return {str(line.value.get("id", line.value.get("uuid"))): line for line in source.lines}


def _message(value: dict[str, Any], session: Conversation) -> dict[str, Any]:
    """The message of an envelope, or of a record of the store, whose ``metadata`` is one.

    Every role counts: the tool itself takes an answer of text alone for a question.
    """
    envelope = as_dict(value["metadata"]) if value.keys() >= _RECORD else value
    said = as_dict(envelope.get("message"))
    inner = said if "content" in said else value
    content = inner["content"]
    if isinstance(content, list):
        content = [_with_blobs(part, session) for part in content]
    moment = envelope.get("timestamp", value.get("created_at"))
    new = {"id": value.get("id", envelope.get("uuid")), "timestamp": moment, "role": "user", "content": content}
    if "assistant" not in (inner.get("role"), envelope.get("type"), value.get("role")):
        return new
    about = {"provider": provider_name(envelope.get("provider")), "request_id": envelope.get("requestId")}
    facts = answer_fields({**said, "stop_reason": None} if said.get("stop_reason") == "unknown" else said)
    return {**new, "role": "assistant", **facts, **without(about)}


def _with_blobs(part: dict[str, Any], session: Conversation) -> dict[str, Any]:
    """The part with what its references stand for. One whose data or thinking is missing is text that says so."""
    missing: list[str] = []

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            inner = {key: filled(item) for key, item in value.items()}
            return inner.get("_blob_ref", inner)
        named = _BLOB.fullmatch(value) if isinstance(value, str) else None
        if not named:
            return value
        blob = session.source.sibling("..", "blobs", named[1][:2], named[1])
        if blob and hashlib.sha256(blob.data).hexdigest() == named[1]:
            return blob.data.decode()
        missing.append(value)
        return value

    new: dict[str, Any] = filled(part)
    session.skipped += [session.source.skipped(f"{name}: missing, or not what its name says") for name in missing]
    is_sent = missing and part["type"] not in ("tool_result", "tool_use")
    return {"type": "text", "text": f"[{part['type']}: missing]"} if is_sent else new
