"""Our dataclasses: values that mypy keeps from changing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nextfire.dataclass import dataclass, field


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


@dataclass(frozen=True, slots=True)
class Login:
    user: str
    secret: str = field(repr=False)
    seen: int = field(default=0, compare=False)
    labels: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Guest(Login):
    host: str = ""


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(slots=True)
class Shown:  # noqa: PLW1641 - it has no hash
    count: int

    def __repr__(self) -> str:
        return "shown"

    def __eq__(self, other: object) -> bool:
        return True


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
    assert Identity.__hash__ is object.__hash__


def test_a_class_that_may_change_has_no_hash() -> None:
    counter = Counter(1)
    counter.count += 1
    assert counter == Counter(2)
    assert Counter.__hash__ is None


def test_fields_are_left_out_as_they_say() -> None:
    login = Login("ann", "s3cret", labels={"a": "b"})
    assert repr(login) == "Login(user='ann', seen=0, labels={'a': 'b'})"
    assert login == Login("ann", "s3cret", seen=9, labels={"a": "b"})
    assert login != Login("ann", "other", labels={"a": "b"})
    assert hash(login) == hash(Login("ann", "s3cret", labels={}))


def test_only_values_of_one_class_are_equal() -> None:
    assert Guest("ann", "s", host="a") == Guest("ann", "s", host="a")
    assert Guest("ann", "s", host="a") != Guest("ann", "s", host="b")
    assert Guest("ann", "s") != Login("ann", "s")
    pair: object = (1, 0)
    assert Point(1) != pair
    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1
    assert repr(Nothing()) == "Nothing()"


def test_methods_of_the_class_are_kept() -> None:
    assert repr(Shown(1)) == "shown"
    assert Shown(1) == Shown(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Shown(1))


def test_an_instance_that_contains_itself_is_shown() -> None:
    loop = Login("ann", "s")
    loop.labels["self"] = loop  # type: ignore[assignment]
    assert repr(loop) == "Login(user='ann', seen=0, labels={'self': ...})"


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
