"""A session made of what another tool's file holds: ids, times and counts as our own have them."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeGuard
from uuid import NAMESPACE_URL, uuid5

from gptsh.core import document, sessions
from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.formats.source import Source, Unread
from gptsh.jsonio import as_dict
from gptsh.messages import Message, timestamp
from gptsh.models.names import safe_params
from gptsh.text import shortened

SOURCE = "source"  # of a message: what its source said and we say otherwise; for the way back
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
_LONGEST = 200  # characters of a title, a key, the name of a model
_FIRST_YEAR = 1970
_LAST_YEAR = 9000


@dataclass
class Draft:
    """A session to be: what its file says of it, in its own words, and its messages.

    ``key`` is what identifies it in its source, the same each time it is read. Times are ISO 8601; without a zone they
    are local. ``kept`` is what a way back to the format needs; ``consolidated`` is how many of its messages are in a
    memory; ``carried`` are tokens (TOKEN_KEYS) that are known of the session as a whole.
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
    carried: Mapping[str, int | None] | None = None
    consolidated: int = 0
    kept: dict[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _seen: dict[str, int] = field(default_factory=dict)  # how often a message stood there in the same words

    def add(self, message: Mapping[str, Any], line: int | None = None) -> Message | None:
        """Take a message, which may have ``id``, ``parent`` and ``timestamp``; None where it is none.

        One that is no message is noted as unread. Its id is its own where no other message has it, else made of its
        words, so that it is the same each time the source is read, wherever it stands there.
        """
        new: dict[str, Any] = dict(message)
        moment = new.pop("timestamp", None)
        own, parent = new.pop("id", None), new.pop("parent", None)
        if moment is not None:
            _set_time(new, moment)
        try:
            new = dict(document.check_message(new)[0])
        except ValueError as err:
            self.unread.append(self.source.unread(str(err).removeprefix("not a session: "), line))
            return None
        last = self.messages[-1]["id"] if self.messages else None
        new["id"] = own if _is_id(own) and own not in self._ids else self._derived(message)
        new["parent"] = parent if _is_id(parent) else last
        self._ids.add(new["id"])
        self.messages.append(new)  # type: ignore[arg-type]
        return self.messages[-1]

    def _derived(self, message: Mapping[str, Any]) -> str:
        words = fingerprint([self.format, self.key, message])
        nth = self._seen[words] = self._seen.get(words, 0) + 1
        return str(uuid5(NAMESPACE_URL, f"gptsh:{words} {nth}"))

    def results(self, *, empty: bool = False) -> Iterator[Document | Unread]:
        """What could not be read, then the session, where a message of it could be; ``empty``: in any case."""
        yield from self.unread
        if self.messages or empty:
            try:
                yield self.document()
            except ValueError as err:
                yield self.source.unread(str(err).removeprefix("not a session: "))

    def document(self) -> Document:
        """The session, which has not been saved. Raises ValueError saying why it is none."""
        times = [moment for item in self.messages if (moment := item.get("timestamp"))]
        created = utc(self.created_at) or min(times, default=self.source.modified)
        updated = utc(self.updated_at) or max(times, default=created)
        agent = {"name": None, "model": word(self.model), "model_small": None}
        system = self.system if isinstance(self.system, str) and self.system.strip() else None
        provider, cwd = {"name": word(self.provider)}, self.cwd if isinstance(self.cwd, str) else None
        params = safe_params(as_dict(self.params))
        doc = sessions.new_session_doc({**agent, "params": params, "system": system}, provider, output=None,
                                       mcp_allowed_servers=None)  # fmt: skip
        doc |= {"title": word(self.title), "created_at": created, "updated_at": max(updated, created)}
        doc["meta"] |= {"cwd": cwd, "project": cwd, "tags": [self.format]}
        doc["meta"]["imported"] = {"format": self.format, "key": short_key(self.key), **self.kept}
        doc["messages"] = self.messages
        doc["usage"]["tokens"] |= self._tokens()
        if self.carried:
            doc["usage"]["carried_tokens"] = dict.fromkeys(TOKEN_KEYS) | dict(self.carried)
        if 0 < self.consolidated <= len(self.messages):
            doc["context"]["consolidated"] = self.messages[self.consolidated - 1]["id"]
        return document.complete(doc)[0]

    def _tokens(self) -> dict[str, Any]:
        """What the latest call used, as far as it is known."""
        used = next((as_dict(item["usage"]) for item in reversed(self.messages) if item.get("usage")), {})
        return {key: used[key] for key in TOKEN_KEYS if key in used}


def utc(moment: object) -> str | None:
    """A time as our own are, from ISO 8601 (without a zone: local), or from milliseconds since 1970; None for none."""
    try:
        if isinstance(moment, str):
            found = datetime.fromisoformat(moment)
        elif isinstance(moment, (int, float)) and not isinstance(moment, bool):
            found = datetime.fromtimestamp(moment / 1000, UTC)
        else:
            return None
        return timestamp(found) if _FIRST_YEAR <= found.year <= _LAST_YEAR else None
    except (ValueError, OverflowError, OSError):
        return None


def _set_time(message: dict[str, Any], moment: object) -> None:
    """Set the time; what the source said beside it, where that is another text."""
    ours = utc(moment)
    if ours:
        message["timestamp"] = ours
    if ours != moment:
        message[SOURCE] = {**as_dict(message.get(SOURCE)), "timestamp": moment}


def word(value: object) -> str | None:
    """A name or a title, on one line; None where there is none."""
    return shortened(value, _LONGEST) or None if isinstance(value, str) else None


def short_key(key: str) -> str:
    """A key of a length that can stand in a head."""
    return key if len(key) <= _LONGEST else fingerprint(key)


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(_ID.fullmatch(value))


def fingerprint(value: object) -> str:
    """What tells a JSON value from all others: a hash of 64 hex digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
