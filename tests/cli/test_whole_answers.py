"""An answer is whole or says that it is not; a title takes nothing from it; a session goes where it was sent."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest

from tests.support.anthropic_server import AnthropicServer
from tests.support.home import Home, lab_config, read_until, wait_for
from tests.support.server import Cut, ModelServer, answer, chunk, event

DONE = event(b"[DONE]")
NO_REASON = [event(chunk({"role": "assistant", "content": ""})), event(chunk({"content": "The first half"})), DONE]
KIND = {"Content-Type": "application/json"}


def with_titles(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, "").replace("[providers", 'model_small = "lab/small"\n[providers'))


def say_title(model: ModelServer, *steps: object, name: str = "small", title: str = "A Good Title") -> None:
    body = json.dumps({"choices": [{"message": {"content": title}, "finish_reason": "stop"}]}).encode()
    model.script(*steps, body, headers=KIND, model=name)


# ---- a reason for ending


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_an_answer_without_a_reason_for_ending_is_not_whole(lab: Home, model: ModelServer, framing: str) -> None:
    model.script(*NO_REASON, framing=framing)
    run = lab.run("-o", "json", "go")
    told, reply = json.loads(run.stdout), lab.doc()["messages"][1]
    assert (run.code, told["text"], told["finish_reason"]) == (5, "The first half", None)
    assert told["error"]["exit_code"] == 5
    assert "when another request arrives" in told["error"]["message"]
    assert (reply["content"], reply["finish_reason"]) == ("The first half", None)


def test_an_answer_that_breaks_off_behind_done_is_not_whole_either(lab: Home, model: ModelServer) -> None:
    """What llama.cpp's server in Python does to a stream when another request arrives."""
    model.script(*NO_REASON, Cut)
    run = lab.run("go")
    assert (run.stdout, run.code) == ("The first half\n", 5)
    assert "when another request arrives" in run.stderr
    assert f"gptsh -s {lab.doc()['id']}" in run.stderr


def test_an_answer_in_one_piece_without_a_reason_is_not_whole(lab: Home, model: ModelServer) -> None:
    whole = {"choices": [{"message": {"content": "The first half"}, "finish_reason": None}]}
    model.script(json.dumps(whole).encode(), headers=KIND)
    assert lab.run("--no-stream", "go").code == 5


def test_a_message_of_anthropic_without_a_reason_is_not_whole(home: Home) -> None:
    server = AnthropicServer()
    try:
        begun = {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": []}}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Half"}}
        events = [begun, block, {"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
        server.script(*(f"event: {sent['type']}\ndata: {json.dumps(sent)}\n\n".encode() for sent in events))
        home.configure('[sessions]\ntitles = "off"\n')
        env = {"ANTHROPIC_API_BASE": server.base_url, "ANTHROPIC_API_KEY": "sk-ant-very-secret"}
        run = home.run("-m", "anthropic/claude-sonnet-4-5", "go", env=env)
        assert (run.stdout, run.code) == ("Half\n", 5)
        assert home.doc()["messages"][1]["finish_reason"] is None
    finally:
        server.close()


def test_calls_of_an_answer_without_a_reason_are_not_run(lab: Home, model: ModelServer) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "time__get", "arguments": '{"zone": "Europe'}}
    model.script(event(chunk({"tool_calls": [call]})), DONE)
    run = lab.run("go")
    assert run.code == 5
    assert len(model.asked) == 1


# ---- the title


def test_a_server_of_ones_own_is_asked_for_the_title_behind_the_answer(home: Home, model: ModelServer) -> None:
    with_titles(home, model)
    first, *rest = answer("first ", "second")[1:]
    model.script(first, 0.5, *rest, model="m")
    say_title(model)
    process = home.start("go")
    read_until(process.stdout, b"first ")
    assert [body["model"] for body in model.sent] == ["m"]
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == (b"second\n", b"", 0)
    assert [body["model"] for body in model.sent] == ["m", "small"]
    assert home.doc()["title"] == "A Good Title"


def test_a_server_that_ends_an_answer_for_another_request_gives_whole_answers(home: Home, model: ModelServer) -> None:
    """One slot: whoever asks ends what is under way, which is how llama.cpp's server in Python comes by default."""
    with_titles(home, model)
    for number in range(3):
        model.script(*answer("a ", "b ")[:-3], 0.3, *answer("a ", "b ")[-3:], model="m")
        say_title(model, title=f"Title {number}")
        assert home.run("go") == ("a b \n", "", 0)
    asked = [body["model"] for body in model.sent]
    assert asked == ["m", "small"] * 3


@pytest.mark.parametrize("ending", ["length", "broken", "interrupted"])
def test_a_title_that_came_is_kept_though_the_answer_is_partial(hosted: Home, model: ModelServer, ending: str) -> None:
    stay = threading.Event()
    first, *rest = answer("first ", "second", finish="length")[1:]
    model.script(first, stay, *(rest if ending == "length" else [Cut]), model="gpt-4.1")
    say_title(model, name="gpt-4.1-mini")
    process = hosted.start("go")
    read_until(process.stdout, b"first ")
    until = time.monotonic() + 20
    while len(model.asked) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.3)  # its title has come
    if ending == "interrupted":
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    stay.set()
    process.communicate(timeout=30)
    assert wait_for(process) == {"length": 5, "broken": 1, "interrupted": 130}[ending]
    assert hosted.doc()["title"] == "A Good Title"


def test_the_title_of_an_answer_cut_by_a_limit_is_asked_of_ones_own_server(home: Home, model: ModelServer) -> None:
    with_titles(home, model)
    model.say("cut", finish="length", model="m")
    say_title(model)
    assert home.run("go").code == 5
    assert home.doc()["title"] == "A Good Title"


