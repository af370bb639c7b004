"""Sessions that are longer than a window: 200 turns that outgrow one, 2,000 messages that have outgrown one."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clocks import Failed
from benchmarks.servers import LongServer

TURNS, WINDOW = 200, 32_768
_TURNS, _FILES = 100, 9  # of the long session: turns, and files that are read in each
_CODE = "    line = reader.next_line(at + 1)\n" * 110
_ANSWER = "The parser keeps the line that it cannot tell apart, and has a test for it. " * 8
_FOLDER = Path(__file__).parent
# -P: the script's folder is no place to import from.
MANY_TURNS = (sys.executable, "-P", str(_FOLDER / "many_turns.py"), str(TURNS))
FIT_TURN = (sys.executable, "-P", str(_FOLDER / "fit_turn.py"))


class Prefixes(NamedTuple):
    """Percent of the requests' bytes with which the request before began: of all, and of those that only grew."""

    all: float
    grown: float
    requests: int
    compactions: int


def of_long(server: LongServer) -> str:
    """The configuration for a server with a window; a provider's further keys may follow."""
    models = '[agents.default]\nmodel = "lab/m"\nmodel_small = "lab/small"\n'
    return f'{models}[providers.lab]\nbase_url = "{server.base_url}"\n'


def of_tools(question: dict[str, Any], answer: dict[str, Any], words: int) -> list[dict[str, Any]]:
    """2,000 messages of 4 MB together: 100 questions of so many words, for each of which nine files are read."""
    asked = {key: question[key] for key in ("role", "timestamp")} | {"content": "parser " * words}
    said = {key: answer[key] for key in ("role", "timestamp")} | {"content": ""}
    turn = [asked]
    for number in range(_FILES):
        function = {"name": "fs__read_file", "arguments": json.dumps({"path": f"src/{number}.py"})}
        turn.append(said | {"tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]})
        turn.append(
            asked | {"role": "tool", "name": "fs__read_file", "tool_call_id": f"call_{number}", "content": _CODE}
        )
    turn.append(said | {"content": _ANSWER})
    ids = [f"00000000-0000-4000-8000-{number:012}" for number in range(_TURNS * len(turn))]
    named = zip(turn * _TURNS, ids, [None, *ids[:-1]], strict=True)
    return [message | {"id": ident, "parent": parent} for message, ident, parent in named]


def prefixes_of(server: LongServer) -> Prefixes:
    """What the requests that a server got for its large model had in common, each with the one before."""
    sent = [asked.body for asked in server.asked if asked.path.endswith("/chat/completions")]
    said = [json.dumps(body["messages"], ensure_ascii=False).encode() for body in sent if body["model"] == "m"]
    if len(said) < TURNS:
        raise Failed(f"{len(said)} requests in {TURNS} turns")
    pairs = [(_common(before, now), len(now), len(before)) for before, now in pairwise(said)]
    grown = [(known, size) for known, size, before in pairs if known >= before - 1]  # but for the bracket at its end
    shares = [100 * sum(pair[0] for pair in some) / sum(pair[1] for pair in some) for some in (pairs, grown)]
    return Prefixes(*shares, requests=len(said), compactions=len(pairs) - len(grown))


def _common(before: bytes, now: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(before), len(now))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == now[:middle] else (low, middle - 1)
    return low
