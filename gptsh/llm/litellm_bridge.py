"""Ask through litellm, in threads, those providers whose API gptsh does not speak itself; read its errors."""

import contextlib
import gc
import json
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from gptsh.config.accounts import Target
from gptsh.config.settings import Network
from gptsh.content.answer import Answer
from gptsh.errors import GptshError, ModelError
from gptsh.jsonio import JsonObject
from gptsh.llm import chat, stream
from gptsh.llm.failures import means_too_long, message_in_body, refusal, too_long
from gptsh.llm.http import Incoming
from gptsh.llm.servers import headers
from gptsh.llm.stream import encode
from gptsh.messages import Event, Request

if TYPE_CHECKING:
    from httpx import HTTPStatusError
    from pydantic import BaseModel


# ---- litellm errors
#
# Read an exception of litellm, or of a library below it, as gptsh's error: from the response, else
# from its text.

_NOISE = re.compile(  # around the provider's message
    r"^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?:: | - )| Handle with `litellm\.\w+`\.?$"
    r"|\s(?:Original exception: |File an issue if litellm error|To drop these, set |Traceback \(most recent call).*",
    re.DOTALL,
)


def litellm_error(error: BaseException, target: Target) -> GptshError:
    """litellm's error as gptsh's."""
    if status_error := _cause(error, "HTTPStatusError"):
        return _refusal(status_error, target)
    text, detail = _message(error), repr(error)
    if means_too_long(str(error)):
        return too_long(f"{target.provider} has no room for the prompt: {text}", text, detail)
    if _cause(error, "ConnectError"):
        return _no_connection(text, target)
    if "No module named" in text:
        return ModelError(f"{target.provider} needs a Python package: {text}", detail=detail)
    if _cause(error, "RemoteProtocolError") or _cause(error, "ReadError"):
        err = ModelError(f"the connection to {target.provider} broke off", detail=detail)
        err.may_fall_back = True
        err.can_retry = "without sending a response" in text
        return err
    return ModelError(f"{target.provider} failed: {text}", detail=detail)


def _refusal(status_error: BaseException, target: Target) -> GptshError:
    """The error for httpx's exception, which has the response."""
    response = cast("HTTPStatusError", status_error).response
    fields = {name.lower(): value for name, value in response.headers.items()}
    try:
        body = bytes(response.content)
    except RuntimeError:  # httpx.StreamError: the body was not read
        body = b""
    url = str(response.url).partition("?")[0]
    return refusal(url, response.status_code, fields, body, target)


def _message(error: BaseException) -> str:
    """The provider's message in litellm's text."""
    text = str(error)
    while (shorter := _NOISE.sub("", text.strip())) != text:
        text = shorter
    return message_in_body(text.encode("utf-8", "replace"))


def _no_connection(text: str, target: Target) -> ModelError:
    where = f"{target.provider} ({target.account.base_url})" if target.account.base_url else target.provider
    if "CERTIFICATE_VERIFY_FAILED" in text:
        err = ModelError(f"no secure connection to {where}: {text}", "set SSL_CERT_FILE to your CA bundle")
    else:
        err = ModelError(f"nothing answers at {where}: {text}")
    err.may_fall_back = True
    return err


def _cause(error: BaseException | None, kind: str) -> BaseException | None:
    """The cause of an error with this class name, or None. By name, so that its package is not imported."""
    while error is not None and type(error).__name__ != kind:
        error = error.__cause__ or error.__context__
    return error


# ---- litellm bridge
#
# Ask providers without one of gptsh's own APIs, through litellm: its import, its calls and their
# chunks.
#
# The import takes seconds. It runs in a thread while gptsh reads standard input; the calls run in
# threads too, so that signals and timeouts reach the main thread. Everything that litellm prints
# goes to stderr: stdout is for the answer.

_SWITCHES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else the import downloads the model table
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # else the first call downloads a list of headers
    "LITELLM_MODE": "PRODUCTION",  # else litellm reads a .env file
    "LITELLM_LOG": "ERROR",
    "REPEATED_STREAMING_CHUNK_LIMIT": str(10**9),  # else an answer that repeats itself is an error
}
_NOT_WANTED = "LITELLM_PRINT_STANDARD_LOGGING_PAYLOAD"
_NO_PROXY = ("NO_PROXY", "no_proxy")
VARIABLES = (
    *_SWITCHES,
    _NOT_WANTED,
    *_NO_PROXY,
    "SSL_CERT_FILE",
)  # of the environment: what a call may change
_GRACE = 30.0  # seconds by which litellm's timeout is longer than gptsh's
_LOOPBACK = "localhost,127.0.0.1,::1"  # never proxied: a proxy's loopback is another machine
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# Without a finish reason from the provider litellm makes up "stop", so that a partial stream looks complete. It records
# the reasons that it has received, but not for these providers.
_UNRECORDED_REASONS = ("vertex_ai", "vertex_ai_beta")
_MADE_UP_ID = re.compile("chatcmpl-[0-9a-f]{8}-[0-9a-f]{4}-")
_REQUEST_IDS = (
    "llm_provider-request-id",
    "llm_provider-x-request-id",
    "llm_provider-apim-request-id",
)


