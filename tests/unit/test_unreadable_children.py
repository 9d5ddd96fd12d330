"""A child that does not decode does not hold up its parent, and gets its runs when it decodes."""

from __future__ import annotations

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.run import RunState
from nextfire.usecases.timed_runs import TimedRuns
from tests.unit.sequencing import ONE_ATTEMPT, after
from tests.world import World

BEGINNING = "11:58:30"

LATEST = [{"job": "a", "which": "latest", "withinSec": 86_400}]


def test_the_parent_and_the_other_children_continue(world: World) -> None:
    a = world.register("a")
    b, c = (world.register(name, **after("a")) for name in "bc")
    world.jobs.spoil(b.key)

    world.tick_at("12:00")
    first, *_ = world.worker().work()

    assert first.quarantined
    assert first.reason.startswith("not handed over: ")
    assert world.queued == []
    assert [world.state(job, "12:00") for job in (a, c)] == [RunState.SUCCEEDED] * 2
    world.tick_and_work("13:00")
    assert world.state(a, "13:00") is RunState.SUCCEEDED


def test_a_child_that_decodes_again_gets_all_its_runs(world: World) -> None:
    world.register("a")
    b = world.register("b", **after("a"), overlap="QUEUE")
    world.jobs.spoil(b.key)
    world.tick_and_work("12:00", "12:15", "12:45", "13:00", "13:15")

    world.jobs.repair(b.key)
    world.tick_and_work("14:00", "14:00:01", "14:15", "14:15:01")

    assert [world.state(b, f"{hour}:00") for hour in (12, 13, 14)] == [RunState.SUCCEEDED] * 3
    assert not any(isinstance(entry, DispatchEntry) for entry in world.entries)


def test_a_repeated_hand_over_does_not_start_a_run_that_was_redriven(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a"), triggerRule="ALL_DONE")
    world.jobs.spoil(b.key)
    world.script(exit_code=1)
    world.tick_and_work("12:00")

    world.at("12:15:01")
    world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
    world.jobs.repair(b.key)
    world.tick_and_work("12:15:02", "12:15:03")

    assert world.run(a, "12:00").dispatch == 10_001
    assert [world.state(job, "12:00") for job in (a, b)] == [RunState.SUCCEEDED] * 2


@pytest.mark.parametrize(("delay", "outcome"), [(300, "SUCCEEDED"), (7_200, "SKIPPED")])
def test_a_join_that_is_handed_over_late_waits_for_late_parents(
    world: World, delay: int, outcome: str
) -> None:
    """Their hand-overs are repeated at other times, after the join would have ended."""
    world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.register("b", **after() | {"after": [{"job": "a"}]})
    world.register("c", **after() | {"after": [{"job": "a", "delaySec": delay}]})
    d = world.register("d", **after("b", "c", joinTimeoutSec=600))
    world.jobs.spoil(d.key)
    world.tick_and_work("12:00", "12:00:02", "12:05", "12:05:02")
    world.at("12:12")
    world.jobs.repair(d.key)
    world.tick_and_work("12:15:03", "12:15:05")
    assert world.state(d, "12:00") is None

    world.tick_and_work("12:20:05", "12:20:10", "13:16", "13:16:05")

    assert (world.state(d, "12:00") or "") == outcome
    assert outcome == "SUCCEEDED" or world.run(d, "12:00").reason == (
        "joinTimeoutSec is 600 s; missing: c"
    )


def test_a_descendant_that_does_not_decode_gets_its_run_too(world: World) -> None:
    world.register("a", **ONE_ATTEMPT)
    world.register("b", **after("a"))
    c = world.register("c", **after("b"))
    world.jobs.spoil(c.key)
    world.script(exit_code=1)
    world.tick_and_work("12:00")

    world.jobs.repair(c.key)
    world.tick_and_work("12:15")

    assert world.state(c, "12:00") is RunState.SKIPPED


def test_the_hand_over_of_a_deleted_job_is_not_repeated(world: World) -> None:
    a = world.register("a")
    b = world.register("b", **after("a"))
    world.jobs.spoil(b.key)
    world.tick_and_work("12:00")

    world.jobs.repair(b.key)
    world.delete(b)
    world.delete(a)
    world.tick_and_work("12:15")

    assert world.state(a, "12:00") is RunState.SUCCEEDED
    assert world.queued == []
    assert not any(isinstance(entry, DispatchEntry) for entry in world.entries)


def test_an_executor_that_dies_anywhere_loses_nothing() -> None:
    died, calls = True, 0
    while died:
        world = World("11:58:30")
        world.tick()
        world.register("a", **ONE_ATTEMPT)
        jobs = [world.register(name, **after("a")) for name in "bc"]
        world.jobs.spoil(jobs[0].key)
        world.script(exit_code=1)
        world.tick_at("12:00")
        died = world.dies(calls, world.worker("x").work)
        calls += died
        world.tick_and_work("12:01", "12:02")
        world.jobs.repair(jobs[0].key)
        world.tick_and_work("12:15", "12:16", "12:17", "12:18")
        assert [world.state(job, "12:00") for job in jobs] == [RunState.SKIPPED] * 2, calls
    assert calls > 8


def test_each_repetition_waits_longer(world: World) -> None:
    world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z")
    b = world.register("b", **after("a"))
    world.jobs.spoil(b.key)
    waits = []

    world.tick_and_work("12:00")
    for _ in range(5):
        (entry,) = world.entries
        waits.append((entry.at - world.now).total_seconds() // 60)
        world.clock.move_to(entry.at)
        world.tick()
        world.worker().work()

    assert waits == [15, 15, 30, 60, 60]


def test_a_child_that_this_process_cannot_decide_about_is_handed_over_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, an older worker does not know its time zone."""
    a = world.register("a")
    b = world.register("b", type="CRON", schedule="30 12 * * *", after=LATEST)

    def unknown(*_: object, **__: object) -> None:
        raise InvalidInputError("timezone", "Mars/Base", "an unknown time zone", "Use another.")

    with monkeypatch.context() as patch:
        patch.setattr(TimedRuns, "parent_ended", unknown)
        world.tick_at("12:00")
        first, *_ = world.worker().work()

    assert first.reason.startswith("not handed over: b: timezone")
    assert world.queued == []
    assert world.state(a, "12:00") is RunState.SUCCEEDED
    assert world.state(b, "12:00") is None
