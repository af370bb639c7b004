"""Where the system starts no more threads, an answer arrives without what needs one; else an error is one line."""

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
NO_THREAD = "gptsh: no thread can start: raise the limit: see ulimit -u and ulimit -v\n"

pytestmark = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_STACK)[1] != resource.RLIM_INFINITY or sys.platform != "linux",
    reason="the stack cannot be set so large",
)


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK, resource.RLIM_INFINITY))


@pytest.mark.parametrize("args", [(), ("-o", "markdown"), ("--no-stream",)])
def test_an_answer_arrives_and_is_saved(lab: Home, model: ModelServer, args: tuple[str, ...]) -> None:
    model.say("an ", "answer", model="m")
    process = lab.start(*args, "hi", preexec_fn=limit)
    assert process.communicate(timeout=30) == (b"an answer\n", b"")
    assert (wait_for_exit(process), len(lab.doc()["messages"])) == (0, 2)


def test_there_is_no_title(hosted: Home, model: ModelServer) -> None:
    model.say("an answer", model="gpt-4.9")
    process = hosted.start("hi", preexec_fn=limit)
    assert process.communicate(timeout=30) == (b"an answer\n", b"")
    assert (wait_for_exit(process), hosted.doc()["title"]) == (0, None)


def test_a_terminal_shows_it_as_it_is(lab: Home, model: ModelServer) -> None:
    model.say("an *answer*", model="m")
    terminal = Terminal(lab, "hi", command=[sys.executable, "-c", LIMITED, *COMMAND])
    assert terminal.close() == (b"an *answer*\r\n", 0)


def test_tools_and_a_conversation_end_in_a_line(lab: Home, model: ModelServer) -> None:
    lab.configure(lab.config.read_text() + '[mcp.servers.time]\ncommand = "cat"\n')
    process = lab.start("--tools", "time", "hi", preexec_fn=limit)
    assert process.communicate(timeout=30) == (b"", NO_THREAD.encode())
    assert (wait_for_exit(process), model.requests) == (1, [])
    terminal = Terminal(lab, "-i", command=[sys.executable, "-c", LIMITED, *COMMAND])
    out, code = terminal.close()
    assert (out.endswith(NO_THREAD.replace("\n", "\r\n").encode()), code, b"Traceback" in out) == (True, 1, False)
