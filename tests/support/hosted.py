"""A hosted provider with its real address: a proxy leads to a server on loopback."""

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import trustme

from tests.support.server import ModelServer


class _Handler(StreamRequestHandler):
    """One ``CONNECT`` to any host: the bytes go to the server."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        with socket.create_connection(self.server.target) as far:  # type: ignore[attr-defined]
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=_copy, args=(self.connection, far), daemon=True).start()
            _copy(far, self.connection)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):  # either end can close at any time
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


HOSTS = (
    "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "api.mistral.ai", "api.x.ai",
    "api.groq.com", "openrouter.ai", "api.perplexity.ai",
)  # fmt: skip


class Hosted:
    """Makes the model server the address of each of ``HOSTS``, for a gptsh with the environment ``env``."""

    def __init__(self, model: ModelServer, folder: Path) -> None:
        authority = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(*HOSTS).configure_cert(context)
        model.secure(context)
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self._proxy = ThreadingTCPServer(("127.0.0.1", 0), _Handler)
        self._proxy.daemon_threads = True
        self._proxy.target = ("127.0.0.1", model.port)  # type: ignore[attr-defined]
        threading.Thread(target=self._proxy.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{self._proxy.server_address[1]}"
        self.env = {
            "HTTPS_PROXY": address,
            "SSL_CERT_FILE": str(folder / "ca.pem"),
            "OPENAI_API_KEY": "sk-hosted",
        }

    def close(self) -> None:
        """Stop the proxy."""
        self._proxy.shutdown()
        self._proxy.server_close()
