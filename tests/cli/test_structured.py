"""``-o json`` and ``-o jsonl``: answers, lists, shows, events and failures for programs."""

import json
import os
import re
import select
import signal
import subprocess
import threading
import time
from importlib import import_module

import pytest

from gptsh.cli.options import JOBS
from gptsh.core.files import locked
from gptsh.errors import OutputError
from gptsh.render import structured
from tests.support.answers import events, told
from tests.support.home import Home, full_pipe, in_mid_answer, lab_config, read_until, wait_for
from tests.support.readme import SCRIPTING
from tests.support.server import USAGE, ModelServer, answer, chunk, event
from tests.support.terminal import Terminal
from tests.support.tools import call, calling, configure


def before_its_end(lab: Home, model: ModelServer, *args: str) -> "tuple[subprocess.Popen[bytes], threading.Event]":
    """A run whose question is saved and whose answer has begun, and the event that lets the rest of it come."""
    release = threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(first, release, *rest)
    process = lab.start(*args)
    while not (lab.files() and model.asked):
        time.sleep(0.01)
    time.sleep(0.3)
    return process, release


CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_an_answer_as_one_object(lab: Home, model: ModelServer) -> None:
    model.say("Hel", "lo\n")
    run = lab.run("-o", "json", "hi")
    doc = lab.doc()
    reply = doc["messages"][-1]
    assert (run.code, run.stderr) == (0, "")
    assert told(run) == {
        "id": reply["id"],
        "session": doc["id"],
        "text": "Hello\n",
        "model": "lab/m",
        "provider": "lab",
        "finish_reason": "stop",
        "usage": reply["usage"],
        "cost": None,
        "tool_calls": [],
        "context": {
            "strategy": "full", "tokens": 8, "at_most": 11, "budget": None, "window": None,
            "included": 1, "summarized": 0, "left_out": 0,
        },
        "error": None,
    }  # fmt: skip


@pytest.mark.slow
def test_nothing_of_the_object_comes_before_the_answer_is_saved(lab: Home, model: ModelServer) -> None:
    process, release = before_its_end(lab, model, "-o", "json", "hi")
    with locked(lab.state / ".lock"):
        release.set()
        assert select.select([process.stdout], [], [], 0.7) == ([], [], [])
    out, _ = process.communicate(timeout=30)
    assert json.loads(out)["text"] == "first second"


def test_the_object_comes_behind_the_title(home: Home, model: ModelServer) -> None:
    """It came before, so that what ended the wait for the title was not told."""
    home.configure(lab_config(model, "").replace("[providers", 'model_small = "lab/small"\n[providers'))
    hold = threading.Event()
    model.script(hold, model="small")
    process = home.start("-o", "json", "hi")
    while not (home.files() and home.doc()["stats"]["messages"] == 2):
        time.sleep(0.01)
    assert select.select([process.stdout], [], [], 0.3) == ([], [], [])
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    hold.set()
    assert wait_for(process) == 143 == json.loads(out)["error"]["exit_code"]
    assert json.loads(out)["text"] == "You said: hi"


def test_text_that_is_no_unicode_is_still_json(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"content": "x"})).replace(b'"x"', b'"a\\udcff\\u0000b\\u2028"'), *answer()[1:])
    run = lab.run("-o", "json", "hi")
    assert told(run)["text"] == "a\udcff\0b\u2028"
    run.stdout.encode("utf-8")  # jq reads nothing else


def test_reasoning_stays_on_stderr(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"reasoning": "hm"})), *answer("yes"))
    run = lab.run("-o", "json", "hi")
    assert (told(run)["text"], run.stderr) == ("yes", "hm\n")


def test_tool_calls_are_told(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"tool_calls": [CALL]})), event(chunk({}, "tool_calls")), event(b"[DONE]"))
    run = lab.run("-o", "json", "hi")
    assert run.code == 1
    assert told(run)["tool_calls"] == [{k: v for k, v in CALL.items() if k != "index"}]


# ---- events


