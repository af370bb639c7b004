"""Define a session document: its keys, checked when a file is read; its totals; the bytes of its file."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from gptsh.content.passages import question_preview
from gptsh.errors import StoreError
from gptsh.files import MAX_SIZE, READ, again_if_stale, open_own, read_bytes, replace_pieces, size_of, too_large
from gptsh.jsonio import JsonObject, as_dict, encode_json, is_cost, parse_json, parse_json_fast
from gptsh.messages import (
    LAST_YEAR,
    Message,
    full_name,
    just_after,
    new_message_id,
    safe_params,
    starts_turn,
    sum_costs,
    timestamp,
)
from gptsh.text import one_line, shorten

if TYPE_CHECKING:
    from gptsh.core.document_types import (
        AgentInfo,
        ContextState,
        LedgerEntry,
        Meta,
        ProviderInfo,
        SessionUsage,
        Stats,
        TokenKey,
        Tokens,
    )
    from gptsh.messages import Usage


# ---- keys
#
# docs/file-format.md describes each key; document_types.py has their types.

VERSION = 1
PREVIEW_WIDTH = 100
_UNKNOWN_TIME = "1970-01-01T00:00:00.000Z"
TOKEN_KEYS: tuple["TokenKey", ...] = (
    "prompt",
    "completion",
    "total",
    "reasoning_tokens",
    "cached_tokens",
)


class Document(TypedDict):
    """A session, as in its file; ``core/document_types.py`` has the keys of each part."""

    version: int
    id: str
    title: str | None
    created_at: str
    updated_at: str
    provider: "ProviderInfo"
    usage: "SessionUsage"
    stats: "Stats"
    meta: "Meta"
    agent: "AgentInfo"
    context: "ContextState"
    messages: list[Message]


def blank(session_id: str, created_at: str) -> Document:
    """A document without messages, its keys in the order of the file."""
    return {
        "version": VERSION,
        "id": session_id,
        "title": None,
        "created_at": created_at,
        "updated_at": created_at,
        "provider": {"name": None},
        "usage": {"tokens": dict.fromkeys(TOKEN_KEYS), "cost": None, "calls": []},
        "stats": {"turns": 0, "messages": 0, "preview": ""},
        "meta": {"tags": []},
        "agent": {},
        "context": {
            "compaction": None,
            "summaries": [],
            "snapshots": [],
            "cuts": {},
            "noted": {},
            "consolidated": None,
        },
        "messages": [],
    }


# ---- checking the content of a file


def _is_time(value: object) -> bool:
    """Whether a value is ISO 8601, in a year that every time zone can show."""
    try:
        return isinstance(value, str) and 1900 <= datetime.fromisoformat(value).year <= LAST_YEAR
    except ValueError:
        return False


def _is_use_table(value: object) -> bool:
    """Whether a value maps projects to times."""
    return isinstance(value, dict) and all(map(_is_time, value.values()))


def _is_cut_table(value: object) -> bool:
    """Whether a value maps message ids to lists of ``[part, start, end]``: text that is left out of a part."""
    return isinstance(value, dict) and all(
        isinstance(cuts, list) and all(isinstance(cut, list) and [*map(type, cut)] == [int] * 3 for cut in cuts)
        for cuts in value.values()
    )


def _is_noted_table(value: object) -> bool:
    """Whether a value maps message ids to texts by their keys."""
    tables = value.values() if isinstance(value, dict) else (None,)
    return all(isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values()) for texts in tables)


# The expected value of each key: a type, a test, a table of shapes, or a list with the shape of its items. A key may be
# absent or null, except the id of a record in a list.
Shape = dict[str, object]
_CALL: Shape = {"id": str, "kind": str, "model": str, "tokens": dict, "cost": is_cost, "at": str, "late": bool}
_SUMMARY: Shape = {
    "id": str, "created_at": str, "model": str, "first": str, "last": str, "until": str, "text": str,
    "messages": int, "tokens": int,
}  # fmt: skip
_SNAPSHOT: Shape = {"id": str, "name": str, "created_at": str, "message": str, "reason": str, "tokens": int}
_COMPACTION: Shape = {
    "id": str, "at": str, "strategy": str, "upto": str, "summary": str, "pruned": str,
    "before": int, "after": int, "room": int, "budget": int, "kept": int, "ends": dict, "omitted": dict,
}  # fmt: skip
_DOCUMENT: Shape = {
    "version": int, "title": str, "created_at": _is_time, "updated_at": _is_time,
    "provider": {"name": str},
    "usage": {
        "tokens": dict, "cost": is_cost, "calls": [_CALL],
        "carried": is_cost, "carried_tokens": dict, "carried_model": str,
    },
    "stats": {},
    "meta": {
        "output": str, "cwd": str, "project": str, "used_in": _is_use_table, "tags": [str], "forked_from": str,
        "mcp_allowed_servers": [str], "imported": dict, "imported_at": str,
    },
    "agent": {"name": str, "model": str, "model_small": str, "system": str, "params": dict, "web": bool},
    "context": {
        "compaction": _COMPACTION, "summaries": [_SUMMARY], "snapshots": [_SNAPSHOT],
        "cuts": _is_cut_table, "noted": _is_noted_table, "consolidated": str,
    },
}  # fmt: skip
_MESSAGE: Shape = {
    "id": str, "parent": str, "timestamp": str, "agent": str, "provider": str, "model": str, "resolved_model": str,
    "request_id": str, "response_id": str, "finish_reason": str, "stop_sequence": str, "compaction": str,
    "tool_call_id": str, "name": str, "refusal": str, "thinking": list, "order": list, "usage": dict, "replay": dict,
    "sources": list, "duration_ms": (int, float), "memory": str, "project_file": str,
    "prefix_bytes": int, "prefix": str, "cost": is_cost,
}  # fmt: skip


def _validated(value: object, shape: object, path: str, malformed: list[str]) -> object:
    """Return the value without its malformed parts, or None if it is malformed itself.

    The paths of malformed parts are appended to ``malformed``.
    """
    if isinstance(shape, dict) and isinstance(value, dict):
        result = value
        for key, item in value.items():
            expected = shape.get(key)
            if item is None or expected is None or type(item) is expected:
                continue
            valid = _validated(item, expected, f"{path}.{key}" if path else key, malformed)
            if valid is None:
                result = {other: kept for other, kept in result.items() if other != key}
            elif valid is not item:
                result = {**result, key: valid}
        return result
    if isinstance(shape, list) and isinstance(value, list):
        items = []
        for index, item in enumerate(value):
            valid = _validated(item, shape[0], f"{path}[{index}]", malformed)
            if isinstance(valid, dict) and not valid.get("id"):
                malformed.append(f"{path}[{index}].id")
            elif valid is not None:
                items.append(valid)
        return items
    fits = isinstance(value, shape) if isinstance(shape, (type, tuple)) else callable(shape) and shape(value)
    if not fits:
        malformed.append(path)
    return value if fits else None


def parse_document(
    value: object, session_id: str | None = None, created: str | None = None
) -> tuple[Document, list[str]]:
    """Return the JSON value of a session file as a document with all keys, and the paths of its malformed parts.

    Malformed parts are left out. The file's name provides ``session_id``, which replaces the id in the file, and
    ``created``, for a missing time of creation. A version of 0, or none, is a file of gptsh-cli 0.8: its times
    have seconds, its messages no ids. Missing ids are derived in a way that gives every reader the same ones.
    Raises ValueError if the messages cannot be read.
    """
    from gptsh.content.shapes import normalize_message

    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise ValueError("not a session: no JSON object with a list of 'messages'")
    malformed: list[str] = []
    head = {key: item for key, item in value.items() if key != "messages"}
    valid = as_dict(_validated(head, _DOCUMENT, "", malformed))
    new = _with_all_keys(valid, session_id, created)
    messages: list[Message] = []
    for index, message in enumerate(value["messages"]):
        path = f"messages[{index}]"
        valid_message = _validated(check_message(message), _MESSAGE, path, malformed)
        messages += normalize_message(cast(Message, valid_message))
    new["messages"] = _with_ids(messages, f"gptsh:{new['id']} {new['created_at']}")
    if not valid.get("version"):
        _convert_old_totals(new)
    new["stats"] |= stats(new["messages"], new["stats"]["preview"])
    return new, [*dict.fromkeys(malformed)]


def _with_all_keys(head: JsonObject, session_id: str | None, created: str | None) -> Document:
    """Return a document without messages, of the valid keys of a file; a missing or null one has its default."""
    created = head.get("created_at") or (created if _is_time(created) else None)
    new: JsonObject = {**blank(session_id or str(head.get("id") or ""), created or _UNKNOWN_TIME)}
    for key, item in head.items():
        if key == "id":
            continue
        if key in _DOCUMENT and isinstance(item, dict):
            given = {name: part for name, part in item.items() if part is not None}
            new[key] = {**dict.fromkeys(item), **new[key], **given}
        elif item is not None or key not in new:
            new[key] = item
    new["version"] = max(head.get("version") or 0, VERSION)
    new["title"] = new["title"] and one_line(new["title"])  # whatever a model or another tool wrote there
    return cast(Document, new)


def _with_ids(messages: Sequence[Message], seed: str) -> list[Message]:
    """Return the messages, each with an id of its own: if it has none, one derived from the seed and its place."""
    identified: list[Message] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        message_id = message.get("id")
        if not message_id or message_id in seen:
            from uuid import NAMESPACE_URL, uuid5

            message_id = str(uuid5(NAMESPACE_URL, f"{seed} {index}"))
            message = {**message, "id": message_id}
        seen.add(message_id)
        identified.append(message)
    return identified


def check_message(value: object) -> Message:
    """Return the message. Raises ValueError if its role, content or tool calls are malformed."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise ValueError("not a session: a message without a role")
    content = value.get("content")
    calls = value.get("tool_calls")
    is_text = content is None or isinstance(content, str)
    if not is_text and not (isinstance(content, list) and all(isinstance(part, dict) for part in content)):
        raise ValueError("not a session: a message whose content is neither text nor parts")
    if calls is not None and not (isinstance(calls, list) and all(map(_is_call, calls))):
        raise ValueError("not a session: a message with malformed 'tool_calls'")
    return cast(Message, value)


