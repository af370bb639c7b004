"""Every option as one row: click's parser, both helps and the README are read from this table."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import click

from gptsh.config.forms import FORMATS, OUTPUTS

ENDS = ("head", "tail", "middle")
JOBS: Mapping[str, str] = {  # what is done instead of asking, each by a function of a module of ``cli/``
    "--list-sessions": "manage:list_sessions",
    "--show-session": "reading:show_session",
    "--search-sessions": "searching:search_sessions",
    "--export-session": "exporting:export_session",
    "--import-session": "importing:import_session",
    "--delete-session": "keeping:delete_sessions",
    "--archive-session": "keeping:archive_sessions",
    "--prune-sessions": "keeping:prune_sessions",
    "--usage": "manage:show_usage",
    "--list-agents": "manage:list_agents",
    "--list-models": "manage:list_models",
    "--list-tools": "manage:list_tools",
    "--consolidate": "memory:consolidate",
}
FILTERS = ("-a", "-m", "--tag", "--here", "--limit")  # what chooses among sessions
# What may stand beside each, and all of EVERYWHERE; a question takes what is not under Manage.
TAKES: Mapping[str, tuple[str, ...]] = {
    "--list-sessions": (*FILTERS, "--archived"),
    "--show-session": ("--full",),
    "--search-sessions": (*FILTERS, "--archived"),
    "--export-session": ("--format",),
    "--import-session": (),
    "--delete-session": (),
    "--archive-session": (),
    "--prune-sessions": (*FILTERS, "--keep", "--older-than", "--archive", "--yes"),
    "--usage": FILTERS,
    "--list-agents": ("-m", "--limit"),
    "--list-models": ("-m", "--limit"),
    "--list-tools": ("-a", "--tools", "--no-tools", "--limit"),
    "--consolidate": (*FILTERS, "-s", "-c", "--timeout"),
}
# How something is told or read, which changes nothing of what is done: an alias may have it.
EVERYWHERE = ("-o", "--no-stdin", "--no-stream", "--no-reasoning", "--config", "--debug")
NOT_IN_TALK = ("-x", "--schema", "--dry-run", "--compact", "--apply")  # what -i does not go with, beside the jobs
GROUPS = ("Ask", "Answer", "Session", "Manage", "Other")


class Row(NamedTuple):
    """One option: its group in the help, its names, what it does, click's attributes, and what its value is.

    ``value`` is a word that ``complete.COMPLETERS`` knows, empty where a shell has nothing to offer.
    """

    group: str
    names: tuple[str, ...]
    help: str
    attributes: Mapping[str, Any] = MappingProxyType({})
    value: str = ""

    @property
    def field(self) -> str:
        """Where ``Flags`` has it."""
        return self.names[-1].lstrip("-").replace("-", "_")


class Flags(NamedTuple):
    """The command line, as typed. Fields are the options' names."""

    prompt: tuple[str, ...]
    agent: str | None
    model: str | None
    system: str | None
    param: tuple[str, ...]
    file: tuple[str, ...]
    no_stdin: bool
    tools: str | None
    no_tools: bool
    timeout: str | None
    dry_run: bool
    output: str | None
    no_stream: bool
    extract: bool
    schema: str | None
    truncate: str | None
    no_reasoning: bool
    session: str | None
    continue_: bool
    resume: bool
    new: bool
    title: str | None
    tag: tuple[str, ...]
    snapshot: str | None
    compact: bool
    apply: bool
    no_save: bool
    list_sessions: bool
    show_session: str | None
    full: bool
    search_sessions: str | None
    export_session: str | None
    format: str | None
    import_session: str | None
    delete_session: tuple[str, ...]
    archive_session: tuple[str, ...]
    prune_sessions: bool
    keep: int | None
    older_than: str | None
    archive: bool
    yes: bool
    here: bool
    archived: bool
    limit: int | None
    usage: bool
    consolidate: bool
    interactive: bool
    list_agents: bool
    list_models: bool
    list_tools: bool
    config: str | None
    debug: bool

    @property
    def given(self) -> tuple[str, ...]:
        """The options that are on the command line, each by the first of its names."""
        values = ((row.names[0], getattr(self, row.field, None)) for row in ROWS)
        return tuple(name for name, value in values if value is not None and value is not False and value != ())

    @property
    def labels(self) -> bool:
        """Whether something is said about the session itself, which can be done without asking."""
        return self.title is not None or bool(self.tag) or self.snapshot is not None

    @property
    def without_labels(self) -> "Flags":
        """The same without what is said about a session once."""
        return self._replace(title=None, tag=(), snapshot=None)

    @property
    def without_choices(self) -> "Flags":
        """The same without what is said about who answers, and how."""
        return self._replace(agent=None, model=None, system=None, param=(), tools=None, no_tools=False)

    def tools_of(self, own: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the tools that are wanted: ``--no-tools``, ``--tools``, else ``own``, the agent's."""
        if self.no_tools:
            return ()
        return own if self.tools is None else tuple(filter(None, map(str.strip, self.tools.split(","))))


_FLAG: dict[str, Any] = {"is_flag": True}
_MANY: dict[str, Any] = {"multiple": True}

ROWS = (
    Row("Ask", ("-a", "--agent"), "Agent from the config file; in a list, only its sessions.", {"metavar": "NAME"},
        "agent"),
    Row("Ask", ("-m", "--model"), "Model, as PROVIDER/NAME; in a list, only what matches.", {"metavar": "MODEL"},
        "model"),
    Row("Ask", ("--system",), "System prompt, in place of the agent's.", {"metavar": "TEXT"}),
    Row("Ask", ("-p", "--param"), "Generation parameter, such as temperature=0.2. Repeatable.",
        {"metavar": "KEY=VALUE", **_MANY}),
    Row("Ask", ("-f", "--file"), "File to send along: text, image, PDF or audio. Repeatable.",
        {"metavar": "PATH", **_MANY}, "file"),
    Row("Ask", ("--no-stdin",), "Do not read standard input.", _FLAG),
    Row("Ask", ("--tools",), "Tool servers in place of the agent's: SERVER, SERVER__TOOL or all, parted by commas.",
        {"metavar": "LIST"}, "tools"),
    Row("Ask", ("--no-tools",), "Offer no tools.", _FLAG),
    Row("Ask", ("--timeout",), "Give up after so many seconds, keeping what arrived.", {"metavar": "S"}),
    Row("Ask", ("--dry-run",), "Show what would be sent, and send nothing; with -o json the request itself.", _FLAG),
    Row("Answer", ("-o", "--output"), "Form of the answer and of lists; else text in a pipe, markdown on a terminal.",
        {"type": click.Choice(OUTPUTS)}),
    Row("Answer", ("--no-stream",), "Ask for the answer in one piece.", _FLAG),
    Row("Answer", ("-x", "--extract"), "Only the first fenced code block; all of an answer without one.", _FLAG),
    Row("Answer", ("--schema",), "JSON Schema that the answer must conform to.", {"metavar": "FILE|JSON"},
        "file"),
    Row("Answer", ("--truncate",), "Where piped or attached text that does not fit may be cut.",
        {"type": click.Choice(ENDS)}),
    Row("Answer", ("--no-reasoning",), "Do not show the model's reasoning on stderr.", _FLAG),
    Row("Session", ("-s", "--session"),
        "Go on with a session: index (0 = newest), id, id prefix, file name, @NAME, or REF@POINT to fork it.",
        {"metavar": "REF"}, "session"),
    Row("Session", ("-c", "--continue", "continue_"), "Go on with the session last used in this project.", _FLAG),
    Row("Session", ("-r", "--resume"), "Pick the session from a list.", _FLAG),
    Row("Session", ("-n", "--new"), "Start a new session, whatever GPTSH_SESSION says.", _FLAG),
    Row("Session", ("--title",), "Title of the session, set by hand.", {"metavar": "TEXT"}),
    Row("Session", ("--tag",), "Tag the session; in a list, only sessions with it. Repeatable.",
        {"metavar": "NAME", **_MANY}),
    Row("Session", ("--snapshot",), "Name the position where the session stands; REF@NAME goes back to it.",
        {"metavar": "NAME"}),
    Row("Session", ("--compact",), "Show how the session would be sent shorter; nothing is done.", _FLAG),
    Row("Session", ("--apply",), "With --compact: do it, before the prompt if there is one.", _FLAG),
    Row("Session", ("--no-save",), "Keep nothing of this run.", _FLAG),
    Row("Manage", ("--list-sessions",), "List sessions, newest first.", _FLAG),
    Row("Manage", ("--show-session",), "Show a session, or REF@POINT.", {"metavar": "REF"}, "session"),
    Row("Manage", ("--full",), "With --show-session: tool calls and results in full.", _FLAG),
    Row("Manage", ("--search-sessions",), "List sessions that have all these words, and where.", {"metavar": "TEXT"}),
    Row("Manage", ("--export-session",), "Write a session to stdout in another format.", {"metavar": "REF"}, "session"),
    Row("Manage", ("--format",), "With --export-session: the format; markdown where none is named.",
        {"type": click.Choice(FORMATS)}),
    Row("Manage", ("--import-session",), "Bring in sessions of this or another tool: a file, a folder, or -.",
        {"metavar": "PATH"}, "file"),
    Row("Manage", ("--delete-session",), "Delete a session for good. Repeatable.", {"metavar": "REF", **_MANY},
        "session"),
    Row("Manage", ("--archive-session",), "Archive a session: in no list, still found by its id. Repeatable.",
        {"metavar": "REF", **_MANY}, "session"),
    Row("Manage", ("--prune-sessions",), "Show which old sessions would be deleted; with --yes delete them.", _FLAG),
    Row("Manage", ("--keep",), "With --prune-sessions: all but the N last used.",
        {"metavar": "N", "type": click.IntRange(0)}),
    Row("Manage", ("--older-than",), "With --prune-sessions: not used for so long, such as 30d.", {"metavar": "AGE"}),
    Row("Manage", ("--archive",), "With --prune-sessions: archive them instead.", _FLAG),
    Row("Manage", ("--yes",), "With --prune-sessions: do it.", _FLAG),
    Row("Manage", ("--usage",), "Tokens and cost of all sessions, by day and by model.", _FLAG),
    Row("Manage", ("--consolidate",), "Put what is new in sessions, or in that of -s, into their agents' memory.",
        _FLAG),
    Row("Manage", ("--here",), "In a list, only sessions of this project.", _FLAG),
    Row("Manage", ("--archived",), "With --list-sessions or --search-sessions: those that were archived.", _FLAG),
    Row("Manage", ("--limit",), "In a list, so many at most.", {"metavar": "N", "type": click.IntRange(0)}),
    Row("Other", ("-i", "--interactive"), "Go on asking at a prompt, where /help says what else it can.", _FLAG),
    Row("Other", ("--list-agents",), "List the agents of the config file.", _FLAG),
    Row("Other", ("--list-models",), "List the models that can be asked from here, with window and price.", _FLAG),
    Row("Other", ("--list-tools",), "List the tools of the tool servers.", _FLAG),
    Row("Other", ("--config",), "Config file, in place of the usual one.", {"metavar": "PATH"}, "file"),
    Row("Other", ("--debug",), "Show tracebacks and the provider's own words with errors.", _FLAG),
    Row("Other", ("--version",), "Show the version.", _FLAG),
    Row("Other", ("-h", "short_help"), "Show what daily use needs.", _FLAG),
    Row("Other", ("--help",), "Show this.", _FLAG),
)  # fmt: skip

OF_JOBS = tuple(row.names[0] for row in ROWS if row.group == "Manage")  # which no question takes
ONCE = tuple(
    row.names[0] for row in ROWS if row.names[0] in JOBS and not {"is_flag", "multiple"} & row.attributes.keys()
)  # jobs of one session, one file, one search
_VALUED = {name for row in ROWS if not row.attributes.get("is_flag") for name in row.names}

SHORT_HELP = """\
Usage: gptsh [OPTIONS] [PROMPT]...

  gptsh "why is the sky blue"             ask; the answer goes to stdout
  git diff | gptsh "review this"          piped text goes under the prompt
  gptsh -f shot.png "what is this"        send a file along: text, image, PDF or audio
  gptsh -s 0 "shorter, please"            go on with the newest session
  gptsh -s @work "and now?"               one conversation under a name of yours
  gptsh -c "more"                         the session last used in this project
  gptsh -i -s 0                           go on at a prompt; -r picks the session from a list
  gptsh -m ollama/qwen3 "hello"           choose the model
  gptsh -m echo "hello"                   try it without a model or network
  gptsh --no-save "secret"                keep nothing
  gptsh --list-sessions                   your sessions, newest first
  gptsh --show-session 0                  read one
  gptsh --search-sessions "nginx 502"     find the ones with these words
  gptsh --export-session 0 > chat.md      take one elsewhere; --format html, openai, …
  gptsh --import-session ~/.claude        bring the history of another tool
  gptsh --usage                           tokens and cost, by day and by model

All options: gptsh --help
"""

INTRO = """\
Ask a language model. The prompt is the words; piped text goes under it, or is the prompt where there are no words.
Every conversation is kept as a JSON file. stdout is the answer and nothing else.
"""


def named(argv: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The options of a command line, each with its value, whatever is wrong with them."""
    args = iter(argv)
    for arg in args:
        if arg == "--":
            return
        if arg.startswith("--"):
            name, equals, value = arg.partition("=")
            yield name, value if equals or name not in _VALUED else next(args, "")
        elif arg.startswith("-"):
            yield from _cluster(arg, args)


def _cluster(arg: str, rest: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The options of one argument such as ``-xojson``."""
    for at, letter in enumerate(arg[1:], 2):
        if f"-{letter}" in _VALUED:
            yield f"-{letter}", arg[at:] or next(rest, "")
            return
        yield f"-{letter}", ""


class GroupedCommand(click.Command):
    """A click command whose help shows the options in their groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        by_name = {param.opts[0]: param for param in self.params}
        for group in GROUPS:
            records = [by_name[row.names[0]].get_help_record(ctx) for row in ROWS if row.group == group]
            with formatter.section(group):
                formatter.write_dl([record for record in records if record])


def build(completers: Mapping[str, Callable[..., list[Any]]] = MappingProxyType({})) -> click.Command:
    """The command, without a callback: it parses, and ``entrypoint`` decides what is done.

    ``completers`` tell a shell what a value may be, each under the ``value`` of its rows.
    """
    options = [
        click.Option(row.names, help=row.help, shell_complete=completers.get(row.value), **row.attributes)
        for row in ROWS
    ]
    words = click.Argument(["prompt"], nargs=-1, type=click.UNPROCESSED)
    return GroupedCommand(
        "gptsh",
        params=[words, *options],
        help=INTRO,
        add_help_option=False,
        context_settings={"max_content_width": 100},
    )
