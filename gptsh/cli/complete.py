"""Shell completion with click's protocol: the scripts for the shells, and the values of options.

Nothing here sends a request, runs a command or prints a message: the user is typing a line.
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
from gptsh.text import one_line, visible

_MAX_VALUES = 50  # nobody reads more, and each session costs the reading of a file
_RECENT_SESSIONS = 1000  # whose models are offered
_COMMON_PARAMETERS = ("temperature", "top_p", "max_tokens", "reasoning_effort", "seed", "stop")

# Bash also breaks words at "@", ":" and "=", and replaces only the text after the last of them ($2). So the script
# sends click the whole line, with the position counted from its end, and removes from each value the part that bash
# keeps; an opening quote stays in any case. After a blank an empty word starts; after a redirection, a file name.
_BASH = """\
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} response kind value
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
            plain) COMPREPLY+=("${value#"$kept"}") ;;
        esac
    done <<< "$response"
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


class _Zsh(_Completion, ZshComplete):
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
Source = Callable[[str | None, str], _Values]  # gets the value of --config, and the beginning of the word


def _agents(config_path: str | None, _prefix: str) -> _Values:
    for name, agent in settings.load(os.environ, config_path).agents.items():
        yield name, agent.model or ""


def _models(config_path: str | None, _prefix: str) -> _Values:
    yield from ((model, "") for model in recent_models(settings.load(os.environ, config_path)))


def recent_models(config: settings.Settings) -> Iterator[str]:
    """The models of sessions, newest first, then those of the config file, then ``echo``; with duplicates."""
    recent = (summary["model"] for summary in _readable(islice(listing.scan_sessions(), _RECENT_SESSIONS)))
    agents = (model for agent in config.agents.values() for model in (agent.model, agent.model_small))
    tables = config.providers.tables.items()
    providers = (full_name(model, name) for name, table in tables for model in (table.model_small, *table.prices))
    yield from (model for model in chain(recent, agents, providers, ("echo",)) if model and not model.endswith("/*"))


def _tools(config_path: str | None, prefix: str) -> _Values:
    before, comma, _ = prefix.rpartition(",")
    servers, on_line = settings.load(os.environ, config_path).tool_servers.names, before.split(",")
    for name in servers if comma else (*servers, "all"):
        if name not in on_line:
            yield f"{before}{comma}{name}", ""


def _sessions(_config: str | None, prefix: str) -> _Values:
    for filename, names in references.names_by_file().items():
        yield from ((name, filename[ID]) for name in names)
    for summary in _readable(listing.scan_sessions(prefix)):
        if not summary["id"].isdigit():  # that would be an index
            yield summary["id"], f"{summary['title'] or summary['preview']}"


def _params(config_path: str | None, _prefix: str) -> _Values:
    """The keys that most models accept, and those in the config file."""
    config_keys = (key for agent in settings.load(os.environ, config_path).agents.values() for key in agent.params)
    yield from ((f"{key}=", "") for key in (*_COMMON_PARAMETERS, *config_keys))


def _readable(items: Iterable[SessionSummary | Unreadable]) -> Iterator[SessionSummary]:
    return (item for item in items if not isinstance(item, Unreadable))


# The sources of values for options and slash commands. They may also return values that do not start with the prefix.
VALUES: dict[str, Source] = {
    "agent": _agents, "model": _models, "param": _params, "session": _sessions, "tools": _tools,
}  # fmt: skip


def _offer(source: Source) -> "Callable[..., list[CompletionItem[str]]]":
    """A completer for click: the first values of a source that start with the prefix, without duplicates."""

    def completer(ctx: click.Context, _param: click.Parameter, prefix: str) -> "list[CompletionItem[str]]":
        texts: dict[str, str] = {}
        for value, text in source(ctx.params.get("config"), prefix):
            # The shell inserts values without quotes, so values that need quotes are left out.
            if value.startswith(prefix) and shlex.quote(value) == value:
                texts.setdefault(value, visible(one_line(text)))
            if len(texts) == _MAX_VALUES:
                break
        return [CompletionItem(value, help=text) for value, text in texts.items()]

    return completer


def _file(_ctx: click.Context, _param: click.Parameter, prefix: str) -> "list[CompletionItem[str]]":
    """Let the shell complete file names."""
    return [CompletionItem(prefix, type="file")]


# The completers by kind of value (``Row.value`` of an option).
COMPLETERS: "dict[str, Callable[..., list[CompletionItem[str]]]]" = {
    **{name: _offer(source) for name, source in VALUES.items()},
    "file": _file,
}
