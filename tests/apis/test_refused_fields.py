"""A field that a server refuses is left out when asking again, and known for a day once that was answered."""

import json
from typing import Any

import pytest

from tests.support.home import Home, lab_config
from tests.support.responses_server import ResponsesServer, message, stream
from tests.support.server import ModelServer


def said(words: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": words, "type": "invalid_request_error", **more}}


def remembered(home: Home) -> bytes:
    """What the home keeps of its servers."""
    cache = home.folder / ".cache" / "gptsh" / "servers.json"
    return cache.read_bytes() if cache.exists() else b""


@pytest.mark.parametrize(
    "words",
    [
        "Invalid request: your request must include at least one message of the user.",
        "Unsupported request: it must include a question. Store it elsewhere.",
        "tools[0].parameters: JSON schema is invalid, stored items include one without a name",
    ],
)
def test_a_word_in_prose_refuses_nothing(sol: Home, openai: ResponsesServer, words: str) -> None:
    openai.refuse(400, said(words, param=None))
    assert sol.run("--schema", '{"type": "object"}', "hi").code == 1
    assert len(openai.sent) == 1
    assert sol.run("hi").code == 0
    assert [("include" in body, "store" in body) for body in openai.sent] == [(True, True)] * 2


@pytest.mark.parametrize(
    "error",
    [
        said("Invalid value.", param="include"), said("Invalid value.", param="include[0]"),
        said("Unknown parameter: 'include'."), said("json: unknown field `include`, expected one of `model`"),
        {"detail": [{"loc": ["body", "include"], "msg": "Extra inputs are not permitted", "input": ["x"]}]},
        said("include: Extra inputs are not permitted"), said('Unsupported field "include"', code=3),
    ],
)  # fmt: skip
def test_a_field_is_refused_by_its_name_in_the_error_or_in_a_set_wording(
    sol: Home, openai: ResponsesServer, error: dict[str, Any]
) -> None:
    openai.refuse(400, error)
    for _ in range(2):
        assert sol.run("hi").code == 0
    assert ["include" in body for body in openai.sent] == [True, False, False]


@pytest.mark.parametrize("status", [400, 401])
def test_a_field_whose_omission_did_not_help_is_forgotten(
    lab: Home, model: ModelServer, status: int
) -> None:
    model.refuse(400, said("Unknown parameter: 'stream_options'."))
    model.refuse(status, said("Bad day."))
    run = lab.run("--fallback", "lab/n", "hi")
    if status == 400:
        assert run.stdout == ""
        assert run.code == 1
    else:  # the key is refused, so another model is asked
        assert run.stdout == "You said: hi\n"
        assert run.code == 0
    assert b"refused" not in remembered(lab)
    assert lab.run("hi").code == 0
    asked = [body for body in model.sent if body["model"] == "m"]
    assert ["stream_options" in body for body in asked] == [True, False, True]


def test_an_api_that_helped_no_more_than_the_other_is_forgotten(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model).replace("\n[sessions]", '\napi = "responses"\n[sessions]'))
    for _ in range(2):
        model.refuse(404, said("not found"))
    model.script(*stream(message("Hello.")), model="n")
    assert home.run("--fallback", "lab/n", "hi").stdout == "Hello.\n"
    assert b"refused" not in remembered(home)


def test_a_schema_that_is_refused_says_nothing_of_the_next_one(
    lab: Home, model: ModelServer
) -> None:
    schema = ("--schema", '{"type": "integer"}')
    model.refuse(400, said("Invalid schema for response_format 'answer'", param="response_format"))
    for _ in range(2):
        model.say("4")
        assert lab.run(*schema, "2+2?").stdout == "4\n"
    assert ["response_format" in body for body in model.sent] == [True, False, True]
    assert b"refused" not in remembered(lab)


def test_a_value_of_the_users_that_is_out_of_range_is_no_refusal(
    lab: Home, model: ModelServer
) -> None:
    words = "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 9 instead."
    model.refuse(400, said(words, param="temperature", code="decimal_above_max_value"))
    run = lab.run("-p", "temperature=9", "hi")
    assert run.code == 1
    assert len(model.sent) == 1
    assert words in run.stderr


def test_a_parameter_whose_name_is_a_word_is_not_refused_by_the_word(
    lab: Home, model: ModelServer
) -> None:
    model.refuse(400, said("That is not supported. It is unsupported, so stop asking."))
    model.refuse(400, said("property 'stop' is unsupported"))
    for code, stops in ((1, [True]), (0, [True, False])):
        model.requests.clear()
        assert lab.run("-p", 'stop=["x"]', "hi").code == code
        assert ["stop" in body for body in model.sent] == stops


def test_what_the_refused_field_was_for_does_not_concern_another_model(
    lab: Home, model: ModelServer
) -> None:
    model.refuse(400, said("Unknown parameter: 'stream_options'."))
    assert lab.run("hi").code == 0
    assert json.loads(remembered(lab))[f"{model.base_url} m"]["refused"] == ["stream_options"]
    assert lab.run("-m", "lab/n", "hi").code == 0
    assert ["stream_options" in body for body in model.sent] == [True, False, True]
