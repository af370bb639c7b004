"""Refusals for length: the window and the size of the prompt that they name, as servers have worded them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dialects import refusal_of
from tests.support.home import Home
from tests.support.server import ModelServer, event, prompt_tokens


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


# Each with where the wording was seen: an issue of that project, or litellm's list of them (exception_mapping_utils).
# The window, and the tokens of the prompt alone; None where it does not say.
WORDS = [
    # OpenAI: smol-ai/developer#7, webtimemachine/wtm2#579
    ("This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens. Please reduce"
     " the length of the messages.", 4097, 7575),
    # OpenAI: The-Vibe-Company/quivr#505; DeepSeek: evalstate/fast-agent#621
    ("This model's maximum context length is 4097 tokens. However, you requested 4203 tokens (3703 in the messages, 500"
     " in the completion). Please reduce the length of the messages or completion.", 4097, 3703),
    # OpenAI: aboutmydreams/custom_data_gpt#2
    ("This model's maximum context length is 4097 tokens, however you requested 6539 tokens (6283 in your prompt; 256"
     " for the completion). Please reduce your prompt; or completion length.", 4097, 6283),
    # OpenAI, with functions (from memory); the same twice, as a proxy repeats it
    ("This model's maximum context length is 8192 tokens. However, you requested 8654 tokens (7600 in the messages, 54"
     " in the functions, and 1000 in the completion). Again: (7600 in the messages, 54 in the functions)", 8192, 7654),
    # OpenAI: cline/cline#5474
    ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens. Please reduce"
     " the length of the messages.", 272000, 289650),
    # OpenAI: langchain-ai/langchain#11001: prompt and answer together
    ("This model's maximum context length is 4097 tokens, however you requested 4226 tokens", 4097, None),
    # OpenAI's Responses: earendil-works/pi, overflow.ts
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", None, None),
    # Anthropic: anthropics/claude-code#12186, litellm's list
    ("prompt is too long: 208310 tokens > 200000 maximum", 200000, 208310),
    # Anthropic: docker/docker-agent#569, anthropics/claude-code#228
    ("input length and `max_tokens` exceed context limit: 178959 + 64000 > 204648, decrease input length or"
     " `max_tokens` and try again", 204648, 178959),
    # Google: google-gemini/gemini-cli#6678
    ("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", 1048576, 1200293),
    # Google: litellm's list names the first; Vertex's is from memory
    ("The input token count exceeds the maximum number of tokens allowed 1,048,576.", 1048576, None),
    ("Unable to submit request because the input token count is 32825 but the model only supports up to 32768. Reduce"
     " the input token count and try again.", 32768, 32825),
    # Mistral: earendil-works/pi, overflow.ts
    ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
     32768, 40000),
    # xAI: cline/cline#3120
    ("This model's maximum prompt length is 131072 but the request contains 136973 tokens.", 131072, 136973),
    # vLLM: vllm-project/vllm#20409
    ("This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the"
     " messages, 10000 in the completion). Please reduce the length of the messages or completion.", 16384, 112946),
    # vLLM: stepfun-ai/Step-Audio-R1#3
    ("'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 10240 tokens"
     " and your request has 1131 input tokens (32000 > 10240 - 1131).", 10240, 1131),
    # vLLM of the V1 engine: vllm-project/vllm#12600
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len`"
     " is no smaller than the number of text tokens.", 4096, 5000),
    # vLLM: AIDotNet/OpenCowork#82: it has counted no further
    ("This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your prompt"
     " contains at least 134145 input tokens, for a total of at least 262145 tokens. (parameter=input_tokens,"
     " value=134145)", 262144, None),
    # vLLM, the same by other words: every one seen is one above its limit
    ("You passed 98305 input tokens and requested 32768 output tokens. However, the model's context length is only"
     " 131072 tokens, resulting in a maximum input length of 98304 tokens. (parameter=input_tokens, value=98305)",
     131072, None),
    # SGLang, Together AI: QwenLM/Qwen3#1321
    ("The input (61709 tokens) is longer than the model's context length (40960 tokens).", 40960, 61709),
    # SGLang: sgl-project/sglang#4048
    ("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens). Use a shorter input or enable"
     " --allow-auto-truncate.", 59862, 160062),
    # SGLang: earendil-works/pi, overflow.ts
    ("Requested token count exceeds the model's maximum context length of 262144 tokens. You requested a total of"
     " 267042 tokens: 201506 tokens from the input messages and 65536 tokens for the completion.", 262144, 201506),
    ("Input length (265330) exceeds model's maximum context length (262144).", 262144, 265330),
    # OpenRouter: Aider-AI/aider#3721, boldsoftware/shelley#159
    ('This endpoint\'s maximum context length is 204800 tokens. However, you requested about 205432 tokens (81684 of'
     ' text input, 3748 of tool input, 120000 in the output). Please reduce the length of either one, or use the'
     ' "middle-out" transform to compress your prompt automatically.', 204800, 85432),
    # OpenRouter, of a provider: earendil-works/pi, overflow.ts
    ("Input length 132000 exceeds the maximum allowed input length of 131040 tokens.", 131040, 132000),
    # llama.cpp: langchain-ai/openwiki#648
    ("request (131168 tokens) exceeds the available context size (131072 tokens), try increasing it", 131072, 131168),
    # llama-cpp-python: run-llama/llama_index#8046
    ("Requested tokens (2065) exceed context window of 1800", 1800, 2065),
    # DwarfStar: antirez/ds4#150, earendil-works/pi
    ("Prompt tokens (9000) exceeds context size (8192)", 8192, 9000),
    ("Prompt has 300,000 tokens, but the configured context size is 131,072 tokens", 131072, 300000),
    # LM Studio: lmstudio-ai/lmstudio-bug-tracker#546
    ("Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context"
     " length of only 32768 tokens, which is not enough.", 32768, 111490),
    # LM Studio: tinyhumansai/openhuman#3550, anomalyco/opencode#11141
    ("The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 10247 >= n_ctx:"
     " 4096). Try to load the model with a larger context length.", 4096, 10247),
    ("Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", 7424, 15028),
    # text-generation-inference: huggingface/text-generation-inference#628, #937; litellm's list
    ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1244 `inputs` tokens and 1000"
     " `max_new_tokens`", 2048, 1244),
    ("Input validation error: `inputs` must have less than 1024 tokens. Given: 1872", 1024, 1872),
    # Cohere: cohere-ai/sandbox-topically#4: prompt and answer together; and of now
    ("too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354. Try using a"
     " shorter prompt or a smaller max_tokens value.", 2048, None),
    ("too many tokens: size limit exceeded by 168512 tokens. The limit for this model is 132000 tokens.", 132000, None),
    # Ollama: its tests; the excess is neither
    ("prompt too long; exceeded max context length by 4096 tokens", None, None),
    ("the input length exceeds the context length", None, None),
    # Groq: OpenHands/OpenHands#1902 (with the code in the body)
    ("context_length_exceeded: Please reduce the length of the messages or completion.", None, None),
    # Cerebras: litellm's list
    ("Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", 8192, None),
    # GitHub Copilot: earendil-works/pi, overflow.ts
    ("prompt token count of 140000 exceeds the limit of 128000", 128000, 140000),
    # Moonshot: earendil-works/pi, overflow.ts: it may count the answer too
    ("Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)", 262144, None),
    # MiniMax: the figure is a code
    ("invalid params, context window exceeds limit (2013)", None, None),
    # Dashscope: QwenLM/qwen-code#3652
    ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]", 983616, None),
    # Fireworks (from memory)
    ("The prompt is too long: 140000, model maximum context length: 131071", 131071, 140000),
    # Bedrock's Mantle: litellm's list
    ("prompt tokens (210000) exceed model maximum (200000)", 200000, 210000),
    # litellm's proxy: how its own errors are worded (exceptions.py)
    ("litellm.ContextWindowExceededError: litellm.BadRequestError: AnthropicException - prompt is too long: 215000"
     " tokens > 200000 maximum. Received Model Group=claude", 200000, 215000),
    ("litellm.ContextWindowExceededError: litellm.BadRequestError: BedrockException: Context Window Error", None, None),
    # thousands in every fashion, and figures that cannot be meant
    ("maximum context length is 131.072 tokens. However, your messages resulted in 140'000 tokens", 131072, 140000),
    ("maximum context length is 131\u202f072 tokens. However, your messages resulted in 140_000", 131072, 140000),
    ("maximum context length is 128k tokens. However, your messages resulted in 0 tokens", None, None),
    ("maximum context length is 128 tokens", None, None),
    ("maximum context length is 99999999999999999999 tokens. Your messages resulted in 9999999999 tokens", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "window", "prompt"), WORDS)
def test_figures_in_words(message: str, window: int | None, prompt: int | None) -> None:
    err = refusal_of(400, said(message))
    assert (err.window, err.prompt, err.exit_code) == (window, prompt, 6)


RAW = json.dumps({"message": "input length and `max_tokens` exceed context limit: 149674 + 64000 > 204658"})
BODIES = [
    # llama.cpp: ggml-org/llama.cpp#15780, oobabooga/textgen#7257
    (400, said("the request exceeds the available context size. try increasing the context size or enable context"
               " shift", type="exceed_context_size_error", n_prompt_tokens=14429, n_ctx=8192), 8192, 14429),
    (500, said("the request exceeds the available context size", type="exceed_context_size_error",
               n_prompt_tokens=1407, n_ctx=256), 256, 1407),
    (400, said("the request exceeds the available context size", n_prompt_tokens="many", n_ctx=None), None, None),
    (400, said("the request exceeds the available context size", n_ctx_train=131072), None, None),
    # vLLM and Mistral, bare: ogx-ai/ogx#4534
    (400, {"object": "error", "message": "This model's maximum context length is 6048 tokens. However, you requested"
           " 6616 tokens (568 in the messages, 6048 in the completion).", "code": 400}, 6048, 568),
    # xAI
    (400, {"code": "invalid", "error": "This model's maximum prompt length is 131072 but the request contains 136973"
           " tokens."}, 131072, 136973),
    # Google, in a list: google-gemini/gemini-cli#6678
    (400, [said("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).")],
     1048576, 1200293),
    # text-generation-inference, with a status of its own choice
    (422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168",
           "error_type": "validation"}, 1024, 1168),
    # OpenRouter, of a provider: egoist/chatwise-releases#917
    (400, said("Provider returned error", code=400, metadata={"raw": RAW, "provider_name": "Amazon Bedrock"}),
     204658, 149674),
    # Groq: OpenHands/OpenHands#1902
    (400, said("Please reduce the length of the messages or completion.", code="context_length_exceeded"), None, None),
    # what Go and Java escape
    (400, rb'{"error":{"message":"prompt is too long: 208310 tokens \u003e 200000 maximum"}}', 200000, 208310),
    (400, rb'{"error":{"message":"The input (61709 tokens) is longer than the model\u0027s context length (40960'
          rb' tokens)."}}', 40960, 61709),
    # no JSON at all
    (413, b"prompt is too long: 208310 tokens > 200000 maximum", 200000, 208310),
    # the server's words come before what it repeats of the question
    (400, {"error": {"message": "maximum context length is 8192 tokens", "input": 'so "n_ctx": 512, I think'}},
     8192, None),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "window", "prompt"), BODIES)
def test_figures_in_bodies(status: int, body: Any, window: int | None, prompt: int | None) -> None:
    err = refusal_of(status, body)
    assert (err.window, err.prompt, err.exit_code) == (window, prompt, 6)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens=140000 cannot be greater than max_model_len=max_total_tokens=131072.",
        "max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens",
        "tool name exceeds the maximum allowed length of 64 characters",
        "Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 80",
        "Too many tokens, please wait before trying again.",
        "This request would exceed your organization's rate limit of 30,000 input tokens per minute",
        "value error: temperature must be less than 2. Given: 3000",
    ],
)
def test_other_limits_are_no_refusal_for_length(message: str) -> None:
    assert refusal_of(400, said(message)).exit_code == 1


@settings(max_examples=50)
@given(st.integers(256, 10**8), st.integers(1, 10**9 - 1), st.sampled_from(["", ",", "_", ".", "'"]))
def test_any_figure_is_read_with_any_separator(window: int, prompt: int, separator: str) -> None:
    shown = [f"{size:,}".replace(",", separator) for size in (window, prompt)]
    text = f"This model's maximum context length is {shown[0]} tokens. However, your messages resulted in {shown[1]}."
    err = refusal_of(400, said(text))
    assert (err.window, err.prompt) == (window, prompt)


# ---- through the command

WORDING = "This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens."


@pytest.mark.parametrize("where", ["refused", "in the stream"])
def test_a_prompt_that_is_too_long_is_exit_6_with_the_servers_words(lab: Home, model: ModelServer, where: str) -> None:
    if where == "refused":
        model.refuse(400, said(WORDING))
    else:
        model.script(event(said(WORDING)))
    run = lab.run("hi")
    assert (run.stdout, run.code) == ("", 6)
    assert WORDING in run.stderr
    assert len(model.asked) == 1


def test_the_model_server_refuses_beyond_its_window_and_tells_the_truth_of_an_echo(
    lab: Home, model: ModelServer
) -> None:
    model.window = 300
    for streamed in ((), ("--no-stream",)):
        assert lab.run(*streamed, "-n", "hi there").code == 0
        usage = lab.docs()[0]["messages"][1]["usage"]
        assert (usage["prompt"], usage["completion"]) == (prompt_tokens(model.sent[-1]), 5)
    run = lab.run("-n", "One token a word. " * 80)
    assert run.code == 6
    assert f"your messages resulted in {prompt_tokens(model.sent[-1])} tokens" in run.stderr
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert prompt_tokens({**model.sent[0], "tools": [tool]}) > prompt_tokens(model.sent[0]) + 10
