"""A backfill ends when it is stopped or its schedule changes, and one follows another."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.backfill import AT_ONCE, Backfill
from nextfire.domain.due import BackfillEntry, FireEntry
from nextfire.domain.errors import ConflictError, NotFoundError
from nextfire.domain.run import RunState
from nextfire.usecases.continue_backfill import ContinueBackfill
from nextfire.usecases.find_outstanding import has_outstanding
from nextfire.usecases.manage_backfills import BackfillRange
from tests.accounting import settle
from tests.builders import MINUTELY, at
from tests.unit.backfilling import backfilled, begin, times
from tests.world import World

BEGINNING = "11:59:30"


def test_a_job_has_one_backfill_at_a_time_and_requests_are_idempotent(world: World) -> None:
    job = world.register(**MINUTELY)
    begun = begin(world, job, "11:00", "11:05")
    assert begin(world, job, "11:00", "11:05") == begun
    with pytest.raises(ConflictError, match="of 5 occurrences"):
        begin(world, job, "11:00", "11:05", backfill_id="c")
    settle(world)
    begin(world, job, "11:00", "11:10", backfill_id="c")
    settle(world)
    assert [r.request for r in backfilled(world, job)].count("b") == 5
    assert len(backfilled(world, job)) == 10


def test_it_is_asked_again_when_it_is_over_and_nothing_runs_twice(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:05")
    settle(world)
    begin(world, job, "11:00", "11:05")
    settle(world)
    assert {r.attempt for r in backfilled(world, job)} == {1}
    assert world.job(job.key).backfill is None


def test_a_stopped_backfill_starts_no_further_runs(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    world.tick()
    stopped = world.backfills.stop(job.key, now=world.now)
    assert stopped.backfilling is None
    settle(world)
    assert len(backfilled(world, job)) == AT_ONCE
    assert {r.state for r in backfilled(world, job)} == {RunState.SUCCEEDED}
    assert [type(e) for e in world.entries] == [FireEntry]
    with pytest.raises(NotFoundError, match="Backfill"):
        world.backfills.stop(job.key, now=world.now)


def test_it_starts_though_the_job_changes_meanwhile(world: World) -> None:
    job = world.register(**MINUTELY)
    world.faults.call_before_next("jobs.update", lambda: world.change(job, name="another"))

    begun = begin(world, job, "11:00", "11:35")

    assert world.job(job.key) == begun
    assert (begun.definition.name, begun.backfilling is None) == ("another", False)


def test_it_is_stopped_though_the_job_changes_meanwhile(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    world.faults.call_before_next("jobs.update", lambda: world.change(job, name="another"))

    stopped = world.backfills.stop(job.key, now=world.now)

    assert world.job(job.key) == stopped
    assert stopped.definition.name == "another"


def test_a_stopped_backfill_does_not_resume_with_the_next_one(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    for _ in range(3):
        world.tick()
        world.worker().work()
        world.advance(seconds=6)
        if len(backfilled(world, job)) > AT_ONCE:
            break
    world.backfills.stop(job.key, now=world.now)
    begin(world, job, "09:00", "09:35", backfill_id="c")
    for _ in range(3):
        world.tick()
        world.advance(seconds=6)
    new = [run for run in backfilled(world, job) if run.request == "c"]
    assert times(new) == [f"09:0{n}" for n in range(AT_ONCE)]


@pytest.mark.parametrize("how", ["pause", "delete", "change"])
def test_a_schedule_change_ends_the_backfill(world: World, how: str) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    world.tick()
    if how == "change":
        world.change(job, schedule="*/2 * * * *")
    else:
        getattr(world, how)(job)
    assert world.job(job.key).backfilling is None
    settle(world)
    ended = RunState.CANCELLED if how == "delete" else RunState.SUCCEEDED
    assert [r.state for r in backfilled(world, job)] == [ended] * AT_ONCE
    assert not [e for e in world.entries if isinstance(e, BackfillEntry)]


def test_a_payload_change_does_not_end_the_backfill(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:15")
    world.tick()
    world.change(job, payload={"a": 1})
    settle(world)
    assert len(backfilled(world, job)) == 15


def test_a_job_that_drains_waits_for_what_was_begun(world: World) -> None:
    job = world.register(**MINUTELY)
    # Before the period that `has_outstanding` searches for waiting runs and retries.
    long_ago = BackfillRange(at("09:00") - timedelta(days=5), at("09:35") - timedelta(days=5))
    world.backfills.begin(job.key, long_ago, backfill_id="b", asked_at=world.now, now=world.now)
    world.tick()
    latest = max((run.key for run in backfilled(world, job)), key=lambda key: key.run_id)
    world.manage_runs.cancel(latest, None)
    drained = world.manage.drain(job.key, None, now=world.now)
    assert has_outstanding(world.runs, drained, world.now)
    settle(world)
    assert not has_outstanding(world.runs, drained, world.now)
    assert len(backfilled(world, job)) == AT_ONCE


def test_a_repeated_request_does_not_restart_a_stopped_backfill(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:40", "11:55")
    stopped = world.backfills.stop(job.key, now=world.now)

    again = begin(world, job, "11:40", "11:55")

    assert again == stopped
    assert world.job(job.key).backfilling is None
    assert begin(world, job, "11:40", "11:55", backfill_id="c").backfilling is not None


def test_a_backfill_for_which_no_time_is_left_computes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin(world, world.register(**MINUTELY), "11:00", "11:05")
    entry = job.backfill_entry(1)
    assert entry is not None
    backfill = ContinueBackfill(world.jobs, world.runs, world.due, world.queue, world.clock)
    monkeypatch.delattr(Backfill, "batch")

    assert not backfill.step(entry, job, world.now - timedelta(seconds=1))
