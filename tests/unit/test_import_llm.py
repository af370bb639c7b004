"""The logs of llm: both eras, one after the other, in one file; databases that mean no good."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.core import checks, files
from gptsh.formats.llm_logs import READER
from gptsh.formats.llm_parts import call_of
from gptsh.formats.source import Source, Unread
from tests.support import vocabulary
from tests.support.home import Home
from tests.support.paths import HISTORIES

SAMPLES = HISTORIES / "llm"
LOGS, LEGACY, CONTINUED = (SAMPLES / f"logs{name}.db" for name in ("", "_legacy_0.31", "_continued_0.36"))
OWN = "an attachment that is not in the database: /home/u/own.png"
# The tables of the first version that kept conversations, and of 0.32, as far as they are read.
BEFORE = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT, options_json TEXT,
    response TEXT, response_json TEXT, conversation_id TEXT, duration_ms INTEGER, datetime_utc TEXT);
"""
STORE = """
CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT);
CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT, model TEXT,
    resolved_model TEXT, options_json TEXT, schema_id TEXT, input_tokens INTEGER, output_tokens INTEGER,
    token_details TEXT, duration_ms INTEGER, datetime_utc TEXT, response_json TEXT);
CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT, text TEXT,
    payload TEXT);
CREATE UNIQUE INDEX parts_of ON parts (message_hash, position);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE fragments (id INTEGER PRIMARY KEY, hash TEXT, content TEXT, datetime_utc TEXT, source TEXT);
"""
ASKED = """
INSERT INTO threads VALUES ('t1', 'hello', 'a1', NULL, '2026-11-20 18:36:03.810088+00:00');
INSERT INTO messages VALUES ('q1', NULL, 'user', NULL), ('a1', 'q1', 'assistant', NULL);
INSERT INTO parts VALUES (1, 'q1', 0, 'text', NULL, 'hello', NULL), (2, 'a1', 0, 'text', NULL, 'hi', NULL);
INSERT INTO turns (id, thread_id, parent_message_hash, tip_message_hash, model, datetime_utc)
    VALUES ('u1', 't1', 'q1', 'a1', 'gpt-4o', '2026-11-20T18:36:03.799748+00:00');
"""


def database(path: Path, *scripts: str) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("".join(("PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY;", *scripts)))
    return path


