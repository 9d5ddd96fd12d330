"""Runs that wait for each other wait in the queue up to a bound, and hold up nothing else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from nextfire.domain.decisions import MAX_OUTSTANDING
from nextfire.usecases.dispatch import gates
from tests.accounting import assert_all_accounted_for, covered, ran, records, settle
from tests.builders import MINUTELY, RUN_ALL, RUN_LATEST, SKIP
from tests.fakes import InlineExecutor
from tests.unit.overlapping import EXCLUSIVE, recreated
from tests.world import World

BEGINNING = "11:59:30"

T = TypeVar("T")


def test_runs_of_a_job_that_allows_it_run_side_by_side(world: World) -> None:
    world.register(**MINUTELY)
    world.tick_at("12:00")
    assert world.worker("a").receive() is not None
    world.tick_at("12:01")

    assert world.worker("b").receive() is not None


def test_other_jobs_do_not_wait(world: World) -> None:
    world.register("one", **MINUTELY, overlap="QUEUE")
    world.register("other", **MINUTELY, overlap="QUEUE")
    world.register("one", tenant="rival", **MINUTELY, overlap="QUEUE")
    world.tick_at("12:00")

    assert all(world.worker(name).receive() is not None for name in "abc")


def test_a_retry_is_of_its_job_s_group(world: World) -> None:
    """So no attempt of one run overlaps with another run of the job."""
    world.register(**MINUTELY, overlap="QUEUE", retryPolicy={"initialDelayMs": 30_000})
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.tick_at("12:00:31")
    assert world.queued == ["report 12:00 #2"]
    assert world.worker("a").receive() is not None
    world.tick_at("12:01")

    assert world.worker("b").receive() is None


class _Hanging(InlineExecutor):
    """Reads of a job's runs hang until something waits for them. `sent`: what was sent by then."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.sent: list[str] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if fn.__name__ != "_overlap":
            return super().submit(fn, *args, **kwargs)
        return _Waited(self, lambda: fn(*args, **kwargs))


class _Waited(Future[T]):
    def __init__(self, executor: _Hanging, read: Callable[[], T]) -> None:
        super().__init__()
        self._executor, self._read = executor, read

    def result(self, timeout: float | None = None) -> T:
        if timeout is not None:
            raise TimeoutError
        assert self._executor.world is not None
        self._executor.sent = self._executor.world.queued
        return self._read()


def test_jobs_that_allow_it_do_not_wait_for_a_read_of_the_runs_of_another_job() -> None:
    executor = _Hanging()
    executor.world = world = World(BEGINNING, executor=executor)
    world.register("exclusive", **MINUTELY, overlap="QUEUE")
    world.register("allows", **MINUTELY)

    report = world.tick_at("12:00")

    assert executor.sent == ["allows 12:00"]
    assert sorted(world.queued) == ["allows 12:00", "exclusive 12:00"]
    assert len(report.dispatched) == 2, "none is sent twice"


class _Slow(_Waited[Any]):
    """Each read is answered 0.2 s after something waits for it."""

    def result(self, timeout: float | None = None) -> Any:
        world, takes = self._executor.world, 0.2
        assert world is not None
        if timeout is None and not self.done():
            return super().result()
        if timeout is not None and not self.done():
            world.advance(seconds=min(timeout, takes))
            if timeout < takes:
                raise TimeoutError
            self.set_result(self._read())
        return Future.result(self)


def test_the_reads_of_a_batch_are_waited_for_for_one_short_time_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "_Waited", _Slow)
    executor = _Hanging()
    executor.world = world = World(BEGINNING, executor=executor)
    for n in range(3):
        world.register(f"exclusive{n}", **MINUTELY, overlap="QUEUE")
    world.register("allows", **MINUTELY)

    world.tick_at("12:00")

    assert "allows 12:00" in executor.sent
    assert len(executor.sent) == 2
    assert len(world.queued) == 4


# At most twenty


