"""Read one input of an import piece by piece, and build sessions from its records."""

import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from gptsh.content.shapes import normalize_message
from gptsh.core import document, sessions
from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.jsonio import JsonObject, as_dict, as_str, parse_json_at
from gptsh.messages import LAST_YEAR, Call, Message, Part, safe_params, timestamp
from gptsh.models.usage import FINISH_REASONS, usage_from
from gptsh.models.vendors import VENDORS
from gptsh.text import quantity, shorten

if TYPE_CHECKING:
    from types import ModuleType

    from gptsh.core.document_types import AgentInfo, ProviderInfo

# ---- source
#
# The input of an import: one file, read as a JSON value, as an array or as lines of JSON.
#
# No path that a file names is opened. An array is read item by item, so that an archive of two
# gigabytes takes no more memory than its largest conversation. Input that is too large or nested
# too deeply is refused.

_MAX_FILE = 2_000_000_000  # bytes
_MAX_SESSION = 250_000_000  # bytes: 80 MB of Cyrillic in our own Markdown
_MAX_LINE = 100_000_000  # bytes; several copies of a line are in memory
_MAX_RECORDS = 1_000_000  # of one session
_MAX_VALUES = 5_000_000  # in a record: half a gigabyte of memory
_MAX_DEPTH = 100  # levels of JSON; every reader of the session recurses as deep
_STEPS = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}  # of ijson's depth
_INFINITE = (math.inf, -math.inf)
_TOO_DEEP = "nested more than 100 levels deep"
_TOO_MANY = "more than {:,} values in it: split it"
_BLOCK = 1 << 20  # bytes read at once
_START = 1 << 16  # bytes by which some formats are recognised
_FIRST = 10  # lines, or items of an array, by which a format is recognised
_BOM = b"\xef\xbb\xbf"
_BLANK = " \t\r\n\0"  # between values on a line; a crash can leave NULs in a file
_BLANKS = re.compile(f"[{_BLANK}]*")
# What a record that is not as its tool writes it raises: it can be any JSON.
MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class Skipped(NamedTuple):
    """Input that cannot be read: ``path`` or ``path:line``, and why.

    ``is_foreign``: no file of a known tool.
    """

    where: str
    why: str
    is_foreign: bool = False


# A message as it was read, in our keys or in those of another API. ``add_message`` checks it.
ForeignMessage = JsonObject
Results = Iterator[Document | Skipped]  # the sessions in a file, and what cannot be read of it


class BadInput(ValueError):
    """A file, or the rest of one, that cannot be read. Its text gives the reason."""


class Line(NamedTuple):
    """A JSON object on a line: the line's number from 1, the object's value and its text.

    An item of an array, or the one value of a file, has no number and no text.
    """

    number: int
    value: JsonObject
    text: str


