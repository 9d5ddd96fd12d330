"""Jobs that run after others, and the states of their runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.world import World

ONE_ATTEMPT: dict[str, Any] = {"retryPolicy": {"maxAttempts": 1}}


def after(*parents: str, **fields: Any) -> dict[str, Any]:
    edges = [{"job": parent} for parent in parents]
    return {"type": "AFTER", "schedule": None, "after": edges} | fields


def chain(world: World, *names: str, **fields: Any) -> list[Job]:
    """Jobs, each after the one before; the first is hourly."""
    jobs = [world.register(names[0], **fields)]
    for parent, name in pairwise(names):
        jobs.append(world.register(name, **after(parent), **fields))
    return jobs


def diamond(world: World, **fields: Any) -> list[Job]:
    a = world.register("a")
    b, c = (world.register(name, **after("a")) for name in "bc")
    return [a, b, c, world.register("d", **after("b", "c"), **fields)]


def states(world: World, *jobs: Job) -> list[RunState]:
    return [world.run(job, "12:00").state for job in jobs]
