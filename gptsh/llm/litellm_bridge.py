"""Requests to providers without one of gptsh's own APIs, through litellm. Only this file imports litellm.

The import takes seconds. It runs in a thread while gptsh reads standard input; the calls run in threads too, so that
signals and timeouts reach the main thread. Everything that litellm prints goes to stderr: stdout is for the answer.
"""

import gc
import json
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from gptsh import threads
from gptsh.config.settings import Network
from gptsh.content.answer import Answer
from gptsh.errors import GptshError, ModelError
from gptsh.llm import chat, chat_answers, reading_loop
from gptsh.llm.error_bodies import message_in_body
from gptsh.llm.error_statuses import refusal
from gptsh.llm.headers import headers
from gptsh.llm.json_bodies import encode
from gptsh.llm.too_long import means_too_long, too_long
from gptsh.llm.waiting import Incoming
from gptsh.messages import Event, Request
from gptsh.models.providers import Provider

_SWITCHES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else the import downloads the model table
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # else the first call downloads a list of headers
    "LITELLM_MODE": "PRODUCTION",  # else litellm reads a .env file
    "LITELLM_LOG": "ERROR",
    "REPEATED_STREAMING_CHUNK_LIMIT": str(10**9),  # else an answer that repeats itself is an error
}
_GRACE = 30.0  # seconds by which litellm's timeout is longer than gptsh's
_LOOPBACK = "localhost,127.0.0.1,::1"  # never proxied: a proxy's loopback is another machine
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# Without a finish reason from the provider litellm makes up "stop", so that a partial stream looks complete. It records
# the reasons that it has received, but not for these providers.
_UNRECORDED_REASONS = ("vertex_ai", "vertex_ai_beta")
_NOISE = re.compile(
    r"^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?:: | - )| Handle with `litellm\.\w+`\.?$"
    r"|\s+(?:Original exception: |File an issue if litellm error|To drop these, set |Traceback \(most recent call).*",
    re.DOTALL,
)
_MADE_UP_ID = re.compile("chatcmpl-[0-9a-f]{8}-[0-9a-f]{4}-")
_REQUEST_IDS = ("llm_provider-request-id", "llm_provider-x-request-id", "llm_provider-apim-request-id")


class Bridge:
    """Calls through litellm for one process. With ``owns_process`` its log, its warnings and its prints are hidden."""

    def __init__(self, network: Network, environ: Mapping[str, str], *, owns_process: bool = True) -> None:
        self._network, self._environ, self._owns_process = network, environ, owns_process
        self._failure: BaseException | None = None
        self._loader = threading.Thread(target=self._load, daemon=True)

    def preload(self) -> None:
        """Start the import, if it has not started."""
        if self._loader.ident is None:
            os.environ.update(_SWITCHES)
            os.environ.pop("LITELLM_PRINT_STANDARD_LOGGING_PAYLOAD", None)
            for name in ("NO_PROXY", "no_proxy"):
                os.environ[name] = ",".join(filter(None, (os.environ.get(name), _LOOPBACK)))
            if bundle := next(filter(None, map(self._environ.get, _BUNDLES)), None):  # also for other servers
                os.environ["SSL_CERT_FILE"] = bundle
            if self._owns_process:
                warnings.simplefilter("ignore")
                logging.disable(logging.CRITICAL)
                sys.stdout = sys.stderr
            if not threads.start(self._loader):
                self._load()

    def _load(self) -> None:
        """Import litellm. Garbage collection of its objects would take a second, and they last until the end."""
        gc.disable()
        try:
            import litellm  # noqa: PLC0415 - the reason for this file

            litellm.suppress_debug_info = True
            litellm.disable_hf_tokenizer_download = True  # else counting a stream without usage downloads a file
        except BaseException as err:  # noqa: BLE001 - an import may raise anything; ``read`` raises it again
            self._failure = err

    def read(self, request: Request, provider: Provider, answer: Answer) -> Iterator[Event]:
        """Write the response into ``answer`` and yield its events. Raises ModelError, TimedOut or TooLong."""
        self.preload()
        if self._loader.ident is not None:
            self._loader.join()
        if self._failure:
            raise _as_gptsh_error(self._failure, provider)
        call = arguments(request, provider, self._network)
        timeout, idle = self._network.first_byte_timeout, self._network.idle_seconds(is_local=provider.is_local)
        incoming = Incoming(_run_call(call, provider), provider.name)

        def chunks() -> Iterator[dict[str, Any]]:
            nonlocal timeout
            while (chunk := incoming.next_item(timeout)) is not None:
                if not gc.isenabled():
                    gc.freeze()
                    gc.enable()
                answer.request_id = chunk.pop("request_id", None) or answer.request_id
                yield chunk
                timeout = idle

        payloads = chunks() if request.stream else chat_answers.as_chunks(next(chunks(), {}), b"")
        return reading_loop.read(payloads, chat_answers.Reader(answer), incoming.limit_wait)


