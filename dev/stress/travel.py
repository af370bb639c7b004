"""Two machines whose stores are synced: random steps on both, and the ways in which tools resolve a conflict."""

import tempfile
from collections import Counter
from pathlib import Path

from dev.stress.table import Row, Table
from tests.support.machines import MEMORY, WAYS, Machines, random_steps

_AT_ONCE = 50  # steps in one pair of stores, before they must be equal
_KINDS = ("lost", "doubled", "left", "returned", "differs")


def two_machines(steps: int) -> Table:
    """The table: a row for each way, with so many steps."""
    rows = []
    for way, description in WAYS.items():
        counts: Counter[str] = Counter()
        conflicts = turns = 0
        for seed in range(steps // _AT_ONCE):
            with tempfile.TemporaryDirectory(dir=MEMORY, prefix="gptsh-") as folder:
                machines = Machines(Path(folder), way)
                for step in random_steps(seed, _AT_ONCE):
                    machines.do(step)
                machines.settle()
                counts.update(kind for kind, _ in machines.faults())
                conflicts += machines.conflicts
                turns += sum(map(len, machines.turns.values()))
        cells = (description, steps, turns, conflicts, *(counts[kind] for kind in _KINDS))
        rows.append(Row(cells, conflicts > 0 and not counts))
    text = (
        "Two machines start, continue, title, tag, fork, delete and archive sessions, and a tool syncs their stores. "
        f"After every {_AT_ONCE} steps both must have all turns, once. A deleted session returns only with turns that "
        "the machine that deleted it did not have."
    )
    heads = ("The tool's way", "Steps", "Turns", "Conflicts", "Lost", "Doubled", "Copies left", "Returned", "Different")
    return Table("Two machines", text, heads, rows)
