"""What the models of late 2026 refuse, each in its provider's own words, and what gptsh then sends instead."""

import json
from typing import Any, NamedTuple

import pytest

from tests.support import gemini_server as google
from tests.support import responses_server as openai
from tests.support.anthropic_server import said
from tests.support.anthropic_server import stream as claude_stream
from tests.support.home import Home
from tests.support.ollama_server import last, line, ndjson
from tests.support.server import ModelServer, answer
from tests.support.vendors import at_vendor

ANSWERS: dict[str, list[bytes]] = {
    "chat": answer("Yes."),
    "responses": openai.stream(openai.message("Yes.")),
    "anthropic": claude_stream(said(0, "Yes.")),
    "gemini": google.stream({"text": "Yes."}),
    "ollama": [ndjson(line("Yes."), last())],
}
LIST = "Supported values are: 'low', 'medium', 'high', 'xhigh', and 'max'."


def vendor(home: Home, model: ModelServer, api: str, name: str) -> Home:
    """A home whose default model is PROVIDER/NAME on the scripted server, asked by this API."""
    base = {"gemini": model.base_url.replace("/v1", "/v1beta"), "ollama": model.base_url.removesuffix("/v1")}
    return at_vendor(home, name, base.get(api, model.base_url), f'api = "{api}"\n')


def refusal(api: str, message: str, **more: Any) -> Any:
    """The body of a refusal as the provider writes it."""
    match api:
        case "anthropic":
            return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        case "gemini":
            return google.error(400, message)
        case "ollama":
            return {"error": message}
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


def sent(model: ModelServer) -> list[dict[str, Any]]:
    """The bodies of the questions."""
    return [body for body in model.sent if body and {"messages", "input", "contents"} & set(body)]


def value_at(body: Any, path: str) -> Any:
    """The value at a path of keys, such as ``reasoning.effort``; None if there is none."""
    for key in path.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


class Refused(NamedTuple):
    """A question with this parameter, the refusal of it, and what stands at ``path`` in the request before and after.

    ``note``: what stderr says after the name of the model.
    """

    api: str
    model: str
    param: str
    words: str
    path: str
    first: Any
    then: Any
    note: str
    more: dict[str, Any]  # further keys of the error


def effort(api: str, model: str, value: str, words: str, path: str, first: Any, then: Any, **more: Any) -> Refused:
    """A refusal of an effort; ``then`` is None if it is left out."""
    level = more.pop("level", then)
    note = f"takes no reasoning_effort {value}: {level} is sent" if level else "takes no reasoning_effort: left out"
    return Refused(api, model, f"reasoning_effort={value}", words, path, first, then, note, more)


REFUSED = {
    "effort, Responses": effort(
        "responses", "openai/gpt-6.3-luna", "none",
        f"Unsupported value: 'none' is not supported with the 'gpt-6.3-luna-2026-12-01' model. {LIST}",
        "reasoning.effort", "none", "low", param="reasoning.effort", code="unsupported_value",
    ),
    "effort, chat": effort(
        "chat", "lab/gpt-6.2-sol", "high",
        "Unsupported value: 'reasoning_effort' does not support 'high' with this model. Supported values are: "
        "'medium'.",
        "reasoning_effort", "high", "medium", param="reasoning_effort", code="unsupported_value",
    ),
    "effort, Groq": effort(
        "chat", "lab/unheard-of", "max", "`reasoning_effort` must be one of `low`, `medium`, or `high`",
        "reasoning_effort", "max", "high",
    ),
    "effort, a model that does not reason": effort(
        "chat", "lab/gpt-4.1", "low", "Unrecognized request argument supplied: reasoning_effort",
        "reasoning_effort", "low", None,
    ),
    "disabled on a model that always thinks": effort(
        "anthropic", "anthropic/claude-haiku-6", "none",
        '"thinking.type.disabled" is not supported for this model. Use "thinking.type.adaptive" and '
        '"output_config.effort" to control thinking behavior.',
        "output_config.effort", None, "low",
    ),
    "between_tools elsewhere": effort(
        "anthropic", "anthropic/claude-sonnet-6", "none",
        '"thinking.type.between_tools" is not supported for this model.', "output_config.effort", None, "low",
    ),
    "thinkingLevel": effort(
        "gemini", "gemini/gemini-3.6-flash", "minimal",
        "Thinking level MINIMAL is not supported for this model. Please retry with other thinking level.",
        "generationConfig.thinkingConfig.thinkingLevel", "MINIMAL", "LOW", level="low",
    ),
    "think": effort(
        "ollama", "ollama/qwen3", "max", 'invalid think value: "max" (must be "high", "medium", "low", true, or false)',
        "think", "max", "high",
    ),
    "no thinking": effort(
        "ollama", "ollama/phi", "low", '"phi" does not support thinking', "think", "low", None,
    ),
    "levels, an older Ollama": Refused(
        "ollama", "ollama/qwen3", "reasoning_effort=low", 'think value "low" is not supported for this model',
        "think", "low", True, "", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED.values(), ids=REFUSED)
def test_what_a_model_refuses_is_not_asked_of_it_again_for_a_day(home: Home, model: ModelServer, rule: Refused) -> None:
    asked = vendor(home, model, rule.api, rule.model)
    model.refuse(400, refusal(rule.api, rule.words, **rule.more))
    note = f"gptsh: {rule.model} {rule.note}\n" if rule.note else ""
    for _ in range(2):
        model.script(*ANSWERS[rule.api])
        assert asked.run("-p", rule.param, "hi") == ("Yes.\n", note, 0)
    assert [value_at(body, rule.path) for body in sent(model)] == [rule.first, rule.then, rule.then]


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Models of next month: they are not in the table. The value of each effort, and where it stands.
NEW = {
    "responses": ("openai/gpt-6.3-astra", "reasoning.effort", "low low low medium high xhigh max"),
    "chat": ("lab/gpt-6.3-astra", "reasoning_effort", "low low low medium high xhigh xhigh"),
    "anthropic": ("anthropic/claude-opus-5-6", "output_config.effort", "low low low medium high xhigh max"),
    "gemini": ("gemini/gemini-4-neon", "generationConfig.thinkingConfig.thinkingLevel",
               "LOW LOW LOW MEDIUM HIGH HIGH HIGH"),
    "ollama": ("ollama/qwen4", "think", "False low low medium high high max"),
}  # fmt: skip


@pytest.mark.parametrize("api", NEW)
def test_a_model_that_the_table_lacks_takes_every_effort(home: Home, model: ModelServer, api: str) -> None:
    name, path, values = NEW[api]
    asked = vendor(home, model, api, name)
    for level in EFFORTS:
        model.script(*ANSWERS[api])
        run = asked.run("-p", f"reasoning_effort={level}", "hi")
        assert (run.stdout, run.code) == ("Yes.\n", 0)
    assert [str(value_at(body, path)) for body in sent(model)] == values.split()
    assert "thinking.type.disabled" not in json.dumps(sent(model))
