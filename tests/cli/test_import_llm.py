"""The log of llm as a database: what is read of it, while it is written, and as it stays."""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

from tests.support.histories import Script, import_file, import_notes, states, transcript_of, write
from tests.support.home import Home
from tests.support.llm_logs import ASKED, HELLO, OLD, STORE
from tests.support.paths import HISTORIES

SAMPLES = HISTORIES / "llm"
LOGS = SAMPLES / "logs.db"
CONTINUED = SAMPLES / "logs_continued_0.36.db"
ADVICE = "of llm before 0.32: pass its text on with llm logs --cid ID | gptsh"


def test_what_llm_logged_before_its_message_store_is_counted_and_the_way_is_told(
    home: Home,
) -> None:
    path = write(home.folder, Script(OLD), "logs.db")
    run = import_file(home, path)
    assert run.stdout == ""
    assert run.stderr == f"gptsh: {path}: 2 conversations {ADVICE}\n"
    assert run.code == 2
    run = import_file(home, write(home.folder, Script(OLD + STORE + ASKED), "both.db"))
    assert states(run) == ["imported"]
    assert run.code == 0
    assert run.stderr.count(f": 2 conversations {ADVICE}\n") == 1


def test_a_schema_that_is_damaged_and_no_text_is_refused_in_one_line(home: Home) -> None:
    path = write(home.folder, Script("CREATE TABLE turns (thread_id);"), "logs.db")
    intact = Path(path).read_bytes()
    Path(path).write_bytes(intact.replace(b"CREATE TABLE", b"CREATE TABL\xff"))
    run = import_file(home, path)
    assert run.stderr == f"gptsh: {path}: not readable as a database: its schema is damaged\n"
    assert run.stdout == ""
    assert run.code == 2


def test_a_conversation_that_was_continued_since_is_read_with_its_earlier_messages(
    home: Home,
) -> None:
    run = import_file(home, CONTINUED)
    assert states(run) == ["imported"]
    assert home.doc()["stats"]["messages"] == 17
    assert import_notes(run, CONTINUED)[-2:] == [
        f": 1 conversation {ADVICE}",
        "1 input could not be read",
    ]


def test_the_last_model_alone_says_who_is_asked_next(home: Home) -> None:
    later = """
UPDATE turns SET model = 'openai/gpt-4o';
UPDATE threads SET tip_message_hash = 'a2';
INSERT INTO messages VALUES ('q2', 'a1', 'user', NULL), ('a2', 'q2', 'assistant', NULL);
INSERT INTO parts VALUES (3, 'q2', 0, 'text', NULL, 'and?', NULL), (4, 'a2', 0, 'text', NULL, 'ho', NULL);
INSERT INTO turns (id, thread_id, parent_message_hash, tip_message_hash, model, datetime_utc)
    VALUES ('u2', 't1', 'q2', 'a2', 'local-mlx-model', '2026-11-20T18:37:03.799748+00:00');
"""
    import_file(home, write(home.folder, Script(STORE + ASKED + later), "logs.db"))
    assert home.doc()["agent"]["model"] == "local-mlx-model"
    assert home.doc()["provider"]["name"] is None


def test_the_original_is_never_touched_and_what_its_writer_has_not_merged_is_read(
    home: Home,
) -> None:
    (folder := home.folder / "llm").mkdir()
    (temporary := home.folder / "tmp").mkdir()
    path = Path(write(folder, Script("PRAGMA journal_mode=WAL;" + STORE), "logs.db"))
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.executescript(f"PRAGMA wal_autocheckpoint=0; {ASKED}")
        files = [p for p in folder.iterdir() if not p.name.endswith("-shm")]
        assert len(files) == 2  # what was written last is in a log beside the database
        kept = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}
        moment = folder.stat().st_mtime_ns
        folder.chmod(0o500)
        run = home.run("--import-session", str(path), env={"TMPDIR": str(temporary)})
        folder.chmod(0o700)
        assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in kept} == kept
        assert folder.stat().st_mtime_ns == moment
    assert run.code == 0
    assert run.stderr == ""
    assert transcript_of(home.doc()) == HELLO
    (torn := folder / "torn.db").write_bytes(LOGS.read_bytes()[:5000])
    assert home.run("--import-session", str(torn), env={"TMPDIR": str(temporary)}).code == 2
    assert list(temporary.iterdir()) == []


def test_the_copy_of_an_import_that_was_killed_goes_with_the_next_one(home: Home) -> None:
    left, going = (home.folder / "tmp" / f"gptsh-import-{name}" for name in ("left", "going"))
    for folder in (left, going):
        folder.mkdir(parents=True)
        (folder / "copy.db").touch()
    os.utime(left, (0, 0))
    home.run("--import-session", str(LOGS), env={"TMPDIR": str(home.folder / "tmp")})
    assert not left.exists()
    assert going.exists()


def test_no_path_and_no_url_of_a_file_is_opened(home: Home) -> None:
    os.mkfifo(pipe := home.folder / "pipe")  # whoever opened it would wait
    places = f"""INSERT INTO attachments VALUES ('p', 'image/png', '{pipe}', NULL, NULL),
        ('u', 'image/png', NULL, 'file://{pipe}', NULL);
    INSERT INTO parts VALUES (3, 'q1', 1, 'attachment', NULL, NULL, '{{"attachment": {{"id": "p"}}}}'),
        (4, 'q1', 2, 'attachment', NULL, NULL, '{{"attachment": {{"id": "u"}}}}');"""
    path = write(home.folder, Script(STORE + ASKED + places), "logs.db")
    why = [
        f": an attachment that is not in the database: {place}"
        for place in (pipe, f"file://{pipe}")
    ]
    assert import_notes(import_file(home, path), path)[:2] == why


def test_another_database_is_told_to_be_one_and_passed_over_in_a_folder(home: Home) -> None:
    (folder := home.folder / "in").mkdir()
    other = write(folder, Script("CREATE TABLE bookmarks (id, url);"), "places.db")
    assert import_notes(import_file(home, other), other) == [": a database, but not the log of llm"]
    shutil.copy(LOGS, folder)
    run = import_file(home, folder)
    assert run.code == 0
    assert run.stderr == f"gptsh: skipped 1 file of an unknown format ({other})\n"
