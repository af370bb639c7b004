"""List the built-in providers, a row each: server, key variables, headers, and how its API differs.

Bases, variables and quirks are from LiteLLM 1.106.2 and the providers' documentation; local servers have loopback
addresses, where LiteLLM would use a vendor's. Providers missing in the table are looked up in litellm's data files.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from gptsh.models.facts import compatible_endpoints, likely_facts, provider_names

# Each API but the last two is a module of ``llm/``, by the same name.
ApiName = Literal["chat", "responses", "anthropic", "gemini", "ollama", "litellm", "echo"]
# APIs that gptsh calls without litellm
DIRECT: tuple[ApiName, ...] = ("chat", "responses", "anthropic", "gemini", "ollama")
Effort = Literal[
    "as is", "with thinking", "switch", "switch for k2", "enable", "template", "with switch", "object", "think",
    "nothing",
]  # fmt: skip


class WebSearch(NamedTuple):
    """How a provider's own search is asked for: the ``tool`` in a request of this API; {}: its models always search."""

    api: ApiName
    tool: Mapping[str, object]


_OLLAMA_COM = "https://ollama.com"  # where the names of its models lack the ending that they have locally
_CLOUD_NAME = "[:-]cloud$"
BEARER: Mapping[str, str] = MappingProxyType({"authorization": "Bearer {api_key}"})


CacheTime = Literal["5m", "1h"]
CACHE_TIMES = get_args(CacheTime)


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
    chat_models: str = ""  # a pattern: chat completions are asked for these models, although the API is Responses
    base_path: str = ""  # appended to the base URL if it is missing there
    key_headers: Mapping[str, str] = BEARER  # headers with the key, unless it is from one of ``bearer_vars``
    bearer_vars: tuple[str, ...] = ()
    fixed_headers: Mapping[str, str] = MappingProxyType({})  # in every request, whoever sends it
    header_vars: Mapping[str, str] = MappingProxyType({})  # headers from the environment
    stream_options: bool = True  # request usage in a stream; providers that refuse the field report it anyway
    effort: Effort = "as is"  # how ``reasoning_effort`` is sent
    seed: str = "seed"  # its name for this parameter
    marked_models: str = ""  # a pattern: of these, chat completions cache only prompts with Anthropic's marks
    wants_reasoning: bool = False  # the reasoning of a tool call must be sent back
    accepts_null: bool = True  # ``content`` may be null beside tool calls
    needs_base: bool = False  # the user has to set the base URL
    longest_description: int | None = None  # characters of a tool's
    has_cache_key: bool = False  # requests of one conversation may have a key in common, for the prompt cache
    parts: Literal["openai", "mistral"] = "openai"  # the shapes of documents and audio
    user_after_tool: bool = True  # a question may follow a tool result
    web_search: WebSearch | None = None
    think_tags: bool = False  # a model's thought may arrive in its text, between tags
    name: str = ""
    model: str = ""  # the model's name at the provider
    key: str | None = None  # a ``Secret``; None if not needed, or if ``key_command`` prints it
    key_var: str | None = None  # the variable with the key
    key_command: str | None = None
    has_custom_base: bool = False  # the base URL is not the provider's own
    cache: CacheTime = "5m"  # how long Claude's prompt cache lasts unread
    headers: Mapping[str, str] = MappingProxyType({})  # secret values, from the config file or ``header_vars``
    model_small: str | None = None  # a full name
    context_window: int | None = None  # tokens
    # USD per million tokens, by model; ``*``: all others
    prices: Mapping[str, Mapping[str, float | None]] = MappingProxyType({})
    secrets: frozenset[str] = frozenset()  # never shown in errors

    @property
    def is_own_server(self) -> bool:
        """Whether it is a server of the user's own, not a vendor's: it may have only one slot."""
        is_own = self.has_custom_base or self.name in LOCAL_PROVIDERS or self.api == "ollama"
        return is_own and not self.is_cloud

    @property
    def reads_think_tags(self) -> bool:
        """Whether a thought in tags before the text is reasoning.

        A self-hosted server may not know the model's template.
        """
        return self.think_tags or self.is_own_server

    @property
    def is_cloud(self) -> bool:
        """Whether Ollama's own machines run the model: asked directly, or by a local server that passes it on."""
        is_there = self.base_url.startswith(_OLLAMA_COM) or re.search(_CLOUD_NAME, self.model)
        return self.api == "ollama" and bool(is_there)

    def for_model(self, model: str) -> "Provider":
        """Return the provider with a model's name there, and the API by which this model is asked."""
        if self.base_url.startswith(_OLLAMA_COM):
            model = re.sub(_CLOUD_NAME, "", model)
        is_chat = self.api == "responses" and self.chat_models and re.match(self.chat_models, model)
        return self._replace(model=model, api="chat" if is_chat else self.api)

    def searching(self) -> "Provider | None":
        """Return the provider with the API in which its server searches the web for its model; None if it cannot.

        A server in the provider's place may lack any other API than its own.
        """
        search = self.web_search
        has_api = search is not None and (search.api == self.api or bool(self.chat_models) or not self.has_custom_base)
        if search is None or not has_api:
            return None
        if likely_facts(self.name, self.model).can("web_search") is False:
            return None
        return self._replace(api=search.api)


