"""Find out what models can do: windows and abilities, from the table or from servers."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from gptsh.config.accounts import Account, Target
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer
from gptsh.errors import GptshError, LoadingModel, ModelError, TimedOut
from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.llm.servers import Servers, headers, server_and_model
from gptsh.messages import Request, token_count
from gptsh.models.facts import chat_models, exact_facts, likely_facts, split_model
from gptsh.models.usage import WINDOW_KEY
from gptsh.models.vendors import DIRECT, LOCAL_VENDORS

if TYPE_CHECKING:
    from gptsh.llm.http import Response

# ---- server reports
#
# Ask a model's server about itself, without a prompt, in limited time.
#
# A prompt does not fail if a report is missing, late or malformed. gptsh asks again after five
# minutes.

PROBE_TIMEOUT = 0.3  # seconds for a server on this machine that may not run, to list its models
REPORT_TIMEOUT = 2.0  # seconds for one that is about to answer; its report is cached
REMOTE_TIMEOUT = 5.0  # seconds for a remote server
_RETRY_AFTER = 300  # seconds after a server did not answer
_MAX_BYTES = 1 << 25  # of a document, such as a list of all models
_MAX_BYTES_SOON = 1 << 22  # of one that a prompt waits for, because parsing it takes time, too
_LOOPBACK = r"https?://(localhost|127\.|\[::1\])"
_LIST_PATHS = {
    "ollama": "/v1/models",
    "gemini": "/models?pageSize=1000",
    "anthropic": "/models?limit=1000",
}


class ServerDownloads:
    """Downloads JSON from a server, all of it within ``seconds``.

    The default depends on whether the server is on this machine.
    """

    def __init__(self, servers: Servers, account: Account, seconds: float | None = None) -> None:
        if seconds is None:
            is_local = re.match(_LOOPBACK, account.base_url)
            seconds = REPORT_TIMEOUT if is_local else REMOTE_TIMEOUT
        self._servers = servers
        self._account = account
        self._max_bytes = _MAX_BYTES if seconds == REMOTE_TIMEOUT else _MAX_BYTES_SOON
        self._deadline = time.monotonic() + seconds

    def get(self, url: str, body: JsonObject | None = None) -> object:
        """Download JSON; None for any status but 200, or if it is not JSON.

        A ``body`` is posted. Raises GptshError, also if it takes too long, and LoadingModel if the
        server is not ready.
        """
        account = self._account
        seconds_left = self._deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimedOut(f"timed out waiting for {account.name}")
        data = json.dumps(body).encode() if body else None
        account = self._servers.with_key(account)
        try:
            response = self._servers.http().send(
                url,
                data,
                headers(account),
                seconds=seconds_left,
            )
            with contextlib.closing(response):
                document = self._read(response)
        except GptshError as err:
            from gptsh.llm.failures import without_secrets

            raise without_secrets(err, self._servers.secrets_of(account))  # noqa: B904 - the same
        try:
            return json.loads(document)
        except (ValueError, RecursionError):
            return None

    def _read(self, response: "Response") -> bytes:
        """Return the beginning of a document; empty for any status but 200."""
        if response.status == 503:  # Service Unavailable
            raise LoadingModel(f"{self._account.name} is not ready")
        if response.status != 200:  # OK
            return b""
        document = bytearray()
        for chunk in response.chunks():
            document += chunk
            if len(document) >= self._max_bytes:
                break
        return bytes(document[: self._max_bytes])


def list_url(account: Account) -> str:
    """Return the URL of a server's list of models."""
    return account.base_url + _LIST_PATHS.get(account.vendor.api, "/models")


def models_in(payload: object) -> list[JsonObject]:
    """Return the models in the payload of ``/models``, each with its ``id``.

    From Google's list, return only those that answer prompts.
    """
    if isinstance(payload, dict):
        payload = payload.get("data", payload.get("models"))
    models = []
    for entry in as_dicts(payload):
        if "generateContent" in (entry.get("supportedGenerationMethods") or ()):
            entry["id"] = str(entry.get("name")).removeprefix("models/")
        if entry.get("id") and isinstance(entry["id"], str):
            models.append(entry)
    return models


