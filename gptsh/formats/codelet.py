"""Sessions of codelet and fspec: envelopes as lines of JSON, a store of all messages, and manifests that pick theirs.

What is long stands in blobs beside them, each a file whose name is the hash of what it holds.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from gptsh.core.document import Document
from gptsh.formats import blocks
from gptsh.formats.draft import SOURCE, Draft
from gptsh.formats.source import LARGEST, MOST, Line, Reader, Refused, Source, Unread, values_in, written_lines
from gptsh.jsonio import as_dict
from gptsh.messages import Part, token_count

NAME = "codelet"
_ENVELOPE = {"uuid", "timestamp", "type", "provider", "message"}
_RECORD = {"id", "content_hash", "created_at", "role", "content"}
_MANIFEST = {"id", "name", "project", "created_at", "updated_at", "messages"}
_TYPED = {"display", "timestamp", "project", "session_id"}  # on each line of what was typed at its prompt
_STORE = ("..", "messages", "messages.jsonl")  # from a manifest
_KEPT = ("forked_from", "merged_from", "compaction", "token_usage")
_BLOB = re.compile(r"blob:sha256:([0-9a-f]{64})")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FIRST_ID = re.compile(rb'"id"\s*:\s*"([^"\\]{1,128})"')  # by which the tool itself finds a message in its store
_NO_REASON = "unknown"  # why an answer ended that did not say it
_TOO_MUCH = f"more than {LARGEST // 1_000_000} MB in one session"
_NO_MESSAGE = "no message that can be read"


def _recognises(source: Source) -> bool:
    told = any(_is_envelope(value) or _is_record(value) for value in source.first)
    return told or _is_companion(source) or _manifest_in(source) is not None


def _is_companion(source: Source) -> bool:
    """Whether it is what was typed at the prompt, in all sessions: no message of any."""
    if source.path is None or source.path.name != "history.jsonl" or not source.first:
        return False
    return all(value.keys() >= _TYPED for value in source.first)


def _is_envelope(value: dict[str, Any]) -> bool:
    return value.keys() >= _ENVELOPE and "sessionId" not in value and isinstance(value["message"], dict)


def _is_record(value: dict[str, Any]) -> bool:
    return value.keys() >= _RECORD and isinstance(value["id"], str)


def _manifest_in(source: Source) -> dict[str, Any] | None:
    value = blocks.whole(source)
    if not isinstance(value, dict) or not value.keys() >= _MANIFEST or not isinstance(value["messages"], list):
        return None
    return value if all("message_id" in as_dict(item) for item in value["messages"]) else None


def _read(source: Source) -> Iterator[Document | Unread]:
    if _is_companion(source):
        return iter(())
    manifest = _manifest_in(source)
    draft = _of_lines(source) if manifest is None else _of_manifest(source, manifest)
    for message in draft.messages:  # the last one that tells it counts
        draft.model = message.get("model", draft.model)
        draft.provider = message.get("provider", draft.provider)
    return draft.results()


READER = Reader(NAME, _recognises, _read)


# ---- lines


def _of_lines(source: Source) -> Draft:
    """The messages of a file of envelopes, or those of a store that no manifest beside it names, as one session."""
    unread, lines = list(source.broken), {}
    for line in source.lines:
        if _is_record(line.value):
            lines[line.value["id"]] = line  # the latest one of an id counts
        elif _is_envelope(line.value):
            lines[f"{line.number} {len(lines)}"] = line
        else:
            unread.append(source.unread(_NO_MESSAGE, line.number))
    first = next(iter(lines.values()), None)
    key = first.value.get("id", first.value.get("uuid")) if first else ""
    draft, blobs, elsewhere = Draft(source, NAME, str(key), unread=unread), _Blobs(source), _named(source)
    ids: dict[str, str] = {}
    for ident, line in lines.items():
        if ident not in elsewhere:
            _add(draft, _message(line.value, ids), blobs, line)
    return draft


def _named(source: Source) -> set[str]:
    """The messages of a store that manifests beside it name: they are read with those."""
    if source.path is None or source.path.name != _STORE[-1]:
        return set()
    names = sorted(path.name for path in source.path.parent.parent.glob("sessions/*.json"))
    beside = [source.beside("..", "sessions", name) for name in names if _UUID.fullmatch(name.removesuffix(".json"))]
    found = [manifest for other in beside if other and (manifest := _manifest_in(other))]
    return {item["message_id"] for one in found for item in one["messages"] if isinstance(item["message_id"], str)}


# ---- a manifest


def _of_manifest(source: Source, manifest: dict[str, Any]) -> Draft:
    """The session of a manifest: of the store beside it the messages that it names."""
    draft = Draft(source, NAME, str(manifest["id"]), title=manifest["name"], cwd=manifest["project"])
    draft.created_at, draft.updated_at = manifest["created_at"], manifest["updated_at"]
    draft.provider = blocks.provider_name(manifest.get("provider"))
    draft.kept = {key: manifest[key] for key in _KEPT if manifest.get(key)}
    store = _store_beside(source)
    if store is None:
        draft.unread.append(source.unread(f"its {len(manifest['messages'])} messages: no store of them beside it"))
        return draft
    blobs, ids = _Blobs(source), dict[str, str]()
    named: dict[str, dict[str, Any]] = {}
    for item in manifest["messages"]:
        named.setdefault(str(item["message_id"]), item)  # each once, however often it is named
    for ident, item in named.items():
        line = _record(store, item["message_id"])
        if line is None:
            draft.unread.append(source.unread(f"message {ident:.40}: not in the store, or not readable"))
            continue
        message = _message(line.value, ids)
        if item.get("source") not in (None, "Native"):
            message[SOURCE]["origin"] = item["source"]
        _add(draft, message, blobs, line, store.source)
    if not any(message.get("usage") for message in draft.messages):
        draft.carried = _carried(as_dict(manifest.get("token_usage")))
    return draft


class _Store(NamedTuple):
    """A store, and where in it the latest record of each message stands: its line, its beginning and its end."""

    source: Source
    places: dict[bytes, tuple[int, int, int]]


def _store_beside(source: Source) -> _Store | None:
    """The store that a manifest picks from. Many manifests share one."""
    if source.path is None:
        return None
    return source.shared.made(source.path.parent.joinpath(*_STORE), lambda: _indexed(source.beside(*_STORE)))


def _indexed(store: Source | None) -> _Store | None:
    if store is None:
        return None
    places: dict[bytes, tuple[int, int, int]] = {}
    for number, start, end in islice(written_lines(store.data), MOST):  # without a copy of each line
        if first := _FIRST_ID.search(store.data, start, end):
            places[first[1]] = number, start, end
    return _Store(store, places)


def _record(store: _Store, ident: object) -> Line | None:
    """A record of the store; None where there is none that can be read."""
    key = ident.encode("utf-8", "surrogatepass") if isinstance(ident, str) else b""
    if key not in store.places:
        return None
    number, start, end = store.places[key]
    try:
        found = next((Line(number, *pair) for pair in values_in(store.source.data[start:end])), None)
    except Refused:
        return None
    is_it = found and isinstance(found.value, dict) and _is_record(found.value) and found.value["id"] == ident
    return found if is_it else None


def _carried(used: dict[str, Any]) -> dict[str, int | None] | None:
    """What the session has used as a whole; its messages may not tell it."""
    prompt, completion = (token_count(used.get(f"cumulative_billed_{way}")) for way in ("input", "output"))
    if not prompt and not completion:
        return None
    cached = token_count(used.get("cache_read_tokens"))
    total = (prompt or 0) + (completion or 0)
    return {"prompt": prompt, "completion": completion, "total": total, "cached_tokens": cached}


# ---- a message


def _message(value: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    """The message of an envelope, or of a record of the store, whose ``metadata`` is one.

    ``ids`` has the record of each envelope so far. Who speaks is told by every role: the tool itself takes an answer of
    text alone for a question.
    """
    is_record = _is_record(value)
    envelope = as_dict(value.get("metadata")) if is_record else value
    said = as_dict(envelope.get("message"))
    inner = said if "content" in said else value
    is_answer = "assistant" in (inner.get("role"), envelope.get("type"), value.get("role"))
    new: dict[str, Any] = {"role": "assistant" if is_answer else "user", "content": inner.get("content")}
    new |= {"id": envelope.get("uuid"), "parent": envelope.get("parentUuid")}
    new |= {"timestamp": envelope.get("timestamp", value.get("created_at")), SOURCE: {}}
    if is_answer:
        new |= _told(envelope, said)
    if is_record:
        new[SOURCE] |= {key: value[key] for key in ("created_at", "token_count") if value.get(key) is not None}
        new[SOURCE] |= {key: envelope[key] for key in ("uuid", "parentUuid") if isinstance(envelope.get(key), str)}
        new |= {"id": value["id"], "parent": ids.get(str(new["parent"]))}
        ids[str(envelope.get("uuid"))] = value["id"]
    return new


def _told(envelope: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer says of itself."""
    found = blocks.told(said)
    if found.get("finish_reason") == _NO_REASON:
        del found["finish_reason"]
    if name := blocks.provider_name(envelope.get("provider")):
        found["provider"] = name
    if name and name != envelope["provider"]:
        found[SOURCE] = {"provider": envelope["provider"]}
    if isinstance(envelope.get("requestId"), str):
        found["request_id"] = envelope["requestId"]
    return found


