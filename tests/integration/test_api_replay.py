"""Executions of HTTP callbacks that are replayed."""

from __future__ import annotations

import json

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.job import Job
from nextfire.domain.replay import Replay
from nextfire.domain.run import Run, RunState, Trigger
from tests.builders import claim_run
from tests.integration.deployment import Answer, Deployment, message_for

DIGEST = "0123456789abcdef" * 2


@pytest.fixture
def job(system: Deployment) -> Job:
    return system.register(jobId="a")


def ended(
    system: Deployment,
    job: Job,
    state: RunState = RunState.SUCCEEDED,
    call: str | None = json.dumps({"status": 200, "digest": DIGEST}),
) -> Run:
    at = job.next_after(job.effective_from)
    assert at is not None
    claimed = claim_run(system.runs, message_for(job, at), at).run
    if state is RunState.RUNNING:
        return claimed
    outcome = AttemptOutcome.SUCCEEDED if state is RunState.SUCCEEDED else AttemptOutcome.FAILED
    done = claimed.ended(state, Result(outcome, "200 OK", call=call), at)
    return system.runs.advance(claimed, done).run


def replay(system: Deployment, execution_id: str, key: str = "k") -> Answer:
    return system.call(
        "POST",
        f"/v1/executions/{execution_id}/replay",
        {"reason": "it was lost"},
        headers={"Idempotency-Key": key},
    )


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.DEAD])
def test_an_ended_callback_is_sent_again_by_a_new_execution(
    system: Deployment, job: Job, state: RunState
) -> None:
    run = ended(system, job, state)

    answer = replay(system, run.key.execution_id)

    assert answer.status == 201, answer.document
    assert answer.document["replayOf"] == run.key.execution_id
    assert (answer.document["state"], answer.document["trigger"]) == ("PENDING", "MANUAL")
    made = [each for each in system.runs.list(job.key, cursor=None, limit=9).items if each != run]
    assert [(each.trigger, each.replay_of) for each in made] == [
        (Trigger.MANUAL, Replay(run.key.run_id, 1, DIGEST))
    ]
    assert made[0].shown.key == run.key


def test_a_repeated_request_replays_once(system: Deployment, job: Job) -> None:
    run = ended(system, job)

    first, again = (replay(system, run.key.execution_id) for _ in range(2))

    assert again.document == first.document
    assert len(system.runs.list(job.key, cursor=None, limit=9).items) == 2


@pytest.mark.parametrize(
    ("state", "call", "text"),
    [
        (RunState.RUNNING, None, "has not ended"),
        (RunState.SUCCEEDED, None, "has no HTTP request"),
        (RunState.DEAD, '{"service": "sqs"}', "has no HTTP request"),
        (RunState.DEAD, '{"digest": "x"}', "has no HTTP request"),
        (RunState.DEAD, "[]", "has no HTTP request"),
    ],
)
def test_other_executions_are_not_replayed(
    system: Deployment, job: Job, state: RunState, call: str | None, text: str
) -> None:
    run = ended(system, job, state, call)

    answer = replay(system, run.key.execution_id)

    assert answer.status == 409
    assert text in answer.document["detail"]
    assert len(system.runs.list(job.key, cursor=None, limit=9).items) == 1


def test_a_replay_of_a_deleted_job_is_refused(system: Deployment, job: Job) -> None:
    run = ended(system, job)
    assert system.call("DELETE", "/v1/jobs/a").status < 300

    assert replay(system, run.key.execution_id).status in {404, 409}
