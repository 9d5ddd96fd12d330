"""Overlapping runs of one job under each overlap policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.accounting import assert_all_accounted_for, settle
from tests.builders import MINUTELY, at
from tests.unit.overlapping import EXCLUSIVE, RAN, REPLACED, SKIPPED, end_of, recreated
from tests.world import World

BEGINNING = "11:59:30"


def run_past_the_next(world: World) -> None:
    """Run 12:00 until 12:01:30, with a tick at 12:01."""
    delivery = world.worker("a").receive()
    assert delivery is not None
    world.script(lasts=timedelta(seconds=90))
    advance = world.clock.advance
    ticked: list[bool] = []

    def watched(*args: Any, **units: float) -> Any:
        now = advance(*args, **units)
        if world.now >= at("12:01:00") and not ticked:
            ticked.append(True)
            world.tick()
        return now

    world.clock.advance = watched  # type: ignore[method-assign]
    try:
        world.worker("a").handle(delivery)
    finally:
        world.clock.advance = advance  # type: ignore[method-assign]
    assert ticked


BEGUN = pytest.mark.parametrize(
    ("overlap", "first", "second"),
    [
        ("ALLOW", RAN, RAN),
        ("QUEUE", RAN, RAN),
        ("SKIP", RAN, SKIPPED),
        ("REPLACE", REPLACED, RAN),
    ],
)
"""What becomes of a predecessor that has begun, and of its successor."""


@pytest.mark.parametrize(
    ("overlap", "first", "second"),
    [
        ("ALLOW", RAN, RAN),
        ("QUEUE", RAN, RAN),
        ("SKIP", RAN, SKIPPED),
        ("REPLACE", SKIPPED, RAN),
    ],
)
def test_the_predecessor_is_queued(world: World, overlap: str, first: str, second: str) -> None:
    job = world.register(**MINUTELY, overlap=overlap, endAt="2026-05-24T12:01:00Z")
    world.tick_at("12:00")
    world.tick_at("12:01")
    assert world.queued == ["report 12:00", "report 12:01"]
    world.advance(seconds=1)

    world.worker().work()

    assert end_of(world, job, "12:00")[0] == first
    assert end_of(world, job, "12:01")[0] == second
    assert_all_accounted_for(world, job)


@BEGUN
def test_the_predecessor_is_running(world: World, overlap: str, first: str, second: str) -> None:
    job = world.register(**MINUTELY, overlap=overlap, endAt="2026-05-24T12:01:00Z")
    world.tick_at("12:00")
    run_past_the_next(world)
    ended_at = world.now
    world.worker().work()

    assert end_of(world, job, "12:00")[0] == first
    assert end_of(world, job, "12:01")[0] == second
    if overlap == "REPLACE":
        assert ended_at < at("12:01:30"), "the run stops at its next heartbeat"
        reason = "overlap policy REPLACE: replaced by the occurrence at 2026-05-24T12:01:00Z"
        assert end_of(world, job, "12:00")[1] == reason
    assert_all_accounted_for(world, job)


@BEGUN
def test_the_predecessor_waits_for_its_retry(
    world: World, overlap: str, first: str, second: str
) -> None:
    retry = {"maxAttempts": 3, "initialDelayMs": 300_000}
    job = world.register(
        **MINUTELY, overlap=overlap, retryPolicy=retry, endAt="2026-05-24T12:01:00Z"
    )
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.tick_at("12:01")

    world.worker().work()
    assert end_of(world, job, "12:01")[0] == second, "it does not wait for the retry"
    settle(world)

    assert end_of(world, job, "12:00")[0] == first
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("overlap", ["ALLOW", *EXCLUSIVE])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_predecessor_has_ended(world: World, overlap: str, exit_code: int) -> None:
    job = world.register(
        **MINUTELY,
        overlap=overlap,
        retryPolicy={"maxAttempts": 1},
        endAt="2026-05-24T12:01:00Z",
    )
    world.tick_at("12:00")
    world.script(exit_code=exit_code)
    world.worker().work_one()
    world.tick_at("12:01")

    world.worker().work()

    assert end_of(world, job, "12:00")[0] == ("DEAD" if exit_code else RAN)
    assert end_of(world, job, "12:01")[0] == RAN
    assert_all_accounted_for(world, job)


# Mutual exclusion


@pytest.mark.parametrize("overlap", EXCLUSIVE)
def test_no_two_run_at_once(world: World, overlap: str) -> None:
    world.register(**MINUTELY, overlap=overlap)
    world.tick_at("12:00")
    delivery = world.worker("a").receive()
    assert delivery is not None
    world.tick_at("12:00:59")
    delivery.hide(timedelta(seconds=60))
    world.tick_at("12:01")

    assert world.queued == ["report 12:00", "report 12:01"]
    assert world.worker("b").receive() is None

    delivery.acknowledge()
    assert world.worker("b").receive() is not None


def test_records_of_a_former_job_do_not_hide_a_running_run(world: World) -> None:
    job = recreated(world, "SKIP", skipped="12:00:30")
    world.tick_at("12:00")

    run_past_the_next(world)
    world.worker("b").work()

    assert end_of(world, job, "12:01")[0] == SKIPPED
