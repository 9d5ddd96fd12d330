"""A run that may wait for a quota of its tenant says so."""

from __future__ import annotations

from nextfire.domain.run import Run
from nextfire.usecases.find_run import PendingOccurrence
from tests.unit.limited import ONCE, a_world
from tests.world import World

BOTH = (
    "; may wait for its tenant's quotas: runsPerMinute 1 (used up until 2026-05-24T12:01:00Z), "
    "concurrentRuns 2"
)


def requested(world: World, job_id: str) -> Run:
    job = world.register(job_id, type="MANUAL", schedule=None)
    return world.request_runs.run_now(
        job.key, payload=None, reason=None, request="r", asked_at=world.now
    )


def test_an_occurrence_without_a_record_names_the_quotas() -> None:
    world = a_world(runsPerMinute=1, concurrentRuns=2)
    jobs = [world.register(f"job{number}", **ONCE) for number in range(2)]
    world.tick_at("12:00")

    pending = world.find_run.find(jobs[1].run_key(world.now))

    assert isinstance(pending, PendingOccurrence)
    assert pending.reason == "dispatched or about to be; no executor has taken it yet" + BOTH


def test_a_run_on_request_names_the_quotas() -> None:
    world = a_world(runsPerMinute=1, concurrentRuns=2)
    world.register("first", **ONCE)
    world.tick_at("12:00")
    run = requested(world, "second")

    assert world.find_run.explain(run).reason == "run on request" + BOTH


def test_a_quota_that_is_not_used_up_says_how_much_is() -> None:
    """A run that waited was moved to a later minute."""
    world = a_world(runsPerMinute=3)
    world.register("first", **ONCE)
    world.tick_at("12:00")
    run = requested(world, "second")

    reason = world.find_run.explain(run).reason

    assert reason == "run on request; may wait for its tenant's quotas: runsPerMinute 3 (1 used)"


def test_without_such_a_quota_nothing_is_said_or_read() -> None:
    world = a_world(jobs=9)
    run = requested(world, "job")
    world.faults.refuse("control.taken_runs")

    assert world.find_run.explain(run).reason == "run on request"
