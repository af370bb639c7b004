"""Values of unknown shape, as servers and files give them."""

from typing import Any

_DEAREST = 1e15  # USD


def as_dict(value: object) -> dict[str, Any]:
    """The value where it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_dicts(value: object) -> list[dict[str, Any]]:
    """The dicts of a list, in order; none of any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def is_cost(value: object) -> bool:
    """Whether a value can be a cost: USD, or None for an unknown one."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _DEAREST)
