"""`maxParallel`: how many sequences of a job are under way at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.ids import RunKey, run_id, unsent_dispatch
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.run import Run, RunState
from nextfire.usecases.find_run import PendingOccurrence
from nextfire.usecases.limit_parallel import LimitParallel
from nextfire.usecases.manage_backfills import BackfillRange
from tests.builders import at
from tests.unit.sequencing import ONE_ATTEMPT, after
from tests.world import World, started

BEGINNING = "11:58:30"

SUCCEEDED = RunState.SUCCEEDED
MINUTELY: dict[str, Any] = {"schedule": "* * * * *", "startAt": "2026-05-24T12:00:00Z"}


def root(world: World, most: int = 1, **fields: Any) -> Job:
    return world.register("a", maxParallel=most, **MINUTELY | ONE_ATTEMPT | fields)


def held_until(world: World) -> list[tuple[str, str, int]]:
    return [
        (each.run_id[9:13], f"{each.at:%H:%M:%S}", each.dispatch)
        for each in world.entries
        if isinstance(each, DispatchEntry) and each.job.job_id == "a"
    ]


def test_a_sequence_waits_until_the_one_before_has_ended(world: World) -> None:
    a = root(world)
    b = world.register("b", **after() | {"after": [{"job": "a", "delaySec": 90}]})
    world.tick_and_work("12:00")
    world.tick_and_work("12:01")  # b of 12:00 waits for its delay
    assert (world.state(a, "12:00"), world.state(a, "12:01")) == (SUCCEEDED, None)
    assert held_until(world) == [("1201", "12:01:05", 2)]

    world.tick_and_work("12:01:06")
    assert held_until(world) == [("1201", "12:01:12", 3)]
    world.tick_and_work("12:01:30")  # b starts
    world.tick_and_work("12:01:37")

    assert world.state(b, "12:00") is SUCCEEDED
    assert world.state(a, "12:01") is SUCCEEDED


def test_runs_are_named_that_are_waited_for(world: World) -> None:
    root(world)
    world.register("b", **after() | {"after": [{"job": "a", "delaySec": 3_600}]})
    world.tick_and_work("12:00")
    world.tick_at("12:01")

    handled = world.worker().work_one()

    assert handled.reason.startswith("deferred until 2026-05-24T12:01:05.")
    assert handled.reason.endswith(": maxParallel is 1; under way: 2026-05-24T12:00:00Z")


def test_several_may_be_under_way(world: World) -> None:
    a = root(world, 2)
    world.register("b", **after() | {"after": [{"job": "a", "delaySec": 3_600}]})
    for time in ("12:00", "12:01", "12:02"):
        world.tick_and_work(time)

    found = [world.state(a, time) for time in ("12:00", "12:01", "12:02")]
    assert found == [SUCCEEDED, SUCCEEDED, None]


def test_a_job_without_children_limits_its_own_runs(world: World) -> None:
    a = root(world)
    world.tick_and_work("12:00")
    world.tick_and_work("12:01")

    assert [world.state(a, time) for time in ("12:00", "12:01")] == [SUCCEEDED] * 2
    assert held_until(world) == []


def test_jobs_without_a_limit_cost_nothing(world: World) -> None:
    world.register("a")
    world.register("b", **after("a"))
    world.faults.refuse("joins.begin_sequence")
    world.tick_and_work("12:00")

    assert world.sent == ["a 12:00", "b 12:00"]


def test_a_join_is_under_way_until_its_timeout(world: World) -> None:
    a = root(world)
    world.register("other", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "other", joinTimeoutSec=70))
    world.tick_and_work("12:00")
    world.tick_and_work("12:01")
    assert world.state(a, "12:01") is None
    world.tick_and_work("12:01:10")  # the join ends
    world.tick_and_work("12:01:17")

    assert (world.state(d, "12:00"), world.state(a, "12:01")) == (RunState.SKIPPED, SUCCEEDED)


def test_a_child_that_was_created_later_is_not_awaited(world: World) -> None:
    a = root(world)
    world.tick_and_work("12:00")
    world.advance(seconds=1)
    world.register("b", **after("a"))
    world.tick_and_work("12:01")

    assert world.state(a, "12:01") is SUCCEEDED


def test_a_child_that_never_gets_a_run_is_awaited_for_its_join_timeout(world: World) -> None:
    a = root(world)
    b = world.register("b", **after("a", joinTimeoutSec=100))
    world.tick_and_work("12:00")
    for key in [key for key in world.runs.all if key.job == b.key]:
        world.runs.forget(key)
    world.tick_and_work("12:01")
    assert world.state(a, "12:01") is None
    world.tick_and_work("12:01:40")

    assert world.state(a, "12:01") is SUCCEEDED


def test_a_deleted_link_and_a_job_created_again_hold_nothing_up(world: World) -> None:
    a = root(world)
    b = world.register("b", **after() | {"after": [{"job": "a", "delaySec": 3_600}]})
    world.tick_and_work("12:00")
    world.delete(b)
    world.tick_and_work("12:01")
    assert world.state(a, "12:01") is SUCCEEDED

    other = replace(a, uid="uid99999").key, run_id("uid99999", at("11:00"))
    assert world.joins.begin_sequence(RunKey(*other), 9, world.now)
    world.tick_and_work("12:02")
    assert world.state(a, "12:02") is SUCCEEDED


def test_a_run_that_does_not_decode_keeps_the_place_of_its_sequence_only(world: World) -> None:
    a = root(world, most=2)
    world.tick_and_work("12:00")
    world.tick_and_work("12:01")
    world.runs.spoil(a.run_key(at("12:00")))
    world.tick_and_work("12:02")

    assert world.state(a, "12:02") is SUCCEEDED


def test_a_run_that_waits_and_is_cancelled_ends(world: World) -> None:
    a = root(world)
    world.register("b", **after() | {"after": [{"job": "a", "delaySec": 3_600}]})
    world.tick_and_work("12:00")
    world.tick_and_work("12:01")
    key = a.run_key(at("12:01"))

    world.manage_runs.cancel(key, "enough")
    world.tick_and_work("12:01:06")

    assert world.state(a, "12:01") is RunState.CANCELLED
    assert not [each for each in held_until(world) if each[0] == "1201"]


def test_a_redelivered_message_of_a_run_that_has_ended_does_not_wait(world: World) -> None:
    a = root(world)
    world.tick_and_work("12:00")
    first, second = (a.run_key(at(time)) for time in ("12:00", "12:01"))
    world.joins.end_sequences(a.key, [first.run_id])
    world.joins.begin_sequence(second, 1, world.now)
    limit = LimitParallel(world.jobs, world.runs, world.joins)

    assert limit.hold(a, first, world.now) is None
    third = a.run_key(at("12:02"))
    held = limit.hold(a, third, world.now)
    assert held is not None
    assert held.reason == "maxParallel is 1; under way: 2026-05-24T12:01:00Z"


def test_an_older_dispatch_of_a_run_that_waits_is_acknowledged(world: World) -> None:
    a = root(world)
    world.register("b", **after() | {"after": [{"job": "a", "delaySec": 3_600}]})
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    world.tick_and_work("12:01")
    key = a.run_key(at("12:00"))
    dispatch = world.manage_runs.redrive(key, "fixed").dispatch
    older = RunMessage.of(key, dispatch - 1, world.now)
    world.queue.send([("default", older)])

    handled = world.worker().work()

    assert [each.reason for each in handled] == [
        f"dispatch {dispatch - 1} is older than {dispatch}"
    ]
    assert world.state(a, "12:00") is RunState.PENDING


def test_a_backfill_runs_a_few_sequences_at_a_time(world: World) -> None:
    a = world.register("a", maxParallel=2)  # hourly
    b = world.register("b", **after() | {"after": [{"job": "a", "delaySec": 20}]})
    asked = BackfillRange(at("03:00"), at("08:00"), at_most=5)
    world.backfills.begin(a.key, asked, backfill_id="b", asked_at=world.now, now=world.now)
    most = 0
    for _ in range(60):
        world.advance_and_work(seconds=5)
        begun = [run.key.scheduled_at for run in world.runs.all.values() if run.attempts]
        ended = {run.key.scheduled_at for key, run in world.runs.all.items() if key.job == b.key}
        most = max(most, len({*begun} - ended))

    done = [world.state(b, f"0{hour}:00") for hour in range(3, 8)]
    assert (done, most) == ([SUCCEEDED] * 5, 2)


def test_an_executor_that_dies_anywhere_loses_no_run() -> None:
    for calls in range(100):
        world = started(BEGINNING)
        a = root(world, retryPolicy={"maxAttempts": 3})
        b = world.register("b", **after("a"))
        world.tick_and_work("12:00")
        world.tick_at("12:01")
        if not world.dies(calls, world.worker().work):
            assert calls > 5
            return
        for time in ("12:03", "12:04", "12:05", "12:06", "12:07", "12:08"):
            world.tick_and_work(time)
        for job in (a, b):
            assert world.state(job, "12:01") is SUCCEEDED, calls
        assert world.state(b, "12:05") is SUCCEEDED, calls
    raise AssertionError("the worker never finished")


def test_a_job_with_parents_has_no_limit(world: World) -> None:
    world.register("a")
    with pytest.raises(ValueError, match="maxParallel is for the first job"):
        world.register("b", **after("a"), maxParallel=1)


def occupied(world: World, most: int = 1) -> tuple[Job, LimitParallel]:
    """A job whose run of 12:00 took a place; its executor died before the claim."""
    a = root(world, most)
    world.advance(minutes=1)
    assert world.joins.begin_sequence(a.run_key(at("12:00")), most, world.now)
    return a, LimitParallel(world.jobs, world.runs, world.joins)


def test_a_place_without_a_record_is_kept_as_long_as_it_can_be_claimed(world: World) -> None:
    a, limit = occupied(world)
    second = a.run_key(at("12:01"))
    assert limit.hold(a, second, at("12:01:00")) is not None


def test_a_place_whose_run_was_covered_by_a_range_is_given_back(world: World) -> None:
    a, limit = occupied(world)
    covering = a.run_key(at("11:59"))
    world.runs.skip(Run.skipped(covering, "late", at("12:10"), covered_to=at("12:05"), covered=7))
    later = a.run_key(at("12:06"))
    assert limit.hold(a, later, at("12:10")) is None
    assert world.joins.begun_sequences(a.key) == [later.run_id]


def test_a_place_whose_record_has_expired_is_given_back(world: World) -> None:
    a, limit = occupied(world)
    later = a.run_key(at("12:06"))
    assert limit.hold(a, later, at("12:00") + timedelta(days=90)) is None


def test_runs_that_wait_for_long_look_more_seldom_and_not_together(world: World) -> None:
    """For long since their start, or since their last redrive."""
    a, limit = occupied(world)

    def looks_in(minute: int, dispatch: int) -> float:
        key = a.run_key(at(f"13:{minute:02}"))
        hold = limit.hold(a, key, world.now, dispatch=dispatch)
        assert hold is not None
        return (hold.until - world.now).total_seconds()

    redriven = unsent_dispatch(1)
    for dispatch, least in ((1, 5), (10, 11), (30, 30), (9_999, 30), (redriven, 5)):
        found = {looks_in(minute, dispatch) for minute in range(20)}
        assert least <= min(found)
        assert max(found) < least * 1.3
        assert len(found) > 15


def requested(world: World, job: Job) -> Run:
    return world.request_runs.run_now(
        job.key, payload=None, reason=None, request="r", asked_at=world.now
    )


def test_a_run_on_request_that_waits_says_for_what(world: World) -> None:
    a, _ = occupied(world)
    run = requested(world, a)
    reason = "waits for a place: maxParallel is 1; under way: 2026-05-24T12:00:00Z"
    assert world.find_run.explain(run).reason == reason

    world.at("12:01:30")
    pending = world.find_run.find(a.run_key(at("12:01")))
    assert isinstance(pending, PendingOccurrence)
    assert pending.reason == reason


def test_a_run_that_has_a_place_or_needs_none_says_what_it_said(world: World) -> None:
    a, _ = occupied(world, most=2)
    run = requested(world, a)
    assert world.find_run.explain(run) is run
    world.joins.begin_sequence(run.key, 2, world.now)
    assert world.find_run.explain(run) is run
    other = world.register("other")
    run = requested(world, other)
    assert world.find_run.explain(run).reason == "run on request"
