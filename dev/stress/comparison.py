"""Compare gptsh with three similar tools, each in its own environment, which ``make comparison`` creates."""

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

from dev.benchmarks.clocks import MeasurementError, first_byte, peak_memory, run_time
from dev.benchmarks.homes import GPTSH, Home, Lab, lab
from dev.stress.bars import bars
from dev.stress.table import Row, Table
from tests.support.server import Cut, Hold, answer

_ENVIRONMENTS = Path(__file__).parent.parent.parent / ".venv-comparison"
_CHART = Path(__file__).parent.parent.parent / "docs" / "first-byte.svg"
_CHART_TITLE = "From Enter to the first byte of an answer, same server"
_ROUNDS = 5
_PARALLEL = 20
_TIMEOUT = (
    300  # seconds after which a run counts as hung; twenty parallel imports of litellm are slow
)


class Tool(NamedTuple):
    """The commands of one tool: ``resume`` continues the newest session, ``show`` prints it."""

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
            timeout=_TIMEOUT,
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
    """The tools, gptsh first. Each has its own home, with the server as its only provider."""
    url = place.server.base_url
    ours = Tool("gptsh", place.asking(), GPTSH, (*GPTSH, "-s", "0"), (*GPTSH, "--list-sessions"),
               (*GPTSH, "--show-session", "0"))  # fmt: skip
    command = str(_ENVIRONMENTS / "llm/bin/llm")
    llm = Tool(_name_and_version("llm"), place.llm, (command, "-m", "lab"), (command, "-c"),
               (command, "logs", "list", "--short", "-n", "0"), (command, "logs", "list", "-n", "0"))  # fmt: skip
    command = str(_ENVIRONMENTS / "shell-gpt/bin/sgpt")
    home = place.home(
        OPENAI_API_KEY="x", API_BASE_URL=url, DEFAULT_MODEL="m", PRETTIFY_MARKDOWN="false"
    )
    home.env.update(
        {"CHAT_CACHE_PATH": str(home.folder / "chats"), "CACHE_PATH": str(home.folder / "cache")}
    )
    chat = (command, "--no-cache", "--chat", "talk")
    shell = Tool(_name_and_version("shell-gpt"), home, chat, chat, (command, "--list-chats"),
                 (command, "--show-chat", "talk"))  # fmt: skip
    command = str(_ENVIRONMENTS / "gptsh-cli/bin/gptsh")
    # Else it tries for ten seconds to download the price list.
    home = place.home(LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_API_KEY="x", OPENAI_BASE_URL=url)
    folder = home.folder / ".config/gptsh"
    folder.mkdir(parents=True)
    provider = {"model": "openai/m", "api_key": "x", "base_url": url}
    agents = {"default": {"model": "openai/m"}}
    config = {"default_agent": "default", "default_provider": "openai", "agents": agents}
    (folder / "config.yml").write_text(
        json.dumps(config | {"providers": {"openai": provider}})
    )  # JSON is YAML
    cli = Tool(_name_and_version("gptsh-cli"), home, (command, "--no-tools"), (command, "--no-tools", "-s", "0"),
               (command, "--list-sessions"), (command, "--show-session", "0"))  # fmt: skip
    return [ours, llm, shell, cli]


