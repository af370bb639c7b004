"""Tool servers: how they are configured, what they list, what their results become, and how they fail.

All through the command, with servers that behave and one that does not, each a real process or a real socket.
"""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gptsh.tools.toolbox import names_for_model
from tests.support.completion import completions
from tests.support.forked import start_server
from tests.support.home import Home, Result, lab_config, peak_of, wait_for_exit, wait_until
from tests.support.messages import text
from tests.support.old_http_tool_server import old_server
from tests.support.programs import needs
from tests.support.readme import keys_of
from tests.support.server import ModelServer, Script
from tests.support.terminal import Terminal
from tests.support.tools import BAD, HTTP, SERVER, calling, is_running

NAMES = ["die", "hang", "garble", "refuse", "give", "many", "tell", "leak", "say", "ask"]
HAS = f"it has {', '.join(NAMES)}"
APPROVED = 'auto_approve = ["*"]'
WAY = "choose with --tools, or add --no-tools"
KEY = "sk-very-secret"


def entry(home: Home, name: str = "bad", mode: str = "", more: str = "") -> str:
    """A table of the config for the server that misbehaves."""
    args = json.dumps([str(BAD), mode, str(home.folder / "pids")])
    return f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{more}\n"


def good() -> str:
    """A table for one that does not."""
    return f'[mcp.servers.good]\ncommand = {json.dumps(sys.executable)}\nargs = ["{SERVER}"]\nauto_approve = ["*"]\n'


