"""A shard that does not answer stops no other, and is caught up when it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from tests.accounting import assert_all_accounted_for, settle
from tests.builders import MINUTELY, NOON, at, job_key
from tests.fakes import InlineExecutor
from tests.world import World

BEGINNING = "11:59:30"

T = TypeVar("T")


# Unresponsive shards


class Hanging(InlineExecutor):
    """Reads of the shards in `hang` never complete, measured by the test clock. Applies to methods
    with `what` in their names.
    """

    def __init__(self) -> None:
        self.hang: set[int] = set()
        self.what = ""
        self.world: World | None = None
        self.left: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        of_shard = args and isinstance(args[0], int) and args[0] in self.hang
        if not of_shard or self.what not in fn.__name__:
            return super().submit(fn, *args, **kwargs)
        assert self.world is not None
        future: _Waited[T] = _Waited(self.world)
        self.left.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    def answer(self) -> None:
        """Complete the reads that hang."""
        self.hang.clear()
        while self.left:
            self.left.pop(0)()


class _Waited(Future[T]):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            assert timeout is not None, "a read waits without a timeout"
            self._world.advance(seconds=timeout)
            raise TimeoutError
        return super().result(timeout)


@pytest.fixture
def hanging() -> tuple[World, Hanging]:
    executor = Hanging()
    world = World("11:59:30", executor=executor, shards=4)
    executor.world = world
    ids = {job_key(f"job{n}").shard(4): f"job{n}" for n in range(40)}
    for job_id in ids.values():
        world.register(job_id, **MINUTELY)
    return world, executor


def test_a_shard_that_hangs_does_not_stop_the_others(hanging: tuple[World, Hanging]) -> None:
    world, executor = hanging
    world.tick()
    executor.hang = {1}
    world.at("12:00")

    first = world.watcher.poll(world.now)
    assert world.now <= at("12:00:01"), "the poll waits for one second at most"
    world.watcher.release(world.now)
    assert len(world.sent) == 3
    assert first.notes == ["shard 1 does not answer"]

    for minute in range(1, 4):
        world.at(f"12:0{minute}:00")
        began = world.now
        world.watcher.poll(world.now)
        assert world.now - began < timedelta(seconds=0.1), "later polls do not wait for the shard"
        world.watcher.release(world.now)
    assert len(world.sent) == 12


def test_a_shard_that_hangs_from_the_first_poll_on(hanging: tuple[World, Hanging]) -> None:
    """This includes the repeated read of the shard's last minutes."""
    world, executor = hanging
    executor.hang = {1}

    for _ in range(2):
        world.watcher.poll(world.now)

    assert world.now <= at("11:59:33")


def test_a_shard_that_hangs_where_its_last_minutes_are_read_again(
    hanging: tuple[World, Hanging],
) -> None:
    world, executor = hanging
    executor.hang, executor.what = {1}, "stragglers"
    began = world.now

    report = world.watcher.poll(world.now)

    assert world.now - began <= timedelta(seconds=1)
    assert report.notes == ["a shard's last minutes are not read again: no answer"]
    world.at("12:00:01")
    world.watcher.poll(world.now)
    world.watcher.release(world.now)
    assert len(world.sent) == 4, "reads of all shards continue"


def test_current_buckets_are_read_while_past_ones_are_caught_up(
    hanging: tuple[World, Hanging],
) -> None:
    """After a long outage, catching up takes many reads of past buckets."""
    world, executor = hanging
    world.tick()
    world.at("13:00")
    executor.hang, executor.what = {0, 1, 2, 3}, "past"
    fresh = world.register("fresh", type="ONCE", schedule="2026-05-24T13:00:05Z")

    for second in range(6):
        world.at(f"13:00:0{second}")
        assert world.watcher.poll(world.now).notes == []
        world.watcher.release(world.now)

    assert [message.job_id for message in world.queue.log] == [fresh.key.job_id]
    executor.answer()
    settle(world)
    for key in {entry.job for entry in world.entries}:
        assert_all_accounted_for(world, world.job(key))


def test_a_hung_shard_is_caught_up_when_it_answers(hanging: tuple[World, Hanging]) -> None:
    world, executor = hanging
    world.tick()
    executor.hang = {1}
    world.at("12:00")
    world.watcher.poll(world.now)
    executor.answer()
    world.at("12:00:30")

    settle(world)

    assert Counter(message.key.scheduled_at for message in world.queue.log) == {NOON: 4}
    for key in {entry.job for entry in world.entries}:
        assert_all_accounted_for(world, world.job(key))


def test_a_late_answer_is_taken_before_the_next_poll(hanging: tuple[World, Hanging]) -> None:
    world, executor = hanging
    world.tick()
    executor.hang = {1}
    world.at("12:00")
    world.watcher.poll(world.now)
    executor.answer()

    world.watcher.release(world.now)

    assert len(world.sent) == 4


def test_the_cursor_follows_late_answers(hanging: tuple[World, Hanging]) -> None:
    world, executor = hanging
    world.tick()
    executor.hang = {1}
    world.at("12:05")
    before = world.control.cursors([1])[1]
    for _ in range(3):
        world.watcher.poll(world.now)
        executor.answer()
        executor.hang = {1}
        world.watcher.release(world.now)
        world.advance(seconds=30)

    assert world.control.cursors([1])[1] > before


def test_a_late_answer_of_a_slow_shard_causes_no_duplicate_runs(
    hanging: tuple[World, Hanging],
) -> None:
    """The old holder read entries and hung; meanwhile a new holder dispatched them."""
    world, executor = hanging
    world.tick()
    slow = world.watcher
    executor.hang = {1}
    world.at("12:00")
    slow.poll(world.now)
    executor.hang = set()
    stale = dict(world.due.items)
    world.new_watcher()
    world.tick_and_work("12:00:02")
    fresh, world.due.items = world.due.items, stale
    executor.answer()
    world.due.items = fresh
    world.at("12:00:20")

    slow.poll(world.now)
    slow.release(world.now)
    settle(world)

    for key in {entry.job for entry in world.entries}:
        assert_all_accounted_for(world, world.job(key))
    assert all(run.attempt == 1 for run in world.runs.all.values())
