"""A run of a sequence does not wait for a parent that does not start again: it would not run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from nextfire.dataclass import replace
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from tests.unit.redriving import DEAD, FOLLOW, SKIPPED, SUCCEEDED, redrive, run_key, work
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.world import World

ALL_DONE = "ALL_DONE"
PENDING = RunState.PENDING


def skipped_middle(world: World) -> list[Job]:
    """A dies, so b is skipped; their clean-up dies too."""
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a"))
    cleanup = world.register("cleanup", **after("a", "b", triggerRule=ALL_DONE), **ONE_ATTEMPT)
    for _ in range(2):
        world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, cleanup) == [DEAD, SKIPPED, DEAD]
    world.advance(seconds=30)
    return [a, b, cleanup]


@pytest.mark.parametrize("end", ["pause", "deletion", "removal"])
def test_a_job_that_was_paused_or_deleted_meanwhile(world: World, end: str) -> None:
    """A parent can be deleted if its child is added at the same moment."""
    jobs = skipped_middle(world)
    assert redrive(world, jobs[0], "a", downstream=True)["cleanup"][0] is FOLLOW
    middle = world.job(jobs[1].key)
    if end == "pause":
        world.pause(middle)
    elif end == "deletion":
        world.jobs.items[middle.key] = replace(middle, state=JobState.CANCELLED)
    else:
        del world.jobs.items[middle.key]

    work(world)
    work(world)

    assert states(world, *jobs) == [SUCCEEDED, SKIPPED, SUCCEEDED]


def two_branches(world: World, branch: str, *, second: str = "ALL_SUCCEEDED") -> list[Job]:
    """*branch*, of which the first dies, and another job, in another pool, which has not ended.
    Returns the first and the last of the branch, and the clean-up after both. *second*: the rule of
    the second one.
    """
    batch: dict[str, Any] = {"target": {"handler": "report", "pool": "batch"}}
    jobs = [world.register(branch[0], **ONE_ATTEMPT)]
    for above, name in pairwise(branch):
        fields = {"triggerRule": second} if above == branch[0] else {}
        jobs.append(world.register(name, **after(above, **fields), **ONE_ATTEMPT))
    world.register("other", **batch)
    cleanup = world.register("cleanup", **after(branch[-1], "other", triggerRule=ALL_DONE), **batch)
    world.tick_at("12:00")
    for _ in jobs:
        world.script(exit_code=1)
    world.worker().work()
    world.runner.scripts.clear()
    assert states(world, *jobs)[0] is DEAD
    assert world.state(cleanup, "12:00") is None
    world.advance(seconds=30)
    return [jobs[0], jobs[-1], cleanup]


def other_ends(world: World) -> None:
    assert world.worker(pool="batch").work()


@pytest.mark.parametrize("branch", ["ab", "abc", "abcd"])
def test_a_rule_that_was_changed_since_the_skip(world: World, branch: str) -> None:
    """The new rule would have started the run, but it does so by itself only at a later end."""
    *_, last, cleanup = two_branches(world, branch)
    world.change(last, triggerRule=ALL_DONE)

    other_ends(world)

    assert states(world, last, cleanup) == [SKIPPED, SUCCEEDED]


def test_a_rule_that_was_changed_since_the_run_followed_a_redrive(world: World) -> None:
    a, b, cleanup = two_branches(world, "ab", second="ANY_FAILED")
    redrive(world, a, "a", downstream=True)
    work(world)
    assert states(world, a, b) == [SUCCEEDED, SKIPPED]
    world.advance(seconds=30)
    world.change(b, triggerRule=ALL_DONE)

    other_ends(world)

    assert states(world, b, cleanup) == [SKIPPED, SUCCEEDED]


@pytest.mark.parametrize("branch", ["ab", "abc"])
def test_a_dead_parent_below_a_run_that_was_redriven_alone(world: World, branch: str) -> None:
    """It does not start again, and what is below it neither."""
    a, _, cleanup = two_branches(world, branch, second=ALL_DONE)
    world.manage_runs.redrive(run_key(a), None)

    other_ends(world)

    assert states(world, cleanup) == [SUCCEEDED]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_skipped_parent_far_below_a_run_that_runs_again_is_awaited(
    world: World, depth: int
) -> None:
    a, _, cleanup = two_branches(world, "abcd"[: depth + 1])
    world.manage_runs.redrive(run_key(a), None)

    other_ends(world)

    assert world.state(cleanup, "12:00") is None
    for _ in range(2):
        work(world)
        world.worker(pool="batch").work()
    assert states(world, cleanup) == [SUCCEEDED]


def test_a_parent_that_the_rule_does_not_need(world: World) -> None:
    """Another one has failed again."""
    a, b = (world.register(name, **ONE_ATTEMPT) for name in "ab")
    alarm = world.register("alarm", **after("a", "b", triggerRule="ANY_FAILED"), **ONE_ATTEMPT)
    for _ in range(3):
        world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, alarm) == [DEAD, DEAD, DEAD]
    world.advance(seconds=30)
    for job in (a, b):
        redrive(world, job, job.key.job_id, downstream=True)
    world.advance(seconds=2)
    world.tick()

    world.script(exit_code=1)
    world.worker().work_one()

    assert sorted(states(world, a, b)) == [DEAD, PENDING]
    assert states(world, alarm) == [PENDING]


def test_a_parent_whose_record_has_expired(world: World) -> None:
    a, b = (world.register(name, **ONE_ATTEMPT) for name in "ab")
    alarm = world.register("alarm", **after("a", "b", triggerRule="ANY_FAILED"), **ONE_ATTEMPT)
    for _ in range(3):
        world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, alarm) == [DEAD, DEAD, DEAD]
    world.advance(seconds=30)
    redrive(world, b, "b", downstream=True)
    world.runs.forget(run_key(a))

    work(world)

    assert states(world, b, alarm) == [SUCCEEDED, SUCCEEDED]


def test_a_parent_in_a_cycle_that_two_changes_closed_at_the_same_time(world: World) -> None:
    a, c, cleanup = two_branches(world, "abc")
    b = world.job(JobKey("acme", "b"))
    edges = b.definition.model_validate(b.definition.document() | after("a", "c"))
    world.jobs.items[b.key] = replace(b, definition=edges)

    other_ends(world)

    assert states(world, a, c, cleanup) == [DEAD, SKIPPED, SUCCEEDED]
