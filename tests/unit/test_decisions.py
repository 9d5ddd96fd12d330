"""The decisions, case by case, with their reasons."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nextfire.domain.decisions import (
    MIN_RETRY_DELAY,
    MISFIRE_AFTER,
    ORPHAN_AGE,
    ClaimAction,
    DueAction,
    DueDecision,
    Missed,
    decide_claim,
    decide_due,
    decide_ending,
    decide_misfire,
    decide_overlap,
    decide_pickup,
)
from nextfire.domain.due import DueEntry
from nextfire.domain.instants import MINUTE
from nextfire.domain.job import Backoff, Job, JobState, MisfirePolicy, Overlap, RetryPolicy
from nextfire.domain.run import AttemptOutcome, Result, Run, RunState, Trigger
from tests.builders import (
    NOON,
    RUN_ALL,
    SKIP,
    a_definition,
    a_fire,
    a_job,
    a_message,
    a_retry,
    a_run,
    at,
    run_key,
)

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


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.COMPLETED, JobState.CANCELLED])
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


def test_what_was_due_before_its_job_was_made_again_goes_on_record() -> None:
    """By an executor, which finds another creation and makes it CANCELLED."""
    entry = a_fire(JOB, NOON)

    def decided(created_at: datetime) -> DueDecision:
        again = replace(JOB, uid="uid00002", created_at=created_at)
        return decide_due(entry, again, NOON + ORPHAN_AGE)

    sent = decided(NOON)
    assert (sent.action, sent.run, sent.successor) == (DueAction.FIRE, run_key(), None)
    assert decided(NOON - timedelta(milliseconds=1)).action is DueAction.DROP


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.CANCELLED])
def test_what_is_left_of_a_former_version_takes_its_turn_unless_the_job_was_deleted(
    state: JobState,
) -> None:
    job = a_job(since=at("11:30"), overlap="QUEUE", misfire=SKIP)
    changed = replace(job.with_new_version(at("15:00")), state=state)

    missed = decide_due(a_fire(job, NOON), changed, at("15:00"))
    ordinary = decide_due(a_fire(job, NOON), changed, LATER)

    deleted = state is JobState.CANCELLED
    assert (missed.action, missed.exclusive) == (DueAction.COVER, not deleted)
    assert (ordinary.action, ordinary.owner is None) == (DueAction.FIRE, deleted)


def test_a_forgotten_version_owns_nothing_that_a_later_one_does() -> None:
    changed = JOB.with_new_version(NOON - 2 * MINUTE).with_new_version(NOON + MINUTE)
    forgotten = replace(changed, replaced=changed.replaced[1:])

    before = decide_due(a_fire(JOB, NOON - 3 * MINUTE), forgotten, LATER)
    after = decide_due(a_fire(JOB, NOON), forgotten, LATER)

    assert (before.action, before.successor) == (DueAction.FIRE, None)
    assert after.action is DueAction.DROP


def test_a_job_from_a_backup_gives_no_version_again_that_was_given_since() -> None:
    """Entries of that one may still lie in the due table."""
    since = JOB.with_new_version(NOON)

    assert JOB.with_new_version(NOON + MINUTE).schedule_version > since.schedule_version


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


def test_a_run_on_request_takes_no_turn_among_those_of_a_job_that_was_made_again() -> None:
    """It would wait for the other's runs, or have one of them replaced by it."""
    entry = replace(a_retry(run_key(), NOON, dispatch=1), trigger=Trigger.MANUAL)

    assert decide_due(entry, JOB, NOON).owner == JOB
    assert decide_due(entry, replace(JOB, uid="uid00002"), NOON).owner is None


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


def test_a_running_run_whose_record_has_no_lease_is_nobody_s() -> None:
    run = a_run(worker="a", lease_until=None, attempt=1)

    assert decide_claim(run, a_message(), POLICY, LATER).action is ClaimAction.TAKE_OVER


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


# Misfires


def entry_for(job: Job, time: str) -> DueEntry:
    return job.fire_entry(at(time), 1)


LATE_BY_2_H = "14:00:30"
"""Of the 12:00 of an hourly job: 13:00 and 14:00 are due too."""


