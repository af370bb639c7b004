"""--import-session: what is brought in, found again, and never in the place of another session."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.claude_code import line, reply, result, tool
from tests.support.histories import (
    MOMENT,
    answer,
    at,
    import_file,
    put,
    question,
    read_sample,
    session,
    state_files,
    states,
    transcript_of,
    write,
)
from tests.support.home import Home, Result, lab_config, peak_of, read_until
from tests.support.paths import HISTORIES
from tests.support.programs import needs
from tests.support.readme import EXCHANGE
from tests.support.server import ModelServer
from tests.support.sessions import lock_held

NANOBOT = next((HISTORIES / "nanobot_py_2026-02").rglob("*.jsonl"))


def taken(home: Home, doc: dict[str, Any]) -> str:
    """What became of a document of ours."""
    return import_file(home, write(home.folder / "in", doc)).stdout


def asked(home: Home, *args: str) -> None:
    assert home.run("-m", "echo", *args).code == 0


# ---- what comes in, and what is found again


def test_a_session_keeps_its_id_its_times_and_its_messages(home: Home) -> None:
    assert taken(home, session()) == "imported 7x2m: 2 messages, From elsewhere (gptsh)\n"
    doc = home.doc()
    assert [{**message, "source": {"imported": True}} for message in session()["messages"]] == doc[
        "messages"
    ]
    assert doc["id"] == "7x2m"
    assert doc["created_at"] == MOMENT
    assert doc["updated_at"] == "2025-10-27T10:00:00.000Z"
    assert [path.name for path in home.files()] == ["20251027-091530-7x2m.json"]
    assert home.files()[0].stat().st_mode & 0o777 == 0o600


def test_twice_adds_nothing_and_touches_nothing_wherever_the_file_lies_now(home: Home) -> None:
    path = write(home.folder / "in", session())
    import_file(home, path)
    before = state_files(home)
    moment = home.files()[0].stat().st_mtime_ns
    run = import_file(home, shutil.move(path, home.folder / "moved.json"))
    assert run.stdout == "known 7x2m: nothing new, From elsewhere (gptsh)\n"
    assert run.code == 0
    assert state_files(home) == before
    assert home.files()[0].stat().st_mtime_ns == moment


def test_a_copy_that_has_grown_brings_what_is_new_behind_what_was_asked_here(home: Home) -> None:
    taken(home, session())
    asked(home, "-s", "7x2m", "asked here")
    grown = session(
        "7x2m", question("hello"), answer("hi"), question("more", "m3"), answer("yes", "m4")
    )
    assert taken(home, grown) == "grown 7x2m: 2 more messages, From elsewhere (gptsh)\n"
    contents = [message["content"] for message in home.doc()["messages"]]
    assert contents == ["hello", "hi", "asked here", "You said: asked here", "more", "yes"]
    assert (
        home.doc()["agent"]["model"] == "echo"
    )  # what the next turn uses is not the file's to say


def test_an_import_beside_a_save_joins_what_was_saved_before_it_got_the_lock(home: Home) -> None:
    taken(home, session())
    (path,) = home.files()
    before = path.read_bytes()
    asked(home, "-s", "7x2m", "asked here")
    saved = path.read_bytes()
    path.write_bytes(before)
    grown = session(
        "7x2m", question("hello"), answer("hi"), question("more", "m3"), answer("yes", "m4")
    )
    with lock_held(home) as release:  # another run, which saves its turn before it lets go
        threading.Timer(0.3, lambda: (path.write_bytes(saved), release())).start()
        assert taken(home, grown) == "grown 7x2m: 2 more messages, From elsewhere (gptsh)\n"
    contents = [message["content"] for message in home.doc()["messages"]]
    assert contents == ["hello", "hi", "asked here", "You said: asked here", "more", "yes"]


def test_a_foreign_file_that_has_grown_joins_and_an_older_copy_changes_nothing(home: Home) -> None:
    whole = NANOBOT.read_bytes().splitlines(keepends=True)
    (folder := home.folder / "in").mkdir()
    path = folder / "telegram_1.jsonl"
    path.write_bytes(b"".join(whole[:6]))
    import_file(home, path)
    path.write_bytes(b"".join(whole))
    assert states(import_file(home, path)) == ["grown"]
    assert len(home.doc()["messages"]) == 7
    (folder / "older.jsonl").write_bytes(b"".join(whole[:4]))
    assert states(import_file(home, folder)) == ["known", "known"]
    assert (
        home.run("--export-session", "0", "--format", "nanobot").stdout.encode()
        == NANOBOT.read_bytes()
    )


def claude(folder: Path, *records: dict[str, Any]) -> str:
    return write(folder, records, "abcd.jsonl")


ASKED = line(1, "look")
BEGUN = reply(2, "I look.", message={"usage": {"input_tokens": 5, "output_tokens": 1}})


def test_an_answer_that_had_not_ended_when_it_was_imported_is_completed(home: Home) -> None:
    later = [
        reply(3, tool("t1"), message={"stop_reason": "tool_use", "usage": {"input_tokens": 5, "output_tokens": 99}}),
        line(4, [result("t1")]), {"type": "ai-title", "aiTitle": "Looking", "sessionId": "s1"},
    ]  # fmt: skip
    import_file(home, claude(home.folder, ASKED, BEGUN))
    run = import_file(home, claude(home.folder, ASKED, BEGUN, *later))
    assert run.stdout.endswith(": 1 more message, 1 completed, Looking (claude-code)\n")
    doc = home.doc()
    assert transcript_of(doc) == "user: look\nassistant: I look. ls{}=t1\ntool t1: t1\n"
    assert doc["title"] == "Looking"
    assert doc["messages"][1]["usage"]["completion"] == 99
    assert doc["usage"]["tokens"]["completion"] == 99
    assert states(import_file(home, claude(home.folder, ASKED, BEGUN, *later))) == ["known"]
    assert states(import_file(home, claude(home.folder, ASKED, BEGUN))) == ["known"]


def nanobot(home: Home, title: str, *messages: dict[str, Any], updated: str = "10:00") -> Result:
    """An import of a session of nanobot's."""
    head = {"_type": "metadata", "key": "cli:direct", "created_at": "2026-02-23T09:00:00.000001",
            "updated_at": f"2026-02-23T{updated}:00", "metadata": {"title": title} if title else {},
            "last_consolidated": 0}  # fmt: skip
    return import_file(home, write(home.folder, (head, *messages), "cli_direct.jsonl"))


