"""Decisions about due entries, case by case, with their reasons."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nextfire.domain.due_decisions import (
    ORPHAN_AGE,
    Cover,
    Decision,
    Drop,
    Fire,
    Leave,
    Resend,
    decide_due,
)
from nextfire.domain.instants import MINUTE
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Trigger
from tests.builders import NOON, RUN_ALL, SKIP, a_fire, a_job, a_retry, at, run_key

JOB = a_job(since=at("11:30"))
LATER = at("12:00:01")


def test_the_present_version_fires_with_a_successor() -> None:
    decision = decide_due(a_fire(JOB, NOON), JOB, LATER)

    assert isinstance(decision, Fire)
    assert (decision.run, decision.pool) == (run_key(), "default")
    assert decision.successor == a_fire(JOB, at("13:00"))
    assert decision.reason


def test_the_successor_follows_the_occurrence_not_the_clock() -> None:
    job = a_job(since=JOB.effective_from, misfire=RUN_ALL)

    decision = decide_due(a_fire(job, NOON), job, at("18:30"))

    assert isinstance(decision, Fire)
    assert decision.successor == a_fire(JOB, at("13:00"))


def test_the_last_occurrence_fires_without_a_successor() -> None:
    job = a_job(since=at("11:30"), type="ONCE", schedule="2026-05-24T12:00:00Z")

    decision = decide_due(a_fire(job, NOON), job, LATER)

    assert isinstance(decision, Fire)
    assert decision.successor is None


@pytest.mark.parametrize("changed_at", ["12:00", "12:00:00.001", "15:00"])
def test_an_older_version_owns_its_occurrences_up_to_the_change(changed_at: str) -> None:
    changed = replace(JOB, schedule_version=JOB.schedule_version + 1, effective_from=at(changed_at))

    decision = decide_due(a_fire(JOB, NOON), changed, at("15:00"))

    assert isinstance(decision, Fire)
    assert (decision.run, decision.successor) == (run_key(), None)


def test_an_older_version_owns_nothing_after_the_change() -> None:
    changed = replace(
        JOB, schedule_version=JOB.schedule_version + 1, effective_from=at("11:59:59.999")
    )

    decision = decide_due(a_fire(JOB, NOON), changed, LATER)

    assert isinstance(decision, Drop)
    assert decision.reason == f"replaced by schedule version {changed.schedule_version}"


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.COMPLETED, JobState.CANCELLED])
def test_the_state_of_a_job_does_not_matter_its_version_does(state: JobState) -> None:
    decision = decide_due(a_fire(JOB, NOON), replace(JOB, state=state), LATER)

    assert isinstance(decision, Fire)


@pytest.mark.parametrize(
    ("job", "version", "reason"),
    [
        (None, JOB.schedule_version, "job not found"),
        (replace(JOB, uid="uid00002"), JOB.schedule_version, "job not found"),
        (JOB, JOB.schedule_version + 1, "the job has no schedule version"),
    ],
    ids=["absent", "another creation", "newer version"],
)
def test_an_orphaned_entry_is_kept_for_a_minute_then_dropped(
    job: object, version: int, reason: str
) -> None:
    entry = a_fire(JOB, NOON, version=version)

    left = decide_due(entry, job, NOON + ORPHAN_AGE - timedelta(milliseconds=1))  # type: ignore[arg-type]
    dropped = decide_due(entry, job, NOON + ORPHAN_AGE)  # type: ignore[arg-type]

    assert isinstance(left, Leave)
    assert isinstance(dropped, Drop)
    assert left.reason.startswith(reason)
    assert dropped.reason.endswith("60 s after it was due")


def test_an_occurrence_due_before_the_job_was_recreated_is_recorded() -> None:
    """The run is sent; the executor finds a newer creation of the job and records CANCELLED."""
    entry = a_fire(JOB, NOON)

    def decided(created_at: datetime) -> Decision:
        again = replace(JOB, uid="uid00002", created_at=created_at)
        return decide_due(entry, again, NOON + ORPHAN_AGE)

    sent = decided(NOON)
    assert isinstance(sent, Fire)
    assert (sent.run, sent.successor) == (run_key(), None)
    assert isinstance(decided(NOON - timedelta(milliseconds=1)), Drop)


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.CANCELLED])
def test_entries_of_a_former_version_respect_overlap_unless_the_job_was_deleted(
    state: JobState,
) -> None:
    job = a_job(since=at("11:30"), overlap="QUEUE", misfire=SKIP)
    changed = replace(job.with_new_version(at("14:30")), state=state)

    missed = decide_due(a_fire(job, NOON), changed, at("15:00"))
    ordinary = decide_due(a_fire(job, NOON), changed, LATER)

    deleted = state is JobState.CANCELLED
    assert isinstance(missed, Cover)
    assert missed.exclusive is not deleted
    assert isinstance(ordinary, Fire)
    assert (ordinary.owner is None) is deleted


def test_a_forgotten_version_owns_nothing_that_a_later_one_does() -> None:
    changed = JOB.with_new_version(NOON - 2 * MINUTE).with_new_version(NOON + MINUTE)
    forgotten = replace(changed, replaced=changed.replaced[1:])

    before = decide_due(a_fire(JOB, NOON - 3 * MINUTE), forgotten, LATER)
    after = decide_due(a_fire(JOB, NOON), forgotten, LATER)

    assert isinstance(before, Fire)
    assert before.successor is None
    assert isinstance(after, Drop)


def test_a_restored_job_does_not_reuse_schedule_versions() -> None:
    """Entries of the later version may still be in the due table."""
    since = JOB.with_new_version(NOON)

    assert JOB.with_new_version(NOON + MINUTE).schedule_version > since.schedule_version


@pytest.mark.parametrize("job", [None, JOB, replace(JOB, uid="uid00002")])
def test_a_retry_is_never_checked(job: object) -> None:
    decision = decide_due(
        a_retry(run_key(), NOON, dispatch=4, pool="batch"),
        job,  # type: ignore[arg-type]
        at("15:00"),
    )

    assert decision == Resend(run_key(), 4, "batch", Trigger.SCHEDULE)
    assert decision.reason == "retry is due"


def test_a_run_that_waited_without_an_attempt_is_not_called_a_retry() -> None:
    entry = JOB.dispatch_entry(run_key(), NOON, 2, again=True)

    decision = decide_due(entry, JOB, NOON)

    assert isinstance(decision, Resend)
    assert decision.reason == "due again after a wait"


def test_a_manual_run_ignores_runs_of_a_recreated_job() -> None:
    """It would wait for runs of the new job, or be replaced by one of them."""
    entry = replace(a_retry(run_key(), NOON, dispatch=1), trigger=Trigger.MANUAL)

    mine = decide_due(entry, JOB, NOON)
    another = decide_due(entry, replace(JOB, uid="uid00002"), NOON)
    assert isinstance(mine, Resend)
    assert isinstance(another, Resend)
    assert (mine.owner, another.owner) == (JOB, None)
