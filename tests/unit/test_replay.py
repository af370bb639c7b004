"""What of a session is sent again: reasoning to whom it belongs, ids that fit, broken turns made whole."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import calls, context
from gptsh.core.calls import NINE_ID, OPENAI_ID, WORD_ID, IdShape
from gptsh.core.context import Room
from gptsh.core.flat import one_text
from gptsh.core.messages import ToolCall, Verbatim
from gptsh.core.providers import OWN, PROVIDERS, Endpoint
from gptsh.core.settings import Network, Provider
from gptsh.core.tokens import Count, estimate, of_message
from gptsh.core.turn import Request, Round
from gptsh.errors import ModelError
from gptsh.llm import ollama
from gptsh.llm.chat_completions import body
from gptsh.llm.chat_stream import read_stream, read_whole
from gptsh.llm.litellm_bridge import arguments
from gptsh.llm.routes import Route
from tests.support.home import Home
from tests.support.server import Cut, ModelServer, chunk, event
from tests.support.strict import strict

DONE = event(b"[DONE]")
NO_SIZE = Count(0, 0, 0, anchored=False)
NO_RESULT = "error: this tool call was interrupted and has no result"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, arguments: Any = "{}", name: Any = "ls", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def asks(*made: dict[str, Any], content: Any = None, **more: Any) -> dict[str, Any]:
    """An answer that calls tools."""
    return {"role": "assistant", "content": content, "tool_calls": list(made), **more}


def gives(call_id: Any, content: Any = "out", **more: Any) -> dict[str, Any]:
    """A tool's result."""
    named = {} if call_id is None else {"tool_call_id": call_id}
    return {"role": "tool", "content": content, **named, **more}


LAB = {"provider": "lab", "model": "lab/m"}


def user(content: Any = "q") -> dict[str, Any]:
    return {"role": "user", "content": content}


def says(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def built(*messages: Any, system: str | None = None) -> list[Any]:
    """What is sent of a session, whoever it is sent to."""
    return list(context.build(messages, system, NO_SIZE, Room(None)).messages)


def sent(*messages: Any, provider: str = "lab", endpoint: Endpoint = OWN, system: str | None = None) -> list[Any]:
    """The same in the chat completions dialect."""
    request = Request(f"{provider}/m", built(*messages, system=system), {})
    said = body(request, "m", endpoint, provider=provider, stream_options=False)["messages"]
    json.dumps(said)
    return list(said)


# ---- reasoning in pieces


def details_in(stream: list[Any]) -> Any:
    found = [e.value for e in read_stream([*map(event, stream), DONE]) if isinstance(e, Verbatim)]
    return found[0] if found else None


def piece(**keys: Any) -> dict[str, Any]:
    return chunk({"reasoning_details": [keys]})


TEXT, SUMMARY, CODED = "reasoning.text", "reasoning.summary", "reasoning.encrypted"


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        pytest.param(
            [{"type": TEXT, "text": "Let", "index": 0, "signature": None}, {"type": TEXT, "text": " me", "index": 0},
             {"type": TEXT, "signature": "s", "index": 0, "format": "f"}],
            [{"type": TEXT, "text": "Let me", "index": 0, "signature": "s", "format": "f"}],
            id="a block with its signature at the end",
        ),
        pytest.param(
            [{"type": TEXT, "text": "a", "index": 0}, {"type": TEXT, "text": "b", "index": 1}],
            [{"type": TEXT, "text": "a", "index": 0}, {"type": TEXT, "text": "b", "index": 1}],
            id="two blocks by number",
        ),
        pytest.param(
            [{"type": SUMMARY, "summary": "a", "index": 0}, {"type": SUMMARY, "summary": "b", "index": 0},
             {"type": CODED, "data": "x", "id": "rs_1", "index": 0}],
            [{"type": SUMMARY, "summary": "ab", "index": 0}, {"type": CODED, "data": "x", "id": "rs_1", "index": 0}],
            id="another type is another block",
        ),
        pytest.param(
            [{"type": CODED, "data": "x", "id": "c1"}, {"type": CODED, "data": "y", "id": "c2"}],
            [{"type": CODED, "data": "x", "id": "c1"}, {"type": CODED, "data": "y", "id": "c2"}],
            id="another id is another block",
        ),
        pytest.param(
            [{"type": CODED, "data": "x", "id": "c1"}, {"type": CODED, "data": "y"}],
            [{"type": CODED, "data": "xy", "id": "c1"}],
            id="an id at first",
        ),
        pytest.param([{"type": "new", "x": 1}, {"type": "new", "x": None}], [{"type": "new", "x": 1}], id="unknown"),
        pytest.param([{"type": TEXT, "text": None}], [{"type": TEXT, "text": None}], id="null"),
    ],
)  # fmt: skip
def test_pieces_of_reasoning_are_joined(pieces: list[dict[str, Any]], whole: Any) -> None:
    stream = [*(piece(**keys) for keys in pieces), chunk({"content": "x"}, "stop")]
    assert details_in(stream) == whole


