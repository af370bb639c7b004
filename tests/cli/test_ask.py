"""The main job: a prompt in, the answer to stdout, both in one session."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.home import Home, lab_config, texts
from tests.support.server import ModelServer, answer, chunk, event

JSON = {"Content-Type": "application/json"}


def whole(**message: Any) -> bytes:
    """An answer in one piece."""
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()


def test_one_prompt_one_answer_one_session(lab: Home, model: ModelServer) -> None:
    model.say("hello ", "world")
    assert lab.run("say", "hello") == ("hello world\n", "", 0)
    doc = lab.doc()
    assert texts(doc) == ["user: say hello", "assistant: hello world"]
    question, reply = doc["messages"]
    known = {"parent": question["id"], "agent": "default", "provider": "lab", "model": "lab/m", "cost": None,
             "finish_reason": "stop", "response_id": "chatcmpl-1", "request_id": None}  # fmt: skip
    assert question["parent"] is None
    assert reply | known == reply
    assert [reply["usage"][key] for key in ("prompt", "completion", "total")] == [11, 5, 16]
    assert doc["usage"]["tokens"]["total"] == 16
    assert reply["duration_ms"] >= 0
    assert doc["agent"]["model"] == "lab/m"
    assert doc["provider"] == {"name": "lab"}
    assert doc["meta"]["cwd"] == doc["meta"]["project"] == str(lab.cwd)
    (sent,) = model.sent
    assert sent["model"] == "m"
    assert sent["messages"] == [{"role": "user", "content": "say hello"}]
    assert not {"temperature", "top_p", "max_tokens"} & set(sent)


# ---- what is asked

PROMPTS: dict[str, tuple[list[str], str | None, str]] = {  # arguments, standard input, what is sent
    "words over a pipe": (["summarise", "this"], "a log line\n", "summarise this\n\na log line\n"),
    "a pipe alone": ([], "only piped\n", "only piped\n"),
    "words and a blank pipe": (["words only"], " \n\t", "words only"),
    "a pipe that is not wanted": (["--no-stdin", "words"], "not read", "words"),
    "words like options": (["--", "-dash", "--list"], None, "-dash --list"),
    "letters and line ends": (
        ["ünï \u2028 😀"],
        "größe\u0085\r\n",
        "ünï \u2028 😀\n\ngröße\u0085\r\n",
    ),
    "fields with NUL between them": (
        ["which?"],
        "a file\0src/été.py\0",
        "which?\n\na file\0src/été.py\0",
    ),
    "words, files, a pipe": (
        ["-f", "a.txt", "-f", "b.txt", "so"],
        "C\n",
        "so\n\na.txt:\nA\n\n\nb.txt:\nB\n\n\nC\n",
    ),
}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_prompt_is_the_words_the_files_and_the_pipe(
    lab: Home, model: ModelServer, prompt: str
) -> None:
    args, stdin, sent = PROMPTS[prompt]
    (lab.cwd / "a.txt").write_text("A\n")
    (lab.cwd / "b.txt").write_text("B\n")
    assert lab.run(*args, stdin=stdin).code == 0
    assert model.sent[0]["messages"] == [{"role": "user", "content": sent}]


# ---- what comes


class Reply(NamedTuple):
    """What the server says to ``go``, and what is made of it; ``kept`` is of the answer's message."""

    steps: list[bytes]
    stdout: str
    stderr: str = ""
    kept: dict[str, Any] = {}  # noqa: RUF012 - it is only read
    args: tuple[str, ...] = ()
    headers: dict[str, str] | None = None


def in_bytes(*pieces: str) -> Reply:
    """A pipe gets the answer byte for byte, and a newline where it ends without one."""
    said = "".join(pieces)
    return Reply(
        answer(*pieces), said if said.endswith("\n") else f"{said}\n", kept={"content": said}
    )


