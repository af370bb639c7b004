"""What the runs of this day may have spent: a small ledger that each run writes before it sends a request.

So parallel runs, deleted sessions and those that are not saved count, too.
"""

import contextlib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from gptsh import files
from gptsh.core import locks
from gptsh.core.folders import make_private, sessions_folder
from gptsh.jsonio import as_dict, encode_json, parse_json

_LARGEST = 10_000  # bytes


def reserve(change: Callable[[float], float], saved: Callable[[], float]) -> str:
    """Replace what was spent today, in USD, by the result of ``change``; return the day of the ledger.

    What ``change`` raises leaves it as it is. ``saved`` returns what today's sessions have cost, where nothing was
    recorded today. Raises StoreError.
    """
    folder = sessions_folder().parent
    with files.as_store_error("what is spent today cannot be recorded", folder):
        make_private(folder)
        with locks.locked(folder):
            day, spent = _today(saved)
            new = change(spent)
            files.replace(_path(), encode_json({"day": day, "usd": round(new, 10)}), fsync=False)
            return day


def settle(day: str, difference: float) -> None:
    """Add what a request of this day has cost less or more than was reserved. Raises StoreError."""

    def add(spent: float) -> float:
        return max(0.0, spent + difference) if _ledger().get("day") == day else spent  # it is past midnight

    reserve(add, lambda: 0.0)


def spent_today(saved: Callable[[], float]) -> float:
    """Return what was spent today, in USD."""
    return _today(saved)[1]


def _today(saved: Callable[[], float]) -> tuple[str, float]:
    """The day and what was spent on it. A day in the future counts as today, or a clock set back could pass it."""
    today = date.today().isoformat()
    ledger = _ledger()
    day, spent = ledger.get("day"), ledger.get("usd")
    if isinstance(day, str) and day >= today and isinstance(spent, (int, float)):
        return today, spent
    return today, saved()


def _ledger() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return as_dict(parse_json(files.read_bytes(_path(), _LARGEST).decode()))
    return {}


def _path() -> Path:
    return sessions_folder().parent / "spent.json"
