"""Two machines, any steps on both, and five ways in which tools sync their stores: no turn is lost, none doubled."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.machines import ACTIONS, MEMORY, WAYS, Machines, Step

STEPS = st.lists(st.builds(Step, st.integers(0, 1), st.sampled_from(ACTIONS), st.integers(0, 9)), max_size=8)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=3)
@given(before=STEPS, after=STEPS)
def test_both_stores_end_with_every_turn_once(way: str, before: list[Step], after: list[Step]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        machines = Machines(Path(folder), way)
        machines.do(Step(0, "new", 0))
        for step in (*before, Step(0, "sync", 0), Step(0, "turn", 0), Step(1, "turn", 0), *after):
            machines.do(step)
        machines.settle()
        assert list(machines.faults()) == []
