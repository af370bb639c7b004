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
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import NAMESPACE_URL, uuid5

from gptsh.content.shapes import normalize_message
from gptsh.core import document, sessions
from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.jsonio import JsonObject, as_dict, as_dicts, parse_json_at
from gptsh.messages import Call, Message, Part, safe_params, timestamp
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
_MAX_RECORDS = 1_000_000  # lines, or items of an array
_MAX_EVENTS = 5_000_000  # keys, values and brackets of one value: two seconds, and half a gigabyte
_MAX_DEPTH = 100  # levels of JSON; every reader of the session recurses as deep
_FILE_TOO_LARGE = "more than 2,000 MB: split it, an array with jq '.[:5000]' and so on"
_SESSION_TOO_LARGE = "a session of more than 250 MB: split it, lines with split -C 200m"
_LINE_TOO_LARGE = "a line of more than 100 MB"
_TOO_MANY = "more than {:,} values in it: split it"
_TOO_DEEP = "nested more than 100 levels deep"
_BLOCK = 1 << 20  # bytes read at once
_DATABASE = b"SQLite format 3\0"
_BOM = b"\xef\xbb\xbf"
_BLANK = " \t\r\n\0"  # between values on a line; a crash can leave NULs in a file
_BLANKS = re.compile(f"[{_BLANK}]*")
_FIRST = 10  # lines, or items of an array, by which a format is recognised
_INFINITE = (math.inf, -math.inf)
_STEPS = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}  # of ijson's depth


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
    """A file, or a part of one, that cannot be read. Its text gives the reason."""


class Line(NamedTuple):
    """A JSON object on a line: the line's number from 1, the object's text and its value.

    Only ``Source.lines_as_written`` keeps the text.
    """

    number: int
    raw: str
    value: JsonObject