def read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The sessions of a file, and why what of it could not be read."""
    source = Source(str(path), path)
    assert READER.recognises(source)
    docs, why = [], []
    for found in READER.read(source):
        if isinstance(found, Unread):
            assert found.where == str(path)
            why.append(found.why)
        else:
            files.to_bytes(checks.check(found))
            docs.append(found)
    return docs, why


def one(path: Path) -> list[dict[str, Any]]:
    """The messages of the only session."""
    ((doc,), _) = read(path)
    messages: list[dict[str, Any]] = doc["messages"]
    return messages


def said(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in messages]


def roles(doc: dict[str, Any]) -> list[str]:
    return [message["role"] for message in doc["messages"]]


# ---- what real versions wrote


def test_the_message_store_is_read_with_all_that_it_has() -> None:
    ((doc,), why) = read(LOGS)
    assert why == []
    assert doc["title"] == "Grüße, 世界 🐍! Read config.json a…"
    assert doc["agent"]["system"] == "You are a shell helper."
    assert doc["meta"]["imported"] == {"format": "llm", "key": "01m7x3x1aqftxeaqq7nq2k3364"}
    asked, calls, read_file, list_dir, told, again, last = doc["messages"]
    assert roles(doc) == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    assert [asked["parent"], calls["parent"]] == [None, asked["id"]] == [None, "b2:388c0d165a86877ae3931aaafce3b10a"]
    assert asked["timestamp"] == "2026-11-20T18:36:03.799Z"
    assert asked["source"]["timestamp"] == "2026-11-20T18:36:03.799748+00:00"
    assert calls["thinking"] == [{
        "type": "thinking", "thinking": "The user wants two things; both calls are independent.",
        "signature": "c3ludGhldGljLXNpZ25hdHVyZQ==",
    }]  # fmt: skip
    assert [call["id"][-3:] for call in calls["tool_calls"]] == ["AAA", "BBB"]
    assert calls["tool_calls"][0]["function"] == {
        "name": "read_file", "arguments": '{"path": "config.json", "limit": 10}'
    }  # fmt: skip
    assert "is_error" not in read_file
    assert (list_dir["is_error"], list_dir["raw"]) == (True, {"exception": "OSError: ENOENT: /nope"})
    assert [result["tool_call_id"][-3:] for result in (read_file, list_dir)] == ["AAA", "BBB"]
    whole = {"model": "synthetic", "resolved_model": "synthetic-2026", "response_id": "msg_01Synth", "duration_ms": 0}
    assert whole.items() <= told.items()
    assert (told["usage"]["prompt"], told["usage"]["completion"], told["usage"]["total"]) == (15515, 42, 15557)
    assert told["usage"]["raw"]["cache_write"] == 3000
    text, image, pdf = again["content"]
    assert text["text"] == "a synthetic fragment\nAnd what is in these two?"
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert pdf["file"]["file_data"].startswith("data:application/pdf;base64,JVBER")
    assert last["content"] == "An orange pixel and an empty PDF."


def test_the_tables_of_before_are_read_with_all_that_they_have() -> None:
    ((doc, alone), why) = read(LEGACY)
    assert why == [OWN]
    assert (doc["title"], alone["title"]) == ("Grüße, 世界 🐍! Read config.json a…", "One question")
    assert doc["agent"]["system"] == "Use SI units.\n\nYou are a shell helper."
    assert roles(doc) == [
        "user", "assistant", "tool", "tool", "assistant", "user", "assistant", "user", "assistant", "tool", "assistant",
        "user", "assistant",
    ]  # fmt: skip
    asked, calls, _, list_dir, told, again, *_ = doc["messages"]
    assert asked["id"] == f"{calls['id']}:prompt" == calls["parent"]
    assert [call["function"]["name"] for call in calls["tool_calls"]] == ["read_file", "list_dir"]
    assert (list_dir["is_error"], list_dir["raw"]["exception"]) == (True, "OSError: ENOENT: /nope")
    assert (told["finish_reason"], told["response_id"], told["duration_ms"] >= 0) == ("stop", "msg_01Synth", True)
    used = told["usage"]
    assert [used[key] for key in ("prompt", "completion", "total", "reasoning_tokens", "cached_tokens")] == [
        120, 42, 162, 7, 100,
    ]  # fmt: skip
    assert again["content"][0]["text"] == "a synthetic fragment\nAnd what is in these two?"
    picture = doc["messages"][9]
    assert (picture["content"][0]["text"], picture["content"][1]["type"]) == ("here", "image_url")
    own, url = doc["messages"][-2]["content"][1:]
    assert own == {"type": "attachment", "media_type": "image/png", "path": "/home/u/own.png"}
    assert url["source"]["url"] == "https://example.com/a.png"


def test_a_conversation_of_both_eras_is_one_and_nothing_of_it_is_there_twice(home: Home) -> None:
    before, after = (read(path)[0][0] for path in (LEGACY, CONTINUED))
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert said(after["messages"][len(before["messages"]) :]) == [("user", "And now?"), ("assistant", "Continued.")] * 2
    logs = home.folder / "logs.db"
    told = [["imported", "imported"], ["known", "known"], ["grown", "known"], ["known", "known"], ["known", "known"]]
    for path, states in zip((LEGACY, LEGACY, CONTINUED, CONTINUED, LEGACY), told, strict=True):
        shutil.copyfile(path, logs)
        run = home.run("--import-session", str(logs))
        assert (run.code, [line.split()[0] for line in run.stdout.splitlines()]) == (0, states)
    assert sorted(doc["stats"]["messages"] for doc in home.docs()) == [2, 17]


def test_a_response_that_is_a_turn_too_counts_once(tmp_path: Path) -> None:
    again = "INSERT INTO responses (id, prompt, response, conversation_id) VALUES ('u1', 'hello', 'hi', 't1');"
    path = database(tmp_path / "logs.db", STORE, ASKED, BEFORE, again)
    assert said(one(path)) == [("user", "hello"), ("assistant", "hi")]


def test_a_log_of_the_first_versions_is_read(tmp_path: Path) -> None:
    first = """
    CREATE TABLE logs (id INTEGER PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT,
        options_json TEXT, response TEXT, response_json TEXT, reply_to_id INTEGER, chat_id INTEGER, duration_ms INTEGER,
        datetime_utc TEXT);
    INSERT INTO logs (id, model, prompt, response, chat_id, datetime_utc) VALUES
        (1, 'gpt-4', 'hello', 'hi', NULL, '2023-06-17T10:00:00.5'), (2, 'gpt-4', 'alone', 'yes', NULL, NULL),
        (3, 'gpt-4', 'and now?', 'bye', 1, '2023-06-17T10:01:00');
    """
    docs, why = read(database(tmp_path / "logs.db", first))
    docs.sort(key=lambda doc: str(doc["created_at"]))
    assert why == []
    assert [[text for _, text in said(doc["messages"])] for doc in docs] == [
        ["hello", "hi", "and now?", "bye"], ["alone", "yes"],
    ]  # fmt: skip
    assert docs[0]["created_at"] == "2023-06-17T10:00:00.500Z"  # without a zone it is UTC
    assert docs[0]["provider"]["name"] == "openai"


OLDEST = """CREATE TABLE logs (provider TEXT, system TEXT, prompt TEXT, chat_id INTEGER, response TEXT, model TEXT,
    timestamp TEXT);"""
NAMELESS = {
    "logs": (OLDEST, "INSERT INTO logs (prompt, response, timestamp) VALUES ('{}', 'yes', '2023-04-01 00:00:0{}');"),
    "responses": (
        BEFORE, "INSERT INTO responses (prompt, response, datetime_utc) VALUES ('{}', 'yes', '2023-04-01 00:00:0{}');",
    ),
    "turns": (
        STORE, """INSERT INTO messages VALUES ('{0}', NULL, 'user', NULL);
        INSERT INTO parts (message_hash, position, type, text) VALUES ('{0}', 0, 'text', '{0}');
        INSERT INTO turns (tip_message_hash, datetime_utc) VALUES ('{0}', '2023-04-01 00:00:0{1}');""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("table", NAMELESS)
