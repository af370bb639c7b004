"""What the tools of several servers are called where a model reads it, and which of them a pattern means."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase

from gptsh.config.mcp_servers import SEPARATOR

LONGEST = 64  # characters; no provider takes more
_HASH = 8  # characters
_FOREIGN = re.compile("[^a-zA-Z0-9_-]")

Own = tuple[str, str]  # the name of a server, and that of its tool


def names_for_model(tools: Iterable[Own]) -> dict[Own, str]:
    """A name for each tool: ``SERVER__TOOL`` of letters that every provider takes, unique.

    A hash is added where that is too long, or where two tools would come to one name: to each of them that does not
    have this very name. So a name depends on no order.
    """
    wanted = {own: SEPARATOR.join(own) for own in tools}
    plain = {own: _FOREIGN.sub("_", name) for own, name in wanted.items()}
    exact = Counter(name for own, name in plain.items() if name == wanted[own])
    all_of = Counter(plain.values())
    named = {}
    for own, name in plain.items():
        alone = all_of[name] == 1 or (name == wanted[own] and exact[name] == 1)
        named[own] = name if alone and len(name) <= LONGEST else _hashed(own, name)
    return named


def _hashed(own: Own, name: str) -> str:
    digest = hashlib.sha256("\0".join(own).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{name[: LONGEST - _HASH - 1]}_{digest}"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tool's own name is one of the patterns, or fits one, as a shell would match it."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
