"""The store, through the command: what is on disk after a run, what a REF means, which files are taken for sessions."""

import fcntl
import json
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gptsh.core import sessions
from tests.support.home import Home, in_mid_answer, lab_config, texts
from tests.support.server import ModelServer
from tests.support.sessions import ABSENT, Store, ask, change, keep, new, put

ASK = ("-s", "0", "-m", "echo", "more")
SHOW = ("--show-session", "0")
LIST = ("--list-sessions",)


@pytest.fixture
def one(home: Home) -> Path:
    """The file of the only session."""
    assert home.run("-m", "echo", "q").code == 0
    return home.files()[0]


# ---- the file


def test_a_session_is_a_compact_file_for_its_owner_alone(home: Home) -> None:
    home.sessions.mkdir(parents=True, mode=0o755)  # was open to all
    home.run("-m", "echo", "-s", "@work", "--title", "Größe", "\udc80 one")
    change(home.files()[0], "x_mine", {"a": [1, None, False]})
    home.run("-m", "echo", "-s", "@work", "two")
    (path,) = home.files()
    raw, doc = path.read_bytes(), home.doc()
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-z]{4}\.json", path.name)
    assert path.name[16:20] == doc["id"]
    assert not doc["id"].isdigit()
    assert next(iter(doc)) == "version"
    assert [*doc][-2:] == ["x_mine", "messages"]
    assert doc["x_mine"] == {"a": [1, None, False]}
    assert not re.search(r"\n|\": |, \"", raw.decode("utf-8"))
    assert "Größe" in raw.decode("utf-8")
    assert b"\\udc80 one" in raw  # what is no text survives as an escape
    assert doc["stats"] == {"turns": 2, "messages": 4, "preview": "\udc80 one"}
    for moment in (doc["created_at"], doc["updated_at"], *(message["timestamp"] for message in doc["messages"])):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)
    assert doc["updated_at"] > doc["created_at"]
    assert [m["parent"] for m in doc["messages"]] == [None, *(m["id"] for m in doc["messages"][:-1])]
    for found in (home.state, *home.state.rglob("*")):
        assert stat.S_IMODE(found.stat().st_mode) == (0o700 if found.is_dir() else 0o600), found
    assert not list(home.state.rglob("*.tmp"))


def test_an_id_that_is_taken_is_not_given_again(store: Store, home: Home) -> None:
    first = new()
    sessions.save_session(first)
    (home.state / "archive").mkdir()
    (home.state / "archive" / "20250101-000000-zzzz.json").write_text("{}")
    for taken in (first["id"], "zzzz"):
        second = new()
        second["id"] = taken
        sessions.save_session(second)
        assert second["id"] != taken
    assert len({doc["id"] for doc in store()}) == 3


def test_leftovers_of_killed_processes_are_swept_after_an_hour(home: Home, one: Path) -> None:
    old, young = home.sessions / "a.json.1.tmp", home.sessions / "b.json.2.tmp"
    for leftover in (old, young):
        leftover.write_text("{")
    os.utime(old, (time.time() - 4000, time.time() - 4000))
    home.run("-m", "echo", "another")
    assert (old.exists(), young.exists()) == (False, True)


def test_a_session_behind_a_link_is_replaced_where_it_lies(home: Home, one: Path) -> None:
    real = home.folder / "elsewhere.json"
    one.rename(real)
    one.symlink_to(real)
    assert home.run(*ASK).code == 0
    assert one.is_symlink()
    assert len(json.loads(real.read_text())["messages"]) == 4


# ---- at once