def test_rows_of_two_databases_are_two_sessions_and_stay_the_same_where_rows_are_added(
    home: Home, tmp_path: Path, table: str
) -> None:
    tables, row = NAMELESS[table]
    rows = [row.format(f"q{at}", at) for at in range(3)]
    brought = {
        "a": ("one.db", [rows[0]], ["imported"]),
        "b": ("two.db", [rows[1]], ["imported"]),
        "a again": ("one.db", [rows[0]], ["known"]),
        "b and a": ("three.db", [*rows[1:], rows[0]], ["imported", "known", "known"]),
    }
    for name, said_there, states in brought.values():
        path = home.folder / name
        path.unlink(missing_ok=True)
        run = home.run("--import-session", str(database(path, tables, *said_there)))
        assert sorted(line.split()[0] for line in run.stdout.splitlines()) == states
    texts = [doc["messages"][0]["content"] for doc in home.docs()]
    assert sorted(texts) == ["q0", "q1", "q2"]


def test_the_rows_of_a_chat_stay_in_their_order_and_those_that_are_alike_are_several(tmp_path: Path) -> None:
    rows = "".join(
        f"INSERT INTO logs VALUES (NULL, NULL, '{text}', {chat}, 'r', 'm', '2023-04-01 00:00:00');"
        for text, chat in (("z", "NULL"), ("a", 1), ("a", 1), ("m", 1))
    )
    ((doc,), _) = read(database(tmp_path / "logs.db", OLDEST, rows))
    assert [text for _, text in said(doc["messages"])] == ["z", "r", "a", "r", "a", "r", "m", "r"]
    assert len({message["id"] for message in doc["messages"]}) == 8
    more = "INSERT INTO logs VALUES (NULL, NULL, 'b', 1, 'r', 'm', '2023-04-01 00:00:00');"
    ((grown,), _) = read(database(tmp_path / "logs.db", more))
    assert grown["messages"][:8] == doc["messages"]
    assert grown["meta"]["imported"]["key"] == doc["meta"]["imported"]["key"]


@pytest.mark.parametrize("name", ["rowid", "RowID", "_rowid_", "oid"])
def test_a_column_that_is_called_as_the_number_of_a_row_is_none(tmp_path: Path, name: str) -> None:
    table = f"CREATE TABLE logs ({name} TEXT, prompt TEXT, response TEXT, chat_id INTEGER);"
    rows = "INSERT INTO logs VALUES (NULL, 'q', 'r', NULL), (x'00', 'and?', 'no', 1);"
    assert [text for _, text in said(one(database(tmp_path / "logs.db", table, rows)))] == ["q", "r", "and?", "no"]