def made(name: str, arguments: Any = "{}", ident: str = "c1") -> dict[str, Any]:
    """A call as a model makes it."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "index": 0,
        "id": ident,
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def called(
    home: Home, model: ModelServer, servers: str, *calls: dict[str, Any], env: Any = None
) -> Result:
    """A turn in which the model calls tools, all of which are approved."""
    text = f"{lab_config(model)}[mcp]\n{servers}"
    home.configure(text.replace('model = "lab/m"', 'model = "lab/m"\ntools = ["all"]'))
    model.script(*calling(*({**call, "index": at} for at, call in enumerate(calls))))
    model.say("done")
    return home.run("go", env=env)


def results(home: Home) -> dict[str, dict[str, Any]]:
    """The results of the only session, by the ids of their calls."""
    return {m["tool_call_id"]: m for m in home.doc()["messages"] if m["role"] == "tool"}


@pytest.fixture(autouse=True)
def none_is_left(home: Home) -> Iterator[None]:
    """Whatever becomes of a run: no server outlives it."""
    yield
    assert not any(map(is_running, pids(home)))


def pids(home: Home) -> list[int]:
    """The servers that were started."""
    file = home.folder / "pids"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


# ---- the list


@pytest.fixture
def two(home: Home) -> Home:
    """A home with two servers, and an agent that has one tool of one of them."""
    agents = '[agents.few]\ntools = ["one__t*"]\n[agents.none]\n'
    home.configure(agents + entry(home, "one", more='auto_approve = ["t*"]') + entry(home, "two"))
    return home


@pytest.mark.parametrize(("args", "tools"), [
    ([], [f"{server}__{name}" for server in ("one", "two") for name in NAMES]), (["-a", "few"], ["one__tell"]),
    (["-a", "none"], []), (["--no-tools"], []), (["--tools", "two__say , one__hang,"], ["two__say", "one__hang"]),
    (["-a", "few", "--tools", "all", "--limit", "2"], ["one__die", "one__hang"]),
])  # fmt: skip
def test_the_list(two: Home, args: list[str], tools: list[str]) -> None:
    done = two.run("--list-tools", *args)
    note = (
        ""
        if tools
        else f"gptsh: {'agent none has' if '-a' in args else '--no-tools leaves'} no tools\n"
    )
    assert done.stderr == note
    assert done.code == 0
    assert done.stdout.splitlines() == [
        f"{name}  Will {name.partition('__')[2]}." for name in tools
    ]
    assert not two.files()


def test_the_list_for_programs(two: Home) -> None:
    (told,) = json.loads(two.run("--list-tools", "-a", "few", "-o", "json").stdout)
    assert told == {
        "name": "one__tell", "server": "one", "description": "Will tell.\nMore.", "auto_approve": True,
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    }  # fmt: skip
    assert list(told) == keys_of("`--list-tools`")
    lines = two.run(
        "--list-tools", "--tools", "one__tell,two__tell", "-o", "jsonl"
    ).stdout.splitlines()
    assert [(json.loads(line)["server"], json.loads(line)["auto_approve"]) for line in lines] == [
        ("one", True), ("two", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--list-tools", "--tools", "nix"], "there is no tool server 'nix': choose from one, two"),
        (["--list-tools", "--tools", "one__nix"], f"tool server one has no tool 'nix': {HAS}; {WAY}"),
        (["--list-tools", "-a", "nobody"], "there is no agent 'nobody': choose from few, none, default, shell"),
        (["--list-tools", "--tools", "one", "--no-tools"], "--tools and --no-tools cannot be used together"),
        (["--list-tools", "--tools", " "], "--tools is empty"),
        (["--list-tools", "words"], "--list-tools takes no prompt"),
        (["-m", "echo", "--tools", "one", "--no-tools", "hi"], "--tools and --no-tools cannot be used together"),
    ],
)  # fmt: skip
def test_what_is_asked_wrong(two: Home, args: list[str], said: str) -> None:
    assert two.run(*args) == ("", f"gptsh: {said}\n", 2)


@pytest.mark.parametrize("mode", ["chatty", "pages", "modern", "old"])
def test_what_a_server_may_do_besides(home: Home, model: ModelServer, mode: str) -> None:
    assert (
        called(
            home, model, entry(home, "bad", mode, 'auto_approve = ["*"]'), made("bad__leak")
        ).code
        == 0
    )
    assert [tool["function"]["name"] for tool in model.sent[0]["tools"]] == [
        f"bad__{name}" for name in NAMES
    ]
    assert results(home)["c1"]["content"] == "done"


def test_a_list_of_tools_is_kept_as_long_as_the_server_says(home: Home, model: ModelServer) -> None:
    config = entry(home, "bad", "lasting", 'auto_approve = ["*"]')
    lists = home.folder / "pids.lists"
    for _ in range(2):
        assert called(home, model, config, made("bad__leak")).code == 0
    assert [[tool["function"]["name"] for tool in sent["tools"]] for sent in model.sent] == [
        [f"bad__{name}" for name in NAMES]
    ] * 4
    assert lists.read_text() == "listed\n"
    (file,) = (home.folder / ".cache" / "gptsh" / "tool-servers").iterdir()
    facts = json.loads(file.read_text())
    assert 50 < facts["list"]["expires_at"] - time.time() <= 60
    facts["list"]["expires_at"] = 1
    file.write_text(json.dumps(facts))
    assert home.run("--list-tools").code == 0
    assert lists.read_text() == "listed\n" * 2
    file.write_text('{"list": {"key": 1}, "at": 0}')
    assert home.run("--list-tools").code == 0


def test_a_server_of_the_older_protocol_is_not_asked_for_the_newer_one_again(home: Home) -> None:
    home.configure(entry(home, "bad", "old"))
    counts = []
    for _ in range(2):
        assert home.run("--list-tools").code == 0
        counts.append(len(pids(home)))
    assert counts == [2, 3]  # it ended at the question once, and was started again


def test_servers_start_side_by_side_and_are_listed_in_the_order_of_the_config(home: Home) -> None:
    home.configure(entry(home, "one", "meet") + entry(home, "two", "meet"))
    done = home.run("--list-tools")
    assert [line.partition("__")[0] for line in done.stdout.splitlines()] == ["one"] * len(
        NAMES
    ) + ["two"] * len(NAMES)


# ---- servers that cannot be used


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("dies", "tool server bad ended with exit status 3: no database / the key is ***"),
        ("noise", "tool server bad did not answer within 1 s: printed 'noise noise "),
        ("/no/such", "tool server bad cannot be started: No such file or directory: /no/such"),
        (
            "/no/such arg",
            "tool server bad cannot be started: No such file or directory: /no/such arg: "
            "command is only the program; put its arguments into args",
        ),
        ("many", "tool server bad lists more than 2,000 tools, or 4,000,000 characters of them"),
        *(
            pytest.param(mode, said, marks=pytest.mark.slow)
            for mode, said in {
                "mute": "tool server bad did not answer within 1 s",
                "banner": "tool server bad ended with exit status 2: printed 'usage: server [--stdio]'",
                "deaf": "tool server bad did not answer within 1 s",
                "foreign": "tool server bad uses another protocol: ",
                "endless": "tool server bad lists its tools on more than 200 pages",
                "wordy": "tool server bad lists more than 2,000 tools, or 4,000,000 characters of them",
                "flood": "tool server bad sent a line without end",
                "nameless": "tool server bad sent an invalid answer: tools.0.inputSchema: ",
            }.items()
        ),
    ],
)
def test_a_server_that_cannot_be_used_is_exit_3(home: Home, mode: str, said: str) -> None:
    """Beside one that can be used; with the last words of the server, and without its key."""
    more = f'env = {{ TOOL_KEY = "${{MY_KEY}}" }}\ntimeout = {1 if mode in ("mute", "noise", "deaf") else 20}'
    text = entry(home, "bad", mode, more)
    if mode[0] == "/":
        text = text.replace(json.dumps(sys.executable), json.dumps(mode))
    home.configure(text + entry(home, "good"))
    done = home.run("--list-tools", "-o", "json", "--debug", env={"MY_KEY": KEY})
    assert [tool["server"] for tool in json.loads(done.stdout)] == ["good"] * len(NAMES)
    assert done.code == 3
    assert done.stderr.startswith(f"gptsh: {said}")
    assert KEY not in done.stdout + done.stderr
    if mode == "dies":
        assert "\nstarting\nno database\nthe key is ***\n" in done.stderr
        lacking = home.run("--list-tools")
        assert lacking.code == 3
        assert lacking.stdout.count("good__") == len(NAMES)
        assert lacking.stderr.count("\n") == 1
        assert "mcp.servers.bad.env.TOOL_KEY: the variable MY_KEY is not set" in lacking.stderr


def test_a_session_continues_without_a_server_that_cannot_be_used(
    home: Home, model: ModelServer
) -> None:
    called(home, model, entry(home, "bad") + good(), made("good__add", {"a": 1, "b": 2}))
    text = home.config.read_text().replace(json.dumps(sys.executable), '"/no/such"', 1)
    home.configure(text)
    run = home.run("-s", "0", "and?")
    note = "the session continues without some of its tools: tool server bad cannot be started"
    assert run.stdout == "You said: and?\n"
    assert run.code == 0
    assert note in run.stderr
    assert run.stderr.count("\n") == 1
    assert {tool["function"]["name"].partition("__")[0] for tool in model.sent[-1]["tools"]} == {
        "good"
    }
    assert home.run("-n", "and?").code == 3
    run = home.run("-n", "--tools", "all", "and?")  # names no server, so the others do
    assert run.stdout == "You said: and?\n"
    assert run.code == 0
    assert "tool server bad cannot be started" in run.stderr
    assert {tool["function"]["name"].partition("__")[0] for tool in model.sent[-1]["tools"]} == {
        "good"
    }


@pytest.mark.parametrize(("tool", "said"), [
    ("die", "tool server bad ended with exit status 3: about to die / the key is None"),
    ("hang", "tool server bad did not answer within 1 s"),
    ("garble", 'tool server bad sent a broken message: \'{"jsonrpc": "2.0", "id":\''),
])  # fmt: skip
def test_a_server_that_fails_in_a_call_keeps_nothing_from_the_others(
    home: Home, model: ModelServer, tool: str, said: str
) -> None:
    more = f'auto_approve = ["*"]\ntimeout = {1 if tool == "hang" else 20}'
    together = [
        made("good__meet", {"name": "a"}, "a"),
        made(f"bad__{tool}"),
        made("good__meet", {"name": "b"}, "b"),
    ]
    run = called(home, model, entry(home, "bad", "", more) + good(), *together)
    assert run.stdout == ""
    assert run.code == 3
    assert said in run.stderr
    assert {ident: result["content"] for ident, result in results(home).items()} == {
        "a": "a met",
        "b": "b met",
    }


def test_ctrl_c_leaves_no_server_behind(home: Home) -> None:
    home.configure(entry(home, "mute", "mute") + entry(home, "stubborn", "stubborn"))
    process = home.start("--list-tools")
    wait_until(lambda: len(pids(home)) == 3)
    process.send_signal(signal.SIGINT)
    assert wait_for_exit(process) == 130


# ---- results

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0data\0\0\0\0"
).decode()
PDF = base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
SEEN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
SOUND = {"type": "audio", "data": "AAAA", "mimeType": "audio/x-foo"}


def held(uri: str, data: str, media_type: str) -> dict[str, Any]:
    """A file as a tool gives it."""
    return {"type": "resource", "resource": {"uri": uri, "blob": data, "mimeType": media_type}}


ZIP = held("file:///a.zip", "AAAA", "application/zip")
SVG = {**IMAGE, "data": "PHN2Zy8+", "mimeType": "image/svg+xml"}
GIVEN: list[tuple[dict[str, Any], Any, Any]] = [  # a result, its content and its raw
    ({"content": []}, "", None),
    ({"content": [text("a"), text("b")]}, "a\nb", None),
    ({"content": [text("a"), IMAGE]}, [text("a"), SEEN], None),
    ({"content": [{**IMAGE, "mimeType": "image/jpeg"}]}, [SEEN], None),  # its bytes tell
    ({"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]},
     [{"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}], None),
    ({"content": [{**IMAGE, "data": "?"}]},
     [text("[image/png, invalid base64]")], {"blocks": [{**IMAGE, "data": "?"}]}),
    ({"content": [ZIP]}, [text("file:///a.zip:\n[application/zip, 3 bytes]")], {"blocks": [ZIP]}),
    ({"content": [SVG]}, [text("[image/svg+xml, 6 bytes]")], {"blocks": [SVG]}),
    ({"content": [SOUND]}, [text("[audio/x-foo, 3 bytes]")], {"blocks": [SOUND]}),
    ({"content": [held("file:///a.txt", "aGk=", "text/plain")]}, [text("file:///a.txt:\nhi")], None),
    ({"content": [held("file:///a.pdf", PDF, "application/octet-stream")]},
     [{"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
       "source": "file:///a.pdf"}], None),
    ({"content": [{"type": "resource_link", "uri": "http://x/", "name": "x", "description": "an x"}]},
     [text("x http://x/ an x")], None),
    ({"content": [text('{"a": 1}')], "structuredContent": {"a": 1}}, '{"a": 1}', None),
    ({"content": [text("3")], "structuredContent": {"result": 3}}, "3", None),
    ({"content": [text("x")], "structuredContent": {"a": 1}}, "x", {"structured": {"a": 1}}),
    ({"content": [], "structuredContent": {"a": "ä"}}, '{"a": "ä"}', None),
]  # fmt: skip
UNREAD = "error: the result cannot be read"
SAID: list[tuple[str, Any]] = [  # the rest of a line, and what comes of it
    ('"result": {"content": [{"type": "text", "text": "a\xffb"}]}', "a\ufffdb"),
    (r'"result": {"content": [{"type": "text", "text": "\ud83d \uDE00 \ud83d\uDE00 \\ud83d"}]}',
     "\ufffd \ufffd 😀 \\ud83d"),
    ('"error": {"code": -32000, "message": "Connection closed by the host"}', "error: Connection closed by the host"),
    ('"result": {"content": [], "structuredContent": {"a": NaN, "b": -1e999}}', '{"a": null, "b": null}'),
    ('"result": {}', UNREAD),
    ('"result": {"content": "no list"}', UNREAD),
    ('"result": {"content": [{"type": "hologram", "x": 1}, {"type": "text", "text": "lost"}]}', UNREAD),
]  # fmt: skip
BROKEN = {  # the rest of a message that ends the server
    "no object": '"result": [1]',
    "too deep": '"result": {"a": ' + "[" * 300 + "]" * 300 + "}",
}
NO_OBJECT = "error: the arguments are not a JSON object, so the tool was not called"
ASKED: list[
    tuple[str, str, str]
] = [  # a tool, arguments as a model may write them, and what the model is told
    ("bad__refuse", "", "error: not today"),
    ("bad__refuse", "null", "error: not today"),
    ("bad__leak", "[]", NO_OBJECT),
    ("bad__leak", '{"a": NaN}', NO_OBJECT),
    ("bad__leak", '{"a": [{"b": -1e999}]}', NO_OBJECT),
    ("bad__leak", '{"a": "\\ud800"}', NO_OBJECT),
    ("bad__leak", '{"a": ' + "[" * 5000, NO_OBJECT),
    ("bad__lekka", "{}", "error: there is no tool 'bad__lekka'; did you mean bad__leak or "),
]


def test_each_result_is_read_and_an_odd_one_is_the_matter_of_its_call_alone(
    home: Home, model: ModelServer
) -> None:
    calls = [
        made("bad__give", {"result": result}, f"g{at}") for at, (result, _, _) in enumerate(GIVEN)
    ]
    for at, (rest, _) in enumerate(SAID):
        calls.append(
            made("bad__say", {"line": f'{{"jsonrpc": "2.0", "id": ID, {rest}}}'}, f"s{at}")
        )
    calls += [made(name, arguments, f"a{at}") for at, (name, arguments, _) in enumerate(ASKED)]
    run = called(home, model, entry(home, more='auto_approve = ["*"]'), *calls)
    assert run.stdout == "done\n"
    assert run.code == 0
    came = results(home)
    for at, (result, content, raw) in enumerate(GIVEN):
        read = came[f"g{at}"]
        assert read["content"] == content, result
        assert read.get("raw") == raw, result
        assert not read["is_error"], result
    for at, (rest, content) in enumerate(SAID):
        assert came[f"s{at}"]["content"] == content, rest
        assert came[f"s{at}"]["is_error"] == content.startswith("error:"), rest
    for at, (name, arguments, content) in enumerate(ASKED):
        assert came[f"a{at}"]["content"].startswith(content), (name, arguments)
        assert came[f"a{at}"]["is_error"]
    assert run.stderr.startswith(
        "gptsh: the model called a tool that was not offered, so it did not run: bad__lekka\n"
    )


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_message_ends_its_server(home: Home, model: ModelServer, how: str) -> None:
    line = f'{{"jsonrpc": "2.0", "id": ID, {BROKEN[how]}}}'
    run = called(
        home, model, entry(home, more='auto_approve = ["*"]'), made("bad__say", {"line": line})
    )
    assert run.stdout == ""
    assert run.code == 3
    assert "sent a broken message" in run.stderr


def test_what_a_server_gets_of_the_environment_and_what_the_model_reads_of_it(
    home: Home, model: ModelServer
) -> None:
    """A key is known by its name; what a result has of it does not reach the model."""
    own = {
        "MY_KEY": "k-12345678/+=",
        "ROOT": "/home/someone",
        "KEY": "/run/secret/key",
        "A_TOKEN": "short",
        "TZ": "X",
    }
    table = ", ".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in own.items()
    )
    data = {**IMAGE, "data": "k-12345678/+="}
    given = {"content": [text("k-12345678/+= at /home/someone"), data]}
    run = called(
        home, model, entry(home, more=f'auto_approve = ["*"]\nenv = {{ {table} }}'),
        made("bad__tell", {"text": "ä\u2028"}, "tell"), made("bad__give", {"result": given}, "give"),
        env={"OPENAI_API_KEY": "sk", "EDITOR": "vi", "SSH_AUTH_SOCK": "s", "LC_TIME": "C", "SHELL": "sh"},
    )  # fmt: skip
    assert run.code == 0
    told = json.loads(results(home)["tell"]["content"])
    assert told["given"] == {"text": "ä\u2028"}
    assert told["cwd"] == str(home.cwd)
    assert told["leads"]  # out of the terminal's reach
    assert {name: value for name, value in told["env"].items() if name not in ("PATH", "HOME", "LC_CTYPE")} == {
        **own, "MY_KEY": "***", "LC_TIME": "C", "LANG": "C.UTF-8", "SHELL": "sh",
    }  # fmt: skip
    assert results(home)["give"]["content"][0]["text"] == "*** at /home/someone"
    assert results(home)["give"]["raw"] == {"blocks": [{**data, "data": "***"}]}


# ---- questions

FORM = {
    "type": "object",
    "required": ["city", "days"],
    "properties": {
        "city": {"type": "string", "title": "City\n| ?", "minLength": 2, "description": "Where\x1b[2Jto?"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
        "unit": {"type": "string", "oneOf": [{"const": "c", "title": "Cel\x07"}, {"const": "f", "title": "Fahr"}]},
        "sky": {"type": "string", "enum": ["blue", "grey"], "default": "grey"},
        "rain": {"type": "boolean"},
        "cost": {"type": "number"},
        "note": {"type": "string", "default": "a\x1b"},
    },
}  # fmt: skip


def asking(
    home: Home,
    model: ModelServer,
    mode: str,
    asked: dict[str, Any],
    *replies: tuple[bytes, str | Callable[[], str]],
    env: Any = None,
    timeout: int = 20,
) -> tuple[str, int]:
    """A turn on a terminal in which a tool asks, with the user's replies to each prompt; what is seen, the code."""
    text = f"{lab_config(model)}[mcp]\n" + entry(
        home, "bad", mode, f'auto_approve = ["*"]\ntimeout = {timeout}'
    )
    home.configure(text.replace('model = "lab/m"', 'model = "lab/m"\ntools = ["all"]'))
    model.script(*calling(made("bad__ask", {"asked": asked})))
    model.say("done")
    terminal = Terminal(home, "go", env=env)
    for prompt, reply in replies:
        terminal.until(prompt)
        time.sleep(1.2 if timeout == 1 else 0)
        terminal.seen = b""
        terminal.write(reply if isinstance(reply, str) else reply())
    seen, code = terminal.close()
    return seen.decode(), code


