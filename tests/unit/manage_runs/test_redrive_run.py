"""Redriving one dead run, also twice and concurrently with other actors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import ConflictError
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from tests.builders import at
from tests.unit.manage_runs.conftest import FAILED, Harness


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (
            RunState.RUNNING,
            "Only an execution that is DEAD, or PENDING until its `retryAt`, can be redriven.",
        ),
        (
            RunState.SUCCEEDED,
            (
                "Only a DEAD execution can be redriven. A sequence can start again from a job "
                "whose execution is DEAD, CANCELLED or SKIPPED: "
                "POST /v1/executions/{executionId}/chain/redrive."
            ),
        ),
    ],
)
def test_what_is_not_dead_is_not_redriven(harness: Harness, state: RunState, remedy: str) -> None:
    run = harness.started()
    if state.ended:
        harness.runs.advance(run, run.ended(state, FAILED, at("12:01")))

    with pytest.raises(ConflictError) as refused:
        harness.manage.redrive(run.key, None)

    assert (refused.value.problem, refused.value.remedy) == (f"The execution is {state}", remedy)


def test_what_is_not_dead_says_so_though_its_job_is_gone(harness: Harness) -> None:
    run = harness.started()
    harness.jobs.put(replace(harness.job, state=JobState.CANCELLED))

    with pytest.raises(ConflictError, match="RUNNING"):
        harness.manage.redrive(run.key, None)


def test_a_dead_run_gets_an_entry_in_its_jobs_present_pool(harness: Harness) -> None:
    job = harness.registered(
        target={"handler": "x", "pool": "batch"}, overlap="QUEUE", priority="LOW"
    )
    run = harness.dead()

    redriven = harness.manage.redrive(run.key, None)

    assert (redriven.state, redriven.reason) == (RunState.PENDING, "redriven on request")
    [entry] = harness.due.entries
    assert isinstance(entry, DispatchEntry)
    assert (entry.at, entry.dispatch) == (at("12:30"), redriven.dispatch)
    assert (entry.pool, entry.rank, entry.exclusive) == (
        "batch",
        job.definition.priority.rank,
        True,
    )


def test_a_redrive_that_comes_again_does_nothing_once_it_was_begun_with(harness: Harness) -> None:
    died = harness.dead()
    asked_at = harness.clock.now()
    redriven = harness.manage.redrive(died.key, None, asked_at=asked_at)
    harness.clock.advance(seconds=1)
    assert harness.manage.redrive(died.key, None, asked_at=asked_at) == redriven
    died_again = harness.dies_again(died.key)

    assert harness.manage.redrive(died.key, None, asked_at=asked_at) == died_again
    later = harness.clock.advance(seconds=1)
    assert harness.manage.redrive(died.key, None, asked_at=later).state is RunState.PENDING


def test_a_run_that_was_already_redriven_is_returned_at_once(harness: Harness) -> None:
    died = harness.dead()
    harness.manage.redrive(died.key, None)
    later = harness.clock.advance(seconds=1)

    with pytest.raises(ConflictError, match="PENDING"):
        harness.manage.redrive(died.key, None, asked_at=later)
    harness.manage.cancel(died.key, None)
    with pytest.raises(ConflictError, match="CANCELLED"):
        harness.manage.redrive(died.key, None, asked_at=later)


def test_a_redrive_that_comes_again_is_carried_out_if_none_was_before(harness: Harness) -> None:
    """The first request was rejected because the run had not ended yet."""
    died = harness.dead()

    redriven = harness.manage.redrive(died.key, None, asked_at=at("11:59"))

    assert redriven.state is RunState.PENDING


def test_of_two_that_redrive_at_once_one_dispatch_comes(harness: Harness) -> None:
    run = harness.dead()
    harness.faults.call_before_next(
        "runs.redrive", lambda: harness.manage.redrive(run.key, "other")
    )

    redriven = harness.manage.redrive(run.key, "mine")

    assert redriven.state is RunState.PENDING
    [entry] = harness.due.entries
    assert isinstance(entry, DispatchEntry)
    assert entry.dispatch == redriven.dispatch


def test_a_redrive_returns_the_current_state_of_a_run_that_has_ended(harness: Harness) -> None:
    run = harness.dead()

    def finish_first() -> None:
        redriven = harness.manage.redrive(run.key, None)
        harness.runs._store(replace(redriven, state=RunState.SUCCEEDED, dispatch=99))  # noqa: SLF001

    harness.faults.call_before_next("runs.redrive", finish_first)

    with pytest.raises(ConflictError) as refused:
        harness.manage.redrive(run.key, None)

    assert "is SUCCEEDED" in refused.value.problem


def test_a_paused_jobs_run_is_redriven(harness: Harness) -> None:
    run = harness.dead()
    harness.jobs.put(harness.job.paused(at("12:10"), None))

    assert harness.manage.redrive(run.key, None).state is RunState.PENDING
