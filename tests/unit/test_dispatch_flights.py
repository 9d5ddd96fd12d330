"""Several batches in flight: none is sent twice or lost, and no job is in two batches at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.usecases.dispatch.holding import BATCH
from nextfire.usecases.dispatch.tick import Dispatch
from tests.builders import RUN_LATEST, SKIP, at
from tests.world import World

T = TypeVar("T")


class LaneFuture(Future[T]):
    """Completes when `land` is called, or when `result` is called without a timeout."""

    def __init__(self, do: Callable[[], T]) -> None:
        super().__init__()
        self._do = do

    def land(self) -> None:
        try:
            self.set_result(self._do())
        except Exception as error:  # noqa: BLE001 — like an executor
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> T:
        if not self.done() and timeout is None:
            self.land()
        return super().result(0)


class Lanes(Executor):
    """Runs a task only when `land` is called."""

    def __init__(self) -> None:
        self.flights: list[LaneFuture[Any]] = []
        self.batches: list[set[str]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = LaneFuture(lambda: fn(*args, **kwargs))
        self.flights.append(future)
        self.batches.append({stored.entry.job.job_id for stored in args[0]})
        return future

    def land(self, index: int = 0) -> None:
        self.flights.pop(index).land()
        self.batches.pop(index)


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


@pytest.fixture
def watcher(world: World, lanes: Lanes) -> Dispatch:
    world.watcher = world.dispatcher(1, lanes=lanes, at_once=3)
    return world.watcher


def register_many(world: World, count: int, **fields: Any) -> None:
    for n in range(count):
        world.register(f"job{n:03d}", **fields)


def poll_at(world: World, time: str) -> None:
    world.at(time)
    world.watcher.poll(world.now)


def test_full_batches_follow_each_other_and_a_rest_waits(
    world: World, watcher: Dispatch, lanes: Lanes
) -> None:
    register_many(world, 2 * BATCH + 1)
    poll_at(world, "12:00")

    watcher.release(world.now)
    assert [len(batch) for batch in lanes.batches] == [BATCH, BATCH]

    world.advance(milliseconds=100)
    watcher.release(world.now)
    assert [len(batch) for batch in lanes.batches] == [BATCH, BATCH, 1]


def test_no_job_is_in_two_batches(world: World, watcher: Dispatch, lanes: Lanes) -> None:
    world.register("twice", type="INTERVAL", schedule="PT1M")
    poll_at(world, "12:00")
    watcher.release(world.now)
    assert lanes.batches == [{"twice"}]
    world.watcher = world.dispatcher(2)  # another watcher stored the successor
    world.tick_at("12:00")
    world.watcher = watcher

    world.register("other", type="ONCE", schedule="2026-05-24T12:01:00Z")
    poll_at(world, "12:01")
    watcher.release(world.now)
    assert lanes.batches == [{"twice"}, {"other"}]

    lanes.land()
    world.advance(milliseconds=100)
    watcher.release(world.now)
    assert lanes.batches == [{"other"}, {"twice"}]


def test_an_entry_in_flight_is_not_taken_again_by_a_poll(
    world: World, watcher: Dispatch, lanes: Lanes
) -> None:
    world.register()
    poll_at(world, "12:00")
    watcher.release(world.now)

    poll_at(world, "12:00:02")
    watcher.release(world.now)
    assert len(lanes.flights) == 1

    lanes.land()
    poll_at(world, "12:00:02.5")
    watcher.release(world.now)
    assert (lanes.flights, world.sent) == ([], ["report 12:00"])


def test_each_entry_is_sent_then_followed_then_deleted(
    world: World, watcher: Dispatch, lanes: Lanes
) -> None:
    register_many(world, BATCH + 1)
    poll_at(world, "12:00")
    watcher.release(world.now)
    world.advance(milliseconds=100)
    watcher.release(world.now)
    world.faults.calls.clear()

    lanes.land(1)
    assert world.faults.calls == ["jobs.get_many", "queue.send", "due.put", "due.delete"]
    lanes.land()
    assert world.faults.calls[4:] == ["jobs.get_many", "queue.send", "due.put", "due.delete"]
    assert len(set(world.sent)) == len(world.sent) == BATCH + 1


def test_a_batch_that_fails_loses_nothing_of_the_others(
    world: World, watcher: Dispatch, lanes: Lanes
) -> None:
    register_many(world, 2 * BATCH)
    poll_at(world, "12:00")
    watcher.release(world.now)
    world.faults.refuse("jobs.get_many")

    lanes.land()
    lanes.land()
    report = watcher.release(world.now)
    assert len(report.dispatched) == BATCH

    poll_at(world, "12:00:00.5")
    watcher.release(world.now)
    lanes.land()
    assert len(watcher.release(world.now).dispatched) == BATCH


def fly_skips_and_a_run(world: World, watcher: Dispatch) -> None:
    """Two batches are in flight: occurrences to skip, and a run that is due."""
    poll_at(world, "11:59")
    world.register("late", misfire=SKIP)
    poll_at(world, "12:30")
    watcher.release(world.now)
    world.register("fresh", type="ONCE", schedule="2026-05-24T12:31:00Z")
    poll_at(world, "12:31")
    watcher.release(world.now)


def test_what_was_skipped_is_reported_though_another_batch_fails(
    world: World, watcher: Dispatch, lanes: Lanes
) -> None:
    fly_skips_and_a_run(world, watcher)

    lanes.land()
    world.faults.refuse("jobs.get_many")
    lanes.land()
    with pytest.raises(UnavailableError):
        watcher.release(world.now)

    assert len(watcher.release(world.now).skipped) == 1


def test_slow_batches_halve_the_number_in_flight_and_fast_ones_add_one(
    world: World, lanes: Lanes
) -> None:
    world.watcher = watcher = world.dispatcher(1, lanes=lanes, at_once=8)
    register_many(world, 22 * BATCH)
    poll_at(world, "12:00")
    watcher.release(world.now)
    in_flight = [len(lanes.flights)]

    def land_all_after(seconds: float) -> None:
        world.advance(seconds=seconds)
        while lanes.flights:
            lanes.land()
        watcher.release(world.now)
        in_flight.append(len(lanes.flights))

    for seconds in (0.7, 1.1, 0.1):
        land_all_after(seconds)

    assert in_flight == [8, 8, 2, 4]


def test_finish_waits_for_what_is_in_flight(world: World, watcher: Dispatch) -> None:
    register_many(world, 2 * BATCH)
    poll_at(world, "12:00")
    watcher.release(world.now)
    assert world.sent == []

    report = watcher.finish()

    assert len(report.dispatched) == len(world.sent) == 2 * BATCH


def test_finish_reports_what_was_skipped_though_another_batch_fails(
    world: World, watcher: Dispatch, lanes: Lanes
) -> None:
    fly_skips_and_a_run(world, watcher)
    lanes.land()
    world.faults.refuse("jobs.get_many")

    report = watcher.finish()

    assert len(report.skipped) == 1
    assert "jobs.get_many" in report.notes[-1]


def test_a_fresh_entry_is_sent_on_time_though_the_memory_is_used_up(world: World) -> None:
    register_many(world, 60, misfire=RUN_LATEST)
    world.register("fresh", tenant="zeta", type="ONCE", schedule="2026-05-24T12:30:00Z")
    lanes = Lanes()
    world.watcher = world.dispatcher(1, lanes=lanes, budget=20)
    poll_at(world, "11:59")
    poll_at(world, "12:29:59.5")
    assert world.watcher.backlog == 20 + 1

    world.at("12:30")
    world.watcher.release(world.now)
    lanes.land()

    assert "fresh 12:30" in world.sent


def test_under_load_what_is_missed_is_recorded_with_the_next_run(
    world: World, watcher: Dispatch, lanes: Lanes
) -> None:
    poll_at(world, "11:59")
    world.register("late", schedule="*/30 * * * *", misfire=SKIP)
    poll_at(world, "12:29:55")
    watcher.release(world.now)
    register_many(world, 5 * BATCH, type="ONCE", schedule="2026-05-24T12:29:57Z")
    poll_at(world, "12:29:57")
    watcher.release(world.now)
    lanes.land()  # more entries are ready than one release sends, so missed ones wait
    assert (world.sent, world.runs.all) == ([], {})

    poll_at(world, "12:30")
    for _ in range(9):
        watcher.release(world.now)
        while lanes.flights:
            lanes.land()

    (message,) = [message for message in world.queue.log if message.job_id == "late"]
    assert message.key.scheduled_at == at("12:30")
    assert [(row.first, row.count) for row in message.missed] == [(at("12:00"), 1)]
    assert world.runs.all == {}


def test_missed_occurrences_are_recorded_under_load_too(
    world: World, watcher: Dispatch, lanes: Lanes
) -> None:
    poll_at(world, "11:59")
    world.register("late", misfire=SKIP)
    poll_at(world, "12:29:55")
    watcher.release(world.now)
    for n in range(30):
        world.register(f"once{n}", type="ONCE", schedule="2026-05-24T12:29:57Z")
    register_many(world, 12 * BATCH, type="ONCE", schedule="2026-05-24T12:29:57Z")
    poll_at(world, "12:29:57")
    watcher.release(world.now)
    lanes.land()
    assert world.runs.all == {}

    world.advance(seconds=11)
    watcher.release(world.now)  # three batches are in flight and more entries are ready
    while lanes.flights:
        lanes.land()
    watcher.release(world.now)
    assert watcher.backlog > BATCH
    while lanes.flights:
        lanes.land()

    assert [run.covered for run in world.runs.all.values()] == [1]
