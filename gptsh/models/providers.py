"""Providers: their servers, their key variables, and how each one's API differs from OpenAI's.

Bases, variables and quirks are from LiteLLM 1.106.2 and the providers' documentation; local servers have loopback
addresses, where LiteLLM would use a vendor's. Providers missing in the table are looked up in litellm's data files.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from gptsh.models import catalog
from gptsh.models.cost import PRICE_KEYS
from gptsh.models.facts import Facts

ApiName = Literal["chat", "anthropic", "ollama", "litellm", "echo"]
DIRECT: tuple[ApiName, ...] = ("chat", "anthropic", "ollama")  # APIs that gptsh calls without litellm
Effort = Literal[
    "as is", "none or high", "high or max", "switch", "switch for k2", "enable", "template", "with switch", "think",
    "nothing",
]  # fmt: skip


BEARER: Mapping[str, str] = MappingProxyType({"authorization": "Bearer {api_key}"})


class Provider(NamedTuple):
    """Where a model is asked, how requests authenticate, and how the API differs from OpenAI's.

    ``PROVIDERS`` sets the fields before ``name``; the others come from the config file, the environment and the
    request.
    """

    base_url: str = ""
    key_vars: tuple[str, ...] = ()  # environment variables; the first one that is set wins
    base_vars: tuple[str, ...] = ()  # as key_vars, for the base URL
    default_model: str | None = None
    needs_key: bool = True
    api: ApiName = "chat"
    base_path: str = ""  # appended to the base URL if it is missing there
    key_headers: Mapping[str, str] = BEARER  # headers with the key, unless it is from one of ``bearer_vars``
    bearer_vars: tuple[str, ...] = ()
    constants: Mapping[str, str] = MappingProxyType({})  # headers of every request
    header_vars: Mapping[str, str] = MappingProxyType({})  # headers from the environment
    stream_options: bool = True  # request usage in a stream; providers that refuse the field report it anyway
    effort: Effort = "as is"  # how ``reasoning_effort`` is sent
    wants_reasoning: bool = False  # the reasoning of a tool call must be sent back
    accepts_null: bool = True  # ``content`` may be null beside tool calls
    needs_base: bool = False  # the user has to set the base URL
    parts: Literal["openai", "mistral"] = "openai"  # the shapes of documents and audio
    user_after_tool: bool = True  # a question may follow a tool result
    name: str = ""
    model: str = ""  # the model's name at the provider
    key: str | None = None  # a ``Secret``; None if not needed, or if ``key_command`` prints it
    key_var: str | None = None  # the variable with the key
    key_command: str | None = None
    has_custom_base: bool = False  # the base URL is not the provider's own
    headers: Mapping[str, str] = MappingProxyType({})  # secret values, from the config file or ``header_vars``
    model_small: str | None = None  # a full name
    context_window: int | None = None  # tokens
    # USD per million tokens, by model; ``*``: all others
    prices: Mapping[str, Mapping[str, float | None]] = MappingProxyType({})
    secrets: frozenset[str] = frozenset()  # never shown in errors

    @property
    def is_local(self) -> bool:
        """Whether it is a server of the user's own, not a vendor's: it may have only one slot."""
        return self.has_custom_base or self.name in LOCAL_PROVIDERS or self.api == "ollama"

    def with_prices(self, facts: Facts) -> Facts:
        """Return the facts of a model with the config file's prices, which replace all others, if there are any."""
        configured = self.prices.get(facts.name) or self.prices.get("*") or {}
        prices = {PRICE_KEYS[kind]: price / 1e6 for kind, price in configured.items() if price is not None}
        if not prices:
            return facts
        unpriced = {key: value for key, value in facts.entry.items() if "_cost" not in key and "pricing" not in key}
        return facts._replace(entry=unpriced | prices, has_config_prices=True)


def _by_stem(base_url: str, stem: str, default_model: str | None = None, **more: Any) -> Provider:
    """Return a provider with the variables STEM_API_KEY and STEM_API_BASE."""
    return Provider(base_url, (f"{stem}_API_KEY",), (f"{stem}_API_BASE",), default_model, **more)


def _by_litellm(*key_vars: str, needs_key: bool = True) -> Provider:
    """Return a provider that litellm calls."""
    return Provider("", key_vars, needs_key=needs_key, api="litellm")


