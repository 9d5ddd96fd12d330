"""Joins: a job after several others runs once, if all its parents succeed in time."""

from __future__ import annotations

from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.unit.sequencing import after, diamond, states
from tests.world import World

BEGINNING = "11:58:30"


def test_a_diamond_runs_its_end_once_after_both(world: World) -> None:
    jobs = diamond(world)
    world.script()
    world.tick_at("12:00")

    world.worker().work()

    assert states(world, *jobs) == [RunState.SUCCEEDED] * 4
    assert world.sent.count("d 12:00") == 1
    assert world.sent[-1] == "d 12:00"


def test_a_join_that_is_not_complete_is_skipped_at_its_timeout(world: World) -> None:
    world.register("a")
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x", joinTimeoutSec=60))
    e = world.register("e", **after("d"))
    world.tick_and_work("12:00")
    world.tick_at("12:01")

    assert world.worker().work_one().skipped, "it is counted"

    assert states(world, d, e) == [RunState.SKIPPED] * 2
    assert world.run(d, "12:00").reason == "joinTimeoutSec is 60 s; missing: x"


def test_the_timeout_of_a_join_does_not_cut_a_delay_short(world: World) -> None:
    world.register("a")
    world.register("b")
    late = {"after": [{"job": "a"}, {"job": "b", "delaySec": 300}]}
    d = world.register("d", **after("a", "b", joinTimeoutSec=60) | late)
    for time in ("12:00", "12:01", "12:04"):
        world.tick_and_work(time)
    assert all(key.job != d.key for key in world.runs.all)

    world.tick_and_work("12:05")

    assert states(world, d) == [RunState.SUCCEEDED]


def test_a_parent_that_ends_after_the_timeout_starts_nothing(world: World) -> None:
    world.register("a")
    world.register("b", **after() | {"after": [{"job": "a", "delaySec": 120}]})
    d = world.register("d", **after("a", "b", joinTimeoutSec=60))
    for time in ("12:00", "12:01", "12:02", "12:03"):
        world.tick_and_work(time)

    assert states(world, d) == [RunState.SKIPPED]
    assert world.run(d, "12:00").reason == "joinTimeoutSec is 60 s; missing: b"


def test_the_timeout_of_a_complete_join_starts_nothing(world: World) -> None:
    jobs = diamond(world, joinTimeoutSec=60)
    world.tick_and_work("12:00")
    sent = len(world.sent)

    world.tick_and_work("12:01")

    assert world.sent[sent:] == ["d 12:00 #1000000"]
    assert states(world, *jobs) == [RunState.SUCCEEDED] * 4
    assert world.run(jobs[3], "12:00").attempt == 1


def test_a_wide_join_spreads_its_writes(world: World) -> None:
    world.register("a")
    names = [f"p{number}" for number in range(150)]
    for name in names:
        world.register(name, **after("a"))
    d = world.register("d", **after(*names))

    world.tick_and_work("12:00")
    world.tick()
    world.worker().work()

    assert states(world, d) == [RunState.SUCCEEDED]
    assert world.sent.count("d 12:00") == 1
    assert max(world.joins.writes.values()) <= 64
    assert len(world.joins.writes) == 16


def wide_join(world: World, width: int) -> tuple[Job, list[str]]:
    """A join of which one parent, the first, has not ended."""
    world.register("a")
    names = ["slow", *(f"p{number}" for number in range(width - 1))]
    for name in names:
        delay = 120 if name == "slow" else 0
        world.register(name, **after() | {"after": [{"job": "a", "delaySec": delay}]})
    d = world.register("d", **after(*names, joinTimeoutSec=600))
    world.tick_and_work("12:00")
    return d, names


def test_a_wide_join_survives_a_change_of_its_parents(world: World) -> None:
    d, names = wide_join(world, 70)

    world.change(d, **after(names[0], *names[2:]))
    world.tick_and_work("12:02")

    assert states(world, d) == [RunState.SUCCEEDED]


def test_a_join_that_is_wide_no_longer_starts_when_it_ends(world: World) -> None:
    d, names = wide_join(world, 66)

    world.change(d, **after(*names[:60]))
    for time in ("12:02", "12:10"):
        world.tick_and_work(time)

    assert states(world, d) == [RunState.SUCCEEDED]
