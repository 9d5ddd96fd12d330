"""The tick sends each due occurrence effectively once, stores its successor and loses nothing."""

from __future__ import annotations

from concurrent.futures import Executor
from datetime import timedelta
from itertools import count

import pytest

from nextfire.domain.due import Slot
from nextfire.domain.errors import UnavailableError
from nextfire.domain.upcoming_runs import upcoming_runs
from nextfire.usecases.dispatch.holding import BATCH
from tests.builders import a_fire, a_retry, at, job_key, run_key
from tests.fakes import InlineExecutor, LateExecutor
from tests.unit.dispatching import a_broken_slot, joined_notes, times
from tests.world import World

# The life of an occurrence


def test_an_occurrence_is_sent_and_its_successor_takes_its_place(world: World) -> None:
    world.register()

    assert world.tick_at("11:59:59.5").dispatched == []
    report = world.tick_at("12:00:00.25")

    assert world.sent == ["report 12:00"]
    assert times(world.entries) == ["13:00"]
    (sent,) = report.dispatched
    assert sent.run == run_key()
    assert sent.lateness == timedelta(seconds=0.25)


def test_an_entry_is_held_until_its_very_instant(world: World) -> None:
    world.register(type="ONCE", schedule="2026-05-24T12:00:01.5Z")

    world.tick_at("12:00:00")
    assert world.watcher.next_at == at("12:00:01.5")
    assert world.watcher.release(at("12:00:01.499")).dispatched == []

    assert len(world.watcher.release(at("12:00:01.5")).dispatched) == 1


def test_the_last_occurrence_leaves_nothing_behind(world: World) -> None:
    world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")

    world.tick_at("12:00")

    assert (world.sent, world.entries) == (["report 12:00"], [])


def test_the_message_and_the_successor_come_before_the_delete(world: World) -> None:
    world.register()
    world.at("12:00")
    world.watcher.poll(world.now)
    world.faults.calls.clear()

    world.watcher.release(world.now)

    assert world.faults.calls == ["jobs.get_many", "queue.send", "due.put", "due.delete"]


def test_a_retry_is_sent_even_if_its_job_is_gone(world: World) -> None:
    job = world.register()
    run = run_key(uid=job.uid)
    world.due.put([a_retry(run, at("12:00:30"), dispatch=2, pool="batch")], world.now)
    world.jobs.forget(job.key)
    world.due.delete([Slot("2026-05-24T12:00Z#000", a_fire(job, at("12:00")).sort_key)])

    world.tick_at("12:00:30")

    assert world.sent == ["report 12:00 #2"]
    assert len(world.queue.queues["batch"]) == 1
    assert world.entries == []


# Crashes and partial failures