def test_rows_that_have_no_number_at_all_are_not_read(tmp_path: Path) -> None:
    table = "CREATE TABLE logs (rowid, _rowid_, oid, prompt TEXT); INSERT INTO logs VALUES (NULL, NULL, NULL, 'q');"
    assert read(database(tmp_path / "logs.db", table)) == ([], ["the rows of the table logs cannot be told apart"])


def test_a_text_that_stands_there_as_bytes_is_read_or_told(tmp_path: Path) -> None:
    rows = """INSERT INTO responses (id, prompt, system, response, conversation_id) VALUES
        ('a', CAST('über' AS BLOB), CAST('Terse.' AS BLOB), CAST('hi' AS BLOB), 'c'), ('b', x'ff00', NULL, 'ho', 'c');
        CREATE TABLE tool_calls (response_id TEXT, name TEXT, arguments, tool_call_id TEXT);
        INSERT INTO tool_calls VALUES ('b', 'f', CAST('{"a": 1}' AS BLOB), 'c1');"""
    ((doc,), why) = read(database(tmp_path / "logs.db", BEFORE, rows))
    assert said(doc["messages"]) == [("user", "über"), ("assistant", "hi"), ("assistant", "ho")]
    assert (doc["agent"]["system"], why) == ("Terse.", ["2 bytes in the place of a text"])
    assert doc["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    (tmp_path / "store").mkdir()
    bytes_too = "UPDATE parts SET text = CAST('hello' AS BLOB) WHERE id = 1;"
    assert said(one(database(tmp_path / "store" / "logs.db", STORE, ASKED, bytes_too)))[0] == ("user", "hello")


def test_an_older_table_without_the_later_columns_is_read(tmp_path: Path) -> None:
    rows = """INSERT INTO responses (id, model, prompt, system, options_json, response, conversation_id, datetime_utc)
        VALUES
        ('b', 'gpt-4', 'second', 'Terse.', '{"temperature": 0.5, "frob": 1}', 'two', 'c', '2023-08-17T21:39:38'),
        ('a', 'gpt-4', 'first', 'Terse.', '{}', 'one', 'c', '2023-08-17T21:39:37'),
        ('d', 'gpt-4', 'alone', NULL, NULL, 'three', NULL, NULL);"""
    docs, why = read(database(tmp_path / "logs.db", BEFORE, rows))
    assert why == []
    assert [doc["meta"]["imported"]["key"] for doc in docs] == ["c", "d"]
    assert [text for _, text in said(docs[0]["messages"])] == ["first", "one", "second", "two"]
    assert (docs[0]["agent"]["system"], docs[0]["agent"]["params"]) == ("Terse.", {"temperature": 0.5})


def test_two_turns_at_once_are_both_there_and_a_fork_has_what_it_came_from(tmp_path: Path) -> None:
    more = """
    INSERT INTO messages VALUES ('q2', 'a1', 'user', NULL), ('a2', 'q2', 'assistant', NULL),
        ('q3', 'a1', 'user', NULL), ('a3', 'q3', 'assistant', NULL), ('lost', NULL, 'user', NULL);
    INSERT INTO parts VALUES (3, 'q2', 0, 'text', NULL, 'this', NULL), (4, 'a2', 0, 'text', NULL, 'one', NULL),
        (5, 'q3', 0, 'text', NULL, 'that', NULL), (6, 'a3', 0, 'text', NULL, 'two', NULL);
    INSERT INTO turns (id, thread_id, parent_message_hash, tip_message_hash, model)
        VALUES ('u2', 't1', 'q2', 'a2', 'm'), ('u3', 't1', 'q3', 'a3', 'm');
    UPDATE threads SET tip_message_hash = 'a3';
    INSERT INTO threads VALUES ('t2', 'fork', 'a2', 't1', NULL);
    """
    docs, why = read(database(tmp_path / "logs.db", STORE, ASKED, more))
    assert [[text for _, text in said(doc["messages"])] for doc in docs] == [
        ["hello", "hi", "this", "one", "that", "two"], ["hello", "hi", "this", "one"],
    ]  # fmt: skip
    assert docs[0]["messages"][4]["parent"] == "a1"
    assert docs[1]["meta"]["imported"]["forked_from"] == "t1"
    assert [m.get("model") for m in docs[1]["messages"]] == [None, "gpt-4o", None, "m"]
    assert why == ["message lost: it is in no conversation"]


def test_what_the_provider_ran_stands_between_what_the_model_said(tmp_path: Path) -> None:
    parts = """
    DELETE FROM parts WHERE message_hash = 'a1';
    INSERT INTO parts VALUES
        (3, 'a1', 0, 'reasoning', NULL, '', '{"redacted": true}'),
        (4, 'a1', 1, 'reasoning', NULL, '', '{"provider_metadata": {"anthropic": {"data": "x"}}}'),
        (5, 'a1', 2, 'tool_call', 's', NULL, '{"name": "s", "tool_call_id": "c", "server_executed": true}'),
        (6, 'a1', 3, 'tool_result', 's', NULL, '{"name": "s", "output": "found", "tool_call_id": "c"}'),
        (7, 'a1', 4, 'text', NULL, 'done', NULL), (8, 'a1', 5, 'odd', NULL, 'x', NULL),
        (9, 'a1', 6, 'text', NULL, NULL, '{');
    """
    path = database(tmp_path / "logs.db", STORE, ASKED, parts)
    _, call, result, answer = one(path)
    assert call["thinking"] == [{"type": "redacted_thinking", "data": "x"}]
    assert (call["tool_calls"][0]["id"], result["tool_call_id"], result["content"]) == ("c", "c", "found")
    assert answer["content"] == [{"type": "text", "text": "done"}, {"type": "odd", "text": "x"}]
    assert (call["id"], result["id"], answer["id"]) == ("a1", "a1:3", "a1:4")
    odd, broken = read(path)[1]
    assert odd == "a part of a type that is not known: 'odd'"
    assert broken.startswith("message a1, part 6: not JSON")


@pytest.mark.parametrize(
    ("details", "usage"),
    [
        ('{"cache_read_input_tokens": 5, "cache_creation_input_tokens": 2}', (17, 3, 20, 5, None)),
        ('{"prompt_tokens_details": {"cached_tokens": 4}}', (10, 3, 13, 4, None)),
        ('{"input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 2}}',
         (10, 3, 13, 4, 2)),
        ('{"cache_read": 4, "cache_write": 1}', (10, 3, 13, 4, None)),
        ('{"cache_read": 4, "prompt_tokens_details": {"cached_tokens": 5}}', (10, 3, 13, 5, None)),
        ('{"cache_read": {"a": 1}, "cache_write": "2"}', (10, 3, 13, None, None)),
        ('{"cache_read": 5, "cache_write": 2, "cache_creation_input_tokens": 3}', (18, 3, 21, 5, None)),
        ("[]", (10, 3, 13, None, None)),
        ("{", (10, 3, 13, None, None)),
    ],
)  # fmt: skip
def test_usage_has_our_names(tmp_path: Path, details: str, usage: tuple[Any, ...]) -> None:
    used = f"UPDATE turns SET input_tokens = 10, output_tokens = 3, token_details = '{details}';"
    found = one(database(tmp_path / "logs.db", STORE, ASKED, used))[-1]["usage"]
    assert tuple(found[k] for k in ("prompt", "completion", "total", "cached_tokens", "reasoning_tokens")) == usage


def test_what_went_into_a_cache_is_counted_whatever_it_is_called(tmp_path: Path) -> None:
    details = '{"cache_read": 4, "cache_write": 1}'
    used = f"UPDATE turns SET input_tokens = 10, output_tokens = 3, token_details = '{details}'"
    found = [one(database(tmp_path / f"{at}.db", STORE, ASKED, f"{used}{more};"))[-1]["usage"]
             for at, more in enumerate(("", ", model = 'anthropic/claude-sonnet-4-5'"))]  # fmt: skip
    assert [(usage["prompt"], usage["cached_tokens"], usage["cache_write_tokens"]) for usage in found] == [
        (10, 4, 1), (15, 4, 1),
    ]  # fmt: skip


# ---- the file stays as it is


@contextlib.contextmanager
def being_written(folder: Path) -> Iterator[Path]:
    """A database whose writer is still there, with what it has written last in its log beside it."""
    path = database(folder / "logs.db", "PRAGMA journal_mode=WAL;", STORE)
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.executescript(ASKED)
        assert path.with_name("logs.db-wal").stat().st_size
        yield path


def test_the_original_is_never_touched_and_what_its_writer_has_not_merged_is_read(home: Home) -> None:
    folder, temporary = home.folder / "llm", home.folder / "tmp"
    folder.mkdir()
    temporary.mkdir()
    with being_written(folder) as path:
        shm = [p for p in folder.iterdir() if p.name.endswith("-shm")]
        kept = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir() if p not in shm}
        there = {p.name for p in folder.iterdir()}
        moment = folder.stat().st_mtime_ns
        folder.chmod(0o500)
        run = home.run("--import-session", str(path), env={"TMPDIR": str(temporary)})
        folder.chmod(0o700)
        assert run.code == 0, run.stderr
        assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in kept} == kept
        assert ({p.name for p in folder.iterdir()}, folder.stat().st_mtime_ns) == (there, moment)
    assert home.doc()["stats"] == {"turns": 1, "messages": 2, "preview": "hello"}
    assert list(temporary.iterdir()) == []


