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
from gptsh.formats.source import BadInput, Conversation, Results, Source, without
from gptsh.jsonio import JsonObject, as_dict, as_dicts, parse_json
from gptsh.messages import Part, Usage, token_count
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
Row = JsonObject


def read(source: Source) -> Results | None:
    """The conversations of a database."""
    return _sessions(source) if source.is_database else None


def _sessions(source: Source) -> Results:
    import sqlite3

    for copy in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):  # left by an import that was killed
        with suppress(OSError):  # another import has just removed its copy
            if time.time() - copy.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(copy, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, closing(_open_copy(source, folder)) as db:
            log = _Log(db)
            if not log.tables >= _STORE and "responses" not in log.tables:
                yield source.skipped("a database, but not the log of llm")._replace(is_foreign=True)
                return
            if number := log.count_old():
                old = f"{quantity(number, 'conversation')} of llm before 0.32"
                yield source.skipped(f"{old}: pass its text on with llm logs --cid ID | gptsh")
            for key in log.sessions():
                session = Conversation(source, NAME, key)
                log.session = session
                try:
                    log.fill()
                except (AttributeError, KeyError, TypeError, ValueError) as err:  # a cell can have any value
                    session.skipped.append(source.skipped(f"conversation {key}: {err}"))
                yield from session.results()
    except (sqlite3.Error, OSError, BadInput) as err:
        yield source.skipped(f"not readable as a database: {err}")


def _open_copy(source: Source, folder: str) -> "sqlite3.Connection":
    """Open a copy of the database and of its write-ahead log; the original is never changed.

    A malicious file can change only the copy. ``_Log`` limits the time of each query.
    """
    import sqlite3

    copy = Path(folder, "copy.db")
    if source.path is None:
        copy.write_bytes(source.data)
    for suffix in ("", "-wal") if source.path else ():
        path = Path(f"{source.path}{suffix}")
        if not suffix or path.is_file():
            if path.stat().st_size > _MAX_DATABASE:
                raise BadInput(f"more than {_MAX_DATABASE // 1_000_000} MB")
            with open(path, "rb") as file, open(f"{copy}{suffix}", "xb") as new:
                shutil.copyfileobj(file, new)
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
    """A database, read one conversation at a time: ``session`` is the current one."""

    session: Conversation

    def __init__(self, db: "sqlite3.Connection") -> None:
        self._db = db
        self.tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._tree = {row["hash"]: row for row in self._rows("messages")}
        turns = self._rows("turns", "ORDER BY id DESC", columns="id, tip_message_hash")
        # message hash: id of the first turn that ends with it
        self._ends = {row["tip_message_hash"]: row["id"] for row in turns}

    def _rows(self, table: str, where: str = "", *values: object, columns: str = "*") -> list[Row]:
        """The rows of a table; none if the table does not exist."""
        deadline = time.monotonic() + _QUERY_SECONDS
        self._db.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)
        rows = self._db.execute(f"SELECT {columns} FROM {table} {where}", values) if table in self.tables else ()
        return [dict(zip(row.keys(), row, strict=True)) for row in rows]

    def _skip(self, why: str) -> None:
        self.session.skipped.append(self.session.source.skipped(why))

    def sessions(self) -> list[str]:
        """The id of each session: of its thread, else of its single turn."""
        ids = {row["id"] for row in self._rows("threads")}
        ids |= {row["thread_id"] or row["id"] for row in self._rows("turns", columns="id, thread_id")}
        return sorted(key for key in ids if isinstance(key, str))

    def count_old(self) -> int:
        """The number of conversations that are only in the tables of llm before 0.32."""
        rows = self._rows("responses", columns="id, conversation_id")
        return len({row["conversation_id"] or row["id"] for row in rows}.difference(self.sessions()))

    def fill(self) -> None:
        """Read the current session."""
        session, key = self.session, self.session.key
        where = "WHERE thread_id = ? OR (thread_id IS NULL AND id = ?) ORDER BY id"
        turns = self._rows("turns", where, key, key)
        thread = next(iter(self._rows("threads", "WHERE id = ?", key)), {})
        latest = turns[-1] if turns else {}
        session.title = thread.get("name")
        session.model = latest.get("model")
        session.provider = _provider(session.model)
        session.params = _json(latest.get("options_json"))
        session.created_at = None if latest else thread.get("datetime_utc")
        session.extra = without({"forked_from": thread.get("forked_from")})
        system = None  # the current system prompt; a change of it is a message
        for message in self._messages(turns, thread):
            is_system, before = message["role"] == "system", system
            system = message["content"] if is_system else system
            if is_system and not session.messages and session.system is None:
                session.system = system
            elif not is_system or system != before:
                session.add_message(message)

    def _messages(self, turns: list[Row], thread: Row) -> Iterator[Row]:
        """The messages of each turn, and the others of its thread.

        Messages are a tree. A turn has an answer and the messages before it.
        """
        seen: set[str] = set()
        for tip in (row.get("tip_message_hash") for row in (*turns, thread)):
            messages: list[Row] = []
            turn: Row = {}
            was_request = False  # the message after this one
            while tip is not None and tip not in seen:
                if tip not in self._tree:
                    self._skip(f"message {tip} is missing")
                    break
                seen.add(tip)
                row = self._tree[tip]
                ending = [turn for turn in turns if turn["tip_message_hash"] == tip]  # the turns that end here
                ending = ending or self._rows("turns", "WHERE id = ?", self._ends.get(tip))  # of a forked thread
                if ending or (was_request and row["role"] not in _REQUEST_ROLES):
                    turn = ending[0] if ending else {}
                was_request = row["role"] in _REQUEST_ROLES
                messages.append(self._message(row, turn, is_end=bool(ending)))
                tip = row["parent_hash"]
            yield from reversed(messages)

    def _message(self, row: Row, turn: Row, *, is_end: bool) -> Row:
        """A message in the blocks of Anthropic's API, which have a place for everything in llm's parts."""
        parts = self._rows("parts", "WHERE message_hash = ? ORDER BY position", row["hash"])
        blocks = [block for part in parts if (block := self._block(part))]
        message = {
            "id": row["hash"],
            "role": row["role"],
            "timestamp": turn.get("datetime_utc"),
            "content": _content(blocks),
        }
        if any(block["type"] == "tool_result" for block in blocks):
            message["role"] = "user"
        return message | (_answer_fields(turn, is_last=is_end) if row["role"] == "assistant" else {})

    def _block(self, row: Row) -> Part | None:
        payload = _json(row["payload"])
        text = row["text"] if row["text"] is not None else payload.get("text")
        if "text_ref" in payload:  # with fragments
            texts = payload["text_ref"]
            text = "".join(one["literal"] if "literal" in one else self._fragment(one["fragment"]) for one in texts)
        match row["type"]:
            case "text":
                return {"type": "text", "text": _text(text)}
            case "reasoning":
                metadata = as_dict(as_dict(payload.get("provider_metadata")).get("anthropic"))
                if "data" in metadata:
                    return {"type": "redacted_thinking", "data": metadata["data"]}
                signature = {"signature": metadata["signature"]} if "signature" in metadata else {}
                return {"type": "thinking", "thinking": text or "", **signature} if text or signature else None
            case "tool_call":
                return {"type": "tool_use", "id": payload.get("tool_call_id"), "name": payload.get("name"),
                        "input": payload.get("arguments")}  # fmt: skip
            case "tool_result":
                media = [self._attachment(item.get("id")) for item in as_dicts(payload.get("attachments"))]
                return _result(payload, media)
            case "attachment":
                return self._attachment(as_dict(payload.get("attachment")).get("id"))
        self._skip(f"unknown type of part: {row['type']!r}")
        return {**payload, "type": row["type"]} if isinstance(row["type"], str) else None

    def _fragment(self, number: object) -> str:
        rows = self._rows("fragments", "WHERE id = ?", number)
        if not rows:
            self._skip(f"fragment {number!r} is missing")
        return _text(rows[0]["content"]) if rows else ""

    def _attachment(self, ident: object) -> Part:
        """An attachment as a part. One that is not in the database has a path or URL, which is never opened."""
        row = next(iter(self._rows("attachments", "WHERE id = ?", ident)), {})
        kind, content, path, url = (row.get(key) for key in ("type", "content", "path", "url"))
        media_type = kind if isinstance(kind, str) and _MEDIA_TYPE.fullmatch(kind) else "application/octet-stream"
        if content is not None:
            data = content if isinstance(content, bytes) else str(content).encode("utf-8", "surrogateescape")
            return without(media_part("", media_type, data), "source")  # it has no name
        if isinstance(url, str) and url.startswith(("https://", "http://")):
            return url_part(media_type, url, None)
        self._skip(f"an attachment that is not in the database: {path or url or 'it has neither a path nor a URL'}")
        return without({"type": "attachment", "media_type": media_type, "path": path, "url": url})


