"""A job's next occurrences over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from functions.api import services as api
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.jitter import jitter
from tests.fakes import Clock
from tests.integration.deployment import OTHER_TENANT, Deployment

TARGET = {"target": {"handler": "hello"}}


class TestUpcoming:
    def test_it_agrees_with_the_job(self, system: Deployment) -> None:
        document = {"type": "CRON", "schedule": "0 3 * * 1-5", "timezone": "Asia/Tokyo"}
        job = system.call("POST", "/v1/jobs", TARGET | document).document

        items = system.call("GET", f"/v1/jobs/{job['jobId']}/upcoming").document["items"]

        assert len(items) == 10
        assert items[0]["at"] == job["nextFireAt"]
        assert items[0]["offset"] == "+09:00"
        assert {each["local"][10:] for each in items} == {"T03:00:00"}

    def test_it_shows_the_execution_id(self, system: Deployment) -> None:
        job = system.register(schedule="0 3 * * *")

        items = system.call("GET", f"/v1/jobs/{job.key.job_id}/upcoming").document["items"]

        assert [each["executionId"] for each in items] == [
            job.run_key(parse_instant(each["at"])).execution_id for each in items
        ]

    def test_count_runs_and_jitter(self, system: Deployment) -> None:
        document = {"type": "INTERVAL", "schedule": "PT1H", "maxRuns": 5, "jitterSec": 60}
        job = system.register(**document)

        def ahead(**query: str) -> list[Any]:
            path = f"/v1/jobs/{job.key.job_id}/upcoming"
            items: list[Any] = system.call("GET", path, query=query).document["items"]
            return items

        assert len(ahead()) == 5
        assert len(ahead(count="2")) == 2
        for number, each in enumerate(ahead(), 1):
            at = job.effective_from + timedelta(hours=number)
            due_at = at + jitter(job.uid, at, timedelta(seconds=60))
            assert (each["at"], each["dueAt"]) == (isoformat(at), isoformat(due_at))

    def test_the_next_one_is_within_max_runs(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(parse_instant("2026-05-24T10:00:00Z"))
        monkeypatch.setattr(api, "clock", clock)
        system.register(jobId="a", maxRuns=2)
        shown = []
        for _ in range(3):
            shown.append(system.call("GET", "/v1/jobs/a").document.get("nextFireAt"))
            clock.advance(minutes=1)

        assert shown == ["2026-05-24T10:01:00Z", "2026-05-24T10:02:00Z", None]

    def test_manual_job_stays_active_and_has_none(self, system: Deployment) -> None:
        job = system.call("POST", "/v1/jobs", TARGET | {"type": "MANUAL", "jobId": "a"})

        assert (job.status, job.document["state"]) == (201, "ACTIVE")
        assert "nextFireAt" not in job.document
        assert "schedule" not in job.document
        assert system.call("GET", "/v1/jobs/a/upcoming").document == {"items": []}
        assert system.due_items() == []

        change = {"type": "CRON", "schedule": "* * * * *"}
        assert "nextFireAt" in system.call("PATCH", "/v1/jobs/a", change).document
        assert len(system.due_items()) == 1
        refused = system.call("PATCH", "/v1/jobs/a", {"type": "MANUAL"})
        assert (refused.status, refused.fault["field"]) == (422, "schedule")
        back = {"type": "MANUAL", "schedule": None}
        assert "nextFireAt" not in system.call("PATCH", "/v1/jobs/a", back).document

    def test_dates_come_back_as_they_were_sent(self, system: Deployment) -> None:
        dates = ["2031-01-01", "2030-01-01T00:00:00Z"]
        document = {"type": "DATES", "schedule": dates, "jobId": "a", "startAt": "2029-01-01"}

        created = system.call("POST", "/v1/jobs", TARGET | document).document

        assert created["schedule"] == dates
        assert created["nextFireAt"] == dates[1]
        assert system.shown("a") == created

    def test_a_job_that_is_cancelled_or_not_there(self, system: Deployment) -> None:
        system.register(jobId="a")
        system.call("DELETE", "/v1/jobs/a")

        assert system.call("GET", "/v1/jobs/a/upcoming").document == {"items": []}
        assert system.call("GET", "/v1/jobs/b/upcoming").status == 404
        system.register(jobId="c")
        assert system.call("GET", "/v1/jobs/c/upcoming", tenant=OTHER_TENANT).status == 404

    @pytest.mark.parametrize("count", ["0", "101", "-1", "x", "", "1.0", "9" * 50])
    def test_bad_count(self, system: Deployment, count: str) -> None:
        system.register(jobId="a")

        answer = system.call("GET", "/v1/jobs/a/upcoming", query={"count": count})

        assert (answer.status, answer.fault["field"]) == (422, "count")
