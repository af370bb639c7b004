"""Generation parameters (``-p``): which a session stores, such as temperature and seed, and which gptsh sets itself."""

from collections.abc import Mapping
from typing import Any

# Fields of a request that gptsh sets itself, and what the user can use to choose them.
OWN_FIELDS = {"model": "-m", "messages": "a prompt", "stream": "--no-stream"}
STORED = ("temperature", "top_p", "max_tokens", "reasoning_effort", "seed", "stop")


def safe_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generation parameters that may be stored; the others are only sent."""
    return {name: params[name] for name in STORED if name in params}
