"""The cursor of a shard passes no entry, and the next watcher continues from it."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.usecases.dispatch import waiting
from nextfire.usecases.dispatch.gates import Shares
from tests.builders import RUN_ALL, a_fire, a_job, at
from tests.unit.dispatching import cursor, times
from tests.world import World


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


def test_a_watcher_that_starts_after_an_outage_continues_where_the_last_one_was(
    world: World,
) -> None:
    world.register(misfire=RUN_ALL)
    world.tick()
    world.at("20:00:30")

    world.new_watcher()
    world.tick()

    assert world.sent[0] == "report 12:00"


def test_a_throttled_table_that_permits_few_reads_does_not_delay_the_present(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage many buckets are to be read. Each second the table permits four reads."""
    read, left = world.due.read, [0]

    def throttled(*bucket: Any, **bounds: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise UnavailableError("read due entries: throttled. Try again.")
        return read(*bucket, **bounds)

    world.tick()
    world.register(type="ONCE", schedule="2026-05-24T12:30:10Z")
    monkeypatch.setattr(world.due, "read", throttled)

    for minute, second in product((30, 31), range(60)):
        world.at(f"12:{minute}:{second:02d}")
        left[0] = 4
        with suppress(UnavailableError):
            world.watcher.poll(world.now)
        world.watcher.release(world.now)
        if minute == 30 and second == 10:
            assert world.sent == ["report 12:30:10"]

    assert cursor(world) == "12:31"


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


@pytest.mark.parametrize("now", ["12:55:02", "12:45:02", "12:15:02"])
def test_what_is_stored_after_a_clock_was_set_back_is_sent_in_time(world: World, now: str) -> None:
    for minute in range(0, 60, 10):
        world.tick_at(f"12:{minute:02}")
    world.tick_at("13:00:31")
    assert cursor(world) == "13:00"
    world.at(now)
    world.new_watcher()  # a holder whose clock is set back starts again as a standby
    world.tick()
    job = world.register(type="DELAY", schedule="PT10S")

    world.advance(seconds=10)
    world.tick()

    assert world.sent == [f"{job.key.job_id} {world.now:%H:%M:%S}"]
