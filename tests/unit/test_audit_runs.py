"""The audit sends runs again whose messages or workers were lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from nextfire.domain.due import DispatchEntry, FireEntry
from nextfire.domain.ports.targets import AttemptResult, Hold
from nextfire.domain.run import RunState
from nextfire.domain.target import TargetKind
from tests.accounting import settle
from tests.builders import RUN_ALL, SKIP, at
from tests.fakes import Killed
from tests.unit.auditing import (
    DAY,
    advance_until,
    audit,
    auditor,
    delete_due_entries,
    purge,
    run_counts,
)
from tests.world import World

BEGINNING = "11:59"


@dataclass
class HeldCalls:
    """A `TargetRunner` whose calls must wait."""

    hold: Hold

    def admit(self, *_: object, **__: object) -> Hold:
        return self.hold

    def release(self, *_: object) -> None:
        pass

    def attempt(self, *_: object) -> AttemptResult:
        raise AssertionError("a run that must wait was attempted")


# Runs without a message or a worker


def test_a_running_run_without_message_and_worker_is_taken_over(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    world.faults.kill_after(2)  # after it read the job and claimed the run
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.faults.clear()
    purge(world)
    world.tick_at("12:15:30")
    assert audit(world).repaired == 0, "the lease expired at 12:01; the grace period ends at 12:16"

    world.tick_at("12:17")
    report = audit(world)

    assert (report.revived, report.repaired) == (1, 1)
    settle(world)
    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.dispatch) == (RunState.SUCCEEDED, 2, 2)


def test_a_retry_whose_entry_was_lost_is_sent(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    assert delete_due_entries(world, DispatchEntry) == 1
    world.tick_at("12:16")

    assert audit(world).revived == 1

    settle(world)
    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.dispatch) == (RunState.SUCCEEDED, 2, 3)


def test_a_run_handed_back_whose_message_was_lost_is_sent(world: World) -> None:
    job = world.register()
    world.tick_at("12:00")
    world.script(lasts=timedelta(seconds=30))
    stopping = iter([False, True, True, True])
    world.worker().work_one(stopping=lambda: next(stopping))
    assert world.run(job, "12:00").state is RunState.PENDING
    purge(world)
    world.tick_at("12:17")

    assert audit(world).revived == 1

    settle(world)
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_run_whose_message_may_be_in_the_queue_is_left_for_a_day(world: World) -> None:
    job = world.register(endAt="2026-05-24T12:00:00Z", retryPolicy={"maxAttempts": 2})
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.tick_at("12:00:10")
    assert len(world.queued) == 1
    world.clock.advance(hours=23)
    world.tick()
    report = audit(world)
    assert (report.repaired, report.waiting) == (0, 1)

    world.clock.advance(hours=2)
    world.tick()
    assert audit(world).revived == 1

    settle(world)
    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


def test_a_run_that_waits_for_its_endpoint_is_not_sent_again(world: World) -> None:
    """The dispatch that replaced its message is due in an hour; others are due within minutes."""
    hold = Hold(at("12:58:30"), "the endpoint is paused")
    world.call_targets[TargetKind.HTTP] = HeldCalls(hold)
    http = {"pool": "default", "http": {"url": "https://api.example.com/hooks"}}
    job = world.register(target=http, endAt="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.due.freeze()
    world.worker().work_one()
    assert [entry.at for entry in world.entries] == [hold.until]
    other = world.register("other", type="ONCE", schedule="2026-05-24T12:58:10Z")
    world.tick_at("12:17")

    report = audit(world)

    assert (report.revived, report.repaired) == (0, 0)
    assert {entry.uid for entry in world.entries} == {job.uid, other.uid}


def test_a_run_that_waits_for_a_place_is_not_sent_again(world: World) -> None:
    """It moves from its queue back into the due table after the audit has read the table."""
    job = world.register(
        type="INTERVAL", schedule="PT5M", maxParallel=1, endAt="2026-05-24T12:10:00Z"
    )
    world.tick_at("12:04")
    world.faults.kill_after(3)  # after it claimed the run
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.faults.clear()
    (first,) = world.runs.all.values()
    world.runs.extend(first, lease_until=at("14:00"))
    purge(world)
    for time in ("12:09", "12:30"):
        world.tick_at(time)
    assert len(world.queued) == 1
    world.faults.call_before_next("queue.backlog", world.worker("b").work_one)

    assert audit(world).repaired == 0
    assert [entry.uid for entry in world.entries] == [job.uid]


def test_a_retry_that_was_sent_late_is_not_overtaken_by_what_was_sent_before(world: World) -> None:
    """The watcher was down when the retry was due."""
    job = world.register(schedule="*/5 * * * *", misfire=SKIP)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.due.items, kept = {}, dict(world.due.items)
    for slot, entry in kept.items():
        if isinstance(entry, FireEntry):
            world.due.items[slot] = entry
    advance_until(world, "12:06")
    retry = [e for e in kept.values() if isinstance(e, DispatchEntry)]
    world.at("13:55")
    world.due.put(retry, world.now)
    world.tick()
    assert world.run(job, "12:00").state is RunState.PENDING

    assert audit(world).repaired == 0


def test_a_lost_run_of_a_pool_that_is_gone_is_sent_again_and_dies(world: World) -> None:
    job = world.register(target={"pool": "batch", "handler": "report"}, schedule="*/5 * * * *")
    world.tick_at("12:00")
    purge(world)
    world.remove_pool("batch")
    world.tick_at("12:16")

    [report] = auditor(world, pools={"default"}).continue_audit(world.now + DAY)

    assert report.resent > 0
    world.advance_and_work(days=1, minutes=1)
    ended = [run.state for run in world.runs.all.values() if run.key.job == job.key]
    assert ended.count(RunState.DEAD) == report.resent


def test_what_the_queue_has_held_for_a_day_is_sent_again(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.clock.advance(hours=23)
    world.tick()
    assert audit(world).repaired == 0
    world.clock.advance(hours=2)
    world.tick()

    assert audit(world).resent == 1

    settle(world)
    assert run_counts(world) == {world.run(job, "12:00").key.execution_id: 1}


def test_a_run_overtaken_for_an_hour_is_lost_even_if_the_queue_is_not_empty(
    world: World,
) -> None:
    job = world.register(schedule="*/5 * * * *", overlap="QUEUE")
    world.register("other", schedule="*/5 * * * *", misfire=RUN_ALL)
    world.tick_at("12:00")
    queue = world.queue.queues["default"]
    queue._messages = [m for m in queue._messages if "other" in m.body]  # noqa: SLF001
    # The worker keeps one message of the other job.
    held = world.worker().receive()
    assert held is not None
    held.hide(timedelta(hours=9))
    world.tick_and_work("12:05")
    world.tick_and_work("12:50")
    assert audit(world).repaired == 0
    world.tick_at("13:07")

    report = audit(world)

    assert report.resent == 1, "in a healthy system, parallel runs overtake each other"
    world.tick()
    world.worker().work()
    assert world.run(job, "12:00").state is RunState.SUCCEEDED
