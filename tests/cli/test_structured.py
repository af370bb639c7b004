"""``-o json`` and ``-o jsonl``: answers, lists, shows and events for programs, in the form that was asked for.

What fails is told in ``test_exit_codes``; what a signal or a reader does to it in ``process/test_endings``.
"""

import json
import re
import threading

import pytest

from gptsh.core.locks import locked
from tests.support.answers import events, json_output
from tests.support.home import Home
from tests.support.readme import SCRIPTING, keys_in
from tests.support.server import USAGE, Hold, ModelServer, answer, chunk, event
from tests.support.tools import calling

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ANSWER = set(keys_in("key of an answer"))


def test_an_answer_as_one_object(lab: Home, model: ModelServer) -> None:
    model.say("Hel", "lo\n")
    run = lab.run("-o", "json", "hi")
    doc = lab.doc()
    reply = doc["messages"][-1]
    context = {"strategy": "full", "tokens": 4, "at_most": 18, "budget": None, "window": None, "included": 1,
               "summarized": 0, "left_out": 0, "fixed": 0, "omitted": {"questions": [], "media": []}}  # fmt: skip
    assert run.code == 0
    assert run.stderr == ""
    assert json_output(run) == {
        "id": reply["id"], "session": doc["id"], "text": "Hello\n", "model": "lab/m", "provider": "lab",
        "finish_reason": "stop", "usage": reply["usage"], "cost": None, "tool_calls": [], "sources": [],
        "context": context, "error": None,
    }  # fmt: skip


def test_text_that_is_no_unicode_is_still_json(lab: Home, model: ModelServer) -> None:
    model.script(
        event(chunk({"content": "x"})).replace(b'"x"', b'"a\\udcff\\u0000b\\u2028"'), *answer()[1:]
    )
    run = lab.run("-o", "json", "hi")
    assert json_output(run)["text"] == "a\udcff\0b\u2028"
    run.stdout.encode("utf-8")  # jq reads nothing else


def test_reasoning_stays_on_stderr_and_calls_are_told(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"reasoning": "hm"})), *calling({"index": 0, **CALL}))
    run = lab.run("-o", "json", "--reasoning", "hi")
    assert json_output(run)["text"] == ""
    assert json_output(run)["tool_calls"] == [CALL]
    assert run.stderr.startswith("hm\n")


# ---- events


def test_events_tell_what_happened_in_order(hosted: Home, model: ModelServer) -> None:
    first, *rest = answer("a", "b")[1:]
    thought = event(chunk({"reasoning_content": "hm"}))
    model.script(thought, first, 0.3, *rest, model="gpt-4.9")  # the title comes meanwhile
    seen = events(hosted.run("-o", "jsonl", "hi"))
    doc = hosted.doc()
    question, reply = doc["messages"]
    assert [e["type"] for e in seen] == [
        "session_created", "message_recorded", "reasoning", "text", "text", "usage", "message_recorded",
        "session_saved", "title", "done",
    ]  # fmt: skip
    named = SCRIPTING.partition("Each event has a `type`:")[2].partition("with all keys")[0]
    assert {e["type"] for e in seen} <= set(re.findall("`([a-z_]+)`", named))
    assert seen[0] == {"type": "session_created", "session": doc["id"]}
    assert seen[1] == {"type": "message_recorded", "id": question["id"], "role": "user"}
    assert seen[5] == {"type": "usage", "usage": reply["usage"]}
    assert seen[6] == {"type": "message_recorded", "id": reply["id"], "role": "assistant"}
    assert seen[8] == {"type": "title", "title": doc["title"]}
    assert seen[-1]["text"] == "ab"
    assert seen[-1]["error"] is None
    assert seen[-1]["id"] == reply["id"]


