"""The slash commands of a conversation, each as one row, from which help and completion are read, too."""

import difflib
import re
from importlib import import_module
from typing import NamedTuple

from gptsh.cli.talk import Talk
from gptsh.errors import UsageError

GROUPS = ("Session", "Asking", "What is sent", "Other")
_WORD = re.compile(r"/[A-Za-z?!-]+(?=\s|$)")  # what a line begins with that is a command, unlike a path


class Command(NamedTuple):
    """One command: its group in the help, its name, what may stand behind it, what it does, and what does it.

    ``run`` is ``module:function`` of ``cli/``, called with the conversation and the text behind the name. ``value`` is
    what that text is: a word that ``complete.VALUES`` knows, empty where nothing can be offered. ``words`` are fixed
    words that may stand there.
    """

    group: str
    name: str
    args: str
    help: str
    run: str
    value: str = ""
    words: tuple[str, ...] = ()


COMMANDS = (
    Command("Other", "/help", "[COMMAND]", "Show the commands, or one of them.", "slash_other:show_help", "command"),
    Command("Session", "/new", "", "Start a new session.", "slash_sessions:new"),
    Command("Other", "/exit", "", "Leave; Ctrl-D does it, too.", "slash_other:leave"),
)


def is_command(line: str) -> bool:
    """Whether a line is one. A path is none, nor is a line that begins with a blank."""
    return bool(_WORD.match(line))


def carry_out(talk: Talk, line: str) -> None:
    """Do what a line says. Raises UsageError for a command that there is not, and what the command raises."""
    command, rest = find(line)
    module, _, function = command.run.partition(":")
    getattr(import_module(f"gptsh.cli.{module}"), function)(talk, rest)


def find(line: str) -> tuple[Command, str]:
    """The command of a line, and the text behind it. Raises UsageError naming the nearest one."""
    words = line.split(maxsplit=2)
    for count in (2, 1):
        command = _NAMED.get(" ".join(words[:count]).lower())
        if command:
            rest = line.split(maxsplit=count)[count:]
            return command, rest[0].strip() if rest else ""
    raise _unknown(words)


_NAMED = {command.name: command for command in COMMANDS}


def _unknown(words: list[str]) -> UsageError:
    """What is wrong with a name: with its second word where the first one begins some."""
    first = words[0].lower()
    below = [name for name in _NAMED if name.startswith(f"{first} ")]
    if below:
        return UsageError(f"{first} needs to know what", f"{', '.join(below[:-1])} or {below[-1]}")
    near = difflib.get_close_matches(first, _NAMED, n=1, cutoff=0.4)
    meant = f"did you mean {near[0]}? " if near else ""
    return UsageError(
        f"there is no command {first}", f"{meant}/help shows them; a blank in front sends the line as it is"
    )
