"""Listings with filters, and the details of one job: its latest execution and next occurrences."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from functions.api import services as api
from nextfire.domain.instants import isoformat, parse_instant
from tests.fakes import Clock
from tests.integration.deployment import OTHER_TENANT, Deployment, message_for

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}


@pytest.fixture
def jobs(system: Deployment) -> None:
    fields: dict[str, dict[str, Any]] = {
        "a": {"name": "daily-a", "labels": {"team": "billing", "env": "prod"}},
        "b": {"name": "daily-b", "labels": {"team": "billing", "env": "test"}},
        "c": {"name": "weekly", "labels": {"team": "web"}},
        "d": {"labels": {"team": "billing", "url": "http://x"}},
        "e": {"name": "Daily"},
    }
    for job_id, more in fields.items():
        system.register(jobId=job_id, **more)
    system.call("POST", "/v1/jobs/b/pause")
    system.call("DELETE", "/v1/jobs/e")
    system.call("POST", "/v1/jobs", CRON | {"name": "daily-theirs"}, tenant=OTHER_TENANT)


def found(system: Deployment, **query: str) -> str:
    """The ids of the jobs found, across all pages."""
    ids = ""
    while True:
        answer = system.call("GET", "/v1/jobs", query=query)
        assert answer.status == 200, answer.document
        ids += "".join(job["jobId"] for job in answer.document["items"])
        if "cursor" not in answer.document:
            return ids
        query["cursor"] = answer.document["cursor"]


@pytest.mark.usefixtures("jobs")
class TestFilters:
    @pytest.mark.parametrize(
        ("query", "ids"),
        [
            ({}, "abcde"),
            ({"state": "ACTIVE"}, "acd"),
            ({"state": "PAUSED"}, "b"),
            ({"state": "CANCELLED"}, "e"),
            ({"state": "COMPLETED"}, ""),
            ({"state": "UNREADABLE"}, ""),
            ({"label": "team:billing"}, "abd"),
            ({"label": "team:billing,env:prod"}, "a"),
            ({"label": "team:"}, ""),
            ({"label": "url:http://x"}, "d"),
            ({"name": "daily"}, "ab"),
            ({"name": "daily-b"}, "b"),
            ({"name": ""}, "abcde"),
            ({"name": "daily", "state": "ACTIVE", "label": "env:prod"}, "a"),
        ],
    )
    def test_what_is_found(self, system: Deployment, query: dict[str, str], ids: str) -> None:
        for limit in ("1", "2", "100"):
            assert found(system, **query, limit=limit) == ids

    def test_label_given_twice(self, system: Deployment) -> None:
        # As API Gateway joins repeated parameters.
        answer = system.call("GET", "/v1/jobs", query={"label": "env:test,team:billing"})

        assert [job["jobId"] for job in answer.document["items"]] == ["b"]

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ({"state": "active"}, "state"),
            ({"state": ""}, "state"),
            ({"label": "team"}, "label"),
            ({"label": ":x"}, "label"),
            ({"label": ""}, "label"),
            ({"label": "team:a,team:b"}, "label"),
            ({"labels": "team:a"}, "labels"),
        ],
    )
    def test_refusals(self, system: Deployment, query: dict[str, str], field: str) -> None:
        answer = system.call("GET", "/v1/jobs", query=query)

        assert (answer.status, answer.fault["field"]) == (422, field)

    def test_what_does_not_decode_is_found_by_that(self, system: Deployment) -> None:
        system.database.update_item(
            TableName=system.jobs_table,
            Key={"tenant": {"S": system.job("c").key.tenant}, "job_id": {"S": "c"}},
            UpdateExpression="SET #state = :odd",
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues={":odd": {"S": "ODD"}},
        )

        assert found(system) == "abcde"
        assert found(system, state="UNREADABLE") == "c"
        assert found(system, state="ACTIVE") == "ad"
        assert found(system, label="team:web") == ""


def test_pages_may_be_short_and_empty_but_end(system: Deployment) -> None:
    for n in range(23):
        system.register(jobId=f"j{n:02}", name="last" if n == 22 else "other")

    first = system.call("GET", "/v1/jobs", query={"name": "last", "limit": "1"}).document

    assert first["items"] == []
    assert first["cursor"]
    assert found(system, name="last", limit="1") == "j22"


class TestDetail:
    @pytest.fixture
    def clock(self, system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Clock:
        clock = Clock(parse_instant("2026-05-24T10:00:00Z"))
        monkeypatch.setattr(api, "clock", clock)
        api.own_services.cache_clear()
        system.configure(monkeypatch)
        return clock

    def test_next_occurrences(self, system: Deployment, clock: Clock) -> None:
        system.register(jobId="a", schedule="0 * * * *")

        document = system.call("GET", "/v1/jobs/a").document

        at = [each["at"] for each in document["upcoming"]]
        assert at == [isoformat(clock.now() + timedelta(hours=n)) for n in range(1, 6)]
        assert at[0] == document["nextFireAt"]
        assert "lastRun" not in document

    @pytest.mark.parametrize("change", [("POST", "/v1/jobs/a/pause"), ("DELETE", "/v1/jobs/a")])
    def test_none_of_a_job_that_is_not_active(
        self, system: Deployment, change: tuple[str, str]
    ) -> None:
        system.register(jobId="a")
        system.call(*change)

        assert system.call("GET", "/v1/jobs/a").document["upcoming"] == []

    def test_newest_execution(self, system: Deployment) -> None:
        system.upload("print('hi')")
        job = system.register(jobId="a")
        messages = [message_for(job, job.created_at - timedelta(minutes=n)) for n in (2, 1, 0)]
        for n, message in enumerate(messages):
            system.send(message.encode(), group=str(n), dedup=str(n))
        system.execute(system.receive())

        last: dict[str, Any] = system.call("GET", "/v1/jobs/a").document["lastRun"]

        assert last["executionId"] == messages[-1].key.execution_id
        assert last["state"] == "SUCCEEDED"
        assert last["startedAt"] <= last["finishedAt"]

    def test_a_skipped_next_occurrence_is_not_the_newest_execution(
        self, system: Deployment
    ) -> None:
        system.upload("print('hi')")
        job = system.register(jobId="a", type="CRON", schedule="0 3 * * *")
        ran = message_for(job, job.created_at)
        system.send(ran.encode(), group="g", dedup="d")
        system.execute(system.receive())
        assert system.call("POST", "/v1/jobs/a/skip-next", {}).status == 200

        last = system.call("GET", "/v1/jobs/a").document["lastRun"]

        assert last["executionId"] == ran.key.execution_id

    def test_a_former_jobs_run_is_not_shown_as_the_new_jobs(self, system: Deployment) -> None:
        system.upload("print('hi')")
        job = system.register(jobId="a", schedule="0 0 1 1 *")
        system.send(message_for(job, job.created_at).encode(), group="g", dedup="d")
        system.execute(system.receive())
        system.call("DELETE", "/v1/jobs/a")
        system.register(jobId="a", schedule="0 0 1 1 *")

        assert "lastRun" not in system.call("GET", "/v1/jobs/a").document
