"""Many backfills that continue, and many pauses that end, at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

from nextfire.domain.occurrences import JobState
from tests.builders import MINUTELY, at
from tests.unit.backfilling import backfilled, begin
from tests.world import World

READ = timedelta(milliseconds=10)


def slow(world: World) -> None:
    """Let each read of a record take some time."""
    world.faults.call_before_each("runs.get", lambda: world.clock.advance(seconds=0.01))


def test_each_of_many_backfills_starts_though_the_runs_of_others_take_long(world: World) -> None:
    jobs = [world.register(f"job-{n:02d}", **MINUTELY) for n in range(20)]
    for job in jobs:
        begin(world, job, "11:00", "11:10")
    slow(world)

    for _ in range(60):
        world.tick()
        world.advance(seconds=5)

    assert [len(backfilled(world, job)) for job in jobs] == [10] * 20


def test_a_run_that_is_due_does_not_wait_for_backfills(world: World) -> None:
    jobs = [world.register(f"job-{n:02d}", **MINUTELY) for n in range(20)]
    for job in jobs:
        begin(world, job, "11:00", "11:10")
    world.register("report", schedule="0 12 * * *")
    slow(world)

    report = world.tick_at("12:00")

    [sent] = [each for each in report.dispatched if each.run.job.job_id == "report"]
    assert sent.lateness < timedelta(milliseconds=100)


def test_a_run_that_is_due_does_not_wait_for_the_ends_of_pauses(world: World) -> None:
    for number in range(20):
        job = world.register(f"job-{number:02d}")
        world.manage.pause(job.key, None, until=at("12:00"), now=world.now)
    world.register("report", schedule="0 12 * * *")
    world.faults.call_before_each("jobs.update", lambda: world.clock.advance(seconds=0.01))

    report = world.tick_at("12:00")

    [sent] = [each for each in report.dispatched if each.run.job.job_id == "report"]
    assert sent.lateness < timedelta(milliseconds=100)


def test_pauses_that_end_together_end_concurrently() -> None:
    """Of thousands of jobs that were paused until the same instant, each takes a transaction."""
    at_once = 4
    with ThreadPoolExecutor(at_once) as executor:
        world = World("11:59", executor=executor)
        world.tick()
        jobs = [world.register(f"job-{number}") for number in range(at_once)]
        for job in jobs:
            world.manage.pause(job.key, None, until=at("12:00"), now=world.now)
        together = Barrier(at_once, timeout=5)
        world.faults.call_before_each("jobs.update", together.wait)

        world.tick_at("12:00")

    assert {world.job(job.key).state for job in jobs} == {JobState.ACTIVE}
