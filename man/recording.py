"""The recording of docs/: ``python -m man.recording``, or ``make recording``. Five minutes of gptsh in a shell.

A shell runs on a pseudo-terminal, real keys go in, a scripted model on loopback answers, and what is drawn is written
as an asciinema cast. Each step waits for what is to be seen, so that a behaviour that is lost ends the recording.
Nothing of the machine that it runs on is in it. The pauses of a person are only written down.
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

FILE = Path(__file__).parent.parent / "docs" / "session.cast"
COLUMNS, ROWS = 100, 30
_KEY, _LINE, _READ = 0.06, 0.5, 2.5  # seconds for a key, before a line is sent, and to read what came
_MERGED = 0.04  # seconds within which what is drawn is one event
_HOME = "/home/ann"  # stands for the folder that it is made in, and is as long, so that rows break where they did
_PASTE = "\n".join(f"test_{number:02} ... {'FAILED: 3 != 2' if number == 17 else 'ok'}" for number in range(1, 41))

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
    """A shell on a terminal, and what it draws, each piece at its time: that of the clock and of all pauses."""

    def __init__(self, home: Home) -> None:
        self.events: list[tuple[float, str, str]] = []
        self.screen = Emulator(COLUMNS, ROWS)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._began, self._pauses = time.monotonic(), 0.0
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(home.cwd)
            os.execvpe("bash", ["bash", "--rcfile", str(home.folder / "rc"), "-i"], home.env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    @property
    def now(self) -> float:
        """Seconds since the beginning, with all pauses."""
        return time.monotonic() - self._began + self._pauses

    @property
    def seen(self) -> str:
        """The screen, without the blanks at the end of each row."""
        return "\n".join(row.rstrip() for row in self.screen.screen.display).rstrip("\n")

    def pump(self, seconds: float) -> None:
        """Take what is drawn for so long."""
        end = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            try:
                text = self._decoder.decode(os.read(self.fd, 1 << 16))
            except OSError:  # the shell has ended
                return
            self.screen.write(text)
            last = self.events[-1] if self.events else None
            if last and last[1] == "o" and self.now - last[0] < _MERGED:
                self.events[-1] = (last[0], "o", last[2] + text)
            else:
                self.events.append((self.now, "o", text))

    def until(self, pattern: str, read: float = _READ) -> None:
        """Wait until the screen has it, and then as long as a person reads."""
        end = time.monotonic() + 60
        while not re.search(pattern, self.seen, re.MULTILINE):
            if time.monotonic() > end:
                raise SystemExit(f"{pattern!r} was not seen:\n{self.seen}")
            self.pump(0.05)
        self.pump(0.15)
        self._pauses += read

    def write(self, text: str, seconds: float = _KEY) -> None:
        """Type it, key by key; a sequence that begins with Esc is one key."""
        for key in [text] if text.startswith("\x1b") else text:
            os.write(self.fd, key.encode())
            self.pump(0.02)
            self._pauses += seconds

    def say(self, line: str, pattern: str = "", read: float = _READ) -> None:
        """Type a line, and wait for what comes of it."""
        self.write(line)
        self._pauses += _LINE
        self.write("\r")
        if pattern:
            self.until(pattern, read)

    def chapter(self, text: str) -> None:
        """A mark of the recording, and a comment at the shell's prompt."""
        self.events.append((self.now, "m", text))
        self.say(f"clear; # {text}", r"\A\$\Z", 0.5)
        self.say(f"# {text}", read=1)


def record(home: Home, model: ModelServer) -> Recorder:
    """All of it."""
    model.pages["/v1/models"] = {"data": [{"id": "qwen3"}]}
    tape = Recorder(home)
    tape.until(r"\A\$$", 0.5)
    for scene in (_first_steps, _slips, _answer, _failed_call, _lists, _wish, _conversation, _going_on, _dumb):
        scene(tape, model)
    return tape


