"""The store, through the command: what is on disk after a run, what a REF means, which files are taken for sessions."""

import json
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptsh.core import document, sessions
from tests.support.home import Home, start_answer, texts
from tests.support.server import ModelServer
from tests.support.sessions import Store, append_turn, change, new_doc, put, put_file

ASK = ("-s", "0", "-m", "echo", "more")
SHOW = ("--show-session", "0")
LIST = ("--list-sessions",)


def tagged(*tags: str) -> Callable[[document.Document], None]:
    return lambda saved: document.change_tags(saved, tags)


@pytest.fixture
def one(home: Home) -> Path:
    """The file of the only session."""
    assert home.run("-m", "echo", "q").code == 0
    return home.files()[0]


def test_a_session_is_a_compact_file_for_its_owner_alone(home: Home) -> None:
    home.sessions.mkdir(parents=True, mode=0o755)  # was open to all
    home.run("-m", "echo", "-s", "@work", "--title", "Größe", "\udc80 one")
    change(home.files()[0], "x_mine", {"a": [1, None, False]})
    home.run("-m", "echo", "-s", "@work", "two")
    (path,) = home.files()
    home.run("-s", "0", "--tag", "t")
    raw = path.read_bytes()
    doc = home.doc()
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-z]{4}\.json", path.name)
    assert path.name[16:20] == doc["id"]
    assert doc["id"].isdigit() is False
    assert next(iter(doc)) == "version"
    assert [*doc][-3:] == ["context", "x_mine", "messages"]
    assert doc["x_mine"] == {"a": [1, None, False]}
    assert not re.search(r"\": |, \"", raw.decode("utf-8"))
    lines = raw.decode("utf-8").split("\n")
    assert [json.loads(line.removesuffix(",")) for line in lines[3:-1]] == doc["messages"]
    assert {**json.loads(lines[0][:-1] + "}"), "title": "Größe"}.items() <= doc.items()
    assert "Größe".encode() in raw
    assert b"\\udc80 one" in raw  # what is no text survives as an escape
    assert doc["stats"].items() >= {"turns": 2, "messages": 4, "preview": "\udc80 one"}.items()
    for moment in (
        doc["created_at"],
        doc["updated_at"],
        *(message["timestamp"] for message in doc["messages"]),
    ):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)
    assert [m["parent"] for m in doc["messages"]] == [
        None,
        *(m["id"] for m in doc["messages"][:-1]),
    ]
    for found in (home.state, *home.state.rglob("*")):
        assert stat.S_IMODE(found.stat().st_mode) == (0o700 if found.is_dir() else 0o600), found
    assert not list(home.state.rglob("*.tmp"))


def test_an_id_that_is_taken_is_not_given_again(store: Store, home: Home) -> None:
    (home.state / "archive").mkdir(parents=True)
    (home.state / "archive" / "20250101-000000-zzzz.json").write_text("{}")
    second = {**new_doc(), "id": "zzzz"}
    sessions.save_session(second)
    third = {**new_doc(), "id": second["id"]}
    sessions.save_session(third)
    assert len({"zzzz", second["id"], third["id"], *(doc["id"] for doc in store())}) == 3


def test_a_document_without_an_id_gets_one(store: Store) -> None:
    for given in ({}, {"id": None}):
        doc = new_doc("T", "q")
        del doc["id"]
        doc |= given
        sessions.save_session(doc)
        assert sessions.load_session(doc["id"])["title"] == "T"
    assert len(store()) == 2


def test_leftovers_of_killed_processes_are_swept_after_an_hour_and_no_other_file(
    home: Home, one: Path
) -> None:
    folders = [home.sessions, home.state / "archive", home.state / "names", home.state]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        for name, age in (
            ("old.4711.abcdef", 4000),
            ("young.4711.abcdef", 0),
            ("notes", 4000),
            ("~sync~x.json", 4000),
        ):
            (folder / f"{name}.tmp").write_text("{")
            os.utime(folder / f"{name}.tmp", (time.time() - age,) * 2)
    home.run("-m", "echo", "another")
    left = ["notes.tmp", "young.4711.abcdef.tmp", "~sync~x.json.tmp"]
    assert [sorted(path.name for path in folder.glob("*.tmp")) for folder in folders] == [left] * 4


