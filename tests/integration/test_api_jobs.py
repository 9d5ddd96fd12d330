"""The API's routes for a job from creation to deletion; ids that are taken or free again."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from functions.api.handler import handler
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.instants import floor_minute, isoformat, parse_instant, to_ms
from nextfire.domain.run import RunState
from tests.integration.api_answers import CRON, assert_problem
from tests.integration.deployment import (
    TENANT,
    Context,
    Deployment,
    http_event,
    identity,
    message_for,
)


class TestRoutes:
    def test_health_needs_no_identity(self, system: Deployment) -> None:
        answer = system.answer(http_event("GET", "/v1/health"))

        assert (answer.status, answer.document["status"]) == (200, "ok")
        assert answer.document["time"] <= isoformat(SystemClock().now())

    def test_job_from_creation_to_deletion(self, system: Deployment) -> None:
        body = CRON | {
            "jobId": "invoices",
            "name": "daily-invoice-gen",
            "timezone": "America/Los_Angeles",
            "payload": {"tenantId": "acme", "dateRange": None, "nested": [{"deep": None}]},
            "labels": {"team": "billing"},
            "retryPolicy": {"maxAttempts": 2},
        }

        created = system.call("POST", "/v1/jobs", body)

        assert (created.status, created.media_type) == (201, "application/json")
        assert created.document["jobId"] == "invoices"
        assert created.document["state"] == "ACTIVE"
        assert created.document["revision"] == 1
        assert created.document["payload"] == body["payload"]
        assert created.document["retryPolicy"]["maxAttempts"] == 2
        assert created.document["target"] == {"pool": "default", "handler": "hello", "env": {}}
        assert system.shown("invoices") == created.document
        assert system.call("GET", "/v1/jobs").document == {"items": [created.document]}
        [entry] = system.due_items()
        due_at = parse_instant(created.document["nextFireAt"])
        assert entry["entry"]["S"].startswith(f"{to_ms(due_at)}#")

        deleted = system.call("DELETE", "/v1/jobs/invoices")

        assert (deleted.status, deleted.document["state"]) == (200, "CANCELLED")
        assert "nextFireAt" not in deleted.document
        assert system.shown("invoices") == deleted.document
        assert_problem(system.call("DELETE", "/v1/jobs/invoices"), 404)
        assert_problem(system.call("PATCH", "/v1/jobs/invoices", {"name": "x"}), 404)

    def test_job_without_an_id_gets_one(self, system: Deployment) -> None:
        ids = {system.call("POST", "/v1/jobs", CRON).document["jobId"] for _ in range(5)}

        assert len(ids) == 5
        assert all(job_id.startswith("job_") for job_id in ids)

    @pytest.mark.parametrize("payload", [None, [], 0, "", False, {"a": [None]}, "\u0000é\u2028🕑"])
    def test_payload_comes_back_as_it_was_sent(self, system: Deployment, payload: object) -> None:
        created = system.call("POST", "/v1/jobs", CRON | {"jobId": "a", "payload": payload})

        assert created.status == 201, created.document
        assert created.document["payload"] == payload
        assert system.call("GET", "/v1/jobs/a").document["payload"] == payload

    def test_body_in_base64_is_read(self, system: Deployment) -> None:
        assert system.call("POST", "/v1/jobs", text=json.dumps(CRON).encode()).status == 201

    def test_executions_of_a_job_and_one_by_its_id(self, system: Deployment) -> None:
        system.upload("print('hi')")
        job = system.register(jobId="a")
        assert system.call("GET", "/v1/jobs/a/executions").document == {"items": []}
        now = floor_minute(job.created_at)
        for minute in range(3):
            message = message_for(job, now + timedelta(minutes=minute))
            system.send(message.encode(), group=str(minute), dedup=str(minute))
        assert system.execute(system.receive()) == set()

        listed = system.call("GET", "/v1/jobs/a/executions").document["items"]

        assert [run["scheduledAt"] for run in listed] == [
            isoformat(now + timedelta(minutes=minute)) for minute in (2, 1, 0)
        ]
        latest = listed[0]
        assert latest["state"] == "SUCCEEDED"
        assert (latest["exitCode"], latest["stdout"], latest["attempt"]) == (0, "hi\n", 1)
        assert [attempt["outcome"] for attempt in latest["attempts"]] == ["SUCCEEDED"]
        found = system.call("GET", f"/v1/executions/{latest['executionId']}")
        assert (found.status, found.document) == (200, latest)

    @pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
    def test_both_prefixes_lead_to_the_same(self, system: Deployment, prefix: str) -> None:
        job_id = system.call("POST", f"{prefix}/jobs", CRON).document["jobId"]

        assert system.call("GET", f"{prefix}/jobs/{job_id}").status == 200
        assert system.call("GET", f"{prefix}/jobs").document["items"][0]["jobId"] == job_id
        assert system.call("PATCH", f"{prefix}/jobs/{job_id}", {"name": "n"}).status == 200
        assert system.call("GET", f"{prefix}/jobs/{job_id}/executions").status == 200
        assert system.call("DELETE", f"{prefix}/jobs/{job_id}").status == 200
        assert system.call("GET", f"{prefix}/health").status == 200

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/"),
            ("GET", "/v1"),
            ("GET", "/v2/jobs"),
            ("GET", "/api/api/v1/jobs"),
            ("GET", "/apiv1/jobs"),
            ("GET", "/v1/jobs/a/b/c"),
        ],
    )
    def test_unknown_route(self, system: Deployment, method: str, path: str) -> None:
        answer = system.call(method, path, {})

        assert_problem(answer, 404)
        assert f"{method} {path}" in answer.document["detail"]
        assert "/v1/openapi.json" in answer.document["detail"]

    def test_a_line_feed_at_the_end_is_no_part_of_an_id(self, system: Deployment) -> None:
        answer = system.call("GET", "/v1/jobs/a\n", {})

        assert_problem(answer, 404)
        assert answer.document["detail"].startswith("The route GET /v1/jobs/a\\n does not exist.")

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("PUT", "/v1/jobs", "GET, POST"),
            ("POST", "/api/v1/jobs/a", "DELETE, GET, PATCH, PUT"),
            ("DELETE", "/v1/executions/a", "GET"),
            ("OPTIONS", "/v1/health", "GET"),
        ],
    )
    def test_method_that_a_path_does_not_have(
        self, system: Deployment, method: str, path: str, allowed: str
    ) -> None:
        answer = system.call(method, path, {})

        assert_problem(answer, 405)
        assert answer.headers["allow"] == allowed
        assert allowed in answer.document["detail"]


class TestConflicts:
    def test_living_id_is_refused_and_its_job_stays(self, system: Deployment) -> None:
        first = system.call("POST", "/v1/jobs", CRON | {"jobId": "a", "name": "first"})

        second = system.call("POST", "/v1/jobs", CRON | {"jobId": "a", "name": "second"})

        assert_problem(second, 409)
        assert system.shown("a") == first.document
        assert len(system.due_items()) == 1

    def test_deleted_id_starts_clean(self, system: Deployment) -> None:
        before = system.register(jobId="a", name="old", payload={"old": 1}, labels={"old": "1"})
        system.call("PATCH", "/v1/jobs/a", {"schedule": "*/5 * * * *"})
        system.call("DELETE", "/v1/jobs/a")

        created = system.call("POST", "/v1/jobs", CRON | {"jobId": "a"})

        assert created.status == 201
        assert (created.document["revision"], created.document["state"]) == (1, "ACTIVE")
        assert (created.document["payload"], created.document["labels"]) == ({}, {})
        assert "name" not in created.document
        after = system.job("a")
        assert after.uid != before.uid
        assert after.created_at > before.created_at
        uids = {item["uid"]["S"] for item in system.due_items()}
        assert after.uid in uids

    def test_run_of_a_deleted_id_is_not_the_new_jobs(self, system: Deployment) -> None:
        system.upload("raise SystemExit('must not run')")
        before = system.register(jobId="a")
        message = message_for(before, floor_minute(before.created_at))
        system.call("DELETE", "/v1/jobs/a")
        system.register(jobId="a")
        system.send(message.encode(), group="g", dedup="d")

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.attempt) == (RunState.CANCELLED, 0)


class TestPolicies:
    def test_defaults_are_shown(self, system: Deployment) -> None:
        created = system.call("POST", "/v1/jobs", CRON).document

        assert created["misfire"] == {"policy": "RUN_LATEST"}
        assert created["overlap"] == "ALLOW"

    def test_what_is_given_is_kept_and_can_be_taken_back(self, system: Deployment) -> None:
        misfire = {"policy": "SKIP", "relevancyWindowSec": 2_592_000}
        body = CRON | {"jobId": "a", "misfire": misfire, "overlap": "REPLACE"}

        created = system.call("POST", "/v1/jobs", body).document
        less = system.call("PATCH", "/v1/jobs/a", {"misfire": {"relevancyWindowSec": None}})
        none = system.call("PATCH", "/v1/jobs/a", {"misfire": None, "overlap": None})

        assert (created["misfire"], created["overlap"]) == (misfire, "REPLACE")
        assert less.document["misfire"] == {"policy": "SKIP"}
        assert (none.document["misfire"], none.document["overlap"]) == (
            {"policy": "RUN_LATEST"},
            "ALLOW",
        )
        assert len(system.due_items()) == 1, "these fields do not affect the schedule"


def test_handler_takes_a_request_without_optional_parts(system: Deployment) -> None:
    event = http_event("GET", "/v1/jobs", authorizer=identity(TENANT))
    del event["headers"]
    event["queryStringParameters"] = None

    assert handler(event, Context())["statusCode"] == 200
    assert system.call("GET", "/v1/jobs").status == 200
