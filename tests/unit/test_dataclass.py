"""Our dataclasses: values that mypy keeps from changing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from nextfire.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Named:
    name: str

    def __hash__(self) -> int:
        return 7


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    name: str


@dataclass(slots=True)
class Counter:
    count: int


def test_a_frozen_class_is_a_value() -> None:
    point = Point(1, y=2)
    assert point == Point(1, 2)
    assert hash(point) == hash(Point(1, 2))
    assert {Point(1), Point(1)} == {Point(1)}
    assert replace(point, y=3) == Point(1, 3)
    assert repr(point) == "Point(x=1, y=2)"


def test_a_hash_of_the_class_is_kept() -> None:
    assert hash(Named("a")) == 7
    assert Identity("a") != Identity("a")
    assert len({Identity("a"), Identity("a")}) == 2


def test_a_class_that_may_change_has_no_hash() -> None:
    counter = Counter(1)
    counter.count += 1
    assert counter == Counter(2)
    assert Counter.__hash__ is None


def test_mypy_rejects_assignments_to_frozen_instances() -> None:
    """Mypy reports an ignore that is not needed, so this line is a check. Nothing else rejects
    the assignment.
    """
    point = Point(1)
    point.x = 2  # type: ignore[misc]
    assert point.x == 2


def test_functions_and_layer_have_no_other_dataclasses() -> None:
    root = Path(__file__).parents[2]
    files = [*root.glob("layers/nextfire/**/*.py"), *root.glob("functions/**/*.py")]
    other = re.compile(r"^ *from dataclasses import .*\bdataclass\b", re.MULTILINE)

    found = {each.name for each in files if other.search(each.read_text())}

    assert files
    assert found == {"dataclass.py"}
