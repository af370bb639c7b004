"""Write dev/man/gptsh.1 from the option table, the config keys and docs/: ``python -m dev.man.build``, or ``make man``.

It also writes docs/configuration.md.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from dev.man import configuration
from gptsh import __version__
from gptsh.cli.options import GROUPS, INTRO, ROWS, SHORT_HELP, build
from gptsh.config import schema
from gptsh.config.settings import Config

PAGE = Path(__file__).parent / "gptsh.1"
DOCS = PAGE.parent.parent.parent / "docs"

_ESCAPES = {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


def page() -> str:
    """The man page in roff. The same sources always give the same page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield r'.\" Made by "make man" from the option table, the config keys and docs/; not edited by hand.'
    yield f'.TH GPTSH 1 "" "gptsh {_escaped(__version__)}" "User Commands"'
    yield ".SH NAME"
    yield r"gptsh \- ask a language model from the shell"
    yield ".SH SYNOPSIS"
    yield _text(SHORT_HELP.splitlines()[0].removeprefix("Usage: ").replace("gptsh", "`gptsh`", 1))
    yield ".SH DESCRIPTION"
    yield from map(_text, INTRO.splitlines())
    yield ".SH OPTIONS"
    yield from _options()
    yield ".SH SESSION REFERENCES"
    yield from _entries(_table("sessions.md", "REF"))
    yield ".SH CONFIGURATION"
    yield from map(_text, configuration.INTRO)
    for name, meaning, keys in schema.tables(Config):
        if name:
            yield from (f".SS {_text(f'[{name}]')}", _text(meaning))
        yield from _entries((f"`{key.name}` ({key.expected})", _meaning(key)) for key in keys)
    for title, entries in (
        ("EXIT STATUS", _table("scripting.md", "exit")),
        ("ENVIRONMENT", _bold(configuration.ENVIRONMENT)),
        ("FILES", _bold(configuration.FILES)),
        ("EXAMPLES", _bold(re.findall(r"^  (\S.*?) {2,}(.+)$", SHORT_HELP, re.MULTILINE))),
    ):
        yield f".SH {title}"
        yield from _entries(entries)


def _options() -> Iterator[str]:
    command = build()
    ctx = click.Context(command, info_name="gptsh")
    records = {param.opts[0]: param.get_help_record(ctx) for param in command.params}
    for group in GROUPS:
        yield f".SS {group}"
        help_records = filter(None, (records[row.names[0]] for row in ROWS if row.group == group))
        yield from _entries(
            (re.sub(r"(?<!\w)(--?[\w-]+)", r"`\1`", names), text) for names, text in help_records
        )


def _meaning(key: schema.Key) -> str:
    default = configuration.shown(key.default)
    return f"{key.meaning} Default: {default}." if default else key.meaning


def _table(page: str, head: str) -> list[tuple[str, str]]:
    """The rows of the table on a page of docs/ whose first heading is ``head``."""
    text = (DOCS / page).read_text("utf-8")
    table = re.search(rf"^\| {head} \| means \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    if not table:
        raise SystemExit(f"docs/{page} has no table under '| {head} | means |'")
    rows = [line.strip("| ").split(" | ") for line in table[1].splitlines()]
    return [(key if "`" in key else f"`{key}`", means) for key, means in rows]


def _bold(entries: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return ((f"`{key}`", text) for key, text in entries)


def _entries(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for key, text in entries:
        yield from (".TP", _text(key), _text(text))


def _text(text: str) -> str:
    """A line of text in roff: ```` `code` ```` in bold, and no line that roff would read as a request."""
    parts = re.split(r"`([^`]*)`", text)
    line = "".join(
        rf"\fB{_escaped(part)}\fR" if at % 2 else _escaped(part) for at, part in enumerate(parts)
    )
    return rf"\&{line}" if line.startswith(".") else line


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c if c.isascii() else rf"\[u{ord(c):04X}]") for c in text)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    configuration.PAGE.write_text(configuration.page(), "utf-8")
