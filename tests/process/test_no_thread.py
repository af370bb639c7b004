"""Where the system starts no more threads, nothing is asked, and the error is one line."""

import resource
import sys

import pytest

from tests.support.home import COMMAND, Home, wait_for_exit
from tests.support.server import ModelServer
from tests.support.terminal import Terminal

# A stack larger than the address space: no thread can get one, in any process of any user.
_STACK = 1 << 47
LIMITED = (
    f"import resource as r, os, sys; r.setrlimit(r.RLIMIT_STACK, ({_STACK}, r.RLIM_INFINITY)); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
NO_THREAD = "gptsh: cannot start a thread: raise the limits that ulimit -u and ulimit -v show\n"

pytestmark = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_STACK)[1] != resource.RLIM_INFINITY
    or sys.platform != "linux",
    reason="the stack cannot be set so large",
)


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK, resource.RLIM_INFINITY))


@pytest.mark.parametrize("args", [("hi",), ("--tools", "time", "hi")])
def test_a_question_ends_in_a_line_before_it_is_sent(
    lab: Home, model: ModelServer, args: tuple[str, ...]
) -> None:
    lab.configure(lab.config.read_text() + '[mcp.servers.time]\ncommand = "cat"\n')
    process = lab.start(*args, preexec_fn=limit)
    assert process.communicate(timeout=30) == (b"", NO_THREAD.encode())
    assert wait_for_exit(process) == 1
    assert model.requests == []


@pytest.mark.parametrize("args", [("hi",), ("-i",)])
def test_a_terminal_shows_that_line(lab: Home, args: tuple[str, ...]) -> None:
    terminal = Terminal(
        lab, *args, env={"NO_COLOR": "1"}, command=[sys.executable, "-c", LIMITED, *COMMAND]
    )
    out, code = terminal.close()
    assert out.endswith(NO_THREAD.replace("\n", "\r\n").encode())
    assert code == 1
    assert b"Traceback" not in out


def test_lists_need_no_thread(lab: Home) -> None:
    lab.run("-m", "echo", "hi")
    process = lab.start("--list-sessions", preexec_fn=limit)
    assert b"hi" in process.communicate(timeout=30)[0]