@pytest.mark.parametrize("mode", ["", "modern"])
def test_a_server_asks_the_user_to_fill_in_a_form(
    home: Home, model: ModelServer, mode: str
) -> None:
    asked = {"mode": "form", "message": "About\nyour \x1b[31mtrip", "requestedSchema": FORM}
    _, code = asking(
        home, model, mode, asked,
        (rb"\| About\r\n\| your [^\x1b]*trip\r\nbad asks you this. Answer it\? \[y\]es, \[n\]o: ", "y\n"),
        (rb"\r\n\| City \| \?\r\n\| Where[^\x1b]*to\?\r\nAnswer \(text, at least 2 characters\): ", "\n"),
        (rb"an answer is required; Ctrl-D declines\r\nAnswer [^\n]*: ", "X\n"),
        (rb"expected: text, at least 2 characters\r\nAnswer [^\n]*: ", "Prague\n"),
        (rb"\| days\r\n\| default: 3\r\nAnswer [^\n]*1, at most 7, empty for the default\): ", "many\n"),
        (rb"expected: a whole number, at least 1, at most 7\r\nAnswer [^\n]*: ", "8\n"),
        (rb"expected: a whole number[^\n]*\nAnswer [^\n]*: ", "\n"),
        (rb"\| unit\r\n\| 1. Cel[^\x07]*\r\n\| 2. Fahr\r\nAnswer [^\n]*leave it out\): ", "kelvin\n"),
        (rb"expected: a number or a name above\r\nAnswer [^\n]*: ", "F\n"),
        (rb"\| 2. grey\r\n\| default: grey\r\nAnswer [^\n]*: ", "1\n"),
        (rb"\| rain\r\nAnswer \(y/n, empty to leave it out\): ", "no\n"),
        (rb"\| cost\r\nAnswer \(a number, empty to leave it out\): ", "1e999\n"),
        (rb"expected: a number\r\nAnswer [^\n]*: ", "\n"),
        (rb"\| default: a[^\x1b]+\r\nAnswer [^\n]*: ", "\n"),
    )  # fmt: skip
    content = {
        "city": "Prague",
        "days": 3,
        "unit": "f",
        "sky": "blue",
        "rain": False,
        "note": "a\x1b",
    }
    reply = {"action": "accept", "content": content}
    told = json.loads(results(home)["c1"]["content"])
    assert code == 0
    assert told == ({"reply": reply, "state": "sealed"} if mode else reply)


