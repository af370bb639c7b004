"""What a shell offers at TAB: its script, and the values that an option may have, by click's protocol.

Nothing here asks a network or runs a command, and nothing is said to the user, who is in the middle of a line.
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

_MOST = 50  # values; nobody reads more, and each session costs the reading of a file
_RECENT = 1000  # sessions whose models are offered
_USUAL = ("temperature", "top_p", "max_tokens", "reasoning_effort", "seed", "stop")  # parameters of most models

# Bash breaks words at "@", ":" and "=", too, and replaces only what stands behind the last of them ($2). So the words
# are those of the line, which click counts from behind, and what bash keeps is taken off the values; the quote that is
# open stays in any case. Behind a blank an empty word begins; behind a redirection the name of a file.
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

# As click's own, but that a comma does not end the help, and the order stays: newest first.
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
    """What is common to the shells: in ``--option=value`` the word that they replace begins with the option."""

    def get_completions(self, args: list[str], incomplete: str) -> "list[CompletionItem[str]]":
        """What may stand in the place of the incomplete word."""
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
        """Three lines; zsh cuts a value that help follows at its first colon, which older clicks do not escape."""
        value = item.value.replace(":", r"\:") if item.help else item.value
        return f"{item.type}\n{value}\n{item.help or '_'}"


class _Fish(_Completion, FishComplete):
    source_template = _FISH


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "fish": _Fish, "zsh": _Zsh}


def complete(asked: str) -> int:
    """Do what ``_GPTSH_COMPLETE`` asks for: ``SHELL_source`` or ``SHELL_complete``; the exit code.

    Raises UsageError for anything else. Where nothing can be offered, whatever the reason, nothing is.
    """
    name, _, job = asked.partition("_")
    if name not in _SHELLS or job not in ("source", "complete"):
        ways = ", ".join(f"{shell}_source" for shell in _SHELLS)
        raise UsageError(f"_GPTSH_COMPLETE: {asked!r} is not known", f"it can be {ways}")
    shell = _SHELLS[name](build(COMPLETERS), {}, "gptsh", "_GPTSH_COMPLETE")
    if job == "source":
        stdio.write_lines([shell.source().rstrip()])
        return 0
    try:
        found = shell.complete()
    except (GptshError, LookupError, ValueError):  # a broken config file; no words, or a wrong count of them
        return 1
    stdio.write_lines([found] if found else ())
    return 0


# ---- values


_Found = Iterator[tuple[str, str]]  # each value, and what is said beside it
Source = Callable[[str | None, str], _Found]  # by the config file that is named, and what the value begins with


def _agents(config: str | None, _prefix: str) -> _Found:
    for name, agent in settings.load(os.environ, config).agents.items():
        yield name, agent.model or ""


def _models(config: str | None, _prefix: str) -> _Found:
    yield from ((model, "") for model in models_at_hand(settings.load(os.environ, config)))


def models_at_hand(loaded: settings.Settings) -> Iterator[str]:
    """Those of sessions, the newest first, then of the config file, last ``echo``; some more than once."""
    used = (summary["model"] for summary in _readable(islice(listing.scan_sessions(), _RECENT)))
    agents = (model for agent in loaded.agents.values() for model in (agent.model, agent.model_small))
    tables = loaded.providers.tables.items()
    own = (full_name(model, name) for name, table in tables for model in (table.model_small, *table.prices))
    yield from (model for model in chain(used, agents, own, ("echo",)) if model and not model.endswith("/*"))


def _tools(config: str | None, prefix: str) -> _Found:
    before, comma, _ = prefix.rpartition(",")
    known, there = settings.load(os.environ, config).tool_servers.names, before.split(",")
    for name in known if comma else (*known, "all"):
        if name not in there:
            yield f"{before}{comma}{name}", ""


def _sessions(_config: str | None, prefix: str) -> _Found:
    for filename, names in references.names_by_file().items():
        yield from ((name, filename[ID]) for name in names)
    for summary in _readable(listing.scan_sessions(prefix)):
        if not summary["id"].isdigit():  # that would be an index
            yield summary["id"], f"{summary['title'] or summary['preview']}"


def _params(config: str | None, _prefix: str) -> _Found:
    """The keys that models usually take, and those that are configured."""
    configured = (key for agent in settings.load(os.environ, config).agents.values() for key in agent.params)
    yield from ((f"{key}=", "") for key in (*_USUAL, *configured))


def _readable(items: Iterable[SessionSummary | Unreadable]) -> Iterator[SessionSummary]:
    return (item for item in items if not isinstance(item, Unreadable))


# Who knows the values of an option or a command; they may give more than what begins as asked.
VALUES: dict[str, Source] = {
    "agent": _agents, "model": _models, "param": _params, "session": _sessions, "tools": _tools,
}  # fmt: skip


def _offer(source: Source) -> "Callable[..., list[CompletionItem[str]]]":
    """A completer in click's terms: the first values of a source that go on with what was typed, each once."""

    def offered(ctx: click.Context, _param: click.Parameter, prefix: str) -> "list[CompletionItem[str]]":
        found: dict[str, str] = {}
        for value, said in source(ctx.params.get("config"), prefix):
            # The shell puts the value on the line as it is: one that it would read otherwise is not offered.
            if value.startswith(prefix) and shlex.quote(value) == value:
                found.setdefault(value, visible(one_line(said)))
            if len(found) == _MOST:
                break
        return [CompletionItem(value, help=said) for value, said in found.items()]

    return offered


def _file(_ctx: click.Context, _param: click.Parameter, prefix: str) -> "list[CompletionItem[str]]":
    """Files are the shell's own to find."""
    return [CompletionItem(prefix, type="file")]


# What an option's value is (`Row.value`), in click's terms.
COMPLETERS: "dict[str, Callable[..., list[CompletionItem[str]]]]" = {
    **{name: _offer(source) for name, source in VALUES.items()},
    "file": _file,
}
