"""Rounds of a turn: the model calls tools, they run, their results go back; with a real tool server over stdio."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.home import Home, read_until, wait_for
from tests.support.paths import SUPPORT
from tests.support.server import ModelServer, answer, chunk, event
from tests.support.terminal import Terminal
from tests.support.tools import SERVER, call, calling, configure, is_running, roles


@pytest.fixture
def tooled(home: Home, model: ModelServer) -> Home:
    """A home whose agent has the good server's tools, all of them approved."""
    configure(home, model)
    return home


def results(doc: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(message["content"], message["is_error"]) for message in doc["messages"] if message["role"] == "tool"]


@pytest.mark.slow
def test_a_result_goes_back_and_all_of_it_is_kept(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("add", a=2, b=3)))
    model.say("It is 5.")
    run = tooled.run("2 + 3?")
    assert (run.stdout, run.stderr, run.code) == ("It is 5.\n", "", 0)
    first, second = model.sent
    (offered,) = [tool["function"] for tool in first["tools"] if tool["function"]["name"] == "good__add"]
    assert offered["description"] == "Add two numbers."
    assert offered["parameters"]["required"] == ["a", "b"]
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][1]["tool_calls"][0]["function"] == call("add", a=2, b=3)["function"]
    assert second["messages"][2] | {"name": ""} == {
        "role": "tool", "tool_call_id": "call_1", "content": "5", "name": ""
    }  # fmt: skip
    doc = tooled.doc()
    assert roles(doc) == ["user", "assistant", "tool", "assistant"]
    question, asking, result, said = doc["messages"]
    assert (asking["parent"], result["parent"], said["parent"]) == (question["id"], asking["id"], result["id"])
    assert asking["finish_reason"] == "tool_calls"
    assert asking["usage"] is None
    assert result["name"] == "good__add"
    assert result["is_error"] is False
    assert result["duration_ms"] >= 0
    assert doc["stats"]["turns"] == 1
    assert doc["meta"]["mcp_allowed_servers"] == ["good"]


@pytest.mark.slow
def test_calls_of_one_round_run_at_once_and_stand_in_their_order(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("meet", 1, name="first"), call("meet", 2, name="second")))
    model.say("done")
    assert tooled.run("go").code == 0
    assert results(tooled.doc()) == [("first met", False), ("second met", False)]
    assert [m["tool_call_id"] for m in model.sent[1]["messages"][2:]] == ["call_1", "call_2"]


@pytest.mark.slow
def test_a_tool_that_fails_tells_the_model(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("fail", why="no such file")))
    model.say("a pity")
    assert tooled.run("go").code == 0
    assert results(tooled.doc()) == [("no such file", True)]
    assert model.sent[1]["messages"][-1]["content"] == "no such file"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["{", "[1]", '{"a": 1}', '"a"'])
def test_arguments_that_are_wrong_are_told_to_the_model(tooled: Home, model: ModelServer, arguments: str) -> None:
    wrong = call("fail")
    wrong["function"]["arguments"] = arguments
    model.script(*calling(wrong))
    model.say("a pity")
    run = tooled.run("go")
    doc = tooled.doc()
    assert run.code == 0
    assert results(doc)[0][1] is True
    assert doc["messages"][1]["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.slow
def test_a_tool_that_does_not_exist_is_told_to_the_model(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("ad", a=1, b=1)))
    model.say("a pity")
    assert tooled.run("go").code == 0
    ((said, failed),) = results(tooled.doc())
    assert failed
    assert "good__add" in said


OLD = [  # what earlier versions took from a tool, and what the model reads of it now
    ({"type": "file", "file": {"filename": "a.zip.pdf", "file_data": "data:application/zip;base64,AAAA"},
      "source": "file:///a.zip"}, "file:///a.zip:\n[application/zip, 3 bytes]"),
    ({"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zy8+"}}, "[image/svg+xml, 6 bytes]"),
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}, "[image/png, 0 bytes]"),
    ({"type": "file", "file": {"filename": "an audio.pdf", "file_data": "data:audio/x-foo;base64,AAAA"}},
     "an audio.pdf:\n[audio/x-foo, 3 bytes]"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("part", "read"), OLD)