class Source:
    """One file, or piped input: ``name`` is shown to the user, ``path`` is None for a pipe.

    ``start`` is the beginning of the content, without a BOM, ``size`` its bytes, ``modified`` the
    time of the file in seconds since 1970. ``on_read`` is called with the share of the content that
    was read, from 0 to 1.
    Raises BadInput for a file that is not a regular one, too large, or unreadable.
    """

    def __init__(
        self,
        name: str,
        path: Path | None = None,
        data: bytes = b"",
        on_read: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.path = path
        self.json_error = ""  # why the file is no JSON value or array, once it was read as one
        self.modified: float | None = None
        self.size = len(data)
        self._data = data
        self._on_read = on_read
        if path is not None:
            status = _status_of(path)
            self.modified = status.st_mtime
            self.size = status.st_size
        start = b"".join(self.blocks(0, _START))
        self.start = start.removeprefix(_BOM)
        self._text_start = len(start) - len(self.start)
        self.is_array = self.start.lstrip().startswith(b"[")
        self.is_database = self.start.startswith(b"SQLite format 3\0")
        if self.size > _MAX_FILE and not self.is_database:
            raise BadInput("more than 2,000 MB: split it, an array with jq '.[:5000]' and so on")

    # ---- bytes

    @property
    def data(self) -> bytes:
        """The whole content. Raises BadInput if it is too large for one session."""
        self._check_size()
        return b"".join(self.blocks())

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the content from ``start`` to ``end``. Raises BadInput if it cannot be read."""
        end = self.size if end is None else end
        try:
            with self._open() as file:
                file.seek(start)
                while block := file.read(min(_BLOCK, end - file.tell())):
                    share = file.tell() / self.size
                    self._on_read(share)
                    yield block
        except OSError as err:
            raise BadInput(err.strerror or str(err)) from err

    def _open(self) -> io.RawIOBase | io.BytesIO:
        if self.path is None:
            return io.BytesIO(self._data)
        return open(self.path, "rb", buffering=0)

    def _text(self) -> Iterator[bytes]:
        """Yield the content without a BOM."""
        return self.blocks(self._text_start)

    def _check_size(self) -> None:
        if self.size > _MAX_SESSION:
            raise BadInput("a session of more than 250 MB: split it, lines with split -C 200m")

    def sibling(self, *names: str) -> "Source | None":
        """Return a file at a path relative to this file's folder; None if it cannot be read.

        The format must fix the path. Never pass a name that a file supplied, unless it was checked
        to be a hash or an id.
        """
        if self.path is None:
            return None
        path = self.path.parent.joinpath(*names)
        try:
            return Source(str(path), path)
        except BadInput:
            return None

    def skipped(self, why: str, line: int = 0) -> Skipped:
        """Return a part of this source that cannot be read, with its line if it has one."""
        where = f"{self.name}:{line}" if line else self.name
        return Skipped(where, why)

    # ---- records

    @cached_property
    def value(self) -> JsonObject:
        """The object that the file is; empty for an array, lines of JSON, or what is not JSON."""
        if self.is_array:
            return {}
        values: list[object] = []
        try:
            values.extend(read_values(self._text))
        except BadInput as err:
            if not values:  # else they are lines of JSON
                self.json_error = str(err)
            return {}
        return as_dict(values[0]) if len(values) == 1 else {}

    def records(self) -> Iterator[Line | Skipped]:
        """Yield the objects of an array, those on the lines, or the one object of the file.

        Whatever else is there is skipped. Raises BadInput where the rest cannot be read.
        """
        if self.is_array:
            for number, item in enumerate(read_items(self._text), 1):
                if isinstance(item, dict):
                    yield Line(0, item, "")
                else:
                    yield self.skipped(f"item {number} is not an object")
        elif self.value:
            yield Line(0, self.value, "")
        else:
            for number, data in enumerate(_split(self._text()), 1):
                yield from self._objects_on_line(number, data)

    def _objects_on_line(self, number: int, data: bytes) -> Iterator[Line | Skipped]:
        """Yield the objects on a line; two if a crash has glued two lines together."""
        try:
            if _count_values(data) > _MAX_VALUES:
                raise BadInput(_TOO_MANY.format(_MAX_VALUES))
            text = data.decode().rstrip(_BLANK)
            end = 0
            while end < len(text):
                blanks = _BLANKS.match(text, end)
                start = blanks.end() if blanks else end
                value, end = parse_json_at(text, start)
                if _is_deeper(value, _MAX_DEPTH):
                    raise BadInput(_TOO_DEEP)
                if isinstance(value, dict):
                    yield Line(number, value, text[start:end])
                else:
                    yield self.skipped("not a JSON object", number)
        except BadInput as err:
            yield self.skipped(str(err), number)
        except (ValueError, RecursionError):
            yield self.skipped("not JSON", number)

    @cached_property
    def first(self) -> list[JsonObject]:
        """The first objects, by which a format is recognised."""
        found: list[Line | Skipped] = []
        try:
            found.extend(islice(self.records(), _FIRST))
        except BadInput as err:
            self.json_error = str(err)
        return [item.value for item in found if isinstance(item, Line)]

    @cached_property
    def _records(self) -> list[Line | Skipped]:
        self._check_size()
        records = [*islice(self.records(), _MAX_RECORDS + 1)]
        if len(records) > _MAX_RECORDS:
            raise BadInput(_TOO_MANY.format(_MAX_RECORDS))
        return records

    @property
    def lines(self) -> list[Line]:
        """The objects of a file that is one session.

        Raises BadInput as ``records``, or if they are too large.
        """
        return [item for item in self._records if isinstance(item, Line)]

    @property
    def bad_lines(self) -> list[Skipped]:
        """What is no object in a file that is one session. Raises BadInput as ``lines`` does."""
        return [item for item in self._records if isinstance(item, Skipped)]


def _status_of(path: Path) -> os.stat_result:
    """Return the status of a regular file. Raises BadInput for anything else."""
    try:
        status = path.stat()
    except OSError as err:
        raise BadInput(err.strerror or str(err)) from err
    if not stat.S_ISREG(status.st_mode):
        raise BadInput("not a regular file")
    return status


def _split(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines without their ends. Raises BadInput for a line that is too large."""
    rest = bytearray()
    for block in blocks:
        *lines, end = block.split(b"\n")
        for line in lines:
            yield bytes(rest) + line
            rest.clear()
        rest += end
        if len(rest) > _MAX_LINE:
            raise BadInput("a line of more than 100 MB")
    yield bytes(rest)


def _count_values(data: bytes) -> int:
    """Return how many JSON values may be in a text.

    95 MB of ``{},`` would become gigabytes of empty objects.
    """
    return data.count(b",") + data.count(b"{") + data.count(b"[")


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether a JSON value has arrays or objects on more than this many levels."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return False
    return not levels or any(_is_deeper(item, levels - 1) for item in value)


# ---- JSON that is read piece by piece


def read_values(open_blocks: Callable[[], Iterable[bytes]]) -> Iterator[object]:
    """Yield the JSON values in a text: one, unless commas separate several.

    Raises BadInput as ``read_items``.
    """
    return read_items(lambda: chain([b"["], open_blocks(), [b"]"]))


def read_items(open_blocks: Callable[[], Iterable[bytes]]) -> Iterator[object]:
    """Yield the items of a JSON array. Those of one block at a time are in memory.

    ``open_blocks`` returns the text in pieces, at each call from its start.
    Raises BadInput at what is not JSON, too large or nested too deeply.
    """
    import ijson

    count = 0
    # yajl, ijson's parser in C, refuses half a character (\udcff) and an integer of more than 64
    # bits. The one in Python reads them, but takes ten times as long: so it goes on from there.
    for backend in (ijson, ijson.get_backend("python")):
        try:
            for item in islice(_items(open_blocks(), backend), count, None):
                count += 1
                yield item
            return
        except BadInput:
            raise
        except (ijson.JSONError, ValueError) as err:
            if not isinstance(err, UnicodeDecodeError) and "integer overflow" not in str(err):
                break
    raise BadInput(f"not JSON after {quantity(count, 'item')}" if count else "not JSON")


def _items(blocks: Iterable[bytes], backend: "ModuleType") -> Iterator[object]:
    """Yield the items of an array, also those before an error.

    Raises BadInput for one that is too large, ijson's JSONError or ValueError for what is not JSON.
    """
    import ijson

    events = ijson.sendable_list()
    parser = backend.basic_parse_coro(events, use_float=True)  # else yajl crashes at 5,000 digits
    builder = ijson.ObjectBuilder()  # of the array, which loses each item as soon as it is complete
    depth = 0
    size = 0  # bytes since the last item
    values = 0
    try:
        for block in blocks:
            size += len(block)
            values += _count_values(block)
            if size > _MAX_SESSION:
                raise BadInput("a session of more than 250 MB: split it")
            if values > _MAX_VALUES:
                raise BadInput(_TOO_MANY.format(_MAX_VALUES))
            try:
                parser.send(block)
            finally:
                for event, value in events:
                    depth += _STEPS.get(event, 0)
                    if depth > _MAX_DEPTH + 1:
                        raise BadInput(_TOO_DEEP)
                    if event == "number" and value in _INFINITE:
                        raise ValueError("too large a number")
                    builder.event(event, value)
                    if depth == 1 and builder.value:
                        yield builder.value.pop()
                        size = 0
                        values = 0
            events.clear()
        parser.close()
    finally:
        with suppress(ijson.JSONError):  # without it, the one in Python complains on stderr
            parser.close()


# ---- conversation
#
# Build a session from another tool's records: messages are checked here; ids, times, titles and
# usage become ours.

BAD_MESSAGE = "not a readable message"
_ENVELOPE = ("id", "parent", "timestamp")  # keys that are read apart from a message's content
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
_MAX_LENGTH = 200  # characters of a title, of the name of a model
_MAX_SECONDS = 1e11  # since 1970; a larger number is milliseconds
# Other tools' names of providers, and ours.
_VENDORS = {"claude": "anthropic", "codex": "openai", "google": "gemini"}


@dataclass
class Conversation:
    """A session while it is read: the values as in the file, and its messages.

    ``key`` identifies the session in its source, and is the same each time it is read. Times are
    ISO 8601, local if they have no zone. ``provider`` and ``model`` are those of the last message
    that names them, if one does. ``extra`` is stored for an export to the same format.
    ``consolidated`` is how many of the messages are in the tool's memory.
    """

    source: Source
    format: str
    key: str
    title: object = None
    created_at: object = None
    updated_at: object = None
    provider: object = None
    model: object = None
    system: object = None
    cwd: object = None
    params: Mapping[str, object] = field(default_factory=dict)
    consolidated: int = 0
    extra: JsonObject = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    # Ids of messages, and digests of their content with the number of their occurrences.
    _seen: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_record(
        cls, source: Source, format_name: str, key: str, record: JsonObject, **keys: str
    ) -> "Conversation":
        """Return a session whose fields are the values under these keys of its record."""
        fields: dict[str, Any] = {name: record.get(key) for name, key in keys.items()}
        return cls(source, format_name, key, **fields)

    def skip(self, why: str, line: int = 0) -> None:
        """Report a part of the session that cannot be read."""
        self.skipped.append(self.source.skipped(why, line))

    def add_record(
        self,
        read: Callable[[Any], Iterable[ForeignMessage]],
        record: object,
        line: int = 0,
    ) -> None:
        """Add the messages that ``read`` finds in a record. A malformed record is skipped."""
        try:
            messages = [*read(record)]
        except MALFORMED:
            self.skip(BAD_MESSAGE, line)
            return
        for message in messages:
            self.add_message(message, line)

    def add_message(self, message: ForeignMessage, line: int = 0) -> bool:
        """Add a message in our format or another API's; return False if it is malformed.

        A message with tool results becomes several. It keeps its id if no other message has it.
        Else the id is derived from its content, so that it is the same each time the source is
        read, at whatever place in the file.
        """
        fields = {key: value for key, value in message.items() if key not in _ENVELOPE}
        moment = utc(message.get("timestamp"))
        if moment:
            fields["timestamp"] = moment
        try:
            valid = document.clean_message(fields)
        except ValueError as err:
            self.skip(str(err).removeprefix("not a session: "), line)
            return False

        self.provider = valid.get("provider", self.provider)
        self.model = valid.get("model", self.model)
        own_id = as_str(message.get("id"))
        if not _ID.fullmatch(own_id) or own_id in self._seen:
            own_id = self.derived_id(message)
        for index, new in enumerate(normalize_message(valid)):
            ident = self.derived_id([message, index]) if index else own_id
            self._seen[ident] = 1
            parent = self.messages[-1]["id"] if self.messages else None
            self.messages.append({**new, "id": ident, "parent": parent})
        return True

    def derived_id(self, content: object) -> str:
        """Return an id for JSON content: the same in each import, another for each repetition."""
        digest = fingerprint([self.format, self.key, content])
        count = self._seen.get(digest, 0) + 1
        self._seen[digest] = count
        return str(uuid5(NAMESPACE_URL, f"gptsh:{digest} {count}"))

    def results(self, *, allow_empty: bool = False) -> Results:
        """Yield what cannot be read, then the session, unless it is empty and must not be."""
        yield from self.skipped
        if self.messages or allow_empty:
            yield self._document()

    def _document(self) -> Document:
        """Return the session document, not saved yet."""
        system = as_str(self.system)
        agent: AgentInfo = {
            "name": None,
            "model": label(self.model),
            "model_small": None,
            "system": system if system.strip() else None,
            "params": safe_params(as_dict(self.params)),
        }
        provider: ProviderInfo = {"name": provider_name(self.provider)}
        doc = sessions.new_session_doc(agent, provider, output=None, mcp_allowed_servers=None)

        doc["title"] = label(self.title)
        doc["messages"] = self.messages
        doc["created_at"], doc["updated_at"] = self._times()
        cwd = self.cwd if isinstance(self.cwd, str) else None
        doc["meta"]["cwd"] = cwd
        doc["meta"]["project"] = cwd
        doc["meta"]["tags"] = [self.format]
        doc["meta"]["imported"] = {
            "format": self.format,
            "key": self.key,
            "title": doc["title"],
            **self.extra,
        }
        usages = [as_dict(message["usage"]) for message in self.messages if message.get("usage")]
        latest = usages[-1] if usages else {}
        doc["usage"]["tokens"] |= {key: latest[key] for key in TOKEN_KEYS if key in latest}
        if 0 < self.consolidated <= len(self.messages):
            doc["context"]["consolidated"] = self.messages[self.consolidated - 1]["id"]
        return doc

    def _times(self) -> tuple[str, str]:
        """Return when the session was created and updated, else by its messages or its file."""
        times = [message["timestamp"] for message in self.messages if "timestamp" in message]
        first_time = min(times, default=None) or utc(self.source.modified)
        created = utc(self.created_at) or first_time or timestamp()
        updated = utc(self.updated_at) or max(times, default=created)
        return created, max(updated, created)


# ---- values


def utc(moment: object) -> str | None:
    """Return our timestamp for ISO 8601 or a time since 1970, in seconds or milliseconds.

    ISO 8601 without a zone is local time. None if it is invalid.
    """
    try:
        if isinstance(moment, str):
            time = datetime.fromisoformat(moment)
        elif isinstance(moment, (int, float)) and not isinstance(moment, bool):
            seconds = moment / 1000 if moment > _MAX_SECONDS else moment
            time = datetime.fromtimestamp(seconds, UTC)
        else:
            return None
        return timestamp(time) if 1970 <= time.year <= LAST_YEAR else None
    except (ValueError, OverflowError, OSError):
        return None


def label(value: object) -> str | None:
    """Return a name or a title on one line; None if it is empty or not a string."""
    return shorten(as_str(value), _MAX_LENGTH) or None


def fingerprint(value: object) -> str:
    """Return the SHA-256 of a JSON value, in 64 hex digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def without(record: Mapping[str, object], *keys: str) -> JsonObject:
    """Return a record without these keys, and without those that are null."""
    return {key: value for key, value in record.items() if key not in keys and value is not None}


def not_empty(record: JsonObject, keys: Iterable[str]) -> JsonObject:
    """Return those of these keys of a record that have a value, and not an empty one."""
    return {key: record[key] for key in keys if record.get(key)}


def take(record: JsonObject, keys: Iterable[str]) -> JsonObject:
    """Remove these keys from a record, and return those that it had."""
    return {key: record.pop(key) for key in keys if key in record}


def with_rest(message: ForeignMessage, rest: JsonObject) -> ForeignMessage:
    """Return a message with those keys of its record that have no place in ours."""
    rest = without(rest)
    return {**message, "source": rest} if rest else message


def with_raw(content: list[Part], raw: object) -> list[Part]:
    """Return the parts of a message, its tool results with the raw output beside the message."""
    parts = []
    for part in content:
        if part["type"] == "tool_result":
            part = {"tool_use_result": raw, **part}
        parts.append(part)
    return parts


def content_of(parts: list[Part]) -> str | list[Part]:
    """Return the content of a message: a string if it is a single text."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return str(parts[0]["text"])
    return parts


def provider_name(name: object) -> str | None:
    """Return our name for a provider that another tool names; its own name if there is none."""
    original = label(name)
    normalized = (original or "").lower().replace(" ", "_")
    if normalized in VENDORS:
        return normalized
    return _VENDORS.get(normalized, original)


def unchecked_call(call_id: object, name: object, arguments: object) -> Call:
    """Return a tool call as a file has it: ``add_message`` refuses it if its id is no text.

    Arguments that are not a string are encoded as JSON. An answer of a model, which is kept
    whatever it has, uses ``make_call`` instead.
    """
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer_fields(message: JsonObject) -> ForeignMessage:
    """Return the model, response id, finish reason and usage of an answer of Anthropic's API."""
    reason = as_str(message.get("stop_reason"))
    usage = message.get("usage")
    fields = {
        "model": label(message.get("model")),
        "response_id": as_str(message.get("id")) or None,
        "finish_reason": FINISH_REASONS.get(reason, reason) or None,
        "usage": usage_from(usage) if isinstance(usage, dict) else None,
    }
    return without(fields)
