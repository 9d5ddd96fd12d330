"""Starting a run now that waits for its retry, also twice and concurrently with other actors."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import ConflictError
from nextfire.domain.ids import unsent_dispatch
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from tests.builders import a_message, at, claim_run
from tests.unit.manage_runs.conftest import FAILED, Harness

RETRY_AT = at("13:00")


def waiting(harness: Harness) -> Run:
    """A run that failed once and is tried again at 13:00."""
    run = harness.started()
    return harness.runs.advance(run, run.retrying(FAILED, at("12:01"), not_before=RETRY_AT)).run


def fails_again(harness: Harness, run: Run) -> Run:
    """A worker claims *run*, as it is due, and it dies."""
    now = harness.clock.now()
    message = a_message(run.key, dispatch=run.dispatch)
    claimed = claim_run(harness.runs, message, now, token="again").run
    return harness.runs.advance(claimed, claimed.ended(RunState.DEAD, FAILED, now)).run


def test_a_run_that_waits_for_its_retry_is_due_now_and_keeps_its_attempts(harness: Harness) -> None:
    run = waiting(harness)

    begun = harness.manage.redrive(run.key, None)

    assert begun == replace(
        run,
        dispatch=unsent_dispatch(run.dispatch),
        not_before=at("12:30"),
        reason="started now on request",
    )
    assert (begun.tries, begun.restarted) == (1, False)
    [entry] = harness.due.entries
    assert isinstance(entry, DispatchEntry)
    assert (entry.at, entry.dispatch) == (at("12:30"), begun.dispatch)


def test_the_message_of_the_retry_starts_nothing_then(harness: Harness) -> None:
    run = waiting(harness)
    begun = harness.manage.redrive(run.key, "now")
    late = harness.clock.advance(minutes=31)

    assert not claim_run(harness.runs, a_message(run.key, dispatch=run.dispatch), late).taken
    claimed = claim_run(harness.runs, a_message(run.key, dispatch=begun.dispatch), late)
    assert (claimed.taken, claimed.run.attempt) == (True, 2)


@pytest.mark.parametrize("minutes", [30, 31])
def test_a_run_that_is_due_already_is_refused(harness: Harness, minutes: int) -> None:
    run = waiting(harness)
    harness.clock.advance(minutes=minutes)

    with pytest.raises(ConflictError, match="PENDING"):
        harness.manage.redrive(run.key, None)
    assert harness.due.entries == []


def test_a_run_that_was_handed_back_is_refused(harness: Harness) -> None:
    run = harness.started()
    harness.runs.advance(run, run.handed_back(FAILED, at("12:01")))

    with pytest.raises(ConflictError) as refused:
        harness.manage.redrive(run.key, None)
    assert refused.value.remedy == (
        "Only an execution that is DEAD, or PENDING until its `retryAt`, can be redriven."
    )


def test_of_a_deleted_job_or_pool_nothing_is_started(harness: Harness) -> None:
    run = waiting(harness)
    harness.jobs.put(replace(harness.job, state=JobState.CANCELLED))
    with pytest.raises(ConflictError, match="deleted"):
        harness.manage.redrive(run.key, None)

    harness.registered(target={"handler": "x", "pool": "gone"})
    with pytest.raises(ConflictError, match="gone"):
        harness.manage.redrive(run.key, None)
    assert harness.runs.get(run.key) == run


def test_of_two_that_start_it_at_once_one_dispatch_comes(harness: Harness) -> None:
    run = waiting(harness)
    harness.faults.call_before_next(
        "runs.bring_forward", lambda: harness.manage.redrive(run.key, "other")
    )

    begun = harness.manage.redrive(run.key, "mine")

    assert begun.reason == "other"
    assert len(harness.due.entries) == 1


def test_a_run_that_was_cancelled_meanwhile_stays_cancelled(harness: Harness) -> None:
    run = waiting(harness)
    harness.faults.call_before_next(
        "runs.bring_forward", lambda: harness.manage.cancel(run.key, None)
    )

    with pytest.raises(ConflictError, match="CANCELLED"):
        harness.manage.redrive(run.key, None)
    assert harness.due.entries == []


def test_a_request_that_comes_again_starts_it_once(harness: Harness) -> None:
    run = waiting(harness)
    asked_at = harness.clock.now()
    begun = harness.manage.redrive(run.key, None, asked_at=asked_at)
    harness.clock.advance(seconds=1)
    assert harness.manage.redrive(run.key, None, asked_at=asked_at) == begun
    died = fails_again(harness, begun)

    assert harness.manage.redrive(run.key, None, asked_at=asked_at) == died
    later = harness.clock.advance(seconds=1)
    assert harness.manage.redrive(run.key, None, asked_at=later).attempt_base == 2


def test_a_request_that_comes_again_leaves_the_next_retry(harness: Harness) -> None:
    run = waiting(harness)
    asked_at = harness.clock.now()
    begun = harness.manage.redrive(run.key, None, asked_at=asked_at)
    now = harness.clock.advance(seconds=1)
    message = a_message(run.key, dispatch=begun.dispatch)
    claimed = claim_run(harness.runs, message, now, token="again").run
    retry_at = now + timedelta(hours=1)
    again = harness.runs.advance(claimed, claimed.retrying(FAILED, now, not_before=retry_at)).run

    assert harness.manage.redrive(run.key, None, asked_at=asked_at) == again
    later = harness.clock.advance(seconds=1)
    assert harness.manage.redrive(run.key, None, asked_at=later).not_before == later


def test_a_request_that_comes_again_is_carried_out_if_none_was_before(harness: Harness) -> None:
    """The process of the first one died before it wrote anything."""
    run = waiting(harness)

    begun = harness.manage.redrive(run.key, None, asked_at=at("11:59"))

    assert begun.not_before == at("12:30")