@pytest.mark.parametrize("misfire", [RUN_ALL, RUN_LATEST, SKIP], ids=lambda m: m["policy"])
@pytest.mark.parametrize("overlap", EXCLUSIVE)
def test_at_most_twenty_wait_in_the_queue_the_others_in_the_table(
    world: World, overlap: str, misfire: dict[str, Any]
) -> None:
    job = world.register(**MINUTELY, overlap=overlap, misfire=misfire)
    for _ in range(70):
        world.advance(seconds=30)
        world.tick()
        assert len(world.queued) <= 20
    assert len(world.queued) == 20
    assert len({entry.sort_key for entry in world.entries}) == 1, "one entry waits in the table"

    settle(world)

    assert_all_accounted_for(world, job)
    if (misfire, overlap) == (RUN_ALL, "QUEUE"):
        assert len(ran(world, job)) == len(records(world, job)), "nothing was skipped"


def test_a_waiting_occurrence_is_sent_when_a_run_has_ended(world: World) -> None:
    world.register(**MINUTELY, overlap="QUEUE", misfire=RUN_ALL)
    for _ in range(50):
        world.advance(seconds=30)
        world.tick()
    assert len(world.queued) == 20

    world.worker().work_one()
    world.advance(seconds=6)
    world.tick()

    assert len(world.queued) == 20
    assert world.queued[-1] == "report 12:20"


def test_a_job_that_waits_holds_up_no_other(world: World) -> None:
    world.register("slow", **MINUTELY, overlap="QUEUE", misfire=RUN_ALL)
    for _ in range(50):
        world.advance(seconds=30)
        world.tick()
    world.register("quick", **MINUTELY)
    world.advance(minutes=1)

    report = world.tick()

    assert any(message.startswith("quick") for message in world.queued)
    assert report.held_back == 1


@pytest.mark.parametrize("trouble", ["refuse", "break"])
def test_what_cannot_be_decided_is_not_tried_at_each_poll(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    world.register(**MINUTELY, overlap="QUEUE")
    world.faults.refuse("runs.between", times=1 if trouble == "refuse" else 0)
    if trouble == "break":
        monkeypatch.setattr(gates, "decide_overlap", None)
    for seconds in (0, 0.5, 1, 1.5):
        world.tick_at(f"12:00:{seconds:04.1f}")

    assert world.faults.calls.count("runs.between") == 1
    assert not world.queued
    world.tick_at("12:00:02")
    assert len(world.queued) == int(trouble == "refuse")


def test_the_runs_of_a_deleted_job_make_room(world: World) -> None:
    """The runs end without a start, and the chain of earlier occurrences continues."""
    job = world.register(**MINUTELY, overlap="QUEUE", misfire=RUN_ALL)
    world.at("12:40:30")
    world.delete(job)

    settle(world, at_most=400)

    assert len(records(world, job)) == 41
    assert_all_accounted_for(world, job)


def test_entries_of_a_deleted_job_do_not_wait_for_lost_messages(world: World) -> None:
    job = world.register(**MINUTELY, overlap="QUEUE", misfire=RUN_ALL)
    world.at("12:40:30")
    world.tick()
    while len(queue := world.queue.queues["default"]) < MAX_OUTSTANDING:
        world.advance(seconds=1)
        world.tick()
    queue.purge()
    world.delete(job)

    settle(world, at_most=400)

    assert len(records(world, job)) == 41 - MAX_OUTSTANDING


def test_missed_occurrences_of_a_deleted_job_do_not_wait_for_lost_messages(world: World) -> None:
    job = world.register(**MINUTELY, overlap="QUEUE", misfire=SKIP)
    for minute in range(26):
        world.at(f"12:{minute:02}:01")
        world.tick()
    world.queue.queues["default"].purge()
    world.delete(job)
    world.at("12:40:30")

    settle(world, at_most=100)

    assert covered(world, job) == ["12:20-12:25 (6)"]


def test_records_of_a_former_job_do_not_hold_up_its_successor(world: World) -> None:
    job = recreated(world, "QUEUE", skipped="12:20:30")
    world.at("12:40:30")

    settle(world, at_most=100)

    assert ran(world, job) == ["12:40"]
    assert_all_accounted_for(world, job)