def test_what_came_whole_is_kept_as_it_came() -> None:
    given_details = [{"type": TEXT, "text": "a"}, {"type": TEXT, "text": "b", "signature": None}]
    message = {"role": "assistant", "content": "x", "reasoning_details": given_details, "reasoning": "ab"}
    payload = {"choices": [{"message": message, "finish_reason": "stop"}]}
    turn = Round(read_whole(json.dumps(payload).encode()))
    list(turn)
    said: Any = turn.message()
    assert said["replay"] == {"reasoning": "ab", "reasoning_details": given_details}


def test_pieces_of_a_stream_that_broke_off_are_kept_as_far_as_they_came() -> None:
    stream = [event(piece(type=TEXT, text="a")), event(piece(type=TEXT, text="b"))]
    turn = Round(read_stream(stream))
    with pytest.raises(ModelError):
        list(turn)
    said: Any = turn.message("error")
    assert said["replay"] == {"reasoning": "ab", "reasoning_details": [{"type": TEXT, "text": "ab"}]}


@pytest.mark.parametrize("odd", [None, "x", 7, {}, ["x", None], [{}], [{"type": 3, "text": 4, "index": []}]])
def test_no_shape_of_pieces_makes_it_crash(odd: Any) -> None:
    delta = {"reasoning_details": odd, "annotations": odd, "extra_content": odd, "content": "x"}
    for read in (read_stream([event(chunk(delta)), event(chunk(delta, "stop"))]),
                 read_whole(json.dumps({"choices": [{"message": delta}]}).encode())):  # fmt: skip
        list(read)


@pytest.mark.parametrize(
    ("finish", "last", "kept"),
    [
        ("interrupted", {}, 1),
        ("error", {"signature": "s"}, 2),
        ("stop", {}, 2),
        ("timeout", {"type": CODED, "data": "x"}, 2),
    ],
)
def test_a_thought_that_broke_off_unsigned_does_not_go_back(finish: str, last: dict[str, Any], kept: int) -> None:
    cut = {"type": TEXT, "text": "b", **last}
    if cut["type"] == CODED:
        del cut["text"]
    replay = {"reasoning_details": [{"type": TEXT, "text": "a"}, cut]}
    answered = says("x", **LAB, replay=replay, finish_reason=finish)
    assert len(sent(user(), answered, user())[1]["reasoning_details"]) == kept


def configured(home: Home, model: ModelServer, *providers: str) -> dict[str, str]:
    """Such providers on the model server; their keys."""
    tables = "".join(f'[providers.{name}]\nbase_url = "{model.base_url}"\n' for name in providers)
    home.configure(f'{tables}[sessions]\ntitles = "off"\n')
    model.refuses = lambda _body: None  # the test reads it
    return {variable: "a-key" for name in providers for variable in PROVIDERS[name].key_vars[:1]}


