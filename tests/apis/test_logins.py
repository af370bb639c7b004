"""Logins at remote tool servers, against the authorization server of MCP's SDK on loopback."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.forked import start_server
from tests.support.home import Home, read_until
from tests.support.paths import SUPPORT

BROWSER = {"BROWSER": f"{sys.executable} {SUPPORT / 'browser.py'} %s &"}
NEEDED = "gptsh: tool server web requires a login: run 'gptsh --login web', or set its headers\n"


@contextmanager
def login_server(fault: str = "") -> Iterator[str]:
    """A server that wants a login; its URL."""
    script = SUPPORT / "oauth_tool_server.py"
    with start_server(script, fault, env=os.environ) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"


def configure(home: Home, url: str) -> None:
    home.configure(f'[mcp.servers.web]\nurl = "{url}"\n')


@pytest.fixture(scope="module")
def shared_server() -> Iterator[str]:
    """The URL of one server for all tests: each home is another client of it."""
    with login_server() as url:
        yield url


@pytest.fixture
def guarded(home: Home, shared_server: str) -> Home:
    """A home with a tool server that wants a login."""
    configure(home, shared_server)
    return home


def kept(home: Home) -> list[Path]:
    """The files of logins."""
    return sorted((home.sessions.parent / "logins").glob("*.json"))


def test_a_login_in_the_browser_is_kept_and_forgotten(guarded: Home, shared_server: str) -> None:
    assert guarded.run("--list-tools") == ("", NEEDED, 3)
    done = guarded.process("--login", "web", env=BROWSER)
    assert done.stdout == "", done.stderr
    assert done.code == 0, done.stderr
    assert done.stderr.endswith("gptsh: logged in to tool server web; --logout web forgets it\n")
    (file,) = kept(guarded)
    content = json.loads(file.read_text())
    assert content["issuer"].rstrip("/") == shared_server.removesuffix("/mcp")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for _ in range(2):
        assert guarded.run("--list-tools") == ("web__whoami  Who is logged in.\n", "", 0)
    assert json.loads(file.read_text()) == content  # no new registration, no new token
    assert guarded.run("--logout", "web").code == 0
    assert kept(guarded) == []
    assert guarded.run("--list-tools") == ("", NEEDED, 3)
    again = guarded.run("--logout", "web")
    assert again == ("", "gptsh: not logged in to tool server web\n", 2)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""


@pytest.mark.slow
def test_a_login_by_a_pasted_address(guarded: Home) -> None:
    process = guarded.start("--login", "web", stdin=subprocess.PIPE)
    assert process.stderr
    assert process.stdin
    assert process.stderr.readline() == b"Log in to tool server web:\n"
    with pytest.raises(urllib.error.HTTPError) as redirect:
        urllib.request.build_opener(_Stay).open(process.stderr.readline().decode().strip())
    process.stdin.write(redirect.value.headers["Location"].encode() + b"\n")
    process.stdin.flush()
    assert process.wait(30) == 0, process.stderr.read()
    assert guarded.run("--list-tools").code == 0


def test_an_address_without_the_state_of_the_login_is_ignored(guarded: Home) -> None:
    process = guarded.start("--login", "web", stdin=subprocess.PIPE)
    assert process.stdin
    page = read_until(process.stderr, b"page here)\n").split(b"\n")[1].decode()
    (redirect_uri,) = parse_qs(urlsplit(page).query)["redirect_uri"]
    for query in ("code=x", "code=x&state=other", "error=access_denied", "state="):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{redirect_uri}?{query}")
    process.stdin.write(f"{redirect_uri}?error=access_denied&state=other\n".encode())
    process.stdin.flush()
    read_until(process.stderr, b"gptsh: this address is not that of the last page of the login\n")
    urllib.request.urlopen(page).close()
    assert process.wait(30) == 0
    assert guarded.run("--list-tools").code == 0


class _Metadata(BaseHTTPRequestHandler):
    """A tool server that wants a login, and its authorization server; ``changes`` are in its metadata."""

    def do_GET(self) -> None:
        base = self.server.base  # type: ignore[attr-defined]
        endpoints = ("authorization_endpoint", "token_endpoint", "registration_endpoint")
        if self.path == "/resource":
            content = {"resource": f"{base}/mcp", "authorization_servers": [base]}
        else:
            content = {"issuer": base, **{key: f"{base}/{key}" for key in endpoints}}
        self.answer(200, json.dumps(content | self.server.changes.get(self.path, {})))  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/mcp":
            self.answer(401)
        else:
            self.server.used.append(self.path)  # type: ignore[attr-defined]
            self.answer(201, '{"client_id": "c"}')

    def answer(self, status: int, body: str = "") -> None:
        link = self.server.changes.get("link", f"{self.server.base}/resource")  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("WWW-Authenticate", f'Bearer resource_metadata="{link}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body and "stalls" in self.server.changes:  # type: ignore[attr-defined]
            time.sleep(40)
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def metadata_server(home: Home, changes: dict[str, Any]) -> Iterator[list[str]]:
    """A configured server with changed metadata; the paths of requests that follow from it."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Metadata)
    server.base = f"http://127.0.0.1:{server.server_port}"
    server.changes = changes
    server.used = []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    home.configure(f'[mcp.servers.web]\nurl = "{server.base}/mcp"\n')
    try:
        yield server.used
    finally:
        server.shutdown()
        server.server_close()