def test_events_tell_what_happened_in_order(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, ""))
    model.script(event(chunk({"reasoning": "hm"})), *answer("a", "b"), model="m")
    seen = events(home.run("-o", "jsonl", "hi"))
    doc = home.doc()
    question, reply = doc["messages"]
    assert [e["type"] for e in seen] == [
        "session_created", "message_recorded", "reasoning", "text", "text", "usage", "message_recorded",
        "session_saved", "title", "done",
    ]  # fmt: skip
    assert seen[0] == {"type": "session_created", "session": doc["id"]}
    assert seen[1] == {"type": "message_recorded", "id": question["id"], "role": "user"}
    assert seen[5] == {"type": "usage", "usage": reply["usage"]}
    assert seen[6] == {"type": "message_recorded", "id": reply["id"], "role": "assistant"}
    assert seen[8] == {"type": "title", "title": doc["title"]}
    assert (seen[-1]["text"], seen[-1]["error"], seen[-1]["id"]) == ("ab", None, reply["id"])


# tests/test_compacting.py sees these
OF_COMPACTION = {"compressed", "compression_skipped", "compression_error", "summary_aged"}


@pytest.mark.slow
def test_every_event_that_the_readme_names_can_be_seen(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, ""))
    model.script(event(chunk({"reasoning": "hm"})), *answer("a"), model="m")
    seen = events(home.run("-o", "jsonl", "hi"))
    configure(home, model)
    model.script(*calling(call("add", a=1, b=1)), model="m")
    model.refuse(400, {"error": {"message": "no"}}, model="m")
    seen += events(home.run("-o", "jsonl", "hi"))
    home.configure(f"{home.config.read_text()}[context]\nsnapshots = 1\n")
    for ref, name in (("0", "one"), ("0", "two"), ("0@two", "three")):
        seen += events(home.run("-o", "jsonl", "-m", "echo", "-s", ref, "--snapshot", name, "hi"))
    named = SCRIPTING.partition("Events have a `type`:")[2].partition("with all keys")[0]
    assert {e["type"] for e in seen} | OF_COMPACTION == set(re.findall("`([a-z_]+)`", named))


def test_the_text_of_events_comes_as_it_arrives(lab: Home, model: ModelServer) -> None:
    process, release = in_mid_answer(lab, model, env={"GPTSH_OUTPUT": "jsonl"})
    release.set()
    out, _ = process.communicate(timeout=30)
    assert b'"text":"second"' in out


def test_no_reasoning_leaves_out_its_events(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"reasoning": "hm"})), *answer("yes"))
    run = lab.run("-o", "jsonl", "--no-reasoning", "hi")
    assert "reasoning" not in {e["type"] for e in events(run)}


def test_what_is_not_kept_is_not_told_to_be(lab: Home) -> None:
    seen = events(lab.run("-o", "jsonl", "--no-save", "hi"))
    assert not {e["type"] for e in seen} & {"session_created", "message_recorded", "session_saved"}
    assert (seen[-1]["session"], seen[-1]["id"]) == (None, None)
    run = told(lab.run("-o", "json", "--no-save", "hi"))
    assert (run["session"], run["id"]) == (None, None)


def test_a_refusal_stands_behind_the_text(lab: Home, model: ModelServer) -> None:
    """It was left out where there was text; stdout had both."""
    said = [event(chunk({"content": "Well, "})), event(chunk({"refusal": "no."})), *answer()[1:]]
    for args in (["-o", "json"], ["-o", "text"], ["-x"]):
        model.script(*said)
        run = lab.run(*args, "hi")
        assert run.code == 5
        assert "Well, no." in (run.stdout if args[0] == "-o" else run.stderr)


def test_what_is_no_json_is_said_to_be_the_outputs_fault() -> None:
    """The line spoke of a session that could not be saved."""
    with pytest.raises(OutputError, match="the output cannot be written as JSON"):
        structured.line(float("nan"))


# ---- failures: stdout can be parsed, the code is the failure's