def _first_steps(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("First steps: a config file")
    tape.say("gptsh --init", "Provider .*: *$")
    tape.say(model.base_url, r"name for this server \[lab\]: *$", 1)
    tape.say("", r"\[none\]: *$", 1)
    tape.say("", r"Default model \[lab/qwen3\]: *$", 1)
    tape.say("", r"is written\.(.|\n)*^\$$")
    tape.say("gptsh --init", "is there already: edit it")
    tape.say("head -12 config.toml", "default_agent")


def _slips(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("What a slip gets")
    _says(model, "I do not know which models you have.", title="Models at Hand")
    tape.say("gptsh models", r"the option is gptsh --list-models(.|\n)*which models you have(.|\n)*^\$$")
    tape.say("gptsh -f https://example.org/a.txt 'sum it up'", r"curl -sSL https")
    _says(model, "Hello!", title="A Greeting")
    tape.say("gptsh -p temprature=0.2 hello", r"did you mean temperature\?\n(.|\n)*^Hello!")


def _answer(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("An answer is shown as it is written")
    _says(model, *_RING, title="Ring Buffers", pace=0.25)
    tape.say("gptsh 'what is a ring buffer?'", r"deque\(maxlen=N\)(.|\n)*^\$$", 4)


def _failed_call(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("A failed first call leaves no trap")
    model.refuse(401, {"error": {"message": "Incorrect API key"}})
    tape.say("gptsh 'name three colours'", "the question is kept in session")
    _says(model, "Red, green and blue.", title="Three Colours")
    tape.say("gptsh 'name three colours'", "^Red, green")
    model.refuse(401, {"error": {"message": "Incorrect API key"}})
    tape.say("gptsh 'and three more'", "the question is kept in session", 1)
    tape.say("gptsh --prune-sessions --unanswered", "and three more(.|\n)*--yes")
    tape.say("gptsh --prune-sessions --unanswered --yes", "^deleted ")


def _lists(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("Lists that tell sessions apart, and a deletion that asks")
    tape.say("gptsh --list-sessions", r"^\[0\] .*Three Colours(.|\n)*^\[3\] ")
    tape.say("gptsh --list-sessions -m nosuch", "nothing found with a model like nosuch")
    tape.say("gptsh --delete-session 3", r"Delete session .*Models at Hand.* for good\? \[y/N\] *$")
    tape.say("y", "^deleted ")


def _wish(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("A wish becomes a command: Alt-E")
    tape.say('eval "$(gptsh --shell-integration bash)"')
    _says(model, "```sh\nls -S | head -n 3\n```\n")
    tape.write("the three largest files here")
    tape.write("\x1be")
    tape.until(r"^\$ ls -S \| head -n 3 *$")
    tape.say("", "config.toml")


def _conversation(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("A conversation")
    tape.say("gptsh -i", "^new session · lab/qwen3 · /help shows", 2)
    tape.say("/help", "^ *Session:|^:", 2)
    tape.write(" ")
    tape.until("Ctrl-D leaves", 2)
    tape.write("q")
    tape.until("^> *$", 1)
    _says(model, "Test 17 says that **3 is not 2**: one item too many is counted.", title="Test 17 Fails")
    tape.write("what fails here? ")
    tape.write(f"\x1b[200~{_PASTE}\x1b[201~")
    tape.until(r"^> what fails here\? \[test_01 ... ok … 40 lines … test_40 ... ok\]")
    tape.say("", r"one item too many(.|\n)*Test 17 Fails · lab/qwen3 · ~")
    _says(model, *_LONG, pace=0.1)
    tape.say("tell me a long story", "lighthouse", 1)
    tape.write("a shorter one, please")
    tape.write("\x03")
    tape.until(r"interrupted: what arrived is kept(.|\n)*^> a shorter one, please *$")
    _says(model, "The ship came home.")
    tape.say("", "^The ship came home(.|\n)*^> *$")
    tape.write("\x03")
    tape.until("^> *$", 1)
    tape.write("\x03")
    tape.until("Ctrl-D leaves")
    tape.say("/undo", "a fork after turn 2(.|\n)*^> a shorter one, please *$")
    tape.write("\x15/resume ring")
    tape.write("\t")
    tape.until("^> /resume [a-z0-9]{4} *$", 1)
    tape.write("\r")  # takes what is offered
    tape.say("", r"what is a ring buffer\?(.|\n)*/history shows all(.|\n)*Ring Buffers")
    tape.say(":q", "the session is kept")


def _going_on(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("The list of sessions, and going on where one was")
    tape.say("gptsh -r", "^Filter:(.|\n)*Test 17 Fails", 2)
    tape.write("long story")
    tape.until("1 of 4", 2)
    tape.say("", "earlier turn|tell me a long story(.|\n)*^> *$", 3)
    tape.say("exit", "the session is kept")


def _dumb(tape: Recorder, model: ModelServer) -> None:
    tape.chapter("A terminal that obeys no sequences")
    _says(model, "Yes, plain words.", title="Plain Words")
    tape.say("TERM=dumb gptsh -i", "^> *$", 1)
    tape.say("does it work?", "^Yes, plain words(.|\n)*^> *$", 2)
    tape.write("\x04")
    tape.until("^gptsh: the session is kept(.|\n)*^\\$ *$", 3)


def _says(model: ModelServer, *pieces: str, title: str = "", pace: float = 0.05) -> None:
    """Queue an answer whose pieces come at a pace, and the title that is asked for behind it; nothing is counted."""
    steps: list[Any] = []
    for piece in pieces:
        steps += [event(chunk({"content": piece})), pace]
    model.script(*steps, *answer(usage=None)[1:])
    if title:
        model.say(title)


def main() -> None:
    """Record, and write the cast."""
    folder, model = Path(f"/tmp/g{os.getpid() % 1000:03}"), ModelServer()
    folder.mkdir(mode=0o700)
    try:
        home = Home(folder)
        (home.folder / "rc").write_text("PS1='$ '\nbind 'set enable-bracketed-paste off'\n")
        path = f"{Path(sys.executable).parent}:{home.env['PATH']}"
        home.env |= {
            "PATH": path, "TERM": "xterm-256color", "SHELL": "/bin/bash", "LESS": "FRX", "GPTSH_CONFIG": "config.toml",
            "OLLAMA_API_BASE": "http://127.0.0.1:9", "INPUTRC": "/dev/null", "BASH_SILENCE_DEPRECATION_WARNING": "1",
        }  # fmt: skip
        tape = record(home, model)
    finally:
        model.close()
        shutil.rmtree(folder, ignore_errors=True)
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "gptsh", "env": {"TERM": "xterm-256color"}}
    lines = [[round(at, 2), kind, text.replace(str(folder), _HOME)] for at, kind, text in tape.events]
    FILE.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (head, *lines)), "utf-8")


if __name__ == "__main__":
    main()
