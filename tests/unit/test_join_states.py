"""The states of the parents of a join, by their marks and, if these disagree, by their records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextfire.domain.edges import Edge
from nextfire.domain.run import Run, RunState
from nextfire.domain.trigger_rules import ParentState
from nextfire.usecases.join_states import join_states
from tests.builders import a_job, at
from tests.unit.sequencing import after
from tests.world import World


@pytest.mark.parametrize(
    ("state", "counts_as"),
    [
        (RunState.SKIPPED, ParentState.SKIPPED),
        (RunState.DEAD, ParentState.FAILED),
        # It was redriven once more: it counts as before until it ends.
        (RunState.PENDING, ParentState.FAILED),
        (None, ParentState.FAILED),
    ],
)
def test_of_two_ends_the_record_says_which_was_the_last(
    world: World, state: RunState | None, counts_as: ParentState
) -> None:
    parent = world.register("a")
    if state is not None:
        key = parent.run_key(at("12:00"))
        world.runs.items[key] = replace(Run(key, state), pool="default")
    child = a_job("b", **after("a"))

    states = join_states(world.runs, child.run_key(at("12:00")), [Edge(job="a")], ["a:F", "a:K"])

    assert states == {"a": counts_as}
