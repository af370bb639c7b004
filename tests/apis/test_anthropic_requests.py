"""The Anthropic Messages dialect: what goes out. Whatever is built here the strict server would take."""

import json
from typing import Any

import pytest

from tests.support import anthropic_server as strict
from tests.support.anthropic_server import AnthropicServer, signature
from tests.support.apis import request_in_tool_loop
from tests.support.claude import CLOSED, KEY, LATEST, OPEN, OPUS, PNG, SONNET, without_cache_marks
from tests.support.dry import dry_run
from tests.support.home import Home
from tests.support.messages import assistant, call, image, parts, result, text, thinking, user


def answer(content: Any, model: str = SONNET, **more: Any) -> dict[str, Any]:
    return assistant(content, provider=model.partition("/")[0], model=model, **more)


def note(what: str, name: str = "") -> dict[str, str]:
    return text(f"{name}[gptsh: {what}, not sent: this API does not accept it]")


def sent(
    home: Home, *messages: Any, model: str = SONNET, params: Any = None
) -> list[list[dict[str, Any]]]:
    """The blocks of each message."""
    return [
        message["content"] for message in dry_run(home, model, *messages, params=params).messages
    ]


def kinds(messages: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [[part["type"] for part in content] for content in messages]


PICTURE: Any = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
}
FACTS = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "facts"},
    "title": "t",
}
LINKED: Any = {
    "type": "document",
    "source": {"type": "url", "url": "https://a.test/a.pdf"},
    "title": "a",
}
X: Any = {"x_": None, "x_more": [1]}  # keys that nobody knows: they are kept, and not sent


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "text", "text": "x", "source": "a.txt"}, {"type": "text", "text": "a.txt:\nx"}),
        (image(f"data:image/png;base64,{PNG}"), PICTURE),
        (image("http://a.test/x.png"), note("image, http://a.test/x.png", "a.png:\n")),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
         {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
          "title": "a.pdf"}),
        (FACTS, {"type": "text", "text": "t:\nfacts"}),
        ({**FACTS, "context": "of 2026"}, {"type": "text", "text": "t (of 2026):\nfacts"}),
        ({**LINKED, "context": "of 2026"}, {**LINKED, "context": "of 2026"}),
        ({"type": "hologram", "of": "me"}, note("hologram")),
        ({**PICTURE, "source": {**PICTURE["source"], **X}, **X}, PICTURE),
        ({**LINKED, "source": {**LINKED["source"], **X}, "citations": {"enabled": True, **X}, **X},
         {**LINKED, "citations": {"enabled": True}}),
    ],
)  # fmt: skip
def test_parts_of_a_question(home: Home, part: dict[str, Any], block: dict[str, Any]) -> None:
    assert sent(home, user(text("words"), part), answer("a"))[0][1] == block


SIGNED = [thinking("hm", signature("hm")), {"type": "redacted_thinking", "data": "xyz"}]
FIRST, HIDDEN, SECOND = *SIGNED, thinking("so", signature("so"))
SEARCH = {"type": "server_tool_use", "id": "s", "name": "w", "input": {}}
CITED = [{"type": "web_search_result_location", "cited_text": "It is.", "encrypted_index": "E"}]
SEARCHED: list[Any] = [
    SEARCH,
    {
        "type": "web_search_tool_result",
        "tool_use_id": "s",
        "content": [{"type": "web_search_result", "page_age": None}],
    },
    {"type": "text", "text": "It is.", "citations": CITED},
]
ONE_CALL = [call("c1", "ls", '{"a":1}')]
LS = [{"type": "tool_use", "id": "c1", "name": "ls", "input": {"a": 1}}]


@pytest.mark.parametrize(
    ("reply", "blocks"),
    [
        (answer(" hi \n"), parts(" hi \n")),
        (answer("", refusal="No."), parts("No.")),
        (answer("hi", thinking=[*SIGNED, thinking("cut")]), [*SIGNED, *parts("hi")]),
        (answer("hi", OPUS, thinking=SIGNED), parts("hi")),  # of another model
        (answer(parts("a", "b"), thinking=[FIRST], order=["thinking:0", "text:0", "text:1"]), [FIRST, *parts("ab")]),
        (answer("a", replay={"blocks": [SEARCH]}, finish_reason="error"), parts("a")),
        (answer([*parts("a"), SEARCH], "openai/gpt-4.1"), [*parts("a"), note("server_tool_use")]),
        # no answer ends in a thought, or begins with anything else
        (answer("a", thinking=[FIRST], order=["text:0", "thinking:0"]), parts("a")),
        (answer(parts("a", " "), thinking=[FIRST, SECOND], order=["thinking:0", "text:0", "thinking:1", "text:1"]),
         [FIRST, *parts("a")]),
        (answer("a", replay={"blocks": [SEARCH, *parts("a"), FIRST]}), [SEARCH, *parts("a")]),
        # with keys that nobody knows
        (answer([], refusal="\0", thinking=[{**one, **X} for one in (thinking(""), *SIGNED, {"type": "other"}, {})]),
         [*SIGNED, *parts("\0")]),
        (answer(parts("Hm. ", "It is."), thinking=[HIDDEN],
                replay={"blocks": [{**HIDDEN, **X}, {**parts("Hm. ")[0], **X}, *SEARCHED]}),
         [HIDDEN, *parts("Hm. "), *SEARCHED]),
        (answer("", tool_calls=ONE_CALL, replay={"blocks": [{**LS[0], **X}]}), LS),
    ],
)  # fmt: skip
def test_answers_as_they_go_back(
    home: Home, reply: dict[str, Any], blocks: list[dict[str, Any]]
) -> None:
    assert sent(home, user("q"), reply)[1] == blocks