def window_of_entry(entry: JsonObject) -> int | None:
    """Return the window in an entry of ``/models``. What the server really uses comes first."""
    return first_size(
        entry.get("max_model_len"),  # vLLM
        as_dict(entry.get("meta")).get("n_ctx"),  # llama.cpp
        as_dict(entry.get("top_provider")).get("context_length"),  # OpenRouter
        entry.get("context_length"),  # OpenAI's API
        entry.get("inputTokenLimit"),  # Google's
        entry.get("max_input_tokens"),  # Anthropic's
    )


def first_size(*sizes: object) -> int | None:
    """Return the first value that is a valid number of tokens, above 0."""
    for size in sizes:
        count = token_count(size)
        if count:
            return count
    return None


# ---- what servers are asked

_SMALL = 2000  # tokens of prompt and answer that fit any window which Ollama chooses itself
_MIN_WINDOW = 4096  # tokens: the smallest window requested from Ollama
_LOADED = 300  # seconds that Ollama keeps a model in memory
_NUM_CTX = r"(?m)^[ \t]*num_ctx[ \t]+([0-9]{1,10})[ \t\r]*$"  # matches within one line only


class ModelState(TypedDict):
    """The size of a model's file in bytes, and whether it is in memory; None: unknown."""

    size: int | None
    loaded: bool | None


class _Loaded(NamedTuple):
    """The window of the model that Ollama has in memory, and until when it is likely there."""

    window: int | None
    until: float