@pytest.mark.parametrize(("reply", "action"), [("y\n", "accept"), ("n\n", "decline")])
def test_a_server_asks_the_user_to_open_a_url(
    home: Home, model: ModelServer, reply: str, action: str
) -> None:
    url = "https://bank.example/pay?id=1"
    opened = home.folder / "opened"
    browser = home.folder / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    browser.chmod(0o755)
    asked = {"mode": "url", "message": "Pay first.", "url": url, "elicitationId": "e1"}
    prompt = rb"\| Pay first.\r\n\| https://bank.example/pay\?id=1\r\nbad asks you to open this URL. Open it\? .*: "
    _, code = asking(home, model, "", asked, (prompt, reply), env={"BROWSER": f"{browser} %s"})
    assert code == 0
    assert json.loads(results(home)["c1"]["content"]) == {"action": action}
    assert (opened.read_text() if opened.exists() else "") == (url if action == "accept" else "")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["", "modern"])
def test_the_time_that_the_user_takes_is_not_the_servers(
    home: Home, model: ModelServer, mode: str
) -> None:
    asked = {
        "mode": "form",
        "message": "Well?",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    _, code = asking(home, model, mode, asked, (rb"Answer it\? .*: ", "y\n"), timeout=1)
    assert code == 0
    assert '"action": "accept"' in results(home)["c1"]["content"]


@pytest.mark.parametrize("mode", ["", "modern"])
def test_without_a_terminal_a_question_of_a_server_is_declined_in_one_line(
    home: Home, model: ModelServer, mode: str
) -> None:
    asked = {"mode": "form", "message": "Who?", "requestedSchema": FORM}
    run = called(
        home,
        model,
        entry(home, "bad", mode, 'auto_approve = ["*"]'),
        made("bad__ask", {"asked": asked}),
    )
    note = "gptsh: declined a question from tool server bad: there is no terminal to ask on\n"
    assert run == ("done\n", note, 0)
    assert '"action": "decline"' in results(home)["c1"]["content"]


def a_field(**schema: Any) -> dict[str, Any]:
    """A form with this field."""
    return {"type": "object", "properties": {"x": schema}}


NO_FIELD = "gptsh cannot ask for field 'x' of its form"
NO_SUCH_FIELD = "its form requires fields that it does not have"
ODD_FORMS: list[tuple[str, dict[str, Any], str]] = [
    ("required and unknown", {**a_field(type="string"), "required": ["x", "y"]}, NO_SUCH_FIELD),
    ("a field that is a text", {"type": "object", "properties": {"x": "string"}}, NO_FIELD),
    ("a field that is null", {"type": "object", "properties": {"x": None}}, NO_FIELD),
    ("an empty field", a_field(), NO_FIELD),
    ("a field without type", a_field(title="X"), NO_FIELD),
    ("an unknown type", a_field(type="date"), NO_FIELD),
    ("two types", a_field(type=["string", "null"]), NO_FIELD),
    ("a type that is a table", a_field(type={"string": 1}), NO_FIELD),
    ("null", a_field(type="null"), NO_FIELD),
    ("an object", a_field(type="object", properties={"y": {"type": "string"}}), NO_FIELD),
    ("several texts", a_field(type="array", items={"type": "string", "enum": ["a", "b"]}), NO_FIELD),
    ("one of two types", a_field(anyOf=[{"type": "string"}, {"type": "integer"}]), NO_FIELD),
    ("a reference", a_field(**{"$ref": "#/$defs/X"}), NO_FIELD),
    ("choices of numbers", a_field(type="integer", enum=[1, 2]), NO_FIELD),
    ("a title that is a number", a_field(type="string", title=7), NO_FIELD),
    ("a description in a list", a_field(type="string", description=["a"]), NO_FIELD),
    ("choices that are a text", a_field(type="string", enum="ab"), NO_FIELD),
    ("choices by number", a_field(type="string", enum={"a": 1}), NO_FIELD),
    ("a choice that is a number", a_field(type="string", enum=["a", 1]), NO_FIELD),
    ("a choice that is a list", a_field(type="string", enum=[["a"]]), NO_FIELD),
    ("null as choices", a_field(type="string", enum=None), NO_FIELD),
    ("titled choices that are no tables", a_field(type="string", oneOf=["a", "b"]), NO_FIELD),
    ("titled choices in a table", a_field(type="string", oneOf={"const": "a"}), NO_FIELD),
    ("a title without value", a_field(type="string", oneOf=[{"title": "A"}]), NO_FIELD),
    ("a choice whose title is a number", a_field(type="string", oneOf=[{"const": "a", "title": 1}]), NO_FIELD),
    ("no choices", a_field(type="string", enum=[]), NO_FIELD),
    ("a choice twice", a_field(type="string", enum=["a", "a"]), NO_FIELD),
    ("lengths that exclude each other", a_field(type="string", minLength=3, maxLength=2), NO_FIELD),
    ("a length that is a text", a_field(type="string", minLength="2"), NO_FIELD),
    ("numbers that exclude each other", a_field(type="number", minimum=2, maximum=1), NO_FIELD),
    ("a bound that is true", a_field(type="integer", minimum=True), NO_FIELD),
    ("a bound that is no number", a_field(type="number", minimum="NaN"), NO_FIELD),
    ("an endless bound", a_field(type="number", maximum="Infinity"), NO_FIELD),
    ("a bound of 400 digits", a_field(type="integer", maximum=10**400), NO_FIELD),
    ("a text as default of a number", a_field(type="integer", default="3"), NO_FIELD),
    ("true as default of a number", a_field(type="integer", default=True), NO_FIELD),
    ("no number as default", a_field(type="number", default="NaN"), NO_FIELD),
    ("1 as default of yes or no", a_field(type="boolean", default=1), NO_FIELD),
    ("a list as default of a text", a_field(type="string", default=["a"]), NO_FIELD),
    ("a default outside the bounds", a_field(type="integer", default=9, maximum=7), NO_FIELD),
    ("a default that is no choice", a_field(type="string", enum=["a"], default="b"), NO_FIELD),
    ("too long a text", a_field(type="string", description="x" * 20_000), "it has more than 20,000 characters"),
    ("one odd field of two", {"type": "object", "properties": {"a": {"type": "string"}, "x\x1b[2J": {}}},
     NO_FIELD.replace("'x'", r"'x\x1b[2J'")),
]  # fmt: skip


def test_an_odd_form_is_declined_whole_before_anybody_is_asked(
    home: Home, model: ModelServer
) -> None:
    calls = []
    for number, (_, form, _) in enumerate(ODD_FORMS):
        asked = {"mode": "form", "message": "Well?", "requestedSchema": form}
        calls.append(made("bad__ask", {"asked": asked}, f"c{number}"))
    run = called(home, model, entry(home, more='auto_approve = ["*"]'), *calls)
    assert run.stdout == "done\n"
    assert run.code == 0
    notes = [
        f"gptsh: declined a question from tool server bad: {reason}" for *_, reason in ODD_FORMS
    ]
    said = [line for line in run.stderr.splitlines() if "silently truncated" not in line]
    assert sorted(said) == sorted(notes)
    replies = {name: result["content"] for name, result in results(home).items()}
    assert replies == {f"c{number}": '{"action": "decline"}' for number in range(len(ODD_FORMS))}


def test_an_odd_form_is_no_question_on_a_terminal(home: Home, model: ModelServer) -> None:
    asked = {
        "mode": "form",
        "message": "Well?",
        "requestedSchema": a_field(type="array", items={"type": "string"}),
    }
    seen, code = asking(home, model, "", asked)
    assert code == 0
    assert "asks you" not in seen
    assert NO_FIELD in re.sub(r"(\s|\x1b\[\d?m)+", " ", seen)
    assert results(home)["c1"]["content"] == '{"action": "decline"}'


def test_a_form_does_not_show_a_servers_key(home: Home, model: ModelServer) -> None:
    form = {"type": "object", "properties": {"k-12345678/+=": {"type": "date"}}}
    asked = {"mode": "form", "message": "Well?", "requestedSchema": form}
    more = 'auto_approve = ["*"]\nenv = { MY_KEY = "k-12345678/+=" }'
    run = called(home, model, entry(home, more=more), made("bad__ask", {"asked": asked}))
    assert NO_FIELD.replace("'x'", "'***'") in run.stderr
    assert "k-1234" not in run.stderr


@pytest.mark.parametrize("mode", ["", "modern"])
@pytest.mark.parametrize(
    "form",
    [{}, {"type": "object"}, {"type": "object", "properties": [1]}, {"type": "array", "properties": {}},
     {"type": "object", "properties": {}, "required": "x"}, {"type": "object", "properties": {}, "required": [[]]}],
)  # fmt: skip
def test_what_is_no_form_at_all_ends_the_call_alone(
    home: Home, model: ModelServer, mode: str, form: Any
) -> None:
    asked = {"mode": "form", "message": "Well?", "requestedSchema": form}
    run = called(
        home,
        model,
        entry(home, mode=mode, more='auto_approve = ["*"]'),
        made("bad__ask", {"asked": asked}),
    )
    assert run == ("done\n", "", 0)


def test_a_server_that_ends_while_the_user_is_asked_is_one_line(
    home: Home, model: ModelServer
) -> None:
    asked = {"mode": "form", "message": "Well?", "requestedSchema": a_field(type="string")}

    def kill() -> str:
        pid = int((home.folder / "pids").read_text())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pid))
        time.sleep(0.5)  # until gptsh has noticed
        return "n\n"

    seen, code = asking(home, model, "", asked, (rb"Answer it\? .*: ", kill))
    assert code == 3, seen
    assert "tool server bad was ended by Killed" in seen, seen
    assert "Traceback" not in seen, seen


