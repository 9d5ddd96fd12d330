"""Cancelling runs and occurrences, alone and concurrently with other actors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.errors import ConflictError, NotFoundError
from nextfire.domain.run import Run, RunState
from nextfire.usecases.find_run import PendingOccurrence
from tests.builders import at, run_key
from tests.unit.manage_runs.conftest import FAILED, Harness


def test_an_occurrence_that_is_claimed_meanwhile_is_asked_to_end(harness: Harness) -> None:
    key = run_key(at("12:00"))
    harness.faults.call_before_next("runs.cancel", harness.started)

    run = harness.manage.cancel(key, "why")

    assert (run.state, run.cancel_requested, run.cancel_reason) == (RunState.RUNNING, True, "why")


def test_a_run_that_ends_meanwhile_is_not_cancelled(harness: Harness) -> None:
    run = harness.started()
    ended = run.ended(RunState.SUCCEEDED, FAILED, at("12:01"))
    harness.faults.call_before_next("runs.stop", lambda: harness.runs.advance(run, ended))

    with pytest.raises(ConflictError) as refused:
        harness.manage.cancel(run.key, None)

    assert "is SUCCEEDED" in refused.value.problem


def test_a_run_is_asked_once(harness: Harness) -> None:
    run = harness.started()
    harness.manage.cancel(run.key, "first")

    again = harness.manage.cancel(run.key, "second")

    assert again.cancel_reason == "first"


def test_a_waiting_run_that_was_to_be_cancelled_when_it_ran_is_cancelled(harness: Harness) -> None:
    run = replace(harness.started(), state=RunState.PENDING, cancel_requested=True)
    harness.runs._store(run)  # noqa: SLF001 — writers never leave such a record

    assert harness.manage.cancel(run.key, None).state is RunState.CANCELLED


def test_an_occurrence_of_a_paused_job_can_be_cancelled(harness: Harness) -> None:
    harness.jobs.put(harness.job.paused(at("11:30"), None))
    key = run_key(at("12:00"))
    assert isinstance(harness.find_run.find(key), PendingOccurrence)

    assert harness.manage.cancel(key, None).state is RunState.CANCELLED
    with pytest.raises(NotFoundError):
        harness.manage.cancel(run_key(at("13:00")), None)


# Runs that a pending occurrence waits for


def is_running(run: Run) -> Run:
    return run


def is_handed_back(run: Run) -> Run:
    return run.handed_back(Result(AttemptOutcome.HANDED_BACK, "shut down"), at("11:01"))


def is_to_be_retried_at(time: str) -> Callable[[Run], Run]:
    return lambda run: run.retrying(FAILED, at("11:01"), not_before=at(time))


@pytest.mark.parametrize(
    ("earlier", "blocks"),
    [
        (is_running, True),
        (is_handed_back, True),
        (is_to_be_retried_at("12:00"), True),
        (is_to_be_retried_at("12:01"), False),
    ],
    ids=["it runs", "handed back", "retried at 12:00", "retried later"],
)
def test_an_occurrence_waits_for_an_earlier_run_whose_message_came_first(
    harness: Harness, earlier: Callable[[Run], Run], *, blocks: bool
) -> None:
    harness.registered(overlap="QUEUE")
    run = harness.started(run_key(at("11:00")))
    harness.runs.advance(run, earlier(run))

    waiting = harness.find_run.find(run_key(at("12:00")))

    assert isinstance(waiting, PendingOccurrence)
    assert (f"waits for {run.key.execution_id}" in waiting.reason) is blocks
