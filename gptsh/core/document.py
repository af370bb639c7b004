"""Define a session document: its keys, how they are checked, its totals, the bytes of its file."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeGuard, cast

from gptsh.content.passages import question_preview
from gptsh.errors import StoreError
from gptsh.files import (
    MAX_SIZE,
    READ,
    again_if_stale,
    open_own,
    read_bytes,
    replace_pieces,
)
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
    """Return a document without messages, its keys in the order of the file."""
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
#
# Each value has a shape: a type, a test, a table of shapes by key, or a list with the shape of its
# items. A key that the table names may be absent or null, except the id of a record in a list. A
# value of another shape is left out; keys without a shape are kept.

Shape = dict[str, object]
_ANY_KEY = "*"  # of a table in which each key has the same shape


def _is_time(value: object) -> TypeGuard[str]:
    """Return whether a value is ISO 8601, in a year that every time zone can show."""
    try:
        return isinstance(value, str) and 1900 <= datetime.fromisoformat(value).year <= LAST_YEAR
    except ValueError:
        return False


def _is_cut(value: object) -> bool:
    """Return whether a value is ``[part, start, end]``: what is left out of a part of a message."""
    if not isinstance(value, list) or len(value) != 3:
        return False
    return all(type(number) is int for number in value)


_DOCUMENT: Shape = {
    "version": int,
    "title": str,
    "created_at": _is_time,
    "updated_at": _is_time,
    "provider": {"name": str},
    "usage": {
        "tokens": dict,
        "cost": is_cost,
        "calls": [
            {
                "id": str,
                "kind": str,
                "model": str,
                "tokens": dict,
                "cost": is_cost,
                "at": str,
                "late": bool,
            },
        ],
        "carried": is_cost,
        "carried_tokens": dict,
        "carried_model": str,
    },
    "stats": {},
    "meta": {
        "output": str,
        "cwd": str,
        "project": str,
        "used_in": {_ANY_KEY: _is_time},
        "tags": [str],
        "forked_from": str,
        "mcp_allowed_servers": [str],
        "imported": dict,
        "imported_at": str,
    },
    "agent": {
        "name": str,
        "model": str,
        "model_small": str,
        "system": str,
        "params": dict,
        "web": bool,
    },
    "context": {
        "compaction": {
            "id": str,
            "at": _is_time,
            "strategy": str,
            "upto": str,
            "summary": str,
            "pruned": str,
            "before": int,
            "after": int,
            "room": int,
            "budget": int,
            "kept": int,
            "ends": {_ANY_KEY: int},
            "omitted": dict,
        },
        "summaries": [
            {
                "id": str,
                "created_at": str,
                "model": str,
                "first": str,
                "last": str,
                "until": str,
                "text": str,
                "messages": int,
                "tokens": int,
            },
        ],
        "snapshots": [
            {
                "id": str,
                "name": str,
                "created_at": str,
                "message": str,
                "reason": str,
                "tokens": int,
            },
        ],
        "cuts": {_ANY_KEY: [_is_cut]},
        "noted": {_ANY_KEY: {_ANY_KEY: str}},
        "consolidated": str,
    },
}
_MESSAGE: Shape = {
    "id": str,
    "parent": str,
    "timestamp": str,
    "agent": str,
    "provider": str,
    "model": str,
    "resolved_model": str,
    "request_id": str,
    "response_id": str,
    "finish_reason": str,
    "stop_sequence": str,
    "compaction": str,
    "tool_call_id": str,
    "name": str,
    "refusal": str,
    "thinking": list,
    "order": list,
    "usage": dict,
    "replay": dict,
    "sources": list,
    "duration_ms": (int, float),
    "memory": str,
    "project_file": str,
    "prefix_bytes": int,
    "prefix": str,
    "cost": is_cost,
}


def _validated(value: object, shape: object, path: str, malformed: list[str]) -> object:
    """Return the value without its malformed parts, or None if it is malformed itself.

    The paths of malformed parts are appended to ``malformed``.
    """
    if isinstance(shape, dict) and isinstance(value, dict):
        return _validated_table(value, shape, path, malformed)
    if isinstance(shape, list) and isinstance(value, list):
        return _validated_list(value, shape[0], path, malformed)
    if isinstance(shape, (type, tuple)):
        is_valid = isinstance(value, shape)
    else:
        is_valid = callable(shape) and shape(value)
    if is_valid:
        return value
    malformed.append(path)
    return None


def _validated_table(value: JsonObject, shape: Shape, path: str, malformed: list[str]) -> object:
    """Return the table itself, or a copy without its malformed parts."""
    new = value
    shape_of_all = shape.get(_ANY_KEY)
    for key, item in value.items():
        expected = shape.get(key, shape_of_all)
        # The second test is for speed: nearly all values of a file are simple and valid.
        if expected is None or type(item) is expected or (item is None and shape_of_all is None):
            continue
        valid = _validated(item, expected, f"{path}.{key}" if path else key, malformed)
        if valid is None:
            new = {other: part for other, part in new.items() if other != key}
        elif valid is not item:
            new = {**new, key: valid}
    return new


def _validated_list(
    value: list[object], shape: object, path: str, malformed: list[str]
) -> list[object]:
    """Return the items without their malformed parts; a record needs an id."""
    items = []
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        valid = _validated(item, shape, place, malformed)
        if isinstance(valid, dict) and not valid.get("id"):
            malformed.append(f"{place}.id")
        elif valid is not None:
            items.append(valid)
    return items


def parse_document(
    value: object,
    session_id: str | None = None,
    created: str | None = None,
) -> tuple[Document, list[str]]:
    """Return the JSON value of a file as a complete document, and the paths of malformed parts.

    Malformed parts are left out. The file's name provides ``session_id``, which replaces the id
    in the file, and ``created``, for a missing time of creation. A version of 0, or none, is a file
    of gptsh-cli 0.8.
    Raises ValueError if the messages cannot be read.
    """
    from gptsh.content.shapes import normalize_message

    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise ValueError("not a session: no JSON object with a list of 'messages'")
    malformed: list[str] = []
    outer_keys = {key: item for key, item in value.items() if key != "messages"}
    head = as_dict(_validated(outer_keys, _DOCUMENT, "", malformed))
    new = _with_all_keys(head, session_id, created)
    ids = set()
    for index, given_message in enumerate(value["messages"]):
        checked = check_message(given_message)
        valid = _validated(checked, _MESSAGE, f"messages[{index}]", malformed)
        for message in normalize_message(cast(Message, valid)):
            message_id = message.get("id")
            if not message_id or message_id in ids:
                message_id = _next_message_id(new)
                message = {**message, "id": message_id}
            ids.add(message_id)
            new["messages"].append(message)
    if not head.get("version"):
        _convert_old_totals(new)
    new["stats"] |= stats(new["messages"], new["stats"]["preview"])
    return new, list(dict.fromkeys(malformed))


def _next_message_id(doc: Document) -> str:
    """Return an id for the next message of a document: every reader gives it the same one."""
    from uuid import NAMESPACE_URL, uuid5

    place = f"gptsh:{doc['id']} {doc['created_at']} {len(doc['messages'])}"
    return str(uuid5(NAMESPACE_URL, place))


def _with_all_keys(head: JsonObject, session_id: str | None, created: str | None) -> Document:
    """Return a document without messages, of the valid keys of a file and the defaults."""
    created_at = _UNKNOWN_TIME
    if head.get("created_at"):
        created_at = head["created_at"]
    elif _is_time(created):
        created_at = timestamp(datetime.fromisoformat(created))
    new: JsonObject = {**blank(session_id or str(head.get("id") or ""), created_at)}
    for key, item in head.items():
        if key == "id":
            continue
        if key in _DOCUMENT and isinstance(item, dict):
            present_parts = {name: part for name, part in item.items() if part is not None}
            new[key] = {**dict.fromkeys(item), **new[key], **present_parts}
        elif item is not None or key not in new:
            new[key] = item
    new["version"] = max(new["version"], VERSION)
    if new["title"]:
        new["title"] = one_line(new["title"])  # a model or another tool may have written anything
    return cast(Document, new)


def check_message(value: object) -> Message:
    """Return the message. Raises ValueError if its role, content or tool calls are malformed."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise ValueError("not a session: a message without a role")
    content = value.get("content")
    if isinstance(content, list):
        is_valid = all(isinstance(part, dict) for part in content)
    else:
        is_valid = content is None or isinstance(content, str)
    if not is_valid:
        raise ValueError("not a session: a message whose content is neither text nor parts")
    calls = value.get("tool_calls")
    if calls is None:
        calls = []
    if not isinstance(calls, list) or not all(map(_is_call, calls)):
        raise ValueError("not a session: a message with malformed 'tool_calls'")
    return cast(Message, value)


