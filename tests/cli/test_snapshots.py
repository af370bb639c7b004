"""Snapshots: named positions of a session, through the command, through the store, and as values."""

import copy
import json
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import document, sessions, snapshots
from gptsh.errors import BadSession, UsageError
from tests.support.answers import events
from tests.support.home import Home, texts
from tests.support.server import ModelServer, answer
from tests.support.sessions import Store, ask, new
from tests.support.talks import Talker, chat, configure, for_summaries, kept


def named(doc: dict[str, Any]) -> list[str]:
    return [item["name"] for item in doc["context"]["snapshots"]]


def talk(*questions: str) -> dict[str, Any]:
    """A session on disk, each question answered by itself in capitals."""
    doc = new()
    for question in questions:
        ask(doc, question, question.upper())
    sessions.save_session(doc)
    return doc


def summary(ident: str, first: str, last: str, **more: Any) -> dict[str, Any]:
    return {
        "id": ident, "created_at": "2026-01-01T00:00:00.000Z", "first": first, "last": last, "messages": 2,
        "text": f"what {ident} says", "tokens": 9, "model": "lab/s", "cost": 0.25, "usage": {"prompt": 5}, **more,
    }  # fmt: skip


def compaction(upto: str, told: str | None = None, at: str = "2026-01-01T00:00:00.000Z") -> dict[str, Any]:
    return {
        "id": f"c {at}", "at": at, "strategy": "summary" if told else "pruned-tools", "upto": upto, "summary": told,
        "room": 100, "budget": 80, "before": 9000, "after": 3000, "reason": "asked",
    }  # fmt: skip


# ---- the command


def test_a_snapshot_without_a_prompt_is_taken_and_nothing_is_asked(lab: Home, model: ModelServer) -> None:
    lab.run("one")
    lab.run("-s", "0", "two")
    asked = len(model.asked)
    run = lab.run("-s", "0", "--snapshot", "Before:it.all_1-x", "--title", "T", "--tag", "t")
    assert (run, len(model.asked)) == (("", "", 0), asked)
    doc = lab.doc()
    (taken,) = doc["context"]["snapshots"]
    assert (doc["title"], doc["meta"]["tags"], doc["stats"]["turns"]) == ("T", ["t"], 2)
    assert taken["message"] == doc["messages"][-1]["id"]
    assert 0 < taken.pop("tokens") < 200
    del taken["id"], taken["created_at"], taken["message"]
    assert taken == {
        "name": "Before:it.all_1-x", "messages": 4, "summaries": [], "compaction": None, "reason": "asked"
    }  # fmt: skip


@pytest.mark.slow
def test_a_snapshot_with_a_prompt_stands_before_the_question_and_forks_there(lab: Home, model: ModelServer) -> None:
    lab.run("one")
    run = lab.run("-s", "0", "--snapshot", "before", "two")
    assert (run.stdout, run.code) == ("You said: two\n", 0)
    lab.run("-s", "0", "three")
    origin = lab.doc()
    assert origin["context"]["snapshots"][0]["message"] == origin["messages"][1]["id"]
    assert lab.run("-s", "0@before", "other").code == 0
    fork, old = lab.docs()
    assert old == origin
    assert texts(fork) == ["user: one", "assistant: You said: one", "user: other", "assistant: You said: other"]
    assert fork["meta"]["forked_from"] == f"{origin['id']}@before"
    assert [message["content"] for message in model.sent[-1]["messages"]] == ["one", "You said: one", "other"]
    assert named(fork) == ["before"]  # it can be gone back to from there, too


@pytest.mark.slow
def test_events_tell_of_snapshots(lab: Home) -> None:
    lab.configure(lab.config.read_text() + "[context]\nsnapshots = 1\n")
    lab.run("one")
    first, second = (events(lab.run("-o", "jsonl", "-s", "0", "--snapshot", name, "more")) for name in ("a", "b"))
    (kept,) = lab.doc()["context"]["snapshots"]
    assert [e["type"] for e in first][:2] == ["snapshot_created", "message_recorded"]
    assert second[0] == {"type": "snapshot_created", "snapshot": kept, "auto": False}
    assert second[1] == {"type": "snapshot_deleted", "snapshot": "a"}
    origin = lab.doc()["id"]
    third = events(lab.run("-o", "jsonl", "-s", "0@b", "other"))
    assert third[:2] == [
        {"type": "session_created", "session": lab.docs()[0]["id"]},
        {"type": "snapshot_restored", "snapshot": "b", "session": origin},
    ]
    fourth = events(lab.run("-o", "jsonl", "-s", "0@-1", "again"))
    assert not any(e["type"].startswith("snapshot") for e in fourth)