THOUGHT = [event(chunk({"reasoning_content": piece})) for piece in ("let me ", "think")] + answer(
    "42"
)
THOUGHTS = {"replay": {"reasoning_content": "let me think"}}
REPLIES = {
    "what looks like markup": in_bytes("[bold]x[/bold] :smile: [/etc/passwd]"),
    "escape sequences": in_bytes("tab\there\r\n", "\x1b[31mred\x1b[0m\x07"),
    "blank lines around": in_bytes("\n\n  indented\n\n\n"),
    "no usage": Reply(answer("hi", usage=None), "hi\n", kept={"usage": None}),
    "reasoning where no user reads stderr": Reply(THOUGHT, "42\n", "", THOUGHTS),
    "reasoning where no user reads stderr, but asked for": Reply(
        THOUGHT, "42\n", "let me think\n", THOUGHTS, ("--reasoning",)
    ),
    "ended by calls that are none": Reply(answer("a", finish="tool_calls"), "a\n"),
    "a stream though none was asked for": Reply(
        answer("streamed"), "streamed\n", args=("--no-stream",)
    ),
    "one piece though a stream was asked for": Reply(
        [whole(content="whole")], "whole\n", headers=JSON
    ),
}


@pytest.mark.parametrize("name", REPLIES)
def test_an_answer_goes_to_stdout_and_into_the_session(
    lab: Home, model: ModelServer, name: str
) -> None:
    reply = REPLIES[name]
    model.script(*reply.steps, headers=reply.headers, framing="close")
    assert lab.run(*reply.args, "go") == (reply.stdout, reply.stderr, 0)
    kept = lab.doc()["messages"][1]
    assert kept | reply.kept == kept


def test_no_stream_asks_for_one_piece(lab: Home, model: ModelServer) -> None:
    assert lab.run("--no-stream", "hi").stdout == "You said: hi\n"
    assert "stream" not in model.sent[0]
    assert lab.doc()["messages"][1]["usage"]["total"] == 16


# ---- who is asked, and how


def agents(model: ModelServer, text: str = "") -> str:
    """Agents ``one``, ``two`` and ``none``; ``text`` is in the first."""
    return (
        f'default_agent = "one"\n[agents.one]\nmodel = "lab/one"\n{text}[agents.two]\nmodel = "lab/two"\n'
        f'[agents.none]\n[providers.lab]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'
    )


CHOICES: list[
    tuple[list[str], dict[str, str], str]
] = [  # one after the other in one home: arguments, environment, who
    ([], {}, "one"),
    ([], {"GPTSH_MODEL": "lab/env"}, "env"),
    (["-a", "two"], {"GPTSH_MODEL": "lab/env"}, "two"),
    (["-a", "none"], {"GPTSH_MODEL": "lab/env"}, "env"),
    (["-m", "lab/flag", "-a", "two"], {}, "flag"),
    ([], {"GPTSH_AGENT": "two"}, "two"),
    (["-s", "0"], {"GPTSH_MODEL": "lab/env"}, "two"),  # the session's is used
    (["-s", "0", "-a", "one"], {}, "one"),
    (["-s", "0", "-m", "lab/moved"], {}, "moved"),
    (["-s", "0"], {}, "moved"),
]


def test_the_model_is_chosen_in_order(home: Home, model: ModelServer) -> None:
    home.configure(agents(model))
    for args, env, who in CHOICES:
        assert home.run(*args, "hi", env=env).code == 0
        assert model.sent[-1]["model"] == who, (args, env)
    assert home.docs()[0]["messages"][-1]["model"] == "lab/moved"
    unknown = "gptsh: there is no agent 'nobody': choose from one, two, none, default, shell\n"
    assert home.run("-a", "nobody", "hi") == ("", unknown, 2)


def test_system_and_parameters_are_those_of_the_config_then_of_the_session(
    home: Home, model: ModelServer
) -> None:
    text = 'system = "From config."\nparams = { temperature = 0.7, x_own = "v" }\n'
    home.configure(agents(model, text))
    args = [
        "--system",
        "Mine.",
        "-p",
        "temperature=0",
        "-p",
        "seed=7",
        "-p",
        "stop=END",
        "-p",
        'logit={"a": 1}',
    ]
    for more, system, params, stored in (
        ([], "From config.", {"temperature": 0.7, "x_own": "v"}, {"temperature": 0.7}),
        (["-s", "0", *args], "Mine.", {"temperature": 0, "seed": 7, "stop": "END", "logit": {"a": 1}, "x_own": "v"},
         {"temperature": 0, "seed": 7, "stop": "END"}),
        (["-s", "0"], "Mine.", {"temperature": 0, "seed": 7, "stop": "END", "x_own": "v"},
         {"temperature": 0, "seed": 7, "stop": "END"}),  # what no other provider knows is sent and forgotten
    ):  # fmt: skip
        assert home.run(*more, "hi").code == 0
        sent = model.sent[-1]
        agent = home.doc()["agent"]
        assert sent["messages"][0] == {"role": "system", "content": system}
        assert {
            key: sent[key] for key in set(sent) - {"model", "messages", "stream", "stream_options"}
        } == params
        assert agent["system"] == system
        assert agent["params"] == stored


