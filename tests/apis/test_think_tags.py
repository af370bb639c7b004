"""A thought in tags before an answer is reasoning at a self-hosted server, on each API and wherever the stream is cut.

So it is at the providers that leave thoughts in the text. At all others the answer is the answer, byte for byte.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptsh.models.vendors import VENDORS
from tests.support import anthropic_server as claude
from tests.support import gemini_server as google
from tests.support import ollama_server as llama
from tests.support import responses_server as openai
from tests.support import server as chat
from tests.support.answers import json_output
from tests.support.home import Home
from tests.support.server import Cut, ModelServer

Stream = Callable[..., list[bytes]]
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
END = f"<|end|><|start|>assistant{FINAL}"


def from_openai(*pieces: str) -> list[bytes]:
    """A stream of the Responses API with these deltas."""
    events = openai.events(openai.message("".join(pieces)))
    is_delta = [payload["type"] == "response.output_text.delta" for payload in events]
    first = is_delta.index(True)
    deltas = [{**events[first], "delta": piece} for piece in pieces]
    rest = [
        payload
        for payload, found in zip(events[first:], is_delta[first:], strict=True)
        if not found
    ]
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
    """A home whose default model is at a self-hosted server with each API, and what queues an answer in pieces."""
    name = request.param
    base = model.base_url.removesuffix("/v1") if name == "ollama" else model.base_url
    home.configure(
        f'[agents.default]\nmodel = "own/m"\n[sessions]\ntitles = "off"\n'
        f'[providers.own]\nbase_url = "{base}"\napi = "{name}"\n'
    )
    return home, lambda *pieces: model.script(*STREAMS[name](*pieces))


def kept(home: Home) -> tuple[str, str | None]:
    """The text and the thought of the last answer, as they were saved."""
    message = home.docs()[0]["messages"][-1]
    return message["content"], message.get("replay", {}).get("think")


def test_the_thought_is_no_part_of_the_answer_and_goes_back_to_no_model(
    api: tuple[Home, Callable[..., None]], model: ModelServer
) -> None:
    home, says = api
    says("<th", "ink>\nI gre", "et.\n</thi", "nk>\n\nHel", "lo.")
    assert home.run("--reasoning", "hi") == ("Hello.\n", "I greet.\n", 0)
    assert kept(home) == ("Hello.", "I greet.\n")
    says("Again.")
    assert home.run("-s", "0", "more").stdout == "Again.\n"
    sent = json.dumps([body for body in model.sent if body][-1])
    assert "Hello." in sent
    assert "greet" not in sent


def test_a_thought_that_the_prompt_opened_is_shown_by_a_stream_but_not_saved_as_text(
    api: tuple[Home, Callable[..., None]], model: ModelServer
) -> None:
    home, says = api
    says("I gre", "et.</th", "ink>\n\nHello.")
    assert home.run("hi") == ("I greet.</think>\n\nHello.\n", "", 0)
    assert kept(home) == ("Hello.", "I greet.")
    says("Again.")
    assert home.run("-s", "0", "more").stdout == "Again.\n"
    sent = json.dumps([body for body in model.sent if body][-1])
    assert "Hello." in sent
    assert "greet" not in sent
    says("I gre", "et.</think>Hello.")
    assert json_output(home.run("-o", "json", "hi"))["text"] == "Hello."
    says("I gre", "et.```\na\n```</think>Hello.\n```\nb\n```")
    assert home.run("-x", "hi") == ("b\n", "", 0)


def test_a_thought_without_an_end_is_shown_and_the_answer_incomplete(
    api: tuple[Home, Callable[..., None]],
) -> None:
    home, says = api
    says("<think>I ", "greet")
    run = home.run("hi")
    assert run.stdout == "<think>I greet\n"
    assert run.code == 5
    assert "the answer is incomplete: its reasoning has no end" in run.stderr
    assert kept(home) == ("<think>I greet", None)


def test_the_channels_of_gpt_oss_are_thought_and_answer(
    api: tuple[Home, Callable[..., None]],
) -> None:
    home, says = api
    for size in (1, 5, 1000):
        text = f"{ANALYSIS}I greet.{END}Hello."
        says(*(text[at : at + size] for at in range(0, len(text), size)))
        assert home.run("--reasoning", "hi") == ("Hello.\n", "I greet.\n", 0)
        assert kept(home) == ("Hello.", "I greet.")


# ---- at which servers


TEXTS = ("<think>hm</think>So.", "hm</think>So.", "<think>hm", f"{ANALYSIS}hm{END}So.")
HOSTED = {
    "groq": "qwen/qwen3-32b",
    "perplexity": "sonar-reasoning-pro",
    "openrouter": "m",
    "openai": "gpt-4.9",
}


@pytest.mark.parametrize("name", HOSTED)
def test_a_provider_whose_row_does_not_say_so_sends_the_answer_byte_for_byte(
    hosted: Home, model: ModelServer, name: str
) -> None:
    env = {VENDORS[name].key_variables[0]: "a-key"}
    for text in TEXTS:
        model.say(text, usage=None)
        run = hosted.run(
            "-m", f"{name}/{HOSTED[name]}", "--title", "t", "-o", "json", "hi", env=env
        )
        said = json_output(run)["text"]
        reads_tags = name in ("groq", "perplexity")
        if text == "<think>hm":
            assert said == text
            assert run.code == (5 if reads_tags else 0)
        else:
            assert said == ("So." if reads_tags else text)
            assert run.code == 0


# ---- what a run prints, and with what exit code


class Case(NamedTuple):
    """What a model answers, what a run prints of it on stdout and as reasoning, and its exit code."""

    pieces: tuple[str, ...]
    text: str
    thought: str = ""
    code: int = 0
    args: tuple[str, ...] = ()


CASES = {
    "a tag in the middle": Case(("Use <think>", "a</think> here."), "Use <think>a</think> here."),
    "no thought in the tags": Case(("<think>\n\n</think>\n\nSo.",), "So."),
    "no thought, and its tags in the text": Case(
        ("<think></think>", "Write </think>."), "Write </think>."
    ),
    "an end at the very beginning": Case(("</th", "ink>\n\n", "So </think>."), "So </think>."),
    "a second thought": Case(("<think>a</think><think>b</think>c",), "<think>b</think>c", "a"),
    "only the beginning of a tag": Case(("<thi", "nk"), "<think"),
    "white space before the tag": Case(("\n <think>a</think>b",), "b", "a"),
    "an answer without a tag": Case(("  Just ", "so."), "  Just so."),
    "no streaming": Case(("<think>a</think>b",), "b", "a", args=("--no-stream",)),
    "no streaming, and the prompt opened the thought": Case(
        ("a</think>\nb",), "b", "a", args=("--no-stream",)
    ),
    "-x": Case(("<think>```\na\n```</think>b\n```\nc\n```",), "c", "```\na\n```", args=("-x",)),
    "gpt-oss": Case(
        ("<|chan", "nel|>analysis<|message|>hm<|e", "nd|><|start|>assis", f"tant{FINAL}So."),
        "So.",
        "hm",
    ),
    "gpt-oss without an end of its message": Case((f"{ANALYSIS}h<|m{FINAL}So.",), "So.", "h<|m"),
    "gpt-oss without a thought": Case(("<|channel|>", "final<|message|>So."), "So."),
    "gpt-oss, cut off": Case((f"{ANALYSIS}hm<|end|>",), f"{ANALYSIS}hm<|end|>", code=5),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_thought_and_what_is_text(lab: Home, model: ModelServer, name: str) -> None:
    case = CASES[name]
    if "--no-stream" in case.args:
        model.unstreamed("".join(case.pieces))
    else:
        model.say(*case.pieces)
    run = lab.run("--reasoning", *case.args, "hi")
    assert run.stdout == f"{case.text}\n"
    assert run.code == case.code
    if not case.code:
        assert run.stderr == (f"{case.thought}\n" if case.thought else "")


def test_programs_get_the_answer_without_the_thought(
    lab: Home, model: ModelServer, tmp_path: Any
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["n"]}')
    for opening in ("<think>", ""):
        model.say(f'{opening}{{"a": 1}}', '</think>{"n": 1}')
        assert lab.run("--schema", str(schema), "hi") == ('{"n": 1}\n', "", 0)


def test_a_thought_that_breaks_off_is_kept_as_a_thought(lab: Home, model: ModelServer) -> None:
    model.script(*chat.answer("<think>I gre", "et")[:3], Cut)
    run = lab.run("hi")
    assert run.stdout == ""
    assert run.code == 1
    assert lab.doc()["messages"][-1]["replay"] == {"think": "I greet"}


@pytest.mark.parametrize("args", [(), ("--no-stream",)])
def test_reasoning_of_its_own_says_that_the_text_has_none(
    lab: Home, model: ModelServer, args: tuple[str, ...]
) -> None:
    text = "So </think> it is."
    if args:
        message = {"role": "assistant", "reasoning_content": "hm", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        model.script(json.dumps({"id": "c", "choices": [choice]}).encode(), framing="length",
                     headers={"Content-Type": "application/json"})  # fmt: skip
    else:
        model.script(
            chat.event(chat.chunk({"reasoning_content": "hm"})),
            *chat.answer("So ", "</think> it is."),
        )
    assert lab.run(*args, "hi") == (f"{text}\n", "", 0)
    assert kept(lab) == (text, None)


def test_calls_end_a_thought_without_an_end(lab: Home, model: ModelServer) -> None:
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "ls", "arguments": "{}"},
    }
    model.script(*(chat.event(chat.chunk(delta)) for delta in ({"content": "<think>I look"}, {"tool_calls": [call]})),
                 *chat.answer("", finish="tool_calls"))  # fmt: skip
    lab.run("hi")
    message = lab.doc()["messages"][-1]
    assert message["content"] == ""
    assert message["replay"] == {"think": "I look"}
    assert len(message["tool_calls"]) == 1


# ---- all cuts

FRAGMENTS = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<",
        "think>",
        "</",
        "a",
        "\n",
        " ",
        "<think",
        "b>",
        ANALYSIS,
        "<|end|>",
        END,
        FINAL,
        "<|",
    ]
)
ANSWERS = st.lists(FRAGMENTS, min_size=1, max_size=7).map("".join)


def bare(text: str) -> str:
    """A text without its tags and white space."""
    return re.sub(
        r"</?think>|\s|<\|channel\|>(analysis|final)<\|message\|>|<\|end\|>(<\|start\|>assistant)?",
        "",
        text,
    )


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(answer=ANSWERS, data=st.data())
def test_where_the_stream_is_cut_makes_no_difference_and_only_tags_are_lost(
    lab: Home, model: ModelServer, answer: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=len(answer))))
    ends = [*cuts, len(answer)]
    model.say(*(answer[start:end] for start, end in zip([0, *cuts], ends, strict=True)))
    streamed = lab.run("hi")
    from_stream = kept(lab)
    model.unstreamed(answer)
    whole = lab.run("--no-stream", "hi")
    assert from_stream == kept(lab)
    assert streamed.code == whole.code
    text, thought = from_stream
    assert bare(f"{thought or ''}{text}") == bare(answer)
