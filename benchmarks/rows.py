"""The rows of the table: what is measured, against what, and what it may cost."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.clocks import Failed, first_byte, first_word, peak_memory, prompt_ready, together, told, whole
from benchmarks.homes import BIN, GPTSH, Home, Lab
from benchmarks.talks import ALL, FEW

CHEAP, DEAR, DEAREST = 25, 7, 5  # rounds
CLOSE = 15  # rounds of seconds each, for a budget that is as narrow as the noise of a shared machine
AT_ONCE = 32

# -P: the script's folder is no place to import from.
BARE = (sys.executable, "-P", str(Path(__file__).parent / "bare_litellm.py"))
FLOOR_COMMAND = (sys.executable, "-c", "import click, platformdirs")
LLM_COMMAND = (str(BIN / "llm"), "-m", "lab", "hello")
ASK = (*GPTSH, "hello")
ASK_TEXT = (*GPTSH, "-o", "text", "hello")
ASK_CLAUDE = (*GPTSH, "-m", "anthropic/claude-sonnet-4-5", "hello")
ASK_LITELLM = (*GPTSH, "-m", "azure_ai/claude-sonnet-4-5", "hello")
LIST = (*GPTSH, "--list-sessions")
LIST_TOOLS = (*GPTSH, "--list-tools")
SDK_COMMAND = (sys.executable, "-c", "import mcp")
TALK = (*GPTSH, "-i", "-s", "0")
SHOW = (*GPTSH, "--show-session", "0")

_APPEND = """
import os, sys, time
from gptsh.core import sessions
(name,) = os.listdir(sessions.get_sessions_dir())
doc = sessions.load_session(name)
turn = [{"role": "user", "content": "and then?"}, {"role": "assistant", "content": "Then it ends."}]
sessions.append_messages(doc, turn, None)
started = time.perf_counter()
sessions.save_session(doc, at=name, fsync=True)
print((time.perf_counter() - started) * 1000)
"""


class Yardstick(NamedTuple):
    """What a row is compared with, measured in turn with it and in its unit."""

    name: str
    what: str
    measure: Callable[[Lab], float]


class Budget(NamedTuple):
    """What a row may cost, given its median and that of its yardstick."""

    text: str
    holds: Callable[[float, float], bool]


class Row(NamedTuple):
    """One row: ``measure`` returns a figure in ``unit`` and raises Failed where the work was not done."""

    name: str
    measure: Callable[[Lab], float]
    budget: Budget
    yardstick: Yardstick
    rounds: int = CHEAP
    unit: str = "s"
    digits: int = 3


def times(factor: float) -> Budget:
    """So many times the yardstick."""
    return Budget(f"<= {factor:g} x", lambda median, yardstick: median <= factor * yardstick)


def beyond(more: float, unit: str) -> Budget:
    """So much more than the yardstick."""
    return Budget(f"<= +{more:g} {unit}", lambda median, yardstick: median - yardstick <= more)


def at_most(limit: float, unit: str) -> Budget:
    """So much, whatever the yardstick."""
    return Budget(f"<= {limit:g} {unit}", lambda median, _: median <= limit)


def any_time(text: str) -> Budget:
    """No limit: what has to hold is checked while measuring."""
    return Budget(text, lambda *_: True)


def search(lab: Lab, word: str) -> float:
    """Seconds of a search among 10,000 sessions of 80 MB."""
    return whole((*GPTSH, "--search-sessions", word), lab.searched.env)


def append(home: Home) -> float:
    """Milliseconds to save one more turn, in a process that has read the session."""
    return told([sys.executable, "-c", _APPEND], home.env)


def plain_write(home: Home) -> float:
    """Milliseconds to write the bytes of the home's session to a new file and to wait for the disk."""
    (path,) = home.sessions.iterdir()
    data, copy = path.read_bytes(), home.folder / "copy"
    started = time.perf_counter()
    with open(copy, "wb", buffering=0) as file:
        file.write(data)
        os.fsync(file)
    took = time.perf_counter() - started
    copy.unlink()
    return took * 1000


def parallel_resumes(lab: Lab) -> float:
    """Seconds of 32 runs that go on with one session at once. Raises Failed unless all of their turns are kept."""
    home = lab.asking()
    whole([*GPTSH, "begin"], home.env)
    took = together([[*GPTSH, "-s", "0", f"turn {number}"] for number in range(AT_ONCE)], home.env)
    said = [message["content"] for message in home.doc()["messages"]]
    kept = {question for question, reply in zip(said[::2], said[1::2], strict=False) if reply.endswith(question)}
    if len(said) != 2 * (AT_ONCE + 1) or kept != {"begin", *(f"turn {number}" for number in range(AT_ONCE))}:
        raise Failed(f"{len(kept) - 1} of {AT_ONCE} turns were kept")
    return took


