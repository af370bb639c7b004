"""Keys and tokens as text that is never shown, and masking them in errors."""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

MASK = "***"
_NAMES = "(?i)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)S?$"
# Keys of texts and schemas: names inside them are the user's own, not those of parameters.
NOT_SECRET = ("messages", "response_format", "format", "output_config", "properties")


class Secret(str):
    """A key or token: usable as text, hidden in output."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


def is_secret_name(name: str) -> bool:
    """Whether a variable or parameter with this name holds a secret."""
    return bool(re.search(_NAMES, name))


def names_secrets(name: str) -> bool:
    """Whether the texts in a parameter with this name are secret."""
    return is_secret_name(name) or name.lower().endswith("headers")


def secrets_in(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the secret texts of parameters, and of a header its token without the scheme.

    Numbers are not secret.
    """
    if isinstance(value, str) and is_secret:
        yield from {value, value.rpartition(" ")[2]}
    elif isinstance(value, list):
        for item in value:
            yield from secrets_in(item, is_secret=is_secret)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in NOT_SECRET:
                yield from secrets_in(inner, is_secret=is_secret or names_secrets(name))


def without_secrets(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that have no secret in them."""
    return {name: value for name, value in params.items() if not any(secrets_in({name: value}))}


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
