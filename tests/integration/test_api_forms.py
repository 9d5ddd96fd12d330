"""The two forms in which the design allows a job to be written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.deployment import LIMIT, Deployment

LONG = {
    "name": "daily-invoice-gen",
    "type": "CRON",
    "schedule": "0 3 * * *",
    "timezone": "America/Los_Angeles",
    "target": {"pool": "batch-etl", "handler": "generate_invoices"},
    "payload": {"tenantId": "acme", "dateRange": "yesterday"},
    "retryPolicy": {"maxAttempts": 3, "backoff": "EXPONENTIAL", "initialDelayMs": 30_000},
    "timeoutSec": 600,
    "priority": "NORMAL",
}
SHORT = {"taskId": "daily", "cron": "*/5 * * * *", "params": {"day": "yesterday"}}


def test_long_form(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"queueUrl": system.queue_url, "maxTimeout": LIMIT}
    system.configure(monkeypatch, pools=json.dumps({"default": pool, "batch-etl": pool}))

    answer = system.call("POST", "/v1/jobs", LONG)

    assert answer.status == 201
    assert answer.document.keys() >= {"jobId", "nextFireAt", "state"}
    assert answer.document["state"] == "ACTIVE"
    assert answer.document["retryPolicy"]["initialDelayMs"] == 30_000


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/jobs"), ("PUT", "/v1/jobs/daily")])
def test_short_form(system: Deployment, method: str, path: str) -> None:
    answer = system.call(method, path, SHORT)

    assert answer.status == 201
    document = answer.document
    assert (document["jobId"], document["type"], document["schedule"]) == (
        "daily",
        "CRON",
        "*/5 * * * *",
    )
    assert document["payload"] == {"day": "yesterday"}
    assert document["target"]["handler"] == "daily"
    assert system.call("GET", "/v1/jobs/daily").status == 200


def test_short_form_takes_what_it_does_not_stand_for(system: Deployment) -> None:
    more = {"timezone": "Asia/Tokyo", "target": {"handler": "report"}, "timeoutSec": 60}

    document = system.call("POST", "/v1/jobs", SHORT | more).document

    assert (document["timezone"], document["target"]["handler"]) == ("Asia/Tokyo", "report")
    assert document["timeoutSec"] == 60


def test_short_form_without_params(system: Deployment) -> None:
    answer = system.call("POST", "/v1/jobs", {"taskId": "a", "cron": "* * * * *"})

    assert (answer.status, answer.document["payload"]) == (201, {})


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"taskId": "a"}, {"cron"}),
        ({"cron": "* * * * *"}, {"target", "taskId"}),
        ({"params": {}}, {"cron", "taskId"}),
        (SHORT | {"taskId": "a b"}, {"taskId"}),
        (SHORT | {"taskId": 5}, {"taskId"}),
        (SHORT | {"taskId": "_a"}, {"taskId"}),
        (SHORT | {"taskId": None}, {"taskId"}),
        (SHORT | {"cron": "61 * * * *"}, {"cron"}),
        (SHORT | {"cron": 5}, {"cron"}),
        (SHORT | {"cron": ["* * * * *"]}, {"cron"}),
        (SHORT | {"params": "x" * 65 * 1024}, {"params"}),
        (SHORT | {"target": {"handler": "../a"}}, {"target.handler"}),
        (SHORT | {"target": {"pool": "gpu", "handler": "a"}}, {"target.pool"}),
        (SHORT | {"timezone": "Mars"}, {"timezone"}),
        (SHORT | {"time_zone": "UTC"}, {"time_zone"}),
        (SHORT | {"type": "CRON"}, {"type"}),
        (SHORT | {"schedule": "* * * * *"}, {"schedule"}),
        (SHORT | {"payload": {}}, {"payload"}),
        (SHORT | {"jobId": "a"}, {"jobId"}),
        (SHORT | {"triggerRule": "ALL_DONE"}, {"after"}),
        ({"cron": "* * * * *", "triggerRule": "ALL_DONE"}, {"taskId"}),
    ],
)
def test_what_is_wrong_is_reported_in_the_callers_words(
    system: Deployment, body: dict[str, Any], fields: set[str]
) -> None:
    answer = system.call("POST", "/v1/jobs", body)

    assert answer.status == 422
    reported = {fault["field"] for fault in answer.document["errors"]}
    assert reported
    assert reported <= fields
    assert system.call("GET", "/v1/jobs").document["items"] == []


def test_the_path_names_the_task(system: Deployment) -> None:
    answer = system.call("PUT", "/v1/jobs/other", SHORT)

    assert (answer.status, answer.fault["field"]) == (422, "taskId")


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ("a b", "not a job id"),
        (5, "not a job id"),
        ("-a", "not the name of a script: without a target, taskId names the script"),
    ],
)
def test_a_bad_task_id_is_one_fault(system: Deployment, task: object, problem: str) -> None:
    answer = system.call("POST", "/v1/jobs", SHORT | {"taskId": task})

    assert (answer.fault["field"], answer.fault["problem"]) == ("taskId", problem)