def _run_call(call: dict[str, Any], provider: Provider) -> Iterator[dict[str, Any]]:
    """In the thread: make one call and yield its chunks. Raises ModelError or TooLong."""
    try:
        import litellm  # noqa: PLC0415 - the reason for this file

        response = litellm.completion(**call)
        fields = response._hidden_params.get("additional_headers") or {}  # noqa: SLF001 - documented
        request_id = next((str(fields[name]) for name in _REQUEST_IDS if fields.get(name)), None)
        chunks = response if call["stream"] else [response]
        for chunk in chunks:
            yield {"request_id": request_id, **_plain(chunk, response, provider)}
    except Exception as err:  # noqa: BLE001 - of the libraries of a hundred providers; raised again, without keys
        raise _as_gptsh_error(err, provider) from None  # its causes may show the key


def arguments(request: Request, provider: Provider, network: Network) -> dict[str, Any]:
    """The arguments of litellm's call. It finds what gptsh does not know about a provider in the environment."""
    call = {
        **json.loads(encode(chat.body(request, provider))),
        "model": f"{provider.name}/{provider.model}",
        "stream": request.stream,
        "timeout": max(network.first_byte_timeout, network.idle_seconds(is_local=provider.is_local)) + _GRACE,
        "max_retries": 0,
        "num_retries": 0,
        "stream_options": {"include_usage": True} if request.stream else None,
        "extra_headers": headers(provider) or None,
        "api_key": str(provider.key) if provider.key else None,
        "api_base": provider.base_url or None,
    }
    return {name: value for name, value in call.items() if value is not None}


def _plain(chunk: Any, stream: Any, provider: Provider) -> dict[str, Any]:
    """A chunk without the ids, costs, finish reasons and estimates that litellm made up."""
    plain: dict[str, Any] = chunk.model_dump(exclude_none=True)
    plain.pop("model", None)
    if _MADE_UP_ID.match(plain.get("id") or ""):
        del plain["id"]
    if provider.name not in _UNRECORDED_REASONS and getattr(stream, "received_finish_reason", "?") is None:
        for choice in plain.get("choices") or ():
            choice.pop("finish_reason", None)
    if "usage" in plain and hasattr(stream, "chunks"):
        usages = [piece.usage for piece in stream.chunks if getattr(piece, "usage", None)]
        plain["usage"] = usages[-1].model_dump(exclude_none=True) if usages else {}
    usage = plain.get("usage") or {}
    usage.pop("cost", None)
    if "claude" in provider.model:  # litellm's estimate: Anthropic does not report them
        usage.get("completion_tokens_details", {}).pop("reasoning_tokens", None)
    if not usage.get("total_tokens"):
        plain.pop("usage", None)
    return plain


# ---- errors


def _as_gptsh_error(error: BaseException, provider: Provider) -> GptshError:
    """litellm's error as gptsh's: from the provider's response, else from litellm's text."""
    if status_error := _cause(error, "HTTPStatusError"):
        response: Any = status_error.response  # type: ignore[attr-defined]
        fields = {name.lower(): value for name, value in response.headers.items()}
        try:
            body = bytes(response.content)
        except RuntimeError:  # httpx.StreamError: the body was not read
            body = b""
        return refusal(str(response.url).partition("?")[0], response.status_code, fields, body, provider)
    text = str(error)
    while (shorter := _NOISE.sub("", text.strip())) != text:  # around the provider's message
        text = shorter
    text = message_in_body(text.encode("utf-8", "replace"))
    where = f"{provider.name} ({provider.base_url})" if provider.base_url else provider.name
    if means_too_long(str(error)):
        return too_long(f"{provider.name} has no room for the prompt: {text}", text, repr(error))
    if _cause(error, "ConnectError"):
        is_untrusted = "CERTIFICATE_VERIFY_FAILED" in text
        todo = "set SSL_CERT_FILE to your CA bundle" if is_untrusted else ""
        what = "no secure connection to" if is_untrusted else "nothing answers at"
        err = ModelError(f"{what} {where}: {text}", todo)
        err.may_fall_back = True
        return err
    if "No module named" in text:
        return ModelError(f"{provider.name} needs a Python package: {text}", detail=repr(error))
    connection_lost = _cause(error, "RemoteProtocolError") or _cause(error, "ReadError")
    what = f"the connection to {provider.name} broke off" if connection_lost else f"{provider.name} failed: {text}"
    err = ModelError(what, detail=repr(error))
    err.may_fall_back = bool(connection_lost)
    err.can_retry = bool(connection_lost) and "without sending a response" in text
    return err


def _cause(error: BaseException | None, kind: str) -> BaseException | None:
    """The cause of an error with this class name, or None. By name, so that its package is not imported."""
    while error is not None and type(error).__name__ != kind:
        error = error.__cause__ or error.__context__
    return error
