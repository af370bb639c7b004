"""Recognise the format of an import: the readers in the order in which they are tried; advice on others, as a zip.

Each module has ``NAME`` and ``read(source)``, which returns None for a file of another format. ``IGNORED_PATHS``
matches the paths of files that belong to a format but hold no session.
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

_READERS = {  # by the name of the format, in the order in which they are tried
    llm.NAME: llm.read,
    claude_code.NAME: claude_code.read,
    gptsh.NAME: gptsh.read,
    codelet.NAME: codelet.read,
    nanocoder.NAME: nanocoder.read,
    ollm.NAME: ollm.read,
    chatgpt.NAME: chatgpt.read,
    claude_ai.NAME: claude_ai.read,
    nanobot.NAME: nanobot.read,
    openai.NAME: openai.read,
    markdown.NAME: markdown.read,
}
NAMES = tuple(_READERS)
_IGNORED = (
    claude_code.IGNORED_PATHS,
    codelet.IGNORED_PATHS,
    nanocoder.IGNORED_PATHS,
    ollm.IGNORED_PATHS,
)
IGNORED_PATHS = re.compile("|".join(_IGNORED))

_AICHAT_MODEL = re.compile(rb"(?m)^model: .")
_AICHAT_MESSAGES = re.compile(rb"(?m)^messages:\s*$")
_ADVICE = {  # for files that gptsh does not read
    "zip": "a zip archive: unpack it, and import the folder",
    "aichat": "a session of aichat: import it with yq -o json FILE | gptsh --import-session -",
    "mods": "a conversation of mods: pass its text on with mods --show ID | gptsh",
}


def read(source: Source) -> tuple[str, Results] | None:
    """The name of a file's format, its sessions and what cannot be read of them. None for an unknown format.

    Raises BadInput for a file that cannot be read.
    """
    for name, read_format in _READERS.items():
        results = read_format(source)
        if results is not None:
            return name, results
    beginning = source.start[:10_000]
    signs = {
        "mods": source.path is not None and source.path.suffix == ".gob",
        "zip": source.start.startswith(b"PK\x03\x04"),
        "aichat": _AICHAT_MODEL.search(beginning) and _AICHAT_MESSAGES.search(beginning),
    }
    for name, is_seen in signs.items():
        if is_seen:
            return name, iter([source.skipped(_ADVICE[name])])
    return None