def test_without_a_model_the_ways_to_one_are_named(home: Home, model: ModelServer) -> None:
    run = home.run("hi")
    assert run.code == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    for way in ("-m PROVIDER/MODEL", "GPTSH_MODEL", "config.toml", "OPENAI_API_KEY", "echo"):
        assert way in run.stderr
    assert not home.state.exists()
    model.pages["/v1/models"] = {"data": [{"id": "qwen3"}]}
    assert "lm_studio/qwen3" in home.run("hi", env={"LM_STUDIO_API_BASE": model.base_url}).stderr


def test_a_key_in_the_environment_chooses_its_provider(home: Home, model: ModelServer) -> None:
    env = {"MOONSHOT_API_KEY": "sk-moon", "MOONSHOT_API_BASE": model.base_url, "GPTSH_NO_SAVE": "1"}
    assert home.run("hi", env=env).code == 0
    assert model.sent[0]["model"] == "kimi-k3"
    assert model.requests[0].headers["authorization"] == "Bearer sk-moon"


# ---- the session that it goes to


def test_three_runs_under_one_name_leave_one_session_of_three_turns(
    lab: Home, model: ModelServer
) -> None:
    for number in "123":
        assert lab.run("-s", "@work", number).code == 0
    said = [
        line for number in "123" for line in (f"user: {number}", f"assistant: You said: {number}")
    ]
    assert texts(lab.doc()) == said
    assert lab.doc()["stats"]["turns"] == 3
    assert [m["content"] for m in model.sent[2]["messages"]] == [
        line.partition(": ")[2] for line in said[:5]
    ]


def test_a_question_whose_call_failed_stays_and_is_asked_again(
    lab: Home, model: ModelServer
) -> None:
    model.refuse(400, {"error": {"message": "bad day"}})
    run = lab.run("hello?")
    ident = lab.doc()["id"]
    assert run == ("", (
        "gptsh: lab refused the request (400): bad day\n"
        f"gptsh: the question is saved: 'gptsh -s {ident}' asks it again\n"
    ), 1)  # fmt: skip
    assert texts(lab.doc()) == ["user: hello?"]
    assert lab.run("-s", ident) == ("You said: hello?\n", "", 0)
    assert texts(lab.doc()) == ["user: hello?", "assistant: You said: hello?"]
    assert lab.run("-s", ident) == ("You said: hello?\n", "", 0)
    assert len(model.requests) == 2  # it shows the answer again, and asks nothing


BLOCKS = "Two:\n\n```py\none\n```\n\n```sh\ntwo\n```\n"


@pytest.mark.parametrize(
    ("args", "printed"),
    [
        ((), BLOCKS),
        (("-x",), "one\n"),
        (("--block", "2"), "two\n"),
        (("--block", "sh"), "two\n"),
        (("-o", "text"), BLOCKS),
        (("-o", "markdown"), "Two:\n\none\n\ntwo\n"),
    ],
)
def test_a_session_alone_shows_its_last_answer_again_and_changes_nothing(
    lab: Home, model: ModelServer, args: tuple[str, ...], printed: str
) -> None:
    lab.run("first")
    model.say(BLOCKS)
    lab.run("-c", "second")
    (path,) = lab.files()
    before = path.read_bytes()
    assert lab.run("-s", "0", *args) == (printed, "", 0)
    assert lab.run("-c", *args, stdin="") == (printed, "", 0)
    assert lab.run("-s", "0", *args, stdin=" \n") == (printed, "", 0)
    assert path.read_bytes() == before
    assert len(model.requests) == 2


def test_an_answer_that_is_shown_again_has_the_json_of_a_new_one(
    lab: Home, model: ModelServer
) -> None:
    new = json.loads(lab.run("-o", "json", "hello").stdout)
    again = json.loads(lab.run("-s", "0", "-o", "json").stdout)
    assert list(again) == list(new)
    assert {key for key in new if new[key] != again[key]} == {"context"}
    *events, done = map(json.loads, lab.run("-s", "0", "-o", "jsonl").stdout.splitlines())
    assert events == [{"type": "text", "text": "You said: hello"}]
    assert done == {"type": "done", **again}


