"""The main job: a prompt in, the answer to stdout, both in one session."""

import json
import re
import resource
import signal
import threading
import time

import pytest

from tests.support.home import Home, in_mid_answer, lab_config, read_until, texts
from tests.support.server import ModelServer, answer, chunk, event


def test_one_prompt_one_answer_one_session(lab: Home, model: ModelServer) -> None:
    model.say("hello ", "world")
    assert lab.run("say", "hello") == ("hello world\n", "", 0)
    doc = lab.doc()
    assert texts(doc) == ["user: say hello", "assistant: hello world"]
    question, reply = doc["messages"]
    assert question["parent"] is None
    assert reply["parent"] == question["id"]
    assert (reply["agent"], reply["provider"], reply["model"]) == ("default", "lab", "lab/m")
    assert (reply["finish_reason"], reply["response_id"]) == ("stop", "chatcmpl-1")
    assert {k: reply["usage"][k] for k in ("prompt", "completion", "total")} == {
        "prompt": 11, "completion": 5, "total": 16,
    }  # fmt: skip
    assert reply["cost"] is None
    assert reply["duration_ms"] >= 0
    assert doc["usage"]["tokens"]["total"] == 16
    assert doc["agent"]["model"] == "lab/m"
    assert doc["provider"] == {"name": "lab"}
    assert doc["meta"]["cwd"] == doc["meta"]["project"] == str(lab.cwd)
    (sent,) = model.sent
    assert sent["messages"] == [{"role": "user", "content": "say hello"}]
    assert sent["model"] == "m"
    assert not {"temperature", "top_p", "max_tokens"} & set(sent)


def test_three_runs_under_one_name_leave_one_session_of_three_turns(lab: Home, model: ModelServer) -> None:
    for i in (1, 2, 3):
        assert lab.run("-s", "@work", str(i)).code == 0
    doc = lab.doc()
    assert doc["stats"]["turns"] == 3
    assert texts(doc) == [f"{role}: {said}{i}" for i in (1, 2, 3) for role, said in
                          (("user", ""), ("assistant", "You said: "))]  # fmt: skip
    assert [m["content"] for m in model.sent[2]["messages"]] == ["1", "You said: 1", "2", "You said: 2", "3"]