def test_a_turn_stays_together_whoever_wrote_meanwhile(lab: Home, model: ModelServer) -> None:
    """Two ask, one of them while the other's answer comes; a third one changes the labels."""
    process, release = start_answer(lab, model)
    assert lab.run("-s", "0", "-m", "echo", "--tag", "b", "late").code == 0
    assert (
        lab.run(
            "-s", "0", "--tag", "a", "--tag", "b", "--title", "Label", "--snapshot", "here"
        ).code
        == 0
    )
    release.set()
    assert process.communicate(timeout=30) == (b"second\n", b"")
    doc = lab.doc()
    assert [line[:17] for line in texts(doc)] == [
        "user: go",
        "assistant: first ",
        "user: late",
        "assistant: You sa",
    ]
    assert doc["title"] == "Label"
    assert doc["meta"]["tags"] == ["b", "a"]
    assert doc["stats"]["turns"] == 2
    assert len(doc["context"]["snapshots"]) == 1
    costs = [message["cost"] for message in doc["messages"] if message.get("cost") is not None]
    assert doc["usage"]["cost"] == (sum(costs) if costs else None)


@pytest.mark.parametrize("words", [(), ("two",)])
def test_untag_removes_tags_with_a_question_or_without_one(
    lab: Home, words: tuple[str, ...]
) -> None:
    lab.run("--tag", "a", "--tag", "b", "--tag", "c", "one")
    run = lab.run("-s", "0", "--untag", "a", "--untag", "c", "--tag", "d", *words)
    assert run.code == 0
    assert run.stderr == ""
    assert lab.doc()["meta"]["tags"] == ["b", "d"]
    assert len(lab.doc()["messages"]) == 2 + 2 * len(words)
    assert lab.run("--list-sessions", "--tag", "a").stdout == ""


def test_untag_of_a_tag_that_the_session_lacks_is_a_note(lab: Home) -> None:
    lab.run("--tag", "work", "one")
    assert lab.run("-s", "0", "--untag", "wrk") == ("", "gptsh: the session has no tag wrk\n", 0)
    assert lab.doc()["meta"]["tags"] == ["work"]


def test_untag_is_a_label_where_other_labels_are(lab: Home) -> None:
    lab.run("--tag", "a", "one")
    run = lab.run("-s", "0", "--untag", "a", "-o", "json")
    assert json.loads(run.stdout)["tags"] == []
    assert (
        "--untag needs a saved session"
        in lab.run("-s", "0", "--no-save", "--untag", "a", "two").stderr
    )
    assert lab.run("-s", "0", "--untag", "a", "-m", "echo").code == 2
    assert lab.run("-s", "0@1", "--untag", "a").code == 2


def test_an_answer_goes_behind_its_question_and_a_file_that_was_renamed_is_found(
    store: Store,
) -> None:
    doc = new_doc()
    for question in "ab":
        sessions.append_messages(doc, [{"role": "user", "content": question}], None)
    path = Path(sessions.save_session(doc))
    renamed = path.rename(path.with_name(f"20240101-000000-{doc['id']}.json"))
    answer = {"role": "assistant", "content": "c", "parent": doc["messages"][0]["id"]}
    sessions.append_messages(doc, [answer], None)
    assert [message["content"] for message in doc["messages"]] == ["a", "c", "b"]
    assert sessions.save_session(doc) == str(renamed)
    assert len(store()) == 1