def test_what_no_model_takes_does_not_end_a_session(
    tooled: Home, model: ModelServer, part: dict[str, Any], read: str
) -> None:
    model.script(*calling(call("add", a=1, b=1)))
    model.say("two")
    tooled.run("go")
    path, doc = tooled.files()[0], tooled.doc()
    doc["messages"][2]["content"] = [part]
    path.write_text(json.dumps(doc))
    model.say("a pity")
    assert tooled.run("-s", "0", "and now?").code == 0
    sent = model.sent[-1]["messages"]
    assert sent[2]["content"] == read
    assert sent[-1] == {"role": "user", "content": "and now?"}
    assert tooled.doc()["messages"][2]["content"] == [part]


@pytest.mark.slow
def test_several_rounds_and_their_words(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("add", a=1, b=1), text="Let me see."))
    model.script(*calling(call("add", a=2, b=2), text="And now?"))
    model.say("2 and 4.")
    run = tooled.run("go")
    assert (run.stdout, run.code) == ("Let me see.\n\nAnd now?\n\n2 and 4.\n", 0)
    assert [m["content"] for m in tooled.doc()["messages"]] == ["go", "Let me see.", "2", "And now?", "4", "2 and 4."]


@pytest.mark.slow
def test_the_words_of_the_last_round_are_the_answer_for_a_program(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("add", a=1, b=1), text="Let me see."))
    model.say("2.")
    told = json.loads(tooled.run("-o", "json", "go").stdout)
    assert told["text"] == "2."
    assert told["error"] is None
    assert [made["function"]["name"] for made in told["tool_calls"]] == ["good__add"]
    assert told["context"]["included"] == 3


@pytest.mark.slow
def test_events_tell_calls_and_results(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("add", a=1, b=1)))
    model.say("2.")
    events = [json.loads(line) for line in tooled.run("-o", "jsonl", "go").stdout.splitlines()]
    kinds = [told["type"] for told in events]
    assert [kind for kind in kinds if kind.startswith(("tool", "message"))] == [
        "message_recorded", "tool_call", "message_recorded", "tool_result", "message_recorded", "message_recorded"
    ] or kinds.index("tool_call") < kinds.index("tool_result")  # fmt: skip
    (result,) = [told["tool_result"] for told in events if told["type"] == "tool_result"]
    assert result == {"tool_call_id": "call_1", "name": "good__add", "content": "2", "is_error": False}
    recorded = [told["role"] for told in events if told["type"] == "message_recorded"]
    assert recorded == ["user", "assistant", "tool", "assistant"]


def test_results_are_on_disk_before_the_model_is_asked_again(tooled: Home, model: ModelServer) -> None:
    asked_again = threading.Event()
    model.script(*calling(call("add", a=2, b=3)))
    model.script(event(chunk({"content": "It"})), asked_again, *answer(" is 5.")[1:])
    with tooled.start("go") as process:
        read_until(process.stdout, b"It")
        assert roles(tooled.doc()) == ["user", "assistant", "tool"]
        process.kill()
    asked_again.set()
    assert results(tooled.doc()) == [("5", False)]


