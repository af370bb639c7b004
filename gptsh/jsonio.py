"""Strict JSON, and values of unknown shape, as servers and files give them."""

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

_DEAREST = 1e15  # USD


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text} is too large a number")
    return value


# What contains itself is found by its depth.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
parsed_from = _decoder.raw_decode  # one value of a text, from a position on, and where it ends. Raises as ``parsed``.
parsed = _decoder.decode  # JSON as every reader takes it. Raises ValueError, and RecursionError where it is too deep.


def parsed_quickly(data: bytes) -> Any:
    """Parse JSON in half the time of ``parsed``, where nothing is written back: 1e999 is infinite here.

    Raises as ``parsed``.
    """
    try:
        return _from_json()(data, allow_inf_nan=False)
    except ValueError:  # also for a lone surrogate, which ``parsed`` accepts
        return parsed(data.decode())


@cache
def _from_json() -> Callable[..., Any]:
    from jiter import from_json  # noqa: PLC0415 - 1 ms that only lists and searches need

    return from_json


def encoded(value: object) -> bytes:
    """Compact JSON, UTF-8 as it is. A lone surrogate becomes its ``\\udcXX`` escape, which every JSON reader takes.

    Raises ValueError for a value that JSON cannot hold.
    """
    try:
        text = _encoder.encode(value)
    except (TypeError, RecursionError) as err:
        raise ValueError(str(err)) from err
    return text.encode("utf-8", "backslashreplace")


def is_json(value: object) -> bool:
    """Whether a value can be sent and saved as it is: no date of TOML, no infinity, no bottomless nesting."""
    try:
        return bool(encoded(value))
    except ValueError:
        return False


def as_dict(value: object) -> dict[str, Any]:
    """The value where it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_dicts(value: object) -> list[dict[str, Any]]:
    """The dicts of a list, in order; none of any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def is_cost(value: object) -> bool:
    """Whether a value can be a cost: USD, or None for an unknown one."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _DEAREST)