def test_reasoning_in_pieces_goes_back_to_whom_it_came_from_and_is_shown_once(home: Home, model: ModelServer) -> None:
    env = configured(home, model, "openrouter", "groq")
    note = {"type": "file", "file": {"name": "a.pdf", "content": []}}
    model.script(
        event(chunk({"reasoning": "let ", "reasoning_details": [{"type": TEXT, "text": "let ", "index": 0}]})),
        event(chunk({"reasoning_details": [{"type": TEXT, "text": "me", "index": 0}]})),
        event(chunk({"reasoning_details": [{"type": TEXT, "signature": "s", "index": 0}]})),
        event(chunk({"content": "42", "annotations": [note, {"type": "url_citation"}], "unheard_of": 1})),
        event(chunk({"annotations": [note]}, "stop")),
        DONE,
    )
    assert home.run("-m", "openrouter/m", "why", env=env) == ("42\n", "let me\n", 0)
    whole = [{"type": TEXT, "text": "let me", "index": 0, "signature": "s"}]
    assert home.doc()["messages"][1]["replay"] == {
        "reasoning": "let me",
        "reasoning_details": whole,
        "annotations": [note],
    }
    for which in ("openrouter/m", "openrouter/n", "groq/m"):
        assert home.run("-s", f"{home.docs()[-1]['id']}@1", "-m", which, "and?", env=env).code == 0
    own, *foreign = (request["messages"][1] for request in model.sent[1:])
    assert own == {"role": "assistant", "content": "42", "reasoning_details": whole, "annotations": [note]}
    assert foreign == [{"role": "assistant", "content": "42"}] * 2


def test_reasoning_in_pieces_survives_a_connection_that_breaks(home: Home, model: ModelServer) -> None:
    env = configured(home, model, "openrouter")
    model.script(event(piece(type=TEXT, text="let me", index=0)), event(piece(type=TEXT, text="!", index=0)), Cut)
    run = home.run("-m", "openrouter/m", "why", env=env)
    assert (run.code, run.stderr.splitlines()[0]) == (1, "let me!")
    replay = home.doc()["messages"][1]["replay"]
    assert replay["reasoning_details"] == [{"type": TEXT, "text": "let me!", "index": 0}]


REQUESTS = {
    "chat": lambda asked: body(asked, "m", PROVIDERS["deepseek"], provider="lab", stream_options=False),
    "litellm": lambda asked: arguments(
        asked, Route(Provider("lab", OWN._replace(wire="litellm")), "m", "litellm"), Network()
    ),
    "ollama": lambda asked: {"messages": ollama.messages(asked.messages, "lab", asked.model)},
}


@pytest.mark.parametrize("wire", REQUESTS)
def test_what_a_model_signed_goes_to_no_other_model_of_its_provider(wire: str) -> None:
    made = call(LONG, extra_content={"google": {"thought_signature": "SIGNED"}})
    made["function"]["provider_specific_fields"] = {"thought_signature": "WITHIN"}
    replay = {
        "reasoning": "plain", "reasoning_details": [{"type": CODED, "data": "SIGNED"}],
        "extra_content": {"s": "SIGNED"}, "annotations": [{"type": "file", "hash": "SIGNED"}], "thinking": "SIGNED",
        "provider_specific_fields": {"thought_signatures": ["BESIDE"]},
    }  # fmt: skip
    thought = {"type": "thinking", "thinking": "hm", "signature": "SIGNED"}
    answered = asks(made, **LAB, replay=replay, thinking=[thought])
    asked = {
        name: json.dumps(REQUESTS[wire](Request(name, built(user(), answered, gives(LONG)), {}))["messages"])
        for name in ("lab/m", "m", "lab/n", "lab/deep/m")
    }
    assert asked["lab/m"] == asked["m"]
    assert "SIGNED" in asked["lab/m"]
    assert {"WITHIN" in asked["lab/m"], "BESIDE" in asked["lab/m"]} == {wire == "litellm"}
    for name in ("lab/n", "lab/deep/m"):
        assert not [word for word in ("SIGNED", "WITHIN", "BESIDE") if word in asked[name]]
        assert wire == "ollama" or LONG not in asked[name]
    assert ("plain" in asked["lab/n"]) == (wire == "chat")  # whose provider wants it under that name


def test_all_that_stands_in_a_call_and_its_function_is_kept() -> None:
    inside = {"name": "ls", "arguments": "{", "provider_specific_fields": {"thought_signature": "s"}, "own": None}
    deltas = [{"index": 0, "id": "c1", "function": inside, "extra": 1}, {"index": 0, "function": {"arguments": "}"}}]
    stream = [event(chunk({"tool_calls": [delta]})) for delta in deltas]
    (kept,) = [e.call for e in read_stream([*stream, event(chunk({}, "stop"))]) if isinstance(e, ToolCall)]
    assert kept == {"id": "c1", "type": "function", "function": {**inside, "arguments": "{}"}, "extra": 1}


