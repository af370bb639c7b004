"""Parse what gptsh prints for programs; build answers of models."""

import json
from typing import Any

from tests.support.home import Result


def memory_answer(memory_update: str, entry: str = "They talked.") -> str:
    return json.dumps({"history_entry": entry, "memory_update": memory_update})


def json_output(run: Result) -> Any:
    """The single JSON object on stdout."""
    assert run.stdout.count("\n") == 1
    return json.loads(run.stdout)


def events(run: Result) -> list[dict[str, Any]]:
    """The JSON objects on stdout, one a line."""
    return [json.loads(line) for line in run.stdout.splitlines()]
