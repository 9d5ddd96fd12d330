"""The API's handler: every route, every rejection, and the isolation of tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.api import services as api
from functions.api.handler import handler
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.due import fire
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import floor_minute, isoformat, parse_instant, to_ms
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.settings import ApiSettings
from tests.crons import LONG
from tests.fakes import Clock
from tests.integration.deployment import (
    OTHER_TENANT,
    TENANT,
    Answer,
    Context,
    Deployment,
    Proxy,
    http_event,
    identity,
    message_for,
)

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}
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


def assert_problem(answer: Answer, status: int, *, field: str | None = None) -> None:
    """Assert that *answer* is a problem document of *status*, about *field* if that is given."""
    document = answer.document
    assert answer.status == status, document
    assert answer.media_type == "application/problem+json"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert document.keys() <= {"type", "title", "status", "detail", "quota", "errors"}
    for fault in document.get("errors", []):
        assert fault.keys() == {"field", "value", "problem", "remedy"}
        assert all(isinstance(text, str) and text for text in fault.values())
    if field is not None:
        assert field in {fault["field"] for fault in document["errors"]}, document


def pages(system: Deployment, path: str, limit: int, tenant: str = TENANT) -> Iterator[list[Any]]:
    query = {"limit": str(limit)}
    while True:
        answer = system.call("GET", path, query=query, tenant=tenant)
        assert answer.status == 200, answer.document
        yield answer.document["items"]
        if "cursor" not in answer.document:
            return
        query["cursor"] = answer.document["cursor"]


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

    def test_job_without_an_id_gets_one_of_its_own(self, system: Deployment) -> None:
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


class TestRefusals:
    @pytest.mark.parametrize(
        "text",
        [
            None,
            "",
            "{",
            "null",
            "[]",
            '"text"',
            "7",
            '{"payload": NaN}',
            '{"payload": -Infinity}',
            '{"payload": {"a": [{"b": 1, "b": 1}]}}',
            "{'type': 'CRON'}",
            '{"a": 1} {"b": 2}',
            "[" * 100_000,
            '{"payload":' * 20_000,
            '{"payload": ' + "9" * 5000 + "}",
            b"\xff\xfe{}",
            b'{"name": "\xc3\x28"}',
        ],
        ids=lambda text: repr(text)[:24],
    )
    @pytest.mark.parametrize(("method", "path"), [("POST", "/v1/jobs"), ("PATCH", "/v1/jobs/a")])
    def test_malformed_body(
        self, system: Deployment, method: str, path: str, text: str | bytes | None
    ) -> None:
        system.register(jobId="a")

        assert_problem(system.call(method, path, text=text), 400)

    def test_body_that_is_no_base64(self, system: Deployment) -> None:
        event = http_event("POST", "/v1/jobs", "é!", authorizer=identity(TENANT), encoded=True)

        assert_problem(system.answer(event), 400)

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"schedule": "0 0 30 2 *"}, "schedule"),
            ({"schedule": "* * * *"}, "schedule"),
            ({"schedule": "* * * * * *"}, "schedule"),
            ({"schedule": "61 * * * *"}, "schedule"),
            ({"schedule": "5-1 * * * *"}, "schedule"),
            ({"schedule": "R * * * *"}, "schedule"),
            ({"schedule": ""}, "schedule"),
            ({"schedule": None}, "schedule"),
            ({"schedule": 5}, "schedule"),
            ({"schedule": ["* * * * *"]}, "schedule"),
            ({"type": "ONCE", "schedule": "2001-01-01T00:00:00Z"}, "schedule"),
            ({"type": "ONCE", "schedule": "tomorrow"}, "schedule"),
            ({"type": "ONCE", "schedule": "0001-01-01T00:00:00+14:00"}, "schedule"),
            ({"type": "ONCE", "schedule": "9999-12-31T23:59:59-12:00"}, "schedule"),
            ({"type": "ONCE", "schedule": "2286-11-20T17:46:40Z"}, "schedule"),
            ({"type": "DELAY", "schedule": "P1M"}, "schedule"),
            ({"type": "DELAY", "schedule": "PT0S"}, "schedule"),
            ({"type": "DELAY", "schedule": f"P{'9' * 250}D"}, "schedule"),
            ({"type": "YEARLY"}, "type"),
            ({"type": None}, "type"),
            ({"timezone": "Mars/Olympus"}, "timezone"),
            ({"timezone": "../../etc/passwd"}, "timezone"),
            ({"timezone": "Europe"}, "timezone"),
            ({"timezone": "\u0000"}, "timezone"),
            ({"target": {"handler": "hello", "pool": "gpu"}}, "target.pool"),
            ({"target": {"handler": "hello", "pol": "default"}}, "target.pol"),
            ({"target": {}}, "target"),
            ({"target": {"handler": "hello", "script": "s3://scripts/x.py"}}, "target"),
            ({"target": {"handler": "../hello"}}, "target.handler"),
            ({"target": {"handler": "a/b"}}, "target.handler"),
            ({"target": "hello"}, "target"),
            ({"target": {"script": f"s3://scripts/{OTHER_TENANT}/x.py"}}, "target.script"),
            ({"target": {"script": f"s3://elsewhere/{TENANT}/x.py"}}, "target.script"),
            ({"target": {"script": f"s3://scripts/{TENANT}/../x.py"}}, "target.script"),
            ({"target": {"script": f"s3://scripts/{TENANT}/"}}, "target.script"),
            ({"target": {"script": f"s3://scripts/{TENANT}x/x.py"}}, "target.script"),
            ({"target": {"script": "file:///etc/passwd"}}, "target.script"),
            ({"timeoutSec": 14 * 60 + 1}, "timeoutSec"),
            ({"timeoutSec": 0}, "timeoutSec"),
            ({"timeoutSec": 1.5}, "timeoutSec"),
            ({"timeoutSec": True}, "timeoutSec"),
            ({"timeoutSec": "60"}, "timeoutSec"),
            ({"payload": "x" * (64 * 1024)}, "payload"),
            ({"payload": {"text": "é" * (32 * 1024)}}, "payload"),
            ({"colour": "red"}, "colour"),
            ({"retry_policy": {"max_attempts": 1}}, "retry_policy"),
            ({"retryPolicy": {"maxAttempts": 0}}, "retryPolicy.maxAttempts"),
            ({"retryPolicy": {"maxAttempts": 10**30}}, "retryPolicy.maxAttempts"),
            ({"retryPolicy": {"backoff": "NONE"}}, "retryPolicy.backoff"),
            ({"priority": "URGENT"}, "priority"),
            ({"misfire": None}, "misfire"),
            ({"misfire": "SKIP"}, "misfire"),
            ({"misfire": {"policy": "RUN_NONE"}}, "misfire.policy"),
            ({"misfire": {"policy": None}}, "misfire.policy"),
            ({"misfire": {"window": 5}}, "misfire.window"),
            ({"misfire": {"relevancyWindowSec": 0}}, "misfire.relevancyWindowSec"),
            ({"misfire": {"relevancyWindowSec": 2_592_001}}, "misfire.relevancyWindowSec"),
            ({"misfire": {"relevancyWindowSec": 1.5}}, "misfire.relevancyWindowSec"),
            ({"misfire": {"relevancyWindowSec": "1 h"}}, "misfire.relevancyWindowSec"),
            ({"overlap": "FORBID"}, "overlap"),
            ({"overlap": "skip"}, "overlap"),
            ({"overlap": None}, "overlap"),
            ({"labels": {"a": 1}}, "labels.a"),
            ({"labels": {str(n): "" for n in range(33)}}, "labels"),
            ({"labels": {"a": "x" * 257}}, "labels.a"),
            ({"schedule": "0 R(2-4) * * *"}, "schedule"),
            ({"schedule": "H * * * *"}, "schedule"),
            ({"name": ""}, "name"),
            ({"name": "x" * 129}, "name"),
            ({"jobId": "a/b"}, "jobId"),
            ({"jobId": "a.b"}, "jobId"),
            ({"jobId": ""}, "jobId"),
            ({"jobId": "x" * 65}, "jobId"),
            ({"jobId": 7}, "jobId"),
            ({"jobId": {"a": 1}}, "jobId"),
        ],
        ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else value,
    )
    def test_job_that_cannot_be_scheduled(
        self, system: Deployment, change: dict[str, Any], field: str
    ) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | change)

        assert_problem(answer, 422, field=field)
        assert system.due_items() == []
        assert system.call("GET", "/v1/jobs").document["items"] == []

    @pytest.mark.parametrize(
        "text",
        ['{"payload": 1e400}', '{"payload": {"a": [-1e400]}}', '{"labels": {"\\ud800": ""}}'],
    )
    def test_values_that_json_cannot_carry(self, system: Deployment, text: str) -> None:
        system.register(jobId="a")

        created = system.call("POST", "/v1/jobs", text=json.dumps(CRON)[:-1] + ", " + text[1:])
        changed = system.call("PATCH", "/v1/jobs/a", text=text)

        assert {created.status, changed.status} <= {400, 422}, (created, changed)
        assert_problem(created, created.status)
        assert_problem(changed, changed.status)

    def test_body_too_deep_to_be_read_is_told_in_words_of_ours(self, system: Deployment) -> None:
        detail = system.call("POST", "/v1/jobs", text="[" * 100_000).document["detail"]

        assert detail == "The body is nested too deeply: the maximum is 32 levels."

    def test_half_a_surrogate_pair_is_told_what_it_is(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"payload": "\ud800"})

        assert "surrogate" in answer.fault["remedy"]

    def test_value_that_is_no_text_is_shown_as_json(self, system: Deployment) -> None:
        dates = {"type": "DATES", "schedule": ["2020-01-01T00:00:00Z"]}

        answer = system.call("POST", "/v1/jobs", CRON | dates)

        assert answer.fault["value"] == '["2020-01-01T00:00:00Z"]'

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/jobs/a/pause", {"until": "soon"}),
            ("/v1/jobs:pause", {"labels": {"a": "b"}, "until": "soon"}),
            ("/v1/jobs/a/backfill", {"from": "soon", "to": "2026-05-01"}),
            ("/v1/pools/default/redrive", {"from": "soon"}),
        ],
    )
    def test_an_instant_outside_of_a_job_is_told_to_be_utc(
        self, system: Deployment, path: str, body: dict[str, Any]
    ) -> None:
        system.register(jobId="a")

        assert "Without an offset it is UTC" in system.call("POST", path, body).fault["remedy"]

    def test_a_plus_that_became_a_blank_is_told_how_it_is_written(self, system: Deployment) -> None:
        query = {"from": "2026-05-01T00:00:00 09:00"}

        assert "`%2B`" in system.call("GET", "/v1/executions", query=query).fault["remedy"]

    def test_an_instant_out_of_bounds_is_told_the_bounds(self, system: Deployment) -> None:
        once = {"type": "ONCE", "schedule": "2099-12-31T23:59:59Z"}

        fault = system.call("POST", "/v1/jobs", CRON | once).fault

        assert fault["problem"] == "not between 1970-01-02 (included) and 2099-12-31 (excluded)"

    def test_a_value_that_is_nearly_one_of_those_named(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"type": "cron"})

        assert answer.fault["remedy"] == "Did you mean `CRON`?"

    def test_body_nested_too_deep(self, system: Deployment) -> None:
        payload: object = 1
        for _ in range(40):
            payload = [payload]

        assert_problem(system.call("POST", "/v1/jobs", CRON | {"payload": payload}), 422)

    def test_body_that_is_too_large(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"x": "y" * 256 * 1024})

        assert_problem(answer, 422, field="body")
        assert len(json.dumps(answer.document)) < 2000, "the rejection repeats the body"

    def test_payload_at_the_limit_is_taken(self, system: Deployment) -> None:
        payload = "x" * (64 * 1024 - 2)

        assert system.call("POST", "/v1/jobs", CRON | {"payload": payload}).status == 201

    def test_timeout_of_the_pool_is_taken(self, system: Deployment) -> None:
        assert system.call("POST", "/v1/jobs", CRON | {"timeoutSec": 14 * 60}).status == 201

    def test_every_fault_is_told_at_once(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", {"type": "YEARLY", "colour": 1, "timeoutSec": -1})

        fields = [fault["field"] for fault in answer.document["errors"]]
        assert sorted(fields) == ["colour", "schedule", "target", "timeoutSec", "type"]

    def test_fault_names_field_value_problem_and_remedy(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"timeoutSec": 3600})

        assert answer.fault == {
            "field": "timeoutSec",
            "value": "3600",
            "problem": "longer than pool 'default' allows",
            "remedy": "Use at most 840, or a pool of workers.",
        }

    @pytest.mark.parametrize(
        ("change", "value", "problem", "example"),
        [
            (
                {"misfire": {"policy": "RUN_NONE"}},
                "'RUN_NONE'",
                "Input should be 'RUN_ALL', 'RUN_LATEST' or 'SKIP'",
                "`RUN_ALL`",
            ),
            (
                {"overlap": "FORBID"},
                "'FORBID'",
                "Input should be 'ALLOW', 'QUEUE', 'SKIP' or 'REPLACE'",
                "`ALLOW`",
            ),
        ],
    )
    def test_bad_policy_is_told_with_an_example(
        self, system: Deployment, change: dict[str, Any], value: str, problem: str, example: str
    ) -> None:
        fault = system.call("POST", "/v1/jobs", CRON | change).fault

        assert (fault["value"], fault["problem"]) == (value, problem)
        assert fault["remedy"].endswith(f"For example {example}.")

    @pytest.mark.parametrize(
        ("change", "detail"),
        [
            (
                {"misfire": {"policy": "RUN_NONE"}},
                (
                    "misfire.policy: Input should be 'RUN_ALL', 'RUN_LATEST' or 'SKIP' "
                    "(got 'RUN_NONE'). Use one of these values. For example `RUN_ALL`."
                ),
            ),
            (
                {"misfire": {"relevancyWindowSec": 0}},
                (
                    "misfire.relevancyWindowSec: Input should be greater than or equal to 1 (got "
                    "0). Use 1 to 2592000 seconds, or omit it for no window. For example `3600`."
                ),
            ),
            (
                {"misfire": "RUN_ALL"},
                (
                    "misfire: Input should be an object (got 'RUN_ALL'). misfire is an object, for "
                    'example `{"policy": "RUN_ALL"}`.'
                ),
            ),
            (
                {"overlap": {"policy": "SKIP", "since": None}},
                (
                    "overlap: Input should be 'ALLOW', 'QUEUE', 'SKIP' or 'REPLACE' "
                    '(got {"policy": "SKIP", "since": null}). overlap is a string, for example '
                    '`"SKIP"`.'
                ),
            ),
            (
                {"timeoutSec": True, "name": True},
                (
                    "name: Input should be a valid string (got true). Use a value of the type that "
                    "the message names. timeoutSec: Input should be a valid integer (got true). "
                    "Use a whole number without quotes. For example `60`."
                ),
            ),
        ],
        ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else None,
    )
    def test_detail_says_what_to_do(
        self, system: Deployment, change: dict[str, Any], detail: str
    ) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | change)

        assert_problem(answer, 422)
        assert answer.document["detail"] == detail

    @pytest.mark.parametrize("window", [2_592_001, "1 h", 1.5, True, "60", [], {}])
    def test_window_that_is_no_number_of_seconds(self, system: Deployment, window: object) -> None:
        fault = system.call("POST", "/v1/jobs", CRON | {"misfire": {"relevancyWindowSec": window}})

        assert fault.fault["field"] == "misfire.relevancyWindowSec"
        assert fault.fault["remedy"] == (
            "Use 1 to 2592000 seconds, or omit it for no window. For example `3600`."
        )

    @pytest.mark.parametrize(
        ("patch", "remedy"),
        [
            (
                {"state": "PAUSED"},
                "Use POST /v1/jobs/{jobId}/pause or /resume, or DELETE the job.",
            ),
            (
                {"relevancyWindowSec": 60},
                'It is misfire.relevancyWindowSec: `{"misfire": {"relevancyWindowSec": 3600}}`.',
            ),
            ({"policy": "SKIP"}, 'It is misfire.policy: `{"misfire": {"policy": "RUN_ALL"}}`.'),
            ({"jobId": "b"}, "A job keeps its id: omit this field."),
            (
                {"colour": "red"},
                "Omit this field, or check its spelling in the documentation.",
            ),
        ],
    )
    def test_field_that_belongs_elsewhere(
        self, system: Deployment, patch: dict[str, Any], remedy: str
    ) -> None:
        system.register(jobId="a")

        answer = system.call("PATCH", "/v1/jobs/a", patch)

        assert_problem(answer, 422, field=next(iter(patch)))
        assert answer.fault["remedy"] == remedy
        assert answer.document["detail"].endswith(remedy)

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ({"limit": "0"}, "limit"),
            ({"limit": "101"}, "limit"),
            ({"limit": "-1"}, "limit"),
            ({"limit": "ten"}, "limit"),
            ({"limit": "1.5"}, "limit"),
            ({"limit": ""}, "limit"),
            ({"limit": "٣"}, "limit"),
            ({"limit": "9" * 5000}, "limit"),
            ({"cursor": ""}, "cursor"),
            ({"cursor": "x"}, "cursor"),
            ({"cursor": "é"}, "cursor"),
            ({"cursor": "Li4vLi4"}, "cursor"),
            ({"cursor": "A" * 5000}, "cursor"),
        ],
        ids=lambda value: repr(value)[:24],
    )
    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/a/executions"])
    def test_bad_page(
        self, system: Deployment, path: str, query: dict[str, str], field: str
    ) -> None:
        system.register(jobId="a")

        assert_problem(system.call("GET", path, query=query), 422, field=field)

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/v1/jobs/unknown", 404),
            ("/v1/jobs/unknown/executions", 404),
            ("/v1/executions/unknown.20260524T100000000Z-k3x9m2ab", 404),
            ("/v1/executions/unknown.99999999T999999999Z-k3x9m2ab", 404),
            ("/v1/jobs/a.b", 422),
            ("/v1/jobs/" + "x" * 65, 422),
            ("/v1/executions/x", 422),
            ("/v1/executions/a.20260524T100000000Z-UPPERCASE", 422),
            ("/v1/executions/a.b.20260524T100000000Z-k3x9m2ab", 422),
            ("/v1/executions/.20260524T100000000Z-k3x9m2ab", 422),
        ],
    )
    def test_unknown_or_malformed_id(self, system: Deployment, path: str, status: int) -> None:
        assert_problem(system.call("GET", path), status)

    def test_store_that_does_not_answer(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system.register(jobId="a")
        proxy = Proxy(system.database)

        def throttle(_real: object, _request: object) -> None:
            raise system.database.exceptions.ProvisionedThroughputExceededException(
                {"Error": {"Code": "ProvisionedThroughputExceededException"}}, "GetItem"
            )

        proxy.instead["get_item"] = throttle
        monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
        api.own_services.cache_clear()

        answer = system.call("GET", "/v1/jobs/a")

        assert_problem(answer, 503)
        assert answer.headers["retry-after"] == "1"

    def test_defect_is_told_without_its_details(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> None:
            raise RuntimeError("password: hunter2")

        api.own_services.cache_clear()
        monkeypatch.setattr(ApiSettings, "read", fail)

        answer = system.call("GET", "/v1/jobs/a")

        assert_problem(answer, 500)
        assert "hunter2" not in json.dumps(answer.document)


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


class TestPatch:
    def test_what_is_named_changes_and_the_rest_stays(self, system: Deployment) -> None:
        created = system.call(
            "POST",
            "/v1/jobs",
            CRON
            | {
                "jobId": "a",
                "name": "n",
                "labels": {"keep": "1", "drop": "2", "change": "3"},
                "payload": {"a": {"b": 1}, "c": None},
                "retryPolicy": {"maxAttempts": 7, "backoff": "FIXED"},
            },
        ).document

        changed = system.call(
            "PATCH",
            "/v1/jobs/a",
            {
                "name": None,
                "labels": {"drop": None, "change": "4", "add": "5"},
                "retryPolicy": {"maxAttempts": 8},
                "priority": "HIGH",
            },
        ).document

        policy = {**created["retryPolicy"], "maxAttempts": 8}
        labels = {"keep": "1", "change": "4", "add": "5"}
        expected = created | {"labels": labels, "retryPolicy": policy, "priority": "HIGH"}
        expected |= {"revision": 2, "updatedAt": changed["updatedAt"]}
        del expected["name"]
        assert changed == expected
        assert system.shown("a") == changed
        assert len(system.due_items()) == 1, "the schedule did not change"

    @pytest.mark.parametrize("payload", [{"x": 1}, {"a": None}, {}, None, [1]])
    def test_payload_is_replaced_whole(self, system: Deployment, payload: object) -> None:
        system.register(jobId="a", payload={"a": 1, "b": {"c": 2}})

        changed = system.call("PATCH", "/v1/jobs/a", {"payload": payload})

        assert changed.document["payload"] == payload
        assert system.call("GET", "/v1/jobs/a").document["payload"] == payload

    def test_empty_patch_changes_nothing_but_the_revision(self, system: Deployment) -> None:
        created = system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}).document

        changed = system.call("PATCH", "/v1/jobs/a", {}).document

        assert changed == created | {"revision": 2, "updatedAt": changed["updatedAt"]}

    def test_fields_of_a_newer_version_survive_a_patch(self, system: Deployment) -> None:
        system.register(jobId="a", target={"handler": "hello", "env": {"A": {"secret": "a"}}})
        key = {"tenant": {"S": TENANT}, "job_id": {"S": "a"}}
        item = system.database.get_item(TableName=system.jobs_table, Key=key)["Item"]
        text = item["definition"]["S"].replace('{"secret":"a"}', '{"secret":"a","new":1}')
        text = text.replace('{"type"', '{"newer":{"b":[2]},"type"')
        new: Any = {"definition": {"S": text}, "newest": {"S": "c"}}
        system.database.put_item(TableName=system.jobs_table, Item=item | new)

        changed = system.call("PATCH", "/v1/jobs/a", {"timeoutSec": 7})

        assert changed.status == 200
        assert "newer" not in changed.document
        assert changed.document["target"]["env"] == {"A": {"secret": "a"}}
        after = system.database.get_item(TableName=system.jobs_table, Key=key)["Item"]
        stored = json.loads(after["definition"]["S"])
        assert (stored["timeoutSec"], stored["newer"]) == (7, {"b": [2]})
        assert stored["target"]["env"] == {"A": {"secret": "a", "new": 1}}
        assert after["newest"] == {"S": "c"}
        assert system.call("PATCH", "/v1/jobs/a", {"newer": {"b": []}}).status == 422

    def test_default_returns_where_a_field_is_null(self, system: Deployment) -> None:
        system.register(jobId="a", timeoutSec=7, timezone="Asia/Tokyo")

        changed = system.call("PATCH", "/v1/jobs/a", {"timeoutSec": None, "timezone": None})

        assert (changed.document["timeoutSec"], changed.document["timezone"]) == (300, "UTC")

    def test_new_schedule_brings_its_own_due_entry(self, system: Deployment) -> None:
        before = system.register(jobId="a", schedule="0 3 * * *")

        changed = system.call("PATCH", "/v1/jobs/a", {"schedule": "0 4 * * *"}).document

        after = system.job("a")
        assert after.schedule_version > before.schedule_version
        assert {item["entry"]["S"] for item in system.due_items()} == {
            fire(job.key, job.uid, job.schedule_version, at).sort_key
            for job, at in (
                (before, before.next_after(before.created_at)),
                (after, parse_instant(changed["nextFireAt"])),
            )
            if at is not None
        }

    @pytest.mark.parametrize(
        ("patch", "field"),
        [
            ({"jobId": "b"}, "jobId"),
            ({"timeout_sec": 5}, "timeout_sec"),
            ({"state": "CANCELLED"}, "state"),
            ({"type": None}, "type"),
            ({"schedule": "0 0 30 2 *"}, "schedule"),
            ({"target": {"pool": "gpu"}}, "target.pool"),
            (
                {"target": {"script": f"s3://scripts/{OTHER_TENANT}/x.py", "handler": None}},
                "target.script",
            ),
            ({"timeoutSec": 841}, "timeoutSec"),
            ({"payload": "x" * 64 * 1024}, "payload"),
        ],
        ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else value,
    )
    def test_refused_patch_leaves_the_job_as_it_was(
        self, system: Deployment, patch: dict[str, Any], field: str
    ) -> None:
        created = system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}).document

        assert_problem(system.call("PATCH", "/v1/jobs/a", patch), 422, field=field)

        assert system.shown("a") == created

    def test_labels_cannot_be_heaped_up(self, system: Deployment) -> None:
        system.register(jobId="a")

        answers = [
            system.call("PATCH", "/v1/jobs/a", {"labels": {f"{n}": "x" * 200_000}})
            for n in range(3)
        ]

        assert {answer.status for answer in answers} == {422}

    def test_of_two_changes_at_once_none_is_lost(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system.register(jobId="a")
        proxy = Proxy(system.database)

        def overtaken(real: Any, request: dict[str, Any]) -> Any:
            del proxy.instead["transact_write_items"]
            system.call("PATCH", "/v1/jobs/a", {"labels": {"theirs": "1"}})
            return real(**request)

        proxy.instead["transact_write_items"] = overtaken
        monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
        api.own_services.cache_clear()

        changed = system.call("PATCH", "/v1/jobs/a", {"labels": {"ours": "1"}})

        assert changed.status == 200
        assert changed.document["labels"] == {"ours": "1", "theirs": "1"}
        assert changed.document["revision"] == 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The API's clock, at ten o'clock."""
    clock = Clock(parse_instant("2026-05-24T10:00:00Z"))
    monkeypatch.setattr(api, "clock", clock)
    return clock


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