def test_blank_messages_vanish(home: Home) -> None:
    blank = [
        user("q"),
        answer("a"),
        user("  \n"),
        answer(" "),
        user("r"),
        answer(" ", thinking=[FIRST]),
    ]
    assert sent(home, *blank) == [parts("q"), parts("a"), parts("r", "and now?")]
    assert sent(home, answer("hello"))[0] == parts("(no question)")


def test_blocks_go_back_in_their_order(home: Home) -> None:
    calls = [call("c1", "x", "{}"), call("c2", "y", "{}", caller={"type": "direct"})]
    reply = answer(parts("a", "b"), thinking=[FIRST, SECOND], tool_calls=calls,
                   order=["thinking:0", "text:0", "tool_call:0", "thinking:1", "text:1", "tool_call:1"])  # fmt: skip
    turn = [user("q"), reply, result("c2", "r2"), result("c1", "r1")]
    made = sent(home, *turn, params={"reasoning_effort": "low"})
    assert kinds(made)[1] == ["thinking", "text", "tool_use", "thinking", "text", "tool_use"]
    assert [part["content"] for part in made[2][:2]] == [parts("r1"), parts("r2")]
    assert made[1][-1]["caller"] == {"type": "direct"}  # goes back to whom it came from


@pytest.mark.parametrize(
    ("content", "failed", "block"),
    [
        ("", False, "(no output)"),
        (parts("a", "b"), False, parts("a", "b")),
        ([*parts("a"), image(f"data:image/png;base64,{PNG}")], False, [*parts("a"), PICTURE]),
        ([{**parts("a")[0], **X}, {**PICTURE, **X}], False, [*parts("a"), PICTURE]),
        ([image(f"data:image/png;base64,{PNG}")], True, [note("image/png, 8 bytes", "a.png:\n")]),
    ],
)
def test_results_of_tools(home: Home, content: Any, failed: bool, block: Any) -> None:
    made = sent(
        home,
        user("q"),
        answer("", tool_calls=[{**ONE_CALL[0], **X}]),
        result("c1", content, is_error=failed, **X),
    )
    flag = {"is_error": True} if failed else {}
    assert made[1:] == [LS, [{"type": "tool_result", "tool_use_id": "c1", "content": block, **flag},
                             *parts("and now?")]]  # fmt: skip


def test_ids_of_calls_are_of_few_characters_and_are_there_once(home: Home) -> None:
    odd = [
        call("functions.ls:0", "a.b", "{}"),
        call("functions_ls_0", "ls", "{}"),
        call("ünï", "ls", "{}"),
    ]
    results = [result(made["id"], made["id"]) for made in odd]
    turn = [user("q"), answer("x", "openai/gpt-4.1", tool_calls=odd), *results, answer("y")]
    made = sent(home, *turn, *turn)
    uses = [part for content in made for part in content if part["type"] == "tool_use"]
    given_back = [part for content in made for part in content if part["type"] == "tool_result"]
    assert [part["id"] for part in uses] == [part["tool_use_id"] for part in given_back]
    assert [part["content"] for part in given_back] == [parts(one["id"]) for one in odd] * 2
    assert uses[0]["name"] == "a_b"
    assert made[:4] == sent(home, *turn)[:4]  # what was sent once is not sent otherwise later


EFFORT = {"reasoning_effort": "low"}
AGAIN = [call("c2", "ls", "{}")]


def loop(*answers: dict[str, Any]) -> list[dict[str, Any]]:
    """A question and answers that call tools, each with its result."""
    return [
        user("q"),
        *(m for one in answers for m in (one, result(one["tool_calls"][0]["id"], "x"))),
    ]


