"""Build a session from another tool's records: messages are checked here; ids, times, titles and usage become ours."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

from gptsh.content.shapes import normalize_message
from gptsh.core import document, sessions
from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.formats.source import BadInput, Results, Skipped, Source
from gptsh.jsonio import as_dict
from gptsh.messages import Call, Message, safe_params, timestamp
from gptsh.models.usage import FINISH_REASONS, usage_from
from gptsh.models.vendors import PROVIDERS
from gptsh.text import shorten

BAD_MESSAGE = "not a readable message"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
_MAX_LENGTH = 200  # characters of a title, a key, the name of a model
_YEARS = range(1970, 9001)
_MAX_SECONDS = 1e11  # since 1970; a larger number is milliseconds
_PROVIDERS = {"claude": "anthropic", "codex": "openai", "google": "gemini"}  # other tools' names: ours
Record = TypeVar("Record")


@dataclass
class Conversation:
    """A session while it is read: the values as in the file, and its messages.

    ``key`` identifies the session in its source, and is the same each time it is read. Times are ISO 8601, local if
    they have no zone. ``extra`` is stored for an export to the same format. ``consolidated`` is how many of the
    messages are in the tool's memory.
    """

    source: Source
    format: str
    key: str
    title: Any = None
    created_at: Any = None
    updated_at: Any = None
    provider: Any = None
    model: Any = None
    system: Any = None
    cwd: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    consolidated: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=dict)  # message ids, and digests with their number of occurrences

    def add_record(self, read: Callable[[Record], Iterable[Mapping[str, Any]]], record: Record, line: int = 0) -> None:
        """Add the messages that ``read`` finds in a record. A malformed record is skipped."""
        try:
            messages = [*read(record)]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # the record can be any JSON
            self.skipped.append(self.source.skipped(BAD_MESSAGE, line))
            return
        for message in messages:
            self.add_message(message, line)

    def add_message(self, message: Mapping[str, Any], line: int = 0) -> bool:
        """Add a message in our format or another API's, with or without ``id`` and ``timestamp``; False if malformed.

        A message with tool results becomes several. It keeps its id if no other message has it. Else the id is derived
        from its content, so that it is the same each time the source is read, at whatever place in the file.
        """
        fields = {key: value for key, value in message.items() if key not in ("id", "parent", "timestamp")}
        if moment := utc(message.get("timestamp")):
            fields["timestamp"] = moment
        try:
            valid = document.clean_message(fields)
        except ValueError as err:
            self.skipped.append(self.source.skipped(str(err).removeprefix("not a session: "), line))
            return False
        given_id = message.get("id")
        for at, one in enumerate(normalize_message(valid)):
            keeps_id = not at and isinstance(given_id, str) and _ID.fullmatch(given_id) and given_id not in self._seen
            ident = str(given_id) if keeps_id else self.derived_id([message, at] if at else message)
            self._seen[ident] = 1
            parent = self.messages[-1]["id"] if self.messages else None
            self.messages.append({**one, "id": ident, "parent": parent})
        return True

    def derived_id(self, content: object) -> str:
        """An id derived from JSON content: the same in each import, another one for each repetition of the content."""
        digest = fingerprint([self.format, self.key, content])
        count = self._seen[digest] = self._seen.get(digest, 0) + 1
        return str(uuid5(NAMESPACE_URL, f"gptsh:{digest} {count}"))

    def results(self, *, allow_empty: bool = False) -> Results:
        """What cannot be read, then the session. A session without messages is left out unless ``allow_empty``."""
        yield from self.skipped
        if self.messages or allow_empty:
            yield self._document()

    def _document(self) -> Document:
        """The session document, not saved yet."""
        times = [moment for item in self.messages if (moment := item.get("timestamp"))]
        first = min(times, default=None) or utc(self.source.modified)
        created = utc(self.created_at) or first or timestamp()
        updated = utc(self.updated_at) or max(times, default=created)
        system = self.system if isinstance(self.system, str) and self.system.strip() else None
        agent: dict[str, Any] = {"name": None, "model": label(self.model), "model_small": None, "system": system}
        agent["params"] = safe_params(as_dict(self.params))
        provider, cwd = {"name": label(self.provider)}, self.cwd if isinstance(self.cwd, str) else None
        doc = sessions.new_session_doc(agent, provider, output=None, mcp_allowed_servers=None)
        title = label(self.title)
        doc |= {"title": title, "created_at": created, "updated_at": max(updated, created), "messages": self.messages}
        key = self.key if len(self.key) <= _MAX_LENGTH else fingerprint(self.key)
        imported = {"format": self.format, "key": key, "title": title, **self.extra}
        doc["meta"] |= {"cwd": cwd, "project": cwd, "tags": [self.format], "imported": imported}
        usage = next((as_dict(item["usage"]) for item in reversed(self.messages) if item.get("usage")), {})
        doc["usage"]["tokens"] |= {key: usage[key] for key in TOKEN_KEYS if key in usage}
        if 0 < self.consolidated <= len(self.messages):
            doc["context"]["consolidated"] = self.messages[self.consolidated - 1]["id"]
        return doc


def read_each(source: Source, read: Callable[[Record], Conversation], records: Iterable[Record]) -> Results:
    """The sessions of records that hold one session each. A malformed record is skipped, named by its number."""
    remaining = iter(records)
    for number in count(1):
        where = f"{source.name}, session {number}"
        try:
            record = next(remaining)
        except StopIteration:
            return
        except BadInput as err:  # the rest of the file cannot be read
            yield source.skipped(str(err))
            return
        try:
            conversation = read(record)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # the record can be any JSON
            yield Skipped(where, "not in the format that its tool writes")
            continue
        for result in conversation.results():
            if isinstance(result, Skipped) and result.where == source.name:
                result = result._replace(where=where)
            yield result


def branch_to(leaf: Any, records: Mapping[Any, dict[str, Any]], parent_key: str) -> list[dict[str, Any]]:
    """The records of a tree from the root to ``leaf``, an id; ``parent_key`` holds the id of a record's parent."""
    branch: dict[Any, dict[str, Any]] = {}
    while leaf in records and leaf not in branch:
        branch[leaf] = records[leaf]
        leaf = records[leaf].get(parent_key)
    return [*branch.values()][::-1]


