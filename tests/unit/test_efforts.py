"""The nearest effort that a model accepts: by the table, its family, or a refusal; which parameters one refuses."""

import pytest

from gptsh.llm.parameters import (
    EFFORTS,
    accepted_efforts,
    effort_refusal,
    nearest_effort,
    param_refusal,
)
from gptsh.llm.refusals import unsupported_efforts, unsupported_params

AS_ASKED = " ".join(EFFORTS)
FROM_LOW = "low low low medium high xhigh max"
OPENAI = ("openai", "responses")
CHAT = ("openai", "chat")
CLAUDE = ("anthropic", "anthropic")
GOOGLE = ("gemini", "gemini")
OLLAMA = ("ollama", "ollama")

# What none, minimal, low, medium, high, xhigh and max become. Names marked "new" are not in the table.
NEAREST = [
    (OPENAI, "gpt-6.3-astra", FROM_LOW),  # new
    (OPENAI, "gpt-6.2-sol", FROM_LOW),  # new
    (OPENAI, "gpt-6-astra", FROM_LOW),
    (CHAT, "gpt-6-astra", "low low low medium high xhigh xhigh"),
    (OPENAI, "gpt-6.1-terra", "none low low medium high xhigh max"),
    (OPENAI, "gpt-6.3-luna", "none low low medium high xhigh max"),  # new
    (OPENAI, "gpt-5.6", "none low low medium high xhigh max"),
    (OPENAI, "gpt-5.5", "none low low medium high xhigh xhigh"),
    (OPENAI, "gpt-5.5-pro", "medium medium medium medium high xhigh xhigh"),
    (OPENAI, "gpt-5.1", "none low low medium high high high"),
    (OPENAI, "gpt-5-mini", "minimal minimal low medium high high high"),
    (OPENAI, "gpt-5-pro", "high high high high high high high"),
    (OPENAI, "chat-latest", "medium medium medium medium medium medium medium"),
    (OPENAI, "o3", "low low low medium high high high"),
    (("lab", "chat"), "gpt-6.2-astra", "low low low medium high xhigh xhigh"),
    (("lab", "chat"), "unheard-of", AS_ASKED),
    (CLAUDE, "claude-opus-5-6", FROM_LOW),  # new
    (CLAUDE, "claude-fable-5-2", FROM_LOW),  # new
    (CLAUDE, "claude-opus-5-5", FROM_LOW),
    (CLAUDE, "claude-sonnet-5-5", "none low low medium high xhigh max"),
    (CLAUDE, "claude-haiku-5-5", "none low low medium high xhigh max"),
    (CLAUDE, "claude-opus-4-8", "none low low medium high xhigh max"),
    (CLAUDE, "claude-sonnet-4-6", "none low low medium high high max"),
    (CLAUDE, "claude-sonnet-4-5", AS_ASKED),
    (CLAUDE, "claude-opus-4-20250514", AS_ASKED),
    (GOOGLE, "gemini-4-neon", "low low low medium high high high"),  # new
    (GOOGLE, "gemini-4-hydrogen", "low low low medium high xhigh xhigh"),
    (GOOGLE, "gemini-3.8-flash", "low low low medium high high high"),
    (GOOGLE, "gemini-3.1-pro-preview", "low low low medium high high high"),
    (GOOGLE, "gemini-3.6-flash", "minimal minimal low medium high high high"),
    (GOOGLE, "gemini-2.5-flash", AS_ASKED),
    (("xai", "chat"), "grok-4.8", "none low low medium high xhigh xhigh"),  # new
    (("mistral", "chat"), "mistral-medium-latest", "none high high high high high high"),
    (("mistral", "chat"), "unheard-of", "none high high high high high high"),
    (("mistral", "chat"), "zai-glm-5-3", "low low low low high high max"),
    (("deepseek", "chat"), "deepseek-flash", AS_ASKED),
    (("openrouter", "chat"), "openai/gpt-6-astra", AS_ASKED),
    (("moonshot", "chat"), "kimi-k3.4", "low low low low high high max"),  # new
    (("groq", "chat"), "openai/gpt-oss-120b", "low low low medium high high high"),
    (OLLAMA, "qwen3:8b", "none low low medium high high max"),
    (OLLAMA, "gpt-oss:20b", "low low low medium high high high"),
]