class TestPause:
    def test_paused_job_says_so_and_since_when(self, system: Deployment, clock: Clock) -> None:
        created = system.call("POST", "/v1/jobs", CRON | {"jobId": "a"}).document
        clock.advance(minutes=5)

        paused = system.call("POST", "/v1/jobs/a/pause", {"reason": "the ledger is closed"})

        assert paused.status == 200
        expected = created | {
            "state": "PAUSED",
            "pauseReason": "the ledger is closed",
            "pausedAt": "2026-05-24T10:05:00Z",
            "updatedAt": "2026-05-24T10:05:00Z",
            "revision": 2,
        }
        del expected["nextFireAt"]
        assert paused.document == expected
        assert system.shown("a") == expected
        assert system.call("GET", "/v1/jobs").document["items"] == [expected]
        assert system.call("GET", "/v1/jobs/a/upcoming").document == {"items": []}

    def test_resumed_job_goes_on_with_what_was_due_meanwhile(
        self, system: Deployment, clock: Clock
    ) -> None:
        created = system.register(jobId="a", type="INTERVAL", schedule="PT10M")
        clock.advance(minutes=15)
        system.call("POST", "/v1/jobs/a/pause", {"reason": "r"})
        clock.advance(minutes=10)

        resumed = system.call("POST", "/v1/jobs/a/resume")

        assert (resumed.status, resumed.document["state"]) == (200, "ACTIVE")
        assert {"pauseReason", "pausedAt"}.isdisjoint(resumed.document)
        # The phase is kept: 10:10 was before the pause, 10:20 during it, 10:30 is next.
        assert resumed.document["nextFireAt"] == "2026-05-24T10:30:00Z"
        job = system.job("a")
        first = job.first()
        assert first is not None
        assert first.occurs_at == parse_instant("2026-05-24T10:20:00Z")
        assert first.version > created.schedule_version
        assert first.sort_key in {item["entry"]["S"] for item in system.due_items()}

    @pytest.mark.parametrize("body", [None, {}, {"reason": None}])
    def test_a_reason_is_not_required(
        self, system: Deployment, body: dict[str, None] | None
    ) -> None:
        system.register(jobId="a")

        paused = system.call("POST", "/v1/jobs/a/pause", body)

        assert (paused.status, paused.document["state"]) == (200, "PAUSED")
        assert "pauseReason" not in paused.document

    def test_done_twice_it_is_done_once(self, system: Deployment, clock: Clock) -> None:
        system.register(jobId="a")

        paused = system.call("POST", "/v1/jobs/a/pause", {"reason": "first"}).document
        clock.advance(minutes=1)
        again = system.call("POST", "/v1/jobs/a/pause", {"reason": "second"}).document
        resumed = system.call("POST", "/v1/jobs/a/resume").document
        clock.advance(minutes=1)
        once_more = system.call("POST", "/v1/jobs/a/resume").document

        assert again == paused
        assert paused["revision"] == 2
        assert {name: once_more[name] for name in ("state", "revision", "updatedAt")} == {
            name: resumed[name] for name in ("state", "revision", "updatedAt")
        }
        assert resumed["revision"] == 3

    @pytest.mark.parametrize("what", ["pause", "resume"])
    def test_job_that_is_over_is_neither_paused_nor_resumed(
        self, system: Deployment, clock: Clock, what: str
    ) -> None:
        completed = system.register(jobId="completed")
        assert system.jobs.complete(completed, clock.now())
        system.register(jobId="cancelled")
        system.call("DELETE", "/v1/jobs/cancelled")

        refused = system.call("POST", f"/v1/jobs/completed/{what}")

        assert_problem(refused, 409)
        assert "COMPLETED" in refused.document["detail"]
        assert_problem(system.call("POST", f"/v1/jobs/cancelled/{what}"), 404)
        assert_problem(system.call("POST", f"/v1/jobs/unknown/{what}"), 404)
        assert_problem(system.call("POST", f"/v1/jobs/a.b/{what}"), 422, field="jobId")

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"reason": ""}, "reason"),
            ({"reason": " \u00a0 "}, "reason"),
            ({"reason": "x" * 257}, "reason"),
            ({"reason": "two\nlines"}, "reason"),
            ({"reason": "\u0000"}, "reason"),
            ({"reason": "\u001b[31mred"}, "reason"),
            ({"reason": "x\u0085"}, "reason"),
            ({"reason": 7}, "reason"),
            ({"reason": "r", "until": "soon"}, "until"),
            ({"reason": "r", "til": "2030-01-01T00:00:00Z"}, "til"),
        ],
        ids=lambda value: json.dumps(value)[:40],
    )
    def test_bad_reason(self, system: Deployment, body: dict[str, Any], field: str) -> None:
        before = system.register(jobId="a")

        assert_problem(system.call("POST", "/v1/jobs/a/pause", body), 422, field=field)

        assert system.job("a") == before

    @pytest.mark.parametrize(
        ("reason", "problem", "remedy"),
        [
            ("x" * 257, "longer than 256 characters", "Shorten it to 256 characters."),
            (
                "a\tb",
                "holds control characters",
                "Write it on one line, without tabs and line breaks.",
            ),
            ("  ", "blank", "Say why, or leave it out."),
        ],
        ids=["long", "tab", "blank"],
    )
    def test_bad_reason_is_told_with_an_example(
        self, system: Deployment, reason: str, problem: str, remedy: str
    ) -> None:
        system.register(jobId="a")

        fault = system.call("POST", "/v1/jobs/a/pause", {"reason": reason}).fault

        assert fault["problem"] == problem
        assert fault["remedy"] == f"{remedy} For example `the ledger is closed`."

    @pytest.mark.parametrize("reason", ["x" * 256, "Größe 🕑", " r "])
    def test_reason_is_kept_as_it_is(self, system: Deployment, reason: str) -> None:
        system.register(jobId="a")

        paused = system.call("POST", "/v1/jobs/a/pause", {"reason": reason})

        assert paused.document["pauseReason"] == reason

    @pytest.mark.parametrize("text", ["ledger", "[]", "{", " "])
    def test_malformed_body_is_told_that_it_may_be_left_out(
        self, system: Deployment, text: str
    ) -> None:
        system.register(jobId="a")

        pause = system.call("POST", "/v1/jobs/a/pause", text=text)
        resume = system.call("POST", "/v1/jobs/a/resume", text=text)

        assert_problem(pause, 400)
        assert_problem(resume, 400)
        assert pause.document["detail"].endswith(
            'A body is optional; for example `{"reason": "the ledger is closed"}`.'
        )
        assert resume.document["detail"].endswith(
            "A body is optional and has no fields; leave it out."
        )

    def test_resume_takes_no_fields(self, system: Deployment) -> None:
        system.register(jobId="a")
        system.call("POST", "/v1/jobs/a/pause", {"reason": "x" * 256})

        assert_problem(
            system.call("POST", "/v1/jobs/a/resume", {"reason": "r"}), 422, field="reason"
        )
        assert_problem(system.call("POST", "/v1/jobs/a/resume", text="[]"), 400)

        assert system.call("GET", "/v1/jobs/a").document["state"] == "PAUSED"

    def test_paused_job_can_be_changed_and_stays_paused(
        self, system: Deployment, clock: Clock
    ) -> None:
        system.register(jobId="a")
        system.call("POST", "/v1/jobs/a/pause", {"reason": "r"})
        clock.advance(minutes=3)

        named = system.call("PATCH", "/v1/jobs/a", {"name": "n"}).document
        moved = system.call("PATCH", "/v1/jobs/a", {"schedule": "0 4 * * *"}).document

        assert (named["state"], named["pausedAt"]) == ("PAUSED", "2026-05-24T10:00:00Z")
        assert (moved["state"], moved["pauseReason"]) == ("PAUSED", "r")
        assert system.call("DELETE", "/v1/jobs/a").document["state"] == "CANCELLED"

    def test_last_occurrence_in_the_past_completes_the_job(
        self, system: Deployment, clock: Clock
    ) -> None:
        at = "2026-05-24T10:10:00Z"
        system.register(jobId="a", type="ONCE", schedule=at)
        system.call("POST", "/v1/jobs/a/pause")
        system.register(jobId="b", type="ONCE", schedule=at)
        clock.advance(minutes=20)

        # `a` was due during the pause, so the misfire policy decides. `b` was due before it.
        assert system.call("POST", "/v1/jobs/a/resume").document["state"] == "ACTIVE"
        system.call("POST", "/v1/jobs/b/pause")
        assert system.call("POST", "/v1/jobs/b/resume").document["state"] == "COMPLETED"


