"""Import the log of Simon Willison's llm (``logs.db``): its message store, since 0.32.

What older versions logged stays in older tables, which are counted alone. Attachments that are a
path are not opened.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gptsh.content.attachments import media_part, url_part
from gptsh.files import STALE_AFTER
from gptsh.formats.source import (
    MALFORMED,
    BadInput,
    Conversation,
    Results,
    Source,
    content_of,
    without,
)
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str, parse_json
from gptsh.messages import Part, Usage
from gptsh.models.facts import split_model
from gptsh.models.usage import usage_from
from gptsh.models.vendors import find_vendor
from gptsh.text import quantity

if TYPE_CHECKING:
    import sqlite3

NAME = "llm"
_MAX_DATABASE = 4_000_000_000  # bytes
_MAX_CELL = 100_000_000  # bytes
_PREFIX = "gptsh-import-"  # of the folders with copies of databases
_QUERY_SECONDS = 20.0
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+_-]+")
_STORE = {"threads", "turns", "messages", "parts"}
_REQUEST_ROLES = ("user", "tool")  # of messages that an answer follows
_TURNS_OF = "WHERE thread_id = ? OR (thread_id IS NULL AND id = ?) ORDER BY id"
_PARTS_OF = "WHERE message_hash = ? ORDER BY position"
# How keys of a turn's details begin in Anthropic's API and in OpenAI's Responses API.
_NEWER_DETAILS = ("cache_", "input_tokens", "output_tokens")
Row = JsonObject


def read(source: Source) -> Results | None:
    """Return the conversations of a database."""
    return _sessions(source) if source.is_database else None


def _sessions(source: Source) -> Results:
    """Yield the sessions in a copy of the database, which is removed then."""
    import sqlite3

    _remove_old_copies()
    try:
        with (
            tempfile.TemporaryDirectory(prefix=_PREFIX) as folder,
            closing(_open_copy(source, folder)) as db,
        ):
            yield from _sessions_in(_Log(db), source)
    except (sqlite3.Error, OSError) as err:
        raise BadInput(f"not readable as a database: {err}") from err
    except UnicodeDecodeError as err:  # by sqlite3, whose error quotes a damaged schema
        raise BadInput("not readable as a database: its schema is damaged") from err


def _sessions_in(log: "_Log", source: Source) -> Results:
    """Yield the session of each key, and what cannot be read."""
    if not log.tables >= _STORE and "responses" not in log.tables:
        yield source.skipped("a database, but not the log of llm")._replace(is_foreign=True)
        return
    keys = log.keys()
    old_count = log.count_old(keys)
    if old_count:
        old = f"{quantity(old_count, 'conversation')} of llm before 0.32"
        yield source.skipped(f"{old}: pass its text on with llm logs --cid ID | gptsh")
    for key in keys:
        session = Conversation(source, NAME, key)
        try:
            log.fill(session)
        except MALFORMED as err:  # a cell can have any value
            session.skip(f"conversation {key}: {err}")
        yield from session.results()


def _remove_old_copies() -> None:
    """Remove the copies that were left by an import that was killed."""
    for copy in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another import has just removed its copy
            if time.time() - copy.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(copy, ignore_errors=True)


def _open_copy(source: Source, folder: str) -> "sqlite3.Connection":
    """Open a copy of the database and of its write-ahead log; the original is never changed.

    A malicious file can change only the copy. ``_Log`` limits the time of each query.
    """
    import sqlite3

    if source.size > _MAX_DATABASE:
        raise BadInput(f"more than {_MAX_DATABASE // 1_000_000} MB")
    copy = f"{folder}/copy.db"
    with open(copy, "xb") as file:
        file.writelines(source.blocks())
    log = Path(f"{source.path}-wal")
    if source.path and log.is_file():
        shutil.copyfile(log, f"{copy}-wal")
    db = sqlite3.connect(copy)
    db.row_factory = sqlite3.Row
    db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL)
    db.execute("PRAGMA trusted_schema=OFF")
    with suppress(sqlite3.OperationalError):  # it has no message store
        db.execute("CREATE INDEX gptsh_turns ON turns (thread_id)")
        db.execute("CREATE INDEX gptsh_parts ON parts (message_hash)")
    return db


class _Log:
    """A database, read one conversation at a time."""

    _session: Conversation  # the current one

    def __init__(self, db: "sqlite3.Connection") -> None:
        self._db = db
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {name for (name,) in names}
        self._tree = {row["hash"]: row for row in self._rows("messages")}
        turns = self._rows("turns", "ORDER BY id DESC", columns="id, tip_message_hash")
        # message hash: id of the first turn that ends with it
        self._ends = {row["tip_message_hash"]: row["id"] for row in turns}

    def _rows(self, table: str, where: str = "", *values: object, columns: str = "*") -> list[Row]:
        """Return the rows of a table; none if the table does not exist."""
        if table not in self.tables:
            return []
        deadline = time.monotonic() + _QUERY_SECONDS
        self._db.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)
        rows = self._db.execute(f"SELECT {columns} FROM {table} {where}", values)
        return [dict(row) for row in rows]

    def _row(self, table: str, value: object) -> Row:
        """Return the row with this id; empty if there is none."""
        rows = self._rows(table, "WHERE id = ?", value)
        return rows[0] if rows else {}

    def keys(self) -> list[str]:
        """Return the key of each session: the id of its thread, else of its single turn."""
        threads = self._rows("threads")
        turns = self._rows("turns", columns="id, thread_id")
        keys = {row["id"] for row in threads}
        keys |= {row["thread_id"] or row["id"] for row in turns}
        return sorted(key for key in keys if isinstance(key, str))

    def count_old(self, keys: list[str]) -> int:
        """Return the number of conversations that are only in the tables of llm before 0.32."""
        rows = self._rows("responses", columns="id, conversation_id")
        conversations = {row["conversation_id"] or row["id"] for row in rows}
        return len(conversations.difference(keys))

    def fill(self, session: Conversation) -> None:
        """Read the session with this key. A system prompt is a message only where it changes."""
        self._session = session
        turns = self._rows("turns", _TURNS_OF, session.key, session.key)
        latest = turns[-1] if turns else {}
        thread = self._row("threads", session.key)
        session.title = thread.get("name")
        session.params = _json(latest.get("options_json"))
        session.created_at = None if latest else thread.get("datetime_utc")
        session.extra = without({"forked_from": thread.get("forked_from")})
        prompt = None  # the current system prompt
        for message in self._messages(turns, thread):
            if message["role"] == "system":
                if message["content"] == prompt:
                    continue
                prompt = message["content"]
                if session.system is None and not session.messages:
                    session.system = prompt
                    continue
            session.add_message(message)
        session.model = latest.get("model")  # the next turn's, with its provider or none
        session.provider = _provider(session.model)

    def _messages(self, turns: list[Row], thread: Row) -> Iterator[Row]:
        """Yield the messages of each turn, and the others of its thread.

        Messages are a tree. A turn has the last message of its answer, and each message its parent.
        """
        seen: set[str] = set()
        turns_by_end = {turn["tip_message_hash"]: turn for turn in reversed(turns)}
        for row in (*turns, thread):
            messages: list[Row] = []
            turn: Row = {}  # of the current message, which is found before those it follows
            is_before_request = False
            tip = row.get("tip_message_hash")
            while tip is not None and tip not in seen:
                if tip not in self._tree:
                    self._session.skip(f"message {tip} is missing")
                    break
                seen.add(tip)
                message = self._tree[tip]
                is_request = message["role"] in _REQUEST_ROLES
                # Else it is the end of a turn of a forked thread.
                ended_turn = turns_by_end.get(tip) or self._row("turns", self._ends.get(tip))
                if ended_turn or (is_before_request and not is_request):
                    turn = ended_turn
                is_before_request = is_request
                messages.append(self._message(message, turn, is_end=bool(ended_turn)))
                tip = message["parent_hash"]
            yield from reversed(messages)

    def _message(self, row: Row, turn: Row, *, is_end: bool) -> Row:
        """Return a message in blocks of Anthropic's API, which can express all of llm's parts."""
        blocks = []
        for part in self._rows("parts", _PARTS_OF, row["hash"]):
            block = self._block(part)
            if block:
                blocks.append(block)
        message = {
            "id": row["hash"],
            "role": row["role"],
            "timestamp": turn.get("datetime_utc"),
            "content": content_of(blocks),
        }
        if any(block["type"] == "tool_result" for block in blocks):
            message["role"] = "user"
        if row["role"] == "assistant":
            message |= _answer_fields(turn)
            if is_end:
                message |= _ending_fields(turn)
        return message

    def _block(self, row: Row) -> Part | None:
        """Return the block for a part; None for thinking that is empty, and for no type."""
        payload = _json(row["payload"])
        text = row["text"] if row["text"] is not None else payload.get("text")
        if "text_ref" in payload:  # with fragments
            text = "".join(map(self._referenced, payload["text_ref"]))
        match row["type"]:
            case "text":
                return {"type": "text", "text": _text(text)}
            case "reasoning":
                return _thinking(text or "", payload)
            case "tool_call":
                return {
                    "type": "tool_use",
                    "id": payload.get("tool_call_id"),
                    "name": payload.get("name"),
                    "input": payload.get("arguments"),
                }
            case "tool_result":
                return self._result(payload)
            case "attachment":
                return self._attachment(as_dict(payload.get("attachment")).get("id"))
        self._session.skip(f"unknown type of part: {row['type']!r}")
        return {**payload, "type": row["type"]} if isinstance(row["type"], str) else None

    def _result(self, payload: Row) -> Part:
        """Return a tool result; with an exception, it is an error."""
        text = as_str(payload.get("output"))
        parts = [{"type": "text", "text": text}]
        for item in as_dicts(payload.get("attachments")):
            parts.append(self._attachment(item.get("id")))
        result = {
            "type": "tool_result",
            "tool_use_id": payload.get("tool_call_id"),
            "name": payload.get("name"),
            "content": content_of(parts),
        }
        if payload.get("exception"):
            result["is_error"] = True
            result["tool_use_result"] = {"exception": payload["exception"]}
        return result

    def _referenced(self, piece: Row) -> str:
        """Return the text of a piece, which is in it or in a fragment."""
        if "literal" in piece:
            return str(piece["literal"])
        number = piece["fragment"]
        row = self._row("fragments", number)
        if not row:
            self._session.skip(f"fragment {number!r} is missing")
        return _text(row.get("content"))

    def _attachment(self, ident: object) -> Part:
        """Return an attachment as a part. What is outside the database is never opened."""
        row = self._row("attachments", ident)
        media_type = as_str(row.get("type"))
        if not _MEDIA_TYPE.fullmatch(media_type):
            media_type = "application/octet-stream"
        content = row.get("content")
        if content is not None:
            if not isinstance(content, bytes):
                content = str(content).encode("utf-8", "surrogateescape")
            part = media_part("", media_type, content)
            return without(part, "source")  # it has no name
        url = as_str(row.get("url"))
        if url.startswith(("https://", "http://")):
            return url_part(media_type, url, None)
        place = row.get("path") or url or "it has neither a path nor a URL"
        self._session.skip(f"an attachment that is not in the database: {place}")
        return without({**row, "type": "attachment", "media_type": media_type}, "id", "content")


def _thinking(text: str, payload: Row) -> Part | None:
    """Return thinking as Anthropic's API has it; None if there is neither text nor signature."""
    metadata = as_dict(as_dict(payload.get("provider_metadata")).get("anthropic"))
    if "data" in metadata:
        return {"type": "redacted_thinking", "data": metadata["data"]}
    if not text and "signature" not in metadata:
        return None
    return without({"type": "thinking", "thinking": text, "signature": metadata.get("signature")})