FLOOR = Yardstick("floor", 'python -c "import click, platformdirs"', lambda lab: whole(FLOOR_COMMAND, lab.usual.env))
LLM = Yardstick(
    "llm", "first byte of the llm package on the same server", lambda lab: first_byte(LLM_COMMAND, lab.llm.env)
)
BARE_FIRST = Yardstick(
    "bare",
    "first byte of benchmarks/bare_litellm.py: import and call, garbage collection off",
    lambda lab: first_byte([*BARE, lab.anthropic.base_url], lab.through_litellm.env),
)
BARE_WHOLE = Yardstick(
    "bare, whole",
    "the same until its process has ended",
    lambda lab: whole([*BARE, lab.anthropic.base_url], lab.through_litellm.env),
)
WRITE = Yardstick("write", "1 MB written and synced to the disk, nothing else", lambda lab: plain_write(lab.megabyte))
WRITE_TEN = Yardstick("write, 10 MB", "the same with 10 MB", lambda lab: plain_write(lab.ten_megabytes))
TEXT_WORD = Yardstick(
    "text", "first word of the same answer with -o text", lambda lab: first_word(ASK_TEXT, lab.direct.env, "You")
)
SDK = Yardstick("SDK", 'python -c "import mcp"', lambda lab: whole(SDK_COMMAND, lab.usual.env))
FLOOR_MEMORY = Yardstick(
    "floor memory", "peak memory of the floor", lambda lab: peak_memory(FLOOR_COMMAND, lab.usual.env)
)
FLOORS = Yardstick(
    f"{AT_ONCE} floors", "that many floors at once", lambda lab: together([FLOOR_COMMAND] * AT_ONCE, lab.usual.env)
)

ROWS = (
    Row("--help", lambda lab: whole([*GPTSH, "--help"], lab.usual.env), times(1.5), FLOOR),
    Row("--list-sessions", lambda lab: whole(LIST, lab.usual.env), times(1.5), FLOOR),
    Row("-s REF resolution", lambda lab: whole(SHOW, lab.usual.env), times(1.5), FLOOR),
    Row("first answer byte, direct", lambda lab: first_byte(ASK, lab.direct.env), times(1.8), FLOOR),
    Row("first answer byte, Anthropic API", lambda lab: first_byte(ASK_CLAUDE, lab.claude.env), times(1.9), FLOOR),
    Row("first answer byte, Ollama API", lambda lab: first_byte(ASK, lab.ollama.env), times(1.9), FLOOR),
    Row("first answer byte, beside llm", lambda lab: first_byte(ASK, lab.direct.env), times(0.2), LLM, DEAR),
    Row(
        "first word of an answer on a terminal",
        lambda lab: first_word(ASK, lab.direct.env, "You"),
        times(1.3),
        TEXT_WORD,
    ),
    # Of a provider for which gptsh speaks no API of its own.
    Row(
        "first answer byte through litellm",
        lambda lab: first_byte(ASK_LITELLM, lab.through_litellm.env),
        times(1.05),
        BARE_FIRST,
        CLOSE,
    ),
    Row(
        "whole process through litellm",
        lambda lab: whole(ASK_LITELLM, lab.through_litellm.env),
        any_time("none"),
        BARE_WHOLE,
        DEAREST,
    ),
    Row("--list-tools, two servers", lambda lab: whole(LIST_TOOLS, lab.tools.env), times(1.2), SDK),
    Row("list 10,000 sessions", lambda lab: whole(LIST, lab.many.env), beyond(0.25, "s"), FLOOR),
    Row("its first line, list of 10,000", lambda lab: first_byte(LIST, lab.many.env), beyond(0.02, "s"), FLOOR),
    Row("resolve 0 among 100,000", lambda lab: whole(SHOW, lab.most.env), beyond(0.15, "s"), FLOOR),
    Row("search 10,000 sessions, a word in few", lambda lab: search(lab, FEW), beyond(0.5, "s"), FLOOR),
    # It prints every session, for which the list alone takes a good third of that.
    Row("search 10,000 sessions, a word in all", lambda lab: search(lab, ALL), beyond(0.75, "s"), FLOOR),
    Row(
        "prompt of -i, session of 5,000 messages",
        lambda lab: prompt_ready(TALK, lab.five_thousand.env),
        times(4),
        FLOOR,
    ),
    Row("append to 1,000 messages, 1 MB", lambda lab: append(lab.megabyte), at_most(20, "ms"), WRITE, CHEAP, "ms", 1),
    Row(
        "append to 1,000 messages, 10 MB",
        lambda lab: append(lab.ten_megabytes),
        at_most(150, "ms"),
        WRITE_TEN,
        CHEAP,
        "ms",
        1,
    ),
    Row(
        "peak memory, one-shot, direct",
        lambda lab: peak_memory(ASK, lab.direct.env),
        at_most(40, "MiB"),
        FLOOR_MEMORY,
        DEAR,
        "MiB",
        1,
    ),
    Row(f"{AT_ONCE} parallel resumes", parallel_resumes, any_time("all turns kept"), FLOORS, DEAREST),
)
