"""The same work by gptsh and by three tools like it, each in an environment of its own that ``make peers`` makes."""

import json
import operator
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clocks import Failed, first_byte, peak_memory, whole
from benchmarks.homes import GPTSH, Home, Lab, lab
from proof.table import Row, Table
from tests.support.server import Cut, Hold, answer

_ENVIRONMENTS = Path(__file__).parent.parent / ".venv-peers"
_ROUNDS = 5
_AT_ONCE = 20
_PATIENCE = 300  # seconds after which a run counts as hung: twenty imports of litellm at once take their time


class Tool(NamedTuple):
    """How one tool is asked: ``resume`` goes on with the newest session, ``show`` prints it."""

    name: str
    home: Home
    ask: Sequence[str]
    resume: Sequence[str]
    list: Sequence[str]
    show: Sequence[str]

    def run(self, command: Sequence[str], *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command, *words],
            env=self.home.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )

    def start(self, command: Sequence[str], *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*command, *words],
            env=self.home.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )


def _tools(place: Lab) -> list[Tool]:
    """gptsh first. Each has a home of its own, and the server as its only provider."""
    url = place.server.base_url
    own = Tool("gptsh", place.asking(), GPTSH, (*GPTSH, "-s", "0"), (*GPTSH, "--list-sessions"),
               (*GPTSH, "--show-session", "0"))  # fmt: skip
    command = str(_ENVIRONMENTS / "llm/bin/llm")
    llm = Tool(_versioned("llm"), place.llm, (command, "-m", "lab"), (command, "-c"),
               (command, "logs", "list", "--short", "-n", "0"), (command, "logs", "list", "-n", "0"))  # fmt: skip
    command = str(_ENVIRONMENTS / "shell-gpt/bin/sgpt")
    home = place.home(OPENAI_API_KEY="x", API_BASE_URL=url, DEFAULT_MODEL="m", PRETTIFY_MARKDOWN="false")
    home.env.update({"CHAT_CACHE_PATH": str(home.folder / "chats"), "CACHE_PATH": str(home.folder / "cache")})
    chat = (command, "--no-cache", "--chat", "talk")
    shell = Tool(_versioned("shell-gpt"), home, chat, chat, (command, "--list-chats"),
                 (command, "--show-chat", "talk"))  # fmt: skip
    command = str(_ENVIRONMENTS / "gptsh-cli/bin/gptsh")
    # Without a network it would try for ten seconds to fetch the list of prices.
    home = place.home(LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_API_KEY="x", OPENAI_BASE_URL=url)
    folder = home.folder / ".config/gptsh"
    folder.mkdir(parents=True)
    provider = {"model": "openai/m", "api_key": "x", "base_url": url}
    agents = {"default": {"model": "openai/m"}}
    config = {"default_agent": "default", "default_provider": "openai", "agents": agents}
    (folder / "config.yml").write_text(json.dumps(config | {"providers": {"openai": provider}}))  # JSON is YAML
    cli = Tool(_versioned("gptsh-cli"), home, (command, "--no-tools"), (command, "--no-tools", "-s", "0"),
               (command, "--list-sessions"), (command, "--show-session", "0"))  # fmt: skip
    return [own, llm, shell, cli]