def test_a_form_without_fields_is_a_question(home: Home, model: ModelServer) -> None:
    asked = {
        "mode": "form",
        "message": "Well?",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    _, code = asking(
        home, model, "", asked, (rb"\| Well\?\r\nbad asks you this. Answer it\? .*: ", "y\n")
    )
    assert code == 0
    assert json.loads(results(home)["c1"]["content"]) == {"action": "accept", "content": {}}


def test_a_result_has_at_most_10_000_parts(home: Home, model: ModelServer) -> None:
    link = {"type": "resource_link", "uri": "x:1", "name": "n"}
    whole = made("bad__many", {"block": link, "count": 10_000}, "whole")
    cut = made("bad__many", {"block": link, "count": 12_000}, "cut")
    assert called(home, model, entry(home, more='auto_approve = ["*"]'), whole, cut).code == 0
    parts = [{"type": "text", "text": "n x:1"}] * 10_000
    assert results(home)["whole"]["content"] == parts
    mark = {"type": "text", "text": "[gptsh: 2,000 more parts are left out here]"}
    assert results(home)["cut"]["content"] == [*parts, mark]


@pytest.mark.slow
def test_texts_of_a_result_are_joined_before_they_fill_the_memory(
    home: Home, model: ModelServer
) -> None:
    many = made("bad__many", {"block": text("x"), "count": 300_000})
    config = f"{lab_config(model)}[mcp]\n{entry(home, more=APPROVED)}"
    home.configure(config.replace('model = "lab/m"', 'model = "lab/m"\ntools = ["bad"]'))
    model.script(*calling(many))
    assert peak_of(home, "go")[1] < 300_000_000
    assert results(home)["c1"]["content"] == "\n".join("x" * 300_000)


# ---- over HTTP


@pytest.fixture(scope="module", params=["json", "events"])
def near(request: pytest.FixtureRequest) -> Iterator[str]:
    """The base URL of a server by the SDK, which wants a token."""
    env = {**os.environ, "TOOL_TOKEN": "token-of-the-server"}
    with start_server(HTTP, request.param, env=env) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"


def web(url: str, token: str) -> str:
    more = f'headers = {{ Authorization = "Bearer {token}" }}\nauto_approve = ["*"]\n'
    return f'[mcp.servers.web]\nurl = "{url}"\n{more}'


def test_a_server_over_http(home: Home, model: ModelServer, near: str) -> None:
    calls = [made("web__add", {"a": 1, "b": 2}, "a"), made("web__long", {"size": 3_000_000}, "b")]
    proxied = {"HTTP_PROXY": "http://127.0.0.1:9"}  # loopback never is
    assert (
        called(home, model, web(f"{near}/mcp", "token-of-the-server"), *calls, env=proxied).code
        == 0
    )
    assert [len(result["content"]) for result in results(home).values()] == [1, 3_000_000]
    for path, token, said in (
        (
            "/mcp?key=literal-1",
            "wrong-token-1",
            'tool server web answered 401 Unauthorized: {"error":"who are you?"}',
        ),
        (
            "/page",
            "token-of-the-server",
            "tool server web refused: Unexpected content type: text/html",
        ),
        ("/none", "token-of-the-server", "tool server web answered 404 Not Found: Not Found"),
    ):
        home.configure(web(near + path, token))
        run = home.run("--list-tools", "--debug")
        assert run.code == 3
        assert run.stderr.startswith(f"gptsh: {said}")
        assert not re.search(f"literal-1|{token}", run.stdout + run.stderr)


def test_a_result_over_http_has_at_most_10_000_parts(
    home: Home, model: ModelServer, near: str
) -> None:
    links = made("web__links", {"count": 10_005})
    assert called(home, model, web(f"{near}/mcp", "token-of-the-server"), links).code == 0
    *parts, last = results(home)["c1"]["content"]
    assert len(parts) == 10_000
    assert parts[-1]["text"] == "n x:9999"
    assert last["text"] == "[gptsh: 5 more parts are left out here]"


def test_a_server_over_http_that_knows_only_the_older_protocol(
    home: Home, model: ModelServer
) -> None:
    """It refuses the first request, which asks for the newer one."""
    with old_server() as (url, methods):
        assert called(home, model, web(url, "t"), made("web__greet")).code == 0
    assert results(home)["c1"]["content"] == "hello"
    assert methods == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ]