class ServerReports:
    """Asks servers about themselves, and remembers the reports for a day.

    The window of a model that Ollama has loaded is remembered for five minutes.
    """

    def __init__(self, servers: Servers) -> None:
        self.cache = servers.cache
        self._servers = servers

    def learn(self, target: Target, key: str, read: Callable[[ServerDownloads], object]) -> None:
        """Ask the server, and remember its report under ``key``.

        The server is not asked if the report is known, or if it did not answer in the last five
        minutes.
        """
        entry = self.cache.entry(target)
        failed_at = token_count(entry.get("failed")) or 0
        if key in entry or time.time() <= failed_at + _RETRY_AFTER:
            return
        try:
            entry[key] = read(ServerDownloads(self._servers, target.account))
        except GptshError:
            entry["failed"] = round(time.time())

    def listed_models(self, account: Account, seconds: float) -> list[JsonObject]:
        """Return the server's list of models, each with its ``id``.

        Raises GptshError if it has none.
        """
        payload = ServerDownloads(self._servers, account, seconds).get(list_url(account))
        if payload is None:
            raise ModelError(f"{account.name} does not list its models")
        return models_in(payload)

    # ---- Ollama

    def info(self, target: Target) -> JsonObject:
        """Return what a server reports, or has reported today, about its model.

        See ``read_info``.
        """
        self.learn(target, "shown", partial(read_info, target))
        return as_dict(self.cache.entry(target).get("shown"))

    def with_window(self, request: Request, target: Target) -> Request:
        """Return the request with the window that the user has chosen, else with a large enough one.

        If the prompt is small, the server may choose. Ollama loads the model again for a larger
        window than the loaded one, so that a loaded window is kept if it is large enough.
        """
        options = as_dict(request.params.get("options"))
        choice = request.params.get("num_ctx", options.get("num_ctx"))
        window = choice or target.account.context_window
        if not target.is_cloud:  # Ollama's cloud always uses the model's largest window
            window = window or self._window_for(target, request.tokens)
            self._set_loaded(target, token_count(window))
        if window:
            request = request._replace(params={**request.params, "num_ctx": window})
        return request

    def _window_for(self, target: Target, tokens: int) -> int | None:
        """Return the loaded window if this many tokens fit, else a larger one.

        None means that the server chooses the window.
        """
        loaded = self._loaded(target)
        window = loaded.window
        if time.time() >= loaded.until:
            window = self._running_window(target)
            self._set_loaded(target, window)
        if window is not None and window >= tokens:
            return window
        if window is None and tokens <= _SMALL:
            return None
        info = self.info(target) if tokens > _SMALL else {}
        power_of_two = 1 << (max(tokens, _MIN_WINDOW) - 1).bit_length()
        larger: int = max(power_of_two, info.get("num_ctx") or 0)
        return min(larger, info.get("trained") or larger)

    def note_window(self, answer: Answer, target: Target) -> None:
        """Save the window in the usage of an answer that ended because the window was full."""
        if target.is_cloud:
            window = token_count(self.info(target).get("trained"))
        else:
            window = self._loaded(target).window
            if window is None:
                window = self._chosen_window(target)
            self._set_loaded(target, window)
        if window and answer.usage and answer.finish_reason == "length":
            answer.usage["raw"][WINDOW_KEY] = window

    def _chosen_window(self, target: Target) -> int | None:
        """Return the window that the server has chosen itself; it is asked for it once a day."""
        entry = self.cache.entry(target)
        if "own" not in entry:
            entry["own"] = self._running_window(target)
        window: int | None = entry["own"]
        return window

    def _loaded(self, target: Target) -> _Loaded:
        return _Loaded(*self.cache.entry(target).get("loaded", (None, 0)))

    def _set_loaded(self, target: Target, window: int | None) -> None:
        self.cache.entry(target)["loaded"] = [window, time.time() + _LOADED]

    def _running_window(self, target: Target) -> int | None:
        """Return the window of a loaded model; None if it is not loaded."""
        try:
            return read_loaded_window(
                target, ServerDownloads(self._servers, target.account, PROBE_TIMEOUT)
            )
        except GptshError:
            return None

    def states(self, account: Account) -> dict[str, ModelState]:
        """Return the size of each model of a server, and whether it is loaded; empty if unknown."""
        downloads = ServerDownloads(self._servers, account, REMOTE_TIMEOUT)
        root = _root(account)
        try:
            stored = _models_in(downloads.get(f"{root}/api/tags"))
            loaded = _models_in(downloads.get(f"{root}/api/ps"))
        except GptshError:
            return {}
        in_memory = {entry.get("name") for entry in loaded}
        states: dict[str, ModelState] = {}
        for entry in stored:
            name = entry.get("name")
            states[str(name)] = {"size": bytes_in(entry), "loaded": name in in_memory}
        return states


def read_info(target: Target, downloads: ServerDownloads) -> JsonObject:
    """Return what Ollama reports about a model.

    ``num_ctx`` is the window that the model's file sets, ``trained`` the largest that it can have,
    ``abilities`` is a list in Ollama's words. Each may be None.
    """
    url = f"{_root(target.account)}/api/show"
    report = as_dict(downloads.get(url, {"model": target.model}))
    info = as_dict(report.get("model_info"))
    architecture = info.get("general.architecture")
    num_ctx = re.search(_NUM_CTX, str(report.get("parameters")))
    abilities = report.get("capabilities")
    return {
        "num_ctx": first_size(int(num_ctx[1])) if num_ctx else None,
        "trained": first_size(info.get(f"{architecture}.context_length")),
        "abilities": abilities if isinstance(abilities, list) else None,
    }


def read_loaded_window(target: Target, downloads: ServerDownloads) -> int | None:
    """Return the window with which Ollama has loaded a model; None if it is not loaded."""
    names = (target.model, f"{target.model}:latest")
    report = downloads.get(f"{_root(target.account)}/api/ps")
    for entry in _models_in(report):
        window = first_size(entry.get("context_length"))
        if window and entry.get("model", entry.get("name")) in names:
            return window
    return None


def bytes_in(report: JsonObject) -> int | None:
    """Return the size of a model's file in bytes."""
    size = report.get("size")
    return size if type(size) is int and size > 0 else None


