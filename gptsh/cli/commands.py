"""The slash commands of a conversation as a table: what is found, helped with and completed is read from it."""

import re
import shlex
from typing import NamedTuple

import click

from gptsh.errors import UsageError

GROUPS = ("Session", "Asking", "What is sent", "Other")
_KEYS = (
    ("Enter", "Sends. Alt-Enter, or \\ at the end of a line, adds a line; Ctrl-X Ctrl-E opens $EDITOR."),
    ("Tab", "Completes commands and what stands behind them. Up, and Ctrl-R to search, bring back earlier lines."),
    ("Ctrl-C", "Ends an answer, which is kept as far as it came, or gives up the line. Ctrl-D leaves."),
)
_WIDEST = 100  # columns of the help; longer lines are hard to read


class Command(NamedTuple):
    """One command: its group in the help, its name, what may stand behind it, what it does.

    ``slash.py`` has the function of that name: ``do_session_export`` for ``/session export``. ``value`` is what the
    text behind the name is, for completion, which has ``words`` as well. ``more`` is what only its own help has.
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
        """How it is typed."""
        return f"{self.name} {self.args}".strip()

    @property
    def function(self) -> str:
        """The function of ``slash.py`` that does it."""
        return f"do_{self.name[1:].replace(' ', '_')}"


# fmt: off
COMMANDS = (
    Command("Session", "/new", "", "Start a new session; agents with a memory remember."),
    Command("Session", "/sessions", "[all]", "List the sessions of this project, or all.", words=("all",)),
    Command("Session", "/resume", "[REF]", "Go on with another session.", "session"),
    Command("Session", "/search", "TEXT", "Find sessions that have all of these words."),
    Command("Session", "/history", "[full]", "Show the whole session.", words=("full",)),
    Command("Session", "/undo", "", "Leave out the last turn, in a fork, and edit its question."),
    Command("Session", "/retry", "", "Ask the last question again."),
    Command("Session", "/fork", "[POINT]", "Go on in a fork: as it is, at a turn N, -N, or a snapshot.", "snapshot"),
    Command("Session", "/snapshot", "[NAME]", "Name this position for /fork, or list the names.", "snapshot"),
    Command("Session", "/snapshot delete", "NAME", "Delete a snapshot.", "snapshot"),
    Command("Session", "/session info", "", "Show what is known of the session."),
    Command("Session", "/session export", "[FILE]", "Write the session to a new file.", "file",
        more="Its name decides the format: .html, .json, .jsonl for nanobot, else Markdown."),
    Command("Session", "/session rename", "TITLE", "Give the session another title."),
    Command("Session", "/session archive", "", "Archive the session, and start a new one."),
    Command("Session", "/session delete", "", "Delete the session for good, after asking."),
    Command("Asking", "/model", "[NAME]", "Show the model, or choose another one.", "model",
        more="It answers from the next turn on. Without a name those used last and configured are listed; "
        "gptsh --list-models has all."),
    Command("Asking", "/agent", "[NAME]", "List the agents, or choose one.", "agent",
        more="An agent is a whole: its model, system prompt, parameters and tools take the place of what /model, "
        "/system, /param and /tools chose."),
    Command("Asking", "/system", "[TEXT]", "Show the system prompt, or set it; - is the agent's own.", words=("-",),
        more='/system "" sends none at all.'),
    Command("Asking", "/param", "[KEY=VALUE]…", "Show the generation parameters, or set some.", "param",
        more="KEY= takes one away: /param temperature= sends none. A value with blanks or quotes stands in quotes of "
        """its own: /param 'stop=["END"]'."""),
    Command("What is sent", "/file", "[PATH]…", "Attach files to the next question, or list them; - drops them.",
        "file", ("-",), "Text, images, PDF and audio. Paths are quoted as in a shell."),
    Command("What is sent", "/tools", "[LIST]", "Show the tools, or choose: all, none, or SERVER, SERVER__TOOL.",
        "tools", ("all", "none", "-"), "Commas separate the names; a tool may be a pattern such as time__get_*. "
        "- is the agent's own tools."),
    Command("What is sent", "/context", "", "Show what would be sent next, and how much room is left.",
        more="Model, window, tokens, strategy and attachments; nothing is sent."),
    Command("What is sent", "/compact", "[--apply]", "Show how the session would be sent shorter; --apply does it.",
        words=("--apply",), more="Nothing is lost: the session keeps every message, and a snapshot of how it was sent "
        "before."),
    Command("Other", "/copy", "[N|code [N]]", "Copy the last answer, that of turn N, or a code block of the last.",
        words=("code",)),
    Command("Other", "/usage", "[all]", "Tokens and cost of this session, or of all.", words=("all",)),
    Command("Other", "/debug context", "", "Show the last request as it was sent, as JSON; keys are masked."),
    Command("Other", "/help", "[COMMAND]", "Show the commands, or all about one.", "command"),
    Command("Other", "/exit", "", "Leave; exit, quit, :q and Ctrl-D do it, too."),
)
# fmt: on
_NAMED = {command.name: command for command in COMMANDS}
_ALIASES = {  # what it is called elsewhere
    **dict.fromkeys(("exit", "quit", ":q", "/quit", "/q", "/bye"), "/exit"),
    **dict.fromkeys(("help", "?", "/", "/?", "/commands"), "/help"),
    **{f"/{name.partition(' ')[2]}": name for name in _NAMED if name.startswith("/session ")},
    "/clear": "/new", "/load": "/resume", "/find": "/search", "/branch": "/fork", "/regenerate": "/retry",
    "/attach": "/file", "/set": "/param", "/save": "/session export", "/cost": "/usage", "/tokens": "/context",
}  # fmt: skip
_ALONE = ("exit", "quit", ":q", "help", "?", "/")  # commands where they are the whole line
_WORD = re.compile(r"/[A-Za-z?!-]+(?=\s|$)")  # what a line begins with that is a command, unlike a path


def is_command(line: str) -> bool:
    """Whether a line is one. A path is none, nor is a line that begins with a blank."""
    return bool(_WORD.match(line)) or line.rstrip().lower() in _ALONE


def find(line: str) -> tuple[Command, str]:
    """The command of a line, and the text behind it.

    Raises UsageError for one that there is not, naming the nearest, and for text that it does not take, or lacks.
    """
    words = line.split(maxsplit=2)
    for count in (2, 1):
        name = " ".join(words[:count]).lower()
        if command := _NAMED.get(_ALIASES.get(name, name)):
            rest = "".join(line.split(maxsplit=count)[count:]).strip()
            if rest and not command.args:
                raise UsageError(f"{command.name} takes nothing behind it", "a blank in front sends the line as it is")
            if rest and command.args.strip("[]") in command.words and rest not in command.words:
                raise UsageError(f"{line.strip()}: expected nothing, or {command.words[0]}")
            if command.args.isalpha() and not rest:
                raise UsageError(f"{command.name} needs a {command.args.lower()}")
            return command, rest
    said = " ".join(words[:2]).lower()
    if own := [name for name in _NAMED if name.startswith(f"{said} ")]:
        raise UsageError(f"{said} needs to know what", ", ".join(own))
    from difflib import get_close_matches  # noqa: PLC0415 - only an error asks

    near = get_close_matches(said, _NAMED, 1, 0.75) or get_close_matches(words[0].lower(), _NAMED, 1, 0.7)
    todo = f"did you mean {near[0]}?" if near else "/help shows them; a blank in front sends the line as it is"
    raise UsageError(f"there is no command {said}", todo)


def words_of(args: str) -> list[str]:
    """The text behind a command as words, quoted as in a shell. Raises UsageError for a quote that does not end."""
    try:
        return shlex.split(args)
    except ValueError as err:
        raise UsageError(f"{str(err).lower()}: {args}", "words are quoted as in a shell") from err


def help_on(name: str, width: int) -> list[str]:
    """The lines of the help: all commands and the keys, or all about those of a name. Raises UsageError."""
    formatter = click.HelpFormatter(width=min(_WIDEST, width) - 1)
    if name:
        wanted = f"/{name.lower().lstrip('/')}"
        rows = [row for row in COMMANDS if row.name == wanted or row.name.startswith(f"{wanted} ")]
        rows = [row for row in rows if row.name == wanted] or rows or [find(wanted)[0]]
        formatter.write_dl([(row.usage, f"{row.help} {row.more}".strip()) for row in rows])
    else:
        groups = [(group, [(row.usage, row.help) for row in COMMANDS if row.group == group]) for group in GROUPS]
        for group, pairs in (*groups, ("Keys", _KEYS)):
            with formatter.section(group):
                formatter.write_dl([*pairs], col_max=24)
    return formatter.getvalue().strip("\n").split("\n")