def test_an_answer_is_shown_again_where_no_model_can_be_asked(home: Home) -> None:
    home.run("-m", "echo", "hello")
    home.configure('[agents.default]\nmodel = "openai/gpt-4.1"\n')
    assert home.run("-s", "0", stdin="") == ("You said: hello\n", "", 0)
    assert home.run("-s", "0") == ("You said: hello\n", "", 0)


def test_an_incomplete_answer_is_incomplete_when_it_is_shown_again(
    lab: Home, model: ModelServer
) -> None:
    model.script(*answer("half an ans", finish="length"))
    lab.run("hello")
    run = lab.run("-s", "0")
    assert run.stdout == "half an ans\n"
    assert run.code == 5
    assert "token limit" in run.stderr
    assert json.loads(lab.run("-s", "0", "-o", "json").stdout)["error"]["exit_code"] == 5


def test_an_empty_word_does_not_show_an_old_answer(lab: Home) -> None:
    lab.run("first")
    run = lab.run("-s", "0", "")
    assert run.stdout == ""
    assert run.code == 2


def test_a_name_without_a_session_is_named_if_there_is_no_prompt(lab: Home) -> None:
    run = lab.run("-s", "@work")
    assert run.code == 2
    assert run.stderr == "gptsh: session @work does not exist yet: add a prompt to create it\n"


def test_block_0_is_refused_before_anything_is_sent(lab: Home, model: ModelServer) -> None:
    run = lab.run("--block", "0", "hi")
    assert run.code == 2
    assert "numbered from 1" in run.stderr
    assert model.sent == []


def test_a_short_option_takes_its_value_after_an_equals_sign_too(home: Home) -> None:
    assert home.run("-m=echo", "-o=text", "hi").stdout == "You said: hi\n"


def test_an_answer_of_an_earlier_point_is_shown(lab: Home) -> None:
    lab.run("first")
    lab.run("-c", "second")
    assert lab.run("-s", "0@1") == ("You said: first\n", "", 0)


@pytest.mark.parametrize(
    "args", [("-m", "echo"), ("--schema", "{}"), ("--system", "x"), ("--dry-run",)]
)
def test_options_of_a_request_need_a_question(lab: Home, args: tuple[str, ...]) -> None:
    lab.run("first")
    run = lab.run("-s", "0", *args)
    assert run.code == 2
    assert "no unanswered question" in run.stderr


@pytest.mark.parametrize("args", [(), ("-n",)])
def test_the_same_question_again_is_a_new_session(
    lab: Home, model: ModelServer, args: tuple[str, ...]
) -> None:
    model.refuse(400, {"error": {"message": "bad day"}})
    lab.run("hello?")
    (failed,) = lab.files()
    before = failed.read_bytes()
    assert lab.run(*args, "hello?") == ("You said: hello?\n", "", 0)
    assert len(lab.files()) == 2
    assert failed.read_bytes() == before


def test_continue_without_a_prompt_asks_the_question_that_failed(
    lab: Home, model: ModelServer
) -> None:
    model.refuse(400, {"error": {"message": "bad day"}})
    lab.run("hello?")
    assert lab.run("-c") == ("You said: hello?\n", "", 0)
    assert texts(lab.doc()) == ["user: hello?", "assistant: You said: hello?"]


@pytest.mark.parametrize("why", ["refused", "empty"])
def test_a_question_without_an_answer_is_joined_with_the_next(
    lab: Home, model: ModelServer, why: str
) -> None:
    model.refuse(400, {}) if why == "refused" else model.say()
    assert lab.run("first").code == 1
    assert lab.run("-s", "0", "second").code == 0  # the strict server wants the roles to alternate
    assert model.sent[1]["messages"] == [{"role": "user", "content": "first\n\nsecond"}]


