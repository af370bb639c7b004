"""Servers on loopback that answer at once: an Anthropic-shaped one, and one with a window that calls tools."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.server import ModelServer, Script, answer, chunk, event, prompt_tokens

WORDS = ("You", " said", ": hello")


def _events() -> list[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 1},
    }
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": w}} for w in WORDS),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


STREAM = b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in _events())


class AnthropicServer:
    """Answers ``POST …/v1/messages`` with the stream whatever the body says, and all else with 404."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                known = self.path.partition("?")[0].endswith("/v1/messages")  # Azure has it under /anthropic
                body = (
                    STREAM if known else b'{"type":"error","error":{"type":"not_found_error","message":"no such path"}}'
                )
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "text/event-stream" if known else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()


_SENTENCES = "The parser now keeps the line that it cannot tell apart. A test for it fails without the change. "
_SUMMARY, _ANSWER, _EVERY = 3000, 1000, 2  # characters; so many turns have one that reads a file


class LongServer(ModelServer):
    """Answers with 1,000 characters, every second question with a call of the tool first; ``small`` with a summary.

    Its prompt tokens are real, and so is its window. ``took`` are the seconds in which it had a request.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window
        self.tell(window, "m", "small")
        self.took = 0.0
        self._questions = 0

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        started = time.perf_counter()
        super()._serve(handler)
        self.took += time.perf_counter() - started

    def _default(self, body: Any) -> Script:
        prompt = prompt_tokens(body)
        usage = {"prompt_tokens": prompt, "completion_tokens": 300, "total_tokens": prompt + 300}
        small, asks = body["model"] == "small", body["messages"][-1]["role"] == "user"
        self._questions += asks and not small
        said = f"{self._questions}. {_SENTENCES * 100}"[: _SUMMARY if small else _ANSWER]
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            whole = json.dumps({"id": "chatcmpl-1", "choices": [choice], "usage": usage}).encode()
            return Script(200, {"Content-Type": "application/json"}, (whole,), "length")
        steps = answer(said, usage=usage)
        if body.get("tools") and asks and self._questions % _EVERY == 0:
            arguments = json.dumps({"path": f"src/{self._questions}.py"})
            function = {"name": body["tools"][0]["function"]["name"], "arguments": arguments}
            call = {"index": 0, "id": f"call_{self._questions}", "type": "function", "function": function}
            steps[1:3] = [event(chunk({"tool_calls": [call]})), event(chunk({}, "tool_calls"))]
        return Script(200, {"Content-Type": "text/event-stream"}, tuple(steps), "chunked")