def test_the_store_is_locked_while_a_turn_is_saved(home: Home, one: Path) -> None:
    with open(home.state / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        released = threading.Event()

        def release() -> None:
            released.set()
            fcntl.flock(lock, fcntl.LOCK_UN)

        timer = threading.Timer(0.2, release)
        timer.start()
        assert home.run(*ASK) == ("You said: more\n", "", 0)
        assert released.is_set()  # it was waited for
        timer.join()


def test_a_turn_stays_together_whoever_wrote_meanwhile(lab: Home, model: ModelServer) -> None:
    """Two ask, one of them while the other's answer comes; a third one changes the labels."""
    process, release = in_mid_answer(lab, model)
    assert lab.run("-s", "0", "-m", "echo", "--tag", "b", "late").code == 0
    assert lab.run("-s", "0", "--tag", "a", "--tag", "b", "--title", "Label").code == 0
    release.set()
    assert process.communicate(timeout=30) == (b"second\n", b"")
    doc = lab.doc()
    assert [line[:17] for line in texts(doc)] == ["user: go", "assistant: first ", "user: late", "assistant: You sa"]
    assert (doc["title"], doc["meta"]["tags"]) == ("Label", ["b", "a"])
    assert doc["stats"]["turns"] == 2
    costs = [message["cost"] for message in doc["messages"] if message.get("cost") is not None]
    assert doc["usage"]["cost"] == (sum(costs) if costs else None)


def test_other_keys_of_two_copies_join_by_their_rules(store: Store) -> None:
    doc = new("first title")
    doc["their_key"] = 1
    sessions.save_session(doc, tags=["a"])
    one, two = sessions.load_session("0"), sessions.load_session("0")
    one["context"]["summaries"].append({"id": "s1", "cost": 0.5})
    two["context"]["summaries"].append({"id": "s2", "cost": 0.25})
    one["agent"] = {**one["agent"], "model": "lab/other"}
    ask(one, "a question brings its agent")
    two["agent"] = {**two["agent"], "model": "a label brings none"}
    one["title"], two["our_key"] = "a later title", 2
    sessions.save_session(two, tags=["b", "a"])
    for _ in range(2):  # counts once
        sessions.save_session(one, tags=["c"])
    (saved,) = store()
    assert (saved["title"], saved["meta"]["tags"]) == ("first title", ["a", "b", "c"])
    assert {s["id"] for s in saved["context"]["summaries"]} == {"s1", "s2"}
    assert (saved["usage"]["cost"], saved["agent"]["model"]) == (0.75, "lab/other")
    assert (saved["their_key"], saved["our_key"]) == (1, 2)


@pytest.mark.parametrize("meanwhile", ["deleted", "replaced by another of the same id"])
def test_a_session_that_went_meanwhile_is_not_recreated(lab: Home, model: ModelServer, meanwhile: str) -> None:
    process, release = in_mid_answer(lab, model)
    (path,) = lab.files()
    assert lab.run("--delete-session", "0").stdout.startswith("deleted ")
    if meanwhile != "deleted":
        put(lab, path.name[16:20], 1).rename(path)
    left = [file.read_bytes() for file in lab.files()]
    release.set()
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode, err.count(b"\n")) == (b"second\n", 1, 1)
    assert meanwhile.split()[0].encode() in err
    assert [file.read_bytes() for file in lab.files()] == left


# ---- what a REF means

TALK = [{"id": f"m{at}", "role": ("user", "assistant")[at % 2], "content": f"m{at}"} for at in range(6)]
SNAPSHOTS = {"summaries": [], "snapshots": [{"id": "s", "name": "before", "message": "m3"}]}


@pytest.fixture
def many(home: Home) -> Home:
    """Three sessions of one second, the newest first by its milliseconds: 7x9q, 7x2m, abcd; ``@Work:a.b`` is 7x9q."""
    for at, ident in enumerate(("abcd", "7x2m", "7x9q")):
        moment = f"2025-10-27T09:15:31.{at}00Z"
        doc = {"version": 1, "id": ident, "title": ident, "created_at": moment, "messages": TALK, "context": SNAPSHOTS}
        keep(home, f"20251027-091531-{ident}", doc)
    (home.state / "names").mkdir()
    (home.state / "names" / "%57ork%3Aa.b").write_text("20251027-091531-7x9q.json\n")
    return home


