"""What the command line says of a compaction, and what it does with all that stands beside it."""

import json
from typing import Any

import pytest

from tests.support.answers import events, told
from tests.support.home import Home
from tests.support.modules import modules_after
from tests.support.server import prompt_tokens
from tests.support.talks import (
    BUDGET,
    WINDOW,
    Talker,
    asked,
    chat,
    configure,
    for_summaries,
    force,
    kept,
    kinds,
    long,
    questions,
    talker,
    text_in,
    too_long,
    untold,
)

__all__ = ["long", "talker", "untold"]  # fixtures

LABELS = ["--snapshot", "here", "--title", "By hand", "--tag", "red"]
BROKEN = {"error": {"message": "broken"}}


def labels(doc: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    by_hand = [item["name"] for item in doc["context"]["snapshots"] if item["reason"] == "asked"]
    return doc["title"], doc["meta"]["tags"], by_hand


# ---- beside other options


def test_labels_beside_compact_did_away_with_the_compaction(long: Home, talker: Talker) -> None:
    run = long.run("-s", "0", "--compact", "--apply", "-o", "jsonl", *LABELS)
    doc = long.doc()
    assert (run.code, labels(doc)) == (0, ("By hand", ["red"], ["here"]))
    assert force(long)["reason"] == "asked"
    assert len(for_summaries(talker)) > len(asked(talker)) == 0
    found = events(run)
    assert [event["type"] for event in found] == ["snapshot_created", "snapshot_created", "compressed", "done"]
    assert [event["auto"] for event in found[:2]] == [False, True]
    here = next(item for item in doc["context"]["snapshots"] if item["name"] == "here")
    assert here["compaction"] is None


@pytest.mark.slow
def test_labels_are_saved_where_nothing_would_be_shorter_and_where_the_summary_fails(
    home: Home, talker: Talker
) -> None:
    configure(home, talker)
    kept(home, chat(6, of_answers=3))
    assert home.run("-s", "0", "--compact", "--apply", *LABELS).code == 0
    assert labels(home.doc()) == ("By hand", ["red"], ["here"])
    home.files()[0].unlink()
    kept(home, chat(70))
    talker.refuse(500, BROKEN, model="s")
    assert home.run("-s", "0", "--compact", "--apply", *LABELS).code == 1
    assert labels(home.doc()) == ("By hand", ["red"], ["here"])
    assert home.doc()["context"]["compaction"] is None


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["-s", "0", "--compact", "--title", "x"], "--compact shows, and changes nothing: add --apply"),
        (["-s", "0", "--compact", "--snapshot", "x"], "--compact shows, and changes nothing: add --apply"),
        (["-s", "0", "--apply", "--tag", "x"], "--apply goes with --compact"),
        (["--list-sessions", "--compact"], "--compact does not go with --list-sessions: leave one of them out"),
        (["--show-session", "0", "--compact"], "--compact does not go with --show-session: leave one of them out"),
        (["--usage", "--snapshot", "x"], "--snapshot does not go with --usage: leave one of them out"),
        (["--consolidate", "-s", "0", "--apply"], "--apply does not go with --consolidate: leave one of them out"),
        (["--list-models", "--title", "x"], "--title does not go with --list-models: leave one of them out"),
    ],
)
def test_what_would_have_been_ignored_is_refused(long: Home, talker: Talker, args: list[str], why: str) -> None:
    before = long.files()[0].read_bytes()
    run = long.run(*args)
    assert (run.stdout, run.code, run.stderr.count("\n")) == ("", 2, 1)
    assert why in run.stderr
    assert long.files()[0].read_bytes() == before
    assert talker.asked == []


# ---- failures for programs


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_compaction_that_failed_was_told_as_an_answer(long: Home, talker: Talker, output: str) -> None:
    talker.refuse(500, BROKEN, model="s")
    run = long.run("-s", "0", "--compact", "--apply", "-o", output)
    *before, last = map(json.loads, run.stdout.splitlines())
    assert (run.code, list(last), last["error"]["exit_code"]) == (1, ["error"], 1)
    assert [event["type"] for event in before] == (["compression_error"] if output == "jsonl" else [])
    assert all("broken" in event["error"] for event in before)
    for args in (["-s", "nobody", "--compact"], ["--compact"], ["-s", "0", "--compact", "--nonsense"]):
        run = long.run(*args, "-o", output)
        assert (run.code, list(told(run))) == (2, ["error"])


def test_a_failure_of_a_question_with_compact_is_an_answers(long: Home, talker: Talker) -> None:
    talker.refuse(500, BROKEN, model="s")
    run = long.run("-s", "0", "--compact", "--apply", "-o", "jsonl", "and now?")
    assert run.code == 1
    assert kinds(run) == ["message_recorded", "compression_error", "error", "done"]
    assert "tool_calls" in events(run)[-1]


def test_a_compaction_that_is_not_saved_gave_two_objects(long: Home, talker: Talker) -> None:
    (long.state / ".lock").mkdir()  # where a file belongs
    run = long.run("-s", "0", "--compact", "--apply", "-o", "json")
    report = told(run)
    assert (run.code, report["changes"], report["applied"]) == (1, True, False)
    assert report["error"]["exit_code"] == 1
    assert report["error"]["message"] in run.stderr