def test_a_fork_leaves_the_original_and_its_name_as_they_are(lab: Home) -> None:
    for question in ("one", "two"):
        lab.run("-s", "@w", question, "--title", "Mine")
    path = lab.files()[0]
    before = lab.files()[0].read_bytes()
    original = lab.doc()["id"]
    assert lab.run("-s", "@w@-1", "other").stdout == "You said: other\n"
    fork = next(doc for doc in lab.docs() if doc["id"] != original)
    assert texts(fork) == [
        "user: one",
        "assistant: You said: one",
        "user: other",
        "assistant: You said: other",
    ]
    assert fork["title"] == "Mine"
    assert fork["meta"]["forked_from"] == f"{original}@-1"
    assert path.read_bytes() == before
    lab.run("-s", "@w", "three")
    assert json.loads(path.read_bytes())["stats"]["turns"] == 3


def test_continue_is_the_session_last_used_in_this_project(lab: Home) -> None:
    inside = lab.cwd / "src"
    outside = lab.folder / "elsewhere"
    for folder in (lab.cwd / ".git", inside, outside):
        folder.mkdir()
    assert lab.run("-c", "hi").code == 2
    for words, cwd in (("first", None), ("second", None), ("other project", outside)):
        lab.run(words, cwd=cwd)
    lab.run("-s", "2", "newest use")
    assert lab.run("-c", "go on", cwd=inside).code == 0
    used = next(doc for doc in lab.docs() if "user: go on" in texts(doc))
    assert texts(used)[0] == "user: first"


def test_continue_goes_by_where_and_when_the_turns_were_asked(lab: Home) -> None:
    """Neither where a session began, nor what was done to its file since, decides."""
    one = lab.folder / "one"
    two = lab.folder / "two"
    for folder in (one, two):
        (folder / ".git").mkdir(parents=True)
    for words, cwd in (("roamer", one), ("stays in one", one), ("stays in two", two)):
        lab.run(words, cwd=cwd)
    lab.run("-s", "2", "asked from two", cwd=two)

    def continued(cwd: Path) -> str:
        return lab.run("-c", "--dry-run", "-o", "json", "and?", cwd=cwd).stdout

    assert "roamer" in continued(two)
    assert "stays in one" in continued(one)
    for label in (("--tag", "t"), ("--title", "T"), ("--snapshot", "s")):
        assert (
            lab.run("-s", "0", *label, cwd=two).code == 0
        )  # "stays in two" becomes the newest file
    assert "roamer" in continued(two)
    lab.run("-s", "2@1", "a fork", cwd=lab.cwd)
    assert lab.run("-s", "0", "--tag", "u", cwd=one).code == 0
    assert "stays in one" in continued(one)  # a fork was used where it was asked alone
    lab.run("-s", "3", "back", cwd=one)
    assert "roamer" in continued(one)
    assert "roamer" in continued(two)  # it was last used in two, although later in one


def test_gptsh_session_gives_a_shell_its_conversation(lab: Home) -> None:
    for args in (["one"], ["two"], ["-n", "apart"]):
        lab.run(*args, env={"GPTSH_SESSION": "@shell"})
    assert sorted(doc["stats"]["turns"] for doc in lab.docs()) == [1, 2]


def test_title_and_tags_are_set_with_and_without_a_prompt_or_a_model(
    lab: Home, model: ModelServer
) -> None:
    lab.run("--title", "By Hand", "--tag", "a", "hi")
    assert lab.doc()["title"] == "By Hand"
    assert lab.doc()["meta"]["tags"] == ["a"]
    lab.configure("")
    assert lab.run("-s", "0", "--title", "New", "--tag", "b", "--tag", "a", stdin="") == ("", "", 0)
    assert lab.doc()["title"] == "New"
    assert lab.doc()["meta"]["tags"] == ["a", "b"]
    assert len(model.requests) == 1
    assert lab.doc()["stats"]["turns"] == 1


def test_who_answers_from_now_on_is_set_without_a_prompt(lab: Home, model: ModelServer) -> None:
    """A session whose model failed asks its question of another one, and stays there."""
    more = f'[agents.other]\nmodel = "up/o"\nsystem = "Other."\n[providers.up]\nbase_url = "{model.base_url}"\n'
    lab.configure(lab_config(model) + more)
    for args, asked, agent in (
        (["-m", "up/x", "--system", "Anew.", "-p", "temperature=0.3"], "x",
         {"name": "default", "model": "up/x", "system": "Anew.", "params": {"temperature": 0.3}}),
        (["-a", "other", "--no-tools"], "o", {"name": "other", "model": "up/o", "system": "Other.", "params": {}}),
    ):  # fmt: skip
        model.refuse(400, {"error": {"message": "down"}}, model="m")
        assert lab.run("q").code == 1
        assert lab.run("-s", "0", *args) == ("You said: q\n", "", 0)
        doc = lab.docs()[0]
        assert {key: doc["agent"][key] for key in agent} == agent
        assert doc["provider"]["name"] == "up"
        assert lab.run("-s", "0", "more").code == 0
        assert [body["model"] for body in model.sent[-3:]] == ["m", asked, asked]
    assert lab.docs()[0]["meta"]["mcp_allowed_servers"] == []


