"""Claim, overlap and pickup decisions, each with its reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.decisions import ClaimAction, decide_claim, decide_overlap, decide_pickup
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import Overlap, RetryPolicy
from nextfire.domain.run import Run, RunState, Trigger
from tests.builders import NOON, SKIP, a_job, a_message, a_run, at, run_key

POLICY = RetryPolicy(max_attempts=3, initial_delay_ms=10_000)

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
    before = iter([Run.skipped(run_key(minute), "late", NOON) for minute in minutes])

    assert decide_overlap(job, NOON, before).joins
    assert len([*before]) == 99 - 60, "60 of them are read"


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