def test_the_signature_of_an_answer_without_calls_goes_back(home: Home, model: ModelServer) -> None:
    env = configured(home, model, "openrouter")
    signature = {"google": {"thought_signature": "c2ln"}}
    model.script(event(chunk({"content": "42"})), event(chunk({"extra_content": signature}, "stop")), DONE)
    home.run("-m", "openrouter/m", "why", env=env)
    home.run("-s", "0", "and?", env=env)
    assert model.sent[1]["messages"][1] == {"role": "assistant", "content": "42", "extra_content": signature}


def test_pieces_that_go_back_are_counted() -> None:
    details = [{"type": TEXT, "text": "long " * 50}, {"type": CODED, "data": "abcd" * 50}, {"type": SUMMARY}]
    more = of_message(says("x", replay={"reasoning_details": details})) - of_message(says("x"))  # type: ignore[arg-type]
    assert more == estimate("long " * 50) + estimate("abcd" * 50)


# ---- ids

IDS = st.lists(st.text("aB1_-. é\ud800", max_size=50) | st.sampled_from(["c1", "c1_2", "abcdefghi", "x" * 41, ""]))


@given(IDS, st.sampled_from([OPENAI_ID, WORD_ID, NINE_ID]))
def test_ids_that_are_made_fit_and_differ_and_those_that_fit_stay(ids: list[str], shape: IdShape) -> None:
    found = calls.fitting(ids, shape)
    assert all(re.fullmatch(shape.pattern, made) for made in found.values())
    assert len(set(found.values())) == len(set(ids)) == len(found)
    seen: set[str] = set()
    for own in ids:
        if re.fullmatch(shape.pattern, own) and own not in seen:
            assert found[own] == own
        seen |= {own, found[own]}
    for end in range(len(ids)):  # a prompt that grows keeps its beginning
        assert calls.fitting(ids[:end], shape).items() <= found.items()


def test_an_id_that_another_became_is_not_given_twice() -> None:
    (made,) = calls.fitting(["c1"], NINE_ID).values()
    assert calls.fitting(["c1", made], NINE_ID)[made] != made
    assert calls.fitting([made, "c1"], NINE_ID)[made] == made


@given(IDS)
def test_every_call_has_an_id_of_its_own(ids: list[str]) -> None:
    unique = calls.Unique()
    given_ids = [unique.of(own) for own in ids]
    assert len(set(given_ids)) == len(ids)
    assert all(given_ids)
    for own, made in zip(ids, given_ids, strict=True):
        assert made == own or own == "" or made.startswith(f"{own}_")


LONG = "call_" + "x" * 60


@pytest.mark.parametrize(
    ("provider", "ids", "expected"),
    [
        ("openai", [LONG], "[0-9A-Za-z]{24}"),
        ("openai", ["functions.ls:0"], "functions.ls:0"),
        ("mistral", ["abcDEF123"], "abcDEF123"),
        ("mistral", ["call_1"], "[0-9A-Za-z]{9}"),
        ("groq", [LONG], LONG),  # its own, and some gateways keep a signature in it
        ("openrouter", ["c1", "c1"], "c1_2"),
        ("mistral", ["abcDEF123", "abcDEF123"], "[0-9A-Za-z]{9}"),
    ],
)
def test_ids_as_each_provider_takes_them(provider: str, ids: list[str], expected: str) -> None:
    whose = {"provider": provider, "model": f"{provider}/m"}
    turns = [turn for own in ids for turn in (user(), asks(call(own), **whose), gives(own), says())]
    messages = sent(*turns, user(), provider=provider, endpoint=PROVIDERS[provider])
    given_ids = [message["tool_calls"][0]["id"] for message in messages if "tool_calls" in message]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == given_ids
    assert len(set(given_ids)) == len(ids)
    assert re.fullmatch(expected, given_ids[-1])


def test_another_providers_long_id_is_shortened_where_nothing_is_known() -> None:
    (_, answered, result, _) = sent(user(), asks(call(LONG), provider="vllm"), gives(LONG), user())
    assert answered["tool_calls"][0]["id"] == result["tool_call_id"] != LONG


