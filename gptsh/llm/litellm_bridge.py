"""Ask providers through litellm if gptsh does not speak their APIs itself."""

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
from gptsh.llm.failures import refusal, too_long
from gptsh.llm.http import Incoming
from gptsh.llm.servers import headers
from gptsh.llm.stream import encode, make_body
from gptsh.llm.wordings import means_too_long, message_in
from gptsh.messages import Event, Request

if TYPE_CHECKING:
    from httpx import HTTPStatusError
    from pydantic import BaseModel


# ---- litellm errors
#
# Turn an exception of litellm, or of a library that it uses, into gptsh's error. The response says
# more than the exception's text.

# What litellm adds before and after the provider's message.
_NOISE = (
    r"(?s)^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?:: | - )"
    r"| Handle with `litellm\.\w+`\.?$"
    r"|\s(?:Original exception: |File an issue if litellm error|To drop these, set "
    r"|Traceback \(most recent call).*"
)


def litellm_error(error: BaseException, target: Target) -> GptshError:
    """Return gptsh's error for one that litellm has raised."""
    status_error = _cause(error, "HTTPStatusError")
    if status_error:
        return _refusal(status_error, target)
    provider = target.provider
    base_url = target.account.base_url
    text = _message(error)
    detail = repr(error)
    if means_too_long(str(error)):
        return too_long(f"the prompt is too long for {provider}: {text}", text, detail)

    err = ModelError(f"{provider} failed: {text}", detail=detail)
    if _cause(error, "ConnectError"):
        where = f"{provider} ({base_url})" if base_url else provider
        err = ModelError(f"cannot connect to {where}: {text}")
        if "CERTIFICATE_VERIFY_FAILED" in text:
            advice = "set SSL_CERT_FILE to your CA bundle"
            err = ModelError(f"the TLS connection to {where} failed: {text}", advice)
        err.may_fall_back = True
    elif "No module named" in text:
        err = ModelError(f"{provider} needs a Python package: {text}", detail=detail)
    elif _cause(error, "RemoteProtocolError") or _cause(error, "ReadError"):
        err = ModelError(f"the connection to {provider} was lost", detail=detail)
        err.may_fall_back = True
        err.can_retry = "without sending a response" in text
    return err


def _refusal(status_error: BaseException, target: Target) -> GptshError:
    """Return the error for httpx's exception, which has the response."""
    response = cast("HTTPStatusError", status_error).response
    fields = {name.lower(): value for name, value in response.headers.items()}
    try:
        body = bytes(response.content)
    except RuntimeError:  # httpx.StreamError: the body was not read
        body = b""
    url = str(response.url).partition("?")[0]
    return refusal(url, response.status_code, fields, body, target)


def _message(error: BaseException) -> str:
    """Return the provider's message in litellm's text."""
    text = str(error)
    while (shorter := re.sub(_NOISE, "", text.strip())) != text:
        text = shorter
    return message_in(text)


def _cause(error: BaseException | None, class_name: str) -> BaseException | None:
    """Return the cause of an error with this class name, or None.

    The class is compared by its name, so that its package need not be imported.
    """
    while error is not None and type(error).__name__ != class_name:
        error = error.__cause__ or error.__context__
    return error


# ---- litellm bridge
#
# The import takes seconds, so it runs in a thread while gptsh reads standard input. The calls run
# in threads, too, so that signals and timeouts reach the main thread. Everything that litellm
# prints goes to stderr, because stdout is for the answer.

_SWITCHES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else the import downloads the model table
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # else the first call downloads headers
    "LITELLM_MODE": "PRODUCTION",  # else litellm reads a .env file
    "LITELLM_LOG": "ERROR",
    "REPEATED_STREAMING_CHUNK_LIMIT": str(10**9),  # else an answer that repeats itself fails
}
_NOT_WANTED = "LITELLM_PRINT_STANDARD_LOGGING_PAYLOAD"
_NO_PROXY = ("NO_PROXY", "no_proxy")
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# The variables of the environment that a call may change.
VARIABLES = (*_SWITCHES, _NOT_WANTED, *_NO_PROXY, "SSL_CERT_FILE")
_GRACE = 30.0  # seconds by which litellm's timeout is longer than gptsh's
_LOOPBACK = "localhost,127.0.0.1,::1"  # for a proxy these would be the proxy's own machine
# Without a finish reason from the provider litellm makes up "stop", so that a partial stream looks
# complete. It records the reasons that it has received, but not for these providers.
_UNRECORDED_REASONS = ("vertex_ai", "vertex_ai_beta")
_MADE_UP_ID = "chatcmpl-[0-9a-f]{8}-[0-9a-f]{4}-"
_REQUEST_IDS = (
    "llm_provider-request-id",
    "llm_provider-x-request-id",
    "llm_provider-apim-request-id",
)