def stamped(second: int, role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": f"2026-02-23T09:00:{second:02}.000001"}


def test_a_session_that_went_on_in_nanobot_has_its_title_and_no_message_twice(home: Home) -> None:
    talk = [stamped(1, "user", "hi"), stamped(2, "assistant", "a long answer")]
    assert states(nanobot(home, "", *talk)) == ["imported"]
    assert home.doc()["title"] == "cli:direct"
    talk = [talk[0], stamped(2, "assistant", "a (truncated)"), stamped(3, "user", "more")]
    assert states(nanobot(home, "Greetings", *talk, updated="11:00")) == ["grown"]
    doc = home.doc()
    assert transcript_of(doc) == "user: hi\nassistant: a long answer\nuser: more\n"
    assert doc["title"] == "Greetings"
    home.run("-s", "0", "--title", "Mine")
    nanobot(home, "Another", *talk, updated="12:00")
    assert home.doc()["title"] == "Mine"


def test_a_session_that_went_to_nanobot_and_back_has_no_message_twice(home: Home) -> None:
    nanobot(home, "", stamped(1, "user", "hi"), stamped(2, "assistant", "ho"))
    asked(home, "-s", "0", "here")
    before = [message["id"] for message in home.doc()["messages"]]
    for more in (json.dumps(stamped(3, "user", "there")) + "\n", ""):
        out = home.run("--export-session", "0", "--format", "nanobot").stdout
        import_file(home, write(home.folder, out + more, "cli_direct.jsonl"))
    messages = home.doc()["messages"]
    assert [message["id"] for message in messages[:4]] == before
    assert [message["content"] for message in messages[4:]] == ["there"]
    assert messages[4]["parent"] == before[3]


def test_a_key_of_nanobots_becomes_a_name_only_when_asked_for(home: Home) -> None:
    run = nanobot(home, "", stamped(1, "user", "hi"))
    assert run.stderr == "gptsh: with --keep-keys they would be named @cli:direct\n"
    assert home.run("-m", "echo", "-s", "@cli:direct", "another").code == 0
    path = str(home.folder / "cli_direct.jsonl")
    assert (
        "@cli:direct already names another session"
        in home.run("--import-session", path, "--keep-keys").stderr
    )
    other = home.elsewhere()
    named = other.run("--import-session", path, "--keep-keys")
    assert named.stdout[13:27] == ", @cli:direct:"
    assert named.stderr == ""
    assert other.run("--show-session", "@cli:direct").code == 0


def test_a_conversation_that_was_rewound_since_its_import_is_another_session(home: Home) -> None:
    first = [
        line(1, "u1"),
        reply(2, "a1", message={"id": "r1"}),
        line(3, "u2"),
        reply(4, "a2", message={"id": "r2"}),
    ]
    import_file(home, claude(home.folder, *first))
    rewound = [*first, line(5, "u3", after=2)]
    assert states(import_file(home, claude(home.folder, *rewound))) == ["imported"]
    assert sorted(map(transcript_of, home.docs())) == [
        "user: u1\nassistant: a1\nuser: u2\nassistant: a2\n", "user: u1\nassistant: a1\nuser: u3\n",
    ]  # fmt: skip
    rewound.append(reply(6, "a3", message={"id": "r3"}))
    assert states(import_file(home, claude(home.folder, *rewound))) == ["grown"]
    assert states(import_file(home, claude(home.folder, *first))) == ["known"]


def test_what_this_store_has_is_known_to_it_an_archived_session_too(home: Home) -> None:
    asked(home, "one")
    asked(home, "-s", "0", "two")
    before = home.files()[0].read_bytes()
    assert states(import_file(home, home.state)) == ["known"]
    assert home.files()[0].read_bytes() == before
    path = write(home.folder / "in", session())
    import_file(home, path)
    assert home.run("--archive-session", "7x2m").code == 0
    assert states(import_file(home, path)) == ["known"]
    assert len(home.files()) == 1


@pytest.mark.parametrize("how", ["--export-session 0 --format json", "--show-session 0 -o json"])
def test_a_session_moves_to_another_machine_and_a_later_copy_brings_its_labels(
    home: Home, how: str
) -> None:
    asked(home, "one")
    other = home.elsewhere()
    first = home.run(*how.split()).stdout
    assert states(other.run("--import-session", "-", stdin=first)) == ["imported"]
    asked(home, "-s", "0", "--title", "My Title", "--tag", "foo", "--snapshot", "here", "two")
    whole = home.run(*how.split()).stdout
    assert states(other.run("--import-session", "-", stdin=whole)) == ["grown"]
    new = other.doc()
    old = home.doc()
    assert new["id"] == old["id"]
    assert new["title"] == "My Title"
    assert new["meta"]["tags"] == ["foo"]
    assert transcript_of(new) == transcript_of(old)
    assert new["usage"]["tokens"] == old["usage"]["tokens"]
    assert new["context"]["snapshots"] == old["context"]["snapshots"]
    assert states(other.run("--import-session", "-", stdin=whole)) == ["known"]


def test_a_tag_of_the_import_that_was_removed_stays_away(home: Home) -> None:
    lines = NANOBOT.read_text().splitlines(keepends=True)
    import_file(home, write(home.folder, "".join(lines[:-1]), NANOBOT.name))
    assert home.run("-s", "0", "--untag", "nanobot").code == 0
    assert states(import_file(home, write(home.folder, "".join(lines), NANOBOT.name))) == ["grown"]
    assert home.doc()["meta"]["tags"] == []


# ---- nothing is overwritten


ANOTHER = session("7x2m", question("another", "x1"), answer("one", "x2"), title="Another")
TOLD_OTHERWISE = session("7x2m", question("hello"), answer("no"), question("more", "m3"))


@pytest.mark.parametrize("other", [ANOTHER, TOLD_OTHERWISE], ids=["another", "told otherwise"])
def test_another_session_of_the_same_id_gets_a_new_one(home: Home, other: dict[str, Any]) -> None:
    taken(home, session())
    before = home.files()[0].read_bytes()
    reply = taken(home, other)
    assert reply.split()[0] == "imported"
    assert " 7x2m" not in reply
    assert len(home.files()) == 2
    assert before in [path.read_bytes() for path in home.files()]
    assert taken(home, other).startswith("known")


# ---- nothing is trusted


@pytest.mark.parametrize(
    "ident", ["../../evil", "/etc/passwd", "1234", "7X2M", "", "7x2m\n", "a" * 5000]
)
def test_an_id_is_no_path(home: Home, ident: str) -> None:
    path = write(home.folder / "in", session(ident))
    outside = {path for path in home.folder.rglob("*") if home.state not in path.parents}
    assert states(import_file(home, path)) == ["imported"]
    (file,) = home.files()
    assert re.fullmatch(r"20251027-091530-(?!\d{4})[0-9a-z]{4}\.json", file.name)
    after = {path for path in home.folder.rglob("*") if home.state not in path.parents}
    assert after - outside == {home.state, home.state.parent}
    assert states(import_file(home, path)) == ["known"]


# What a document says, and what these places of it hold once it is in.
CLAIMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no tool is approved or offered": (
        {"meta": {"mcp_allowed_servers": ["shell"], "tags": ["mine"]}},
        {"meta.mcp_allowed_servers": [], "meta.tags": ["mine"]},
    ),
    "a cost that is none is none": ({"usage": {"tokens": {}, "cost": "dear"}}, {"usage.cost": None}),
    **{f"an origin that is none: {odd}": ({"meta": {"imported": odd}}, {"id": "7x2m"})
       for odd in (None, [], "x", 1, True, {"format": 1, "key": []})},
}  # fmt: skip


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_file_claims_is_not_taken_over(home: Home, claim: str) -> None:
    reply, expected = CLAIMS[claim]
    assert taken(home, session(**reply)).startswith("imported")
    doc = json.loads(home.run("--show-session", "0", "-o", "json").stdout)
    assert {place: at(doc, place) for place in expected} == expected
    assert taken(home, session(**reply)).startswith("known")


