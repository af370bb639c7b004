"""``--schema`` and ``-x``: a part of an answer, or nothing."""

import json
import re
from typing import Any

import pytest

from gptsh.context.answer_schema import AnswerSchema
from gptsh.render.markdown import code_blocks
from tests.support.dry import dry_run
from tests.support.home import Home, texts
from tests.support.server import ModelServer

NUMBER = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'


@pytest.mark.parametrize(
    ("said", "block"),
    [
        ("no fence at all", None),
        ("before\n```sh\nls\n```\nafter\n```\nsecond\n```", "ls\n"),
        ("~~~\na\n```\nb\n~~~", "a\n```\nb\n"),
        ("````\n```\ninner\n```\n````", "```\ninner\n```\n"),
        ("1. do\n   ```\n   ls\n     -l\n   ```\n", "ls\n  -l\n"),
        ("```\nnever closed", "never closed"),
        ("```\n```", ""),
        ("```markdown\n# T\n```sh\nls\n```\nend\n```\n", "# T\n```sh\nls\n```\nend\n"),
        ("~~~\na\n~~~sh\nls\n~~~\n~~~", "a\n~~~sh\nls\n~~~\n"),
        ("```md\n# T\n\n```\nls\n```\n\nend\n```\n\nDone.", "# T\n\n```\nls\n```\n\nend\n"),
        ("```md\n# T\n```\nDone.", "# T\n"),
        ("```md\n# T\n```\n\nThen:\n\n```\nls\n```", "# T\n"),
        ("- so:\n  ```md\n  a\n  ````sh\n  ls\n  ````\n  ```\n", "a\n````sh\nls\n````\n"),
        ("> ```\r\n> a\r\n>\r\n> b\r\n> ```", "a\n\nb\n"),
    ],
)
def test_the_first_fenced_block(said: str, block: str | None) -> None:
    assert next((found.content for found in code_blocks(said)), None) == block


FENCED = "Do:\n```sh\nls -l\n```\nThat is all."


@pytest.mark.parametrize(
    ("said", "out"),
    [
        (FENCED, "ls -l\n"),
        ("so:\r\n```bat\r\necho 1\r\n```\r\n", "echo 1\n"),
        ("just words", "just words\n"),
        ("```\na\n```\nor\n```\nb", "a\n"),  # the first block is whole
        ("~~~\na\n```\n~~~ \n\n", "a\n```\n"),
        ("`ls -l`", "ls -l\n"),
        ("`` echo `date` ``\n", "echo `date`\n"),
        ("`date` | cat `x`", "`date` | cat `x`\n"),
    ],
)
def test_extract_prints_the_first_block_or_an_answer_without_blocks(
    lab: Home, model: ModelServer, said: str, out: str
) -> None:
    model.say(said)
    run = lab.run("-x", "how")
    assert run.stdout == out
    assert run.code == 0
    assert not run.stderr.startswith(said)
    assert texts(lab.doc())[-1] == f"assistant: {said}"


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ("```sh\nrm -rf build", "length"),
        ("so:\n```sh\nrm -rf /tmp/build\nrm", "stop"),  # whatever the server reports
        ("```sh\ncat <<E\n", "stop"),
        ("- so:\n  ```\n  a\n", "stop"),
        ("```markdown\n# T\n```sh\nls\n```\n", "stop"),  # its last fence ends the inner block
    ],
)
def test_extract_prints_no_half_of_a_block(
    lab: Home, model: ModelServer, said: str, finish: str
) -> None:
    model.say(said, finish=finish)
    run = lab.run("-x", "how")
    assert run.stdout == ""
    assert run.code == 5
    assert run.stderr.startswith(said)  # it is not lost
    assert texts(lab.doc())[-1] == f"assistant: {said}"


def test_extract_and_schema_cannot_be_used_together(lab: Home, model: ModelServer) -> None:
    run = lab.run("-x", "--schema", "{}", "how")
    assert run.stdout == ""
    assert run.code == 2
    assert run.stderr.startswith("gptsh: -x and --schema cannot be used together")
    assert model.requests == []


MANY = "a:\n```sh\nls\n```\nb:\n```Python title=x\nprint()\n```\nc:\n```python\npass\n```\nd:\n~~~\nlast\n~~~\n"


@pytest.mark.parametrize(
    ("said", "name", "out", "problem"),
    [
        (MANY, "python", "print()\n", ""),
        (MANY, "SH", "ls\n", ""),
        (MANY, "last", "last\n", ""),
        (MANY, "3", "pass\n", ""),
        (MANY, "5", "", "no code block 5 in the answer: it has sh, python, no language"),
        (MANY, "go", "", "no go code block in the answer: it has sh, python, no language"),
        ("words", "last", "", "no code block in the answer: it has none"),
        (FENCED + "\n```py\nhalf", "py", "", "the answer is incomplete: its code block has no end"),
    ],
)
def test_a_block_is_chosen_by_its_language_or_its_place(
    lab: Home, model: ModelServer, said: str, name: str, out: str, problem: str
) -> None:
    model.say(said)
    run = lab.run("--block", name, "how")
    assert run.stdout == out
    assert run.code == (5 if problem else 0)
    assert problem in run.stderr
    assert run.stderr.startswith(said) == bool(problem)  # it is not lost
    model.say(said)
    told = json.loads(lab.run("--block", name, "-o", "json", "how").stdout)
    assert told["text"] == (said if problem.startswith("no ") else told["text"])
    assert bool(told["error"]) == bool(problem)


