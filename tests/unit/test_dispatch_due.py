"""The tick sends each due occurrence effectively once, stores its successor and loses nothing."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from datetime import timedelta
from itertools import count, product

import pytest

from nextfire.domain.due import DueEntry, Slot, bucket_name
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import to_ms
from nextfire.usecases.dispatch import waiting
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.holding import BATCH
from nextfire.usecases.dispatch.report import TickReport
from tests.builders import RUN_ALL, a_fire, a_job, a_retry, at, job_key, run_key
from tests.fakes import InlineExecutor, Killed, LateExecutor
from tests.world import World


def times(entries: list[DueEntry]) -> list[str]:
    return [f"{entry.at:%H:%M:%S}".removesuffix(":00") for entry in entries]


def joined_notes(report: TickReport) -> str:
    return "; ".join(report.notes)


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
    world.faults.kill_after(calls)
    try:
        world.tick()
    except Killed:
        died = True
    else:
        died = False

    world.faults.clear()
    world.new_watcher()
    world.tick_at("12:00:04")

    assert set(world.sent) == {"report 12:00", "once 12:00"}
    assert sorted(world.queued) == ["once 12:00", "report 12:00"], "the queue deduplicates"
    assert world.entries == [a_fire(job, at("13:00"))]
    assert world.due.quarantined
    return died


@pytest.mark.parametrize("executor", [InlineExecutor(), LateExecutor()], ids=["send", "put"])
def test_a_watcher_that_dies_anywhere_loses_nothing(executor: Executor) -> None:
    """*executor* decides whether sending or storing comes first; they run concurrently."""
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


def test_failed_deletes_cause_no_duplicate_runs(world: World) -> None:
    world.register()
    world.due.deletes = False
    world.tick_at("12:00")
    assert times(world.entries) == ["12:00", "13:00"]

    world.due.deletes = True
    for seconds in range(1, 8):
        world.tick_at(f"12:00:0{seconds}")

    assert times(world.entries) == ["13:00"]
    assert world.queued == ["report 12:00"]


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


# Stale reads


def test_a_job_read_stale_is_read_again_before_anything_but_firing(world: World) -> None:
    world.jobs.freeze()
    world.register()

    world.tick_at("12:00")

    assert world.sent == ["report 12:00"]


def test_a_stale_read_does_not_drop_what_a_change_has_just_stored(world: World) -> None:
    job = world.register()
    world.jobs.freeze()
    world.at("11:59:30")
    world.change(job, schedule="30 12 * * *")

    world.tick_at("12:00")
    assert world.sent == ["report 12:00"], (
        "an outdated version fires with its own entry: it looks like the current version"
    )
    world.tick_at("12:30")
    assert world.sent == ["report 12:00", "report 12:30"]


def test_an_entry_whose_job_is_absent_is_left_then_dropped_after_a_minute(world: World) -> None:
    job = world.register()
    world.jobs.forget(job.key)

    world.tick_at("12:00:59.9")
    assert len(world.entries) == 1

    report = world.tick_at("12:01:02")
    assert "job not found, 60 s after it was due" in joined_notes(report)
    assert (world.entries, world.sent) == ([], [])


def test_an_entry_that_is_left_is_not_decided_again_by_every_poll(world: World) -> None:
    world.due.put([a_fire(a_job(), at("12:00"))], world.now)

    world.tick_at("12:00:00")
    asked = world.faults.calls.count("jobs.get")
    world.tick_at("12:00:01")

    assert world.faults.calls.count("jobs.get") == asked > 0


def test_a_job_that_appears_after_its_entry_is_dispatched(world: World) -> None:
    job = world.register()
    world.jobs.forget(job.key)
    world.tick_at("12:00:10")

    world.jobs.put(job)
    world.tick_at("12:00:13")

    assert world.sent == ["report 12:00"]


def test_the_entry_of_a_former_creation_is_dropped_and_the_new_one_fires(world: World) -> None:
    world.tick()
    old = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.delete(old)
    new = world.register(type="ONCE", schedule="2026-05-24T12:00:30Z")

    world.tick_at("12:00:30")
    world.tick_at("12:01:10")

    assert [m.key.uid for m in world.queue.log] == [new.uid]
    assert world.entries == []


# Versions


def test_an_entry_newer_than_its_job_is_left(world: World) -> None:
    job = world.register()
    newer = a_fire(job, at("12:00:05"), version=job.schedule_version + 1)
    world.due.put([newer], world.now)

    world.tick_at("12:00:05")

    assert newer in world.entries
    assert world.sent == ["report 12:00"]


def test_an_older_version_fires_up_to_the_change_without_a_successor(world: World) -> None:
    job = world.register()
    world.at("12:00:10")  # no tick in the meantime
    world.change(job, schedule="30 * * * *")

    report = world.tick_at("12:00:11")

    assert world.sent == ["report 12:00"]
    assert "before the change of 2026-05-24T12:00:10Z" in report.dispatched[0].reason
    assert times(world.entries) == ["12:30"]


def test_an_occurrence_at_the_very_change_is_the_old_version_s(world: World) -> None:
    job = world.register()
    world.at("12:00:00")
    world.change(job, timezone="Europe/Berlin")

    world.tick()

    assert world.sent == ["report 12:00"]
    assert times(world.entries) == ["13:00"]


def test_an_older_version_s_later_occurrence_is_dropped(world: World) -> None:
    job = world.register()
    world.change(job, schedule="30 * * * *")

    report = world.tick_at("12:00")
    world.tick_at("12:30")

    assert "replaced by schedule version" in joined_notes(report)
    assert world.sent == ["report 12:30"]
    assert times(world.entries) == ["13:30"]


def test_a_deleted_job_does_not_fire(world: World) -> None:
    job = world.register()
    world.delete(job)

    world.tick_at("12:00")

    assert (world.sent, world.entries) == ([], [])


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


# Cursors


def cursor(world: World) -> str:
    return f"{world.control.cursors([0])[0]:%H:%M}"


def test_the_cursor_passes_a_bucket_half_a_minute_after_its_minute(world: World) -> None:
    world.tick_at("12:00")

    world.tick_at("12:01:29.9")
    assert cursor(world) == "12:00"
    world.tick_at("12:01:30")
    assert cursor(world) == "12:01"


def test_an_entry_written_late_into_an_ended_minute_is_found(world: World) -> None:
    world.tick_at("12:01")
    job = world.register(type="ONCE", schedule="2026-05-24T12:30:00Z")
    slow = a_fire(job, at("12:00:59"))
    world.at("12:01:20")
    world.due.put([slow], at("12:00:59"))  # the bucket was computed before the request was sent

    world.tick()

    assert world.sent == ["report 12:00:59"]


def test_the_cursor_waits_for_a_bucket_that_is_not_empty(world: World) -> None:
    world.register()
    world.due.refuses = lambda _: True  # the successor cannot be stored
    world.tick_at("12:00")
    world.tick_at("12:10")
    assert cursor(world) == "12:00"

    world.due.refuses = lambda _: False
    world.tick_at("12:10:02")
    world.tick_at("12:10:03")

    assert times(world.entries) == ["13:00"]
    assert cursor(world) == "12:09"


def test_unsent_entries_do_not_hold_the_cursor_back(world: World) -> None:
    world.register()
    world.queue.refuses = lambda _: True
    world.tick_at("12:00")
    world.tick_at("12:10")
    world.tick_at("12:10:01")
    assert cursor(world) == "12:09"
    assert world.sent == []

    world.queue.refuses = lambda _: False
    world.tick_at("12:10:03")

    assert world.sent == ["report 12:00"]


def test_only_a_consistent_read_lets_the_cursor_pass(world: World) -> None:
    world.tick()
    world.due.freeze()  # eventually consistent reads see no later writes
    world.register()
    world.tick_at("12:01:29")
    assert world.sent == []

    world.tick_at("12:01:30")

    assert world.sent == ["report 12:00"]
    assert times(world.entries) == ["13:00"]


def test_entries_are_dispatched_even_if_the_cursor_cannot_be_moved(world: World) -> None:
    world.register(type="ONCE", schedule="2026-05-24T12:00:35Z")
    world.faults.refuse("control.move_cursor")

    with pytest.raises(UnavailableError):
        world.tick_at("12:00:35")
    world.watcher.release(world.now)

    assert world.sent == ["report 12:00:35"]


def test_a_former_holder_cannot_move_the_cursor_back(world: World) -> None:
    world.tick_at("11:59")
    former = world.watcher
    world.new_watcher()
    world.tick_at("12:05")
    assert cursor(world) == "12:04"

    world.at("12:20")
    former.poll(world.now)

    assert cursor(world) == "12:04"


def test_a_straggler_in_a_passed_bucket_is_found_within_a_minute(world: World) -> None:
    world.tick_at("12:00")
    world.tick_at("12:08")
    assert cursor(world) == "12:07"
    job = a_job("report")
    world.jobs.put(job)
    world.due.put([a_fire(job, at("12:01"))], at("12:01"))

    world.tick_at("12:08:30")
    assert world.sent == []
    world.tick_at("12:09")

    assert world.sent == ["report 12:01"]


def test_missed_hours_are_caught_up_one_occurrence_after_the_other(world: World) -> None:
    world.register(misfire=RUN_ALL)
    world.tick()

    for seconds in range(30):
        world.tick_at(f"18:30:{seconds:02d}")

    assert world.sent == [f"report {hour}:00" for hour in range(12, 19)]
    assert times(world.entries) == ["19:00"]

    world.tick_at("19:00")
    assert world.sent[-1] == "report 19:00"


def test_a_watcher_that_starts_after_an_outage_goes_on_where_the_last_one_was(
    world: World,
) -> None:
    world.register(misfire=RUN_ALL)
    world.tick()
    world.at("20:00:30")

    world.new_watcher()
    world.tick()

    assert world.sent[0] == "report 12:00"


# Undecodable items


def a_broken_slot(time: str) -> Slot:
    return Slot(bucket_name(at(time).replace(second=0), 0), f"{to_ms(at(time)):013d}#?")


def test_a_broken_entry_is_set_aside_and_its_chain_goes_on(world: World) -> None:
    job = world.register()
    world.due.delete([Slot("2026-05-24T12:00Z#000", a_fire(job, at("12:00")).sort_key)])
    world.due.spoil(a_broken_slot("12:00"), tenant="acme", job_id="report")
    world.register("other")

    world.tick_at("11:59:59")
    report = world.tick_at("12:00:00.5")

    assert [entry.slot for entry in world.due.quarantined] == [a_broken_slot("12:00")]
    assert sorted(world.sent) == ["other 12:00", "report 12:00"]
    assert times(world.entries) == ["13:00", "13:00"]
    assert report.quarantined == 0, "the previous tick counted it"


def test_a_broken_entry_of_a_paused_job_brings_no_chain(world: World) -> None:
    job = world.register()
    world.jobs.put(job.paused(world.now, None))
    world.due.delete([Slot("2026-05-24T12:00Z#000", a_fire(job, at("12:00")).sort_key)])
    world.due.spoil(a_broken_slot("12:00"), tenant="acme", job_id="report")

    world.tick_at("11:59:59")

    assert len(world.due.quarantined) == 1
    assert world.entries == []


def test_a_broken_entry_causes_no_run_beyond_max_runs(world: World) -> None:
    """Found by simulation seed 4281."""
    world.register(maxRuns=1)
    world.at("11:59:59")
    world.tick_at("12:00")
    world.due.spoil(a_broken_slot("12:07"), tenant="acme", job_id="report")

    world.tick_at("12:07")
    world.tick_at("13:00")

    assert len(world.due.quarantined) == 1
    assert world.entries == []
    assert world.sent == ["report 12:00"]


def test_a_broken_entry_is_counted_and_reported(world: World) -> None:
    world.due.spoil(a_broken_slot("12:00"))

    report = world.tick_at("12:00")

    assert report.quarantined == 1
    assert "quarantined 2026-05-24T12:00Z#000" in joined_notes(report)


def test_a_broken_entry_stays_until_its_chain_is_stored(world: World) -> None:
    world.register()
    world.due.spoil(a_broken_slot("12:00:01"), tenant="acme", job_id="report")
    world.due.refuses = lambda _: True
    world.tick_at("12:00:00")
    assert world.due.quarantined == []

    world.due.refuses = lambda _: False
    world.tick_at("12:00:02")

    assert len(world.due.quarantined) == 1
    assert times(world.entries) == ["13:00"]


@pytest.mark.parametrize("before", ["due.keep", "due.put", "due.quarantine"])
def test_a_copy_of_a_broken_entry_survives_a_crash_after_it_was_overwritten(
    world: World, before: str
) -> None:
    """The entry that restores the chain has the same key as the broken entry."""
    job = world.register()
    slot = Slot("2026-05-24T12:00Z#000", a_fire(job, at("12:00")).sort_key)
    world.due.spoil(slot, tenant="acme", job_id="report")
    world.at("11:59:59")

    def die() -> None:
        raise Killed

    world.faults.call_before_next(before, die)

    with pytest.raises(Killed):
        world.tick()

    kept = [entry.slot for entry in world.due.quarantined] == [slot]
    assert kept or not isinstance(world.due.items[slot], DueEntry)


def test_a_broken_entry_of_an_undecodable_job_is_quarantined(world: World) -> None:
    job = world.register()
    world.jobs.spoil(job.key)
    world.due.spoil(a_broken_slot("11:59:30"), tenant="acme", job_id="report")

    report = world.tick_at("11:59:30")

    assert len(world.due.quarantined) == 1
    assert "not restored" in joined_notes(report)


def test_an_invalid_sort_key_is_found_when_its_bucket_is_closed(world: World) -> None:
    world.tick_at("12:00")
    world.due.spoil(Slot("2026-05-24T12:00Z#000", "when?"))

    world.tick_at("12:01:30")
    assert [entry.slot.sort_key for entry in world.due.quarantined] == ["when?"]
    world.tick_at("12:01:31")
    assert cursor(world) == "12:01"


def test_a_job_that_does_not_decode_stops_no_other_and_is_not_lost(world: World) -> None:
    bad = world.register("bad")
    world.register("good")
    world.jobs.spoil(bad.key)

    report = world.tick_at("12:00")

    assert world.sent == ["good 12:00"]
    assert report.quarantined == 1
    assert a_fire(bad, at("12:00")) in world.entries

    world.jobs.repair(bad.key)
    world.tick_at("12:01:05")
    assert world.sent == ["good 12:00", "bad 12:00"]


def test_a_job_whose_schedule_can_no_longer_be_read_stops_no_other(world: World) -> None:
    bad = world.register("bad")
    world.register("good")
    definition = bad.definition.model_copy(update={"timezone": "Mars/Olympus"})
    world.jobs.put(replace(bad, definition=definition))

    report = world.tick_at("12:00")

    assert world.sent == ["good 12:00"]
    assert "Mars/Olympus" in joined_notes(report)
    assert a_fire(bad, at("12:00")) in world.entries


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
    assert (late.occurs_at, late.at) == (at("12:00"), job.upcoming(at("11:59"), 1)[0].due_at)

    world.clock.move_to(late.at - timedelta(milliseconds=1))
    world.tick()
    assert world.queue.log == []
    world.clock.move_to(late.at)
    world.tick()

    assert [m.key.scheduled_at for m in world.queue.log] == [at("12:00")]
    assert world.entries == [job.fire_entry(at("12:01"), 1)]


def test_a_version_owns_what_was_due_before_its_change_however_late_it_is_seen(
    world: World,
) -> None:
    job = world.register(schedule="* * * * *", misfire=RUN_ALL)
    world.tick_at("12:00")  # the last tick for six minutes
    world.at("12:05:30")
    world.change(job, schedule="30 * * * *")
    for second in range(8):
        world.tick_at(f"12:06:{second:02d}")

    assert [f"{m.key.scheduled_at:%H:%M}" for m in world.queue.log] == [
        f"12:{minute:02d}" for minute in range(6)
    ]
    assert [e.at for e in world.entries] == [at("12:30")]


def test_an_occurrence_removed_by_a_change_is_not_restored_by_the_next_change(
    world: World,
) -> None:
    job = world.register(schedule="0 * * * *")  # the first entry is for 12:00
    world.at("11:59:30")
    world.change(job, schedule="30 * * * *")
    world.at("12:00:00.4")
    world.change(job, schedule="45 * * * *")

    world.tick_at("12:00:01")

    assert world.sent == []
    assert [e.at for e in world.entries if e.at > at("12:01")] == [at("12:30"), at("12:45")]


def test_postponed_entries_are_not_lost_at_the_minute_boundary(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-ahead reads the bucket of the next minute early and must leave its entries there."""
    monkeypatch.setattr(waiting, "_NEAR", 2)
    world.shares = Shares(backlogs={"default": 1})
    world.new_watcher()
    for n in range(5):
        world.register(f"job{n}")
    world.tick_at("12:00")
    for time in ("12:00:30", "12:00:57", "12:00:58", "12:00:59", "12:01:00", "12:01:58"):
        world.tick_at(time)
        assert len({entry.job for entry in world.entries}) == 5

    for minute, second in product(range(3, 8), range(0, 60, 3)):
        world.worker().work()
        world.tick_at(f"12:{minute:02d}:{second:02d}")

    assert sorted(world.sent) == [f"job{n} 12:00" for n in range(5)]


def test_a_vanished_cursor_does_not_stop_later_polls(world: World) -> None:
    world.faults.call_before_next("control.cursors", world.control.moved.clear)

    with pytest.raises(UnavailableError):
        world.watcher.poll(world.now)

    assert world.watcher.poll(world.now).polled


def test_a_read_that_is_refused_once_is_done_again(world: World) -> None:
    def refuse() -> None:
        raise PermissionError("the role is being changed")

    world.faults.call_before_next("due.read", refuse)
    with pytest.raises(PermissionError):
        world.watcher.poll(world.now)

    assert world.watcher.poll(world.now).polled
