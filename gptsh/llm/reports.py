"""Find out what models can do: ask servers for windows and abilities; choose the window to request of Ollama."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypedDict

from gptsh.config.accounts import Account, Target
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer
from gptsh.errors import GptshError, LoadingModel, ModelError, TimedOut
from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.llm.servers import Servers, headers, server_and_model
from gptsh.messages import Request, token_count
from gptsh.models.facts import exact_facts, window_of_family
from gptsh.models.usage import WINDOW_KEY
from gptsh.models.vendors import DIRECT, LOCAL_VENDORS

# ---- server reports
#
# Ask a model's server about itself, without a prompt: download a list of models or another
# document, in limited time.
#
# A reply that is missing, late or malformed is not an error of the prompt. Then gptsh waits five
# minutes and asks again.

PROBE_TIMEOUT = 0.3  # seconds for a server on this machine that may not run, to list its models
REPORT_TIMEOUT = 2.0  # seconds for one that is about to answer, to report on a model: its report is cached
REMOTE_TIMEOUT = 5.0  # seconds for a remote server
_RETRY_AFTER = 300  # seconds after a server did not answer
_PROBE_BYTES = 1 << 22  # read from a local server: its time does not cover parsing them
_LIST_BYTES = 1 << 25  # of a list of all models
_LOOPBACK = r"https?://(localhost|127\.|\[::1\])"
_LIST_PATHS = {
    "ollama": "/v1/models",
    "gemini": "/models?pageSize=1000",
    "anthropic": "/models?limit=1000",
}
_WINDOW_KEYS = (
    "context_length",
    "inputTokenLimit",
    "max_input_tokens",
)  # in OpenAI's API, Google's, Anthropic's


class Get(Protocol):
    """Download a document of a server, or None for any status but 200. Raises GptshError."""

    def __call__(self, url: str, body: JsonObject | None = None) -> object:
        """``body`` is posted."""


class ServerReports:
    """Asks servers about themselves. What it ``learn``s is remembered for a day."""

    def __init__(self, servers: Servers) -> None:
        self.cache = servers.cache
        self._servers = servers

    def getter(self, account: Account, seconds: float | None = None) -> Get:
        """A function that downloads documents from a server, all within ``seconds``.

        They default by its address.
        """
        if seconds is None:
            is_local = re.match(_LOOPBACK, account.base_url)
            seconds = REPORT_TIMEOUT if is_local else REMOTE_TIMEOUT
        max_bytes = _LIST_BYTES if seconds == REMOTE_TIMEOUT else _PROBE_BYTES
        deadline = time.monotonic() + seconds

        def get(url: str, body: JsonObject | None = None) -> object:
            data = json.dumps(body).encode() if body else None
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                raise TimedOut(f"{account.name} does not answer in time")
            document = self._download(account, url, seconds_left, data, max_bytes)
            try:
                return json.loads(document)
            except (ValueError, RecursionError):
                return None

        return get

    def _download(self, account: Account, url: str, seconds: float, body: bytes | None, max_bytes: int) -> bytes:
        """Download at most ``max_bytes`` of a document; empty for any status but 200.

        Raises GptshError, also if it takes longer than ``seconds``, and LoadingModel if the server is not ready.
        """
        account = self._servers.with_key(account)
        document = bytearray()
        try:
            response = self._servers.http().send(url, body, headers(account), seconds=seconds)
            with contextlib.closing(response):
                if response.status == 503:  # Service Unavailable
                    raise LoadingModel(f"{account.name} is not ready")
                if response.status == 200:  # OK
                    for chunk in response.chunks():
                        document += chunk
                        if len(document) >= max_bytes:
                            break
        except GptshError as err:
            from gptsh.llm.failures import without_secrets

            secrets = self._servers.secrets_of(account)
            raise without_secrets(err, secrets)  # noqa: B904 - it is the same error
        return bytes(document[:max_bytes])

    def learn(self, target: Target, key: str, ask: Callable[[Get], object]) -> None:
        """Remember what the server reports as ``key``, unless that is known or the server has just not answered."""
        entry = self.cache.entry(target)
        failed_at = token_count(entry.get("failed")) or 0
        if key in entry or time.time() <= failed_at + _RETRY_AFTER:
            return
        try:
            entry[key] = ask(self.getter(target.account))
        except GptshError:
            entry["failed"] = round(time.time())

    def listed_models(self, account: Account, seconds: float) -> list[JsonObject]:
        """The server's list of models, each with its ``id``. Raises GptshError if there is none."""
        payload = self.getter(account, seconds)(list_url(account))
        if payload is None:
            raise ModelError(f"{account.name} does not list its models")
        return models_in(payload)


