"""The names of tools: made unique and valid for every provider, ``SERVER__TOOL``; matched by patterns."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase

from gptsh.config.tool_servers import SEPARATOR

ToolKey = tuple[str, str]  # the name of a server, and the tool's name on it

_MAX_NAME = 64  # characters; no provider accepts more
_HASH_LENGTH = 8  # characters


def names_for_model(tools: Iterable[ToolKey]) -> dict[ToolKey, str]:
    """Unique names ``SERVER__TOOL`` with characters that every provider accepts, whatever the order of the tools.

    A hash replaces the end of a long name, and is added to equal names. Of tools with equal names, the only one
    without replaced characters keeps its name.
    """
    full_names = {key: SEPARATOR.join(key) for key in tools}
    safe_names = {key: re.sub("[^a-zA-Z0-9_-]", "_", name) for key, name in full_names.items()}
    counts = Counter(safe_names.values())
    unchanged_counts = Counter(name for key, name in safe_names.items() if name == full_names[key])
    names = {}
    for key, name in safe_names.items():
        is_unique = counts[name] == 1 or (name == full_names[key] and unchanged_counts[name] == 1)
        names[key] = name if is_unique and len(name) <= _MAX_NAME else _hashed(name, key)
    return names


def _hashed(name: str, key: ToolKey) -> str:
    """The name with a hash of server and tool at its end, within the longest length."""
    digest = hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{name[: _MAX_NAME - _HASH_LENGTH - 1]}_{digest}"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tool's name on its server equals a pattern, or matches it as in a shell."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
