"""Keys and tokens as text that is never shown, and masking them in errors."""

import re
from collections.abc import Collection
from functools import cache

MASK = "***"
_NAMES = "(?i)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)S?$"


class Secret(str):
    """A key or token: usable as text, hidden in output."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


def is_secret_name(name: str) -> bool:
    """Whether a variable or parameter with this name holds a secret."""
    return bool(re.search(_NAMES, name))


def mask(text: str, secrets: Collection[str]) -> str:
    """Return the text with its secrets masked, also in other case, percent-encoded or with JSON escapes."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = _secret_pattern(secret).sub(MASK, text)
    return text


@cache
def _secret_pattern(secret: str) -> re.Pattern[str]:
    return re.compile("".join(map(_character_pattern, secret)))


def _character_pattern(char: str) -> str:
    """Return a pattern that begins with plain letters, so that ``re`` passes over a long text quickly."""
    plain = "|".join(re.escape(form) for form in sorted({char, char.lower(), char.upper()}))
    percent = "".join(f"%(?i:{byte:02x})" for byte in char.encode("utf-8", "surrogateescape"))
    return rf"(?:{plain}|{percent}|\\{{1,3}}(?:{plain}|u(?i:{ord(char):04x})))"