def _text(cell: object) -> str:
    """Return the text of a cell of any type; empty for NULL."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return "" if cell is None else str(cell)


def _json(cell: object) -> JsonObject:
    """Return the JSON object in a cell; empty if there is none."""
    try:
        return as_dict(parse_json(as_str(cell)))
    except (ValueError, RecursionError):
        return {}


def _answer_fields(turn: Row) -> Row:
    """Return the model and provider of a turn."""
    model = turn.get("model")
    return without({"model": model, "provider": _provider(model)})


def _ending_fields(turn: Row) -> Row:
    """Return what only the last message of a turn has, such as its usage."""
    reply = _json(turn.get("response_json"))
    resolved_model = turn.get("resolved_model")
    if resolved_model == turn.get("model"):
        resolved_model = None
    fields = {
        "resolved_model": resolved_model,
        "response_id": reply.get("id"),
        "finish_reason": reply.get("finish_reason") or reply.get("stop_reason"),
        "usage": _usage(turn),
        "duration_ms": turn.get("duration_ms"),
    }
    return without(fields)


@lru_cache(maxsize=1000)
def _provider(model: str | None) -> str | None:
    """Return the provider in the name of a model; None if gptsh does not know it."""
    if not isinstance(model, str):
        return None
    provider, _ = split_model(model)
    return provider if provider and find_vendor(provider) else None


def _usage(row: Row) -> Usage | None:
    """Return the usage of a turn. The keys of its details tell which API they are from."""
    sent = row.get("input_tokens")
    received = row.get("output_tokens")
    if sent is None and received is None:
        return None
    details = _json(row.get("token_details"))
    if any(key.startswith(_NEWER_DETAILS) for key in details):
        return usage_from({**details, "input_tokens": sent, "output_tokens": received})
    return usage_from({**details, "prompt_tokens": sent, "completion_tokens": received})