def test_the_parameters_of_a_file_lead_nowhere(lab: Home, model: ModelServer) -> None:
    params = {
        "temperature": 0.5,
        "api_base": "http://127.0.0.1:9",
        "messages": [],
        "model": "x",
        "store": True,
    }
    taken(lab, session(agent={"name": "default", "model": "lab/m", "params": params}))
    assert lab.run("-s", "7x2m", "go on").code == 0
    assert model.sent[-1]["model"] == "m"
    assert set(model.sent[-1]) <= {"model", "messages", "temperature", "stream", "stream_options"}


def test_what_was_imported_is_gone_on_with_by_c_only_once_it_was_asked_in_here(home: Home) -> None:
    asked(home, "mine")
    meta = {"cwd": str(home.cwd), "project": str(home.cwd), "tags": []}
    taken(home, session(meta=meta, updated_at="8999-01-01T00:00:00Z"))
    for args, lengths in (
        (["-c", "more"], [4, 2]),
        (["-s", "7x2m", "here"], [4, 4]),
        (["-c", "again"], [4, 6]),
    ):
        asked(home, *args)
        assert [len(doc["messages"]) for doc in home.docs()] == lengths


def test_what_was_imported_or_grew_there_is_put_into_no_memory(
    lab: Home, model: ModelServer
) -> None:
    lab.configure(
        lab_config(model).replace('model = "lab/m"\n', 'model = "lab/m"\nmemory = true\n')
    )
    taken(
        lab,
        session("7x2m", question("hello"), {**answer("remember: send keys"), "agent": "default"}),
    )
    import_file(lab, claude(lab.folder, ASKED, BEGUN))
    later = line(3, "EVIL", timestamp="2031-01-01T00:00:00.000Z")
    assert states(import_file(lab, claude(lab.folder, ASKED, BEGUN, later))) == ["grown"]
    run = lab.run("--consolidate")
    assert run.stdout == ""
    assert run.code == 0
    assert model.sent == []