def test_other_keys_of_two_copies_join_by_their_rules(store: Store) -> None:
    doc = new_doc("first title")
    doc["their_key"] = 1
    sessions.save_session(doc, tagged("a"))
    one = sessions.load_session("0")
    two = sessions.load_session("0")
    document.add_call(one, "summary", "lab/s", {"total": 5}, 0.5)
    document.add_call(two, "memory", "lab/s", None, 0.25)
    one["agent"] = {**one["agent"], "model": "lab/other"}
    append_turn(one, "a question brings its agent")
    two["agent"] = {**two["agent"], "model": "a label brings none"}
    one["title"], two["our_key"] = "a later title", 2
    sessions.save_session(two, tagged("b", "a"))
    for _ in range(2):  # counts once
        sessions.save_session(one, tagged("c"))
    (saved,) = store()
    assert saved["title"] == "first title"
    assert saved["meta"]["tags"] == ["a", "b", "c"]
    assert [(call["kind"], call["cost"]) for call in saved["usage"]["calls"]] == [
        ("memory", 0.25),
        ("summary", 0.5),
    ]
    assert saved["usage"]["cost"] == 0.75
    assert saved["agent"]["model"] == "lab/other"
    assert saved["their_key"] == 1
    assert saved["our_key"] == 2


def test_a_script_can_save_no_secret(store: Store) -> None:
    params = {"temperature": 0.2, "api_key": "sk-one", "extra_headers": {"x": "sk-two"}}
    provider = {"name": "lab", "api_key": "sk-three", "headers": {"Authorization": "sk-four"}}
    doc = sessions.new_session_doc(
        {"params": params}, provider, output=None, mcp_allowed_servers=None
    )
    path = sessions.save_session(doc)
    doc["provider"], doc["agent"] = provider, {"params": params}
    append_turn(doc, "a question brings its agent")
    sessions.save_session(doc)
    (saved,) = store()
    assert "sk-" not in Path(path).read_text()
    assert saved["provider"] == {"name": "lab"}
    assert saved["agent"]["params"] == {"temperature": 0.2}
    assert params["api_key"] == "sk-one"
    assert provider["api_key"] == "sk-three"  # the caller's own


@pytest.mark.parametrize("days", [(1, 2), (2, 1)])
def test_of_two_compactions_made_at_once_the_later_one_counts(
    store: Store, days: tuple[int, int]
) -> None:
    sessions.save_session(new_doc())
    copies = [sessions.load_session("0") for _ in days]
    for copy, day in zip(copies, days, strict=True):
        copy["context"]["compaction"] = {
            "id": f"{day}",
            "at": f"2026-01-0{day}T00:00:00.000Z",
            "strategy": "summary",
        }
        sessions.save_session(copy)
    (saved,) = store()
    assert saved["context"]["compaction"]["id"] == "2"


@pytest.mark.parametrize(
    "problem", ["deleted by another process", "another session now has the id"]
)
def test_a_session_that_went_meanwhile_is_not_recreated(
    lab: Home, model: ModelServer, problem: str
) -> None:
    process, release = start_answer(lab, model)
    (path,) = lab.files()
    assert lab.run("--delete-session", "0", "--yes").stdout.startswith("deleted ")
    if not problem.startswith("deleted"):
        put(lab, path.name[16:20], 1).rename(path)
    left = [file.read_bytes() for file in lab.files()]
    release.set()
    out, err = process.communicate(timeout=30)
    assert out == b"second\n"
    assert process.returncode == 1
    assert err.count(b"\n") == 1
    assert re.search(rf"{problem}.*: this turn is not saved\n$", err.decode())
    assert [file.read_bytes() for file in lab.files()] == left


TALK = [
    {"id": f"m{at}", "role": ("user", "assistant")[at % 2], "content": f"m{at}"} for at in range(6)
]
SNAPSHOTS = {"summaries": [], "snapshots": [{"id": "s", "name": "before", "message": "m3"}]}


@pytest.fixture
def many(home: Home) -> Home:
    """Three sessions of one second, the newest first by its milliseconds: 7x9q, 7x2m, abcd; ``@Work:a.b`` is 7x9q."""
    for at, ident in enumerate(("abcd", "7x2m", "7x9q")):
        moment = f"2025-10-27T09:15:31.{at}00Z"
        doc = {
            "version": 1,
            "id": ident,
            "title": ident,
            "created_at": moment,
            "messages": TALK,
            "context": SNAPSHOTS,
        }
        put_file(home, f"20251027-091531-{ident}", doc)
    (home.state / "names").mkdir()
    (home.state / "names" / "%57ork%3Aa.b").write_text("20251027-091531-7x9q.json\n")
    return home


