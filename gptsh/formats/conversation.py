"""A session made of what another tool's file holds: ids, times and counts as ours have them; validated once, here."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

from gptsh.content.foreign import translated
from gptsh.core import document, sessions
from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.formats.source import Results, Skipped, Source
from gptsh.jsonio import as_dict
from gptsh.messages import Call, Message, timestamp
from gptsh.models.cost import REASONS, usage_from
from gptsh.models.names import safe_params
from gptsh.models.providers import PROVIDERS
from gptsh.text import shorten

NO_MESSAGE = "no message that can be read"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
_LONGEST = 200  # characters of a title, a key, the name of a model
_YEARS = range(1970, 9001)
_PROVIDERS = {"claude": "anthropic", "codex": "openai", "google": "gemini"}  # as other tools call them
Record = TypeVar("Record")


@dataclass
class Conversation:
    """A session to be, in its file's own words, and its messages.

    ``key`` identifies it in its source, the same each time it is read. Times are ISO 8601; without a zone they are
    local. ``kept`` is what a way back to the format needs; ``consolidated`` is how many of its messages are in a
    memory.
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
    _seen: dict[str, int] = field(default_factory=dict)  # ids, and how often messages had the same words

    def add_record(self, make: Callable[[Record], Iterable[Mapping[str, Any]]], record: Record, line: int = 0) -> None:
        """Add the messages that ``make`` makes of a record; one of another shape than its tool writes is unread."""
        try:
            messages = [*make(record)]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # whatever the file has in its place
            self.skipped.append(self.source.skipped(NO_MESSAGE, line))
            return
        for message in messages:
            self.add_message(message, line)

    def add_message(self, message: Mapping[str, Any], line: int = 0) -> bool:
        """Add a message in our shape or another API's, which may have ``id`` and ``timestamp``; whether it is one.

        Several come of one that carries results of tools. Its id is its own where no other message has it, else made of
        its words, so that it is the same each time the source is read, wherever it stands there.
        """
        new = {key: value for key, value in message.items() if key not in ("id", "parent", "timestamp")}
        if moment := utc(message.get("timestamp")):
            new["timestamp"] = moment
        try:
            sound = document.clean_message(new)
        except ValueError as err:
            self.skipped.append(self.source.skipped(str(err).removeprefix("not a session: "), line))
            return False
        own = message.get("id")
        for at, one in enumerate(translated(sound)):
            has_id = not at and isinstance(own, str) and _ID.fullmatch(own) and own not in self._seen
            ident = str(own) if has_id else self.derived_id([message, at] if at else message)
            self._seen[ident] = 1
            parent = self.messages[-1]["id"] if self.messages else None
            self.messages.append({**one, "id": ident, "parent": parent})
        return True

    def derived_id(self, words: object) -> str:
        """An id made of what tells a message from others, the same each time; for each of the same another one."""
        digest = fingerprint([self.format, self.key, words])
        nth = self._seen[digest] = self._seen.get(digest, 0) + 1
        return str(uuid5(NAMESPACE_URL, f"gptsh:{digest} {nth}"))

    def results(self, *, allow_empty: bool = False) -> Results:
        """What could not be read, then the session, where a message of it could be; ``empty``: in any case."""
        yield from self.skipped
        if self.messages or allow_empty:
            yield self._document()

    def _document(self) -> Document:
        """The session, which has not been saved."""
        times = [moment for item in self.messages if (moment := item.get("timestamp"))]
        created = utc(self.created_at) or min(times, default=self.source.modified)
        updated = utc(self.updated_at) or max(times, default=created)
        system = self.system if isinstance(self.system, str) and self.system.strip() else None
        agent: dict[str, Any] = {"name": None, "model": label(self.model), "model_small": None, "system": system}
        agent["params"] = safe_params(as_dict(self.params))
        provider, cwd = {"name": label(self.provider)}, self.cwd if isinstance(self.cwd, str) else None
        doc = sessions.new_session_doc(agent, provider, output=None, mcp_allowed_servers=None)
        title = label(self.title)
        doc |= {"title": title, "created_at": created, "updated_at": max(updated, created), "messages": self.messages}
        key = self.key if len(self.key) <= _LONGEST else fingerprint(self.key)
        imported = {"format": self.format, "key": key, "title": title, **self.extra}
        doc["meta"] |= {"cwd": cwd, "project": cwd, "tags": [self.format], "imported": imported}
        used = next((as_dict(item["usage"]) for item in reversed(self.messages) if item.get("usage")), {})
        doc["usage"]["tokens"] |= {key: used[key] for key in TOKEN_KEYS if key in used}
        if 0 < self.consolidated <= len(self.messages):
            doc["context"]["consolidated"] = self.messages[self.consolidated - 1]["id"]
        return doc


def read_each(source: Source, read: Callable[[Record], Conversation], records: Iterable[Record]) -> Results:
    """The sessions of records that are one each; one of another shape than its tool writes is unread, by its number."""
    for number, record in enumerate(records, 1):
        where = f"{source.name}, session {number}"
        try:
            found = read(record)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # whatever the file has in its place
            yield Skipped(where, "not of the shape that its tool writes")
            continue
        for one in found.results():
            yield one._replace(where=where) if isinstance(one, Skipped) and one.where == source.name else one


def branch_to(last: Any, records: Mapping[Any, dict[str, Any]], parent: str) -> list[dict[str, Any]]:
    """The records of a tree from the first to the one of an id; ``parent`` has the id of the one before it."""
    found: dict[Any, dict[str, Any]] = {}
    while last in records and last not in found:
        found[last] = records[last]
        last = records[last].get(parent)
    return [*found.values()][::-1]


# ---- values


def utc(moment: object) -> str | None:
    """A time as our own are, from ISO 8601 (without a zone: local), or from milliseconds since 1970; None for none."""
    try:
        if isinstance(moment, str):
            found = datetime.fromisoformat(moment)
        elif isinstance(moment, (int, float)) and not isinstance(moment, bool):
            found = datetime.fromtimestamp(moment / 1000, UTC)
        else:
            return None
        return timestamp(found) if found.year in _YEARS else None
    except (ValueError, OverflowError, OSError):
        return None


def label(value: object) -> str | None:
    """A name or a title, on one line; None where there is none."""
    return shorten(value, _LONGEST) or None if isinstance(value, str) else None


def fingerprint(value: object) -> str:
    """What tells a JSON value from all others: a hash of 64 hex digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def without(record: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """What else a record has, null left out."""
    return {key: value for key, value in record.items() if key not in known and value is not None}


def provider_name(name: object) -> str | None:
    """A provider as we call it, where it is known; else as it is called there."""
    own = label(name)
    plain = (own or "").lower().replace(" ", "_")
    return _PROVIDERS.get(plain) or (plain if plain in PROVIDERS else own)


def tool_call(ident: object, name: object, arguments: object) -> Call:
    """A tool call; arguments that are no text become JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}


def answer_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer of Anthropic's shape reports of itself: model, its id, why it ended, what it used."""
    reason, used = message.get("stop_reason"), message.get("usage")
    found = {
        "model": label(message.get("model")),
        "response_id": message.get("id"),
        "finish_reason": REASONS.get(reason, reason) if isinstance(reason, str) else None,
        "usage": usage_from(used) if isinstance(used, dict) else None,
    }
    return {key: value for key, value in found.items() if value is not None}
