"""Write docs/session.cast, five minutes of gptsh in a shell: ``python -m dev.man.recording``, or ``make recording``.

A shell runs on a pseudo-terminal and gets real keys. A scripted model on loopback answers. The output is written as an
asciinema cast. Each step waits for its expected output, so a behaviour that has changed ends the recording. The cast
has no data of this machine. The pauses of a user are added to the times, without waiting.
"""

import codecs
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import sys
import termios
import time
from pathlib import Path
from typing import Any

from tests.support.emulator import Emulator
from tests.support.home import Home
from tests.support.server import ModelServer, answer, chunk, event

FILE = Path(__file__).parent.parent.parent / "docs" / "session.cast"
COLUMNS, ROWS = 100, 30
_KEY, _LINE, _READ = 0.06, 0.5, 2.5  # seconds for a key, before Enter, and to read the output
_MERGE = 0.04  # seconds within which output is one event
_HOME = "/home/ann"  # replaces the temporary folder; of the same length, so that rows break at the same place
_PASTE = "\n".join(
    f"test_{number:02} ... {'FAILED: 3 != 2' if number == 17 else 'ok'}" for number in range(1, 41)
)

_RING = [
    "## A ring buffer\n\n", "It keeps the **newest** N items: ", "what is written beyond them takes the place ",
    "of the oldest one.\n\n```python\n", "class Ring:\n", "    def __init__(self, size):\n",
    "        self.items = [None] * size\n", "        self.at = 0\n\n", "    def add(self, item):\n",
    "        self.items[self.at] = item\n", "        self.at = (self.at + 1) % len(self.items)\n", "```\n\n",
    "| operation | time |\n|---|---|\n", "| add | O(1) |\n", "| read all | O(n) |\n\n", "- No memory is moved.\n",
    "- `collections.deque(maxlen=N)` does the same.\n",
]  # fmt: skip
_LONG = ["Once upon a time ", *("a lighthouse keeper counted the ships, " for _ in range(40))]


