"""``ask`` and ``stream`` from a program: the turn of the command, without a terminal, a signal or a line of output."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from gptsh import GptshError, ask, stream
from gptsh.errors import Denied, ModelError, SchemaMismatch, TimedOut, UnknownSession, UsageError
from tests.support.home import Home, lab_config, texts, wait_until
from tests.support.server import Hold, ModelServer, answer, chunk, event
from tests.support.tools import SERVER, call, calling

ADD = {
    "id": "c1",
    "type": "function",
    "function": {"name": "good__add", "arguments": '{"a": 1, "b": 2}'},
    "index": 0,
}


@pytest.fixture
def python(home: Home, model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose default model is ``lab/m``, for this process."""
    home.configure(lab_config(model))
    for name in [*os.environ]:
        if name.startswith("GPTSH_"):
            monkeypatch.delenv(name)
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.cwd)
    return home


def test_an_answer_has_its_text_usage_and_session_and_nothing_is_printed(
    python: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = {
        signum: signal.getsignal(signum)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    }
    (python.cwd / "a.txt").write_text("in the file")
    first = ask("hello", files=["a.txt"], title="Greeting", tags=["t"], name="@greet")
    assert first.text.startswith("You said: hello")
    assert first.complete is True
    assert first.finish_reason == "stop"
    assert first.model == "lab/m"
    assert first.usage
    assert first.usage["total"] == 16
    second = ask("more", session="@greet", tags=["u"], untag=["t"])
    doc = python.doc()
    assert first.session == doc["id"]
    assert second.session == doc["id"]
    assert doc["title"] == "Greeting"
    assert doc["meta"]["tags"] == ["u"]
    assert len(doc["messages"]) == 4
    assert "in the file" in texts(doc)[0]
    assert capfd.readouterr() == ("", "")
    assert handlers == {signum: signal.getsignal(signum) for signum in handlers}


def test_nothing_is_saved_without_save(python: Home) -> None:
    assert ask("hello", save=False).session is None
    assert python.files() == []


def test_a_failure_is_the_exception_of_the_command_and_the_question_is_saved(
    python: Home, model: ModelServer
) -> None:
    python.configure(lab_config(model, "[network]\nretries = 0\n"))
    model.script(b'{"error": {"message": "out of order"}}', status=500)
    with pytest.raises(ModelError, match="out of order") as failure:
        ask("hello")
    assert failure.value.answer is None
    assert texts(python.doc()) == ["user: hello"]
    with pytest.raises(UnknownSession):
        ask("hello", session="zzzz")
    with pytest.raises(UsageError, match="empty"):
        ask(" ")


def test_an_answer_that_is_not_complete_says_why(python: Home, model: ModelServer) -> None:
    model.script(*answer("half an ans", finish="length"))
    partial = ask("hello")
    assert partial.text == "half an ans"
    assert not partial.complete
    assert partial.finish_reason == "length"
    assert "token limit" in partial.notes[-1]
    model.script(*answer("half an ans", finish="length"))
    with pytest.raises(GptshError) as failure:
        list(stream("hello"))
    assert failure.value.exit_code == 5


def test_a_schema_gives_data_and_an_answer_of_another_form_is_an_error(
    python: Home, model: ModelServer
) -> None:
    schema = {"type": "object", "required": ["n"]}
    model.script(*answer('{"n": 3}'))
    assert ask("a number", schema=schema).data == {"n": 3}
    for _ in range(2):
        model.script(*answer("three"))
    with pytest.raises(GptshError) as failure:
        ask("a number", schema=schema)
    assert failure.value.exit_code == 5
    assert failure.value.answer.text == "three"


def test_stream_yields_the_events_of_jsonl(python: Home, model: ModelServer) -> None:
    for _ in range(2):
        model.script(*answer("one ", "two"))
    printed = [json.loads(line) for line in python.run("-o", "jsonl", "hello").stdout.splitlines()]
    events = list(stream("hello"))
    assert [one["type"] for one in events] == [one["type"] for one in printed]
    assert [set(one) for one in events] == [set(one) for one in printed]
    assert "".join(one["text"] for one in events if one["type"] == "text") == "one two"


def test_who_stops_early_keeps_what_had_arrived(python: Home, model: ModelServer) -> None:
    hold = Hold()
    model.script(
        event(chunk({"content": "one "})), hold, event(chunk({"content": "two"})), *answer(" three")
    )
    events = stream("hello")
    for one in events:
        if one["type"] == "text":
            break
    hold.set()
    events.close()  # type: ignore[attr-defined] # a generator
    last = python.doc()["messages"][-1]
    assert last["role"] == "assistant"
    assert last["content"][:4] == "one "
    assert ask("and?", session="0").session == python.doc()["id"]


def test_eight_threads_in_one_session_are_eight_turns(python: Home) -> None:
    session = ask("first").session
    answers: dict[int, str] = {}

    def turn(number: int) -> None:
        answers[number] = ask(f"question {number}", session=session).text

    threads = [threading.Thread(target=turn, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: f"You said: question {number}" for number in range(8)}
    doc = python.doc()
    assert doc["stats"]["turns"] == 9
    assert sorted(texts(doc)[2::2]) == sorted(f"user: question {number}" for number in range(8))


def test_a_tool_runs_where_it_is_approved_and_is_denied_where_nobody_can_be_asked(
    python: Home, model: ModelServer
) -> None:
    server = f"[mcp.servers.good]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(SERVER))}]\n"
    python.configure(f'{lab_config(model)}[mcp]\n{server}auto_approve = ["*"]\n')
    model.script(*calling(ADD))
    model.say("three")
    done = ask("add", tools=["good"])
    assert done.text == "three"
    assert [call["function"]["name"] for call in done.tool_calls] == ["good__add"]
    python.configure(f"{lab_config(model)}[mcp]\n{server}")
    model.script(*calling(ADD))
    model.say("I may not")
    with pytest.raises(Denied) as failure:
        ask("add", tools=["good"])
    assert failure.value.answer.text == "I may not"


def test_ctrl_c_in_a_program_keeps_what_had_arrived_and_lets_the_turn_go(
    python: Home, model: ModelServer
) -> None:
    hold = Hold()
    model.script(event(chunk({"content": "one "})), hold)
    program = """
import gptsh
try:
    gptsh.ask("hello")
except KeyboardInterrupt:
    print(gptsh.ask("again", session="0").text)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=python.env,
        cwd=python.cwd,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert hold.reached.wait(20)
    time.sleep(0.3)  # until the first word has arrived
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    hold.set()
    assert out == "You said: again\n"
    assert texts(python.doc()) == [
        "user: hello",
        "assistant: one ",
        "user: again",
        "assistant: You said: again",
    ]


def test_the_import_alone_loads_nothing(python: Home) -> None:
    program = "import sys; before = {*sys.modules}; import gptsh; print({*sys.modules} - before - {'gptsh'})"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(
        command, env=python.env, capture_output=True, text=True, check=True
    ).stdout
    assert loaded == "set()\n"


def test_who_leaves_the_loop_while_the_model_is_silent_is_released_within_a_second(
    python: Home, model: ModelServer
) -> None:
    hold = Hold()
    model.script(*answer("first ", "second")[:2], hold, *answer("x")[2:], model="m")
    for received in stream("go"):
        if received["type"] == "text":
            left_at = time.monotonic()
            break
    assert time.monotonic() - left_at < 1.5
    assert texts(python.doc()) == ["user: go", "assistant: first "]
    hold.set()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("modle", "Did you mean 'model'?"),
        ("file", "Did you mean 'files'?"),
        ("no_save", "Did you mean 'save'?"),
        ("temperature", "Did you mean params={'temperature': …}?"),
        ("colour", "unexpected keyword argument 'colour'$"),
    ],
)
def test_an_unknown_option_is_a_type_error_that_names_the_one_that_is_meant(
    python: Home, name: str, meant: str
) -> None:
    for function in (ask, stream):
        with pytest.raises(TypeError, match=re.escape(meant).replace(r"\$", "$")):
            function("hi", **{name: "echo"})


@pytest.mark.parametrize(
    ("question", "options", "named"),
    [
        (None, {}, "argument 'question' must be str, not NoneType"),
        (b"hi", {}, "argument 'question' must be str, not bytes"),
        ("hi", {"session": 0}, "argument 'session' must be str, not int"),
        ("hi", {"max_cost": "1"}, "argument 'max_cost' must be int or float, not str"),
        ("hi", {"params": "temperature=0"}, "argument 'params' must be Mapping, not str"),
        ("hi", {"tags": 3}, "argument 'tags' must be str or PathLike or Iterable, not int"),
        ("hi", {"save": "no"}, "argument 'save' must be bool, not str"),
        ("hi", {"schema": 3}, "argument 'schema' must be"),
    ],
)
def test_a_value_of_another_type_is_a_type_error_that_names_the_argument(
    python: Home, question: Any, options: dict[str, Any], named: str
) -> None:
    for function in (ask, stream):
        with pytest.raises(TypeError, match=re.escape(named)):
            function(question, **options)
    assert python.files() == []


def test_none_is_as_if_an_option_were_left_out(python: Home) -> None:
    names = ["session", "params", "values", "files", "tags", "fallback", "save", "timeout"]
    assert ask("hi", **dict.fromkeys(names)).text == "You said: hi"
    assert len(python.files()) == 1


@pytest.mark.parametrize("options", [{"truncate": "foo"}, {"save": False, "tags": ["x"]}])
def test_a_value_that_the_command_refuses_is_a_usage_error(
    python: Home, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        ask("hi", **options)


def test_a_timeout_ends_the_wait_and_keeps_what_had_arrived(
    python: Home, model: ModelServer
) -> None:
    hold = Hold()
    model.script(event(chunk({"content": "one "})), hold)
    begun = time.monotonic()
    with pytest.raises(TimedOut) as failure:
        ask("hello", timeout=0.5)
    assert time.monotonic() - begun < 5
    hold.set()
    assert failure.value.exit_code == 124
    assert failure.value.answer.text == "one "
    assert failure.value.answer.complete is False
    assert failure.value.answer.finish_reason == "timeout"
    assert texts(python.doc()) == ["user: hello", "assistant: one "]


def test_a_timeout_ends_an_answer_that_does_not_stop_arriving(
    python: Home, model: ModelServer
) -> None:
    pieces: list[Any] = [
        item for _ in range(200) for item in (event(chunk({"content": "on "})), 0.02)
    ]
    model.script(*pieces)
    with pytest.raises(TimedOut):
        ask("hello", timeout=0.5)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_a_number_of_seconds(python: Home, timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout: expected a number of seconds above 0"):
        ask("hello", timeout=timeout)


def test_a_timeout_ends_the_wait_for_a_tool(python: Home, model: ModelServer) -> None:
    server = f"[mcp.servers.good]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(SERVER))}]\n"
    python.configure(f'{lab_config(model)}[mcp]\n{server}auto_approve = ["*"]\n')
    model.script(*calling(call("hang", path=str(python.cwd / "hangs"))))
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        ask("sleep", tools=["good"], timeout=1.5)
    assert time.monotonic() - begun < 10


def test_the_fallback_answers_where_the_model_is_not_available(
    python: Home, model: ModelServer
) -> None:
    python.configure(f"{lab_config(model)}[network]\nretries = 0\n")
    model.script(b'{"error": {"message": "overloaded"}}', status=503)
    answered = ask("hello", fallback="echo")
    assert answered.text == "You said: hello"
    assert answered.model == "echo"


def test_a_single_file_tag_or_tool_needs_no_list(python: Home) -> None:
    (python.cwd / "a.txt").write_text("in the file")
    ask("hello", files="a.txt", tags="work")
    assert "in the file" in texts(python.doc())[0]
    assert python.doc()["meta"]["tags"] == ["work"]


@dataclass
class Animal:
    name: str
    legs: int
    kind: Literal["cat", "dog"]
    friends: list["Animal"] = field(default_factory=list)
    weight: float | None = None


class Modelled:
    """What pydantic's classes have."""

    @classmethod
    def model_json_schema(cls) -> dict[str, object]:
        return {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


def test_a_dataclass_is_a_schema_and_the_data_is_its_json(python: Home, model: ModelServer) -> None:
    model.script(*answer('{"name": "Tom", "legs": "four", "kind": "cat"}'))
    model.script(*answer('{"name": "Tom", "legs": 4, "kind": "cat", "friends": [{"name": "Rex"}]}'))
    with pytest.raises(SchemaMismatch):
        ask("a cat", schema=Animal)
    cat = '{"name": "Tom", "legs": 4, "kind": "cat", "friends": [{"name": "Rex", "legs": 3, "kind": "dog"}]}'
    model.script(*answer(cat))
    assert ask("a cat", schema=Animal).data == json.loads(cat)


def test_a_class_of_pydantic_is_a_schema(python: Home, model: ModelServer) -> None:
    model.script(*answer('{"name": "Tom"}'))
    assert ask("a cat", schema=Modelled).data == {"name": "Tom"}
    assert "model_json_schema" not in json.dumps(model.sent[-1])
    assert '"required": ["name"]' in json.dumps(model.sent[-1])


def test_a_class_without_a_schema_is_a_type_error(python: Home) -> None:
    with pytest.raises(TypeError, match="no dataclass, no pydantic model"):
        ask("a cat", schema=Home)


def test_a_title_is_asked_for_only_where_a_model_small_is_set(
    python: Home, model: ModelServer
) -> None:
    python.configure(lab_config(model, ""))
    ask("hello")
    assert len(model.requests) == 1
    python.configure(lab_config(model, 'model_small = "lab/small"\n'))
    model.script(*answer("A Title"), model="small")
    ask("hello")
    wait_until(lambda: sorted(sent["model"] for sent in model.sent) == ["m", "m", "small"])


def test_the_cost_is_that_of_all_that_the_call_has_asked(python: Home, model: ModelServer) -> None:
    prices = "[providers.lab.prices]\ninput = 1000\noutput = 0\n"
    python.configure(lab_config(model) + prices)
    one = ask("hello")
    for _ in range(2):
        model.script(*answer('{"n": "x"}'))
    model.script(*answer('{"n": 3}'))
    with pytest.raises(SchemaMismatch) as failure:
        ask("a number", schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    assert failure.value.answer.cost == pytest.approx(2 * one.cost)


STATE = """
import gc, logging, os, warnings
import gptsh
def state():
    root = logging.getLogger()
    return gc.isenabled(), gc.get_freeze_count(), dict(os.environ), warnings.filters[:], root.handlers[:]
before = state()
try:
    gptsh.ask("hi", {options})
except gptsh.GptshError as err:
    print(type(err).__name__)
assert state() == before, (state(), before)
"""


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        pytest.param("tools=['good']", "", id="a tool server"),
        pytest.param(
            "model='azure_ai/nobody'", "ModelError\n", id="litellm", marks=pytest.mark.slow
        ),
    ],
)
def test_a_call_leaves_the_process_as_it_was(python: Home, options: str, printed: str) -> None:
    servers = f'[mcp.servers.good]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\n'
    python.configure(python.config.read_text() + servers + "[network]\nretries = 0\n")
    env = {**python.env, "AZURE_AI_API_BASE": "http://127.0.0.1:9", "AZURE_AI_API_KEY": "x"}
    program = [sys.executable, "-c", STATE.format(options=options)]
    done = subprocess.run(
        program, env=env, cwd=python.cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed, done.stderr


def test_a_forked_child_holds_no_lock_of_the_store(python: Home) -> None:
    program = """
import os, time
from gptsh.core import sessions
child = 0
def fork(saved):
    global child
    child = os.fork()
    if not child:
        time.sleep(20)
        os._exit(0)
doc = {"messages": [{"role": "user", "content": "hi"}]}
sessions.save_session(doc, fork)
begun = time.monotonic()
sessions.save_session(doc)
print(time.monotonic() - begun < 1)
os.kill(child, 9)
os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=python.env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
