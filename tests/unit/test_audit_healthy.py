"""The audit repairs nothing in a healthy system, whatever is under way there, and costs little."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from nextfire.domain.due import DispatchEntry, FireEntry, Slot, bucket_name
from nextfire.domain.occurrences import JobState
from nextfire.usecases.dispatch.gates import Shares
from tests.accounting import assert_all_accounted_for, settle
from tests.builders import RUN_ALL, at
from tests.unit.auditing import MINUTE, advance_until, audit, delete_due_entries, fire_times, forget
from tests.world import World

BEGINNING = "11:59"

# Health


def test_a_healthy_job_costs_a_slot_and_a_query(world: World) -> None:
    world.register(schedule="*/5 * * * *")
    advance_until(world, "12:31")
    world.faults.calls.clear()

    assert audit(world).repaired == 0

    assert world.faults.calls == [
        *("control.audit", "control.replace_audit", "jobs.scan", "due.occupied"),
        *("runs.between", "control.replace_audit"),
    ]


def test_an_idle_auditor_costs_one_read(world: World) -> None:
    world.register()
    audit(world)
    world.advance(hours=23)
    world.faults.calls.clear()

    report = audit(world, restart=False)

    assert (report.jobs, report.done) == (0, True)
    assert world.faults.calls == ["control.audit"]


def test_a_full_queue_does_not_count_as_loss() -> None:
    world = World("11:59")
    world.shares = Shares(backlogs={"default": 3})
    world.new_watcher()
    world.tick()
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    for minute in range(0, 60, 5):
        world.tick_at(f"12:{minute:02d}")
    assert len(world.queued) == 3

    report = audit(world)

    assert report.repaired == 0
    assert report.waiting == 3
    settle(world)
    assert_all_accounted_for(world, job)


def test_the_audit_waits_for_a_watcher_that_is_behind() -> None:
    world = World("11:59")
    world.tick()
    job = world.register(schedule="*/5 * * * *", misfire=RUN_ALL)
    world.at("14:02")

    report = audit(world)

    assert (report.repaired, report.behind) == (0, 1)
    settle(world)
    assert_all_accounted_for(world, job)


def test_catching_up_does_not_count_as_loss(world: World) -> None:
    job = world.register(schedule="* * * * *", misfire=RUN_ALL)
    world.at("14:02")
    world.watcher.poll(world.now)
    for _ in range(30):
        world.watcher.poll(world.now)
        world.watcher.release(world.now)
        report = audit(world)
        assert report.repaired == 0, report.notes
        world.worker().work_one() if world.queued else None
    settle(world)
    assert audit(world).repaired == 0
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("seconds", [0, 1, 2, 14, 59])
def test_the_second_in_which_everything_moves_does_not_count_as_loss(seconds: int) -> None:
    """The first check finds no entry in the expected place; the second one does."""
    world = World("11:59")
    world.tick()
    for n in range(4):
        world.register(f"job{n}", schedule="*/5 * * * *")
    world.register("often", type="INTERVAL", schedule="PT1S")
    world.register("jittered", schedule="* * * * *", jitterSec=600)
    world.clock.move_to(at("12:25") + timedelta(seconds=seconds))
    world.tick()
    world.worker().work()
    for call in ("due.occupied", "due.read", "control.cursors", "queue.backlog", "runs.between"):
        world.faults.call_before_next(call, world.tick)

    assert audit(world).repaired == 0


def test_what_comes_due_between_two_of_its_calls_does_not_count_as_loss(world: World) -> None:
    job = world.register(schedule="0 * * * *")
    world.tick_at("12:00")  # no worker takes the run, so the audit checks the job twice
    world.tick_at("12:59:54.900")

    def comes_due() -> None:
        if world.now == at("12:59:59.900"):
            world.tick_at("13:00:00.300")

    world.faults.call_before_each("control.cursors", comes_due)

    report = audit(world)

    assert world.now == at("13:00:00.300")
    assert (report.repaired, report.waiting) == (0, 1)
    assert fire_times(world) == ["14:00"]
    assert world.job(job.key).state is JobState.ACTIVE


def test_a_job_resumed_between_two_of_its_calls_does_not_count_as_loss(world: World) -> None:
    job = world.register(schedule="0 * * * *")
    world.tick_at("12:00")  # no worker takes the run, so the audit checks the job twice
    world.manage.pause(job.key, None, now=world.now, until=at("12:59:59"))
    world.clock.move_to(at("12:59:50"))
    world.faults.call_before_each("control.cursors", lambda: world.tick_at("12:59:59.500"))

    report = audit(world)

    assert (report.repaired, report.done) == (0, True)
    assert world.job(job.key).state is JobState.ACTIVE
    assert {type(entry) for entry in world.entries} == {FireEntry}


def test_runs_delayed_to_the_next_minute_do_not_count_as_loss(world: World) -> None:
    job = world.register()
    world.tick_and_work("12:00")
    lost = world.run(job, "12:00")
    forget(world, lost)
    world.tick_at("12:40")
    entry = DispatchEntry(job.key, job.uid, at("12:00"), lost.key.run_id, 1, "default")
    world.due.put([entry], world.now + 2 * MINUTE)

    assert audit(world).repaired == 0


def test_an_entry_that_moves_behind_the_reads_of_the_audit_does_not_count_as_loss(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher takes an entry from a bucket that the audit has yet to read, and parks it in one
    that it has read.
    """
    world.register(schedule="* * * * *", misfire=RUN_ALL)
    world.tick_at("12:05")
    [entry] = world.entries
    world.clock.move_to(at("12:06:01"))
    present, parked, last = (bucket_name(at(each), 0) for each in ("12:06", "12:11", "12:10"))
    moves = {parked: present, present: last}
    read = world.due.read

    def moved(to: str) -> None:
        world.due.items = {Slot(to, entry.sort_key): entry}

    def read_after_move(minute: datetime, shard: int, **named: Any) -> Any:
        bucket = bucket_name(minute, shard)
        if [slot.bucket for slot in world.due.items] == [bucket] and bucket in moves:
            moved(moves.pop(bucket))
        return read(minute, shard, **named)

    moved(parked)
    monkeypatch.setattr(world.due, "read", read_after_move)

    assert audit(world).repaired == 0
    assert moves == {}


def test_entries_written_late_into_buckets_behind_the_cursor_do_not_count_as_loss(
    world: World,
) -> None:
    world.register(schedule="20 * * * *")
    world.tick_at("12:12")
    [(slot, entry)] = world.due.items.items()
    delete_due_entries(world)
    world.tick_at("12:24")
    world.due.items = {Slot("2026-05-24T12:20Z#000", slot.sort_key): entry}

    assert audit(world).repaired == 0


def test_a_retry_that_waits_for_room_does_not_count_as_loss() -> None:
    world = World("11:59")
    world.tick()
    job = world.register()
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.queue.refuses = lambda _: True
    world.tick_at("12:20")

    assert audit(world).repaired == 0

    world.queue.refuses = lambda _: False
    settle(world)
    assert world.run(job, "12:00").dispatch == 2


def test_unreadable_items_are_counted_and_do_not_stop_the_audit(world: World) -> None:
    jobs = [world.register(f"job{n}", schedule="*/5 * * * *") for n in range(3)]
    advance_until(world, "12:31")
    world.jobs.spoil(jobs[0].key)
    world.runs.spoil(world.run(jobs[1], "12:10").key)
    delete_due_entries(world)

    report = audit(world)

    assert report.quarantined == 2
    assert report.restored == 2
    assert report.done
