"""The protocols hold in every state; each broken protocol violates its property."""

from __future__ import annotations

import pytest

from tests.crons import LONG
from tests.model.catalogue import BROKEN, LARGE, NOT_NEEDED, OPEN, SMALL, SWALLOWED, Broken
from tests.model.explore import LOST, STUCK, Model, Step, TooLargeError, explore


@pytest.mark.parametrize("name", SMALL)
def test_the_protocol_holds_in_every_state(name: str) -> None:
    explored = explore(SMALL[name])

    assert explored.violation is None, str(explored.violation)
    assert explored.states > 1_000, "the model is too small"


@pytest.mark.skipif(not LONG, reason="takes minutes")
@pytest.mark.parametrize("name", LARGE)
def test_the_protocol_holds_in_every_state_of_a_large_model(name: str) -> None:
    explored = explore(LARGE[name])

    assert explored.violation is None, str(explored.violation)


@pytest.mark.parametrize("broken", [*BROKEN.values(), SWALLOWED], ids=[*BROKEN, "swallowed"])
def test_each_broken_protocol_violates_its_property(broken: Broken) -> None:
    violation = explore(broken.model).violation

    assert violation is not None
    assert violation.property == broken.property, str(violation)
    assert violation.trace


@pytest.mark.parametrize("name", OPEN)
def test_known_gaps_are_still_found(name: str) -> None:
    violation = explore(OPEN[name].model).violation

    assert violation is not None, "no longer found: move it to the fixed ones in docs/defects.md"
    assert violation.property == OPEN[name].property, str(violation)


@pytest.mark.skipif(not LONG, reason="takes long")
@pytest.mark.parametrize("name", NOT_NEEDED)
def test_redundant_guards_are_not_needed(name: str) -> None:
    assert explore(NOT_NEEDED[name]).violation is None


# The explorer itself, on numbers


def numbers(up_to: int, *, only_by_fault: bool = False, rest: int | None = None) -> Model[int]:
    """Counts from 0 to *up_to*; *rest*: the accepted end."""

    def steps(at: int) -> list[Step[int]]:
        more = [Step(f"to {at + 1}", at + 1, only_by_fault)] if at < up_to else []
        return [*more, Step("nothing", at)]

    return Model(
        name="numbers",
        initial=0,
        steps=steps,
        always={"below 9": lambda at: at < 9},
        changes={"not from 6 to 7": lambda before, _, after: (before, after) != (6, 7)},
        accounted=lambda at: at == (up_to if rest is None else rest),
    )


def test_an_explorer_counts_what_it_sees() -> None:
    explored = explore(numbers(5))

    assert (explored.states, explored.transitions, explored.depth) == (6, 5, 5)
    assert explored.violation is None


@pytest.mark.parametrize(
    ("model", "broken", "length"),
    [
        (numbers(10).without("not from 6 to 7"), "below 9", 9),
        (numbers(10), "not from 6 to 7", 7),
        (numbers(5, rest=4), STUCK, 5),
        (numbers(5, only_by_fault=True), STUCK, 0),
    ],
)
def test_the_explorer_shows_the_shortest_path_to_a_violation(
    model: Model[int], broken: str, length: int
) -> None:
    violation = explore(model).violation

    assert violation is not None
    assert (violation.property, len(violation.trace)) == (broken, length)
    assert f"{length}. to {length}" in str(violation) or not length


def test_the_explorer_finds_an_endless_cycle() -> None:
    cycle = Model[int](
        name="cycle",
        initial=0,
        steps=lambda at: [Step(f"to {to}", to) for to in {0: (1, 3), 1: (2,), 2: (1,)}.get(at, ())],
        always={},
        changes={},
        accounted=lambda at: at == 3,
    )

    violation = explore(cycle).violation

    assert violation is not None
    assert (violation.property, violation.trace) == (LOST, ["to 1"])


def test_the_explorer_gives_up_above_the_limit_of_states() -> None:
    with pytest.raises(TooLargeError):
        explore(numbers(8), at_most=3)
