"""docs/configuration.md, made of the declarations of the config keys: ``python -m man.build``, or ``make man``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gptsh.config import schema
from gptsh.config.settings import Config

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
_INTRO = """\
# Configuration

<!-- Made by "make man" from gptsh/config; not edited by hand. -->

gptsh reads `${XDG_CONFIG_HOME:-~/.config}/gptsh/config.toml`, or the file that `--config PATH` or `GPTSH_CONFIG` names.
Every key is optional. An unknown key or a wrong type ends with exit 2, naming file, key and what was expected. The
README shows an example.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRO, *_table("", Config, "")])


def _table(name: str, fields: Any, meaning: str) -> Iterator[str]:
    """A table under its heading, then the tables in it."""
    keys = schema.keys_of(fields)
    if name:
        yield from (f"## `[{name}]`", "", meaning, "")
    yield from ("| key | value | default | meaning |", "|---|---|---|---|")
    for key, (kind, means, default) in keys.items():
        if isinstance(kind, schema.Switch):
            yield f"| `{key}` | one of {kind.on}, {kind.off} | {kind.on if default else kind.off} | {means} |"
        elif isinstance(kind, schema.Rule):
            yield f"| `{key}` | {kind.expected} | {_shown(default)} | {means} |"
    yield ""
    for key, (kind, means, _) in keys.items():
        path = f"{name}.{key}" if name else key
        if isinstance(kind, schema.Tables) and not kind.shared:
            yield from _table(f"{path}.NAME", kind.fields, means)
        elif isinstance(kind, (schema.Table, schema.Tables)):
            yield from _table(path, kind.fields, means)


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, (int, float)) else default or ""