def test_what_signs_a_call_follows_its_id() -> None:
    def turn(data: str) -> list[Any]:
        replay = {"reasoning_details": [{"type": CODED, "data": data, "id": "tool_0_ls"}, {"type": TEXT, "text": "t"}]}
        return [user(), asks(call("tool_0_ls"), **LAB, replay=replay), gives("tool_0_ls"), says()]

    answers = [m for m in sent(*turn("x"), *turn("y"), user()) if "tool_calls" in m]
    assert [m["tool_calls"][0]["id"] for m in answers] == ["tool_0_ls", "tool_0_ls_2"]
    assert [m["reasoning_details"][0]["id"] for m in answers] == ["tool_0_ls", "tool_0_ls_2"]
    assert [m["reasoning_details"][0]["data"] for m in answers] == ["x", "y"]


def test_ids_reach_a_server_that_looks_at_them(home: Home, model: ModelServer) -> None:
    env = configured(home, model, "groq", "mistral")
    made = {"index": 0, "id": "call_0", "function": {"name": "ls", "arguments": "{}"}}
    for _ in range(2):
        model.script(event(chunk({"tool_calls": [made]}, "tool_calls")), DONE)
        home.run("-s", "@s", "-m", "groq/m", "hi", env=env)
    model.refuses = strict("mistral")
    assert home.run("-s", "@s", "-m", "mistral/m", "and?", env=env).code == 0
    assert [m["role"] for m in model.sent[-1]["messages"]] == ["user", "assistant", "tool", "assistant"] * 2 + ["user"]


# ---- broken turns

C1, C2 = call("c1"), call("c2", name="cat")
ROLES = ["user", "assistant", "tool", "user"]


def results_of(messages: list[Any]) -> list[tuple[str, Any]]:
    """Ids and contents of the results; each call has one, in order, directly behind it."""
    found = []
    for at, message in enumerate(messages):
        ids = [made["id"] for made in message.get("tool_calls") or ()]
        behind = messages[at + 1 : at + 1 + len(ids)]
        assert [one.get("tool_call_id") for one in behind] == ids
        found += [(one["tool_call_id"], one["content"]) for one in behind]
    assert len(found) == sum(message["role"] == "tool" for message in messages)
    return found


@pytest.mark.parametrize(
    ("messages", "results"),
    [
        pytest.param([asks(C1)], [("c1", NO_RESULT)], id="none"),
        pytest.param([asks(C1), gives("c1", None)], [("c1", "")], id="without content"),
        pytest.param([asks(C1), {"role": "tool", "tool_call_id": "c1"}], [("c1", "")], id="content absent"),
        pytest.param([asks(C1, C2), gives("c2", "2"), gives("c1", "1")], [("c1", "1"), ("c2", "2")], id="order"),
        pytest.param([asks(C1), gives("c1", "1"), gives("c1", "2")], [("c1", "2")], id="two of one call: the last"),
        pytest.param([asks(C1), user("q2"), gives("c1", "1")], [("c1", "1")], id="behind a question"),
        pytest.param([asks(C1), says("a2"), gives("c1", "1")], [("c1", "1")], id="behind an answer"),
        pytest.param([gives("c1", "1"), says("a2")], [], id="without a call"),
        pytest.param([gives("c1", "1"), asks(C1)], [("c1", NO_RESULT)], id="before its call"),
        pytest.param([asks(C1), gives(None, "1")], [("c1", "1")], id="without an id"),
        pytest.param([asks(C1), gives("", "1")], [("c1", "1")], id="an empty id"),
        pytest.param(
            [asks(C1, C2), gives(None, "2", name="cat"), gives(None, "1", name="ls")],
            [("c1", "1"), ("c2", "2")],
            id="without ids, by name",
        ),
        pytest.param(
            [asks(C1, C2), gives(None, "?"), gives("c1", "1")], [("c1", "1"), ("c2", "?")], id="what is left"
        ),
        pytest.param(
            [asks(C1), says("b"), user(), asks(C1), gives("c1", "2")],
            [("c1", NO_RESULT), ("c1_2", "2")],
            id="the same id in every turn",
        ),
        pytest.param(
            [asks(call("c"), call("c")), gives("c", "1"), gives("c", "2")], [("c", "1"), ("c_2", "2")], id="twins"
        ),
        pytest.param([asks(call("")), gives("", "1")], [("call", "1")], id="a call without an id"),
        pytest.param(
            [asks(C1), asks(C2), gives("c1", "1"), gives("c2", "2")], [("c1", "1"), ("c2", "2")], id="two runs at once"
        ),
        pytest.param(
            [asks(C1, id="A"), asks(C1, id="B"), gives("c1", "1", id="r", parent="A"), gives("c1", "2", parent="B")],
            [("c1", "1"), ("c1_2", "2")],
            id="two runs at once, the same id",
        ),
        pytest.param(
            [asks(C1, C2, id="A"), asks(C1, id="B"), gives("c1", "1", id="r", parent="A"),
             gives("c2", "2", parent="r")],
            [("c1", "1"), ("c2", "2"), ("c1_2", NO_RESULT)],
            id="a result behind another one of its answer",
        ),
    ],
)  # fmt: skip
def test_every_call_has_its_result_behind_it(messages: list[Any], results: list[tuple[str, Any]]) -> None:
    prompt = [user(), *messages, user("and?")]
    assert results_of(built(*prompt)) == results
    assert strict("lab")({"messages": sent(*prompt)}) is None
    json.dumps(prompt)