def _is_call(value: object) -> bool:
    call = as_dict(value)
    return isinstance(call.get("id"), str) and isinstance(call.get("function"), dict)


def clean_message(value: object) -> Message:
    """Return the message without malformed keys. Raises ValueError as ``check_message`` does."""
    return cast(Message, _validated(check_message(value), _MESSAGE, "", []))


def _convert_old_totals(doc: Document) -> None:
    """Keep the totals that gptsh-cli 0.8 stored for the session, whose messages have no usage.

    ``carried`` is in USD; ``carried_tokens`` has TOKEN_KEYS; ``carried_model`` is the model of
    answers that name none.
    """
    usage = doc["usage"]
    if not any(message.get("cost") for message in doc["messages"]):
        usage.setdefault("carried", usage["cost"])
    if not any(message.get("usage") for message in doc["messages"]):
        usage.setdefault("carried_tokens", usage["tokens"])
    model = full_name(doc["agent"].get("model"), doc["provider"].get("name"))
    usage.setdefault("carried_model", model)
    prompt = doc["agent"].get("prompt_system")
    if isinstance(prompt, str):
        doc["agent"] = {"system": prompt, **doc["agent"]}


def was_never_saved(doc: Document) -> bool:
    """Return whether the document was never saved: each save makes it newer than its creation."""
    return bool(doc["updated_at"] == doc["created_at"])