@pytest.mark.parametrize(
    ("ref", "ident", "messages"),
    [
        ("0", "7x9q", 6), ("2", "abcd", 6), ("7x2m", "7x2m", 6), ("a", "abcd", 6), ("a@", "abcd", 6),
        ("20251027-091531-7x9q.json", "7x9q", 6), ("@Work:a.b", "7x9q", 6), ("@Work:a.b@1", "7x9q", 2),
        ("0@3", "7x9q", 6), ("0@0", "7x9q", 0), ("0@-1", "7x9q", 4), ("0@-3", "7x9q", 0), ("0@before", "7x9q", 4),
    ],
)  # fmt: skip
def test_a_ref_is_a_session_and_a_point_cuts_it(
    many: Home, ref: str, ident: str, messages: int
) -> None:
    doc = json.loads(many.run("--show-session", ref, "-o", "json").stdout)
    assert doc["id"] == ident
    assert len(doc["messages"]) == messages
    assert doc["stats"]["messages"] == messages


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        *((ref, "") for ref in ("9", "zz", "", "²", "9" * 5000, "../../etc/passwd", "@nobody", "@", "@1x", "@a/b")),
        ("7X2M", ""), ("7x", "'7x' is ambiguous: it could be 7x9q, 7x2m\n"),
        *((f"0@{point}", "it has 3 turns") for point in ("4", "-4", "nothing", "²", "9" * 5000, "--1")),
    ],
)  # fmt: skip
def test_any_other_ref_is_exit_2(many: Home, ref: str, said: str) -> None:
    run = many.run("--show-session", ref)
    assert run.stdout == ""
    assert run.code == 2
    assert run.stderr.count("\n") == 1
    assert said in run.stderr


def test_of_many_that_a_ref_could_be_ten_are_named(home: Home) -> None:
    for number in range(12):
        put(home, f"ab{number:02}", number)
    assert home.run("--show-session", "ab").stderr.endswith("ab02 and 2 more\n")


def test_malformed_keys_are_left_out_with_a_note(home: Home) -> None:
    put(home, "aaaa", 0, stats=7, context={"cuts": {"aaaa-1": [["x"]]}, "summaries": {}})
    run = home.run("-s", "aaaa", "-m", "echo", "more")
    assert run.stdout == "You said: question of aaaa\n\nmore\n"
    assert run.code == 0
    left_out = "stats, context.cuts.aaaa-1[0], context.summaries"
    assert run.stderr == f"gptsh: session aaaa: left out malformed keys: {left_out}\n"


def test_null_in_a_table_of_a_session_is_left_out_with_a_note(home: Home) -> None:
    path = put(
        home,
        "aaaa",
        0,
        context={"cuts": {"aaaa-1": None, "x": [None]}, "noted": {"aaaa-1": None}},
        meta={"tags": [None, "a"], "used_in": {"/": None}},
    )
    run = home.run("-s", "aaaa", "-m", "echo", "more")
    assert run.stdout == "You said: question of aaaa\n\nmore\n"
    assert run.code == 0
    assert run.stderr.startswith(
        "gptsh: session aaaa: left out malformed keys: meta.tags[0], meta.used_in./, "
    )
    doc = json.loads(path.read_bytes())
    assert doc["meta"]["tags"] == ["a"]
    assert doc["context"]["cuts"] == {"x": []}
    assert doc["context"]["noted"] == {}
    assert [*doc["meta"]["used_in"]] == [str(home.cwd)]


def test_the_newest_five_summaries_stay(store: Store) -> None:
    doc = new_doc()
    doc["context"]["summaries"] = [
        {"id": f"{at}", "text": "t", "created_at": f"2026-01-0{at}"} for at in range(1, 8)
    ]
    sessions.save_session(doc)
    sessions.save_session(sessions.load_session("0"))
    assert [item["id"] for item in store()[0]["context"]["summaries"]] == ["3", "4", "5", "6", "7"]