def _add(draft: Draft, message: dict[str, Any], blobs: "_Blobs", line: Line, where: Source | None = None) -> None:
    """Take a message, with what its references stand for. ``where`` is the file whose line it is."""
    if not (is_sound := blocks.is_sound(message["content"])) or not blobs.has_room(len(line.raw)):
        draft.unread.append((where or draft.source).unread(_TOO_MUCH if is_sound else _NO_MESSAGE, line.number))
        return
    if isinstance(message["content"], list):
        message["content"] = [blobs.restored(part, draft.unread) for part in message["content"]]
    if not message[SOURCE]:
        del message[SOURCE]
    blocks.take(draft, message, line.number)


class _Blobs:
    """What stands beside a file of this tool. With the messages no more is read than a file may have."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._room = LARGEST

    def has_room(self, size: int) -> bool:
        """Take room for so many bytes; whether it was there. Behind what was too much there is none."""
        self._room -= size
        return self._room >= 0

    def restored(self, part: Part, unread: list[Unread]) -> Part:
        """The part with what a reference in it stands for. What is not there is noted.

        An image without its data is sent to nobody, nor thinking that is not what was signed.
        """
        match part.get("type"):
            case "tool_result":
                return self._filled(part, "content", unread)
            case "thinking":
                whole = self._filled(part, "thinking", unread, "")
                lost = whole is not part and not whole["thinking"]
                return {key: value for key, value in whole.items() if key != "signature"} if lost else whole
            case "image" | "document" if isinstance(part.get("source"), dict):
                return {**part, "source": self._filled(part["source"], "data", unread, "")}
            case "tool_use" if isinstance(part.get("input"), dict):
                given = self._filled(part["input"], "_blob_ref", unread)
                return part if given is part["input"] else {**part, "input": given["_blob_ref"]}
        return part

    def _filled(self, table: Part, key: str, unread: list[Unread], otherwise: str | None = None) -> Part:
        """The table with what the reference under a key stands for, or ``otherwise``; the same one without both."""
        said = table.get(key)
        named = _BLOB.fullmatch(said) if isinstance(said, str) else None
        text = self._text(named[1]) if named else None
        if named and text is None:
            why = "missing, or not what its name says" if self._room >= 0 else _TOO_MUCH
            unread.append(self._source.unread(f"{named[0]}: {why}"))
            text = otherwise
        return table if text is None else {**table, key: text}

    def _text(self, digest: str) -> str | None:
        blob = self._source.beside("..", "blobs", digest[:2], digest) if self._room >= 0 else None
        if blob is None or not self.has_room(len(blob.data)) or hashlib.sha256(blob.data).hexdigest() != digest:
            return None
        return blob.text
