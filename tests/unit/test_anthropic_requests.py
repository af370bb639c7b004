"""The Anthropic Messages dialect: what goes out. Whatever is built here the strict server would take."""

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import context
from gptsh.core.context import Room
from gptsh.core.messages import Tool
from gptsh.core.providers import PROVIDERS
from gptsh.core.settings import load, provider_of
from gptsh.core.tokens import Count
from gptsh.core.turn import Request
from gptsh.errors import ModelError, UsageError
from gptsh.llm import routes
from gptsh.llm.anthropic import Messages, body
from gptsh.llm.anthropic_schema import narrowed
from gptsh.llm.parameters import fit
from tests.support.anthropic_server import Refused, check, marks, prefixes, prompt, signature
from tests.support.claude import CLOSED, KEY, LATEST, OPEN, OPUS, PNG, SONNET, bare, call, image, parts, thinking

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}


def route(model: str = SONNET, **environ: str) -> routes.Route:
    provider, name = provider_of(load({"ANTHROPIC_API_KEY": KEY, **environ}), model)
    return routes.route(provider, name, provider.wire, provider.key, ())


def sent(*messages: Any, model: str = SONNET, params: Any = None, without: Any = (), **more: Any) -> dict[str, Any]:
    """The body for these messages, as a context sends them; the strict server would take it."""
    size = Count(1, 1, 1, anchored=False)
    built = context.build(messages, more.pop("system", None), size, Room(None)).messages
    made = body(Request(model, built, params or {}, **more), route(model), without)
    check(made, HEADERS)
    return made


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def answer(content: Any, model: str = SONNET, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "provider": model.partition("/")[0], "model": model, **more}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def note(what: str, name: str = "") -> dict[str, str]:
    return {"type": "text", "text": f"{name}[gptsh: {what}, not sent: this API does not take it]"}


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "text", "text": "x", "source": "stdin"}, {"type": "text", "text": "x"}),
        ({"type": "text", "text": "x", "source": "a.txt"}, {"type": "text", "text": "a.txt:\nx"}),
        (image(f"data:image/png;base64,{PNG}"),
         {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}),
        (image("https://a.test/x.png"), {"type": "image", "source": {"type": "url", "url": "https://a.test/x.png"}}),
        (image("http://a.test/x.png"), note("image, http://a.test/x.png", "a.png:\n")),
        (image(f"data:image/tiff;base64,{PNG}"), note("image/tiff, 8 bytes", "a.png:\n")),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": PNG}},
         {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": PNG}}),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
         {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
          "title": "a.pdf"}),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "facts"}, "title": "t",
          "context": "c", "citations": {"enabled": True}},
         {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "facts"}, "title": "t",
          "context": "c", "citations": {"enabled": True}}),
        ({"type": "document", "source": {"type": "url", "url": "https://a.test/a.pdf"}},
         {"type": "document", "source": {"type": "url", "url": "https://a.test/a.pdf"}}),
        ({"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}, note("audio/wav, 8 bytes")),
        ({"type": "hologram", "of": "me"}, note("hologram")),
    ],
)  # fmt: skip
def test_parts_of_a_question(part: dict[str, Any], block: dict[str, Any]) -> None:
    assert bare(sent(user({"type": "text", "text": "words"}, part)))[0][1][1] == block


SIGNED = [thinking("hm", signature("hm")), {"type": "redacted_thinking", "data": "xyz"}]
ONE_CALL = [call("c1", "ls", '{"a":1}')]


@pytest.mark.parametrize(
    ("reply", "blocks"),
    [
        (answer("hi"), parts("hi")),
        (answer(" hi \n"), parts(" hi \n")),
        (answer(parts("a", "\n\n", "b")), parts("a\n\nb")),
        (answer("", refusal="No."), parts("No.")),
        (answer("hi", thinking=[*SIGNED, thinking("cut")]), [*SIGNED, *parts("hi")]),
        (answer("hi", OPUS, thinking=SIGNED), parts("hi")),
        (answer("hi", "openai/gpt-4.1", thinking=SIGNED), parts("hi")),
        (answer(parts("a", "b"), thinking=[thinking("x", signature("x"))], order=["thinking:0", "text:0", "text:1"]),
         [thinking("x", signature("x")), *parts("ab")]),
        (answer("a", replay={"blocks": [{"type": "server_tool_use", "id": "s", "name": "w", "input": {}}]},
                finish_reason="error"), parts("a")),
        (answer([*parts("a"), {"type": "server_tool_use", "id": "s", "name": "w", "input": {}}]),
         [*parts("a"), {"type": "server_tool_use", "id": "s", "name": "w", "input": {}}]),
        (answer([*parts("a"), {"type": "server_tool_use", "id": "s"}], "openai/gpt-4.1"),
         [*parts("a"), {"type": "text", "text": "[gptsh: server_tool_use, not sent: this API does not take it]"}]),
    ],
)  # fmt: skip
def test_answers_as_they_go_back(reply: dict[str, Any], blocks: list[dict[str, Any]]) -> None:
    assert bare(sent(user("q"), reply, user("and?")))[1] == ("assistant", blocks)