def test_the_copy_is_gone_whatever_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    found = READER.read(Source(str(LEGACY), LEGACY))
    assert next(found)
    (copy,) = (tmp_path / "tmp").iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    found.close()  # type: ignore[attr-defined]
    assert list((tmp_path / "tmp").iterdir()) == []
    torn = tmp_path / "torn.db"
    torn.write_bytes(LOGS.read_bytes()[:5000])
    assert read(torn)[1]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_piped_database_is_read(home: Home) -> None:
    run = home.run("--import-session", "-", stdin=LOGS.read_bytes())
    assert (run.code, home.doc()["stats"]["messages"]) == (0, 7), run.stderr


# ---- databases that mean no good

LOOP = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


@pytest.mark.parametrize(
    "script",
    [
        f"CREATE VIEW conversations AS {LOOP} i AS id, 'x' AS name, 'm' AS model FROM n;",
        f"CREATE VIEW responses AS {LOOP} i AS id, 'x' AS prompt, 'c' AS conversation_id FROM n;",
        "CREATE VIRTUAL TABLE responses USING fts5(id, prompt, conversation_id);",
        "CREATE TABLE responses (id TEXT PRIMARY KEY) WITHOUT ROWID; INSERT INTO responses VALUES ('a');",
    ],
)
def test_what_is_no_plain_table_is_not_read(tmp_path: Path, script: str) -> None:
    whole = BEFORE.split(";")
    table = whole[0] if "conversations AS" not in script else whole[1]
    docs, why = read(database(tmp_path / "logs.db", f"{table};", script))
    assert docs == []
    assert len(why) == 1