NOT_SESSIONS = [
    b"", b"\0" * 400, b"[]", b'{"version":1,"id":"aaaa","messages":[{"role":"us', b'{"version":1,"id":"aaaa"}',
    b'{"version":1,"id":"aaaa","messages":"x"}', b'{"version":1,"id":"aaaa","cost":NaN,"messages":[]}',
    b'{"version":1,"id":"aaaa","title":"\xff","messages":[]}', b'{"version":1,"id":"aaaa","x":' + b"[" * 100_000,
]  # fmt: skip
QUESTION = {"role": "user", "content": "q"}
UNREADABLE: list[Any] = [
    ["x"], [{**QUESTION, "role": 7}], [{**QUESTION, "content": 7}], [{**QUESTION, "content": ["x"]}],
    [{**QUESTION, "x": float("inf")}], [{"role": "assistant", "tool_calls": [{"id": "c", "function": None}]}],
]  # fmt: skip


def test_a_session_that_lacks_its_times_has_that_of_its_file_name(home: Home) -> None:
    put_file(home, "20250203-040506-aaaa", {"version": 1, "messages": [QUESTION]})
    doc = json.loads(home.run("--show-session", "aaaa", "-o", "json").stdout)
    assert doc["id"] == "aaaa"
    assert doc["created_at"] == "2025-02-03T04:05:06.000Z"
    assert doc["provider"] == {"name": None}
    put_file(home, "20990101-000000-bbbb", b"{")
    for job in (LIST, ("--search-sessions", "q"), ("--usage",)):
        assert "20990101-000000-bbbb.json: not JSON: " in home.run(*job).stderr


@pytest.mark.parametrize(
    "odd", [*NOT_SESSIONS, *UNREADABLE], ids=range(len(NOT_SESSIONS) + len(UNREADABLE))
)
def test_what_is_no_session_is_an_error_naming_the_file_and_never_rewritten(
    home: Home, one: Path, odd: Any
) -> None:
    bad = put_file(
        home,
        "20990101-000000-aaaa",
        odd if isinstance(odd, bytes) else {**home.doc(), "id": "aaaa"},
    )
    if not isinstance(odd, bytes):
        change(bad, "messages", odd)
        bad.write_text(bad.read_text().replace("Infinity", "1e400"))
    before = bad.read_bytes()
    run = home.run(*LIST)
    assert re.findall(r"^\[(\d)", run.stdout, re.MULTILINE) == ["1"]  # its index stays
    assert re.fullmatch(rf"gptsh: skipped {re.escape(str(bad))}: .+\n", run.stderr)
    for args in (SHOW, ASK, ("-s", "0", "--tag", "z")):
        run = home.run(*args)
        assert run.stdout == "", args
        assert run.code == 2, args
        assert run.stderr.count("\n") == 1, args
        assert str(bad) in run.stderr
    assert bad.read_bytes() == before
    assert home.run("-s", "1", "-m", "echo", "on").code == 0


def test_a_pipe_or_a_huge_file_among_the_sessions_is_one_line(home: Home, one: Path) -> None:
    (home.sessions / "20990101-000000-dang.json").symlink_to("/nowhere/at/all")
    (home.sessions / "20990101-000001-fold.json").mkdir()
    os.mkfifo(home.sessions / "20990101-000002-fifo.json")
    (home.sessions / "20990101-000003-zero.json").symlink_to("/dev/zero")
    with (home.sessions / "20990101-000004-huge.json").open("wb") as file:
        file.truncate(3_000_000_000)
    for args in (LIST, ("--usage",), ("--search-sessions", "q")):
        run = home.run(*args)
        assert run.code == 0
        assert bool(run.stdout)
        assert "larger than " in run.stderr
        assert sorted(re.findall(r"-(\w{4}).json: ", run.stderr)) == [
            "dang",
            "fifo",
            "fold",
            "huge",
            "zero",
        ]
    for ref in ("fifo", "zero", "huge"):
        assert home.run("-s", ref, "-m", "echo", "x").code == 2
    assert home.run("-c", "-m", "echo", "x").code == 0


