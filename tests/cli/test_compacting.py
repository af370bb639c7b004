"""Compaction through the command: what is sent, kept and told when a session is brought into a window."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gptsh.core.summaries import MARK
from tests.support.answers import events, told
from tests.support.anthropic_server import AnthropicServer, said, signature, stream, thought, tool
from tests.support.claude import KEY, SONNET
from tests.support.home import Home, wait_for
from tests.support.ollama_server import Known, OllamaServer, last, line, size_of
from tests.support.server import ModelServer, prompt_tokens
from tests.support.strict import strict
from tests.support.talks import (
    BUDGET,
    TOLD,
    TURNS,
    WINDOW,
    Talker,
    asked,
    chat,
    configure,
    for_summaries,
    force,
    kept,
    kinds,
    questions,
    run_all,
    sum_up,
    text_in,
    too_long,
    whole,
)
from tests.support.tools import MORE, SERVER, call, calling
from tests.support.tools import configure as configure_tools

HAIKU = "anthropic/claude-haiku-4-5"


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
    assert report == {**dry, "tokens": record["after"], "at_most": report["at_most"]}
    assert dry["at_most"] >= report["at_most"] >= prompt_tokens(body)


def test_what_is_sent_and_kept_of_a_compaction(long: Home, talker: Talker) -> None:
    long.run("-s", "0", "and now?")
    doc, (body,), record = long.doc(), asked(talker), force(long)
    assert [words for words in questions(doc) if words not in text_in(body)] == []
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


@pytest.mark.slow
def test_a_person_reads_one_line_and_can_go_back(long: Home, talker: Talker) -> None:
    run = long.run("-s", "0", "and now?")
    doc = long.doc()
    record = force(long)
    assert run.stderr == (
        f"gptsh: ~{record['before']:,} tokens of the session are sent as ~{record['after']:,} (summary); "
        f"snapshot {doc['id']}@auto-1\n"
    )
    assert run.stdout == doc["messages"][-1]["content"] + "\n"
    shown = long.run("--show-session", "0").stdout
    assert "\n- snapshot: auto-1, " in shown
    assert f"\n- compaction: summary, {2 * TURNS - 5} messages, " in shown
    assert "\n- summaries: 1\n" in shown


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


SOME = [name if name in ("500", "thinks only") else pytest.param(name, marks=pytest.mark.slow) for name in FAILURES]


@pytest.mark.parametrize("name", SOME)
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
    assert [words for words in questions(doc) if words not in text_in(body)] == []  # they fit
    assert doc["messages"][-3]["content"] in text_in(body)
    assert force(long)["strategy"] == "minimal"
    assert [summary.get("text") for summary in doc["context"]["summaries"]] == [None] * paid
    assert len(for_summaries(talker)) == 1
    assert long.run("-s", "0", "and then?").stderr == ""  # and what it costs not to have one is paid once
    assert len(for_summaries(talker)) == 1


@pytest.mark.parametrize("name", SOME)
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


def test_a_small_model_that_nobody_knows_any_more_costs_a_note(home: Home, talker: Talker) -> None:
    configure(home, talker)
    kept(home, chat(TURNS), small="gone/s")
    assert home.run("-s", "0", "--compact", "--apply").code == 2
    run = home.run("-s", "0", "and now?")
    assert run.code == 0
    assert "no summary could be made: 'gone' of the model 'gone/s' is no known provider" in run.stderr
    assert len(asked(talker)) == 1


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


@pytest.mark.parametrize(
    "args",
    [
        ["and now?"],
        ["--compact", "--apply"],
        pytest.param(["--compact", "--apply", "and now?"], marks=pytest.mark.slow),
    ],
)
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


@pytest.mark.slow
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


# ---- a window that nobody knows until a server refuses


def test_a_refusal_that_names_the_window_is_answered_by_one_compaction(untold: Home, talker: Talker) -> None:
    run = untold.run("-s", "0", "-o", "jsonl", "and now?")
    first, second = map(prompt_tokens, asked(talker))
    assert first > WINDOW > second
    assert run.code == 0
    assert kinds(run)[:3] == ["message_recorded", "snapshot_created", "compressed"]
    record, report = force(untold), events(run)[-1]["context"]
    assert (record["reason"], record["budget"]) == ("refused", BUDGET)
    assert (report["window"], report["strategy"]) == (WINDOW, record["strategy"])
    assert [message["role"] for message in untold.doc()["messages"]].count("assistant") == 101
    again = untold.run("-s", "0", "and then?")
    assert (again.code, again.stderr) == (0, "")  # nothing is refused now: the compaction is in force
    assert len(asked(talker)) == 3


VLLM = (
    "You passed at least 8193 input tokens and requested 0 output tokens. However, the model's context length is only "
    "8192 tokens, resulting in a maximum input length of 8192 tokens."
)


def test_a_refusal_that_names_no_size_of_the_prompt_serves_as_well(untold: Home, talker: Talker) -> None:
    talker.window = None
    talker.refuse(400, too_long(VLLM), model="m")
    assert untold.run("-s", "0", "and now?").code == 0
    assert prompt_tokens(asked(talker)[1]) <= BUDGET
    assert force(untold)["budget"] == BUDGET


@pytest.mark.parametrize(
    ("refusals", "requests"),
    [
        (["maximum context length is 4096 tokens. However, your messages resulted in 9000 tokens."] * 2, 2),
        (["prompt is too long"], 1),
        (["maximum context length is 900000 tokens. However, your messages resulted in 999999 tokens."] * 2, 2),
    ],
    ids=["twice", "no number", "a window that has room"],
)
def test_a_refusal_that_stays_one_keeps_the_question(
    untold: Home, talker: Talker, refusals: list[str], requests: int
) -> None:
    talker.window = None
    for words in refusals:
        talker.refuse(400, too_long(f"This model's {words}"), model="m")
    run = untold.run("-s", "0", "and now?")
    doc = untold.doc()
    assert (run.stdout, run.code) == ("", 6)
    assert f"the question is kept in session {doc['id']}" in run.stderr
    assert doc["messages"][-1]["content"] == "and now?"
    assert len(asked(talker)) == requests


def test_where_compaction_is_off_what_does_not_fit_is_refused(long: Home, talker: Talker) -> None:
    configure(long, talker, '[context]\ncompact = "off"\n')
    before = long.doc()
    run = long.run("-s", "0", "and now?")
    assert (run.stdout, run.code) == ("", 6)
    assert "the window has room for 6,144" in run.stderr
    assert (long.doc(), talker.sent.count(None), asked(talker)) == (before, len(talker.sent), [])
    assert long.run("-s", "0", "--compact", "--apply").code == 0
    assert long.run("-s", "0", "and now?").code == 0  # what was asked for stands


# ---- rounds of tools


@pytest.mark.slow
def test_results_of_tools_that_outgrow_the_window_within_a_turn(home: Home, talker: Talker) -> None:
    configure_tools(home, talker)
    home.configure(home.config.read_text().replace('tools = ["good"]', 'tools = ["good"]\nmodel_small = "lab/s"'))
    talker.refuses = strict("openai")
    for number in range(1, 5):
        talker.script(*calling(call("repeat", number=1, text=f"line {number} of it\n", times=4000)), model="m")
    talker.say("It is done.", model="m")
    sum_up(talker, *[TOLD] * 8)
    run = home.run("do it four times")
    doc = home.doc()
    assert (run.stdout, run.code) == ("It is done.\n", 0)
    assert [message["role"] for message in doc["messages"]] == ["user", *["assistant", "tool"] * 4, "assistant"]
    results = [message["content"] for message in doc["messages"] if message["role"] == "tool"]
    assert results == [f"line {number} of it\n" * 4000 for number in range(1, 5)]
    assert len(asked(talker)) == 5
    assert all(prompt_tokens(body) <= BUDGET for body in asked(talker))
    assert all("do it four times" in text_in(body) for body in asked(talker))
    assert "line 4 of it" in text_in(asked(talker)[-1])
    assert home.run("-s", "0", "--no-tools", "and?").code == 0


# ---- by hand


@pytest.mark.slow
def test_compact_shows_and_apply_does_it(long: Home, talker: Talker) -> None:
    before = long.files()[0].read_bytes()
    shown = long.run("-s", "0", "--compact")
    ident = long.doc()["id"]
    lines = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
    assert (shown.code, shown.stderr) == (0, "")
    assert lines | {"tokens": ""} == {
        "session": ident, "strategy": "summary", "tokens": "", "budget": "6,144 tokens",
        "messages": f"{TURNS + 3} as they are, {TURNS - 3} summarized, 0 left out",
    }  # fmt: skip
    assert long.files()[0].read_bytes() == before
    assert asked(talker) == for_summaries(talker) == []
    report = told(long.run("-s", "0", "--compact", "-o", "json"))
    assert (report["changes"], report["applied"], report["error"]) == (True, False, None)
    assert lines["tokens"] == f"~{report['before']:,} -> ~{report['after']:,}"
    done = told(long.run("-s", "0", "--compact", "--apply", "-o", "json"))
    assert (done["applied"], done["before"], done["budget"], done["window"]) == (True, report["before"], BUDGET, WINDOW)
    assert done["after"] <= report["after"]
    assert (force(long)["reason"], force(long)["after"]) == ("asked", done["after"])
    assert asked(talker) == []
    run = long.run("-s", "0", "-o", "json", "and now?")
    assert run.stderr == ""
    assert told(run)["context"]["strategy"] == "summary"


@pytest.mark.slow
def test_compact_as_events(long: Home) -> None:
    shown = events(long.run("-s", "0", "--compact", "-o", "jsonl"))
    assert [(event["type"], event["applied"]) for event in shown] == [("done", False)]
    done = events(long.run("-s", "0", "--compact", "--apply", "-o", "jsonl"))
    assert [event["type"] for event in done] == ["snapshot_created", "compressed", "done"]
    assert done[-1]["applied"] is True
    again = events(long.run("-s", "0", "--compact", "--apply", "-o", "jsonl"))
    assert [event["type"] for event in again] == ["compression_skipped", "done"]
    assert (again[-1]["changes"], again[-1]["applied"]) == (False, False)


def test_compact_with_a_question(long: Home, talker: Talker) -> None:
    run = long.run("-s", "0", "--compact", "--apply", "-o", "jsonl", "and now?")
    assert run.code == 0
    assert kinds(run)[:3] == ["message_recorded", "snapshot_created", "compressed"]
    assert force(long)["reason"] == "asked"
    again = long.run("-s", "0", "--compact", "--apply", "and then?")
    assert (again.code, again.stderr) == (0, "")  # nothing would be shorter, and the question is answered
    assert len(asked(talker)) == 2


def test_nothing_is_compacted_where_nothing_would_be_shorter(home: Home, talker: Talker) -> None:
    configure(home, talker)
    kept(home, chat(6, of_answers=3))
    shown = home.run("-s", "0", "--compact")
    assert "strategy    full, as now: nothing would be shorter\n" in shown.stdout
    before = home.files()[0].read_bytes()
    assert home.run("-s", "0", "--compact", "--apply").stdout == shown.stdout
    assert home.files()[0].read_bytes() == before


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["-s", "@new", "--compact"], "--compact needs a session"),
        (["--compact"], "--compact needs a session"),
        (["-n", "--compact"], "--compact needs a session"),
        (["-s", "0@2", "--compact", "--apply"], "a point cannot be compacted"),
        (["-s", "0", "--no-save", "--compact", "--apply"], "not saved"),
        (["-s", "0", "--apply"], "--apply goes with --compact"),
        (["-s", "0", "--apply", "hi"], "--apply goes with --compact"),
        (["-s", "0", "--compact", "hi"], "--compact shows, and asks nothing"),
    ],
)
def test_what_cannot_be_compacted_is_refused(long: Home, talker: Talker, args: list[str], why: str) -> None:
    before = long.files()[0].read_bytes()
    run = long.run(*args)
    assert (run.stdout, run.code, run.stderr.count("\n")) == ("", 2, 1)
    assert why in run.stderr
    assert [path.read_bytes() for path in long.files()] == [before]
    assert talker.asked == []


# ---- going back


@pytest.mark.slow
def test_the_snapshot_goes_back_to_what_was_sent_before(home: Home, talker: Talker) -> None:
    configure(home, talker)
    kept(home, chat(30))
    plain = told(home.run("-s", "0", "--no-save", "-o", "json", "and now?"))
    assert plain["context"]["strategy"] == "full"
    before = home.doc()
    assert home.run("-s", "0", "--compact", "--apply").code == 0
    assert home.doc()["context"]["snapshots"][0]["message"] == before["messages"][-1]["id"]
    assert told(home.run("-s", "0", "--no-save", "-o", "json", "and now?"))["context"]["strategy"] == "summary"
    home.run("-s", "0", "something else")
    back = told(home.run("-s", "0@auto-1", "-o", "json", "and now?"))
    first, *_, last = asked(talker)
    assert last["messages"] == first["messages"]
    assert back["context"] == plain["context"]


@pytest.mark.slow
def test_snapshots_roll_and_what_was_paid_stays_counted(home: Home, talker: Talker) -> None:
    configure(home, talker)
    kept(home, chat(12))
    run_all(home, [*[["-s", "0", "more"]] * 3, ["-s", "0", "--compact", "--apply"]] * 8)
    context = home.doc()["context"]
    assert [item["name"] for item in context["snapshots"]] == ["auto-4", "auto-5", "auto-6", "auto-7", "auto-8"]
    calls = len(for_summaries(talker))
    assert calls >= 8
    assert len(context["summaries"]) == 8
    assert all(summary["usage"]["prompt"] > 0 for summary in context["summaries"])
    assert context["compaction"]["summary"] == context["summaries"][-1]["id"]
    for name in ("auto-4", "auto-8"):
        assert "strategy    summary" in home.run("-s", f"0@{name}", "--dry-run", "and?").stdout


@pytest.mark.slow
def test_no_snapshots_where_none_are_wanted(long: Home, talker: Talker) -> None:
    configure(long, talker, "[context]\nsnapshots = 0\n")
    run = long.run("-s", "0", "-o", "jsonl", "and now?")
    assert "snapshot_created" not in kinds(run)
    assert "compressed" in kinds(run)
    assert run.stderr.endswith("(summary)\n")  # and nothing says how to go back
    assert long.doc()["context"]["snapshots"] == []


@pytest.mark.slow
def test_an_aged_summary_is_condensed(home: Home, talker: Talker) -> None:
    configure(home, talker, "[context]\nsummary_tokens = 400\n")
    kept(home, chat(TURNS))
    sum_up(talker, *["They built the parser, and then the writer. " * 50] * 4)
    assert home.run("-s", "0", "--compact", "--apply").code == 0
    long_one = home.doc()["context"]["summaries"][-1]
    configure(home, talker, "[context]\nsummary_tokens = 100\n")
    run_all(home, [["-s", "0", f"more {number}"] for number in range(6)])
    run = home.run("-s", "0", "--compact", "--apply", "-o", "jsonl")
    aged = next(event for event in events(run) if event["type"] == "summary_aged")
    assert aged["before"] == long_one["tokens"] > 1.5 * 100 >= aged["after"]
    assert home.doc()["context"]["summaries"][-1]["tokens"] == aged["after"]


# ---- two at once, and other ways


def test_two_processes_that_compact_one_session_at_once(long: Home, talker: Talker) -> None:
    release = threading.Event()
    usage = {"prompt_tokens": 2000, "completion_tokens": 9, "total_tokens": 2009}
    for _ in range(2):
        talker.script(release, *whole(TOLD, usage=usage).steps, model="s", headers={"Content-Type": "application/json"})
    before = long.doc()
    processes = [long.start("-s", "0", f"turn {number}") for number in range(2)]
    wait_until(lambda: len(for_summaries(talker)) == 2)
    release.set()
    errors = [process.communicate(timeout=30)[1].decode() for process in processes]
    assert [wait_for(process) for process in processes] == [0, 0]
    doc = long.doc()
    context, added = doc["context"], doc["messages"][2 * TURNS :]
    assert doc["messages"][: 2 * TURNS] == before["messages"]
    assert [message["role"] for message in added] == ["user", "assistant"] * 2
    assert {added[0]["content"], added[2]["content"]} == {"turn 0", "turn 1"}
    assert all(len(message["content"]) > 100 for message in added[1::2])
    paid = [summary["usage"]["prompt"] for summary in context["summaries"]]
    assert len(paid) == 2
    assert min(paid) >= 2000
    assert context["compaction"]["summary"] in [summary["id"] for summary in context["summaries"]]
    assert context["compaction"]["id"] in [message["compaction"] for message in added[1::2]]
    assert sorted(item["name"] for item in context["snapshots"]) == ["auto-1", "auto-2"]
    assert sorted(error[error.index("@") :] for error in errors) == ["@auto-1\n", "@auto-2\n"]
    calls = len(for_summaries(talker))
    third = long.run("-s", "0", "a third")
    assert (third.code, third.stderr) == (0, "")
    assert len(for_summaries(talker)) == calls
    assert force(long) == context["compaction"]


def test_what_is_not_saved_is_compacted_all_the_same(long: Home, talker: Talker) -> None:
    before = long.files()[0].read_bytes()
    run = long.run("-s", "0", "--no-save", "and now?")
    assert run.code == 0
    assert run.stderr.endswith("(summary)\n")
    assert TOLD in text_in(asked(talker)[0])
    assert [path.read_bytes() for path in long.files()] == [before]


@pytest.mark.slow
def test_a_larger_window_gets_all_again_and_the_small_one_what_it_had(long: Home, talker: Talker) -> None:
    talker.pages["/v1/models"]["data"].append({"id": "big", "object": "model", "max_model_len": 65536})
    assert long.run("-s", "0", "one").code == 0
    record, calls = force(long), len(for_summaries(talker))
    talker.window = 65536
    big = told(long.run("-s", "0", "-m", "lab/big", "-o", "json", "two"))["context"]
    assert (big["strategy"], big["included"], big["window"]) == ("full", 2 * TURNS + 3, 65536)
    assert TOLD not in text_in(asked(talker)[-1])
    talker.window = WINDOW
    small = told(long.run("-s", "0", "-m", "lab/m", "-o", "json", "three"))["context"]
    assert (small["strategy"], small["window"]) == ("summary", WINDOW)
    assert (force(long), len(for_summaries(talker))) == (record, calls)
    echo = told(long.run("-s", "0", "-m", "echo", "-o", "json", "four"))
    assert (echo["text"], echo["error"]) == ("You said: four", None)
    assert len(for_summaries(talker)) == calls


def test_ollama_is_sent_what_fits_its_window(home: Home) -> None:
    server = OllamaServer()
    home.env |= {"OLLAMA_API_BASE": server.root, "GPTSH_MODEL": "ollama/m"}
    more = '[agents.default]\nmodel_small = "ollama/s"\n[sessions]\ntitles = "off"\n'
    home.configure(f"{more}[providers.ollama]\ncontext_window = {WINDOW}\n")
    server.models["s:latest"] = Known()
    kept(home, chat(TURNS), small="ollama/s")
    for text in ("They built the parser.",) * 4:
        server.answer(whole_line(text), model="s")
    server.answer(line(thinking="Hm."), line("Done."), last(prompt=2500), model="m")
    run = home.run("-s", "0", "-m", "ollama/m", "-p", "reasoning_effort=high", "-o", "json", "and now?")
    again = home.run("-s", "0", "and then?")
    server.close()
    assert (told(run)["text"], told(run)["context"]["strategy"], run.code) == ("Done.", "summary", 0)
    sent = [body for body in server.chats if body["model"] == "m"]
    assert sent[0]["think"] is True
    assert "They built the parser." in text_in(sent[0])
    assert all(size_of(body) <= BUDGET for body in sent)
    assert (again.code, again.stderr, len(sent)) == (0, "", 2)
    assert len(server.chats) - len(sent) <= 4


def whole_line(text: str) -> dict[str, Any]:
    return {**last(), "message": {"role": "assistant", "content": text}}


@pytest.mark.slow
def test_claude_is_sent_a_session_that_is_compacted_between_its_thoughts(home: Home) -> None:
    server = AnthropicServer()
    home.env["ANTHROPIC_API_KEY"] = KEY
    tools = MORE.format(python=json.dumps(sys.executable), server=json.dumps(str(SERVER)), approved='"*"')
    base = server.base_url.removesuffix("/v1")
    home.configure(
        f'[agents.default]\nmodel = "{SONNET}"\nmodel_small = "{HAIKU}"\ntools = ["good"]\n'
        f'[providers.anthropic]\nbase_url = "{base}"\ncontext_window = {WINDOW}\n{tools}'
    )
    messages = chat(TURNS)
    for message in messages:
        if message["role"] == "assistant":
            thinking = f"I think of {message['content'][:20]}"  # type: ignore[index]
            block = {"type": "thinking", "thinking": thinking, "signature": signature(thinking)}
            message |= {"thinking": [block], "model": SONNET, "provider": "anthropic"}  # type: ignore[typeddict-item]
    kept(home, messages, small=HAIKU)
    name = SONNET.partition("/")[2]
    repeats = tool(2, "t1", "good__repeat", '{"text":"a line of it\\n","times":4000}')
    server.script(*stream(thought(0, "I repeat."), said(1, "I repeat."), repeats, stop="tool_use"), model=name)
    server.script(*stream(thought(0, "Long."), said(1, "It is long.")), model=name)
    run = home.run("-s", "0", "-m", SONNET, "--tools", "good", "-p", "reasoning_effort=low", "repeat it")
    after = home.run("-s", "0", "-p", "reasoning_effort=low", "and?")
    server.close()
    assert (run.stdout, run.code) == ("I repeat.\n\nIt is long.\n", 0)
    first, second, third = (body for body in server.sent if body["model"] == name)
    assert [block["type"] for block in second["messages"][-2]["content"]] == ["thinking", "text", "tool_use"]
    assert second["messages"][-1]["content"][0]["type"] == "tool_result"
    assert len(json.dumps(second)) < 4 * WINDOW
    assert [said_by for said_by in questions(home.doc())[:-1] if said_by not in json.dumps(first)] == []
    assert (after.code, third["messages"][-1]["content"][-1]["text"]) == (0, "and?")


# ---- what a second reading found


def test_what_cannot_be_sent_puts_nothing_in_force(home: Home, model: ModelServer) -> None:
    """A refusal for length that nothing can mend leaves the session as it was sent before."""
    configure(home, model)
    kept(home, chat(40))
    model.window = 6000
    run = home.run("-s", "0", "sum up", stdin="a line of a log\n" * 6000)
    assert run.code == 6
    context = home.doc()["context"]
    assert (context["compaction"], context["snapshots"]) == (None, [])
    assert "are sent as" not in run.stderr


@pytest.mark.slow
def test_the_rounds_of_one_turn_take_one_snapshot(home: Home, talker: Talker) -> None:
    configure_tools(home, talker)
    home.configure(home.config.read_text().replace('tools = ["good"]', 'tools = ["good"]\nmodel_small = "lab/s"'))
    kept(home, chat(40))
    for _ in range(6):
        talker.script(*calling(call("repeat", number=1, text="line of it\n", times=700)), model="m")
    talker.say("It is done.", model="m")
    sum_up(talker, *[TOLD] * 20)
    run = home.run("-s", "0", "--tools", "good", "do it six times")
    context = home.doc()["context"]
    assert run.code == 0
    assert [item["name"] for item in context["snapshots"]] == ["auto-1"]
    assert context["snapshots"][0]["compaction"] is None