# If the user names no model, the first of these with a key is asked for its default model.
PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "gpt-4.1",
        header_vars={"openai-organization": "OPENAI_ORGANIZATION"},
    ),
    "anthropic": Provider(
        "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"), "claude-sonnet-5-5", api="anthropic", base_path="/v1",
        key_headers={"x-api-key": "{api_key}"}, bearer_vars=("ANTHROPIC_AUTH_TOKEN",),
        constants={"anthropic-version": "2023-06-01"},
    ),
    "gemini": Provider(  # litellm is used for requests that this endpoint cannot do
        "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_API_BASE",), "gemini-flash-latest", base_path="/v1beta/openai",
    ),
    "mistral": Provider(
        "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), (), "mistral-medium-latest",
        stream_options=False, effort="none or high", parts="mistral", user_after_tool=False,
    ),
    "deepseek": _by_stem(
        "https://api.deepseek.com", "DEEPSEEK", "deepseek-v4-flash", effort="high or max", wants_reasoning=True
    ),
    "xai": _by_stem("https://api.x.ai/v1", "XAI", "grok-4.3"),
    "groq": _by_stem("https://api.groq.com/openai/v1", "GROQ", "openai/gpt-oss-120b", accepts_null=False),
    "moonshot": _by_stem(
        "https://api.moonshot.ai/v1", "MOONSHOT", "kimi-k3", effort="switch for k2", wants_reasoning=True
    ),
    "zai": _by_stem("https://api.z.ai/api/paas/v4", "ZAI", "glm-5.3", effort="switch"),
    "dashscope": _by_stem(
        "https://dashscope.aliyuncs.com/compatible-mode/v1", "DASHSCOPE", "qwen-plus-latest", effort="enable"
    ),
    "cerebras": _by_stem("https://api.cerebras.ai/v1", "CEREBRAS", "gpt-oss-120b", stream_options=False),
    "perplexity": Provider(
        "https://api.perplexity.ai", ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"), ("PERPLEXITY_API_BASE",),
        "sonar", stream_options=False,
    ),
    "openrouter": Provider(
        "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY", "OR_API_KEY"), ("OPENROUTER_API_BASE",),
        header_vars={"http-referer": "OR_SITE_URL", "x-title": "OR_APP_NAME"},
    ),
    "together_ai": Provider(
        "https://api.together.ai/v1",
        ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
        ("TOGETHER_AI_API_BASE",), effort="with switch",
    ),
    "fireworks_ai": Provider(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
        ("FIREWORKS_API_BASE",),
    ),
    "nvidia_nim": Provider(
        "https://integrate.api.nvidia.com/v1", ("NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY"), ("NVIDIA_NIM_API_BASE",),
        effort="template",
    ),
    "azure": Provider(
        "", ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"), ("AZURE_API_BASE",), api="litellm", needs_base=True,
    ),
    "cohere": _by_litellm("COHERE_API_KEY"),
    "cohere_chat": _by_litellm("COHERE_API_KEY"),
    "ai21_chat": _by_litellm("AI21_API_KEY"),
    "baseten": _by_litellm("BASETEN_API_KEY"),
    "deepinfra": _by_litellm("DEEPINFRA_API_KEY"),
    "huggingface": _by_litellm("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "nebius": _by_litellm("NEBIUS_API_KEY"),
    "novita": _by_litellm("NOVITA_API_KEY"),
    "vercel_ai_gateway": _by_litellm("VERCEL_AI_GATEWAY_API_KEY"),
    "volcengine": _by_litellm("VOLCENGINE_API_KEY"),
    "bedrock": _by_litellm(needs_key=False),  # AWS credentials
    "vertex_ai": _by_litellm(needs_key=False),  # Google credentials
    "ollama": _by_stem("http://localhost:11434", "OLLAMA", needs_key=False, api="ollama", effort="think"),
    "lm_studio": _by_stem("http://localhost:1234/v1", "LM_STUDIO", needs_key=False, effort="nothing"),
    "llamafile": _by_stem(
        "http://127.0.0.1:8080/v1", "LLAMAFILE", needs_key=False, effort="template", wants_reasoning=True
    ),
    "hosted_vllm": _by_stem("http://localhost:8000/v1", "HOSTED_VLLM", needs_key=False),
}  # fmt: skip

LOCAL_PROVIDERS = ("ollama", "lm_studio", "llamafile", "hosted_vllm")

# Azure's newer API, which follows OpenAI's; AZURE_API_VERSION selects it.
AZURE_V1 = Provider(
    "", ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"), ("AZURE_API_BASE",), base_path="/openai/v1",
    key_headers={"api-key": "{api_key}"},
)  # fmt: skip
AZURE_V1_VERSIONS = ("v1", "latest", "preview")

ECHO = Provider(needs_key=False, api="echo")
CUSTOM = Provider(needs_key=False)  # a server for which the user set a base URL

# Providers of litellm that are missing in its data files.
_UNLISTED = ("modelscope", "sagemaker_nova", "vertex_ai_beta")


def known_provider(name: str, *, has_base: bool = False) -> Provider | None:
    """Return the provider with this name, or None if neither gptsh nor litellm knows it.

    ``has_base``: the user set its base URL, so an unknown provider has OpenAI's API.
    """
    if name in PROVIDERS:
        return PROVIDERS[name]
    if name == "echo" and not has_base:
        return ECHO
    if endpoint := catalog.compatible_endpoints().get(name):
        base_vars = (endpoint["api_base_env"],) if endpoint.get("api_base_env") else ()
        base_url, key_vars = endpoint["base_url"].rstrip("/"), (endpoint["api_key_env"],)
        return Provider(base_url, key_vars, base_vars, constants=endpoint.get("headers", {}))
    if has_base:
        return CUSTOM
    # litellm knows which key its provider needs.
    return _by_litellm(needs_key=False) if name in _UNLISTED or name in catalog.provider_names() else None
