"""``--shell-integration``: scripts for shells that bind a key, which turns the words on the line into a command.

Each script leaves stderr to the terminal, for the spinner and errors. Ctrl-C also reaches the shell, which would drop
its line: bash and zsh ignore it while gptsh runs, and fish only draws the line again.
"""

from gptsh.cli.options import Flags
from gptsh.terminal import stdio

# -n and -o override the environment, which may name a session or an output format.
_ASK = "gptsh -a shell -n --no-save -x -o text --no-reasoning --"
_HEAD = "# gptsh: Alt-E makes a command of the words on the line. The key and the options may be changed here.\n"
# A control character of the answer would act on the terminal, or let the line look like another command. These filters
# remove those that ``visible`` shows. In UTF-8 those from U+0080 on have two bytes, the bidirectional ones three.
_TR = r"tr -d '\000-\010\013-\037\177'"
_SED = r"sed $'s/\302[\200-\237]//g; s/\342\200[\252-\256]//g; s/\342\201[\246-\251]//g'"
_PLAIN = f"""\
__gptsh_plain() {{
    LC_ALL=C {_TR} | LC_ALL=C {_SED}
}}
"""
_FISH_PLAIN = r"string replace -ar '[\x00-\x08\x0b-\x1f\x7f-\x9f\x{202a}-\x{202e}\x{2066}-\x{2069}]' ''"

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
