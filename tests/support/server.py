"""A scripted OpenAI-compatible server on loopback: real HTTP and SSE, also slow, cut and wrong.

It refuses what strict providers refuse: roles that do not alternate, tool results without their call.
"""

import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.support import corpus

USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}


class Cut:
    """A step: close the connection during the body."""


class Hold(threading.Event):
    """A step: wait until the test sets this event; ``reached`` is set when the server waits."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.reached.set()
        return super().wait(timeout)


class ReceivedRequest(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Script(NamedTuple):
    """One response: status, headers, and steps of its body: bytes to send, seconds or events to wait for, or Cut."""

    status: int
    headers: dict[str, str]
    steps: tuple[Any, ...]
    framing: str  # "chunked", "length" or "close"


def event(payload: Any) -> bytes:
    """One SSE event."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return b"data: " + data + b"\n\n"


def chunk(
    delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any
) -> dict[str, Any]:
    """One chat.completion.chunk with a single choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more}


def answer(*pieces: str, finish: str = "stop", usage: Any = USAGE) -> list[bytes]:
    """A well-formed stream with these pieces of text."""
    events = [event(chunk({"role": "assistant", "content": ""}))]
    events += [event(chunk({"content": piece})) for piece in pieces]
    events.append(event(chunk({}, finish)))
    if usage:
        events.append(event({"id": "chatcmpl-1", "choices": [], "usage": usage}))
    return [*events, event(b"[DONE]")]


def unstreamed(text: str, *, finish: str | None = "stop", usage: Any = USAGE) -> Script:
    """An answer that is not streamed."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": finish,
    }
    return _page({"id": "chatcmpl-2", "choices": [choice], "usage": usage})


def complaint(body: dict[str, Any]) -> str | None:
    """Why a strict server refuses a request; None if it accepts it."""
    messages = body.get("messages") or []
    if not messages:
        return "messages is empty"
    calls: set[str] = set()
    before = ""
    for at, message in enumerate(messages):
        role = message.get("role")
        unknown = set(message) - {"role", "content", "tool_calls", "tool_call_id", "name"}
        if unknown:
            return f"unknown keys {sorted(unknown)}"
        if role not in ("system", "user", "assistant", "tool") or (role == "system" and at):
            return f"role {role!r} at {at}"
        if role == before and role in ("user", "assistant"):
            return "roles must alternate"
        if role == "tool" and message.get("tool_call_id") not in calls:
            return "tool result without its call"
        if role != "tool" and calls:
            return "tool call without its result"
        if not isinstance(message.get("content"), str) and not message.get("tool_calls"):
            return "content must be a string"
        calls -= {message.get("tool_call_id", "")}
        calls |= {call["id"] for call in message.get("tool_calls", ())}
        before = role
    return None


def prompt_tokens(body: dict[str, Any]) -> int:
    """Tokens of a prompt by a real tokenizer: texts, calls and tools, and 4 a message. Media do not count."""
    tokens = 0
    for message in body.get("messages") or ():
        tokens += 4
        content = message.get("content") or ""
        if isinstance(content, str):
            tokens += corpus.tokens(content)
        else:
            tokens += sum(corpus.tokens(part.get("text", "")) for part in content)
        if message.get("tool_calls"):
            tokens += corpus.tokens(json.dumps(message["tool_calls"]))
    for tool in body.get("tools") or ():
        tokens += corpus.tokens(json.dumps(tool))
    return tokens


