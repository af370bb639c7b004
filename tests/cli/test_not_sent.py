"""An image that a server refuses, and a question that a filter refuses, end no session: they are not sent again."""

import json
from typing import Any

import pytest

from tests.support.answers import json_output
from tests.support.attached import make_png
from tests.support.home import Home, Result, texts
from tests.support.long_sessions import question, save, tool_use
from tests.support.server import ModelServer, answer, chunk, event

IMAGE = {"error": {"message": "this model does not support image input"}}
NOTE = "gptsh: 1 image not sent: lab/m refused it\n"


def ask_about_an_image(home: Home, *args: str, size: int = 1) -> Result:
    """Ask with an image; ``size`` makes it another one."""
    (home.cwd / "a.png").write_bytes(make_png(size))
    return home.run(*args, "-f", "a.png", "what is this?")


def images_in(body: dict[str, Any]) -> tuple[int, int]:
    """How many images are in a request, and how many texts instead of one."""
    sent = json.dumps(body)
    return sent.count('"image_url": {'), sent.count("not sent: the server refused it")


# ---- images


def test_an_image_that_the_server_refuses_is_an_error_and_then_left_out_for_a_day(
    lab: Home, model: ModelServer
) -> None:
    model.refuse(400, IMAGE)
    run = ask_about_an_image(lab)
    assert run.stdout == ""
    assert run.code == 1
    assert "does not support image input" in run.stderr
    kept = lab.doc()["messages"][0]
    model.refuse(400, IMAGE)
    for words in ("never mind", "and this?"):
        model.say("Well.")
        assert lab.run("-s", "0", words) == ("Well.\n", NOTE, 0)
    assert [images_in(body) for body in model.sent] == [(1, 0), (1, 0), (0, 1), (0, 1)]
    assert lab.doc()["messages"][0] == kept
    model.say("Seen.")
    assert lab.run("-s", "0", "-m", "lab/n", "another model") == ("Seen.\n", "", 0)
    assert images_in(model.sent[-1]) == (1, 0)


@pytest.mark.parametrize(
    ("status", "payload"),
    [
        (404, {"error": {"message": "No endpoints found that support image input", "code": 404}}),
        (
            500,
            {
                "error": {
                    "message": "image input is not supported - hint: you may need to provide the mmproj"
                }
            },
        ),
        (
            400,
            {
                "error": {
                    "message": "messages[0]: unknown variant `image_url`, expected `text` at line 1"
                }
            },
        ),
        (
            400,
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "Could not process image"},
            },
        ),
        (
            400,
            {"error": {"message": "Invalid value.", "param": "messages[0].content[1].image_url"}},
        ),
    ],
)
def test_how_servers_refuse_an_image(
    lab: Home, model: ModelServer, status: int, payload: Any
) -> None:
    model.say("Seen.")
    assert ask_about_an_image(lab).code == 0
    model.refuse(status, payload)
    model.say("Well.")
    assert lab.run("-s", "0", "and now?") == ("Well.\n", NOTE, 0)
    assert [images_in(body) for body in model.sent] == [(1, 0), (1, 0), (0, 1)]


def test_an_image_that_was_left_out_in_vain_is_sent_again(lab: Home, model: ModelServer) -> None:
    model.say("Seen.")
    assert ask_about_an_image(lab).code == 0
    model.refuse(400, IMAGE)
    model.refuse(400, {"error": {"message": "bad day"}})
    run = lab.run("-s", "0", "and now?")
    assert run.code == 1
    assert "bad day" in run.stderr
    model.say("Well.")
    assert lab.run("-s", "0", "once more") == ("Well.\n", "", 0)
    assert [images_in(body) for body in model.sent] == [(1, 0), (1, 0), (0, 1), (1, 0)]


def test_what_the_model_has_answered_before_is_left_out_last(lab: Home, model: ModelServer) -> None:
    model.say("Seen.")
    assert ask_about_an_image(lab).code == 0
    model.refuse(400, IMAGE)
    assert ask_about_an_image(lab, "-s", "0", size=9).code == 1
    model.refuse(400, IMAGE)
    model.say("Well.")
    assert lab.run("-s", "0", "and now?").code == 0
    assert images_in(model.sent[-1]) == (1, 1)
    model.refuse(400, IMAGE)
    model.say("Well.")
    assert lab.run("-s", "0", "and then?") == ("Well.\n", NOTE * 2, 0)
    assert images_in(model.sent[-1]) == (0, 2)