if TYPE_CHECKING:
    from typing import NotRequired, TypedDict, Unpack

    class _Form(TypedDict):
        """What an API asks of every server that has it, as fields of ``Provider``."""

        api: NotRequired[ApiName]
        base_path: str
        key_headers: Mapping[str, str]
        fixed_headers: Mapping[str, str]
        effort: Effort

    class _OpenAi(TypedDict):
        """What differs at OpenAI, as fields of ``Provider``."""

        api: ApiName
        chat_models: str
        longest_description: int
        has_cache_key: bool
        web_search: WebSearch

    class _Fields(TypedDict, total=False):
        """The fields of ``Provider`` that rows of the table set by name."""

        needs_key: bool
        api: ApiName
        base_path: str
        key_headers: Mapping[str, str]
        fixed_headers: Mapping[str, str]
        stream_options: bool
        effort: Effort
        wants_reasoning: bool
        accepts_null: bool
        web_search: WebSearch
        think_tags: bool


def _by_stem(
    base_url: str,
    stem: str,
    default_model: str | None = None,
    **more: "Unpack[_Fields]",
) -> Provider:
    """Return a provider with the variables STEM_API_KEY and STEM_API_BASE."""
    return Provider(base_url, (f"{stem}_API_KEY",), (f"{stem}_API_BASE",), default_model, **more)


def _by_litellm(*key_vars: str, needs_key: bool = True, think_tags: bool = False) -> Provider:
    """Return a provider that litellm calls."""
    return Provider("", key_vars, needs_key=needs_key, api="litellm", think_tags=think_tags)


# OpenAI's models that chat completions serve as well as ever, or alone; others reason.
_CHAT_MODELS = "gpt-[34]|chatgpt-|gpt-audio|.*-search-"
_OPENAI_BASE = r"https://(?:[a-z]+\.)?api\.openai\.com(?:/|$)"
_AZURE_PATH = "/openai/v1"
_RESPONSES_SEARCH = WebSearch("responses", {"type": "web_search"})
# Of its versions the one that every Claude has; the later ones filter the results by running code.
_CLAUDE_SEARCH = WebSearch("anthropic", {"type": "web_search_20250305", "name": "web_search"})
_GOOGLE_SEARCH = WebSearch("gemini", {"googleSearch": {}})
# The longest description of its tools; a larger limit of its newest models is not documented.
_OPENAI: "_OpenAi" = {
    "api": "responses", "chat_models": _CHAT_MODELS, "longest_description": 1024, "has_cache_key": True,
    "web_search": _RESPONSES_SEARCH,
}  # fmt: skip

