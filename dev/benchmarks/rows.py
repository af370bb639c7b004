"""The rows of the table: each with its measurement, its yardstick and its budget."""

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from dev.benchmarks.clocks import (
    Finish,
    MeasurementError,
    after_answer,
    first_byte,
    first_word,
    peak_memory,
    printed_number,
    prompt_ready,
    run_parallel,
    run_time,
)
from dev.benchmarks.conversations import ALL, FEW
from dev.benchmarks.homes import BIN, GPTSH, Home, Lab
from tests.support.home import Home as UserHome
from tests.support.server import ModelServer, answer
from tests.support.talks import Talk, growing, turns_of

FAST, SLOW, SLOWEST = 25, 7, 5  # rounds
TIGHT = 15  # rounds of a slow row whose budget is as narrow as the noise of a shared machine
PARALLEL = 32
CROWD = 150
# Each 100 turns, in windows of 32k and more: short and long ones, with tools, an image, servers that count otherwise.
TALKS = (
    Talk(32_768, 10, 150), Talk(32_768, 60, 60, 1.6, small=False), Talk(32_768, 40, 800, 0.7),
    Talk(32_768, 10, 150, image=True), Talk(32_768, 60, 60, tools=True), Talk(65_536, 40, 1600, 1.6),
    Talk(65_536, 60, 60, tools=True), Talk(65_536, 10, 800, small=False), Talk(200_000, 40, 2000, 1.6),
    Talk(200_000, 10, 150, image=True),
)  # fmt: skip
# Seconds of the floor where the budgets in seconds were set. A slower machine gets more time, by its own floor.
FULL_SPEED = 0.056

# -P: without the script's folder in sys.path
BARE = (sys.executable, "-P", str(Path(__file__).parent / "bare_litellm.py"))
FLOOR_COMMAND = (sys.executable, "-c", "import click, platformdirs")
LLM_COMMAND = (str(BIN / "llm"), "-m", "lab", "hello")
ASK = (*GPTSH, "hello")
ASK_TEXT = (*GPTSH, "-o", "text", "hello")
ASK_CLAUDE = (*GPTSH, "-m", "anthropic/claude-sonnet-4-5", "hello")
ASK_LITELLM = (*GPTSH, "-m", "azure_ai/claude-sonnet-4-5", "hello")
_TOOL = '{"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}, "strict": false}'
ASK_TOOL = (*GPTSH, "-p", f"tools=[{_TOOL}]", "hello")
LIST = (*GPTSH, "--list-sessions")
LIST_TOOLS = (*GPTSH, "--list-tools")
SDK_COMMAND = (sys.executable, "-c", "import mcp")
TALK = (*GPTSH, "-i", "-s", "0")
USAGE = (*GPTSH, "--usage")
RESUME = (*GPTSH, "-s", "0", "-m", "echo", "hello")
SHOW = (*GPTSH, "--show-session", "0")

_ANSWER_TIME = 0.3  # seconds from the first word to the last; Markdown is imported meanwhile

_APPEND = """
import os, sys, time
from gptsh.core import sessions
(name,) = os.listdir(sessions.get_sessions_dir())
doc = sessions.load_session(name)
turn = [{"role": "user", "content": "and then?"}, {"role": "assistant", "content": "Then it ends."}]
sessions.append_messages(doc, turn, None)
started = time.perf_counter()
sessions.save_session(doc, at=name, fsync=True)
print(time.perf_counter() - started)
"""


class Yardstick(NamedTuple):
    """The measurement with which a row is compared, in the same unit."""

    name: str
    what: str
    measure: Callable[[Lab], float]


class Budget(NamedTuple):
    """The ``limit`` of a row. ``figure`` is computed from the medians of the row and of its yardstick."""

    text: str
    figure: Callable[[float, float], float]
    limit: float
    form: str = "{:.2f} x"  # of the figure


class Row(NamedTuple):
    """One row: ``measure`` returns a figure in ``unit``. It raises MeasurementError if the work was not done."""

    name: str
    measure: Callable[[Lab], float]
    budget: Budget
    yardstick: Yardstick
    rounds: int = FAST
    unit: str = "s"
    digits: int = 3


def times(factor: float) -> Budget:
    """At most ``factor`` times the yardstick."""
    return Budget(f"<= {factor:g} x", lambda median, yardstick: median / yardstick, factor)


