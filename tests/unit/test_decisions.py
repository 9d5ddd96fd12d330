"""The decisions, case by case, with their reasons."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.decisions import (
    MIN_RETRY_DELAY,
    ORPHAN_AGE,
    ClaimAction,
    DueAction,
    decide_claim,
    decide_due,
    decide_ending,
)
from nextfire.domain.job import Backoff, JobState, RetryPolicy
from nextfire.domain.run import AttemptOutcome, Result, RunState
from tests.builders import NOON, RUN_ALL, a_fire, a_job, a_message, a_retry, a_run, at, run_key

POLICY = RetryPolicy(max_attempts=3, initial_delay_ms=10_000)
JOB = a_job(since=at("11:30"))
LATER = at("12:00:01")


# Due entries


def test_the_present_version_fires_with_a_successor() -> None:
    decision = decide_due(a_fire(JOB, NOON), JOB, LATER)

    assert (decision.action, decision.run, decision.dispatch, decision.pool) == (
        DueAction.FIRE,
        run_key(),
        1,
        "default",
    )
    assert decision.successor == a_fire(JOB, at("13:00"))
    assert decision.reason


def test_the_successor_follows_the_occurrence_not_the_clock() -> None:
    job = a_job(since=JOB.effective_from, misfire=RUN_ALL)

    decision = decide_due(a_fire(job, NOON), job, at("18:30"))

    assert decision.successor == a_fire(JOB, at("13:00"))


def test_the_last_occurrence_fires_without_a_successor() -> None:
    job = a_job(since=at("11:30"), type="ONCE", schedule="2026-05-24T12:00:00Z")

    decision = decide_due(a_fire(job, NOON), job, LATER)

    assert (decision.action, decision.successor) == (DueAction.FIRE, None)


@pytest.mark.parametrize("changed_at", ["12:00", "12:00:00.001", "15:00"])
def test_an_older_version_owns_its_occurrences_up_to_the_change(changed_at: str) -> None:
    changed = replace(JOB, schedule_version=JOB.schedule_version + 1, effective_from=at(changed_at))

    decision = decide_due(a_fire(JOB, NOON), changed, at("15:00"))

    assert (decision.action, decision.run, decision.successor) == (
        DueAction.FIRE,
        run_key(),
        None,
    )


def test_an_older_version_owns_nothing_after_the_change() -> None:
    changed = replace(
        JOB, schedule_version=JOB.schedule_version + 1, effective_from=at("11:59:59.999")
    )

    decision = decide_due(a_fire(JOB, NOON), changed, LATER)

    assert decision.action is DueAction.DROP
    assert decision.reason == f"replaced by schedule version {changed.schedule_version}"


@pytest.mark.parametrize("state", JobState)
def test_the_state_of_a_job_does_not_matter_its_version_does(state: JobState) -> None:
    decision = decide_due(a_fire(JOB, NOON), replace(JOB, state=state), LATER)

    assert decision.action is DueAction.FIRE


@pytest.mark.parametrize(
    ("job", "version", "reason"),
    [
        (None, JOB.schedule_version, "its job is not there"),
        (replace(JOB, uid="uid00002"), JOB.schedule_version, "its job is not there"),
        (JOB, JOB.schedule_version + 1, "its job has no schedule version"),
    ],
    ids=["absent", "another creation", "newer version"],
)
def test_what_is_not_seen_is_left_for_a_minute_then_dropped(
    job: object, version: int, reason: str
) -> None:
    entry = a_fire(JOB, NOON, version=version)

    left = decide_due(entry, job, NOON + ORPHAN_AGE - timedelta(milliseconds=1))  # type: ignore[arg-type]
    dropped = decide_due(entry, job, NOON + ORPHAN_AGE)  # type: ignore[arg-type]

    assert (left.action, dropped.action) == (DueAction.LEAVE, DueAction.DROP)
    assert left.reason.startswith(reason)
    assert dropped.reason.endswith("60 s after it was due")


@pytest.mark.parametrize("job", [None, JOB, replace(JOB, uid="uid00002")])
def test_a_retry_is_never_checked(job: object) -> None:
    decision = decide_due(
        a_retry(run_key(), NOON, dispatch=4, pool="batch"),
        job,  # type: ignore[arg-type]
        at("15:00"),
    )

    assert (decision.action, decision.run, decision.dispatch, decision.pool) == (
        DueAction.FIRE,
        run_key(),
        4,
        "batch",
    )
    assert decision.successor is None


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


# Endings


def result(outcome: AttemptOutcome, *, permanent: bool = False) -> Result:
    return Result(outcome, "because", permanent=permanent)


BAD = [AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.WORKER_LOST]


@pytest.mark.parametrize("cancel_requested", [False, True])
def test_a_success_is_one_even_if_it_was_to_be_cancelled(*, cancel_requested: bool) -> None:
    run = a_run(attempt=3, cancel_requested=cancel_requested)

    ending = decide_ending(run, result(AttemptOutcome.SUCCEEDED), POLICY, NOON)

    assert ending.state is RunState.SUCCEEDED


@pytest.mark.parametrize("outcome", BAD)
def test_a_failure_is_tried_again_while_attempts_are_left(outcome: AttemptOutcome) -> None:
    delays = [
        (decide_ending(a_run(attempt=n), result(outcome), POLICY, NOON).retry_at or NOON) - NOON
        for n in (1, 2, 3)
    ]

    assert delays == [timedelta(seconds=10), timedelta(seconds=20), timedelta()]
    last = decide_ending(a_run(attempt=3), result(outcome), POLICY, NOON)
    assert (last.state, last.retry_at) == (RunState.DEAD, None)


@pytest.mark.parametrize("outcome", BAD)
def test_a_failure_that_cannot_end_otherwise_is_not_tried_again(outcome: AttemptOutcome) -> None:
    ending = decide_ending(a_run(attempt=1), result(outcome, permanent=True), POLICY, NOON)

    assert ending.state is RunState.DEAD


def test_a_failure_of_a_run_that_was_to_be_cancelled_is_not_tried_again() -> None:
    failed = decide_ending(
        a_run(attempt=1, cancel_requested=True), result(AttemptOutcome.FAILED), POLICY, NOON
    )
    stopped = decide_ending(a_run(attempt=1), result(AttemptOutcome.CANCELLED), POLICY, NOON)

    assert (failed.state, stopped.state) == (RunState.CANCELLED, RunState.CANCELLED)


def test_a_retry_is_never_nearer_than_the_record_needs() -> None:
    policy = RetryPolicy(max_attempts=2, initial_delay_ms=0)

    ending = decide_ending(a_run(attempt=1), result(AttemptOutcome.FAILED), policy, NOON)

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
