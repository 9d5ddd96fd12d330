"""Pause and resume of all jobs of a tenant. Selection by label is in test_api_many.py."""

from __future__ import annotations

import pytest

from nextfire.domain.occurrences import JobState
from nextfire.usecases import many_jobs
from tests.integration.deployment import OTHER_TENANT, Deployment

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}


@pytest.fixture(autouse=True)
def _jobs(system: Deployment) -> None:
    """Jobs a to c, and another tenant's."""
    for job_id in "abc":
        system.register(jobId=job_id, labels={"team": "etl"})
    assert system.call("POST", "/v1/jobs", CRON, tenant=OTHER_TENANT).status == 201


def states(system: Deployment) -> list[JobState]:
    return [system.job(job_id).state for job_id in "abc"]


def test_all_jobs_of_the_tenant_call_by_call(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_jobs, "TOGETHER", 2)
    monkeypatch.setattr(many_jobs, "PAGES_AT_MOST", 1)
    asked = {"allJobs": True}
    theirs = system.call("POST", "/v1/jobs:pause", asked, tenant=OTHER_TENANT).document
    assert (theirs["matched"], states(system)) == (1, [JobState.ACTIVE] * 3)

    first = system.call("POST", "/v1/jobs:pause", asked | {"reason": "moves"}).document
    token = {"progressToken": first["progressToken"]}
    second = system.call("POST", "/v1/jobs:pause", asked | token).document

    assert (first["changed"], second["changed"], second.get("progressToken")) == (2, 1, None)
    assert states(system) == [JobState.PAUSED] * 3
    assert system.job("a").pause_reason == "moves"
    monkeypatch.undo()
    assert system.call("POST", "/v1/jobs:resume", asked).document["changed"] == 3
    assert states(system) == [JobState.ACTIVE] * 3


@pytest.mark.parametrize(
    ("what", "body", "field"),
    [
        ("pause", {"labels": {"team": "etl"}, "allJobs": True}, "labels"),
        ("resume", {"labels": {}, "allJobs": True}, "labels"),
        ("pause", {"allJobs": False}, "allJobs"),
        ("resume", {"labels": None}, "labels"),
        ("cancel", {"allJobs": True}, "allJobs"),
    ],
)
def test_they_are_named_explicitly(system: Deployment, what: str, body: object, field: str) -> None:
    answer = system.call("POST", f"/v1/jobs:{what}", body)

    assert answer.status == 422
    assert field in {each["field"] for each in answer.document["errors"]}
    assert states(system) == [JobState.ACTIVE] * 3
