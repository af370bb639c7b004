"""Tools: servers that behave and one that does not, each a real process or a real socket; the pure parts as tables."""

import base64
import contextlib
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import settings
from gptsh.context.shorten import as_sent
from gptsh.core.messages import Call, Message, Tool
from gptsh.core.secret import Secret
from gptsh.context.tokens import count_message, count_text, count_tools
from gptsh.core.tool_servers import ToolServer, ToolServers
from gptsh.errors import ConfigError, Denied, ToolServerError
from gptsh.tools import results
from gptsh.tools.names import LONGEST, matches, names_for_model
from gptsh.tools.process import Tail, environment
from gptsh.tools.toolbox import Toolbox
from tests.support.server import ModelServer, Script
from tests.support.tools import BAD, NEAR, is_running

BIN = Path(sys.executable).parent
Open = Callable[..., Toolbox]


def call(name: str, arguments: Any = "{}", ident: str = "1") -> Call:
    """A call as a model makes it."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Callable[[], list[int]]]:
    """The processes that the bad server has told of. None of them may be left."""

    def told() -> list[int]:
        file = tmp_path / "pids"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    yield told
    left = [pid for pid in told() if is_running(pid)]
    assert not left


@pytest.fixture
def bad(tmp_path: Path, pids: Callable[[], list[int]]) -> Callable[..., ToolServer]:
    """Makes an entry for the server that misbehaves."""

    def made(mode: str = "", name: str = "bad", **more: Any) -> ToolServer:
        return ToolServer(name, sys.executable, (str(BAD), mode, str(tmp_path / "pids")), **more)

    return made


@pytest.fixture
def opened(pids: Callable[[], list[int]]) -> Iterator[Open]:
    """Opens toolboxes, and closes them. Nothing of them may be left: no thread, no zombie."""
    boxes: list[Toolbox] = []

    def made(*servers: ToolServer, environ: Mapping[str, str] | None = None) -> Toolbox:
        boxes.append(Toolbox(servers, os.environ if environ is None else environ))
        boxes[-1].start()
        return boxes[-1]

    yield made
    for box in boxes:
        box.close()
        box.close()
    logging.disable(logging.NOTSET)
    assert not [thread for thread in threading.enumerate() if thread.name == "tools"]
    assert not [pid for pid in pids() if Path(f"/proc/{pid}/stat").exists() and os.getpid() == parent_of(pid)]


def parent_of(pid: int) -> int:
    """The parent of a process, on Linux."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ran(box: Toolbox, *calls: Call) -> list[Message]:
    """The results in order of arrival."""
    return [result.message for result in box.run(calls)]


def failing(box: Toolbox, *calls: Call) -> tuple[list[Message], ToolServerError]:
    """What came, and the failure behind it."""
    came: list[Message] = []
    with pytest.raises(ToolServerError) as failure:
        came.extend(result.message for result in box.run(calls))
    return came, failure.value


# ---- a server that behaves


def test_a_tool_is_offered_under_the_name_of_its_server_and_called_by_it(opened: Open, bad: Any) -> None:
    box = opened(bad(auto_approve=("f*", "meet")))
    tools = {tool.name: tool for tool in box.tools()}
    assert tools["bad__fail"].description == "Will fail.\nMore."
    assert tools["bad__fail"].parameters == {"type": "object", "properties": {"text": {"type": "string"}}}
    assert [name for name in tools if box.approved(call(name))] == ["bad__fail", "bad__meet"]
    (message,) = ran(box, call("bad__tell", {"text": "ä\u2028"}, "c7"))
    assert json.loads(message["content"])["given"] == {"text": "ä\u2028"}  # type: ignore[arg-type]
    assert isinstance(message.pop("duration_ms"), int)
    del message["content"]
    assert message == {"role": "tool", "tool_call_id": "c7", "name": "bad__tell", "is_error": False}


def test_calls_of_one_round_run_at_once(opened: Open, bad: Any) -> None:
    box = opened(bad(), bad(name="other"))
    assert len(box.tools()) == 2 * 13
    both = [call("bad__meet", {"text": "a"}, "a"), call("bad__meet", {"text": "b"}, "b")]  # each waits for the other
    came = ran(box, *both, call("other__fail", ident="c"))
    assert {message["tool_call_id"]: message["content"] for message in came} == {
        "a": "met a", "b": "met b", "c": "it failed",
    }  # fmt: skip


def test_a_server_gets_little_of_the_environment_and_is_out_of_the_terminals_reach(opened: Open, bad: Any) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/h",
        "LC_TIME": "C",
        "LANG": "C",
        "OPENAI_API_KEY": "sk",
        "EDITOR": "vi",
    }
    box = opened(bad(env={"OWN": "x", "HOME": "/else"}), environ=environ)
    box.tools()
    told = json.loads(ran(box, call("bad__tell"))[0]["content"])  # type: ignore[arg-type]
    added = {"LC_CTYPE"}  # by Python itself
    assert {name: told["env"][name] for name in set(told["env"]) - added} == {
        "PATH": os.environ["PATH"], "HOME": "/else", "LC_TIME": "C", "LANG": "C", "OWN": "x",
    }  # fmt: skip
    assert (told["cwd"], told["leads"]) == (os.getcwd(), True)