def dies_after(calls: int, executor: Executor) -> bool:
    """Kill a watcher after *calls* calls of its ports and check what the next watcher does.

    Returns False if the watcher survived.
    """
    world = World("11:59", executor=executor)
    job = world.register("report")
    world.register("once", type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.due.spoil(a_broken_slot("12:00:00.5"), tenant="acme", job_id="report")
    world.at("12:00:01")
    died = world.dies(calls, world.tick)

    world.new_watcher()
    world.tick_at("12:00:04")

    assert set(world.sent) == {"report 12:00", "once 12:00"}
    assert sorted(world.queued) == ["once 12:00", "report 12:00"], "the queue deduplicates"
    assert world.entries == [a_fire(job, at("13:00"))]
    assert world.due.quarantined
    return died


@pytest.mark.parametrize("executor", [InlineExecutor(), LateExecutor()], ids=["early", "late"])
def test_a_watcher_that_dies_anywhere_loses_nothing(executor: Executor) -> None:
    """*executor* makes concurrent calls when they are submitted, or when their results are asked
    for.
    """
    calls = next(calls for calls in count() if not dies_after(calls, executor))

    assert calls > 20


def test_a_message_that_was_not_accepted_keeps_its_entry(world: World) -> None:
    world.register("good")
    world.register("bad")
    world.queue.refuses = lambda message: message.job_id == "bad"

    report = world.tick_at("12:00")

    assert world.sent == ["good 12:00"]
    assert [d.run.job.job_id for d in report.dispatched] == ["good"]
    assert "not sent, stays" in joined_notes(report)
    assert times(world.entries) == ["12:00", "13:00"], "only the other chain advances"

    world.queue.refuses = lambda _: False
    world.tick_at("12:00:02")
    assert world.sent == ["good 12:00", "bad 12:00"]
    assert times(world.entries) == ["13:00", "13:00"]


def test_a_successor_that_was_not_stored_keeps_its_predecessor(world: World) -> None:
    world.register("good")
    world.register("bad")
    world.due.refuses = lambda entry: entry.job.job_id == "bad"

    report = world.tick_at("12:00")
    assert "successor not stored, entry stays" in joined_notes(report)
    assert [(e.job.job_id, times([e])[0]) for e in world.entries] == [
        ("bad", "12:00"),
        ("good", "13:00"),
    ]

    world.due.refuses = lambda _: False
    world.tick_at("12:00:02")
    assert times(world.entries) == ["13:00", "13:00"]
    assert sorted(world.queued) == ["bad 12:00", "good 12:00"], "sent again and deduplicated"


def test_an_entry_of_a_pool_that_is_gone_waits_in_the_table(world: World) -> None:
    job = world.register(target={"pool": "batch", "handler": "report"})
    del world.queue.queues["batch"]

    report = world.tick_at("12:00")

    assert "to batch" in joined_notes(report)
    assert a_fire(job, at("12:00")) in world.entries


def test_failed_deletes_are_repeated_and_send_no_run_again(world: World) -> None:
    world.register()
    world.due.deletes = False
    world.tick_at("12:00")
    assert times(world.entries) == ["12:00", "13:00"]

    world.due.deletes = True
    for seconds in range(1, 8):
        world.tick_at(f"12:00:0{seconds}")

    assert times(world.entries) == ["13:00"]
    assert world.sent == ["report 12:00"]


def test_an_entry_deleted_a_moment_ago_is_not_sent_again_by_a_late_read(world: World) -> None:
    world.register()
    world.tick_at("11:59:59")
    world.due.freeze()

    world.tick_at("12:00:00")
    world.tick_at("12:00:00.5")
    world.tick_at("12:00:04.9")

    assert world.sent == ["report 12:00"]


def test_jobs_that_cannot_be_read_now_are_dispatched_by_a_later_tick(world: World) -> None:
    world.register()
    world.faults.refuse("jobs.get_many")

    with pytest.raises(UnavailableError):
        world.tick_at("12:00")
    assert (world.sent, times(world.entries)) == ([], ["12:00"])

    world.tick_at("12:00:00.5")
    assert world.sent == ["report 12:00"]


def test_a_shard_that_does_not_answer_holds_up_no_other() -> None:
    world = World("11:59:30", shards=4)
    shards = {job_key(f"job{n}").shard(4): f"job{n}" for n in range(40)}
    for job_id in shards.values():
        world.register(job_id)
    world.tick()  # moves the cursors to the present
    world.faults.refuse("due.read", times=1)

    with pytest.raises(UnavailableError):
        world.tick_at("12:00")
    world.watcher.release(world.now)

    assert len(world.sent) == 3


# Order


def test_the_higher_priority_goes_first_within_a_second(world: World) -> None:
    moment = {"type": "ONCE", "schedule": "2026-05-24T12:00:00.1Z"}
    world.register("low", priority="LOW", **moment)
    world.register("normal", **moment)
    world.register("high", priority="HIGH", **(moment | {"schedule": "2026-05-24T12:00:00.9Z"}))
    world.register("later", priority="HIGH", type="ONCE", schedule="2026-05-24T12:00:01Z")

    world.tick_at("12:00:02")

    assert [message.job_id for message in world.queue.log] == ["high", "normal", "low", "later"]


def test_more_than_a_batch_is_sent_in_one_tick(world: World) -> None:
    for n in range(BATCH + 20):
        world.register(f"job{n}")

    report = world.tick_at("12:00")

    assert len(report.dispatched) == len(set(world.sent)) == BATCH + 20
    assert times(world.entries) == ["13:00"] * (BATCH + 20)


def test_a_job_with_max_runs_fires_that_often(world: World) -> None:
    job = world.register(schedule="* * * * *", maxRuns=2)  # registered at 11:59
    for minute in range(5):
        world.tick_at(f"12:{minute:02d}")

    assert [m.key.scheduled_at for m in world.queue.log] == [at("12:00"), at("12:01")]
    assert world.entries == []
    assert not job.is_last(at("12:00"))
    assert job.is_last(at("12:01"))


def test_jitter_puts_a_run_off_and_leaves_its_schedule(world: World) -> None:
    job = world.register(schedule="* * * * *", jitterSec=30)
    late = job.fire_entry(at("12:00"), 1)
    assert at("12:00") < late.at < at("12:00:30")
    assert (late.occurs_at, late.at) == (at("12:00"), upcoming_runs(job, at("11:59"), 1)[0].due_at)

    world.clock.move_to(late.at - timedelta(milliseconds=1))
    world.tick()
    assert world.queue.log == []
    world.clock.move_to(late.at)
    world.tick()

    assert [m.key.scheduled_at for m in world.queue.log] == [at("12:00")]
    assert world.entries == [job.fire_entry(at("12:01"), 1)]


def test_a_read_that_is_refused_once_is_done_again(world: World) -> None:
    def refuse() -> None:
        raise PermissionError("the role is being changed")

    world.faults.call_before_next("due.read", refuse)
    with pytest.raises(PermissionError):
        world.watcher.poll(world.now)

    assert world.watcher.poll(world.now).polled
