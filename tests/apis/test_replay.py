"""What of a session is sent again: reasoning to whom it belongs, ids that fit, broken turns made whole.

Each request is made from a session file, and held against a strict server of its provider.
"""

import json
import re
from typing import Any

import pytest

from gptsh.context.sendable import build_messages
from gptsh.messages import Request
from tests.support.apis import APIS
from tests.support.dry import dry_run
from tests.support.home import Home
from tests.support.messages import assistant, call, calling, parts, result, text, thinking, user
from tests.support.server import ModelServer, chunk, event

DONE = event(b"[DONE]")
NO_RESULT = "error: this tool call was interrupted and has no result"
TEXT = "reasoning.text"
CODED = "reasoning.encrypted"
LAB = {"provider": "lab", "model": "lab/m"}
LONG = "call_" + "x" * 60


def sent(home: Home, *messages: Any, model: str = "lab/m") -> list[Any]:
    """The messages of the request that these and a question make."""
    return dry_run(home, model, *messages).messages


C1 = call("c1")
C2 = call("c2", name="cat")
THOUGHT = thinking("t", "of t")


def test_a_name_goes_along_if_openai_accepts_it(home: Home) -> None:
    for name in ("Ann", "Ünal-2", "Ann Lee", "a/b", "x" * 65, "", 7):
        asked = sent(home, {**user("q"), "name": name}, assistant("a"))[0]
        assert asked.get("name") == (name if name in ("Ann", "Ünal-2") else None)


def test_a_thought_that_broke_off_unsigned_does_not_go_back(home: Home) -> None:
    whole = {"type": TEXT, "text": "a"}
    for finish, last, kept in (
        ("interrupted", whole, 1),
        ("error", {**whole, "signature": "s"}, 2),
        ("stop", whole, 2),
    ):
        replay = {"reasoning_details": [whole, last]}
        messages = sent(home, user("q"), assistant("x", **LAB, replay=replay, finish_reason=finish))
        assert len(messages[1]["reasoning_details"]) == kept


@pytest.mark.parametrize(
    ("provider", "replay", "goes_back"),
    [
        ("deepseek", {"reasoning_content": "hm"}, {"reasoning_content": "hm"}),
        ("deepseek", {}, {"reasoning_content": " "}),
        ("llamafile", {"reasoning": "hm", "thinking": "x"}, {"reasoning": "hm"}),
        ("mistral", {"thinking": "hm"}, {}),
    ],
)
def test_reasoning_behind_a_tool_call_goes_back_to_those_who_want_it(
    home: Home, provider: str, replay: dict[str, Any], goes_back: dict[str, str]
) -> None:
    whose = {"provider": provider, "model": f"{provider}/m"}
    asked = sent(
        home, user("q"), calling(C1, replay=replay, **whose), result("c1"), model=f"{provider}/m"
    )[1]
    assert {
        key: value for key, value in asked.items() if key not in ("role", "content", "tool_calls")
    } == goes_back


@pytest.mark.parametrize("model", ["deepseek", "groq", "ollama", "anthropic"])
def test_what_a_model_signed_goes_to_no_other_model_of_its_provider(home: Home, model: str) -> None:
    made = call("c1", extra_content={"google": {"thought_signature": "SIGNED"}})
    replay = {
        "reasoning": "plain", "reasoning_details": [{"type": CODED, "data": "SIGNED"}],
        "extra_content": {"s": "SIGNED"}, "annotations": [{"type": "file", "hash": "SIGNED"}],
    }  # fmt: skip
    whose = {"provider": model, "model": f"{model}/m"}
    turn = [
        user("q"),
        calling(made, **whose, replay=replay),
        result("c1"),
        assistant("done", **whose),
    ]
    assert ("SIGNED" in json.dumps(sent(home, *turn, model=f"{model}/m"))) == (
        model in ("deepseek", "groq")
    )
    for other in ("n", "deep/m"):
        assert "SIGNED" not in json.dumps(sent(home, *turn, model=f"{model}/{other}"))


def test_what_litellm_kept_of_googles_signatures_goes_back_to_their_model() -> None:
    made = call("c1")
    made["function"]["provider_specific_fields"] = {"thought_signature": "c2ln"}
    signed = {"provider_specific_fields": {"thought_signatures": ["dGV4dA=="]}}
    turn = [
        user("q"),
        calling(made, replay=signed, provider="vertex_ai", model="vertex_ai/m"),
        result("c1"),
    ]
    for model, is_own in (("vertex_ai/m", True), ("vertex_ai/n", False)):
        body = APIS["vertex_ai"](
            Request(model, build_messages([*turn, user("and?")], None, "vertex_ai", model), {})
        )
        asked = json.loads(body)["messages"][1]
        assert ("provider_specific_fields" in asked) == is_own
        assert ("c2ln" in json.dumps(asked)) == is_own