def _models_in(report: object) -> list[JsonObject]:
    return as_dicts(as_dict(report).get("models"))


def _root(account: Account) -> str:
    """Return the URL of a server without OpenAI's path, for the server's own API."""
    return account.base_url.removesuffix("/v1")


# ---- windows


class Windows:
    """The context windows of models, in tokens. What a server reports is remembered for a day."""

    def __init__(self, settings: Settings, reports: ServerReports) -> None:
        self._settings = settings
        self._reports = reports
        self._limits: dict[str, int] = {}  # windows that refusals have named
        self._early: threading.Thread | None = None  # asks for a window that may be needed

    def of(self, model: str, *, ask: bool) -> int | None:
        """Return a model's window; None: unknown. Raises ConfigError.

        The window is from the config file, else from a self-hosted server, else from the model
        table. It is not larger than one that a refusal has named. If ``ask`` is true, the server
        may be asked.
        """
        if ask and self._early:
            self._early.join()
        target = self._settings.providers.for_model(model)
        window = target.account.context_window
        if window is None and _reports_windows(target):
            window = self._reported(target, ask=ask)
        # A local server's window depends on how it was started, and the table is wrong about
        # Ollama's models.
        if window is None and target.provider not in LOCAL_VENDORS:
            window = exact_facts(target.provider, target.model).window
            if window is None and not target.account.has_custom_base:
                window = window_of_family(target.provider, target.model)
        limit = self._limits.get(server_and_model(target))
        if window and limit:
            return min(window, limit)
        return window or limit

    def ask_early(self, model: str) -> None:
        """Let a thread ask for a window that is needed soon; ``of`` then waits for it.

        Raises ConfigError.
        """
        target = self._settings.providers.for_model(model)
        if target.account.context_window is None and _reports_windows(target):
            # Add the entry here, because the thread must add none while the cache is saved.
            self._reports.cache.entry(target)
            ask = partial(self._reported, target, ask=True)
            self._early = threading.Thread(target=ask, daemon=True)
            self._early.start()

    def learn(self, model: str, window: int) -> None:
        """Limit the model's window to this number of tokens, which a refusal has named."""
        key = server_and_model(self._settings.providers.for_model(model))
        self._limits[key] = min(window, self._limits.get(key, window))

    def _reported(self, target: Target, *, ask: bool) -> int | None:
        """Return the window that a server reports or has reported today."""
        if target.api == "ollama":
            info = self._reports.info(target) if ask else {}
            return info.get("trained") or info.get("num_ctx")
        if ask:
            self._reports.learn(target, "window", partial(_read_window, target))
        return self._reports.cache.entry(target).get("window")


def _reports_windows(target: Target) -> bool:
    """Return whether to ask Ollama, or a self-hosted server without litellm, for a window."""
    return target.api == "ollama" or (target.is_self_hosted and target.api in DIRECT)


def _read_window(target: Target, downloads: ServerDownloads) -> int | None:
    """Return the window that a server reports, from the first document that has it."""
    root = _root(target.account)
    if target.provider == "lm_studio":
        return _lm_studio_window(target.model, downloads.get(f"{root}/api/v1/models"))
    listed = models_in(downloads.get(list_url(target.account)))
    window = _listed_window(target.model, listed)
    if window or target.api == "gemini":
        return window
    if target.provider != "hosted_vllm":
        # An older llama.cpp, whose list of models does not have it.
        props = as_dict(downloads.get(f"{root}/props"))
        window = first_size(as_dict(props.get("default_generation_settings")).get("n_ctx"))
    if window or target.provider in LOCAL_VENDORS:
        return window
    # Ollama behind OpenAI's API. The model's largest window is only an upper bound, because Ollama
    # cuts a prompt to the window that it has chosen, and only the answer's usage shows that.
    info = read_info(target, downloads)
    upper_bound: int | None = info["num_ctx"] or info["trained"]
    if not upper_bound:
        return None
    return read_loaded_window(target, downloads) or upper_bound


