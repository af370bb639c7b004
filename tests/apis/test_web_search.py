"""Searching the web with the provider's own search: what is asked, what an answer cites, and who has no search."""

import json
import sys
from typing import Any

import pytest

from tests.apis.test_recordings import FOLDER
from tests.support.answers import events, json_output
from tests.support.anthropic_server import AnthropicServer, block, said
from tests.support.anthropic_server import stream as claude_stream
from tests.support.claude import SONNET
from tests.support.dry import dry_run
from tests.support.home import Home
from tests.support.responses_server import message, reasoning, search, stream
from tests.support.server import ModelServer, answer, chunk, event
from tests.support.terminal import Conversation, Terminal
from tests.support.tools import configure as with_tools

ALBERTA = {
    "url": "https://www.britannica.com/place/Mount-Columbia",
    "title": "Mount Columbia | Britannica",
}
OTHER = {"url": "https://a.test/?q=1", "title": None}


def cited(text: str, *pages: dict[str, Any], name: str = "1") -> dict[str, Any]:
    """An item with a text that cites pages, as OpenAI sends it."""
    notes = [{"type": "url_citation", "start_index": 0, "end_index": 4, **page} for page in pages]
    item = message(text, name)
    return {**item, "content": [{**item["content"][0], "annotations": notes}]}


FOUND = (reasoning("a", "I search."), search(), cited("Mount Columbia.", ALBERTA, OTHER, ALBERTA))