# ---- counting


def stats(messages: Sequence[Message], preview: object = None) -> "Stats":
    """Return the number of ``turns`` and ``messages``, and the ``preview``.

    The preview is the beginning of the first question if none is given.
    """
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

    ``kind`` is ``title``, ``summary`` or ``memory``; ``tokens`` is read by TOKEN_KEYS, None for a
    call that failed; ``cost`` is in USD. ``late``: the answer is not awaited. A call without a
    ``model`` is left to another process, and its entry is replaced by the next of its kind.
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


def recount(doc: Document) -> None:
    """Recompute ``stats`` and ``usage.cost`` from messages and calls; safe to call again."""
    counts = stats(doc["messages"], doc["stats"]["preview"])
    doc["stats"] = {**doc["stats"], **counts}
    usage = doc["usage"]
    costs = [item.get("cost") for item in (*doc["messages"], *usage["calls"])]
    costs.append(usage.get("carried"))
    usage["cost"] = sum_costs(costs)


def change_tags(doc: Document, added: Iterable[str], removed: Collection[str] = ()) -> None:
    """Remove tags from the document, then add those that it lacks."""
    kept = [tag for tag in doc["meta"].get("tags") or [] if tag not in removed]
    doc["meta"] = {**doc["meta"], "tags": [*dict.fromkeys([*kept, *added])]}


# ---- the bytes of a file
#
# ``write_document`` begins a new line before the context and before each message. JSON has no line
# breaks within a string, so each line of such a file can be read alone: a list reads the first, a
# search those with a word.

Head = Mapping[str, object]  # the unchecked keys of a document, at least those before its context
LIST_LIMIT = 200_000_000  # bytes; of a file that a list, a search or the usage would read whole
_BLOCK = 4096  # bytes; holds the first line of nearly every session
_LONG_BLOCK = 1_000_000  # bytes; a file with a longer first line is read whole
_LARGE = 200_000  # bytes that are parsed in the time of the fast parser's import
_TAIL = 64  # bytes; enough for the end of the messages
_START = b'{"version":'  # of the first line of a file that gptsh wrote
_THIRD_LINE = b'"messages":['
_LAST_LINE = b"]}"


@again_if_stale
def write_document(path: Path, doc: Document, *, fsync: bool) -> None:
    """Replace a document's file. Only ``usage.write_session`` calls this: it sets the totals.

    Removes from the document what may be secret: parameters that are not safe, and all about the
    provider except its name. Raises OSError, StoreError if it is not JSON.
    """
    doc["provider"] = {"name": doc["provider"].get("name")}
    if params := doc["agent"].get("params"):
        doc["agent"] = {**doc["agent"], "params": safe_params(params)}
    try:
        replace_pieces(path, _encode(doc), fsync=fsync)
    except ValueError as err:
        raise StoreError(f"the session cannot be saved: {err}") from err


