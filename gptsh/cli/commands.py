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


# fmt: off
COMMANDS = (
    Command("Other", "/help", "[COMMAND]", "Show the commands, or one of them.", "slash_other:show_help", "command"),
    Command("Session", "/new", "", "Start a new session; agents with a memory remember.", "slash_sessions:new"),
    Command(
        "Session", "/sessions", "[all]", "List the sessions of this project, or all.", "slash_sessions:sessions",
        words=("all",),
    ),
    Command("Session", "/resume", "[REF]", "Go on with another session.", "slash_sessions:resume", "session"),
    Command("Session", "/search", "TEXT", "Find sessions that have all of these words.", "slash_sessions:search"),
    Command("Session", "/history", "[full]", "Show the whole session.", "slash_session:history", words=("full",)),
    Command("Session", "/undo", "", "Leave out the last turn, in a fork, and edit its question.", "slash_points:undo"),
    Command("Session", "/retry", "", "Ask the last question again.", "slash_points:retry"),
    Command(
        "Session", "/fork", "[POINT]", "Go on in a fork: as it is, at a turn N, -N, or a snapshot.",
        "slash_points:fork", "point",
    ),
    Command(
        "Session", "/snapshot", "[NAME]", "Name this position for /fork, or list the names.", "slash_points:snapshot"
    ),
    Command("Session", "/snapshot delete", "NAME", "Delete a snapshot.", "slash_points:delete_snapshot", "snapshot"),
    Command("Session", "/session info", "", "Show what is known of the session.", "slash_session:info"),
    Command(
        "Session", "/session export", "[FORMAT] [FILE]", "Write the session to a new file.", "slash_session:export",
        "file", ("markdown", "html", "json", "openai", "nanobot"),
    ),
    Command("Session", "/session rename", "TITLE", "Give the session another title.", "slash_session:rename"),
    Command("Session", "/session archive", "", "Put the session away, and start a new one.", "slash_session:archive"),
    Command("Session", "/session delete", "", "Delete the session for good, after asking.", "slash_session:delete"),
    Command(
        "Other", "/copy", "[N|code [N]]", "Copy the last answer, that of turn N, or a code block of the last.",
        "slash_copy:copy", words=("code",),
    ),
    Command("Other", "/exit", "", "Leave; Ctrl-D does it, too.", "slash_other:leave"),
)
# fmt: on


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
