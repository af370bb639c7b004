"""``--schema`` and ``-x``: a part of an answer, or nothing."""

import json
import signal
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core.models import facts
from gptsh.core.shape import Shape, asked_in_words, in_words
from gptsh.errors import UsageError
from gptsh.render.fences import first_block
from tests.support import anthropic_server as claude
from tests.support.home import Home, lab_config, texts, wait_for
from tests.support.server import ModelServer, answer, chunk, event

DRAFT_04 = "http://json-schema.org/draft-04/schema#"
KEY = {"OPENAI_API_KEY": "sk-x"}
NUMBER = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'


def openai(model: ModelServer) -> str:
    """A config that puts the model server in OpenAI's place, whose abilities the packaged table tells."""
    return f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'


# ---- extract


@pytest.mark.parametrize(
    ("said", "block"),
    [
        ("no fence at all", None),
        ("inline ``` is no fence", None),
        ("before\n```sh\nls\n```\nafter\n```\nsecond\n```", "ls\n"),
        ("~~~\na\n```\nb\n~~~", "a\n```\nb\n"),
        ("````\n```\ninner\n```\n````", "```\ninner\n```\n"),
        ("1. do\n   ```\n   ls\n     -l\n   ```\n", "ls\n  -l\n"),
        ("> ```\n> quoted\n> ```", "quoted\n"),
        ("```\nnever closed", "never closed"),
        ("```\n```", ""),
        ("    indented code\n\n```\nfenced\n```", "fenced\n"),
        ("> ```\r\n> a\0\r\n>\r\n> b\r\n> ```", "a\0\r\n\r\nb\r\n"),
        ("1. a\n\n\t```sh\n\tls\n\t```\n", "ls\n"),
        ("- ```\n\t\tls\n  ```\n", "  \tls\n"),
        ("   ```\n   a\n  b\n    c\n   ```", "a\nb\n c\n"),
        ("```\n\n```", "\n"),
        ("```", ""),
    ],
)
def test_the_first_fenced_block(said: str, block: str | None) -> None:
    assert first_block(said) == block


@given(st.text(st.sampled_from("a`~>- \t\r\n\0\x0b\x85\u2028\udcff")), st.sampled_from(["\n", "\r\n"]))
def test_the_bytes_of_a_block_are_those_of_the_answer(code: str, end: str) -> None:
    """CRLF became LF, NUL U+FFFD: what Markdown's parser makes of them."""
    fence = "`" * 99
    assert first_block(f"so:{end}{fence}sh{end}{code}\n{fence}{end}then") == f"{code}\n"


@pytest.mark.parametrize("deep", ["- " * 60, "> " * 60, "- > " * 30])
def test_a_fence_behind_deep_nesting_is_found(deep: str) -> None:
    """What lies too deep for the parser took along all that followed."""
    assert first_block(f"{deep}x\n\n- y\r\n\r\n```\r\nfenced\r\n```\r\n") == "fenced\r\n"
    assert first_block(f"{deep}`x``` ```\n") is None


def test_extract_prints_the_bytes_of_the_block(lab: Home, model: ModelServer) -> None:
    model.say("so:\r\n```bat\r\necho 1\0\r\n```\r\n")
    assert lab.run("-x", "how").stdout == "echo 1\0\r\n"


def test_extract_prints_the_block_or_all(lab: Home, model: ModelServer) -> None:
    model.say("Do:\n```sh\nls ", "-l\n```\nThat is all.")
    assert lab.run("-x", "how").stdout == "ls -l\n"
    assert lab.docs()[0]["messages"][-1]["content"] == "Do:\n```sh\nls -l\n```\nThat is all."
    model.say("just words")
    assert lab.run("-x", "how").stdout == "just words\n"
    model.say("```\nx\n```")
    assert json.loads(lab.run("-x", "-o", "json", "how").stdout)["text"] == "x\n"


def test_extract_gives_nothing_of_a_partial_answer_to_stdout(lab: Home, model: ModelServer) -> None:
    model.say("```sh\nrm -rf build", finish="length")
    run = lab.run("-x", "how")
    assert (run.code, run.stdout) == (5, "")
    assert run.stderr.startswith("```sh\nrm -rf build\ngptsh: the answer is incomplete")