def beyond_floor(seconds: float) -> Budget:
    """At most this much more than the floor, on a machine of full speed."""
    return Budget(
        f"<= +{seconds:g} s",
        lambda median, floor: (median - floor) * FULL_SPEED / floor,
        seconds,
        "{:+.3f} s",
    )


def within(seconds: float) -> Budget:
    """At most this long, on a machine of full speed; the yardstick is the floor."""
    return Budget(
        f"<= {seconds:g} s", lambda median, floor: median * FULL_SPEED / floor, seconds, "{:.4f} s"
    )


def at_most(limit: float, unit: str) -> Budget:
    """At most ``limit``, whatever the yardstick."""
    return Budget(f"<= {limit:g} {unit}", lambda median, _: median, limit, f"{{:.1f}} {unit}")


def any_time(text: str) -> Budget:
    """No limit; ``measure`` itself checks the result."""
    return Budget(text, lambda median, yardstick: median / yardstick, math.inf)


def search(lab: Lab, word: str) -> float:
    """Seconds of a search among 10,000 sessions of 80 MB."""
    return run_time((*GPTSH, "--search-sessions", word), lab.searched.env)


def ask_pdf(home: Home) -> tuple[str, ...]:
    """The command that asks about the document in a home's folder."""
    return (*GPTSH, "-f", str(home.folder / "a.pdf"), "hello")


def append(home: Home) -> float:
    """Seconds to save one more turn, in a process that has read the session."""
    return printed_number([sys.executable, "-c", _APPEND], home.env)


def end_of_run(server: ModelServer, home: Home, model: str, *, terminal: bool) -> float:
    """Seconds from the end of the server's answer to the end of a process that begins a session without a title."""
    finish, (start, first, *events, last) = Finish(), answer("You said: ", "hello")
    server.script(start, first, _ANSWER_TIME, *events, finish, last, model=model)
    return after_answer(ASK, home.env, finish, terminal=terminal)


def titled_end(lab: Lab) -> float:
    """The same for a hosted provider whose title arrives. Raises MeasurementError if it is not saved."""
    server, home = lab.hosted
    server.unstreamed("A Title", model="gpt-4")
    took = end_of_run(server, home, "gpt-4.1", terminal=False)
    newest = max(home.sessions.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    if json.loads(newest.read_bytes())["title"] != "A Title":
        raise MeasurementError("the session has no title")
    return took


def untitled_end(lab: Lab) -> float:
    """The same for a hosted provider whose title never arrives."""
    server, home = lab.hosted
    never = threading.Event()
    server.script(never, model="gpt-4")
    took = end_of_run(server, home, "gpt-4.1", terminal=False)
    never.set()
    return took


def check_saved(home: Home, questions: Collection[str]) -> None:
    """Raises MeasurementError unless each of these questions is saved once, with its answer after it."""
    saved = []
    for path in home.sessions.glob("*.json"):
        texts = [message["content"] for message in json.loads(path.read_bytes())["messages"]]
        pairs = zip(texts[::2], texts[1::2], strict=False)
        saved += [question for question, answer in pairs if answer == f"You said: {question}"]
    if sorted(saved) != sorted(questions):
        raise MeasurementError(f"{len(saved)} of {len(questions)} turns were saved")


def parallel_resumes(lab: Lab) -> float:
    """Seconds of 32 parallel runs that resume one session. Raises MeasurementError unless all turns are saved."""
    home = lab.asking()
    run_time([*GPTSH, "begin"], home.env)
    questions = [f"turn {number}" for number in range(PARALLEL)]
    took = run_parallel([[*GPTSH, "-s", "0", question] for question in questions], home.env)
    check_saved(home, ["begin", *questions])
    return took


def crowd(lab: Lab) -> float:
    """Seconds of 150 runs, 32 at once: every second one resumes the same session, the others begin one.

    Raises MeasurementError unless all turns are saved.
    """
    home = lab.asking()
    questions = [f"turn {number}" for number in range(CROWD)]
    commands = []
    for number, question in enumerate(questions):
        session = ["-s", "@crowd"] if number % 2 else []
        commands.append([*GPTSH, *session, question])
    started = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(run_time, commands, repeat(home.env)))
    took = time.perf_counter() - started
    check_saved(home, questions)
    return took