@pytest.mark.parametrize(
    ("arguments", "readable"),
    [
        ('{"a": 1}', '{"a": 1}'),
        (' {"a":1,\n"a":2} ', ' {"a":1,\n"a":2} '),
        ("", "{}"),
        ("  ", "{}"),
        (None, "{}"),
        ({"a": "é"}, '{"a": "é"}'),
        ('{"cmd": "ls', '{"arguments": "{\\"cmd\\": \\"ls"}'),
        ("[1]", '{"arguments": "[1]"}'),
        ('{"a": NaN}', '{"arguments": "{\\"a\\": NaN}"}'),
        ([1], '{"arguments": [1]}'),
        ("[" * 5000, json.dumps({"arguments": "[" * 5000})),
    ],
)
def test_arguments_are_an_object_in_what_is_sent_alone(arguments: Any, readable: str) -> None:
    asked = asks(call("c1", arguments), finish_reason="interrupted")
    before = json.dumps(asked)
    assert sent(user(), asked, user())[1]["tool_calls"][0]["function"]["arguments"] == readable
    assert json.dumps(asked) == before


@pytest.mark.parametrize(
    ("name", "sent_name"),
    [("ls", "ls"), ("multi_tool.use", "multi_tool_use"), ("x" * 70, "x" * 64), ("", "unknown"), (None, "unknown")],
)
def test_names_of_functions_are_as_servers_take_them(name: Any, sent_name: str) -> None:
    assert sent(user(), asks(call("c1", name=name)), user())[1]["tool_calls"][0]["function"]["name"] == sent_name


def test_a_call_without_a_type_gets_one() -> None:
    own = {"id": "c1", "function": {"name": "ls", "arguments": "{}"}}
    assert sent(user(), asks(own), user())[1]["tool_calls"] == [call("c1")]


def test_between_a_result_and_a_question_mistral_wants_an_answer() -> None:
    turn = [user(), asks(call("abcDEF123"), provider="mistral"), gives("abcDEF123"), user("and?")]
    assert [m["role"] for m in sent(*turn)] == ["user", "assistant", "tool", "user"]
    messages = sent(*turn, provider="mistral", endpoint=PROVIDERS["mistral"])
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[3] == {"role": "assistant", "content": "(no answer)"}


def test_null_keys_go_to_nobody() -> None:
    whose = {"provider": "groq", "model": "groq/m"}
    asked = asks(call("c1", extra=None, index=0), **whose, name=None, refusal=None)
    messages = sent(user(), asked, gives("c1", name=None), user(), provider="groq", endpoint=PROVIDERS["groq"])
    assert messages[1] == {"role": "assistant", "tool_calls": [call("c1", index=0)]}
    assert messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "out"}
    assert sent(user(), says("a", tool_calls=[]), user())[1] == says("a")


@pytest.mark.parametrize("odd", [["hm"], {"a": 1}, 7, None, ""])
def test_reasoning_that_is_no_text_goes_back_as_a_blank(odd: Any) -> None:
    asked = asks(C1, provider="deepseek", replay={"reasoning_content": odd})
    messages = sent(user(), asked, user(), provider="deepseek", endpoint=PROVIDERS["deepseek"])
    assert messages[1]["reasoning_content"] == " "