def test_blocks_go_back_in_their_order() -> None:
    first, second = thinking("1", signature("1")), thinking("2", signature("2"))
    reply = answer(parts("a", "b"), thinking=[first, second], tool_calls=[call("c1", "x", "{}"), call("c2", "y", "{}")],
                   order=["thinking:0", "text:0", "tool_call:0", "thinking:1", "text:1", "tool_call:1"])  # fmt: skip
    made = bare(sent(user("q"), reply, result("c1", "r1"), result("c2", "r2"), params={"reasoning_effort": "low"}))
    assert [block["type"] for block in made[1][1]] == ["thinking", "text", "tool_use", "thinking", "text", "tool_use"]
    assert [block["content"] for block in made[2][1]] == ["r1", "r2"]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"a":1}', {"a": 1}), ("", {}), (" ", {}),
        *((text, {"arguments": text}) for text in ("{oops", "[1]", '"x"', '{"a":NaN,"b":1e999}')),
    ],
)  # fmt: skip
def test_arguments_become_an_object(arguments: str, value: dict[str, Any]) -> None:
    made = bare(sent(user("q"), answer("", tool_calls=[call("c1", "ls", arguments)]), result("c1", "ok")))
    assert made[1][1] == [{"type": "tool_use", "id": "c1", "name": "ls", "input": value}]


@pytest.mark.parametrize(
    ("content", "failed", "block"),
    [
        ("out", False, "out"),
        ("", False, "(no output)"),
        (parts("a", "b"), False, "ab"),
        ("bad", True, "bad"),
        ([*parts("a"), image(f"data:image/png;base64,{PNG}")], False,
         [*parts("a"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]),
        ([image(f"data:image/png;base64,{PNG}")], True, note("image/png, 8 bytes", "a.png:\n")["text"]),
    ],
)  # fmt: skip
def test_results_of_tools(content: Any, failed: bool, block: Any) -> None:
    made = bare(sent(user("q"), answer("", tool_calls=ONE_CALL), result("c1", content, is_error=failed)))
    assert made[2][1] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": block, **({"is_error": True} if failed else {})}
    ]


def test_results_and_the_next_question_are_one_message() -> None:
    calls = [call("c1", "ls", "{}"), call("c2", "ls", "{}")]
    made = bare(sent(user("q"), answer("", tool_calls=calls), result("c2", "second"), user("and?")))
    kinds = [(part["type"], part.get("is_error", False)) for part in made[2][1]]
    assert kinds == [("tool_result", True), ("tool_result", False), ("text", False)]
    assert [role for role, _ in made] == ["user", "assistant", "user"]