REFUSED = [
    (["-s", "0", "--snapshot", "1st"], "letters, digits"),
    (["-s", "0", "--snapshot", "a b"], "letters, digits"),
    (["-s", "0", "--snapshot", "a@b"], "letters, digits"),
    (["-s", "0", "--snapshot", "a" * 65], "64 of them"),
    (["-s", "0", "--snapshot", "auto-7", "hi"], "automatic"),
    (["-s", "0", "--snapshot", " "], "--snapshot is empty"),
    (["--snapshot", "a", "hi"], "nothing yet"),
    (["-s", "@new", "--snapshot", "a", "hi"], "nothing yet"),
    (["-s", "0@0", "--snapshot", "a", "hi"], "nothing yet"),
    (["-s", "@new", "--snapshot", "a"], "no session is named @new"),
    (["--snapshot", "a"], "no prompt"),
    (["-s", "0@1", "--snapshot", "a"], "a point cannot be labelled"),
    (["-s", "0", "--no-save", "--snapshot", "a"], "not saved"),
    (["-s", "0", "--no-save", "--snapshot", "a", "hi"], "not saved"),
    (["-s", "0@nothing", "hi"], "no snapshot named 'nothing'"),
]


@pytest.mark.parametrize(("args", "why"), REFUSED)
def test_what_cannot_be_a_snapshot_is_refused_before_anything_is_saved(home: Home, args: list[str], why: str) -> None:
    home.run("-m", "echo", "one")
    before = home.files()[0].read_bytes()
    run = home.run("-m", "echo", *args)
    assert (run.stdout, run.code, run.stderr.count("\n")) == ("", 2, 1)
    assert why in run.stderr
    assert [path.read_bytes() for path in home.files()] == [before]


def test_where_none_are_kept_none_can_be_taken_and_none_is_lost(home: Home) -> None:
    home.run("-m", "echo", "one")
    home.run("-s", "0", "--snapshot", "a")
    home.configure("[context]\nsnapshots = 0\n")
    for args in (["--snapshot", "b"], ["--snapshot", "b", "hi"]):
        run = home.run("-s", "0", "-m", "echo", *args)
        assert (run.code, run.stdout) == (2, "")
        assert "snapshots under [context]" in run.stderr
    assert home.run("-s", "0", "-m", "echo", "two").code == 0
    assert named(home.doc()) == ["a"]


@pytest.mark.slow
def test_a_session_is_shown_with_its_snapshots_and_what_is_sent_of_it(home: Home) -> None:
    home.run("-m", "echo", "one")
    home.run("-s", "0", "-m", "echo", "two")
    assert "snapshot" not in home.run("--show-session", "0").stdout
    home.run("-s", "0", "--snapshot", "before")
    path, doc = home.files()[0], home.doc()
    ids = [message["id"] for message in doc["messages"]]
    (taken,) = doc["context"]["snapshots"]
    automatic = {**taken, "id": "s2", "name": "auto-1\nx", "message": ids[1], "tokens": 8500, "reason": "auto"}
    doc["context"]["snapshots"].append({**automatic, "created_at": "2026-11-21T09:15:30.000Z"})
    doc["context"]["compaction"] = compaction(ids[2], "m1")
    doc["context"]["summaries"] = [summary("m1", ids[0], ids[2]), {"id": "m0", "cost": 1.0}]
    path.write_text(json.dumps(doc))
    header = home.run("--show-session", "0").stdout.partition("\n\n##")[0].splitlines()
    when = taken["created_at"].replace("T", " ")[:16]
    assert header[-4:] == [
        f"- snapshot: before, {when}, after turn 2 (4 messages), ~{taken['tokens']} tokens, by hand",
        "- snapshot: auto-1 x, 2026-11-21 09:15, after turn 1 (2 messages), ~8,500 tokens, automatic",
        "- compaction: summary, 3 messages, 9,000 → 3,000 tokens",
        "- summaries: 1",
    ]
    cut = home.run("--show-session", "0@1").stdout
    assert "auto-1" in cut
    assert "before," not in cut
    assert "compaction" not in cut
    whole = json.loads(home.run("--show-session", "0", "-o", "json").stdout)
    assert whole["context"]["compaction"]["id"] == doc["context"]["compaction"]["id"]


