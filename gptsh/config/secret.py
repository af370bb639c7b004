"""Keys and tokens: usable as text, never shown."""

import re
from collections.abc import Collection
from functools import cache

MASK = "***"
_NAMES = "(?i)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)S?$"


class Secret(str):
    """A key or token: usable as text, hidden where it is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


def is_secret_name(name: str) -> bool:
    """Whether a variable or a parameter of this name holds a secret."""
    return bool(re.search(_NAMES, name))


def mask(text: str, secrets: Collection[str]) -> str:
    """The text without the secrets, in capitals, percent-encoded or escaped as in JSON too: servers repeat them so."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = _spellings(secret).sub(MASK, text)
    return text


@cache
def _spellings(secret: str) -> re.Pattern[str]:
    return re.compile("".join(map(_character, secret)))


def _character(char: str) -> str:
    """A pattern that begins with letters alone, so that a long text is passed over quickly."""
    plain = "|".join(re.escape(way) for way in sorted({char, char.lower(), char.upper()}))
    percent = "".join(f"%(?i:{byte:02x})" for byte in char.encode("utf-8", "surrogateescape"))
    return rf"(?:{plain}|{percent}|\\{{1,3}}(?:{plain}|u(?i:{ord(char):04x})))"