def test_no_event_tells_of_a_snapshot_that_is_not_kept(long: Home) -> None:
    run = long.run("-s", "0", "--no-save", "-o", "jsonl", "and now?")
    assert (run.code, kinds(run)) == (0, ["compressed", "text", "usage", "done"])


# ---- what a person reads


def test_the_line_of_a_compaction_names_the_snapshot_and_promises_nothing(long: Home) -> None:
    run = long.run("-s", "0", "and now?")
    assert run.stderr.endswith(f"(summary); snapshot {long.doc()['id']}@auto-1\n")


def test_questions_that_are_left_out_are_told_in_words_that_stay_true(home: Home, talker: Talker) -> None:
    configure(home, talker)
    kept(home, chat(200, words=60))
    first, second = (home.run("-s", "0", words) for words in ("and now?", "and then?"))
    assert (first.code, second.code) == (0, 0)
    for run in (first, second):
        assert "earlier questions are left out: the session outgrew the window\n" in run.stderr


LONG_TEXT = "a line of a log\n" * 2000
SETTING, CUT = 'compact = "auto" under [context]', "--truncate cuts"


@pytest.mark.slow
def test_the_advice_of_exit_6_can_be_followed(home: Home, talker: Talker) -> None:
    configure(home, talker)
    messages = chat(5)
    messages[0]["content"] = [{"type": "text", "text": LONG_TEXT, "source": "stdin"}]
    kept(home, messages)
    words = "word " * 9000
    alone = home.run("-s", "0", words)  # what is attached is an earlier question's, which no cut reaches
    assert (alone.code, CUT in alone.stderr, SETTING in alone.stderr) == (6, False, False)
    piped = home.run("-s", "0", "sum up", stdin=LONG_TEXT * 3)
    assert (piped.code, CUT in piped.stderr, SETTING in piped.stderr) == (6, True, False)
    configure(home, talker, '[context]\ncompact = "off"\n')
    off = home.run("-s", "0", words)
    assert (off.code, CUT in off.stderr, SETTING in off.stderr) == (6, True, True)
    new = home.run("-n", words)  # which saves nothing
    assert (new.code, CUT in new.stderr, SETTING in new.stderr) == (6, False, False)
    home.files()[0].unlink()
    kept(home, chat(100))
    plain = home.run("-s", "0", "and now?")
    assert (plain.code, CUT in plain.stderr, SETTING in plain.stderr) == (6, False, True)


# ---- what is cut


@pytest.mark.parametrize("lines", [3000, 1150])  # far more than the window has room for; what has room alone
def test_truncate_threw_the_whole_session_away(long: Home, talker: Talker, lines: int) -> None:
    before = long.doc()
    run = long.run("-s", "0", "--truncate", "tail", "-o", "json", "sum up", stdin="a line of a log\n" * lines)
    report, (body,) = told(run)["context"], asked(talker)
    assert run.code == 0
    assert "characters cut from its tail" in run.stderr
    sent = text_in(body)
    assert "sum up" in sent
    lately = questions(before)[-10:]
    assert [words for words in lately if words not in sent] == []
    assert report["at_most"] <= BUDGET
    assert report["included"] > 10
    assert sent.count("a line of a log") > 300


def test_truncate_leaves_no_more_to_a_small_session_than_it_takes(home: Home, talker: Talker) -> None:
    configure(home, talker)
    kept(home, chat(2))
    run = home.run("-s", "0", "--truncate", "tail", "-o", "json", "sum up", stdin="a line of a log\n" * 3000)
    report = told(run)["context"]
    assert (report["strategy"], report["included"]) == ("full", 5)
    assert report["at_most"] > 0.7 * BUDGET


def test_compact_apply_is_not_forgotten_where_the_question_is_cut(home: Home, talker: Talker) -> None:
    configure(home, talker)
    kept(home, chat(14, of_answers=200))
    run = home.run("-s", "0", "--compact", "--apply", "--truncate", "tail", "sum up", stdin="a line of a log\n" * 3000)
    assert run.code == 0
    assert force(home)["reason"] == "asked"


# ---- a refusal that counts less than was estimated


def test_a_refusal_that_counts_fewer_tokens_leaves_more_room(untold: Home, talker: Talker) -> None:
    talker.window = None
    message = f"This model's maximum context length is {WINDOW} tokens. However, your messages resulted in 8300 tokens."
    talker.refuse(400, too_long(message), model="m")
    run = untold.run("-s", "0", "-o", "json", "and now?")
    report, (first, second) = told(run)["context"], asked(talker)
    assert (run.code, report["window"]) == (0, WINDOW)
    assert report["budget"] == BUDGET
    assert 0.3 * BUDGET < prompt_tokens(second) < prompt_tokens(first)


# ---- what is loaded


LATE = {f"gptsh.core.{name}" for name in ("compaction", "strategies", "pruning", "summaries", "material")}


def test_what_compacts_nothing_loads_nothing_of_compaction(home: Home) -> None:
    home.run("-m", "echo", "hello")
    assert not modules_after(home, "--list-sessions") & {*LATE, "gptsh.core.snapshots", "gptsh.cli.fitting"}
    assert not modules_after(home, "-m", "echo", "-s", "0", "hi") & {*LATE, "gptsh.cli.manage"}