def _is_call(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str) and isinstance(value.get("function"), dict)


def clean_message(value: object) -> Message:
    """Return the message without malformed keys. Raises ValueError as ``check_message`` does."""
    return cast(Message, _validated(check_message(value), _MESSAGE, "", []))


def _convert_old_totals(doc: Document) -> None:
    """Keep the totals that gptsh-cli 0.8 stored for the session, whose messages have no usage.

    ``carried`` is in USD; ``carried_tokens`` has TOKEN_KEYS; ``carried_model`` is the model of answers that name none.
    """
    usage = doc["usage"]
    if not any(message.get("cost") for message in doc["messages"]):
        usage.setdefault("carried", usage["cost"])
    if not any(message.get("usage") for message in doc["messages"]):
        usage.setdefault("carried_tokens", usage["tokens"])
    usage.setdefault("carried_model", full_name(doc["agent"].get("model"), doc["provider"].get("name")))
    prompt = doc["agent"].get("prompt_system")
    if isinstance(prompt, str):
        doc["agent"] = {"system": prompt, **doc["agent"]}


def is_unsaved(doc: Document) -> bool:
    """Whether the document was never saved: each save makes ``updated_at`` later than ``created_at``."""
    return bool(doc["updated_at"] == doc["created_at"])


# ---- counting