class Recorder:
    """A shell on a terminal, and its output with times: those of the clock plus all pauses."""

    def __init__(self, home: Home) -> None:
        self.events: list[tuple[float, str, str]] = []
        self.screen = Emulator(COLUMNS, ROWS)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._started, self._pauses = time.monotonic(), 0.0
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(home.cwd)
            os.execvpe("bash", ["bash", "--rcfile", str(home.folder / "rc"), "-i"], home.env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    @property
    def now(self) -> float:
        """Seconds since the start, plus all pauses."""
        return time.monotonic() - self._started + self._pauses

    @property
    def seen(self) -> str:
        """The text of the screen, without trailing blanks."""
        return "\n".join(row.rstrip() for row in self.screen.screen.display).rstrip("\n")

    def pump(self, seconds: float) -> None:
        """Record the output for so many seconds."""
        end = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            try:
                text = self._decoder.decode(os.read(self.fd, 1 << 16))
            except OSError:  # the shell has ended
                return
            self.screen.write(text)
            last = self.events[-1] if self.events else None
            if last and last[1] == "o" and self.now - last[0] < _MERGE:
                self.events[-1] = (last[0], "o", last[2] + text)
            else:
                self.events.append((self.now, "o", text))

    def until(self, pattern: str, read: float = _READ) -> None:
        """Wait until the screen matches, then add a pause for the user to read."""
        end = time.monotonic() + 60
        while not re.search(pattern, self.seen, re.MULTILINE):
            if time.monotonic() > end:
                raise SystemExit(f"{pattern!r} did not appear:\n{self.seen}")
            self.pump(0.05)
        self.pump(0.15)
        self._pauses += read

    def write(self, text: str, seconds: float = _KEY) -> None:
        """Type a text key by key; a sequence that starts with Esc is one key."""
        for key in [text] if text.startswith("\x1b") else text:
            os.write(self.fd, key.encode())
            self.pump(0.02)
            self._pauses += seconds

    def enter(self, line: str, pattern: str = "", read: float = _READ) -> None:
        """Type a line and Enter, then wait for a pattern."""
        self.write(line)
        self._pauses += _LINE
        self.write("\r")
        if pattern:
            self.until(pattern, read)

    def chapter(self, text: str) -> None:
        """Add a marker, and a comment at the shell's prompt."""
        self.events.append((self.now, "m", text))
        self.enter(f"clear; # {text}", r"\A\$\Z", 0.5)
        self.enter(f"# {text}", read=1)


def record(home: Home, model: ModelServer) -> Recorder:
    """Record all scenes."""
    model.pages["/v1/models"] = {"data": [{"id": "qwen3"}]}
    tape = Recorder(home)
    tape.until(r"\A\$$", 0.5)
    for scene in (
        _first_steps,
        _mistakes,
        _answer,
        _failed_call,
        _lists,
        _shell_command,
        _conversation,
        _resume,
        _dumb_terminal,
    ):
        scene(tape, model)
    return tape


def _first_steps(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("First steps: a config file")
    tape.enter("gptsh --init", r"Provider \[openai\]: *$")
    tape.enter("hosted_vllm", "Model: *$", 1)
    tape.enter("qwen3", r"Wrote (.|\n)*^\$$")
    tape.enter("gptsh --init", "already exists")
    tape.enter("head -14 config.toml", "default_agent")


def _mistakes(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("Mistakes get an answer that helps")
    _queue_answer(model, "I do not know which models you have.", title="Models at Hand")
    tape.enter(
        "gptsh models", r"the option is gptsh --list-models(.|\n)*which models you have(.|\n)*^\$$"
    )
    _wait_for_title(tape, model)
    tape.enter("gptsh -f https://example.org/a.txt 'sum it up'", r"curl -sSL https")


def _answer(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("An answer is shown as it is written")
    _queue_answer(model, "Hello!", title="A Greeting")
    tape.enter("gptsh -p temperature=0.2 hello", r"^Hello!")
    _wait_for_title(tape, model)
    _queue_answer(model, *_RING, title="Ring Buffers", pace=0.25)
    tape.enter("gptsh 'what is a ring buffer?'", r"deque\(maxlen=N\)(.|\n)*^\$$", 4)
    _wait_for_title(tape, model)


def _failed_call(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("A failed question is kept, and asked again")
    model.refuse(401, {"error": {"message": "Incorrect API key"}})
    tape.enter("gptsh 'name three colours'", "the question is saved")
    _queue_answer(model, "Red, green and blue.", title="Three Colours")
    tape.enter("gptsh -s 0", "^Red, green")
    _wait_for_title(tape, model)


def _lists(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("Lists of sessions, and a deletion that asks")
    tape.enter("gptsh --list-sessions", r"^\[0\] .*Three Colours(.|\n)*^\[3\] ")
    tape.enter("gptsh --list-sessions -m nosuch", "nothing found with a model like nosuch")
    tape.enter(
        "gptsh --delete-session 3", r"Delete session .*Models at Hand.* permanently\? \[y/N\] *$"
    )
    tape.enter("y", "^deleted ")


def _shell_command(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("A description becomes a command: Alt-E")
    tape.enter('eval "$(gptsh --shell-integration bash)"')
    _queue_answer(model, "```sh\nls -S | head -n 3\n```\n")
    tape.write("the three largest files here")
    tape.write("\x1be")
    tape.until(r"^\$ ls -S \| head -n 3 *$")
    tape.enter("", "config.toml")


def _conversation(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("A conversation")
    tape.enter("gptsh -i", "^new session · hosted_vllm/qwen3 · /help shows", 2)
    tape.enter("/help", "^ *Session:|^:", 2)
    tape.write(" ")
    tape.until("Ctrl-D exits", 2)
    tape.write("q")
    tape.until("^> *$", 1)
    _queue_answer(
        model,
        "Test 17 says that **3 is not 2**: one item too many is counted.",
        title="Test 17 Fails",
    )
    tape.write("what fails here? ")
    tape.write(f"\x1b[200~{_PASTE}\x1b[201~")
    tape.until(r"^> what fails here\? \[test_01 ... ok … 40 lines … test_40 ... ok\]")
    tape.enter("", r"one item too many(.|\n)*Test 17 Fails · hosted_vllm/qwen3 · ~")
    _queue_answer(model, *_LONG, pace=0.1)
    tape.enter("tell me a long story", "lighthouse", 1)
    tape.write("a shorter one, please")
    tape.write("\x03")
    tape.until(r"interrupted: the partial answer is kept(.|\n)*^> a shorter one, please *$")
    _queue_answer(model, "The ship came home.")
    tape.enter("", "^The ship came home(.|\n)*^> *$")
    tape.write("\x03")
    tape.until("^> *$", 1)
    tape.write("\x03")
    tape.until("Ctrl-D exits")
    tape.enter("/undo", "a fork after turn 2(.|\n)*^> a shorter one, please *$")
    tape.write("\x15/resume ring")
    tape.write("\t")
    tape.until("^> /resume [a-z0-9]{4} *$", 1)
    tape.write("\r")  # accept the completion
    tape.enter("", r"what is a ring buffer\?(.|\n)*/history shows all(.|\n)*Ring Buffers")
    tape.enter(":q", "the session is saved")


def _resume(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("Pick a session from the list and resume it")
    tape.enter("gptsh -r", "^Filter:(.|\n)*Test 17 Fails", 2)
    tape.write("long story")
    tape.until("1 of 4", 2)
    tape.enter("", "earlier turn|tell me a long story(.|\n)*^> *$", 3)
    tape.enter("exit", "the session is saved")


def _dumb_terminal(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("A terminal without escape sequences")
    _queue_answer(model, "Yes, plain words.", title="Plain Words")
    tape.enter("TERM=dumb gptsh -i", "^> *$", 1)
    tape.enter("does it work?", "^Yes, plain words(.|\n)*^> *$", 2)
    tape.write("\x04")
    tape.until("^gptsh: the session is saved(.|\n)*^\\$ *$", 3)


def _wait_for_title(tape: Recorder, model: ModelServer) -> None:
    """Wait until gptsh has asked for the title, which it does a second after the answer."""
    while model.has_queued:
        tape.pump(0.1)


def _queue_answer(model: ModelServer, *pieces: str, title: str = "", pace: float = 0.05) -> None:
    """Queue an answer, a piece each ``pace`` seconds, and the title that gptsh asks for after it; without usage."""
    steps: list[Any] = []
    for piece in pieces:
        steps += [event(chunk({"content": piece})), pace]
    model.script(*steps, *answer(usage=None)[1:])
    if title:
        model.say(title)


def main() -> None:
    """Record the scenes and write the cast."""
    folder, model = Path(f"/tmp/g{os.getpid() % 1000:03}"), ModelServer()
    folder.mkdir(mode=0o700)
    try:
        home = Home(folder)
        (home.folder / "rc").write_text("PS1='$ '\nbind 'set enable-bracketed-paste off'\n")
        path = f"{Path(sys.executable).parent}:{home.env['PATH']}"
        home.env |= {
            "PATH": path, "TERM": "xterm-256color", "SHELL": "/bin/bash", "LESS": "FRX", "GPTSH_CONFIG": "config.toml",
            "HOSTED_VLLM_API_BASE": model.base_url, "OLLAMA_API_BASE": "http://127.0.0.1:9",
            "INPUTRC": "/dev/null", "BASH_SILENCE_DEPRECATION_WARNING": "1",
        }  # fmt: skip
        tape = record(home, model)
    finally:
        model.close()
        shutil.rmtree(folder, ignore_errors=True)
    head = {
        "version": 2,
        "width": COLUMNS,
        "height": ROWS,
        "title": "gptsh",
        "env": {"TERM": "xterm-256color"},
    }
    lines = [
        [round(at, 2), kind, text.replace(str(folder), _HOME)] for at, kind, text in tape.events
    ]
    FILE.write_text(
        "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (head, *lines)), "utf-8"
    )


if __name__ == "__main__":
    main()