def claude_found() -> list[bytes]:
    """The same from Claude: a search, its results, and a text with citations."""
    page = {"type": "web_search_result", **ALBERTA, "encrypted_content": "sealed", "page_age": None}
    start = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [page]}
    citation = {
        "type": "web_search_result_location",
        **ALBERTA,
        "encrypted_index": "E",
        "cited_text": "3,747 m",
    }
    return claude_stream(
        said(0, "I search. "),
        block(1, {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
              {"type": "input_json_delta", "partial_json": '{"query": "highest"}'}),
        block(2, start),
        block(3, {"type": "text", "text": "", "citations": []},
              {"type": "text_delta", "text": "Mount Columbia."}, {"type": "citations_delta", "citation": citation}),
    )  # fmt: skip


OPENROUTERS = {
    "type": "url_citation",
    "url_citation": {**ALBERTA, "content": "…", "start_index": 0, "end_index": 4},
}
LISTED = {
    "citations": [ALBERTA["url"], OTHER["url"]],
    "search_results": [{**ALBERTA, "date": "2026-11-01"}],
}
# By model: the path, the tools in the request, and the chunks that cite.
AT_CHAT: dict[str, tuple[str, Any, list[dict[str, Any]], list[dict[str, Any]]]] = {
    "openrouter/qwen/qwen3.7-plus": (
        "/api/v1/chat/completions", [{"type": "openrouter:web_search"}],
        [chunk({"annotations": [OPENROUTERS]}), chunk({"annotations": [OPENROUTERS]})], [ALBERTA],
    ),
    "perplexity/sonar": ("/chat/completions", None, [{**chunk({}), **LISTED}, {**chunk({}), **LISTED}],
                         [ALBERTA, OTHER]),
}  # fmt: skip


@pytest.fixture
def vendors(hosted: Home) -> Home:
    """A home with keys for several vendors, whose addresses are the model server's; no titles."""
    hosted.configure('[sessions]\ntitles = "off"\n')
    hosted.env |= {"XAI_API_KEY": "k", "OPENROUTER_API_KEY": "k", "PERPLEXITYAI_API_KEY": "k"}
    return hosted


# ---- what is asked, and what is cited


@pytest.mark.parametrize("name", ["openai/gpt-6.1-sol", "openai/gpt-4.1", "xai/grok-4.7"])
def test_models_with_the_responses_api_search_by_it(
    vendors: Home, model: ModelServer, name: str
) -> None:
    model.script(*stream(*FOUND))
    run = vendors.run("--web", "-m", name, "-o", "json", "how high?")
    assert run.code == 0
    assert json_output(run)["sources"] == [ALBERTA, OTHER]
    (asked,) = model.requests
    assert asked.path == "/v1/responses"
    assert asked.body["tools"] == [{"type": "web_search"}]
    assert vendors.doc()["messages"][1]["sources"] == [ALBERTA, OTHER]


@pytest.mark.parametrize("name", AT_CHAT)
def test_others_search_by_chat_completions(vendors: Home, model: ModelServer, name: str) -> None:
    path, tools, chunks, sources = AT_CHAT[name]
    model.script(*map(event, chunks), *answer("Mount Columbia."))
    run = vendors.run("--web", "-m", name, "-o", "json", "how high?")
    assert run.code == 0
    assert json_output(run)["sources"] == sources
    (asked,) = model.requests
    assert asked.path == path
    assert asked.body.get("tools") == tools
    assert vendors.doc()["messages"][1]["sources"] == sources


def test_a_model_that_always_searches_names_its_pages_unasked(
    vendors: Home, model: ModelServer
) -> None:
    model.script(event({**chunk({}), **LISTED}), *answer("Mount Columbia."))
    run = vendors.run("-m", "perplexity/sonar", "-o", "jsonl", "how high?")
    assert events(run)[-1]["sources"] == [ALBERTA, OTHER]


def test_claude_gets_its_results_back_as_they_came(
    claude: Home, anthropic: AnthropicServer
) -> None:
    anthropic.script(*claude_found())
    run = claude.run("--web", "-o", "json", "how high?")
    assert json_output(run)["text"] == "I search. Mount Columbia."
    assert json_output(run)["sources"] == [ALBERTA]
    tool = {"type": "web_search_20250305", "name": "web_search"}
    mark = {"cache_control": {"type": "ephemeral"}}
    assert anthropic.sent[0]["tools"] == [tool | mark]
    assert claude.run("-s", "0", "and the second?").code == 0
    assert anthropic.sent[1]["tools"] == [tool | mark]
    assert (
        anthropic.sent[1]["messages"][1]["content"]
        == claude.doc()["messages"][1]["replay"]["blocks"]
    )
    assert [part["type"] for part in anthropic.sent[1]["messages"][1]["content"]] == [
        "text", "server_tool_use", "web_search_tool_result", "text"]  # fmt: skip


ADD = {"name": "mine", "parameters": {"type": "object", "properties": {}}}
# By model: a tool of the user's, and the provider's search.
BESIDE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "openai/gpt-6-sol": ({"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "web_search"}),
    SONNET: ({"type": "custom", "name": "mine", "input_schema": {"type": "object"}},
             {"type": "web_search_20250305", "name": "web_search"}),
    "gemini/gemini-3.8-flash": ({"codeExecution": {}}, {"googleSearch": {}}),
    "openrouter/qwen/qwen3.7-plus": ({"type": "function", "function": ADD}, {"type": "openrouter:web_search"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_the_search_is_beside_the_tools_of_the_user_and_of_tool_servers(
    home: Home, model: ModelServer, name: str
) -> None:
    with_tools(home, model)
    own, found = BESIDE[name]
    body = dry_run(home, name, params={"tools": [own]}, args=["--web"]).body
    assert body["tools"][:2] == [own, found]
    assert "good__add" in json.dumps(body["tools"][2:])
    assert body.get("toolConfig") == (
        {"includeServerSideToolInvocations": True} if "gemini" in name else None
    )


def test_a_session_searches_on_until_it_shall_not(vendors: Home, model: ModelServer) -> None:
    vendors.configure(
        '[agents.default]\nmodel = "openai/gpt-6.1-sol"\n[sessions]\ntitles = "off"\n'
    )
    for _ in range(4):
        model.script(*stream(*FOUND))
    for args in (["--web"], ["-s", "0"], ["-s", "0", "--no-web"], ["-s", "0"]):
        assert vendors.run(*args, "how high?").code == 0
    assert [asked.get("tools") for asked in model.sent] == [[{"type": "web_search"}]] * 2 + [
        None
    ] * 2
    # What was found goes back in its place, whether the model may search again or not.
    for asked in model.sent[1:]:
        assert asked["input"][1:4] == [*FOUND[:2], {**FOUND[2], "content": [
            {key: FOUND[2]["content"][0][key] for key in ("type", "text", "annotations")}]}]  # fmt: skip


def test_an_agent_may_search(vendors: Home) -> None:
    vendors.configure('[agents.default]\nmodel = "openai/gpt-6.1-sol"\nweb = true\n')
    assert dry_run(vendors, "openai/gpt-6.1-sol").body["tools"] == [{"type": "web_search"}]
    assert "tools" not in dry_run(vendors, "openai/gpt-6.1-sol", args=["--no-web"]).body


def test_an_answer_that_breaks_off_keeps_its_pages(
    claude: Home, anthropic: AnthropicServer
) -> None:
    anthropic.script(*claude_found()[:-2])
    run = claude.run("--web", "-o", "json", "how high?")
    assert run.code == 1
    assert json_output(run)["sources"] == [ALBERTA]


# ---- a terminal


def test_a_conversation_turns_the_search_on_and_off(vendors: Home, model: ModelServer) -> None:
    with Conversation(vendors, "-m", "openai/gpt-6.1-sol") as talk:
        for _ in range(2):
            model.script(*stream(cited("Mount Columbia.", ALBERTA)))
        talk.plays(
            ("/web", "the model may not search the web"),
            ("/web maybe", "/web maybe: expected nothing or on or off"),
            ("/web on", "the model may search the web"),
            ("how high?", f"[1] {ALBERTA['title']} {ALBERTA['url']}"),
            ("/model echo", "echo has no web search"),
            ("/web off", "the model may not search the web"),
            ("how high?", "Mount Columbia."),
        )  # fmt: skip
    assert [asked.get("tools") for asked in model.sent] == [[{"type": "web_search"}], None]


def test_a_terminal_lists_the_pages_below_the_answer(vendors: Home, model: ModelServer) -> None:
    shell = f"'{sys.executable}' -m gptsh --web -m openai/gpt-6.1-sol 'how high?' > out"
    for command in (["/bin/sh", "-c", shell], None):
        title = {"url": ALBERTA["url"], "title": "Mount\x1b[2J\nColumbia"}
        model.script(*stream(cited("Mount Columbia.", title, OTHER)))
        args = () if command else ("--web", "-m", "openai/gpt-6.1-sol", "how high?")
        seen, code = Terminal(vendors, *args, command=command, columns=120).close()
        shown = seen.decode().replace("\r\n", "\n")
        assert code == 0
        assert f"\n[1] Mount␛[2J Columbia {ALBERTA['url']}\n[2] {OTHER['url']}\n" in shown
        assert ("Mount Columbia.\n" in shown) is (command is None)
    assert (vendors.cwd / "out").read_text() == "Mount Columbia.\n"


def test_a_pipe_gets_the_answer_alone(vendors: Home, model: ModelServer) -> None:
    model.script(*stream(cited("Mount Columbia.", ALBERTA)))
    assert vendors.run("--web", "-m", "openai/gpt-6.1-sol", "how high?") == (
        "Mount Columbia.\n",
        "",
        0,
    )


def test_a_transcript_and_a_page_list_what_an_answer_cites(
    vendors: Home, model: ModelServer
) -> None:
    odd = {"url": "https://a.test/<b> c", "title": "[A] *B*"}
    model.script(*stream(cited("Mount Columbia.", ALBERTA, odd)))
    vendors.run("--web", "-m", "openai/gpt-6.1-sol", "how high?")
    shown = vendors.run("--show-session", "0", "-o", "text").stdout
    assert f"1. [Mount Columbia | Britannica](<{ALBERTA['url']}>)\n2. [" in shown
    page = vendors.run("--export-session", "0", "--format", "html").stdout
    assert (
        f'<a href="{ALBERTA["url"]}" rel="noopener noreferrer nofollow">{ALBERTA["title"]}</a>'
        in page
    )
    assert (
        '<a href="https://a.test/%3Cb%3E%20c" rel="noopener noreferrer nofollow">(A) *B*</a>'
        in page
    )


# ---- who has no search


@pytest.mark.parametrize(
    "name",
    [
        "echo",
        "lab/m",
        "mistral/mistral-large-latest",
        "ollama/qwen3",
        "openai/gpt-6-sol",
        "azure/gpt-4.1",
    ],
)
def test_without_a_search_of_the_provider_nothing_is_sent_or_saved(
    home: Home, model: ModelServer, name: str
) -> None:
    home.env |= {
        "MISTRAL_API_KEY": "k",
        "OPENAI_API_KEY": "k",
        "AZURE_API_KEY": "k",
        "OLLAMA_API_BASE": model.base_url,
    }
    bases = {
        of: f'[providers.{of}]\nbase_url = "{model.base_url}"\n'
        for of in ("lab", "mistral", "openai", "azure")
    }
    home.configure(
        "".join(bases.values()) + 'api = "responses"\n'
    )  # Azure's, whose gpt-4.1 the table says has none
    run = home.run("--web", "-m", name, "hi")
    assert run.stdout == ""
    assert run.code == 2
    assert model.requests == []
    assert home.files() == []
    assert run.stderr.startswith(f"gptsh: {name} has no web search: choose another model with -m")


def test_a_session_does_not_stop_to_search_unsaid(vendors: Home, model: ModelServer) -> None:
    model.script(*stream(*FOUND))
    vendors.run("--web", "-m", "openai/gpt-6.1-sol", "how high?")
    assert vendors.run("-s", "0", "-m", "echo", "and now?").code == 2
    assert (
        vendors.run("-s", "0", "-m", "echo", "--no-web", "and now?").stdout
        == "You said: and now?\n"
    )


def test_a_server_in_the_providers_place_is_asked_in_its_own_api_alone(
    home: Home, model: ModelServer
) -> None:
    home.configure(
        f'[providers.lab]\nbase_url = "{model.base_url}"\napi = "responses"\n[sessions]\ntitles = "off"\n'
    )
    model.refuse(404, {"detail": "Not Found"})
    run = home.run("--web", "-m", "lab/m", "hi")
    assert run.code == 2
    assert "lab/m has no web search" in run.stderr
    assert [asked.path for asked in model.requests] == ["/v1/responses"]


@pytest.mark.parametrize(
    "base", ["https://me.openai.azure.com/openai/v1", "https://eu.api.openai.com/v1"]
)
@pytest.mark.parametrize("name", ["gpt-4o", "gpt-6-sol"])
def test_openais_search_is_at_azure_and_in_its_regions_too(
    home: Home, base: str, name: str
) -> None:
    provider = "azure" if "azure" in base else "openai"
    home.configure(f'[providers.{provider}]\nbase_url = "{base}"\n')
    asked = dry_run(home, f"{provider}/{name}", args=["--web"])
    assert asked.body["tools"] == [{"type": "web_search"}]


# ---- recorded answers


@pytest.mark.parametrize("name", ["json-04.response.json", "stream-04.response.sse"])
def test_the_pages_in_a_recorded_answer(vendors: Home, model: ModelServer, name: str) -> None:
    path = FOLDER / "responses" / name
    if not path.exists():
        pytest.skip("no recordings")
    data = path.read_bytes()
    of = "event-stream" if name.endswith("sse") else "json"
    model.script(
        data, headers={"Content-Type": f"text/{of}" if of == "event-stream" else "application/json"}
    )
    run = vendors.run("--web", "-m", "openai/gpt-5.5", "-o", "json", "what is new?")
    sources = json_output(run)["sources"]
    assert run.code == 0
    assert len(sources) == 1
    assert all(json.dumps(page["url"]).encode() in data and page["title"] for page in sources)