def begun_anew(lab: Lab) -> float:
    """Per cent of the requests of 1,000 turns that do not begin with the whole previous one."""
    grown = total = 0
    for talk in TALKS:
        turns = [*turns_of(UserHome(lab.home().folder), talk, 100)]
        if failed := [turn.notes for turn in turns if turn.code != 0]:
            raise MeasurementError(failed[0])
        grown, total = grown + growing(turns), total + sum(len(turn.requests) for turn in turns) - 1
    return 100 * (1 - grown / total)


FLOOR = Yardstick(
    "floor",
    'python -c "import click, platformdirs"',
    lambda lab: run_time(FLOOR_COMMAND, lab.usual.env),
)
LLM = Yardstick(
    "llm",
    "first byte of the llm package on the same server",
    lambda lab: first_byte(LLM_COMMAND, lab.llm.env),
)
BARE_FIRST = Yardstick(
    "bare",
    "first byte of dev/benchmarks/bare_litellm.py: import and call, garbage collection off",
    lambda lab: first_byte([*BARE, lab.anthropic.base_url], lab.through_litellm.env),
)
BARE_WHOLE = Yardstick(
    "bare, whole",
    "the same until its process has ended",
    lambda lab: run_time([*BARE, lab.anthropic.base_url], lab.through_litellm.env),
)
TEXT_WORD = Yardstick(
    "text",
    "first word of the same answer with -o text",
    lambda lab: first_word(ASK_TEXT, lab.direct.env, "You"),
)
SDK = Yardstick("SDK", 'python -c "import mcp"', lambda lab: run_time(SDK_COMMAND, lab.usual.env))
FLOOR_MEMORY = Yardstick(
    "floor memory",
    "peak memory of the floor",
    lambda lab: peak_memory(FLOOR_COMMAND, lab.usual.env),
)
FLOORS = Yardstick(
    f"{PARALLEL} floors",
    "that many floors at once",
    lambda lab: run_parallel([FLOOR_COMMAND] * PARALLEL, lab.usual.env),
)

