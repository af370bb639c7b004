"""One session at every API in turn, twice: calls, reasoning, an image and a PDF are valid at each strict server."""

import json

from tests.support import anthropic_server as claude
from tests.support import gemini_server as google
from tests.support import ollama_server as llama
from tests.support import responses_server as openai
from tests.support.attached import make_pdf, make_png
from tests.support.home import Home
from tests.support.server import ModelServer, chunk, event
from tests.support.strict import strict
from tests.support.tools import call, calling, configure

SUM = {"a": 1, "b": 2}
MODELS = (
    "gemini/gemini-3.8-flash",
    "openai/gpt-6.1-sol",
    "anthropic/claude-sonnet-5-5",
    "ollama/m",
    "lab/m",
)


def test_a_session_moves_through_all_apis_with_calls_reasoning_an_image_and_a_pdf(
    home: Home, model: ModelServer, anthropic: claude.AnthropicServer
) -> None:
    gemini = google.GeminiServer()
    responses = openai.ResponsesServer()
    ollama = llama.OllamaServer()
    configure(home, model)
    home.configure(
        f'{home.config.read_text()}[providers.gemini]\nbase_url = "{gemini.google_url}"\n'
        f'[providers.openai]\nbase_url = "{responses.base_url}"\napi = "responses"\n'
        f'[providers.anthropic]\nbase_url = "{anthropic.base_url}"\n[providers.ollama]\nbase_url = "{ollama.root}"\n'
    )
    home.env |= {f"{name}_API_KEY": "k" for name in ("GEMINI", "OPENAI", "ANTHROPIC")}
    (home.cwd / "a.png").write_bytes(make_png())
    (home.cwd / "a.pdf").write_bytes(make_pdf())
    model.refuses = strict("lab")
    gemini.answer(
        google.thought("Hm."),
        google.signed(google.call("good__add", SUM)),
        google.call("good__add", SUM),
    )
    responses.answer(
        openai.reasoning("a", "Hm."), openai.function_call("fc1", "good__add", json.dumps(SUM))
    )
    made = claude.tool(1, "toolu_1", "good__add", json.dumps(SUM))
    anthropic.script(*claude.stream(claude.thought(0, "Hm."), made, stop="tool_use"))
    function = {"name": "good__add", "arguments": SUM}
    ollama.answer(
        llama.line(thinking="Hm."), llama.line(tool_calls=[{"function": function}]), llama.last()
    )
    model.script(event(chunk({"reasoning_content": "Hm."})), *calling(call("add", **SUM)))
    files = ["-f", "a.png", "-f", "a.pdf"]
    for round_, which in enumerate(2 * MODELS):
        session = ["-s", "0"] if round_ else files
        run = home.run(*session, "-m", which, f"question {round_}")
        assert run.code == 0, (which, run.stderr)
    assert sum(len(message.get("tool_calls", ())) for message in home.doc()["messages"]) == 6
    signed = [
        part
        for content in gemini.sent[-1]["contents"]
        for part in content["parts"]
        if "functionCall" in part
    ]
    # The first call of each answer has a signature: its own, or where another model made it the one for that.
    foreign = google.UNSIGNED
    own = google.signature(google.call("good__add", SUM))
    assert [part.get("thoughtSignature") for part in signed] == [own, None, *[foreign] * 4]
    for server in (gemini, responses, ollama):
        server.close()
