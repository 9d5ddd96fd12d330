"""Deadlines of sequences: what has not started by then is skipped, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import nextfire
from nextfire.client.pipelines.document import PipelineError, read
from nextfire.domain.attempt import Attempt, AttemptOutcome, Result
from nextfire.domain.deadlines import late_on_purpose
from nextfire.domain.endings import decide_ending
from nextfire.domain.job import Job
from nextfire.domain.ports.targets import Hold
from nextfire.domain.run import Run, RunState
from nextfire.domain.target import TargetKind
from nextfire.usecases.manage_backfills import BackfillRange
from tests.builders import a_run, at
from tests.dispatched import VANISHES
from tests.unit.calling import FAILED, HTTP, OK, UNAVAILABLE, Calls
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.world import World

BEGINNING = "11:58:30"

DEAD, SKIPPED, SUCCEEDED = RunState.DEAD, RunState.SKIPPED, RunState.SUCCEEDED
HOUR: dict[str, Any] = {"deadlineSec": 3_600}


def timed_chain(world: World, **fields: Any) -> list[Job]:
    """Three links, the first at 12:00 only."""
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
    a = world.register("a", **once, **fields)
    return [a, *(world.register(n, **after(p), **HOUR, **fields) for p, n in ("ab", "bc"))]


def retry_of(run: Run, job: Job, *, now: str, unavailable: bool = False) -> Any:
    result = Result(AttemptOutcome.FAILED, "exit code 1", 1, unavailable=unavailable)
    return decide_ending(job, run, result, at(now))


def test_what_starts_in_time_is_not_affected(world: World) -> None:
    jobs = timed_chain(world)
    world.tick_and_work("12:00")

    assert states(world, *jobs) == [SUCCEEDED] * 3


def test_after_the_deadline_the_rest_is_skipped_with_a_reason(world: World) -> None:
    a, b, c = timed_chain(world)
    world.tick_at("12:00")
    world.advance(minutes=59)
    world.worker().work_one()  # a
    world.advance(minutes=2)
    world.worker().work()

    assert states(world, a, b, c) == [SUCCEEDED, SKIPPED, SKIPPED]
    run = world.run(b, "12:00")
    assert run.reason == "picked up 3660 s after its logical time; deadlineSec is 3600 s"
    assert world.run(c, "12:00").reason == "trigger rule ALL_SUCCEEDED: b SKIPPED"
    assert run.pool == "default"  # no parent that ends later reopens it


def test_what_is_late_because_its_parent_was_is_skipped(world: World) -> None:
    """The parent has no deadline itself, so it starts late."""
    a = world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z")
    b = world.register("b", **after("a"))
    c = world.register("c", **after("b"), **HOUR)
    world.tick_at("12:00")
    world.worker().work_one()  # a
    world.advance(minutes=61)
    world.worker().work()

    assert states(world, a, b, c) == [SUCCEEDED, SUCCEEDED, SKIPPED]


def test_a_deadline_is_the_end_of_a_join(world: World) -> None:
    world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.register("other", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "other"), **HOUR)
    world.tick_and_work("12:00")
    world.tick_and_work("13:00")

    run = world.run(d, "12:00")
    assert (run.state, run.reason) == (
        SKIPPED,
        "joinTimeoutSec is 86400 s, deadlineSec is 3600 s; missing: other",
    )


def test_a_deadline_ends_the_wait_of_a_job_with_a_schedule(world: World) -> None:
    world.register("a", type="MANUAL", schedule=None)
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
    edge = {"job": "a", "which": "latest", "withinSec": 60}
    b = world.register("b", **once, after=[edge], deadlineSec=600)
    for time in ("12:00", "12:10"):
        world.tick_and_work(time)

    run = world.run(b, "12:00")
    assert (run.state, run.reason) == (
        SKIPPED,
        "joinTimeoutSec is 86400 s, deadlineSec is 600 s; missing: a",
    )


def deferred_link(world: World, deadline: int, *, begun: str) -> Job:
    """The second of two links, whose first attempt *begun* found its destination down."""
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
    world.register("a", **once)
    calls = Calls([UNAVAILABLE, OK])
    world.call_targets[TargetKind.HTTP] = calls
    policy = {"initialDelayMs": 10_000}
    fields = after("a", deadlineSec=deadline, retryPolicy=policy)
    b = world.register("b", target=HTTP, **fields)
    world.tick_at("12:00")
    world.worker().work_one()  # a
    world.at(begun)
    world.worker().work_one()
    world.advance(seconds=20)
    world.tick()
    return b


def test_a_deferred_run_that_is_picked_up_after_its_deadline_is_skipped(world: World) -> None:
    """Its repeat waited for workers. It has not begun: its first call was not possible."""
    b = deferred_link(world, 60, begun="12:00")
    world.at("12:01:01")
    world.worker().work()

    run = world.run(b, "12:00")
    assert (run.state, run.attempt) == (SKIPPED, 0)
    assert (
        run.reason
        == "picked up again 61 s after its logical time; not repeated: deadlineSec is 60 s"
    )


@pytest.mark.parametrize("late", ["12:00:59", "12:01"])
def test_a_deferred_run_that_is_picked_up_by_its_deadline_runs(world: World, late: str) -> None:
    b = deferred_link(world, 60, begun="12:00")
    world.at(late)
    world.worker().work()

    assert world.run(b, "12:00").state is SUCCEEDED


@pytest.mark.parametrize("held", [True, False])
def test_a_retry_that_is_picked_up_after_the_deadline_is_not_made(
    world: World, *, held: bool
) -> None:
    """It was due before. It waited for its endpoint, or for workers."""
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
    world.register("a", **once)
    calls = Calls([FAILED, OK])
    world.call_targets[TargetKind.HTTP] = calls
    b = world.register("b", target=HTTP, **after("a", deadlineSec=60))
    world.tick_and_work("12:00")
    assert world.run(b, "12:00").state is RunState.PENDING
    if held:
        calls.hold = Hold(at("12:01:30"), "its endpoint is down", since=at("12:00"))
        world.at("12:00:40")
        world.tick()
        world.worker().work()
        calls.hold = None
    world.at("12:01:30")
    world.tick()
    world.worker().work()

    run = world.run(b, "12:00")
    assert (run.state, len(calls.made)) == (DEAD, 1)
    assert run.reason == (
        "picked up again 90 s after its logical time; not repeated: deadlineSec is 60 s"
    )


def test_a_run_whose_worker_was_lost_before_the_deadline_is_taken_over(world: World) -> None:
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
    world.register("a", **once)
    b = world.register("b", **after("a", deadlineSec=60))
    world.script()
    world.script(**VANISHES)
    world.tick_at("12:00")
    world.worker("lost").work()
    world.worker("next").work()

    assert world.now > at("12:01")
    assert world.run(b, "12:00").state is SUCCEEDED


def test_a_redrive_after_the_deadline_runs_the_rest(world: World) -> None:
    a, b, c = timed_chain(world, **ONE_ATTEMPT)
    world.script()
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, c) == [SUCCEEDED, DEAD, SKIPPED]
    world.advance(minutes=90)

    world.sequences.redrive(world.run(a, "12:00").key, "b", downstream=False, reason=None)
    world.advance_and_work(seconds=2)

    assert states(world, a, b, c) == [SUCCEEDED] * 3


def test_a_run_that_was_redriven_after_the_deadline_is_retried(world: World) -> None:
    _, b, _ = timed_chain(world)
    attempts = (Attempt(1, "a", at("12:00")), Attempt(2, "a", at("13:30")))
    run = a_run(attempt=2, attempt_base=1, attempts=attempts)

    assert retry_of(run, b, now="13:31").retry_at is not None
    assert late_on_purpose(run, at("13:00"))


def test_a_run_that_was_redriven_in_time_is_not_retried_after_the_deadline(world: World) -> None:
    _, b, _ = timed_chain(world)
    began = "12:00", "12:58", "13:30"
    attempts = tuple(Attempt(number, "a", at(time)) for number, time in enumerate(began, 1))
    run = a_run(attempt=3, attempt_base=1, restarted=True, attempts=attempts)

    assert retry_of(run, b, now="13:31").retry_at is None
    assert not late_on_purpose(run, at("13:00"))


def test_a_child_that_was_added_before_a_late_redrive_runs(world: World) -> None:
    a = world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z", **ONE_ATTEMPT)
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    c = world.register("c", **after("a"), **HOUR)
    world.advance(minutes=90)

    world.sequences.redrive(world.run(a, "12:00").key, "a", downstream=False, reason=None)
    world.advance_and_work(seconds=2)

    assert states(world, a, c) == [SUCCEEDED] * 2


def test_a_redrive_with_downstream_runs_what_the_deadline_skipped(world: World) -> None:
    a, b, c = timed_chain(world)
    world.tick_at("12:00")
    world.advance(minutes=61)
    world.worker().work()
    assert states(world, a, b, c) == [SUCCEEDED, SKIPPED, SKIPPED]

    world.sequences.redrive(world.run(a, "12:00").key, "b", downstream=True, reason=None)
    world.advance_and_work(seconds=2)

    assert states(world, a, b, c) == [SUCCEEDED] * 3


def test_a_child_that_was_added_before_a_late_redrive_of_a_skipped_run_runs(
    world: World,
) -> None:
    """No attempt of the run counted before its redrive."""
    a, b, _ = timed_chain(world)
    world.tick_at("12:00")
    world.advance(minutes=61)
    world.worker().work()
    d = world.register("d", **after("b"), **HOUR)

    world.sequences.redrive(world.run(a, "12:00").key, "b", downstream=False, reason=None)
    world.advance_and_work(seconds=2)

    assert states(world, a, b, d) == [SUCCEEDED] * 3


def test_a_run_that_was_redriven_late_before_an_attempt_counted_is_retried(world: World) -> None:
    _, b, _ = timed_chain(world)
    before = Attempt(1, "a", at("12:00"), at("12:00"), AttemptOutcome.DEFERRED)
    run = a_run(attempt=1, restarted=True, attempts=(before, Attempt(1, "a", at("13:30"))))

    assert retry_of(run, b, now="13:31").retry_at is not None
    in_time = replace(run, attempts=(before, Attempt(1, "a", at("12:59"))))
    assert retry_of(in_time, b, now="13:01").retry_at is None


def test_no_retry_is_due_after_the_deadline(world: World) -> None:
    slow = {"retryPolicy": {"maxAttempts": 3, "initialDelayMs": 60_000, "backoff": "FIXED"}}
    _, b, _ = timed_chain(world, **slow)
    world.script()
    world.tick_and_work("12:00")
    run = world.run(b, "12:00")

    assert retry_of(run, b, now="12:58").retry_at is not None
    late = retry_of(run, b, now="12:59:30")
    assert (late.state, late.reason) == (
        DEAD,
        "exit code 1; not repeated: deadlineSec is 3600 s",
    )
    deferred = retry_of(run, b, now="12:59:30", unavailable=True)
    assert deferred.state is SKIPPED
    assert deferred.reason is not None
    assert deferred.reason.endswith("deadlineSec is 3600 s")
    second = replace(run, attempt=2)
    assert retry_of(second, b, now="12:59:30", unavailable=True).state is DEAD, "it has failed"


@pytest.mark.parametrize("limit", [HOUR, {}])
def test_runs_of_a_backfill_are_late_on_purpose(world: World, limit: dict[str, Any]) -> None:
    a = world.register("a")
    b = world.register("b", **after("a"), **limit)
    c = world.register("c", **after("b"), **HOUR)
    asked = BackfillRange(at("03:00"), at("04:00"), at_most=2)
    world.backfills.begin(a.key, asked, backfill_id="b", asked_at=world.now, now=world.now)
    for _ in range(2):
        world.advance_and_work(seconds=2)

    assert [world.run(job, "03:00").state for job in (a, b, c)] == [SUCCEEDED] * 3


def test_a_pipeline_sets_it_for_its_jobs_with_parents() -> None:
    target = {"handler": "hello"}
    with nextfire.pipeline("p", deadline_sec=60) as p:
        a = p.job("a", type="CRON", schedule="0 3 * * *", target=target)
        b, c = p.job("b", target=target), p.job("c", target=target, deadline_sec=90)
        cleanup = p.job("cleanup", {"deadlineSec": None}, target=target)
        a >> [b, c] >> cleanup

    found = {name: job.deadline_sec for name, job in p.pipeline().jobs.items()}

    assert found == {"a": None, "b": 60, "c": 90, "cleanup": None}
    assert read(p.document())[0].jobs == p.pipeline().jobs
    with (
        pytest.raises(PipelineError, match=r"invalid\. deadlineSec"),
        nextfire.pipeline("p", deadline_sec=0) as p,
    ):
        p.job("a", type="CRON", schedule="0 3 * * *", target=target) >> p.job("b", target=target)


def test_a_job_without_parents_has_no_deadline(world: World) -> None:
    with pytest.raises(ValueError, match="deadlineSec need parents"):
        world.register("a", **HOUR)