@pytest.mark.parametrize("signum", [2, 15])
def test_extract_and_a_signal(lab: Home, model: ModelServer, signum: int) -> None:
    model.script(*answer("```sh\nrm -rf build")[:-2], 30.0)
    process = lab.start("-x", "how")
    while not (lab.files() and model.asked):
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signum)
    out, err = process.communicate(timeout=30)
    assert out == b""
    assert b"rm -rf build" in err
    assert lab.doc()["messages"][-1]["content"] == "```sh\nrm -rf build"


# ---- schema


def test_an_answer_that_conforms_goes_out_without_its_fence(lab: Home, model: ModelServer) -> None:
    for answered in ('{"n":1}', 'Here you are:\n```json\n{"n":1}\n```\n'):
        model.say(answered)
        run = lab.run("--schema", NUMBER, "go")
        assert (run.code, run.stdout, run.stderr) == (0, '{"n":1}\n', "")


def test_the_schema_may_be_a_file(lab: Home, model: ModelServer) -> None:
    (lab.cwd / "n.json").write_text(NUMBER)
    model.say('{"n":1}')
    assert lab.run("--schema", "n.json", "go").stdout == '{"n":1}\n'


def test_an_unknown_server_is_asked_by_field_and_in_words(lab: Home, model: ModelServer) -> None:
    model.say('{"n":1}')
    lab.run("--system", "Be brief.", "--schema", NUMBER, "go")
    body = model.sent[0]
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": json.loads(NUMBER)},
    }
    assert body["messages"][0]["content"].startswith("Be brief.\n\nAnswer with JSON alone")
    assert lab.doc()["agent"]["system"] == "Be brief."


def test_a_provider_that_takes_the_field_is_not_asked_in_words(home: Home, model: ModelServer) -> None:
    home.configure(openai(model))
    model.say('{"n":1}')
    home.run("-m", "openai/gpt-4.1", "--schema", NUMBER, "go", env=KEY)
    assert [m["role"] for m in model.sent[0]["messages"]] == ["user"]
    assert model.sent[0]["response_format"]["type"] == "json_schema"


def test_a_model_that_is_known_not_to_take_the_field_is_asked_in_words(home: Home, model: ModelServer) -> None:
    """It was tested with a model whose abilities the table does not tell."""
    home.configure(openai(model))
    assert facts("openai", "gpt-audio").can("response_schema") is False
    model.say('{"n":1}')
    home.run("-m", "openai/gpt-audio", "--schema", NUMBER, "go", env=KEY)
    system, question = model.sent[0]["messages"]
    assert "response_format" not in model.sent[0]
    assert (system["role"], question["content"]) == ("system", "go")
    assert system["content"].endswith(json.dumps(json.loads(NUMBER)))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "This response_format type is unavailable now"),
        (500, "1 validation error: {'loc': ('body', 'response_format', 'type'), 'input': 'json_schema'}"),
    ],
    ids=["a refusal", "llama-cpp-python's"],
)
def test_a_server_that_refuses_the_field_is_asked_without(
    lab: Home, model: ModelServer, status: int, said: str
) -> None:
    model.refuse(status, {"error": {"message": said}})
    model.say('{"n":1}')
    run = lab.run("--schema", NUMBER, "go")
    assert (run.code, run.stdout) == (0, '{"n":1}\n')
    assert ["response_format" in body for body in model.sent] == [True, False]


def test_a_model_that_refuses_a_field_it_is_known_to_take_is_asked_in_words(home: Home, model: ModelServer) -> None:
    """It was asked the bare question, without a word of the schema; so was the second attempt."""
    home.configure(openai(model))
    model.refuse(400, {"error": {"message": "Invalid schema for response_format 'answer'", "param": "response_format"}})
    model.say("four")
    model.say("4")
    run = home.run("-m", "openai/gpt-4.1", "--system", "Add.", "--schema", '{"type":"integer"}', "2+2?", env=KEY)
    assert (run.code, run.stdout) == (0, "4\n")
    first, *others = [(body.get("response_format"), body["messages"][0]["content"]) for body in model.sent]
    assert (first[0]["type"], first[1]) == ("json_schema", "Add.")
    assert others == [(None, in_words("Add.", {"type": "integer"}))] * 2
    assert home.doc()["agent"]["system"] == "Add."