@pytest.mark.slow
def test_a_turn_of_endless_calls_ends(home: Home, model: ModelServer) -> None:
    configure(home, model, more="[mcp]\nmax_rounds = 2\n")
    for _ in range(3):
        model.script(*calling(call("add", a=1, b=1)))
    run = home.run("go")
    assert run.code == 5
    assert "after 2 rounds" in run.stderr
    assert "max_rounds" in run.stderr
    assert len(model.asked) == 2
    doc = home.doc()
    assert roles(doc) == ["user", "assistant", "tool", "assistant"]
    model.refuses = None
    assert home.run("-s", "0", "--no-tools", "and?").code in (0, 1)
    sent = model.sent[-1]["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "tool", "user"]


@pytest.mark.slow
def test_without_a_terminal_a_call_is_denied_and_the_model_told(home: Home, model: ModelServer) -> None:
    configure(home, model, approved='"add"')
    target = home.cwd / "noted"
    model.script(*calling(call("note", 1, path=str(target)), call("add", 2, a=1, b=1)))
    model.say("I could not.")
    run = home.run("go")
    assert (run.stdout, run.code) == ("I could not.\n", 4)
    assert "denied: good__note" in run.stderr
    assert "auto_approve" in run.stderr
    assert not target.exists()
    (denied, is_error), added = results(home.doc())
    assert is_error
    assert denied.startswith("denied")
    assert added == ("2", False)
    assert model.sent[1]["messages"][2]["content"] == denied


def asked_on_terminal(home: Home, model: ModelServer, reply: bytes, *, path: str) -> tuple[bytes, int]:
    model.script(*calling(call("note", path=path)))
    model.say("so be it")
    terminal = Terminal(home, "go")
    terminal.until(rb"Run it\?")
    os.write(terminal.fd, reply)
    return terminal.close()


@pytest.mark.slow
@pytest.mark.parametrize(("reply", "runs", "code"), [(b"y\n", True, 0), (b"no\n", False, 4), (b"\x04", False, 4)])
def test_a_person_is_asked(home: Home, model: ModelServer, reply: bytes, runs: bool, code: int) -> None:
    configure(home, model, approved="")
    target = home.cwd / "noted"
    seen, exit_code = asked_on_terminal(home, model, reply, path=str(target))
    assert (target.exists(), exit_code) == (runs, code)
    assert str(target).encode() in seen
    assert b"so be it" in seen


@pytest.mark.slow
def test_what_is_always_allowed_is_not_asked_again_in_this_session_alone(home: Home, model: ModelServer) -> None:
    configure(home, model, approved="")
    target = home.cwd / "noted"
    asked_on_terminal(home, model, b"always\n", path=str(target))
    assert home.doc()["meta"]["mcp_approved"] == ["good__note"]
    for ref, code in (("0", 0), ("0@1", 4)):
        model.script(*calling(call("note", path=str(target))))
        model.say("again")
        assert home.run("-s", ref, "again").code == code
    assert target.read_text() == "noted\nnoted\n"


@pytest.mark.slow
def test_arguments_are_shown_whole_and_safe(home: Home, model: ModelServer) -> None:
    configure(home, model, approved="")
    path = str(home.cwd / ("x" * 200 + "\x1b]0;evil\x07"))
    seen, _ = asked_on_terminal(home, model, b"n\n", path=path)
    assert b"x" * 200 in seen.replace(b"\r\n", b"")
    assert b"\x1b]0;" not in seen


@pytest.mark.slow
def test_letters_are_not_reordered_on_a_terminal(home: Home, model: ModelServer) -> None:
    configure(home, model, approved="")
    model.script(*calling(call("note", path="no\u202etxt.exe \u2066")))
    model.say("a \u202eb \u2069c, \U0001f468\u200d\U0001f469 and \u200f stay")
    terminal = Terminal(home, "-o", "text", "go")
    terminal.until(rb"Run it\?")
    os.write(terminal.fd, b"n\n")
    text = terminal.close()[0].decode()
    assert "a \\u202eb \\u2069c, \U0001f468\u200d\U0001f469 and \u200f stay" in text
    assert "no\\u202etxt.exe \\u2066" in text
    assert not set("\u202e\u2066\u2069") & set(text)


@pytest.mark.slow
def test_a_server_that_dies_ends_the_turn_and_what_came_is_kept(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("die")))
    run = tooled.run("go")
    assert (run.stdout, run.code) == ("", 3)
    assert "good" in run.stderr
    assert "the disk is full" in run.stderr
    assert "gptsh -s" in run.stderr
    assert roles(tooled.doc()) == ["user", "assistant"]
    model.say("well")
    assert tooled.run("-s", "0", "go on").code == 0
    sent = model.sent[-1]["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "user"]
    assert "no result" in sent[2]["content"]


def test_a_server_that_does_not_start_leaves_the_question(home: Home, model: ModelServer) -> None:
    configure(home, model)
    home.configure(home.config.read_text().replace(str(SERVER), "/no/such/file.py"))
    run = home.run("go")
    assert (run.stdout, run.code, model.asked) == ("", 3, [])
    assert "good" in run.stderr
    assert "asks it again" in run.stderr
    assert roles(home.doc()) == ["user"]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_tools_run_keeps_what_came(
    tooled: Home, model: ModelServer, how: signal.Signals, code: int
) -> None:
    begun = tooled.cwd / "begun"
    model.script(*calling(call("add", 1, a=1, b=1), call("hang", 2, path=str(begun))))
    with tooled.start("go") as process:
        until = time.monotonic() + 20
        while not begun.exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        time.sleep(0.3)  # for the other result
        process.send_signal(how)
        assert wait_for(process) == code
    assert results(tooled.doc()) == [("2", False)]


@pytest.mark.slow
def test_the_deadline_ends_a_tool_that_hangs(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("hang", path=str(tooled.cwd / "begun"))))
    run = tooled.run("--timeout", "8", "go")
    assert run.code == 124
    assert "what arrived is kept" in run.stderr


