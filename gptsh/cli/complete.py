"""Complete command lines in bash, zsh and fish, and print the shell integration (Alt-E)."""

import shlex

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

from gptsh.cli.options import Completer, Flags, build
from gptsh.errors import GptshError, UsageError
from gptsh.manage.suggestions import VALUES, Source, variables
from gptsh.terminal import stdio
from gptsh.text import one_line, shorten

# ---- completion
#
# By click's protocol. Nothing here runs a command or prints a message: the user is typing a line.

_Items = list[CompletionItem[str]]
_MAX_HELP = 50  # characters, in bash, which puts values side by side

# Bash also breaks words at "@", ":" and "=", and replaces only the text after the last of them
# ($2). So the script sends click the whole line, with the position counted from its end, and
# removes from each value the part that bash keeps; an opening quote stays in any case. After a
# blank an empty word starts; after a redirection, a file name. Of several values bash inserts only
# what they share, and shows each with its help; menu-complete (37) and insert-completions (42)
# would insert the help. After a name with "=" the user types its value, so no blank follows.
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

# As click's own script, but it keeps commas in values and help, and the order of the values, the
# newest first.
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
    """Completion for every shell."""

    def get_completions(self, args: list[str], incomplete: str) -> "list[CompletionItem[str]]":
        """Return the words that may replace the incomplete one.

        Shells replace all of ``--option=value``, so values repeat the option.
        """
        option, equals, _ = incomplete.partition("=")
        items = super().get_completions(args, incomplete)
        if equals and option.startswith("--"):
            for item in items:
                if item.type != "file":
                    item.value = f"{option}={item.value}"
        return items


class _Bash(_Completion, BashComplete):
    source_template = _BASH

    def format_completion(self, item: "CompletionItem[str]") -> str:
        """Add the help of a value, such as a session's title.

        The help of options would fill the screen.
        """
        text = "" if item.value.startswith("-") else shorten(item.help or "", _MAX_HELP)
        return f"{item.type},{item.value}\t{text}"


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
        """Escape the colons of a value with help, as older versions of click do not.

        Zsh cuts it at the first one.
        """
        value = item.value.replace(":", r"\:") if item.help else item.value
        return f"{item.type}\n{value}\n{item.help or '_'}"


class _Fish(_Completion, FishComplete):
    source_template = _FISH


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "fish": _Fish, "zsh": _Zsh}


def complete(instruction: str) -> int:
    """Follow the instruction in ``_GPTSH_COMPLETE``; return the exit code.

    The instruction is ``SHELL_source`` or ``SHELL_complete``. Raises UsageError for any other one.
    Failures to find completions are silent.
    """
    name, _, action = instruction.partition("_")
    if name not in _SHELLS or action not in ("source", "complete"):
        ways = ", ".join(f"{shell}_source" for shell in _SHELLS)
        problem = f"_GPTSH_COMPLETE: unknown instruction {instruction!r}"
        raise UsageError(problem, f"choose from {ways}")
    shell = _SHELLS[name](build(COMPLETERS), {}, "gptsh", "_GPTSH_COMPLETE")
    if action == "source":
        stdio.write_lines([shell.source().rstrip()])
        return 0
    try:
        completions = shell.complete()
    except (GptshError, LookupError, ValueError):  # a broken config file; a wrong number of words
        return 1
    stdio.write_lines([completions] if completions else ())
    return 0


# ---- values


def _offer(source: Source) -> Completer:
    """Return a completer for click: the values of a source that start with the prefix."""

    def completer(ctx: click.Context, _param: click.Parameter, prefix: str) -> _Items:
        texts: dict[str, str] = {}
        for value, text in source(ctx.params.get("config"), prefix):
            # The shell inserts values without quotes, so values that need quotes are left out.
            if value.startswith(prefix) and shlex.quote(value) == value:
                texts.setdefault(value, one_line(text))
        return [CompletionItem(value, help=text) for value, text in texts.items()]

    return completer