def test_the_words_are_said_once() -> None:
    schema = {"type": "integer"}
    question: Any = {"role": "user", "content": "2+2?"}
    asked = asked_in_words([question], schema)
    assert asked == [{"role": "system", "content": in_words(None, schema)}, question]
    assert asked_in_words(asked, schema) == asked


def test_a_wrong_answer_is_shown_its_faults_and_asked_once_more(lab: Home, model: ModelServer) -> None:
    model.say('{"n":"one"}')
    model.say('```\n{"n":1}\n```')
    run = lab.run("--schema", NUMBER, "go")
    assert (run.code, run.stdout, run.stderr) == (0, '{"n":1}\n', "")
    assert len(model.sent) == 2
    *_, first, repair = model.sent[1]["messages"]
    assert first == {"role": "assistant", "content": '{"n":"one"}'}
    assert "$.n: 'one' is not of type 'integer'" in repair["content"]
    assert [line.partition(":")[0] for line in texts(lab.doc())] == ["user", "assistant"] * 2


def test_an_answer_that_stays_wrong_is_exit_5_with_the_raw_answer_on_stderr(lab: Home, model: ModelServer) -> None:
    model.say("one")
    model.say("still one")
    run = lab.run("--schema", NUMBER, "go")
    assert (run.code, run.stdout) == (5, "")
    assert run.stderr.startswith("still one\ngptsh: the answer is not what --schema asks: not JSON")
    assert len(model.sent) == 2
    assert texts(lab.doc())[-1] == "assistant: still one"


def test_the_cost_is_that_of_both_attempts(home: Home, model: ModelServer) -> None:
    home.configure(openai(model))
    model.say("one")
    model.say('{"n":1}')
    run = home.run("-m", "openai/gpt-4.1", "--schema", NUMBER, "-o", "json", "go", env=KEY)
    costs = [message["cost"] for message in home.doc()["messages"] if message["role"] == "assistant"]
    assert len(costs) == 2
    assert json.loads(run.stdout)["cost"] == pytest.approx(sum(costs))


def test_events_show_both_attempts(lab: Home, model: ModelServer) -> None:
    model.say("one")
    model.say('```\n{"n":1}\n```')
    seen = [json.loads(line) for line in lab.run("--schema", NUMBER, "-o", "jsonl", "go").stdout.splitlines()]
    assert [e["text"] for e in seen if e["type"] == "text"] == ["one", '```\n{"n":1}\n```']
    assert [e["role"] for e in seen if e["type"] == "message_recorded"] == ["user", "assistant"] * 2
    assert seen[-1]["text"] == '{"n":1}\n'


def test_an_incomplete_answer_is_not_asked_for_again(lab: Home, model: ModelServer) -> None:
    model.say('{"n":', finish="length")
    run = lab.run("--schema", NUMBER, "go")
    assert (run.code, run.stdout, len(model.sent)) == (5, "", 1)
    assert "cut by the token limit" in run.stderr


@pytest.mark.slow
def test_the_deadline_bounds_the_second_attempt_too(lab: Home, model: ModelServer) -> None:
    model.say("one")
    model.script(*answer("two")[:2], 30.0)
    run = lab.run("--schema", NUMBER, "--timeout", "1.5", "go")
    assert (run.code, run.stdout) == (124, "")
    assert texts(lab.doc())[-1] == "assistant: two"


def test_a_second_attempt_that_fails_keeps_the_first(lab: Home, model: ModelServer) -> None:
    model.say("one")
    model.refuse(500, {"error": {"message": "boom"}}, {"x-should-retry": "false"})
    run = lab.run("--schema", NUMBER, "go")
    assert (run.code, run.stdout) == (1, "")
    assert run.stderr.startswith("one\ngptsh: lab refused (500): boom\n")
    assert texts(lab.doc())[1] == "assistant: one"