@pytest.mark.slow
def test_a_question_that_a_held_lock_kept_from_disk_is_told_with_its_answer(
    lab: Home, model: ModelServer
) -> None:
    hold = Hold()
    lock = locked(lab.state)
    lab.state.mkdir(parents=True)

    def let_go() -> None:
        assert hold.reached.wait(20)  # the question was not saved
        lock.__exit__(None, None, None)
        hold.set()

    model.script(*answer("a", "b")[:2], hold, *answer("a", "b")[2:])
    lock.__enter__()
    waits = threading.Thread(target=let_go)
    waits.start()
    seen = events(lab.run("-o", "jsonl", "hi"))
    waits.join()
    recorded = [event["id"] for event in seen if event["type"] == "message_recorded"]
    assert recorded == [message["id"] for message in lab.doc()["messages"]]


def test_what_is_not_wanted_is_not_told(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"reasoning": "hm"})), *answer("yes"))
    seen = events(lab.run("-o", "jsonl", "--no-reasoning", "--no-save", "hi"))
    assert [e["type"] for e in seen] == ["text", "usage", "done"]
    assert seen[-1]["session"] is None
    assert seen[-1]["id"] is None
    run = json_output(lab.run("-o", "json", "--no-save", "hi"))
    assert run["session"] is None
    assert run["id"] is None


# ---- the form that is asked for, also where the command line or the config is broken

JSONL = {"GPTSH_OUTPUT": "jsonl"}
BROKEN: list[tuple[list[str], set[str]]] = [  # a command line, and the keys of what stdout has
    (["--bogus", "-o", "json", "hi"], ANSWER),
    (["-z", "-xojson", "hi"], ANSWER),
    (["-o", "text", "--bogus", "-o", "json"], ANSWER),
    (["-o", "json", "hi", "--list-sessions", "--bogus"], {"error"}),
    *(
        (args, ANSWER)
        for args in (["-ojson", "--bogus"], ["--output=json", "-s"], ["-xojson", "-m"])
    ),
    (["--bogus", "--", "-o", "json"], set()),
    (["-m", "bad", "--", "--debug", "-o", "json"], set()),
]


def test_a_broken_command_line_is_told_in_the_form_that_it_asks_for(lab: Home) -> None:
    for args, keys in BROKEN:
        run = lab.run(*args)
        assert run.code == 2, args
        assert run.stderr.count("\n") == 1, args
        assert set(json_output(run) if run.stdout else {}) == keys, args


CONFIGURED: list[
    tuple[str, list[str], dict[str, str], bool]
] = [  # agent, arguments, environment, whether it is JSON
    ("default", ["-s", "nobody", "hi"], {}, True),
    ("default", ["-a", "zz", "hi"], {}, True),
    ("default", ["-o", "text", "-s", "nobody", "hi"], {}, False),
    ("a", ["-a", "a", "-f", "none"], {}, True),
    ("a", ["-f", "none"], {"GPTSH_AGENT": "a"}, True),
    ("a", ["-f", "none"], {}, False),
    ("a", ["-f", "none"], {"GPTSH_OUTPUT": "json"}, True),
]


def test_a_failure_is_told_in_the_form_of_option_environment_or_agent(home: Home) -> None:
    for agent, args, env, is_json in CONFIGURED:
        home.configure(f'[agents.{agent}]\noutput = "json"\n')
        run = home.run(*args, env=env)
        assert run.code == 2
        assert set(json_output(run) if is_json else run.stdout) == (ANSWER if is_json else set()), (
            args,
            env,
        )


def test_a_failure_is_told_in_the_form_of_the_sessions_agent(home: Home) -> None:
    home.configure('[agents.j]\noutput = "json"\nmodel = "echo"\n')
    home.run("-a", "j", "hi")
    run = home.run("-s", "0", "--tools", "nosuch", "again")
    assert set(json_output(run)) == ANSWER
    assert run.code == 2


# ---- labels


