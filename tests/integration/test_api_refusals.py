"""Fields that the API rejects: each problem says what is wrong, and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.api_answers import CRON, assert_problem
from tests.integration.deployment import OTHER_TENANT, TENANT, Deployment


class TestRefusals:
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

    def test_value_that_is_not_text_is_shown_as_json(self, system: Deployment) -> None:
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
    def test_an_instant_outside_of_a_job_is_utc(
        self, system: Deployment, path: str, body: dict[str, Any]
    ) -> None:
        system.register(jobId="a")

        assert "Without an offset it is UTC" in system.call("POST", path, body).fault["remedy"]

    def test_a_plus_that_became_a_blank_is_reported_with_its_spelling(
        self, system: Deployment
    ) -> None:
        query = {"from": "2026-05-01T00:00:00 09:00"}

        assert "`%2B`" in system.call("GET", "/v1/executions", query=query).fault["remedy"]

    def test_an_instant_out_of_bounds_is_reported_with_the_bounds(self, system: Deployment) -> None:
        once = {"type": "ONCE", "schedule": "2099-12-31T23:59:59Z"}

        fault = system.call("POST", "/v1/jobs", CRON | once).fault

        assert fault["problem"] == "not between 1970-01-02 (included) and 2099-12-31 (excluded)"

    def test_a_value_that_is_nearly_one_of_those_named(self, system: Deployment) -> None:
        answer = system.call("POST", "/v1/jobs", CRON | {"type": "cron"})

        assert answer.fault["remedy"] == "Did you mean `CRON`?"

    def test_timeout_of_the_pool_is_taken(self, system: Deployment) -> None:
        assert system.call("POST", "/v1/jobs", CRON | {"timeoutSec": 14 * 60}).status == 201

    def test_every_fault_is_reported_at_once(self, system: Deployment) -> None:
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
    def test_bad_policy_is_reported_with_an_example(
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
                {"after": ["extract"]},
                (
                    "after.0: Input should be an object (got 'extract'). Use a JSON object. For "
                    'example `{"job": "extract"}`.'
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
    def test_window_that_is_not_a_number_of_seconds(
        self, system: Deployment, window: object
    ) -> None:
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