@pytest.mark.parametrize("size", [900_000, pytest.param(90_000_000, marks=pytest.mark.slow)])
def test_a_generated_column_is_not_computed(tmp_path: Path, size: int) -> None:
    generated = BEFORE.replace("response TEXT,", f"response TEXT AS (replace(hex(zeroblob({size})), '0', 'xx')),")
    rows = "INSERT INTO responses (id, prompt) VALUES ('a', 'hello');"
    assert said(one(database(tmp_path / "logs.db", generated, rows))) == [("user", "hello"), ("assistant", "")]


def test_messages_in_a_circle_end(tmp_path: Path) -> None:
    circle = "UPDATE messages SET parent_hash = 'a1' WHERE hash = 'q1';"
    assert said(one(database(tmp_path / "logs.db", STORE, ASKED, circle))) == [("user", "hello"), ("assistant", "hi")]


@pytest.mark.slow
def test_a_small_file_that_is_many_large_sessions_is_not_read_to_its_end(tmp_path: Path) -> None:
    many = """
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
        INSERT INTO messages SELECT 'm' || i, 'm' || (i - 1), 'user', NULL FROM n;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
        INSERT INTO threads SELECT 'x' || i, NULL, 'm1500', NULL, NULL FROM n;
    """
    docs, why = read(database(tmp_path / "logs.db", STORE, many))
    assert len(docs) < 1000
    assert any("its sessions are many times larger than the file" in line for line in why)