def test_labels_without_a_question_are_an_object_or_events(lab: Home) -> None:
    lab.run("-s", "@w", "one")
    ident = lab.doc()["id"]
    saved = {
        "session": ident,
        "title": "T",
        "tags": ["a"],
        "names": ["@w"],
        "snapshot": None,
        "error": None,
    }
    assert (
        json.loads(lab.run("-s", "0", "--title", "T", "--tag", "a", "-o", "json").stdout) == saved
    )
    run = lab.run("-s", "0", "--snapshot", "here", "-o", "jsonl")
    created, session_saved, done = map(json.loads, run.stdout.splitlines())
    assert created["type"] == "snapshot_created"
    assert created["auto"] is False
    assert created["snapshot"]["name"] == "here"
    assert session_saved == {"type": "session_saved", "session": ident}
    assert done == {"type": "done", **saved, "snapshot": "here"}
    for output in ("json", "jsonl"):
        failed = lab.run("-s", "0", "--snapshot", "auto-1", "-o", output)
        assert failed.code == 2
        assert json.loads(failed.stdout)["error"]["exit_code"] == 2


def test_where_a_list_shows_the_first_words_the_title_is_null(lab: Home) -> None:
    lab.run("one")
    assert '"one"' in lab.run("--list-sessions").stdout
    (item,) = json.loads(lab.run("--list-sessions", "-o", "json").stdout)
    assert item["title"] is None
    assert item["preview"] == "one"


# ---- lists and shows


def test_lists_as_one_array_or_an_object_a_line(lab: Home) -> None:
    assert json.loads(lab.run("--list-sessions", "-o", "json").stdout) == []
    assert lab.run("--list-sessions", "-o", "jsonl").stdout == ""
    lab.run("--tag", "t", "--title", "T", "one")
    lab.run("two")
    two, one = lab.docs()
    items = json.loads(lab.run("--list-sessions", "-o", "json").stdout)
    assert items[1] == {
        "index": 1, "id": one["id"], "names": [], "title": "T",
        "created_at": one["created_at"], "updated_at": one["updated_at"],
        "agent": "default", "model": "lab/m", "provider": "lab", "turns": 1, "messages": 2,
        "tokens": USAGE["total_tokens"], "cost": None, "tags": ["t"], "project": str(lab.cwd), "preview": "one",
        "forked_from": None,
    }  # fmt: skip
    assert [item["id"] for item in items] == [two["id"], one["id"]]
    assert events(lab.run("--list-sessions", "-o", "jsonl")) == items
    assert json.loads(lab.run("--list-sessions", env={"GPTSH_OUTPUT": "json"}).stdout) == items
    assert [
        i["index"]
        for i in json.loads(lab.run("--list-sessions", "-o", "json", "--tag", "t").stdout)
    ] == [1]
    assert lab.run("--list-sessions", "-o", "text", env=JSONL).stdout.startswith("[0] ")
    (lab.sessions / "20990101-000000-torn.json").write_text("{")
    run = lab.run("--list-sessions", "-o", "json")
    assert [item["index"] for item in json.loads(run.stdout)] == [1, 2]
    assert run.stderr.startswith("gptsh: skipped ")


def test_a_session_is_shown_as_its_document_or_a_message_a_line(lab: Home) -> None:
    lab.run("one")
    lab.run("-s", "0", "two")
    doc = lab.doc()
    assert json_output(lab.run("--show-session", "0", "-o", "json")) == doc
    assert events(lab.run("--show-session", "0", "-o", "jsonl")) == doc["messages"]
    at_one = json_output(lab.run("--show-session", "0@1", "-o", "json"))
    assert at_one["messages"] == doc["messages"][:2]
    assert at_one["stats"]["turns"] == 1


def test_agents_and_models_for_programs(lab: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {
        "data": [{"id": "dear", "pricing": {"prompt": "inf", "completion": "1"}}]
    }
    (agent, _) = json.loads(lab.run("--list-agents", "-o", "json").stdout)
    assert agent == {"name": "default", "model": "lab/m", "default": True, "names": []}
    first, dear = events(lab.run("--list-models", "-o", "jsonl"))[:2]
    assert dear["model"] == "lab/dear"
    assert dear["price_in"] is None
    assert dear["price_out"] is None
    assert first == {
        "model": "echo",
        "alias_of": None,
        "api": "echo",
        "window": None,
        "price_in": 0.0,
        "price_out": 0.0,
        "size": None,
        "loaded": None,
    }