def list_url(account: Account) -> str:
    """The URL of a server's list of models."""
    return account.base_url + _LIST_PATHS.get(account.vendor.api, "/models")


def models_in(payload: object) -> list[JsonObject]:
    """The models in the payload of ``/models``, each with its ``id``; of Google's list those that answer prompts."""
    if isinstance(payload, dict):
        payload = payload.get("data", payload.get("models"))
    entries = as_dicts(payload)
    for entry in entries:
        if "generateContent" in (entry.get("supportedGenerationMethods") or ()):
            entry["id"] = str(entry.get("name")).removeprefix("models/")
    return [entry for entry in entries if entry.get("id") and isinstance(entry["id"], str)]


def window_in(entry: JsonObject) -> int | None:
    """The window in an entry of ``/models``: vLLM's, llama.cpp's, that of OpenRouter's first provider, the model's."""
    return first_size(
        entry.get("max_model_len"),
        as_dict(entry.get("meta")).get("n_ctx"),
        as_dict(entry.get("top_provider")).get("context_length"),
        *map(entry.get, _WINDOW_KEYS),
    )


def first_size(*sizes: object) -> int | None:
    """The first value that is a valid number of tokens, above 0."""
    counts = (token_count(size) for size in sizes)
    return next((count for count in counts if count), None)


# ---- ollama models
#
# Ollama's models, as its server reports them: the window, trained and loaded; abilities; size;
# which are loaded.

_SMALL = 2000  # tokens of prompt and answer that fit any window which Ollama chooses itself
_MIN_WINDOW = 4096  # tokens: the smallest window requested from Ollama
_LOADED = 300  # seconds that Ollama keeps a model in memory
_NUM_CTX = r"(?m)^[ \t]*num_ctx[ \t]+([0-9]{1,10})[ \t\r]*$"  # matches within one line only


class ModelState(TypedDict):
    """The size of a model's file in bytes, and whether the model is in memory; None: unknown."""

    size: int | None
    loaded: bool | None


class OllamaModels:
    """What Ollama's servers report about their models. The cache remembers it: a model as loaded for five minutes."""

    def __init__(self, reports: ServerReports) -> None:
        self.reports = reports
        self._cache = reports.cache

    def info(self, target: Target) -> JsonObject:
        """What a server reports, or has reported today, about its model; see ``read_info``. Empty if it is unknown."""
        self.reports.learn(target, "shown", lambda get: read_info(target, get))
        return as_dict(self._cache.entry(target).get("shown"))

    def with_window(self, request: Request, target: Target) -> Request:
        """The request with the window to ask for: the user's choice, else as large as needed.

        Without one the server chooses. For a larger window Ollama loads the model again.
        """
        options = as_dict(request.params.get("options"))
        choice = request.params.get("num_ctx", options.get("num_ctx"))
        window = choice or target.account.context_window or None
        if not target.is_cloud:  # which always has the model's largest window
            if window is None:
                window = self._window_for(target, request.tokens)
            self._set_loaded(target, token_count(window))
        if window:
            request = request._replace(params={**request.params, "num_ctx": window})
        return request

    def note_window(self, answer: Answer, target: Target) -> None:
        """Note in the usage of an answer that was cut by its length the window that was full."""
        window = self._loaded_window(target)
        if window and answer.usage and answer.finish_reason == "length":
            answer.usage["raw"][WINDOW_KEY] = window

    def _window_for(self, target: Target, tokens: int) -> int | None:
        """The loaded window if this many tokens fit, else a larger one; None: no matter what the server chooses."""
        loaded = self._cache.entry(target).get("loaded")
        if loaded is None or time.time() >= loaded[1]:
            current_window = self._running_window(target)
            self._set_loaded(target, current_window)
        else:
            current_window = loaded[0]
        if current_window is not None and current_window >= tokens:
            return current_window
        if current_window is None and tokens <= _SMALL:
            return None
        info = self.info(target) if tokens > _SMALL else {}
        power_of_two = 1 << (max(tokens, _MIN_WINDOW) - 1).bit_length()
        window = max(power_of_two, info.get("num_ctx") or 0)
        return min(window, info.get("trained") or window)

    def _loaded_window(self, target: Target) -> int | None:
        """The window with which the server has just used a model; the server's choice is asked for once a day."""
        if target.is_cloud:
            return token_count(self.info(target).get("trained"))
        entry = self._cache.entry(target)
        window: int | None = entry.get("loaded", [None])[0]
        if window is None:
            if "own" not in entry:
                entry["own"] = self._running_window(target)
            window = entry["own"]
        self._set_loaded(target, window)
        return window

    def _set_loaded(self, target: Target, window: int | None) -> None:
        """Remember the window with which the model is in memory, and until when that is likely."""
        self._cache.entry(target)["loaded"] = [window, time.time() + _LOADED]

    def _running_window(self, target: Target) -> int | None:
        """The window of a loaded model; None if it is not loaded."""
        with contextlib.suppress(GptshError):
            get = self.reports.getter(target.account, PROBE_TIMEOUT)
            return read_loaded_window(target, get)
        return None

    def states(self, account: Account) -> dict[str, ModelState]:
        """The size of each model of a server, and whether it is loaded; empty if the server does not report."""
        get = self.reports.getter(account, REMOTE_TIMEOUT)
        root = _root(account)
        try:
            stored, loaded = as_dict(get(f"{root}/api/tags")), as_dict(get(f"{root}/api/ps"))
        except GptshError:
            return {}
        in_memory = {entry.get("name") for entry in as_dicts(loaded.get("models"))}
        states: dict[str, ModelState] = {}
        for entry in as_dicts(stored.get("models")):
            name = entry.get("name")
            states[str(name)] = {"size": bytes_in(entry), "loaded": name in in_memory}
        return states


