"""The formats that are read, in the order in which a file is held against them.

Each has ``NAME``, ``read(source)``, which is None for a file of another format, and where some of its files hold no
session, ``IGNORED_PATHS``, which matches their paths.
"""

import re

from gptsh.formats import (
    chatgpt,
    claude_ai,
    claude_code,
    codelet,
    gptsh,
    llm,
    markdown,
    nanobot,
    nanocoder,
    ollm,
    openai,
)
from gptsh.formats.source import Results, Source

_READERS = (claude_code, gptsh, llm, codelet, nanocoder, ollm, chatgpt, claude_ai, nanobot, openai, markdown)
NAMES = tuple(reader.NAME for reader in _READERS)
IGNORED_PATHS = re.compile("|".join(reader.IGNORED_PATHS for reader in (claude_code, codelet, nanocoder, ollm)))

_AICHAT = re.compile(rb"(?m)^model: [^\n]+$(?s:.*?)^messages:\s*$")
_INSTEAD = {  # of tools whose sessions are not read
    "aichat": "a session of aichat: yq -o json FILE | gptsh --import-session - takes its words",
    "mods": "a conversation of mods: mods --show ID | gptsh takes its words along",
}


def read(source: Source) -> tuple[str, Results] | None:
    """The name of a file's format, and its sessions, with what cannot be read of them; None for an unknown format."""
    for reader in _READERS:
        if (found := reader.read(source)) is not None:
            return reader.NAME, found
    is_mods = source.path is not None and source.path.suffix == ".gob"
    other = "mods" if is_mods else "aichat" if _AICHAT.search(source.data[:10_000]) else None
    return (other, iter([source.skipped(_INSTEAD[other])])) if other else None
