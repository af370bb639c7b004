"""The log of llm, of both its eras: what its tables hold comes in, and the file stays as it is."""

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.histories import asked_in, at, imported, states, told, unread
from tests.support.home import Home
from tests.support.paths import HISTORIES

SAMPLES = HISTORIES / "llm"
LOGS, LEGACY, CONTINUED = (SAMPLES / f"logs{name}.db" for name in ("", "_legacy_0.31", "_continued_0.36"))
# The tables of the first version that kept conversations, and of 0.32, as far as they are read.
BEFORE = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT, options_json TEXT,
    response TEXT, response_json TEXT, conversation_id TEXT, duration_ms INTEGER, datetime_utc TEXT);
CREATE TABLE tool_calls (response_id TEXT, name TEXT, arguments, tool_call_id TEXT);
"""
STORE = """
CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT);
CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT, model TEXT,
    resolved_model TEXT, options_json TEXT, schema_id TEXT, input_tokens INTEGER, output_tokens INTEGER,
    token_details TEXT, duration_ms INTEGER, datetime_utc TEXT, response_json TEXT);
CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT, text TEXT,
    payload TEXT);
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
HELLO = "user: hello\nassistant: hi\n"


def database(path: Path, *scripts: str) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("".join(("PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY;", *scripts)))
    return path


def read(home: Home, *scripts: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The sessions of a log, in its order, and what of it could not be read."""
    path = database(home.folder / "logs.db", *scripts)
    run = home.run("--import-session", str(path), "-o", "jsonl")
    docs = {doc["id"]: doc for doc in home.docs()}
    for doc in docs.values():
        asked_in(doc)
    items = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.code == (0 if docs else 2)
    return [docs[item["session"]] for item in items if "session" in item], unread(run, path)


# A log, what is told of its sessions, what could not be read, and what stands at places of the first one.
LOGGED: dict[str, tuple[str, list[str], list[str], dict[str, Any]]] = {
    "a response that is a turn too counts once": (
        STORE + ASKED + BEFORE
        + "INSERT INTO responses (id, prompt, response, conversation_id) VALUES ('u1', 'hello', 'hi', 't1');",
        [HELLO], [], {"title": "hello", "agent.model": "gpt-4o"},
    ),
    "an older table without the later columns": (
        BEFORE + """
        INSERT INTO responses (id, model, prompt, system, options_json, response, conversation_id, datetime_utc) VALUES
        ('b', 'gpt-4', 'second', 'Terse.', '{"temperature": 0.5, "frob": 1}', 'two', 'c', '2023-08-17T21:39:38'),
        ('a', 'gpt-4', 'first', 'Terse.', '{}', 'one', 'c', '2023-08-17T21:39:37'),
        ('d', 'gpt-4', 'alone', NULL, NULL, 'three', NULL, NULL);""",
        ["user: first\nassistant: one\nuser: second\nassistant: two\n", "user: alone\nassistant: three\n"], [],
        {"agent.system": "Terse.", "agent.params": {"temperature": 0.5}, "meta.imported.key": "c",
         "created_at": "2023-08-17T21:39:37.000Z", "provider.name": "openai"},
    ),
    "a fork has what it came from": (
        STORE + ASKED + "INSERT INTO threads VALUES ('t2', 'fork', 'a1', 't1', NULL);",
        [HELLO, HELLO], [], {"messages.1.model": "gpt-4o"},
    ),
    "a text that stands there as bytes": (
        BEFORE + """INSERT INTO responses (id, prompt, response, conversation_id)
            VALUES ('a', CAST('über' AS BLOB), 'hi', 'c'), ('b', x'ff00', 'ho', 'c');""",
        ["user: über\nassistant: hi\nassistant: ho\n"], [": 2 bytes in the place of a text", "not read: 1"], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("log", LOGGED)
def test_a_log_comes_in(home: Home, log: str) -> None:
    script, words, complaints, facts = LOGGED[log]
    docs, said = read(home, script)
    assert [told(doc) for doc in docs] == words
    assert [line.partition(" at ")[0] for line in said] == complaints
    assert {place: at(docs[0], place) for place in facts} == facts


def test_a_conversation_of_both_eras_is_one_and_nothing_of_it_is_there_twice(home: Home) -> None:
    logs = home.folder / "logs.db"
    for path, became in ((LEGACY, "imported"), (LEGACY, "known"), (CONTINUED, "grown"), (LEGACY, "known")):
        shutil.copyfile(path, logs)
        assert states(imported(home, logs))[0] == became
    assert sorted(doc["stats"]["messages"] for doc in home.docs()) == [2, 17]


def test_the_original_is_never_touched_and_what_its_writer_has_not_merged_is_read(home: Home) -> None:
    (folder := home.folder / "llm").mkdir()
    (temporary := home.folder / "tmp").mkdir()
    path = database(folder / "logs.db", "PRAGMA journal_mode=WAL;", STORE)
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.executescript(f"PRAGMA wal_autocheckpoint=0; {ASKED}")
        files = [p for p in folder.iterdir() if not p.name.endswith("-shm")]
        assert len(files) == 2  # what was written last is in a log beside the database
        kept, moment = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}, folder.stat().st_mtime_ns
        folder.chmod(0o500)
        run = home.run("--import-session", str(path), env={"TMPDIR": str(temporary)})
        folder.chmod(0o700)
        assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in kept} == kept
        assert folder.stat().st_mtime_ns == moment
    assert (run.code, run.stderr, told(home.doc())) == (0, "", HELLO)
    (torn := folder / "torn.db").write_bytes(LOGS.read_bytes()[:5000])
    assert home.run("--import-session", str(torn), env={"TMPDIR": str(temporary)}).code == 2
    assert list(temporary.iterdir()) == []


def test_no_path_and_no_url_of_a_file_is_opened(home: Home) -> None:
    os.mkfifo(pipe := home.folder / "pipe")  # whoever opened it would wait
    places = f"""INSERT INTO attachments VALUES ('p', 'image/png', '{pipe}', NULL, NULL),
        ('u', 'image/png', NULL, 'file://{pipe}', NULL);
    INSERT INTO parts VALUES (3, 'q1', 1, 'attachment', NULL, NULL, '{{"attachment": {{"id": "p"}}}}'),
        (4, 'q1', 2, 'attachment', NULL, NULL, '{{"attachment": {{"id": "u"}}}}');"""
    _, why = read(home, STORE, ASKED, places)
    assert why[:2] == [f": an attachment that is not in the database: {place}" for place in (pipe, f"file://{pipe}")]


def test_another_database_is_told_to_be_one_and_passed_over_in_a_folder(home: Home) -> None:
    (folder := home.folder / "in").mkdir()
    other = database(folder / "places.db", "CREATE TABLE bookmarks (id, url);")
    assert unread(imported(home, other), other) == [": a database, but not the log of llm"]
    shutil.copy(LOGS, folder)
    run = imported(home, folder)
    assert (run.code, run.stderr) == (0, f"gptsh: of no format that is known: 1 ({other})\n")