def test_the_environment_of_a_server_is_listed_in_one_place() -> None:
    names = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "LC_ALL", "LC_X")
    user = dict.fromkeys((*names, "LC", "LD_PRELOAD", "SSH_AUTH_SOCK", "GITHUB_TOKEN", "HTTPS_PROXY"), "v")
    assert set(environment(ToolServer("s", "c"), user)) == set(names)


@pytest.mark.parametrize("mode", ["chatty", "pages", "twins", "floods", "parent", "modern"])
def test_what_a_server_may_do_besides(opened: Open, bad: Any, mode: str) -> None:
    box = opened(bad(mode))
    assert len(box.tools()) == 13
    assert box.tools()[0].description == "Will die.\nMore."
    assert ran(box, call("bad__leak"))[0]["content"] == "done"


@pytest.mark.slow
def test_a_stubborn_server_is_ended_with_all_that_it_has_started(opened: Open, bad: Any, pids: Any) -> None:
    box = opened(bad("stubborn"))
    box.tools()
    assert len(pids()) == 2
    assert all(map(is_running, pids()))
    began = time.monotonic()
    box.close()
    assert time.monotonic() - began < 10  # a bound for a busy machine; it is to be two seconds
    assert not any(map(is_running, pids()))


def test_a_tool_that_is_gone_is_no_failure_where_that_is_borne(bad: Any) -> None:
    server = bad(tools=("fail", "gone", "g?ne", "d*"))
    strict, lenient = Toolbox([server], os.environ), Toolbox([server], os.environ, lenient=True)
    with contextlib.ExitStack() as stack:
        for box in (strict, lenient):
            stack.callback(box.close)
            box.start()
        with pytest.raises(
            ConfigError, match=r"has no tool 'gone': .*; --tools names others, --no-tools does without$"
        ):
            strict.tools()
        assert [tool.name for tool in lenient.tools()] == ["bad__die", "bad__fail"]
        assert lenient.missing == ["bad__gone", "bad__g?ne"]


def test_no_servers_no_tools(opened: Open) -> None:
    box = opened()
    assert box.tools() == ()
    assert ran(box, call("any"))[0]["content"] == "error: there is no tool 'any'"


# ---- results

NO_OBJECT = "error: the arguments are no JSON object, so the tool was not called"
NO_NUMBER = (
    "error: the arguments have a number that JSON does not know, such as NaN, or one that is too large, "
    "so the tool was not called"
)


@pytest.mark.parametrize(
    ("name", "arguments", "content", "is_error"),
    [
        ("bad__fail", "{}", "it failed", True),
        ("bad__fail", "", "it failed", True),
        ("bad__refuse", "{}", "error: not today", True),
        ("bad__fail", "[]", NO_OBJECT, True),
        ("bad__fail", '{"a": NaN}', NO_NUMBER, True),
        ("bad__fail", '{"a": [{"b": -1e999}]}', NO_NUMBER, True),
        ("bad__fail", '{"a": "\\ud800"}', NO_OBJECT, True),
        ("bad__fail", '{"a": ' + "[" * 5000, NO_OBJECT, True),
        ("bad__fial", "{}", "error: there is no tool 'bad__fial', there is bad__fail, bad__say, bad__die", True),
    ],
)  # fmt: skip
def test_what_the_model_is_told(
    opened: Open, bad: Any, name: str, arguments: str, content: str, is_error: bool
) -> None:
    box = opened(bad())
    box.tools()
    (message,) = ran(box, call(name, arguments))
    assert (message["content"], message["is_error"]) == (content, is_error)
    assert box.approved(call("bad__fial"))


def test_deep_arguments_do_not_harm(opened: Open, bad: Any) -> None:
    box = opened(bad())
    box.tools()
    deep = '{"a": ' + "[" * 400 + "]" * 400 + "}"
    (message,) = ran(box, call("bad__tell", deep))
    assert str(message["content"]).startswith(("error: the arguments cannot be sent", '{"env"'))
    assert ran(box, call("bad__fail"))[0]["content"] == "it failed"


def test_five_megabytes_come_whole_and_go_out_short(opened: Open, bad: Any) -> None:
    box = opened(bad())
    box.tools()
    (message,) = ran(box, call("bad__big"))
    assert message["content"] == "é" * 2_500_000 + "."
    sent = str(as_sent(message)["content"])
    assert len(sent.encode()) <= 200_000
    assert sent.endswith("é.")
    assert "[gptsh: 4,800," in sent
    assert "of 5,000,001 bytes are left out here]" in sent


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0data\0\0\0\0"
).decode()
PDF = base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
SEEN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def held(uri: str, data: str, media_type: str) -> dict[str, Any]:
    """A file as a tool gives it."""
    return {"type": "resource", "resource": {"uri": uri, "blob": data, "mimeType": media_type}}