def _name_and_version(package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run(
        [_ENVIRONMENTS / package / "bin/python", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    return f"{package} {found.stdout.strip()}"


def _median(
    measure: Callable[..., float], command: Callable[[Tool], Sequence[str]]
) -> Callable[[Tool, Lab], float]:
    def median(tool: Tool, _place: Lab) -> float:
        figures = [measure(command(tool), tool.home.env) for _ in range(_ROUNDS + 1)]
        return round(statistics.median(figures[1:]), 2)  # the first run warms the caches

    return median


def _ask_hello(tool: Tool) -> Sequence[str]:
    return (*tool.ask, "hello")


def _saved_in_parallel(tool: Tool, _place: Lab) -> int:
    """How many turns of parallel runs are in the session afterwards."""
    tool.run(tool.ask, "begin")
    running = [tool.start(tool.resume, f"turn {number:02} of many") for number in range(_PARALLEL)]
    try:
        for process in running:
            process.communicate(timeout=_TIMEOUT)
    finally:
        for process in running:
            process.kill()
    shown = tool.run(tool.show).stdout
    return sum(f"You said: turn {number:02} of many" in shown for number in range(_PARALLEL))


def _code_after_cut(tool: Tool, place: Lab) -> int:
    """The exit code of an answer whose connection was cut."""
    for _ in range(9):  # some tools ask again
        place.server.script(*answer("kept ", "lost")[:2], Cut)
    code = tool.run(tool.ask, "and what is cut?").returncode
    place.server.forget()
    return code


def _is_cut_answer_saved(tool: Tool, _place: Lab) -> bool:
    """Whether the session has the question and the partial answer of ``_code_after_cut``, which ran before."""
    shown = tool.run(tool.show).stdout
    return "and what is cut?" in shown and "kept" in shown


def _is_question_saved(tool: Tool, place: Lab) -> bool:
    """Whether the question is saved when the run is killed before the first word of the answer."""
    hold = Hold()
    place.server.script(hold, *answer("late"))
    process = tool.start(tool.ask, "asked and killed")
    if not hold.reached.wait(_TIMEOUT):
        raise MeasurementError(f"{tool.name} did not ask")
    process.kill()
    process.communicate()
    hold.set()
    return "asked and killed" in tool.run(tool.show).stdout


def _is_interrupted_answer_saved(tool: Tool, place: Lab) -> bool:
    """Whether the partial answer is saved after Ctrl-C."""
    hold = Hold()
    pieces = answer("begun ", "rest")
    place.server.script(*pieces[:2], hold, *pieces[2:])
    process = tool.start(tool.ask, "asked and interrupted")
    hold.reached.wait(_TIMEOUT)
    time.sleep(1)  # time to read the first piece; not every tool prints it at once
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=_TIMEOUT)
    hold.set()
    shown = tool.run(tool.show).stdout
    return "asked and interrupted" in shown and "begun" in shown


def _noise_after_broken_pipe(tool: Tool, _place: Lab) -> int:
    """The number of lines on stderr when the reader of stdout has exited, as with ``| head``."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [*tool.ask, "hello"]
        done = subprocess.run(
            command,
            env=tool.home.env,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    return len(done.stderr.splitlines())


# What is compared, its measurement, and a score of the figure: higher is better.
_WORK: tuple[tuple[str, Callable[[Tool, Lab], Any], Callable[[Any], float]], ...] = (
    ("seconds to the first byte of an answer", _median(first_byte, _ask_hello), operator.neg),
    ("seconds of the whole run", _median(run_time, _ask_hello), operator.neg),
    ("peak memory in MiB", _median(peak_memory, _ask_hello), operator.neg),
    (
        "seconds of a list of these sessions",
        _median(run_time, lambda tool: tool.list),
        operator.neg,
    ),
    (f"{_PARALLEL} parallel turns in one session: saved", _saved_in_parallel, float),
    ("exit code after a cut connection", _code_after_cut, bool),
    ("the question and the cut answer are saved", _is_cut_answer_saved, float),
    ("a run killed before the answer: the question is saved", _is_question_saved, float),
    ("Ctrl-C during the answer: the partial answer is saved", _is_interrupted_answer_saved, float),
    ("lines on stderr after a broken pipe", _noise_after_broken_pipe, operator.neg),
)


def table() -> Table:
    """A row for each measurement; it holds if no other tool is better."""
    with lab() as place:
        place.server.refuses = lambda _body: (
            None
        )  # after a failure, shell-gpt sends roles in an odd order
        tools = _tools(place)
        rows = []
        for what, measure, score in _WORK:
            figures = [measure(tool, place) for tool in tools]
            best = max(map(score, figures))
            cells = [
                {True: "yes", False: "no"}[figure] if isinstance(figure, bool) else figure
                for figure in figures
            ]
            rows.append(Row((what, *cells), score(figures[0]) == best))
    first_bytes = [float(str(cell)) for cell in rows[0].cells[1:]]
    _CHART.write_text(
        bars(
            _CHART_TITLE, [(tool.name, cell) for tool, cell in zip(tools, first_bytes, strict=True)]
        )
    )
    return Table(
        "Compared with other tools",
        _TEXT,
        ("What", *(tool.name for tool in tools)),
        rows,
        is_folded=False,
    )


_TEXT = f"""\
`make comparison` creates an environment for each tool with its current release. All ask the same server, which answers
immediately. Figures are medians of {_ROUNDS} runs. As pip installs them today, shell-gpt lacks click, and gptsh-cli
needs MCP's SDK below 2 and a litellm below 1.85, so these were added. *Held* means that no other tool is better."""
