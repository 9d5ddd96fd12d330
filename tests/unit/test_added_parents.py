"""Edges that were added after the run of their parent had ended: its record counts."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from nextfire.dataclass import replace
from nextfire.domain.job import Job
from tests.unit.redriving import DEAD, FOLLOW, SKIPPED, SUCCEEDED, redrive, work
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.world import World


def run_roots(world: World, *dead: str) -> None:
    """Run what is due at 12:00. The runs of the jobs *dead* fail, and what starts after them."""
    world.tick_at("12:00")
    for message in [*world.queue.log]:
        world.script(exit_code=int(message.job_id in dead))
    world.script(exit_code=1)
    world.worker().work()
    world.runner.scripts.clear()


def dead_and_succeeded(world: World) -> list[Job]:
    return [world.register(name, **ONE_ATTEMPT) for name in ("dead", "done")]


def add_parent(world: World, child: Job, *parents: str, **fields: str) -> None:
    world.advance(seconds=30)
    world.change(child, after=[{"job": parent} for parent in parents], **fields)


def test_a_run_that_follows_counts_a_parent_that_was_added_after_its_end(world: World) -> None:
    dead, done = dead_and_succeeded(world)
    cleanup = world.register("cleanup", **after("dead", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    run_roots(world, "dead")
    assert states(world, dead, done, cleanup) == [DEAD, SUCCEEDED, DEAD]
    add_parent(world, cleanup, "dead", "done")

    assert redrive(world, dead, "dead", downstream=True)["cleanup"][0] is FOLLOW
    work(world)

    assert states(world, dead, done, cleanup) == [SUCCEEDED] * 3


def test_a_skipped_run_counts_it_when_another_parent_is_redriven(world: World) -> None:
    dead, done = dead_and_succeeded(world)
    child = world.register("child", **after("dead"))
    run_roots(world, "dead")
    add_parent(world, child, "dead", "done", triggerRule="ANY_SUCCEEDED")

    world.script(exit_code=1)
    redrive(world, dead, "dead")
    work(world)

    assert states(world, dead, done, child) == [DEAD, SUCCEEDED, SUCCEEDED]


def test_a_skipped_run_counts_it_when_a_parent_that_follows_a_redriven_one_ends(
    world: World,
) -> None:
    dead, done = dead_and_succeeded(world)
    middle = world.register("middle", **after("dead"))
    child = world.register("child", **after("middle"))
    run_roots(world, "dead")
    assert states(world, middle, child) == [SKIPPED] * 2
    add_parent(world, child, "middle", "done")

    redrive(world, dead, "dead")
    work(world)

    assert states(world, dead, done, middle, child) == [SUCCEEDED] * 4


def test_a_skipped_run_counts_it_when_another_parent_ends_for_the_first_time(world: World) -> None:
    """The child was after the dead job only, which left no mark: it had no join."""
    dead, done = dead_and_succeeded(world)
    edges = {"after": [{"job": "done", "delaySec": 60}]}
    late = world.register("late", **after() | edges)
    child = world.register("child", **after("dead"))
    run_roots(world, "dead")
    add_parent(world, child, "dead", "late", triggerRule="ALL_DONE")
    assert states(world, dead, child) == [DEAD, SKIPPED]

    work(world)
    work(world)

    assert states(world, dead, done, late, child) == [DEAD] + [SUCCEEDED] * 3


def test_the_delay_of_an_added_edge_counts_from_the_end_of_its_parent(world: World) -> None:
    dead, done = dead_and_succeeded(world)
    child = world.register("child", **after("dead"))
    run_roots(world, "dead")
    late = replace(world.run(done, "12:00"), finished_at=world.now + timedelta(seconds=20))
    world.runs.items[late.key] = late
    world.advance(seconds=30)
    world.change(child, after=[{"job": "dead"}, {"job": "done", "delaySec": 100}])

    redrive(world, dead, "dead")
    work(world)
    work(world, seconds=41)

    assert world.run(child, "12:00").attempts == ()
    work(world, seconds=20)
    assert states(world, child) == [SUCCEEDED]


def test_a_parent_that_was_added_and_has_not_ended_is_awaited(world: World) -> None:
    dead, _ = dead_and_succeeded(world)
    child = world.register("child", **after("dead"))
    running = world.register("running", **ONE_ATTEMPT)
    run_roots(world, "dead", "running")
    add_parent(world, child, "dead", "running")
    world.manage_runs.redrive(world.run(running, "12:00").key, None)

    redrive(world, dead, "dead")
    world.advance(seconds=2)
    world.tick()
    for _ in range(2):
        world.worker().work_one()
        ended = [job for job in (dead, running) if world.run(job, "12:00").state is SUCCEEDED]
        assert (states(world, child) == [SKIPPED]) is (len(ended) == 1)

    work(world)
    assert states(world, dead, running, child) == [SUCCEEDED] * 3


def test_a_run_without_a_record_counts_it_when_its_join_ends(world: World) -> None:
    _, done = dead_and_succeeded(world)
    late = world.register("late", **after() | {"after": [{"job": "done", "delaySec": 60}]})
    child = world.register("child", **after("done", "late", joinTimeoutSec=100))
    run_roots(world)
    add_parent(world, child, "done", "late", "dead")

    work(world, seconds=40)
    assert world.record(child, "12:00") is None
    work(world, seconds=90)

    assert states(world, done, late, child) == [SUCCEEDED] * 3


def test_a_join_whose_job_has_not_changed_since_reads_no_more(world: World) -> None:
    for name in "abc":
        world.register(name)
    world.register("child", **after("a", "b", "c"))
    world.tick_at("12:00")
    world.faults.calls.clear()

    world.worker().work()

    calls = Counter(world.faults.calls)
    assert calls["runs.get"] == 1, "by the last of the three ends"
    assert calls["runs.between"] == 3, "by the child, for upstream"
