"""List the slash commands: parse their lines, write their help, complete their names."""

import re
import shlex
from typing import NamedTuple

import click

from gptsh.errors import UsageError

GROUPS = ("Session", "Asking", "What is sent", "Other")
_KEYS = {
    "Enter": "Sends your prompt. Alt-Enter, or \\ at the end of a line, adds a line; "
    "Ctrl-X Ctrl-E opens $EDITOR.",
    "Tab": "Completes commands and their arguments. Up recalls earlier lines; "
    "Ctrl-R searches them.",
    "Ctrl-C": "Stops an answer and keeps the partial answer, or clears the line. Ctrl-D exits.",
}
_MAX_WIDTH = 100  # columns of the help; longer lines are hard to read


class Command(NamedTuple):
    """A command: its group in the help, its name, its arguments, its help.

    For completion, ``value`` is the kind of the arguments, and ``words`` are fixed ones. ``more``
    is shown only by ``/help COMMAND``.
    """

    group: str
    name: str
    args: str
    help: str
    value: str = ""
    words: tuple[str, ...] = ()
    more: str = ""

    @property
    def usage(self) -> str:
        """The command with its arguments."""
        return f"{self.name} {self.args}".strip()

    @property
    def function(self) -> str:
        """Its function in ``slash.py``: ``do_session_export`` for ``/session export``."""
        return f"do_{self.name[1:].replace(' ', '_')}"


COMMANDS = (
    Command(
        "Session", "/new", "", "Start a new session; an agent with a memory remembers this one."
    ),
    Command(
        "Session",
        "/sessions",
        "[all]",
        "List the sessions of this project, or all.",
        words=("all",),
    ),
    Command("Session", "/resume", "[REF]", "Continue another session.", value="session"),
    Command("Session", "/search", "TEXT", "Find sessions that contain all these words."),
    Command("Session", "/history", "[full]", "Show the whole session.", words=("full",)),
    Command(
        "Session",
        "/undo",
        "",
        "Go back one turn, in a fork, and edit its question; its files stay attached.",
    ),
    Command(
        "Session",
        "/retry",
        "[MODEL]",
        "Ask the last question again, of another model if you name one.",
        value="model",
    ),
    Command(
        "Session",
        "/fork",
        "[POINT]",
        "Continue in a fork: from here, from turn N or -N, or a snapshot.",
        value="snapshot",
    ),
    Command(
        "Session",
        "/snapshot",
        "[NAME]",
        "Name this position for /fork, or list the snapshots.",
        value="snapshot",
    ),
    Command("Session", "/snapshot delete", "NAME", "Delete a snapshot.", value="snapshot"),
    Command(
        "Session",
        "/name",
        "[@NAME]",
        "Name the session, or show its names; another session's name moves.",
        value="name",
    ),
    Command("Session", "/session info", "", "Show details of the session."),
    Command(
        "Session",
        "/session export",
        "[FILE]",
        "Write the session to a new file.",
        value="file",
        more="Its name decides the format: .html, .json, .jsonl for nanobot, else Markdown.",
    ),
    Command("Session", "/session rename", "TITLE", "Change the title of the session."),
    Command("Session", "/session archive", "", "Archive the session, and start a new one."),
    Command("Session", "/session delete", "", "Delete the session permanently, after asking you."),
    Command(
        "Asking",
        "/model",
        "[NAME]",
        "Show the model, or choose another one.",
        value="model",
        more="It answers from the next turn. Without a name, /model also lists recent and "
        "configured models; gptsh --list-models lists all.",
    ),
    Command(
        "Asking",
        "/agent",
        "[NAME]",
        "List the agents, or choose one.",
        value="agent",
        more="Its model, system prompt, parameters and tools replace those that /model, "
        "/system, /param and /tools chose. If it has a prompt, that makes your next "
        "question; /agent NAME lang=de sets its {lang}.",
    ),
    Command(
        "Asking",
        "/system",
        "[TEXT]",
        "Show the system prompt, or set it; - restores the agent's.",
        words=("-",),
        more='/system "" sends none.',
    ),
    Command(
        "Asking",
        "/param",
        "[KEY=VALUE]…",
        "Show the generation parameters, or set some.",
        value="param",
        more="KEY= removes one: /param temperature= sends none. Put quotes around a value with "
        "blanks or quotes: /param 'stop=[\"END\"]'.",
    ),
    Command(
        "What is sent",
        "/file",
        "[PATH]…",
        "Attach files to the next question, or list them; - removes them.",
        value="file",
        words=("-",),
        more="Text, images, PDF, audio and video. Quote paths as in a shell.",
    ),
    Command(
        "What is sent",
        "/tools",
        "[LIST]",
        "Show the tools, or choose: all, none, or SERVER, SERVER__TOOL.",
        value="tools",
        words=("all", "none", "-"),
        more="Separate names with commas; a tool may be a pattern such as time__get_*. - "
        "restores the agent's own tools.",
    ),
    Command(
        "What is sent",
        "/web",
        "[on|off]",
        "Show whether the model may search the web, or choose.",
        words=("on", "off"),
        more="The provider searches, and bills that; the pages are listed below the answer.",
    ),
    Command(
        "What is sent",
        "/context",
        "",
        "Show what would be sent next, and how much room is left.",
        more="Model, window, tokens, strategy and attachments; nothing is sent.",
    ),
    Command(
        "What is sent",
        "/compact",
        "[--apply]",
        "Show how gptsh would shorten the session for sending; --apply does it.",
        words=("--apply",),
        more="Nothing is lost: the session keeps every message. A snapshot saves how it was "
        "sent before.",
    ),
    Command(
        "Other",
        "/copy",
        "[N|code [N]]",
        "Copy the last answer, that of turn N, or a code block of the last.",
        words=("code",),
    ),
    Command(
        "Other",
        "/usage",
        "[all]",
        "Show tokens and cost of this session, or of all sessions.",
        words=("all",),
    ),
    Command(
        "Other",
        "/debug context",
        "",
        "Show the last request as it was sent, as JSON; keys are masked.",
    ),
    Command("Other", "/help", "[COMMAND]", "Show all commands, or explain one.", value="command"),
    Command("Other", "/exit", "", "Exit, as do exit, quit, :q and Ctrl-D."),
)
_BY_NAME = {command.name: command for command in COMMANDS}
_ALIASES = {  # names in other programs
    **dict.fromkeys(("exit", "quit", ":q", "/quit", "/q", "/bye"), "/exit"),
    **dict.fromkeys(("help", "?", "/", "/?", "/commands"), "/help"),
    **{name.replace("session ", ""): name for name in _BY_NAME if name.startswith("/session ")},
    "/clear": "/new",
    "/load": "/resume",
    "/find": "/search",
    "/branch": "/fork",
    "/regenerate": "/retry",
    "/attach": "/file",
    "/set": "/param",
    "/save": "/session export",
    "/cost": "/usage",
    "/tokens": "/context",
}
_BARE_NAMES = ("exit", "quit", ":q", "help", "?", "/")  # commands only if they are the whole line
_COMMAND_WORD = re.compile(r"/[A-Za-z?!-]+(?=\s|$)")  # matches no path, which has another slash