def configured(home: Home, model: ModelServer, *providers: str) -> None:
    """Such providers on the model server, with a key each."""
    tables = "".join(f'[providers.{name}]\nbase_url = "{model.base_url}"\n' for name in providers)
    home.configure(f'{tables}[sessions]\ntitles = "off"\n')
    home.env |= {f"{name.upper()}_API_KEY": "a-key" for name in providers}
    model.refuses = lambda _body: None  # the test reads it


def test_reasoning_in_pieces_goes_back_to_whom_it_came_from_and_is_shown_once(
    home: Home, model: ModelServer
) -> None:
    configured(home, model, "openrouter", "groq")
    note = {"type": "file", "file": {"name": "a.pdf", "content": []}}
    signature = {"google": {"thought_signature": "c2ln"}}
    model.script(
        event(
            chunk(
                {
                    "reasoning": "let ",
                    "reasoning_details": [{"type": TEXT, "text": "let ", "index": 0}],
                }
            )
        ),
        event(chunk({"reasoning_details": [{"type": TEXT, "text": "me", "index": 0}]})),
        event(chunk({"reasoning_details": [{"type": TEXT, "signature": "s", "index": 0}]})),
        event(
            chunk(
                {"content": "42", "annotations": [note, {"type": "url_citation"}], "unheard_of": 1}
            )
        ),
        event(chunk({"annotations": [note], "extra_content": signature}, "stop")),
        DONE,
    )
    assert home.run("-m", "openrouter/m", "--reasoning", "why") == ("42\n", "let me\n", 0)
    whole = [{"type": TEXT, "text": "let me", "index": 0, "signature": "s"}]
    kept = {"reasoning_details": whole, "annotations": [note], "extra_content": signature}
    assert home.doc()["messages"][1]["replay"] == {"reasoning": "let me", **kept}
    for which in ("openrouter/m", "openrouter/n", "groq/m"):
        assert home.run("-s", f"{home.docs()[-1]['id']}@1", "-m", which, "and?").code == 0
    own, *foreign = (request["messages"][1] for request in model.sent[1:])
    assert own == {"role": "assistant", "content": "42", **kept}
    assert foreign == [{"role": "assistant", "content": "42"}] * 2


@pytest.mark.parametrize(
    ("provider", "ids", "expected"),
    [
        ("openai", [LONG], "call00001"),
        ("mistral", ["call_1"], "[0-9A-Za-z]{9}"),
        ("groq", [LONG], LONG),  # its own, and some gateways keep a signature in it
        ("openrouter", ["c1", "c1"], "call00001"),
        ("mistral", ["x", "é", "", "y" * 41, "x"], "[0-9A-Za-z]{9}"),
    ],
)
def test_ids_as_each_provider_takes_them(
    home: Home, provider: str, ids: list[str], expected: str
) -> None:
    model = f"{provider}/{'gpt-4.1' if provider == 'openai' else 'm'}"
    whose = {"provider": provider, "model": model}
    turns = [
        turn
        for own in ids
        for turn in (user("q"), calling(call(own), **whose), result(own), assistant())
    ]
    messages = sent(home, *turns, model=model)
    made = [message["tool_calls"][0]["id"] for message in messages if "tool_calls" in message]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == made
    assert len(set(made)) == len(ids)
    assert re.fullmatch(expected, made[-1])
    before = sent(home, *turns[:4], model=model)[:4]
    assert messages[:4] == before  # a prompt that grows keeps its beginning


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