def overflow(body: dict[str, Any], window: int, factor: float = 1.0) -> dict[str, Any] | None:
    """OpenAI's error for a request that does not fit a window of so many tokens; None if it fits.

    ``factor``: the server's tokens for each of cl100k.
    """
    prompt = round(prompt_tokens(body) * factor)
    completion = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    if prompt + completion <= window:
        return None
    detail = f"your messages resulted in {prompt} tokens. Please reduce the length of the messages."
    if completion:
        total = f"{prompt + completion} tokens ({prompt} in the messages, {completion} in the completion)"
        detail = f"you requested {total}. Please reduce the length of the messages or completion."
    error = {
        "message": f"This model's maximum context length is {window} tokens. However, {detail}",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    return {"error": error}


class ModelServer:
    """``script`` and ``say`` queue responses, also for one model; if none is queued, the server echoes the question.

    ``pages`` has a constant response for a path: a JSON value, bytes, or a Script.
    ``refuses`` checks every body, also if a response is queued; by default only echoed questions are checked.
    ``connections`` counts those accepted; after ``idle_timeout`` seconds without a request the server closes one.
    ``window``, in tokens: a larger prompt is refused, whatever is queued, and the usage of an echo is counted.
    ``factor``: the server's tokens for each of cl100k, where it refuses.
    """

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.pages: dict[str, Any] = {}
        self.refuses: Callable[[dict[str, Any]], str | None] | None = None
        self.window: int | None = None
        self.factor = 1.0
        self.connections = 0
        self.idle_timeout: float | None = None
        self._scripts: dict[str, deque[Script]] = defaultdict(deque)
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                server.connections += 1
                self.timeout = server.idle_timeout
                super().setup()

            def do_POST(self) -> None:
                server._serve(self)

            do_GET = do_POST

            def log_message(self, *_args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_args: Any) -> None:
                pass  # many tests disconnect the client

        self._http = Server(("127.0.0.1", 0), Handler)
        self.port = self._http.server_address[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()

    def secure(self, context: Any) -> None:
        """Use TLS from now on."""
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.base_url = f"https://localhost:{self.port}/v1"

    def script(
        self,
        *steps: Any,
        status: int = 200,
        headers: dict[str, str] | None = None,
        framing: str = "chunked",
        model: str = "",
    ) -> None:
        """Queue one response."""
        headers = {"Content-Type": "text/event-stream", **(headers or {})}
        self._scripts[model].append(Script(status, headers, steps, framing))

    def forget(self) -> None:
        """Drop the queued responses."""
        self._scripts.clear()

    def say(self, *pieces: str, model: str = "", **more: Any) -> None:
        """Queue a well-formed streamed answer."""
        self.script(*answer(*pieces, **more), model=model)

    def halt(self, *pieces: str, after: int | None = None, model: str = "") -> threading.Event:
        """Queue an answer that stops after so many of its pieces (None: all) until the event is set."""
        hold = threading.Event()
        events = answer(*pieces)[1:]
        at = len(pieces) if after is None else after
        self.script(*events[:at], hold, *events[at:], model=model)
        return hold

    def unstreamed(self, text: str, *before: Any, model: str = "", **more: Any) -> None:
        """Queue an answer that is not streamed, after the steps ``before``."""
        script = unstreamed(text, **more)
        self._scripts[model].append(script._replace(steps=(*before, *script.steps)))

    def refuse(
        self, status: int, payload: Any, headers: dict[str, str] | None = None, model: str = ""
    ) -> None:
        """Queue an error response with a JSON body."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        self.script(body, status=status, headers=headers, framing="length", model=model)

    def report_window(self, window: int, *models: str) -> None:
        """Report this window for these models (default: ``m``) in the list of models."""
        listed = [
            {"id": name, "object": "model", "max_model_len": window} for name in models or ("m",)
        ]
        self.pages["/v1/models"] = {"object": "list", "data": listed}

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The bodies of the requests."""
        return [asked.body for asked in self.requests]

    @property
    def has_queued(self) -> bool:
        """Whether a queued response was not asked for yet."""
        return any(self._scripts.values())

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        raw = handler.rfile.read(length)
        body = json.loads(raw) if raw else None
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            self.requests.append(ReceivedRequest(handler.command, handler.path, headers, body))
            script = (
                _page(self.pages[handler.path]) if handler.path in self.pages else self._next(body)
            )
        if not script.status:
            handler.close_connection = True
            handler.connection.shutdown(2)
            return
        handler.send_response(script.status)
        for name, value in script.headers.items():
            handler.send_header(name, value)
        if script.framing == "length":
            length = sum(len(step) for step in script.steps if isinstance(step, bytes))
            handler.send_header("Content-Length", str(length))
        elif script.framing == "chunked":
            handler.send_header("Transfer-Encoding", "chunked")
        else:
            handler.send_header("Connection", "close")
            handler.close_connection = True
        handler.end_headers()
        self._play(handler, script)

    def _next(self, body: Any) -> Script:
        """The response to a question: an error, a queued response or an echo. Other paths are in ``pages``."""
        if not {"messages", "input", "contents"} & set(body or ()):
            return Script(404, {"Content-Type": "text/plain"}, (b"",), "length")
        if self.window and (error := overflow(body, self.window, self.factor)):
            return _page(error)._replace(status=400)
        if self.refuses and (wrong := self.refuses(body)):
            return _refusal(wrong)
        queue = self._scripts[body.get("model", "")] or self._scripts[""]
        return queue.popleft() if queue else self._default(body)

    def _play(self, handler: BaseHTTPRequestHandler, script: Script) -> None:
        for step in script.steps:
            if isinstance(step, bytes):
                if script.framing == "chunked":
                    step = b"%x\r\n%s\r\n" % (len(step), step)
                handler.wfile.write(step)
                handler.wfile.flush()
            elif isinstance(step, threading.Event):
                step.wait(30)
            elif step is Cut:
                handler.close_connection = True
                handler.connection.shutdown(2)
                return
            else:
                time.sleep(step)
        if script.framing == "chunked":
            handler.wfile.write(b"0\r\n\r\n")

    def _default(self, body: Any) -> Script:
        if not self.refuses and (wrong := complaint(body)):
            return _refusal(wrong)
        echo = f"You said: {body['messages'][-1]['content']}"
        usage = _usage(prompt_tokens(body), corpus.tokens(echo)) if self.window else USAGE
        if not body.get("stream"):
            return unstreamed(echo, usage=usage)
        steps = tuple(answer(*_pieces(echo), usage=usage))
        return Script(200, {"Content-Type": "text/event-stream"}, steps, "chunked")


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _page(page: Any) -> Script:
    if isinstance(page, Script):
        return page
    body = page if isinstance(page, bytes) else json.dumps(page).encode()
    return Script(200, {"Content-Type": "application/json"}, (body,), "length")


def _refusal(why: str) -> Script:
    error = json.dumps({"error": {"message": why}}).encode()
    return Script(400, {"Content-Type": "application/json"}, (error,), "length")


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), 8):
        yield text[at : at + 8]