@pytest.mark.parametrize(
    ("policy", "now", "missed"),
    [
        ("RUN_ALL", "12:01:00", None),
        ("RUN_ALL", LATE_BY_2_H, None),
        ("RUN_LATEST", "12:01:00", None),
        ("RUN_LATEST", "12:01:00.001", None),  # the latest: its successor is not due
        ("RUN_LATEST", "12:59:59.999", None),
        ("RUN_LATEST", "13:00:00", Missed(at("13:00:00"), but_latest=True)),
        ("RUN_LATEST", LATE_BY_2_H, Missed(at(LATE_BY_2_H), but_latest=True)),
        ("SKIP", "12:01:00", None),
        ("SKIP", "12:01:00.001", Missed(at("12:00:00.001"))),
        ("SKIP", LATE_BY_2_H, Missed(at("13:59:30"))),
    ],
)
def test_a_misfire_policy_decides_over_what_is_more_than_a_minute_late(
    policy: str, now: str, missed: Missed | None
) -> None:
    job = a_job(since=at("11:30"), misfire={"policy": policy})
    entry = entry_for(job, "12:00")

    found, reason = decide_misfire(entry, job, job.successor(entry), at(now))

    assert found == missed
    late = at(now) - NOON > MISFIRE_AFTER
    assert (reason == "occurrence is due") is not late
    assert not late or f"misfire policy {policy}" in reason


@pytest.mark.parametrize(
    ("policy", "occurs_at", "missed"),
    [
        ("RUN_ALL", "12:00", None),
        ("RUN_LATEST", "12:00", Missed(at("12:50:30"), but_latest=True)),
        ("RUN_LATEST", "12:50", None),
        ("SKIP", "12:00", Missed(at("12:50:29"))),
        ("SKIP", "12:50", Missed(at("12:50:29"))),
    ],
)
def test_what_was_due_in_a_pause_is_late_however_short_it_was(
    policy: str, occurs_at: str, missed: Missed | None
) -> None:
    job = a_job(since=at("11:30"), schedule="*/10 * * * *", misfire={"policy": policy})
    job = job.paused(at("11:55"), None).resumed(at("12:50:29"))
    entry = entry_for(job, occurs_at)

    found, reason = decide_misfire(entry, job, job.successor(entry), at("12:50:30"))

    assert found == missed
    assert reason.startswith(f"due during a pause; misfire policy {policy}")


@pytest.mark.parametrize("policy", MisfirePolicy)
@pytest.mark.parametrize(("now", "inside"), [("12:00:20", True), ("12:00:20.001", False)])
def test_the_relevancy_window_goes_before_every_policy(
    policy: str, now: str, *, inside: bool
) -> None:
    job = a_job(since=at("11:30"), misfire={"policy": policy, "relevancyWindowSec": 20})
    entry = entry_for(job, "12:00")

    missed, reason = decide_misfire(entry, job, job.successor(entry), at(now))

    assert missed == (None if inside else Missed(at(now) - timedelta(seconds=20)))
    assert ("relevancyWindowSec is 20 s" in reason) is not inside


def test_a_window_wider_than_the_lateness_leaves_it_to_the_policy() -> None:
    job = a_job(since=at("11:30"), misfire=SKIP | {"relevancyWindowSec": 86_400})
    entry = entry_for(job, "12:00")

    missed, reason = decide_misfire(entry, job, job.successor(entry), at("13:30"))

    assert missed == Missed(at("13:29"))
    assert "misfire policy SKIP" in reason


def test_what_jitter_puts_off_is_late_only_after_its_width() -> None:
    """An earlier occurrence may be due later, and the chain waits for it."""
    job = a_job(since=at("11:30"), uid="uid00003", misfire=SKIP, jitterSec=600)
    entry = entry_for(job, "12:00")
    assert entry.at < at("12:09")

    in_time, _ = decide_misfire(entry, job, job.successor(entry), at("12:11:00"))
    late, _ = decide_misfire(entry, job, job.successor(entry), at("12:11:00.001"))

    assert in_time is None
    assert late == Missed(at("12:00:00.001")), "only what is late whatever its jitter"


