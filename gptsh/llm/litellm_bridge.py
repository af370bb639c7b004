"""The transport to every provider without a wire of ours: litellm, whose import takes seconds. The only file with it.

litellm works in a thread of its own. So the main thread hears signals and its own clock at any moment, an import can
go on while standard input is read, and nothing that litellm catches too broadly can be a signal of ours. Whatever it
prints all the same goes to stderr: stdout is the answer's.
"""

import gc
import json
import logging
import math
import os
import queue
import re
import ssl
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

from gptsh.config.providers import Provider
from gptsh.config.settings import Network
from gptsh.content.answer import LAST_WAIT, Answer, Request
from gptsh.errors import GptshError, ModelError, TimedOut
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import chat_stream, failures
from gptsh.llm.chat_completions import message_for, prompt_for, response_format, whole_tools
from gptsh.llm.parameters import fit
from gptsh.llm.payloads import encode, read
from gptsh.llm.routes import Route
from gptsh.messages import FIELDS, THINKING, Event, Message
from gptsh.models.names import is_by

_SWITCHES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else the import fetches the model table
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # else the first call fetches a list of headers
    "LITELLM_MODE": "PRODUCTION",  # else a .env file is read
    "LITELLM_LOG": "ERROR",
    "REPEATED_STREAMING_CHUNK_LIMIT": str(10**9),  # else an answer that repeats itself is an error
}
_TOKENIZER = "cl100k_base"
_GRACE = 30.0  # seconds that litellm's own timeout comes after ours
_LOOPBACK = "localhost,127.0.0.1,::1"  # never proxied: a proxy's loopback is another machine
# Where litellm has seen no reason for ending it says "stop" all the same, and a stream that was cut off would look
# whole. It tells what it has seen, but not of Google's.
_CUT_OR_WHOLE = ("gemini", "vertex_ai", "vertex_ai_beta")
_NOISE = re.compile(
    r"^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?:: | - )| Handle with `litellm\.\w+`\.?$"
    r"|\s+(?:Original exception: |File an issue if litellm error|To drop these, set |Traceback \(most recent call).*",
    re.DOTALL,
)
_MADE_UP_ID = re.compile("chatcmpl-[0-9a-f]{8}-[0-9a-f]{4}-")


class _Failed(NamedTuple):
    """What ended litellm's work before its time."""

    error: BaseException


class _Head(NamedTuple):
    """The provider has accepted the request."""

    request_id: str | None


class _Alive(NamedTuple):
    """Bytes have come, if only a ping."""


Item = dict[str, Any] | _Failed | _Head | _Alive | None  # a chunk, or a whole answer; None is the end
_ALIVE = _Alive()


class _Handover:
    """Hands over what litellm's thread yields, and whatever ended it, to the thread that asks."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def __enter__(self) -> "_Handover":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        self.put(_Failed(error) if error else None)
        return True  # it is raised again where it is waited for

    def put(self, item: Item) -> None:
        """Pass one item on."""
        self._items.put(item)

    def take(self, seconds: float) -> Item:
        """The next item. Raises queue.Empty when none has come within that time."""
        return self._items.get(timeout=max(0.0, seconds))


_ASKING = threading.local()  # ``handover``: that of the thread's call


class Bridge:
    """One process's calls through litellm. ``context``: whom to believe where the environment says so, else None."""

    def __init__(self, network: Network, context: ssl.SSLContext | None) -> None:
        self._network = network
        self._loading = threading.Thread(target=_load, args=(context,), daemon=True)

    def warm(self) -> None:
        """Begin the import, if it has not begun."""
        if self._loading.ident is None:
            _be_quiet()
            self._loading.start()

    def open(self, request: Request, route: Route, answer: Answer) -> Iterator[Event]:
        """The events of the answer, once the provider has accepted the request. Raises ModelError or TimedOut."""
        self.warm()
        self._loading.join()
        handover = _Handover()
        call = arguments(request, route, self._network)
        threading.Thread(target=_work, args=(call, route, handover), daemon=True).start()
        incoming = _Incoming(handover, route, self._network)
        head = incoming.take()
        if not isinstance(head, _Head):
            raise ModelError(f"{route.provider.name} answered nothing")
        answer.request_id = head.request_id
        chunks = incoming.chunks()
        if not request.stream:
            chunks = chat_stream.whole(next(chunks, {}), "")
        return read(chunks, chat_stream.Reader(answer), answer, incoming.hurry)


