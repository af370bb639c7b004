"""Mask keys and other secrets in an error, and in a request that is shown: ``***`` in their place.

Headers are masked in ``headers.py``; ``config/schema.py`` knows which names are secret.
"""

from collections.abc import Collection
from typing import Any

from gptsh.config.schema import MASK, NOT_SECRET, mask, names_secrets
from gptsh.errors import GptshError

_WIDTH = 400  # characters of an error line


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


def without_secret_parameters(value: Any, *, hide: bool = False) -> Any:
    """A request with every text masked whose key names a secret or headers. Numbers are not secret."""
    if isinstance(value, str):
        return MASK if hide else value
    if isinstance(value, list):
        return [without_secret_parameters(item, hide=hide) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: inner if name in NOT_SECRET else without_secret_parameters(inner, hide=hide or names_secrets(name))
        for name, inner in value.items()
    }
