"""Shell completion with click's protocol: the scripts for the shells, and the values of options.

Nothing here runs a command or prints a message: the user is typing a line. After ``-m ollama/``, or the name of another
server of one's own, that server is asked for its models, and has 0.3 seconds.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from gptsh.cli import stdio
from gptsh.cli.options import build
from gptsh.config import settings
from gptsh.core import listing, references
from gptsh.core.listing import SessionSummary, Unreadable
from gptsh.core.references import ID
from gptsh.errors import GptshError, UsageError
from gptsh.models.names import full_name
from gptsh.text import one_line, shorten

_MAX_HELP = 50  # characters, in bash, which puts values side by side
_NEWEST_SESSIONS = 50  # offered where nothing was typed: each costs the reading of a file
_RECENT_SESSIONS = 1000  # whose models are offered
_COMMON_PARAMETERS = ("temperature", "top_p", "max_tokens", "reasoning_effort", "seed", "stop")

# Bash also breaks words at "@", ":" and "=", and replaces only the text after the last of them ($2). So the script
# sends click the whole line, with the position counted from its end, and removes from each value the part that bash
# keeps; an opening quote stays in any case. After a blank an empty word starts; after a redirection, a file name. Of
# several values bash inserts only what they share, and shows each with its help; menu-complete (37) and
# insert-completions (42) would insert the help. After a name with "=" the user types its value, so no blank follows.
_BASH = """\
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} response kind value i
    local -a values=() helps=()
    local word=${line##*[[:space:]]}
    local kept=${word%%"$2"}
    kept=${kept//[\\"\\']/}
    COMPREPLY=()
    if [[ $3 == ["<>"]* || ${COMP_WORDS[COMP_CWORD]} == ["<>"]* ]]; then
        compopt -o default
        return
    fi
    [[ $line == *[[:space:]] ]] && line+="''"
    response=$(env COMP_WORDS="$line" COMP_CWORD=-1 %(complete_var)s=bash_complete "$1" 2>/dev/null)
    while IFS=, read -r kind value; do
        case $kind in
            file) compopt -o default ;;
            plain) values+=("${value%%%%$'\\t'*}") helps+=("${value#*$'\\t'}") ;;
        esac
    done <<< "$response"
    [[ ${#values[@]} -eq 1 && ${values[0]} == *= ]] && compopt -o nospace
    for i in "${!values[@]}"; do
        value=${values[i]#"$kept"}
        if [[ ${#values[@]} -gt 1 && ${helps[i]} && $COMP_TYPE != 37 && $COMP_TYPE != 42 ]]; then
            value+="  (${helps[i]})"
        fi
        COMPREPLY+=("$value")
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

# As click's own script, but it keeps commas in values and help, and the order of the values: newest first.
_FISH = """\
function %(complete_func)s
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) \
COMP_CWORD=(commandline -t) %(prog_name)s 2>/dev/null)
    for completion in $response
        set -l found (string split -m 1 "," -- $completion)
        switch $found[1]
            case file
                __fish_complete_path $found[2]
            case plain
                echo $found[2]
        end
    end
end

complete --no-files --keep-order --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Completion(ShellComplete):
    """Completion for every shell: in ``--option=value`` shells replace the whole word, so values repeat the option."""

    def get_completions(self, args: list[str], incomplete: str) -> "list[CompletionItem[str]]":
        """The words that may replace the incomplete one."""
        option, equals, _ = incomplete.partition("=")
        items = super().get_completions(args, incomplete)
        if equals and option.startswith("--"):
            for item in items:
                item.value = item.value if item.type == "file" else f"{option}={item.value}"
        return items


class _Bash(_Completion, BashComplete):
    source_template = _BASH

    def format_completion(self, item: "CompletionItem[str]") -> str:
        """Add the help of a value, such as the title of a session; the help of options would fill the screen."""
        has_help = item.help and not item.value.startswith("-")
        return f"{item.type},{item.value}\t{shorten(item.help or '', _MAX_HELP) if has_help else ''}"


class _Zsh(_Completion, ZshComplete):
    # After a name with "=" the user types its value, so no blank follows.
    source_template = ZshComplete.source_template.replace(
        "        compadd -U",
        """\
        local -a suffix
        [[ $completions[1] == *= ]] && suffix=(-S '')
        compadd "${suffix[@]}" -U""",
    )

    def format_completion(self, item: "CompletionItem[str]") -> str:
        """Escape the colons of a value with help: zsh cuts it at the first one, and older versions of click do not."""
        value = item.value.replace(":", r"\:") if item.help else item.value
        return f"{item.type}\n{value}\n{item.help or '_'}"


class _Fish(_Completion, FishComplete):
    source_template = _FISH


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "fish": _Fish, "zsh": _Zsh}


def complete(instruction: str) -> int:
    """Follow click's instruction in ``_GPTSH_COMPLETE``: ``SHELL_source`` or ``SHELL_complete``; return the exit code.

    Raises UsageError for any other instruction. Failures to find completions are silent.
    """
    name, _, action = instruction.partition("_")
    if name not in _SHELLS or action not in ("source", "complete"):
        ways = ", ".join(f"{shell}_source" for shell in _SHELLS)
        raise UsageError(f"_GPTSH_COMPLETE: {instruction!r} is not known", f"it can be {ways}")
    shell = _SHELLS[name](build(COMPLETERS), {}, "gptsh", "_GPTSH_COMPLETE")
    if action == "source":
        stdio.write_lines([shell.source().rstrip()])
        return 0
    try:
        completions = shell.complete()
    except (GptshError, LookupError, ValueError):  # a broken config file; no words, or a wrong number of them
        return 1
    stdio.write_lines([completions] if completions else ())
    return 0


# ---- values


_Values = Iterator[tuple[str, str]]  # each value with its help
# Gets the value of --config, and the beginning of the word (None: of no use, as sessions are also found by title).
Source = Callable[[str | None, str | None], _Values]


def _agents(config_path: str | None, prefix: str | None) -> _Values:
    for agent in settings.load(os.environ, config_path).agents.readable(starting_with=prefix or ""):
        names = (f"{{{name}}}" for name in agent.prompt_names())
        yield agent.name, " ".join(filter(None, (agent.model, *names)))


def _models(config_path: str | None, prefix: str | None) -> _Values:
    config = settings.load(os.environ, config_path)
    yield from config.providers.aliases.items()
    yield from ((model, "") for model in recent_models(config))
    provider, slash, _ = (prefix or "").partition("/")
    if slash:
        from gptsh.llm.client import Client  # noqa: PLC0415 - only the models of one's own server need it

        yield from ((model, "") for model in Client(config, os.environ).servers.offered_models(provider))


def recent_models(config: settings.Settings) -> Iterator[str]:
    """The models of sessions, newest first, then those of the config file, then ``echo``; with duplicates."""
    recent = (summary["model"] for summary in _readable(islice(listing.scan_sessions(), _RECENT_SESSIONS)))
    agents = (model for agent in config.agents.readable() for model in (agent.model, agent.model_small))
    tables = config.providers.tables.items()
    providers = (full_name(model, name) for name, table in tables for model in (table.model_small, *table.prices))
    yield from (model for model in chain(recent, agents, providers, ("echo",)) if model and not model.endswith("/*"))


def _tools(config_path: str | None, prefix: str | None) -> _Values:
    before, comma, _ = (prefix or "").rpartition(",")
    servers, on_line = settings.load(os.environ, config_path).tool_servers.names, before.split(",")
    for name in servers if comma else (*servers, "all"):
        if name not in on_line:
            yield f"{before}{comma}{name}", ""


def _servers(config_path: str | None, _prefix: str | None) -> _Values:
    yield from ((name, "") for name in settings.load(os.environ, config_path).tool_servers.names)


def _names(_config: str | None, _prefix: str | None) -> _Values:
    yield from ((name, filename[ID]) for name, filename in sorted(references.names_in_use()))


def _sessions(_config: str | None, prefix: str | None) -> _Values:
    yield from _names(_config, prefix)
    summaries = _readable(listing.scan_sessions(prefix or ""))
    # All that match what was typed: the shell inserts what they have in common.
    for summary in islice(summaries, _NEWEST_SESSIONS) if prefix == "" else summaries:
        if not summary["id"].isdigit():  # that would be an index
            yield summary["id"], f"{summary['title'] or summary['preview']}"


def _params(config_path: str | None, _prefix: str | None) -> _Values:
    """The keys that most models accept, and those in the config file."""
    agents = settings.load(os.environ, config_path).agents.readable()
    config_keys = (key for agent in agents for key in agent.params)
    yield from ((f"{key}=", "") for key in (*_COMMON_PARAMETERS, *config_keys))


def _variables(config_path: str | None, agent_name: str | None) -> Iterator[str]:
    """The names in the prompt of an agent, or of the default agent."""
    config = settings.load(os.environ, config_path)
    agent = config.agents.get(agent_name or config.agent or config.default_agent)
    yield from (f"{name}=" for name in (agent.prompt_names() if agent else ()))


def _readable(items: Iterable[SessionSummary | Unreadable]) -> Iterator[SessionSummary]:
    return (item for item in items if not isinstance(item, Unreadable))


# The sources of values for options and slash commands. They may also return values that do not start with the prefix.
VALUES: dict[str, Source] = {
    "agent": _agents, "model": _models, "name": _names, "param": _params, "server": _servers,
    "session": _sessions, "tools": _tools,
}  # fmt: skip


def _offer(source: Source) -> "Callable[..., list[CompletionItem[str]]]":
    """A completer for click: the values of a source that start with the prefix, without duplicates."""

    def completer(ctx: click.Context, _param: click.Parameter, prefix: str) -> "list[CompletionItem[str]]":
        texts: dict[str, str] = {}
        for value, text in source(ctx.params.get("config"), prefix):
            # The shell inserts values without quotes, so values that need quotes are left out.
            if value.startswith(prefix) and shlex.quote(value) == value:
                texts.setdefault(value, one_line(text))
        return [CompletionItem(value, help=text) for value, text in texts.items()]

    return completer


def _var(ctx: click.Context, _param: click.Parameter, prefix: str) -> "list[CompletionItem[str]]":
    """The names in the prompt of the chosen agent that have no value yet."""
    names, given = _variables(ctx.params.get("config"), ctx.params.get("agent")), ctx.params.get("var") or ()
    is_open = [name for name in names if name.startswith(prefix) and not any(value.startswith(name) for value in given)]
    return [CompletionItem(name) for name in is_open]


def _file(_ctx: click.Context, _param: click.Parameter, prefix: str) -> "list[CompletionItem[str]]":
    """Let the shell complete file names."""
    return [CompletionItem(prefix, type="file")]


# The completers by kind of value (``Row.value`` of an option).
COMPLETERS: "dict[str, Callable[..., list[CompletionItem[str]]]]" = {
    **{name: _offer(source) for name, source in VALUES.items()},
    "file": _file,
    "var": _var,
}