FAILURES = [
    (["-s", "nobody", "hi"], 2, "no session 'nobody'"),
    (["--timeout", "x", "hi"], 2, "--timeout"),
    (["--nonsense"], 2, "--nonsense"),
    (["--config", "nowhere.toml", "hi"], 2, "nowhere.toml"),
    (["-m", "openai/gpt-4.1", "hi"], 2, "no key"),
    (["-f", "nowhere.txt", "hi"], 2, "nowhere.txt"),
    ([], 2, "no prompt"),
    (["--schema", "{", "hi"], 2, "--schema"),
    (["--show-session", "nobody"], 2, "no session 'nobody'"),
    (["--list-agents", "--config", "nowhere.toml"], 2, "nowhere.toml"),
    (["-s", "nobody", "--title", "T"], 2, "no session 'nobody'"),
    (["-a", "zz", "hi"], 2, "no agent 'zz'"),
    (["--here", "hi"], 2, "--here"),
]


@pytest.mark.parametrize("output", ["json", "jsonl"])
@pytest.mark.parametrize(("args", "code", "what"), FAILURES)
def test_what_fails_before_it_is_asked(lab: Home, args: list[str], code: int, what: str, output: str) -> None:
    run = lab.run("-o", output, *args)
    last = json.loads(run.stdout.splitlines()[-1])
    assert run.code == code == last["error"]["exit_code"]
    assert what in last["error"]["message"]
    assert run.stderr.count("\n") == 1
    assert last["error"]["message"] in run.stderr
    assert lab.files() == []


def test_the_jobs_that_are_no_question_are_one_table() -> None:
    for where in JOBS.values():
        module, _, function = where.partition(":")
        assert callable(getattr(import_module(f"gptsh.cli.{module}"), function))


@pytest.mark.parametrize(
    ("args", "answers"),
    [
        (["--bogus", "-o", "json", "hi"], True),
        (["hi", "--bogus", "-o", "json"], True),
        (["hi", "--bogus", "-ojson"], True),
        (["--no-stream=1", "--output=json", "hi"], True),
        (["-z", "-xojson", "hi"], True),
        (["-o", "text", "--bogus", "-o", "json"], True),
        (["-p", "--list-sessions", "-o", "json", "--bogus"], True),
        (["-o", "json", "hi", "--list-sessions", "--bogus"], False),
        (["--bogus", "--show-session=0", "-o", "json"], False),
    ],
)
def test_a_broken_command_line_is_told_as_it_asks(lab: Home, args: list[str], answers: bool) -> None:
    """Only what stood before the first fault counted."""
    run = lab.run(*args)
    assert (run.code, told(run)["error"]["exit_code"]) == (2, 2)
    assert list(told(run)) == (list(structured.ANSWER) if answers else ["error"])


@pytest.mark.parametrize("args", [["--bogus", "--", "-o", "json"], ["-p", "-ojson", "--bogus"], ["--bogus", "-o", "x"]])
def test_what_is_no_option_asks_for_nothing(lab: Home, args: list[str]) -> None:
    assert (lab.run(*args).code, lab.run(*args).stdout) == (2, "")


CONFIGURED = [
    ["-s", "nobody", "hi"],
    [],
    ["-f", "missing", "hi"],
    ["--schema", "{", "hi"],
    ["-a", "zz", "hi"],
    ["--timeout", "x", "hi"],
    ["-s", "nobody", "--tag", "T"],
]


@pytest.mark.parametrize("args", CONFIGURED)
def test_a_failure_is_told_in_the_form_that_the_config_asks_for(lab: Home, args: list[str]) -> None:
    """The agent's form was known only once all that could fail had been looked at."""
    lab.configure('[agents.default]\nmodel = "echo"\noutput = "json"\n')
    run = lab.run(*args)
    assert (run.code, told(run)["error"]["exit_code"], told(run)["tool_calls"]) == (2, 2, [])
    assert list(told(run)) == list(structured.ANSWER)


def test_the_form_is_that_of_the_agent_that_is_named(lab: Home) -> None:
    lab.configure('[agents.a]\noutput = "json"\n[agents.default]\nmodel = "echo"\n')
    assert told(lab.run("-a", "a", stdin=b"\0\1"))["error"]["exit_code"] == 2
    assert told(lab.run(stdin=b"\0\1", env={"GPTSH_AGENT": "a"}))["error"]["exit_code"] == 2
    assert lab.run(stdin=b"\0\1").stdout == ""
    assert lab.run("-a", "a", "-o", "text", stdin=b"\0\1").stdout == ""


