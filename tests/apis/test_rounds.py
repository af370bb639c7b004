"""Rounds of a turn: the model calls tools, they run, their results go back; with a real tool server over stdio."""

import json
import os
import re
import signal
import threading
import time
from typing import Any, NamedTuple

import pytest

from tests.support.home import Home, read_until, wait_for_exit, wait_until
from tests.support.server import ModelServer, answer, chunk, event
from tests.support.sessions import change
from tests.support.terminal import Terminal
from tests.support.tools import BAD, SERVER, call, calling, configure, is_running, roles


@pytest.fixture
def tooled(home: Home, model: ModelServer) -> Home:
    """A home whose agent has the good server's tools, all of them approved."""
    configure(home, model)
    return home


def results(doc: dict[str, Any]) -> list[tuple[str, bool]]:
    return [
        (message["content"], message["is_error"])
        for message in doc["messages"]
        if message["role"] == "tool"
    ]


# ---- what comes of calls


class Way(NamedTuple):
    """A turn: the calls of each round and its words; what is printed, and the results that are kept."""

    rounds: list[tuple[str, list[dict[str, Any]]]]
    results: list[tuple[str, bool]]
    stdout: str = "done\n"
    args: tuple[str, ...] = ()


SUM = call("add", 1, a=2, b=3)
OTHER = call("add", 2, a=5, b=5)
WAYS = {
    "a result": Way([("", [SUM])], [("5", False)]),
    "calls of one round run at once, and stand in their order": Way(
        [("", [call("meet", 1, name="first"), call("meet", 2, name="second")])],
        [("first met", False), ("second met", False)],
    ),
    "several rounds and their words": Way(
        [("Let me see.", [SUM]), ("And now?", [OTHER])],
        [("5", False), ("10", False)],
        stdout="Let me see.\n\nAnd now?\n\ndone\n",
    ),
    "a tool that fails": Way([("", [call("fail", why="no such file")])], [("no such file", True)]),
    "two calls with one id": Way(
        [("", [{**SUM, "id": "x"}, {**OTHER, "id": "x"}])], [("5", False), ("10", False)]
    ),
    "the last round is the answer for a program": Way(
        [("Let me see.", [SUM])], [("5", False)], args=("-x",)
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_turn_with_tools(tooled: Home, model: ModelServer, name: str) -> None:
    way = WAYS[name]
    for words, calls in way.rounds:
        model.script(*calling(*calls, text=words))
    model.say("done")
    assert tooled.run(*way.args, "go") == (way.stdout, "", 0)
    assert results(tooled.doc()) == way.results
    last = model.sent[-1]["messages"]
    assert [m["content"] for m in last if m["role"] == "tool"] == [
        content for content, _ in way.results
    ]
    assert [m["tool_call_id"] for m in last if m["role"] == "tool"] == [
        made["id"] for m in last for made in m.get("tool_calls", ())
    ]  # each id once


def test_all_of_a_round_is_offered_sent_and_kept(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(SUM))
    model.say("It is 5.")
    tooled.run("2 + 3?")
    first, second = model.sent
    (given,) = [
        tool["function"] for tool in first["tools"] if tool["function"]["name"] == "good__add"
    ]
    assert given["description"] == "Add two numbers."
    assert given["parameters"]["required"] == ["a", "b"]
    question, asking, result, said = tooled.doc()["messages"]
    assert second["messages"][1]["tool_calls"][0]["function"] == SUM["function"]
    assert second["messages"][2] | {"name": ""} == {
        "role": "tool", "tool_call_id": "call_1", "content": "5", "name": ""
    }  # fmt: skip
    assert asking["parent"] == question["id"]
    assert result["parent"] == asking["id"]
    assert said["parent"] == result["id"]
    assert asking["finish_reason"] == "tool_calls"
    assert asking["usage"] is None
    assert result["name"] == "good__add"
    assert result["duration_ms"] >= 0
    assert tooled.doc()["stats"]["turns"] == 1
    assert tooled.doc()["meta"]["mcp_allowed_servers"] == ["good"]


def test_a_program_reads_calls_and_results(tooled: Home, model: ModelServer) -> None:
    for _ in range(2):
        model.script(*calling(call("add", a=1, b=1), text="Let me see."))
        model.say("2.")
    told = json.loads(tooled.run("-o", "json", "go").stdout)
    assert told["text"] == "2."
    assert told["error"] is None
    assert told["context"]["included"] == 3
    assert [made["function"]["name"] for made in told["tool_calls"]] == ["good__add"]
    events = [
        json.loads(line) for line in tooled.run("-n", "-o", "jsonl", "go").stdout.splitlines()
    ]
    kinds = [item["type"] for item in events]
    assert kinds.index("tool_call") < kinds.index("tool_result")
    assert [item["tool_result"] for item in events if item["type"] == "tool_result"] == [
        {"tool_call_id": "call_1", "name": "good__add", "content": "2", "is_error": False}
    ]
    recorded = [item["role"] for item in events if item["type"] == "message_recorded"]
    assert recorded == ["user", "assistant", "tool", "assistant"]


def test_results_are_on_disk_before_the_model_is_asked_again(
    tooled: Home, model: ModelServer
) -> None:
    asked_again = threading.Event()
    model.script(*calling(SUM))
    model.script(event(chunk({"content": "It"})), asked_again, *answer(" is 5.")[1:])
    with tooled.start("go") as process:
        read_until(process.stdout, b"It")
        assert roles(tooled.doc()) == ["user", "assistant", "tool"]
        process.kill()
    asked_again.set()
    assert results(tooled.doc()) == [("5", False)]


def test_a_turn_of_endless_calls_ends(home: Home, model: ModelServer) -> None:
    configure(home, model, more="[mcp]\nmax_rounds = 2\n")
    for _ in range(3):
        model.script(*calling(SUM))
    run = home.run("go")
    assert run.code == 5
    assert len(model.requests) == 2
    assert "after 2 rounds" in run.stderr
    assert "max_rounds" in run.stderr
    assert roles(home.doc()) == ["user", "assistant", "tool", "assistant"]
    home.run("-s", "0", "--no-tools", "and?")
    assert [m["role"] for m in model.sent[-1]["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
    ]


def test_much_output_is_kept_whole_and_sent_shortened(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("repeat", text="0123456789", times=30_000)))
    model.say("a lot")
    assert tooled.run("go").code == 0
    assert results(tooled.doc()) == [("0123456789" * 30_000, False)]
    sent = model.sent[-1]["messages"][-1]["content"]
    assert len(sent) < 201_000
    assert sent[:10] == "0123456789"
    assert sent[-10:] == "0123456789"
    assert "300,000" in sent


# ---- which tools


def test_a_session_goes_on_with_the_tools_it_was_given(tooled: Home, model: ModelServer) -> None:
    names = [["good__add"], ["good__add"], [], []]
    for args in (
        ["--tools", "good__add", "go"],
        ["-s", "0", "on"],
        ["-n", "--no-tools", "go"],
        ["-s", "0", "on"],
    ):
        assert tooled.run(*args).code == 0
    assert [
        [tool["function"]["name"] for tool in body.get("tools", ())] for body in model.sent
    ] == names


def test_a_session_goes_on_though_one_of_its_tools_is_gone(
    tooled: Home, model: ModelServer
) -> None:
    tooled.run("--tools", "good__add,good__note", "go")
    doc = tooled.doc()
    doc["meta"]["mcp_allowed_servers"] += ["good__gone", ["x"], {}, 7]
    tooled.files()[0].write_text(json.dumps(doc))
    run = tooled.run("-s", "0", "on")
    odd = ", ".join(f"meta.mcp_allowed_servers[{at}]" for at in (3, 4, 5))
    malformed = f"gptsh: session {doc['id']}: left out malformed keys: {odd}\n"
    lacking = "gptsh: the session continues without some of its tools: good__gone\n"
    assert run.code == 0
    assert run.stderr == malformed + lacking
    assert [tool["function"]["name"] for tool in model.sent[-1]["tools"]] == [
        "good__add",
        "good__note",
    ]
    assert tooled.run("--tools", "good__gone", "go").code == 2


def test_tools_that_the_user_gave_are_offered_beside_those_of_servers(
    tooled: Home, model: ModelServer
) -> None:
    mine = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
    tooled.run("--tools", "good__add", "-p", f"tools={json.dumps([mine])}", "go")
    assert [tool["function"]["name"] for tool in model.sent[-1]["tools"]] == ["mine", "good__add"]


def test_no_tools_starts_no_server_and_nothing_is_kept_where_that_is_asked(
    tooled: Home, model: ModelServer
) -> None:
    shown = json.loads(tooled.run("--dry-run", "-o", "json", "go").stdout)
    assert "good__add" in [tool["function"]["name"] for tool in shown["body"]["tools"]]
    assert re.search(
        r"\ntools +\d+, their definitions ~[\d,]{3,} tokens\n", tooled.run("--dry-run", "go").stdout
    )
    assert model.requests == []
    model.script(*calling(SUM))
    model.say("It is 5.")
    assert tooled.run("--no-save", "go").stdout == "It is 5.\n"
    tooled.configure(tooled.config.read_text().replace(str(SERVER), "/no/such/file.py"))
    assert tooled.run("--no-tools", "--no-save", "go").stdout == "You said: go\n"
    assert tooled.files() == []


# ---- approval


def test_without_a_terminal_a_call_is_denied_and_the_model_told(
    home: Home, model: ModelServer
) -> None:
    configure(home, model, approved='"add"')
    target = home.cwd / "noted"
    model.script(*calling(call("note", 1, path=str(target)), call("add", 2, a=1, b=1)))
    model.say("I could not.")
    run = home.run("go")
    assert run.stdout == "I could not.\n"
    assert run.code == 4
    assert not target.exists()
    assert "denied: good__note" in run.stderr
    assert "approve it on a terminal, or set auto_approve under" in run.stderr
    assert f"the answer is saved: continue with 'gptsh -s {home.doc()['id']} PROMPT'" in run.stderr
    (denied, is_error), added = results(home.doc())
    assert denied[:6] == "denied"
    assert is_error is True
    assert added == ("2", False)
    assert home.doc()["messages"][2]["name"] == "good__note"
    assert model.sent[1]["messages"][2]["content"] == denied


def asked_on_terminal(
    home: Home, model: ModelServer, reply: str, *, path: str
) -> tuple[bytes, int]:
    model.script(*calling(call("note", path=path)))
    model.say("so be it")
    terminal = Terminal(home, "go")
    terminal.until(ASKED)
    terminal.write(reply)
    return terminal.close()


ASKED, ON = rb"Run note of good\? .*: ", "\r\n| "  # arguments go on behind a mark on the next line


@pytest.mark.parametrize(
    ("reply", "runs", "code"),
    [("y\n", True, 0), ("no\n", False, 4), pytest.param("\x04", False, 4, marks=pytest.mark.slow)],
)
def test_a_person_is_asked(
    home: Home, model: ModelServer, reply: str, runs: bool, code: int
) -> None:
    configure(home, model, approved="")
    target = home.cwd / "noted"
    seen, exit_code = asked_on_terminal(home, model, reply, path=str(target))
    assert target.exists() == runs
    assert exit_code == code
    assert str(target) in seen.decode().replace(ON, "")
    assert b"so be it" in seen
    assert (b"a tool call was denied: good__note\x1b[0m\r\n" in seen) == (
        not runs
    )  # without advice: it was the user


# Held while the module runs, not while it is looked for: that would hold every import of the process.
HELD_IMPORT = """
import importlib.machinery, os, sys, time
class Held:
    def find_spec(name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == "rich" else None
        if spec:
            run = spec.loader.exec_module
            def wait_and_run(module):
                while not os.path.exists("imported"):
                    time.sleep(0.01)
                run(module)
            spec.loader.exec_module = wait_and_run
        return spec
sys.meta_path.insert(0, Held)
"""


def test_an_answer_behind_a_round_is_shown_though_what_draws_it_is_still_imported(
    home: Home, model: ModelServer
) -> None:
    (home.folder / "sitecustomize.py").write_text(HELD_IMPORT)
    home.env["PYTHONPATH"] += f":{home.folder}"
    configure(home, model, approved="")
    model.script(
        0.5, *calling(call("note", path=str(home.cwd / "noted")))
    )  # so late that the import has begun
    model.say("so be it")
    terminal = Terminal(home, "go")
    terminal.until(ASKED)
    terminal.write("y\n")
    wait_until(lambda: len(model.requests) == 2)
    time.sleep(0.2)  # the answer has come
    (home.cwd / "imported").touch()
    seen, code = terminal.close()
    assert b"so be it" in seen
    assert code == 0


def test_a_question_names_the_server_whatever_underscores_are_in_a_tools_name(
    home: Home, model: ModelServer
) -> None:
    configure(home, model, approved="")
    home.configure(home.config.read_text().replace('.py"]', '.py", "b__"]'))
    name = "good__b__note"
    target = home.cwd / "noted"
    function = {"name": name, "arguments": json.dumps({"path": str(target)})}
    model.script(*calling({"index": 0, "id": "call_1", "type": "function", "function": function}))
    model.say("so be it")
    terminal = Terminal(home, "go")
    terminal.until(rb"Run b__note of good\? .*: ")
    terminal.write("always\n")
    assert terminal.close()[1] == 0
    assert target.exists()
    (approved,) = json.loads((home.state / "approved.json").read_text()).values()
    assert approved == [["good", "b__note"]]


def test_an_approval_in_a_session_file_counts_for_nothing(home: Home, model: ModelServer) -> None:
    configure(home, model, approved="")
    target = home.cwd / "noted"
    model.say("an answer")
    assert home.run("go").code == 0
    (path,) = home.files()
    change(
        path, "meta.mcp_approved", [["good", "note"]]
    )  # as somebody who can write the synced folder would
    model.script(*calling(call("note", path=str(target))))
    model.say("again")
    assert home.run("-s", "0", "again").code == 4
    assert not target.exists()


@pytest.mark.slow
def test_what_is_always_allowed_is_not_asked_again_in_this_session_alone(
    home: Home, model: ModelServer
) -> None:
    configure(home, model, approved="")
    target = home.cwd / "noted"
    asked_on_terminal(home, model, "always\n", path=str(target))
    assert "approved" not in json.dumps(home.doc())
    for ref, code in (("0", 0), ("0@1", 4)):
        model.script(*calling(call("note", path=str(target))))
        model.say("again")
        assert home.run("-s", ref, "again").code == code
    assert target.read_text() == "noted\nnoted\n"


def test_the_question_is_whole_safe_and_not_answered_by_what_was_typed_before(
    home: Home, model: ModelServer
) -> None:
    configure(home, model, approved="")
    path = str(home.cwd / ("x" * 200 + "\x1b]0;evil\x07 no\u202etxt.exe \u2066"))
    calls = calling(call("note", path=path), text="thinking")
    release = threading.Event()
    model.script(calls[0], release, *calls[1:])
    model.say("a \u202eb \u2069c, \U0001f468\u200d\U0001f469 and \u200f stay")
    terminal = Terminal(home, "go", "-o", "text")
    terminal.until(b"thinking")
    terminal.write("y\n")
    release.set()
    terminal.until(ASKED)
    terminal.write("n\n")
    seen, code = terminal.close()
    shown = seen.decode().replace(ON, "")
    assert code == 4
    assert not os.path.exists(path)
    assert "x" * 200 in shown
    assert "no\\u202etxt.exe \\u2066" in shown
    assert "a \\u202eb \\u2069c, \U0001f468\u200d\U0001f469 and \u200f stay" in shown
    assert "\x1b]0;" not in shown
    assert not set("\u202e\u2066\u2069") & set(shown)


def test_long_arguments_are_folded_behind_a_mark_and_shown_whole_on_request(
    home: Home, model: ModelServer
) -> None:
    configure(home, model, approved="")
    lines = [f"line {number}" for number in range(30)] + ["Run note of good? [y]es, [n]o"]
    model.script(*calling(call("note", path="nowhere", lines=lines)))
    model.say("so be it")
    terminal = Terminal(home, "go")
    folded = terminal.until(ASKED).decode()
    assert "line 2" in folded
    assert "line 15" not in folded
    assert "lines are not shown]" in folded
    assert '\r\n|     "Run note of good' in folded
    terminal.seen = b""
    terminal.write("s\n")
    assert b"line 15" in terminal.until(ASKED)
    terminal.write("n\n")
    assert terminal.close()[1] == 4


# ---- ends that are none


def test_a_turn_that_stopped_among_its_tools_goes_on_without_a_prompt(
    tooled: Home, model: ModelServer
) -> None:
    model.script(*calling(SUM, text="Let me see."))
    model.refuse(500, {"error": {"message": "boom"}}, {"x-should-retry": "false"})
    run = tooled.run("-o", "json", "go")
    told = json.loads(run.stdout)
    assert run.code == 1
    assert told["text"] == "Let me see."
    assert told["error"]["exit_code"] == 1
    assert told["id"] == tooled.doc()["messages"][1]["id"]
    assert "continues it" in run.stderr
    model.say("It is 5.")
    assert tooled.run("-s", "0") == ("It is 5.\n", "", 0)
    assert [m["role"] for m in model.sent[-1]["messages"]] == ["user", "assistant", "tool"]
    assert roles(tooled.doc()) == ["user", "assistant", "tool", "assistant"]
    sent = len(model.sent)
    assert tooled.run("-s", "0").stdout == "It is 5.\n"  # the last answer again
    assert len(model.sent) == sent


@pytest.fixture
def stubborn(tooled: Home) -> Home:
    """An agent whose tool server ignores SIGTERM, and has started another process."""
    args = ", ".join(map(json.dumps, (str(BAD), "stubborn", str(tooled.cwd / "pids"))))
    tooled.configure(tooled.config.read_text().replace(json.dumps(str(SERVER)), args))
    return tooled


@pytest.mark.parametrize(
    ("way", "code"),
    [
        pytest.param("SIGINT", 130, marks=pytest.mark.slow),
        pytest.param("SIGTERM", 143, marks=pytest.mark.slow),
        ("SIGINT SIGINT", 130),
    ],
)
def test_a_signal_while_a_tool_hangs_leaves_no_server_behind(
    stubborn: Home, model: ModelServer, way: str, code: int
) -> None:
    """The second one within the first kills; what came is kept."""
    model.script(*calling(call("hang"), text="Let me see."))
    with stubborn.start("go") as process:
        wait_until(lambda: stubborn.files() and roles(stubborn.doc()) == ["user", "assistant"])
        for at, name in enumerate(way.split()):
            time.sleep(at / 10)
            process.send_signal(signal.Signals[name])
        assert wait_for_exit(process) == code
        process.communicate()
    servers = [int(line) for line in (stubborn.cwd / "pids").read_text().split()]
    assert len(servers) == 2
    wait_until(lambda: not any(map(is_running, servers)))
    assert stubborn.doc()["messages"][1]["content"] == "Let me see."


def test_a_signal_keeps_the_results_that_came(tooled: Home, model: ModelServer) -> None:
    begun = tooled.cwd / "begun"
    model.script(*calling(call("add", 1, a=1, b=1), call("hang", 2, path=str(begun))))
    with tooled.start("-o", "jsonl", "go") as process:
        read_until(process.stdout, b'"tool_result"')
        wait_until(begun.exists)
        process.send_signal(signal.SIGINT)
        assert wait_for_exit(process) == 130
        process.communicate()
    assert results(tooled.doc()) == [("2", False)]


@pytest.mark.slow
def test_a_question_is_kept_where_servers_are_given_up(tooled: Home) -> None:
    (tooled.cwd / "mute.py").write_text("import time\ntime.sleep(60)\n")
    tooled.configure(tooled.config.read_text().replace(str(SERVER), str(tooled.cwd / "mute.py")))
    run = tooled.run("--timeout", "2", "go")
    assert run.code == 124
    assert run.stdout == ""
    assert roles(tooled.doc()) == ["user"]
    assert "asks it again" in run.stderr
