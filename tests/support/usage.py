"""The usage report, and its rows."""

import json
from typing import Any

from tests.support.home import Home

TOKENS = ("prompt", "completion", "total", "reasoning_tokens", "cached_tokens")
FIELDS = ("answers", *TOKENS, "cost", "unpriced")
UNKNOWN: dict[str, Any] = dict.fromkeys(FIELDS) | {"answers": 0, "unpriced": 0}


def report(home: Home, *args: str, **more: Any) -> dict[str, Any]:
    """What ``--usage -o json`` says, and nothing on stderr; its total is the sum of its days and of its models."""
    run = home.run("--usage", "-o", "json", *args, **more)
    assert (run.code, run.stderr) == (0, "")
    found: dict[str, Any] = json.loads(run.stdout)
    for section in ("days", "models"):
        for field in FIELDS:
            known = [entry[field] for entry in found[section] if entry[field] is not None]
            assert abs((found["total"][field] or 0) - sum(known)) < 1e-8, (section, field)
            assert (found["total"][field] is None) == (not known and field not in ("answers", "unpriced"))
    return found


def row(**known: Any) -> dict[str, Any]:
    """The fields of a row, those that are not named unknown."""
    return {**UNKNOWN, **known}