WRONG = {"error": {"message": "This response_format type is unavailable now"}}
BY_LLAMA = (
    "1 validation error: {'loc': ('body', 'response_format', 'type'), 'input': 'json_schema'}"
)
CHECKED = {"error": {"message": BY_LLAMA}}
BOOM = {"error": {"message": "boom"}}
# What the model says, one after the other; stdout, stderr's beginning, the exit code, and how often it was asked.
ANSWERS: dict[str, tuple[list[Any], str, str, int, int]] = {
    "bare": (['{"n":1}'], '{"n":1}\n', "", 0, 1),
    "in a fence": (['Here you are:\n```json\n{"n":1}\n```\n'], '{"n":1}\n', "", 0, 1),
    "wrong, then right": (['{"n":"one"}', '```\n{"n":1}\n```'], '{"n":1}\n', "", 0, 2),
    "wrong twice": (
        ["one", "still one"], "", "still one\ngptsh: the answer does not match --schema: not JSON", 5, 2),
    "wrong, then refused": (["one", (500, BOOM)], "", "one\ngptsh: lab failed (500): boom\n", 1, 2),
    "a field that is refused": ([(400, WRONG), '{"n":1}'], '{"n":1}\n', "", 0, 2),
    "a field that llama-cpp-python refuses": ([(500, CHECKED), '{"n":1}'], '{"n":1}\n', "", 0, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_conforms_is_printed_alone_and_another_asked_for_once(
    lab: Home, model: ModelServer, name: str
) -> None:
    said, out, err, code, asked = ANSWERS[name]
    for one in said:
        model.say(one) if isinstance(one, str) else model.refuse(*one, {"x-should-retry": "false"})
    (lab.cwd / "n.json").write_text(NUMBER)
    run = lab.run("--schema", "n.json", "go")
    assert run.stdout == out
    assert run.code == code
    assert len(model.sent) == asked
    assert run.stderr.startswith(err) if err else run.stderr == ""
    kept = [one for one in said if isinstance(one, str)]
    assert [line for line in texts(lab.doc()) if line.startswith("assistant")] == [
        f"assistant: {one}" for one in kept
    ]
    if name == "wrong, then right":
        *_, first, repair = model.sent[1]["messages"]
        assert first == {"role": "assistant", "content": '{"n":"one"}'}
        assert "$.n: 'one' is not of type 'integer'" in repair["content"]


def test_what_is_asked_in_the_users_place_is_no_turn_of_the_user(
    lab: Home, model: ModelServer
) -> None:
    for said in ("no", '{"n":1}', "on"):
        model.say(said)
    (lab.cwd / "n.json").write_text(NUMBER)
    assert lab.run("--schema", "n.json", "go").code == 0
    assert lab.doc()["stats"]["turns"] == 1
    assert lab.doc()["stats"]["messages"] == 4
    lab.run("-s", "0@-1", "once more")
    assert texts(lab.docs()[0]) == ["user: once more", "assistant: on"]


def test_a_repair_without_an_answer_goes_with_the_next_question(
    lab: Home, model: ModelServer
) -> None:
    model.say("no")
    model.refuse(500, {"error": {"message": "boom"}}, {"x-should-retry": "false"})
    model.say("on")
    (lab.cwd / "n.json").write_text(NUMBER)
    assert lab.run("--schema", "n.json", "go").code == 1
    assert lab.run("-s", "0", "go on").code == 0
    assert [message["role"] for message in model.sent[-1]["messages"]] == [
        "user",
        "assistant",
        "user",
    ]
    assert lab.doc()["stats"]["turns"] == 2


@pytest.mark.parametrize(
    ("which", "field", "words"),
    [("lab/m", True, True), ("openai/gpt-4.1", True, False), ("openai/gpt-audio", False, True)],
    ids=["unknown", "takes the field", "takes none"],
)
def test_a_schema_goes_as_a_field_in_words_or_both(
    home: Home, which: str, field: bool, words: bool
) -> None:
    asked = dry_run(home, which, args=["--system", "Be brief.", "--schema", NUMBER])
    schema = json.loads(NUMBER)
    told = asked.body.get("response_format", {}).get("json_schema", {})
    assert told.get("schema") == (schema if field else None)
    system = asked.messages[0]["content"]
    assert system.startswith("Be brief.\n\nAnswer with JSON alone") == words
    assert system.endswith(json.dumps(schema)) == words


def test_a_model_that_refuses_a_field_it_is_known_to_take_is_asked_in_words(
    home: Home, model: ModelServer
) -> None:
    home.configure(
        f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'
    )
    model.refuse(
        400,
        {
            "error": {
                "message": "Invalid schema for response_format 'answer'",
                "param": "response_format",
            }
        },
    )
    model.say("four")
    model.say("4")
    schema = ("--schema", '{"type":"integer"}')
    said = ("--system", "Be brief.", "-o", "jsonl", "2+2?")
    run = home.run("-m", "openai/gpt-4.1", *schema, *said, env={"OPENAI_API_KEY": "sk-x"})
    first, *others = model.sent
    assert "response_format" in first
    assert first["messages"][0]["content"] == "Be brief."
    for other in others:
        assert "response_format" not in other
        assert re.fullmatch(
            r'(?s)Be brief\.\n\n.*{"type": "integer"}', other["messages"][0]["content"]
        )
    seen = [json.loads(line) for line in run.stdout.splitlines()]
    assert [e["text"] for e in seen if e["type"] == "text"] == ["four", "4"]
    costs = [
        message["cost"] for message in home.doc()["messages"] if message["role"] == "assistant"
    ]
    assert seen[-1]["text"] == "4"
    assert seen[-1]["cost"] == pytest.approx(sum(costs))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "not JSON"),
        ('{"type":"nonsense"}', "not a JSON Schema"),
        ('{"patternProperties":{"(":{}}}', "is not a 'regex'"),
        ("nowhere.json", "No such file"),
        ("list.json", "expected a JSON object"),
    ],
)
def test_a_schema_that_is_none_is_exit_2_before_anything(
    lab: Home, model: ModelServer, schema: str, why: str
) -> None:
    (lab.cwd / "list.json").write_text("[1]")
    run = lab.run("--schema", schema, "go")
    assert run.code == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("gptsh: --schema")
    assert why in run.stderr
    assert model.requests == []
    assert lab.files() == []