BROKEN: dict[str, tuple[list[Any], list[tuple[str, Any]]]] = {
    "none": ([calling(C1)], [("c1", NO_RESULT)]),
    "order": ([calling(C1, C2), result("c2", "2"), result("c1", "1")], [("c1", "1"), ("c2", "2")]),
    "two of one call: the last": ([calling(C1), result("c1", "1"), result("c1", "2")], [("c1", "2")]),
    "behind a question": ([calling(C1), user("q2"), result("c1", "1")], [("c1", "1")]),
    "without a call": ([result("c1", "1"), assistant("a2")], []),
    "the same id in every turn": (
        [calling(C1), assistant("b"), user("q"), calling(C1), result("c1", "2")],
        [("c1", NO_RESULT), ("call00001", "2")]),
    "twins": ([calling(call("c"), call("c")), result("c", "1"), result("c", "2")], [("c", "1"), ("call00001", "2")]),
    "reasoning beside it has an odd id": (
        [calling(call("x" * 99), replay={"blocks": [{"id": {"a": 1}}]})], [("call00001", NO_RESULT)]),
    "a call without an id": ([calling(call("")), result("", "1")], [("call00001", "1")]),
    "two runs at once, the same id": (
        [calling(C1, id="A"), calling(C1, id="B"),
         result("c1", "1", id="r", parent="A"), result("c1", "2", parent="B")],
        [("c1", "1"), ("call00001", "2")]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_every_call_has_its_result_behind_it(home: Home, name: str) -> None:
    messages, results = BROKEN[name]
    assert results_of(sent(home, user("q"), *messages)) == results


@pytest.mark.parametrize(
    ("arguments", "readable", "claudes"),
    [
        ('{"a": 1}', '{"a": 1}', {"a": 1}),
        ("", "{}", {}),
        (None, "{}", {}),
        ({"a": "é"}, '{"a": "é"}', {"a": "é"}),
        ('{"cmd": "ls', '{"arguments": "{\\"cmd\\": \\"ls"}', {"arguments": '{"cmd": "ls'}),
        ("[1]", '{"arguments": "[1]"}', {"arguments": "[1]"}),
        ('{"a": NaN}', '{"arguments": "{\\"a\\": NaN}"}', {"arguments": '{"a": NaN}'}),
    ],
)
def test_arguments_are_an_object_in_what_is_sent_alone(
    home: Home, arguments: Any, readable: str, claudes: dict[str, Any]
) -> None:
    turn = [user("q"), calling(call("c1", arguments=arguments), finish_reason="interrupted")]
    assert sent(home, *turn)[1]["tool_calls"][0]["function"]["arguments"] == readable
    assert (
        sent(home, *turn, model="anthropic/claude-sonnet-4-5")[1]["content"][0]["input"] == claudes
    )
    assert (
        sent(home, *turn, model="ollama/m")[1]["tool_calls"][0]["function"]["arguments"] == claudes
    )
    assert home.doc()["messages"][1]["tool_calls"][0]["function"]["arguments"] == arguments


def test_between_a_result_and_a_question_mistral_wants_an_answer(home: Home) -> None:
    messages = sent(
        home,
        user("q"),
        calling(call("abcDEF123"), provider="mistral"),
        result("abcDEF123"),
        model="mistral/m",
    )
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[3] == {"role": "assistant", "content": "(no answer)"}


@pytest.mark.parametrize(
    ("answers", "content"),
    [
        ([assistant("One."), assistant("Two.")], "One.\n\nTwo."),
        ([assistant("One.", refusal="I cannot."), assistant("Two.", provider="other")], "One.\n\nI cannot.\n\nTwo."),
        ([assistant(parts("a", "b"))], "ab"),  # as a text with citations comes
        ([assistant(parts("a", "b"), thinking=[THOUGHT], order=["text:0", "thinking:0", "text:1"])], "a\n\nb"),
        ([assistant(None, refusal="no")], "no"),
        ([assistant("One."), calling(C1)], "One.\n\n"),
        *(([calling(C1, content=[text(one), text(two)], order=["text:0", "tool_call:0", "text:1"])], whole)
          for one, two, whole in (("a", "b", "a\n\nb"), ("a\n", "b", "a\nb"), ("a", " b", "a b"))),
    ],
)  # fmt: skip
def test_answers_as_one_string(home: Home, answers: list[Any], content: str) -> None:
    messages = sent(home, user("q"), *answers)
    assert messages[1]["content"] == content
    assert [m["role"] for m in messages if m["role"] != "tool"] == ["user", "assistant", "user"]


def test_results_and_calls_in_anthropics_dress(home: Home) -> None:
    answered = assistant(
        [THOUGHT, text("Let me."), {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"p": "é"}},
         text("And."), {"type": "tool_use", "id": "toolu_2", "name": "cat", "input": None}],
        provider="anthropic",
    )  # fmt: skip
    results = [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_2",
            "content": [text("b"), text("c")],
            "is_error": True,
        },
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"},
        text("and then?"),
    ]
    (_, reply, one, two, question) = sent(home, user("q"), answered, user(results))
    assert reply["content"] == "Let me.\n\nAnd."
    assert [made["function"]["arguments"] for made in reply["tool_calls"]] == ['{"p": "é"}', "{}"]
    assert one["tool_call_id"] == "toolu_1"
    assert one["content"] == "a"
    assert two["content"] == "b\nc"
    assert question["content"].startswith("and then?")


def test_roles_of_others(home: Home) -> None:
    for role, heard_as in (
        ("developer", "system"),
        ("model", "assistant"),
        ("human", "user"),
        ("notice", "user"),
    ):
        messages = sent(
            home,
            {"role": role, "content": "x"},
            user([{"type": "input_text", "text": "q"}]),
            assistant(),
        )
        assert next(m["role"] for m in messages if "x" in m["content"]) == heard_as


def test_there_is_one_system_message_and_it_comes_first(home: Home) -> None:
    system = {"role": "system", "content": "From the file."}
    developer = {"role": "developer", "content": "Be brief."}
    messages = dry_run(
        home, "lab/m", system, user("q"), developer, assistant(), args=["--system", "Mine."]
    ).messages
    assert messages[0] == {"role": "system", "content": "From the file.\n\nBe brief.\n\nMine."}
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
