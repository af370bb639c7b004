"""Compaction through the command: what is sent, kept and told when a session is brought into a window."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gptsh.core.summaries import MARK
from tests.conftest import Home, Result, wait_for
from tests.server import ModelServer, prompt_tokens
from tests.talks import (
    TOLD,
    Talker,
    asked,
    chat,
    configure,
    for_summaries,
    kept,
    prose,
    sum_up,
    text_in,
    whole,
)
from tests.test_structured import events, told

WINDOW, BUDGET = 8192, 6144  # tokens
TURNS = 70  # of the session that all begins with; it takes 10,600 tokens at most


@pytest.fixture
def talker() -> Iterator[Talker]:
    """A model with answers of some length and a small window, which it enforces and tells."""
    server = Talker()
    server.tell(WINDOW, "m", "s")
    server.window = WINDOW
    yield server
    server.close()


@pytest.fixture
def long(home: Home, talker: Talker) -> Home:
    """A home with one session, which is to be compacted when it goes on."""
    configure(home, talker)
    kept(home, chat(TURNS))
    return home


def questions(doc: dict[str, Any]) -> list[str]:
    return [message["content"] for message in doc["messages"] if message["role"] == "user"]


def force(home: Home) -> dict[str, Any]:
    """The compaction in force."""
    found: dict[str, Any] = home.doc()["context"]["compaction"]
    return found


def kinds(run: Result) -> list[str]:
    """The types of the events, of each kind in a row one."""
    found = [event["type"] for event in events(run)]
    return [kind for at, kind in enumerate(found) if kind != "text" or found[at - 1] != "text"]


# ---- what is told


def test_events_and_report_tell_what_happened(long: Home, talker: Talker) -> None:
    before = long.doc()
    dry = json.loads(long.run("-s", "0", "--dry-run", "-o", "json", "and now?").stdout)["context"]
    assert long.doc() == before
    assert asked(talker) == for_summaries(talker) == []
    run = long.run("-s", "0", "-o", "jsonl", "and now?")
    doc, (body,) = long.doc(), asked(talker)
    assert kinds(run) == [
        "message_recorded", "snapshot_created", "compressed", "text", "usage", "message_recorded", "session_saved",
        "done",
    ]  # fmt: skip
    _, created, compressed, *_, done = (event for event in events(run) if event["type"] != "text")
    record, (snapshot,) = doc["context"]["compaction"], doc["context"]["snapshots"]
    assert created == {"type": "snapshot_created", "snapshot": snapshot, "auto": True}
    assert (snapshot["name"], snapshot["reason"], snapshot["compaction"]) == ("auto-1", "auto", None)
    assert snapshot["message"] == before["messages"][-1]["id"]
    assert compressed == {
        "type": "compressed", "strategy": "summary", "reason": "auto", "before": record["before"],
        "after": record["after"], "included": TURNS + 3 + 1, "summarized": TURNS - 3, "left_out": 0,
    }  # fmt: skip
    report = done["context"]
    assert report == {**dry, "tokens": report["tokens"], "at_most": report["at_most"]}
    assert dry["at_most"] >= report["at_most"] >= prompt_tokens(body)
    assert report["tokens"] == record["after"]
    assert (report["included"], report["summarized"], report["left_out"]) == (TURNS + 4, TURNS - 3, 0)
    assert [said for said in questions(doc) if said not in text_in(body)] == []
    assert TOLD in text_in(body)
    assert doc["messages"][-1]["compaction"] == record["id"]
    (summary,) = doc["context"]["summaries"]
    ids = [message["id"] for message in doc["messages"]]
    assert (summary["text"], summary["model"], summary["messages"]) == (TOLD, "lab/s", 2 * TURNS - 5)
    assert (ids.index(summary["first"]), ids.index(summary["last"])) == (0, 2 * TURNS - 6)
    assert summary["last"] == record["upto"]
    assert record["summary"] == summary["id"]

    second = long.run("-s", "0", "-o", "json", "and then?")
    assert (second.code, second.stderr) == (0, "")
    report, body = told(second)["context"], asked(talker)[-1]
    assert report["strategy"] == "summary"
    assert prompt_tokens(body) <= report["at_most"] <= 1.1 * prompt_tokens(body)  # the first was reported
    assert report["included"] + report["summarized"] == 2 * TURNS + 3
    assert force(long) == record


def test_a_person_reads_one_line_and_can_go_back(long: Home, talker: Talker) -> None:
    run = long.run("-s", "0", "and now?")
    doc = long.doc()
    record = force(long)
    assert run.stderr == (
        f"gptsh: ~{record['before']:,} tokens of the session are sent as ~{record['after']:,} (summary): "
        f"-s {doc['id']}@auto-1 goes back\n"
    )
    assert run.stdout == doc["messages"][-1]["content"] + "\n"
    shown = long.run("--show-session", "0").stdout
    assert "\nsnapshot auto-1, " in shown
    assert f"\ncompaction summary, {2 * TURNS - 5} messages, " in shown
    assert "\nsummaries 1\n" in shown


# ---- a summary that cannot be had

Fails = Callable[[ModelServer], None]
FAILURES: dict[str, tuple[Fails, str, bool]] = {  # what the summariser does, what is said, whether it was paid
    "500": (lambda m: m.refuse(500, {"error": {"message": "broken"}}, model="s"), "lab refused (500): broken", False),
    "401": (lambda m: m.refuse(401, {"error": {"message": "no"}}, model="s"), "lab refused the key (401): no", False),
    "404": (lambda m: m.refuse(404, {"error": {"message": "no model s"}}, model="s"), "no model s", False),
    "hangs up": (lambda m: m.script(status=0, model="s"), "broke off", False),
    "nothing": (lambda m: sum_up(m, ""), "lab/s answered nothing", True),
    "thinks only": (lambda m: sum_up(m, "<think>They built it, I think.</think>\n"), "lab/s answered nothing", True),
}


@pytest.mark.parametrize("name", FAILURES)
def test_without_a_summary_the_question_is_answered_all_the_same(long: Home, talker: Talker, name: str) -> None:
    fails, why, paid = FAILURES[name]
    before = long.doc()
    fails(talker)
    run = long.run("-s", "0", "-o", "jsonl", "and now?")
    doc, (body,) = long.doc(), asked(talker)
    assert run.code == 0
    notes = run.stderr.splitlines()
    assert len(notes) == 2
    assert notes[0].startswith("gptsh: no summary could be made: ")
    assert why in notes[0]
    assert "(minimal)" in notes[1]
    assert kinds(run)[:4] == ["message_recorded", "compression_error", "snapshot_created", "compressed"]
    assert why in events(run)[1]["error"]
    assert doc["messages"][:-2] == before["messages"]
    assert questions(doc)[-1] == "and now?"
    assert [said for said in questions(doc) if said not in text_in(body)] == []  # they fit
    assert doc["messages"][-3]["content"] in text_in(body)
    assert force(long)["strategy"] == "minimal"
    assert [summary.get("text") for summary in doc["context"]["summaries"]] == [None] * paid
    assert len(for_summaries(talker)) == 1
    assert long.run("-s", "0", "and then?").stderr == ""  # and what it costs not to have one is paid once
    assert len(for_summaries(talker)) == 1


@pytest.mark.parametrize("name", FAILURES)
def test_a_compaction_that_was_asked_for_fails_without_its_summary(long: Home, talker: Talker, name: str) -> None:
    fails, why, paid = FAILURES[name]
    before = long.doc()
    fails(talker)
    run = long.run("-s", "0", "--compact", "--apply")
    after = long.doc()
    assert (run.stdout, run.code) == ("", 1)
    assert why in run.stderr
    assert after["messages"] == before["messages"]
    summaries = after["context"].pop("summaries")
    assert after["context"] == {key: before["context"][key] for key in after["context"]}
    assert [("text" in summary, summary["usage"]["prompt"]) for summary in summaries] == [(False, 11)] * paid
    assert asked(talker) == []


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_summary_that_is_too_long_is_cut_at_a_sentence(long: Home, talker: Talker, finish: str) -> None:
    sum_up(talker, *["They built it all. " * 2000] * 4, finish=finish)
    run = long.run("-s", "0", "and now?")
    assert (run.code, run.stderr.count("\n")) == (0, 1)
    (summary,) = long.doc()["context"]["summaries"]
    assert 400 < summary["tokens"] <= 1200
    assert summary["text"].endswith(f"built it all. {MARK}")
    assert summary["text"] in text_in(asked(talker)[0])
    assert len(for_summaries(talker)) <= 4
    assert all(prompt_tokens(body) + body["max_tokens"] <= WINDOW for body in for_summaries(talker))


@pytest.mark.parametrize("args", [["and now?"], ["--compact", "--apply"], ["--compact", "--apply", "and now?"]])
def test_ctrl_c_while_a_summary_is_waited_for(long: Home, talker: Talker, args: list[str]) -> None:
    before = long.doc()
    release = threading.Event()
    talker.script(release, model="s")
    process = long.start("-s", "0", *args)
    wait_until(lambda: for_summaries(talker))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    release.set()
    doc = long.doc()
    assert (wait_for(process), out) == (130, b"")
    assert doc["context"] == before["context"]
    assert asked(talker) == []
    if "and now?" in args:
        assert questions(doc)[-1] == "and now?"
        assert f"'gptsh -s {doc['id']}' asks it again" in err.decode()
        assert long.run("-s", "0").code == 0
        assert force(long)["strategy"] == "summary"
    else:
        assert doc == before


def test_a_deadline_while_a_summary_is_waited_for(long: Home, talker: Talker) -> None:
    release = threading.Event()
    talker.script(release, model="s")
    run = long.run("-s", "0", "--timeout", "1.5", "and now?")
    release.set()
    assert (run.code, run.stdout) == (124, "")
    assert questions(long.doc())[-1] == "and now?"
    assert long.doc()["context"]["compaction"] is None


def wait_until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)
