"""The man page, made of the option table and the README's tables: ``python -m man.build``, or ``make man``.

docs/configuration.md is written with it.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from gptsh import __version__
from gptsh.cli.options import GROUPS, INTRO, ROWS, SHORT_HELP, build
from man import configuration

PAGE = Path(__file__).parent / "gptsh.1"
README = PAGE.parent.parent / "README.md"

_ESCAPES = {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}

ENVIRONMENT = (
    ("GPTSH_SESSION", "The session to go on with, as by `--session`."),
    ("GPTSH_MODEL, GPTSH_AGENT", "Model and agent, where neither an option nor the session names one."),
    ("GPTSH_OUTPUT", "As `--output`, but that `markdown` is rendered on a terminal alone, not in a pipe."),
    ("GPTSH_TIMEOUT", "As `--timeout`."),
    ("GPTSH_CONFIG", "Config file, as by `--config`."),
    ("GPTSH_NO_SAVE, GPTSH_NO_STDIN, GPTSH_DEBUG",
     "As the options of these names; off when empty, `0`, `no`, `off` or `false`."),
    ("OPENAI_API_KEY, ANTHROPIC_API_KEY, ...", "The key of a provider. docs/providers.md has the variable of each."),
    ("OPENAI_BASE_URL, GROQ_API_BASE, ...", "Another server in a provider's place."),
    ("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "Proxies. Loopback is never proxied."),
    ("SSL_CERT_FILE, REQUESTS_CA_BUNDLE, SSL_CERT_DIR", "CA bundles."),
    ("NO_COLOR, FORCE_COLOR, COLUMNS, TERM", "How Markdown is shown."),
    ("_GPTSH_COMPLETE", "`bash_source`, `zsh_source` or `fish_source` prints the shell's completion script."),
)  # fmt: skip

FILES = (
    ("${XDG_CONFIG_HOME:-~/.config}/gptsh/config.toml", "Agents, providers and defaults. Every key is optional."),
    ("${XDG_STATE_HOME:-~/.local/state}/gptsh/sessions/", "The sessions, one JSON file each."),
    ("${XDG_STATE_HOME:-~/.local/state}/gptsh/names/", "What each `@NAME` stands for."),
)


def page() -> str:
    """The whole page in roff. It changes only with what it is made of."""
    return "\n".join(_lines(README.read_text("utf-8"))) + "\n"


def _lines(readme: str) -> Iterator[str]:
    yield r'.\" Made by "make man" from the option table and the README; not edited by hand.'
    yield f'.TH GPTSH 1 "" "gptsh {_escaped(__version__)}" "User Commands"'
    yield ".SH NAME"
    yield r"gptsh \- ask a language model from the shell"
    yield ".SH SYNOPSIS"
    yield _text(SHORT_HELP.splitlines()[0].removeprefix("Usage: ").replace("gptsh", "`gptsh`", 1))
    yield ".SH DESCRIPTION"
    yield from map(_text, INTRO.splitlines())
    yield ".SH OPTIONS"
    yield from _options()
    for title, entries in (
        ("SESSION REFERENCES", _table(readme, "REF")),
        ("EXIT STATUS", _table(readme, "exit")),
        ("ENVIRONMENT", _bold(ENVIRONMENT)),
        ("FILES", _bold(FILES)),
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
        shown = (records[row.names[0]] for row in ROWS if row.group == group)
        yield from _entries(
            (re.sub(r"(?<!\w)(--?[\w-]+)", r"`\1`", names), said) for names, said in filter(None, shown)
        )


def _table(readme: str, head: str) -> list[tuple[str, str]]:
    """The rows of the README's table with this first heading."""
    found = re.search(rf"^\| {head} \| means \|\n\|---\|---\|\n((?:\|.*\n)+)", readme, re.MULTILINE)
    if not found:
        raise SystemExit(f"the README has no table under '| {head} | means |'")
    rows = [line.strip("| ").split(" | ") for line in found[1].splitlines()]
    return [(key if "`" in key else f"`{key}`", means) for key, means in rows]


def _bold(entries: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return ((f"`{key}`", said) for key, said in entries)


def _entries(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for key, said in entries:
        yield from (".TP", _text(key), _text(said))


def _text(text: str) -> str:
    """A line of text: ```` `code` ```` in bold, placeholders like NAME as they are, nothing read as a request."""
    parts = re.split(r"`([^`]*)`", text)
    line = "".join(rf"\fB{_escaped(part)}\fR" if at % 2 else _escaped(part) for at, part in enumerate(parts))
    return rf"\&{line}" if line.startswith(".") else line


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c if c.isascii() else rf"\[u{ord(c):04X}]") for c in text)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    configuration.PAGE.write_text(configuration.page(), "utf-8")
