"""The slash commands of a conversation, each as one row, from which help and completion are read, too."""

import re
from importlib import import_module
from typing import NamedTuple

from gptsh.cli.talk import Talk
from gptsh.errors import UsageError

GROUPS = ("Session", "Asking", "What is sent", "Other")
_WORD = re.compile(r"/[A-Za-z?!-]+(?=\s|$)")  # what a line begins with that is a command, unlike a path


class Command(NamedTuple):
    """One command: its group in the help, its name, what may stand behind it, what it does, and what does it.

    ``run`` is ``module:function`` of ``cli/slash/``, called with the conversation and the text behind the name.
    ``value`` is what that text is: a word that ``offers`` knows, empty where nothing can be offered. ``words``
    are fixed words that may stand there. ``more`` is what only the help of this one command says.
    """

    group: str
    name: str
    args: str
    help: str
    run: str
    value: str = ""
    words: tuple[str, ...] = ()
    more: str = ""

    @property
    def usage(self) -> str:
        """How it is typed."""
        return f"{self.name} {self.args}".strip()


COMMANDS = (
    Command("Session", "/new", "", "Start a new session; agents with a memory remember.", "sessions:new"),
    Command(
        "Session", "/sessions", "[all]", "List the sessions of this project, or all.", "sessions:sessions",
        words=("all",),
    ),
    Command("Session", "/resume", "[REF]", "Go on with another session.", "sessions:resume", "session"),
    Command("Session", "/search", "TEXT", "Find sessions that have all of these words.", "sessions:search"),
    Command("Session", "/history", "[full]", "Show the whole session.", "session:history", words=("full",)),
    Command("Session", "/undo", "", "Leave out the last turn, in a fork, and edit its question.", "points:undo"),
    Command("Session", "/retry", "", "Ask the last question again.", "points:retry"),
    Command(
        "Session", "/fork", "[POINT]", "Go on in a fork: as it is, at a turn N, -N, or a snapshot.",
        "points:fork", "snapshot",
    ),
    Command(
        "Session", "/snapshot", "[NAME]", "Name this position for /fork, or list the names.", "points:snapshot",
        "snapshot",
    ),
    Command("Session", "/snapshot delete", "NAME", "Delete a snapshot.", "points:delete_snapshot", "snapshot"),
    Command("Session", "/session info", "", "Show what is known of the session.", "session:info"),
    Command(
        "Session", "/session export", "[FORMAT] [FILE]", "Write the session to a new file.", "session:export",
        "folder", ("markdown", "html", "json", "openai", "nanobot"),
    ),
    Command("Session", "/session rename", "TITLE", "Give the session another title.", "session:rename"),
    Command("Session", "/session archive", "", "Put the session away, and start a new one.", "session:archive"),
    Command("Session", "/session delete", "", "Delete the session for good, after asking.", "session:delete"),
    Command("Asking", "/model", "[NAME]", "Show the model, or choose another one.", "asking:choose_model",
        "model", more="It answers from the next turn on. Without a name those used last and configured are listed; "
        "gptsh --list-models has all."),
    Command("Asking", "/agent", "[NAME]", "List the agents, or choose one.", "asking:choose_agent", "agent",
        more="An agent is a whole: its model, system prompt, parameters and tools take the place of what /model, "
        "/system, /param and /tools chose."),
    Command("Asking", "/system", "[TEXT]", "Show the system prompt, or set it; - is the agent's own.",
        "asking:set_system", words=("-",), more='/system "" sends none at all.'),
    Command("Asking", "/param", "[KEY=VALUE]…", "Show the generation parameters, or set some.",
        "asking:set_params", "param", more="KEY= takes one away: /param temperature= sends none. A value with blanks "
        """or quotes stands in quotes of its own: /param 'stop=["END"]'."""),
    Command("What is sent", "/file", "[PATH]…", "Attach files to the next question, or list them; - drops them.",
        "context:attach", "file", ("-",), more="Text, images, PDF and audio. Paths are quoted as in a shell."),
    Command("What is sent", "/tools", "[LIST]", "Show the tools, or choose: all, none, or SERVER, SERVER__TOOL.",
        "context:choose_tools", "tools", ("all", "none", "-"), more="A list is parted by commas; a tool may be "
        "a pattern such as time__get_*. - is the agent's own tools."),
    Command("What is sent", "/context", "", "Show what would be sent next, and how much room is left.",
        "context:show_context", more="Model, window, tokens, strategy and attachments; nothing is sent."),
    Command("What is sent", "/compact", "[--apply]", "Show how the session would be sent shorter; --apply does it.",
        "context:compact", words=("--apply",), more="Nothing is lost: the session keeps every message, and a "
        "snapshot of how it was sent before."),
    Command(
        "Other", "/copy", "[N|code [N]]", "Copy the last answer, that of turn N, or a code block of the last.",
        "copying:copy", words=("code",),
    ),
    Command("Other", "/usage", "[all]", "Tokens and cost of this session, or of all.", "other:show_usage",
        words=("all",)),
    Command("Other", "/debug context", "", "Read the last request as the model got it.", "context:show_sent",
        more="Every message, tool and parameter, through $PAGER; keys are masked."),
    Command("Other", "/help", "[COMMAND]", "Show the commands, or all about one.", "other:show_help", "command"),
    Command("Other", "/exit", "", "Leave; Ctrl-D does it, too.", "other:leave"),
)  # fmt: skip

