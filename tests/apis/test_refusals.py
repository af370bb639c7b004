"""Refusals for length: the window that they name, as servers have worded them."""

import json
from typing import Any

import pytest

from tests.support.apis import refusal_of
from tests.support.home import Home
from tests.support.server import ModelServer, event


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


# Each with where the wording was seen: an issue of that project, or litellm's list of them (exception_mapping_utils).
# The window; None where it does not say.
WORDS = [
    # OpenAI: smol-ai/developer#7, webtimemachine/wtm2#579
    ("This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens. Please reduce"
     " the length of the messages.", 4097),
    # OpenAI: The-Vibe-Company/quivr#505; DeepSeek: evalstate/fast-agent#621
    ("This model's maximum context length is 4097 tokens. However, you requested 4203 tokens (3703 in the messages, 500"
     " in the completion). Please reduce the length of the messages or completion.", 4097),
    # OpenAI, with functions (from memory); the same twice, as a proxy repeats it
    ("This model's maximum context length is 8192 tokens. However, you requested 8654 tokens (7600 in the messages, 54"
     " in the functions, and 1000 in the completion). Again: (7600 in the messages, 54 in the functions)", 8192),
    # OpenAI: langchain-ai/langchain#11001: prompt and answer together
    ("This model's maximum context length is 4097 tokens, however you requested 4226 tokens", 4097),
    # Anthropic: anthropics/claude-code#12186, litellm's list
    ("prompt is too long: 208310 tokens > 200000 maximum", 200000),
    # Anthropic: docker/docker-agent#569, anthropics/claude-code#228
    ("input length and `max_tokens` exceed context limit: 178959 + 64000 > 204648, decrease input length or"
     " `max_tokens` and try again", 204648),
    # Google: google-gemini/gemini-cli#6678
    ("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", 1048576),
    # Mistral: earendil-works/pi, overflow.ts
    ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
     32768),
    # xAI: cline/cline#3120
    ("This model's maximum prompt length is 131072 but the request contains 136973 tokens.", 131072),
    # vLLM: stepfun-ai/Step-Audio-R1#3
    ("'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 10240 tokens"
     " and your request has 1131 input tokens (32000 > 10240 - 1131).", 10240),
    # vLLM: AIDotNet/OpenCowork#82: it has counted no further
    ("This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your prompt"
     " contains at least 134145 input tokens, for a total of at least 262145 tokens. (parameter=input_tokens,"
     " value=134145)", 262144),
    # SGLang, Together AI: QwenLM/Qwen3#1321
    ("The input (61709 tokens) is longer than the model's context length (40960 tokens).", 40960),
    # OpenRouter: Aider-AI/aider#3721, boldsoftware/shelley#159
    ('This endpoint\'s maximum context length is 204800 tokens. However, you requested about 205432 tokens (81684 of'
     ' text input, 3748 of tool input, 120000 in the output). Please reduce the length of either one, or use the'
     ' "middle-out" transform to compress your prompt automatically.', 204800),
    # llama.cpp: langchain-ai/openwiki#648
    ("request (131168 tokens) exceeds the available context size (131072 tokens), try increasing it", 131072),
    # LM Studio: tinyhumansai/openhuman#3550, anomalyco/opencode#11141
    ("The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 10247 >= n_ctx:"
     " 4096). Try to load the model with a larger context length.", 4096),
    # text-generation-inference: huggingface/text-generation-inference#628, #937; litellm's list
    ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1244 `inputs` tokens and 1000"
     " `max_new_tokens`", 2048),
    # Groq: OpenHands/OpenHands#1902 (with the code in the body)
    ("context_length_exceeded: Please reduce the length of the messages or completion.", None),
    # Moonshot: earendil-works/pi, overflow.ts: it may count the answer too
    ("Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)", 262144),
    ("The decoder prompt is longer than the maximum model length of 4", None),
    # Dashscope: QwenLM/qwen-code#3652
    ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]", 983616),
    # thousands in every fashion, and figures that cannot be meant
    ("maximum context length is 131.072 tokens. However, your messages resulted in 140'000 tokens", 131072),
    ("maximum context length is 128k tokens. However, your messages resulted in 0 tokens", None),
    ("maximum context length is 99999999999999999999 tokens. Your messages resulted in 9999999999 tokens", None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "window"), WORDS)
def test_the_window_in_words(message: str, window: int | None) -> None:
    err = refusal_of(400, said(message))
    assert err.window == window
    assert err.exit_code == 6


