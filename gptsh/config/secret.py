"""Keys and tokens: usable as text, never shown."""

import re
from collections.abc import Collection

MASK = "***"
_NAMES = re.compile("(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)S?$", re.IGNORECASE)


class Secret(str):
    """A key or token: usable as text, hidden where it is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


def names_a_secret(name: str) -> bool:
    """Whether a variable or a parameter of this name holds a secret."""
    return bool(_NAMES.search(name))


def masked(text: str, secrets: Collection[str]) -> str:
    """The text without the secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