def test_a_newer_version_is_read_and_never_written(home: Home, one: Path) -> None:
    change(one, "version", 2)
    before = one.read_bytes()
    assert "## user" in home.run(*SHOW).stdout
    for args in (ASK, ("-s", "0", "--tag", "z")):
        run = home.run(*args)
        assert run.stdout == ""
        assert run.code == 2
        assert run.stderr.startswith(f"gptsh: {one} was written by a newer gptsh: ")
    assert (
        home.run("-s", "0@", "-m", "echo", "hi").code == 0
    )  # a fork is a new file, of this version
    assert len(home.docs()) == 2
    assert one.read_bytes() == before


def test_a_file_of_any_layout_is_listed_and_read(home: Home) -> None:
    home.run("-m", "echo", "--title", "Any Order", "--tag", "t", "question")
    path = home.files()[0]
    doc = home.doc()
    for keys, indent in ((sorted(doc), 2), ([*reversed(doc)], None)):
        path.write_text(json.dumps({key: doc[key] for key in keys}, indent=indent) + " \n" * 3000)
        assert "Any Order (default|echo)" in home.run(*LIST, "--tag", "t").stdout
        assert home.run(*SHOW).stdout.startswith("# Any Order\n")


# ---- documents of every older version

OLD: dict[int, dict[str, Any]] = {0: {  # by version, a document as it was written then
    "id": "04a1", "title": "Old", "created_at": "2025-10-27T09:15:30Z", "updated_at": "2025-10-27T09:15:31Z",
    "agent": {"name": "default", "model": "m", "model_small": None, "params": {}}, "provider": {"name": "echo"},
    "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
    "usage": {"tokens": {"prompt": 3, "completion": 2, "total": 5}, "cost": 0.5},
    "meta": {"output": "markdown", "mcp_allowed_servers": []},
}}  # fmt: skip
READING = (
    ["--list-sessions"], ["--show-session", "0"], ["--usage"], ["-s", "0", "-m", "echo", "--dry-run", "x"],
    ["-s", "0", "-m", "echo", "--no-save", "x"], ["-s", "0@", "-m", "echo", "x"],
)  # fmt: skip


@pytest.mark.parametrize("version", range(document.VERSION))
def test_an_older_document_is_read_as_it_is_and_written_by_a_save_alone(
    home: Home, version: int
) -> None:
    home.sessions.mkdir(parents=True)
    path = home.sessions / "20251027-091530-04a1.json"
    path.write_text(json.dumps(OLD[version], indent=2))
    before = path.read_bytes()
    changed = path.stat().st_mtime_ns
    for args in READING:
        assert home.run(*args).code == 0, args
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == changed
    new_doc = json.loads(
        home.run("--show-session", "0", "-o", "json").stdout
    )  # the fork, from this version
    old = json.loads(home.run("--show-session", "04a1", "-o", "json").stdout)
    assert old["version"] == document.VERSION
    assert set(old) == set(new_doc)
    assert old["stats"]["turns"] == 1
    assert home.run("-s", "04a1", "-m", "echo", "more").code == 0
    saved = json.loads(path.read_bytes())
    assert saved["version"] == document.VERSION
    assert set(saved["context"]) == set(new_doc["context"])
    assert saved["usage"]["cost"] == 0.5
    assert texts(saved) == ["user: q", "assistant: a", "user: more", "assistant: You said: more"]


