"""Parents with as many children as a job may have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import MAX_CHILDREN, Job
from nextfire.domain.run import RunState
from tests.builders import a_job
from tests.unit.sequencing import after, states
from tests.world import World

BEGINNING = "11:58:30"


def parent(world: World, *children: str) -> Job:
    job = world.register("a")
    job = replace(world.job(job.key), children=children)
    world.jobs.items[job.key] = job
    return job


def living(world: World, number: int) -> list[str]:
    jobs = [a_job(f"living-{each}", **after("a")) for each in range(number)]
    world.jobs.items |= {job.key: job for job in jobs}
    return [job.key.job_id for job in jobs]


def test_a_child_that_is_not_stored_yet_is_not_taken_for_a_deleted_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are created at the same time. The first one is a child of its parent, and not stored yet,
    when the second one makes room.
    """
    job = parent(world, *(f"gone-{number}" for number in range(MAX_CHILDREN - 1)))
    create, others = world.jobs.create, ["c"]

    def slow(new: Job, *given: Any, **named: Any) -> Job | None:
        if others:
            world.register(others.pop(), **after("a"))
        return create(new, *given, **named)

    monkeypatch.setattr(world.jobs, "create", slow)
    world.register("b", **after("a"))
    for time in ("12:00", "12:00:01"):  # the watcher sends the runs of many children
        world.tick_and_work(time)

    assert {"b", "c"} <= {*world.job(job.key).children}
    children = [world.job(job.key._replace(job_id=name)) for name in "bc"]
    assert states(world, *children) == [RunState.SUCCEEDED] * 2


def test_deleted_children_make_room(world: World) -> None:
    job = parent(world, *living(world, MAX_CHILDREN - 1), "gone")

    world.register("b", **after("a"))

    assert world.job(job.key).children[-2:] == (f"living-{MAX_CHILDREN - 2}", "b")


def test_a_parent_has_a_limited_number_of_children(world: World) -> None:
    parent(world, *living(world, MAX_CHILDREN))

    with pytest.raises(InvalidInputError, match="already has 1,000 children"):
        world.register("b", **after("a"))


def test_children_that_are_created_together_do_not_race_for_their_parent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that read it at the same time, one would have to read it again."""
    job = parent(world)
    get, meet, together = world.jobs.get, Barrier(2), []

    def read(key: JobKey) -> Job | None:
        found = get(key)
        with suppress(BrokenBarrierError):
            meet.wait(timeout=0.2)
            together.append(key)
        return found

    monkeypatch.setattr(world.jobs, "get", read)
    with ThreadPoolExecutor(2) as executor:
        made = [*executor.map(lambda name: world.register(name, **after("a")), "bc")]

    assert [each.key.job_id for each in made] == ["b", "c"]
    assert {*world.job(job.key).children} == {"b", "c"}
    assert together == []