class _Incoming:
    """What litellm's thread hands over, waited for as long as the settings say."""

    def __init__(self, handover: _Handover, route: Route, network: Network) -> None:
        self._handover, self._route = handover, route
        self._patience, self._idle_timeout = network.first_byte_timeout, network.idle_timeout
        self._until = math.inf  # of ``time.monotonic``

    def take(self) -> dict[str, Any] | _Head | None:
        """The next item. Raises ModelError for what litellm reports, TimedOut when nothing comes."""
        while isinstance(item := self._next(), _Alive):
            self._patience = self._idle_timeout
        _collect_garbage_again()
        if isinstance(item, _Failed):
            raise _in_our_words(item.error, self._route) from None  # its causes may show the key
        return item

    def _next(self) -> Item:
        try:
            return self._handover.take(min(self._patience, self._until - time.monotonic()))
        except queue.Empty as err:
            todo = "raise first_byte_timeout or idle_timeout under [network]"
            raise TimedOut(f"{self._route.provider.name} went silent", todo) from err

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Chunks until the end."""
        while isinstance(chunk := self.take(), dict):
            yield chunk

    def hurry(self) -> None:
        """What still comes is not worth a long wait."""
        self._until = min(self._until, time.monotonic() + LAST_WAIT)


# ---- in litellm's thread


def _be_quiet() -> None:
    """Nothing of litellm's and its libraries' is for the user; what they print all the same is not the answer."""
    os.environ.update(_SWITCHES)
    os.environ.pop("LITELLM_PRINT_STANDARD_LOGGING_PAYLOAD", None)
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), _LOOPBACK)))
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.stdout = sys.stderr


def _load(context: ssl.SSLContext | None) -> None:
    """Import litellm. What that makes stays until the end: to look through it for garbage would cost a second."""
    gc.disable()
    with _Handover():  # whoever asks meets the same error
        sys.modules["httpx._main"] = None  # type: ignore[assignment]  # its command line, with rich and pygments: 45 ms
        import httpx  # noqa: PLC0415 - litellm's HTTP

        del sys.modules["httpx._main"]
        # Before litellm and the openai package derive their clients from it.
        httpx.Client = _client(httpx.Client, httpx.SyncByteStream, context)  # type: ignore[misc, assignment]
        import litellm  # noqa: PLC0415 - the reason for this file

        _postpone_tokenizer()
        litellm.suppress_debug_info = True
        litellm.disable_hf_tokenizer_download = True  # else a stream without usage is counted with a file from afar


def _postpone_tokenizer() -> None:
    """litellm loads a tokenizer (0.13 s) for every call, and uses it to guess usage, which is not kept."""
    from tiktoken import registry  # noqa: PLC0415 - litellm's, loaded by it

    class Postponed:
        name = _TOKENIZER

        def __getattr__(self, name: str) -> Any:
            if registry.ENCODINGS.get(_TOKENIZER) is self:  # type: ignore[comparison-overlap]
                del registry.ENCODINGS[_TOKENIZER]
            return getattr(registry.get_encoding(_TOKENIZER), name)

    registry.ENCODINGS.setdefault(_TOKENIZER, Postponed())  # type: ignore[arg-type]


def _client(client: type, stream: type, context: ssl.SSLContext | None) -> type:
    """httpx's client as ours: it follows no redirect, which would take key and prompt along; every byte is a sign of
    life; ``context`` says whom to believe, None where the environment does not."""

    class Watched(stream):  # type: ignore[misc]
        def __init__(self, inner: Any, alive: Callable[[], None]) -> None:
            self._inner, self._alive = inner, alive

        def __iter__(self) -> Iterator[bytes]:
            for piece in self._inner:
                self._alive()
                yield piece

        def close(self) -> None:
            self._inner.close()

    class Client(client):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            trust = {"verify": context} if context else {}
            super().__init__(*args, **{**kwargs, **trust, "follow_redirects": False})

        def send(self, request: Any, **kwargs: Any) -> Any:
            response = super().send(request, **{**kwargs, "follow_redirects": False})
            handover = getattr(_ASKING, "handover", None)
            if handover and kwargs.get("stream"):
                response.stream = Watched(response.stream, lambda: handover.put(_ALIVE))
            return response

    return Client


def _collect_garbage_again() -> None:
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _work(call: dict[str, Any], route: Route, handover: _Handover) -> None:
    """One call, its chunks handed over as they come."""
    _ASKING.handover = handover
    with handover:
        import litellm  # noqa: PLC0415 - the reason for this file

        response = litellm.completion(**call)
        chunks = response if call["stream"] else [response]
        for number, chunk in enumerate(chunks):  # some requests are sent only now
            if not number:
                handover.put(_Head(_request_id(response)))
            handover.put(_without_inventions(_plain(chunk, route), response, route))


def arguments(request: Request, route: Route, network: Network) -> dict[str, Any]:
    """What litellm is called with. What gptsh does not know of a provider litellm finds in the environment itself."""
    provider = route.provider
    by_responses = provider.name == "openai"  # only models that chat completions do not serve come this way
    messages = [
        _message(message, provider, request.model) for message in prompt_for(request, provider.name, provider.endpoint)
    ]
    call = {
        **fit(request.params, provider.name, route.model, provider.endpoint).sent,
        **whole_tools(request),
        **response_format(request),
        "model": f"{provider.name}/{'responses/' if by_responses else ''}{route.model}",
        "messages": json.loads(encode(messages)),
        "stream": request.stream,
        "timeout": max(network.first_byte_timeout, network.idle_timeout) + _GRACE,
        "max_retries": 0,
        "num_retries": 0,
    }
    if request.stream:
        call["stream_options"] = {"include_usage": True}
    if route.headers:
        call["extra_headers"] = dict(route.headers)
    if by_responses or route.key:
        call["api_key"] = str(route.key or "none")
    if provider.base_url:
        call["api_base"] = provider.base_url
    return call


def _message(message: Message, provider: Provider, model: str) -> dict[str, Any]:
    """A message as litellm takes it; what is signed goes back to the model that it came from."""
    sent = message_for(message, provider.name, provider.endpoint, model)
    if not is_by(message, provider.name, model):
        return sent
    thinking, replay = as_dicts(message.get("thinking")), as_dict(message.get("replay"))
    blocks = [block for block in thinking if block.get("signature") or block.get("type") != "thinking"]
    signed = {THINKING: blocks, FIELDS: as_dict(replay.get(FIELDS))}
    return {**sent, **{key: value for key, value in signed.items() if value}}


def _request_id(response: Any) -> str | None:
    headers = response._hidden_params.get("additional_headers") or {}  # noqa: SLF001 - where litellm documents it
    names = ("llm_provider-request-id", "llm_provider-x-request-id", "llm_provider-apim-request-id")
    return next((str(headers[name]) for name in names if headers.get(name)), None)


def _plain(chunk: Any, route: Route) -> dict[str, Any]:
    """A chunk as the dict that would have come from a server, less what litellm adds."""
    plain: dict[str, Any] = chunk.model_dump(exclude_none=True)
    plain.pop("model", None)  # as it was asked for
    if _MADE_UP_ID.match(plain.get("id") or ""):
        del plain["id"]
    usage = plain.get("usage") or {}
    usage.pop("cost", None)
    if "claude" in route.model:  # Anthropic does not report them: an estimate
        usage.get("completion_tokens_details", {}).pop("reasoning_tokens", None)
    return plain


def _without_inventions(plain: dict[str, Any], stream: Any, route: Route) -> dict[str, Any]:
    """A chunk without a reason for ending, and usage, that only litellm has given."""
    if route.provider.name not in _CUT_OR_WHOLE and getattr(stream, "received_finish_reason", "?") is None:
        for choice in plain.get("choices") or ():
            choice.pop("finish_reason", None)
    if "usage" in plain and hasattr(stream, "chunks"):
        reported = [chunk for chunk in stream.chunks if getattr(chunk, "usage", None)]
        plain["usage"] = _plain(reported[-1], route)["usage"] if reported else None
    if not (plain.get("usage") or {}).get("total_tokens"):
        plain.pop("usage", None)
    return plain


# ---- errors


def _in_our_words(error: BaseException, route: Route) -> GptshError:
    """litellm's error as ours: by the response that it came from, else by what litellm makes of it."""
    if refusing := _cause(error, "HTTPStatusError"):
        response: Any = refusing.response  # type: ignore[attr-defined]
        headers = {name.lower(): value for name, value in response.headers.items()}
        url = str(response.url).partition("?")[0]
        return failures.refusal(url, response.status_code, headers, _body_of(response), route)
    provider, text = route.provider.name, failures.said(_without_noise(str(error)).encode("utf-8", "replace"))
    where = f"{provider} ({route.provider.base_url})" if route.provider.base_url else provider
    err = ModelError(f"{provider} failed: {text}", detail=repr(error))
    if failures.means_too_long(str(error)):
        return failures.too_long(f"{provider} has no room for the prompt: {text}", text, repr(error))
    if "CERTIFICATE_VERIFY_FAILED" in text:
        err = ModelError(f"no secure connection to {where}: {text}", "SSL_CERT_FILE names another CA bundle")
    elif _cause(error, "ConnectError"):
        err = ModelError(f"nothing answers at {where}: {text}", detail=repr(error))
    elif _cause(error, "RemoteProtocolError") or _cause(error, "ReadError"):
        err = ModelError(f"the connection to {provider} broke off", detail=repr(error))
        err.retry = "without sending a response" in text
    elif "No module named" in text:
        # litellm wants it for OpenAI's Responses API.
        todo = "pip install 'mcp>=2.2,<3' beside gptsh" if "'mcp" in text else ""
        err = ModelError(f"{provider} needs a Python package: {text}", todo, detail=repr(error))
    elif "device-code login" in text:  # litellm asks for it in a main thread alone
        err = ModelError(f"{provider} needs a login first", "log in with litellm itself, once", detail=repr(error))
    return err


def _body_of(response: Any) -> bytes:
    """The body of a refusal; empty where it broke off before it was read."""
    try:
        return bytes(response.content)
    except RuntimeError:  # httpx.StreamError
        return b""


def _without_noise(text: str) -> str:
    """Without ``litellm.XError: YException - `` before what the provider said, and litellm's words behind it."""
    while (shorter := _NOISE.sub("", text.strip())) != text:
        text = shorter
    return text


def _cause(error: BaseException | None, kind: str) -> BaseException | None:
    """The exception of this class among those that led to the error. By name: their packages need not be imported."""
    while error is not None and type(error).__name__ != kind:
        error = error.__cause__ or error.__context__
    return error
