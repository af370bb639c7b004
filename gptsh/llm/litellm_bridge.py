"""The transport to every provider without a wire of ours: litellm, whose import takes seconds. The only file with it.

litellm works in a thread of its own. So the main thread hears signals and its own clock at any moment, an import can
go on while standard input is read, and nothing that litellm catches too broadly can be a signal of ours. Whatever it
prints goes to stderr, where a person is: stdout is the answer's.
"""

import atexit
import gc
import json
import logging
import math
import os
import queue
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

from gptsh.core.messages import Event, Identified, Message
from gptsh.core.settings import Network
from gptsh.core.turn import Request
from gptsh.errors import ModelError, TimedOut
from gptsh.llm import failures
from gptsh.llm.chat_completions import encode, message_for, read_chunks, read_completion
from gptsh.llm.parameters import fit
from gptsh.llm.routes import Route

_SWITCHES = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else the import fetches the model table
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # else the first call fetches a list of headers
    "LITELLM_MODE": "PRODUCTION",  # else a .env file is read
    "LITELLM_LOG": "ERROR",
}
_GRACE = 30.0  # seconds that litellm's own timeout comes after ours
_LAST_WAIT = 5.0  # seconds for usage behind a complete answer
# Whose reason for ending litellm passes on. Where it has seen none it says "stop" all the same, and a stream that was
# cut off would look whole; of other providers (Gemini) it cannot be told.
_SAY_WHY_THEY_END = ("anthropic",)
_NOISE = re.compile(
    r"^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?:: | - )| Handle with `litellm\.\w+`\.?$"
    r"| Original exception: .*| File an issue if litellm error - \S+",
    re.DOTALL,
)


class _Failed(NamedTuple):
    """What ended litellm's work before its time."""

    error: BaseException


class _Head(NamedTuple):
    """The provider has accepted the request."""

    request_id: str | None


Item = dict[str, Any] | _Failed | _Head | None  # a chunk, or a whole answer; None is the end


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