FAR = "http://far.example/x"
AUTHORIZATION = "/.well-known/oauth-authorization-server"


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("address", {"link": FAR}),
        ("resource", {"/resource": {"resource": FAR}}),
        (
            "authorization_servers",
            {"/resource": {"authorization_servers": ["https://a.example", FAR]}},
        ),
        ("jwks_uri", {"/resource": {"jwks_uri": "ftp://a.example/x"}}),
        ("issuer", {AUTHORIZATION: {"issuer": FAR}}),
        ("authorization_endpoint", {AUTHORIZATION: {"authorization_endpoint": FAR}}),
        ("token_endpoint", {AUTHORIZATION: {"token_endpoint": FAR}}),
        ("registration_endpoint", {AUTHORIZATION: {"registration_endpoint": FAR}}),
        ("revocation_endpoint", {AUTHORIZATION: {"revocation_endpoint": FAR}}),
        ("jwks_uri", {AUTHORIZATION: {"jwks_uri": FAR}}),
    ],
)
def test_a_login_goes_to_no_url_without_https(
    home: Home, key: str, changes: dict[str, Any]
) -> None:
    with metadata_server(home, changes) as used:
        error = f"gptsh: the login to tool server web has a URL without https:// ({key})\n"
        assert home.run("--login", "web") == ("", error, 3)
        assert used == []


def test_an_answer_of_a_login_has_at_most_1_mb(home: Home) -> None:
    with metadata_server(home, {AUTHORIZATION: {"more": "x" * 1_000_000}}):
        error = "gptsh: the login to tool server web got an answer of more than 1.0 MB\n"
        assert home.run("--login", "web") == ("", error, 3)


@pytest.mark.slow
def test_an_answer_of_a_login_has_30_seconds(home: Home) -> None:
    with metadata_server(home, {"stalls": True}):
        error = "gptsh: the login to tool server web got no answer within 30 s\n"
        assert home.run("--login", "web") == ("", error, 3)


def expire(home: Home, **tokens: str) -> None:
    """Let the kept access token expire; other tokens can be replaced, too."""
    (file,) = kept(home)
    login = json.loads(file.read_text())
    login["expires_at"] = 1
    login["tokens"] |= {"access_token": "access-that-expired", **tokens}
    file.write_text(json.dumps(login))


def test_a_token_that_has_expired_is_refreshed_by_itself(guarded: Home) -> None:
    guarded.process("--login", "web", env=BROWSER)
    expire(guarded)
    assert guarded.run("--list-tools") == ("web__whoami  Who is logged in.\n", "", 0)
    login = json.loads(kept(guarded)[0].read_text())
    assert login["tokens"]["access_token"] != "access-that-expired"
    assert login["expires_at"] > 1
    assert guarded.run("--list-tools").code == 0  # by the new one


@pytest.mark.slow
def test_runs_at_the_same_time_share_a_refreshed_token(home: Home) -> None:
    """The server takes each refresh token once."""
    with login_server("slow") as url:
        configure(home, url)
        home.process("--login", "web", env=BROWSER)
        expire(home)
        runs = [home.start("--list-tools") for _ in range(3)]
        for run in runs:
            _, stderr = run.communicate(timeout=60)
            assert run.returncode == 0
            assert stderr == b""


def test_a_login_that_has_ended_is_one_line(guarded: Home) -> None:
    guarded.process("--login", "web", env=BROWSER)
    expire(guarded, refresh_token="refresh-that-ended")
    ended = "gptsh: tool server web requires a new login: run 'gptsh --login web'\n"
    assert guarded.run("--list-tools") == ("", ended, 3)
    assert "refresh-that-ended" not in guarded.run("--list-tools", "--debug").stderr


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("denied", "tool server web refused the login: access_denied"),
        pytest.param(
            "issuer",
            "tool server web: the login failed: the issuer of the answer is not that of this login",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_login_that_fails_keeps_nothing(home: Home, fault: str, said: str) -> None:
    with login_server(fault) as url:
        configure(home, url)
        done = home.process("--login", "web", env=BROWSER)
    assert done.stderr.splitlines()[-1] == f"gptsh: {said}"
    assert done.code == 3
    assert kept(home) == []


@pytest.mark.parametrize(("table", "said"), [
    ('command = "x"', "--login: tool server web is a program: only a server with a url has a login"),
    ('url = "http://a.example/mcp"',
     "--login: the url of tool server web begins with http://: a login needs https://"),
    ('url = "https://a.example/"\nheaders = { authorization = "Bearer abcdefghi" }',
     "--login: tool server web has a header Authorization: remove it from its headers"),
])  # fmt: skip
def test_a_server_that_has_no_login(home: Home, table: str, said: str) -> None:
    home.configure(f"[mcp.servers.web]\n{table}\n")
    assert home.run("--login", "web") == ("", f"gptsh: {said}\n", 2)
    assert (
        home.run("--login", "nix").stderr
        == "gptsh: there is no tool server 'nix': choose from web\n"
    )