def _text(cell: object) -> str:
    """The text of a cell of any type; empty for NULL."""
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else "" if cell is None else str(cell)


def _content(parts: list[Part]) -> str | list[Part]:
    """The content of a message: a string if it is a single text."""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts or ""


def _result(row: Row, media: list[Part]) -> Part:
    """A tool result; with an exception, it is an error."""
    text = row.get("output") if isinstance(row.get("output"), str) else ""
    content = [{"type": "text", "text": text}, *media] if media else text
    result = {"type": "tool_result", "tool_use_id": row.get("tool_call_id"), "name": row.get("name")}
    error = {"is_error": True, "tool_use_result": {"exception": row["exception"]}} if row.get("exception") else {}
    return {**result, "content": content, **error}


def _json(cell: object) -> JsonObject:
    """The JSON object in a cell; empty if there is none."""
    try:
        return as_dict(parse_json(cell)) if isinstance(cell, str) else {}
    except (ValueError, RecursionError):
        return {}


def _answer_fields(row: Row, *, is_last: bool) -> Row:
    """The model and provider of a turn; for its last message also the response id and the usage."""
    model, provider = row.get("model"), _provider(row.get("model"))
    fields = {"model": model, "provider": provider}
    if is_last:
        reply, resolved = _json(row.get("response_json")), row.get("resolved_model")
        fields |= {
            "resolved_model": resolved if resolved != model else None,
            "response_id": reply.get("id"),
            "finish_reason": reply.get("finish_reason") or reply.get("stop_reason"),
            "usage": _usage(row, provider),
            "duration_ms": row.get("duration_ms"),
        }
    return without(fields)