ZIP, SVG = held("file:///a.zip", "AAAA", "application/zip"), {**IMAGE, "data": "PHN2Zy8+", "mimeType": "image/svg+xml"}
SOUND = {"type": "audio", "data": "AAAA", "mimeType": "audio/x-foo"}
RESULTS: list[tuple[dict[str, Any], Any, Any]] = [  # a result, its content and its raw
    ({"content": []}, "", None),
    ({}, "", None),
    ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb", None),
    ({"content": [{"type": "text", "text": "a"}, IMAGE]},
     [{"type": "text", "text": "a"}, SEEN], None),
    ({"content": [{**IMAGE, "mimeType": "image/jpeg"}]},  # its bytes tell
     [SEEN], None),
    ({"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]},
     [{"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}], None),
    ({"content": [{**IMAGE, "data": "?"}]}, [{"type": "text", "text": "[image/png, no base64]"}],
     {"blocks": [{**IMAGE, "data": "?"}]}),
    ({"content": [ZIP]}, [{"type": "text", "text": "file:///a.zip:\n[application/zip, 3 bytes]"}], {"blocks": [ZIP]}),
    ({"content": [SVG]}, [{"type": "text", "text": "[image/svg+xml, 6 bytes]"}], {"blocks": [SVG]}),
    ({"content": [{**IMAGE, "data": ""}]}, [{"type": "text", "text": "[image/png, 0 bytes]"}],
     {"blocks": [{**IMAGE, "data": ""}]}),
    ({"content": [SOUND]}, [{"type": "text", "text": "[audio/x-foo, 3 bytes]"}], {"blocks": [SOUND]}),
    ({"content": [held("file:///a.txt", "aGk=", "text/plain")]},
     [{"type": "text", "text": "file:///a.txt:\nhi"}], None),
    ({"content": [{"type": "resource", "resource": {"uri": "file:///a.txt", "text": "hi"}}]},
     [{"type": "text", "text": "file:///a.txt:\nhi"}], None),
    ({"content": [held("file:///a.pdf", PDF, "application/octet-stream")]},
     [{"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
       "source": "file:///a.pdf"}], None),
    ({"content": [{"type": "resource_link", "uri": "http://x/", "name": "x", "description": "an x"}]},
     [{"type": "text", "text": "x http://x/ an x"}], None),
    ({"content": [{"type": "hologram", "x": 1}, {"type": "text", "text": "kept"}]},
     [{"type": "text", "text": "[hologram, which gptsh does not know]"}, {"type": "text", "text": "kept"}],
     {"blocks": [{"type": "hologram", "x": 1}]}),
    ({"content": "no list"}, '{"content": "no list"}', None),
    ({"content": ["no block"]}, '{"content": ["no block"]}', None),
    ({"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}, '{"a": 1}', None),
    ({"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}, "3", None),
    ({"content": [{"type": "text", "text": "x"}], "structuredContent": {"result": "x"}}, "x", None),
    ({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}}, "x", {"structured": {"a": 1}}),
    ({"content": [], "structuredContent": {"a": "ä"}}, '{"a": "ä"}', None),
    ({"content": [{"type": "text", "text": "x"}], "structuredContent": [1]}, "x", {"structured": [1]}),
    ({"content": [{"type": "text", "text": "x"}], "structuredContent": {"stdout": "x", "interrupted": False}},
     "x", {"stdout": "x", "interrupted": False}),
    ({"content": [{"type": "text", "text": "x"}], "structuredContent": {"stdout": "x", "code": 0}},
     "x", {"stdout": "x", "structured": {"stdout": "x", "code": 0}}),
]  # fmt: skip


@pytest.mark.parametrize(("result", "content", "raw"), RESULTS)
def test_a_result_as_a_message(result: dict[str, Any], content: Any, raw: Any) -> None:
    message = results.message(call("s__t"), result, 5)
    assert (message["content"], message.get("raw"), message["is_error"]) == (content, raw, False)


def test_results_of_a_server_are_read_the_same_way(opened: Open, bad: Any) -> None:
    box = opened(bad())
    box.tools()
    came = ran(box, *(call("bad__give", {"result": result}, str(at)) for at, (result, _, _) in enumerate(RESULTS)))
    assert {int(m["tool_call_id"]): (m["content"], m.get("raw")) for m in came} == {
        at: (content, raw) for at, (_, content, raw) in enumerate(RESULTS)
    }
    assert [p["type"] for p in ran(box, call("bad__picture"))[0]["content"]] == ["text", "image_url"]  # type: ignore[index, union-attr]


ODD: list[tuple[str, Any, Any]] = [  # the rest of a line, and what comes of it
    (r'"result": {"content": [{"type": "text", "text": "a\udcffb"}]}', "a\udcffb", None),
    ('"result": {"content": [{"type": "text", "text": "a\xffb"}]}', "a\udcffb", None),
    (r'"result": {"content": [], "structuredContent": {"a\udcff": 1}}', '{"a\udcff": 1}', None),
    ('"result": {"content": [], "structuredContent": {"a": NaN, "b": -1e999}}', '{"a": "NaN", "b": "-Infinity"}', None),
    ('"result": {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": NaN}}',
     "x", {"structured": {"a": "NaN"}}),
    ('"result": {"content": "no list"}', '{"content": "no list"}', None),
    ('"result": {"a": ' + "[" * 300 + "]" * 300 + "}", "error: the result cannot be read", None),
    ('"result": [1]', "error: the result cannot be read", None),
    (r'"error": {"code": -32000, "message": "not \udcff today"}', "error: not ? today", None),
    ('"result": {"content": [], "structuredContent": {"a": ' + "9" * 5000 + "}}", f'{{"a": "{"9" * 5000}"}}', None),
]  # fmt: skip


@pytest.mark.parametrize(("rest", "content", "raw"), ODD)
def test_an_odd_result_is_the_matter_of_its_call_alone(
    opened: Open, bad: Any, rest: str, content: str, raw: Any
) -> None:
    box = opened(bad())
    box.tools()
    (message,) = ran(box, call("bad__say", {"line": f'{{"jsonrpc": "2.0", "id": ID, {rest}}}'}))
    assert (message["content"], message.get("raw")) == (content, raw)
    assert message["is_error"] == content.startswith("error: ")
    assert ran(box, call("bad__fail"))[0]["content"] == "it failed"


def test_what_a_server_says_without_being_asked_does_no_harm(opened: Open, bad: Any) -> None:
    box = opened(bad(timeout=2))
    box.tools()
    said = r'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "\ud800"}}'
    answer = '{"jsonrpc": "2.0", "id": ID, "result": {"content": []}}'
    assert ran(box, call("bad__say", {"line": f"{said}\n{answer}"}))[0]["content"] == ""


def test_the_model_does_not_read_a_servers_own_keys(opened: Open, bad: Any) -> None:
    key = Secret('sk-"very"/secret-é')
    box = opened(bad(env={"TOOL_KEY": key, "ROOT": "/home/someone"}, secrets={key, "/home/someone"}, keys={key}))
    box.tools()
    given = {"content": [{"type": "text", "text": f"{key} in /home/someone"}, {"type": "x", "of": [key]}]}
    (message,) = ran(box, call("bad__give", {"result": {**given, "structuredContent": {"k": key}}}))
    assert message["content"][0]["text"] == "*** in /home/someone"  # type: ignore[index]
    assert message["raw"] == {"structured": {"k": "***"}, "blocks": [{"type": "x", "of": ["***"]}]}
    error = {"jsonrpc": "2.0", "id": "ID", "error": {"code": 1, "message": f"bad key {key}"}}
    line = json.dumps(error).replace('"ID"', "ID")
    assert ran(box, call("bad__say", {"line": line}))[0]["content"] == "error: bad key ***"


# ---- failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("mute", "tool server bad did not answer within 1 s"),
        ("dies", "tool server bad ended with exit status 3: no database / the key is ***"),
        ("banner", "tool server bad ended with exit status 2: printed 'usage: server [--stdio]'"),
        ("deaf", "tool server bad did not answer within 1 s"),
        ("noise", "tool server bad answers what is no JSON-RPC, such as 'noise noise "),
        ("foreign", "tool server bad speaks another protocol: "),
        ("endless", "tool server bad never ends its list of tools"),
        ("nameless", "tool server bad answered what MCP does not know: tools.0.inputSchema: "),
    ],
)
def test_a_server_that_cannot_be_used(opened: Open, bad: Any, mode: str, words: str) -> None:
    key = Secret("sk-very-secret")
    patience = 1 if mode in ("mute", "deaf") else 20
    box = opened(bad(mode, env={"TOOL_KEY": key}, secrets=frozenset([key]), timeout=patience), bad(name="good"))
    with pytest.raises(ToolServerError) as failure:
        box.tools()
    assert str(failure.value).startswith(words)
    assert "very" not in str(failure.value) + failure.value.detail
    assert failure.value.exit_code == 3
    if mode == "dies":
        assert failure.value.detail == "starting\nno database\nthe key is ***"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("die", "tool server bad ended with exit status 3: about to die / the key is None"),
        ("hang", "tool server bad did not answer within 1 s"),
        ("garble", 'tool server bad answered what is no JSON-RPC: \'{"jsonrpc": "2.0", "id":\''),
    ],
)
def test_a_server_that_fails_in_a_call_keeps_nothing_from_the_others(
    opened: Open, bad: Any, tool: str, words: str
) -> None:
    box = opened(bad(timeout=1 if tool == "hang" else 20), bad(name="good"))
    box.tools()
    together = [call("good__meet", {"text": "a"}, "a"), call(f"bad__{tool}"), call("good__meet", {"text": "b"}, "b")]
    came, failure = failing(box, *together)
    assert sorted(str(message["content"]) for message in came) == ["met a", "met b"]
    assert str(failure).startswith(words)
    assert ran(box, call("good__fail"))[0]["content"] == "it failed"
    if tool in ("die", "garble"):  # gone for good
        assert str(failing(box, call("bad__fail"))[1]).startswith(words)


def test_a_program_that_is_not_there(opened: Open, bad: Any) -> None:
    with pytest.raises(
        ToolServerError, match=r"^tool server nix cannot be started: No such file or directory: /no/such$"
    ):
        opened(bad(), ToolServer("nix", "/no/such")).tools()


def test_a_signal_ends_the_wait_and_the_server_does_not_see_it(opened: Open, bad: Any, pids: Any) -> None:
    class Ended(BaseException):
        pass

    def raises(_signum: int, _frame: Any) -> None:
        raise Ended

    box = opened(bad())
    box.tools()
    before = signal.signal(signal.SIGINT, raises)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(Ended):
            ran(box, call("bad__hang"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(map(is_running, pids()))
    assert ran(box, call("bad__fail"))[0]["content"] == "it failed"


@pytest.mark.slow
def test_a_toolbox_may_be_closed_at_any_time(opened: Open, bad: Any) -> None:
    for wait in (0.0, random.random()):
        box = opened(bad("mute"))
        time.sleep(wait)
        box.close()
    Toolbox([bad()], os.environ).close()


@pytest.mark.parametrize(("mode", "at"), [("spells", 170), ("prints", 60), ("spells", 980)])
def test_no_part_of_a_key_is_shown_where_words_are_cut(opened: Open, bad: Any, mode: str, at: int) -> None:
    key = Secret("sk-abcdefghijklmnopqrstuvwxyz0123456789")
    with pytest.raises(ToolServerError) as failure:
        opened(bad(mode, env={"TOOL_KEY": key, "AT": str(at)}, secrets=frozenset([key]))).tools()
    assert "zzz" in str(failure.value)
    assert "sk-" not in str(failure.value) + failure.value.detail


@given(st.integers(900, 1100), st.integers(1, 2000), st.booleans())
def test_no_part_of_a_key_is_shown_of_a_line_that_is_kept_in_part(at: int, piece: int, whole: bool) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
    tail, said = Tail([key]), (f"{'z' * 40} {key} {'z' * (at - 81)} {key * 3} {key} more" + "\n" * whole).encode()
    for start in range(0, len(said), piece):
        tail.feed(said[start : start + piece])
    (line,) = tail.lines
    assert line.startswith("z" * 40 + " *** zzz")
    assert "s" not in line
    assert len(line) <= 1000


def test_what_a_url_answers_shows_no_part_of_a_key(opened: Open, model: ModelServer) -> None:
    key = Secret("tok-abcdefghijklmnopqrstuvwxyz0123456789")
    model.pages["/mcp"] = Script(403, {"Content-Type": "text/plain"}, (f"{'no ' * 22} {key}".encode(),), "length")
    server = ToolServer("web", url=Secret(f"http://127.0.0.1:{model.port}/mcp"), secrets=frozenset([key]))
    with pytest.raises(ToolServerError, match=r"^tool server web answered 403 Forbidden: no no ") as failure:
        opened(server).tools()
    assert "tok" not in str(failure.value) + failure.value.detail


def test_the_last_lines_of_a_flood_are_kept() -> None:
    tail = Tail()
    for at in range(100):
        tail.feed(b"line %d\npart" % at)
    tail.feed(b"\xff" * 10_000_000)
    assert len(tail.lines) == 21
    assert tail.lines[-2].startswith("partline 99")
    assert len(tail.lines[-1]) <= 1000


def test_the_classes_of_failures_know_their_exit_codes() -> None:
    assert (ToolServerError.exit_code, Denied.exit_code) == (3, 4)


# ---- over HTTP


@pytest.fixture(params=["json", "events"])
def near(request: pytest.FixtureRequest) -> Iterator[str]:
    """The base URL of a server by the SDK, which wants a token."""
    env = {**os.environ, "TOOL_TOKEN": "token-of-the-server"}
    command = [sys.executable, str(NEAR), request.param]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"


def test_a_server_over_http(opened: Open, near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # loopback is never proxied

    def web(path: str, token: str = "token-of-the-server") -> ToolServer:
        return ToolServer("web", url=Secret(near + path), headers={"Authorization": f"Bearer {token}"})

    box = opened(web("/mcp"))
    assert [tool.name for tool in box.tools()] == ["web__add", "web__long", "web__die"]
    came = ran(box, call("web__add", {"a": 1, "b": 2}, "a"), call("web__long", {"size": 3_000_000}, "b"))
    assert {m["tool_call_id"]: (len(str(m["content"])), m.get("raw")) for m in came} == {
        "a": (1, None),
        "b": (3_000_000, None),
    }
    for path, token, words in (
        ("/mcp", "wrong", 'tool server web answered 401 Unauthorized: {"error":"who are you?"}'),
        ("/page", "token-of-the-server", "tool server web answered 200 OK: <html>hello"),
        ("/none", "token-of-the-server", "tool server web answered 404 Not Found: Not Found"),
    ):
        with pytest.raises(ToolServerError) as failure:
            opened(web(path, token)).tools()
        assert str(failure.value) == words
    failure_of_call = failing(box, call("web__die"))[1]
    assert str(failure_of_call) in (
        "tool server web failed: Server disconnected without sending a response.",
        "tool server web closed the connection",
    )
    with pytest.raises(ToolServerError, match=r"^tool server web cannot be reached: "):
        opened(web("/mcp")).tools()


# ---- real servers


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    folder = tmp_path / "repository"
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "the first one"], check=True)
    return folder


@pytest.mark.slow
def test_real_servers(opened: Open, repository: Path) -> None:
    clock = ToolServer("time", str(BIN / "mcp-server-time"), ("--local-timezone", "UTC"), auto_approve=("get_*",))
    git = ToolServer("git", str(BIN / "mcp-server-git"), tools=("git_log", "git_s*"))
    box = opened(clock, git)
    names = [tool.name for tool in box.tools()]
    assert names == ["time__get_current_time", "time__convert_time", "git__git_status", "git__git_log", "git__git_show"]
    assert [name for name in names if box.approved(call(name))] == ["time__get_current_time"]
    came = {
        message["tool_call_id"]: message
        for message in ran(
            box,
            call("time__get_current_time", {"timezone": "Europe/Prague"}, "now"),
            call(
                "time__convert_time",
                {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
                "there",
            ),
            call("time__get_current_time", {"timezone": "Nowhere"}, "wrong"),
            call("git__git_log", {"repo_path": str(repository)}, "log"),
            call("git__git_commit", {"repo_path": str(repository), "message": "no"}, "hidden"),
        )
    }
    assert json.loads(came["now"]["content"])["timezone"] == "Europe/Prague"  # type: ignore[arg-type]
    assert "21:00" in str(came["there"]["content"])
    assert "Nowhere" in str(came["wrong"]["content"])
    assert "the first one" in str(came["log"]["content"])
    assert {ident: message["is_error"] for ident, message in came.items()} == {
        "now": False, "there": False, "wrong": True, "log": False, "hidden": True,
    }  # fmt: skip


# ---- names and patterns

OWN = st.tuples(st.text("a._é", min_size=1, max_size=40), st.text("a._é", min_size=1, max_size=40))


@pytest.mark.parametrize(
    ("own", "names"),
    [
        ([("time", "get")], ["time__get"]),
        ([("my.fs", "read/file")], ["my_fs__read_file"]),
        ([("a", "b.c"), ("a", "b_c")], ["a__b_c_HASH", "a__b_c"]),
        ([("a", "b.c"), ("a", "b/c")], ["a__b_c_HASH", "a__b_c_HASH"]),
        ([("a", "b__c"), ("a__b", "c")], ["a__b__c_HASH", "a__b__c_HASH"]),
        ([("s", "x" * 61)], ["s__" + "x" * 61]),
        ([("s", "x" * 62)], ["s__" + "x" * 52 + "_HASH"]),
    ],
)
def test_the_names_that_a_model_reads(own: list[tuple[str, str]], names: list[str]) -> None:
    made = list(names_for_model(own).values())
    assert [re.sub("_[0-9a-f]{8}$", "_HASH", name) for name in made] == names
    assert len(set(made)) == len(made)


@given(st.lists(OWN, unique=True, max_size=8), st.randoms())
def test_every_name_is_unique_and_one_that_every_provider_takes(
    own: list[tuple[str, str]], chance: random.Random
) -> None:
    names = names_for_model(own)
    assert len(set(names.values())) == len(own)
    assert all(0 < len(name) <= LONGEST and set(name) <= ALLOWED for name in names.values())
    chance.shuffle(own)
    assert names_for_model(own) == names


ALLOWED = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@pytest.mark.parametrize(
    ("name", "patterns", "fits"),
    [
        ("get_time", ["get_*"], True),
        ("get_time", ["GET_*"], False),
        ("get_time", ["*"], True),
        ("get_time", ["get_time"], True),
        ("get_time", ["time", "get"], False),
        ("get[1]", ["get[1]"], True),
        ("get_time", [], False),
    ],
)
def test_a_pattern(name: str, patterns: list[str], fits: bool) -> None:
    assert matches(name, patterns) is fits


# ---- configuration

ENVIRON = {"TOKEN": "tok-12345678", "EMPTY": "", "HOME": "/home/someone"}


def servers_of(tmp_path: Path, config: dict[str, Any], file: Any = None) -> ToolServers:
    """The servers of a table ``[mcp]`` and of the file beside it."""
    if file is not None:
        (tmp_path / "servers.json").write_text(file if isinstance(file, str) else json.dumps(file))
        config = {"servers_file": "servers.json", **config}
    return ToolServers(config, tmp_path, ENVIRON)


CLAUDE = {
    "mcpServers": {
        "fs": {"command": "fs", "args": ["${HOME}/x", "--t=${TOKEN}"], "env": {"K": "${TOKEN}"}, "disabled": True},
        "web": {
            "type": "http",
            "url": "https://x/${PATH_OF:-mcp}?k=${TOKEN}",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
        },
        "old": {"type": "sse", "url": "https://x/sse"},
    },
    "other": 1,
}


def test_a_claude_style_file_joins_the_config(tmp_path: Path) -> None:
    config = {
        "servers": {"fs": {"auto_approve": ["read_*"], "timeout": 5}, "web": {"command": "w"}, "new": {"command": "n"}}
    }
    servers = servers_of(tmp_path, config, CLAUDE)
    assert list(servers) == ["fs", "web", "old", "new"]
    assert servers["fs"]._replace(secrets=frozenset(), keys=frozenset()) == ToolServer(
        "fs", "fs", ("/home/someone/x", "--t=tok-12345678"), {"K": "tok-12345678"}, auto_approve=("read_*",), timeout=5
    )
    assert servers["web"] == ToolServer("web", "w")
    assert servers["fs"].secrets == servers["fs"].keys == {"tok-12345678"}
    assert "tok" not in repr(servers["fs"])
    alone = servers_of(tmp_path, {}, CLAUDE)["web"]
    assert alone.url == "https://x/mcp?k=tok-12345678"
    assert alone.headers == {"Authorization": "Bearer tok-12345678"}
    assert alone.secrets == alone.keys == {"tok-12345678", "Bearer tok-12345678"}
    assert "tok" not in repr(alone)


def test_what_a_url_holds_beside_its_address_is_secret(tmp_path: Path) -> None:
    url = "https://someone:pass%20word@x.example/mcp?api_key=lit%2Feral-1&project=my-project&bare-token-1#part"
    server = servers_of(tmp_path, {"servers": {"s": {"url": url}}})["s"]
    login = {"someone:pass%20word", "someone:pass word", "pass%20word", "pass word"}
    keys = {*login, "lit%2Feral-1", "lit/eral-1"}
    assert server.secrets == {*keys, "my-project", "bare-token-1"}
    assert server.keys == keys


@pytest.mark.parametrize(
    ("env", "headers", "keys"),
    [
        ({"MY_KEY": "k-12345678", "ROOT": "/home/someone", "KEY": "/run/secret/key", "MODE": "production"}, {},
         {"k-12345678"}),
        ({"A_TOKEN": "short"}, {}, set()),
        ({"PRIVATE_KEY": "-----BEGIN\nline-of-it\n"}, {}, {"-----BEGIN\nline-of-it\n", "-----BEGIN", "line-of-it"}),
        ({}, {"Authorization": "Basic abcdefgh", "X-Api-Key": "12345678", "X-Project": "my-project"},
         {"Basic abcdefgh", "abcdefgh", "12345678"}),
    ],
)  # fmt: skip
def test_a_key_is_known_by_its_name(tmp_path: Path, env: Any, headers: Any, keys: set[str]) -> None:
    entry = {"url": "https://x/", "headers": headers} if headers else {"command": "c", "env": env}
    server = servers_of(tmp_path, {"servers": {"s": entry}})["s"]
    assert server.keys == keys
    assert server.secrets >= keys


@pytest.mark.parametrize(
    ("config", "file", "words"),
    [
        ({"s": {"command": "c", "url": "http://x/"}}, None, "mcp.servers.s: expected either command or url"),
        ({"s": {"timeout": 3}}, None, "mcp.servers.s: expected either command or url"),
        ({"s": {"command": " "}}, None, "mcp.servers.s.command: expected the name of a program"),
        ({"s": {"command": "c", "args": ["a\0b"]}}, None, "mcp.servers.s.args: expected a list of strings without NUL"),
        ({"s": {"command": "c", "env": {"A=B": "x"}}}, None, "mcp.servers.s.env: expected a table of variables"),
        ({"s": {"url": "ftp://x"}}, None, "mcp.servers.s.url: expected a URL with http:// or https://"),
        ({"s": {"url": "http://x", "headers": {"a b": "c"}}}, None,
         "mcp.servers.s.headers: expected a table of header names and values"),
        ({"s": {"command": "${NONE}"}}, None,
         "mcp.servers.s.command: the variable NONE is not set: set it, or write ${NONE:-DEFAULT}"),
        ({"s": {"command": "c", "env": {"K": "${NONE}"}}}, None,
         "mcp.servers.s.env.K: the variable NONE is not set: set it, or write ${NONE:-DEFAULT}"),
        ({}, CLAUDE | {"mcpServers": {"s": CLAUDE["mcpServers"]["old"]}},  # type: ignore[index]
         "tool server s is reached by sse, which is no more spoken: give its http URL"),
        ({}, {"mcpServers": {"s": {"type": "ws", "url": "x"}}},
         "mcp.servers.s.type: expected one of stdio, http, streamable-http, sse, not 'ws'"),
        ({}, {"mcpServers": {"s": {"type": "http", "command": "x"}}}, "mcp.servers.s: expected either command or url"),
        ({}, {"mcpServers": {"s": {"command": "c", "args": "x"}}},
         "mcp.servers_file: FILE: mcpServers.s.args: expected a list of strings, not 'x'"),
        ({}, {"mcpServers": {"s": 1}}, "mcp.servers_file: FILE: mcpServers.s: expected a table"),
        ({}, {"servers": {}}, "mcp.servers_file: FILE: mcpServers: expected a table"),
        ({}, [], "mcp.servers_file: FILE: mcpServers: expected a table"),
        ({}, "{", "mcp.servers_file: FILE: not JSON: "),
        ({}, "[" * 100_000, "mcp.servers_file: FILE: not JSON: "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_server_is_said_in_a_line(tmp_path: Path, config: Any, file: Any, words: str) -> None:
    servers = servers_of(tmp_path, {"servers": config}, file)
    with pytest.raises(ConfigError) as err:
        servers.chosen(["s"])
    assert str(err.value).startswith(words.replace("FILE", str(tmp_path / "servers.json")))


def test_a_default_stands_for_a_variable_that_is_empty_or_unset(tmp_path: Path) -> None:
    args = ["${EMPTY}", "${EMPTY:-a}", "${NONE:-b}", "${NONE:-}", "${TOKEN:-c}", "$HOME", "${HOME", "${1}", "$${HOME}"]
    told = servers_of(tmp_path, {"servers": {"s": {"command": "~/bin/s", "args": args}}})["s"]
    assert told.args == ("", "a", "b", "", "tok-12345678", "$HOME", "${HOME", "${1}", "$/home/someone")
    assert told.command == os.path.expanduser("~/bin/s")


def test_a_missing_file_is_said_when_a_server_is_wanted(tmp_path: Path) -> None:
    servers = ToolServers({"servers_file": "nowhere.json"}, tmp_path, {})
    with pytest.raises(ConfigError, match=r"nowhere\.json: No such file or directory"):
        servers.chosen(["all"])
    assert servers.chosen([]) == []


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], {}),
        (["all"], {"a": ("*",), "a__b": ("*",), "c": ("*",)}),
        (["*"], {"a": ("*",), "a__b": ("*",), "c": ("*",)}),
        (["c", "a"], {"c": ("*",), "a": ("*",)}),
        (["a__x", "a__get_*", "c"], {"a": ("x", "get_*"), "c": ("*",)}),
        (["a__b"], {"a__b": ("*",)}),
        (["a__b__c"], {"a__b": ("c",)}),
    ],
)
def test_the_servers_that_names_choose(tmp_path: Path, names: list[str], chosen: dict[str, tuple[str, ...]]) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[mcp.servers]\na.command = "a"\na__b.command = "b"\nc.command = "c"\n')
    loaded = settings.load({}, str(path))
    assert {server.name: server.tools for server in loaded.tool_servers.chosen(names)} == chosen
    with pytest.raises(ConfigError, match=r"^there is no tool server 'd': known are a, a__b, c$"):
        loaded.tool_servers.chosen([*names, "d"])


def test_the_limit_on_rounds_is_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[mcp]\nmax_rounds = 3\n")
    assert settings.load({}, str(path)).max_rounds == 3
    path.write_text("")
    assert settings.load({}, str(path)).max_rounds == 20
    with pytest.raises(ConfigError, match="there is no tool server 'x': add it under"):
        settings.load({}, str(path)).tool_servers.chosen(["x"])


# ---- what is sent


def result_of(content: Any) -> Message:
    """A tool's result."""
    return {"role": "tool", "tool_call_id": "1", "content": content}


@pytest.mark.parametrize("text", ["a" * 200_000, "é" * 100_000, "", "\U0001f600" * 50_000])
def test_a_result_of_up_to_200_kb_is_sent_as_it_is(text: str) -> None:
    assert as_sent(result_of(text)) == result_of(text)
    assert as_sent({"role": "user", "content": text * 2}) == {"role": "user", "content": text * 2}


@given(st.text(min_size=1, max_size=40), st.integers(190_000, 900_000))
def test_a_longer_one_is_cut_between_characters(piece: str, size: int) -> None:
    text = (piece * (size // len(piece) + 1))[:size]
    whole = len(text.encode("utf-8", "surrogatepass"))
    sent = str(as_sent(result_of(text))["content"])
    if whole <= 200_000:
        assert sent == text
        return
    assert 199_900 < len(sent.encode("utf-8", "surrogatepass")) <= 200_000
    head, _, tail = sent.partition("\n[gptsh: ")
    removed, _, tail = tail.partition(f" of {whole:,} bytes are left out here]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    kept = len((head + tail).encode("utf-8", "surrogatepass"))
    assert int(removed.replace(",", "")) == whole - kept


def test_the_parts_of_a_result_share_the_room() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    small, large = {"type": "text", "text": "s" * 20_000}, {"type": "text", "text": "l" * 400_000}
    sent = as_sent(result_of([small, large, picture, large]))["content"]
    assert isinstance(sent, list)
    assert [sent[0], sent[2]] == [small, picture]
    assert [len(sent[at]["text"]) // 1000 for at in (1, 3)] == [89, 89]
    assert of_message(as_sent(result_of([large]))) < of_message(result_of([large])) / 1.9


def test_the_definitions_of_tools_are_counted() -> None:
    tool = Tool(
        "time__get", "Tells the time in a zone. " * 9, {"type": "object", "properties": {"zone": {"type": "string"}}}
    )
    assert of_tools([]) == 0
    assert of_tools([tool, tool]) == 2 * of_tools([tool])
    assert of_tools([tool]) > estimate(tool.description) + 20
