"""Redrive of a sequence whose jobs have changed, or were deleted, since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError
from nextfire.domain.redrive_plan import Definition
from nextfire.usecases.redrive_sequence import RedriveSequence
from tests.fakes import InlineExecutor
from tests.unit.redriving import (
    DEAD,
    KEEP,
    RUN,
    SKIPPED,
    SUCCEEDED,
    cleanup_after_failure,
    failed_middle,
    plan_of,
    redrive,
    run_key,
    work,
)
from tests.unit.sequencing import ONE_ATTEMPT, after, chain, states
from tests.world import World

BEGINNING = "11:58:30"
OTHER_UID = "20260524T120000000Z-uid99999"


def test_a_run_of_a_deleted_job_stays_dead(world: World) -> None:
    _, b = chain(world, "a", "b", **ONE_ATTEMPT)
    world.script()
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    world.delete(b)

    with pytest.raises(ConflictError, match="job was deleted"):
        redrive(world, b, "b")
    work(world)

    assert states(world, b) == [DEAD]


def test_a_job_or_a_pool_that_does_not_exist_is_reported_before_anything_changes(
    world: World,
) -> None:
    jobs = cleanup_after_failure(world)
    before = dict(world.runs.all)

    with pytest.raises(InvalidInputError, match="Available: a, b, cleanup, report"):
        redrive(world, jobs[0], "x")
    world.change(jobs[1], **after("a"), target={"handler": "b", "pool": "batch"})
    world.sequences = RedriveSequence(
        world.jobs, world.runs, pools=["default"], clock=world.clock, executor=InlineExecutor()
    )
    with pytest.raises(ConflictError, match="no longer exists"):
        redrive(world, jobs[0], "b", downstream=True)
    with pytest.raises(NotFoundError):
        world.sequences.plan(replace(run_key(jobs[0]), run_id=OTHER_UID), "b", downstream=False)
    assert world.runs.all == before


def test_a_parent_that_cannot_allow_it_any_more_is_named(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    b, c = (world.register(name, **after("a"), **ONE_ATTEMPT) for name in "bc")
    d = world.register("d", **after("b", "c"))
    world.script()
    world.script(exit_code=1)
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, c, d) == [SUCCEEDED, DEAD, DEAD, SKIPPED]

    done = plan_of(world.sequences.plan(run_key(a), "b", downstream=True))

    assert done["c"] == (KEEP, "not below b")
    assert done["d"] == (KEEP, "trigger rule ALL_SUCCEEDED: c FAILED")


def test_with_the_runs_definition_a_changed_job_is_refused(world: World) -> None:
    a, b, c, _ = failed_middle(world)
    world.change(b, **after("a"), **ONE_ATTEMPT, labels={"team": "data"})
    world.change(c, **after("b"), **ONE_ATTEMPT, payload={"fixed": True})  # it has never started
    key, before = run_key(a), dict(world.runs.all)
    unchanged = world.sequences.plan(key, "b", downstream=True, definition=Definition.RUN)
    assert plan_of(unchanged)["b"] == (RUN, "DEAD: exit code 1")

    world.change(b, **after("a"), **ONE_ATTEMPT, payload={"fixed": True})

    with pytest.raises(ConflictError, match="of b changed since"):
        redrive(world, a, "b", definition=Definition.RUN)
    assert world.runs.all == before
    done = redrive(world, a, "b")
    assert done["b"] == (RUN, "DEAD: exit code 1; its job has changed since")


def test_true_in_place_of_1_changes_what_a_job_does(world: World) -> None:
    _, b, *_ = failed_middle(world)
    world.change(b, **after("a"), **ONE_ATTEMPT, payload={"full": 1})
    changed = world.job(b.key).defined_in

    world.change(b, **after("a"), **ONE_ATTEMPT, payload={"full": True})

    assert world.job(b.key).defined_in != changed


def test_a_pause_and_a_new_child_do_not_change_what_a_job_does(world: World) -> None:
    a, b, *_ = failed_middle(world)
    world.pause(b)
    world.resume(b)
    world.register("e", **after("b"))

    done = redrive(world, a, "b", definition=Definition.RUN)

    assert done["b"] == (RUN, "DEAD: exit code 1")


def test_a_job_of_an_earlier_version_has_perhaps_changed(world: World) -> None:
    a, b, *_ = failed_middle(world)
    revision = world.job(b.key).revision
    world.jobs.put(replace(world.job(b.key), defined_in=None))
    assert redrive(world, a, "b", definition=Definition.RUN)["b"][0] is RUN

    assert not replace(b, defined_in=None, revision=revision).defined_after(revision)
    assert replace(b, defined_in=None, revision=revision + 1).defined_after(revision)