# What other programs call it; None for what there is nothing like here.
_ELSEWHERE: dict[str, str | None] = {
    **dict.fromkeys(("/?", "/h", "/commands"), "/help"),
    **dict.fromkeys(("/bye", "/q", "/quit", "/end", "/close", "/x", "/wq"), "/exit"),
    **dict.fromkeys(("/clear", "/reset"), "/new"),
    **dict.fromkeys(("/load", "/open", "/continue", "/switch", "/thread"), "/resume"),
    **dict.fromkeys(("/chat", "/list", "/ls"), "/sessions"),
    **dict.fromkeys(("/log", "/show"), "/history"),
    **dict.fromkeys(("/back", "/rewind"), "/undo"),
    **dict.fromkeys(("/regenerate", "/again"), "/retry"),
    **dict.fromkeys(("/branch", "/restore"), "/fork"),
    **dict.fromkeys(("/attach", "/add", "/image"), "/file"),
    **dict.fromkeys(("/role", "/prompt", "/persona"), "/system"),
    **dict.fromkeys(("/compress", "/summarize"), "/compact"),
    **dict.fromkeys(("/config", "/settings", "/theme", "/version", "/import", "/tag", "/memory", "/paste", "/edit")),
    "/save": "/session export", "/delete": "/session delete", "/title": "/session rename",
    "/status": "/session info", "/checkpoint": "/snapshot", "/find": "/search", "/set": "/param", "/mcp": "/tools",
    "/cost": "/usage", "/tokens": "/context",
}  # fmt: skip

_HELPS, _LEAVES = "/help shows the commands", "/exit leaves; a blank in front sends the line as it is"
_SLIPS = {"exit": _LEAVES, "quit": _LEAVES, ":q": _LEAVES, "help": _HELPS, "?": _HELPS, "/": _HELPS}


def is_command(line: str) -> bool:
    """Whether a line is one. A path is none, nor is a line that begins with a blank."""
    return bool(_WORD.match(line))


def slip(line: str) -> str | None:
    """What to say to a line that is a command without its slash, or a slash alone; None where it is a question."""
    return _SLIPS.get(line.rstrip().lower())


def carry_out(talk: Talk, line: str) -> None:
    """Do what a line says.

    Raises UsageError for a command that there is not, and for words that it would leave out; what the command raises.
    """
    command, rest = find(line)
    if rest and not command.args:
        own = command.name.startswith("/session ")
        way = "it is about this session: /resume REF first" if own else "a blank in front sends the line as it is"
        raise UsageError(f"{command.name} takes nothing behind it", way)
    module, _, function = command.run.partition(":")
    getattr(import_module(f"gptsh.cli.slash.{module}"), function)(talk, rest)


def find(line: str) -> tuple[Command, str]:
    """The command of a line, and the text behind it. Raises UsageError naming the nearest one."""
    words = line.split(maxsplit=2)
    for count in (2, 1):
        command = _NAMED.get(" ".join(words[:count]).lower())
        if command:
            rest = line.split(maxsplit=count)[count:]
            return command, rest[0].strip() if rest else ""
    raise unknown([word.lower() for word in words])


def below(first: str) -> list[Command]:
    """The commands of two words that begin with this one."""
    return [command for command in COMMANDS if command.name.startswith(f"{first} ")]


def words_of(args: str) -> list[str]:
    """The text behind a command as words, quoted as in a shell. Raises UsageError for a quote that does not end."""
    import shlex  # noqa: PLC0415 - few commands take several

    try:
        return shlex.split(args)
    except ValueError as err:
        raise UsageError(f"{str(err).lower()}: {args}", "words are quoted as in a shell") from err


_NAMED = {command.name: command for command in COMMANDS}


def unknown(words: list[str]) -> UsageError:
    """What is wrong with a command that there is not: with its second word where the first one begins some."""
    first, second = words[0], " ".join(words[1:2])
    meant = near(first, second)
    if not (names := [command.name for command in below(first)]):
        what = f"there is no command {first}"
        asks = f"did you mean {meant}? " if meant else ""
        return UsageError(what, f"{asks}/help shows them; a blank in front sends the line as it is")
    ways = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    if not second:
        plural = f"; or did you mean {first}s?" if f"{first}s" in _NAMED else ""
        return UsageError(f"{first} needs to know what", f"{ways}{plural}")
    return UsageError(
        f"there is no command {first} {second}", f"did you mean {meant}?" if meant else f"there is {ways}"
    )


def near(first: str, second: str = "") -> str | None:
    """The name of the command that was most likely meant; None where none is like it."""
    if first in _ELSEWHERE:
        return _ELSEWHERE[first]
    pairs, single = [name for name in _NAMED if " " in name], [name for name in _NAMED if " " not in name]
    ends = {name.partition(" ")[2]: name for name in reversed(pairs)}
    if own := {command.name.partition(" ")[2]: command.name for command in below(first)}:
        return own.get(_nearest(second, [*own]) or "")
    if first[1:] in ends:  # /export
        return ends[first[1:]]
    return (_nearest(f"{first} {second}", pairs, 0.75) if second else None) or _nearest(first, single)


def _nearest(name: str, known: list[str], cutoff: float = 0.7) -> str | None:
    import difflib  # noqa: PLC0415 - few lines are wrong

    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), None)