@pytest.mark.parametrize(
    ("ref", "ident", "messages"),
    [
        ("0", "7x9q", 6), ("1", "7x2m", 6), ("2", "abcd", 6), ("7x2m", "7x2m", 6), ("a", "abcd", 6),
        ("20251027-091531-7x9q.json", "7x9q", 6), ("@Work:a.b", "7x9q", 6), ("@Work:a.b@1", "7x9q", 2),
        ("a@", "abcd", 6), ("0@3", "7x9q", 6), ("0@2", "7x9q", 4), ("0@1", "7x9q", 2), ("0@0", "7x9q", 0),
        ("0@-1", "7x9q", 4), ("0@-3", "7x9q", 0), ("0@before", "7x9q", 4),
    ],
)  # fmt: skip
def test_a_ref_is_a_session_and_a_point_cuts_it(many: Home, ref: str, ident: str, messages: int) -> None:
    doc = json.loads(many.run("--show-session", ref, "-o", "json").stdout)
    assert (doc["id"], len(doc["messages"]), doc["stats"]["messages"]) == (ident, messages, messages)


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        *((ref, "") for ref in ("9", "zz", "", "²", "9" * 5000, "../../etc/passwd", "@nobody", "@", "@1x", "@a/b")),
        ("7X2M", ""), ("7x", "7x2m"), ("7x", "7x9q"), ("7x", "ambiguous"),
        *((f"0@{point}", "it has 3 turns") for point in ("4", "-4", "nothing", "²", "9" * 5000, "--1")),
    ],
)  # fmt: skip
def test_any_other_ref_is_exit_2(many: Home, ref: str, said: str) -> None:
    run = many.run("--show-session", ref)
    assert (run.stdout, run.code, run.stderr.count("\n")) == ("", 2, 1)
    assert said in run.stderr


def test_a_name_points_at_its_session_until_that_is_gone(home: Home) -> None:
    home.run("-m", "echo", "-s", "@Work:a.b_c-1", "one")
    assert [path.name for path in (home.state / "names").iterdir()] == ["%57ork%3Aa.b_c-1"]
    home.files()[0].unlink()
    assert home.run("--show-session", "@Work:a.b_c-1").code == 2
    home.run("-m", "echo", "-s", "@Work:a.b_c-1", "two")
    assert "two" in home.run("--show-session", "@Work:a.b_c-1").stdout


def test_resuming_an_old_session_does_not_renumber(many: Home) -> None:
    assert many.run("-s", "2", "-m", "echo", "again").code == 0
    assert re.findall(r"^\[(\d)\] (\w+)", many.run(*LIST).stdout, re.MULTILINE) == [
        ("0", "7x9q"), ("1", "7x2m"), ("2", "abcd"),
    ]  # fmt: skip


# ---- documents with one odd value

MISSING = [
    "meta.tags", "meta.project", "usage.tokens", "usage.cost", "context.summaries", "context.snapshots",
    "agent.params", "agent.name", "agent.model", "provider.name", "stats.turns", "stats.preview", "title",
]  # fmt: skip


@pytest.mark.parametrize("value", [None, ABSENT], ids=["null", "absent"])
@pytest.mark.parametrize("place", MISSING)
def test_a_session_with_a_key_missing_or_null_is_listed_shown_and_goes_on(
    home: Home, one: Path, place: str, value: object
) -> None:
    change(one, place, "many" if place == "stats.turns" and value is None else value)
    for args in (LIST, SHOW, ASK, ("-s", "0", "--tag", "z")):
        run = home.run(*args)
        assert (run.code, run.stderr) == (0, ""), args
    doc = home.doc()
    assert (doc["stats"]["turns"], doc["meta"]["tags"]) == (2, ["z"])
    assert doc["usage"]["tokens"]["total"] is not None


