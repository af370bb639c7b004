"""Mask keys and other secrets in an error, and in a request that is shown: ``***`` in their place.

Headers are masked in ``headers.py``; ``config/secret.py`` knows which names are secret.
"""

from collections.abc import Collection, Iterator
from typing import Any

from gptsh.config.secret import MASK, is_secret_name, mask
from gptsh.errors import GptshError

_WIDTH = 400  # characters of an error line
# Keys of texts and schemas: names inside them are the user's own, not those of parameters.
_NOT_MASKED = ("messages", "response_format", "format", "output_config", "properties")


def without_secrets(err: GptshError, secrets: Collection[str]) -> GptshError:
    """The same error, with secrets masked wherever they could be shown, then shortened to one line."""
    text = mask(str(err), secrets)
    err.args = (text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",)
    err.detail = mask(err.detail, secrets)
    cause: BaseException | None = err
    while cause is not None:  # --debug shows the causes
        if cause.__cause__ is not None and mask(repr(cause.__cause__), secrets) != repr(cause.__cause__):
            cause.__cause__ = cause.__context__ = None
        cause = cause.__cause__
    return err


def secret_parameters(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts that ``without_secret_parameters`` masks, and of a header its token without the scheme."""
    if isinstance(value, str) and is_secret:
        yield from {value, value.rpartition(" ")[2]}
    elif isinstance(value, list):
        for item in value:
            yield from secret_parameters(item, is_secret=is_secret)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _NOT_MASKED:
                yield from secret_parameters(inner, is_secret=is_secret or _names_secrets(name))


def _names_secrets(name: str) -> bool:
    return is_secret_name(name) or name.lower().endswith("headers")


def without_secret_parameters(value: Any, *, hide: bool = False) -> Any:
    """A request with every text masked whose key names a secret or headers. Numbers are not secret."""
    if isinstance(value, str):
        return MASK if hide else value
    if isinstance(value, list):
        return [without_secret_parameters(item, hide=hide) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: inner if name in _NOT_MASKED else without_secret_parameters(inner, hide=hide or _names_secrets(name))
        for name, inner in value.items()
    }