# ---- answers in a row


def signed(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": f"of {words}"}


def test_two_answers_of_one_provider_keep_their_thinking_in_order() -> None:
    one = says("One.", provider="lab", thinking=[signed("t1")], replay={"reasoning": "r1", "d": [1], "x": {"a": 1}})
    two = asks(C1, content=[text("Two."), text("Three.")], provider="lab", thinking=[signed("t2")],
               order=["thinking:0", "text:0", "tool_call:0", "text:1"],
               replay={"reasoning": "r2", "d": [2], "x": {"b": 1}})  # fmt: skip
    joined = built(user(), one, two, user())[1]
    assert joined["thinking"] == [signed("t1"), signed("t2")]
    assert joined["content"] == [text("One.\n\n"), text("Two."), text("Three.")]
    assert joined["order"] == ["thinking:0", "text:0", "thinking:1", "text:1", "tool_call:0", "text:2"]
    assert joined["replay"] == {"reasoning": "r1\n\nr2", "d": [1, 2], "x": {"b": 1}}
    assert sent(user(), one, two, user())[1]["content"] == "One.\n\nTwo.\n\nThree."


def test_two_answers_of_different_providers_keep_the_words_of_both_and_the_thinking_of_the_later() -> None:
    one = says("One.", provider="lab", thinking=[signed("t1")], replay={"reasoning": "r1"}, refusal="I cannot.")
    two = says("Two.", provider="other", thinking=[signed("t2")], replay={"reasoning": "r2", "blocks": ["of two"]})
    for later in (two, {**two, "provider": "lab", "model": "another"}):
        joined = built(user(), one, later, user())[1]
        assert (joined["thinking"], joined["replay"]) == ([signed("t2")], {"reasoning": "r2"})
        assert sent(user(), one, later, user())[1]["content"] == "One.\n\nI cannot.\n\nTwo."


def test_a_list_that_tells_one_answer_alone_does_not_go_back_with_two() -> None:
    one, two = says("One.", replay={"blocks": ["of one"]}), says("Two.")
    assert "replay" not in built(user(), one, two, user())[1]
    assert "replay" not in built(user(), two, one, user())[1]


def test_an_answer_with_calls_behind_one_without() -> None:
    messages = sent(user(), says("One."), asks(C1), gives("c1"), user())
    assert messages[1] == {"role": "assistant", "tool_calls": [C1], "content": "One.\n\n"}
    assert [m["role"] for m in messages] == ROLES


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (says("a"), "a"),
        (says(None), ""),
        (says([text("a"), text("b")]), "ab"),  # as a text with citations comes
        (asks(C1, content=[text("a"), text("b")], order=["text:0", "tool_call:0", "text:1"]), "a\n\nb"),
        (asks(C1, content=[text("a\n"), text("b")], order=["text:0", "tool_call:0", "text:1"]), "a\nb"),
        (asks(C1, content=[text("a"), text(" b")], order=["text:0", "tool_call:0", "text:1"]), "a b"),
        (asks(C1, content=[text("a"), text(""), text("b")], order=["text:0", "tool_call:0", "text:1"]), "a\n\nb"),
        (asks(C1, content=[text("a"), text("b")]), "ab"),
        (says([text("a"), text("b")], thinking=[signed("t")], order=["text:0", "thinking:0", "text:1"]), "a\n\nb"),
        (says("a", refusal="no"), "a\n\nno"),
        (says(None, refusal="no"), "no"),
        (says([text("a"), {"type": "unheard_of"}, text("b")]), "a\n\n[unheard_of]\n\nb"),
        (says([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}}]),
         "[image/png, 3 bytes]"),
        (gives("c", [text("a"), text("b\n"), text("c")]), "a\nb\nc"),
        (gives("c", [text("a"), {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}}]),
         "a\n[image/png, 3 bytes]"),
    ],
)  # fmt: skip
def test_a_message_as_one_string(message: Any, expected: str) -> None:
    assert one_text(message) == expected


# ---- the shapes of others


