"""List the built-in vendors, a row each: server, key variables, headers, and how its API differs.

Bases, variables and quirks are from LiteLLM 1.106.2 and the vendors' documentation; local servers
have loopback addresses, where LiteLLM would use a vendor's. Vendors missing in the table are looked
up in litellm's data files.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from gptsh.models.facts import compatible_endpoints, provider_names

# Each API but the last two is a module of ``llm/``, by the same name.
ApiName = Literal["chat", "responses", "anthropic", "gemini", "ollama", "litellm", "echo"]
# APIs that gptsh calls without litellm
DIRECT: tuple[ApiName, ...] = ("chat", "responses", "anthropic", "gemini", "ollama")
EffortStyle = Literal[
    "as is",
    "with thinking",
    "switch",
    "switch for k2",
    "enable",
    "template",
    "with switch",
    "object",
    "think",
    "nothing",
]

CacheTime = Literal["5m", "1h"]
CACHE_TIMES = get_args(CacheTime)


class WebSearch(NamedTuple):
    """How a vendor's own search is asked for: the ``tool`` in a request of this API.

    If it has no tool, its models always search.
    """

    api: ApiName
    tool: Mapping[str, object]


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
BEARER: Mapping[str, str] = MappingProxyType({"authorization": "Bearer {api_key}"})


class Vendor(NamedTuple):
    """Where a vendor's models are asked, and how its API differs from OpenAI's."""

    base_url: str = ""
    key_variables: tuple[str, ...] = ()  # of the environment; the first one that is set wins
    base_variables: tuple[str, ...] = ()  # likewise, for the base URL
    default_model: str | None = None
    needs_key: bool = True
    api: ApiName = "chat"
    # A pattern: these models are asked by chat completions, although the API is Responses.
    chat_models: str = ""
    base_path: str = ""  # appended to the base URL if it is missing there
    key_headers: Mapping[str, str] = BEARER  # with the key
    bearer_variables: tuple[str, ...] = ()  # a key from one of these has the header BEARER instead
    fixed_headers: Mapping[str, str] = _NO_HEADERS  # in every request, whoever sends it
    header_variables: Mapping[str, str] = _NO_HEADERS  # headers from the environment
    # Ask for the usage in a stream; vendors that refuse the field report it anyway.
    stream_options: bool = True
    effort_style: EffortStyle = "as is"  # how ``reasoning_effort`` is sent
    seed_name: str = "seed"  # of this parameter
    # A pattern: chat completions cache prompts to these models only with Anthropic's marks.
    cache_marks_for: str = ""
    wants_reasoning_back: bool = False  # that of a tool call
    accepts_null_content: bool = True  # beside tool calls
    needs_base_url: bool = False  # which the user has to set
    max_description: int | None = None  # characters of a tool's
    # Requests of one conversation may have a key in common, for the prompt cache.
    has_cache_key: bool = False
    part_shapes: Literal["openai", "mistral"] = "openai"  # of documents and audio
    user_after_tool: bool = True  # a question may follow a tool result
    web_search: WebSearch | None = None
    think_tags: bool = False  # a model's thought may arrive in its text, between tags


# OpenAI's models that chat completions serve as well as ever, or alone; others reason.
_CHAT_MODELS = "gpt-[34]|chatgpt-|gpt-audio|.*-search-"
# The longest description of OpenAI's tools; a larger limit of its newest models is not documented.
_MAX_DESCRIPTION = 1024
_OPENAI_BASE = r"https://(?:[a-z]+\.)?api\.openai\.com(?:/|$)"
_AZURE_PATH = "/openai/v1"
_AZURE_V1_VERSIONS = ("v1", "latest", "preview")
_RESPONSES_SEARCH = WebSearch("responses", {"type": "web_search"})

OLLAMA_HOST = "OLLAMA_HOST"  # Ollama's own variable; see ``ollama_url``

# If the user names no model, the first of these with a key is asked for its default model.
VENDORS: dict[str, Vendor] = {
    "openai": Vendor(
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        base_variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        default_model="gpt-6.1-sol",
        api="responses",
        chat_models=_CHAT_MODELS,
        header_variables={"openai-organization": "OPENAI_ORGANIZATION"},
        max_description=_MAX_DESCRIPTION,
        has_cache_key=True,
        web_search=_RESPONSES_SEARCH,
    ),
    "anthropic": Vendor(
        base_url="https://api.anthropic.com/v1",
        key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        base_variables=("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
        default_model="claude-sonnet-5-5",
        api="anthropic",
        base_path="/v1",
        key_headers={"x-api-key": "{api_key}"},
        bearer_variables=("ANTHROPIC_AUTH_TOKEN",),
        fixed_headers={"anthropic-version": "2023-06-01"},
        # The version that every Claude has; later ones filter the results by running code.
        web_search=WebSearch("anthropic", {"type": "web_search_20250305", "name": "web_search"}),
    ),
    "gemini": Vendor(
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_variables=("GEMINI_API_BASE",),
        default_model="gemini-flash-latest",
        api="gemini",
        base_path="/v1beta",
        key_headers={"x-goog-api-key": "{api_key}"},
        web_search=WebSearch("gemini", {"googleSearch": {}}),
    ),
    "mistral": Vendor(
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        default_model="mistral-medium-latest",
        stream_options=False,
        seed_name="random_seed",
        part_shapes="mistral",
        user_after_tool=False,
    ),
    "deepseek": Vendor(
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        base_variables=("DEEPSEEK_API_BASE",),
        default_model="deepseek-flash",
        effort_style="with thinking",
        wants_reasoning_back=True,
    ),
    "xai": Vendor(
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        base_variables=("XAI_API_BASE",),
        default_model="grok-4.7",
        web_search=_RESPONSES_SEARCH,
    ),
    "groq": Vendor(
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        base_variables=("GROQ_API_BASE",),
        default_model="openai/gpt-oss-120b",
        accepts_null_content=False,
        think_tags=True,
    ),
    "moonshot": Vendor(
        base_url="https://api.moonshot.ai/v1",
        key_variables=("MOONSHOT_API_KEY",),
        base_variables=("MOONSHOT_API_BASE",),
        default_model="kimi-k3",
        effort_style="switch for k2",
        wants_reasoning_back=True,
    ),
    "zai": Vendor(
        base_url="https://api.z.ai/api/paas/v4",
        key_variables=("ZAI_API_KEY",),
        base_variables=("ZAI_API_BASE",),
        default_model="glm-5.3",
        effort_style="switch",
    ),
    "dashscope": Vendor(
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        key_variables=("DASHSCOPE_API_KEY",),
        base_variables=("DASHSCOPE_API_BASE",),
        default_model="qwen3.7-plus",
        effort_style="enable",
    ),
    "cerebras": Vendor(
        base_url="https://api.cerebras.ai/v1",
        key_variables=("CEREBRAS_API_KEY",),
        base_variables=("CEREBRAS_API_BASE",),
        default_model="gpt-oss-120b",
        stream_options=False,
    ),
    "perplexity": Vendor(
        base_url="https://api.perplexity.ai",
        key_variables=("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
        base_variables=("PERPLEXITY_API_BASE",),
        default_model="sonar",
        stream_options=False,
        web_search=WebSearch("chat", {}),
        think_tags=True,
    ),
    "openrouter": Vendor(
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY", "OR_API_KEY"),
        base_variables=("OPENROUTER_API_BASE",),
        header_variables={"http-referer": "OR_SITE_URL", "x-title": "OR_APP_NAME"},
        effort_style="object",
        cache_marks_for="anthropic/",
        web_search=WebSearch("chat", {"type": "openrouter:web_search"}),
    ),
    "together_ai": Vendor(
        base_url="https://api.together.ai/v1",
        key_variables=(
            "TOGETHER_API_KEY",
            "TOGETHER_AI_API_KEY",
            "TOGETHERAI_API_KEY",
            "TOGETHER_AI_TOKEN",
        ),
        base_variables=("TOGETHER_AI_API_BASE",),
        effort_style="with switch",
        think_tags=True,
    ),
    "fireworks_ai": Vendor(
        base_url="https://api.fireworks.ai/inference/v1",
        key_variables=(
            "FIREWORKS_API_KEY",
            "FIREWORKS_AI_API_KEY",
            "FIREWORKSAI_API_KEY",
            "FIREWORKS_AI_TOKEN",
        ),
        base_variables=("FIREWORKS_API_BASE",),
        think_tags=True,
    ),
    "nvidia_nim": Vendor(
        base_url="https://integrate.api.nvidia.com/v1",
        key_variables=("NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY"),
        base_variables=("NVIDIA_NIM_API_BASE",),
        effort_style="template",
        think_tags=True,
    ),
    "azure": Vendor(
        key_variables=("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
        base_variables=("AZURE_API_BASE",),
        api="litellm",
        needs_base_url=True,
    ),
    "cohere": Vendor(key_variables=("COHERE_API_KEY",), api="litellm"),
    "cohere_chat": Vendor(key_variables=("COHERE_API_KEY",), api="litellm"),
    "ai21_chat": Vendor(key_variables=("AI21_API_KEY",), api="litellm"),
    "baseten": Vendor(key_variables=("BASETEN_API_KEY",), api="litellm"),
    "deepinfra": Vendor(key_variables=("DEEPINFRA_API_KEY",), api="litellm"),
    "huggingface": Vendor(
        key_variables=("HF_TOKEN", "HUGGINGFACE_API_KEY"),
        api="litellm",
        think_tags=True,
    ),
    "minimax": Vendor(key_variables=("MINIMAX_API_KEY",), api="litellm", think_tags=True),
    "nebius": Vendor(key_variables=("NEBIUS_API_KEY",), api="litellm"),
    "novita": Vendor(key_variables=("NOVITA_API_KEY",), api="litellm"),
    "vercel_ai_gateway": Vendor(key_variables=("VERCEL_AI_GATEWAY_API_KEY",), api="litellm"),
    "volcengine": Vendor(key_variables=("VOLCENGINE_API_KEY",), api="litellm"),
    "bedrock": Vendor(needs_key=False, api="litellm"),  # AWS credentials
    "vertex_ai": Vendor(needs_key=False, api="litellm"),  # Google credentials
    "ollama": Vendor(
        base_url="http://localhost:11434",
        key_variables=("OLLAMA_API_KEY",),
        base_variables=("OLLAMA_API_BASE", OLLAMA_HOST),
        needs_key=False,
        api="ollama",
        effort_style="think",
    ),
    "lm_studio": Vendor(
        base_url="http://localhost:1234/v1",
        key_variables=("LM_STUDIO_API_KEY",),
        base_variables=("LM_STUDIO_API_BASE",),
        needs_key=False,
        effort_style="nothing",
    ),
    "llamafile": Vendor(
        base_url="http://127.0.0.1:8080/v1",
        key_variables=("LLAMAFILE_API_KEY",),
        base_variables=("LLAMAFILE_API_BASE",),
        needs_key=False,
        effort_style="template",
        wants_reasoning_back=True,
    ),
    "hosted_vllm": Vendor(
        base_url="http://localhost:8000/v1",
        key_variables=("HOSTED_VLLM_API_KEY",),
        base_variables=("HOSTED_VLLM_API_BASE",),
        needs_key=False,
    ),
}
LOCAL_VENDORS = ("ollama", "lm_studio", "llamafile", "hosted_vllm")

# Azure's newer API follows OpenAI's.
AZURE_V1 = VENDORS["openai"]._replace(
    base_url="",
    key_variables=("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
    base_variables=("AZURE_API_BASE",),
    default_model=None,
    base_path=_AZURE_PATH,
    key_headers={"api-key": "{api_key}"},
    header_variables=_NO_HEADERS,
)
ECHO = Vendor(needs_key=False, api="echo")
CUSTOM = Vendor(needs_key=False)  # a server for which the user set a base URL
_LITELLM = Vendor(needs_key=False, api="litellm")  # which knows the key that its vendor needs

# Vendors of litellm that are missing in its data files.
_UNLISTED = ("modelscope", "sagemaker_nova", "vertex_ai_beta")

# The row whose columns hold for every server with an API, whoever runs the server.
_EXAMPLES: dict[ApiName, Vendor] = {
    "chat": CUSTOM,
    "responses": VENDORS["openai"],
    "anthropic": VENDORS["anthropic"],
    "gemini": VENDORS["gemini"]._replace(base_path=""),
    "ollama": VENDORS["ollama"],
}


# Addresses at which a server may listen, and those at which it can be asked.
_LISTENS_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def ollama_url(host: str) -> str:
    """Return the base URL in ``OLLAMA_HOST``, as Ollama reads it.

    Scheme, host and port may be missing, and a server that listens at all addresses is on this
    machine. Without a scheme the port is Ollama's.
    """
    scheme, _, rest = host.strip(" \"'").rpartition("://")
    default_port = ""
    if not scheme and rest == "ollama.com":
        scheme = "https"
    elif not scheme:
        scheme = "http"
        default_port = ":11434"
    address, slash, path = rest.partition("/")
    match = re.fullmatch(r"(\[.*\]|[^:]*):([^:]*)", address)
    name, port = match.groups() if match else (address, "")
    name = name.strip("[]")
    name = _LISTENS_EVERYWHERE.get(name, name)
    if ":" in name:  # IPv6
        name = f"[{name}]"
    is_port = port.isdecimal() and int(port) < 65_536
    port = f":{port}" if is_port else default_port
    return f"{scheme}://{name}{port}{slash}{path}"


def find_vendor(name: str, *, has_base: bool = False) -> Vendor | None:
    """Return the vendor with this name, or None if neither gptsh nor litellm knows it.

    ``has_base``: the user set its base URL, so an unknown vendor has OpenAI's API.
    """
    if name in VENDORS:
        return VENDORS[name]
    if name == "echo" and not has_base:
        return ECHO
    endpoint = compatible_endpoints().get(name)
    if endpoint:
        base_variable = endpoint.get("api_base_env")
        return Vendor(
            base_url=endpoint["base_url"].rstrip("/"),
            key_variables=(endpoint["api_key_env"],),
            base_variables=(base_variable,) if base_variable else (),
            fixed_headers=endpoint.get("headers", {}),
        )
    if has_base:
        return CUSTOM
    if name in _UNLISTED or name in provider_names():
        return _LITELLM
    return None


def with_api(vendor: Vendor, api: ApiName) -> Vendor:
    """Return the vendor with the API that the user set for its server."""
    example = _EXAMPLES[api]
    # An unknown server with the API of a vendor may be a gateway to it.
    search = example.web_search if vendor == CUSTOM else vendor.web_search
    if vendor.api != api and {vendor.api, api} != {"chat", "responses"}:
        vendor = vendor._replace(
            base_path=example.base_path,
            key_headers=example.key_headers,
            fixed_headers=example.fixed_headers,
            effort_style=example.effort_style,
        )
    has_search = search is not None and search.api == api
    return vendor._replace(api=api, chat_models="", web_search=search if has_search else None)


def with_api_at(vendor: Vendor, base_url: str) -> Vendor:
    """Return the vendor with the API that a server in OpenAI's place has by default.

    OpenAI's own addresses and Azure's v1 have the Responses API. Other servers may have chat
    completions alone.
    """
    if vendor.api != "responses" and vendor != CUSTOM:
        return vendor
    if not re.match(_OPENAI_BASE, base_url) and not base_url.endswith(_AZURE_PATH):
        return vendor._replace(api="chat", chat_models="")
    return vendor._replace(
        api="responses",
        chat_models=_CHAT_MODELS,
        max_description=_MAX_DESCRIPTION,
        has_cache_key=True,
        web_search=_RESPONSES_SEARCH,
    )


def is_azure_v1(base_url: str, version: str | None) -> bool:
    """Return whether Azure's newer API is meant: by AZURE_API_VERSION, or by the base URL."""
    return version in _AZURE_V1_VERSIONS or base_url.endswith(_AZURE_PATH)
