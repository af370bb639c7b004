"""One session that moves through three providers, strict servers all of them, and is refused by none."""

import base64
import json
import signal
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support import anthropic_server as claude
from tests.support import ollama_server as llama
from tests.support.anthropic_server import AnthropicServer
from tests.support.attached import make_png
from tests.support.home import Home, read_until, wait_for_exit, wait_until
from tests.support.ollama_server import OllamaServer
from tests.support.server import ModelServer, answer, chunk, event
from tests.support.strict import strict
from tests.support.tools import SERVER, call

CHAT = "deepseek/deepseek-v4-flash"
CLAUDE = "anthropic/claude-sonnet-4-5"
LLAMA = "ollama/m"
TOOLS = f"""[agents.default]
tools = ["good"]
[sessions]
titles = "off"
[mcp.servers.good]
command = {json.dumps(sys.executable)}
args = [{json.dumps(str(SERVER))}]
auto_approve = ["*"]
"""
THOUGHT = "first I look, then I add"


def wrong_for_deepseek(body: dict[str, Any]) -> str | None:
    """As every strict server, and a call's reasoning must come back."""
    if any(
        message.get("tool_calls") and not message.get("reasoning_content")
        for message in body["messages"]
    ):
        return "The reasoning_content in the thinking mode must be passed back to the API."
    return strict("deepseek")(body)


class Servers(NamedTuple):
    chat: ModelServer
    claude: AnthropicServer
    llama: OllamaServer


@pytest.fixture
def servers(home: Home) -> Iterator[Servers]:
    """The three, strict, in a home that knows them all."""
    three = Servers(ModelServer(), AnthropicServer(), OllamaServer())
    three.chat.refuses = wrong_for_deepseek
    home.configure(TOOLS)
    home.env |= {"DEEPSEEK_API_KEY": "sk-deepseek", "DEEPSEEK_API_BASE": three.chat.base_url}
    home.env |= {
        "ANTHROPIC_API_KEY": "sk-ant",
        "ANTHROPIC_API_BASE": three.claude.base_url.removesuffix("/v1"),
    }
    home.env |= {"OLLAMA_API_BASE": three.llama.root}
    yield three
    for server in three:
        server.close()


def by_chat(servers: Servers) -> None:
    """Reasoning, two calls at once with the ids that this provider uses in every turn, an answer."""
    adding = [call("add", number, a=number, b=number) for number in (1, 2)]
    asking = [
        chunk({"reasoning_content": THOUGHT}),
        chunk({"tool_calls": adding}),
        chunk({}, "tool_calls"),
    ]
    servers.chat.script(*map(event, asking), event(b"[DONE]"))
    servers.chat.say("2 and 4.")


def by_claude(servers: Servers) -> None:
    """Thinking around a text and two calls, signed; an answer behind more thinking."""
    add = (claude.tool(2, "toolu_1", "good__add", '{"a": 3,', ' "b": 3}'),
           claude.tool(4, "toolu_2", "good__add", '{"a": 4, "b": 4}'))  # fmt: skip
    thoughts = claude.thought(0, THOUGHT), claude.thought(3, "and once more")
    asking = (thoughts[0], claude.said(1, "Let me add."), add[0], thoughts[1], add[1])
    servers.claude.script(*claude.stream(*asking, stop="tool_use"))
    servers.claude.script(
        *claude.stream(claude.thought(0, "easy"), claude.said(1, "6 and 8, beside a picture."))
    )


def by_llama(servers: Servers) -> None:
    """Thinking, two calls without ids, an answer."""
    calls = [
        {"function": {"name": "good__add", "arguments": {"a": number, "b": number}}}
        for number in (5, 6)
    ]
    servers.llama.answer(llama.line(thinking=THOUGHT), llama.line(tool_calls=calls), llama.last())
    servers.llama.answer(llama.line("10 and 12."), llama.last())


def ask(home: Home, model: str, *args: str) -> None:
    """One whole turn."""
    run = home.run("-s", "@journey", "-m", model, "--no-reasoning", *args)
    assert run.code == 0
    assert run.stderr.removeprefix("gptsh: @journey is a new session\n") == ""


