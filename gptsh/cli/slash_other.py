"""Commands of a conversation that are of no session: its help, what all sessions used, its end."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.cli.talk import Talk

if TYPE_CHECKING:
    from gptsh.cli.commands import Command


def show_help(_talk: Talk, args: str) -> None:
    """``/help``: every command, or one of them."""
    from gptsh.cli.commands import COMMANDS, GROUPS  # noqa: PLC0415 - its table names this module

    chosen = [row for row in COMMANDS if not args or row.name.lstrip("/").startswith(args.lstrip("/"))]
    width = max((len(_usage(row)) for row in chosen), default=0)

    def lines() -> Iterator[str]:
        for group in GROUPS:
            rows = [row for row in chosen if row.group == group]
            if rows:
                yield f"{group}:"
            yield from (f"  {_usage(row):<{width}}  {row.help}" for row in rows)

    stdio.write_lines(lines())


def _usage(row: "Command") -> str:
    return f"{row.name} {row.args}".strip()


def leave(talk: Talk, _args: str) -> None:
    """``/exit``."""
    talk.over = True