def read_info(target: Target, get: Get) -> JsonObject:
    """What Ollama reports about a model: the window of its file, the one it was trained for, and its abilities."""
    report = as_dict(get(f"{_root(target.account)}/api/show", {"model": target.model}))
    info, parameters = as_dict(report.get("model_info")), report.get("parameters")
    abilities = report.get("capabilities")
    match = re.search(_NUM_CTX, parameters) if isinstance(parameters, str) else None
    return {
        "num_ctx": first_size(int(match[1]) if match else None),
        "trained": first_size(info.get(f"{info.get('general.architecture')}.context_length")),
        "abilities": abilities if isinstance(abilities, list) else None,  # in Ollama's words
    }


def read_loaded_window(target: Target, get: Get) -> int | None:
    """The window with which Ollama has loaded a model; None if it is not loaded."""
    names = (target.model, f"{target.model}:latest")
    loaded = as_dicts(as_dict(get(f"{_root(target.account)}/api/ps")).get("models"))
    matches = [entry for entry in loaded if entry.get("model", entry.get("name")) in names]
    return first_size(*(entry.get("context_length") for entry in matches))


def bytes_in(report: JsonObject) -> int | None:
    """The size of a model's file in bytes."""
    size = report.get("size")
    return size if type(size) is int and size > 0 else None


def _root(account: Account) -> str:
    """The URL of a server whose own API is beside OpenAI's."""
    return account.base_url.removesuffix("/v1")


# ---- windows
#
# Where a model's context window comes from: the config file, a self-hosted server, the model table,
# or a refusal.


class Windows:
    """The context windows of models, in tokens. What a server reports is remembered for a day."""

    def __init__(self, settings: Settings, ollama: OllamaModels) -> None:
        self._settings = settings
        self._ollama = ollama
        self._reports = ollama.reports
        self._cache = ollama.reports.cache
        self._limits: dict[str, int] = {}  # windows that refusals have named
        self._early: threading.Thread | None = None  # asks for a window that may be needed

    def of(self, model: str, *, ask: bool) -> int | None:
        """A model's window: from the config file, else from its server, else from the model table; None: unknown.

        A smaller window that a refusal has named wins. ``ask``: a self-hosted server may be asked; no hosted provider
        ever is. Raises ConfigError.
        """
        if ask and self._early:
            self._early.join()
        target = self._settings.providers.for_model(model)
        window = target.account.context_window
        if window is None and _reports_windows(target):
            window = self._reported(target, ask=ask)
        if window is None and target.provider not in LOCAL_VENDORS:
            # A local server's window depends on how it was started, and the table is wrong about Ollama's models.
            window = exact_facts(target.provider, target.model).window
            if window is None and not target.account.has_custom_base:
                window = window_of_family(target.provider, target.model)
        limit = self._limits.get(server_and_model(target))
        return min(filter(None, (window, limit)), default=None)

    def ask_early(self, model: str) -> None:
        """Let a thread ask for a window that is needed soon; ``of`` then waits for it. Raises ConfigError."""
        target = self._settings.providers.for_model(model)
        if target.account.context_window is None and _reports_windows(target):
            self._cache.entry(target)  # so that the thread adds no entry while the cache may be saving them
            thread = threading.Thread(target=self._reported, args=(target,), kwargs={"ask": True}, daemon=True)
            thread.start()
            self._early = thread

    def learn(self, model: str, window: int) -> None:
        """Limit the model's window to this number of tokens, which a refusal has named."""
        key = server_and_model(self._settings.providers.for_model(model))
        self._limits[key] = min(window, self._limits.get(key, window))

    def _reported(self, target: Target, *, ask: bool) -> int | None:
        """The window that a server reports or has reported today."""
        if target.api == "ollama":
            info = self._ollama.info(target) if ask else {}
            return info.get("trained") or info.get("num_ctx")
        if ask:
            self._reports.learn(target, "window", partial(_read_window, target))
        return self._cache.entry(target).get("window")