@pytest.mark.parametrize("way", ["option", "environment", "config"])
def test_a_failure_is_told_in_the_form_that_was_asked_for(lab: Home, way: str) -> None:
    if way == "config":
        lab.configure('[agents.default]\nmodel = "openai/gpt-4.1"\noutput = "json"\n')
    args = ["--output=json"] if way == "option" else []
    env = {"GPTSH_OUTPUT": "json"} if way == "environment" else {}
    run = lab.run(*args, "-m", "openai/gpt-4.1", "hi", env=env)
    assert (run.code, told(run)["error"]["exit_code"]) == (2, 2)


REFUSED = {"error": {"message": "boom"}}
FINAL = {"x-should-retry": "false"}


def test_a_failed_call_is_told_with_how_to_go_on(lab: Home, model: ModelServer) -> None:
    model.refuse(500, REFUSED, FINAL)
    run = lab.run("-o", "json", "hi")
    ident = lab.doc()["id"]
    assert (run.code, told(run)["text"], told(run)["session"]) == (1, None, ident)
    assert told(run)["error"] == {
        "message": "lab refused (500): boom",
        "hint": f"the question is kept in session {ident}: 'gptsh -s {ident}' asks it again",
        "exit_code": 1,
    }
    assert run.stderr.count("\n") == 2


def test_a_failed_call_is_two_events(lab: Home, model: ModelServer) -> None:
    model.refuse(500, REFUSED, FINAL)
    *_, error, done = events(lab.run("-o", "jsonl", "hi"))
    assert (error["type"], done["type"]) == ("error", "done")
    assert error["error"] == done["error"]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_partial_answer_is_told_with_its_error(lab: Home, model: ModelServer, finish: str) -> None:
    model.say("half", finish=finish)
    run = lab.run("-o", "json", "hi")
    assert (run.code, told(run)["text"], told(run)["error"]["exit_code"]) == (5, "half", 5)
    assert told(run)["finish_reason"] == finish


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_an_answer_that_cannot_be_saved_is_told_with_its_error(lab: Home, output: str) -> None:
    lab.state.parent.mkdir()
    lab.state.write_text("a file where the folder should be")
    run = lab.run("-o", output, "hi")
    done = json.loads(run.stdout.splitlines()[-1])
    assert run.code == 1
    assert (done["text"], done["session"], done["error"]["exit_code"]) == ("You said: hi", None, 1)
    assert "cannot be saved" in done["error"]["message"]


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_session_that_was_torn_meanwhile_is_exit_1_in_the_object_too(
    lab: Home, model: ModelServer, output: str
) -> None:
    """The object said 2, as of a session that cannot be read."""
    process, release = before_its_end(lab, model, "-o", output, "hi")
    lab.files()[0].write_text('{"torn')
    release.set()
    out, _ = process.communicate(timeout=30)
    assert wait_for(process) == 1 == json.loads(out.splitlines()[-1])["error"]["exit_code"]


@pytest.mark.slow
@pytest.mark.parametrize("titles", ["off", "model"])
@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_signal_while_the_answer_waits_for_the_lock_is_told(
    lab: Home, model: ModelServer, output: str, titles: str
) -> None:
    """It was raised behind the object, which knew nothing of it."""
    lab.configure(lab_config(model, f'[sessions]\ntitles = "{titles}"\n'))
    process, release = before_its_end(lab, model, "-o", output, "hi")
    with locked(lab.state / ".lock"):
        release.set()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    out, _ = process.communicate(timeout=30)
    done = json.loads(out.splitlines()[-1])
    assert wait_for(process) == 130 == done["error"]["exit_code"]
    assert done["text"] == "first second" == lab.doc()["messages"][-1]["content"]