@pytest.mark.parametrize("status", [200, 404, 405])
def test_a_server_of_the_old_sse_is_told_from_others_without_its_html(
    home: Home, model: ModelServer, status: int
) -> None:
    page = b"<!DOCTYPE html><pre>Cannot POST</pre>"
    for path in ("/sse", "/mcp"):
        model.pages[path] = Script(
            status, {"Content-Type": "text/html; charset=utf-8"}, (page,), "length"
        )
    home.configure(web(f"http://127.0.0.1:{model.port}/sse", "x"))
    run = home.run("--list-tools")
    says = "seems to use the old SSE transport; gptsh uses streamable HTTP, often at /mcp"
    assert run.stderr == f"gptsh: tool server web {says}\n"
    assert run.code == 3
    home.configure(web(f"http://127.0.0.1:{model.port}/mcp", "x"))
    run = home.run("--list-tools")
    assert "SSE" not in run.stderr
    assert "<" not in run.stderr


def test_a_server_over_http_that_dies_in_a_call(home: Home, model: ModelServer) -> None:
    env = {**os.environ, "TOOL_TOKEN": "t"}
    with start_server(HTTP, "json", env=env) as process:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        run = called(
            home,
            model,
            web(url, "t"),
            made("web__add", {"a": 1, "b": 2}, "a"),
            made("web__die", ident="b"),
        )
    assert run.stdout == "", run.stderr
    assert run.code == 3, run.stderr
    assert run.stderr.startswith("gptsh: tool server web failed: "), run.stderr


