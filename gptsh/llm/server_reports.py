"""Ask a model's server about itself, without a prompt: download a list of models or another document, in limited time.

A reply that is missing, late or malformed is not an error of the prompt. Then gptsh waits five minutes and asks again.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from gptsh.errors import GptshError, LoadingModel, ModelError, TimedOut
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm.headers import headers
from gptsh.llm.masking import without_secrets
from gptsh.llm.routes import Routes
from gptsh.llm.server_cache import ServerCache
from gptsh.messages import token_count
from gptsh.models.vendors import Provider

PROBE_TIMEOUT = 0.3  # seconds for a server on this machine that may not run, to list its models
REPORT_TIMEOUT = 2.0  # seconds for one that is about to answer, to report on a model: its report is cached
REMOTE_TIMEOUT = 5.0  # seconds for a remote server
_RETRY_AFTER = 300  # seconds after a server did not answer
_PROBE_BYTES = 1 << 22  # read from a local server: its time does not cover parsing them
_LIST_BYTES = 1 << 25  # of a list of all models
_LOOPBACK = r"https?://(localhost|127\.|\[::1\])"
_LIST_PATHS = {"ollama": "/v1/models", "gemini": "/models?pageSize=1000", "anthropic": "/models?limit=1000"}
_WINDOW_KEYS = ("context_length", "inputTokenLimit", "max_input_tokens")  # in OpenAI's API, Google's, Anthropic's

Get = Callable[..., Any]  # (URL, body to post) -> document, or None for any status but 200; raises GptshError


class ServerReports:
    """Asks servers about themselves. What it ``learn``s is remembered for a day."""

    def __init__(self, routes: Routes, cache: ServerCache) -> None:
        self._routes, self._cache = routes, cache

    def getter(self, provider: Provider, seconds: float | None = None) -> Get:
        """A function that downloads documents from a server, all within ``seconds``, which default by its address."""
        if seconds is None:
            seconds = REPORT_TIMEOUT if re.match(_LOOPBACK, provider.base_url) else REMOTE_TIMEOUT
        max_bytes = _LIST_BYTES if seconds == REMOTE_TIMEOUT else _PROBE_BYTES
        deadline = time.monotonic() + seconds

        def get(url: str, body: Mapping[str, Any] | None = None) -> Any:
            data = json.dumps(body).encode() if body else None
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                raise TimedOut(f"{provider.name} does not answer in time")
            document = self._download(provider, url, seconds_left, data, max_bytes)
            try:
                return json.loads(document)
            except (ValueError, RecursionError):
                return None

        return get

    def _download(self, provider: Provider, url: str, seconds: float, body: bytes | None, max_bytes: int) -> bytes:
        """Download at most ``max_bytes`` of a document; empty for any status but 200.

        Raises GptshError, also if it takes longer than ``seconds``, and LoadingModel if the server is not ready.
        """
        provider, document = self._routes.with_key(provider), bytearray()
        try:
            response = self._routes.http.send(url, body, headers(provider), seconds=seconds)
            with contextlib.closing(response):
                if response.status == 503:  # Service Unavailable
                    raise LoadingModel(f"{provider.name} is not ready")
                if response.status == 200:  # OK
                    for chunk in response.chunks():
                        document += chunk
                        if len(document) >= max_bytes:
                            break
        except GptshError as err:
            raise without_secrets(err, provider.secrets)  # noqa: B904 - it is the same error
        return bytes(document[:max_bytes])

    def learn(self, provider: Provider, key: str, ask: Callable[[Get], Any]) -> None:
        """Remember what the server reports as ``key``, unless that is known or the server has just not answered."""
        entry = self._cache.entry(provider)
        failed_at = token_count(entry.get("failed")) or 0
        if key in entry or time.time() <= failed_at + _RETRY_AFTER:
            return
        try:
            entry[key] = ask(self.getter(provider))
        except GptshError:
            entry["failed"] = round(time.time())

    def listed_models(self, provider: Provider, seconds: float) -> list[dict[str, Any]]:
        """The server's list of models, each with its ``id``. Raises GptshError if there is none."""
        payload = self.getter(provider, seconds)(list_url(provider))
        if payload is None:
            raise ModelError(f"{provider.name} does not list its models")
        return models_in(payload)


def list_url(provider: Provider) -> str:
    """The URL of a server's list of models."""
    return provider.base_url + _LIST_PATHS.get(provider.api, "/models")


def models_in(payload: Any) -> list[dict[str, Any]]:
    """The models in the payload of ``/models``, each with its ``id``; of Google's list those that answer prompts."""
    if isinstance(payload, dict):
        payload = payload.get("data", payload.get("models"))
    entries = as_dicts(payload)
    for entry in entries:
        if "generateContent" in (entry.get("supportedGenerationMethods") or ()):
            entry["id"] = str(entry.get("name")).removeprefix("models/")
    return [entry for entry in entries if entry.get("id") and isinstance(entry["id"], str)]


def window_in(entry: Mapping[str, Any]) -> int | None:
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