@lru_cache(maxsize=1000)
def _provider(model: str | None) -> str | None:
    """The provider in the name of a model; None if gptsh does not know it."""
    provider = split_model(model)[0] if isinstance(model, str) else None
    return provider if provider and find_vendor(provider) else None


def _usage(row: Row, provider: str | None) -> Usage | None:
    prompt, completion = (token_count(row.get(f"{kind}_tokens")) for kind in ("input", "output"))
    if prompt is None and completion is None:
        return None
    details = _json(row.get("token_details"))
    cache_read, cache_write = (token_count(details.get(f"cache_{kind}")) for kind in ("read", "write"))
    if provider == "anthropic" or any(re.fullmatch("cache_.*_input_tokens", key) for key in details):
        cache = {"cache_read_input_tokens": cache_read, "cache_creation_input_tokens": cache_write}
        return usage_from({**cache, **details, "input_tokens": prompt, "output_tokens": completion})
    for theirs, ours in (("input", "prompt"), ("output", "completion")):  # the names of the Responses API
        if counts := details.pop(f"{theirs}_tokens_details", None):
            details[f"{ours}_tokens_details"] = counts
    if cache_read is not None or cache_write is not None:  # the provider's own counts, if any, win
        cache = {"cached_tokens": cache_read, "cache_write_tokens": cache_write}
        details["prompt_tokens_details"] = {**cache, **as_dict(details.get("prompt_tokens_details"))}
    return usage_from({**details, "prompt_tokens": prompt, "completion_tokens": completion})
