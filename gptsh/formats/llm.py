"""The log of Simon Willison's llm, ``logs.db``: its message store (from 0.32 on), and the tables of before.

Both may stand in one file. A conversation that was begun before and continued since is one session: what the older
tables have of its beginning, then what the message store has beyond that. Attachments that are a path are not opened.
"""

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptsh.content.attachments import media_part, url_part
from gptsh.core.files import STALE_AFTER
from gptsh.formats.conversation import Conversation, without
from gptsh.formats.source import LARGEST, BadInput, Results, Source, open_plain
from gptsh.jsonio import as_dict, as_dicts, parse_json
from gptsh.messages import Part, Usage, token_count
from gptsh.models.cost import usage_from
from gptsh.models.facts import split_model
from gptsh.models.providers import known_provider

if TYPE_CHECKING:
    import sqlite3

NAME = "llm"
_LARGEST_DATABASE = 4_000_000_000  # bytes
_COPIES = "gptsh-import-"  # the folders of the copies
_SECONDS = 20.0  # that a query may take
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+_-]+")
_ASKING = ("user", "tool")  # the roles of what a model is asked with
_INDEXED = (
    ("responses", "conversation_id"), ("tool_calls", "response_id"), ("tool_results", "response_id"),
    ("turns", "thread_id"), ("parts", "message_hash"),
)  # fmt: skip
Row = dict[str, Any]


def read(source: Source) -> Results | None:
    """The conversations of a database."""
    return _sessions(source) if source.is_database else None