def _versioned(package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run(
        [_ENVIRONMENTS / package / "bin/python", "-c", code], capture_output=True, text=True, check=True
    )
    return f"{package} {found.stdout.strip()}"


def _median(measure: Callable[..., float], command: Callable[[Tool], Sequence[str]]) -> Callable[[Tool, Lab], float]:
    def seconds(tool: Tool, _place: Lab) -> float:
        taken = [measure(command(tool), tool.home.env) for _ in range(_ROUNDS + 1)]
        return round(statistics.median(taken[1:]), 2)  # the first run warms the caches

    return seconds


def _asks(tool: Tool) -> Sequence[str]:
    return (*tool.ask, "hello")


def _kept_at_once(tool: Tool, _place: Lab) -> int:
    """How many of the turns that ran at once the session has afterwards."""
    tool.run(tool.ask, "begin")
    running = [tool.start(tool.resume, f"turn {number:02} of many") for number in range(_AT_ONCE)]
    try:
        for process in running:
            process.communicate(timeout=_PATIENCE)
    finally:
        for process in running:
            process.kill()
    shown = tool.run(tool.show).stdout
    return sum(f"You said: turn {number:02} of many" in shown for number in range(_AT_ONCE))


def _cut(tool: Tool, place: Lab) -> int:
    """The exit code of an answer whose connection was cut."""
    for _ in range(9):  # some ask again
        place.server.script(*answer("kept ", "lost")[:2], Cut)
    code = tool.run(tool.ask, "and what is cut?").returncode
    place.server.forget()
    return code


def _kept_of_a_cut(tool: Tool, _place: Lab) -> bool:
    """Whether the session has the question and what came of the answer; ``_cut`` ran before."""
    shown = tool.run(tool.show).stdout
    return "and what is cut?" in shown and "kept" in shown


def _killed(tool: Tool, place: Lab) -> bool:
    """Whether the question is there when the run was killed before the model said a word."""
    hold = Hold()
    place.server.script(hold, *answer("late"))
    process = tool.start(tool.ask, "asked and killed")
    if not hold.reached.wait(_PATIENCE):
        raise Failed(f"{tool.name} did not ask")
    process.kill()
    process.communicate()
    hold.set()
    return "asked and killed" in tool.run(tool.show).stdout


def _interrupted(tool: Tool, place: Lab) -> bool:
    """Whether what had come of an answer is there after Ctrl-C."""
    hold = Hold()
    pieces = answer("begun ", "rest")
    place.server.script(*pieces[:2], hold, *pieces[2:])
    process = tool.start(tool.ask, "asked and interrupted")
    hold.reached.wait(_PATIENCE)
    time.sleep(1)  # what has been sent is read; not all of them show it at once
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=_PATIENCE)
    hold.set()
    shown = tool.run(tool.show).stdout
    return "asked and interrupted" in shown and "begun" in shown


def _unread(tool: Tool, _place: Lab) -> int:
    """The lines on stderr where the reader of stdout has gone away, as behind ``| head``."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [*tool.ask, "hello"]
        done = subprocess.run(
            command, env=tool.home.env, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    return len(done.stderr.splitlines())


# What is compared, how it is measured, and how good a figure is: more is better.
_WORK: tuple[tuple[str, Callable[[Tool, Lab], Any], Callable[[Any], float]], ...] = (
    ("seconds to the first byte of an answer", _median(first_byte, _asks), operator.neg),
    ("seconds of the whole run", _median(whole, _asks), operator.neg),
    ("MiB of memory at most", _median(peak_memory, _asks), operator.neg),
    ("seconds of a list of these sessions", _median(whole, lambda tool: tool.list), operator.neg),
    (f"{_AT_ONCE} turns at once to one session: kept", _kept_at_once, float),
    ("exit code of an answer that was cut", _cut, bool),
    ("the question and the cut answer are kept", _kept_of_a_cut, float),
    ("a run killed before the answer: the question is kept", _killed, float),
    ("Ctrl-C in mid-answer: what had come is kept", _interrupted, float),
    ("lines on stderr where nobody reads stdout", _unread, operator.neg),
)


def beside() -> Table:
    """A row for each piece of work; it holds where no other tool does better."""
    with lab() as place:
        place.server.refuses = lambda _body: None  # a chat that shell-gpt goes on with after a failure has odd roles
        tools = _tools(place)
        rows = []
        for what, measure, goodness in _WORK:
            figures = [measure(tool, place) for tool in tools]
            best = max(map(goodness, figures))
            cells = [{True: "yes", False: "no"}[one] if isinstance(one, bool) else one for one in figures]
            rows.append(Row((what, *cells), goodness(figures[0]) == best))
    return Table("Beside other tools", _TEXT, ("What", *(tool.name for tool in tools)), rows)


_TEXT = f"""\
Each tool has an environment of its own with its current release (`make peers` makes it). All ask the same server, which
answers at once. Figures are medians of {_ROUNDS} runs. As pip installs them today, shell-gpt lacks click, and gptsh-cli
needs MCP's SDK below 2 and a litellm below 1.85, so these were added. *Held* is where no other does better."""