@pytest.mark.slow
@pytest.mark.parametrize(("said", "code"), [('{"n":1}', 0), ("one", 5)])
def test_a_deadline_behind_a_whole_answer_ends_no_check(lab: Home, model: ModelServer, said: str, code: int) -> None:
    """Its timer goes on, and only the usage has not come. Nothing is asked any more."""
    model.script(*answer(said)[:3], 30.0)
    run = lab.run("--schema", NUMBER, "--timeout", "1", "go")
    assert (run.code, run.stdout, len(model.sent)) == (code, f"{said}\n" if not code else "", 1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGINT", "deadline"])
def test_a_check_that_takes_for_ever_can_be_ended(lab: Home, model: ModelServer, how: str) -> None:
    """Signals were held while it went on."""
    said = f'"{"a" * 40}!"'
    model.say(said)
    args = ["--timeout", "2"] if how == "deadline" else []
    process = lab.start(*args, "-o", "json", "--schema", '{"pattern":"^(a+)+$"}', "go")
    if how == "SIGINT":
        while not (lab.files() and lab.doc()["stats"]["messages"] == 2):
            time.sleep(0.01)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    told = json.loads(out)
    assert wait_for(process) == told["error"]["exit_code"] == (130 if how == "SIGINT" else 124)
    assert (told["text"], texts(lab.doc())[-1]) == (said, f"assistant: {said}")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "not JSON"),
        ('{"type":"nonsense"}', "no JSON Schema"),
        ('{"type":NaN}', "not JSON"),
        ('{"$ref":"#/$defs/gone"}', "is not in it"),
        ('{"properties":{"a":{"$ref":"http://127.0.0.1:9/far"}}}', "is not in it"),
        ("nowhere.json", "No such file"),
        ("", "is empty"),
        (".", "Is a directory"),
        ("list.json", "a JSON object is expected"),
        ("bytes.json", "no UTF-8"),
        ('{"items":' * 900 + "{" + "}" * 901, "nested too deeply"),
        ('{"maximum":1e999}', "too large a number"),
        ('{"$schema":5}', "no JSON Schema"),
        ('{"$schema":["a"]}', "no JSON Schema"),
        ('{"allOf":[{}],"$ref":"#/allOf/x"}', "is not in it"),
        ('{"minimum":1,"$ref":"#/minimum/x"}', "is not in it"),
        ('{"title":"abc","$ref":"#/title"}', "is no schema"),
        ('{"$ref":"http://[x"}', "is not in it"),
        ('{"$dynamicRef":"http://127.0.0.1:9/far"}', "is not in it"),
        (f'{{"$schema":"{DRAFT_04}","patternProperties":{{"(":{{}}}}}}', "no JSON Schema"),
        ('{"properties":{"default":{"$ref":"#/gone"}}}', "is not in it"),
        ('{"$defs":{"enum":{"$ref":"#/gone"}}}', "is not in it"),
    ],
)
def test_a_schema_that_is_none_is_exit_2_before_anything(lab: Home, model: ModelServer, schema: str, why: str) -> None:
    (lab.cwd / "list.json").write_text("[1]")
    (lab.cwd / "bytes.json").write_bytes(b'{"a":"\xff"}')
    run = lab.run("--schema", schema, "go")
    assert (run.code, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith("gptsh: --schema")
    assert why in run.stderr
    assert (model.asked, lab.files()) == ([], [])


def test_extract_and_schema_exclude_each_other(lab: Home) -> None:
    run = lab.run("-x", "--schema", NUMBER, "go")
    assert (run.code, run.stderr.startswith("gptsh: -x and --schema exclude each other")) == (2, True)


def test_references_within_the_schema_are_followed() -> None:
    shape = Shape('{"$defs":{"n":{"type":"integer"}},"items":{"$ref":"#/$defs/n"},"type":"array"}')
    assert shape.faults("[1,2]") == []
    assert shape.faults('[1,"2"]') == ["$[1]: '2' is not of type 'integer'"]
    assert Shape('{"$ref":"https://json-schema.org/draft/2020-12/schema"}').faults('{"type":1}')


BUNDLED = """{"$id": "https://example.com/root", "$ref": "item", "default": {"$ref": "#/a/value"},
    "$defs": {"x": {"$id": "item", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}}}"""


def test_a_bundled_schema_is_resolved_where_its_parts_say_they_are() -> None:
    """The references of a part with an ``$id`` were looked up in the whole."""
    shape = Shape(BUNDLED)
    assert (shape.faults("1"), len(shape.faults('"1"'))) == ([], 1)
    assert Shape('{"$id":"a/b.json","items":{"$ref":"b.json#/$defs/n"},"$defs":{"n":{}}}').faults("[1]") == []


@pytest.mark.parametrize(
    ("schema", "answers"),
    [
        ('{"$ref":"#"}', "1"),
        ('{"$ref":"#/x/y","x":{"y":{"$ref":"#/gone"}}}', "1"),  # a place that no draft calls one of schemas
        ('{"$ref":"#/x/y","x":{"y":{"type":"nonsense"}}}', "1"),
        ('{"$ref":"#/x/y","x":{"y":{"minimum":"a"}}}', "1"),
        ('{"$ref":"#/x/y","x":{"y":{"pattern":"("}}}', '"1"'),
        ('{"$ref":"#/x/y","x":{"y":{"allOf":5}}}', "1"),
        ('{"$ref":"#/x/y","x":{"y":{"items":5}}}', "[1]"),
    ],
)
def test_a_check_that_cannot_be_carried_out_is_the_schemas_fault(schema: str, answers: str) -> None:
    with pytest.raises(UsageError, match="--schema: the answer cannot be held against it"):
        Shape(schema).faults(answers)


def test_a_schema_that_loops_is_exit_2_behind_the_answer(lab: Home, model: ModelServer) -> None:
    """The model was shown a fault that was none of its own, and asked once more."""
    model.say("17")
    run = lab.run("--schema", '{"$ref":"#"}', "go")
    assert (run.code, run.stdout, len(model.sent)) == (2, "", 1)
    assert run.stderr.startswith("17\ngptsh: --schema: the answer cannot be held against it: references in circles")
    assert texts(lab.doc()) == ["user: go", "assistant: 17"]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400])
