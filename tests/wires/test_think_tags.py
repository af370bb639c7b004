"""A thought between <think> tags in front of an answer is reasoning, on each API and wherever the stream is cut."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.content.think_tags import Beginning, Piece, ThinkTags, separate
from tests.support import anthropic_server as claude
from tests.support import gemini_server as google
from tests.support import ollama_server as llama
from tests.support import responses_server as openai
from tests.support import server as chat
from tests.support.answers import json_output
from tests.support.home import Home
from tests.support.server import Cut, ModelServer

Stream = Callable[..., list[bytes]]
MODEL = "qwen3-8b"  # of a family whose templates may write the opening tag into the prompt
PLAIN = "m"


def from_openai(*pieces: str) -> list[bytes]:
    """A stream of the Responses API with these deltas."""
    events = openai.events(openai.message("".join(pieces)))
    is_delta = [payload["type"] == "response.output_text.delta" for payload in events]
    first = is_delta.index(True)
    deltas = [{**events[first], "delta": piece} for piece in pieces]
    rest = [payload for payload, found in zip(events[first:], is_delta[first:], strict=True) if not found]
    return [claude.named(payload) for payload in (*events[:first], *deltas, *rest)]


STREAMS: dict[str, Stream] = {
    "chat": chat.answer,
    "responses": from_openai,
    "anthropic": lambda *pieces: claude.stream(claude.said(0, *pieces)),
    "gemini": lambda *pieces: google.stream(*({"text": piece} for piece in pieces)),
    "ollama": lambda *pieces: [llama.ndjson(*map(llama.line, pieces), llama.last())],
}


@pytest.fixture(params=STREAMS)
def api(request: Any, home: Home, model: ModelServer) -> tuple[Home, Callable[..., None]]:
    """A home whose default model is at a server of one's own with each API, and what queues an answer in pieces."""
    name = request.param
    base = model.base_url.removesuffix("/v1") if name == "ollama" else model.base_url
    home.configure(
        f'[agents.default]\nmodel = "own/{MODEL}"\n[sessions]\ntitles = "off"\n'
        f'[providers.own]\nbase_url = "{base}"\napi = "{name}"\n'
    )
    return home, lambda *pieces: model.script(*STREAMS[name](*pieces))


def test_the_thought_is_no_part_of_the_answer_and_goes_back_to_no_model(
    api: tuple[Home, Callable[..., None]], model: ModelServer
) -> None:
    home, says = api
    says("<th", "ink>\nI gre", "et.\n</thi", "nk>\n\nHel", "lo.")
    assert home.run("--reasoning", "hi") == ("Hello.\n", "I greet.\n", 0)
    assert home.doc()["messages"][-1]["replay"]["think"] == "I greet.\n"
    says("Again.")
    assert home.run("-s", "0", "more").stdout == "Again.\n"
    sent = json.dumps([body for body in model.sent if body][-1])
    assert ("Hello." in sent, "greet" in sent) == (True, False)


def test_a_closing_tag_alone_ends_a_thought_that_began_in_the_prompt(api: tuple[Home, Callable[..., None]]) -> None:
    home, says = api
    for _ in range(2):  # the second time it is known, and the thought is shown as it arrives
        says("I gre", "et.</th", "ink>Hello.")
        assert home.run("--reasoning", "hi") == ("Hello.\n", "I greet.\n", 0)
    says("Just ", "text.")
    assert home.run("hi") == ("Just text.\n", "", 0)


def test_a_model_that_thinks_again_after_an_answer_without_a_thought_is_read_right_from_the_second_answer_on(
    api: tuple[Home, Callable[..., None]],
) -> None:
    home, says = api
    says("Just ", "text.")
    assert home.run("hi") == ("Just text.\n", "", 0)
    says("I gre", "et.</think>Hello.")  # it is shown as it arrives
    note = "gptsh: the text before </think> is the model's thought; the next answer is without\n"
    assert home.run("-s", "0", "hi") == ("I greet.</think>Hello.\n", note, 0)
    saved = home.doc()["messages"][-1]
    assert (saved["content"], saved["replay"]["think"]) == ("Hello.", "I greet.")
    says("I gre", "et.</think>Hello.")
    assert home.run("-s", "0", "--reasoning", "hi") == ("Hello.\n", "I greet.\n", 0)


def test_a_thought_without_an_end_is_shown_and_the_answer_incomplete(api: tuple[Home, Callable[..., None]]) -> None:
    home, says = api
    says("<think>I ", "greet")
    run = home.run("hi")
    assert (run.stdout, run.code) == ("<think>I greet\n", 5)
    assert "the answer is incomplete: its <think> has no end" in run.stderr
    assert "replay" not in home.doc()["messages"][-1]


# ---- what a run prints, and with what exit code


class Case(NamedTuple):
    """What a model answers, what a run prints of it on stdout and as reasoning, and its exit code."""

    pieces: tuple[str, ...]
    text: str
    thought: str = ""
    code: int = 0
    model: str = MODEL
    args: tuple[str, ...] = ()