def test_noninteractive_with_session(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, '[sessions]\ntitles = "model"\n'))
    model.say("Fine!")
    model.script(
        json.dumps({"choices": [{"message": {"content": "Feeling Fine Check"}, "finish_reason": "stop"}]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    assert home.run("I am feeling fine") == ("Fine!\n", "", 0)
    assert home.doc()["title"] == "Feeling Fine Check"
    assert home.run("-s", "0", "How am I feeling?").code == 0
    doc = home.doc()
    assert doc["title"] == "Feeling Fine Check"
    assert [m["role"] for m in doc["messages"]] == ["user", "assistant"] * 2
    assert len(model.sent) == 3
    assert [m["content"] for m in model.sent[2]["messages"]] == ["I am feeling fine", "Fine!", "How am I feeling?"]


@pytest.mark.parametrize(
    ("args", "stdin", "sent"),
    [
        (["summarise", "this"], "a log line\n", "summarise this\n\na log line\n"),
        ([], "only piped\n", "only piped\n"),
        (["words only"], "", "words only"),
        (["words only"], None, "words only"),
        (["--no-stdin", "words"], "not read", "words"),
        (["--", "-dash", "--list"], None, "-dash --list"),
        (["a  b", " c"], None, "a  b  c"),
        (["ünï \u2028 😀"], "größe\u0085\r\n", "ünï \u2028 😀\n\ngröße\u0085\r\n"),
    ],
)
def test_the_prompt_is_the_words_and_piped_text_under_them(
    lab: Home, model: ModelServer, args: list[str], stdin: str | None, sent: str
) -> None:
    assert lab.run(*args, stdin=stdin).code == 0
    assert model.sent[0]["messages"][-1]["content"] == sent


def test_words_and_piped_text_are_separate_parts_of_the_message(lab: Home) -> None:
    (lab.cwd / "notes.txt").write_text("remember\n")
    lab.run("-f", "notes.txt", "what", "now", stdin="log\n")
    assert lab.doc()["messages"][0]["content"] == [
        {"type": "text", "text": "what now"},
        {"type": "text", "text": "remember\n", "source": "notes.txt"},
        {"type": "text", "text": "log\n", "source": "stdin"},
    ]
    assert lab.doc()["stats"]["preview"] == "what now"


def test_files_are_sent_under_their_name(lab: Home, model: ModelServer) -> None:
    (lab.cwd / "a.txt").write_text("A\n")
    (lab.cwd / "b.txt").write_text("B\n")
    assert lab.run("-f", "a.txt", "-f", "b.txt", "compare", stdin="C\n").code == 0
    assert model.sent[0]["messages"][0]["content"] == "compare\n\na.txt:\nA\n\n\nb.txt:\nB\n\n\nC\n"
    assert lab.run("-f", "a.txt").code == 0
    assert model.sent[1]["messages"][0]["content"] == "a.txt:\nA\n"


@pytest.mark.parametrize("path", ["missing.txt", ".", "binary"])
def test_a_file_that_cannot_be_sent_is_exit_2_and_nothing_happens(lab: Home, model: ModelServer, path: str) -> None:
    (lab.cwd / "binary").write_bytes(b"\x89PNG\0\0")
    run = lab.run("-f", path, "look")
    assert (run.code, run.stdout) == (2, "")
    assert re.fullmatch(rf"gptsh: {re.escape(path)}.*\n", run.stderr)
    assert not lab.state.exists()
    assert not model.asked


def test_undecodable_bytes_are_kept_said_and_sent_as_replacement(lab: Home, model: ModelServer) -> None:
    run = lab.run("what is it", stdin=b"caf\xe9 \xed\xa0\x80\n")
    assert run.code == 0
    assert "not UTF-8" in run.stderr
    assert lab.doc()["messages"][0]["content"][1]["text"] == "caf\udce9 \udced\udca0\udc80\n"
    assert model.sent[0]["messages"][0]["content"] == "what is it\n\ncaf\ufffd \ufffd\ufffd\ufffd\n"


def test_binary_input_is_refused_with_its_size(lab: Home, model: ModelServer) -> None:
    run = lab.run("look", stdin=b"\x7fELF\0\0")
    assert (run.code, run.stdout) == (2, "")
    only = "only text, PNG, JPEG, GIF, WebP, PDF, WAV and MP3 can be sent"
    assert run.stderr == f"gptsh: stdin is binary data (6 bytes): {only}\n"
    assert not model.asked


@pytest.mark.parametrize(
    "pieces",
    [
        ["[bold]x[/bold] :smile: [/etc/passwd]"],
        ["a" * 500],
        ["tab\there\r\n", "\x1b[31mred\x1b[0m\x07"],
        ["ends with newline\n"],
        ["\u2028\u0085 ", "é", "😀"],
        ["\n\n  indented\n\n\n"],
    ],
)
def test_a_pipe_gets_the_answer_byte_for_byte(lab: Home, model: ModelServer, pieces: list[str]) -> None:
    model.say(*pieces)
    said = "".join(pieces)
    assert lab.run("go").stdout == (said if said.endswith("\n") else said + "\n")
    assert lab.doc()["messages"][1]["content"] == said


def test_text_comes_as_it_arrives(lab: Home, model: ModelServer) -> None:
    process, more = in_mid_answer(lab, model)
    more.set()
    assert process.communicate()[0] == b"second\n"
    assert process.returncode == 0


def test_an_answer_without_usage_is_an_answer(lab: Home, model: ModelServer) -> None:
    model.say("hi", usage=None)
    assert lab.run("hi") == ("hi\n", "", 0)
    doc = lab.doc()
    assert doc["messages"][1]["usage"] is None
    assert set(doc["usage"]["tokens"].values()) == {None}


def test_no_stream_asks_for_one_piece(lab: Home, model: ModelServer) -> None:
    assert lab.run("--no-stream", "hi").stdout == "You said: hi\n"
    assert "stream" not in model.sent[0]
    assert lab.doc()["messages"][1]["usage"]["total"] == 16


def test_a_server_may_answer_either_way_whatever_was_asked(lab: Home, model: ModelServer) -> None:
    model.script(*answer("streamed"))
    assert lab.run("--no-stream", "hi").stdout == "streamed\n"
    whole = json.dumps({"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}).encode()
    model.script(whole, headers={"Content-Type": "application/json"}, framing="length")
    assert lab.run("hi").stdout == "whole\n"
    model.script(*answer("as text"), headers={"Content-Type": "text/plain"}, framing="close")
    assert lab.run("hi").stdout == "as text\n"


def test_reasoning_goes_to_stderr_and_into_the_session(lab: Home, model: ModelServer) -> None:
    stream = [chunk({"reasoning_content": "let me "}), chunk({"reasoning_content": "think"}), chunk({"content": "42"})]
    for _ in range(2):
        model.script(*map(event, stream), event(chunk({}, "stop")), event(b"[DONE]"))
    assert lab.run("why") == ("42\n", "let me think\n", 0)
    assert lab.doc()["messages"][1]["replay"] == {"reasoning_content": "let me think"}
    assert lab.run("--no-reasoning", "why") == ("42\n", "", 0)
    assert lab.docs()[0]["messages"][1]["replay"] == {"reasoning_content": "let me think"}


def test_tool_calls_that_nobody_offered_are_kept_and_sent_back_with_a_result(lab: Home, model: ModelServer) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{bad"}}
    model.script(event(chunk({"tool_calls": [call]})), event(chunk({}, "tool_calls")), event(b"[DONE]"))
    run = lab.run("list files")
    assert run.code == 1
    assert "called a tool" in run.stderr
    (kept,) = lab.doc()["messages"][1]["tool_calls"]
    assert kept == {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{bad"}}
    assert lab.run("-s", "0", "go on").code == 0  # the strict server wants a result for every call
    assert model.sent[1]["messages"][2]["tool_call_id"] == "c1"


def test_system_prompt_and_parameters(home: Home, model: ModelServer) -> None:
    more = 'system = "From config."\nparams = { temperature = 0.7, x_own = "v" }\n'
    home.configure(lab_config(model, "").replace("[providers", f"{more}[providers") + '[sessions]\ntitles = "off"\n')
    home.run("hi")
    assert model.sent[0]["messages"][0] == {"role": "system", "content": "From config."}
    assert (model.sent[0]["temperature"], model.sent[0]["x_own"]) == (0.7, "v")
    doc = home.doc()
    assert doc["agent"]["params"] == {"temperature": 0.7}  # others are sent and forgotten
    assert doc["agent"]["system"] == "From config."
    args = ["--system", "Mine.", "-p", "temperature=0", "-p", "seed=7", "-p", "stop=END", "-p", 'logit={"a": 1}']
    home.run("-s", "0", *args, "again")
    sent = model.sent[1]
    assert sent["messages"][0]["content"] == "Mine."
    assert (sent["temperature"], sent["seed"], sent["stop"], sent["logit"]) == (0, 7, "END", {"a": 1})
    home.run("-s", "0", "third")
    assert model.sent[2]["messages"][0]["content"] == "Mine."
    assert home.doc()["agent"]["params"] == {"temperature": 0, "seed": 7, "stop": "END"}
    assert home.run("-p", "temperature", "x").code == 2


@pytest.mark.slow
def test_the_model_is_chosen_in_order(home: Home, model: ModelServer) -> None:
    home.configure(
        f'default_agent = "one"\n[agents.one]\nmodel = "lab/one"\n[agents.two]\nmodel = "lab/two"\n[agents.none]\n'
        f'[providers.lab]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'
    )

    def asked(*args: str, **env: str) -> str:
        run = home.run(*args, "hi", env=env)
        assert run.code == 0, run.stderr
        return str(model.sent[-1]["model"])

    assert asked() == "one"
    assert asked(GPTSH_MODEL="lab/env") == "env"
    assert asked("-a", "two", GPTSH_MODEL="lab/env") == "two"
    assert asked("-a", "none", GPTSH_MODEL="lab/env") == "env"
    assert asked("-m", "lab/flag", "-a", "two") == "flag"
    assert asked(GPTSH_AGENT="two") == "two"
    assert asked("-s", "0", GPTSH_MODEL="lab/env") == "two"  # the session's stands
    assert asked("-s", "0", "-a", "one") == "one"
    assert asked("-s", "0", "-m", "lab/moved") == "moved"
    assert asked("-s", "0") == "moved"
    assert home.docs()[0]["messages"][-1]["model"] == "lab/moved"
    unknown = home.run("-a", "nobody", "hi")
    assert (unknown.code, unknown.stderr) == (
        2,
        "gptsh: there is no agent 'nobody': known are one, two, none, default\n",
    )


def test_without_a_model_the_ways_to_one_are_named(home: Home) -> None:
    run = home.run("hi")
    assert (run.code, run.stdout) == (2, "")
    for way in ("-m PROVIDER/MODEL", "GPTSH_MODEL", "config.toml", "OPENAI_API_KEY", "echo"):
        assert way in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert not home.state.exists()


def test_a_local_server_that_answers_is_named(home: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {"data": [{"id": "qwen3"}]}
    run = home.run("hi", env={"LM_STUDIO_API_BASE": model.base_url})
    assert "lm_studio/qwen3" in run.stderr
    assert run.code == 2


def test_a_key_in_the_environment_chooses_its_provider(home: Home, model: ModelServer) -> None:
    env = {"MOONSHOT_API_KEY": "sk-moon", "MOONSHOT_API_BASE": model.base_url, "GPTSH_NO_SAVE": "1"}
    assert home.run("hi", env=env).code == 0
    assert model.sent[0]["model"] == "kimi-k3"
    assert model.asked[0].headers["authorization"] == "Bearer sk-moon"


def test_a_question_whose_call_failed_stays_and_is_asked_again(lab: Home, model: ModelServer) -> None:
    model.refuse(400, {"error": {"message": "bad day"}})
    run = lab.run("hello?")
    ident = lab.doc()["id"]
    assert run.code == 1
    assert run.stderr == (
        "gptsh: lab refused (400): bad day\n"
        f"gptsh: the question is kept in session {ident}: 'gptsh -s {ident}' asks it again\n"
    )
    assert texts(lab.doc()) == ["user: hello?"]
    assert lab.run("-s", ident) == ("You said: hello?\n", "", 0)
    assert texts(lab.doc()) == ["user: hello?", "assistant: You said: hello?"]
    again = lab.run("-s", ident)
    assert (again.code, again.stdout) == (2, "")
    assert "no question without an answer" in again.stderr


def test_unanswered_questions_are_sent_joined(lab: Home, model: ModelServer) -> None:
    model.refuse(400, {})
    lab.run("first")
    assert lab.run("-s", "0", "second").code == 0  # the strict server wants the roles to alternate
    assert model.sent[1]["messages"] == [{"role": "user", "content": "first\n\nsecond"}]


def test_forks_leave_the_original_as_it_is(lab: Home) -> None:
    for question in ("one", "two"):
        lab.run("-s", "@w", question, "--title", "Mine")
    before = lab.files()[0].read_bytes()
    original = lab.doc()["id"]
    assert lab.run("-s", "@w@-1", "other").stdout == "You said: other\n"
    fork = next(doc for doc in lab.docs() if doc["id"] != original)
    assert texts(fork) == ["user: one", "assistant: You said: one", "user: other", "assistant: You said: other"]
    assert fork["title"] == "Mine"
    assert fork["meta"]["forked_from"] == f"{original}@-1"
    assert any(path.read_bytes() == before for path in lab.files())
    lab.run("-s", "@w", "three")
    assert next(doc for doc in lab.docs() if doc["id"] == original)["stats"]["turns"] == 3  # the name did not move


@pytest.mark.slow
def test_continue_is_the_session_last_used_in_this_project(lab: Home) -> None:
    (lab.cwd / ".git").mkdir()
    inside, outside = lab.cwd / "src", lab.folder / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    none_yet = lab.run("-c", "hi")
    assert (none_yet.code, none_yet.stdout) == (2, "")
    lab.run("first")
    lab.run("second")
    lab.run("other project", cwd=outside)
    lab.run("-s", "2", "newest use")
    assert lab.run("-c", "go on", cwd=inside).code == 0
    used = next(doc for doc in lab.docs() if "user: go on" in texts(doc))
    assert texts(used)[0] == "user: first"


def test_gptsh_session_gives_a_shell_its_conversation(lab: Home) -> None:
    env = {"GPTSH_SESSION": "@shell"}
    lab.run("one", env=env)
    lab.run("two", env=env)
    lab.run("-n", "apart", env=env)
    assert sorted(doc["stats"]["turns"] for doc in lab.docs()) == [1, 2]


@pytest.mark.parametrize("args", [["-s", "0", "-c"], ["-s", "0", "-n"], ["-c", "-n"]])
def test_session_options_exclude_each_other(lab: Home, args: list[str]) -> None:
    run = lab.run(*args, "hi")
    assert (run.code, run.stdout) == (2, "")
    assert "exclude each other" in run.stderr


@pytest.mark.parametrize("ref", ["zzzz", "7", "@@", "0@9", "@w@1", ""])
def test_an_unknown_reference_is_exit_2_and_one_line(lab: Home, model: ModelServer, ref: str) -> None:
    lab.run("hi")
    run = lab.run("-s", ref, "again")
    assert (run.code, run.stdout) == (2, "")
    assert len(run.stderr.splitlines()) == 1
    assert len(model.asked) == 1


@pytest.mark.parametrize("args", [[], ["--title", "x"], [""], ["  "]])
def test_no_prompt_is_exit_2(lab: Home, args: list[str]) -> None:
    run = lab.run(*args, stdin="")
    assert (run.code, run.stdout) == (2, "")
    assert "no prompt" in run.stderr
    assert not lab.state.exists()


def test_title_and_tags_are_set_with_and_without_a_prompt(lab: Home, model: ModelServer) -> None:
    lab.run("--title", "By Hand", "--tag", "a", "hi")
    assert (lab.doc()["title"], lab.doc()["meta"]["tags"]) == ("By Hand", ["a"])
    assert lab.run("-s", "0", "--title", "New", "--tag", "b", "--tag", "a") == ("", "", 0)
    assert (lab.doc()["title"], lab.doc()["meta"]["tags"]) == ("New", ["a", "b"])
    assert len(model.asked) == 1
    assert lab.doc()["stats"]["turns"] == 1


@pytest.mark.parametrize("way", ["flag", "environment", "config"])
def test_nothing_is_kept_when_nothing_shall_be(home: Home, model: ModelServer, way: str) -> None:
    home.configure(lab_config(model, "[sessions]\nsave = false\n" if way == "config" else ""))
    args = ["--no-save"] if way == "flag" else []
    env = {"GPTSH_NO_SAVE": "1"} if way == "environment" else {}
    assert home.run(*args, "secret", env=env) == ("You said: secret\n", "", 0)
    assert not home.state.exists()
    assert len(model.asked) == 1  # nor was a title asked for


@pytest.mark.parametrize(
    ("finish", "code", "said"),
    [("length", 5, "token limit"), ("content_filter", 5, "filter"), ("stop", 0, ""), ("tool_calls", 0, "")],
)
def test_the_exit_code_tells_whether_the_answer_is_whole(
    lab: Home, model: ModelServer, finish: str, code: int, said: str
) -> None:
    model.say("some text", finish=finish)
    run = lab.run("go")
    assert (run.stdout, run.code) == ("some text\n", code)
    assert said in run.stderr
    assert lab.doc()["messages"][1]["finish_reason"] == finish


def test_a_refusal_is_exit_5(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"refusal": "I will not."})), event(chunk({}, "stop")), event(b"[DONE]"))
    run = lab.run("go")
    assert (run.stdout, run.code) == ("I will not.\n", 5)
    assert "refused" in run.stderr
    assert lab.doc()["messages"][1]["refusal"] == "I will not."


def test_an_empty_answer_is_exit_1_and_the_question_can_be_asked_again(lab: Home, model: ModelServer) -> None:
    model.say()
    run = lab.run("go")
    assert (run.stdout, run.code) == ("", 1)
    assert "answered nothing" in run.stderr
    assert lab.run("-s", "0") == ("You said: go\n", "", 0)
    assert model.sent[1]["messages"] == [{"role": "user", "content": "go"}]


def test_a_read_only_state_folder_costs_a_note_and_exit_1_but_no_answer(lab: Home) -> None:
    lab.state.parent.mkdir(exist_ok=True)
    lab.state.write_text("not a folder")
    run = lab.run("hi")
    assert (run.stdout, run.code) == ("You said: hi\n", 1)
    assert len(run.stderr.splitlines()) == 1
    assert "cannot be saved" in run.stderr


def test_a_full_disk_costs_a_note_and_exit_1_but_no_answer(lab: Home) -> None:
    lab.sessions.mkdir(parents=True)
    process = lab.start("x" * 5000, preexec_fn=_no_room, env={"PYTHONDONTWRITEBYTECODE": "1"})
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert out == b"You said: " + b"x" * 5000 + b"\n"
    assert err.count(b"\n") == 1
    assert b"File too large" in err
    assert not [path for path in lab.sessions.iterdir() if path.suffix != ".tmp"]


def _no_room() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_a_session_deleted_while_its_answer_came_is_not_recreated(lab: Home, model: ModelServer) -> None:
    process, more = in_mid_answer(lab, model)
    lab.files()[0].unlink()
    more.set()
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"second\n", 1)
    assert b"deleted meanwhile" in err
    assert not lab.files()


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (["-s", "0", "--title", "X", "--no-save"], {}),
        (["-s", "0", "--tag", "x"], {"GPTSH_NO_SAVE": "1"}),
        (["-s", "0@1", "--title", "X"], {}),
        (["-s", "0@99", "--title", "X"], {}),
        (["-s", "0", "--title", " "], {}),
        (["-s", "0", "--tag", ""], {}),
        (["-s", "@unused", "--title", "X"], {}),
        (["-m", "", "hi"], {}),
        (["-a", "", "hi"], {}),
        (["--config", "", "hi"], {}),
        (["-s", "0", "hi", "-p", "x"], {}),
    ],
)
def test_what_cannot_be_meant_is_exit_2_and_changes_nothing(lab: Home, args: list[str], env: dict[str, str]) -> None:
    lab.run("hi")
    before = lab.files()[0].read_bytes()
    run = lab.run(*args, env=env)
    assert (run.code, run.stdout, len(run.stderr.splitlines())) == (2, "", 1)
    assert [path.read_bytes() for path in lab.files()] == [before]


@pytest.mark.parametrize("value", ["1e999", "NaN", "[" * 5000, "-Infinity"])
def test_a_parameter_that_json_cannot_hold_goes_as_text(lab: Home, model: ModelServer, value: str) -> None:
    assert lab.run("-p", f"stop={value}", "hi").code == 0
    assert model.sent[0]["stop"] == value
    assert lab.doc()["agent"]["params"]["stop"] == value


def test_parameters_that_are_not_stored_come_from_the_config_again(home: Home, model: ModelServer) -> None:
    more = "params = { temperature = 0.5, top_k = 5 }\n"
    home.configure(lab_config(model, "").replace("[providers", f"{more}[providers") + '[sessions]\ntitles = "off"\n')
    home.run("-p", "temperature=1", "hi")
    home.run("-s", "0", "more")
    assert [(sent["temperature"], sent["top_k"]) for sent in model.sent] == [(1, 5), (1, 5)]


@pytest.mark.parametrize("blank", ["\n", " \n\t"])
def test_blank_stdin_is_no_prompt(lab: Home, model: ModelServer, blank: str) -> None:
    assert lab.run(stdin=blank).code == 2
    assert lab.run("words", stdin=blank).code == 0
    assert model.sent[0]["messages"][0]["content"] == "words"


def test_a_copied_session_goes_on_in_its_own_file(lab: Home) -> None:
    lab.run("first")
    original = lab.files()[0]
    copy = original.with_name(f"20990101-000000-{original.name[16:20]}.json")
    copy.write_bytes(original.read_bytes())
    before = original.read_bytes()
    for ref in (["-s", copy.name], ["-s", "0"], ["-c"]):
        assert lab.run(*ref, "more").code == 0
    assert original.read_bytes() == before
    assert json.loads(copy.read_text())["stats"]["turns"] == 4


def test_a_name_that_cannot_be_written_leaves_one_session(lab: Home) -> None:
    lab.state.mkdir(parents=True)
    (lab.state / "names").symlink_to("/nowhere/names")
    run = lab.run("-s", "@work", "hello")
    assert (run.stdout, run.code, len(run.stderr.splitlines())) == ("You said: hello\n", 1, 1)
    assert texts(lab.doc()) == ["user: hello", "assistant: You said: hello"]


def test_a_title_that_cannot_be_saved_is_not_missed(home: Home, model: ModelServer) -> None:
    titled(home, model)
    hold = threading.Event()
    say_title(model, hold)
    process = home.start("go")
    read_until(process.stdout, b"You said: go\n")
    while home.doc()["stats"]["messages"] < 2:
        pass
    home.files()[0].unlink()
    hold.set()
    assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 0


# ---- titles


def titled(home: Home, model: ModelServer, small: str = 'model_small = "lab/small"\n') -> None:
    home.configure(lab_config(model, "").replace("[providers", f"{small}[providers"))


def say_title(model: ModelServer, *steps: object, name: str = "small") -> None:
    body = json.dumps({"choices": [{"message": {"content": "A Good Title"}, "finish_reason": "stop"}]}).encode()
    model.script(*steps, body, headers={"Content-Type": "application/json"}, model=name)


def test_a_title_is_asked_once_from_the_first_question_alone(home: Home, model: ModelServer) -> None:
    titled(home, model)
    say_title(model)
    assert home.run("the words", stdin="the piped text") == ("You said: the words\n\nthe piped text\n", "", 0)
    (request,) = [body for body in model.sent if body["model"] == "small"]
    assert request["messages"][1]["content"] == "the words"
    assert (request["temperature"], request["max_tokens"]) == (0.2, 24)
    assert home.doc()["title"] == "A Good Title"
    home.run("-s", "0", "more")
    assert len([body for body in model.sent if body["model"] == "small"]) == 1


def test_the_title_starts_with_the_answer_and_the_answer_is_saved_before_it(hosted: Home, model: ModelServer) -> None:
    hold, more = threading.Event(), threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(more, first, *rest, model="gpt-4.1")
    say_title(model, hold, name="gpt-4.1-mini")
    process = hosted.start("go")
    while not model.asked:
        time.sleep(0.01)
    assert [body["model"] for body in model.sent] == ["gpt-4.1"]  # nothing else before the first token
    more.set()
    assert read_until(process.stdout, b"second\n").endswith(b"second\n")
    while hosted.doc()["stats"]["messages"] < 2:
        time.sleep(0.01)
    assert hosted.doc()["title"] is None
    hold.set()
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert hosted.doc()["title"] == "A Good Title"


@pytest.mark.parametrize("failure", ["refused", "garbage", "empty"])
def test_a_title_that_fails_is_not_missed(home: Home, model: ModelServer, failure: str) -> None:
    titled(home, model)
    if failure == "refused":
        model.refuse(400, {"error": "no"}, model="small")
    elif failure == "garbage":
        model.script(b"<html>", model="small")
    else:
        model.script(b'{"choices":[{"message":{"content":""}}]}', model="small")
    assert home.run("hi") == ("You said: hi\n", "", 0)
    assert home.doc()["title"] is None
    home.run("-s", "0", "more")
    assert [body["model"] for body in model.sent].count("small") == 1


def test_a_reasoning_model_gets_room_for_its_title(home: Home, model: ModelServer) -> None:
    titled(home, model, 'model_small = "openai/gpt-5-nano"\n')
    home.run("hi", env={"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"})
    (request,) = [body for body in model.sent if body["model"] == "gpt-5-nano"]
    assert request["reasoning_effort"] == "low"
    assert request["max_completion_tokens"] >= 1000
    assert "temperature" not in request


@pytest.mark.parametrize("args", [["--title", "Mine"], ["-m", "echo"], ["-m", "echo/x"], ["--no-save"]])
def test_no_title_is_asked_where_none_is_wanted(home: Home, model: ModelServer, args: list[str]) -> None:
    titled(home, model)
    assert home.run(*args, "hi").code == 0
    assert len(model.asked) == (0 if "-m" in args else 1)  # echo keeps its promise: nothing leaves the machine