def test_a_number_that_cannot_be_divided_is_a_fault(number: str) -> None:
    assert len(Shape('{"multipleOf":0.5}').faults(number)) == 1


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=8))
def test_faults_are_lines_for_whatever_comes(value: Any) -> None:
    shape = Shape('{"type":"object","additionalProperties":{"type":"integer"}}')
    assert shape.faults(json.dumps(value))
    assert shape.faults(json.dumps({"a": 1})) == []
    assert all("\n" not in fault and len(fault) <= 300 for fault in shape.faults(json.dumps({"a": value})))


@pytest.mark.parametrize("text", ["[" * 100_000, "NaN", "", '{"a":1}}', "\ud800", '{"a":1e999}'])
def test_what_is_no_json_is_a_fault(text: str) -> None:
    assert len(Shape('{"type":"object","maxProperties":0}').faults(text)) == 1


def test_a_refusal_with_a_schema_is_exit_5(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"refusal": "I will not."})), *answer()[1:])
    run = lab.run("--schema", NUMBER, "go")
    assert (run.code, run.stdout) == (5, "")
    assert "refused" in run.stderr


@pytest.mark.slow
def test_through_litellm(home: Home, model: ModelServer) -> None:
    bare = model.base_url.removesuffix("/v1")
    home.configure(lab_config(model))
    model.script(*claude.stream(claude.said(0, '{"n"', ":1}")))
    env = {"AZURE_AI_API_KEY": "az-x", "AZURE_AI_API_BASE": bare}
    run = home.run("-m", "azure_ai/claude-sonnet-4-5", "--schema", NUMBER, "go", env=env)
    assert (run.code, run.stdout) == (0, '{"n":1}\n')
    assert model.sent[0]["output_format"]["type"] == "json_schema"