def test_ids_of_calls_are_of_few_characters_and_stand_once() -> None:
    odd = [call("functions.ls:0", "a.b", "{}"), call("functions_ls_0", "ls", "{}"), call("ünï", "ls", "{}")]
    turns = [
        message
        for _ in range(2)
        for message in (
            user("q"),
            answer("x", "openai/gpt-4.1", tool_calls=odd),
            *(result(c["id"], c["id"]) for c in odd),
            answer("y"),
        )
    ]
    made = bare(sent(*turns, user("last")))
    uses = [part for _, content in made for part in content if part["type"] == "tool_use"]
    results = [part for _, content in made for part in content if part["type"] == "tool_result"]
    assert [part["id"] for part in uses] == [part["tool_use_id"] for part in results]
    assert [part["content"] for part in results] == [c["id"] for c in odd] * 2
    assert uses[0]["name"] == "a_b"
    before = bare(sent(*turns[: len(turns) // 2], user("q")))
    assert made[: len(before)] == before  # what was sent once is not sent otherwise later


def test_what_was_added_to_a_call_goes_back_to_whom_it_came_from() -> None:
    made = [
        bare(sent(user("q"), answer("", model, tool_calls=[{**ONE_CALL[0], "caller": {"type": "direct"}}])))[1][1][0]
        for model in (SONNET, "openai/gpt-4.1")
    ]
    assert [part.get("caller") for part in made] == [{"type": "direct"}, None]


def test_a_conversation_that_an_answer_begins_or_ends() -> None:
    assert bare(sent(answer("hello"), user("hi")))[0] == ("user", parts("(no question)"))
    assert bare(sent(user("q"), answer("so: \n")))[-1] == ("assistant", parts("so:"))


def test_blank_messages_vanish() -> None:
    made = bare(sent(user("q"), answer("a"), user("  \n"), answer(" "), user("r")))
    assert made == [("user", parts("q")), ("assistant", parts("a")), ("user", parts("r"))]


def test_tools_are_offered_and_those_of_before_are_named_where_none_are() -> None:
    offered = (Tool("ls", "List.", {"type": "object", "properties": {"p": {"type": "string"}}}),)
    made = sent(user("q"), tools=offered)
    schema = {"type": "object", "properties": {"p": {"type": "string"}}}
    assert made["tools"][0] | {"cache_control": 0} == {
        "name": "ls", "description": "List.", "input_schema": schema, "cache_control": 0
    }  # fmt: skip
    before = sent(user("q"), answer("", tool_calls=ONE_CALL), result("c1", "x"), user("r"), system="Brief.")
    assert before["tools"] == [{"name": "ls", "input_schema": {"type": "object"}}]
    assert before["tool_choice"] == {"type": "none"}


def a_schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"properties": properties} | ({"required": list(required)} if required else {})


TEXT, COUNT = {"type": "string"}, {"type": "integer"}
NEEDS_ONE = {"anyOf": [{"required": ["route"]}, {"required": ["file"]}]}


@pytest.mark.parametrize(
    ("schema", "sent_as", "rest"),
    [
        ({"title": "t"}, {"type": "object", "title": "t"}, None),
        ({"properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}, None),
        ({"type": ["object", "null"], "title": "t"}, {"type": "object", "title": "t"}, None),
        ({"type": "object", **a_schema(route=TEXT, file=TEXT), **NEEDS_ONE},
         {"type": "object", **a_schema(route=TEXT, file=TEXT)}, NEEDS_ONE),
        ({"oneOf": [a_schema("kind", "a", kind={"const": "x"}, a=TEXT),
                    a_schema("kind", "b", kind={"const": "y"}, b=TEXT),
                    a_schema("kind", kind={"const": "x"}, a=TEXT)]},
         {"type": "object", **a_schema("kind", kind={"anyOf": [{"const": "x"}, {"const": "y"}]}, a=TEXT, b=TEXT)}, ...),
        ({**a_schema("a", a=TEXT), "allOf": [a_schema("b", b=COUNT), {"anyOf": [a_schema("c", c=TEXT), True]}, 7],
          "additionalProperties": False},
         {"type": "object", **a_schema("a", "b", a=TEXT, b=COUNT, c=TEXT), "additionalProperties": False}, ...),
        ({"$defs": {"n": a_schema("a", a=TEXT), "loop": {"oneOf": [{"$ref": "#/$defs/loop"}]}},
          "anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/loop"}, {"$ref": "https://a.test/x"}]},
         {"type": "object", **a_schema(a=TEXT), "$defs": ...}, ...),
        ({"$defs": {"l": {"anyOf": [{"$ref": "#/$defs/l"}] * 20, **a_schema(a=TEXT)}}, "oneOf": [{"$ref": "#/$defs/l"}],
          "anyOf": [{"$ref": "#/$defs/l"}] * 20},
         {"type": "object", **a_schema(a=TEXT), "$defs": ...}, ...),
        ({"anyOf": None, "properties": [], "required": 5}, {"type": "object", "properties": {}}, ...),
    ],
)  # fmt: skip
def test_choices_at_the_top_of_a_tools_schema_are_folded_and_told(schema: Any, sent_as: Any, rest: Any) -> None:
    rest = {key: schema[key] for key in ("allOf", "anyOf", "oneOf") if key in schema} if rest is ... else rest
    if "$defs" in sent_as:
        sent_as = sent_as | {"$defs": schema["$defs"]}
    own = [{"type": "function", "function": {"name": "ls", "description": "Do.", "parameters": schema}}]
    for made in (sent(user("q"), tools=(Tool("ls", "Do.", schema),)), sent(user("q"), params={"tools": own})):
        (tool,) = made["tools"]
        before, _, told = tool["description"].partition("\n\nThe arguments must also conform to this JSON Schema: ")
        assert (before, json.loads(told or "null")) == ("Do.", rest)
        assert tool["input_schema"] == sent_as


def test_a_tool_of_the_servers_own_stays_as_it_is() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    made = body(Request(SONNET, [user("q")], {"tools": [search, "x"]}), route())
    assert made["tools"][0] == search


OPENAIS_TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("model", "params", "expected", "left_out"),
    [
        (SONNET, {"stop": "X"}, {"stop_sequences": ["X"]}, []),
        (SONNET, {"stop": ["X", "Y"]}, {"stop_sequences": ["X", "Y"]}, []),
        (SONNET, {"max_completion_tokens": 7}, {"max_tokens": 7}, []),
        (SONNET, {"temperature": 0.5, "top_k": 3}, {"temperature": 0.5, "top_k": 3}, []),
        (SONNET, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, ["top_p beside temperature"]),
        (SONNET, {"temperature": 1.7, "top_p": 0.9}, {"top_p": 0.9}, ["temperature above 1"]),
        (SONNET, {"temperature": 1.7, "reasoning_effort": "none"}, {}, ["temperature above 1"]),
        (SONNET, {"stop": " \n"}, {"stop_sequences": []}, ["blank stop sequence"]),
        (SONNET, {"stop": ["", "X"]}, {"stop_sequences": ["X"]}, ["blank stop sequence"]),
        (SONNET, {"stop_sequences": ["X", " "]}, {"stop_sequences": ["X"]}, ["blank stop sequence"]),
        (OPUS, {"temperature": 0.5, "top_k": 3}, {}, ["temperature", "top_k"]),
        (SONNET, {"seed": 1, "presence_penalty": 1, "metadata": {"user_id": "u"}}, {"metadata": {"user_id": "u"}},
         ["seed", "presence_penalty"]),
        (SONNET, {"reasoning_effort": "none", "temperature": 0.5}, {"temperature": 0.5}, []),
        (SONNET, {"reasoning_effort": "high", "temperature": 0.5, "top_p": 1},
         {"thinking": {"type": "enabled", "budget_tokens": 4096}}, ["temperature", "top_p"]),
        (SONNET, {"reasoning_effort": "low", "temperature": 1},
         {"thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 1}, []),
        (SONNET, {"reasoning_effort": "max", "max_tokens": 5000},
         {"thinking": {"type": "enabled", "budget_tokens": 2500}, "max_tokens": 5000}, []),
        (SONNET, {"reasoning_effort": "low", "max_tokens": 1024}, {"max_tokens": 1024}, ["reasoning_effort"]),
        (SONNET, {"reasoning_effort": "frantic"}, {}, ["reasoning_effort"]),
        (OPUS, {"reasoning_effort": "minimal"}, {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}, []),
        (OPUS, {"reasoning_effort": "xhigh"}, {"thinking": ADAPTIVE, "output_config": {"effort": "xhigh"}}, []),
        ("anthropic/claude-opus-4-6", {"reasoning_effort": "xhigh"},
         {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}, []),
        (OPUS, {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}, []),
        (LATEST, {"reasoning_effort": "none"}, {}, ["reasoning_effort"]),  # it always thinks
        ("anthropic/claude-newfamily-7", {"reasoning_effort": "high"},  # newer than the table
         {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}, []),
        (SONNET, {"thinking": {"type": "enabled", "budget_tokens": 2000}, "reasoning_effort": "high", "top_k": 1},
         {"thinking": {"type": "enabled", "budget_tokens": 2000}}, ["top_k"]),
        (SONNET, {"tools": [OPENAIS_TOOL], "tool_choice": "required"},
         {"tools": [{"name": "ls", "input_schema": OPENAIS_TOOL["function"]["parameters"]}],
          "tool_choice": {"type": "any"}}, []),
        (SONNET, {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
         {"tool_choice": {"type": "tool", "name": "ls"}}, []),
        (SONNET, {"tool_choice": "auto"}, {"tool_choice": {"type": "auto"}}, []),
        (SONNET, {"tool_choice": {"type": "tool", "name": "ls"}}, {"tool_choice": {"type": "tool", "name": "ls"}}, []),
        (LATEST, {"tool_choice": "required"}, {}, ["tool_choice"]),  # it cannot be forced
        (SONNET, {"tool_choice": "required", "reasoning_effort": "low"},
         {"thinking": {"type": "enabled", "budget_tokens": 1024}}, ["tool_choice"]),
    ],
)  # fmt: skip
def test_parameters(model: str, params: dict[str, Any], expected: dict[str, Any], left_out: list[str]) -> None:
    fitted = fit(params, "anthropic", model.partition("/")[2], PROVIDERS["anthropic"])
    assert (fitted.sent, fitted.left_out) == (expected, left_out)
    if not {"tools", "tool_choice"} & set(expected):
        sent(user("q"), model=model, params=params)


@pytest.mark.parametrize(
    ("model", "params", "limit"),
    [
        (SONNET, {}, 50_000),  # a quarter of its window
        (OPUS, {}, 128_000),  # what it can say
        ("anthropic/unheard-of", {}, 4096),
        ("anthropic/unheard-of", {"reasoning_effort": "max"}, 16384 + 1024),
        (SONNET, {"max_tokens": 9}, 9),
    ],
)
def test_an_answer_always_has_a_limit(model: str, params: dict[str, Any], limit: int) -> None:
    assert sent(user("q"), model=model, params=params)["max_tokens"] == limit


def test_thinking_is_left_off_where_the_last_call_came_without_it() -> None:
    turns = [user("q"), answer("", "openai/gpt-4.1", tool_calls=ONE_CALL), result("c1", "x"), user("r")]
    assert "thinking" not in sent(*turns, params={"reasoning_effort": "high"})
    assert "thinking" in sent(*turns, answer("so"), user("s"), params={"reasoning_effort": "high"})


EFFORT = {"reasoning_effort": "low"}
FIRST, SECOND = thinking("hm", signature("hm")), thinking("so", signature("so"))


def kinds(made: dict[str, Any]) -> list[list[str]]:
    return [[part["type"] for part in content] for _, content in bare(made)]


def test_thinking_goes_on_in_a_loop_that_began_with_a_thought_and_needs_no_other() -> None:
    loop = [user("q"), answer("", thinking=[FIRST], tool_calls=ONE_CALL), result("c1", "x"),
            answer("", tool_calls=[call("c2", "ls", "{}")]), result("c2", "y")]  # fmt: skip
    made = sent(*loop, params=EFFORT)
    assert made["thinking"]["budget_tokens"] == 1024
    assert kinds(made)[1:] == [["thinking", "tool_use"], ["tool_result"], ["tool_use"], ["tool_result"]]


def test_a_loop_that_goes_on_without_thinking_has_no_thoughts() -> None:
    before = [user("p"), answer("a", thinking=[FIRST])]
    began = [user("q"), answer("", thinking=[FIRST], tool_calls=ONE_CALL), result("c1", "x")]
    assert kinds(sent(*before, *began))[1::2] == [["thinking", "text"], ["tool_use"]]
    other = [user("q"), answer("", OPUS, tool_calls=ONE_CALL), result("c1", "x"),
             answer("", thinking=[SECOND], tool_calls=[call("c2", "ls", "{}")]), result("c2", "y")]  # fmt: skip
    made = sent(*before, *other, params=EFFORT)
    assert "thinking" not in made
    assert kinds(made)[1::2] == [["thinking", "text"], ["tool_use"], ["tool_use"]]
    mine = [{**message, "model": LATEST} if message["role"] == "assistant" else message for message in began]
    assert kinds(sent(*mine, model=LATEST))[1] == ["thinking", "tool_use"]  # it thinks unasked
    off = sent(*[{**m, "model": OPUS} if m["role"] == "assistant" else m for m in began], model=OPUS,
               params={"reasoning_effort": "none"})  # fmt: skip
    assert (off["thinking"], kinds(off)[1]) == ({"type": "disabled"}, ["tool_use"])


@pytest.mark.parametrize(
    "said",
    [
        "messages.1.content.0: When thinking is disabled, an `assistant` message in the final position cannot contain "
        "`thinking`. To use thinking blocks, enable `thinking` in your request.",
        "messages.1: The final block in an assistant message cannot be `thinking`.",
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` "
        "is enabled, a final `assistant` message must start with a thinking block",
        "messages.5.content.0: If an assistant message contains any thinking blocks, the first block must be "
        "`thinking` or `redacted_thinking`. Found `text`.",
        "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
        "modified.",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ],
)
def test_every_refusal_of_a_thought_is_known(said: str) -> None:
    asked = Request(SONNET, [user("q"), answer("a", thinking=[FIRST]), user("r")], {})
    dialect, err = Messages(), ModelError("x", detail=json.dumps({"error": {"message": said}}))
    err.status = 400
    assert dialect.learns(err, asked, route())
    assert kinds(dialect.body(asked, route()))[1] == ["text"]


@pytest.mark.parametrize(
    ("reply", "blocks"),
    [
        (answer(" ", thinking=[FIRST]), None),
        (answer("a", thinking=[FIRST], order=["text:0", "thinking:0"]), parts("a")),
        (answer(parts("a", " "), thinking=[FIRST, SECOND], order=["thinking:0", "text:0", "thinking:1", "text:1"]),
         [FIRST, *parts("a")]),
        (answer("", refusal="No.", thinking=[FIRST]), [FIRST, *parts("No.")]),
        (answer(parts("a", "b"), thinking=[FIRST], order=["text:0", "thinking:0", "text:1"]), parts("a", "b")),
        (answer("a", thinking=[{"type": "thinking", "thinking": 5, "signature": "s"}]), parts("a")),
        (answer("a", replay={"blocks": [{"type": "server_tool_use", "id": "s", "name": "w", "input": {}},
                                        *parts("a"), FIRST, {}]}),
         [{"type": "server_tool_use", "id": "s", "name": "w", "input": {}}, *parts("a")]),
        (answer([*parts("a"), {}]), [*parts("a"), note("a part")]),
    ],
)  # fmt: skip
def test_no_answer_ends_in_a_thought(reply: Any, blocks: Any) -> None:
    made = bare(sent(user("q"), reply, user("and?")))
    expected = [("user", parts("q", "and?"))] if blocks is None else [("user", parts("q")), ("assistant", blocks)]
    assert made[: len(expected)] == expected


@pytest.mark.parametrize(
    ("schema", "said_as"),
    [
        (CLOSED, CLOSED),
        (OPEN, CLOSED),
        ({"type": "integer", "minimum": 3}, {"type": "integer"}),
        ({"oneOf": [OPEN, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": OPEN}},
         {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": CLOSED}}),
        ({"type": "object"}, None),
        ({"type": "object", "additionalProperties": {"type": "string"}}, None),
        ({**OPEN, "additionalProperties": True}, None),
        ({"allOf": [OPEN]}, None),
        ({"type": "object", "properties": {"any": True}}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_schema_as_the_api_takes_it(schema: dict[str, Any], said_as: dict[str, Any] | None) -> None:
    assert narrowed(schema) == said_as
    made = sent(user("q"), schema=schema)
    told = json.dumps(made.get("system") or "")
    assert (json.dumps(json.dumps(schema))[1:-1] in told) == (schema != said_as)  # in words what the field cannot say
    assert made.get("output_config", {}).get("format", {}).get("schema") == said_as


# ---- any session


IDS = st.sampled_from(["c1", "c2", "a.b", "a_b", "", "ü", "x" * 70])
WORDS = st.sampled_from(["hi", " ", "", "\n\n", "a \n", "\ud83d", "long " * 20])
PARTS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, WORDS),
    st.builds(lambda text: {"type": "text", "text": text, "source": "f.txt"}, WORDS),
    st.sampled_from([image(f"data:image/png;base64,{PNG}"), image("http://x.test"), {"type": "odd"}, {},
                     {"type": "tool_result", "tool_use_id": "c1", "content": "x"},
                     {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": " "}}]),
)  # fmt: skip
CONTENT = WORDS | st.lists(PARTS, max_size=3)
ORDER = st.permutations(["thinking:0", "text:0", "tool_call:0", "thinking:1", "text:1"]).flatmap(
    lambda keys: st.integers(0, 5).map(lambda most: keys[:most])
)
THINKING = st.lists(st.sampled_from([*SIGNED, thinking("unsigned"), thinking("", signature(""))]), max_size=2)
CALLS = st.lists(
    st.builds(call, IDS, st.sampled_from(["ls", "a.b", ""]), st.sampled_from(["{}", "", "{x", "[1]"])), max_size=3,
)  # fmt: skip
TURNS = st.lists(
    st.one_of(
        st.builds(user, CONTENT),
        st.builds(lambda content, model, thoughts, calls, order: answer(content, model, thinking=thoughts,
                                                                        tool_calls=calls, order=order),
                  WORDS | st.lists(st.builds(lambda text: {"type": "text", "text": text}, WORDS), max_size=3),
                  st.sampled_from([SONNET, SONNET, OPUS, "openai/gpt-4.1"]), THINKING, CALLS, ORDER),
        st.builds(result, IDS, CONTENT, is_error=st.booleans()),
    ),
    max_size=8,
)  # fmt: skip


@given(
    TURNS,
    st.sampled_from([{}, {"reasoning_effort": "high"}, {"reasoning_effort": "none"}]),
    st.sampled_from([(), ("thinking",), ("marks",)]),
)
def test_whatever_a_session_holds_is_sent_in_a_form_that_is_taken(turns: Any, params: Any, without: Any) -> None:
    made = sent(*turns, user("last"), params=params, without=without)
    assert made["messages"][-1]["content"][-1]["text"] == "last"
    assert len(marks(made)) <= 4
    with suppress(UsageError):  # a last question that says nothing is not asked
        sent(user("first"), *turns, params=params, without=without)  # it may end with an answer, or behind results


# ---- the cache


def test_a_first_question_alone_is_not_marked() -> None:
    assert marks(sent(user("q"), system="Brief.")) == []
    assert marks(sent(user("q"), system="Brief.", tools=(Tool("ls", "", {"type": "object"}),))) == [1, 2]


def test_what_is_marked_in_one_turn_is_the_beginning_of_the_next() -> None:
    tools = (Tool("ls", "", {"type": "object"}),)
    thought_of = [thinking("hm", signature("hm"))]
    turns = [
        user("one"), answer("1", thinking=thought_of, tool_calls=ONE_CALL), result("c1", "files"), answer("so"),
        user(*parts("two", "and more")), answer("2", thinking=thought_of), user("three"),
    ]  # fmt: skip
    thinks = {"reasoning_effort": "low"}
    bodies = [sent(*turns[:end], system="Brief.", tools=tools, params=thinks) for end in (1, 3, 5, 7)]
    for earlier, later in pairwise(bodies):
        assert len(marks(later)) <= 4
        ends = set(prefixes(earlier)) & set(prefixes(later))
        assert max(ends, key=len) == max(prefixes(earlier), key=len)  # all that was kept is asked for again
        bare_of = [
            [{k: v for k, v in part.items() if k != "cache_control"} for part in prompt(b)] for b in (earlier, later)
        ]
        assert bare_of[1][: len(bare_of[0])] == bare_of[0]
    assert all("thinking" not in prompt(b)[at]["type"] for b in bodies for at in marks(b) if "type" in prompt(b)[at])


# ---- the dialect as it learns


def test_only_what_was_asked_for_can_be_left_out() -> None:
    dialect, where = Messages(), route()
    err = ModelError("x", detail="output_config.format.schema: cache_control: signature invalid")
    err.status = 400
    plain = Request(SONNET, [{"role": "user", "content": "q"}], {})
    assert not dialect.learns(err, plain, where)
    fresh = Messages()
    assert fresh.learns(err, plain._replace(schema=CLOSED), where)
    assert not fresh.learns(err, plain._replace(schema=CLOSED), where)  # not twice
    err.status = 500
    assert not Messages().learns(err, plain._replace(schema=CLOSED), where)


@pytest.mark.parametrize(
    ("said", "is_of_schema"),
    [
        ("output_config.format.schema: For 'object' type, 'additionalProperties' must be set to false", True),
        ("output_format: Extra inputs are not permitted", True),
        ("'claude-3-haiku' does not support output format.", True),
        ("The compiled grammar is too large, which would cause performance issues.", True),
        ("tools.9.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12", False),
        ("tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level", False),
        ("the output is a schema", False),
    ],
)
def test_only_a_refusal_of_the_answers_schema_puts_it_into_words(said: str, is_of_schema: bool) -> None:
    err = ModelError("x", detail=json.dumps({"error": {"message": said}}))
    err.status = 400
    asked = Request(SONNET, [user("q")], {}, schema=CLOSED)
    assert Messages().learns(err, asked, route()) is is_of_schema


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"])
@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_the_base_with_or_without_its_version(variable: str, ending: str) -> None:
    where = route(**{variable: f"http://127.0.0.1:9/here{ending}"})
    assert Messages().url(where) == "http://127.0.0.1:9/here/v1/messages"
    assert where.provider.own_base
    usual = route(**{variable: f"https://api.anthropic.com{ending}"})
    assert Messages().url(usual) == Messages().url(route()) == "https://api.anthropic.com/v1/messages"
    assert not usual.provider.own_base


# ---- the strict server


GOOD: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": parts("q")}]}
USE = {"type": "tool_use", "id": "c1", "name": "ls", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "x"}
LS = {"name": "ls", "input_schema": {"type": "object"}}
THINKS: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}


def asked(*contents: Any, **more: Any) -> dict[str, Any]:
    """A good request but for these contents of its messages, and these fields."""
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": content} for at, content in enumerate(contents)]
    return {**GOOD, **({"messages": said} if contents else {}), **more}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (asked(max_tokens=None), "max_tokens"),
        (asked(seed=1), "seed: Extra inputs"),
        (asked(temperature=1.1), "range"),
        (asked(temperature=1, top_p=1), "cannot both"),
        (asked(stop_sequences=["x", "\n"]), "non-whitespace"),
        (asked(messages=[{"role": "assistant", "content": parts("a")}]), "roles must alternate"),
        (asked(messages=[*GOOD["messages"], *GOOD["messages"]]), "roles must alternate"),
        (asked(parts(" ")), "non-whitespace"),
        (asked(parts("q"), parts("a ")), "trailing whitespace"),
        (asked(parts("q"), [USE], tools=[LS]), "without `tool_result`"),
        (asked(parts("q"), [USE], parts("r"), tools=[LS]), "without `tool_result`"),
        (asked(parts("q"), [USE], [RESULT]), "must define tools"),
        (asked(parts("q"), [USE], [*parts("r"), RESULT], tools=[LS]), "must come first"),
        (asked([RESULT]), "unexpected `tool_use_id`"),
        (asked(parts("q"), [USE], [RESULT, RESULT], tools=[LS]), "a single result"),
        (asked(parts("q"), [USE], [RESULT], [USE], [RESULT], tools=[LS]), "must be unique"),
        (asked(parts("q"), [{**USE, "input": "x"}], [RESULT], tools=[LS]), "valid dictionary"),
        (asked(parts("q"), [{**USE, "id": "a.b"}], [RESULT], tools=[LS]), "match pattern"),
        (asked(parts("q"), [thinking("a"), *parts("a")], parts("r")), "Invalid `signature`"),
        (asked(parts("q"), [thinking("a", signature("b")), *parts("a")], parts("r")), "Invalid `signature`"),
        (asked(parts("q"), [*parts("a"), thinking("a", signature("a"))], parts("r")), "first block must be"),
        (
            asked([{"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": PNG}}]),
            "Input sho",
        ),
        (asked([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}]), "base64"),
        (asked([{**part, "cache_control": {"type": "ephemeral"}} for part in parts(*"abcde")]), "maximum of 4"),
        (asked(parts("q"), [{**thinking("a", signature("a")), "cache_control": {}}]), "cache_control"),
        (
            asked(parts("q"), [thinking("a", signature("a")), *parts("a"), {"type": "redacted_thinking", "data": "x"}]),
            "cannot be `redacted_thinking`",
        ),
        (
            asked(
                parts("q"),
                [USE],
                [RESULT],
                [FIRST, {**USE, "id": "c2"}],
                [{**RESULT, "tool_use_id": "c2"}],
                tools=[LS],
                **THINKS,
            ),
            "Expected `thinking`",
        ),
        (asked(parts("q"), [FIRST, USE], [RESULT], tools=[LS]), "thinking is disabled"),
        (asked(tools=[{**LS, "input_schema": {"type": "object", "anyOf": []}}]), "at the top level"),
        (asked(thinking={"type": "adaptive"}, temperature=0.5), "temperature"),
        (asked(thinking={"type": "enabled", "budget_tokens": 1024}), "greater than"),
    ],
)
def test_the_strict_server_refuses(made: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        check(made, HEADERS)
    check(GOOD, HEADERS)


@pytest.mark.parametrize("missing", sorted(HEADERS))
def test_the_strict_server_wants_key_and_version(missing: str) -> None:
    with pytest.raises(Refused, match=missing):
        check(GOOD, {name: value for name, value in HEADERS.items() if name != missing})