class Source:
    """One file, or piped input: ``name`` is shown to the user, ``path`` is None for a pipe.

    ``start`` is the beginning of the content, ``size`` its bytes, ``modified`` the time of the file
    in seconds since 1970. ``on_read`` is called with the number of bytes that were read.
    Raises BadInput for a file that is not a regular one, too large, or unreadable.
    """

    def __init__(
        self,
        name: str,
        path: Path | None = None,
        data: bytes = b"",
        on_read: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.path = path
        self.json_error = ""  # why the file is no JSON value or array, once it was read as one
        self.modified: float | None = None
        self.size = len(data)
        self._data = data
        self._on_read = on_read
        if path is not None:
            with self._open() as file:
                status = os.fstat(file.fileno())
            self.modified = status.st_mtime
            self.size = status.st_size
        self.start = b"".join(self.blocks(0, _BLOCK >> 4))
        if self.size > _MAX_FILE and not self.is_database:
            raise BadInput(_FILE_TOO_LARGE)

    # ---- bytes

    @property
    def is_database(self) -> bool:
        """Whether the file is an SQLite database."""
        return self.start.startswith(_DATABASE)

    @property
    def data(self) -> bytes:
        """The whole content. Raises BadInput if it is too large for one session."""
        self._check_size()
        return b"".join(self.blocks())

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the content from ``start`` to ``end``. Raises BadInput if it cannot be read."""
        end = self.size if end is None else end
        with self._open() as file:
            file.seek(start)
            while start < end:
                try:
                    block = file.read(min(_BLOCK, end - start))
                except OSError as err:
                    raise BadInput(err.strerror or str(err)) from err
                if not block:
                    break
                start += len(block)
                self._on_read(start)
                yield block

    def _open(self) -> io.RawIOBase | io.BytesIO:
        if self.path is None:
            return io.BytesIO(self._data)
        try:
            return open_regular(self.path)
        except OSError as err:
            raise BadInput(err.strerror or str(err)) from err

    def _check_size(self) -> None:
        if self.size > _MAX_SESSION:
            raise BadInput(_SESSION_TOO_LARGE)

    def sibling(self, *names: str) -> "Source | None":
        """A file at a path relative to this file's folder; None if it cannot be read.

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
        """A part of this source that cannot be read, with its line if it has one."""
        return Skipped(f"{self.name}:{line}" if line else self.name, why)

    # ---- one JSON value

    @cached_property
    def is_array(self) -> bool:
        """Whether the file is a JSON array, complete or torn."""
        return self.start.removeprefix(_BOM).lstrip().startswith(b"[")

    @cached_property
    def value(self) -> object:
        """The JSON value of the file; None for an array, lines of JSON, or what is not JSON."""
        if self.is_array:
            return None
        values: list[object] = []
        try:
            values.extend(read_values(self._json))
        except BadInput as err:
            if not values:  # else they are lines of JSON
                self.json_error = str(err)
            return None
        return values[0] if len(values) == 1 else None

    def items(self) -> Iterator[object]:
        """Yield the items of the array that the file is, or its one value.

        Raises BadInput at what is not JSON.
        """
        if self.is_array:
            yield from read_items(self._json)
        else:
            yield self.value

    def _json(self) -> Iterator[bytes]:
        return self.blocks(len(_BOM) if self.start.startswith(_BOM) else 0)

    @property
    def all_items(self) -> list[object]:
        """The items of an array that is one session.

        Raises BadInput as ``items`` does, or if they are too large.
        """
        self._check_size()
        return [*self.items()]

    @cached_property
    def first_items(self) -> list[JsonObject]:
        """The objects among the first items, by which a format is recognised."""
        found: list[object] = []
        try:
            found.extend(islice(self.items(), _FIRST))
        except BadInput as err:
            self.json_error = str(err)
        return as_dicts(found)

    # ---- lines of JSON

    @cached_property
    def first(self) -> list[JsonObject]:
        """The one object of the file, or those on its first lines: they tell the format."""
        if isinstance(self.value, dict):
            return [self.value]
        return [item.value for item in self._first_lines if isinstance(item, Line)]

    @property
    def lines(self) -> list[Line]:
        """The JSON objects in order; a line with two objects counts as two.

        Raises BadInput if they are too large.
        """
        return [item for item in self._lines if isinstance(item, Line)]

    @property
    def lines_as_written(self) -> list[Line]:
        """The lines with their text. Raises BadInput as ``lines`` does."""
        self._check_size()
        return [item for item in self._parse_lines(keep_text=True) if isinstance(item, Line)]

    @property
    def bad_lines(self) -> list[Skipped]:
        """The lines that are not JSON objects. Raises BadInput as ``lines`` does."""
        return [item for item in self._lines if isinstance(item, Skipped)]

    @cached_property
    def _first_lines(self) -> list[Line | Skipped]:
        return [*islice(self._parse_lines(), _FIRST)]

    @cached_property
    def _lines(self) -> list[Line | Skipped]:
        self._check_size()
        return [*self._parse_lines()]

    def _parse_lines(self, *, keep_text: bool = False) -> Iterator[Line | Skipped]:
        if self.is_array:
            return
        for number, data in enumerate(_split(self.blocks()), 1):
            if number > _MAX_RECORDS:
                raise BadInput(_TOO_MANY.format(_MAX_RECORDS))
            try:
                for raw, value in _values_on_line(data):
                    if isinstance(value, dict):
                        yield Line(number, raw if keep_text else "", value)
                    else:
                        yield self.skipped("not a JSON object", number)
            except BadInput as err:
                yield self.skipped(str(err), number)
            except (ValueError, RecursionError):
                yield self.skipped("not JSON", number)


def open_regular(path: Path) -> io.FileIO:
    """Open a regular file, without waiting if it is a pipe.

    Raises OSError, and BadInput for any other kind of file.
    """
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput("not a regular file")
    return file


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
            raise BadInput(_LINE_TOO_LARGE)
    yield bytes(rest)


def _values_on_line(data: bytes) -> Iterator[tuple[str, object]]:
    """Yield the text and the value of each JSON value on a line.

    Raises BadInput for one that is too large or nested too deeply, ValueError or RecursionError at
    what is not JSON.
    """
    brackets = data.count(b"{") + data.count(b"[")
    if brackets > _MAX_RECORDS:  # 95 MB of ``{},`` are gigabytes of empty objects
        raise BadInput(_TOO_MANY.format(_MAX_RECORDS))
    text = data.decode("utf-8-sig").rstrip(_BLANK)
    end = 0
    while end < len(text):
        blanks = _BLANKS.match(text, end)
        start = blanks.end() if blanks else end
        value, end = parse_json_at(text, start)
        if _is_deeper(value, _MAX_DEPTH):
            raise BadInput(_TOO_DEEP)
        yield text[start:end], value


def _is_deeper(value: object, levels: int) -> bool:
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
    """Yield the items of a JSON array. One item at a time is in memory.

    ``open_blocks`` returns the text in pieces, at each call from its start.
    Raises BadInput at what is not JSON, too large or nested too deeply.
    """
    import ijson

    count = 0
    for backend in (ijson, ijson.get_backend("python")):
        try:
            for item in islice(_items(open_blocks(), backend), count, None):
                count += 1
                if count > _MAX_RECORDS:
                    raise BadInput(_TOO_MANY.format(_MAX_RECORDS))
                yield item
            return
        except BadInput:
            raise
        except (ijson.JSONError, ValueError) as err:
            # yajl, ijson's parser in C, refuses half a character (\udcff) and an integer of more
            # than 64 bits. The one in Python reads them, but takes ten times as long.
            if not isinstance(err, UnicodeDecodeError) and "integer overflow" not in str(err):
                break
    raise BadInput(f"not JSON after {quantity(count, 'item')}" if count else "not JSON")


def _items(blocks: Iterable[bytes], backend: "ModuleType") -> Iterator[object]:
    """Yield the items of an array.

    Raises BadInput for one that is too large or nested too deeply, else as ``_events``.
    """
    import ijson

    builder = ijson.ObjectBuilder()  # of the array, which loses each item as soon as it is complete
    depth = size = count = 0
    for block_size, events in _events(blocks, backend):
        size += block_size
        count += len(events)
        if size > _MAX_SESSION:
            raise BadInput(_SESSION_TOO_LARGE)
        if count > _MAX_EVENTS:
            raise BadInput(_TOO_MANY.format(_MAX_EVENTS))
        for event, value in events:
            depth += _STEPS.get(event, 0)
            if depth > _MAX_DEPTH + 1:
                raise BadInput(_TOO_DEEP)
            if event == "number" and value in _INFINITE:
                raise ValueError("too large a number")
            builder.event(event, value)
            if depth == 1 and builder.value:
                yield builder.value.pop()
                size = count = 0


def _events(
    blocks: Iterable[bytes],
    backend: "ModuleType",
) -> Iterator[tuple[int, list[tuple[str, object]]]]:
    """Yield the size of each block and ijson's events in it, also those before an error.

    Raises ijson's JSONError, or ValueError.
    """
    import ijson

    events = ijson.sendable_list()
    parser = backend.basic_parse_coro(events, use_float=True)  # else yajl crashes at 5,000 digits
    try:
        for block in blocks:
            try:
                parser.send(block)
            finally:
                yield len(block), events
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
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
_MAX_LENGTH = 200  # characters of a title, a key, the name of a model
_YEARS = range(1970, 9001)
_MAX_SECONDS = 1e11  # since 1970; a larger number is milliseconds
_VENDORS = {"claude": "anthropic", "codex": "openai", "google": "gemini"}  # other tools' names: ours
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
    _seen: dict[str, int] = field(default_factory=dict)  # message ids, and digests with their number of occurrences

    def add_record(
        self,
        read: Callable[[Record], Iterable[ForeignMessage]],
        record: Record,
        line: int = 0,
    ) -> None:
        """Add the messages that ``read`` finds in a record. A malformed record is skipped."""
        try:
            messages = [*read(record)]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # the record can be any JSON
            self.skipped.append(self.source.skipped(BAD_MESSAGE, line))
            return
        for message in messages:
            self.add_message(message, line)

    def add_message(self, message: ForeignMessage, line: int = 0) -> bool:
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
        agent: AgentInfo = {
            "name": None,
            "model": label(self.model),
            "model_small": None,
            "system": system,
            "params": safe_params(as_dict(self.params)),
        }
        provider: ProviderInfo = {"name": label(self.provider)}
        cwd = self.cwd if isinstance(self.cwd, str) else None
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


def branch_to(
    leaf: object,
    records: Mapping[object, JsonObject],
    parent_key: str,
) -> list[JsonObject]:
    """The records of a tree from the root to ``leaf``, an id; ``parent_key`` holds the id of a record's parent."""
    branch: dict[object, JsonObject] = {}
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


def without(record: Mapping[str, object], *keys: str) -> JsonObject:
    """The record without these keys, and without those that are null."""
    return {key: value for key, value in record.items() if key not in keys and value is not None}


def with_raw(content: list[Part], raw: object) -> list[Part]:
    """The parts of a message, its tool results with the raw output that stands beside the message."""
    return [{"tool_use_result": raw, **part} if part["type"] == "tool_result" else part for part in content]


def provider_name(name: object) -> str | None:
    """Our name for a provider that another tool names; the tool's own name if gptsh does not know the provider."""
    original = label(name)
    normalized = (original or "").lower().replace(" ", "_")
    return _VENDORS.get(normalized) or (normalized if normalized in VENDORS else original)


def tool_call(ident: object, name: object, arguments: object) -> Call:
    """A tool call; arguments that are not a string are encoded as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}


def answer_fields(message: JsonObject) -> ForeignMessage:
    """The model, response id, finish reason and usage of an answer of Anthropic's API, as keys of our message."""
    reason, usage = message.get("stop_reason"), message.get("usage")
    fields = {
        "model": label(message.get("model")),
        "response_id": message.get("id"),
        "finish_reason": FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None,
        "usage": usage_from(usage) if isinstance(usage, dict) else None,
    }
    return {key: value for key, value in fields.items() if value is not None}
