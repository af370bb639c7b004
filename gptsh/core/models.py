"""Facts about models and their providers: base URLs, key variables, what a model takes.

Bases and variables as LiteLLM 1.106.2 reads them, loopback where it would fall back to a vendor.
"""

import re
from typing import Any, NamedTuple


class Endpoint(NamedTuple):
    """A provider that speaks OpenAI chat completions.

    ``key_vars`` and ``base_vars`` are environment variables, first one set wins. ``stream_options``: whether usage
    may be asked for in a stream; those that refuse the field report usage by themselves. ``base_path``: what the
    variable's value lacks at its end.
    """

    base_url: str
    key_vars: tuple[str, ...]
    base_vars: tuple[str, ...] = ()
    default_model: str | None = None
    needs_key: bool = True
    stream_options: bool = True
    base_path: str = ""


# In the order in which a key that is set chooses the model of a user who named none.
PROVIDERS: dict[str, Endpoint] = {
    "openai": Endpoint(
        "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "gpt-4.1"
    ),
    "mistral": Endpoint(
        "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), (), "mistral-medium-latest", stream_options=False
    ),
    "deepseek": Endpoint(
        "https://api.deepseek.com", ("DEEPSEEK_API_KEY",), ("DEEPSEEK_API_BASE",), "deepseek-v4-flash"
    ),
    "xai": Endpoint("https://api.x.ai/v1", ("XAI_API_KEY",), ("XAI_API_BASE",), "grok-4.3"),
    "groq": Endpoint(
        "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), ("GROQ_API_BASE",), "openai/gpt-oss-120b"
    ),
    "moonshot": Endpoint(
        "https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY",), ("MOONSHOT_API_BASE",), "kimi-k3"
    ),
    "zai": Endpoint("https://api.z.ai/api/paas/v4", ("ZAI_API_KEY",), ("ZAI_API_BASE",), "glm-5.3"),
    "dashscope": Endpoint(
        "https://dashscope.aliyuncs.com/compatible-mode/v1", ("DASHSCOPE_API_KEY",), ("DASHSCOPE_API_BASE",),
        "qwen-plus-latest",
    ),
    "cerebras": Endpoint(
        "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",), ("CEREBRAS_API_BASE",), "gpt-oss-120b",
        stream_options=False,
    ),
    "perplexity": Endpoint(
        "https://api.perplexity.ai", ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"), ("PERPLEXITY_API_BASE",),
        "sonar", stream_options=False,
    ),
    "openrouter": Endpoint(
        "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY", "OR_API_KEY"), ("OPENROUTER_API_BASE",)
    ),
    "together_ai": Endpoint(
        "https://api.together.ai/v1", ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY"),
        ("TOGETHER_AI_API_BASE",),
    ),
    "fireworks_ai": Endpoint(
        "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
        ("FIREWORKS_API_BASE",),
    ),
    "nvidia_nim": Endpoint(
        "https://integrate.api.nvidia.com/v1", ("NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY"), ("NVIDIA_NIM_API_BASE",)
    ),
    "ollama": Endpoint(
        "http://localhost:11434/v1", ("OLLAMA_API_KEY",), ("OLLAMA_API_BASE",), needs_key=False, base_path="/v1"
    ),
    "lm_studio": Endpoint(
        "http://localhost:1234/v1", ("LM_STUDIO_API_KEY",), ("LM_STUDIO_API_BASE",), needs_key=False
    ),
    "llamafile": Endpoint(
        "http://127.0.0.1:8080/v1", ("LLAMAFILE_API_KEY",), ("LLAMAFILE_API_BASE",), needs_key=False
    ),
    "hosted_vllm": Endpoint(
        "http://localhost:8000/v1", ("HOSTED_VLLM_API_KEY",), ("HOSTED_VLLM_API_BASE",), needs_key=False
    ),
}  # fmt: skip

LOCAL = ("ollama", "lm_studio", "llamafile", "hosted_vllm")

_OPENAI_NAME = re.compile(r"(gpt|chatgpt|o[0-9])[-.0-9a-z]*", re.IGNORECASE)
_OPENAI_REASONING = re.compile(
    r"(?:.*/)?(?:ft:)?(?:o[0-9]|gpt-(?:[5-9]|[1-9][0-9])(?!.*chat))[-.:0-9a-z]*", re.IGNORECASE
)
# Families that think before they speak, and spend a small token limit on that alone.
_THINKS = re.compile(
    r"gpt-oss|deepseek-(v[4-9]|r[0-9]|reasoner)|grok-(?!.*non-reasoning)|kimi-k|glm-[4-9]|qwen-?3|qwq|magistral|"
    r"nemotron|minimax|sonar-.*reason|think|reason",
    re.IGNORECASE,
)
_TITLE_TOKENS = 24
_TITLE_TOKENS_REASONING = 2000  # room to think first: a small cap gives reasoning models a blank title


def split_model(model: str) -> tuple[str | None, str]:
    """``provider/name`` as ``(provider, name)``; a bare OpenAI name is known, any other bare name has no provider."""
    provider, slash, name = model.partition("/")
    if slash:
        return provider, name
    return ("openai" if _OPENAI_NAME.fullmatch(model) else "echo" if model == "echo" else None), model


def is_openai_reasoning(model: str) -> bool:
    """Whether a model is of OpenAI's reasoning series: no sampling parameters, ``max_completion_tokens``."""
    return bool(_OPENAI_REASONING.fullmatch(model))


def title_params(model: str) -> dict[str, Any]:
    """Parameters for a title: 0.2 and 24 tokens; for a model that thinks first, room and what it takes of effort."""
    if is_openai_reasoning(model) or "gpt-oss" in model:
        return {"reasoning_effort": "low", "max_tokens": _TITLE_TOKENS_REASONING}
    if _THINKS.search(model):
        return {"max_tokens": _TITLE_TOKENS_REASONING}
    return {"temperature": 0.2, "max_tokens": _TITLE_TOKENS}