def _var(ctx: click.Context, _param: click.Parameter, prefix: str) -> _Items:
    """Return the names in the prompt of the chosen agent that have no value yet."""
    pairs = ctx.params.get("var") or ()
    items = []
    for name in variables(ctx.params.get("config"), ctx.params.get("agent")):
        has_value = any(value.startswith(name) for value in pairs)
        if name.startswith(prefix) and not has_value:
            items.append(CompletionItem(name))
    return items


def _file(_ctx: click.Context, _param: click.Parameter, prefix: str) -> "list[CompletionItem[str]]":
    """Let the shell complete file names."""
    return [CompletionItem(prefix, type="file")]


# The completers by kind of value (``Row.value`` of an option).
COMPLETERS: dict[str, Completer] = {
    **{name: _offer(source) for name, source in VALUES.items()},
    "file": _file,
    "var": _var,
}


# ---- shell integration
#
# Scripts for shells that bind a key, which turns the words on the line into a command.
#
# Each script leaves stderr to the terminal, for the spinner and errors. Ctrl-C also reaches the
# shell, which would drop its line: bash and zsh ignore it while gptsh runs, and fish only draws the
# line again.

# -n and -o override the environment, which may name a session or an output format.
_ASK = "gptsh -a shell -n --no-save -x -o text --no-reasoning --"
_HEAD = """\
# gptsh: Alt-E makes a command of the words on the line. The key and the options may be changed \
here.
"""
# A control character of the answer would act on the terminal, or let the line look like another
# command. These filters remove those that ``visible`` shows. In UTF-8 those from U+0080 on have two
# bytes, the bidirectional ones three.
_TR = r"tr -d '\000-\010\013-\037\177'"
_SED = r"sed $'s/\302[\200-\237]//g; s/\342\200[\252-\256]//g; s/\342\201[\246-\251]//g'"
_PLAIN = f"""\
__gptsh_plain() {{
    LC_ALL=C {_TR} | LC_ALL=C {_SED}
}}
"""
_FISH_PLAIN = (
    r"string replace -ar '[\x00-\x08\x0b-\x1f\x7f-\x9f\x{202a}-\x{202e}\x{2066}-\x{2069}]'"
    " ''"
)

_SCRIPTS = {
    "bash": _PLAIN
    + """\
__gptsh_wish() {
    local answer trap
    [[ $READLINE_LINE ]] || return
    trap=$(trap -p INT)
    trap : INT
    answer=$(SHELL=bash command {ask} "$READLINE_LINE" | __gptsh_plain)
    if [[ $answer ]]; then
        READLINE_LINE=$answer
        READLINE_POINT=${#answer}
    fi
    eval "${trap:-trap - INT}"
}
bind -m emacs -x '"\\ee": __gptsh_wish'
bind -m vi-insert -x '"\\ee": __gptsh_wish'
""",
    "zsh": _PLAIN
    + """\
__gptsh_wish() {
    setopt localoptions localtraps
    local answer
    [[ -n $BUFFER ]] || return
    trap '' INT
    zle -I
    answer=$(trap - INT; SHELL=zsh command {ask} "$BUFFER" | __gptsh_plain)
    print -n '\\r\\e[K' >&2
    if [[ -n $answer ]]; then
        BUFFER=$answer
        CURSOR=$#answer
    fi
}
zle -N __gptsh_wish
bindkey -M emacs '\\ee' __gptsh_wish
bindkey -M viins '\\ee' __gptsh_wish
""",
    "fish": """\
function __gptsh_wish
    set -l line (commandline | string collect)
    test -n "$line"; or return
    commandline -f repaint
    printf '\\r\\e[K' >&2
    set -l answer (SHELL=fish command {ask} $line | {plain} | string collect)
    if test -n "$answer"
        commandline -r -- $answer
    end
end
bind \\ee __gptsh_wish
bind -M insert \\ee __gptsh_wish
""",
}


def print_integration(flags: Flags) -> int:
    """Print the script for a shell."""
    script = _SCRIPTS[flags.shell_integration or ""]
    stdio.write_pieces([_HEAD, script.replace("{ask}", _ASK).replace("{plain}", _FISH_PLAIN)])
    return 0