LONG = "x" * 300_000  # more than a pipe takes
ENDS = [("SIGINT", 130), ("SIGTERM", 143), ("deadline", 124)]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), ENDS)
def test_a_reader_that_stalls_and_goes_on_gets_whole_events(lab: Home, model: ModelServer, how: str, code: int) -> None:
    """The rest of the event was forgotten, and the next one glued to what had been written of it."""
    model.say(LONG, "tail")
    process = lab.start("-o", "jsonl", *(["--timeout", "1.5"] if how == "deadline" else []), "go")
    time.sleep(1.5)
    if how != "deadline":
        process.send_signal(getattr(signal, how))
    time.sleep(2 if how == "deadline" else 0.4)  # the deadline counts from a start that takes its time
    out, _ = process.communicate(timeout=30)
    seen = [json.loads(line) for line in out.splitlines()]
    assert next(e["text"] for e in seen if e["type"] == "text") == LONG
    assert [e["type"] for e in seen][-2:] == ["error", "done"]
    assert wait_for(process) == code == seen[-1]["error"]["exit_code"]


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_mid_object_comes_too_late(lab: Home, model: ModelServer, signum: signal.Signals) -> None:
    """The object was torn; now it goes out as it was begun, and the exit code is the one that it tells."""
    model.say(LONG)
    process = lab.start("-o", "json", "go")
    time.sleep(1.5)
    process.send_signal(signum)
    time.sleep(0.4)
    out, err = process.communicate(timeout=30)
    assert (json.loads(out)["text"], json.loads(out)["error"]) == (LONG, None)
    assert (wait_for(process), err) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_reader_that_never_goes_on_gets_no_second_object(lab: Home, model: ModelServer, output: str) -> None:
    model.say(LONG)
    process = lab.start("-o", output, "go")
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    assert wait_for(process) == 143
    out, _ = process.communicate()
    assert b'"error":{' not in out
    assert lab.doc()["messages"][-1]["content"] == LONG


@pytest.mark.slow
@pytest.mark.parametrize("comes", [True, False])
@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_signal_before_the_first_byte_is_told_if_the_reader_comes(
    lab: Home, model: ModelServer, output: str, comes: bool
) -> None:
    """Where nothing had been written, nothing was told; or it was told to a reader that never came, for ever."""
    reader, writer = full_pipe()
    process = lab.start("-o", output, "go", stdout=writer)
    os.close(writer)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    if not comes:
        assert wait_for(process) == 130
    with open(reader, "rb") as rest:
        out = rest.read().strip()
    process.communicate(timeout=30)
    assert wait_for(process) == 130
    assert (json.loads(out.splitlines()[-1])["error"]["exit_code"] == 130) if comes else (out == b"")


@pytest.mark.parametrize("output", ["json", "jsonl"])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_an_object(lab: Home, model: ModelServer, output: str, signum: int, code: int) -> None:
    first, *_ = answer("first ")[1:]
    model.script(first, 30.0, model="m")
    process = lab.start("-o", output, "go")
    while not (lab.files() and model.asked):
        time.sleep(0.01)
    if output == "jsonl":  # events tell that the first piece has come; an object does not
        while b'"text"' not in process.stdout.readline():
            pass
    os.kill(process.pid, signum)
    out, _ = process.communicate(timeout=30)
    assert wait_for(process) == code
    last = json.loads(out.splitlines()[-1])
    assert last["error"]["exit_code"] == code
    assert last["session"] == lab.doc()["id"]


def test_a_deadline_leaves_an_object(lab: Home, model: ModelServer) -> None:
    model.script(*answer("first ")[1:2], 30.0, model="m")
    run = lab.run("-o", "json", "--timeout", "0.7", "go")
    assert (run.code, told(run)["error"]["exit_code"], told(run)["finish_reason"]) == (124, 124, "timeout")
    assert told(run)["text"] == "first "


def test_a_signal_while_stdin_is_read_leaves_an_object(lab: Home) -> None:
    process = lab.start("-o", "json", "go", stdin=subprocess.PIPE)
    read_until(process.stderr, b"still waiting")
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert wait_for(process) == 130
    assert json.loads(out)["error"]["exit_code"] == 130