# ---- many at once


@pytest.mark.slow
def test_processes_that_take_snapshots_at_once_lose_none(lab: Home) -> None:
    lab.configure(lab.config.read_text() + "[context]\nsnapshots = 50\n")
    lab.run("one")
    alone = [lab.start("-s", "0", "--snapshot", f"alone-{number}") for number in range(5)]
    asking = [lab.start("-s", "0", "--snapshot", f"asking-{number}", "more") for number in range(5)]
    for process in (*alone, *asking):
        assert process.communicate(timeout=60)[1] == b""
        assert process.returncode == 0
    taken = [f"{kind}-{number}" for kind in ("alone", "asking") for number in range(5)]
    assert sorted(named(lab.doc())) == taken


@pytest.mark.slow
def test_a_run_that_has_seen_old_snapshots_does_not_bring_them_back(lab: Home, model: ModelServer) -> None:
    lab.configure(lab.config.read_text() + "[context]\nsnapshots = 2\n")
    lab.run("one")
    lab.run("-s", "0", "--snapshot", "a")
    lab.run("-s", "0", "--snapshot", "b")
    release = threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(first, release, *rest, model="m")
    process = lab.start("-s", "0", "--snapshot", "mine", "go")
    assert process.stdout
    assert process.stdout.read(6) == b"first "
    assert named(lab.doc()) == ["b", "mine"]
    for name in ("c", "d"):
        assert lab.run("-s", "0", "--snapshot", name).code == 0
    release.set()
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert lab.doc()["stats"]["turns"] == 2
    assert named(lab.doc()) == ["c", "d"]


# ---- taking and rolling


def test_automatic_names_go_on_from_the_highest_and_are_numbered_apart(store: Store) -> None:
    doc = talk("one")
    told = [snapshots.record(doc, 2, tokens=number) for number in range(4)]
    assert [(kind, fields.get("auto")) for kind, fields in told[0]] == [("snapshot_created", True)]
    assert [fields["snapshot"] for kind, fields in told[3] if kind == "snapshot_deleted"] == ["auto-2"]
    assert named(doc) == ["auto-3", "auto-4"]
    assert [item["tokens"] for item in doc["context"]["snapshots"]] == [2, 3]
    assert snapshots.record(doc, 0) == []
    sessions.save_session(doc, keep_snapshots=2)
    assert named(store()[0]) == ["auto-3", "auto-4"]


def test_an_automatic_one_never_pushes_out_one_by_hand(store: Store) -> None:
    doc = talk("one")
    for name in ("a", "b", "c"):
        snapshots.record(doc, 2, name=name)
    for _ in range(5):
        snapshots.record(doc, 2)
    assert named(doc) == ["b", "c", "auto-4", "auto-5"]


def test_a_name_taken_again_by_hand_moves(store: Store) -> None:
    doc = talk("one")
    snapshots.record(doc, 5, name="here")
    sessions.save_session(doc, keep_snapshots=5)
    stale = sessions.load_session("0")
    ask(doc, "two", "TWO")
    snapshots.record(doc, 5, name="here")
    sessions.save_session(doc, keep_snapshots=5)
    sessions.save_session(stale, tags=["t"])
    (taken,) = store()[0]["context"]["snapshots"]
    assert taken["messages"] == 4
    assert len(sessions.load_at("0@here")["messages"]) == 4


def test_of_one_name_taken_by_two_the_newer_counts_and_automatic_ones_are_numbered_anew(store: Store) -> None:
    talk("one")
    first, second = sessions.load_session("0"), sessions.load_session("0")
    for doc in (first, second):
        snapshots.record(doc, 5, name="here")
        snapshots.record(doc, 5)
    newer = max(first["context"]["snapshots"][0], second["context"]["snapshots"][0], key=lambda s: str(s["created_at"]))
    sessions.save_session(second, keep_snapshots=5)
    sessions.save_session(first, keep_snapshots=5)
    saved = store()[0]
    assert sorted(named(saved)) == ["auto-1", "auto-2", "here"]
    assert snapshots.named(saved["context"], "here")["created_at"] == newer["created_at"]  # type: ignore[index]