def test_a_text_that_is_borrowed_too_often_is_not_read(tmp_path: Path) -> None:
    borrowed = json.dumps({"text_ref": [{"fragment": 1}] * 300})
    huge = f"""
    INSERT INTO fragments VALUES (1, 'h', hex(zeroblob(500000)), NULL, NULL);
    UPDATE parts SET text = NULL, payload = '{borrowed}' WHERE id = 1;
    """
    docs, why = read(database(tmp_path / "logs.db", STORE, ASKED, huge))
    assert (docs, why) == ([], ["conversation t1: a session of more than 100 MB"])


def test_a_cell_that_is_too_large_costs_its_session_alone(tmp_path: Path) -> None:
    rows = """INSERT INTO responses (id, prompt, response)
        VALUES ('a', 'x', zeroblob(100000001)), ('b', 'hello', 'hi');"""
    docs, why = read(database(tmp_path / "logs.db", BEFORE, rows))
    assert [said(doc["messages"]) for doc in docs] == [[("user", "hello"), ("assistant", "hi")]]
    assert why == ["conversation a: not readable as a database: string or blob too big"]


@pytest.mark.slow
def test_cells_of_any_type_do_no_harm(tmp_path: Path) -> None:
    odd = ["NULL", "7", "-1", "9e999", "x'ff00'", "CAST(x'ff41' AS TEXT)", "CAST(x'eda080' AS TEXT)", "''", "'[[]]'",
           "'{\"a\": [1e999]}'", "'" + "[" * 5000 + "'"]  # fmt: skip
    columns = {
        "threads": ["id", "name", "tip_message_hash", "forked_from", "datetime_utc"],
        "turns": ["id", "thread_id", "parent_message_hash", "tip_message_hash", "model", "resolved_model",
                  "options_json", "input_tokens", "output_tokens", "token_details", "duration_ms", "datetime_utc",
                  "response_json"],
        "messages": ["hash", "parent_hash", "role"],
        "parts": ["message_hash", "position", "type", "text", "payload"],
    }  # fmt: skip
    for table, names in columns.items():
        for at, name in enumerate(names):
            path = database(tmp_path / f"{table}{at}.db", STORE, ASKED, BEFORE)
            for cell in odd:
                shutil.copyfile(path, copy := tmp_path / "copy.db")
                database(copy, f"UPDATE {table} SET {name} = {cell} WHERE rowid = 1;")
                docs, why = read(copy)
                assert docs or why, (table, name, cell)


BESIDE = """
CREATE TABLE attachments (id, type, path, url, content);
CREATE TABLE fragments (id, hash, content);
CREATE TABLE prompt_fragments (response_id, fragment_id, "order");
CREATE TABLE system_fragments (response_id, fragment_id, "order");
CREATE TABLE prompt_attachments (response_id, attachment_id, "order");
CREATE TABLE tool_calls (id, response_id, tool_id, name, arguments, tool_call_id);
CREATE TABLE tool_results (id, response_id, tool_id, name, output, tool_call_id, exception);
CREATE TABLE tool_results_attachments (tool_result_id, attachment_id, "order");
INSERT INTO attachments VALUES ('p', 'image/png', NULL, NULL, x'00');
INSERT INTO fragments VALUES (1, 'h', 'piece');
INSERT INTO prompt_fragments VALUES ('r1', 1, 0);
INSERT INTO system_fragments VALUES ('r1', 1, 0);
INSERT INTO prompt_attachments VALUES ('r1', 'p', 0);
INSERT INTO tool_calls VALUES (1, 'r1', 1, 'f', '{}', 'c1');
INSERT INTO tool_results VALUES (1, 'r1', 1, 'f', 'out', 'c1', NULL);
INSERT INTO tool_results_attachments VALUES (1, 'p', 0);
INSERT INTO logs VALUES ('openai', 's', 'q', NULL, 'r', 'gpt-4', '2023-04-01 00:00:00');
INSERT INTO conversations VALUES ('c', 'name', 'm');
INSERT INTO responses VALUES ('r1', 'm', 'q', 's', '{}', '{}', 'r', '{}', 'c', 3,
    '2023-04-01T00:00:00', 'why', 1, 2, '{}', 'x');
"""
UNTYPED = re.sub(r" (?:TEXT|INTEGER)(?: PRIMARY KEY)?", "", BEFORE + OLDEST).replace(
    "datetime_utc);", "datetime_utc, reasoning, input_tokens, output_tokens, token_details, resolved_model);"
)
COLUMNS = {
    name: [column.strip(' "\n').partition(" ")[0] for column in listed.split(",")]
    for name, listed in re.findall(r"CREATE TABLE (\w+) \(([^;]*)\);", UNTYPED + BESIDE)
}
CELLS = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary(max_size=9), st.text(max_size=9),
    vocabulary.JSON.map(json.dumps),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([(t, c) for t, names in COLUMNS.items() for c in names]), CELLS, max_size=6))