class Bridge:
    """One process's calls through litellm."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._loading = threading.Thread(target=_load, daemon=True)

    def warm(self) -> None:
        """Begin the import, if it has not begun."""
        if self._loading.ident is None:
            _be_quiet()
            self._loading.start()

    def open(self, request: Request, route: Route) -> Iterator[Event]:
        """The events of the answer, once the provider has accepted the request. Raises ModelError or TimedOut."""
        self.warm()
        self._loading.join()
        handover = _Handover()
        call = _arguments(request, route, self._network)
        threading.Thread(target=_work, args=(call, route, handover), daemon=True).start()
        incoming = _Incoming(handover, route, self._network)
        head = incoming.take()
        if not isinstance(head, _Head):
            raise ModelError(f"{route.provider.name} answered nothing")
        return _events(incoming, head, whole=not request.stream)


class _Incoming:
    """What litellm's thread hands over, waited for as long as the settings say."""

    def __init__(self, handover: _Handover, route: Route, network: Network) -> None:
        self._handover, self._route = handover, route
        self._patience, self._idle_timeout = network.first_byte_timeout, network.idle_timeout
        self._until = math.inf  # of ``time.monotonic``

    def take(self) -> Item:
        """The next item. Raises ModelError for what litellm reports, TimedOut when nothing comes."""
        try:
            item = self._handover.take(min(self._patience, self._until - time.monotonic()))
        except queue.Empty as err:
            todo = "raise first_byte_timeout or idle_timeout under [network]"
            raise TimedOut(f"{self._route.provider.name} went silent", todo) from err
        if isinstance(item, _Failed):
            raise _in_our_words(item.error, self._route) from None  # its causes may show the key
        return item

    def chunks(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """Chunks until the end."""
        while isinstance(chunk := self.take(), dict):
            _collect_garbage_again()
            yield chunk, False
            self._patience = self._idle_timeout

    def hurry(self) -> None:
        """What still comes is not worth a long wait."""
        self._until = min(self._until, time.monotonic() + _LAST_WAIT)


def _events(incoming: _Incoming, head: _Head, *, whole: bool) -> Iterator[Event]:
    yield Identified(head.request_id, None)
    if whole:
        answer = incoming.take()
        events = read_completion(answer if isinstance(answer, dict) else {}, repr(answer))
    else:
        events = read_chunks(incoming.chunks(), incoming.hurry)
    for event in events:
        yield Identified(head.request_id, _real_id(event.response_id)) if isinstance(event, Identified) else event


def _real_id(response_id: str | None) -> str | None:
    """The provider's id; None for one that litellm made up."""
    return None if (response_id or "").startswith("chatcmpl-") else response_id


# ---- in litellm's thread


def _be_quiet() -> None:
    """Nothing of litellm's and its libraries' is for the user but what it asks a person for."""
    os.environ.update(_SWITCHES)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.stdout = sys.stderr


def _load() -> None:
    """Import litellm. What that makes stays until the end: to look through it for garbage would cost a second."""
    gc.disable()
    atexit.register(gc.freeze)
    with _Handover():  # whoever asks meets the same error
        import litellm  # noqa: PLC0415 - the reason for this file

        litellm.suppress_debug_info = True


def _collect_garbage_again() -> None:
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _work(call: dict[str, Any], route: Route, handover: _Handover) -> None:
    """One call, its chunks handed over as they come."""
    with handover:
        import litellm  # noqa: PLC0415 - the reason for this file

        response = litellm.completion(**call)
        chunks = response if call["stream"] else [response]
        for number, chunk in enumerate(chunks):  # some requests are sent only now
            if not number:
                handover.put(_Head(_request_id(response)))
            handover.put(_without_invented_end(_plain(chunk, route), response, route))


def _arguments(request: Request, route: Route, network: Network) -> dict[str, Any]:
    """What litellm is called with. Keys that it finds in the environment by itself are left to it."""
    provider = route.provider
    by_responses = provider.name == "openai"  # only models that chat completions do not serve come this way
    messages = [_message(message, provider.name) for message in request.messages]
    call = {
        **fit(request.params, provider.name, route.model, provider.endpoint).sent,
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
    if route.key and (provider.own_key or by_responses):
        call["api_key"] = str(route.key)
    if provider.own_base or by_responses:
        call["api_base"] = provider.base_url
    return call


def _message(message: Message, provider: str) -> dict[str, Any]:
    """A message as litellm takes it; signed thinking goes back to whom it came from."""
    sent = message_for(message)
    blocks = [b for b in message.get("thinking", ()) if b.get("signature") or b.get("type") != "thinking"]
    return {**sent, "thinking_blocks": blocks} if blocks and message.get("provider") == provider else sent


def _request_id(response: Any) -> str | None:
    headers = response._hidden_params.get("additional_headers") or {}  # noqa: SLF001 - where litellm documents it
    names = ("llm_provider-request-id", "llm_provider-x-request-id", "llm_provider-apim-request-id")
    return next((str(headers[name]) for name in names if headers.get(name)), None)


def _plain(chunk: Any, route: Route) -> dict[str, Any]:
    """A chunk as the dict that would have come from a server, less what litellm estimated."""
    plain: dict[str, Any] = chunk.model_dump(exclude_none=True)
    details = (plain.get("usage") or {}).get("completion_tokens_details")
    if details and "claude" in route.model:  # Anthropic does not report them
        details.pop("reasoning_tokens", None)
    return plain


def _without_invented_end(chunk: dict[str, Any], stream: Any, route: Route) -> dict[str, Any]:
    if route.provider.name in _SAY_WHY_THEY_END and getattr(stream, "received_finish_reason", "?") is None:
        for choice in chunk.get("choices") or ():
            choice.pop("finish_reason", None)
    return chunk


# ---- errors


def _in_our_words(error: BaseException, route: Route) -> ModelError:
    """litellm's error as ours: by the response that it came from, else by what litellm makes of it."""
    if refusing := _cause(error, "HTTPStatusError"):
        response: Any = refusing.response  # type: ignore[attr-defined]
        headers = {name.lower(): value for name, value in response.headers.items()}
        url = str(response.url).partition("?")[0]
        return failures.refusal(url, response.status_code, headers, response.text.encode("utf-8", "replace"), route)
    provider, text = route.provider.name, failures.said(_without_noise(str(error)).encode("utf-8", "replace"))
    status = getattr(error, "status_code", None)
    if status in (401, 403):
        return failures.refusal(provider, status, {}, text.encode(), route)
    what = f"{provider} failed: {text}"
    if _cause(error, "ConnectError"):
        where = f"{provider} ({route.provider.base_url})" if route.provider.base_url else provider
        what, status = f"nothing answers at {where}: {text}", None
    elif _cause(error, "RemoteProtocolError") or _cause(error, "ReadError"):
        what = f"the connection to {provider} broke off"
    elif "No module named" in text:
        what, status = f"{provider} needs a Python package: {text}", None
    return failures.judged(ModelError(what, detail=repr(error)), status if isinstance(status, int) else 0, {})


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