def test_nothing_is_taken_of_nothing(store: Store) -> None:
    with pytest.raises(UsageError, match="nothing yet"):
        snapshots.take(new(), name="a", reason="asked", tokens=None)


def test_a_snapshot_is_kept_where_the_file_was_written_by_a_clock_that_is_ahead(store: Store, home: Home) -> None:
    talk("one")
    home.files()[0].write_text(json.dumps({**store()[0], "updated_at": "2099-01-01T00:00:00.000Z"}))
    doc = sessions.load_session("0")
    snapshots.record(doc, 5, name="a")
    sessions.save_session(doc, keep_snapshots=5)
    assert named(store()[0]) == ["a"]


def test_a_save_that_brings_no_snapshot_rolls_none_away(store: Store) -> None:
    doc = talk("one")
    for name in ("a", "b", "c"):
        snapshots.record(doc, 5, name=name)
    sessions.save_session(doc, keep_snapshots=5)
    ask(doc, "two")
    sessions.save_session(doc, keep_snapshots=1)  # the setting is lower now; a question is no reason to forget
    assert named(store()[0]) == ["a", "b", "c"]
    snapshots.record(doc, 1, name="d")
    sessions.save_session(doc, keep_snapshots=1)
    assert named(store()[0]) == ["d"]


# ---- uniting


MOMENT = "2026-01-01T00:{:02}:{:02}.000Z"


def copy_with(taken: Sequence[dict[str, Any]], at: str) -> dict[str, Any]:
    doc = document.migrate({
        "version": 1, "id": "7x2m", "created_at": "2025-01-01T00:00:00.000Z", "updated_at": at,
        "messages": [{"id": "m", "role": "user", "content": "q"}],
    })  # fmt: skip
    doc["context"]["snapshots"] = list(taken)
    return doc