def test_an_image_of_a_tool_is_left_out_in_the_same_turn(lab: Home, model: ModelServer) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    save(lab, [question("take an image"), *tool_use(1, [image])], ident="7x2m")
    model.refuse(400, IMAGE)
    model.say("Taken.")
    run = lab.run("-s", "7x2m", "--no-tools")
    assert run.stdout == "Taken.\n"
    assert run.code == 0
    assert NOTE in run.stderr
    assert [images_in(body) for body in model.sent] == [(1, 0), (0, 1)]


def test_a_dry_run_shows_what_is_sent_in_place_of_an_image(lab: Home, model: ModelServer) -> None:
    model.say("Seen.")
    assert ask_about_an_image(lab).code == 0
    model.refuse(400, IMAGE)
    assert lab.run("-s", "0", "and now?").code == 0
    shown = lab.run("-s", "0", "--dry-run", "-o", "json", "more")
    assert images_in(json_output(shown)) == (0, 1)


# ---- questions

FILTERED = {"error": {"message": "The response was filtered due to the prompt triggering the policy", "param": "prompt",
                      "code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}  # fmt: skip
UNSENT = "gptsh: the last question is not sent: the provider's filter refused it\n"
REFUSED: dict[str, Any] = {
    "Azure": (400, FILTERED),
    "DashScope": (400, {"error": {"message": "Input data may contain inappropriate content.",
                                  "code": "data_inspection_failed"}}),
    "DeepSeek": (400, {"error": {"message": "Content Exists Risk", "code": "invalid_request_error"}}),
    "xAI": (403, {"code": "no permission", "error": "Content violates usage guidelines. Failed check: BIO"}),
    "Moonshot": (400, {"error": {"message": "rejected because it was considered high risk", "type": "content_filter"}}),
    "in a stream": [event({"error": {"message": "flagged", "code": "content_filter"}})],
    "the answer's end": answer(finish="content_filter"),
    "a half answer": answer("half", finish="content_filter"),
    "a refusal": answer("no", finish="refusal"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_question_that_a_filter_refuses_is_exit_5_and_not_sent_with_the_next(
    lab: Home, model: ModelServer, name: str
) -> None:
    assert lab.run("one").code == 0
    steps = REFUSED[name]
    model.refuse(*steps) if isinstance(steps, tuple) else model.script(*steps)
    run = lab.run("-s", "0", "two")
    assert run.code == 5
    assert len(model.sent) == 2
    assert "filter" in run.stderr or "refus" in run.stderr
    refused = lab.doc()["messages"][2:]
    assert lab.run("-s", "0", "three") == ("You said: three\n", UNSENT, 0)
    assert [message["content"] for message in model.sent[-1]["messages"]] == [
        "one",
        "You said: one",
        "three",
    ]
    assert lab.run("-s", "0", "four") == ("You said: four\n", "", 0)
    assert "two" not in [message["content"] for message in model.sent[-1]["messages"]]
    assert lab.doc()["messages"][2:4] == refused


def test_the_reason_of_a_filter_is_told_once(lab: Home, model: ModelServer) -> None:
    model.refuse(400, FILTERED)
    run = lab.run("-o", "json", "one")
    told = json_output(run)
    assert run.code == 5
    assert told["finish_reason"] == "content_filter"
    assert told["error"]["exit_code"] == 5
    assert told["error"]["message"] == (
        "lab's filter refused the question (400): The response was filtered due to the prompt triggering the policy"
    )
    assert texts(lab.doc()) == ["user: one", "assistant: "]


def test_a_question_that_a_filter_refused_can_be_asked_again(lab: Home, model: ModelServer) -> None:
    model.refuse(400, FILTERED)
    run = lab.run("one")
    assert f"'gptsh -s {lab.doc()['id']}' asks it again" in run.stderr
    assert lab.run("-s", "0", "-m", "lab/n") == ("You said: one\n", "", 0)
    lab.run("-s", "0", "two")
    assert [message["content"] for message in model.sent[-1]["messages"]] == [
        "one",
        "You said: one",
        "two",
    ]


def test_a_refusal_in_words_stays_in_the_session(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"refusal": "Well, no."})), *answer(""))
    assert lab.run("one").code == 5
    assert lab.run("-s", "0", "two").code == 0
    assert [message["role"] for message in model.sent[-1]["messages"]] == [
        "user",
        "assistant",
        "user",
    ]
