"""Jobs in a final state are removed after their retention, unless something needs them."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.due import FireEntry
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.audit_report import AuditReport
from nextfire.usecases.remove_ended import RemoveEnded
from tests.accounting import settle
from tests.fakes import Killed
from tests.unit.auditing import DAY, advance_until, auditor
from tests.world import World

BEGINNING = "11:59"

KEPT = timedelta(hours=2)
"""The settings allow no less than 15 days; here it only has to pass."""


def audited(world: World) -> AuditReport:
    total = AuditReport()
    for report in auditor(world, job_retention=KEPT).continue_audit(world.now + DAY, restart=True):
        total += report
    return total


def wait(world: World, duration: timedelta) -> None:
    """Wait with watchers and workers, which do what is due."""
    until = world.now + duration
    settle(world)
    world.clock.move_to(max(until, world.now))
    world.tick()
    settle(world)


def ran_once(world: World, job_id: str = "once", **fields: Any) -> Job:
    job = world.register(job_id, type="ONCE", schedule="2026-05-24T12:00:00Z", **fields)
    advance_until(world, "12:01")
    settle(world)
    return world.job(job.key)


def test_a_completed_job_is_removed_and_its_records_stay(world: World) -> None:
    job = ran_once(world)
    assert job.state is JobState.COMPLETED
    wait(world, KEPT - timedelta(minutes=5))
    assert audited(world).removed == 0
    wait(world, timedelta(minutes=5))

    report = audited(world)

    assert (report.removed, report.repaired, report.jobs) == (1, 0, 1)
    assert world.jobs.get(job.key) is None
    assert world.run(job, "12:00").state is RunState.SUCCEEDED
    assert audited(world) == AuditReport(done=True)


def test_a_deleted_job_is_removed_and_its_later_entry_is_dropped(world: World) -> None:
    job = world.register(schedule="0 18 24 5 *")
    world.delete(job)
    wait(world, KEPT)

    assert audited(world).removed == 1

    again = world.register(schedule="0 18 24 5 *")
    assert again.uid != job.uid
    wait(world, timedelta(hours=5))
    assert world.run(again, "18:00").state is RunState.SUCCEEDED
    assert not [
        e for e in world.due.items.values() if isinstance(e, FireEntry) and e.uid == job.uid
    ]


def test_other_states_and_recent_changes_keep_a_job(world: World) -> None:
    world.pause(world.register("paused"))
    world.register("active", schedule="0 0 1 1 *")
    wait(world, KEPT)
    deleted = world.register("deleted", schedule="0 0 1 1 *")
    world.delete(deleted)

    assert audited(world).removed == 0


def test_nothing_is_removed_without_a_retention(world: World) -> None:
    ran_once(world)
    wait(world, 3 * KEPT)
    for report in auditor(world).continue_audit(world.now + DAY, restart=True):
        assert report.removed == 0


def test_what_is_due_and_not_sent_keeps_its_job(world: World) -> None:
    job = world.register(schedule="*/5 * * * *")
    world.clock.move_to(world.now + timedelta(minutes=10))
    world.delete(job)  # no watcher runs, so what was due before is not sent
    world.clock.move_to(world.now + KEPT)

    assert audited(world).removed == 0

    world.tick()
    settle(world)
    assert audited(world).removed == 1


def test_a_run_that_has_not_ended_keeps_its_job(world: World) -> None:
    retry = {"maxAttempts": 2, "initialDelayMs": 3 * 3_600_000}
    job = world.register(schedule="*/5 * * * *", maxRuns=2, retryPolicy=retry)
    world.script(exit_code=1)
    advance_until(world, "12:02")
    world.script(exit_code=0)
    advance_until(world, "12:07")
    assert world.job(job.key).state is JobState.COMPLETED
    world.clock.move_to(world.now + KEPT)
    world.tick()

    assert audited(world).removed == 0

    assert world.run(job, "12:00").state is RunState.PENDING
    wait(world, timedelta(hours=3))
    assert world.run(job, "12:00").state is RunState.SUCCEEDED
    assert audited(world).removed == 1


@pytest.mark.parametrize("ended", ["parent", "child"])
def test_a_job_of_a_sequence_stays_as_long_as_its_neighbours(world: World, ended: str) -> None:
    parent = world.register("parent", schedule="0 0 1 1 *")
    child = world.register(
        "child", type="AFTER", schedule=None, after=[{"job": "parent"}], joinTimeoutSec=3600
    )
    if ended == "child":
        world.delete(child)
    else:
        assert world.jobs.complete(world.job(parent.key), world.now)
    wait(world, KEPT)
    assert audited(world).removed == 0

    if ended == "child":
        world.delete(parent)
    else:
        world.delete(child)
    wait(world, KEPT)

    assert audited(world).removed == 2


def test_an_auditor_that_dies_anywhere_removes_the_job_later(world: World) -> None:
    died = 0
    while True:
        job = world.register(type="MANUAL", schedule=None)
        world.delete(job)
        wait(world, KEPT)
        world.faults.kill_after(died)
        with contextlib.suppress(Killed):
            audited(world)
            break
        died += 1
        world.faults.clear()
        audited(world)
        assert world.jobs.get(job.key) is None
    assert died > 5


def test_a_job_that_is_redefined_meanwhile_stays(world: World) -> None:
    job = ran_once(world)
    wait(world, KEPT)
    again = {"schedule": "2026-05-25T12:00:00Z"}
    world.faults.call_before_next("jobs.remove", lambda: world.change(job, **again))

    assert audited(world).removed == 0

    assert world.job(job.key).state is JobState.ACTIVE


def test_a_job_with_more_records_than_a_visit_reads_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran_once(world)
    wait(world, KEPT)

    monkeypatch.setattr("nextfire.usecases.remove_ended.RECORDS_AT_MOST", 0)
    assert audited(world).removed == 0
    monkeypatch.setattr("nextfire.usecases.remove_ended.RECORDS_AT_MOST", 1)
    assert audited(world).removed == 1


def test_what_is_left_when_time_runs_out_is_removed_later(world: World) -> None:
    for name in ("one", "two"):
        world.delete(world.register(name, schedule="0 0 1 1 *"))
    wait(world, KEPT)

    [*reports] = auditor(world, job_retention=KEPT).continue_audit(world.now, restart=True)

    assert sum(report.removed for report in reports) == 0
    assert audited(world).removed == 2


def test_a_job_that_cannot_be_checked_does_not_keep_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [world.register(name, schedule="0 0 1 1 *") for name in ("one", "two")]
    for job in jobs:
        world.delete(job)
    wait(world, KEPT)
    check = RemoveEnded._has_unfinished  # noqa: SLF001

    def fails(ended: RemoveEnded, job: Job) -> bool:
        if job.key == jobs[0].key:
            raise ValueError("no")
        return check(ended, job)

    monkeypatch.setattr(RemoveEnded, "_has_unfinished", fails)
    report = audited(world)

    assert (report.removed, report.quarantined) == (1, 1)