@st.composite
def _writers(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]], int]:
    """Snapshots on disk, those that several processes have taken since they read it, and how many are kept."""
    numbers = draw(st.permutations(range(12)))
    sizes = [draw(st.integers(0, 3)) for _ in range(3)]

    def taken(minute: int, numbers: Sequence[int], count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for at in sorted(numbers[:count]):
            name = draw(st.sampled_from([None, "a", "b", "c", "d"]))
            reason = "asked" if name else "auto"
            moment = MOMENT.format(minute, at)
            found.append({"id": f"s{minute}-{at}", "name": name or f"auto-{at}", "created_at": moment,
                          "message": "m", "reason": reason})  # fmt: skip
        return found

    base: list[dict[str, Any]] = []
    keep = draw(st.integers(1, 4))
    for item in taken(1, range(6), draw(st.integers(0, 6))):
        base = snapshots.rolled([s for s in base if s["name"] != item["name"]] + [item], keep)[0]
    return base, [taken(9, numbers[4 * at :], size) for at, size in enumerate(sizes)], keep


@given(_writers(), st.permutations(range(3)))
def test_whoever_saves_first_the_same_snapshots_stay_and_saving_again_changes_nothing(
    made: tuple[list[dict[str, Any]], list[list[dict[str, Any]]], int], order: list[int]
) -> None:
    base, writers, keep = made
    read_at = MOMENT.format(5, 0)

    def saved(order: Sequence[int]) -> list[dict[str, Any]]:
        disk = copy_with(base, read_at)
        for writer in order:
            ours = copy_with([*base, *copy.deepcopy(writers[writer])], read_at)
            disk = document.union(ours, disk, title=None, tags=(), keep_snapshots=keep)
            disk["updated_at"] = MOMENT.format(20, writer)
            again = document.union(disk, disk, title=None, tags=(), keep_snapshots=keep)
            assert again["context"] == disk["context"]
        stale = document.union(copy_with(base, read_at), disk, title=None, tags=(), keep_snapshots=keep)
        assert stale["context"] == disk["context"]  # what was rolled away stays away
        stale = document.union(copy_with(base, read_at), disk, title=None, tags=())
        assert stale["context"] == disk["context"]
        taken: list[dict[str, Any]] = disk["context"]["snapshots"]
        return taken

    one, other = saved(range(3)), saved(order)
    assert {item["id"] for item in one} == {item["id"] for item in other}
    names = [[item["name"] for item in taken if item["reason"] == "asked"] for taken in (one, other)]
    assert set(names[0]) == set(names[1])
    for taken in (one, other):
        assert len({item["name"] for item in taken}) == len(taken)
        for kind in ("auto", "asked"):
            assert sum(item["reason"] == kind for item in taken) <= keep
    newest = {}
    for item in [*base, *(item for writer in writers for item in writer)]:
        if item["reason"] == "asked":
            newest[item["name"]] = max(item, newest.get(item["name"], item), key=lambda s: str(s["created_at"]))
    expected = sorted(newest.values(), key=lambda s: str(s["created_at"]))[-keep:]
    assert {item["id"] for item in one if item["reason"] == "asked"} == {item["id"] for item in expected}


def test_the_newer_compaction_is_in_force(store: Store) -> None:
    doc = talk("one", "two")
    ids = [message["id"] for message in doc["messages"]]
    one, two = sessions.load_session("0"), sessions.load_session("0")
    one["context"]["compaction"] = compaction(ids[0], at="2026-01-01T00:00:00.000Z")
    two["context"]["compaction"] = compaction(ids[1], at="2026-01-02T00:00:00.000Z")
    sessions.save_session(two)
    sessions.save_session(one)
    assert store()[0]["context"]["compaction"]["upto"] == ids[1]
    assert one["context"]["compaction"]["upto"] == ids[1]
    sessions.save_session(doc)  # who never saw one takes none away
    assert store()[0]["context"]["compaction"]["upto"] == ids[1]


def many_summaries(store: Store) -> dict[str, Any]:
    doc = talk("one", "two")
    first, last = doc["messages"][0]["id"], doc["messages"][1]["id"]
    doc["context"]["summaries"] = [
        summary(f"m{number}", first, last, created_at=MOMENT.format(0, number)) for number in range(8)
    ]
    return doc


def test_summaries_in_use_keep_their_text_and_all_of_them_what_was_paid(store: Store) -> None:
    doc = many_summaries(store)
    stale = copy.deepcopy(doc)
    last = doc["messages"][1]["id"]
    doc["context"]["compaction"] = compaction(last, "m0")
    doc["context"]["snapshots"] = [
        {"id": "s", "name": "s", "created_at": "2099-01-01T00:00:00.000Z", "message": last, "summaries": ["m1"]},
        {"id": "t", "name": "t", "created_at": "2099-01-01T00:00:00.000Z", "message": last,
         "compaction": compaction(last, "m2")},
    ]  # fmt: skip
    sessions.save_session(doc)
    for again in (doc, stale, sessions.load_session("0")):
        sessions.save_session(again, tags=["t"])
        (saved,) = store()
        found = {item["id"]: item for item in saved["context"]["summaries"]}
        assert (saved["usage"]["cost"], len(found)) == (2.0, 8)
        assert {ident for ident in found if "text" in found[ident]} == {"m0", "m1", "m2", "m5", "m6", "m7"}
        assert found["m4"] == {
            "id": "m4", "created_at": MOMENT.format(0, 4), "model": "lab/s", "cost": 0.25, "usage": {"prompt": 5}
        }  # fmt: skip


def test_a_compaction_brings_back_the_text_that_another_run_trimmed(store: Store) -> None:
    doc = many_summaries(store)
    slow = copy.deepcopy(doc)
    sessions.save_session(doc)
    assert "text" not in store()[0]["context"]["summaries"][0]
    slow["context"]["compaction"] = compaction(doc["messages"][1]["id"], "m0")
    sessions.save_session(slow)
    (saved,) = store()
    assert saved["context"]["summaries"][0]["text"] == "what m0 says"
    assert saved["usage"]["cost"] == 2.0


def test_over_many_compactions_summaries_are_trimmed_though_each_takes_a_snapshot(store: Store) -> None:
    doc = new()
    known = doc["context"]
    for number in range(30):
        for turn in range(3):
            ask(doc, f"q{number}.{turn}", "a")
        first, last = doc["messages"][0]["id"], doc["messages"][-3]["id"]
        made = MOMENT.format(number, 0)
        known["summaries"].append(summary(f"m{number}", first, last, text="told " * 800, created_at=made))
        snapshots.record(doc, 5, end=len(doc["messages"]) - 2)
        known = doc["context"]
        known["compaction"] = compaction(last, f"m{number}", made)
        sessions.save_session(doc, keep_snapshots=5)
        known = doc["context"]
    (saved,) = store()
    context = saved["context"]
    assert [item["id"] for item in context["summaries"] if "text" in item] == [f"m{number}" for number in range(24, 30)]
    assert [item["summaries"] for item in context["snapshots"][-2:]] == [["m27", "m28"], ["m28", "m29"]]
    assert len(json.dumps(context)) < 40_000
    assert (saved["usage"]["cost"], len(context["summaries"])) == (30 * 0.25, 30)


def test_a_snapshot_names_no_summary_that_reaches_beyond_it(store: Store) -> None:
    doc = talk("one", "two")
    ids = [message["id"] for message in doc["messages"]]
    doc["context"]["summaries"] = [
        summary("early", ids[0], ids[1]), summary("late", ids[0], ids[3]), {"id": "trimmed", "cost": 1.0}
    ]  # fmt: skip
    taken = [snapshots.take(doc, name=f"s{end}", reason="asked", tokens=1, end=end) for end in (1, 2, 4)]
    assert [snapshot["summaries"] for snapshot in taken] == [[], ["early"], ["late"]]


# ---- restoring


def long_one() -> dict[str, Any]:
    """Four turns, compacted behind the first and behind the third, a snapshot after each turn."""
    doc = new()
    for number in range(4):
        ask(doc, f"q{number}", f"a{number}")
        snapshots.record(doc, 9, name=f"after-{number + 1}")
        ids = [message["id"] for message in doc["messages"]]
        if number == 0:
            doc["context"]["summaries"].append(summary("first", ids[0], ids[1]))
            doc["context"]["compaction"] = compaction(ids[1], "first")
        if number == 2:
            doc["context"]["summaries"].append(summary("long", ids[0], ids[5], cost=0.5))
            doc["context"]["compaction"] = compaction(ids[5], "long")
    doc["context"]["consolidated"] = doc["messages"][3]["id"]
    sessions.save_session(doc, keep_snapshots=9)
    return doc


RESTORED = {  # by point: turns, the summary in force, summaries, snapshots, consolidated (by position)
    "after-1": (1, None, ["first"], 1, 1),  # made later, of what is left: it was paid for
    "after-2": (2, "first", ["first"], 2, 3),
    "after-3": (3, "first", ["first", "long"], 3, 3),
    "after-4": (4, "long", ["first", "long"], 4, 3),
    "0": (0, None, [], 0, None),
    "1": (1, None, ["first"], 1, 1),
    "2": (2, None, ["first"], 2, 3),
    "3": (3, "long", ["first", "long"], 3, 3),
    "-2": (2, None, ["first"], 2, 3),
    "": (4, "long", ["first", "long"], 4, 3),
}


@pytest.mark.parametrize("point", RESTORED)
def test_a_point_has_the_compaction_of_then_and_all_summaries_of_what_is_left(store: Store, point: str) -> None:
    doc = long_one()
    before = copy.deepcopy(store()[0])
    fork = sessions.fork_session(sessions.load_at(f"0@{point}"), point)
    sessions.save_session(fork, keep_snapshots=9)
    saved, old = store()
    turns, force, told, taken, consolidated = RESTORED[point]
    found = saved["context"]
    assert old == before
    assert saved["stats"]["turns"] == turns
    assert (found["compaction"] or {}).get("summary") == force
    assert [item["id"] for item in found["summaries"]] == told
    assert named(saved) == [f"after-{number + 1}" for number in range(taken)]
    assert found["consolidated"] == (None if consolidated is None else doc["messages"][consolidated]["id"])
    costs = {"first": 0.25, "long": 0.5}
    assert (saved["usage"]["cost"] or 0) == sum(costs[ident] for ident in told)


def test_asking_from_before_a_compaction_pays_for_no_second_summary(home: Home) -> None:
    with closing(Talker(8192)) as talker:
        configure(home, talker)
        kept(home, chat(70))
        assert home.run("-s", "0", "--snapshot", "before").code == 0
        assert home.run("-s", "0", "and now?").code == 0
        (made,), paid = home.doc()["context"]["summaries"], len(for_summaries(talker))
        assert home.run("-s", "0@before", "and then?").code == 0
        fork = home.docs()[0]
        assert fork["context"]["summaries"] == [made]
        assert fork["context"]["compaction"]["summary"] == made["id"]
        assert len(for_summaries(talker)) == paid > 0


def test_a_mark_of_what_was_consolidated_that_is_nowhere_is_none(store: Store) -> None:
    doc = long_one()
    doc["context"]["consolidated"] = "gone"
    assert document.at_point(doc, "2")["context"]["consolidated"] is None


def test_a_compaction_without_its_summary_is_not_restored(store: Store) -> None:
    doc = long_one()
    doc["context"]["summaries"] = [{"id": "first", "cost": 0.25}]
    assert document.at_point(doc, "after-2")["context"]["compaction"] is None


KEPT = {"": True, "4": True, "3": False, "2": False, "after-4": True, "before": False}


@pytest.mark.parametrize(("point", "in_force"), KEPT.items())
def test_a_fork_from_before_a_compaction_is_not_sent_under_it(store: Store, point: str, in_force: bool) -> None:
    doc = long_one()
    ask(doc, "q4", "a4")
    context, ids = doc["context"], [message["id"] for message in doc["messages"]]
    made = {**compaction(ids[3]), "kept": 4}
    before = {**context["snapshots"][2], "id": "b", "name": "before", "compaction": made}
    taken = [before, {**context["snapshots"][3], "compaction": made}]
    doc["context"] = {**context, "compaction": made, "snapshots": taken}
    assert document.at_point(doc, point)["context"]["compaction"] == (made if in_force else None)
    made["kept"] = None  # then it counts wherever its last message is
    assert document.at_point(doc, point)["context"]["compaction"] == made


# ---- what the code trusts


@pytest.mark.parametrize(
    "inside",
    [
        {"compaction": []}, {"compaction": "x"}, {"compaction": {"upto": 7}}, {"compaction": {"at": 7}},
        {"compaction": {"before": "9"}}, {"compaction": {"summary": ["s"]}}, {"consolidated": 7},
        {"snapshots": [{"id": "s", "name": 7}]}, {"snapshots": [{"id": "s", "message": []}]},
        {"snapshots": [{"id": "s", "created_at": 7}]}, {"snapshots": [{"id": "s", "tokens": "7"}]},
        {"snapshots": [{"id": "s", "summaries": [[]]}]}, {"snapshots": [{"id": "s", "summaries": {}}]},
        {"snapshots": [{"id": "s", "compaction": {"upto": []}}]}, {"snapshots": [{"id": "s", "reason": []}]},
        {"summaries": [{"id": "s", "text": 7}]}, {"summaries": [{"id": "s", "first": []}]},
        {"summaries": [{"id": "s", "last": {}}]}, {"summaries": [{"id": "s", "created_at": 1}]},
    ],
)  # fmt: skip
def test_a_context_of_a_wrong_type_is_an_error_that_names_the_file(store: Store, inside: dict[str, Any]) -> None:
    path = sessions.save_session(talk("one"))
    doc = {**store()[0], "context": inside}
    with open(path, "w") as file:
        json.dump(doc, file)
    with pytest.raises(BadSession, match=r"not a session: .*(wrong type|ids)") as bad:
        sessions.load_session("0")
    assert "\n" not in str(bad.value)


def test_a_context_with_as_little_as_there_can_be_does_no_harm(home: Home) -> None:
    home.run("-m", "echo", "one")
    path, doc = home.files()[0], home.doc()
    doc["context"] = {"snapshots": [{"id": "s"}], "summaries": [{"id": "t"}], "compaction": {}, "x": 1}
    path.write_text(json.dumps(doc))
    for args in (["--show-session", "0"], ["-s", "0", "-m", "echo", "more"], ["-s", "0", "--snapshot", "a"],
                 ["-s", "0@a", "-m", "echo", "x"], ["-s", "0@1", "-m", "echo", "more"]):  # fmt: skip
        run = home.run(*args)
        assert (run.code, run.stderr) == (0, ""), args
    assert home.docs()[-1]["context"]["x"] == 1