# ---- values


def utc(moment: object) -> str | None:
    """Our timestamp for ISO 8601 (local if it has no zone) or for a time since 1970; None if invalid."""
    try:
        if isinstance(moment, str):
            time = datetime.fromisoformat(moment)
        elif isinstance(moment, (int, float)) and not isinstance(moment, bool):
            time = datetime.fromtimestamp(moment / 1000 if moment > _MAX_SECONDS else moment, UTC)
        else:
            return None
        return timestamp(time) if time.year in _YEARS else None
    except (ValueError, OverflowError, OSError):
        return None


def label(value: object) -> str | None:
    """A name or a title on one line; None if it is empty or not a string."""
    return shorten(value, _MAX_LENGTH) or None if isinstance(value, str) else None


def fingerprint(value: object) -> str:
    """The SHA-256 of a JSON value, in 64 hex digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def without(record: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The record without these keys, and without those that are null."""
    return {key: value for key, value in record.items() if key not in keys and value is not None}


def with_raw(content: list[dict[str, Any]], raw: object) -> list[dict[str, Any]]:
    """The parts of a message, its tool results with the raw output that stands beside the message."""
    return [{"tool_use_result": raw, **part} if part["type"] == "tool_result" else part for part in content]


def provider_name(name: object) -> str | None:
    """Our name for a provider that another tool names; the tool's own name if gptsh does not know the provider."""
    original = label(name)
    normalized = (original or "").lower().replace(" ", "_")
    return _PROVIDERS.get(normalized) or (normalized if normalized in PROVIDERS else original)


def tool_call(ident: object, name: object, arguments: object) -> Call:
    """A tool call; arguments that are not a string are encoded as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}


def answer_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """The model, response id, finish reason and usage of an answer of Anthropic's API, as keys of our message."""
    reason, usage = message.get("stop_reason"), message.get("usage")
    fields = {
        "model": label(message.get("model")),
        "response_id": message.get("id"),
        "finish_reason": FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None,
        "usage": usage_from(usage) if isinstance(usage, dict) else None,
    }
    return {key: value for key, value in fields.items() if value is not None}