def stats(messages: Sequence[Message], preview: object = None) -> "Stats":
    """Return the number of ``turns`` and ``messages``, and a ``preview`` of the first question if none is given."""
    questions = [message for message in messages if starts_turn(message)]
    if not isinstance(preview, str) or not preview:
        preview = shorten(question_preview(questions[0]), PREVIEW_WIDTH) if questions else ""
    return {"turns": len(questions), "messages": len(messages), "preview": preview}


def add_call(
    doc: Document,
    kind: str,
    model: str | None,
    tokens: "Usage | None",
    cost: float | None,
    *,
    late: bool = False,
) -> None:
    """Record a call of the small model in the session's ledger, the only place that has its cost.

    ``kind`` is ``title``, ``summary`` or ``memory``; ``tokens`` is read by TOKEN_KEYS, None for a call that failed;
    ``cost`` is in USD. ``late``: the answer is not awaited. A call without a ``model`` is left to another process, and
    its entry is replaced by the next of its kind.
    """
    counts: Tokens | None = None
    if tokens:
        counts = {key: tokens[key] for key in TOKEN_KEYS if key in tokens}
    call: LedgerEntry = {
        "id": new_message_id(),
        "kind": kind,
        "model": model,
        "tokens": counts,
        "cost": cost,
        "at": timestamp(),
    }
    if late:
        call["late"] = True
    calls = []
    for other in doc["usage"]["calls"]:
        if other.get("kind") == kind and other.get("late") and other.get("model") is None:
            call["id"] = other["id"]
        else:
            calls.append(other)
    doc["usage"] = {**doc["usage"], "calls": [*calls, call]}


