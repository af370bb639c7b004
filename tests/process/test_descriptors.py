"""A run that inherits many descriptors, and what the system is told about a connection."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.home import COMMAND, Home, lab_config, read_until, wait_for_exit
from tests.support.server import Hold, ModelServer, answer

LAUNCHER = """
import os, resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
for _ in range(1100):  # select knows 1,024
    os.set_inheritable(os.dup(2), True)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096, reason="so many cannot be open"
)
def test_a_run_works_with_more_descriptors_than_select_knows(
    home: Home, model: ModelServer
) -> None:
    home.configure(
        lab_config(model).replace("[sessions]", 'api_key_command = "echo key"\n[sessions]')
    )
    hold = Hold()
    model.script(*answer("first ", "second")[:2], hold, *answer("x")[2:], model="m")
    command = [sys.executable, "-c", LAUNCHER, *COMMAND, "go"]
    process = subprocess.Popen(
        command,
        env=home.env,
        cwd=home.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert read_until(process.stdout, b"first ") == b"first "
    process.send_signal(signal.SIGINT)
    assert wait_for_exit(process) == 130
    hold.set()
    assert b"the partial answer is saved" in process.communicate()[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells about its timers")
def test_a_silent_connection_is_kept_alive(lab: Home, model: ModelServer) -> None:
    hold = Hold()
    model.script(hold, *answer("late"), model="m")
    process = lab.start("go")
    assert hold.reached.wait(20)
    port = int(model.base_url.rpartition(":")[2].partition("/")[0])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = {
        row[5].partition(":")[0]
        for row in rows
        if row[2].endswith(f":{port:04X}") and row[3] == "01"
    }
    assert timers == {"02"}  # that of SO_KEEPALIVE
    hold.set()
    assert process.communicate(timeout=30)[0] == b"late\n"