_COMMON_FORM: "_Form" = {
    "base_path": "",
    "key_headers": BEARER,
    "fixed_headers": {},
    "effort": "as is",
}
# What an API asks of every server that has it, whoever runs the server.
_FORMS: dict[ApiName, "_Form"] = {
    "chat": {**_COMMON_FORM, "api": "chat"},
    "responses": {**_COMMON_FORM, "api": "responses"},
    "anthropic": {
        **_COMMON_FORM, "api": "anthropic", "base_path": "/v1", "key_headers": {"x-api-key": "{api_key}"},
        "fixed_headers": {"anthropic-version": "2023-06-01"},
    },
    "gemini": {**_COMMON_FORM, "api": "gemini", "key_headers": {"x-goog-api-key": "{api_key}"}},
    "ollama": {**_COMMON_FORM, "api": "ollama", "effort": "think"},
}  # fmt: skip


_SEARCHES: dict[ApiName, WebSearch] = {
    search.api: search for search in (_RESPONSES_SEARCH, _CLAUDE_SEARCH, _GOOGLE_SEARCH)
}


def with_api(provider: Provider, api: ApiName) -> Provider:
    """Return the provider with the API that the user set for its server."""
    is_unknown = provider == CUSTOM
    if provider.api != api and {provider.api, api} != {"chat", "responses"}:
        provider = provider._replace(**_FORMS[api])
    # An unknown server with the API of a provider may be a gateway to it.
    search = _SEARCHES.get(api) if is_unknown else provider.web_search
    search = search if search and search.api == api else None
    return provider._replace(api=api, chat_models="", web_search=search)


def with_api_at(provider: Provider, base_url: str) -> Provider:
    """Return the provider with the API that a server in OpenAI's place has by default.

    OpenAI's own addresses and Azure's v1 have the Responses API. Other servers may have chat completions alone.
    """
    if provider.api != "responses" and provider != CUSTOM:
        return provider
    has_responses = re.match(_OPENAI_BASE, base_url) or base_url.endswith(_AZURE_PATH)
    return provider._replace(**_OPENAI) if has_responses else provider._replace(api="chat", chat_models="")


def is_azure_v1(base_url: str, version: str | None) -> bool:
    """Whether Azure's newer API is meant, which follows OpenAI's: by AZURE_API_VERSION, or by the base URL."""
    return version in _AZURE_V1_VERSIONS or base_url.endswith(_AZURE_PATH)