# ---- self-hosted servers


def _reports_windows(target: Target) -> bool:
    """Whether a provider is asked: a self-hosted server, unless litellm asks it, and Ollama's cloud."""
    return target.api == "ollama" or (target.is_self_hosted and target.api in DIRECT)


def _read_window(target: Target, get: Get) -> int | None:
    """The window that a server reports, from the first document that has it."""
    if target.provider == "lm_studio":
        return _read_from_lm_studio(target, get)
    window = _read_from_list(target, get)
    if window or target.api == "gemini":
        return window
    if target.provider != "hosted_vllm":
        window = _read_from_llama_cpp(target, get)
    if window or target.provider in LOCAL_VENDORS:
        return window
    return _read_from_ollama(target, get)


def _read_from_list(target: Target, get: Get) -> int | None:
    entries = models_in(get(list_url(target.account)))
    for entry in entries:
        # llama.cpp lists its one model under a name of its own, and serves it under any name.
        is_only_model = len(entries) == 1 and "meta" in entry
        if is_only_model or entry["id"] == target.model:
            return window_in(entry)
    return None


def _read_from_lm_studio(target: Target, get: Get) -> int | None:
    """The window with which LM Studio has loaded a model, else the model's maximum, which is an upper bound."""
    payload = as_dict(get(f"{_root(target.account)}/api/v1/models"))
    for entry in as_dicts(payload.get("models")):
        instances = as_dicts(entry.get("loaded_instances"))
        matches = [instance for instance in instances if instance.get("id") == target.model]
        if matches or entry.get("key") == target.model:
            configs = [as_dict(instance.get("config")) for instance in matches or instances]
            loaded_windows = [config.get("context_length") for config in configs]
            window = first_size(*loaded_windows, entry.get("max_context_length"))
            if window is not None:
                return window
    return None


def _read_from_llama_cpp(target: Target, get: Get) -> int | None:
    """The window of an older llama.cpp, whose list of models does not have it."""
    props = as_dict(get(f"{_root(target.account)}/props"))
    return first_size(as_dict(props.get("default_generation_settings")).get("n_ctx"))


def _read_from_ollama(target: Target, get: Get) -> int | None:
    """The window of Ollama behind OpenAI's API: the loaded one, else the model file's, else the model's maximum.

    The last is an upper bound: a prompt beyond the server's choice is truncated, and only the answer's usage shows it.
    """
    info = read_info(target, get)
    upper_bound: int | None = info["num_ctx"] or info["trained"]
    if upper_bound is None:
        return None
    return read_loaded_window(target, get) or upper_bound


# ---- abilities
#
# Whether a model can read images, PDF documents, audio or video: by its API, Ollama's report, or
# the model table.

_OLLAMAS_WORDS = {"vision": "vision", "function_calling": "tools", "reasoning": "thinking"}
# Abilities that no model has through these APIs: their messages cannot carry such parts.
_UNSUPPORTED: dict[str, tuple[str, ...]] = {
    "chat": ("video_input",),
    "responses": ("audio_input", "video_input"),
    "anthropic": ("audio_input", "video_input"),
    "ollama": ("pdf_input", "audio_input", "video_input"),
    "litellm": ("video_input",),
}


def has_ability(target: Target, ability: str, ollama: OllamaModels) -> bool | None:
    """Whether a provider's model has ``vision``, ``pdf_input``, …; None: unknown. An Ollama server is asked."""
    if ability in _UNSUPPORTED.get(target.api, ()):
        return False
    if target.api != "ollama":
        return exact_facts(target.provider, target.model).can(ability)
    if ability not in _OLLAMAS_WORDS:
        return None
    reported = ollama.info(target).get("abilities")
    return None if reported is None else _OLLAMAS_WORDS[ability] in reported