NOT_SESSIONS: dict[str, bytes] = {
    "empty": b"",
    "nul": b"\0" * 400,
    "text": b"hello",
    "list": b"[]",
    "number": b"7",
    "torn": b'{"version":1,"id":"aaaa","messages":[{"role":"us',
    "no messages": b'{"version":1,"id":"aaaa"}',
    "no id": b'{"version":1,"messages":[]}',
    "messages are text": b'{"version":1,"id":"aaaa","messages":"x"}',
    "agent is text": b'{"version":1,"id":"aaaa","agent":"x","messages":[]}',
    "not UTF-8": b'{"version":1,"id":"aaaa","title":"\xff","messages":[]}',
    "deep": b'{"version":1,"id":"aaaa","x":' + b"[" * 100_000 + b"]" * 100_000 + b',"messages":[]}',
    "nan": b'{"version":1,"id":"aaaa","cost":NaN,"messages":[]}',
}
WRONG_IN_THE_HEAD: list[tuple[str, Any]] = [
    ("meta.tags", "red"), ("usage.tokens", [1]), ("meta.project", 5), ("provider.name", []), ("title", 7),
    ("agent.name", ["x"]), ("created_at", "yesterday"), ("updated_at", 5), ("version", "1"), ("stats", []),
    ("version", True), ("updated_at", "0001-01-01T00:00:00Z"), ("created_at", "9999-12-31T23:59:59Z"),
]  # fmt: skip
WRONG_INSIDE: list[tuple[str, Any]] = [
    ("usage.carried", "1"), ("context.summaries", ["s"]), ("context.summaries", {}), ("agent.params", [1]),
    ("context.snapshots", [{"id": []}]), ("context.summaries", [{"id": "s", "cost": "1"}]),
    ("messages", ["x"]),
    ("messages", [{"role": "user", "content": "q", "cost": "0.01"}]),
    ("messages", [{"role": "user", "content": "q", "cost": 10**400}]),
    ("messages", [{"role": "user", "content": "q", "timestamp": 17}]),
    ("messages", [{"role": "tool", "content": "q", "tool_call_id": ["c"]}]),
    ("messages", [{"role": "assistant", "tool_calls": [{"id": "c", "function": None}]}]),
    ("messages", [{"role": "assistant", "tool_calls": [{"function": {}}]}]),
    ("messages", [{"role": "user", "content": "q", "id": 7}]),
    ("messages", [{"role": "user", "content": "q", "id": "1", "x": float("inf")}]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "value", "listed"),
    [
        *(pytest.param("", raw, False, id=kind) for kind, raw in NOT_SESSIONS.items()),
        *((*odd, False) for odd in WRONG_IN_THE_HEAD),
        *((*odd, True) for odd in WRONG_INSIDE),  # a list reads no messages
    ],
)
def test_what_is_no_session_is_an_error_naming_the_file_and_never_rewritten(
    home: Home, one: Path, place: str, value: Any, listed: bool
) -> None:
    bad = keep(home, "20990101-000000-aaaa", value if not place else {**home.doc(), "id": "aaaa"})
    if place:
        change(bad, place, value)
        bad.write_text(bad.read_text().replace("Infinity", "1e400"))
    before = bad.read_bytes()
    run = home.run(*LIST)
    assert run.code == 0
    if listed:
        assert (run.stdout.count("\n"), run.stderr) == (2, "")
    else:
        assert re.fullmatch(r"\[1\] .*\n", run.stdout)  # the good one, whose index stays
        assert re.fullmatch(rf"gptsh: skipped {re.escape(str(bad))}: .+\n", run.stderr)
    for args in (SHOW, ASK, ("-s", "0", "--tag", "z")):
        run = home.run(*args)
        assert (run.stdout, run.code, run.stderr.count("\n")) == ("", 2, 1), args
        assert str(bad) in run.stderr
    assert bad.read_bytes() == before
    assert home.run("-s", "1", "-m", "echo", "on").code == 0


def test_what_is_no_file_is_skipped_with_a_line_and_not_waited_for(home: Home, one: Path) -> None:
    (home.sessions / "20990101-000000-dang.json").symlink_to("/nowhere/at/all")
    (home.sessions / "20990101-000001-fold.json").mkdir()
    os.mkfifo(home.sessions / "20990101-000002-fifo.json")
    run = home.run(*LIST)
    assert run.stdout.startswith("[3] ")
    causes = {line.split(".json: ")[0][-4:]: line.split(".json: ")[1] for line in run.stderr.splitlines()}
    assert causes.keys() == {"dang", "fold", "fifo"}
    assert (causes["dang"], causes["fold"]) == ("dangling link: No such file or directory", "Is a directory")
    for ident in causes:
        assert home.run("-s", ident, "-m", "echo", "x").code == 2
    assert home.run("-c", "-m", "echo", "x").code == 0


