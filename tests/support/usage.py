"""The usage report, and its rows."""

import json
from typing import Any

from gptsh.core.usage import FIELDS
from tests.support.home import Home

UNKNOWN: dict[str, Any] = dict.fromkeys(FIELDS) | {"answers": 0, "unpriced": 0}


def report(home: Home, *args: str, **more: Any) -> dict[str, Any]:
    """What ``--usage -o json`` says, and nothing on stderr."""
    run = home.run("--usage", "-o", "json", *args, **more)
    assert (run.code, run.stderr) == (0, "")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def row(**known: Any) -> dict[str, Any]:
    """The fields of a row, those that are not named unknown."""
    return {**UNKNOWN, **known}