class TestWithoutARecord:
    """The state of an occurrence that has no separate record."""

    def execution(self, job: Job, at: str) -> str:
        return f"/v1/executions/{RunKey(job.key, run_id(job.uid, parse_instant(at))).execution_id}"

    def test_occurrence_inside_a_range_record_answers_with_that(
        self, system: Deployment, clock: Clock
    ) -> None:
        job = system.register(jobId="a")
        first = parse_instant("2026-05-24T10:01:00Z")
        key = RunKey(job.key, run_id(job.uid, first))
        last = first + timedelta(minutes=59)
        clock.advance(hours=2)
        reason = "3600 s late; misfire policy SKIP"
        system.runs.skip(Run.skipped(key, reason, clock.now(), covered_to=last, covered=60))

        record = system.call("GET", f"/v1/executions/{key.execution_id}").document

        assert record == {
            "executionId": key.execution_id,
            "jobId": "a",
            "state": "SKIPPED",
            "trigger": "SCHEDULE",
            "scheduledAt": "2026-05-24T10:01:00Z",
            "range": {
                "from": "2026-05-24T10:01:00Z",
                "to": "2026-05-24T11:00:00Z",
                "count": 60,
            },
            "finishedAt": "2026-05-24T12:00:00Z",
            "reason": reason,
            "dispatch": 1,
            "attempt": 0,
            "attempts": [],
        }
        assert system.call("GET", "/v1/jobs/a/executions").document["items"] == [record]
        for inside in ("2026-05-24T10:02:00Z", "2026-05-24T11:00:00Z"):
            answer = system.call("GET", self.execution(job, inside))
            assert (answer.status, answer.document) == (200, record)
        after = system.call("GET", self.execution(job, "2026-05-24T11:01:00Z")).document
        assert after["state"] == "PENDING"

    def test_range_record_of_another_incarnation_or_job_is_not_it(
        self, system: Deployment, clock: Clock
    ) -> None:
        before = system.register(jobId="a")
        first = parse_instant("2026-05-24T10:01:00Z")
        key = RunKey(before.key, run_id(before.uid, first))
        last = first + timedelta(hours=9)
        system.runs.skip(Run.skipped(key, "r", clock.now(), covered_to=last, covered=540))
        system.call("DELETE", "/v1/jobs/a")
        after, other = system.register(jobId="a"), system.register(jobId="b")
        clock.advance(hours=1)

        for job in (after, other):
            answer = system.call("GET", self.execution(job, "2026-05-24T10:30:00Z"))
            assert answer.document["state"] == "PENDING"
        clock.advance(hours=-1)
        for job in (after, other):
            assert_problem(system.call("GET", self.execution(job, "2026-05-24T10:30:00Z")), 404)

    def test_occurrence_that_no_executor_has_taken_is_pending(
        self, system: Deployment, clock: Clock
    ) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=2)

        path = self.execution(job, "2026-05-24T10:02:00Z")
        answer = system.call("GET", path)

        assert (answer.status, answer.document) == (
            200,
            {
                "executionId": path.rpartition("/")[2],
                "jobId": "a",
                "state": "PENDING",
                "scheduledAt": "2026-05-24T10:02:00Z",
                "reason": "dispatched or about to be; no executor has taken it yet",
            },
        )
        assert system.call("GET", "/v1/jobs/a/executions").document == {"items": []}

    def test_pending_says_since_when_it_is_late(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=1, seconds=59, milliseconds=999)
        path = self.execution(job, "2026-05-24T10:01:00Z")

        young = system.call("GET", path).document["reason"]
        clock.advance(milliseconds=1)
        old = system.call("GET", path).document["reason"]

        assert young == "dispatched or about to be; no executor has taken it yet"
        assert old == (
            "due 60 s ago and not taken by an executor yet: it waits in its pool's queue, or in "
            "the table for room there or for its job's earlier runs; or no watcher runs. "
            "See docs/guide/policies.md"
        )

    @pytest.mark.parametrize("overlap", ["ALLOW", "QUEUE", "SKIP", "REPLACE"])
    def test_pending_names_the_run_that_it_waits_for(
        self, system: Deployment, clock: Clock, overlap: str
    ) -> None:
        job = system.register(jobId="a", overlap=overlap)
        first = message_for(job, parse_instant("2026-05-24T10:01:00Z"))
        clock.advance(minutes=1)
        claim = system.runs.claim(
            first,
            token="t",
            worker="w",
            pool="default",
            job_revision=1,
            now=clock.now(),
            lease_until=clock.now() + timedelta(hours=1),
        )
        clock.advance(minutes=1, seconds=1)
        path = self.execution(job, "2026-05-24T10:02:00Z")
        waits = (
            f"waits for {first.key.execution_id}, which has not ended (overlap policy {overlap})"
        )
        just_due = "dispatched or about to be; no executor has taken it yet"

        during = system.call("GET", path).document["reason"]
        failed = Result(AttemptOutcome.FAILED, "exit code 1")
        retry_at = clock.now() + timedelta(minutes=5)
        retrying = system.runs.advance(
            claim.run, claim.run.retrying(failed, clock.now(), not_before=retry_at)
        )
        meanwhile = system.call("GET", path).document["reason"]
        system.runs.stop(retrying.run, reason="for the test", now=clock.now())
        after = system.call("GET", path).document["reason"]

        assert during == (just_due if overlap == "ALLOW" else waits)
        assert (meanwhile, after) == (just_due, just_due)

    def test_what_is_not_due_yet_says_when_it_is(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a")
        late = system.register(jobId="b", jitterSec=3600)
        at = "2026-05-24T10:04:00Z"

        answer = system.call("GET", self.execution(job, at))
        jittered = system.call("GET", self.execution(late, at))
        none = system.call("GET", self.execution(job, "2026-05-24T10:04:01Z"))
        clock.advance(minutes=1, seconds=30)
        system.call("POST", "/v1/jobs/a/pause")
        paused = system.call("GET", self.execution(job, at))
        system.call("DELETE", "/v1/jobs/a")
        deleted = system.call("GET", self.execution(job, at))

        for each in (answer, jittered, none, paused, deleted):
            assert_problem(each, 404)
        assert answer.document["detail"].endswith(" It is due at 2026-05-24T10:04:00Z.")
        due_at = isoformat(late.due_at(parse_instant(at)))
        assert jittered.document["detail"].endswith(f" It is due at {due_at}.")
        assert paused.document["detail"].endswith(
            " It would be due at 2026-05-24T10:04:00Z, but its job is paused."
        )
        for each in (none, deleted):
            assert each.document["detail"].endswith("List yours to see their ids.")

    def test_what_is_no_occurrence_is_not_found_inside_a_range_either(
        self, system: Deployment, clock: Clock
    ) -> None:
        job = system.register(jobId="a", schedule="*/10 * * * *")
        first = parse_instant("2026-05-24T10:10:00Z")
        key = RunKey(job.key, run_id(job.uid, first))
        last = first + timedelta(minutes=50)
        clock.advance(hours=2)
        system.runs.skip(Run.skipped(key, "r", clock.now(), covered_to=last, covered=6))
        inside, none = "2026-05-24T10:20:00Z", "2026-05-24T10:21:00Z"

        def statuses() -> list[int]:
            return [system.call("GET", self.execution(job, at)).status for at in (inside, none)]

        assert statuses() == [200, 404]
        system.call("PATCH", "/v1/jobs/a", {"schedule": "0 0 1 1 *"})
        assert statuses() == [200, 404]
        # Occurrences of a forgotten version or a recreated job are unknown and not judged. Both
        # happen only after a watcher has sent everything that was due.
        system.forget_due(clock.now())
        for hour in range(9):
            clock.advance(seconds=1)
            system.call("PATCH", "/v1/jobs/a", {"schedule": f"0 {hour} 1 1 *"})
        assert statuses() == [200, 200]
        system.call("DELETE", "/v1/jobs/a")
        system.register(jobId="a")
        assert statuses() == [200, 200]

    @pytest.mark.parametrize(
        ("at", "what"),
        [
            ("2026-05-24T10:00:00Z", "the job's creation, which is not after itself"),
            ("2026-05-24T09:59:00Z", "before the job's creation"),
            ("2026-05-24T10:02:30Z", "none of its occurrences"),
            ("2026-05-24T10:02:00.001Z", "none of its occurrences"),
            ("2026-05-24T10:04:00Z", "not due yet"),
        ],
    )
    def test_what_is_no_due_occurrence_is_not_found(
        self, system: Deployment, clock: Clock, at: str, what: str
    ) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=3)

        assert system.call("GET", self.execution(job, "2026-05-24T10:03:00Z")).status == 200
        assert_problem(system.call("GET", self.execution(job, at)), 404)
        assert what

    def test_maxRuns_and_jitter_are_heeded(self, system: Deployment, clock: Clock) -> None:  # noqa: N802
        two = system.register(jobId="a", maxRuns=2)
        late = system.register(jobId="b", jitterSec=3600)
        clock.advance(minutes=5)

        assert system.call("GET", self.execution(two, "2026-05-24T10:02:00Z")).status == 200
        assert system.call("GET", self.execution(two, "2026-05-24T10:03:00Z")).status == 404
        at = parse_instant("2026-05-24T10:01:00Z")
        clock.move_to(late.due_at(at) - timedelta(milliseconds=1))
        assert system.call("GET", self.execution(late, "2026-05-24T10:01:00Z")).status == 404
        clock.move_to(late.due_at(at))
        assert system.call("GET", self.execution(late, "2026-05-24T10:01:00Z")).status == 200

    def test_record_whose_time_is_over_is_not_pending(
        self, system: Deployment, clock: Clock
    ) -> None:
        job = system.register(jobId="a")
        clock.advance(days=30, minutes=1)

        assert_problem(system.call("GET", self.execution(job, "2026-05-24T10:01:00Z")), 404)
        assert system.call("GET", self.execution(job, "2026-05-24T10:02:00Z")).status == 200

    def test_of_a_paused_job(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a", misfire={"policy": "SKIP"})
        clock.advance(minutes=1, seconds=30)
        system.call("POST", "/v1/jobs/a/pause")
        clock.advance(minutes=5)

        before = system.call("GET", self.execution(job, "2026-05-24T10:01:00Z")).document
        during = system.call("GET", self.execution(job, "2026-05-24T10:02:00Z")).document

        assert before["reason"].startswith("due 330 s ago and not taken by an executor yet")
        assert during["reason"] == (
            "its job is paused; misfire policy SKIP decides when it is resumed"
        )

    @pytest.mark.parametrize("what", ["change", "deletion"])
    def test_of_a_pause_that_a_change_ended(
        self, system: Deployment, clock: Clock, what: str
    ) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=1, seconds=30)
        system.call("POST", "/v1/jobs/a/pause")
        clock.advance(minutes=5)
        if what == "change":
            system.call("PATCH", "/v1/jobs/a", {"schedule": "0 4 * * *"})
        else:
            system.call("DELETE", "/v1/jobs/a")

        answer = system.call("GET", self.execution(job, "2026-05-24T10:02:00Z"))

        assert answer.status == 200
        assert answer.document["reason"] == (
            "due during a pause that a change of the job ended; will be SKIPPED shortly"
        )
        assert_problem(system.call("GET", self.execution(job, "2026-05-24T10:07:00Z")), 404)

    def test_of_the_version_before_a_change(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=2, seconds=30)
        system.call("PATCH", "/v1/jobs/a", {"schedule": "*/5 * * * *"})
        clock.advance(minutes=5)
        system.call("PATCH", "/v1/jobs/a", {"schedule": "0 * * * *"})

        statuses = {
            minute: system.call("GET", self.execution(job, f"2026-05-24T10:0{minute}:00Z")).status
            for minute in range(1, 8)
        }

        assert statuses == {1: 200, 2: 200, 3: 404, 4: 404, 5: 200, 6: 404, 7: 404}

    def test_of_a_job_that_was_made_again(self, system: Deployment, clock: Clock) -> None:
        before = system.register(jobId="a")
        system.call("DELETE", "/v1/jobs/a")
        after = system.register(jobId="a")
        clock.advance(minutes=1)

        assert_problem(system.call("GET", self.execution(before, "2026-05-24T10:01:00Z")), 404)
        assert system.call("GET", self.execution(after, "2026-05-24T10:01:00Z")).status == 200

    def test_of_a_deleted_job(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=1, seconds=30)
        system.call("DELETE", "/v1/jobs/a")
        clock.advance(minutes=1)

        assert system.call("GET", self.execution(job, "2026-05-24T10:01:00Z")).status == 200
        assert_problem(system.call("GET", self.execution(job, "2026-05-24T10:02:00Z")), 404)