@pytest.mark.parametrize(
    ("schema", "reference"),
    [
        ('{"properties":{"n":{"$ref":"#/$defs/gone"}}}', "#/$defs/gone"),
        ('{"$ref":"#/x/a","x":{"a":{"items":{"$ref":"#no-anchor"}}}}', "#no-anchor"),
        (
            '{"anyOf":[{"$ref":"https://elsewhere.example/schema.json"}]}',
            "https://elsewhere.example/schema.json",
        ),
        (
            '{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"$ref":"other.json"}}}',
            "other.json",
        ),
    ],
)
def test_a_schema_with_a_reference_to_nowhere_is_exit_2_before_the_request(
    lab: Home, model: ModelServer, schema: str, reference: str
) -> None:
    run = lab.run("--schema", schema, "go")
    assert run.code == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(
        f"gptsh: --schema: not a JSON Schema: $ref {reference} cannot be resolved"
    )
    assert model.requests == []
    assert lab.files() == []


def test_a_schema_that_refers_to_itself_is_exit_2_and_the_answer_is_kept(
    lab: Home, model: ModelServer
) -> None:
    model.say('{"n":1}')
    run = lab.run("--schema", '{"$ref":"#"}', "go")
    assert run.code == 2
    assert run.stdout == ""
    assert len(model.sent) == 1
    assert re.search(
        "gptsh: --schema: the answer cannot be checked against it: .*circular", run.stderr
    )
    assert texts(lab.doc())[-1] == 'assistant: {"n":1}'


def test_ten_faults_are_told_at_most() -> None:
    assert len(AnswerSchema('{"items":{"type":"integer"}}').faults(json.dumps(["x"] * 12))) == 10


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ('{"$defs":{"n":{"type":"integer"}},"items":{"$ref":"#/$defs/n"},"type":"array"}', "[1,2]", '[1,"2"]'),
        ('{"$ref":"https://json-schema.org/draft/2020-12/schema"}', "{}", '{"type":1}'),
        ('{"type":"array","items":{"$ref":"#leaf"},"$defs":{"n":{"$anchor":"leaf","type":"null"}}}', "[null]", "[1]"),
        ('{"properties":{"$ref":{"type":"string"}},"enum":[{"$ref":"nowhere"}]}', '{"$ref":"nowhere"}', "1"),
        ('{"items":{"$ref":"#"},"type":"array"}', "[[],[[]]]", "[[1]]"),
        ('{"multipleOf":0.5}', "1", "1e999"),
        ('{"type":"object"}', "{}", "[" * 100_000),
    ],
)  # fmt: skip
def test_what_a_schema_asks_is_asked(schema: str, fits: str, does_not: str) -> None:
    assert AnswerSchema(schema).faults(fits) == []
    assert len(AnswerSchema(schema).faults(does_not)) == 1
