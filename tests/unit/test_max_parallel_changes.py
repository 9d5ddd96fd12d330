"""`maxParallel` while jobs change, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from nextfire.domain.job import Job
from nextfire.usecases.limit_parallel import LimitParallel
from tests.builders import at
from tests.unit.sequencing import after
from tests.unit.test_max_parallel import SUCCEEDED, occupied, root
from tests.world import World

BEGINNING = "11:58:30"


def test_a_child_that_got_its_edge_later_is_awaited_for_a_short_time(world: World) -> None:
    """It was not handed over to it, so it has no run."""
    a = root(world)
    world.register("x", type="MANUAL", schedule=None)
    b = world.register("b", **after("x"))
    world.tick_and_work("12:00")
    world.at("12:00:30")
    world.change(b, after=[{"job": "x"}, {"job": "a"}])
    world.tick_and_work("12:01")
    assert world.state(a, "12:01") is None
    world.tick_and_work("12:15:31")

    assert world.state(a, "12:01") is SUCCEEDED


def test_a_join_that_has_begun_is_awaited_although_its_job_was_changed(world: World) -> None:
    a = root(world)
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x"))
    world.tick_and_work("12:00")
    world.at("12:00:30")
    world.change(d, priority="HIGH")
    world.tick_and_work("12:01")
    world.tick_and_work("12:15:31")

    assert world.state(a, "12:01") is None


def wide(world: World, width: int = 30) -> tuple[Job, Callable[[str], int]]:
    """Sequences of *width* children and a slow run below the last one but one. The function looks
    whether the run at a time must wait, and returns how many reads of jobs and runs that took.
    """
    a = root(world, 2, maxRuns=2)
    names = [f"c{number}" for number in range(width)]
    for name in names:
        world.register(name, **after("a"))
    slow = {"after": [{"job": names[-2], "delaySec": 3_600}]}
    world.register("slow", **after() | slow)
    for time in ("12:00", "12:01"):
        world.tick_and_work(time)
        world.tick_and_work(f"{time}:01")
    through = world.faults.through
    limit = LimitParallel(
        through(world.jobs, "jobs"), through(world.runs, "runs"), through(world.joins, "joins")
    )

    def look(time: str) -> int:
        job, key = world.job(a.key), a.run_key(at(time))
        world.faults.calls.clear()
        held = limit.hold(job, key, world.now)
        calls = Counter(world.faults.calls)
        assert (held is None) is (calls["joins.end_sequences"] == 1)
        return calls["jobs.get"] + calls["runs.get"]

    return a, look


def test_a_look_reads_only_the_run_that_was_left_before(world: World) -> None:
    _, look = wide(world)
    assert look("12:02") > 2 * 2 * 30
    assert look("12:03") == 1, "another run looked a moment ago"
    world.advance(seconds=1)
    assert look("12:02") == 1 + 2 * 2
    world.advance(seconds=1)
    assert look("12:03") == 1 + 2 * 2


def test_a_look_ends_when_a_place_is_found(world: World) -> None:
    a, look = wide(world)
    look("12:02")
    world.tick_and_work("13:02:03")  # both sequences end
    assert look("12:02") < 2 * 2 * 30
    assert look("12:03") < 2 * 2 * 30
    assert [first[9:13] for first in sorted(world.joins.begun_sequences(a.key))] == ["1202", "1203"]


def test_a_run_that_was_left_and_lost_its_link_is_not_awaited(world: World) -> None:
    a, look = wide(world)
    look("12:02")
    (slow,) = (job for job in world.jobs.items.values() if job.key.job_id == "slow")
    world.advance(seconds=1)
    world.change(slow, after=[{"job": "c0"}])
    world.advance(minutes=16)

    look("12:02")
    look("12:03")

    assert [first[9:13] for first in sorted(world.joins.begun_sequences(a.key))] == ["1202", "1203"]


def test_of_children_that_run_the_last_one_is_read_first(world: World) -> None:
    a = root(world, maxRuns=1)
    last = [world.register(f"c{number}", **after("a")) for number in range(9)][-1]
    world.tick_at("12:00")
    for _ in range(5):
        world.worker().work_one()
    limit = LimitParallel(world.jobs, world.runs, world.joins)

    key = a.run_key(at("12:01"))
    assert limit.hold(world.job(a.key), key, world.now) is not None

    ((child, _),) = limit.left.values()
    assert child.key == last.key


def test_a_place_that_another_run_takes_first_is_waited_for(world: World) -> None:
    a = root(world)
    world.tick_and_work("12:00")
    key, other = (a.run_key(at(time)) for time in ("12:02", "12:01"))
    through = world.faults.through
    limit = LimitParallel(world.jobs, world.runs, through(world.joins, "joins"))

    def overtake() -> None:
        world.faults.call_before_next(
            "joins.begin_sequence", lambda: world.joins.begin_sequence(other, 1, world.now)
        )

    world.faults.call_before_next("joins.end_sequences", overtake)

    assert limit.hold(a, key, world.now) is not None
    assert world.joins.begun_sequences(a.key) == [other.run_id]


def test_a_first_run_that_waits_for_its_retry_keeps_its_place(world: World) -> None:
    a = root(world, retryPolicy={"maxAttempts": 2, "initialDelayMs": 600_000})
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    world.tick_and_work("12:01")

    assert world.state(a, "12:01") is None


def test_a_run_with_a_short_and_a_long_way_to_it_is_read_once(world: World) -> None:
    a = root(world)
    world.register("b", **after("a"))
    world.register("c", **after("a", "b"))
    world.tick_and_work("12:00")
    runs = world.faults.through(world.runs, "runs")
    limit = LimitParallel(world.jobs, runs, world.joins)
    world.faults.calls.clear()

    key = a.run_key(at("12:01"))
    assert limit.hold(world.job(a.key), key, world.now) is None

    assert world.faults.calls.count("runs.get") == 1 + 3, "it, and the runs of a, b and c"


def test_a_run_looks_after_different_intervals(world: World) -> None:
    """Otherwise, of the runs that wait together, some would always look later than others."""
    a, limit = occupied(world)
    key = a.run_key(at("13:00"))

    holds = [limit.hold(a, key, world.now, dispatch=dispatch) for dispatch in range(101, 111)]

    assert len({hold.until for hold in holds if hold is not None}) > 5
