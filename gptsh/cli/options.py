"""Define every option, from which the parser, the help, the man page and completion are made."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gptsh.errors import UsageError
from gptsh.terminal.stdio import ENDS, FORMATS, OUTPUTS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from click.types import OptionHelpExtra

_NAMES = 25  # columns of the options in the help; longer ones are above their texts
STDIN = "-"  # as a value of -f
MATCHING = "*"  # as a REF of --export-session: all sessions that match the filters
SHELLS = ("bash", "zsh", "fish")
GROUPS = ("Ask", "Answer", "Session", "Manage", "Other", "Maintenance")


class Row(NamedTuple):
    """One option: its group in the help, its names, its help text.

    Without ``metavar`` and ``type`` it is a flag. ``value`` is a key of ``complete.COMPLETERS``, ""
    if a shell has nothing to offer. ``may_be_blank``: what is wrong with a blank value is said
    elsewhere, if anything is. ``bare`` is the value of the option without one; "" if it needs a
    value.
    """

    group: str
    names: tuple[str, ...]
    help: str
    metavar: str = ""
    value: str = ""
    type: "click.ParamType[object] | None" = None
    many: bool = False
    may_be_blank: bool = False
    bare: str = ""


# Declares an option by the values of its row. A field has the type of what the user gives.
option: Callable[..., Any] = Row


# fmt: off
class Flags:
    """The command line, as typed: the values that click has parsed, which never change."""

    prompt: tuple[str, ...] = ()
    agent: str | None = option("Ask", ("-a", "--agent"),
        "Agent from the config file or the folder of prompts; in a list, only its sessions.",
        metavar="NAME", value="agent")
    model: str | None = option("Ask", ("-m", "--model"),
        "Model, as PROVIDER/NAME; in a list, a part of its name.", metavar="MODEL", value="model")
    fallback: tuple[str, ...] = option("Ask", ("--fallback",),
        "Model to ask instead if the first is not available. Repeatable.",
        metavar="MODEL", value="model", many=True)
    system: str | None = option("Ask", ("--system",),
        "System prompt, instead of the agent's.", metavar="TEXT", may_be_blank=True)
    param: tuple[str, ...] = option("Ask", ("-p", "--param"),
        "Generation parameter, such as temperature=0.2. Repeatable.",
        metavar="KEY=VALUE", value="param", many=True)
    file: tuple[str, ...] = option("Ask", ("-f", "--file"),
        "Send a file along: text, image, PDF, audio or video; or a folder, a quoted pattern, "
        "- for stdin. Repeatable.",
        metavar="PATH", value="file", many=True)
    var: tuple[str, ...] = option("Ask", ("--var",),
        "Value of a {NAME} in the agent's prompt, such as lang=de. Repeatable.",
        metavar="NAME=VALUE", value="var", many=True)
    edit: bool = option("Ask", ("-e", "--edit"),
        "Write the question in $VISUAL or $EDITOR, beside the piped text or the last answer.")
    no_stdin: bool = option("Ask", ("--no-stdin",), "Do not read standard input.")
    tools: str | None = option("Ask", ("--tools",),
        "Tools to offer instead of the agent's: SERVER, SERVER__TOOL or all, comma-separated.",
        metavar="LIST", value="tools")
    no_tools: bool = option("Ask", ("--no-tools",), "Offer no tools.")
    web: bool = option("Ask", ("--web",),
        "Let the model search the web, with its provider's own search. The session keeps this.")
    no_web: bool = option("Ask", ("--no-web",), "Do not let the model search the web any more.")
    max_cost: float | None = option("Ask", ("--max-cost",),
        "Send nothing that may bring the turn's cost above this.",
        metavar="USD", type=click.FloatRange(0, 1e9))
    timeout: str | None = option("Ask", ("--timeout",),
        "Stop after S seconds; the partial answer is saved.", metavar="S", may_be_blank=True)
    dry_run: bool = option("Ask", ("--dry-run",),
        "Show what would be sent, without sending it; with -o json, show the request itself.")
    output: str | None = option("Answer", ("-o", "--output"),
        "Format of the answer and of lists; default: text in a pipe, markdown on a terminal.",
        type=click.Choice(OUTPUTS))
    no_stream: bool = option("Answer", ("--no-stream",), "Request the answer in one piece.")
    extract: bool = option("Answer", ("-x", "--extract"),
        "Print only the first fenced code block, or the whole answer if it has none.")
    block: str | None = option("Answer", ("--block",),
        "As -x, but the first code block of this language, or one by its place (2, last).",
        metavar="NAME")
    schema: str | None = option("Answer", ("--schema",),
        "JSON Schema that the answer must conform to.", metavar="FILE|JSON", value="file")
    truncate: str | None = option("Answer", ("--truncate",),
        "Where to cut piped or attached text that does not fit.", type=click.Choice(ENDS))
    reasoning: bool = option("Answer", ("--reasoning",),
        "Show the model's reasoning on stderr, even if that is no terminal.")
    no_reasoning: bool = option("Answer", ("--no-reasoning",), "Do not show the model's reasoning.")
    session: str | None = option("Session", ("-s", "--session"),
        "Continue a session: index (0 = newest), id, id prefix, file name, @NAME, or REF@POINT to "
        "fork it. Without a prompt it asks an open question again, or shows the last answer.",
        metavar="REF", value="session")
    continue_: bool = option("Session", ("-c", "--continue", "continue_"),
        "Continue the session last used in this project.")
    resume: bool = option("Session", ("-r", "--resume"),
        "Pick the session from a list, or name it: -r REF.")
    retry: bool = option("Session", ("--retry",),
        "Ask the session's last question again, with its files; -m chooses another model.")
    new: bool = option("Session", ("-n", "--new"),
        "Start a new session, even if GPTSH_SESSION is set.")
    title: str | None = option("Session", ("--title",),
        "Set the title of the session.", metavar="TEXT")
    tag: tuple[str, ...] = option("Session", ("--tag",),
        "Tag the session; in a list, only sessions with it. Repeatable.", metavar="NAME", many=True)
    untag: tuple[str, ...] = option("Session", ("--untag",),
        "Remove a tag from the session. Repeatable.", metavar="NAME", many=True)
    name: str | None = option("Session", ("--name",),
        "Name the session; a name of another session moves.", metavar="@NAME", value="name")
    snapshot: str | None = option("Session", ("--snapshot",),
        "Take a snapshot of the session under this name; REF@NAME returns to it.", metavar="NAME")
    compact: bool = option("Session", ("--compact",),
        "Show how gptsh would shorten the session for sending; changes nothing.")
    apply: bool = option("Session", ("--apply",),
        "With --compact: do it, before the prompt if there is one.")
    no_save: bool = option("Session", ("--no-save",), "Do not save this run.")
    list_sessions: bool = option("Manage", ("--list-sessions",), "List sessions, newest first.")
    show_session: str | None = option("Manage", ("--show-session",),
        "Show a session, or REF@POINT.", metavar="REF", value="session")
    full: bool = option("Manage", ("--full",),
        "With --show-session: tool calls and results in full.")
    search_sessions: str | None = option("Manage", ("--search-sessions",),
        "List sessions that contain all these words, with the matching passage.", metavar="TEXT")
    export_session: tuple[str, ...] = option("Manage", ("--export-session",),
        "Write a session to stdout in another format; without REF, those that --since, --here, "
        "--tag … choose. Repeatable.",
        metavar="[REF]", value="session", many=True, bare=MATCHING)
    format: str | None = option("Manage", ("--format",),
        "With --export-session: the format; default: markdown.", type=click.Choice(FORMATS))
    import_session: str | None = option("Manage", ("--import-session",),
        "Import sessions of gptsh or another tool: files, folders, or -.",
        metavar="PATH...", value="file")
    keep_keys: bool = option("Maintenance", ("--keep-keys",),
        "With --import-session: a session's key in nanobot becomes its @NAME.")
    delete_session: tuple[str, ...] = option("Manage", ("--delete-session",),
        "Delete a session permanently. Repeatable.", metavar="REF", value="session", many=True)
    archive_session: tuple[str, ...] = option("Manage", ("--archive-session",),
        "Archive a session: hidden from lists, but still found by its id. Repeatable.",
        metavar="REF", value="session", many=True)
    delete_snapshot: str | None = option("Manage", ("--delete-snapshot",),
        "Delete a snapshot, but no messages.", metavar="REF@NAME", value="session")
    prune_sessions: bool = option("Maintenance", ("--prune-sessions",),
        "Show which old sessions would be deleted; with --yes, delete them.")
    keep: int | None = option("Maintenance", ("--keep",),
        "With --prune-sessions: keep the N last used sessions.",
        metavar="N", type=click.IntRange(0))
    older_than: str | None = option("Maintenance", ("--older-than",),
        "With --prune-sessions: sessions not used for this long, such as 30d.",
        metavar="AGE", may_be_blank=True)
    archive: bool = option("Maintenance", ("--archive",),
        "With --prune-sessions: archive them instead.")
    yes: bool = option("Manage", ("--yes",),
        "With --prune-sessions: do it; with --delete-session: do not ask.")
    unanswered: bool = option("Maintenance", ("--unanswered",),
        "With --prune-sessions: sessions whose only question has had no answer for an hour.")
    usage: bool = option("Manage", ("--usage",),
        "Show tokens and cost by day and by model, of all sessions or of the one from -s.")
    consolidate: bool = option("Maintenance", ("--consolidate",),
        "Add what is new in all sessions, or in the one from -s, to their agents' memory.")
    here: bool = option("Manage", ("--here",),
        "In a list, show only sessions that began in this project.")
    since: str | None = option("Manage", ("--since",),
        "In a list, only sessions used since then, such as 12h, 30d, today or 2026-11-01; with "
        "--usage, the days.",
        metavar="AGE|DATE", may_be_blank=True)
    archived: bool = option("Manage", ("--archived",),
        "In a list of sessions, or with --export-session or --prune-sessions: archived ones "
        "instead.")
    limit: int | None = option("Manage", ("--limit",),
        "In a list, show at most N entries.", metavar="N", type=click.IntRange(0))
    interactive: bool = option("Other", ("-i", "--interactive"),
        "Ask one question after another at a prompt; /help lists its commands.")
    list_agents: bool = option("Other", ("--list-agents",),
        "List the agents, from the config file and the folder of prompts.")
    list_models: bool = option("Other", ("--list-models",),
        "List the models that you can use now, with window and price.")
    list_tools: bool = option("Other", ("--list-tools",), "List the tools of the tool servers.")
    login: str | None = option("Other", ("--login",),
        "Log in at a remote tool server, in the browser.", metavar="SERVER", value="server")
    logout: str | None = option("Other", ("--logout",),
        "Forget the login at a remote tool server.", metavar="SERVER", value="server")
    init: bool = option("Other", ("--init",),
        "Write a config file with every key as a comment; on a terminal, asks for provider and "
        "model.")
    shell_integration: str | None = option("Other", ("--shell-integration",),
        "Print a key binding for the shell: Alt-E turns a description into a command.",
        type=click.Choice(SHELLS))
    config: str | None = option("Other", ("--config",),
        "Config file, instead of ~/.config/gptsh/config.toml.", metavar="PATH", value="file")
    debug: bool = option("Other", ("--debug",),
        "With errors, also show the traceback and the provider's response.")
    version: bool = option("Other", ("--version",), "Show the version.")
    short_help: bool = option("Other", ("-h", "short_help"), "Show the short help.")
    help: bool = option("Other", ("--help",), "Show all options.")
    # fmt: on

    def __init__(self, **values: object) -> None:
        """``values``: the value of each field."""
        vars(self).update(values)

    def changed(self, **values: object) -> "Flags":
        """Return a copy in which these fields have other values."""
        return Flags(**{**vars(self), **values})

    @property
    def given(self) -> tuple[str, ...]:
        """The options that are on the command line, each by the first of its names."""
        given = []
        for field, row in _BY_FIELD.items():
            value = getattr(self, field)
            if value is not None and value is not False and value != ():  # 0 is a value
                given.append(row.names[0])
        return tuple(given)

    @property
    def has_labels(self) -> bool:
        """Whether the session is to be labelled, which needs no question."""
        return not set(LABELS).isdisjoint(self.given)


_BY_FIELD: Mapping[str, Row] = {
    field: row for field, row in vars(Flags).items() if isinstance(row, Row)
}
ROWS = tuple(_BY_FIELD.values())


class Job(NamedTuple):
    """What runs instead of a question: ``MODULE:FUNCTION`` of ``cli/``.

    ``options``: those it may be used with.
    """

    target: str
    options: tuple[str, ...] = ()


# They choose who answers.
AGENT_OPTIONS = (
    "-a",
    "-m",
    "--fallback",
    "--system",
    "-p",
    "--tools",
    "--no-tools",
    "--web",
    "--no-web",
)
# They change a session without a question.
LABELS = ("--title", "--tag", "--untag", "--name", "--snapshot")
FILTERS = ("-a", "-m", "--tag", "--here", "--since", "--limit")  # they choose among sessions
JOBS: Mapping[str, Job] = {
    "--list-sessions": Job("jobs:list_sessions", (*FILTERS, "--archived")),
    "--show-session": Job("jobs:show_session", ("--full",)),
    "--search-sessions": Job("jobs:search_sessions", (*FILTERS, "--archived")),
    "--export-session": Job("jobs:export_sessions", (*FILTERS, "--archived", "--format")),
    "--import-session": Job("import_sessions:import_session", ("--keep-keys",)),
    "--delete-session": Job("jobs:delete_sessions", ("--yes",)),
    "--archive-session": Job("jobs:archive_sessions"),
    "--delete-snapshot": Job("jobs:delete_snapshot"),
    "--prune-sessions": Job(
        "upkeep:prune_sessions",
        (*FILTERS, "--archived", "--keep", "--older-than", "--unanswered", "--archive", "--yes"),
    ),
    "--usage": Job("jobs:show_usage", (*FILTERS, "-s")),
    "--list-agents": Job("lists:list_agents", ("-m", "--limit")),
    "--list-models": Job("lists:list_models", ("-m", "--limit")),
    "--list-tools": Job("lists:list_tools", ("-a", "--tools", "--no-tools", "--limit")),
    "--login": Job("setup:log_in"),
    "--logout": Job("setup:log_out"),
    "--init": Job("setup:init"),
    "--shell-integration": Job("complete:print_integration"),
    "--consolidate": Job("upkeep:consolidate", (*FILTERS, "-s", "-c", "--timeout")),
}
# They change input and output only: every job accepts them, so that an alias can contain them.
COMMON_OPTIONS = (
    "-o",
    "--no-stdin",
    "--no-stream",
    "--reasoning",
    "--no-reasoning",
    "--config",
    "--debug",
)
# Not used with -i, and neither are the jobs.
NOT_INTERACTIVE = (
    "-e",
    "-x",
    "--block",
    "--schema",
    "--dry-run",
    "--compact",
    "--apply",
    "--retry",
)

USAGE = "Usage: gptsh [OPTIONS] [PROMPT]..."
EXAMPLES = """\
  gptsh "why is the sky blue"         ask; the answer is on stdout
  git diff | gptsh "review this"      piped text is added below the prompt
  gptsh -f shot.png "what is this"    attach a file (text, image, PDF, …)
  gptsh -s 0 "shorter, please"        continue the newest session
  gptsh -s @work "and now?"           a session with a name of your choice
  gptsh -c "more"                     the session last used in this project
  gptsh -i -s 0                       continue interactively; -r: pick one
  gptsh -m ollama/qwen3 "hello"       choose the model
  gptsh -m echo "hello"               try gptsh without a model or network
  gptsh --no-save "secret"            do not save this
  gptsh --list-sessions               your sessions, newest first
  gptsh --show-session 0              read one
  gptsh --search-sessions nginx       find the sessions with this word
  gptsh --export-session 0 > chat.md  export one; --format html, openai, …
  gptsh --import-session ~/.claude    import the history of another tool
  gptsh --usage                       tokens and cost, by day and by model
