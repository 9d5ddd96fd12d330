"""The API's view of jobs with a schedule and parents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from functions.api.access import AccessibleJobs
from nextfire.domain.ids import JobKey
from nextfire.responses import jobs
from tests.integration.api_answers import assert_problem
from tests.integration.deployment import Deployment

DAILY: dict[str, Any] = {"schedule": "0 0 * * *", "timezone": "Europe/Berlin"}


def daily(system: Deployment, which: str = "all", **edge: Any) -> Any:
    system.register(jobId="hourly", schedule="0 * * * *")
    after = [{"job": "hourly", "which": which, **edge}]
    return system.register(jobId="daily", after=after, **DAILY)


def test_the_preview_names_the_runs_of_the_parents(system: Deployment) -> None:
    daily(system)

    answer = system.call("GET", "/v1/jobs/daily/upcoming", query={"count": "3"})

    assert answer.status == 200
    for before, item in zip(answer.document["items"], answer.document["items"][1:], strict=False):
        [parent] = item["parents"]
        assert (parent["job"], parent["which"]) == ("hourly", "all")
        times = parent["scheduledAt"]
        assert times[-1] == item["at"]
        assert before["at"] < times[0] < times[-1]
        assert len(times) in {23, 24, 25}


def test_the_preview_shows_what_latest_accepts(system: Deployment) -> None:
    daily(system, "latest", withinSec=3_600)

    item = system.call("GET", "/v1/jobs/daily/upcoming", query={"count": "1"}).document["items"][0]

    [parent] = item["parents"]
    assert parent["which"] == "latest"
    assert "scheduledAt" not in parent
    assert parent["succeededSince"] < item["at"]


def test_a_preview_names_a_bounded_number_of_runs(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.register(jobId="often", schedule="*/10 * * * *")
    system.register(jobId="b", schedule="0 * * * *", after=[{"job": "often", "which": "all"}])
    monkeypatch.setattr(jobs, "MAX_AWAITED_RUNS", 13)

    items = system.call("GET", "/v1/jobs/b/upcoming", query={"count": "9"}).document["items"]

    assert len(items) == 9
    named = [len(each["parents"][0]["scheduledAt"]) for each in items if "parents" in each]
    assert named[1:] == [6] * (len(named) - 1)
    assert sum(named[:-1]) < 13 <= sum(named)
    assert all("parents" in each for each in items[: len(named)])


def test_a_job_without_parents_has_none_in_its_preview(system: Deployment) -> None:
    system.register(jobId="hourly", schedule="0 * * * *")

    item = system.call("GET", "/v1/jobs/hourly/upcoming", query={"count": "1"}).document["items"][0]

    assert "parents" not in item


def test_a_preview_reads_a_bounded_number_of_jobs(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{number}" for number in range(8)]
    for name in names:
        system.register(jobId=name, schedule="0 * * * *")
    after = [{"job": name} for name in names]
    system.register(jobId="joined", type="AFTER", schedule=None, after=after)
    system.register(jobId="daily", after=[{"job": "joined", "which": "all"}], **DAILY)
    monkeypatch.setattr("nextfire.usecases.read_parents.MAX_ABOVE", 5)
    get, get_many, batches = AccessibleJobs.get, AccessibleJobs.get_many, list[int]()

    def spied(store: AccessibleJobs, keys: Sequence[JobKey], **named: bool) -> Any:
        batches.append(len(keys))
        return get_many(store, keys, **named)

    def get_only_daily(store: AccessibleJobs, key: JobKey) -> Any:
        assert key.job_id == "daily"
        return get(store, key)

    monkeypatch.setattr(AccessibleJobs, "get_many", spied)
    monkeypatch.setattr(AccessibleJobs, "get", get_only_daily)

    answer = system.call("GET", "/v1/jobs/daily/upcoming", query={"count": "1"})

    assert answer.status == 200
    assert batches == [1, 4]


def test_schedules_that_cannot_meet_are_rejected_with_an_example(system: Deployment) -> None:
    system.register(jobId="hourly", schedule="0 * * * *")
    body = {
        "type": "CRON",
        "schedule": "30 * * * *",
        "target": {"handler": "hello"},
        "after": [{"job": "hourly"}],
    }

    answer = system.call("POST", "/v1/jobs", body)

    assert_problem(answer, 422, field="after")
    assert "does not run at" in answer.document["detail"]
    assert '"which": "latest", "withinSec": 86400' in str(answer.document)


def test_withinsec_that_is_missing_is_named(system: Deployment) -> None:
    system.register(jobId="hourly", schedule="0 * * * *")
    body = {
        "type": "CRON",
        "schedule": "0 * * * *",
        "target": {"handler": "hello"},
        "after": [{"job": "hourly", "which": "latest"}],
    }

    answer = system.call("POST", "/v1/jobs", body)

    assert answer.status == 422
    [error] = answer.document["errors"]
    assert (error["field"], error["problem"]) == ("after.0.withinSec", "`latest` needs withinSec")
