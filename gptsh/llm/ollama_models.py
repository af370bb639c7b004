"""Ollama's models, as its server reports them: the window, trained and loaded; abilities; size; which are loaded."""

import contextlib
import re
import time
from typing import Any

from gptsh.errors import GptshError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm.server_cache import ServerCache
from gptsh.llm.server_reports import PROBE_TIMEOUT, REMOTE_TIMEOUT, Get, ServerReports, first_size
from gptsh.messages import token_count
from gptsh.models.vendors import Provider

_SMALL = 2000  # tokens of prompt and answer that fit any window which Ollama chooses itself
_MIN_WINDOW = 4096  # tokens: the smallest window requested from Ollama
_LOADED = 300  # seconds that Ollama keeps a model in memory
_NUM_CTX = r"(?m)^[ \t]*num_ctx[ \t]+([0-9]{1,10})[ \t\r]*$"  # matches within one line only


class OllamaModels:
    """What Ollama's servers report about their models. The cache remembers it: a model as loaded for five minutes."""

    def __init__(self, reports: ServerReports, cache: ServerCache) -> None:
        self._reports, self._cache = reports, cache

    def info(self, provider: Provider) -> dict[str, Any]:
        """What a server reports, or has reported today, about its model; see ``read_info``. Empty if it is unknown."""
        self._reports.learn(provider, "shown", lambda get: read_info(provider, get))
        return as_dict(self._cache.entry(provider).get("shown"))

    def window_to_request(self, provider: Provider, tokens: int, choice: Any = None) -> Any:
        """The window to request: the user's choice, else as large as needed; None lets the server choose.

        ``tokens``: of prompt and answer, 0 if unknown. For a larger window Ollama loads the model again.
        """
        window = choice or provider.context_window or None
        if provider.is_cloud:  # it always has the model's largest window
            return window
        if window is None:
            window = self._window_for(provider, tokens)
        self._set_loaded(provider, token_count(window))
        return window

    def _window_for(self, provider: Provider, tokens: int) -> int | None:
        """The loaded window if this many tokens fit, else a larger one; None: no matter what the server chooses."""
        loaded = self._cache.entry(provider).get("loaded")
        if loaded is None or time.time() >= loaded[1]:
            loaded = self._set_loaded(provider, self._running_window(provider))
        current_window: int | None = loaded[0]
        if current_window is not None and current_window >= tokens:
            return current_window
        if current_window is None and tokens <= _SMALL:
            return None
        info = self.info(provider) if tokens > _SMALL else {}
        power_of_two = 1 << (max(tokens, _MIN_WINDOW) - 1).bit_length()
        window = max(power_of_two, info.get("num_ctx") or 0)
        return min(window, info.get("trained") or window)

    def loaded_window(self, provider: Provider) -> int | None:
        """The window with which the server has just used a model; the server's choice is asked for once a day."""
        if provider.is_cloud:
            return token_count(self.info(provider).get("trained"))
        entry = self._cache.entry(provider)
        window: int | None = entry.get("loaded", [None])[0]
        if window is None:
            if "own" not in entry:
                entry["own"] = self._running_window(provider)
            window = entry["own"]
        self._set_loaded(provider, window)
        return window

    def _set_loaded(self, provider: Provider, window: int | None) -> list[Any]:
        """Remember the window with which the model is in memory, and until when that is likely."""
        loaded = [window, time.time() + _LOADED]
        self._cache.entry(provider)["loaded"] = loaded
        return loaded

    def _running_window(self, provider: Provider) -> int | None:
        """The window of a loaded model; None if it is not loaded."""
        with contextlib.suppress(GptshError):
            return read_loaded_window(provider, self._reports.getter(provider, PROBE_TIMEOUT))
        return None

    def states(self, provider: Provider) -> dict[str, dict[str, Any]]:
        """The size of each model of a server, and whether it is loaded; empty if the server does not report."""
        get, root = self._reports.getter(provider, REMOTE_TIMEOUT), _root(provider)
        try:
            stored, loaded = as_dict(get(f"{root}/api/tags")), as_dict(get(f"{root}/api/ps"))
        except GptshError:
            return {}
        in_memory = {entry.get("name") for entry in as_dicts(loaded.get("models"))}
        states = {}
        for entry in as_dicts(stored.get("models")):
            name = entry.get("name")
            states[str(name)] = {"size": bytes_in(entry), "loaded": name in in_memory}
        return states


def read_info(provider: Provider, get: Get) -> dict[str, Any]:
    """What Ollama reports about a model: the window of its file, the one it was trained for, and its abilities."""
    report = as_dict(get(f"{_root(provider)}/api/show", {"model": provider.model}))
    info, parameters = as_dict(report.get("model_info")), report.get("parameters")
    abilities = report.get("capabilities")
    match = re.search(_NUM_CTX, parameters) if isinstance(parameters, str) else None
    return {
        "num_ctx": first_size(int(match[1]) if match else None),
        "trained": first_size(info.get(f"{info.get('general.architecture')}.context_length")),
        "abilities": abilities if isinstance(abilities, list) else None,  # in Ollama's words
    }


def read_loaded_window(provider: Provider, get: Get) -> int | None:
    """The window with which Ollama has loaded a model; None if it is not loaded."""
    names = (provider.model, f"{provider.model}:latest")
    loaded = as_dicts(as_dict(get(f"{_root(provider)}/api/ps")).get("models"))
    matches = [entry for entry in loaded if entry.get("model", entry.get("name")) in names]
    return first_size(*(entry.get("context_length") for entry in matches))


def bytes_in(report: dict[str, Any]) -> int | None:
    """The size of a model's file in bytes."""
    size = report.get("size")
    return size if type(size) is int and size > 0 else None


def _root(provider: Provider) -> str:
    """The URL of an Ollama server, also of one that is asked by OpenAI's API."""
    return provider.base_url.removesuffix("/v1")