@pytest.mark.parametrize(("server", "name", "expected"), NEAREST)
def test_each_effort_is_the_nearest_that_the_model_accepts(
    server: tuple[str, str], name: str, expected: str
) -> None:
    provider, api = server
    accepted = accepted_efforts(provider, name, api)
    assert [nearest_effort(effort, accepted) for effort in EFFORTS] == expected.split()


def test_reasoning_is_never_turned_off_for_one_who_asks_for_some() -> None:
    assert [nearest_effort(effort, {"none"}) for effort in ("none", "low", "max")] == [
        "none",
        None,
        None,
    ]


ALL_REFUSED = ""
# What is in no row of tests/apis/test_models_2026.py.
SAID = [
    ("`reasoning_effort` must be one of `low`, `medium`, or `high`", "none", "low medium high"),
    ("`reasoning_effort` must be one of `none` or `default`", "high", "none"),
    ('{"detail":[{"loc":["body","reasoning_effort"],"msg":"Input should be \'none\' or \'high\'"}]}', "low",
     "none high"),
    ("output_config.effort: Input should be 'low', 'medium', 'high' or 'max'", "xhigh", "low medium high max"),
    ("Thinking level is unsupported: THINKING_LEVEL_MINIMAL", "minimal", "none low medium high xhigh max"),
    ("Thinking level is not supported for this model.", "high", ALL_REFUSED),
    ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "low", ALL_REFUSED),
    ("This model does not support parameter reasoningEffort", "low", ALL_REFUSED),
]  # fmt: skip
SAID_OF_OTHERS = [
    (
        "Unsupported value: 'verbosity' does not support 'low' with this model. Supported values are: 'medium'.\","
        '"param": "verbosity"',
        "low",
    ),
    (
        "Function tools with reasoning_effort are not supported for gpt-6-sol in /v1/chat/completions. To use function "
        "tools, use /v1/responses or set reasoning_effort to 'none'.",
        "high",
    ),
    ("Unsupported parameter: 'reasoning.summary' is not supported with this model.", "low"),
    ("Your organization must be verified to generate reasoning summaries.", "low"),
    ("`max_tokens` must be greater than `thinking.budget_tokens`", "high"),
    ("messages.1.content.0: Invalid `signature` in `thinking` block", "high"),
    ("Encrypted content is not supported with this model.", "low"),
    (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
        'conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
        "high",
    ),
    ("`temperature` may only be set to 1 when thinking is enabled.", "high"),
    ("thinking.adaptive.display: Extra inputs are not permitted", "high"),
    (
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"',
        "high",
    ),
    ("adaptive thinking is not supported on this model", "high"),
    ("Unsupported parameter: 'temperature' is not supported with this model.", "low"),
]


@pytest.mark.parametrize(("text", "sent", "accepted"), SAID)
def test_the_efforts_that_remain_after_a_refusal(text: str, sent: str, accepted: str) -> None:
    refused = unsupported_efforts(text, sent)
    assert [
        effort for effort in EFFORTS if effort_refusal(effort) not in refused
    ] == accepted.split()


@pytest.mark.parametrize(("text", "sent"), SAID_OF_OTHERS)
def test_a_refusal_of_something_else_leaves_the_effort(text: str, sent: str) -> None:
    assert unsupported_efforts(text, sent) == set()
    assert unsupported_efforts(text, None) == set()


REFUSED_PARAMS = [
    ("Argument not supported on this model: presencePenalty", "presence_penalty"),
    ('{"detail":[{"type":"extra_forbidden","loc":["body","top_k"],"msg":"Extra inputs are not permitted"}]}', "top_k"),
    ("property 'logprobs' is unsupported", "logprobs"),
    ("Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.", ""),
    ("`temperature` and `top_p` cannot both be specified for this model.", ""),
    ("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name"), REFUSED_PARAMS)
def test_a_parameter_that_is_called_unsupported_is_left_out(text: str, name: str) -> None:
    params = (
        "temperature",
        "top_p",
        "top_k",
        "presence_penalty",
        "tool_choice",
        "logprobs",
        "max_tokens",
        "tools",
        "n",
    )
    assert unsupported_params(text, params) == ({param_refusal(name)} if name else set())
    assert unsupported_params(text, ()) == set()