def test_results_and_calls_in_anthropics_dress() -> None:
    answered = says(
        [signed("t"), text("Let me."), {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"p": "é"}},
         text("And."), {"type": "tool_use", "id": "toolu_2", "name": "cat", "input": None},
         {"type": "redacted_thinking", "data": "x"}],
        provider="anthropic",
    )  # fmt: skip
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": [text("b"), "c"], "is_error": True},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"},
        text("and now?"),
    ]
    before = json.dumps([answered, results])
    (_, reply, one, two, question) = built(user(), answered, user(results))
    assert reply["thinking"] == [signed("t"), {"type": "redacted_thinking", "data": "x"}]
    assert reply["content"] == [text("Let me."), text("And.")]
    assert [made["function"] for made in reply["tool_calls"]] == [
        {"name": "ls", "arguments": '{"p": "é"}'},
        {"name": "cat", "arguments": "{}"},
    ]
    assert reply["order"] == ["thinking:0", "text:0", "tool_call:0", "text:1", "tool_call:1", "thinking:1"]
    assert (one["tool_call_id"], one["content"], two["content"]) == ("toolu_1", "a", [text("b"), text("c")])
    assert (two["is_error"], "is_error" in one) == (True, False)
    assert question == user([text("and now?")])
    assert json.dumps([answered, results]) == before
    messages = sent(user(), answered, user(results))
    assert (messages[1]["content"], messages[3]["content"]) == ("Let me.\n\nAnd.", "b\nc")


def test_a_result_alone_is_no_question() -> None:
    dressed = user([{"type": "tool_result", "tool_use_id": "c1", "content": None}])
    assert [m["role"] for m in sent(user(), asks(C1), dressed)] == ["user", "assistant", "tool"]


def test_the_older_functions_of_openai() -> None:
    asked = says(None, function_call={"name": "ls", "arguments": "{}"})
    given_result = {"role": "function", "name": "ls", "content": "out"}
    messages = sent(user(), asked, given_result, user())
    assert messages[1]["tool_calls"] == [call("call")]
    assert messages[2] == {"role": "tool", "tool_call_id": "call", "content": "out", "name": "ls"}


def test_texts_and_refusals_under_other_names() -> None:
    answered = says([{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}])
    messages = sent(user([{"type": "input_text", "text": "q"}]), answered, user())
    assert [m["content"] for m in messages] == ["q", "a\n\nno", "q"]


@pytest.mark.parametrize(
    ("role", "heard_as"),
    [("developer", "system"), ("model", "assistant"), ("ai", "assistant"), ("human", "user"), ("notice", "user")],
)
def test_roles_of_others(role: str, heard_as: str) -> None:
    messages = sent({"role": role, "content": "x"}, user(), says(), user())
    assert strict("lab")({"messages": messages}) is None
    assert next(m["role"] for m in messages if "x" in m["content"]) == heard_as


def test_there_is_one_system_message_and_it_comes_first() -> None:
    system, developer = {"role": "system", "content": "From the file."}, {"role": "developer", "content": "Be brief."}
    messages = sent(system, user(), developer, says(), user(), system="Mine.")
    assert messages[0] == {"role": "system", "content": "From the file.\n\nBe brief.\n\nMine."}
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert sent(system, user(), system="From the file.")[0]["content"] == "From the file."


def test_an_answer_of_thinking_alone_is_left_out() -> None:
    empty = says([{"type": "thinking", "thinking": "hm"}])
    told = context.build([user(), empty, user("q2")], None, NO_SIZE, Room(None))  # type: ignore[list-item]
    assert (told.included, [m["role"] for m in told.messages]) == (2, ["user"])


def test_a_stream_of_calls_without_results_goes_on(home: Home, model: ModelServer) -> None:
    """A tool call of which half the arguments arrived, sent back to a server that parses arguments."""
    env = configured(home, model, "groq")
    made = {"index": 0, "id": "c1", "function": {"name": "ls", "arguments": '{"path": "/ho'}}
    model.script(event(chunk({"content": "Let me.", "tool_calls": [made]})), Cut)
    assert home.run("-m", "groq/m", "hi", env=env).code == 1
    assert home.doc()["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"path": "/ho'
    model.refuses = strict("groq")
    assert home.run("-s", "0", "go on", env=env).code == 0
    assert [e.call for e in read_stream([event(chunk({"tool_calls": [made]}, "stop"))]) if isinstance(e, ToolCall)]