def _encode(doc: Document) -> Iterator[bytes]:
    """Yield the bytes of a document, line by line. Raises ValueError if it is not JSON."""
    first_line: JsonObject = {}
    second_line: JsonObject = {}
    for key, value in doc.items():
        if key == "context" or second_line:
            second_line[key] = value
        else:
            first_line[key] = value
    messages = second_line.pop("messages")
    yield encode_json(first_line)[:-1] + b",\n"
    yield encode_json(second_line)[1:-1] + b",\n"
    yield _THIRD_LINE
    separator = b"\n"
    for message in messages:
        yield separator
        yield encode_json(message)
        separator = b",\n"
    yield b"\n" + _LAST_LINE


def read_document(path: Path | str, limit: int = MAX_SIZE) -> tuple[Document, list[str]]:
    """Return the document of a file, and the paths of malformed parts, which are left out.

    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    return parse_file(read_bytes(path, limit), os.fspath(path))


def parse_file(data: bytes, path: str) -> tuple[Document, list[str]]:
    """Return what ``read_document`` does; only the file name at the end of ``path`` is used."""
    try:
        value = parse_json_fast(data) if len(data) > _LARGE else parse_json(data.decode())
    except (ValueError, RecursionError) as err:
        raise ValueError(f"not JSON: {err}") from err
    name = path[-25:]  # yyyyMMdd-HHMMSS-id.json
    session_id = name[16:20]
    created = f"{name[:8]}T{name[9:15]}Z"
    doc, malformed = parse_document(value, session_id, created)
    if was_never_saved(doc):  # as another program may leave it; a file is a saved session
        doc["updated_at"] = just_after(doc["created_at"])
    return doc, malformed


# ---- a part of a file


def read_head(path: str) -> Head:
    """Return the unchecked document up to its context: the first line of the file.

    A file that another program wrote is read whole, up to ``LIST_LIMIT``.
    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    return _head_in(_first_line(path), path) or read_document(path, LIST_LIMIT)[0]


@again_if_stale
def _first_line(path: str) -> bytes:
    """Return the first line of a file that ends as gptsh ends it, or b"". Raises OSError.

    A file with another end is torn, or another program wrote keys after the messages.
    """
    descriptor = open_own(path, READ)
    try:
        data = os.read(descriptor, _BLOCK)
        end = data
        if len(data) == _BLOCK:  # otherwise the file ends here
            size = os.fstat(descriptor).st_size
            end = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
            if b"\n" not in data:
                data += os.read(descriptor, _LONG_BLOCK)
        line, newline, _ = data.partition(b"\n")
        return line if newline and end.rstrip().endswith(_LAST_LINE) else b""
    finally:
        os.close(descriptor)


def _head_in(line: bytes, path: str) -> JsonObject | None:
    """Return the keys of the first line of a file, or None if another program wrote the file."""
    if not (line.startswith(_START) and line.endswith(b",")):
        return None
    try:
        head = parse_json_fast(line[:-1] + b"}")
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or "id" not in head:
        return None
    head["id"] = path[-9:-5]
    return head


def parse_some(
    data: bytes,
    path: str,
    is_wanted: Callable[[bytes], bool],
) -> tuple[Head, Iterator[Message]]:
    """Return a file's document or its head, and at least those messages whose bytes are wanted.

    Raises ValueError if the file is not a session, also while the messages are read.
    """
    lines = data.split(b"\n")
    head = _head_in(lines[0], path)
    if head is None or lines[2:3] != [_THIRD_LINE] or lines[-1] != _LAST_LINE:
        doc, _ = parse_file(data, path)
        return doc, iter(doc["messages"])
    return head, _messages_in(filter(is_wanted, lines[3:-1]))


def _messages_in(lines: Iterable[bytes]) -> Iterator[Message]:
    from gptsh.content.shapes import normalize_message

    for line in lines:
        message = parse_json_fast(line.removesuffix(b","))
        yield from normalize_message(check_message(message))
