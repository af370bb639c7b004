"""Every exit code of the README's table, each by a run that ends with it."""

import re
import signal
from collections.abc import Callable

import pytest

from tests.support.home import Home, in_mid_answer, wait_for
from tests.support.paths import ROOT
from tests.support.server import ModelServer, answer
from tests.support.tools import call, calling, configure

README = (ROOT / "README.md").read_text()
FINAL = {"x-should-retry": "false"}
SAID = {"error": {"message": "boom"}}
Way = Callable[[Home, ModelServer], int]


def signalled(signum: signal.Signals) -> Way:
    def run(lab: Home, model: ModelServer) -> int:
        process, release = in_mid_answer(lab, model)
        process.send_signal(signum)
        process.communicate(timeout=30)
        release.set()
        return wait_for(process)

    return run


def finished(reason: str) -> Way:
    def run(lab: Home, model: ModelServer) -> int:
        model.say("half", finish=reason)
        return lab.run("hi").code

    return run


def refused(status: int) -> Way:
    def run(lab: Home, model: ModelServer) -> int:
        model.refuse(status, SAID, FINAL)
        return lab.run("hi").code

    return run


def said(*args: str, stdin: str | None = None) -> Way:
    return lambda lab, _model: lab.run(*args, stdin=stdin).code


def _reader_leaves(lab: Home, model: ModelServer) -> int:
    process, release = in_mid_answer(lab, model)
    process.stdout.close()
    release.set()
    with process.stderr:
        return wait_for(process)


def _empty(lab: Home, model: ModelServer) -> int:
    model.say("")
    return lab.run("hi").code


def _unsaved(lab: Home, _model: ModelServer) -> int:
    lab.state.parent.mkdir()
    lab.state.write_text("in the way")
    return lab.run("hi").code


def _stdout_full(lab: Home, _model: ModelServer) -> int:
    with open("/dev/full", "wb") as full:
        process = lab.start("hi", stdout=full)
        process.communicate(timeout=30)
    return wait_for(process)


def _unreachable(lab: Home, _model: ModelServer) -> int:
    lab.configure('[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\n')
    return lab.run("-m", "lab/m", "hi").code


def _misshapen(lab: Home, model: ModelServer) -> int:
    model.say("no")
    model.say("no")
    return lab.run("--schema", '{"type":"object"}', "hi").code


def _too_long(lab: Home, _model: ModelServer) -> int:
    text = lab.config.read_text().replace("[providers.lab]\n", "[providers.lab]\ncontext_window = 100\n")
    lab.configure(text)
    return lab.run("word " * 200).code


def _deadline(lab: Home, model: ModelServer) -> int:
    model.script(*answer("slow")[:2], 30.0)
    return lab.run("--timeout", "0.6", "hi").code


def _silent(lab: Home, model: ModelServer) -> int:
    lab.configure(lab.config.read_text() + "[network]\nidle_timeout = 0.3\n")
    model.script(*answer("slow")[:2], 30.0)
    return lab.run("hi").code


def _ambiguous(lab: Home, _model: ModelServer) -> int:
    for number in range(40):
        (lab.sessions).mkdir(parents=True, exist_ok=True)
        ident = f"q{number:03d}"
        (lab.sessions / f"20250101-0000{number:02d}-{ident}.json").write_text(f'{{"id":"{ident}","messages":[]}}')
    return lab.run("-s", "q", "hi").code


def _no_server(lab: Home, _model: ModelServer) -> int:
    lab.configure('[mcp.servers.s]\ncommand = "/no/such"\n')
    return lab.run("--list-tools").code


def _denied(lab: Home, model: ModelServer) -> int:
    configure(lab, model, approved="")
    model.script(*calling(call("add", a=1, b=1)))
    return lab.run("hi").code


def _endless(lab: Home, model: ModelServer) -> int:
    configure(lab, model, more="[mcp]\nmax_rounds = 1\n")
    model.script(*calling(call("add", a=1, b=1)))
    return lab.run("hi").code


WAYS: list[tuple[int, str, Way]] = [
    (0, "a complete answer", said("hi")),
    (0, "a listing", said("--list-sessions")),
    (0, "help", said("--help")),
    (0, "a dry run", said("--dry-run", "hi")),
    (0, "usage", said("--usage")),
    (0, "the reader left early", _reader_leaves),
    (1, "the model refused the key", refused(401)),
    (1, "a rate limit", refused(429)),
    (1, "a server error", refused(500)),
    (1, "an unknown model", refused(404)),
    (1, "nobody listens", _unreachable),
    (1, "an empty answer", _empty),
    (1, "not saved", _unsaved),
    (1, "not written", _stdout_full),
    (2, "no such option", said("--nonsense")),
    (2, "no prompt", said()),
    (2, "a missing config file", said("--config", "nowhere", "hi")),
    (2, "a missing key", said("-m", "openai/gpt-4.1", "hi")),
    (2, "an unknown session", said("-s", "nobody", "hi")),
    (2, "an ambiguous session", _ambiguous),
    (2, "an unreadable file", said("-f", "nowhere", "hi")),
    (2, "binary input", said("hi", stdin="a\0b")),
    (2, "options that exclude each other", said("-s", "0", "-c", "hi")),
    (2, "a bad schema", said("--schema", "{", "hi")),
    (2, "an unknown window", said("--truncate", "tail", "hi")),
    (3, "a tool server that is not there", _no_server),
    (4, "a denied tool call", _denied),
    (5, "the token limit", finished("length")),
    (5, "a filter", finished("content_filter")),
    (5, "a refusal", finished("refusal")),
    (5, "not what the schema asks", _misshapen),
    (5, "too many rounds", _endless),
    (6, "too long", _too_long),
    (124, "the deadline", _deadline),
    (124, "a silent server", _silent),
    (130, "SIGINT", signalled(signal.SIGINT)),
    (143, "SIGTERM", signalled(signal.SIGTERM)),
    (129, "SIGHUP", signalled(signal.SIGHUP)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "way"), [(code, way) for code, _, way in WAYS], ids=[name for _, name, _ in WAYS])
def test_the_exit_code(lab: Home, model: ModelServer, code: int, way: Way) -> None:
    assert way(lab, model) == code


def test_every_code_of_the_readme_is_seen_and_no_other() -> None:
    table = README.partition("| exit | means |\n|---|---|\n")[2].partition("\n\n")[0]
    codes = {int(code) for line in table.splitlines() for code in re.findall("[0-9]+", line.split("|")[1])}
    assert codes == {code for code, _, _ in WAYS}
