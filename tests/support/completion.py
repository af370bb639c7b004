"""Shell completion: the output of gptsh, and bash itself."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.home import Home, Result
from tests.support.terminal import Terminal

AGENTS = '[agents.terse]\nmodel = "lab/q:8b"\n[agents.thorough]\n[agents."two words"]\n'


def completion_output(home: Home, shell: str, line: str, config: str = "") -> Result:
    """The output of gptsh for a shell that completes the last word of the line."""
    *_, word = line.split(" ")
    count = word if shell == "fish" else str(len(line.split(" ")) - 1)
    if config:
        home.configure(config)
    return home.run(
        env={"_GPTSH_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": count}
    )


def completions(home: Home, line: str, config: str = "") -> list[str]:
    """The completions for bash; stderr must be empty."""
    run = completion_output(home, "bash", line, config)
    assert not run.stderr
    return [value.removeprefix("plain,").partition("\t")[0] for value in run.stdout.splitlines()]


class Bash:
    """An interactive bash with the completion, in a home with sessions, an agent and files."""

    def __init__(self, home: Home) -> None:
        home.configure(AGENTS)
        home.run("-m", "echo", "-s", "@work", "hi")
        home.run("-m", "echo", "-s", "@team:alpha", "--title", "A, title", "hi")
        self.id = home.docs()[0]["id"]
        for name in ("notes.txt", "my file.txt"):
            (home.cwd / name).touch()
        script = home.run(env={"_GPTSH_COMPLETE": "bash_source"}).stdout
        (home.cwd / ".complete").write_text(script)
        path = f"{Path(sys.executable).parent}:{home.env['PATH']}"
        settings = {"PATH": path, "PS1": "> ", "INPUTRC": "/dev/null", "HISTFILE": "/dev/null"}
        self.terminal = Terminal(
            home, command=["bash", "--norc", "--noprofile", "-i"], env=settings
        )
        self.terminal.resize(200)
        self.type("bind 'set enable-bracketed-paste off'; . ./.complete; echo re''ady\n")
        self.terminal.until(rb"ready\r")

    def type(self, keys: str) -> None:
        os.write(self.terminal.fd, keys.encode())

    def after_tab(self, keys: str) -> str:
        """The completed line after the keys and TAB."""
        self.terminal.seen = b""
        self.type(f"{keys}\t\x05>]\x01: [<\n")  # end of line, start of line; ":" runs nothing
        self.type('printf "%s\\n" "$(history 2 | head -1)" "d""one"\n')
        output = self.terminal.until(rb"done\r").decode()
        return re.findall(r"^ *\d+ +: \[<(.*)>\]\r$", output, re.MULTILINE)[-1]


@pytest.fixture
def bash(home: Home) -> Iterator[Bash]:
    shell = Bash(home)
    yield shell
    shell.type("exit\n")
    shell.terminal.close()
