"""NamedTuple of our own: it does what that of typing does."""

import copy
import pickle
from typing import Any
from typing import NamedTuple as Original

import pytest
from gptsh.records import NamedTuple


class Point(NamedTuple):
    """A place."""

    x: int
    y: int = 2
    name: str = ""

    @property
    def total(self) -> int:
        return self.x + self.y


class Same(Original):
    """A place."""

    x: int
    y: int = 2
    name: str = ""


class Empty(NamedTuple):
    """Nothing."""


Class: Any = Point


@pytest.mark.parametrize(
    ("args", "named"), [((1,), {}), ((1, 3), {}), ((1, 3, "a"), {}), ((), {"x": 1}), ((1,), {"name": "b"})]
)
def test_it_is_made_as_the_original(args: Any, named: Any) -> None:
    ours, original = Class(*args, **named), Same(*args, **named)
    assert ours == original == tuple(original)
    assert (ours.x, ours.y, ours.name) == (original.x, original.y, original.name)
    assert (ours._asdict(), repr(ours)) == (original._asdict(), repr(original).replace("Same", "Point"))
    assert ours._replace(y=7) == original._replace(y=7)
    assert isinstance(ours._replace(y=7), Point)
    assert Class._make(ours) == copy.deepcopy(ours) == pickle.loads(pickle.dumps(ours)) == ours
    assert not hasattr(ours, "__dict__")


@pytest.mark.parametrize(("args", "named"), [((), {}), ((1, 2, "a", 4), {}), ((1,), {"x": 2}), ((1,), {"z": 2})])
def test_wrong_fields_are_an_error(args: Any, named: Any) -> None:
    for made in (Class, Same):
        with pytest.raises(TypeError):
            made(*args, **named)
    with pytest.raises(ValueError, match="z"):
        Class(1)._replace(z=1)


def test_a_class_knows_its_fields() -> None:
    assert (Point._fields, Point._field_defaults) == (Same._fields, Same._field_defaults)
    assert (Point(1).total, Empty(), Point.__doc__) == (3, (), "A place.")
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)