class Bridge:
    """Calls through litellm for one process. With ``owns_process`` its log, its warnings and its prints are hidden."""

    def __init__(self, network: Network, environ: Mapping[str, str], *, owns_process: bool = True) -> None:
        self._network, self._environ, self._owns_process = network, environ, owns_process
        self._failure: BaseException | None = None
        self._loader = threading.Thread(target=self._load, daemon=True)

    def preload(self) -> None:
        """Start the import, if it has not started."""
        if self._loader.ident is not None:
            return
        self._prepare_environment()
        if self._owns_process:
            warnings.simplefilter("ignore")
            logging.disable(logging.CRITICAL)
            sys.stdout = sys.stderr
        self._loader.start()

    def _prepare_environment(self) -> None:
        """Set what litellm and its libraries read: switches, the hosts without proxy, the CA bundle."""
        os.environ.update(_SWITCHES)
        os.environ.pop(_NOT_WANTED, None)
        for name in _NO_PROXY:
            hosts = os.environ.get(name)
            os.environ[name] = f"{hosts},{_LOOPBACK}" if hosts else _LOOPBACK
        bundles = [bundle for name in _BUNDLES if (bundle := self._environ.get(name))]
        if bundles:  # also for other servers
            os.environ["SSL_CERT_FILE"] = bundles[0]

    def _load(self) -> None:
        """Import litellm. Garbage collection of its objects would take a second, and they last until the end."""
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            # It sets filters of its own.
            with contextlib.nullcontext() if self._owns_process else warnings.catch_warnings():
                import litellm

            litellm.suppress_debug_info = True
            litellm.disable_hf_tokenizer_download = True  # else counting a stream without usage downloads a file
        except BaseException as err:  # noqa: BLE001 - an import may raise or exit as it likes; ``read`` raises it
            self._failure = err
        finally:
            if not self._owns_process and is_collecting:
                gc.enable()

    def read(self, request: Request, target: Target, answer: Answer) -> Iterator[Event]:
        """Write the response into ``answer`` and yield its events. Raises ModelError, TimedOut or TooLong."""
        self.preload()
        if self._loader.ident is not None:
            self._loader.join()
        if self._failure:
            raise litellm_error(self._failure, target)
        incoming = Incoming(_run_call(arguments(request, target, self._network), target), target.provider)
        chunks = self._received(incoming, target, answer)
        if not request.stream:
            chunks = chat.as_chunks(next(chunks, {}), b"")
        return stream.read(chunks, chat.Reader(answer), incoming.limit_wait)

    def _received(
        self,
        incoming: Incoming[JsonObject],
        target: Target,
        answer: Answer,
    ) -> Iterator[JsonObject]:
        """Yield the chunks of an answer as they arrive. Raises TimedOut."""
        timeout = self._network.first_byte_timeout
        while (chunk := incoming.next_item(timeout)) is not None:
            if self._owns_process and not gc.isenabled():  # litellm is loaded
                gc.freeze()
                gc.enable()
            answer.request_id = chunk.pop("request_id", None) or answer.request_id
            yield chunk
            timeout = self._network.idle_seconds(is_self_hosted=target.is_self_hosted)


def _run_call(call: JsonObject, target: Target) -> Iterator[JsonObject]:
    """In the thread: make one call and yield its chunks. Raises ModelError or TooLong."""
    try:
        import litellm

        response = litellm.completion(**call)
        fields = response._hidden_params.get("additional_headers") or {}  # noqa: SLF001 - documented
        request_id = next((str(fields[name]) for name in _REQUEST_IDS if fields.get(name)), None)
        chunks = response if call["stream"] else [response]
        for chunk in chunks:
            yield {"request_id": request_id, **_plain(chunk, response, target)}
    except Exception as err:  # noqa: BLE001 - litellm and the libraries of a hundred providers raise their own
        raise litellm_error(err, target) from None  # its causes may show the key


def arguments(request: Request, target: Target, network: Network) -> JsonObject:
    """The arguments of litellm's call. It finds what gptsh does not know about a provider in the environment."""
    idle = network.idle_seconds(is_self_hosted=target.is_self_hosted)
    call = {
        **json.loads(encode(chat.body(request, target))),
        "model": f"{target.provider}/{target.model}",
        "stream": request.stream,
        "timeout": max(network.first_byte_timeout, idle) + _GRACE,
        "max_retries": 0,
        "num_retries": 0,
        "stream_options": {"include_usage": True} if request.stream else None,
        "extra_headers": headers(target.account) or None,
        "api_key": str(target.account.key) if target.account.key else None,
        "api_base": target.account.base_url or None,
    }
    return {name: value for name, value in call.items() if value is not None}


def _plain(chunk: "BaseModel", stream: object, target: Target) -> JsonObject:
    """A chunk without the ids, costs, finish reasons and estimates that litellm made up."""
    plain = chunk.model_dump(exclude_none=True)
    plain.pop("model", None)
    if _MADE_UP_ID.match(plain.get("id") or ""):
        del plain["id"]
    records_reasons = target.provider not in _UNRECORDED_REASONS
    if records_reasons and getattr(stream, "received_finish_reason", "?") is None:
        for choice in plain.get("choices") or ():
            choice.pop("finish_reason", None)
    if "usage" in plain and hasattr(stream, "chunks"):
        usages = (piece.usage for piece in reversed(stream.chunks) if getattr(piece, "usage", None))
        last_usage = next(usages, None)
        plain["usage"] = last_usage.model_dump(exclude_none=True) if last_usage else {}
    usage = plain.get("usage") or {}
    usage.pop("cost", None)
    if "claude" in target.model:  # litellm's estimate: Anthropic does not report them
        usage.get("completion_tokens_details", {}).pop("reasoning_tokens", None)
    if not usage.get("total_tokens"):
        plain.pop("usage", None)
    return plain
