"""Redrive of a sequence from one of its jobs on: what succeeded stays, the rest runs again."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.domain.run import RunState
from nextfire.domain.target import TargetKind
from nextfire.usecases import hand_over
from tests.builders import a_message, at
from tests.unit.calling import HTTP, IN_A_MINUTE, OK, UNAVAILABLE, Calls
from tests.unit.redriving import (
    DEAD,
    FOLLOW,
    KEEP,
    RUN,
    SKIPPED,
    SUCCEEDED,
    cleanup_after_failure,
    failed_middle,
    plan_of,
    redrive,
    run_key,
    work,
)
from tests.unit.sequencing import ONE_ATTEMPT, after, chain, states
from tests.world import World, started

BEGINNING = "11:58:30"


def test_a_dead_link_runs_again_and_what_it_caused_follows(world: World) -> None:
    jobs = failed_middle(world)
    world.advance(seconds=30)

    done = redrive(world, jobs[3], "b")

    assert done == {
        "a": (KEEP, "not below b"),
        "b": (RUN, "DEAD: exit code 1"),
        "c": (FOLLOW, "after b, if ALL_SUCCEEDED allows it"),
        "d": (FOLLOW, "after c, if ALL_SUCCEEDED allows it"),
    }
    work(world)
    assert states(world, *jobs) == [SUCCEEDED] * 4
    assert world.sent.count("a 12:00") == 1
    assert world.run(jobs[1], "12:00").attempt_base == 1


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_run_that_was_deferred_and_skipped_or_cancelled_runs_after_its_window(
    world: World, *, cancelled: bool
) -> None:
    """No attempt of it counted. Its redrive is on purpose, so the relevancy window is over."""
    calls = Calls([UNAVAILABLE])
    world.call_targets[TargetKind.HTTP] = calls
    policies: dict[str, Any] = IN_A_MINUTE
    a = world.register("a", target=HTTP, **policies)
    b = world.register("b", **after("a"))
    world.tick_and_work("12:00")
    if cancelled:
        world.manage_runs.cancel(run_key(a), None)
    for _ in range(5):
        work(world)
    assert world.run(a, "12:00").attempt == 0
    calls.results = [UNAVAILABLE] * len(calls.made) + [UNAVAILABLE, OK]

    assert redrive(world, a, "a")["a"][0] is RUN
    for _ in range(5):
        work(world)

    assert states(world, a, b) == [SUCCEEDED] * 2


def test_a_plan_changes_nothing(world: World) -> None:
    jobs = cleanup_after_failure(world)
    before = dict(world.runs.all)

    plan = world.sequences.plan(world.run(jobs[0], "12:00").key, "b", downstream=True)

    assert plan_of(plan)["b"][0] is RUN
    assert (world.runs.all, world.queued) == (before, [])


def test_a_dead_run_below_stays_unless_downstream_is_asked_for(world: World) -> None:
    a, b, cleanup, report = cleanup_after_failure(world)
    world.advance(seconds=30)

    done = redrive(world, b, "b")

    assert done["cleanup"] == (KEEP, "DEAD: starts again only with downstream")
    assert done["report"] == (KEEP, "none of its parents starts again")
    work(world)
    assert states(world, a, b, cleanup, report) == [SUCCEEDED, SUCCEEDED, DEAD, SKIPPED]


def test_downstream_runs_dead_runs_below_again_after_their_parents(world: World) -> None:
    a, b, cleanup, report = cleanup_after_failure(world)
    world.advance(seconds=30)

    done = redrive(world, b, "b", downstream=True)

    assert [action for action, _ in done.values()] == [KEEP, RUN, FOLLOW, FOLLOW]
    assert world.run(cleanup, "12:00").reason == (
        "redriven from b: starts again after its parents if ALL_DONE allows it"
    )
    work(world)
    assert states(world, a, b, cleanup, report) == [SUCCEEDED] * 4
    again, parent = world.run(cleanup, "12:00"), world.run(b, "12:00")
    assert again.attempts[-1].started_at >= (parent.finished_at or at("13:00"))
    assert (again.attempt, again.tries) == (2, 1)


@pytest.mark.parametrize("together", [100, 1])
def test_a_dead_run_follows_a_run_that_is_skipped_again(
    world: World, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Also if another executor hands the skipped run over, because they are many."""
    a, b = chain(world, "a", "b", **ONE_ATTEMPT)
    c = world.register("c", **after("b"))
    cleanup = world.register("cleanup", **after("c", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    world.script()
    world.script(exit_code=1)
    world.script(exit_code=1, lasts=timedelta(seconds=30))
    world.tick_and_work("12:00")
    assert states(world, a, b, c, cleanup) == [SUCCEEDED, DEAD, SKIPPED, DEAD]
    monkeypatch.setattr(hand_over, "_MAX_SKIPPED", together)
    world.advance(seconds=30)

    done = redrive(world, b, "b", downstream=True)
    world.script(exit_code=1)
    work(world)
    work(world)

    assert done["cleanup"] == (FOLLOW, "after c, if ALL_DONE allows it")
    assert states(world, a, b, c, cleanup) == [SUCCEEDED, DEAD, SKIPPED, SUCCEEDED]
    assert "cleanup 12:00 #10001" in world.sent


def test_a_run_whose_rule_decides_against_it_does_not_say_that_it_starts_again(
    world: World,
) -> None:
    parent = world.register("parent", **ONE_ATTEMPT)
    alarm = world.register("alarm", **after("parent", triggerRule="ANY_FAILED"), **ONE_ATTEMPT)
    world.script(exit_code=1)
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, parent, alarm) == [DEAD, DEAD]
    world.advance(seconds=30)

    assert redrive(world, parent, "parent", downstream=True)["alarm"][0] is FOLLOW
    work(world)

    assert states(world, parent, alarm) == [SUCCEEDED, SKIPPED]
    assert world.run(alarm, "12:00").reason == (
        "redriven from parent: starts again after its parents if ANY_FAILED allows it"
    )


def test_a_link_that_succeeded_stays_and_dead_runs_below_it_start_now(world: World) -> None:
    a, b, c, d = failed_middle(world)
    world.advance(seconds=30)

    assert redrive(world, a, "a")["b"][0] is KEEP
    done = redrive(world, a, "a", downstream=True)

    assert done["a"] == (KEEP, "has succeeded")
    assert [done[name][0] for name in "bcd"] == [RUN, FOLLOW, FOLLOW]
    work(world)
    assert states(world, a, b, c, d) == [SUCCEEDED] * 4


def test_a_link_starts_again_whatever_its_parents_did(world: World) -> None:
    a, b, c, d = failed_middle(world)
    world.advance(seconds=30)

    assert redrive(world, a, "c")["c"][0] is RUN

    work(world)
    assert states(world, a, b, c, d) == [SUCCEEDED, DEAD, SUCCEEDED, SUCCEEDED]


def test_a_cancelled_link_starts_again_only_if_it_is_named(world: World) -> None:
    a, b, c = chain(world, "a", "b", "c")
    world.tick_at("12:00")
    world.worker().work_one()
    world.runs.cancel(a_message(run_key(b)), reason="wrong input", now=world.now)
    world.worker().work()
    assert states(world, a, b, c) == [SUCCEEDED, RunState.CANCELLED, SKIPPED]
    world.advance(seconds=30)

    kept = redrive(world, a, "a", downstream=True)
    assert kept["b"] == (KEEP, "was cancelled: redrive from it to start it again")
    assert redrive(world, a, "b")["b"] == (RUN, "CANCELLED: wrong input")

    work(world)
    assert states(world, a, b, c) == [SUCCEEDED] * 3


def test_a_run_that_was_skipped_at_the_timeout_of_a_join_follows_downstream(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    x = world.register("x", **after() | {"after": [{"job": "a", "delaySec": 600}]})
    b = world.register("b", **after("a"), **ONE_ATTEMPT)
    d = world.register("d", **after("b", "x", joinTimeoutSec=60, triggerRule="ALL_DONE"))
    world.script()
    world.script(exit_code=1)
    for time in ("12:00", "12:11"):
        world.tick_and_work(time)
    assert states(world, a, b, x, d) == [SUCCEEDED, DEAD, SUCCEEDED, SKIPPED]
    assert world.run(d, "12:00").pool is not None

    kept = redrive(world, b, "b")
    assert kept["d"] == (KEEP, "SKIPPED: starts again only with downstream")
    done = redrive(world, b, "b", downstream=True)
    assert done["d"] == (FOLLOW, "after b, if ALL_DONE allows it")

    work(world)
    assert states(world, b, d) == [SUCCEEDED] * 2


def test_what_an_executor_or_a_user_skipped_below_stays(world: World) -> None:
    a, b, c = chain(world, "a", "b", "c", **ONE_ATTEMPT)
    world.change(b, **after("a", misfire={"relevancyWindowSec": 10}, **ONE_ATTEMPT))
    world.script()
    world.tick_at("12:00")
    world.worker().work_one()
    world.advance(seconds=30)
    world.worker().work()
    assert states(world, a, b, c) == [SUCCEEDED, SKIPPED, SKIPPED]

    kept = redrive(world, a, "a", downstream=True)
    assert kept["b"] == (KEEP, "none of its parents starts again")
    assert redrive(world, a, "b")["b"][0] is RUN

    work(world)
    assert states(world, a, b, c) == [SUCCEEDED] * 3


def test_a_redrive_that_is_repeated_starts_nothing_twice(world: World) -> None:
    a, b, c, d = failed_middle(world)
    world.advance(seconds=30)
    asked_at = world.now
    redrive(world, a, "b", downstream=True)

    again = redrive(world, a, "b", downstream=True)
    assert again["b"] == (KEEP, "has not ended: PENDING")
    assert again["c"][0] is FOLLOW
    world.script(exit_code=1)
    work(world)
    assert states(world, a, b, c, d) == [SUCCEEDED, DEAD, SKIPPED, SKIPPED]
    redrive(world, a, "b", asked_at=asked_at)  # the same request, sent again
    work(world)

    assert world.sent.count("b 12:00 #10001") == 1
    assert states(world, a, b, c, d) == [SUCCEEDED, DEAD, SKIPPED, SKIPPED]
    redrive(world, a, "b", asked_at=world.now)
    work(world)
    assert states(world, a, b, c, d) == [SUCCEEDED] * 4


def test_a_run_that_followed_and_died_again_stays_if_the_request_is_repeated(world: World) -> None:
    a, b, cleanup, report = cleanup_after_failure(world)
    world.advance(seconds=30)
    asked_at = world.now
    redrive(world, a, "b", downstream=True)
    for _ in range(2):
        world.script(exit_code=1)
    work(world)
    assert states(world, a, b, cleanup, report) == [SUCCEEDED, DEAD, DEAD, SKIPPED]

    redrive(world, a, "b", downstream=True, asked_at=asked_at)
    work(world)

    assert states(world, a, b, cleanup, report) == [SUCCEEDED, DEAD, DEAD, SKIPPED]
    assert len(world.runner.calls) == 5


def test_a_run_that_follows_starts_although_its_parent_is_cancelled(world: World) -> None:
    """A limit: a cancel of the sequence does not end SKIPPED runs."""
    a, b, cleanup, report = cleanup_after_failure(world)
    world.advance(seconds=30)
    redrive(world, a, "b", downstream=True)

    world.cancel_sequence.cancel(world.run(b, "12:00").key, "stop")
    work(world)

    expected = [SUCCEEDED, RunState.CANCELLED, SUCCEEDED, SUCCEEDED]
    assert states(world, a, b, cleanup, report) == expected


def test_a_redrive_that_dies_anywhere_is_completed_by_a_repetition() -> None:
    for calls in range(100):
        world = started(BEGINNING)
        jobs = cleanup_after_failure(world)
        world.advance(seconds=30)
        killed = world.dies(calls, partial(redrive, world, jobs[0], "b", downstream=True))
        first_died = world.run(jobs[1], "12:00").state is DEAD

        redrive(world, jobs[0], "b", downstream=True)
        work(world)

        assert states(world, *jobs) == [SUCCEEDED] * 4, calls
        assert [world.run(job, "12:00").attempt for job in jobs] == [1, 2, 2, 1], calls
        if not killed:
            assert calls > 5
            assert not first_died
            return
    raise AssertionError("the redrive never finished")


def test_runs_that_follow_await_their_parents_before_the_first_one_starts(world: World) -> None:
    _, b, cleanup, _ = cleanup_after_failure(world)
    world.faults.refuse("runs.redrive")

    with pytest.raises(UnavailableError):
        redrive(world, b, "b", downstream=True)

    assert states(world, b, cleanup) == [DEAD, SKIPPED]


def test_a_request_that_came_before_the_first_attempt_counts_when_it_is_repeated(
    world: World,
) -> None:
    (a,) = chain(world, "a", **ONE_ATTEMPT)
    world.tick_at("12:00")
    asked_at = world.now  # no answer: the API died
    world.script(exit_code=1)
    work(world)
    assert states(world, a) == [DEAD]

    assert redrive(world, a, "a", asked_at=asked_at)["a"][0] is RUN
    work(world)

    assert states(world, a) == [SUCCEEDED]