CASES = {
    "a tag in the middle": Case(("Use <think>", "a</think> here."), "Use <think>a</think> here."),
    "a closing tag of a model that does not reason": Case(("It is </think>.",), "It is </think>.", model=PLAIN),
    "a closing tag of a model that is asked to reason": Case(
        ("hm</think>So.",), "So.", "hm", model=PLAIN, args=("-p", "reasoning_effort=low")
    ),
    "a closing tag of one that is asked not to": Case(
        ("hm</think>So.",), "hm</think>So.", args=("-p", "reasoning_effort=none")
    ),
    "no thought in the tags": Case(("<think>\n\n</think>\n\nSo.",), "So."),
    "a second thought": Case(("<think>a</think><think>b</think>c",), "<think>b</think>c", "a"),
    "only the beginning of a tag": Case(("<thi", "nk"), "<think"),
    "white space before the tag": Case(("\n <think>a</think>b",), "b", "a"),
    "an answer without a tag": Case(("Just ", "so."), "Just so."),
    "no streaming": Case(("<think>a</think>b",), "b", "a", args=("--no-stream",)),
    "-x": Case(("<think>```\na\n```</think>b\n```\nc\n```",), "c", "```\na\n```", args=("-x",)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_thought_and_what_is_text(lab: Home, model: ModelServer, name: str) -> None:
    case = CASES[name]
    if "--no-stream" in case.args:
        model.unstreamed("".join(case.pieces))
    else:
        model.say(*case.pieces)
    reasoning = f"{case.thought}\n" if case.thought else ""
    run = lab.run("-m", f"lab/{case.model}", "--reasoning", *case.args, "hi")
    assert run == (f"{case.text}\n", reasoning, case.code)


def test_programs_get_the_answer_without_the_thought(lab: Home, model: ModelServer, tmp_path: Any) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["n"]}')
    model.say('<think>{"a": 1}</think>{"n": 1}')
    assert lab.run("--schema", str(schema), "hi") == ('{"n": 1}\n', "", 0)
    model.say("<think>hm</think>So.")
    assert json_output(lab.run("-o", "json", "hi"))["text"] == "So."


def test_a_thought_that_breaks_off_is_kept_as_a_thought(lab: Home, model: ModelServer) -> None:
    model.script(*chat.answer("<think>I gre", "et")[:3], Cut)
    run = lab.run("hi")
    assert (run.stdout, run.code) == ("", 1)
    assert lab.doc()["messages"][-1]["replay"] == {"think": "I greet"}


def test_reasoning_of_its_own_says_that_the_text_is_none(lab: Home, model: ModelServer) -> None:
    hold = chat.Hold()
    deltas = [{"reasoning_content": "hm"}, {"content": "So "}]
    model.script(*(chat.event(chat.chunk(delta)) for delta in deltas), hold, *chat.answer("</think> it is."))
    process = lab.start("-m", f"lab/{MODEL}", "hi")
    assert process.stdout is not None
    assert process.stdout.read(3) == b"So "  # not held back
    hold.set()
    assert process.communicate()[0] == b"</think> it is.\n"
    model.script(*(chat.event(chat.chunk(delta)) for delta in deltas), *chat.answer("</think> it is."))  # it is known
    assert lab.run("-s", "0", "-m", f"lab/{MODEL}", "hi") == ("So </think> it is.\n", "", 0)
    assert lab.doc()["messages"][-1]["content"] == "So </think> it is."


def test_calls_end_a_thought_without_an_end(lab: Home, model: ModelServer) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    model.script(*(chat.event(chat.chunk(delta)) for delta in ({"content": "<think>I look"}, {"tool_calls": [call]})),
                 *chat.answer("", finish="tool_calls"))  # fmt: skip
    lab.run("hi")
    message = lab.doc()["messages"][-1]
    assert (message["content"], message["replay"], len(message["tool_calls"])) == ("", {"think": "I look"}, 1)


# ---- all cuts

FRAGMENTS = st.sampled_from(["<think>", "</think>", "<", "think>", "</", "a", "\n", " ", "<think", "b>"])
TEXTS = st.lists(FRAGMENTS, max_size=7).map("".join)


@given(TEXTS, st.sampled_from(["text", "thought", "unknown"]), st.booleans(), st.data())
def test_where_the_pieces_end_makes_no_difference(
    text: str, beginning: Beginning, is_complete: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=len(text))))
    ends = [*cuts, len(text)]
    tags = ThinkTags(beginning)
    pieces = [tags.add(text[start:end]) for start, end in zip([0, *cuts], ends, strict=True)]
    rest = tags.end(is_complete=is_complete)
    thought = "" if rest.is_text else "".join(piece.thought for piece in (*pieces, rest))
    found = Piece(thought, "".join(piece.text for piece in (*pieces, rest)), rest.is_text)
    assert found == separate(text, beginning, is_complete=is_complete)


@given(TEXTS, st.sampled_from(["text", "thought", "unknown"]))
def test_only_tags_and_white_space_are_lost(text: str, beginning: Beginning) -> None:
    def bare(text: str) -> str:
        return re.sub(r"</?think>|\s", "", text)

    piece = separate(text, beginning)
    assert bare(piece.thought) + bare(piece.text) == bare(text)