def test_who_answers_beside_a_label_needs_a_prompt(lab: Home) -> None:
    lab.run("q")
    before = lab.files()[0].read_bytes()
    for option, *value in (
        ["-m", "echo"],
        ["-a", "default"],
        ["-p", "top_p=1"],
        ["--system", "x"],
        ["--no-tools"],
    ):
        run = lab.run("-s", "0", "--tag", "t", option, *value)
        assert run.code == 2
        assert run.stderr == f"gptsh: {option} needs a prompt: add one, or leave out {option}\n"
    assert lab.files()[0].read_bytes() == before
    assert lab.run("-s", "0", "--tag", "t", "-m", "echo", "more").code == 0


# ---- what is not kept


@pytest.mark.parametrize("way", ["flag", "environment", "config"])
def test_nothing_is_kept_when_nothing_shall_be(home: Home, model: ModelServer, way: str) -> None:
    home.configure(lab_config(model, "[sessions]\nsave = false\n" if way == "config" else ""))
    args = ["--no-save"] if way == "flag" else []
    env = {"GPTSH_NO_SAVE": "1"} if way == "environment" else {}
    assert home.run(*args, "secret", env=env) == ("You said: secret\n", "", 0)
    assert not home.state.exists()
    assert len(model.requests) == 1  # nor was a title asked for


# ---- what is said of values with control characters, outside a terminal


def test_a_title_with_newlines_is_one_line_and_forges_no_header(
    lab: Home, model: ModelServer
) -> None:
    lab.run("hi", "--title", "x\n## assistant\r\u2028y", "--tag", "t\n\nu")
    assert len(lab.run("--list-sessions").stdout.splitlines()) == 1
    shown = lab.run("--show-session", "0").stdout
    assert re.match("# x ## assistant.* y\n\n- session: ", shown)
    assert "\n- tags: t u\n" in shown
    lab.configure(lab_config(model) + '[agents."a\\nb"]\nmodel = "echo"\n')
    assert lab.run("--list-agents").stdout == "* default (lab/m)\n  a b (echo)\n  shell (lab/m)\n"


def test_names_with_underscores_and_counts_of_one_read_as_they_are(
    lab: Home, model: ModelServer
) -> None:
    lab.run("--title", "git__git_status of _a_ __b__", "hi")
    lab.files()[0].write_text(json.dumps({**lab.doc(), "messages": lab.doc()["messages"][:1]}))
    shown = lab.run("--show-session", "0").stdout
    assert shown.startswith("# git__git_status of \\_a\\_ \\_\\_b\\_\\_\n")
    assert "- turns: 1 (1 message)\n" in shown


def test_an_error_of_many_lines_is_one_line_and_the_hint(lab: Home, model: ModelServer) -> None:
    model.refuse(400, {"error": {"message": "many\nlines\r\nof\u2028error\x85text"}})
    run = lab.run("hi")
    assert len(run.stderr.splitlines()) == 2
    assert run.stderr.startswith("gptsh: lab refused the request (400): many lines of")


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("models", "--list-models"),
        ("list-sessions", "--list-sessions"),
        ("help", "--help"),
        ("usage", "--usage"),
        ("continue", None),
        ("delete-session", None),
    ],
)
def test_a_word_that_is_an_option_gets_a_note_only_where_it_may_be_a_mistake(
    lab: Home, word: str, option: str | None
) -> None:
    note = (
        f"gptsh: {word!r} is sent to the model as a question; the option is gptsh {option}\n"
        if option
        else ""
    )
    assert lab.run(word).stderr == note
    assert lab.run("-s", "0", word).stderr == ""
    assert lab.run("-m", "echo", word).stderr == ""
