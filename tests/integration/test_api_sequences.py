"""The API's routes for sequences: redrive from a link on, and cancel."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from nextfire.adapters.aws.clients import transact
from nextfire.adapters.aws.errors import TransactionConflictError
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases import read_sequence
from tests.builders import claim_run
from tests.integration.api_answers import assert_problem
from tests.integration.deployment import Answer, Deployment, message_for

AFTER: dict[str, Any] = {"type": "AFTER", "schedule": None}


@pytest.fixture
def jobs(system: Deployment) -> list[Job]:
    """A chain of three: the second is DEAD, the third SKIPPED because of it."""
    a = system.register(jobId="a")
    b, c = (system.register(jobId=n, after=[{"job": p}], **AFTER) for n, p in ("ba", "cb"))
    end(system, a, RunState.SUCCEEDED, at=a)
    end(system, b, RunState.DEAD, at=a)
    skipped = Run.skipped(key(c, a), "trigger rule ALL_SUCCEEDED: b FAILED", c.created_at)
    system.runs.skip(skipped)
    return [system.job(name) for name in "abc"]


def key(job: Job, at: Job) -> RunKey:
    return job.run_key(cut(at.created_at))


def end(
    system: Deployment, job: Job, state: RunState, *, at: Job, ended_at: datetime | None = None
) -> None:
    message = message_for(job, cut(at.created_at))
    run = claim_run(system.runs, message, job.created_at, token=job.uid).run
    result = Result(AttemptOutcome.FAILED, "exit code 1", 1)
    ended = run.ended(state, result, ended_at or job.created_at)
    assert system.runs.advance(run, ended).taken


def redrive(system: Deployment, jobs: list[Job], body: object, **more: Any) -> Answer:
    path = f"/v1/executions/{key(jobs[2], jobs[0]).execution_id}/chain/redrive"
    return system.call("POST", path, body, **more)


def states(system: Deployment, jobs: list[Job]) -> list[RunState]:
    runs = [system.runs.get(key(job, jobs[0])) for job in jobs]
    return [run.state for run in runs if run]


def test_a_dry_run_shows_the_plan_and_changes_nothing(system: Deployment, jobs: list[Job]) -> None:
    answer = redrive(system, jobs, {"from": "b", "dryRun": True})

    assert (answer.status, answer.document["dryRun"]) == (200, True)
    shown = [(each["jobId"], each["state"], each["action"]) for each in answer.document["items"]]
    assert shown == [
        ("a", "SUCCEEDED", "KEEP"),
        ("b", "DEAD", "RUN"),
        ("c", "SKIPPED", "FOLLOW"),
    ]
    assert answer.document["items"][2]["reason"] == "after b, if ALL_SUCCEEDED allows it"
    assert states(system, jobs) == [RunState.SUCCEEDED, RunState.DEAD, RunState.SKIPPED]


def test_the_link_starts_again_and_repeating_it_changes_nothing(
    system: Deployment, jobs: list[Job]
) -> None:
    first = redrive(system, jobs, {"from": "b", "reason": "the disk is repaired"})
    stored = system.runs.get(key(jobs[1], jobs[0]))
    again = redrive(system, jobs, {"from": "b"})

    assert (first.status, first.document["dryRun"]) == (200, False)
    assert states(system, jobs) == [RunState.SUCCEEDED, RunState.PENDING, RunState.SKIPPED]
    assert stored is not None
    assert (stored.dispatch, stored.reason) == (10_001, "the disk is repaired")
    assert again.document["items"][1]["reason"] == "has not ended: PENDING"
    assert system.runs.get(stored.key) == stored


def test_downstream_makes_dead_runs_await_their_parents(
    system: Deployment, jobs: list[Job]
) -> None:
    d = system.register(jobId="d", after=[{"job": "b"}], triggerRule="ALL_DONE", **AFTER)
    end(system, d, RunState.DEAD, at=jobs[0])

    answer = redrive(system, jobs, {"from": "b", "downstream": True})

    assert answer.status == 200, answer
    assert [each["action"] for each in answer.document["items"]] == [
        "KEEP",
        "RUN",
        "FOLLOW",
        "FOLLOW",
    ]
    stored = system.runs.get(key(d, jobs[0]))
    assert stored is not None
    assert stored.skipped_by_parents


def test_with_the_runs_definition_a_changed_job_is_a_conflict(
    system: Deployment, jobs: list[Job]
) -> None:
    body = {"from": "b", "definition": "run"}
    assert redrive(system, jobs, body | {"dryRun": True}).status == 200
    assert system.call("PATCH", "/v1/jobs/b", {"payload": {"fixed": True}}).status == 200

    for more in ({"dryRun": True}, {}):
        answer = redrive(system, jobs, body | more)
        assert_problem(answer, 409)
    assert states(system, jobs) == [RunState.SUCCEEDED, RunState.DEAD, RunState.SKIPPED]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "from"),
        ({"from": "not a job"}, 422, "from"),
        ({"from": "x"}, 422, "from"),
        ({"from": "b", "downstream": "yes"}, 422, "downstream"),
        ({"from": "b", "dryRun": 1}, 422, "dryRun"),
        ({"from_": "b"}, 422, "from"),
        ({"from": "b", "definition": "old"}, 422, "definition"),
    ],
)
def test_bad_requests(
    system: Deployment, jobs: list[Job], body: object, status: int, field: str
) -> None:
    assert_problem(redrive(system, jobs, body), status, field=field)


def test_an_unknown_execution_is_not_found(system: Deployment, jobs: list[Job]) -> None:
    path = "/v1/executions/unknown.20260524T100000000Z-k3x9m2ab/chain/redrive"

    assert_problem(system.call("POST", path, {"from": "b"}), 404)
    assert states(system, jobs) == [RunState.SUCCEEDED, RunState.DEAD, RunState.SKIPPED]


def test_a_cancel_shows_its_plan_and_ends_what_has_not_ended(system: Deployment) -> None:
    a = system.register(jobId="a")
    b = system.register(jobId="b", after=[{"job": "a"}], **AFTER)
    end(system, a, RunState.SUCCEEDED, at=a, ended_at=b.created_at)
    path = f"/v1/executions/{key(a, a).execution_id}/chain/cancel"

    planned = system.call("POST", path, {"dryRun": True})
    assert system.runs.get(key(b, a)) is None
    done = system.call("POST", path, {"reason": "wrong input"})
    again = system.call("POST", path)

    assert [each.status for each in (planned, done, again)] == [200, 200, 200]
    shown = [(each["jobId"], each["state"], each["action"]) for each in done.document["items"]]
    assert shown == [("a", "SUCCEEDED", "KEEP"), ("b", "WAITING", "CANCEL")]
    assert planned.document["items"] == done.document["items"]
    assert {each["action"] for each in again.document["items"]} == {"KEEP"}
    stored = system.runs.get(key(b, a))
    assert stored is not None
    assert (stored.state, stored.reason) == (RunState.CANCELLED, "wrong input")
    unknown = "/v1/executions/unknown.20260524T100000000Z-k3x9m2ab/chain/cancel"
    assert_problem(system.call("POST", unknown), 404)


@pytest.mark.usefixtures("jobs")
def test_a_job_with_children_is_not_deleted(system: Deployment) -> None:
    refused = system.call("DELETE", "/v1/jobs/a")

    assert_problem(refused, 409)
    assert "Delete 'b' first" in refused.document["detail"]
    for name in "cba":
        assert system.call("DELETE", f"/v1/jobs/{name}").status == 200


@pytest.mark.parametrize(
    ("method", "end"), [("GET", ""), ("POST", "/cancel"), ("POST", "/redrive")]
)
def test_a_sequence_that_is_not_read_in_time_may_be_read_later(
    system: Deployment, jobs: list[Job], monkeypatch: pytest.MonkeyPatch, method: str, end: str
) -> None:
    monkeypatch.setattr(read_sequence, "_AT_MOST", timedelta(0))
    path = f"/v1/executions/{key(jobs[0], jobs[0]).execution_id}/chain{end}"

    answer = system.call(method, path, {"from": "b"} if end == "/redrive" else None)

    assert_problem(answer, 503)
    assert answer.headers["retry-after"] == "1"


def test_a_part_of_a_sequence_of_too_many_jobs_is_not_cancelled(
    system: Deployment, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_sequence, "MAX_NODES", 2)
    path = f"/v1/executions/{key(jobs[0], jobs[0]).execution_id}/chain/cancel"

    assert_problem(system.call("POST", path, {}), 409)


def test_a_child_waits_for_other_writes_of_its_parent(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DynamoDB refuses a transaction while another one has the item."""
    conflicts = [*range(11)]

    def refused(client: Any, writes: list[Any], what: str) -> Any:
        if what == "update job" and conflicts:
            conflicts.pop()
            raise TransactionConflictError("transaction cancelled. Try again.")
        return transact(client, writes, what)

    store = "nextfire.adapters.dynamodb.job_store"
    monkeypatch.setattr(f"{store}.transact", refused)
    monkeypatch.setattr(f"{store}.random.uniform", lambda *_: 0.0)
    system.register(jobId="a")

    job = {"jobId": "b", "type": "AFTER", "after": [{"job": "a"}], "target": {"handler": "hello"}}
    assert system.call("POST", "/v1/jobs", job).status == 201
    assert system.job("a").children == ("b",)
    assert not conflicts
