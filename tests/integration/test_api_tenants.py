"""The tenants of the API: each sees its jobs and runs, page by page, and nothing of another."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.instants import floor_minute
from tests.integration.api_answers import CRON, assert_problem, pages
from tests.integration.deployment import OTHER_TENANT, Deployment, http_event, message_for

ROUTES = [
    ("POST", "/v1/jobs"),
    ("GET", "/v1/jobs"),
    ("POST", "/v1/jobs:batch"),
    ("POST", "/v1/jobs:pause"),
    ("POST", "/v1/jobs:resume"),
    ("POST", "/v1/jobs:cancel"),
    ("GET", "/v1/jobs/theirs"),
    ("PATCH", "/v1/jobs/theirs"),
    ("DELETE", "/v1/jobs/theirs"),
    ("POST", "/v1/jobs/theirs/pause"),
    ("POST", "/v1/jobs/theirs/drain"),
    ("POST", "/v1/jobs/theirs/resume"),
    ("GET", "/v1/jobs/theirs/executions"),
    ("GET", "/v1/executions"),
    ("GET", "/v1/executions/theirs.20260524T100000000Z-k3x9m2ab"),
    ("GET", "/v1/executions/theirs.20260524T100000000Z-k3x9m2ab/logs"),
    ("POST", "/v1/executions/theirs.20260524T100000000Z-k3x9m2ab/cancel"),
    ("POST", "/v1/executions/theirs.20260524T100000000Z-k3x9m2ab/redrive"),
    ("POST", "/v1/pools/default/redrive"),
    ("POST", "/v1/scripts/uploads"),
    ("GET", "/v1/scripts"),
    ("GET", "/v1/scripts/default/theirs/versions"),
]


class TestPaging:
    def test_jobs_to_the_end(self, system: Deployment) -> None:
        ids = sorted(f"job-{n}" for n in range(7))
        for job_id in ids:
            system.register(jobId=job_id)
            system.call("POST", "/v1/jobs", CRON | {"jobId": job_id}, tenant=OTHER_TENANT)

        found = list(pages(system, "/v1/jobs", limit=3))

        assert [len(page) for page in found] == [3, 3, 1]
        assert [job["jobId"] for page in found for job in page] == ids

    def test_executions_to_the_end(self, system: Deployment) -> None:
        job = system.register(jobId="a")
        start = floor_minute(job.created_at)
        messages = [message_for(job, start + timedelta(minutes=n)) for n in range(5)]
        for message in messages:
            system.runs.cancel(message, reason="for the test", now=start)

        found = list(pages(system, "/v1/jobs/a/executions", limit=2))

        assert [run["executionId"] for page in found for run in page] == [
            message.key.execution_id for message in reversed(messages)
        ]

    def test_page_without_a_limit_holds_fifty(self, system: Deployment) -> None:
        job = system.register(jobId="a")
        start = floor_minute(job.created_at)
        for n in range(51):
            message = message_for(job, start + timedelta(minutes=n))
            system.runs.cancel(message, reason="for the test", now=start)

        answer = system.call("GET", "/v1/jobs/a/executions")

        assert len(answer.document["items"]) == 50


NO_IDENTITY: list[dict[str, Any] | None] = [
    None,
    {},
    {"iam": None},
    {"iam": {}},
    {"iam": {"accountId": None}},
    {"iam": {"accountId": ""}},
    {"jwt": {"claims": {"sub": OTHER_TENANT}}},
    {"lambda": {"accountId": OTHER_TENANT}},
]
"""What the gateway reports about a caller without a tenant."""


class TestTenants:
    @pytest.fixture
    def theirs(self, system: Deployment) -> dict[str, str]:
        """A job and an execution of the other tenant."""
        job = system.call("POST", "/v1/jobs", CRON | {"jobId": "theirs"}, tenant=OTHER_TENANT)
        stored = system.job("theirs", OTHER_TENANT)
        message = message_for(stored, stored.created_at)
        system.runs.cancel(message, reason="secret", now=stored.created_at)
        return {"jobId": job.document["jobId"], "executionId": message.key.execution_id}

    def test_owner_sees_what_the_others_do_not(
        self, system: Deployment, theirs: dict[str, str]
    ) -> None:
        paths = [
            "/v1/jobs/theirs",
            "/v1/jobs/theirs/executions",
            f"/v1/executions/{theirs['executionId']}",
        ]

        for path in paths:
            assert system.call("GET", path, tenant=OTHER_TENANT).status == 200
            answer = system.call("GET", path)
            assert_problem(answer, 404)
            assert "secret" not in json.dumps(answer.document)
        assert system.call("GET", "/v1/jobs").document == {"items": []}

    @pytest.mark.parametrize(
        ("method", "tail", "body"),
        [
            ("PATCH", "", {"name": "mine"}),
            ("DELETE", "", None),
            ("POST", "/pause", None),
            ("POST", "/resume", None),
        ],
    )
    def test_no_one_changes_anothers_job(
        self,
        system: Deployment,
        theirs: dict[str, str],
        method: str,
        tail: str,
        body: dict[str, str] | None,
    ) -> None:
        before = system.job(theirs["jobId"], OTHER_TENANT)

        assert_problem(system.call(method, f"/v1/jobs/theirs{tail}", body), 404)

        assert system.job(theirs["jobId"], OTHER_TENANT) == before

    def test_one_id_is_free_for_each_tenant(
        self, system: Deployment, theirs: dict[str, str]
    ) -> None:
        mine = system.call("POST", "/v1/jobs", CRON | {"jobId": theirs["jobId"]})

        assert mine.status == 201
        assert system.job("theirs").uid != system.job("theirs", OTHER_TENANT).uid

    def test_cursor_of_another_shows_nothing_of_his(self, system: Deployment) -> None:
        for n in range(4):
            system.call("POST", "/v1/jobs", CRON | {"jobId": f"his-{n}"}, tenant=OTHER_TENANT)
            system.register(jobId=f"mine-{n}")
        his = system.call("GET", "/v1/jobs", query={"limit": "2"}, tenant=OTHER_TENANT)

        shown = system.call("GET", "/v1/jobs", query={"cursor": his.document["cursor"]})

        assert {job["jobId"] for job in shown.document["items"]} <= {f"mine-{n}" for n in range(4)}

    def test_cursor_over_anothers_executions_shows_nothing_of_his(self, system: Deployment) -> None:
        system.call("POST", "/v1/jobs", CRON | {"jobId": "theirs"}, tenant=OTHER_TENANT)
        job = system.job("theirs", OTHER_TENANT)
        for n in range(4):
            message = message_for(job, job.created_at + timedelta(minutes=n))
            system.runs.cancel(message, reason="secret", now=job.created_at)
        path = "/v1/jobs/theirs/executions"
        his = system.call("GET", path, query={"limit": "2"}, tenant=OTHER_TENANT)

        shown = system.call("GET", path, query={"cursor": his.document["cursor"]})

        assert "secret" not in json.dumps(shown.document)
        assert shown.document.get("items", []) == []

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    def test_request_without_an_identity_gets_no_data(
        self,
        system: Deployment,
        theirs: dict[str, str],  # noqa: ARG002 — there is data to leak
        method: str,
        path: str,
    ) -> None:
        before = system.database.scan(TableName=system.jobs_table)["Items"]
        body = json.dumps(CRON) if path == "/v1/jobs" or method == "PATCH" else None

        for authorizer in NO_IDENTITY:
            answer = system.answer(http_event(method, path, body, authorizer=authorizer))

            assert answer.status in {401, 403, 500}, authorizer
            assert_problem(answer, answer.status)
            assert "theirs" not in json.dumps(answer.document), authorizer
            after = system.database.scan(TableName=system.jobs_table)["Items"]
            assert after == before, authorizer