def interrupted_tool(home: Home, servers: Servers) -> None:
    """A turn that ends while one of its tools hangs."""
    begun = home.cwd / "begun"
    hanging = [claude.tool(0, "toolu_1", "good__add", '{"a": 7, "b": 7}'),
               claude.tool(1, "toolu_2", "good__hang", json.dumps({"path": str(begun)}))]  # fmt: skip
    servers.claude.script(*claude.stream(*hanging, stop="tool_use"))
    with home.start("-s", "@journey", "-m", CLAUDE, "-o", "jsonl", "hang") as process:
        read_until(process.stdout, b'"tool_result"')  # of the other one
        wait_until(begun.exists)
        process.send_signal(signal.SIGINT)
        assert wait_for_exit(process) == 130


def interrupted_answer(home: Home, servers: Servers) -> None:
    """A turn that ends in the middle of an answer."""
    servers.chat.script(*answer("half an ")[:2], 30, *answer("answer")[1:])
    with home.start("-s", "@journey", "-m", CHAT, "broken off") as process:
        read_until(process.stdout, b"half an ")
        process.send_signal(signal.SIGTERM)
        assert wait_for_exit(process) == 143


@pytest.mark.slow
def test_a_session_moves_across_three_providers_and_is_refused_by_none(
    home: Home, servers: Servers
) -> None:
    (home.cwd / "a.png").write_bytes(make_png())
    by_chat(servers)
    ask(home, CHAT, "add")
    by_claude(servers)
    ask(home, CLAUDE, "-f", "a.png", "add and look")
    interrupted_tool(home, servers)
    by_llama(servers)
    ask(home, LLAMA, "add")
    by_chat(servers)
    ask(home, CHAT, "add again")
    interrupted_answer(home, servers)
    for model in (CLAUDE, LLAMA, CHAT, CLAUDE):
        ask(home, model, "and now?")

    answers = [message for message in home.doc()["messages"] if message["role"] == "assistant"]
    finishes = [message["finish_reason"] for message in answers]
    assert finishes.count("interrupted") == 1
    assert finishes.count("tool_calls") == 5
    (interleaved,) = [message for message in answers if "order" in message]
    assert interleaved["order"] == [
        "thinking:0",
        "text:0",
        "tool_call:0",
        "thinking:1",
        "tool_call:1",
    ]
    data = base64.b64encode(make_png()).decode()
    what_deepseek_got(servers.chat.sent[-1]["messages"], data)
    what_claude_got(servers.claude.sent[-1]["messages"], data)
    what_llama_got(servers.llama.chats[-1]["messages"], data)


def what_deepseek_got(messages: list[dict[str, Any]], data: str) -> None:
    """Its own reasoning, a blank in the place of others', every result, the picture."""
    asking = [message for message in messages if message.get("tool_calls")]
    assert [message["reasoning_content"] for message in asking] == [THOUGHT, " ", " ", " ", THOUGHT]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    missing = "error: this tool call was interrupted and has no result"
    assert results == ["2", "4", "6", "8", "14", missing, "10", "12", "2", "4"]
    (picture,) = [
        part for m in messages if isinstance(m["content"], list) for part in m["content"][1:]
    ]
    assert picture == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def what_claude_got(messages: list[dict[str, Any]], data: str) -> None:
    """Its thoughts unchanged, each at its place; no thought of others.

    One is left out: it was sent without the thoughts of its own rounds, since this model's thinking was off.
    """
    blocks = [
        part
        for message in messages
        if message["role"] == "assistant"
        for part in message["content"]
    ]
    kinds = [part["type"] for part in blocks]
    assert kinds.count("thinking") == 2
    at = kinds.index("thinking")
    assert kinds[at : at + 5] == ["thinking", "text", "tool_use", "thinking", "tool_use"]
    assert blocks[at] == {
        "type": "thinking",
        "thinking": THOUGHT,
        "signature": claude.signature(THOUGHT),
    }
    (picture,) = [
        part for message in messages for part in message["content"] if part["type"] == "image"
    ]
    assert picture["source"] == {"type": "base64", "media_type": "image/png", "data": data}


def what_llama_got(messages: list[dict[str, Any]], data: str) -> None:
    """The picture; no thought of an earlier turn."""
    assert [message["images"] for message in messages if message.get("images")] == [[data]]
    assert not any("thinking" in message for message in messages)
