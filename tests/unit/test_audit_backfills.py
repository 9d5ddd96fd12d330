"""The audit restores the entries of backfills."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.due import BackfillEntry
from nextfire.domain.job import Job
from nextfire.domain.run import Trigger
from nextfire.usecases.audit_report import AuditReport
from nextfire.usecases.manage_backfills import BackfillRange
from tests.builders import at
from tests.unit.auditing import auditor
from tests.world import World


@pytest.fixture
def world() -> World:
    return World("11:59:30")


def audit(world: World) -> AuditReport:
    [report] = auditor(world).continue_audit(world.now + timedelta(minutes=14), restart=True)
    return report


def lose_entry(world: World) -> int:
    """Delete the entry of the backfill. Returns how many there were."""
    lost = [slot for slot, item in world.due.items.items() if isinstance(item, BackfillEntry)]
    for slot in lost:
        del world.due.items[slot]
    return len(lost)


def a_backfill(world: World) -> Job:
    """A job with a backfill of 24 occurrences, of which the first ten have run."""
    job = world.register(schedule="* * * * *")
    world.tick_and_work("12:00")
    begun, _ = world.backfills.begin(
        job.key,
        BackfillRange(at("11:00"), at("11:24")),
        backfill_id="b",
        asked_at=world.now,
        now=world.now,
    )
    for _ in range(2):
        world.advance_and_work(seconds=6)
    return begun


def test_a_backfill_whose_entry_is_lost_continues(world: World) -> None:
    job = a_backfill(world)
    assert lose_entry(world) == 1

    report = audit(world)

    assert report.restored == 1
    assert any("its backfill had no due entry" in note for note in report.notes)
    for _ in range(8):
        world.advance_and_work(seconds=6)
    ran = [run for run in world.runs.all.values() if run.trigger is Trigger.BACKFILL]
    assert job.backfill is not None
    assert len(ran) == job.backfill.count == 24
    assert {run.attempt for run in ran} == {1}
    assert world.job(job.key).backfilling is None


def test_a_healthy_backfill_is_left_alone(world: World) -> None:
    a_backfill(world)

    report = audit(world)

    assert report.repaired == 0


def test_a_backfill_that_ends_during_the_audit_is_not_restored(world: World) -> None:
    job = a_backfill(world)

    def end() -> None:
        world.backfills.stop(job.key, now=world.now)
        lose_entry(world)

    world.faults.call_before_next("due.read", end)  # the auditor has read the job twice

    assert audit(world).repaired == 0
    assert not world.faults._hooks  # noqa: SLF001 — the moment was reached
