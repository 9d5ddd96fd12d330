"""`maxParallel` while jobs change, and what it costs."""

from __future__ import annotations

import pytest

from tests.unit.test_max_parallel import SUCCEEDED, root, started, state, work
from tests.unit.test_sequences import after
from tests.world import World


@pytest.fixture
def world() -> World:
    return started()


def test_a_child_that_got_its_edge_later_is_awaited_for_a_short_time(world: World) -> None:
    """It was not handed over to it, so it has no run."""
    a = root(world)
    world.register("x", type="MANUAL", schedule=None)
    b = world.register("b", **after("x"))
    work(world, "12:00")
    world.at("12:00:30")
    world.change(b, after=[{"job": "x"}, {"job": "a"}])
    work(world, "12:01")
    assert state(world, a, "12:01") is None
    work(world, "12:15:31")

    assert state(world, a, "12:01") is SUCCEEDED


def test_a_join_that_has_begun_is_awaited_although_its_job_was_changed(world: World) -> None:
    a = root(world)
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x"))
    work(world, "12:00")
    world.at("12:00:30")
    world.change(d, priority="HIGH")
    work(world, "12:01")
    work(world, "12:15:31")

    assert state(world, a, "12:01") is None
