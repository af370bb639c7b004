"""What the command line and the configuration together want: who answers, whether it is kept, how long it may take."""

import json
from collections.abc import Iterable
from typing import Any

from gptsh.cli.options import Flags
from gptsh.config import settings
from gptsh.config.schema import is_json
from gptsh.config.settings import Agent, Overrides, Settings
from gptsh.core.document import Document
from gptsh.errors import UsageError

NOT_SAVED = "leave out --no-save, GPTSH_NO_SAVE, or save = false under [sessions]"


def agent_for(flags: Flags, loaded: Settings, stored: Document | None) -> Agent:
    """Who answers: what the command line names, else who the session has, else by configuration. Raises ConfigError."""
    wanted = Overrides(flags.agent, flags.model, flags.system, *params_of(flags.param))
    return settings.choose_agent(loaded, wanted, settings.stored_agent(stored) if stored else None)


def params_of(pairs: Iterable[str]) -> tuple[dict[str, Any], set[str]]:
    """``KEY=VALUE`` pairs as parameters, and those that are not to be sent: ``KEY=``.

    A value is JSON where it can be read so, else a string. Raises UsageError for any other pair.
    """
    params: dict[str, Any] = {}
    without: set[str] = set()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"parameter {pair!r}: expected KEY=VALUE")
        if not value:
            params.pop(key, None)
            without.add(key)
            continue
        without.discard(key)
        try:
            parsed = json.loads(value, parse_constant=str)
        except (ValueError, RecursionError):
            parsed = value
        params[key] = parsed if is_json(parsed) else value
    return params, without


def saves(flags: Flags, loaded: Settings) -> bool:
    """Whether anything is kept."""
    return loaded.sessions.save and not flags.no_save


def seconds_of(flags: Flags, loaded: Settings) -> float | None:
    """What a run may take; None: for ever. Raises UsageError."""
    if flags.timeout is None:
        return loaded.timeout
    try:
        return settings.positive_seconds(flags.timeout)
    except ValueError as err:
        raise UsageError(f"--timeout: {err}") from err


def check_snapshot(flags: Flags, loaded: Settings) -> None:
    """Raise UsageError for a ``--snapshot`` that cannot be taken."""
    if flags.snapshot is None:
        return
    from gptsh.core import snapshots  # noqa: PLC0415 - few runs take one

    snapshots.check_name(flags.snapshot)
    if not saves(flags, loaded):
        raise UsageError("--snapshot needs a saved session", NOT_SAVED)