RAW = json.dumps(
    {"message": "input length and `max_tokens` exceed context limit: 149674 + 64000 > 204658"}
)
BODIES = [
    # llama.cpp: ggml-org/llama.cpp#15780, oobabooga/textgen#7257
    (400, said("the request exceeds the available context size. try increasing the context size or enable context"
               " shift", type="exceed_context_size_error", n_prompt_tokens=14429, n_ctx=8192), 8192),
    (400, said("the request exceeds the available context size", n_prompt_tokens="many", n_ctx=None), None),
    # vLLM and Mistral, bare: ogx-ai/ogx#4534
    (400, {"object": "error", "message": "This model's maximum context length is 6048 tokens. However, you requested"
           " 6616 tokens (568 in the messages, 6048 in the completion).", "code": 400}, 6048),
    # xAI
    (400, {"code": "invalid", "error": "This model's maximum prompt length is 131072 but the request contains 136973"
           " tokens."}, 131072),
    # Google, in a list: google-gemini/gemini-cli#6678
    (400, [said("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).")],
     1048576),
    # text-generation-inference, with a status that it chose
    (422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168",
           "error_type": "validation"}, 1024),
    # OpenRouter, of a provider: egoist/chatwise-releases#917
    (400, said("Provider returned error", code=400, metadata={"raw": RAW, "provider_name": "Amazon Bedrock"}),
     204658),
    # Groq: OpenHands/OpenHands#1902
    (400, said("Please reduce the length of the messages or completion.", code="context_length_exceeded"), None),
    # what Go and Java escape
    (400, rb'{"error":{"message":"prompt is too long: 208310 tokens \u003e 200000 maximum"}}', 200000),
    (400, rb'{"error":{"message":"The input (61709 tokens) is longer than the model\u0027s context length (40960'
          rb' tokens)."}}', 40960),
    # no JSON at all
    (413, b"prompt is too long: 208310 tokens > 200000 maximum", 200000),
    # the server's words come before what it repeats of the question
    (400, {"error": {"message": "maximum context length is 8192 tokens", "input": 'so "n_ctx": 512, I think'}},
     8192),
    (400, {"detail": [{"msg": "prompt is too long", "input": "why: maximum context length is 4096 tokens?"}]}, None),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "window"), BODIES)
def test_the_window_in_bodies(status: int, body: Any, window: int | None) -> None:
    err = refusal_of(status, body)
    assert err.window == window
    assert err.exit_code == 6


@pytest.mark.parametrize(
    ("message", "prompt"),
    [
        (
            "maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens",
            7575,
        ),
        ("prompt is too long: 208,310 tokens > 200,000 maximum", 208310),
        ("request (131168 tokens) exceeds the available context size (131072 tokens)", 131168),
        ("exceed context limit: 178959 + 64000 > 204648 at 1732300000", None),
    ],
)
def test_the_largest_figure_beyond_the_window_is_the_prompts(
    message: str, prompt: int | None
) -> None:
    assert refusal_of(400, said(message)).prompt == prompt


@pytest.mark.parametrize(
    "message",
    [
        "Request too large on tokens per minute: Limit 6000, Requested 9000",
        "Invalid value for context",
        "max_tokens=140000 cannot be greater than max_model_len=max_total_tokens=131072.",
        "max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens",
        "Too many tokens, please wait before trying again.",
        "This request would exceed your organization's rate limit of 30,000 input tokens per minute",
    ],
)
def test_other_limits_are_no_refusal_for_length(message: str) -> None:
    assert refusal_of(400, said(message)).exit_code == 1


ASKED = "Why is the prompt too long, if the maximum context length is 4097 tokens?"


@pytest.mark.parametrize(
    "payload",
    [
        {
            "detail": [
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "x"],
                    "msg": "Extra inputs",
                    "input": ASKED,
                }
            ]
        },
        {
            "detail": [
                {
                    "msg": "Field required",
                    "input": {"content": ASKED, "stream_options": {"include_usage": True}},
                }
            ]
        },
        said(
            f"1 validation error: {{'type': 'extra_forbidden', 'loc': ('body', 'x'), 'input': {ASKED!r}}}"
        ),  # vLLM
        said(
            "Provider returned error",
            metadata={"raw": json.dumps({"msg": "Extra inputs", "input": ASKED})},
        ),
    ],
)
def test_a_refusal_that_repeats_the_request_is_read_by_its_own_words(
    lab: Home, model: ModelServer, payload: Any
) -> None:
    model.refuse(422, payload)
    run = lab.run(ASKED)
    assert run.code == 1
    assert "lab refused the request (422): " in run.stderr
    assert len(model.requests) == 1


WORDING = "This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens."


@pytest.mark.parametrize("where", ["refused", "in the stream"])
def test_a_prompt_that_is_too_long_is_exit_6_with_the_servers_words(
    lab: Home, model: ModelServer, where: str
) -> None:
    model.refuse(400, said(WORDING)) if where == "refused" else model.script(event(said(WORDING)))
    run = lab.run("hi")
    assert run.stdout == ""
    assert run.code == 6
    assert WORDING.rstrip(".") in run.stderr
    assert len(model.requests) == 1
