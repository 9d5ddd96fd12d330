"""Responses: how fields get their values, and which are shown in which state of a job or run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pytest
from pydantic import JsonValue

from nextfire.domain.attempt import Attempt, AttemptOutcome
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import Overlap
from nextfire.domain.run import Run, RunState
from nextfire.responses.base import ApiResponse, Json, field
from nextfire.responses.executions import ExecutionResponse
from nextfire.responses.jobs import JobResponse
from tests.builders import NOON, a_job, at, run_key


class Example(ApiResponse):
    """Fields of all kinds."""

    example_id: str = field(lambda source, *_: source.key.id)
    from_: datetime
    overlap: Overlap | None
    states: list[RunState]
    payload: JsonValue | None
    token: str | None = field(lambda _, token=None: token, secret=True)


SOURCE = SimpleNamespace(
    key=SimpleNamespace(id="e"),
    from_=NOON,
    overlap=None,
    states=(RunState.DEAD,),
    payload=Json(None),
)
DOCUMENT = {
    "exampleId": "e",
    "from": "2026-05-24T12:00:00Z",
    "states": ["DEAD"],
    "payload": None,
    "token": "secret",
}


def test_a_document_has_the_values_of_its_source_without_none() -> None:
    assert Example.of(SOURCE, "secret").document == DOCUMENT
    assert [*Example.of(SOURCE, "secret").document] == [*DOCUMENT]


def test_given_values_replace_those_of_the_source() -> None:
    given = Example.of(SOURCE, example_id="other", overlap=Overlap.SKIP).document

    assert (given["exampleId"], given["overlap"]) == ("other", "SKIP")
    assert Example.of(example_id="other").document == {"exampleId": "other"}
    with pytest.raises(TypeError, match="Example has no field exampleId"):
        Example.of(SOURCE, exampleId="other")


def test_a_source_without_a_field_is_an_error() -> None:
    with pytest.raises(AttributeError, match="states"):
        Example.of(SimpleNamespace(key=SOURCE.key, from_=NOON, overlap=None))


def test_a_document_is_read_as_it_was_built() -> None:
    read = Example(DOCUMENT)

    assert (read.example_id, read.from_, read.overlap) == ("e", NOON, None)
    assert (read.states, read.payload, read.token) == ([RunState.DEAD], None, "secret")
    assert "secret" not in repr(read)


def test_a_document_of_a_newer_api_is_readable() -> None:
    newer = Example(DOCUMENT | {"overlap": "MERGE", "states": ["DEAD", "LOST"], "colour": "red"})

    assert (newer.overlap, newer.states) == ("MERGE", ["DEAD", "LOST"])


def test_a_job_of_a_newer_api_is_readable() -> None:
    document = JobResponse.of(a_job(), NOON).document
    document["target"] |= {"image": "python"}
    document["retryPolicy"] |= {"backoff": "RANDOM", "retryOn": {"states": ["EVICTED"]}}

    job = JobResponse(document)

    assert (job.target.pool, job.retry_policy.backoff) == ("default", "RANDOM")
    assert job.retry_policy.retry_on.states == ["EVICTED"]
    assert job.overlap is Overlap.ALLOW


def test_a_job_has_all_fields_of_its_definition() -> None:
    job = a_job()
    response = JobResponse.of(job, NOON)

    assert response.document.items() >= job.definition.document().items()
    for name in type(job.definition).model_fields:
        getattr(response, name)


@pytest.mark.parametrize("state", JobState)
def test_a_pause_is_shown_while_it_lasts_and_what_comes_next_while_something_does(
    state: JobState,
) -> None:
    job = replace(a_job(schedule="0 * * * *"), state=state, pause_reason="a move", paused_by="ada")

    document = JobResponse.of(job, NOON).document

    paused, active = state is JobState.PAUSED, state is JobState.ACTIVE
    assert ("pausedAt" in document, "pauseReason" in document) == (paused, paused)
    assert ("pausedBy" in document) == paused
    assert document.get("nextFireAt") == ("2026-05-24T13:00:00Z" if active else None)


@pytest.mark.parametrize("state", JobState)
def test_that_it_drains_is_shown_while_it_is_paused(state: JobState) -> None:
    job = replace(a_job(), state=state, drain_asked_at=NOON)
    assert ("drainAskedAt" in JobResponse.of(job, NOON).document) == (state is JobState.PAUSED)
    assert JobResponse.of(job, NOON).document["state"] == state
    assert JobResponse.of(job, NOON, True).document["draining"] is True


@pytest.mark.parametrize("state", RunState)
def test_a_cancel_is_shown_as_asked_for_until_it_is_done(state: RunState) -> None:
    run = Run(run_key(), state, cancel_requested=True, cancel_reason="enough")

    document = ExecutionResponse.of(run).document

    under_way = state is RunState.RUNNING
    assert ("cancelRequested" in document, "cancelReason" in document) == (under_way, under_way)


def test_a_cancel_that_was_not_requested_is_not_shown() -> None:
    assert "cancelRequested" not in ExecutionResponse.of(Run(run_key(), RunState.RUNNING)).document


def test_each_attempt_leads_to_its_own_log() -> None:
    attempts = tuple(
        Attempt(n, "w", NOON, at("12:01"), AttemptOutcome.FAILED, log_parts=1) for n in (1, 2, 13)
    )
    run = Run(run_key(), RunState.DEAD, attempt=13, attempts=attempts)

    logs = [each["logs"] for each in ExecutionResponse.of(run).document["attempts"]]

    assert logs == [f"/v1/executions/{run.key.execution_id}/logs?attempt={n}" for n in (1, 2, 13)]
