"""A job owns what was due under its earlier versions, until that is sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.errors import ConflictError
from nextfire.domain.instants import isoformat
from nextfire.domain.job import MAX_REPLACED
from nextfire.domain.run import RunState
from nextfire.domain.schedule import MAX_DATES
from nextfire.usecases.dispatch.gates import Shares
from tests.accounting import assert_all_accounted_for, ran, settle
from tests.builders import at
from tests.unit.managing import EVERY_MINUTE, RUN_ALL, states
from tests.world import World


def test_no_number_of_changes_loses_what_is_due_while_the_watcher_is_behind(world: World) -> None:
    job = world.register(**EVERY_MINUTE)
    world.tick()
    for n in range(2 * MAX_REPLACED):
        world.at(f"12:{2 * n:02d}:30")
        world.change(job, schedule="*/1 * * * *" if n % 2 == 0 else "* * * * *")
    world.at("12:31")

    settle(world)

    assert ran(world, job) == [f"12:{minute:02d}" for minute in range(32)]
    assert_all_accounted_for(world, job)


def test_versions_without_unsent_occurrences_are_dropped(world: World) -> None:
    job = world.register(**EVERY_MINUTE)
    for minute in range(2 * MAX_REPLACED):
        world.tick_at(f"12:{minute:02d}:30")
        world.change(job, schedule="*/1 * * * *" if minute % 2 == 0 else "* * * * *")

    assert len(world.job(job.key).replaced) == MAX_REPLACED


def test_a_version_that_waits_for_room_is_not_forgotten(world: World) -> None:
    """The cursor is past its entry, which moved to a later bucket; the version is still needed."""
    world.shares = Shares(backlogs={"default": 0})
    world.new_watcher()
    job = world.register(**EVERY_MINUTE)
    for minute in range(2 * MAX_REPLACED):
        world.tick_at(f"12:{minute:02d}:30")
        world.change(job, schedule="*/1 * * * *" if minute % 2 == 0 else "* * * * *")
    assert len(world.job(job.key).replaced) == 2 * MAX_REPLACED

    world.shares = Shares()
    world.new_watcher()
    settle(world)

    assert_all_accounted_for(world, job)
    world.change(job, schedule="0 * * * *")
    assert len(world.job(job.key).replaced) == MAX_REPLACED, "the versions above the limit"


def test_a_version_with_jitter_is_not_forgotten_before_all_is_due(world: World) -> None:
    job = world.register(type="CRON", schedule="0 * * * *", jitterSec=1800, **RUN_ALL)
    assert job.due_at(at("12:00")) > at("12:02")
    world.at("12:00:30")
    for n in range(MAX_REPLACED + 1):
        world.tick_at(f"12:00:{30 + n}")
        world.change(job, schedule=f"{n + 30} * * * *")

    assert len(world.job(job.key).replaced) == MAX_REPLACED + 1
    world.clock.move_to(job.due_at(at("12:00")))
    settle(world)
    assert "12:00" in ran(world, job)


def many_dates(n: int) -> list[str]:
    return [isoformat(at("13:00") + timedelta(seconds=n + each)) for each in range(MAX_DATES)]


def test_a_job_with_no_room_left_for_its_past_can_be_deleted_but_not_changed(
    world: World,
) -> None:
    job = world.register(**EVERY_MINUTE)
    world.at("12:01")
    world.change(job, type="DATES", schedule=many_dates(0))
    n = 0
    with pytest.raises(ConflictError) as refused:  # noqa: PT012 — any of the changes may fail
        for n in range(1, 1_000):
            world.change(job, schedule=many_dates(n))

    assert n > 1
    assert "not dispatched yet" in refused.value.problem
    assert "Try again in a moment" in refused.value.remedy
    assert world.job(job.key).definition.schedule == tuple(many_dates(n - 1))
    with pytest.raises(ConflictError):
        world.pause(job)
    world.delete(job)
    settle(world)
    assert states(world, job.uid) == dict.fromkeys(["12:00", "12:01"], RunState.CANCELLED)