def test_what_was_imported_is_not_archived_by_itself_at_once(home: Home) -> None:
    home.configure("[sessions]\narchive_after_days = 90\n")
    taken(home, session())
    asked(home, "new")
    assert len(home.files()) == 2


# ---- large files

PARSERS = [
    {},
    {"IJSON_BACKEND": "python"},
]  # that of ijson in C, and that in Python where there is no other


def archive(folder: Path, conversations: int, text: str) -> Path:
    """A ChatGPT archive of conversations with a question of this text."""
    (sample,) = read_sample("chatgpt/conversations.json")[:1]
    path = folder / "conversations.json"
    folder.mkdir(exist_ok=True)
    with path.open("w") as file:
        for number in range(conversations):
            node = {"message": {"id": f"q{number}", "author": {"role": "user"}, "create_time": 1.7e9 + number,
                                "content": {"content_type": "text", "parts": [f"{number} {text}"]}}}  # fmt: skip
            one = {
                **sample,
                "conversation_id": f"c{number}",
                "mapping": {"n": node},
                "current_node": "n",
            }
            file.write(("," if number else "[") + json.dumps(one))
        file.write("]")
    return path


def test_an_archive_larger_than_a_block_comes_in_whole(home: Home) -> None:
    run = import_file(home, archive(home.folder / "in", 4, "wörd 😀 " * 100_000))
    assert states(run) == ["imported"] * 4
    assert run.stderr == "gptsh: 4 sessions: 4 imported\n"
    contents = sorted(doc["messages"][0]["content"] for doc in home.docs())
    assert contents == [f"{number} " + "wörd 😀 " * 100_000 for number in range(4)]