def test_a_reader_that_leaves_is_success_and_the_answer_is_kept(lab: Home, model: ModelServer) -> None:
    process, release = in_mid_answer(lab, model, env={"GPTSH_OUTPUT": "jsonl"})
    process.stdout.close()
    release.set()
    with process.stderr:
        assert process.wait(timeout=30) == 0
    assert lab.doc()["messages"][-1]["content"] in ("first ", "first second")


@pytest.mark.slow
@pytest.mark.parametrize("output", ["json", "jsonl"])
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_slow_reader_gets_all_of_it(lab: Home, model: ModelServer, output: str, finish: str) -> None:
    model.say(*["x" * 1000] * 300, finish=finish)
    process = lab.start("-o", output, "go")
    time.sleep(2.0)  # longer than a reader of a failed answer is waited for
    out, err = process.communicate(timeout=30)
    assert (wait_for(process), bool(err)) == ((0, False) if finish == "stop" else (5, True))
    assert json.loads(out.splitlines()[-1])["text"] == "x" * 300_000


# ---- lists and shows


@pytest.mark.slow
def test_lists_as_one_array_or_an_object_a_line(lab: Home) -> None:
    assert json.loads(lab.run("--list-sessions", "-o", "json").stdout) == []
    assert lab.run("--list-sessions", "-o", "jsonl").stdout == ""
    lab.run("--tag", "t", "--title", "T", "one")
    lab.run("two")
    two, one = lab.docs()
    items = json.loads(lab.run("--list-sessions", "-o", "json").stdout)
    assert items[1] == {
        "index": 1, "id": one["id"], "title": "T", "created_at": one["created_at"], "updated_at": one["updated_at"],
        "agent": "default", "model": "lab/m", "provider": "lab", "turns": 1, "messages": 2,
        "tokens": USAGE["total_tokens"], "cost": None, "tags": ["t"], "project": str(lab.cwd), "preview": "one",
    }  # fmt: skip
    assert [item["id"] for item in items] == [two["id"], one["id"]]
    assert events(lab.run("--list-sessions", "-o", "jsonl")) == items
    assert json.loads(lab.run("--list-sessions", env={"GPTSH_OUTPUT": "json"}).stdout) == items
    assert [i["index"] for i in json.loads(lab.run("--list-sessions", "-o", "json", "--tag", "t").stdout)] == [1]
    assert lab.run("--list-sessions", "-o", "text").stdout.startswith("[0] ")


def test_a_torn_file_leaves_an_array(lab: Home) -> None:
    lab.run("one")
    (lab.sessions / "20990101-000000-torn.json").write_text("{")
    run = lab.run("--list-sessions", "-o", "json")
    assert [item["index"] for item in json.loads(run.stdout)] == [1]
    assert run.stderr.startswith("gptsh: skipped ")


def test_a_session_is_shown_as_its_document_or_a_message_a_line(lab: Home) -> None:
    lab.run("one")
    lab.run("-s", "0", "two")
    doc = lab.doc()
    assert told(lab.run("--show-session", "0", "-o", "json")) == doc
    assert events(lab.run("--show-session", "0", "-o", "jsonl")) == doc["messages"]
    at_one = told(lab.run("--show-session", "0@1", "-o", "json"))
    assert (at_one["messages"], at_one["stats"]["turns"]) == (doc["messages"][:2], 1)


def test_agents_and_models_for_programs(lab: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {"data": [{"id": "dear", "pricing": {"prompt": "inf", "completion": "1"}}]}
    (agent,) = json.loads(lab.run("--list-agents", "-o", "json").stdout)
    assert agent == {"name": "default", "model": "lab/m", "default": True}
    first, dear = events(lab.run("--list-models", "-o", "jsonl"))[:2]
    assert (dear["model"], dear["price_in"], dear["price_out"]) == ("lab/dear", None, None)
    assert first == {"model": "echo", "wire": "echo", "window": None, "price_in": 0.0, "price_out": 0.0}


def test_a_person_may_ask_for_json_too(lab: Home, model: ModelServer) -> None:
    model.say("\x1b[31mred")
    terminal = Terminal(lab, "-o", "json", "hi")
    seen, code = terminal.close()
    assert code == 0
    assert rb"\u001b[31mred" in seen
    assert b"\x1b[31m" not in seen
