"""The audit completes jobs that are over, and leaves no run of theirs behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.audit import GRACE
from nextfire.domain.due import DispatchEntry, FireEntry
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.audit_report import AuditReport
from tests.accounting import settle
from tests.builders import a_message, at, claim_run, run_key
from tests.unit.auditing import DAY, advance_until, audit, delete_due_entries, purge
from tests.world import World

BEGINNING = "11:59"


def audited_a_day_later(world: World) -> AuditReport:
    world.clock.advance(days=1)
    world.tick()
    return audit(world)


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED, JobState.PAUSED])
def test_a_job_that_is_over_leaves_no_run_behind(world: World, state: JobState) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    delete_due_entries(world, DispatchEntry)
    if state is JobState.CANCELLED:
        world.delete(job)
    elif state is JobState.PAUSED:
        world.pause(job)
    else:
        world.jobs.complete(job, world.now)
    world.tick_at("12:40")

    assert audit(world).revived == 1

    settle(world)
    expected = RunState.CANCELLED if state is JobState.CANCELLED else RunState.SUCCEEDED
    assert world.run(job, "12:00").state is expected


def test_a_job_whose_last_run_has_ended_is_completed(world: World) -> None:
    """The run was cancelled before it was due, and its FIRE entry, whose message would have
    completed the job, was deleted. The same holds if an auditor died after it wrote the record of
    the last occurrence.
    """
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    key = job.run_key(at("12:00"))
    world.runs.cancel(a_message(key), reason="enough", now=world.now)
    delete_due_entries(world, FireEntry)
    advance_until(world, "12:10")
    early = audit(world)
    advance_until(world, "12:40")

    report = audit(world)

    assert (early.repaired, report.repaired, report.completed) == (0, 1, 1)
    assert world.job(job.key).state is JobState.COMPLETED
    assert audit(world).repaired == 0


def test_a_job_whose_last_run_was_cancelled_in_the_queue_is_left_to_its_message(
    world: World,
) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.at("12:10")
    world.manage_runs.cancel(job.run_key(at("12:00")), "enough")
    world.tick_at("12:40")

    assert audit(world).repaired == 0
    assert world.job(job.key).state is JobState.ACTIVE
    world.worker().work()
    assert world.job(job.key).state is JobState.COMPLETED


def test_a_job_whose_run_was_cancelled_days_early_is_left_to_its_message(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-27T12:00:00Z")
    key = job.run_key(at("12:00") + 3 * DAY)
    world.runs.cancel(a_message(key), reason="enough", now=world.now)
    world.advance(seconds=(3 * DAY + timedelta(minutes=1)).total_seconds())
    world.tick()
    world.advance(seconds=2_400)
    world.tick()

    assert audit(world).repaired == 0
    assert world.job(job.key).state is JobState.ACTIVE
    world.worker().work()
    assert world.job(job.key).state is JobState.COMPLETED


@pytest.mark.parametrize(("later", "completed"), [(DAY - GRACE, 0), (DAY + GRACE, 1)])
def test_the_message_that_completes_a_job_counts_as_lost_after_a_day(
    world: World, later: timedelta, completed: int
) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.at("12:30")
    world.manage_runs.cancel(job.run_key(at("12:00")), "enough")
    world.advance(seconds=later.total_seconds())
    world.tick()

    assert audit(world).completed == completed


@pytest.mark.parametrize("busy", [True, False])
def test_a_job_whose_last_run_was_cancelled_long_after_it_was_due_is_completed_at_last(
    world: World, *, busy: bool
) -> None:
    """When its message counts as lost, the record is older than the records that an audit reads."""
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    reports = [audited_a_day_later(world) for _ in range(3)]
    world.manage_runs.cancel(job.run_key(at("12:00")), "enough")
    purge(world)
    if busy:
        world.queue.send([("default", a_message(run_key(at("13:00"))))])

    reports += [audited_a_day_later(world) for _ in range(2)]

    assert [report.completed for report in reports] == [0, 0, 0, 1, 0]
    assert world.job(job.key).state is JobState.COMPLETED


@pytest.mark.parametrize("lost", [False, True], ids=["in the queue", "without its message"])
def test_a_job_whose_last_run_has_not_ended_is_not_completed(world: World, *, lost: bool) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    claim_run(
        world.runs,
        a_message(job.run_key(at("12:00"))),
        world.now,
        lease_until=at("13:00"),
        worker="a",
    )
    if lost:
        purge(world)
    world.tick_at("12:40")

    assert audit(world).repaired == 0
    assert world.job(job.key).state is JobState.ACTIVE


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED])
def test_jobs_that_ended_before_the_look_back_need_no_run_reads(
    world: World, state: JobState
) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    advance_until(world, "12:01")
    if state is JobState.CANCELLED:
        world.delete(job)
    assert world.job(job.key).state is state
    world.clock.advance(days=3)
    world.faults.calls.clear()

    assert audit(world).jobs == 1

    assert not [call for call in world.faults.calls if call.startswith("runs.")]