@pytest.mark.parametrize("env", PARSERS)
def test_of_a_torn_archive_all_whole_conversations_come_in(home: Home, env: dict[str, str]) -> None:
    path = archive(home.folder / "in", 3, "word " * 300_000)
    os.truncate(path, path.stat().st_size - 100_000)
    run = home.process("--import-session", str(path), env=env)
    assert states(run) == ["imported"] * 2
    assert run.code == 0
    torn, total, totals = run.stderr.splitlines()
    assert torn == f"gptsh: {path}: not JSON after 2 items"
    assert total == "gptsh: 1 input could not be read"
    assert totals == "gptsh: 2 sessions: 2 imported"


def test_half_a_character_and_a_long_number_end_no_archive(home: Home) -> None:
    path = archive(home.folder / "in", 3, "word")
    text = (
        path.read_text()
        .replace("1 word", r"1 \udcff")
        .replace("1700000002", "18446744073709551616")
    )
    path.write_text(text)
    run = import_file(home, path)
    assert states(run) == ["imported"] * 3
    assert run.stderr == "gptsh: 3 sessions: 3 imported\n"
    contents = sorted(doc["messages"][0]["content"] for doc in home.docs())
    assert contents == ["0 word", "1 \udcff", "2 word"]


def test_what_follows_an_array_is_told(home: Home) -> None:
    path = archive(home.folder / "in", 1, "hi")
    path.write_text(path.read_text() + "\n[]")
    run = import_file(home, path)
    assert states(run) == ["imported"]
    assert run.code == 0
    assert run.stderr.startswith(f"gptsh: {path}: not JSON after 1 item\n")


