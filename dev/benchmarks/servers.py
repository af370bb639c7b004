"""A server on loopback with Anthropic's API that answers at once."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": w}}
            for w in WORDS
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


STREAM = b"".join(
    f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in _events()
)


class AnthropicServer:
    """Answers each ``POST …/v1/messages`` with the same stream, and anything else with 404."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                is_known = self.path.partition("?")[0].endswith(
                    "/v1/messages"
                )  # Azure has it under /anthropic
                error = (
                    b'{"type":"error","error":{"type":"not_found_error","message":"no such path"}}'
                )
                body = STREAM if is_known else error
                self.send_response(200 if is_known else 404)
                self.send_header(
                    "Content-Type", "text/event-stream" if is_known else "application/json"
                )
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def secure(self, context: ssl.SSLContext) -> None:
        """Use TLS from now on."""
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.base_url = f"https://localhost:{self._http.server_address[1]}"

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()