def test_whatever_stands_in_whichever_cells_nothing_fails(cells: dict[tuple[str, str], Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = database(Path(folder, "logs.db"), UNTYPED, BESIDE)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for (table, column), cell in cells.items():
                connection.execute(f'UPDATE {table} SET "{column}" = ?', (cell,))
            connection.commit()
        docs, why = read(path)
        assert docs or why


PAYLOADS = [
    '{"text_ref": 7}', '{"text_ref": [7, {"fragment": 1000000000000000000000}, {"fragment": "1"}, {"literal": 7}]}',
    '{"text_ref": [{"fragment": true}]}', '[]', '"x"', '{"text": 7}', '{"type": "text", "hash": "x"}',
    '{"provider_metadata": {"anthropic": {"signature": 7}}}', '{"name": 7, "arguments": "{"}',
    '{"attachment": {"id": "nobody"}}', '{"attachment": {"id": 7}}', '{"attachment": 7}',
    '{"output": 7, "tool_call_id": 7, "attachments": [{"id": "\\ud800"}], "exception": 7}',
]  # fmt: skip


def test_payloads_of_any_shape_do_no_harm(tmp_path: Path) -> None:
    for kind in ("text", "reasoning", "tool_call", "tool_result", "attachment", "odd"):
        for payload in PAYLOADS:
            change = f"UPDATE parts SET type = '{kind}', text = NULL, payload = '{payload}' WHERE id = 2;"
            path = tmp_path / "logs.db"
            path.unlink(missing_ok=True)
            docs, why = read(database(path, STORE, ASKED, change))
            assert [len(doc["messages"]) for doc in docs] == [2], (kind, payload, why)


def test_no_path_and_no_url_of_a_file_is_opened(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")  # whoever opened it would wait
    places = f"""
    INSERT INTO attachments VALUES ('p', 'image/png', '{pipe}', NULL, NULL),
        ('u', 'image/png', NULL, 'file://{pipe}', NULL), ('t', 'text/html;base64,x', NULL, NULL, 'text');
    INSERT INTO parts VALUES (3, 'q1', 1, 'attachment', NULL, NULL, '{{"attachment": {{"id": "p"}}}}'),
        (4, 'q1', 2, 'attachment', NULL, NULL, '{{"attachment": {{"id": "u"}}}}'),
        (5, 'q1', 3, 'attachment', NULL, NULL, '{{"attachment": {{"id": "t"}}}}');
    """
    path = database(tmp_path / "logs.db", STORE, ASKED, places)
    _, named, url, data = one(path)[0]["content"]
    assert (named["type"], url["type"]) == ("attachment", "attachment")
    assert data["source"] == {"type": "base64", "media_type": "application/octet-stream", "data": "dGV4dA=="}
    assert read(path)[1] == [
        f"an attachment that is not in the database: {place}" for place in (pipe, f"file://{pipe}")
    ]


def test_another_database_is_told_to_be_one(home: Home) -> None:
    database(home.folder / "places.db", "CREATE TABLE bookmarks (id, url);")
    run = home.run("--import-session", str(home.folder / "places.db"))
    assert run.code == 2
    assert "of no format that is known" in run.stderr
    assert "not read" not in run.stderr
    shutil.copy(LOGS, home.folder / "logs.db")
    run = home.run("--import-session", str(home.folder))
    assert (run.code, run.stderr) == (0, f"gptsh: of no format that is known: 1 ({home.folder / 'places.db'})\n")


def test_arguments_keep_their_letters() -> None:
    function = call_of("c", "ls", {"ort": "Köln"})["function"]
    assert function == {"name": "ls", "arguments": '{"ort": "Köln"}'}