class TestUnreadable:
    """One item that does not decode does not affect the other items."""

    def spoil(self, system: Deployment, job_id: str, attribute: str, value: Any) -> None:
        system.database.update_item(
            TableName=system.jobs_table,
            Key={"tenant": {"S": TENANT}, "job_id": {"S": job_id}},
            UpdateExpression="SET #a = :v",
            ExpressionAttributeNames={"#a": attribute},
            ExpressionAttributeValues={":v": value},
        )

    def spoil_run(self, system: Deployment, key: RunKey, attribute: str, value: Any) -> None:
        partition = f"{key.job.tenant}/{key.job.job_id}"
        system.database.update_item(
            TableName=system.runs_table,
            Key={"job": {"S": partition}, "run_id": {"S": key.run_id}},
            UpdateExpression="SET #a = :v",
            ExpressionAttributeNames={"#a": attribute},
            ExpressionAttributeValues={":v": value},
        )

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [
            ("state", {"S": "HIBERNATING"}),
            ("state", {"N": "1"}),
            ("definition", {"S": "{}"}),
            ("definition", {"S": "{"}),
            ("definition", {"NULL": True}),
            ("definition", {"M": {}}),
            ("revision", {"S": "one"}),
            ("revision", {"L": []}),
            ("effective_from", {"S": "yesterday"}),
            ("effective_from", {"N": "5"}),
            ("replaced", {"S": "[1]"}),
            ("replaced", {"S": '{"a": 1}'}),
            ("replaced", {"M": {"a": {"S": "b"}}}),
            ("counted_from", {"BOOL": True}),
            ("uid", {"NULL": True}),
            ("pause_reason", {"L": [{"S": "x"}]}),
        ],
        ids=lambda value: json.dumps(value)[:30],
    )
    def test_job_is_shown_among_the_others(
        self, system: Deployment, attribute: str, value: Any
    ) -> None:
        for job_id in "abc":
            system.register(jobId=job_id)
        self.spoil(system, "b", attribute, value)

        answer = system.call("GET", "/v1/jobs")

        assert answer.status == 200, answer.document
        first, second, third = answer.document["items"]
        assert [first["jobId"], second["jobId"], third["jobId"]] == ["a", "b", "c"]
        assert (first["state"], third["state"]) == ("ACTIVE", "ACTIVE")
        assert second.keys() == {"jobId", "state", "reason"}
        assert second["state"] == "UNREADABLE"
        assert "does not decode" in second["reason"]
        assert "\n" not in second["reason"]

    def test_it_is_paged_over(self, system: Deployment) -> None:
        for job_id in "abcde":
            system.register(jobId=job_id)
        for job_id in "abd":
            self.spoil(system, job_id, "definition", {"S": "{}"})

        found = [[job["jobId"] for job in page] for page in pages(system, "/v1/jobs", limit=2)]

        assert found == [["a", "b"], ["c", "d"], ["e"]]

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("GET", "/v1/jobs/a", None),
            ("PATCH", "/v1/jobs/a", {"name": "n"}),
            ("DELETE", "/v1/jobs/a", None),
            ("POST", "/v1/jobs", CRON | {"jobId": "a"}),
            ("POST", "/v1/jobs/a/pause", None),
            ("POST", "/v1/jobs/a/resume", None),
            ("GET", "/v1/jobs/a/upcoming", None),
            ("GET", "/v1/jobs/a/executions", None),
        ],
        ids=lambda value: value if isinstance(value, str) else None,
    )
    def test_job_by_its_id_is_a_problem_that_says_what_to_do(
        self,
        system: Deployment,
        caplog: pytest.LogCaptureFixture,
        method: str,
        path: str,
        body: object,
    ) -> None:
        system.register(jobId="a")
        self.spoil(system, "a", "definition", {"S": "{}"})
        before = system.database.scan(TableName=system.jobs_table)["Items"]

        answer = system.call(method, path, body)

        assert_problem(answer, 500)
        assert answer.document["title"] == "Stored item is unreadable"
        assert "job does not decode" in answer.document["detail"]
        assert "correct it in its table" in answer.document["detail"]
        assert system.database.scan(TableName=system.jobs_table)["Items"] == before
        [logged] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert vars(logged)["path"] == path

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [
            ("state", {"S": "HIBERNATING"}),
            ("attempts", {"S": "none"}),
            ("attempts", {"L": [{"M": {}}]}),
            ("attempts", {"L": [{"N": "1"}]}),
            ("dispatched_at", {"S": "yesterday"}),
            ("dispatched_at", {"N": "5"}),
            ("covered_to", {"S": "x"}),
            ("covered_to", {"N": "1E+30"}),
            ("covered", {"L": []}),
            ("fence", {"NULL": True}),
            ("attempt", {"M": {}}),
        ],
        ids=lambda value: json.dumps(value)[:30],
    )
    def test_execution_is_shown_among_the_others(
        self, system: Deployment, attribute: str, value: Any
    ) -> None:
        job = system.register(jobId="a")
        start = floor_minute(job.created_at)
        messages = [message_for(job, start + timedelta(minutes=n)) for n in range(3)]
        for message in messages:
            system.runs.cancel(message, reason="for the test", now=start)
        broken = messages[1].key
        self.spoil_run(system, broken, attribute, value)

        answer = system.call("GET", "/v1/jobs/a/executions")

        assert answer.status == 200, answer.document
        items = answer.document["items"]
        assert [run["executionId"] for run in items] == [
            message.key.execution_id for message in reversed(messages)
        ]
        assert [run["state"] for run in items] == ["CANCELLED", "UNREADABLE", "CANCELLED"]
        assert items[1].keys() == {"executionId", "jobId", "state", "reason"}
        alone = system.call("GET", f"/v1/executions/{broken.execution_id}")
        assert_problem(alone, 500)
        assert alone.document["title"] == "Stored item is unreadable"


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
    def test_nobody_changes_anothers_job(
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


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
plausible = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ONCE", "DELAY", "CRON"]) | json_values,
        "schedule": st.sampled_from(["* * * * *", "PT5S", "2030-01-01T00:00"])
        | st.text(alphabet="0123456789*/,-#LPTSHMDW:Z+", max_size=24)
        | st.datetimes().map(str)
        | json_values,
        "target": st.just({"handler": "hello"})
        | st.fixed_dictionaries(
            {},
            optional={
                "handler": st.just("hello") | json_values,
                "script": st.text(),
                "env": st.dictionaries(
                    st.text(max_size=5),
                    st.dictionaries(st.sampled_from(["secret", "parameter", "key"]), json_values)
                    | json_values,
                ),
            },
        )
        | json_values,
    },
    optional={
        "timezone": st.sampled_from(["Europe/Berlin", "Asia/Tokyo"]) | json_values,
        "payload": json_values,
        "retryPolicy": st.dictionaries(
            st.sampled_from(
                ["maxAttempts", "backoff", "initialDelayMs", "maxDelayMs", "jitter", "retryOn"]
            ),
            st.dictionaries(st.sampled_from(["states", "exitCodes"]), json_values) | json_values,
        )
        | json_values,
        "timeoutSec": json_values,
        "priority": json_values,
        "misfire": st.dictionaries(st.sampled_from(["policy", "relevancyWindowSec"]), json_values)
        | json_values,
        "overlap": st.sampled_from(["ALLOW", "QUEUE", "SKIP", "REPLACE"]) | json_values,
        "labels": st.dictionaries(st.text(max_size=5), st.text(max_size=5)) | json_values,
        "name": json_values,
        "jobId": json_values,
    },
)


@settings(
    max_examples=250 if LONG else 50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(body=plausible | json_values)
def test_no_body_is_our_fault(system: Deployment, body: object) -> None:
    created = system.call("POST", "/v1/jobs", body)
    system.call("POST", "/v1/jobs", CRON | {"jobId": "patched"})
    changed = system.call("PATCH", "/v1/jobs/patched", body)

    assert created.status in {201, 400, 409, 422}, created
    assert changed.status in {200, 400, 422}, changed
    if created.status == 201:
        # An accepted job can be read, by its id and in the listing.
        job_id = created.document["jobId"]
        assert system.shown(job_id) == created.document
    assert system.call("GET", "/v1/jobs").status == 200


def test_handler_takes_a_request_without_optional_parts(system: Deployment) -> None:
    event = http_event("GET", "/v1/jobs", authorizer=identity(TENANT))
    del event["headers"]
    event["queryStringParameters"] = None

    assert handler(event, Context())["statusCode"] == 200
    assert system.call("GET", "/v1/jobs").status == 200
