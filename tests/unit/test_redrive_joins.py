"""Redrive of a sequence whose run with several parents had started, and follows them again."""

from __future__ import annotations

import pytest

from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from nextfire.domain.trigger_rules import ParentState
from nextfire.usecases import awaits_again
from tests.builders import a_run
from tests.fakes import Killed
from tests.unit.auditing import purge
from tests.unit.redriving import (
    DEAD,
    FOLLOW,
    RUN,
    SKIPPED,
    SUCCEEDED,
    cleanup_after_failure,
    redrive,
    work,
)
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.world import World


def failed_branches(world: World) -> list[Job]:
    """A link dies, so the branches below it are skipped; the clean-up after both dies too."""
    a = world.register("a", **ONE_ATTEMPT)
    b, c = (world.register(name, **after("a"), **ONE_ATTEMPT) for name in "bc")
    cleanup = world.register("cleanup", **after("b", "c", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    world.script(exit_code=1)
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, c, cleanup) == [DEAD, SKIPPED, SKIPPED, DEAD]
    world.advance(seconds=30)
    return [a, b, c, cleanup]


def test_a_run_that_follows_awaits_all_its_parents_again(world: World) -> None:
    a, b, c, cleanup = failed_branches(world)

    done = redrive(world, a, "a", downstream=True)
    assert [action for action, _ in done.values()] == [RUN, FOLLOW, FOLLOW, FOLLOW]
    world.advance(seconds=2)
    world.tick()
    world.worker().work_one()  # a
    world.worker().work_one()  # b or c

    left = [job for job in (b, c) if world.run(job, "12:00").state is RunState.PENDING]
    assert len(left) == 1
    assert states(world, a, cleanup) == [SUCCEEDED, SKIPPED]
    work(world)
    assert states(world, a, b, c, cleanup) == [SUCCEEDED] * 4


@pytest.mark.parametrize("timed", [False, True])
def test_a_run_that_follows_awaits_what_is_below_a_run_that_has_not_ended(
    world: World, *, timed: bool
) -> None:
    """One branch has ended again. The other is two jobs long, and its second is still SKIPPED."""
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a"))
    c = world.register("c", **after("a"))
    d = world.register("d", **after("c"))
    hourly = {"type": "CRON", "schedule": "0 * * * *"} if timed else {}
    fields = after("b", "d", triggerRule="ALL_DONE") | ONE_ATTEMPT | hourly
    cleanup = world.register("cleanup", **fields)
    world.script(exit_code=1)
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, c, d, cleanup) == [DEAD, SKIPPED, SKIPPED, SKIPPED, DEAD]
    world.advance(seconds=30)

    redrive(world, a, "a", downstream=True)
    world.advance(seconds=2)
    world.tick()
    world.worker().work_one()  # a
    world.worker().work_one()  # b or c
    if world.run(c, "12:00").state is SUCCEEDED:
        world.worker().work_one()
    assert world.run(b, "12:00").state is SUCCEEDED
    assert world.run(cleanup, "12:00").state is SKIPPED
    work(world)

    assert states(world, a, b, c, d, cleanup) == [SUCCEEDED] * 5


def test_the_message_of_another_parent_does_not_start_a_run_that_awaits_a_redriven_one(
    world: World,
) -> None:
    """It is received again, and its run ended just before that of their child."""
    world.register("other")
    a = world.register("a", **ONE_ATTEMPT)
    fields = after("other", "a", triggerRule="ALL_DONE")
    cleanup = world.register("cleanup", **fields, **ONE_ATTEMPT)
    world.tick_at("12:00")
    of_other = next(each for each in world.queue.log if each.job_id == "other")
    for message in world.queue.log:
        world.script(exit_code=int(message is not of_other))
    world.script(exit_code=1)
    world.worker().work()
    assert states(world, a, cleanup) == [DEAD, DEAD]
    world.advance(seconds=30)
    assert redrive(world, a, "a", downstream=True)["cleanup"][0] is FOLLOW

    world.queue.queues["default"].send(of_other.encode(), group="again", dedup="again")
    world.worker().work_one()
    assert world.run(cleanup, "12:00").state is SKIPPED
    work(world)

    assert states(world, a, cleanup) == [SUCCEEDED] * 2


def test_the_message_of_a_run_that_awaits_its_parents_starts_nothing(world: World) -> None:
    """It is received again, for example because its death could not be published."""
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    c = world.register("c", **after("b", triggerRule="NONE_FAILED"))
    world.script(exit_code=1)
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, c) == [DEAD, DEAD, SKIPPED]
    of_b = next(each for each in world.queue.log if each.job_id == "b")
    world.advance(seconds=30)
    redrive(world, a, "a", downstream=True)

    world.queue.queues["default"].send(of_b.encode(), group="again", dedup="again")
    world.worker().work_one()
    assert states(world, b, c) == [SKIPPED] * 2
    work(world)

    assert states(world, a, b, c) == [SUCCEEDED] * 3