def test_a_newer_version_is_read_and_never_written(home: Home, one: Path) -> None:
    change(one, "version", 2)
    before = one.read_bytes()
    assert home.run(*LIST).stdout.count("\n") == 1
    assert "## user" in home.run(*SHOW).stdout
    for args in (ASK, ("-s", "0", "--tag", "z")):
        run = home.run(*args)
        assert (run.code, run.stdout) == (2, "")
        assert run.stderr.startswith(f"gptsh: {one} was written by a newer gptsh: ")
    assert home.run("-s", "0@", "-m", "echo", "hi").code == 0  # a fork is a new file, of this version
    assert (len(home.docs()), one.read_bytes()) == (2, before)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("order", ["sorted", "reversed", "title behind the messages"])
def test_a_file_of_any_layout_is_listed_and_read(home: Home, indent: int | None, order: str) -> None:
    home.run("-m", "echo", "--title", "Any Order", "--tag", "t", "question")
    path, doc = home.files()[0], home.doc()
    keys = {"sorted": sorted(doc), "reversed": [*reversed(doc)]}.get(order, [key for key in doc if key != "title"])
    path.write_text(json.dumps({key: doc[key] for key in (*keys, "title")}, indent=indent) + " \n" * 3000)
    assert "Any Order (default|echo)" in home.run(*LIST, "--tag", "t").stdout
    assert home.run(*SHOW).stdout.startswith("# Any Order\n")


def test_a_list_reads_heads_and_no_messages(home: Home, one: Path) -> None:
    """Behind the head stands what no JSON parser takes: a list does not notice, a reader does."""
    home.run("-s", "0", "--title", "T" * 10_000)  # a head longer than the first block
    one.write_bytes(one.read_bytes().replace(b'"messages":[', b'"messages":[@@@'))
    run = home.run(*LIST)
    assert ("T" * 10_000 in run.stdout, run.stderr) == (True, "")
    assert home.run(*SHOW).code == 2


# ---- titles


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Plain Title", "Plain Title"), ('"Feeling Fine Check."\n', "Feeling Fine Check"),
        ("  \n **Bold Title!** \n more", "Bold Title"), ("<think>hm\nhm</think>\nAfter Thought", "After Thought"),
        ("<think>cut off", None), ("", None), ("...", None), ("x" * 500, "x" * 80),
    ],
)  # fmt: skip
def test_a_title_is_one_clean_line(home: Home, model: ModelServer, said: str, title: str | None) -> None:
    home.configure(lab_config(model, 'model_small = "lab/small"\n[sessions]\ntitles = "model"\n'))
    model.say("an answer", model="m")
    model.say(said, model="small")
    home.run("I am feeling fine " * 1000)
    assert home.doc()["title"] == title
    (asked,) = (body for body in model.sent if body and body["model"] == "small")
    assert (asked["temperature"], asked["max_tokens"]) == (0.2, 24)
    assert len(asked["messages"][-1]["content"]) == 2000


@pytest.mark.parametrize(
    ("agent", "provider", "small"),
    [("lab/of-agent", "lab/of-provider", "of-agent"), ("", "lab/of-provider", "of-provider"), ("", "", "m")],
)
def test_which_model_makes_the_title(home: Home, model: ModelServer, agent: str, provider: str, small: str) -> None:
    of_agent, of_provider = (f'model_small = "{name}"\n' if name else "" for name in (agent, provider))
    home.configure(lab_config(model, of_provider).replace("[providers", f"{of_agent}[providers"))
    home.run("hi")
    assert sorted(body["model"] for body in model.sent if body) == sorted(["m", small])