@pytest.mark.slow
def test_much_output_is_kept_whole_and_sent_shortened(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("repeat", text="0123456789", times=30_000)))
    model.say("a lot")
    assert tooled.run("go").code == 0
    ((kept, _),) = results(tooled.doc())
    assert kept == "0123456789" * 30_000
    sent = model.sent[-1]["messages"][-1]["content"]
    assert len(sent) < 201_000
    assert sent.startswith("0123456789")
    assert sent.endswith("0123456789")
    assert "300,000" in sent


@pytest.mark.slow
def test_a_server_sees_no_key_of_the_user(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("environment")))
    model.say("done")
    assert tooled.run("go", env={"OPENAI_API_KEY": "sk-secret", "PATH": tooled.env["PATH"]}).code == 0
    ((names, _),) = results(tooled.doc())
    assert "PATH" in names
    assert "OPENAI_API_KEY" not in names
    assert "PYTHONPATH" not in names


def test_no_tools_starts_no_server(tooled: Home, model: ModelServer) -> None:
    tooled.configure(tooled.config.read_text().replace(str(SERVER), "/no/such/file.py"))
    assert tooled.run("--no-tools", "go").stdout == "You said: go\n"
    assert "tools" not in model.sent[0]


@pytest.mark.slow
def test_a_session_goes_on_with_the_tools_it_was_given(home: Home, model: ModelServer) -> None:
    configure(home, model)
    home.configure(home.config.read_text().replace('\ntools = ["good"]', ""))
    assert home.run("--tools", "good", "go").code == 0
    assert home.run("-s", "0", "on").code == 0
    assert ["tools" in body for body in model.sent] == [True, True]


@pytest.mark.slow
def test_dry_run_shows_the_tools_and_keeps_nothing(tooled: Home, model: ModelServer) -> None:
    shown = json.loads(tooled.run("--dry-run", "-o", "json", "go").stdout)
    assert "good__add" in [tool["function"]["name"] for tool in shown["body"]["tools"]]
    assert model.asked == []
    assert tooled.files() == []


@pytest.mark.slow
def test_nothing_is_kept_of_a_turn_with_tools_where_that_is_asked(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("add", a=2, b=3)))
    model.say("It is 5.")
    assert tooled.run("--no-save", "go").stdout == "It is 5.\n"
    assert tooled.files() == []


@pytest.mark.slow
def test_a_turn_that_stopped_among_its_tools_goes_on_without_a_prompt(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("add", a=2, b=3), text="Let me see."))
    model.refuse(500, {"error": {"message": "boom"}}, {"x-should-retry": "false"})
    run = tooled.run("-o", "json", "go")
    told = json.loads(run.stdout)
    assert (run.code, told["text"], told["error"]["exit_code"]) == (1, "Let me see.", 1)
    assert told["id"] == tooled.doc()["messages"][1]["id"]
    assert "goes on from there" in run.stderr
    model.say("It is 5.")
    assert tooled.run("-s", "0") == ("It is 5.\n", "", 0)
    assert [m["role"] for m in model.sent[-1]["messages"]] == ["user", "assistant", "tool"]
    assert roles(tooled.doc()) == ["user", "assistant", "tool", "assistant"]
    assert tooled.run("-s", "0").code == 2


@pytest.mark.slow
def test_calls_that_never_ran_go_on_with_an_error_in_their_place(tooled: Home, model: ModelServer) -> None:
    model.script(*calling(call("die")))
    assert tooled.run("go").code == 3
    model.say("I see.")
    assert tooled.run("-s", "0").stdout == "I see.\n"
    assert "no result" in model.sent[-1]["messages"][-1]["content"]


@pytest.mark.slow
def test_a_session_without_tools_stays_without(tooled: Home, model: ModelServer) -> None:
    tooled.run("--no-tools", "go")
    tooled.run("-s", "0", "on")
    tooled.run("-s", "0", "--tools", "good__add", "now")
    tooled.run("-s", "0", "and on")
    offered = [[tool["function"]["name"] for tool in body.get("tools", ())] for body in model.sent]
    assert offered == [[], [], ["good__add"], ["good__add"]]


