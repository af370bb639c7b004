"""Keys and tokens: usable as text, never shown."""

from collections.abc import Collection

MASK = "***"


class Secret(str):
    """A key or token: usable as text, hidden where it is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


def masked(text: str, secrets: Collection[str]) -> str:
    """The text without the secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