BEGAN = answer("", thinking=[FIRST], tool_calls=ONE_CALL)


@pytest.mark.parametrize(
    ("model", "params", "turns", "thinks", "expected"),
    [
        (SONNET, EFFORT, loop(BEGAN, answer("", tool_calls=AGAIN)), True, [["thinking", "tool_use"], ["tool_use"]]),
        (SONNET, {}, [user("p"), answer("a", thinking=[FIRST]), *loop(BEGAN)], False,
         [["thinking", "text"], ["tool_use"]]),
        (SONNET, EFFORT, loop(answer("", OPUS, tool_calls=ONE_CALL), answer("", thinking=[SECOND], tool_calls=AGAIN)),
         False, [["tool_use"], ["tool_use"]]),
        (LATEST, {}, loop({**BEGAN, "model": LATEST}), False, [["thinking", "tool_use"]]),  # it thinks unasked
        (OPUS, {"reasoning_effort": "none"}, loop({**BEGAN, "model": OPUS}), True, [["tool_use"]]),
    ],
    ids=["goes on", "not asked to", "began elsewhere", "unasked", "switched off"],
)  # fmt: skip
def test_thoughts_in_a_loop_go_together_with_thinking(
    model: str, params: Any, turns: list[Any], thinks: bool, expected: list[list[str]]
) -> None:
    made = request_in_tool_loop(model, *turns, params=params)
    assert ("thinking" in made) == thinks
    assert (
        kinds([content for role, content in without_cache_marks(made) if role == "assistant"])
        == expected
    )


SAID = [
    "messages.1.content.0: When thinking is disabled, an `assistant` message in the final position cannot contain "
    "`thinking`. To use thinking blocks, enable `thinking` in your request.",
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` "
    "is enabled, a final `assistant` message must start with a thinking block",
]
NOT_OF_SCHEMA = [
    "tools.9.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
]
OF_SCHEMA = [
    "output_config.format.schema: For 'object' type, 'additionalProperties' must be set to false",
    "The compiled grammar is too large, which would cause performance issues.",
]


@pytest.mark.parametrize(
    ("words", "asked"),
    [*((words, "thoughts") for words in SAID), *((words, "schema") for words in OF_SCHEMA),
     *((words, "neither") for words in NOT_OF_SCHEMA)],
)  # fmt: skip
def test_what_is_refused_and_can_be_left_out_is_asked_without(
    claude: Home, anthropic: AnthropicServer, words: str, asked: str
) -> None:
    anthropic.script(*strict.stream(strict.thought(0, "hm"), strict.said(1, "{}")))
    assert claude.run("hi").code == 0
    anthropic.refuse(
        400, {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    )
    anthropic.script(*strict.stream(strict.said(0, '{"n":1}')))
    run = claude.run("-s", "0", "--schema", json.dumps(CLOSED), "more")
    assert run.code == (1 if asked == "neither" else 0)
    assert len(anthropic.sent) == (2 if asked == "neither" else 3)
    # Words about a schema change the system prompt, to which thinking is bound.
    assert (kinds([without_cache_marks(anthropic.sent[-1])[1][1]]) == [["text"]]) == (
        asked != "neither"
    )
    assert ("output_config" not in anthropic.sent[-1]) == (asked == "schema")


@pytest.mark.parametrize(
    ("schema", "said_as"),
    [
        (CLOSED, CLOSED),
        (OPEN, CLOSED),
        ({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": OPEN}},
         {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": CLOSED}}),
        ({"anyOf": [{"const": OPEN}, {"enum": [OPEN]}, OPEN], "default": OPEN, "examples": [OPEN]},
         {"anyOf": [{"const": OPEN}, {"enum": [OPEN]}, CLOSED], "default": OPEN, "examples": [OPEN]}),
        ({**OPEN, "properties": {"default": OPEN}}, {**CLOSED, "properties": {"default": CLOSED}}),
    ],
)  # fmt: skip
def test_the_objects_of_a_schema_are_closed_but_not_its_values(
    home: Home, schema: dict[str, Any], said_as: dict[str, Any]
) -> None:
    made = dry_run(home, SONNET, args=["--schema", json.dumps(schema)]).body
    assert made["output_config"]["format"]["schema"] == said_as


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"])
def test_the_base_with_or_without_its_version(home: Home, variable: str) -> None:
    for ending in ("", "/", "/v1", "/v1/"):
        env = {"ANTHROPIC_API_KEY": KEY, variable: f"http://127.0.0.1:9/here{ending}"}
        run = home.run("--dry-run", "-o", "json", "-m", SONNET, "hi", env=env)
        assert json.loads(run.stdout)["url"] == "http://127.0.0.1:9/here/v1/messages"
