"""``--shell-integration``: scripts for shells that bind a key, which turns the words on the line into a command.

Each script leaves stderr to the terminal, for the spinner and errors. Ctrl-C also reaches the shell, which would drop
its line: bash and zsh ignore it while gptsh runs, and fish only draws the line again.
"""

from gptsh.cli import stdio
from gptsh.cli.options import Flags

# -n and -o override the environment, which may name a session or an output format.
_ASK = "gptsh -a shell -n --no-save -x -o text --no-reasoning --"
_HEAD = "# gptsh: Alt-E makes a command of the words on the line. The key and the options may be changed here.\n"

_SCRIPTS = {
    "bash": """\
__gptsh_wish() {
    local answer trap
    [[ $READLINE_LINE ]] || return
    trap=$(trap -p INT)
    trap : INT
    answer=$(SHELL=bash command %s "$READLINE_LINE")
    if [[ $answer ]]; then
        READLINE_LINE=$answer
        READLINE_POINT=${#answer}
    fi
    eval "${trap:-trap - INT}"
}
bind -m emacs -x '"\\ee": __gptsh_wish'
bind -m vi-insert -x '"\\ee": __gptsh_wish'
""",
    "zsh": """\
__gptsh_wish() {
    setopt localoptions localtraps
    local answer
    [[ -n $BUFFER ]] || return
    trap '' INT
    zle -I
    answer=$(trap - INT; SHELL=zsh command %s "$BUFFER")
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
    set -l answer (SHELL=fish command %s $line | string collect)
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
    stdio.write_pieces([_HEAD, _SCRIPTS[flags.shell_integration or ""] % _ASK])
    return 0
