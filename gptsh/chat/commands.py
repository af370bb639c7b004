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
    """A command: its name, its group in the help, its arguments, its help.

    ``help`` fits a menu; ``/help COMMAND`` shows ``more`` as well. ``aliases`` are its names in
    other programs; those without a slash are commands only if they are the whole line. For
    completion, ``value`` is the kind of the arguments (see ``manage/suggestions.py``), and
    ``words`` are fixed ones.
    """

    name: str
    group: str
    help: str
    args: str = ""
    more: str = ""
    value: str = ""
    words: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The command with its arguments."""
        return f"{self.name} {self.args}".strip()

    @property
    def full_help(self) -> str:
        """Its help with all details."""
        return f"{self.help} {self.more}".strip()

    @property
    def function(self) -> str:
        """Its function in ``slash.py``: ``do_session_export`` for ``/session export``."""
        return f"do_{self.name[1:].replace(' ', '_')}"


COMMANDS = (
    Command(
        "/new",
        "Session",
        help="Start a new session.",
        more="An agent with a memory remembers this one first.",
        aliases=("/clear",),
    ),
    Command(
        "/sessions",
        "Session",
        help="List the sessions of this project, or all.",
        args="[all]",
        words=("all",),
    ),
    Command(
        "/resume",
        "Session",
        help="Continue another session.",
        args="[REF]",
        value="session",
        aliases=("/load",),
    ),
    Command(
        "/search",
        "Session",
        help="Find sessions that contain all these words.",
        args="TEXT",
        aliases=("/find",),
    ),
    Command(
        "/history",
        "Session",
        help="Show the whole session.",
        args="[full]",
        more="full shows tool calls and results in full.",
        words=("full",),
    ),
    Command(
        "/undo",
        "Session",
        help="Go back one turn, in a fork, and edit its question.",
        more="The files of the question stay attached.",
    ),
    Command(
        "/retry",
        "Session",
        help="Ask the last question again, or ask another model.",
        args="[MODEL]",
        more="That is in a fork. MODEL also answers your next questions.",
        value="model",
        aliases=("/regenerate",),
    ),
    Command(
        "/fork",
        "Session",
        help="Continue in a fork that starts here, or at POINT.",
        args="[POINT]",
        more="POINT is a turn, N or -N, or a snapshot.",
        value="snapshot",
        aliases=("/branch",),
    ),
    Command(
        "/snapshot",
        "Session",
        help="Name this position for /fork, or list the snapshots.",
        args="[NAME]",
        value="snapshot",
    ),
    Command(
        "/snapshot delete",
        "Session",
        help="Delete a snapshot.",
        args="NAME",
        value="snapshot",
    ),
    Command(
        "/name",
        "Session",
        help="Name the session, or show its names.",
        args="[@NAME]",
        more="If another session has that name, it moves to this one.",
        value="name",
    ),
    Command(
        "/session info",
        "Session",
        help="Show details of the session.",
        aliases=("/info",),
    ),
    Command(
        "/session export",
        "Session",
        help="Write the session to a new file.",
        args="[FILE]",
        more="Its suffix chooses the format: .html, .json, .jsonl for nanobot, else Markdown.",
        value="file",
        aliases=("/export", "/save"),
    ),
    Command(
        "/session rename",
        "Session",
        help="Change the title of the session.",
        args="TITLE",
        aliases=("/rename",),
    ),
    Command(
        "/session archive",
        "Session",
        help="Archive the session, and start a new one.",
        aliases=("/archive",),
    ),
    Command(
        "/session delete",
        "Session",
        help="Delete the session permanently, after asking you.",
        aliases=("/delete",),
    ),
    Command(
        "/model",
        "Asking",
        help="Show the model, or choose another one.",
        args="[NAME]",
        more="It answers from the next turn. Without a name, /model also lists recent and "
        "configured models; gptsh --list-models lists all.",
        value="model",
    ),
    Command(
        "/agent",
        "Asking",
        help="List the agents, or choose one.",
        args="[NAME]",
        more="Its model, system prompt, parameters and tools replace those that /model, "
        "/system, /param and /tools chose. If it has a prompt, that makes your next "
        "question; /agent NAME lang=de sets its {lang}.",
        value="agent",
    ),
    Command(
        "/system",
        "Asking",
        help="Show the system prompt, or set it.",
        args="[TEXT]",
        more='- restores the agent\'s. /system "" sends none.',
        words=("-",),
    ),
    Command(
        "/param",
        "Asking",
        help="Show the generation parameters, or set some.",
        args="[KEY=VALUE]…",
        more="KEY= removes one: /param temperature= sends none. Put quotes around a value with "
        "blanks or quotes: /param 'stop=[\"END\"]'.",
        value="param",
        aliases=("/set",),
    ),
    Command(
        "/file",
        "What is sent",
        help="Attach files to the next question, or list them.",
        args="[PATH]…",
        more="Text, images, PDF, audio and video. Quote paths as in a shell. - detaches all.",
        value="file",
        words=("-",),
        aliases=("/attach",),
    ),
    Command(
        "/tools",
        "What is sent",
        help="Show the tools, or choose some, all or none.",
        args="[LIST]",
        more="LIST has SERVER or SERVER__TOOL, separated by commas; a tool may be a pattern such "
        "as time__get_*. - restores the agent's tools.",
        value="tools",
        words=("all", "none", "-"),
    ),
    Command(
        "/web",
        "What is sent",
        help="Show whether the model may search the web, or choose.",
        args="[on|off]",
        more="The provider searches, and bills that; the pages are listed below the answer.",
        words=("on", "off"),
    ),
    Command(
        "/context",
        "What is sent",
        help="Show what would be sent, and how many tokens are free.",
        more="Model, window, tokens, strategy and attachments; nothing is sent.",
        aliases=("/tokens",),
    ),
    Command(
        "/compact",
        "What is sent",
        help="Show how the session would be shortened, or do it.",
        args="[--apply]",
        more="--apply does it. Nothing is lost: the session keeps every message. A snapshot "
        "saves how it was sent before.",
        words=("--apply",),
    ),
    Command(
        "/copy",
        "Other",
        help="Copy the last answer, that of turn N, or a code block.",
        args="[N|code [N]]",
        more="The code blocks are those of the last answer.",
        words=("code",),
    ),
    Command(
        "/usage",
        "Other",
        help="Show tokens and cost of this session, or of all.",
        args="[all]",
        words=("all",),
        aliases=("/cost",),
    ),
    Command(
        "/debug context",
        "Other",
        help="Show the last request as JSON, without keys.",
    ),
    Command(
        "/help",
        "Other",
        help="Show all commands, or explain one.",
        args="[COMMAND]",
        value="command",
        aliases=("help", "?", "/", "/?", "/commands"),
    ),
    Command(
        "/exit",
        "Other",
        help="Exit, as do exit, quit, :q and Ctrl-D.",
        aliases=("exit", "quit", ":q", "/quit", "/q", "/bye"),
    ),
)
_NAMES = [command.name for command in COMMANDS]  # without aliases
_BY_NAME = {command.name: command for command in COMMANDS}
for _command in COMMANDS:
    _BY_NAME.update(dict.fromkeys(_command.aliases, _command))
_COMMAND_WORD = re.compile(r"/[A-Za-z?!-]+(?=\s|$)")  # matches no path, which has another slash


def is_command(line: str) -> bool:
    """Return whether a line is a command. Paths and lines that begin with a blank are not."""
    return bool(_COMMAND_WORD.match(line)) or line.rstrip().lower() in _BY_NAME


def find(line: str) -> tuple[Command, str]:
    """Return the command of a line, and its arguments.

    Raises UsageError for an unknown command, with the nearest one, and for wrong or missing
    arguments.
    """
    words = line.split(maxsplit=2)
    for count in (2, 1):  # some names have two words
        command = _BY_NAME.get(" ".join(words[:count]).lower())
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
    choices = command.args.strip("[]").split("|")
    takes_a_choice = set(choices) <= set(command.words)  # else it takes any text
    if args and takes_a_choice and args not in choices:
        raise UsageError(f"{line}: expected nothing or {' or '.join(choices)}")
    is_required = command.args.isalpha()  # no brackets
    if is_required and not args:
        raise UsageError(f"{command.name} needs a {command.args.lower()}")


def _unknown(name: str, first_word: str) -> UsageError:
    """Return the error for a command that does not exist."""
    subcommands = [command for command in _NAMES if command.startswith(f"{name} ")]
    if subcommands:
        return UsageError(f"{name} needs a second word", ", ".join(subcommands))
    from difflib import get_close_matches

    problem = f"there is no command {name}"
    near = get_close_matches(name, _NAMES, 1, 0.75)
    near += get_close_matches(first_word, _NAMES, 1, 0.7)
    if near:
        return UsageError(problem, f"did you mean {near[0]}?")
    return UsageError(problem, "/help shows all; a line that begins with a blank is a question")


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
        commands = _commands_of(f"/{name.lower().lstrip('/')}")
        formatter.write_dl([(row.usage, row.full_help) for row in commands])
    else:
        for group in GROUPS:
            rows = [(row.usage, row.help) for row in COMMANDS if row.group == group]
            with formatter.section(group):
                formatter.write_dl(rows, col_max=24)
        with formatter.section("Keys"):
            formatter.write_dl(list(_KEYS.items()), col_max=24)
    return formatter.getvalue().strip("\n").split("\n")


def _commands_of(name: str) -> list[Command]:
    """Return the command of a name, or all that begin with that word. Raises UsageError."""
    subcommands = [row for row in COMMANDS if row.name.startswith(f"{name} ")]
    if subcommands and name not in _BY_NAME:
        return subcommands
    return [_BY_NAME.get(name) or find(name)[0]]
