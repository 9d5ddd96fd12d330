"""Claim, ending, overlap and pickup decisions, each with its reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nextfire.domain.attempt import Attempt, AttemptOutcome, Result
from nextfire.domain.decisions import (
    MIN_RETRY_DELAY,
    ClaimAction,
    Ending,
    decide_claim,
    decide_ending,
    decide_overlap,
    decide_pickup,
)
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import Backoff, Overlap, RetryPolicy
from nextfire.domain.run import Run, RunState, Trigger
from tests.builders import (
    NOON,
    SKIP,
    a_job,
    a_message,
    a_run,
    at,
    run_key,
)

POLICY = RetryPolicy(max_attempts=3, initial_delay_ms=10_000)
JOB = a_job(since=at("11:30"))
LATER = at("12:00:01")


# Claims


@pytest.mark.parametrize("state", [s for s in RunState if s.ended])
@pytest.mark.parametrize("dispatch", [1, 2, 9])
def test_an_ended_run_is_settled_whatever_the_message(state: RunState, dispatch: int) -> None:
    run = a_run(state, dispatch=2)

    decision = decide_claim(run, a_message(dispatch=dispatch), POLICY, LATER)

    assert (decision.action, decision.reason) == (ClaimAction.SETTLE, f"has ended {state}")


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.RUNNING])
def test_an_older_message_is_acknowledged(state: RunState) -> None:
    run = a_run(state, dispatch=3)

    decision = decide_claim(run, a_message(dispatch=2), POLICY, LATER)

    assert (decision.action, decision.reason) == (
        ClaimAction.ACKNOWLEDGE,
        "dispatch 2 is older than 3",
    )


@pytest.mark.parametrize(
    ("fields", "action", "until"),
    [
        ({"not_before": at("12:00:02")}, ClaimAction.WAIT, at("12:00:02")),
        ({"not_before": LATER}, ClaimAction.AGAIN, None),
        ({}, ClaimAction.AGAIN, None),
        ({"cancel_requested": True}, ClaimAction.CANCEL, None),
        (
            {"cancel_requested": True, "not_before": at("12:00:02")},
            ClaimAction.CANCEL,
            None,
        ),
    ],
)
@pytest.mark.parametrize("dispatch", [1, 2])
def test_a_waiting_run(
    fields: dict[str, object], action: ClaimAction, until: object, dispatch: int
) -> None:
    run = replace(a_run(RunState.PENDING), **fields)  # type: ignore[arg-type]

    decision = decide_claim(run, a_message(dispatch=dispatch), POLICY, LATER)

    assert (decision.action, decision.until) == (action, until)


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ({"attempt": 1}, ClaimAction.TAKE_OVER),
        ({"attempt": 2}, ClaimAction.TAKE_OVER),
        ({"attempt": 3}, ClaimAction.BURY),
        ({"attempt": 4}, ClaimAction.BURY),
        ({"attempt": 1, "cancel_requested": True}, ClaimAction.CANCEL),
        ({"attempt": 3, "cancel_requested": True}, ClaimAction.CANCEL),
    ],
)
def test_a_running_run_is_waited_for_up_to_its_lease_s_end(
    fields: dict[str, object], action: ClaimAction
) -> None:
    run = replace(a_run(worker="a", lease_until=LATER), **fields)  # type: ignore[arg-type]

    live = decide_claim(run, a_message(), POLICY, LATER - timedelta(milliseconds=1))
    lapsed = decide_claim(run, a_message(), POLICY, LATER)

    assert (live.action, live.until, live.reason) == (ClaimAction.WAIT, LATER, "runs on a")
    assert (lapsed.action, lapsed.until) == (action, None)


def test_a_running_run_without_a_lease_can_be_taken_over() -> None:
    run = a_run(worker="a", lease_until=None, attempt=1)

    assert decide_claim(run, a_message(), POLICY, LATER).action is ClaimAction.TAKE_OVER


# Endings


def result(outcome: AttemptOutcome, *, permanent: bool = False) -> Result:
    return Result(outcome, "because", permanent=permanent)


BAD = [AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.WORKER_LOST]


def ending_of(run: Run, result: Result, policy: RetryPolicy, now: datetime) -> Ending:
    return decide_ending(a_job(retry_policy=policy), run, result, now)


@pytest.mark.parametrize("cancel_requested", [False, True])
def test_a_success_is_one_even_if_it_was_to_be_cancelled(*, cancel_requested: bool) -> None:
    run = a_run(attempt=3, cancel_requested=cancel_requested)

    ending = ending_of(run, result(AttemptOutcome.SUCCEEDED), POLICY, NOON)

    assert ending.state is RunState.SUCCEEDED


@pytest.mark.parametrize("outcome", BAD)
def test_a_failure_is_tried_again_while_attempts_are_left(outcome: AttemptOutcome) -> None:
    delays = [
        (ending_of(a_run(attempt=n), result(outcome), POLICY, NOON).retry_at or NOON) - NOON
        for n in (1, 2, 3)
    ]

    assert delays == [timedelta(seconds=10), timedelta(seconds=20), timedelta()]
    last = ending_of(a_run(attempt=3), result(outcome), POLICY, NOON)
    assert (last.state, last.retry_at) == (RunState.DEAD, None)


@pytest.mark.parametrize("outcome", BAD)
def test_a_permanent_failure_is_not_retried(outcome: AttemptOutcome) -> None:
    ending = ending_of(a_run(attempt=1), result(outcome, permanent=True), POLICY, NOON)

    assert ending.state is RunState.DEAD


def test_a_failure_of_a_run_that_was_to_be_cancelled_is_not_tried_again() -> None:
    failed = ending_of(
        a_run(attempt=1, cancel_requested=True), result(AttemptOutcome.FAILED), POLICY, NOON
    )
    stopped = ending_of(a_run(attempt=1), result(AttemptOutcome.CANCELLED), POLICY, NOON)

    assert (failed.state, stopped.state) == (RunState.CANCELLED, RunState.CANCELLED)


UNAVAILABLE = Result(AttemptOutcome.FAILED, "503 Service Unavailable", unavailable=True)


def a_call(*outcomes: AttemptOutcome, attempt: int = 1, **fields: Any) -> Run:
    """A running run after attempts with *outcomes*, the first of which began at 12:00."""
    tried = [Attempt(1, "a", NOON, NOON, each) for each in outcomes]
    return a_run(attempt=attempt, attempts=(*tried, Attempt(1, "a", NOON)), **fields)


def test_a_call_whose_destination_is_not_available_is_deferred_with_growing_delays() -> None:
    policy = RetryPolicy(max_attempts=1, initial_delay_ms=10_000)
    endings = [
        ending_of(a_call(*[AttemptOutcome.DEFERRED] * n), UNAVAILABLE, policy, NOON)
        for n in range(3)
    ]

    assert [(each.state, each.deferred) for each in endings] == [(RunState.PENDING, True)] * 3
    waits = [each.retry_at and each.retry_at - NOON for each in endings]
    assert waits == [timedelta(seconds=seconds) for seconds in (10, 20, 40)]


def test_a_deferred_call_is_skipped_when_its_relevancy_window_would_pass() -> None:
    job = a_job(misfire={"relevancyWindowSec": 60}, retryPolicy={"initialDelayMs": 30_000})
    run = a_call()

    in_time = decide_ending(job, run, UNAVAILABLE, NOON)
    late = decide_ending(job, run, UNAVAILABLE, at("12:00:31"))

    assert (in_time.state, in_time.deferred) == (RunState.PENDING, True)
    assert late.state is RunState.SKIPPED
    assert late.reason == "503 Service Unavailable; not repeated: past relevancyWindowSec 60 s"


def test_a_call_that_failed_before_is_dead_when_its_relevancy_window_would_pass() -> None:
    job = a_job(misfire={"relevancyWindowSec": 60})

    ending = decide_ending(job, a_call(AttemptOutcome.FAILED, attempt=2), UNAVAILABLE, at("12:01"))

    assert ending.state is RunState.DEAD


def test_calls_are_deferred_for_a_day_without_a_relevancy_window() -> None:
    policy = RetryPolicy(max_attempts=1, initial_delay_ms=10_000)

    first = ending_of(a_call(), UNAVAILABLE, policy, NOON + timedelta(hours=23))
    last = ending_of(a_call(), UNAVAILABLE, policy, NOON + timedelta(hours=24))

    assert (first.state, last.state) == (RunState.PENDING, RunState.SKIPPED)


def test_a_long_retry_after_does_not_end_a_run_without_a_relevancy_window() -> None:
    asked = replace(UNAVAILABLE, retry_at=NOON + timedelta(days=1, seconds=30))

    ends = ending_of(a_call(), asked, POLICY, NOON)

    assert (ends.state, ends.deferred) == (RunState.PENDING, True)
    assert ends.retry_at is not None
    assert ends.retry_at <= NOON + timedelta(days=1)


def test_deferrals_end_within_a_day_whatever_the_retry_policy_says() -> None:
    policy = RetryPolicy(max_attempts=1, backoff=Backoff.FIXED, initial_delay_ms=0)
    now, run, ends = NOON, a_call(), None
    for _ in range(200):
        ends = ending_of(run, UNAVAILABLE, policy, now)
        if ends.retry_at is None:
            break
        # A record keeps the latest attempts only.
        deferred = replace(run.attempts[-1], finished_at=now, outcome=AttemptOutcome.DEFERRED)
        now = ends.retry_at
        run = replace(run, attempts=(*run.attempts[-99:-1], deferred, Attempt(1, "a", now)))

    assert ends is not None
    assert ends.state is RunState.SKIPPED
    assert timedelta(hours=18) < now - NOON <= timedelta(hours=24)


@pytest.mark.parametrize("unavailable", [False, True])
def test_a_retry_is_not_made_before_the_instant_that_the_target_asked_for(
    *, unavailable: bool
) -> None:
    failed = replace(UNAVAILABLE, unavailable=unavailable, retry_at=at("12:05"))

    assert ending_of(a_call(), failed, POLICY, NOON).retry_at == at("12:05")
    assert ending_of(a_call(), replace(failed, retry_at=NOON), POLICY, NOON).retry_at == at(
        "12:00:10"
    )


def test_retries_respect_the_minimum_delay() -> None:
    policy = RetryPolicy(max_attempts=2, initial_delay_ms=0)

    ending = ending_of(a_run(attempt=1), result(AttemptOutcome.FAILED), policy, NOON)

    assert ending.retry_at == NOON + MIN_RETRY_DELAY


# Delays


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        (Backoff.FIXED, [30, 30, 30, 30, 30]),
        (Backoff.LINEAR, [30, 60, 90, 100, 100]),
        (Backoff.EXPONENTIAL, [30, 60, 100, 100, 100]),
    ],
)
def test_the_delay_grows_up_to_its_bound(backoff: Backoff, seconds: list[int]) -> None:
    policy = RetryPolicy(backoff=backoff, initial_delay_ms=30_000, max_delay_ms=100_000)

    assert [policy.delay(n).total_seconds() for n in range(1, 6)] == seconds


@pytest.mark.parametrize("backoff", Backoff)
def test_no_number_of_attempts_is_too_many_for_a_delay(backoff: Backoff) -> None:
    policy = RetryPolicy(
        max_attempts=100, backoff=backoff, initial_delay_ms=86_400_000, max_delay_ms=604_800_000
    )

    assert policy.delay(100) <= timedelta(days=7)


# Overlaps


def a_record(time: str, state: RunState = RunState.SUCCEEDED, **fields: Any) -> Run:
    """The record that an executor wrote for the occurrence at *time*."""
    return Run(run_key(at(time)), state, **{"pool": "default"} | fields)


def a_range(first: str, last: str, count: int) -> Run:
    key = run_key(at(first))
    return Run.skipped(key, "late", NOON, covered_to=at(last), covered=count)


def minutely(overlap: str, **fields: Any) -> Job:
    """A job that is due each minute since 10:00."""
    return a_job(since=at("09:59:30"), schedule="* * * * *", overlap=overlap, **fields)


@pytest.mark.parametrize("overlap", ["QUEUE", "SKIP", "REPLACE"])
@pytest.mark.parametrize(
    ("latest", "joins"),
    [
        # At 12:00, the runs of 11:40 to 11:59, sent and not started, are twenty.
        (a_record("11:39"), False),
        (a_record("11:40"), True),
        (a_record("11:39", RunState.RUNNING), False),
        (a_record("11:40", RunState.RUNNING), False),
        (a_record("11:41", RunState.RUNNING), True),
        (a_record("11:40", RunState.PENDING), False),
        (a_record("11:40", RunState.SKIPPED), True),
        (a_record("11:40", RunState.CANCELLED), True),
        (a_record("11:40", RunState.CANCELLED, pool=None), False),  # by a request, not by a worker
        (None, False),
    ],
    ids=lambda each: f"{each.key.run_id[9:13]} {each.state}" if isinstance(each, Run) else None,
)
def test_at_most_twenty_runs_of_a_job_are_in_the_queue(
    overlap: str, latest: Run | None, *, joins: bool
) -> None:
    decision = decide_overlap(minutely(overlap), NOON, [latest] if latest else [])

    assert decision.joins is joins
    assert joins or decision.reason == "20 earlier runs have not ended"


def test_an_unreadable_record_counts_as_a_run_that_started() -> None:
    """Occurrences before it have ended, whatever the unreadable record said."""
    unreadable = Run(run_key(at("11:59")), RunState.DEAD)
    before = [unreadable, a_record("11:58", RunState.RUNNING)]

    assert decide_overlap(minutely("REPLACE"), NOON, before).cancel is None


def test_the_first_twenty_of_a_job_join() -> None:
    job = minutely("QUEUE")

    assert decide_overlap(job, at("10:19"), []).joins
    assert not decide_overlap(job, at("10:20"), []).joins


def test_covered_occurrences_do_not_count_as_queued() -> None:
    job = minutely("QUEUE")
    before = [a_range("10:30", "11:49", 80), a_record("10:19")]

    assert decide_overlap(job, at("11:59"), before).joins, "10:20 … 10:29 and 11:50 … 11:58"
    assert not decide_overlap(job, at("12:00"), before).joins


def test_a_job_without_recent_runs_is_not_held_back_forever() -> None:
    """All records that are read are SKIPPED, and the job is much older than they are."""
    job = minutely("QUEUE", misfire=SKIP)
    minutes = [NOON - timedelta(minutes=n) for n in range(1, 100)]
    before = [Run.skipped(run_key(minute), "late", NOON) for minute in minutes]

    assert decide_overlap(job, NOON, before).joins


def test_ranges_of_another_version_raise_no_bound() -> None:
    job = replace(minutely("QUEUE"), effective_from=at("11:00:30"))
    before = [a_range("10:00", "11:00", 61)]

    assert decide_overlap(job, at("11:20"), before).joins
    assert not decide_overlap(job, at("11:21"), before).joins


def test_records_of_a_former_creation_do_not_count() -> None:
    job = minutely("QUEUE", uid="uid00002")

    assert not decide_overlap(job, NOON, [a_record("11:59")]).joins


@pytest.mark.parametrize("overlap", ["QUEUE", "SKIP", "REPLACE"])
@pytest.mark.parametrize("state", RunState)
def test_only_replace_cancels_and_only_what_has_not_ended(overlap: str, state: RunState) -> None:
    latest = a_record("11:59", state)

    decision = decide_overlap(minutely(overlap), NOON, [latest])

    assert decision.joins
    replaced = overlap == "REPLACE" and not state.ended
    assert decision.cancel == (latest if replaced else None)


def test_replace_cancels_the_run_that_runs_not_one_that_waits() -> None:
    waits = a_record("11:58", RunState.PENDING)
    runs = a_record("11:59", RunState.RUNNING, trigger=Trigger.MANUAL)

    assert decide_overlap(minutely("REPLACE"), NOON, [runs, waits]).cancel == runs


# Pickups


def picked_up(job: Job, now: str = "12:00:01", *before: Run) -> str | None:
    return decide_pickup(job, run_key(), at(now), lambda: before)


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize(("now", "starts"), [("12:00:30", True), ("12:00:30.001", False)])
def test_a_run_is_not_begun_later_than_its_window(
    overlap: Overlap, now: str, *, starts: bool
) -> None:
    job = a_job(since=at("11:30"), overlap=overlap, misfire={"relevancyWindowSec": 30})

    reason = picked_up(job, now)

    assert reason == (None if starts else "picked up 30 s late; relevancyWindowSec is 30 s")


def test_the_window_counts_from_the_due_instant() -> None:
    job = a_job(since=at("11:30"), jitterSec=60, misfire={"relevancyWindowSec": 30})
    until = job.due_at(NOON) + timedelta(seconds=30)

    assert decide_pickup(job, run_key(), until, tuple) is None
    assert decide_pickup(job, run_key(), until + timedelta(milliseconds=1), tuple) is not None


ENDED_IN_TIME: dict[str, Any] = {"finished_at": NOON}
ENDED_LATE: dict[str, Any] = {"finished_at": at("12:00:00.001")}
OF_A_FORMER_CREATION = run_key(at("11:00"), uid="uid00000")


@pytest.mark.parametrize(
    ("before", "starts"),
    [
        ([], True),
        ([a_record("11:00", **ENDED_IN_TIME)], True),
        ([a_record("11:00", **ENDED_LATE)], False),
        ([a_record("11:00", RunState.DEAD, **ENDED_LATE)], False),
        ([a_record("11:00", RunState.DEAD, **ENDED_IN_TIME)], True),
        ([a_record("11:00", RunState.RUNNING)], False),
        ([a_record("11:00", RunState.PENDING)], False),
        ([a_record("11:00", RunState.SKIPPED, **ENDED_LATE)], True),
        (
            [a_record("11:00", RunState.SKIPPED, **ENDED_LATE), a_record("10:00", **ENDED_LATE)],
            False,
        ),
        ([a_range("10:00", "11:00", 2), a_record("09:00", RunState.RUNNING)], False),
        ([replace(a_record("11:00", RunState.RUNNING), key=OF_A_FORMER_CREATION)], True),
    ],
)
@pytest.mark.parametrize("overlap", Overlap)
def test_skip_does_not_start_a_run_if_its_predecessor_was_running_when_it_was_due(
    overlap: Overlap, before: list[Run], *, starts: bool
) -> None:
    job = a_job(since=at("08:30"), overlap=overlap)

    reason = picked_up(job, "12:00:01", *before)

    if overlap is not Overlap.SKIP or starts:
        assert reason is None
    else:
        assert reason is not None
        assert reason.endswith("had not ended when it was due")
        assert before[-1].key.execution_id in reason


@pytest.mark.parametrize(
    ("fields", "now", "replaced"),
    [
        ({}, "12:59:59.999", False),
        ({}, "13:00:00", True),
        ({"endAt": "2026-05-24T12:30:00Z"}, "15:00:00", False),
        ({"maxRuns": 1}, "15:00:00", False),
        ({"maxRuns": 2}, "15:00:00", True),
        ({"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}, "15:00:00", False),
    ],
)
@pytest.mark.parametrize("overlap", Overlap)
def test_replace_does_not_start_a_run_whose_successor_is_due(
    overlap: Overlap, fields: dict[str, Any], now: str, *, replaced: bool
) -> None:
    job = a_job(since=at("11:30"), overlap=overlap, **fields)

    reason = picked_up(job, now)

    if replaced and overlap is Overlap.REPLACE:
        assert reason is not None
        assert reason.endswith("replaced by the occurrence at 2026-05-24T13:00:00Z")
    else:
        assert reason is None


@pytest.mark.parametrize("state", [s for s in JobState if s is not JobState.ACTIVE])
def test_the_last_run_of_an_inactive_job_is_not_replaced(state: JobState) -> None:
    job = a_job(since=at("11:30"), overlap="REPLACE", state=state)

    assert picked_up(job, "15:00:00") is None