class Bridge:
    """Calls through litellm for one process.

    If ``owns_process`` is true, its log and its warnings are hidden, and it prints to stderr.
    """

    def __init__(
        self,
        network: Network,
        environ: Mapping[str, str],
        *,
        owns_process: bool = True,
    ) -> None:
        self._network = network
        self._environ = environ
        self._owns_process = owns_process
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
        """Set what litellm and its libraries read."""
        os.environ.update(_SWITCHES)
        os.environ.pop(_NOT_WANTED, None)
        for name in _NO_PROXY:
            hosts = os.environ.get(name)
            os.environ[name] = f"{hosts},{_LOOPBACK}" if hosts else _LOOPBACK
        for name in _BUNDLES:
            bundle = self._environ.get(name)
            if bundle:  # under the name that httpx reads
                os.environ["SSL_CERT_FILE"] = bundle
                break

    def _load(self) -> None:
        """Import litellm, without garbage collection.

        Collections would take a second, and litellm's objects stay until the end anyway.
        """
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            # The import changes the filters of warnings.
            with contextlib.nullcontext() if self._owns_process else warnings.catch_warnings():
                import litellm

            litellm.suppress_debug_info = True
            # Without this, litellm downloads a file to count the tokens of a stream without usage.
            litellm.disable_hf_tokenizer_download = True
        except BaseException as err:  # noqa: BLE001 - an import may raise or exit as it likes
            self._failure = err
        finally:
            if not self._owns_process and is_collecting:
                gc.enable()

    def read(self, request: Request, target: Target, answer: Answer) -> Iterator[Event]:
        """Write the response into ``answer`` and yield its events.

        Raises ModelError, TimedOut or TooLong.
        """
        self.preload()
        if self._loader.ident is not None:
            self._loader.join()
        if self._failure:
            raise litellm_error(self._failure, target)
        call = arguments(request, target, self._network)
        incoming = Incoming(_run_call(call, target), target.provider)
        chunks = self._received(incoming, target, answer)
        if not request.stream:
            chunks = chat.Reader.split(next(chunks, {}))
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
        hidden = response._hidden_params  # noqa: SLF001 - documented
        fields = hidden.get("additional_headers") or {}
        request_id = None
        for name in _REQUEST_IDS:
            request_id = request_id or fields.get(name)
        chunks = response if call["stream"] else [response]
        for chunk in chunks:
            plain = _plain(chunk, response, target)
            yield {"request_id": request_id and str(request_id), **plain}
    except Exception as err:  # noqa: BLE001 - the libraries of a hundred providers raise their own
        raise litellm_error(err, target) from None  # its causes may show the key


def arguments(request: Request, target: Target, network: Network) -> JsonObject:
    """Return the arguments of litellm's call.

    litellm reads in the environment what gptsh does not know about a provider.
    """
    idle = network.idle_seconds(is_self_hosted=target.is_self_hosted)
    account = target.account
    call = {
        **json.loads(encode(make_body(chat, request, target))),
        "model": f"{target.provider}/{target.model}",
        "stream": request.stream,
        "timeout": max(network.first_byte_timeout, idle) + _GRACE,
        "max_retries": 0,
        "num_retries": 0,
        "stream_options": {"include_usage": True} if request.stream else None,
        "extra_headers": headers(account) or None,
        "api_key": str(account.key) if account.key else None,
        "api_base": account.base_url or None,
    }
    return {name: value for name, value in call.items() if value is not None}


def _plain(chunk: "BaseModel", stream: object, target: Target) -> JsonObject:
    """Return a chunk without the ids, costs, finish reasons and estimates that litellm made up."""
    plain = chunk.model_dump(exclude_none=True)
    plain.pop("model", None)
    if re.match(_MADE_UP_ID, plain.get("id") or ""):
        del plain["id"]
    has_reason = getattr(stream, "received_finish_reason", "?") is not None
    if not has_reason and target.provider not in _UNRECORDED_REASONS:
        for choice in plain.get("choices") or ():
            choice.pop("finish_reason", None)

    if "usage" in plain and hasattr(stream, "chunks"):
        usages = [piece.usage for piece in stream.chunks if getattr(piece, "usage", None)]
        plain["usage"] = usages[-1].model_dump(exclude_none=True) if usages else {}
    usage = plain.get("usage") or {}
    usage.pop("cost", None)
    if "claude" in target.model:  # Anthropic does not report them, so litellm estimates
        usage.get("completion_tokens_details", {}).pop("reasoning_tokens", None)
    if not usage.get("total_tokens"):
        plain.pop("usage", None)
    return plain
