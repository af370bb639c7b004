"""Against llama.cpp's own server with a model of our own making: ``make servers`` installs it in ``.venv-llama``.

The model answers with one sentence of 20 to 40 words, in a window of 2,048 tokens (tests/support/tiny_gguf.py).
"""

import json
import random
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.home import Home, read_until, wait_for_exit
from tests.support.long_sessions import prose
from tests.support.paths import ROOT, SUPPORT
from tests.support.servers import free_port, running

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

WHOLE = re.compile(r"[A-Z][a-z]+(?:(?: [a-z]+)+\.)+")  # as tiny_gguf says


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a server for its own model."""
    python = ROOT / ".venv-llama" / "bin" / "python"
    folder = tmp_path_factory.mktemp("llama")
    port = free_port()
    model = folder / "tiny.gguf"
    subprocess.run([python, SUPPORT / "tiny_gguf.py", model], check=True, timeout=60)
    command = [python, SUPPORT / "llama_server.py", model, str(port)]
    with running(command, f"http://127.0.0.1:{port}/v1/models", folder):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture
def tiny(home: Home, server: str) -> Home:
    """A home whose default model is the server's; nothing else is configured."""
    home.configure(f'[agents.default]\nmodel = "tiny/m"\n[providers.tiny]\nbase_url = "{server}"\n')
    return home


def test_six_new_sessions_are_whole(tiny: Home) -> None:
    for number in range(6):
        run = tiny.process(f"What is the number {number} good for?")
        doc = tiny.docs()[0]
        assert run.stderr == ""
        assert run.code == 0
        assert WHOLE.fullmatch(run.stdout.removesuffix("\n"))
        assert doc["messages"][-1]["content"] == run.stdout[:-1]
        assert doc["messages"][-1]["finish_reason"] == "stop"
    assert len(tiny.docs()) == 6


def test_a_session_of_30_turns_goes_through_a_window_that_nobody_tells(tiny: Home) -> None:
    dice = random.Random(17)
    codes = []
    for turn in range(30):
        run = tiny.process(*["-s", "0"] * bool(turn), f"{turn}: {prose(dice, 40)}")
        doc = tiny.doc()
        answer = doc["messages"][-1]
        assert doc["stats"]["turns"] == turn + 1, run
        assert answer["content"] == run.stdout.removesuffix("\n"), run
        if run.code:  # the answer began in a window that was nearly full
            assert run.code == 5, run
            assert answer["finish_reason"] == "length", run
            assert "the answer is incomplete: cut by the token limit" in run.stderr
        else:
            assert WHOLE.fullmatch(answer["content"])
            assert answer["finish_reason"] == "stop"
        codes.append(run.code)
    assert doc["context"]["compaction"]
    assert "5, 5" not in str(codes), codes  # whoever meets the end of the window goes on behind it
    assert codes.count(5) < 5, codes


def test_ctrl_c_keeps_what_came_and_the_server_answers_the_next(tiny: Home) -> None:
    for _ in range(5):  # so small a model may have said all before the signal arrives
        process = tiny.start("-n", "-p", "min_tokens=1900", "Tell me all.")
        seen = read_until(process.stdout, b".")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        newest, *_ = tiny.docs()
        answer = newest["messages"][-1]
        assert answer["content"] == (seen + rest).decode().removesuffix("\n")
        if answer["finish_reason"] == "interrupted":
            break
    assert answer["finish_reason"] == "interrupted"
    assert wait_for_exit(process) == 130
    again = tiny.process("-s", "0", "Again, briefly.")
    assert again.stderr == ""
    assert again.code == 0
    assert WHOLE.fullmatch(again.stdout.removesuffix("\n"))


def test_an_answer_conforms_to_a_schema(tiny: Home) -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"enum": ["small", "large"]}},
        "required": ["size"],
        "additionalProperties": False,
    }
    run = tiny.process("--schema", json.dumps(schema), "Which?")
    assert run.code == 0
    assert json.loads(run.stdout)["size"] in ("small", "large")


@pytest.fixture(params=["chat", "responses", "anthropic"])
def asked(request: pytest.FixtureRequest, home: Home, server: str) -> Home:
    """A home that asks the server by one of its three APIs."""
    url = server.removesuffix("/v1") if request.param == "anthropic" else server
    home.configure(
        '[agents.default]\nmodel = "tiny/m"\n[sessions]\ntitles = "off"\n'
        f'[providers.tiny]\nbase_url = "{url}"\napi = "{request.param}"\n'
    )
    return home


def test_a_second_turn_is_answered(asked: Home) -> None:
    assert asked.process("One?").code == 0
    again = asked.process("-s", "0", "Two?")
    assert again.stderr == ""
    assert WHOLE.fullmatch(again.stdout.removesuffix("\n"))
    assert asked.doc()["stats"]["turns"] == 2


@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_an_answer_that_reaches_its_limit_is_incomplete(asked: Home, how: str) -> None:
    run = asked.process(
        *["--no-stream"] * (how == "--no-stream"), "-p", "max_tokens=16", "Tell me all."
    )
    assert run.code == 5
    assert "the answer is incomplete: cut by the token limit" in run.stderr
    assert asked.doc()["messages"][1]["content"] == run.stdout.removesuffix("\n")
