"""Start a real server: find a port, and wait until the server answers."""

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: list[Any], url: str, folder: Path, env: dict[str, str] | None = None
) -> Iterator[None]:
    """Run a server; the block starts when the server answers with status 200."""
    log = folder / "log"
    end = time.monotonic() + 120
    with (
        log.open("wb") as sink,
        subprocess.Popen(command, env=env, stdout=sink, stderr=sink, cwd=folder) as process,
    ):
        try:
            while True:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                with (
                    contextlib.suppress(urllib.error.URLError, OSError),
                    urllib.request.urlopen(url, timeout=2),
                ):
                    break
                time.sleep(0.2)
            yield
        finally:
            process.terminate()


@contextlib.contextmanager
def listening(command: list[Any], port: int, folder: Path, env: dict[str, str]) -> Iterator[None]:
    """Run a server; the block starts when its port takes a connection."""
    log = folder / "log"
    with (
        log.open("wb") as sink,
        subprocess.Popen(command, env=env, stdout=sink, stderr=sink, cwd=folder) as process,
    ):
        try:
            wait_for_port(process, port, log)
            yield
        finally:
            process.terminate()


def wait_for_port(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Return when a port takes a connection; fail with the server's log if it ends before, or in two minutes."""
    end = time.monotonic() + 120
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
            return
        time.sleep(0.1)
