"""Every way that a run can end: its exit code, and how it is said in text and for programs."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.support.home import Home
from tests.support.readme import SCRIPTING, exit_codes
from tests.support.server import Cut, ModelServer, answer, chunk, event
from tests.support.tools import call, calling, configure

DONE = event(b"[DONE]")
JSON = {"Content-Type": "application/json"}


class Way(NamedTuple):
    """A run of ``args`` that fails: its code, what stderr has, what arrived, and what is kept of the answer."""

    code: int
    said: str
    setup: Callable[[Home, ModelServer], object] = lambda _lab, _model: None
    args: tuple[str, ...] = ("hi",)
    text: str | None = None
    finish: str | None = None  # the answer's ``finish_reason``
    kept: bool = True  # the question, in a session


def refuses(status: int, said: str = "boom") -> Any:
    return lambda _lab, model: model.refuse(
        status, {"error": {"message": said}}, {"x-should-retry": "false"}
    )


def says(*steps: Any, **more: Any) -> Any:
    return lambda _lab, model: model.script(*steps, **more)


def says_whole(_lab: Home, model: ModelServer) -> None:
    model.unstreamed("half", finish=None)


def says_twice(text: str) -> Any:
    return lambda _lab, model: (model.say(text), model.say(text))


def adds(text: str, under: str = "") -> Any:
    """Add to the config file, under a line of it or at its end."""

    def setup(lab: Home, model: ModelServer) -> None:
        model.script(*answer("half")[:2], 30.0)
        before = lab.config.read_text()
        lab.configure(before.replace(under, under + text) if under else before + text)

    return setup


def has_tools(more: str = "", approved: str = '"*"') -> Any:
    """The model calls a tool that it is offered."""

    def setup(lab: Home, model: ModelServer) -> None:
        configure(lab, model, approved, more)
        model.script(*calling(call("add", a=1, b=1)))

    return setup


def _in_the_way(lab: Home, _model: ModelServer) -> None:
    lab.state.parent.mkdir()
    lab.state.write_text("a file where the folder should be")


def _silent_twice(_lab: Home, model: ModelServer) -> None:
    model.script(DONE)
    model.script(b"", headers=JSON)


FOREIGN = {
    "index": 0,
    "id": "c1",
    "function": {"name": "time__get", "arguments": '{"zone": "Europe'},
}
REFUSAL = [
    event(chunk({"content": "Well, "})),
    event(chunk({"refusal": "no."})),
    event(chunk({}, "stop")),
    DONE,
]
NO_REASON = [
    event(chunk({"role": "assistant", "content": ""})),
    event(chunk({"content": "half"})),
    DONE,
]
UNREACHABLE = '[providers.gone]\nbase_url = "http://127.0.0.1:9/v1"\n'
INTERRUPTS = "when another request arrives"
WAYS = {
    "a wrong key": Way(1, "lab refused the key (401): boom", refuses(401)),
    "an unknown model": Way(1, "boom", refuses(404)),
    "a rate limit": Way(1, "boom", refuses(429)),
    "a server error": Way(1, "lab failed (500): boom", refuses(500)),
    "nobody listens": Way(1, "127.0.0.1:9", adds(UNREACHABLE), ("-m", "gone/m", "hi")),
    "an empty answer": Way(1, "returned an empty answer: ask again, or try", says(*answer()), finish="stop"),
    "a blank answer": Way(1, "returned an empty answer", says(*answer(" \n")), text=" \n", finish="stop"),
    "an empty stream": Way(1, "context_window under [providers.lab]", _silent_twice),
    "a call that nobody offered": Way(1, "called a tool", says(*calling(call("ls"))), finish="tool_calls"),
    "not saved": Way(1, "cannot be saved", _in_the_way, text="You said: hi", finish="stop", kept=False),
    "a tool server that is not there": Way(3, "gone", adds('[mcp.servers.gone]\ncommand = "/no/such"\n'),
                                           ("--tools", "gone", "hi")),
    "a denied call": Way(4, "denied", has_tools(approved=""), text="You said: ", finish="stop"),
    "the token limit": Way(5, "token limit", says(*answer("half", finish="length")), text="half", finish="length"),
    "a filter": Way(5, "filter", says(*answer("half", finish="content_filter")), text="half", finish="content_filter"),
    "a refusal": Way(5, "refused", says(*REFUSAL), text="Well, no.", finish="stop"),
    "a refusal as reason": Way(5, "refus", says(*answer("no", finish="refusal")), text="no", finish="refusal"),
    "no reason": Way(5, INTERRUPTS, says(*NO_REASON), text="half"),
    "no reason, in one piece": Way(5, INTERRUPTS, says_whole, ("--no-stream", "hi"), "half"),
    "no reason, and breaks off": Way(5, INTERRUPTS, says(*NO_REASON, Cut), text="half"),
    "calls without a reason": Way(5, "", says(event(chunk({"tool_calls": [FOREIGN]})), DONE)),
    "not what the schema asks": Way(5, "", says_twice("no"), ("--schema", '{"type":"object"}', "hi"), "no", "stop"),
    "too many rounds": Way(5, "max_rounds", has_tools("[mcp]\nmax_rounds = 1\n"), finish="tool_calls"),
    "too long": Way(6, "100", adds("context_window = 100\n", "[providers.lab]\n"), ("word " * 200,), kept=False),
    "the deadline": Way(124, "--timeout and GPTSH_TIMEOUT", adds(""), ("--timeout", "1", "hi"), "half", "timeout"),
    "a silent server": Way(124, "idle_timeout", adds("[network]\nidle_timeout = 0.3\n"), text="half", finish="timeout"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["text", "jsonl"])
@pytest.mark.parametrize("name", WAYS)
def test_a_turn_that_fails_says_so_as_text_and_as_events(
    lab: Home, model: ModelServer, name: str, form: str
) -> None:
    way = WAYS[name]
    way.setup(lab, model)
    run = lab.run("-o", form, *way.args)
    assert run.code == way.code, run.stderr
    assert "Traceback" not in run.stderr
    assert way.said in run.stderr
    ident = lab.doc()["id"] if way.kept else None
    if way.kept:
        question = lab.doc()["messages"][0]
        reply = lab.doc()["messages"][-1]
        assert question["content"] == "hi"
        if way.text:
            assert reply["content"][:4] == way.text[:4]
            assert reply["finish_reason"] == way.finish
    if form == "text":
        shown = "" if "--schema" in way.args else way.text or ""  # no text that does not conform
        assert run.stdout.startswith(shown)
        assert bool(run.stdout) == bool(shown)
        assert (f"gptsh -s {ident}" in run.stderr) == way.kept
        return
    *events, told = [json.loads(line) for line in run.stdout.splitlines()]
    assert told["error"]["exit_code"] == way.code
    assert told["session"] == ident
    assert told["error"]["message"] in run.stderr
    assert (f"'gptsh -s {ident}" in (told["error"]["hint"] or "")) == way.kept
    assert told["finish_reason"] == way.finish
    assert bool(told["text"]) == bool(way.text)
    assert (told["text"] or "").startswith(way.text or "")
    assert told["type"] == "done"
    assert events[-1]["type"] == "error"
    assert events[-1]["error"] == told["error"]


def test_a_turn_that_fails_is_one_object_in_json(lab: Home, model: ModelServer) -> None:
    way = WAYS["the token limit"]
    way.setup(lab, model)
    told = json.loads(lab.run("-o", "json", *way.args).stdout)
    assert told["error"]["exit_code"] == 5
    assert told["text"] == "half"
    assert told["session"] == lab.doc()["id"]


# ---- exit 2: nothing was asked, nothing changed

S = ("-s", "0")
WRONG: dict[str, tuple[tuple[str, ...], str]] = {  # arguments, and what stderr has
    "no such option": (("--nonsense",), "--nonsense"),
    "-s and -c": ((*S, "-c", "hi"), "cannot be used together"),
    "--reasoning and --no-reasoning": (("--reasoning", "--no-reasoning", "hi"), "cannot be used together"),
    "no prompt": ((), "no prompt"),
    "an unknown session": (("-s", "nobody", "hi"), "no session 'nobody'"),
    "no name": (("-s", "@@", "hi"), "'@' is not a valid name"),
    "a turn that there is not": (("-s", "0@9", "hi"), "9"),
    "no session shown": (("--show-session", "nobody"), "no session 'nobody'"),
    "a label that is not saved": ((*S, "--title", "X", "--no-save"), "--no-save"),
    "a label of a turn": (("-s", "0@1", "--title", "X"), "0@1"),
    "an unknown agent": (("-a", "zz", "hi"), "no agent 'zz'"),
    "an unknown provider": (("-m", "nobody/x", "hi"), "nobody"),
    "no key": (("-m", "openai/gpt-4.1", "hi"), "OPENAI_API_KEY"),
    "no such config file": (("--config", "nowhere.toml", "hi"), "nowhere.toml"),
    "a parameter without a value": (("-p", "temperature", "hi"), "KEY=VALUE"),
    "no such file": (("-f", "nowhere.txt", "hi"), "nowhere.txt"),
    "a file that is no text": (("-f", "odd.bin", "hi"), "gptsh: odd.bin"),
    "a schema that is none": (("--schema", "{", "hi"), "--schema"),
    **{f"{seconds} seconds": ((f"--timeout={seconds}", "hi"), "--timeout") for seconds in ("0", "nan", "soon")},
}  # fmt: skip


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_meant_is_exit_2_in_one_line(
    lab: Home, model: ModelServer, name: str, form: str
) -> None:
    args, said = WRONG[name]
    lab.run("-m", "echo", "before")
    (lab.cwd / "odd.bin").write_bytes(b"\x89XYZ\0\0")
    before = [path.read_bytes() for path in lab.files()]
    run = lab.run("-o", form, *args, stdin="")
    assert run.code == 2, run.stderr
    assert run.stderr.count("\n") == 1
    assert said in run.stderr
    assert [path.read_bytes() for path in lab.files()] == before
    assert not [body for body in model.sent if "messages" in (body or {})]
    assert bool(run.stdout) == (form != "text")
    if form != "text":
        error = json.loads(run.stdout.splitlines()[-1])["error"]
        assert error["exit_code"] == 2
        assert error["message"] in run.stderr


ODD_ENVIRONMENT = [
    *((f"GPTSH_{name}", "wrogn", "hi") for name in ("TIMEOUT", "SESSION", "AGENT")),
    *(
        ("GPTSH_OUTPUT", "xx", args)
        for args in ("hi", "--list-sessions", "--usage -o text", "--list-models")
    ),
]


def test_what_the_environment_cannot_mean_is_exit_2_before_anything_is_kept(lab: Home) -> None:
    for name, value, args in ODD_ENVIRONMENT:
        run = lab.run(*args.split(), env={name: value})
        assert run.code == 2
        assert run.stdout == ""
        assert run.stderr.count("\n") == 1
        assert value in run.stderr
    assert not lab.state.exists()


@pytest.mark.parametrize(
    ("option", "way"),
    [
        ("--modle", "did you mean --model?"),
        ("--search", "did you mean --search-sessions?"),
        ("--temperature", "-p temperature=VALUE sets it"),
        ("--max-tokens", "-p max_tokens=VALUE sets it"),
        ("--max-token", "-p max_tokens=VALUE sets it"),
        ("--temp", "-p temperature=VALUE sets it"),
        ("--json", "-o json prints it"),
        ("--list", "did you mean --list-sessions?"),
        ("--list-model", "did you mean --list-models?"),
        ("--models", "did you mean --list-models?"),
        ("--tools-list", "did you mean --list-tools?"),
        ("--sessions", "did you mean --list-sessions?"),
        ("--delete", "did you mean --delete-session?"),
        ("--continue-session", "did you mean --continue?"),
        ("--new-session", "did you mean --new?"),
        ("--dryrun", "did you mean --dry-run?"),
        ("-l", "did you mean --list-sessions?"),
        ("-V", "did you mean --version?"),
        ("--help me", "see gptsh --help, or put -- before a prompt that starts with a dash"),
        ("--nonsense", "see gptsh --help, or put -- before a prompt that starts with a dash"),
        ("-z", "see gptsh --help, or put -- before a prompt that starts with a dash"),
    ],
)
def test_an_unknown_option_names_the_one_that_was_likely_meant(
    home: Home, option: str, way: str
) -> None:
    run = home.run(option, "1", "hi")
    assert run.code == 2
    assert run.stderr == f"gptsh: no such option {option}: {way}\n"


def test_the_help_leaves_out_the_ranges_of_numbers(home: Home) -> None:
    assert not re.search(r"\[.*<?=.*\]", home.run("--help").stdout)


# ---- the codes of the table


def test_what_succeeds_is_exit_0_without_a_word_on_stderr(lab: Home) -> None:
    for args in (
        ["hi"],
        ["--list-sessions"],
        ["--help"],
        ["-h"],
        ["--version"],
        ["--dry-run", "hi"],
        ["--usage"],
    ):
        run = lab.run(*args)
        assert bool(run.stdout)
        assert run.stderr == ""
        assert run.code == 0


def test_the_page_on_scripts_has_these_codes_and_no_other() -> None:
    codes = {int(code) for row in exit_codes(SCRIPTING) for code in row.split(", ")}
    signals = {130, 143, 129}  # see ``process/test_endings``
    assert codes == {0, 2, *signals, *(way.code for way in WAYS.values())}