@pytest.mark.slow
def test_odd_names_of_allowed_servers_are_passed_over(tooled: Home, model: ModelServer) -> None:
    tooled.run("go")
    doc = tooled.doc()
    doc["meta"]["mcp_allowed_servers"] = [["x"], {}, 7, "good__add"]
    tooled.files()[0].write_text(json.dumps(doc))
    assert tooled.run("-s", "0", "on").code == 0
    assert len(model.sent[-1]["tools"]) == 1


@pytest.mark.slow
def test_what_was_typed_before_the_question_is_no_answer_to_it(home: Home, model: ModelServer) -> None:
    configure(home, model, approved="")
    target = home.cwd / "noted"
    calls = calling(call("note", path=str(target)), text="thinking")
    release = threading.Event()
    model.script(calls[0], release, *calls[1:])
    model.say("so be it")
    terminal = Terminal(home, "go", "-o", "text")
    terminal.until(b"thinking")
    os.write(terminal.fd, b"y\n")
    release.set()
    terminal.until(rb"Run it\?")
    os.write(terminal.fd, b"n\n")
    assert terminal.close()[1] == 4
    assert not target.exists()


@pytest.fixture
def stubborn(home: Home, model: ModelServer) -> Callable[[], list[int]]:
    """An agent whose tool server ignores SIGTERM, and has started another process; tells their ids."""
    configure(home, model)
    server, noted = SUPPORT / "bad_tool_server.py", home.cwd / "pids"
    args = ", ".join(map(json.dumps, (str(server), "stubborn", str(noted))))
    home.configure(home.config.read_text().replace(json.dumps(str(SERVER)), args))
    return lambda: list(map(int, noted.read_text().split())) if noted.exists() else []


def test_a_second_ctrl_c_leaves_no_server_behind(
    home: Home, model: ModelServer, stubborn: Callable[[], list[int]]
) -> None:
    model.script(*calling(call("hang")))
    with home.start("go") as process:
        until = time.monotonic() + 20
        while not home.files() or roles(home.doc()) != ["user", "assistant"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert wait_for(process) == 130
    assert len(stubborn()) == 2
    until = time.monotonic() + 10
    while any(map(is_running, stubborn())):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_the_deadline_leaves_no_server_behind(
    home: Home, model: ModelServer, stubborn: Callable[[], list[int]]
) -> None:
    model.script(*calling(call("hang")))
    assert home.run("--timeout", "4", "go").code == 124
    assert len(stubborn()) == 2
    assert not any(map(is_running, stubborn()))


@pytest.mark.slow
def test_a_question_is_kept_where_servers_are_given_up(home: Home, model: ModelServer) -> None:
    configure(home, model)
    mute = home.cwd / "mute.py"
    mute.write_text("import time\ntime.sleep(60)\n")
    home.configure(home.config.read_text().replace(str(SERVER), str(mute)))
    run = home.run("--timeout", "2", "go")
    assert (run.code, run.stdout) == (124, "")
    assert "asks it again" in run.stderr
    assert roles(home.doc()) == ["user"]


@pytest.mark.slow
def test_a_session_goes_on_though_one_of_its_tools_is_gone(home: Home, model: ModelServer) -> None:
    configure(home, model)
    assert home.run("--tools", "good__add,good__note", "go").code == 0
    doc = home.doc()
    doc["meta"]["mcp_allowed_servers"].append("good__gone")
    home.files()[0].write_text(json.dumps(doc))
    run = home.run("-s", "0", "on")
    assert (run.code, run.stderr) == (0, "gptsh: the session goes on without some of its tools: good__gone\n")
    assert [tool["function"]["name"] for tool in model.sent[-1]["tools"]] == ["good__add", "good__note"]
    assert home.run("--tools", "good__gone", "go").code == 2


@pytest.mark.slow
def test_two_calls_with_one_id_have_a_result_each(tooled: Home, model: ModelServer) -> None:
    calls = [{**call("add", 1, a=1, b=1), "id": "x"}, {**call("add", 2, a=5, b=5), "id": "x"}]
    model.script(*calling(*calls))
    model.say("2 and 10")
    assert tooled.run("go").code == 0
    assert results(tooled.doc()) == [("2", False), ("10", False)]
    sent = model.sent[-1]["messages"]
    assert [made["id"] for made in sent[1]["tool_calls"]] == ["x", "x_2"]
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [("x", "2"), ("x_2", "10")]
