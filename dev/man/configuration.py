"""The text of docs/configuration.md, from the declarations of the config keys; ``python -m dev.man.build`` writes it.

The man page has the same keys, variables and files.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gptsh.config import schema
from gptsh.config.settings import Config

PAGE = Path(__file__).parent.parent.parent / "docs" / "configuration.md"
INTRO = (
    "gptsh reads `${XDG_CONFIG_HOME:-~/.config}/gptsh/config.toml`, or the file that `--config PATH` or `GPTSH_CONFIG` "
    "names.",
    "Every key is optional.",
    "With an unknown key or a wrong type, gptsh exits with 2 and names the file, the key and what it expected.",
)
ENVIRONMENT = (
    ("GPTSH_SESSION", "The session to continue, like `--session`."),
    ("GPTSH_MODEL, GPTSH_AGENT", "Model and agent, if neither an option nor the session names one."),
    ("GPTSH_OUTPUT", "Like `--output`, but gptsh renders `markdown` only on a terminal, not in a pipe."),
    ("GPTSH_TIMEOUT", "Like `--timeout`."),
    ("GPTSH_CONFIG", "Config file, like `--config`."),
    ("GPTSH_NO_SAVE, GPTSH_NO_STDIN, GPTSH_DEBUG",
     "Like the options with these names; off if empty, `0`, `no`, `off` or `false`."),
    ("OPENAI_API_KEY, ANTHROPIC_API_KEY, ...", "The key of a provider; docs/providers.md names the variable of each."),
    ("OPENAI_BASE_URL, GROQ_API_BASE, ...", "Another server for a provider."),
    ("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "Proxies. gptsh never uses one for loopback."),
    ("SSL_CERT_FILE, REQUESTS_CA_BUNDLE, SSL_CERT_DIR", "CA bundles."),
    ("VISUAL, EDITOR, PAGER", "Programs to edit a line of the conversation, and to show a session or a long list."),
    ("NO_COLOR, FORCE_COLOR, COLUMNS, TERM", "How gptsh renders Markdown."),
    ("_GPTSH_COMPLETE", "`bash_source`, `zsh_source` or `fish_source` prints the shell's completion script."),
)  # fmt: skip
_STATE = "${XDG_STATE_HOME:-~/.local/state}/gptsh"
FILES = (
    ("${XDG_CONFIG_HOME:-~/.config}/gptsh/config.toml", "The configuration."),
    (
        "${XDG_CONFIG_HOME:-~/.config}/gptsh/agents/NAME.md",
        "A prompt: an agent of that name. Also NAME.yaml, NAME/system.md and NAME/SKILL.md.",
    ),
    (f"{_STATE}/sessions/", "The sessions, one JSON file each."),
    (f"{_STATE}/archive/", "Archived sessions."),
    (f"{_STATE}/names/", "What each `@NAME` stands for."),
    (f"{_STATE}/memory/AGENT/", "MEMORY.md and HISTORY.md of an agent with a memory."),
    (f"{_STATE}/typed", "What you typed in conversations."),
    (f"{_STATE}/spent.json", "With `per_day`: what the runs of today have spent."),
    (f"{_STATE}/logins/", "Logins at remote tool servers."),
    (
        "${XDG_CACHE_HOME:-~/.cache}/gptsh/tool-servers/",
        "What tool servers allow to be kept of their lists.",
    ),
    (
        "${XDG_CACHE_HOME:-~/.cache}/gptsh/servers.json",
        "What servers report about themselves, kept for a day.",
    ),
)


def page() -> str:
    """The page in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# Configuration",
        "",
        '<!-- Made by "make man" from gptsh/config; not edited by hand. -->',
        "",
    )
    yield from (
        "```bash",
        "gptsh --init                 # write the file, with every key as a comment",
        "gptsh --list-agents          # the agents in it",
        "gptsh --config other.toml …  # use another file",
        "```",
        "",
        *INTRO,
        "",
    )
    for name, meaning, keys in schema.tables(Config):
        if name:
            yield from (f"## `[{name}]`", "", meaning, "")
        yield from ("| key | value | meaning |", "|---|---|---|")
        yield from (f"| `{key.name}` | {_value(key)} | {key.meaning} |" for key in keys)
        yield ""
    for title, head, entries in (
        ("Environment", "variable", ENVIRONMENT),
        ("Files", "path", FILES),
    ):
        yield from (f"## {title}", "", f"| {head} | meaning |", "|---|---|")
        yield from (f"| {_codes(name)} | {meaning} |" for name, meaning in entries)
        yield ""


def _value(key: schema.Key) -> str:
    """What the key takes, and its default."""
    default = shown(key.default)
    return f"{key.expected}; default `{default}`" if default else key.expected


def _codes(names: str) -> str:
    """Each of several names as code, so that a narrow table can break between them."""
    return ", ".join(f"`{name}`" for name in names.split(", "))


def shown(default: Any) -> str:
    """A default value as text; empty if there is none."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, (int, float)) else default or ""