def update_totals(doc: Document) -> None:
    """Recompute ``stats`` and ``usage.cost`` from messages and calls; doing it twice changes nothing."""
    usage = doc["usage"]
    doc["stats"] = {**doc["stats"], **stats(doc["messages"], doc["stats"]["preview"])}
    costs = [item.get("cost") for item in (*doc["messages"], *usage["calls"])]
    usage["cost"] = sum_costs([*costs, usage.get("carried")])


def add_tags(doc: Document, tags: Iterable[str]) -> None:
    """Add those of the tags that the document lacks."""
    present = doc["meta"].get("tags") or []
    doc["meta"] = {**doc["meta"], "tags": [*dict.fromkeys([*present, *tags])]}


def drop_secrets(doc: Document) -> None:
    """Remove what may be secret: parameters that are not safe, and all about the provider except its name."""
    doc["provider"] = {"name": doc["provider"].get("name")}
    if params := doc["agent"].get("params"):
        doc["agent"] = {**doc["agent"], "params": safe_params(params)}


# ---- the bytes of a file
#
# ``write_document`` begins a new line before the context and before each message. JSON has no line
# breaks within a string, so lines of such a file are safe to read alone: a list reads the first, a
# search those with a word.

Head = Mapping[str, object]  # the unchecked keys of a document, at least those before its context
LIST_LIMIT = 200_000_000  # bytes; of a file that a list, a search or the usage would read whole
_BATCH = 100  # messages that are written at once
_BLOCK = 4096  # bytes; holds the first line of nearly every session
_LARGE = 200_000  # bytes that are parsed in the time of the fast parser's import
_TAIL = 64  # bytes; enough for the end of the messages
_OURS = b'{"version":'  # begins every file of our layout
_MESSAGES = b'"messages":['  # its third line
_END = b"]}"  # its last line


@again_if_stale
def write_document(path: Path, doc: Document, *, fsync: bool) -> None:
    """Replace a document's file, without secrets; its totals are those of ``usage.update_totals``.

    Raises OSError, StoreError if it is not JSON.
    """
    drop_secrets(doc)
    try:
        replace_pieces(path, _encode(doc), fsync=fsync)
    except ValueError as err:
        raise StoreError(f"the session cannot be saved: {err}") from err


def _encode(doc: Document) -> Iterator[bytes]:
    """The bytes of a document, a hundred messages at a time. Raises ValueError if it is not JSON."""
    start = list(doc).index("context")
    items = list(doc.items())
    head = dict(items[:start])
    rest = {key: value for key, value in items[start:] if key != "messages"}
    first_line = encode_json(head)[:-1]
    second_line = encode_json(rest)[1:-1]
    yield b"%b,\n%b,\n%b\n" % (first_line, second_line, _MESSAGES)
    separator = b""
    messages = doc["messages"]
    for start in range(0, len(messages), _BATCH):
        lines = [encode_json(message) for message in messages[start : start + _BATCH]]
        yield separator + b",\n".join(lines)
        separator = b",\n"
    yield b"\n" + _END