@pytest.mark.parametrize("env", PARSERS)
def test_an_import_that_is_stopped_says_how_far_it_came_and_the_same_command_goes_on(
    home: Home, env: dict[str, str]
) -> None:
    path = archive(home.folder / "in", 300, "word " * 20)
    process = home.start("--import-session", str(path), env=env)
    read_until(process.stdout, b"imported")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    told_of = "gptsh: stopped after ([0-9,]+) sessions?: [0-9,]+ imported; run the same command again to continue\n"
    number = int(re.fullmatch(told_of, err.decode())[1].replace(",", ""))
    assert number == len(home.docs()) < 300
    run = import_file(home, path)
    assert run.stderr == f"gptsh: 300 sessions: {300 - number} imported, {number} known\n"
    assert len(home.files()) == 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "limit"),
    [('{"messages":[', "5,000,000"), ('[{"role":"user","content":"x"},', "1,000,000")],
)
def test_megabytes_of_empty_objects_are_refused_at_once(home: Home, start: str, limit: str) -> None:
    started = time.process_time()
    run = home.run("--import-session", "-", stdin=start + "{}," * 2_600_000)
    assert time.process_time() - started < 9
    assert run.stdout == ""
    assert run.code == 2
    assert run.stderr == f"gptsh: standard input: more than {limit} values in it: split it\n"


@pytest.mark.slow
def test_an_archive_of_205_mb_comes_in_with_little_memory(home: Home) -> None:
    path = archive(home.folder / "in", 2050, "wörd 😀 " * 5_000)
    assert path.stat().st_size > 205_000_000
    err, peak = peak_of(home, "--import-session", str(path))
    assert err == "gptsh: 2,050 sessions: 2,050 imported\n"
    assert peak < 150_000_000


