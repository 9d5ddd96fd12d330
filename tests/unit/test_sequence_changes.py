"""Sequences whose jobs change, whose executors die or are overtaken, and whose joins end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextfire.domain.run import RunState
from nextfire.usecases.read_sequence import read_sequence
from tests.fakes import Killed, raise_killed
from tests.unit.sequencing import ONE_ATTEMPT, after, chain, states
from tests.world import World

BEGINNING = "11:58:30"


def test_the_end_of_a_join_does_not_start_its_run_before_its_delay(world: World) -> None:
    world.register("a")
    world.register("b", **after() | {"after": [{"job": "a", "delaySec": 90}]})
    late = {"after": [{"job": "a"}, {"job": "b", "delaySec": 120}]}
    d = world.register("d", **after("a", "b", joinTimeoutSec=60) | late)
    # b ends 90 s after a: d is to start at 12:03:30, but its join ends at 12:03.
    for time in ("12:00", "12:01:30", "12:03"):
        world.tick_and_work(time)
    assert world.sent[-1] == "d 12:00 #1000000"
    assert all(key.job != d.key for key in world.runs.all)

    world.tick_and_work("12:03:30")

    assert states(world, d) == [RunState.SUCCEEDED]


def test_the_end_of_a_join_that_has_one_parent_left_starts_nothing_early(world: World) -> None:
    world.register("a")
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x", joinTimeoutSec=60))
    world.tick_and_work("12:00")

    world.change(d, **after("x"))
    world.tick_and_work("12:01")

    assert world.sent == ["a 12:00", "d 12:00 #1000000"]
    assert all(key.job != d.key for key in world.runs.all)


def test_a_run_whose_last_missing_parent_is_removed_starts_when_its_join_ends(
    world: World,
) -> None:
    world.register("a")
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x", joinTimeoutSec=60))
    world.tick_and_work("12:00")

    world.change(d, **after("a"))
    world.tick_and_work("12:01")

    assert states(world, d) == [RunState.SUCCEEDED]


def test_the_end_of_a_join_of_a_deleted_job_leaves_no_record(world: World) -> None:
    world.register("a")
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x", joinTimeoutSec=60))
    world.tick_and_work("12:00")

    world.delete(d)
    world.tick_and_work("12:01")

    assert world.queued == []
    assert all(key.job != d.key for key in world.runs.all)


def test_a_skip_at_the_end_of_a_join_is_reopened_by_a_redrive(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    world.register("x", type="MANUAL", schedule=None)
    rule = {"triggerRule": "ANY_SUCCEEDED", "joinTimeoutSec": 60}
    d = world.register("d", **after("a", "x", **rule))
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    # Only the end of the join sees that the rule cannot hold any more.
    world.change(d, triggerRule="ALL_SUCCEEDED")
    world.tick_and_work("12:01")
    assert world.run(d, "12:00").reason == "trigger rule ALL_SUCCEEDED: a FAILED"

    world.change(d, triggerRule="ANY_SUCCEEDED")
    world.advance(seconds=30)
    world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
    world.tick()
    world.worker().work()

    assert states(world, a, d) == [RunState.SUCCEEDED] * 2


def test_a_run_that_is_reopened_when_its_job_is_deleted_ends(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a"))
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    key = world.run(b, "12:00").key

    world.advance(seconds=20)
    world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
    world.tick()

    # Its executor dies when it has reopened the run; the job is deleted before it is repeated.
    world.faults.call_before_next("queue.send", raise_killed)
    with pytest.raises(Killed):
        world.worker().work_one()
    assert world.runs.items[key].state is RunState.PENDING
    world.delete(b)
    world.tick_and_work("12:03")

    assert world.runs.items[key].state is RunState.CANCELLED


def test_a_parent_that_ends_after_a_pause_does_not_reopen_what_the_pause_skipped(
    world: World,
) -> None:
    world.register("a")
    world.register("b", **after() | {"after": [{"job": "a", "delaySec": 60}]})
    d = world.register("d", **after("a", "b", triggerRule="ANY_SUCCEEDED"))
    e = world.register("e", **after("d"))
    d = world.pause(d)
    world.tick_and_work("12:00")
    assert states(world, d, e) == [RunState.SKIPPED] * 2

    world.resume(d)
    world.tick_and_work("12:01")

    assert states(world, d, e) == [RunState.SKIPPED] * 2
    assert world.run(d, "12:00").reason == "its job was paused"


def test_the_end_of_a_join_skips_the_run_of_a_paused_job(world: World) -> None:
    """Its last missing parent was removed, so its rule decides RUN."""
    world.register("a")
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x", joinTimeoutSec=600))
    e = world.register("e", **after("d"))
    world.tick_and_work("12:00")
    world.at("12:01")
    world.pause(world.change(d, after=[{"job": "a"}]))
    world.tick_and_work("12:10:01")
    world.resume(d)

    assert states(world, d, e) == [RunState.SKIPPED] * 2
    assert world.run(d, "12:00").reason == "its job was paused"
    assert world.run(d, "12:00").pool == "default"


def test_a_skipped_run_is_handed_over_after_its_edges_changed(world: World) -> None:
    """Its executor, which was slow, died between skipping it and handing it over."""
    _, b, c = chain(world, "a", "b", "c", **ONE_ATTEMPT)
    world.script(exit_code=1)
    world.tick_at("12:00")

    def die() -> None:
        if b.key in {key.job for key in world.runs.all}:
            raise Killed

    world.faults.call_before_next(
        "runs.mark_death_published", lambda: world.clock.advance(seconds=10)
    )
    world.faults.call_before_each("runs.skip", die)
    with pytest.raises(Killed):
        world.worker("a").work()
    world.faults.clear()
    assert states(world, b) == [RunState.SKIPPED]

    world.change(b, triggerRule="ALL_DONE")
    world.advance(seconds=61)
    world.worker("b").work()

    assert states(world, b, c) == [RunState.SKIPPED] * 2


@pytest.mark.parametrize("seconds", [2, 60])
def test_a_redrive_by_an_executor_whose_clock_is_behind_continues_the_chain(
    world: World, seconds: int
) -> None:
    a, b = chain(world, "a", "b", **ONE_ATTEMPT)
    world.script(exit_code=1)
    world.tick_at("12:00")
    world.clock.advance(seconds=seconds)
    world.worker().work()
    assert states(world, b) == [RunState.SKIPPED]

    world.clock.advance(seconds=-seconds)
    world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
    world.tick()
    world.worker().work()

    assert states(world, a, b) == [RunState.SUCCEEDED] * 2


@pytest.mark.parametrize("parents", [("a",), ("a", "b")])
def test_a_skip_by_an_executor_that_was_overtaken_by_a_redrive_is_undone(
    world: World, parents: tuple[str, ...]
) -> None:
    """It skips the run of the child after that of the redriven parent was sent."""
    a = world.register("a", **ONE_ATTEMPT)
    batch = {"target": {"handler": "b", "pool": "batch"}, "triggerRule": "ALL_DONE"}
    world.register("b", **after("a", **batch))
    d = world.register("d", **after(*parents))
    world.script(exit_code=1)
    world.tick_at("12:00")

    def overtake() -> None:
        world.faults.clear()
        world.advance(seconds=61)
        world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
        world.tick()
        while world.run(a, "12:00").state is not RunState.SUCCEEDED:
            world.worker("fast").work_one()
        world.worker("fast", pool="batch").work()

    world.faults.call_before_next("runs.skip", overtake)
    delivery = world.worker().receive()
    assert delivery is not None
    world.worker("slow").handle(delivery)
    assert world.run(d, "12:00").state is RunState.PENDING
    for _ in range(3):
        world.advance(seconds=61)
        world.tick()
        world.worker("fast").work()

    assert states(world, a, d) == [RunState.SUCCEEDED] * 2


def test_what_a_watcher_skips_has_no_runs_of_children(world: World) -> None:
    a, b = chain(world, "a", "b")
    world.change(a, misfire={"policy": "SKIP"})
    world.at("12:05")
    world.tick()
    world.worker().work()

    assert states(world, a) == [RunState.SKIPPED]
    assert all(key.job != b.key for key in world.runs.all)


def test_a_child_that_is_deleted_while_its_parent_runs_gets_no_run(world: World) -> None:
    _, b = chain(world, "a", "b")
    world.tick_at("12:00")
    world.faults.call_before_next("runs.advance", lambda: world.delete(b))

    world.worker().work()

    assert world.sent == ["a 12:00"]
    assert all(key.job != b.key for key in world.runs.all)


def test_a_redriven_parent_does_not_start_the_run_of_a_paused_job(world: World) -> None:
    a, b = chain(world, "a", "b", **ONE_ATTEMPT)
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    world.pause(b)

    world.advance(seconds=20)
    world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
    world.tick()
    world.worker().work()

    assert states(world, a, b) == [RunState.SUCCEEDED, RunState.SKIPPED]


def test_the_end_of_a_join_whose_only_parent_left_failed_skips_its_run(world: World) -> None:
    world.register("a", **ONE_ATTEMPT)
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x", triggerRule="ANY_SUCCEEDED", joinTimeoutSec=600))
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    world.at("12:01")
    world.change(d, after=[{"job": "a"}])

    world.tick_and_work("12:10:01")

    assert world.run(d, "12:00").reason == "trigger rule ANY_SUCCEEDED: a FAILED"


def test_a_cycle_that_two_changes_closed_at_the_same_time_ends(world: World) -> None:
    a, b = chain(world, "a", "b")
    m = world.register("m", **after("a", "b", triggerRule="ANY_SUCCEEDED"))
    stored = world.job(b.key)
    edges = stored.definition.model_validate(
        stored.definition.document() | after("a", "m", triggerRule="ANY_SUCCEEDED")
    )
    world.jobs.items[b.key] = replace(stored, definition=edges)
    world.jobs.items[m.key] = replace(world.job(m.key), children=("b",))
    world.tick_at("12:00")

    world.worker().work()

    assert states(world, a, b, m) == [RunState.SUCCEEDED] * 3
    assert [world.run(job, "12:00").attempt for job in (a, b, m)] == [1] * 3
    key = world.run(m, "12:00").key
    assert len(read_sequence(world.jobs, world.runs, key, world.clock)) == 3


def test_a_parent_that_is_handed_over_after_a_redrive_of_the_other_reopens_their_child(
    world: World,
) -> None:
    """Its executor died before it handed it over."""
    world.register("a")
    b = world.register("b", **ONE_ATTEMPT)
    d = world.register("d", **after("a", "b"))
    world.tick_at("12:00")

    world.faults.call_before_next("joins.read", raise_killed)
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.script(exit_code=1)
    world.worker("b").work_one()
    assert states(world, d) == [RunState.SKIPPED]

    world.advance(seconds=20)
    world.manage_runs.redrive(world.run(b, "12:00").key, "fixed")
    world.tick()
    world.worker("b").work_one()
    for _ in range(3):
        world.advance(seconds=61)
        world.tick()
        world.worker("c").work()

    assert states(world, b, d) == [RunState.SUCCEEDED] * 2


def test_a_new_rule_starts_nothing_when_the_join_of_a_parent_ends(world: World) -> None:
    """Its end is a message of the parent, whose run has ended: it is handed over once more."""
    x = world.register("x", **ONE_ATTEMPT)
    for name in "ab":
        world.register(name)
    parent = world.register("parent", **after("a", "b", joinTimeoutSec=1200))
    child = world.register("child", **after("x", "parent"))
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, x, parent, child) == [
        RunState.DEAD,
        RunState.SUCCEEDED,
        RunState.SKIPPED,
    ]

    world.at("12:01")
    world.change(child, triggerRule="ANY_SUCCEEDED")
    world.tick_and_work("12:20:01")

    assert "parent 12:00 #1000000" in world.sent
    assert states(world, child) == [RunState.SKIPPED]