"""
SHORT_HELP = f"{USAGE}\n\n{EXAMPLES}\nAll options: gptsh --help\n"

INTRO = (
    "Ask a language model. Piped text is added below your prompt; if you type no prompt, the "
    "piped text is the prompt.\n"
    "gptsh saves every conversation as a JSON file. stdout contains the answer and nothing else.\n"
)
# "\b" keeps click from breaking the lines.
COMPLETION = """\
\b
TAB completion in bash: eval "$(_GPTSH_COMPLETE=bash_source gptsh)"
zsh_source and fish_source print the scripts for the other shells.
"""


def _not_blank(_ctx: click.Context, param: click.Parameter, value: object) -> object:
    for text in value if isinstance(value, tuple) else (value,):
        if isinstance(text, str) and not text.strip():
            raise UsageError(f"{param.opts[-1]} is empty")
    return value


class _Option(click.Option):
    """A click option whose help is the text of its row alone, without the range of a number."""

    def get_help_extra(self, ctx: click.Context) -> "OptionHelpExtra":
        """Return nothing."""
        return {}


class GroupedCommand(click.Command):
    """A click command whose help shows examples, then the options in their groups."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the introduction."""
        with formatter.section("Examples"):
            formatter.write(EXAMPLES)
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group, in columns of one width."""
        by_name = {param.opts[0]: param for param in self.params}
        for group in GROUPS:
            params = [by_name[row.names[0]] for row in ROWS if row.group == group]
            records = filter(None, (param.get_help_record(ctx) for param in params))
            with formatter.section(group):
                rows = [(names.ljust(_NAMES), text) for names, text in records]
                formatter.write_dl(rows, col_max=_NAMES)


def _flag_arguments(row: Row) -> dict[str, Any]:
    """What click is told of an option's value: it has one, may have one, or is a flag."""
    if row.bare:
        return {"is_flag": False, "flag_value": row.bare}
    return {} if row.metavar or row.type else {"is_flag": True}


Completer = Callable[[click.Context, click.Parameter, str], list["CompletionItem[str]"]]


def build(completers: Mapping[str, Completer] = MappingProxyType({})) -> click.Command:
    """Build the click command, which only parses: ``entrypoint`` runs the job.

    ``completers`` offer the values of an option to a shell, by the ``value`` of its row.
    """
    options = [
        _Option(
            row.names,
            help=row.help,
            metavar=row.metavar or None,
            type=row.type,
            multiple=row.many,
            callback=None if row.may_be_blank else _not_blank,
            shell_complete=completers.get(row.value),
            **_flag_arguments(row),
        )
        for row in ROWS
    ]
    words = click.Argument(["prompt"], nargs=-1, type=click.UNPROCESSED)
    return GroupedCommand(
        "gptsh",
        params=[words, *options],
        help=INTRO,
        epilog=COMPLETION,
        add_help_option=False,
        context_settings={"max_content_width": 100},
    )


def parse_leniently(argv: Sequence[str]) -> Flags:
    """Parse a command line that may be wrong; a wrong value counts as not given."""
    ctx = build().make_context(
        "gptsh",
        [*argv],
        resilient_parsing=True,
        ignore_unknown_options=True,
    )
    return Flags(**ctx.params)
