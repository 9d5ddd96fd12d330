"""What an attempt that ended leads to: success, retry, deferral or death, with its reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nextfire.domain.attempt import Attempt, AttemptOutcome, Result
from nextfire.domain.endings import MIN_RETRY_DELAY, Ending, decide_ending
from nextfire.domain.policies import Backoff, RetryPolicy
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, a_job, a_run, at

POLICY = RetryPolicy(max_attempts=3, initial_delay_ms=10_000)


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


@pytest.mark.parametrize(
    "run",
    [
        a_call(AttemptOutcome.FAILED, attempt=2),
        a_call(AttemptOutcome.HANDED_BACK, AttemptOutcome.DEFERRED),
    ],
)
def test_a_run_that_began_before_is_dead_when_its_relevancy_window_would_pass(run: Run) -> None:
    job = a_job(misfire={"relevancyWindowSec": 60})

    assert decide_ending(job, run, UNAVAILABLE, at("12:01")).state is RunState.DEAD


def test_calls_are_deferred_for_a_day_without_a_relevancy_window() -> None:
    policy = RetryPolicy(max_attempts=1, initial_delay_ms=10_000)

    first = ending_of(a_call(), UNAVAILABLE, policy, NOON + timedelta(hours=23))
    last = ending_of(a_call(), UNAVAILABLE, policy, NOON + timedelta(hours=24))

    assert (first.state, last.state) == (RunState.PENDING, RunState.SKIPPED)


@pytest.mark.parametrize("misfire", [{}, {"relevancyWindowSec": 60}])
def test_a_redriven_call_is_deferred_for_a_day_from_then_on(misfire: dict[str, Any]) -> None:
    redriven_at = NOON + timedelta(days=2)
    before = (AttemptOutcome.HANDED_BACK, AttemptOutcome.FAILED)
    tried = [Attempt(1, "a", NOON, NOON, outcome) for outcome in before]
    attempts = (*tried, Attempt(2, "a", redriven_at))
    run = a_run(attempt=2, attempt_base=1, attempts=attempts)
    job = a_job(misfire=misfire)

    first = decide_ending(job, run, UNAVAILABLE, redriven_at)
    last = decide_ending(job, run, UNAVAILABLE, redriven_at + timedelta(days=1))

    assert (first.state, last.state) == (RunState.PENDING, RunState.DEAD)


@pytest.mark.parametrize("deferrals", [1, 99])
def test_what_was_deferred_before_a_redrive_does_not_count(deferrals: int) -> None:
    """Also if no attempt has counted, and the record has dropped older ones."""
    redriven_at = NOON + timedelta(days=2)
    before = [Attempt(1, "a", NOON, NOON, AttemptOutcome.DEFERRED)] * deferrals
    run = a_run(
        RunState.SKIPPED, attempt=0, fence=150, attempts=tuple(before), pool="default"
    ).redriven("again", redriven_at)
    run = replace(run, attempt=1, fence=151, attempts=(*before, Attempt(1, "a", redriven_at)))

    first = decide_ending(a_job(), run, UNAVAILABLE, redriven_at)
    last = decide_ending(a_job(), run, UNAVAILABLE, redriven_at + timedelta(days=1))

    assert (first.state, last.state) == (RunState.PENDING, RunState.SKIPPED)


def test_what_an_earlier_version_redrove_does_not_show_which_attempts_came_after_it() -> None:
    redriven_at = NOON + timedelta(days=2)
    before = Attempt(1, "a", NOON, NOON, AttemptOutcome.DEFERRED)
    run = a_run(attempt=1, restarted=True, attempts=(before, Attempt(1, "a", redriven_at)))

    assert decide_ending(a_job(), run, UNAVAILABLE, redriven_at).state is RunState.SKIPPED


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