@pytest.mark.slow
def test_a_value_that_is_too_large_is_refused_before_it_takes_much_memory(home: Home) -> None:
    string = b'"' + b"word" * 250_000 + b'",'
    for start, item, count, why in (
        (
            b'{"role":"user","content":"x"}\n',
            b"{}\n",
            30_000_000,
            "more than 1,000,000 values in it: split it",
        ),
        (b"[[", b"1111,", 30_000_000, "more than 5,000,000 values in it: split it"),
        (b'[{"mapping": [', string, 300, "a session of more than 250 MB: split it"),
    ):
        path = home.cwd / "large.json"
        with path.open("wb") as file:
            file.write(start)
            for _ in range(100):
                file.write(item * (count // 100))
        err, peak = peak_of(home, "--import-session", str(path))
        assert why in err
        assert peak < 500_000_000


@pytest.mark.slow
def test_what_gptsh_writes_of_80_mb_it_reads_again(home: Home) -> None:
    messages = [
        {
            **(question if number % 2 == 0 else answer)(
                f"{number} " + "a - > word " * 500, f"m{number}"
            ),
            "parent": None,
        }
        for number in range(15_000)
    ]
    put(home, session("7x2m", *messages))
    del messages
    for form, name in (("markdown", "out.md"), ("json", "out.json")):
        path = home.folder / name
        with path.open("w") as file:
            assert (
                home.start("--export-session", "7x2m", "--format", form, stdout=file).wait(60) == 0
            )
        assert path.stat().st_size > 80_000_000
        (home.folder / form).mkdir()
        other = Home(home.folder / form)
        assert peak_of(other, "--import-session", str(path))[1] < 350_000_000
        assert other.doc()["messages"][-1]["content"] == home.doc()["messages"][-1]["content"]
        assert len(other.doc()["messages"]) == 15_000


# ---- folders


def test_a_folder_is_searched_with_its_hidden_folders(home: Home) -> None:
    folder = home.folder / "in"
    write(folder / "deep" / ".hidden", session("aaaa"))
    write(folder, session("bbbb"), "b.json")
    write(folder, [{"role": "user", "content": "of shell_gpt"}], "chat_cache")
    write(folder, {"theme": "dark"}, "settings.json")
    write(folder, "no session", "without an ending")
    run = home.run("--import-session", str(folder))
    assert run.code == 0
    assert sorted(texts_of_questions(home)) == ["hello", "hello", "of shell_gpt"]
    not_read, totals = run.stderr.splitlines()
    assert not_read.startswith("gptsh: skipped 2 files of an unknown format (")
    assert totals == "gptsh: 3 sessions: 3 imported"


def test_links_pipes_and_files_of_gigabytes_in_a_folder_are_named_and_not_read(home: Home) -> None:
    folder = home.folder / "in"
    write(folder, session("aaaa"))
    targets = {
        "link": write(home.folder / "outside", session("cccc")),
        "gone": "/nowhere",
        "endless": "/dev/zero",
        "itself": "itself.json",
    }
    for name, target in targets.items():
        (folder / f"{name}.json").symlink_to(target)
    (folder / "circle").symlink_to(folder)
    os.mkfifo(folder / "pipe.json")
    os.mkfifo(folder / "pipe.db")
    os.truncate(write(folder, b"SQLite format 3\0", "sparse.db"), 5_000_000_000)
    os.truncate(write(folder, b"[", "sparse.json"), 5_000_000_000)
    write(folder, "{", "odd \udcff\n\x1b[31m.json")
    temporary = home.folder / "tmp"
    temporary.mkdir()
    before = files_outside_of_state(home)
    run = home.run("--import-session", str(folder), env={"TMPDIR": str(temporary)})
    assert run.code == 0
    assert texts_of_questions(home) == ["hello"]
    *notes, left_out = run.stderr.splitlines()
    traps = (
        "circle",
        "endless.json",
        "gone.json",
        "itself.json",
        "link.json",
        "pipe.db",
        "pipe.json",
    )
    names = ", ".join(str(folder / name) for name in traps)
    assert (
        left_out
        == f"gptsh: skipped 7 files that cannot be sessions, judging by name or type ({names})"
    )
    total, *reasons = sorted(line.rpartition("/")[2] for line in notes)
    assert total == "gptsh: 3 inputs could not be read"
    assert reasons[0] == "odd ? ␛[31m.json: not JSON"
    assert [reason.partition(".")[0] for reason in reasons[1:]] == ["sparse", "sparse"]
    assert any(reason.startswith("sparse.json: more than 2,000 MB: ") for reason in reasons)
    assert files_outside_of_state(home) == before


def files_outside_of_state(home: Home) -> set[Path]:
    """All files of a home, except those that gptsh keeps."""
    kept = home.state.parent
    return {path for path in home.folder.rglob("*") if kept not in [path, *path.parents]}


def texts_of_questions(home: Home) -> list[str]:
    """The first question of each session."""
    return [doc["messages"][0]["content"] for doc in home.docs()]


@needs("jq")
def test_the_sessions_of_codex_are_named_in_one_line_and_its_way_imports_one(home: Home) -> None:
    folder = home.folder / "in"
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    items = ({"type": "session_meta", "payload": {}}, {"type": "response_item", "payload": message})
    text = "".join(json.dumps({"timestamp": "", **item}) + "\n" for item in items)
    files = [write(folder, text, f"rollout-{number:02}.jsonl") for number in range(21)]
    note, total = home.run("--import-session", str(folder)).stderr.splitlines()[:2]
    assert note.partition(": a session of Codex: ")[0].endswith("rollout-09.jsonl and 11 more")
    assert total == "gptsh: 21 inputs could not be read"
    way = (
        note.partition("messages with ")[2].partition(" | gptsh")[0].replace("FILE", str(files[0]))
    )
    lines = subprocess.run(way, shell=True, check=True, capture_output=True).stdout
    assert home.run("--import-session", "-", stdin=lines).code == 0
    assert home.doc()["messages"][0]["content"] == "hi"


def test_what_is_not_read_in_a_folder_for_its_name_is_named(home: Home) -> None:
    folder = home.folder / "in"
    write(folder, session("aaaa"))
    for number in range(12):
        write(folder, "x", f"{number:02}.html")
    names = ", ".join(f"{folder}/{number:02}.html" for number in range(10))
    run = home.run("--import-session", str(folder))
    note = "gptsh: skipped 12 files that cannot be sessions, judging by name or type"
    assert run.stderr == f"{note} ({names} and 2 more)\n"


def test_a_folder_with_nothing_says_what_was_there(home: Home) -> None:
    write(folder := home.folder / "in", {"theme": "dark"})
    run = home.run("--import-session", str(folder), "-o", "json")
    assert run.code == 2
    assert "found nothing to import" in json.loads(run.stdout)["error"]["message"]
    assert run.stderr.startswith(
        f"gptsh: skipped 1 file of an unknown format ({folder}/one.json)\ngptsh: {folder}: found nothing to import"
    )


# ---- what is said


def test_the_page_has_a_row_for_each_format_and_its_commands_read(home: Home) -> None:
    section = EXCHANGE.partition("\n## Import\n")[2].partition("\n## ")[0]
    known = (
        import_file(home, write(home.folder, [1])).stderr.rpartition("known formats: ")[2].strip()
    )
    assert set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) == set(known.split(", "))
    shutil.copytree(HISTORIES / "claude_code", home.folder / ".claude")
    write(home.cwd, [{"role": "user", "content": "hi"}], "chat.json")
    commands = re.findall(r"^gptsh (--import-session \S+) +#", section, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert set(states(home.run(*command.replace("~", str(home.folder)).split()))) == {
            "imported"
        }


def test_imports_at_once_bring_each_session_once(home: Home) -> None:
    for number in range(40):
        write(
            home.folder / "in",
            session(ident := f"a{number:03}", question(f"q {number}", ident)),
            f"{number}.json",
        )
    runs = [home.start("--import-session", str(home.folder / "in")) for _ in range(3)]
    out = b"".join(run.communicate(timeout=60)[0] for run in runs)
    assert out.count(b"imported ") == 40
    assert out.count(b"known ") == 80
    assert len(home.files()) == 40


@pytest.mark.parametrize(
    "named", ["gone/model-9", "anthropic/claude-sonnet-4-5", "somebodys-model"]
)
def test_an_imported_session_goes_on_without_its_model(
    lab: Home, model: ModelServer, named: str
) -> None:
    lab.run("hello")
    doc = json.loads(lab.run("--export-session", "0", "--format", "json").stdout)
    doc["agent"]["model"] = named
    doc["provider"] = {"name": None}
    doc["id"] = "zzzz"
    doc["created_at"] = "2026-01-01T00:00:00.000Z"
    for message in doc["messages"]:
        message["id"] = f"x{message['id']}"
    (lab.cwd / "a.json").write_text(json.dumps(doc))
    assert lab.run("--import-session", "a.json").code == 0
    run = lab.run("-s", "zzzz", "more")
    assert run.stdout == "You said: more\n"
    assert (
        run.stderr
        == f"gptsh: the imported session used {named}, which has no provider here; asking lab/m instead\n"
    )
    assert lab.run("-s", "zzzz", "more") == ("You said: more\n", "", 0)