def test_a_url_that_nobody_answers_or_that_redirects_and_words_that_hold_a_key(
    home: Home, model: ModelServer
) -> None:
    home.configure(web("http://127.0.0.1:9/mcp", "x"))
    run = home.run("--list-tools")
    assert run.code == 3
    assert run.stderr.startswith("gptsh: tool server web cannot be reached: ")
    model.pages["/moved"] = Script(307, {"Location": "http://elsewhere.example/mcp"}, (), "length")
    home.configure(web(f"http://127.0.0.1:{model.port}/moved", "x"))
    run = home.run("--list-tools")
    assert run.stderr.startswith(
        "gptsh: tool server web refused: Redirect to http://elsewhere.example/mcp not followed"
    )
    assert run.code == 3
    assert run.stderr.count("\n") == 1
    said = f"{'no ' * 22} /mcp?key=literal-1 for token-of-mine-abcdefghijklmnop".encode()
    model.pages["/mcp?key=literal-1"] = Script(
        403, {"Content-Type": "text/plain"}, (said,), "length"
    )
    home.configure(
        web(f"http://127.0.0.1:{model.port}/mcp?key=literal-1", "token-of-mine-abcdefghijklmnop")
    )
    run = home.run("--list-tools", "--debug")
    assert run.stderr.startswith("gptsh: tool server web answered 403 Forbidden: no no ")
    assert "Traceback" in run.stderr
    assert not re.search("literal-1|token-of", run.stdout + run.stderr)


@needs("git")
@pytest.mark.slow
def test_real_servers(home: Home, model: ModelServer) -> None:
    folder = home.folder / "repository"
    bin_ = Path(sys.executable).parent
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "the first one"], check=True)
    servers = f"""[mcp.servers.time]
command = "{bin_}/mcp-server-time"
args = ["--local-timezone", "UTC"]
auto_approve = ["*"]
[mcp.servers.git]
command = "{bin_}/mcp-server-git"
auto_approve = ["git_log"]
"""
    zones = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    run = called(
        home, model, servers,
        made("time__get_current_time", {"timezone": "Europe/Prague"}, "now"),
        made("time__convert_time", zones, "there"),
        made("time__get_current_time", {"timezone": "Nowhere"}, "wrong"),
        made("git__git_log", {"repo_path": str(folder)}, "log"),
        made("git__git_commit", {"repo_path": str(folder), "message": "no"}, "denied"),
    )  # fmt: skip
    assert run.code == 4
    for ident, part in (
        ("now", "Europe/Prague"), ("there", "21:00"), ("wrong", "Nowhere"), ("log", "first one"), ("denied", "denied")
    ):  # fmt: skip
        result = results(home)[ident]
        assert part in result["content"]
        assert result["is_error"] == (ident in ("wrong", "denied"))


# ---- names


@pytest.mark.parametrize(("own", "names"), [
    ([("time", "get")], ["time__get"]), ([("my.fs", "read/file")], ["my_fs__read_file"]),
    ([("a", "b.c"), ("a", "b_c")], ["a__b_c_HASH", "a__b_c_HASH"]),
    ([("a", "b__c"), ("a__b", "c")], ["a__b__c_HASH", "a__b__c_HASH"]),
    ([("s", "x" * 61)], ["s__" + "x" * 61]), ([("s", "x" * 62)], ["s__" + "x" * 52 + "_HASH"]),
])  # fmt: skip
def test_the_names_that_a_model_reads(own: list[tuple[str, str]], names: list[str]) -> None:
    found = list(names_for_model(own).values())
    assert [re.sub("_[0-9a-f]{8}$", "_HASH", name) for name in found] == names
    assert len(set(found)) == len(found)


# ---- configuration


def test_a_claude_style_file_joins_the_config(home: Home, model: ModelServer) -> None:
    args = [str(BAD), "${EMPTY}", "${HOME}/pids"]
    servers = {
        "bad": {
            "command": sys.executable,
            "args": args,
            "env": {"A": "${LONG:-x}", "K": "${TOKEN}"},
        },
        "good": {"type": "http", "url": "http://nowhere.example/"},
    }
    home.config.parent.mkdir(parents=True)
    (home.config.parent / "servers.json").write_text(
        json.dumps({"mcpServers": servers, "other": 1})
    )
    config = f'servers_file = "servers.json"\n[mcp.servers.bad]\nauto_approve = ["tell"]\n{good()}'
    env = {"TOKEN": "tok-12345678", "EMPTY": "", "HOME": str(home.folder)}
    run = called(
        home, model, config, made("bad__tell"), made("good__add", {"a": 1, "b": 2}, "c2"), env=env
    )
    assert run.stderr == ""
    assert run.code == 0
    told = json.loads(results(home)["c1"]["content"])
    assert told["env"]["A"] == "x"
    assert told["env"]["K"] == "***"
    assert results(home)["c2"]["content"] == "3"