@again_if_stale
def read_document(path: Path | str, limit: int = MAX_SIZE) -> tuple[Document, list[str]]:
    """Return the whole document, its id taken from the file name, and the paths of malformed parts, which are left out.

    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    return parse_file(read_bytes(path, limit), os.fspath(path))


def parse_file(data: bytes, path: str) -> tuple[Document, list[str]]:
    """Return what ``read_document`` does, from the bytes of a file; only the name at the end of ``path`` is used."""
    try:
        value = parse_json_fast(data) if len(data) > _LARGE else parse_json(data.decode())
    except (ValueError, RecursionError) as err:
        raise ValueError(f"not JSON: {err}") from err
    name = path[-25:]  # yyyyMMdd-HHMMSS-id.json
    default_time = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    doc, malformed = parse_document(value, name[16:20], default_time)
    if doc["updated_at"] == doc["created_at"]:  # other programs write this; here it would mean never saved
        doc["updated_at"] = just_after(doc["created_at"])
    return doc, malformed


# ---- a part of a file


def read_head(path: str) -> Head:
    """Return the unchecked document up to its context: the first line of the file.

    A file that another program wrote is read whole, up to ``LIST_LIMIT``.
    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    data = _beginning(path)
    return (data and _head(data, path)) or read_document(path, LIST_LIMIT)[0]


@again_if_stale
def _beginning(path: str) -> bytes | None:
    """The beginning of a file with its first line; None if it does not look like ours.

    Raises OSError, also if the line is too long.
    """
    descriptor = open_own(path, READ)
    try:
        end = data = os.read(descriptor, _BLOCK)
        if len(data) == _BLOCK:  # otherwise the file ends here
            end = os.pread(descriptor, _TAIL, max(0, size_of(descriptor) - _TAIL))
        is_ours = data.startswith(_OURS) and end.rstrip().endswith(_END)
        if not is_ours:  # or it is torn, or has keys after the messages
            return None
        while b"\n" not in data:
            block = os.read(descriptor, len(data))
            if not block:
                break
            data += block
            if len(data) > LIST_LIMIT:
                raise too_large(LIST_LIMIT)
        return data
    finally:
        os.close(descriptor)


def _head(data: bytes, path: str) -> JsonObject | None:
    """Return the keys of the first line, or None if another program wrote the file: ours begins with ``version``."""
    line = data[: data.find(b"\n")]
    try:
        head = parse_json_fast(line[:-1] + b"}") if line.endswith(b",") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or next(iter(head), None) != "version" or "id" not in head:
        return None
    head["id"] = path[-9:-5]
    return head


def _start_of_messages(data: bytes) -> int | None:
    """The position of the first message in the bytes of a file, or None if another program wrote it."""
    marker = b"\n" + _MESSAGES + b"\n"
    at = data.find(marker)
    lines = data[:at].split(b"\n") if at > 0 and data.endswith(b"\n" + _END) else ()
    is_ours = len(lines) == 2 and lines[1].startswith(b'"context":')
    return at + len(marker) if is_ours else None


def parse_some(
    data: bytes,
    path: str,
    is_wanted: Callable[[bytes], bool],
) -> tuple[Head, Iterator[Message]]:
    """Return a file's document or its head, and its messages: at least those whose bytes are wanted.

    Raises ValueError if the file is not a session, also while the messages are read.
    """
    from gptsh.content.shapes import normalize_message

    start, head = _start_of_messages(data), _head(data, path)
    if start is None or head is None:
        doc, _ = parse_file(data, path)
        return doc, iter(doc["messages"])
    lines = _lines(data, start, len(data) - len(_END) - 1)
    return head, (
        message
        for line in lines
        if is_wanted(line)
        for message in normalize_message(check_message(parse_json_fast(line)))
    )


def _lines(data: bytes, start: int, end: int) -> Iterator[bytes]:
    """The lines of a part of the data, without the commas at their ends."""
    while start < end:
        stop = data.find(b"\n", start, end)
        stop = end if stop < 0 else stop
        yield data[start:stop].removesuffix(b",")
        start = stop + 1