@pytest.mark.parametrize("policy", MisfirePolicy)
def test_what_is_covered_is_of_the_entry_s_version(policy: MisfirePolicy) -> None:
    old = a_job(since=at("11:30"), misfire={"policy": policy})
    new = old.with_new_version(at("12:30"))
    new = replace(new, revision=2, definition=a_definition("30 * * * *", misfire=SKIP))

    decision = decide_due(entry_for(old, "12:00"), new, at("15:00"))

    # `misfire` is not of the schedule: what holds is what the job says now.
    assert decision.action is DueAction.COVER
    assert decision.owner is not None
    assert (decision.owner.definition.schedule, decision.owned_until) == ("0 * * * *", at("12:30"))
    assert decision.missed == Missed(at("14:59"))


def test_the_last_of_a_version_that_ended_is_its_latest() -> None:
    old = a_job(since=at("11:30"))
    new = replace(old.with_new_version(at("12:30")), definition=a_definition("30 * * * *"))

    decision = decide_due(entry_for(old, "12:00"), new, at("15:00"))

    assert (decision.action, decision.successor) == (DueAction.FIRE, None)
    assert "the latest" in decision.reason


# Overlaps


def a_record(time: str, state: RunState = RunState.SUCCEEDED, **fields: Any) -> Run:
    """What an executor wrote of the occurrence at *time*."""
    return Run(run_key(at(time)), state, **{"pool": "default"} | fields)


def a_range(first: str, last: str, count: int) -> Run:
    key = run_key(at(first))
    return Run.skipped(key, "late", NOON, covered_to=at(last), covered=count)


def minutely(overlap: str, **fields: Any) -> Job:
    """Due each minute since 10:00."""
    return a_job(since=at("09:59:30"), schedule="* * * * *", overlap=overlap, **fields)


@pytest.mark.parametrize("overlap", ["QUEUE", "SKIP", "REPLACE"])
@pytest.mark.parametrize(
    ("latest", "joins"),
    [
        # At 12:00, with 11:40 … 11:59 sent and not begun they are twenty.
        (a_record("11:39"), False),
        (a_record("11:40"), True),
        (a_record("11:39", RunState.RUNNING), False),
        (a_record("11:40", RunState.RUNNING), False),
        (a_record("11:41", RunState.RUNNING), True),
        (a_record("11:40", RunState.PENDING), False),
        (a_record("11:40", RunState.SKIPPED), True),
        (a_record("11:40", RunState.CANCELLED), True),
        (a_record("11:40", RunState.CANCELLED, pool=None), False),  # on request, not by a worker
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


def test_a_record_that_cannot_be_read_is_of_one_that_has_been_there() -> None:
    """What was due before it has ended, then, whatever its record said."""
    unreadable = Run(run_key(at("11:59")), RunState.DEAD)
    before = [unreadable, a_record("11:58", RunState.RUNNING)]

    assert decide_overlap(minutely("REPLACE"), NOON, before).cancel is None


def test_the_first_twenty_of_a_job_join() -> None:
    job = minutely("QUEUE")

    assert decide_overlap(job, at("10:19"), []).joins
    assert not decide_overlap(job, at("10:20"), []).joins


def test_what_a_range_stands_for_does_not_wait() -> None:
    job = minutely("QUEUE")
    before = [a_range("10:30", "11:49", 80), a_record("10:19")]

    assert decide_overlap(job, at("11:59"), before).joins, "10:20 … 10:29 and 11:50 … 11:58"
    assert not decide_overlap(job, at("12:00"), before).joins


def test_a_job_of_which_nothing_ran_for_long_is_not_held_back_for_ever() -> None:
    """As many ranges in a row as are looked at, and the job far older than they."""
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
def test_skip_begins_nothing_whose_predecessor_had_not_ended_when_it_was_due(
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
def test_replace_begins_nothing_whose_successor_is_due(
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
def test_a_job_that_goes_on_no_more_has_nobody_to_replace_its_last_run(state: JobState) -> None:
    job = a_job(since=at("11:30"), overlap="REPLACE", state=state)

    assert picked_up(job, "15:00:00") is None