def _listed_window(model: str, entries: list[JsonObject]) -> int | None:
    for entry in entries:
        # llama.cpp lists its only model under another name, and serves it under any name.
        is_only_model = len(entries) == 1 and "meta" in entry
        if is_only_model or entry["id"] == model:
            return window_of_entry(entry)
    return None


def _lm_studio_window(model: str, report: object) -> int | None:
    """Return the window with which LM Studio has loaded a model, else the model's maximum.

    A loaded instance may have a name of its own.
    """
    for entry in _models_in(report):
        instances = as_dicts(entry.get("loaded_instances"))
        matches = [instance for instance in instances if instance.get("id") == model]
        if not matches and entry.get("key") != model:
            continue
        sizes = []
        for instance in matches or instances:
            sizes.append(as_dict(instance.get("config")).get("context_length"))
        return first_size(*sizes, entry.get("max_context_length"))
    return None


# ---- windows of families

# The version in a name, and what is before and after it, without a date at the end.
_VERSIONED = (
    r"(?P<beginning>[^0-9]*)(?P<version>[0-9]{1,2}(?:[.-][0-9]{1,2})?)(?![0-9])"
    r"(?P<end>.*?)(?:-20[-0-9]*)?$"
)


class _Relative(NamedTuple):
    """A known model with a similar name. Of two relatives the smaller tuple is the nearer one."""

    is_foreign: bool
    ends_otherwise: bool
    distance: float  # of the versions
    window: int


@cache
def window_of_family(provider: str, name: str) -> int | None:
    """Return the window of the nearest relative of a model that is not in the table; None: unknown.

    Relatives have the same name except for the version, else at least the same beginning. The
    nearest version counts, and of several models the smallest window. VENDOR/NAME may be a router's
    name. Then the models of the vendor count, or those of that name at any provider.
    """
    bare_name = name.rpartition("/")[2]
    match = re.match(_VERSIONED, bare_name)
    if not match:
        return None
    owner = provider
    has_vendor = "/" in name
    if has_vendor:
        owner = split_model(bare_name)[0] or provider
    relatives = []
    for listed in chat_models():
        known_match = re.match(_VERSIONED, listed.name.rpartition("/")[2])
        if not listed.window or not known_match:
            continue
        if known_match["beginning"] != match["beginning"]:
            continue
        is_foreign = listed.provider != owner
        ends_otherwise = known_match["end"] != match["end"]
        if is_foreign and (ends_otherwise or not has_vendor):
            continue
        distance = abs(_number(known_match["version"]) - _number(match["version"]))
        relatives.append(_Relative(is_foreign, ends_otherwise, distance, window=listed.window))
    if not relatives:
        return likely_facts(provider, name).window
    return min(relatives).window


def _number(version: str) -> float:
    """Return a version as a number: 5-5 is 5.5."""
    return float(version.replace("-", "."))


# ---- abilities
#
# Whether a model can read images, PDF documents, audio or video. The API, Ollama's report or the
# model table decides.

_OLLAMAS_WORDS = {"vision": "vision", "function_calling": "tools", "reasoning": "thinking"}
# Abilities that no model has through these APIs: their messages cannot carry such parts.
_UNSUPPORTED: dict[str, tuple[str, ...]] = {
    "chat": ("video_input",),
    "responses": ("audio_input", "video_input"),
    "anthropic": ("audio_input", "video_input"),
    "ollama": ("pdf_input", "audio_input", "video_input"),
    "litellm": ("video_input",),
}


def has_ability(target: Target, ability: str, reports: ServerReports) -> bool | None:
    """Return whether a provider's model has ``vision``, ``pdf_input``, …; None: unknown.

    An Ollama server is asked.
    """
    if ability in _UNSUPPORTED.get(target.api, ()):
        return False
    if target.api != "ollama":
        return exact_facts(target.provider, target.model).can(ability)
    if ability not in _OLLAMAS_WORDS:
        return None
    reported = reports.info(target).get("abilities")
    return None if reported is None else _OLLAMAS_WORDS[ability] in reported