ROWS = (
    Row("--help", lambda lab: run_time([*GPTSH, "--help"], lab.usual.env), times(1.5), FLOOR),
    Row("--list-sessions", lambda lab: run_time(LIST, lab.usual.env), times(1.5), FLOOR),
    Row("-s REF resolution", lambda lab: run_time(SHOW, lab.usual.env), times(1.5), FLOOR),
    Row(
        "first answer byte, direct", lambda lab: first_byte(ASK, lab.direct.env), times(1.7), FLOOR
    ),
    Row(
        "first answer byte, Anthropic API",
        lambda lab: first_byte(ASK_CLAUDE, lab.claude.env),
        times(1.8),
        FLOOR,
    ),
    Row(
        "first answer byte over HTTPS, direct",
        lambda lab: first_byte(ASK, lab.secure[0].env),
        times(1.9),
        FLOOR,
    ),
    Row(
        "first answer byte over HTTPS, Anthropic API",
        lambda lab: first_byte(ASK_CLAUDE, lab.secure[1].env),
        times(1.9),
        FLOOR,
    ),
    Row(
        "first answer byte over HTTPS, all authorities in one file",
        lambda lab: first_byte(ASK, lab.secure[2].env),
        times(1.9),
        FLOOR,
    ),
    Row(
        "first answer byte, Ollama API",
        lambda lab: first_byte(ASK, lab.ollama.env),
        times(1.8),
        FLOOR,
    ),
    Row(
        "first answer byte, Responses API",
        lambda lab: first_byte(ASK, lab.openai.env),
        times(1.8),
        FLOOR,
    ),
    Row(
        "first answer byte, Responses, a tool",
        lambda lab: first_byte(ASK_TOOL, lab.openai.env),
        times(1.8),
        FLOOR,
    ),
    Row(
        "first answer byte, Responses, a PDF",
        lambda lab: first_byte(ask_pdf(lab.openai), lab.openai.env),
        times(2.1),
        FLOOR,
    ),
    Row(
        "first answer byte, Gemini API",
        lambda lab: first_byte(ASK, lab.google.env),
        times(1.8),
        FLOOR,
    ),
    Row(
        "first answer byte, Gemini, a tool",
        lambda lab: first_byte(ASK_TOOL, lab.google.env),
        times(1.8),
        FLOOR,
    ),
    Row(
        "first answer byte, Gemini, a PDF",
        lambda lab: first_byte(ask_pdf(lab.google), lab.google.env),
        times(2.1),
        FLOOR,
    ),
    Row(
        "first answer byte, compared with llm",
        lambda lab: first_byte(ASK, lab.direct.env),
        times(0.18),
        LLM,
        SLOW,
    ),
    Row(
        "first word of an answer on a terminal",
        lambda lab: first_word(ASK, lab.direct.env, "You"),
        times(1.3),
        TEXT_WORD,
    ),
    # A provider that gptsh asks through litellm.
    Row(
        "first answer byte through litellm",
        lambda lab: first_byte(ASK_LITELLM, lab.through_litellm.env),
        times(1.05),
        BARE_FIRST,
        TIGHT,
    ),
    Row(
        "whole process through litellm",
        lambda lab: run_time(ASK_LITELLM, lab.through_litellm.env),
        any_time("none"),
        BARE_WHOLE,
        SLOWEST,
    ),
    Row(
        "--list-tools, two servers",
        lambda lab: run_time(LIST_TOOLS, lab.tools.env),
        times(1.2),
        SDK,
    ),
    Row(
        "list 10,000 sessions", lambda lab: run_time(LIST, lab.many.env), beyond_floor(0.25), FLOOR
    ),
    Row(
        "its first line, list of 10,000",
        lambda lab: first_byte(LIST, lab.many.env),
        beyond_floor(0.02),
        FLOOR,
    ),
    Row(
        "--show-session 0 among 100,000",
        lambda lab: run_time(SHOW, lab.most.env),
        beyond_floor(0.15),
        FLOOR,
    ),
    Row(
        "-s 0 among 100,000", lambda lab: run_time(RESUME, lab.most.env), beyond_floor(0.15), FLOOR
    ),
    Row(
        "search 10,000 sessions, a word in few",
        lambda lab: search(lab, FEW),
        beyond_floor(0.5),
        FLOOR,
    ),
    Row(
        "search 10,000 sessions, a word in all",
        lambda lab: search(lab, ALL),
        beyond_floor(0.8),
        FLOOR,
    ),
    Row(
        "usage of 10,000 sessions",
        lambda lab: run_time(USAGE, lab.many.env),
        beyond_floor(0.3),
        FLOOR,
        SLOW,
    ),
    Row(
        "question to a session of 80 MB",
        lambda lab: run_time(RESUME, lab.eighty_megabytes.env),
        within(3.0),
        FLOOR,
        SLOWEST,
    ),
    Row(
        "peak memory, question to a session of 80 MB",
        lambda lab: peak_memory(RESUME, lab.eighty_megabytes.env),
        at_most(400, "MiB"),
        FLOOR_MEMORY,
        SLOWEST,
        "MiB",
        1,
    ),
    Row(
        "prompt of -i, session of 5,000 messages",
        lambda lab: prompt_ready(TALK, lab.five_thousand.env),
        times(4),
        FLOOR,
    ),
    Row(
        "append to 1,000 messages, 1 MB",
        lambda lab: append(lab.megabyte),
        within(0.02),
        FLOOR,
        digits=4,
    ),
    Row(
        "append to 1,000 messages, 10 MB",
        lambda lab: append(lab.ten_megabytes),
        within(0.15),
        FLOOR,
        digits=4,
    ),
    Row(
        "end of the answer to the exit, title left to the background",
        lambda lab: end_of_run(lab.server, lab.titled, "m", terminal=True),
        within(0.05),
        FLOOR,
        digits=4,
    ),
    Row("end of the answer to the exit, title included", titled_end, within(0.05), FLOOR, digits=4),
    Row(
        "end of the answer to the exit, title never arrives",
        untitled_end,
        within(0.05),
        FLOOR,
        digits=4,
    ),
    Row(
        "peak memory, one-shot, direct",
        lambda lab: peak_memory(ASK, lab.direct.env),
        at_most(40, "MiB"),
        FLOOR_MEMORY,
        SLOW,
        "MiB",
        1,
    ),
    Row("requests that begin anew, of 1,000 turns", begun_anew, at_most(5, "%"), FLOOR, 1, "%", 1),
    Row(
        f"{PARALLEL} parallel resumes",
        parallel_resumes,
        any_time("all turns kept"),
        FLOORS,
        SLOWEST,
    ),
    Row(f"{CROWD} runs, {PARALLEL} at once", crowd, any_time("all turns kept"), FLOORS, 1),
)
