"""Runs of one job that overlap: how they end, stop, and lose their workers."""

from __future__ import annotations

import pytest

from nextfire.domain.job import Job
from nextfire.domain.run import Run
from tests.builders import MINUTELY, RUN_LATEST, at
from tests.fakes import Killed, raise_killed
from tests.world import World

EXCLUSIVE = ["QUEUE", "SKIP", "REPLACE"]


def end_of(world: World, job: Job, time: str) -> tuple[str, str]:
    """The state and the reason of the run of *time*."""
    run = world.run(job, time)
    return run.state.value, run.reason or ""


# The truth table: how 12:00 and 12:01 end, by the state of 12:00 at 12:01


RAN, SKIPPED, REPLACED = "SUCCEEDED", "SKIPPED", "CANCELLED"


def recreated(world: World, overlap: str, *, skipped: str) -> Job:
    """Recreate a deleted job under its id. The old one has a SKIPPED record of *skipped*."""
    former = world.register(**MINUTELY)
    world.delete(former)
    key = former.run_key(at(skipped))
    world.runs.items[key] = Run.skipped(key, "skipped on request", world.now)
    return world.register(**MINUTELY, overlap=overlap, misfire=RUN_LATEST)


def lose_the_worker(world: World) -> None:
    """A worker claims the run and dies."""
    delivery = world.worker("lost").receive()
    assert delivery is not None

    world.script(meanwhile=raise_killed)
    with pytest.raises(Killed):
        world.worker("lost").handle(delivery)
