"""Occurrences missed before a run, which its executor records first."""

from __future__ import annotations

from itertools import count

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from nextfire.usecases.handled import Disposition
from tests.builders import at
from tests.dispatched import FAILS
from tests.world import World


def sent_late(world: World, **fields: object) -> Job:
    """A job whose 12:02 has just been sent, with 12:00 and 12:01 reported as missed."""
    dates = [f"2026-05-24T12:0{minute}:00Z" for minute in range(3)]
    fields = {"type": "DATES", "schedule": dates, "misfire": {"policy": "RUN_LATEST"}} | fields
    job = world.register(**fields)  # type: ignore[arg-type] # any field of a definition
    world.tick_at("12:04")
    assert world.queued == ["report 12:02"]
    assert world.runs.all == {}
    return job


def recorded(world: World) -> list[str]:
    """``12:00 SUCCEEDED``, ``12:00 SKIPPED (2)``; earliest first."""
    found = sorted(world.runs.all.values(), key=lambda run: run.key.run_id)
    skipped = RunState.SKIPPED
    return [
        f"{run.key.scheduled_at:%H:%M} {run.state}"
        + (f" ({run.covered})" if run.state is skipped else "")
        for run in found
    ]


def test_what_was_missed_is_on_record_before_the_run_is_claimed(world: World) -> None:
    sent_late(world)
    world.faults.calls.clear()

    handled = world.worker().work_one()

    calls = [call for call in world.faults.calls if call in {"runs.skip", "runs.claim"}]
    assert calls == ["runs.skip", "runs.claim"]
    assert [run.covered for run in handled.missed] == [2]
    assert recorded(world) == ["12:00 SKIPPED (2)", "12:02 SUCCEEDED"]


def test_a_run_is_not_claimed_where_what_was_missed_cannot_be_recorded(world: World) -> None:
    sent_late(world)
    world.faults.refuse("runs.skip")

    with pytest.raises(UnavailableError):
        world.worker().work_one()

    assert recorded(world) == []


@pytest.mark.parametrize("script", [{}, FAILS], ids=["succeeds", "fails"])
def test_a_worker_that_dies_anywhere_loses_nothing_of_what_was_missed(
    script: dict[str, object],
) -> None:
    def dies_after(calls: int) -> bool:
        world = World("11:59")
        job = sent_late(world, retryPolicy={"maxAttempts": 2})
        for _ in range(3):
            world.script(**script)
        died = world.dies(calls, world.worker("a").work_one)
        claimed = any(run.state is not RunState.SKIPPED for run in world.runs.all.values())
        assert not claimed or recorded(world)[0] == "12:00 SKIPPED (2)"
        for _ in range(20):
            world.advance(seconds=30)
            world.tick()
            world.worker("b").work()

        last = RunState.DEAD if script else RunState.SUCCEEDED
        assert recorded(world) == ["12:00 SKIPPED (2)", f"12:02 {last}"]
        assert world.job(job.key).state is JobState.COMPLETED
        assert (world.queued, world.entries) == ([], [])
        return died

    calls = next(calls for calls in count() if not dies_after(calls))

    assert calls > 6, "the same calls, plus the calls that record missed occurrences"


def test_what_a_deleted_job_missed_is_recorded(world: World) -> None:
    job = sent_late(world)
    world.delete(job)

    handled = world.worker().work_one()

    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert recorded(world) == ["12:00 SKIPPED (2)", "12:02 CANCELLED"]


def test_a_record_that_does_not_decode_before_a_run_does_not_stop_it(world: World) -> None:
    job = sent_late(world)
    key = job.run_key(at("12:00"))

    def spoil() -> None:
        world.runs.items[key] = Run(key, RunState.RUNNING)
        world.runs.spoil(key)

    world.faults.call_before_next("runs.skip", spoil)

    handled = world.worker().work_one()

    assert (handled.disposition, handled.quarantined) == (Disposition.ACKNOWLEDGE, True)
    assert world.run(job, "12:02").state is RunState.SUCCEEDED
    assert world.run(job, "12:01").state is RunState.SKIPPED
    assert world.queued == []