# If the user names no model, the first of these with a key is asked for its default model.
PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "gpt-6.1-sol",
        header_vars={"openai-organization": "OPENAI_ORGANIZATION"}, **_OPENAI,
    ),
    "anthropic": Provider(
        "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"), "claude-sonnet-5-5", bearer_vars=("ANTHROPIC_AUTH_TOKEN",),
        web_search=_CLAUDE_SEARCH, **_FORMS["anthropic"],
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta", ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GEMINI_API_BASE",), "gemini-flash-latest", web_search=_GOOGLE_SEARCH,
        **(_FORMS["gemini"] | {"base_path": "/v1beta"}),
    ),
    "mistral": Provider(
        "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), (), "mistral-medium-latest",
        stream_options=False, seed="random_seed", parts="mistral",
        user_after_tool=False,
    ),
    "deepseek": _by_stem(
        "https://api.deepseek.com", "DEEPSEEK", "deepseek-flash", effort="with thinking", wants_reasoning=True
    ),
    "xai": _by_stem("https://api.x.ai/v1", "XAI", "grok-4.7", web_search=_RESPONSES_SEARCH),
    "groq": _by_stem(
        "https://api.groq.com/openai/v1", "GROQ", "openai/gpt-oss-120b", accepts_null=False, think_tags=True
    ),
    "moonshot": _by_stem(
        "https://api.moonshot.ai/v1", "MOONSHOT", "kimi-k3", effort="switch for k2", wants_reasoning=True
    ),
    "zai": _by_stem("https://api.z.ai/api/paas/v4", "ZAI", "glm-5.3", effort="switch"),
    "dashscope": _by_stem(
        "https://dashscope.aliyuncs.com/compatible-mode/v1", "DASHSCOPE", "qwen3.7-plus", effort="enable"
    ),
    "cerebras": _by_stem("https://api.cerebras.ai/v1", "CEREBRAS", "gpt-oss-120b", stream_options=False),
    "perplexity": Provider(
        "https://api.perplexity.ai", ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"), ("PERPLEXITY_API_BASE",),
        "sonar", stream_options=False, web_search=WebSearch("chat", {}), think_tags=True,
    ),
    "openrouter": Provider(
        "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY", "OR_API_KEY"), ("OPENROUTER_API_BASE",),
        header_vars={"http-referer": "OR_SITE_URL", "x-title": "OR_APP_NAME"}, marked_models="anthropic/",
        web_search=WebSearch("chat", {"type": "openrouter:web_search"}), effort="object",
    ),
    "together_ai": Provider(
        "https://api.together.ai/v1",
        ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
        ("TOGETHER_AI_API_BASE",), effort="with switch", think_tags=True,
    ),
    "fireworks_ai": Provider(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
        ("FIREWORKS_API_BASE",), think_tags=True,
    ),
    "nvidia_nim": Provider(
        "https://integrate.api.nvidia.com/v1", ("NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY"), ("NVIDIA_NIM_API_BASE",),
        effort="template", think_tags=True,
    ),
    "azure": Provider(
        "", ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"), ("AZURE_API_BASE",), api="litellm", needs_base=True,
    ),
    "cohere": _by_litellm("COHERE_API_KEY"),
    "cohere_chat": _by_litellm("COHERE_API_KEY"),
    "ai21_chat": _by_litellm("AI21_API_KEY"),
    "baseten": _by_litellm("BASETEN_API_KEY"),
    "deepinfra": _by_litellm("DEEPINFRA_API_KEY"),
    "huggingface": _by_litellm("HF_TOKEN", "HUGGINGFACE_API_KEY", think_tags=True),
    "minimax": _by_litellm("MINIMAX_API_KEY", think_tags=True),
    "nebius": _by_litellm("NEBIUS_API_KEY"),
    "novita": _by_litellm("NOVITA_API_KEY"),
    "vercel_ai_gateway": _by_litellm("VERCEL_AI_GATEWAY_API_KEY"),
    "volcengine": _by_litellm("VOLCENGINE_API_KEY"),
    "bedrock": _by_litellm(needs_key=False),  # AWS credentials
    "vertex_ai": _by_litellm(needs_key=False),  # Google credentials
    "ollama": _by_stem("http://localhost:11434", "OLLAMA", needs_key=False, **_FORMS["ollama"]),
    "lm_studio": _by_stem("http://localhost:1234/v1", "LM_STUDIO", needs_key=False, effort="nothing"),
    "llamafile": _by_stem(
        "http://127.0.0.1:8080/v1", "LLAMAFILE", needs_key=False, effort="template", wants_reasoning=True
    ),
    "hosted_vllm": _by_stem("http://localhost:8000/v1", "HOSTED_VLLM", needs_key=False),
}  # fmt: skip

LOCAL_PROVIDERS = ("ollama", "lm_studio", "llamafile", "hosted_vllm")

AZURE_V1 = Provider(
    "", ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"), ("AZURE_API_BASE",), base_path=_AZURE_PATH,
    key_headers={"api-key": "{api_key}"}, **_OPENAI,
)  # fmt: skip
_AZURE_V1_VERSIONS = ("v1", "latest", "preview")

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
    if endpoint := compatible_endpoints().get(name):
        base_vars = (endpoint["api_base_env"],) if endpoint.get("api_base_env") else ()
        base_url, key_vars = endpoint["base_url"].rstrip("/"), (endpoint["api_key_env"],)
        return Provider(base_url, key_vars, base_vars, fixed_headers=endpoint.get("headers", {}))
    if has_base:
        return CUSTOM
    # litellm knows which key its provider needs.
    return _by_litellm(needs_key=False) if name in _UNLISTED or name in provider_names() else None