# ---- a stream with nothing in it


def test_a_stream_without_an_answer_is_asked_for_once_more_as_a_whole(lab: Home, model: ModelServer) -> None:
    model.script()
    assert lab.run("hi") == ("You said: hi\n", "", 0)
    assert [bool(body.get("stream")) for body in model.sent] == [True, False]
    assert lab.doc()["messages"][1]["finish_reason"] == "stop"


def test_a_session_that_outgrows_a_window_nobody_told_goes_on(lab: Home, model: ModelServer) -> None:
    """An overflow is an empty stream there, and a plain refusal where no stream is asked for."""
    refused = "This model's maximum context length is 2048 tokens. However, you requested 2300 tokens"
    words = "some words that take their room " * 60
    for number in range(4):
        model.say(f"answer {number}: {words}", model="m")
        lab.run(*(["-s", "0"] if number else []), f"question {number}")
    model.script(model="m")
    model.refuse(400, {"error": {"message": refused, "code": "context_length_exceeded"}}, model="m")
    run = lab.run("-s", "0", "and now?")
    assert (run.stdout, run.code) == ("You said: and now?\n", 0)
    assert "are sent as" in run.stderr
    assert lab.doc()["context"]["compaction"]
    assert lab.run("-s", "0", "go on").code == 0


@pytest.mark.parametrize("steps", [[], [Cut], [DONE]], ids=["ends", "breaks off", "done"])
def test_where_nothing_is_said_either_way_the_size_and_the_setting_are_named(
    lab: Home, model: ModelServer, steps: list[object]
) -> None:
    model.script(*steps)
    model.script(b"", headers=KIND)
    run = lab.run("word " * 500)
    assert (run.stdout, run.code) == ("", 1)
    line, hint = run.stderr.splitlines()
    assert "tokens" in line
    assert "its window is not known" in line
    assert "context_window under [providers.lab]" in line
    assert hint.startswith("gptsh: the question is kept")


# ---- where a session goes


def test_a_model_without_a_prompt_moves_the_session(lab: Home, model: ModelServer) -> None:
    more = '[agents.other]\nsystem = "As another."\n[providers.up]\n'
    lab.configure(lab_config(model) + f'{more}base_url = "{model.base_url}"\n')
    model.refuse(400, {"error": {"message": "down"}}, model="m")
    assert lab.run("q").code == 1
    assert lab.run("-s", "0", "-m", "up/x", "--system", "Anew.", "-p", "temperature=0.3").stdout == "You said: q\n"
    doc = lab.doc()
    assert (doc["agent"]["model"], doc["agent"]["system"], doc["provider"]["name"]) == ("up/x", "Anew.", "up")
    assert doc["agent"]["params"] == {"temperature": 0.3}
    assert lab.run("-s", "0", "more").code == 0
    assert [body["model"] for body in model.sent] == ["m", "x", "x"]


def test_an_agent_and_tools_without_a_prompt_move_the_session(lab: Home, model: ModelServer) -> None:
    lab.configure(lab_config(model) + '[agents.other]\nmodel = "lab/o"\nsystem = "As another."\n')
    model.refuse(400, {"error": {"message": "down"}}, model="m")
    lab.run("q")
    assert lab.run("-s", "0", "-a", "other", "--no-tools").code == 0
    doc = lab.doc()
    assert (doc["agent"]["name"], doc["agent"]["model"]) == ("other", "lab/o")
    assert doc["meta"]["mcp_allowed_servers"] == []


# ---- what is checked before the pipe is read

WRONG = {
    "session": (["-s", "wrogn", "explain"], {}, "wrogn"),
    "session, no words": (["-s", "wrogn"], {}, "wrogn"),
    "agent": (["-a", "nobody", "explain"], {}, "nobody"),
    "model": (["-m", "nobody/x", "explain"], {}, "nobody"),
    "key": (["-m", "openai/gpt-4.1", "explain"], {}, "OPENAI_API_KEY"),
    "parameter": (["-p", "temperature", "explain"], {}, "KEY=VALUE"),
    "schema": (["--schema", "{", "explain"], {}, "schema"),
    "file": (["-f", "nowhere.txt", "explain"], {}, "nowhere.txt"),
    "timeout": (["--timeout", "soon", "explain"], {}, "--timeout"),
    "environment": (["explain"], {"GPTSH_SESSION": "wrogn"}, "wrogn"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_reported_while_the_pipe_is_still_open(lab: Home, wrong: str) -> None:
    args, env, word = WRONG[wrong]
    reader, writer = os.pipe()
    try:
        process = lab.start(*args, env=env, stdin=reader)
        os.write(writer, b"a long build\n")
        _, err = process.communicate(timeout=30)  # though the pipe has no end
    finally:
        os.close(reader)
        os.close(writer)
    assert process.returncode == 2
    assert word in err.decode()


def test_a_session_that_grew_while_the_pipe_was_awaited_is_sent_as_it_is_then(lab: Home, model: ModelServer) -> None:
    lab.run("one")
    process = lab.start("-s", "0", stdin=subprocess.PIPE)
    time.sleep(1)
    lab.run("-s", "0", "two")
    out, _ = process.communicate(b"three", timeout=30)
    assert (out, process.returncode) == (b"You said: three\n", 0)
    assert [m["content"] for m in model.sent[-1]["messages"] if m["role"] == "user"] == ["one", "two", "three"]


def test_labels_are_set_without_a_model(home: Home) -> None:
    home.run("-m", "echo", "hi")
    assert home.run("-s", "0", "--title", "Mine", stdin="") == ("", "", 0)
    assert home.doc()["title"] == "Mine"
