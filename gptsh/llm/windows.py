"""Where a model's context window comes from: the config file, a self-hosted server, the model table, or a refusal."""

import threading
from functools import partial

from gptsh.config.settings import Settings
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import ollama_models
from gptsh.llm.ollama_models import OllamaModels
from gptsh.llm.server_cache import ServerCache, server_and_model
from gptsh.llm.server_reports import Get, ServerReports, first_size, list_url, models_in, window_in
from gptsh.models.facts import exact_facts, window_of_family
from gptsh.models.vendors import DIRECT, LOCAL_PROVIDERS, Provider


class Windows:
    """The context windows of models, in tokens. What a server reports is remembered for a day."""

    def __init__(self, settings: Settings, reports: ServerReports, cache: ServerCache, ollama: OllamaModels) -> None:
        self._settings, self._reports, self._cache, self._ollama = settings, reports, cache, ollama
        self._limits: dict[str, int] = {}  # windows that refusals have named
        self._early: threading.Thread | None = None  # asks for a window that may be needed

    def of(self, model: str, *, ask: bool) -> int | None:
        """A model's window: from the config file, else from its server, else from the model table; None: unknown.

        A smaller window that a refusal has named wins. ``ask``: a self-hosted server may be asked; no hosted provider
        ever is. Raises ConfigError.
        """
        if ask and self._early:
            self._early.join()
        provider = self._settings.providers.for_model(model)
        window = provider.context_window
        if window is None and _reports_windows(provider):
            window = self._reported(provider, ask=ask)
        if window is None and provider.name not in LOCAL_PROVIDERS:
            # A local server's window depends on how it was started, and the table is wrong about Ollama's models.
            window = exact_facts(provider.name, provider.model).window
            if window is None and not provider.has_custom_base:
                window = window_of_family(provider.name, provider.model)
        limit = self._limits.get(server_and_model(provider))
        return min(filter(None, (window, limit)), default=None)

    def ask_early(self, model: str) -> None:
        """Let a thread ask for a window that is needed soon; ``of`` then waits for it. Raises ConfigError."""
        provider = self._settings.providers.for_model(model)
        if provider.context_window is None and _reports_windows(provider):
            self._cache.entry(provider)  # so that the thread adds no entry while the cache may be saving them
            thread = threading.Thread(target=self._reported, args=(provider,), kwargs={"ask": True}, daemon=True)
            thread.start()
            self._early = thread

    def learn(self, model: str, window: int) -> None:
        """Limit the model's window to this number of tokens, which a refusal has named."""
        key = server_and_model(self._settings.providers.for_model(model))
        self._limits[key] = min(window, self._limits.get(key, window))

    def _reported(self, provider: Provider, *, ask: bool) -> int | None:
        """The window that a server reports or has reported today."""
        if provider.api == "ollama":
            info = self._ollama.info(provider) if ask else {}
            return info.get("trained") or info.get("num_ctx")
        if ask:
            self._reports.learn(provider, "window", partial(_read_window, provider))
        return self._cache.entry(provider).get("window")


# ---- self-hosted servers


def _reports_windows(provider: Provider) -> bool:
    """Whether a provider is asked: a self-hosted server, unless litellm asks it, and Ollama's cloud."""
    return provider.api == "ollama" or (provider.is_own_server and provider.api in DIRECT)


def _read_window(provider: Provider, get: Get) -> int | None:
    """The window that a server reports, from the first document that has it."""
    if provider.name == "lm_studio":
        return _read_from_lm_studio(provider, get)
    window = _read_from_list(provider, get)
    if window or provider.api == "gemini":
        return window
    if provider.name != "hosted_vllm":
        window = _read_from_llama_cpp(provider, get)
    if window or provider.name in LOCAL_PROVIDERS:
        return window
    return _read_from_ollama(provider, get)


def _read_from_list(provider: Provider, get: Get) -> int | None:
    entries = models_in(get(list_url(provider)))
    for entry in entries:
        # llama.cpp lists its one model under a name of its own, and serves it under any name.
        is_only_model = len(entries) == 1 and "meta" in entry
        if is_only_model or entry["id"] == provider.model:
            return window_in(entry)
    return None


def _read_from_lm_studio(provider: Provider, get: Get) -> int | None:
    """The window with which LM Studio has loaded a model, else the model's maximum, which is an upper bound."""
    payload = as_dict(get(f"{provider.base_url.removesuffix('/v1')}/api/v1/models"))
    for entry in as_dicts(payload.get("models")):
        instances = as_dicts(entry.get("loaded_instances"))
        matches = [instance for instance in instances if instance.get("id") == provider.model]
        if matches or entry.get("key") == provider.model:
            configs = [as_dict(instance.get("config")) for instance in matches or instances]
            loaded_windows = [config.get("context_length") for config in configs]
            window = first_size(*loaded_windows, entry.get("max_context_length"))
            if window is not None:
                return window
    return None


def _read_from_llama_cpp(provider: Provider, get: Get) -> int | None:
    """The window of an older llama.cpp, whose list of models lacks it."""
    props = as_dict(get(f"{provider.base_url.removesuffix('/v1')}/props"))
    return first_size(as_dict(props.get("default_generation_settings")).get("n_ctx"))


def _read_from_ollama(provider: Provider, get: Get) -> int | None:
    """The window of Ollama behind OpenAI's API: the loaded one, else the model file's, else the model's maximum.

    The last is an upper bound: a prompt beyond the server's choice is truncated, and only the answer's usage shows it.
    """
    info = ollama_models.read_info(provider, get)
    upper_bound: int | None = info["num_ctx"] or info["trained"]
    if upper_bound is None:
        return None
    return ollama_models.read_loaded_window(provider, get) or upper_bound