def test_a_disabled_entry_of_the_file_is_skipped_with_what_the_config_adds_to_it(
    home: Home,
) -> None:
    servers = {
        "on": {"command": sys.executable, "args": [str(BAD)], "disabled": False},
        "off": {"command": "/no/such", "disabled": True},
    }
    home.configure(
        '[mcp]\nservers_file = "servers.json"\n[mcp.servers.off]\nauto_approve = ["*"]\n'
    )
    (home.config.parent / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    run = home.run("--list-tools")
    assert {line.partition("__")[0] for line in run.stdout.splitlines()} == {"on"}
    assert run.stderr == ""
    run = home.run("--list-tools", "--tools", "off__x")
    assert run.stderr == "gptsh: there is no tool server 'off__x': it is disabled in servers.json\n"
    home.configure(
        '[mcp]\nservers_file = "servers.json"\n[mcp.servers.off]\ncommand = "/no/other"\n'
    )
    assert "/no/other" in home.run("--list-tools").stderr


def test_comments_and_trailing_commas_of_the_file_are_read_over(home: Home) -> None:
    home.configure('[mcp]\nservers_file = "servers.json"\n')
    (home.config.parent / "servers.json").write_text(
        """// mine, "quoted
        {"mcpServers": { /* the
          first */ "one": {"url": "http://127.0.0.1:9/a,]b", "args": ["/*", "\\"//", ], }, // }
        }, }"""
    )
    run = home.run("--list-tools")
    assert run.stderr.startswith("gptsh: tool server one cannot be reached: ")


def test_a_tool_that_runs_only_as_a_task_is_not_offered_and_the_list_says_so(
    home: Home, model: ModelServer
) -> None:
    says = "runs only as a task, which gptsh does not support"
    config = entry(home, "bad", "tasks", APPROVED)
    assert called(home, model, config, made("bad__hang_not")).code == 0
    assert [tool["function"]["name"] for tool in model.sent[0]["tools"]] == ["bad__hang"]
    run = home.run("--list-tools")
    assert run.stdout == "bad__hang  Will hang.\n"
    assert run.stderr == f"gptsh: bad__die is not offered because it {says}\n"
    assert run.code == 0
    run = home.run("--tools", "bad__die", "hi")
    assert run.stderr == f"gptsh: bad__die {says}\n"
    assert run.code == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('command = "c"\nurl = "http://x/"', "mcp.servers.s: expected either command or url"),
        ("timeout = 3", "mcp.servers.s: expected either command or url"),
        ('command = " "', "mcp.servers.s.command: expected the name of a program"),
        ('type = "http"\ncommand = "c"', "mcp.servers.s: expected either command or url"),
        ('url = "ftp://x"', "mcp.servers.s.url: expected a URL with http:// or https://"),
        ('url = "http://x"\nheaders = { "a b" = "c" }', "mcp.servers.s.headers: expected a table of header names"),
        ('command = "${NONE}"', "s.command: the variable NONE is not set: set it, or write ${NONE:-DEFAULT}"),
        ({"s": {"type": "tcp", "url": "x"}}, "s.type: expected one of stdio, http, streamable-http, not 'tcp'"),
        ({"s": {"type": "sse", "url": "x"}}, "not 'sse': gptsh does not support the old SSE transport"),
        ({"s": {"command": "c", "args": "x"}}, "mcpServers.s.args: expected a list of strings, not 'x'"),
        ({"s": 1}, "mcpServers.s: expected a table"),
        ([], "mcpServers: expected a table"),
        ("file: {", "servers.json: not JSON: "),
        ("file: " + "[" * 100_000, "servers.json: not JSON: "),
        ("no file", "servers.json: No such file or directory"),
    ],
    ids=str,
)  # fmt: skip
def test_a_broken_tool_server_is_a_line_and_no_matter_if_no_tools_are_wanted(
    home: Home, config: Any, said: str
) -> None:
    home.config.parent.mkdir(parents=True)
    if not isinstance(config, str) or "file" in config:
        home.configure('[mcp]\nservers_file = "servers.json"\n')
        file = config[6:] if isinstance(config, str) else json.dumps({"mcpServers": config})
        if config != "no file":
            (home.config.parent / "servers.json").write_text(file)
    else:
        home.configure(f"[mcp.servers.s]\n{config}\n")
    run = home.run("--list-tools")
    assert run.stdout == ""
    assert run.code == 2
    assert run.stderr.count("\n") == 1
    assert said in run.stderr
    assert home.run("-m", "echo", "hi") == (
        "You said: hi\n",
        "",
        0,
    )  # the config file itself is sound


def test_tab_offers_tool_servers(two: Home) -> None:
    assert completions(two, "gptsh --tools ") == ["one", "two", "all"]
    assert completions(two, "gptsh --tools one,t") == ["one,two"]
    assert completions(two, "gptsh --login ") == ["one", "two"]


# ---- the SDK


INSTALL = "pipx inject gptsh 'mcp>=2.3,<3'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "args", "said", "code"),
    [
        ("mcp", ["--list-tools"], f"tools need the package mcp: run {INSTALL}", 2),
        ("mcp_types", ["--list-tools"], "the package mcp cannot be used: ", 2),
        ("mcp", ["-m", "echo", "hi"], "", 0),
    ],
)  # fmt: skip
def test_without_the_sdk_a_line_says_what_to_install(
    two: Home, missing: str, args: list[str], said: str, code: int
) -> None:
    lacking = two.folder / "lacking"
    lacking.mkdir()
    (lacking / "sitecustomize.py").write_text(f'import sys\nsys.modules["{missing}"] = None\n')
    env = {"PYTHONPATH": f"{lacking}:{two.env['PYTHONPATH']}", "PYTHONWARNINGS": "ignore"}
    done = two.process(*args, env=env)
    assert done.stderr.startswith(f"gptsh: {said}" if said else "")
    assert done.code == code
    assert INSTALL in done.stderr or not said
