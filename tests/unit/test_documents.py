"""How jobs and runs are shown: what is of use in one state only is shown in no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from functions.api.documents import execution_document, job_document
from nextfire.domain.job import JobState
from nextfire.domain.run import Attempt, AttemptOutcome, Run, RunState
from tests.builders import NOON, a_job, at, run_key


@pytest.mark.parametrize("state", JobState)
def test_a_pause_is_shown_while_it_lasts_and_what_comes_next_while_something_does(
    state: JobState,
) -> None:
    job = replace(a_job(schedule="0 * * * *"), state=state, pause_reason="a move")

    document = job_document(job, NOON)

    paused, active = state is JobState.PAUSED, state is JobState.ACTIVE
    assert ("pausedAt" in document, "pauseReason" in document) == (paused, paused)
    assert document.get("nextFireAt") == ("2026-05-24T13:00:00Z" if active else None)


@pytest.mark.parametrize("state", JobState)
def test_that_it_drains_is_shown_while_it_is_paused(state: JobState) -> None:
    job = replace(a_job(), state=state, drain_asked_at=NOON)
    assert ("drainAskedAt" in job_document(job, NOON)) == (state is JobState.PAUSED)
    assert job_document(job, NOON)["state"] == state
    assert job_document(job, NOON, draining=True)["state"] == "DRAINING"


@pytest.mark.parametrize("state", RunState)
def test_a_cancel_is_shown_as_asked_for_until_it_is_done(state: RunState) -> None:
    run = Run(run_key(), state, cancel_requested=True, cancel_reason="enough")

    document = execution_document(run)

    under_way = state is RunState.RUNNING
    assert ("cancelRequested" in document, "cancelReason" in document) == (under_way, under_way)


def test_a_cancel_that_nobody_asked_for_is_not_shown() -> None:
    assert "cancelRequested" not in execution_document(Run(run_key(), RunState.RUNNING))


def test_each_attempt_leads_to_its_own_log() -> None:
    attempts = tuple(
        Attempt(n, "w", NOON, at("12:01"), AttemptOutcome.FAILED, log_parts=1) for n in (1, 2, 13)
    )
    run = Run(run_key(), RunState.DEAD, attempt=13, attempts=attempts)

    logs = [each["logs"] for each in execution_document(run)["attempts"]]

    assert logs == [f"/v1/executions/{run.key.execution_id}/logs?attempt={n}" for n in (1, 2, 13)]