def _sessions(source: Source) -> Results:
    import sqlite3  # noqa: PLC0415 - a folder without a database needs none

    for left in Path(tempfile.gettempdir()).glob(f"{_COPIES}*"):  # by an import that was killed
        with contextlib.suppress(OSError):  # another one is done with it
            if time.time() - left.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(left, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(prefix=_COPIES) as folder, contextlib.closing(_opened(source, folder)) as db:
            log = _Log(db)
            if not log.tables >= {"threads", "turns", "messages", "parts"} and not log.tables >= {"responses"}:
                yield source.skipped("a database, but not the log of llm")._replace(is_foreign=True)
                return
            for key in log.sessions():
                session = Conversation(source, NAME, key)
                log.session = session
                try:
                    log.fill()
                except (
                    AttributeError,
                    KeyError,
                    TypeError,
                    ValueError,
                ) as err:  # an odd cell
                    session.skipped.append(source.skipped(f"conversation {key}: {err}"))
                yield from session.results()
    except (sqlite3.Error, OSError, BadInput) as err:
        yield source.skipped(f"not readable as a database: {err}")


def _opened(source: Source, folder: str) -> "sqlite3.Connection":
    """A copy of the database, and of what its last writer has not merged into it yet: the file itself stays as it is.

    Whatever such a file is up to, it can write to the copy alone, and no query goes on for long.
    """
    import sqlite3  # noqa: PLC0415 - as above

    copy = Path(folder, "copy.db")
    if source.path is None:
        copy.write_bytes(source.data)
    for ending in ("", "-wal") if source.path else ():
        place = Path(f"{source.path}{ending}")
        if not ending or place.is_file():
            if place.stat().st_size > _LARGEST_DATABASE:
                raise BadInput(f"more than {_LARGEST_DATABASE // 1_000_000} MB")
            with open_plain(place) as file, open(f"{copy}{ending}", "xb") as new:
                shutil.copyfileobj(file, new)
    db = sqlite3.connect(copy)
    db.row_factory = sqlite3.Row
    db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
    db.execute("PRAGMA trusted_schema=OFF")
    for table, column in _INDEXED:
        with contextlib.suppress(sqlite3.OperationalError):  # an older log lacks some of them
            db.execute(f"CREATE INDEX gptsh_{table} ON {table} ({column})")
    return db


class _Log:
    """A database, read one conversation at a time: ``session`` is the one that is read."""

    session: Conversation

    def __init__(self, db: "sqlite3.Connection") -> None:
        self._db = db
        self.tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._tree = {row["hash"]: row for row in self._rows("messages")}
        turns = self._rows("turns", "ORDER BY id DESC", columns="id, tip_message_hash")
        self._ends = {row["tip_message_hash"]: row["id"] for row in turns}  # the first turn that ends with a message
        self._turn_ids = {row["id"] for row in turns}

    def _rows(self, table: str, where: str = "", *values: object, columns: str = "rowid AS number, *") -> list[Row]:
        """The rows of a table; none where there is no such table."""
        end = time.monotonic() + _SECONDS
        self._db.set_progress_handler(lambda: time.monotonic() > end, 100_000)
        found = self._db.execute(f"SELECT {columns} FROM {table} {where}", values) if table in self.tables else ()
        return [dict(zip(row.keys(), row, strict=True)) for row in found]

    def _unread(self, why: str) -> None:
        self.session.skipped.append(self.session.source.skipped(why))

    def sessions(self) -> list[str]:
        """What identifies each session: its thread or conversation, else the one turn or response that it is."""
        found = {row["id"] for row in self._rows("threads")}
        found |= {row["thread_id"] or row["id"] for row in self._rows("turns", columns="id, thread_id")}
        responses = self._rows("responses", columns="id, conversation_id")
        found |= {row["conversation_id"] or row["id"] for row in responses if row["id"] not in self._turn_ids}
        return sorted(key for key in found if isinstance(key, str))

    def fill(self) -> None:
        """Read the session."""
        session, key = self.session, self.session.key
        turns = self._rows("turns", "WHERE thread_id = ? OR (thread_id IS NULL AND id = ?) ORDER BY id", key, key)
        of_it = "WHERE conversation_id = ? OR (conversation_id IS NULL AND id = ?) ORDER BY id"
        rows = [row for row in self._rows("responses", of_it, key, key) if row["id"] not in self._turn_ids]
        heads = [*self._rows("threads", "WHERE id = ?", key), *self._rows("conversations", "WHERE id = ?", key), {}]
        head, latest = heads[0], [{}, *rows, *turns][-1]
        session.title, session.model = head.get("name"), latest.get("model") or head.get("model")
        session.provider, session.params = _provider(session.model), _json(latest.get("options_json"))
        session.created_at = None if latest else head.get("datetime_utc")
        session.extra = without({"forked_from": head.get("forked_from")})
        said = [message for row in rows for message in self._response(row)]
        # Of what stands in both, the older tables know more, and its ids were the same before the store had it.
        said += self._stored(turns, heads[0], only_of_turns=bool(rows))
        current = None  # system prompt; it stands among the messages where it changes
        for message in said:
            is_system, before = message["role"] == "system", current
            current = message["content"] if is_system else current
            if is_system and not session.messages and session.system is None:
                session.system = current
            elif not is_system or current != before:
                session.add_message(message)

    # ---- the message store: a tree of messages, turns that name who answered, threads

    def _stored(self, turns: list[Row], thread: Row, *, only_of_turns: bool) -> Iterator[Row]:
        """The messages of each turn, and what else its thread leads to. A turn has its answer, and what asks for that.

        ``only_of_turns``: without what the first turn was sent along with.
        """
        seen: set[str] = set()
        for tip in (row.get("tip_message_hash") for row in (*turns, thread)):
            messages: list[Row] = []
            turn: Row = {}
            was_asking = False
            while tip is not None and tip not in seen:
                if tip not in self._tree:
                    self._unread(f"message {tip}: it is not there")
                    break
                seen.add(tip)
                row = self._tree[tip]
                of_it = [turn for turn in turns if turn["tip_message_hash"] == tip]
                of_it = of_it or self._rows("turns", "WHERE id = ?", self._ends.get(tip))  # of another one, if forked
                if of_it or (was_asking and row["role"] not in _ASKING):
                    turn = of_it[0] if of_it else {}
                was_asking = row["role"] in _ASKING
                if turn or not only_of_turns:
                    messages.append(self._message(row, turn, is_end=bool(of_it)))
                tip = row["parent_hash"]
            yield from reversed(messages)

    def _message(self, row: Row, turn: Row, *, is_end: bool) -> Row:
        """A message in the blocks of Anthropic's API, which carry all that llm's parts do."""
        parts = self._rows("parts", "WHERE message_hash = ? ORDER BY position", row["hash"])
        blocks = [block for part in parts if (block := self._block(part))]
        message = {"id": row["hash"], "role": row["role"], "timestamp": _moment(turn), "content": _plain(blocks)}
        if any(block["type"] == "tool_result" for block in blocks):
            message["role"] = "user"
        return message | (_facts(turn, whole=is_end) if row["role"] == "assistant" else {})

    def _block(self, row: Row) -> Part | None:
        payload = _json(row["payload"])
        text = row["text"] if row["text"] is not None else payload.get("text")
        if "text_ref" in payload:  # the texts of fragments in their places
            texts = payload["text_ref"]
            text = "".join(one["literal"] if "literal" in one else self._fragment(one["fragment"]) for one in texts)
        match row["type"]:
            case "text":
                return {"type": "text", "text": _text(text)}
            case "reasoning":
                own = as_dict(as_dict(payload.get("provider_metadata")).get("anthropic"))
                if "data" in own:
                    return {"type": "redacted_thinking", "data": own["data"]}
                signed = {"signature": own["signature"]} if "signature" in own else {}
                return {"type": "thinking", "thinking": text or "", **signed} if text or signed else None
            case "tool_call":
                return {"type": "tool_use", "id": payload.get("tool_call_id"), "name": payload.get("name"),
                        "input": payload.get("arguments")}  # fmt: skip
            case "tool_result":
                media = [self._attachment(item.get("id")) for item in as_dicts(payload.get("attachments"))]
                return _result(payload, media)
            case "attachment":
                return self._attachment(as_dict(payload.get("attachment")).get("id"))
        self._unread(f"a part of a type that is not known: {row['type']!r}")
        return {**payload, "type": row["type"]} if isinstance(row["type"], str) else None

    # ---- the tables of before: a row for each response, with the question that it answers

    def _response(self, row: Row) -> list[Row]:
        """The system prompt, the tools' results, the question and the answer, as far as they are there."""
        ident, moment = row["id"], _moment(row)
        pieces = [*self._fragments("system", ident), _text(row.get("system"))]
        system = "\n\n".join(piece.strip() for piece in pieces if piece.strip())
        said: list[Row] = [{"role": "system", "id": f"{ident}:system", "content": system}] if system else []
        results: list[Part] = []
        for result in self._rows("tool_results", "WHERE response_id = ?", ident):
            media = self._attachments("tool_results_attachments", "tool_result_id", result["number"])
            given = {**result, "output": _text(result["output"])}
            results.append(_result(given, media))
            said.append({"role": "user", "id": f"{ident}:result:{result['number']}", "content": results[-1:]})
        words = "\n".join(filter(None, [*self._fragments("prompt", ident), _text(row["prompt"])]))
        question = [{"type": "text", "text": words}] if words else []
        question += self._attachments("prompt_attachments", "response_id", ident)
        came = [part for result in results if isinstance(result["content"], list) for part in result["content"]]
        if question and not (results and all(part in came for part in question)):  # no more than came with the results
            said.append({"role": "user", "id": f"{ident}:prompt", "content": _plain(question)})
        reasoning, response = _text(row.get("reasoning")), _text(row["response"])
        blocks: list[Part] = [{"type": "thinking", "thinking": reasoning}] if reasoning else []
        blocks += [{"type": "text", "text": response}] if response else []
        for call in self._rows("tool_calls", "WHERE response_id = ?", ident):
            arguments = _text(call["arguments"]) or None
            blocks.append({"type": "tool_use", "id": call["tool_call_id"], "name": call["name"], "input": arguments})
        said.append({"role": "assistant", "id": ident, "content": _plain(blocks), **_facts(row, whole=True)})
        return [{**message, "timestamp": moment} for message in said]

    def _fragments(self, kind: str, ident: str) -> list[str]:
        rows = self._rows(f"{kind}_fragments", 'WHERE response_id = ? ORDER BY "order"', ident)
        return [self._fragment(row["fragment_id"]) for row in rows]

    def _attachments(self, table: str, column: str, value: object) -> list[Part]:
        rows = self._rows(table, f'WHERE {column} = ? ORDER BY "order"', value)
        return [self._attachment(row["attachment_id"]) for row in rows]

    # ---- what both eras have

    def _fragment(self, number: object) -> str:
        rows = self._rows("fragments", "WHERE id = ?", number)
        if not rows:
            self._unread(f"a fragment that is not there: {number!r}")
        return _text(rows[0]["content"]) if rows else ""

    def _attachment(self, ident: object) -> Part:
        """An attachment as a part; one whose bytes are elsewhere names the place, which nobody opens."""
        row = next(iter(self._rows("attachments", "WHERE id = ?", ident)), {})
        kind, content, path, url = (row.get(key) for key in ("type", "content", "path", "url"))
        media_type = kind if isinstance(kind, str) and _MEDIA_TYPE.fullmatch(kind) else "application/octet-stream"
        if content is not None:
            data = content if isinstance(content, bytes) else str(content).encode("utf-8", "surrogateescape")
            return without(media_part("", media_type, data), "source")  # it has no name
        if isinstance(url, str) and url.startswith(("https://", "http://")):
            return url_part(media_type, url, None)
        self._unread(f"an attachment that is not in the database: {path or url or 'it names neither a file nor a URL'}")
        return without({"type": "attachment", "media_type": media_type, "path": path, "url": url})


def _text(cell: object) -> str:
    """The text in a cell of any type, an empty one where there is none."""
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else "" if cell is None else str(cell)


def _plain(parts: list[Part]) -> str | list[Part]:
    """Content as it is usual: a text alone is a string."""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts or ""


def _result(given: Row, media: list[Part]) -> Part:
    """What a tool gave, which is an error where llm noted one."""
    text = given.get("output") if isinstance(given.get("output"), str) else ""
    content = [{"type": "text", "text": text}, *media] if media else text
    found = {"type": "tool_result", "tool_use_id": given.get("tool_call_id"), "name": given.get("name")}
    failed = {"is_error": True, "tool_use_result": {"exception": given["exception"]}} if given.get("exception") else {}
    return {**found, "content": content, **failed}


def _json(cell: object) -> dict[str, Any]:
    """The JSON object in a cell; an empty one where there is none."""
    try:
        return as_dict(parse_json(cell)) if isinstance(cell, str) else {}
    except (ValueError, RecursionError):
        return {}


def _facts(row: Row, *, whole: bool) -> Row:
    """What a turn or a response has noted of its answer: who said it, and with its last message what that was."""
    model, provider = row.get("model"), _provider(row.get("model"))
    found = {"model": model, "provider": provider}
    if whole:
        reply, took, resolved = _json(row.get("response_json")), row.get("duration_ms"), row.get("resolved_model")
        found |= {
            "resolved_model": resolved if resolved != model else None,
            "response_id": reply.get("id"),
            "finish_reason": reply.get("finish_reason") or reply.get("stop_reason"),
            "usage": _usage(row, provider),
            "duration_ms": took,
        }
    return without(found)


@lru_cache(maxsize=1000)
def _provider(model: str | None) -> str | None:
    """Whose a model is, as far as its name says."""
    provider = split_model(model)[0] if isinstance(model, str) else None
    return provider if provider and known_provider(provider) else None


def _moment(row: Row) -> Any:
    """A time; one without a zone is UTC."""
    said = row.get("datetime_utc")
    with contextlib.suppress(ValueError):
        return f"{said}Z" if said and datetime.fromisoformat(said).tzinfo is None else said


def _usage(row: Row, provider: str | None) -> Usage | None:
    prompt, completion = (token_count(row.get(f"{way}_tokens")) for way in ("input", "output"))
    if prompt is None and completion is None:
        return None
    details = _json(row.get("token_details"))
    read_there, written = (token_count(details.get(f"cache_{way}")) for way in ("read", "write"))
    if provider == "anthropic" or any(re.fullmatch("cache_.*_input_tokens", key) for key in details):
        plain = {"cache_read_input_tokens": read_there, "cache_creation_input_tokens": written}
        return usage_from({**plain, **details, "input_tokens": prompt, "output_tokens": completion})
    for theirs, ours in (("input", "prompt"), ("output", "completion")):  # as the Responses API calls them
        if found := details.pop(f"{theirs}_tokens_details", None):
            details[f"{ours}_tokens_details"] = found
    if read_there is not None or written is not None:  # beside the provider's own names, which tell more
        plain = {"cached_tokens": read_there, "cache_write_tokens": written}
        details["prompt_tokens_details"] = {**plain, **as_dict(details.get("prompt_tokens_details"))}
    return usage_from({**details, "prompt_tokens": prompt, "completion_tokens": completion})
