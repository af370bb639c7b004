"""What the runs of this day may have spent: a small ledger that each run writes before it sends a request.

So parallel runs, deleted sessions and those that are not saved count, too.
"""

import contextlib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from gptsh.core import files, locks
from gptsh.core.session_folders import make_private, sessions_folder
from gptsh.jsonio import as_dict, encode_json, parse_json

_LARGEST = 10_000  # bytes


def change_today(change: Callable[[float], float], saved: Callable[[], float]) -> None:
    """Replace what was spent today, in USD, by the result of ``change``; what that raises leaves it as it is.

    ``saved`` returns what today's sessions have cost, where nothing was recorded today. Raises StoreError.
    """
    folder = sessions_folder().parent
    with files.as_store_error("what is spent today cannot be recorded", folder):
        make_private(folder)
        with locks.locked(folder):
            day, spent = _today(saved)
            new = change(spent)
            files.replace(_path(), encode_json({"day": day, "usd": round(new, 10)}), fsync=False)


def spent_today(saved: Callable[[], float]) -> float:
    """Return what was spent today, in USD."""
    return _today(saved)[1]


def _today(saved: Callable[[], float]) -> tuple[str, float]:
    """The day and what was spent on it. A later day in the ledger goes on: the clock was set back since."""
    today = date.today().isoformat()
    ledger: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        ledger = as_dict(parse_json(files.read_bytes(_path(), _LARGEST).decode()))
    day, spent = ledger.get("day"), ledger.get("usd")
    if isinstance(day, str) and day >= today and isinstance(spent, (int, float)):
        return day, spent
    return today, saved()


def _path() -> Path:
    return sessions_folder().parent / "spent.json"
