"""Two machines with a real Syncthing between their stores, on loopback and without discovery: ``make servers``."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.home import Home
from tests.support.servers import free_port
from tests.support.travel import questions, shown

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(180),
    pytest.mark.skipif(shutil.which("syncthing") is None, reason="syncthing is not here"),
]

_CONFIG = """\
<configuration version="36">
  <folder id="gptsh" path="{sessions}" type="sendreceive" rescanIntervalS="3600" fsWatcherEnabled="false">
    {devices}<maxConflicts>10</maxConflicts>
  </folder>
  {addresses}
  <gui enabled="true"><address>127.0.0.1:{gui}</address><apikey>key</apikey></gui>
  <options>
    <listenAddress>tcp://127.0.0.1:{port}</listenAddress>
    <globalAnnounceEnabled>false</globalAnnounceEnabled><localAnnounceEnabled>false</localAnnounceEnabled>
    <relaysEnabled>false</relaysEnabled><natEnabled>false</natEnabled><urAccepted>-1</urAccepted>
    <crashReportingEnabled>false</crashReportingEnabled><startBrowser>false</startBrowser>
    <autoUpgradeIntervalH>0</autoUpgradeIntervalH><reconnectionIntervalS>1</reconnectionIntervalS>
  </options>
</configuration>
"""


class Machine:
    """A home whose sessions Syncthing carries to another machine."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.home = Home(folder)
        self._place = folder / "syncthing"
        self.port, self._gui = free_port(), free_port()
        (self.home.sessions / ".stfolder").mkdir(parents=True)
        generated = self._command("generate", "--no-default-folder")
        done = subprocess.run(generated, env=self.home.env, capture_output=True, text=True, check=True, timeout=60)
        self.id = re.findall(r"[A-Z0-9]{7}(?:-[A-Z0-9]{7}){7}", done.stdout + done.stderr)[0]

    def _command(self, job: str, *args: str) -> list[str]:
        return ["syncthing", job, f"--home={self._place}", *args]

    def start(self, other: "Machine") -> None:
        """Start Syncthing, connected to the other machine alone."""
        machines = (self, other)
        devices = "".join(f'<device id="{each.id}"/>' for each in machines)
        addresses = "".join(
            f'<device id="{each.id}"><address>tcp://127.0.0.1:{each.port}</address></device>' for each in machines
        )
        sessions = self.home.sessions
        values = {"sessions": sessions, "devices": devices, "addresses": addresses, "gui": self._gui, "port": self.port}
        (self._place / "config.xml").write_text(_CONFIG.format(**values))
        command = self._command("serve", "--no-browser", "--no-restart", "--no-upgrade")
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        env = {**self.home.env, "STMONITORED": "yes"}  # without a second process that outlives the first
        self.home.started.append(subprocess.Popen(command, env=env, **pipes))

    def stop(self) -> None:
        """End Syncthing."""
        self.home.started[-1].terminate()
        self.home.started.pop().wait(60)

    def ask(self, path: str, method: str = "POST") -> dict[str, object]:
        """Ask Syncthing to do something."""
        url = f"http://127.0.0.1:{self._gui}/rest/{path}"
        request = urllib.request.Request(url, method=method, headers={"X-API-Key": "key"})
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, object] = json.loads(response.read() or b"{}")
        return answer

    def answers(self) -> bool:
        """Whether Syncthing has started."""
        try:
            return bool(self.ask("system/ping", "GET"))
        except (urllib.error.URLError, ConnectionError):
            return False

    def names(self) -> dict[str, bytes]:
        """The synced files."""
        return {path.name: path.read_bytes() for path in self.home.sessions.glob("2*")}


def wait_for(condition: Callable[[], object]) -> None:
    """Wait for a condition, for at most a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def start(first: Machine, second: Machine) -> None:
    """Start Syncthing on both machines."""
    first.start(second)
    second.start(first)
    wait_for(lambda: first.answers() and second.answers())


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two machines whose sessions are synced."""
    first, second = Machine(tmp_path / "a"), Machine(tmp_path / "b")
    try:
        start(first, second)
        yield first, second
    finally:
        first.home.end()
        second.home.end()


def sync(*machines: Machine, files: int) -> None:
    """Let Syncthing look for changes until both machines have the same files, and so many."""

    def are_equal() -> bool:
        for machine in machines:
            machine.ask("db/scan?folder=gptsh")  # it also finds the copies that Syncthing itself has made
        first, second = (machine.names() for machine in machines)
        return first == second and len(first) == files

    wait_for(are_equal)


@contextmanager
def disconnected(*machines: Machine) -> Iterator[None]:
    """In the block Syncthing runs on neither machine; when it starts again, it looks for changes first."""
    for machine in machines:
        machine.stop()
    yield
    start(*machines)


def test_a_session_that_was_continued_on_both_machines_keeps_all_turns(pair: tuple[Machine, Machine]) -> None:
    first, second = pair
    first.home.run("-m", "echo", "one")
    sync(*pair, files=1)
    with disconnected(*pair):
        first.home.run("-s", "0", "here")
        second.home.run("-s", "0", "there")
    sync(*pair, files=2)
    assert any(".sync-conflict-" in name for name in first.names())
    assert shown(first.home) == shown(second.home) == ["one", "here", "there"]
    assert first.home.run("--join-copies").stdout.startswith("joined 1 copy into ")
    sync(*pair, files=1)
    second.home.run("-s", "0", "more")
    sync(*pair, files=1)
    assert questions(first.home.doc()) == questions(second.home.doc()) == ["one", "here", "there", "more"]


def test_a_deleted_session_is_deleted_on_the_other_machine_and_comes_back_if_that_went_on(
    pair: tuple[Machine, Machine],
) -> None:
    first, second = pair
    first.home.run("-m", "echo", "one")
    first.home.run("-m", "echo", "another")
    sync(*pair, files=2)
    one = shown_id(first.home, "one")
    with disconnected(*pair):
        for path in first.home.files():
            first.home.run("--delete-session", path.name)
        second.home.run("-s", one, "there")
    sync(*pair, files=3)  # the session, and two marks
    for machine in pair:
        assert len(machine.home.run("--list-sessions").stdout.splitlines()) == 1
        assert shown(machine.home) == ["one", "there"]


def shown_id(home: Home, words: str) -> str:
    """The id of the session that begins with these words."""
    rows = json.loads(home.run("--search-sessions", words, "-o", "json").stdout)
    return str(rows[0]["id"])
