"""Logins at remote tool servers, against the authorization server of MCP's SDK on loopback."""

import json
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.paths import SUPPORT

BROWSER = {"BROWSER": f"{sys.executable} {SUPPORT / 'browser.py'} %s &"}
NEEDED = "gptsh: tool server web wants a login: run 'gptsh --login web', or set its headers\n"

FOREIGN = "the login failed: the state or the issuer of the answer is not that of this login"


@contextmanager
def guarded(home: Home, fault: str = "") -> Iterator[str]:
    """A configured server that wants a login; its URL."""
    command = [sys.executable, str(SUPPORT / "oauth_tool_server.py"), fault]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        home.configure(f'[mcp.servers.web]\nurl = "{url}"\n')
        yield url


def kept(home: Home) -> list[Path]:
    """The files of logins."""
    return sorted((home.sessions.parent / "logins").glob("*.json"))


def test_a_login_in_the_browser_is_kept_and_forgotten(home: Home) -> None:
    with guarded(home) as url:
        assert home.run("--list-tools") == ("", NEEDED, 3)
        done = home.process("--login", "web", env=BROWSER)
        assert (done.stdout, done.code) == ("", 0), done.stderr
        assert done.stderr.endswith("gptsh: you are logged in at tool server web; --logout web forgets it\n")
        (file,) = kept(home)
        content = json.loads(file.read_text())
        assert (content["issuer"].rstrip("/"), [*content["servers"]]) == (url.removesuffix("/mcp"), [url])
        assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
        for _ in range(2):
            assert home.run("--list-tools") == ("web__whoami  Who is logged in.\n", "", 0)
        assert json.loads(file.read_text()) == content  # no new registration, no new token
        assert home.run("--logout", "web").code == 0
        assert (kept(home), home.run("--list-tools")) == ([], ("", NEEDED, 3))
        again = home.run("--logout", "web")
        assert again == ("", "gptsh: there is no login at tool server web\n", 2)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""


@pytest.mark.slow
def test_a_login_by_a_pasted_address(home: Home) -> None:
    with guarded(home):
        process = home.start("--login", "web", stdin=subprocess.PIPE)
        assert process.stderr
        assert process.stdin
        assert process.stderr.readline() == b"Log in at tool server web:\n"
        with pytest.raises(urllib.error.HTTPError) as redirect:
            urllib.request.build_opener(_Stay).open(process.stderr.readline().decode().strip())
        process.stdin.write(redirect.value.headers["Location"].encode() + b"\n")
        process.stdin.flush()
        assert process.wait(30) == 0, process.stderr.read()
        assert home.run("--list-tools").code == 0


def expire(home: Home) -> dict[str, Any]:
    """Let the kept token expire; return the tokens."""
    (file,) = kept(home)
    content = json.loads(file.read_text())
    (login,) = content["servers"].values()
    login["expires_at"], tokens = 1, dict(login["tokens"])
    login["tokens"]["access_token"] = "access-that-expired"
    file.write_text(json.dumps(content))
    return tokens


def test_a_token_that_has_expired_is_refreshed_by_itself(home: Home) -> None:
    with guarded(home):
        home.process("--login", "web", env=BROWSER)
        before = expire(home)
        assert home.run("--list-tools") == ("web__whoami  Who is logged in.\n", "", 0)
        (login,) = json.loads(kept(home)[0].read_text())["servers"].values()
        assert login["tokens"]["access_token"] not in (before["access_token"], "access-that-expired")
        assert login["expires_at"] > 1
        assert home.run("--list-tools").code == 0  # by the new one


@pytest.mark.slow
def test_runs_at_the_same_time_share_a_refreshed_token(home: Home) -> None:
    """The server takes each refresh token once."""
    with guarded(home, "slow"):
        home.process("--login", "web", env=BROWSER)
        expire(home)
        runs = [home.start("--list-tools") for _ in range(3)]
        for run in runs:
            _, stderr = run.communicate(timeout=60)
            assert (run.returncode, stderr) == (0, b"")


def test_a_login_that_has_ended_is_one_line(home: Home) -> None:
    with guarded(home, "forgets"):
        home.process("--login", "web", env=BROWSER)
        before = expire(home)
        run = home.run("--list-tools")
        assert run == ("", "gptsh: tool server web wants a new login: run 'gptsh --login web'\n", 3)
        assert before["refresh_token"] not in home.run("--list-tools", "--debug").stderr


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("denied", "tool server web gave no login: access_denied"),
        ("state", "tool server web: the login failed: the state or the issuer of the answer is not that of this login"),
        pytest.param(
            "issuer",
            "tool server web: the login failed: the state or the issuer of the answer is not that of this login",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_login_that_fails_keeps_nothing(home: Home, fault: str, said: str) -> None:
    with guarded(home, fault):
        done = home.process("--login", "web", env=BROWSER)
    assert (done.stderr.splitlines()[-1], done.code, kept(home)) == (f"gptsh: {said}", 3, [])


@pytest.mark.parametrize(("table", "said"), [
    ('command = "x"', "--login: tool server web is a program: only one with a url has a login"),
    ('url = "http://a.example/mcp"',
     "--login: the url of tool server web begins with http://: a login needs https://"),
    ('url = "https://a.example/"\nheaders = { authorization = "Bearer abcdefghi" }',
     "--login: tool server web has a header Authorization: remove it from its headers"),
])  # fmt: skip
def test_a_server_that_has_no_login(home: Home, table: str, said: str) -> None:
    home.configure(f"[mcp.servers.web]\n{table}\n")
    assert home.run("--login", "web") == ("", f"gptsh: {said}\n", 2)
    assert home.run("--login", "nix").stderr == "gptsh: there is no tool server 'nix': known are web\n"