def test_parents_that_end_in_their_order_are_not_all_read_each_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"p{number}" for number in range(10)]
    for name in names:
        world.register(name)
    child = world.register("c", **after(*names, triggerRule="ALL_DONE"))
    looked: list[str] = []

    def state(_: object, key: JobKey) -> ParentState:
        looked.append(key.job_id)
        return ParentState.WAITING if key.job_id == names[-1] else ParentState.FAILED

    monkeypatch.setattr(awaits_again._Above, "state", state)  # noqa: SLF001
    states = dict.fromkeys(names, ParentState.FAILED)
    assert awaits_again.awaits_again(world.jobs, world.runs, child, a_run().key, states, set())
    assert looked == [names[-1]]


def test_the_message_that_skipped_a_run_does_not_start_it_before_its_redriven_parents(
    world: World,
) -> None:
    """It is received again. One parent has ended again, the other is below one that has not."""
    batch = ONE_ATTEMPT | {"target": {"handler": "report", "pool": "batch"}}
    a, top = (world.register(name, **batch) for name in ("a", "top"))
    b = world.register("b", **after("top"))
    hourly = {"type": "CRON", "schedule": "0 * * * *"}
    child = world.register("child", **after("a", "b", triggerRule="NONE_FAILED") | hourly)
    world.tick_at("12:00")
    for _ in range(2):
        world.script(exit_code=1)
    world.worker(pool="batch").work()
    world.worker().work()
    assert states(world, a, top, b, child) == [DEAD, DEAD, SKIPPED, SKIPPED]

    _assert_it_awaits_all_parents(world, a, top, b, child)


def test_the_end_of_a_join_that_skipped_a_run_does_not_start_it_before_its_redriven_parents(
    world: World,
) -> None:
    """It is received again. The executor that decided the skip had died before it wrote it."""
    batch = ONE_ATTEMPT | {"target": {"handler": "report", "pool": "batch"}}
    top = world.register("top", **batch)
    b = world.register("b", **after("top"))
    a = world.register("a", **batch)
    fields = after("a", "b", triggerRule="NONE_FAILED", joinTimeoutSec=60)
    child = world.register("child", **fields)
    world.tick_at("12:00")
    for _ in range(2):
        world.script(exit_code=1)
    world.worker(pool="batch").work_one()
    assert states(world, top, b) == [DEAD, SKIPPED]
    world.faults.call_before_next("runs.skip", _die)
    with pytest.raises(Killed):
        world.worker(pool="batch").work_one()
    purge(world)
    world.tick_and_work("12:01:02")
    assert states(world, a, child) == [DEAD, SKIPPED]

    _assert_it_awaits_all_parents(world, a, top, b, child)


@pytest.mark.parametrize("last", ["p", "q"])
def test_a_parent_that_died_and_is_skipped_after_a_redrive_counts_as_skipped(
    world: World, last: str
) -> None:
    """It cleans up after a failure, and nothing fails now. *last*: the parent that ends last."""
    g, q = (world.register(name, **ONE_ATTEMPT) for name in "gq")
    p = world.register("p", **after("g", triggerRule="ANY_FAILED"), **ONE_ATTEMPT)
    child = world.register("child", **after("p", "q", triggerRule="NONE_FAILED"))
    world.tick_at("12:00")
    for message in [*world.queue.log]:
        world.script(exit_code=int(message.job_id == "g" or last == "q"))
    world.script(exit_code=1)
    world.worker().work()
    assert states(world, g, p, child) == [DEAD, DEAD, SKIPPED]
    world.advance(seconds=30)

    redrive(world, g, "g", downstream=True)
    work(world)
    if last == "q":
        assert states(world, p, q, child) == [SKIPPED, DEAD, SKIPPED]
        redrive(world, q, "q", downstream=True)
    work(world)

    assert states(world, g, q, p, child) == [SUCCEEDED, SUCCEEDED, SKIPPED, SUCCEEDED]


def _assert_it_awaits_all_parents(world: World, a: Job, top: Job, b: Job, child: Job) -> None:
    """Redrive *a*, and *top* above *b*. When only *a* has ended, the message of *child* that is
    received again does not start it.
    """
    of_child = next(each for each in world.queue.log if each.job_id == "child")
    world.advance(seconds=30)
    redrive(world, a, "a")
    world.advance(seconds=2)
    world.tick()
    redrive(world, top, "top")
    world.worker(pool="batch").work()
    assert states(world, a, top, child) == [SUCCEEDED, RunState.PENDING, SKIPPED]

    world.queue.queues["default"].send(of_child.encode(), group="again", dedup="again")
    world.worker().work()
    assert world.run(child, "12:00").state is SKIPPED

    world.advance(seconds=2)
    world.tick()
    world.worker(pool="batch").work()
    work(world)
    assert states(world, a, top, b, child) == [SUCCEEDED] * 4


def _die() -> None:
    raise Killed


def test_a_repeated_request_changes_nothing_for_a_run_that_still_awaits_its_parents(
    world: World,
) -> None:
    a, b, cleanup, report = cleanup_after_failure(world)
    world.advance(seconds=30)
    asked_at = world.now
    redrive(world, a, "b", downstream=True)
    world.cancel_sequence.cancel(world.run(b, "12:00").key, "stop")

    redrive(world, a, "b", downstream=True, asked_at=asked_at)
    work(world)

    assert states(world, a, b, cleanup, report) == [SUCCEEDED] * 4