def is_command(line: str) -> bool:
    """Whether a line is a command. Paths and lines that begin with a blank are not."""
    return bool(_COMMAND_WORD.match(line)) or line.rstrip().lower() in _BARE_NAMES


def find(line: str) -> tuple[Command, str]:
    """Return the command of a line, and its arguments.

    Raises UsageError for an unknown command, with the nearest one, and for wrong or missing
    arguments.
    """
    words = line.split(maxsplit=2)
    for count in (2, 1):
        name = " ".join(words[:count]).lower()
        command = _BY_NAME.get(_ALIASES.get(name, name))
        if command:
            args = "".join(line.split(maxsplit=count)[count:]).strip()
            _check(command, args, line.strip())
            return command, args
    raise _unknown(" ".join(words[:2]).lower(), words[0].lower())


def _check(command: Command, args: str, line: str) -> None:
    """Raise UsageError if a command does not take these arguments."""
    if args and not command.args:
        todo = "a line that begins with a blank is a question"
        raise UsageError(f"{command.name} takes no arguments", todo)
    takes_one_word = command.args.strip("[]") in command.words
    if args and takes_one_word and args not in command.words:
        raise UsageError(f"{line}: expected nothing, or {command.words[0]}")
    is_required = command.args.isalpha()
    if is_required and not args:
        raise UsageError(f"{command.name} needs a {command.args.lower()}")


def _unknown(name: str, first_word: str) -> UsageError:
    """Return the error for a command that does not exist."""
    if subcommands := [command for command in _BY_NAME if command.startswith(f"{name} ")]:
        return UsageError(f"{name} needs a second word", ", ".join(subcommands))
    from difflib import get_close_matches

    near = get_close_matches(name, _BY_NAME, 1, 0.75)
    near = near or get_close_matches(first_word, _BY_NAME, 1, 0.7)
    todo = "/help shows all; a line that begins with a blank is a question"
    return UsageError(f"there is no command {name}", f"did you mean {near[0]}?" if near else todo)


def words_of(args: str) -> list[str]:
    """Split arguments as a shell does. Raises UsageError for a quote that is not closed."""
    try:
        return shlex.split(args)
    except ValueError as err:
        raise UsageError(f"{str(err).lower()}: {args}", "words are quoted as in a shell") from err


def help_on(name: str, width: int) -> list[str]:
    """Return the help on the commands of a name, or on all commands and keys. Raises UsageError."""
    formatter = click.HelpFormatter(width=min(_MAX_WIDTH, width) - 1)
    if name:
        rows = _commands_of(f"/{name.lower().lstrip('/')}")
        formatter.write_dl([(row.usage, f"{row.help} {row.more}".strip()) for row in rows])
    else:
        for group in GROUPS:
            rows = [row for row in COMMANDS if row.group == group]
            with formatter.section(group):
                formatter.write_dl([(row.usage, row.help) for row in rows], col_max=24)
        with formatter.section("Keys"):
            formatter.write_dl([*_KEYS.items()], col_max=24)
    return formatter.getvalue().strip("\n").split("\n")


def _commands_of(name: str) -> list[Command]:
    """Return the command of a name, or all that begin with that word. Raises UsageError."""
    name = _ALIASES.get(name, name)
    subcommands = [row for row in COMMANDS if row.name.startswith(f"{name} ")]
    if subcommands and name not in _BY_NAME:
        return subcommands
    return [_BY_NAME.get(name) or find(name)[0]]