def test_a_save_keeps_what_another_program_wrote_meanwhile(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", home.env["XDG_STATE_HOME"])
    home.run("-m", "echo", "one")
    (path,) = home.files()
    doc = sessions.load_session(path.name)
    for number in range(3):
        sessions.append_messages(doc, [{"role": "user", "content": f"ours {number}"}], None)
        sessions.save_session(doc, at=path.name)
        theirs = json.loads(path.read_bytes())
        theirs["messages"].append(
            {"id": f"x{number}", "role": "user", "content": f"theirs {number}"}
        )
        path.write_text(json.dumps(theirs))
    sessions.save_session(doc, at=path.name)
    found = [
        message["content"] for message in home.doc()["messages"] if "s " in str(message["content"])
    ]
    assert found == [f"{who} {number}" for number in range(3) for who in ("ours", "theirs")]
    assert home.doc()["messages"] == doc["messages"]


# ---- documents that a script made


@pytest.mark.parametrize(
    "times",
    [
        {},
        {"created_at": "2025-10-27T09:15:30Z"},
        {"created_at": "2025-10-27T09:15:30Z", "updated_at": "2025-10-27T09:15:30Z"},
        {"created_at": "2025-10-27T11:15:30+02:00", "updated_at": "2025-10-28T09:15:30Z"},
        {"created_at": "2025-10-27T09:15:30Z", "updated_at": "2024-10-27T09:15:30Z"},
    ],
)
@pytest.mark.parametrize("ident", [{}, {"id": "7x2m"}, {"id": "1234"}, {"id": "../x"}])
def test_a_document_that_a_script_made_is_saved_and_found_again(
    store: Store, times: dict[str, Any], ident: dict[str, Any]
) -> None:
    doc: dict[str, Any] = {**ident, **times, "messages": [{"role": "user", "content": "hello"}]}
    path = sessions.save_session(doc)
    assert os.path.basename(path)[16:20] == doc["id"]
    if times:
        assert os.path.basename(path).startswith("20251027-091530-")
    doc["title"] = "Mine"
    assert sessions.save_session(doc) == path
    assert sessions.load_session(path)["title"] == "Mine"
    again = {**ident, **times, "messages": [{"role": "user", "content": "hello again"}]}
    sessions.save_session(again)
    assert len(store()) == (1 if times and ident.get("id") == "7x2m" else 2)


def test_a_time_in_the_future_counts_as_now(store: Store) -> None:
    sessions.save_session(
        {"created_at": "2199-01-01T00:00:00Z", "messages": [{"role": "user", "content": "hello"}]}
    )
    (doc,) = store()
    assert doc["created_at"] <= doc["updated_at"] < "2100"


def test_a_path_is_a_reference(home: Home, tmp_path: Path) -> None:
    home.run("-m", "echo", "one")
    (path,) = home.files()
    home.run("-m", "echo", "two")
    assert home.run("-s", str(path), "more").stdout == "You said: more\n"
    assert len(json.loads(path.read_bytes())["messages"]) == 4
    assert home.run("--show-session", f"{path}@1", "-o", "json").code == 0
    elsewhere = tmp_path / path.name
    elsewhere.write_bytes(path.read_bytes())
    assert home.run("-s", str(elsewhere), "more").code == 2


def test_the_type_of_a_row_can_be_imported() -> None:
    from gptsh.core.sessions import SessionSummary

    assert "filename" in SessionSummary.__annotations__


@pytest.mark.parametrize("ref", ["{id}", "0", "@work", "{name}", "{path}", "{id}@1"])
def test_a_session_to_resume_can_be_named(home: Home, ref: str) -> None:
    home.run("-m", "echo", "-s", "@work", "one")
    (path,) = home.files()
    named = ref.format(id=path.name[16:20], name=path.name, path=path)
    assert home.run("-r", named, "and", "two").stdout == "You said: and two\n"
    last = home.docs()[0] if "@1" in ref else home.doc()
    assert texts(last)[0] == "user: one"
    assert "user: and two" in texts(last)


def test_a_time_in_the_future_does_not_keep_a_session_the_latest_of_its_project(home: Home) -> None:
    home.run("-m", "echo", "one")
    (path,) = home.files()
    doc = json.loads(path.read_bytes())
    doc["meta"]["used_in"] = dict.fromkeys(doc["meta"]["used_in"], "2199-01-01T00:00:00.000Z")
    path.write_text(json.dumps(doc))
    os.utime(path, (time.time() - 60,) * 2)
    home.run("-m", "echo", "two")
    home.run("-c", "more")
    assert [text for text in texts(home.docs()[0]) if text == "user: more"]


def test_usage_of_the_future_counts_today(home: Home) -> None:
    home.run("-m", "echo", "one")
    (path,) = home.files()
    doc = json.loads(path.read_bytes())
    for message in doc["messages"]:
        message["timestamp"] = "2199-01-01T00:00:00.000Z"
    path.write_text(json.dumps(doc))
    (day,) = json.loads(home.run("--usage", "-o", "json").stdout)["days"]
    assert day["day"] < "2100"
