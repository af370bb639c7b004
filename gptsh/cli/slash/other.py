"""Commands of a conversation that are of no session: its help, what all sessions used, its end."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.cli.talk import Talk
from gptsh.errors import UsageError

if TYPE_CHECKING:
    from gptsh.cli.slash.commands import Command

_WIDEST = 100  # columns; longer lines are hard to read
_NAMES = 22  # columns of names and what stands behind them; a longer one has a line of its own
_LEAST = 30  # columns of help beside it
_KEYS = (
    ("Enter", "sends. Alt-Enter, or \\ at the end of a line, adds a line; Ctrl-X Ctrl-E opens $EDITOR."),
    ("Tab", "completes commands and what stands behind them. Up, and Ctrl-R to search, bring back earlier lines."),
    ("Ctrl-C", "ends an answer, which is kept as far as it came, or gives up the line. Ctrl-D leaves."),
)


def show_help(_talk: Talk, args: str) -> None:
    """``/help``: every command, or all about one."""
    stdio.write_lines(_about(args.lower().split()) if args else _all())


def _all() -> Iterator[str]:
    from gptsh.cli.slash.commands import COMMANDS, GROUPS  # noqa: PLC0415 - its table names this module

    groups = [(group, [(row.usage, row.help) for row in COMMANDS if row.group == group]) for group in GROUPS]
    every = [*groups, ("Keys", _KEYS)]
    names = max(len(name) for _, rows in every for name, _ in rows if len(name) <= _NAMES)
    for group, rows in every:
        if rows:
            yield f"{group}:"
            for name, text in rows:
                yield from _row(name, text, names)


def _row(name: str, text: str, names: int) -> Iterator[str]:
    """A name in so many columns and a text beside it, or where that is too narrow under it."""
    import textwrap  # noqa: PLC0415 - only the help is wrapped

    width = min(_WIDEST, stdio.width(stdio.answers_to())) - 1
    beside = width - names - 4 >= _LEAST
    left = " " * (names + 4 if beside else 6)
    lines = textwrap.wrap(text, max(20, width - len(left)), break_on_hyphens=False)
    if beside and len(name) <= names:
        yield f"  {name:<{names}}  {lines.pop(0)}"
    else:
        yield f"  {name}"
    yield from (f"{left}{line}" for line in lines)


def _about(words: Sequence[str]) -> Iterator[str]:
    """One command, or those that begin with a word. Raises UsageError where there is none."""
    for row in _meant([f"/{words[0].lstrip('/')}", *words[1:]]):
        yield from _row(row.usage, " ".join(filter(None, (row.help, row.more))), 0)


def _meant(words: list[str]) -> "list[Command]":
    from gptsh.cli.slash.commands import COMMANDS, below, near  # noqa: PLC0415 - as above

    name = " ".join(words)
    rows = [row for row in COMMANDS if row.name == name] or (below(name) if len(words) == 1 else [])
    if not rows:
        meant = near(*words[:2])
        raise UsageError(f"there is no command {name}", f"did you mean {meant}?" if meant else "/help shows all")
    return rows


def show_usage(talk: Talk, args: str) -> None:
    """``/usage``: what the session used and cost; ``all``: all sessions."""
    from gptsh.cli import manage  # noqa: PLC0415 - few commands list anything

    if args not in ("", "all"):
        raise UsageError(f"/usage takes all, not {args}")
    if args:
        manage.show_usage(talk.flags.without_choices.without_labels)
        return
    from gptsh.core import usage  # noqa: PLC0415 - as above

    talk.refresh()
    manage.draw_usage(usage.count([talk.doc] if talk.doc else []), talk.flags)


def leave(talk: Talk, _args: str) -> None:
    """``/exit``."""
    talk.over = True
