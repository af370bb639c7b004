"""Define every option, from which the parser, the help, the man page and completion are made."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from gptsh.errors import UsageError
from gptsh.terminal.stdio import ENDS, FORMATS, OUTPUTS

if TYPE_CHECKING:
    from click.parser import _OptionParser
    from click.shell_completion import CompletionItem
    from click.types import OptionHelpExtra

_NAMES_WIDTH = 25  # columns of the options in the help; longer ones are above their texts
STDIN = "-"  # as a value of -f
MATCHING = "*"  # as a REF of --export-session: all sessions that match the filters
SHELLS = ("bash", "zsh", "fish")
GROUPS = ("Ask", "Answer", "Session", "Manage", "Other", "Maintenance")

Role = Literal[
    "",
    "agent",  # chooses who answers
    "label",  # changes a session without a question
    "every job",  # concerns only input and output; an alias may contain it
    "not interactive",  # cannot be used with -i, and neither can a job
]


class Row(NamedTuple):
    """One option. Without ``metavar`` and ``type`` it is a flag."""

    names: tuple[str, ...]
    group: str  # in the help
    help: str
    role: Role = ""
    job: str = ""  # what it runs instead of a question: MODULE:FUNCTION of ``cli/``
    jobs: tuple[str, ...] = ()  # with which it can be used
    metavar: str = ""
    value: str = ""  # a key of ``complete.COMPLETERS``; "" if a shell has nothing to offer
    type: "click.ParamType[object] | None" = None
    many: bool = False
    may_be_blank: bool = False  # a blank value is valid, or an error that is raised later
    bare: str = ""  # the value of the option without one; "" if it needs a value


def option(*names: str, **columns: Any) -> Any:
    """Declare an option by the columns of its row. A field has the type of what the user gives."""
    return Row(names, **columns)


# The jobs that act on the sessions which the filters choose.
SESSION_LISTS = (
    "--list-sessions",
    "--search-sessions",
    "--export-session",
    "--prune-sessions",
    "--usage",
    "--consolidate",
)


class Flags:
    """The command line, as typed: the values that click has parsed, which never change.

    The help lists the options in this order, group by group.
    """

    prompt: tuple[str, ...] = ()
    agent: str | None = option(
        "-a",
        "--agent",
        group="Ask",
        role="agent",
        jobs=(*SESSION_LISTS, "--list-tools"),
        metavar="NAME",
        value="agent",
        help=("Agent from the config file or the folder of prompts; in a list, only its sessions."),
    )
    model: str | None = option(
        "-m",
        "--model",
        group="Ask",
        role="agent",
        jobs=(*SESSION_LISTS, "--list-agents", "--list-models"),
        metavar="MODEL",
        value="model",
        help="Model, as PROVIDER/NAME; in a list, a part of its name.",
    )
    fallback: tuple[str, ...] = option(
        "--fallback",
        group="Ask",
        role="agent",
        metavar="MODEL",
        value="model",
        many=True,
        help="Model to ask instead if the first is not available. Repeatable.",
    )
    system: str | None = option(
        "--system",
        group="Ask",
        role="agent",
        metavar="TEXT",
        may_be_blank=True,
        help="System prompt, instead of the agent's.",
    )
    param: tuple[str, ...] = option(
        "-p",
        "--param",
        group="Ask",
        role="agent",
        metavar="KEY=VALUE",
        value="param",
        many=True,
        help="Generation parameter, such as temperature=0.2. Repeatable.",
    )
    file: tuple[str, ...] = option(
        "-f",
        "--file",
        group="Ask",
        metavar="PATH",
        value="file",
        many=True,
        help=(
            "Send a file along: text, image, PDF, audio or video; or a folder, a quoted pattern, "
            "- for stdin. Repeatable."
        ),
    )
    var: tuple[str, ...] = option(
        "--var",
        group="Ask",
        metavar="NAME=VALUE",
        value="var",
        many=True,
        help="Value of a {NAME} in the agent's prompt, such as lang=de. Repeatable.",
    )
    edit: bool = option(
        "-e",
        "--edit",
        group="Ask",
        role="not interactive",
        help=(
            "Write the question in $VISUAL or $EDITOR, beside the piped text or the last answer."
        ),
    )
    no_stdin: bool = option(
        "--no-stdin",
        group="Ask",
        role="every job",
        help="Do not read standard input.",
    )
    tools: str | None = option(
        "--tools",
        group="Ask",
        role="agent",
        jobs=("--list-tools",),
        metavar="LIST",
        value="tools",
        help=(
            "Tools to offer instead of the agent's: SERVER, SERVER__TOOL or all, comma-separated."
        ),
    )
    no_tools: bool = option(
        "--no-tools",
        group="Ask",
        role="agent",
        jobs=("--list-tools",),
        help="Offer no tools.",
    )
    web: bool = option(
        "--web",
        group="Ask",
        role="agent",
        help=(
            "Let the model search the web, with its provider's own search. The session keeps this."
        ),
    )
    no_web: bool = option(
        "--no-web",
        group="Ask",
        role="agent",
        help="Do not let the model search the web any more.",
    )
    max_cost: float | None = option(
        "--max-cost",
        group="Ask",
        metavar="USD",
        type=click.FloatRange(0, 1000000000.0),
        help="Send nothing that may bring the turn's cost above this.",
    )
    timeout: str | None = option(
        "--timeout",
        group="Ask",
        jobs=("--consolidate",),
        metavar="S",
        may_be_blank=True,
        help="Stop after S seconds; the partial answer is saved.",
    )
    dry_run: bool = option(
        "--dry-run",
        group="Ask",
        role="not interactive",
        help=(
            "Show what would be sent, without sending it; with -o json, show the request itself."
        ),
    )
    output: str | None = option(
        "-o",
        "--output",
        group="Answer",
        role="every job",
        type=click.Choice(OUTPUTS),
        help=(
            "Format of the answer and of lists; default: text in a pipe, markdown on a terminal."
        ),
    )
    no_stream: bool = option(
        "--no-stream",
        group="Answer",
        role="every job",
        help="Request the answer in one piece.",
    )
    extract: bool = option(
        "-x",
        "--extract",
        group="Answer",
        role="not interactive",
        help="Print only the first fenced code block, or the whole answer if it has none.",
    )
    block: str | None = option(
        "--block",
        group="Answer",
        role="not interactive",
        metavar="NAME",
        help="As -x, but the first code block of this language, or one by its place (2, last).",
    )
    schema: str | None = option(
        "--schema",
        group="Answer",
        role="not interactive",
        metavar="FILE|JSON",
        value="file",
        help="JSON Schema that the answer must conform to.",
    )
    truncate: str | None = option(
        "--truncate",
        group="Answer",
        type=click.Choice(ENDS),
        help="Where to cut piped or attached text that does not fit.",
    )
    reasoning: bool = option(
        "--reasoning",
        group="Answer",
        role="every job",
        help="Show the model's reasoning on stderr, even if that is no terminal.",
    )
    no_reasoning: bool = option(
        "--no-reasoning",
        group="Answer",
        role="every job",
        help="Do not show the model's reasoning.",
    )
    session: str | None = option(
        "-s",
        "--session",
        group="Session",
        jobs=("--usage", "--consolidate"),
        metavar="REF",
        value="session",
        help=(
            "Continue a session: index (0 = newest), id, id prefix, file name, @NAME, or "
            "REF@POINT to fork it. Without a prompt it asks an open question again, or shows the "
            "last answer."
        ),
    )
    continue_: bool = option(
        "-c",
        "--continue",
        "continue_",
        group="Session",
        jobs=("--consolidate",),
        help="Continue the session last used in this project.",
    )
    resume: bool = option(
        "-r",
        "--resume",
        group="Session",
        help="Pick the session from a list, or name it: -r REF.",
    )
    retry: bool = option(
        "--retry",
        group="Session",
        role="not interactive",
        help="Ask the session's last question again, with its files; -m chooses another model.",
    )
    new: bool = option(
        "-n",
        "--new",
        group="Session",
        help="Start a new session, even if GPTSH_SESSION is set.",
    )
    title: str | None = option(
        "--title",
        group="Session",
        role="label",
        metavar="TEXT",
        help="Set the title of the session.",
    )
    tag: tuple[str, ...] = option(
        "--tag",
        group="Session",
        role="label",
        jobs=SESSION_LISTS,
        metavar="NAME",
        many=True,
        help="Tag the session; in a list, only sessions with it. Repeatable.",
    )
    untag: tuple[str, ...] = option(
        "--untag",
        group="Session",
        role="label",
        metavar="NAME",
        many=True,
        help="Remove a tag from the session. Repeatable.",
    )
    name: str | None = option(
        "--name",
        group="Session",
        role="label",
        metavar="@NAME",
        value="name",
        help="Name the session; a name of another session moves.",
    )
    snapshot: str | None = option(
        "--snapshot",
        group="Session",
        role="label",
        metavar="NAME",
        help="Take a snapshot of the session under this name; REF@NAME returns to it.",
    )
    compact: bool = option(
        "--compact",
        group="Session",
        role="not interactive",
        help="Show how gptsh would shorten the session for sending; changes nothing.",
    )
    apply: bool = option(
        "--apply",
        group="Session",
        role="not interactive",
        help="With --compact: do it, before the prompt if there is one.",
    )
    no_save: bool = option(
        "--no-save",
        group="Session",
        help="Do not save this run.",
    )
    list_sessions: bool = option(
        "--list-sessions",
        group="Manage",
        job="jobs:list_sessions",
        help="List sessions, newest first.",
    )
    show_session: str | None = option(
        "--show-session",
        group="Manage",
        job="jobs:show_session",
        metavar="REF",
        value="session",
        help="Show a session, or REF@POINT.",
    )
    full: bool = option(
        "--full",
        group="Manage",
        jobs=("--show-session",),
        help="With --show-session: tool calls and results in full.",
    )
    search_sessions: str | None = option(
        "--search-sessions",
        group="Manage",
        job="jobs:search_sessions",
        metavar="TEXT",
        help="List sessions that contain all these words, with the matching passage.",
    )
    export_session: tuple[str, ...] = option(
        "--export-session",
        group="Manage",
        job="jobs:export_sessions",
        metavar="[REF]",
        value="session",
        many=True,
        bare=MATCHING,
        help=(
            "Write a session to stdout in another format; without REF, those that --since, "
            "--here, --tag … choose. Repeatable."
        ),
    )
    format: str | None = option(
        "--format",
        group="Manage",
        jobs=("--export-session",),
        type=click.Choice(FORMATS),
        help="With --export-session: the format; default: markdown.",
    )
    import_session: str | None = option(
        "--import-session",
        group="Manage",
        job="import_sessions:import_session",
        metavar="PATH...",
        value="file",
        help="Import sessions of gptsh or another tool: files, folders, or -.",
    )
    keep_keys: bool = option(
        "--keep-keys",
        group="Maintenance",
        jobs=("--import-session",),
        help="With --import-session: a session's key in nanobot becomes its @NAME.",
    )
    delete_session: tuple[str, ...] = option(
        "--delete-session",
        group="Manage",
        job="jobs:delete_sessions",
        metavar="REF",
        value="session",
        many=True,
        help="Delete a session permanently. Repeatable.",
    )
    archive_session: tuple[str, ...] = option(
        "--archive-session",
        group="Manage",
        job="jobs:archive_sessions",
        metavar="REF",
        value="session",
        many=True,
        help="Archive a session: hidden from lists, but still found by its id. Repeatable.",
    )
    delete_snapshot: str | None = option(
        "--delete-snapshot",
        group="Manage",
        job="jobs:delete_snapshot",
        metavar="REF@NAME",
        value="session",
        help="Delete a snapshot, but no messages.",
    )
    prune_sessions: bool = option(
        "--prune-sessions",
        group="Maintenance",
        job="upkeep:prune_sessions",
        help="Show which old sessions would be deleted; with --yes, delete them.",
    )
    keep: int | None = option(
        "--keep",
        group="Maintenance",
        jobs=("--prune-sessions",),
        metavar="N",
        type=click.IntRange(0),
        help="With --prune-sessions: keep the N last used sessions.",
    )
    older_than: str | None = option(
        "--older-than",
        group="Maintenance",
        jobs=("--prune-sessions",),
        metavar="AGE",
        may_be_blank=True,
        help="With --prune-sessions: sessions not used for this long, such as 30d.",
    )
    archive: bool = option(
        "--archive",
        group="Maintenance",
        jobs=("--prune-sessions",),
        help="With --prune-sessions: archive them instead.",
    )
    yes: bool = option(
        "--yes",
        group="Manage",
        jobs=("--delete-session", "--prune-sessions"),
        help="With --prune-sessions: do it; with --delete-session: do not ask.",
    )
    unanswered: bool = option(
        "--unanswered",
        group="Maintenance",
        jobs=("--prune-sessions",),
        help=("With --prune-sessions: sessions whose only question has had no answer for an hour."),
    )
    usage: bool = option(
        "--usage",
        group="Manage",
        job="jobs:show_usage",
        help="Show tokens and cost by day and by model, of all sessions or of the one from -s.",
    )
    consolidate: bool = option(
        "--consolidate",
        group="Maintenance",
        job="upkeep:consolidate",
        help="Add what is new in all sessions, or in the one from -s, to their agents' memory.",
    )
    here: bool = option(
        "--here",
        group="Manage",
        jobs=SESSION_LISTS,
        help="In a list, show only sessions that began in this project.",
    )
    since: str | None = option(
        "--since",
        group="Manage",
        jobs=SESSION_LISTS,
        metavar="AGE|DATE",
        may_be_blank=True,
        help=(
            "In a list, only sessions used since then, such as 12h, 30d, today or 2026-11-01; "
            "with --usage, the days."
        ),
    )
    archived: bool = option(
        "--archived",
        group="Manage",
        jobs=("--list-sessions", "--search-sessions", "--export-session", "--prune-sessions"),
        help=(
            "In a list of sessions, or with --export-session or --prune-sessions: archived ones "
            "instead."
        ),
    )
    limit: int | None = option(
        "--limit",
        group="Manage",
        jobs=(*SESSION_LISTS, "--list-agents", "--list-models", "--list-tools"),
        metavar="N",
        type=click.IntRange(0),
        help="In a list, show at most N entries.",
    )
    interactive: bool = option(
        "-i",
        "--interactive",
        group="Other",
        help="Ask one question after another at a prompt; /help lists its commands.",
    )
    list_agents: bool = option(
        "--list-agents",
        group="Other",
        job="lists:list_agents",
        help="List the agents, from the config file and the folder of prompts.",
    )
    list_models: bool = option(
        "--list-models",
        group="Other",
        job="lists:list_models",
        help="List the models that you can use now, with window and price.",
    )
    list_tools: bool = option(
        "--list-tools",
        group="Other",
        job="lists:list_tools",
        help="List the tools of the tool servers.",
    )
    login: str | None = option(
        "--login",
        group="Other",
        job="setup:log_in",
        metavar="SERVER",
        value="server",
        help="Log in to a remote tool server, in the browser.",
    )
    logout: str | None = option(
        "--logout",
        group="Other",
        job="setup:log_out",
        metavar="SERVER",
        value="server",
        help="Log out of a remote tool server.",
    )
    init: bool = option(
        "--init",
        group="Other",
        job="setup:init",
        help=(
            "Write a config file with every key as a comment; on a terminal, asks for provider "
            "and model."
        ),
    )
    shell_integration: str | None = option(
        "--shell-integration",
        group="Other",
        job="complete:print_integration",
        type=click.Choice(SHELLS),
        help="Print a key binding for the shell: Alt-E turns a description into a command.",
    )
    config: str | None = option(
        "--config",
        group="Other",
        role="every job",
        metavar="PATH",
        value="file",
        help="Config file, instead of ~/.config/gptsh/config.toml.",
    )
    debug: bool = option(
        "--debug",
        group="Other",
        role="every job",
        help="With errors, also show the traceback and the provider's response.",
    )
    version: bool = option(
        "--version",
        group="Other",
        help="Show the version.",
    )
    short_help: bool = option(
        "-h",
        "short_help",
        group="Other",
        help="Show the short help.",
    )
    help: bool = option(
        "--help",
        group="Other",
        help="Show all options.",
    )

    def __init__(self, **values: object) -> None:
        """Store the value of each field."""
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
        return any(name in LABELS for name in self.given)


_BY_FIELD: Mapping[str, Row] = {
    field: row for field, row in vars(Flags).items() if isinstance(row, Row)
}
ROWS = tuple(_BY_FIELD.values())


def _names_with(role: Role) -> tuple[str, ...]:
    return tuple(row.names[0] for row in ROWS if row.role == role)


AGENT_OPTIONS = _names_with("agent")
LABELS = _names_with("label")
NOT_INTERACTIVE = _names_with("not interactive")
# They choose among sessions.
FILTERS = tuple(row.names[0] for row in ROWS if "--list-sessions" in row.jobs)
# The options that run something instead of a question.
JOBS: Mapping[str, Row] = {row.names[0]: row for row in ROWS if row.job}

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


Completer = Callable[[click.Context, click.Parameter, str], list["CompletionItem[str]"]]


class _Option(click.Option):
    """A click option that is made from its row."""

    def __init__(self, row: Row, completer: Completer | None) -> None:
        flag: dict[str, Any] = {}  # click takes is_flag=False alone for "its value may be missing"
        if row.bare:
            flag = {"is_flag": False, "flag_value": row.bare}
        elif not row.metavar and not row.type:
            flag = {"is_flag": True}
        super().__init__(
            row.names,
            help=row.help,
            metavar=row.metavar or None,
            type=row.type,
            multiple=row.many,
            callback=None if row.may_be_blank else _refuse_blank,
            shell_complete=completer,
            **flag,
        )
        self.group = row.group

    def get_help_extra(self, ctx: click.Context) -> "OptionHelpExtra":
        """Return nothing: the range of a number is left out of the help."""
        return {}


def _refuse_blank(_ctx: click.Context, param: click.Parameter, value: object) -> object:
    """Return the value. Raises UsageError if it, or one of several, is blank."""
    texts = value if isinstance(value, tuple) else (value,)
    for text in texts:
        if isinstance(text, str) and not text.strip():
            raise UsageError(f"{param.opts[-1]} is empty")
    return value


class _Command(click.Command):
    """A click command whose help shows examples, then the options in their groups."""

    def make_parser(self, ctx: click.Context) -> "_OptionParser":
        """Return click's parser, which finds ``-m`` at once.

        Click looks for every option among the long ones first. A short one that is not there costs
        an exception with suggestions: 2 ms of each start.
        """
        parser = super().make_parser(ctx)
        parser._long_opt.update(parser._short_opt)  # noqa: SLF001 (there is no public way)
        return parser

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the introduction."""
        with formatter.section("Examples"):
            formatter.write(EXAMPLES)
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group, in columns of one width."""
        for group in GROUPS:
            lines = []
            for param in self.params:
                record = param.get_help_record(ctx)
                if record and isinstance(param, _Option) and param.group == group:
                    names, text = record
                    lines.append((names.ljust(_NAMES_WIDTH), text))
            with formatter.section(group):
                formatter.write_dl(lines, col_max=_NAMES_WIDTH)


def build(completers: Mapping[str, Completer] = MappingProxyType({})) -> click.Command:
    """Build the click command, which only parses: ``entrypoint`` runs the job.

    ``completers`` offer the values of an option to a shell, by the ``value`` of its row.
    """
    words = click.Argument(["prompt"], nargs=-1, type=click.UNPROCESSED)
    options = [_Option(row, completers.get(row.value)) for row in ROWS]
    return _Command(
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
