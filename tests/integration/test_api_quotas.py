"""The API's answers to a tenant that has used up its quotas."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from functions.api import services as api
from nextfire.adapters.aws.clients import transact
from nextfire.adapters.aws.errors import TransactionConflictError
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.domain.instants import parse_instant
from tests.fakes import Clock
from tests.integration.api_answers import CRON, assert_problem
from tests.integration.deployment import OTHER_TENANT, TENANT, Deployment, Proxy

NOW = parse_instant("2026-05-24T10:00:30Z")
"""See the fixture `clock`."""
QUOTAS = {"jobs": 2, "payloadBytes": 20, "shortestIntervalSec": 3600}


@pytest.fixture
def limited(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    quotas = json.dumps({"tenants": {TENANT: QUOTAS}})
    system.configure(monkeypatch, quotas=quotas)
    return system


def fill(system: Deployment) -> None:
    for number in range(2):
        system.register(jobId=f"job{number}", **CRON)


def test_a_job_too_many_is_refused_with_the_quotas_name(limited: Deployment) -> None:
    fill(limited)

    answer = limited.call("POST", "/v1/jobs", CRON)

    assert answer.status == 429
    assert answer.media_type == "application/problem+json"
    assert (answer.document["quota"], answer.document["title"]) == ("jobs", "Quota used up")
    assert int(answer.headers["retry-after"]) > 0
    assert "PAUSED, which is 2," in answer.document["detail"]
    assert limited.call("POST", "/v1/jobs", CRON, tenant=OTHER_TENANT).status == 201


def test_a_quota_that_was_lowered_is_not_taken_for_the_number_of_jobs(
    limited: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(limited)
    quotas = json.dumps({"tenants": {TENANT: {"jobs": 1}}})
    limited.configure(monkeypatch, quotas=quotas)

    detail = limited.call("POST", "/v1/jobs", CRON).document["detail"]

    assert "You have 1" not in detail
    assert "GET /v1/quotas" in detail
    assert limited.call("GET", "/v1/quotas").document["used"]["jobs"] == 2
    limited.call("DELETE", "/v1/jobs/job0")
    assert limited.call("POST", "/v1/jobs", CRON).status == 429


def test_a_deleted_job_makes_room_for_another(limited: Deployment) -> None:
    fill(limited)
    assert limited.call("PUT", "/v1/jobs/new", CRON).status == 429
    assert limited.call("PUT", "/v1/jobs/job1", CRON | {"name": "n"}).status == 200

    assert limited.call("DELETE", "/v1/jobs/job0").status == 200

    assert limited.call("PUT", "/v1/jobs/new", CRON).status == 201


def test_a_request_that_comes_again_finds_its_job_whatever_the_quota(limited: Deployment) -> None:
    limited.register(jobId="job0", **CRON)
    key = {"Idempotency-Key": "k1"}
    first = limited.call("POST", "/v1/jobs", CRON, headers=key)

    again = limited.call("POST", "/v1/jobs", CRON, headers=key)

    assert (first.status, again.document) == (201, first.document)


def test_a_request_that_was_refused_may_come_again_with_its_key(limited: Deployment) -> None:
    fill(limited)
    key = {"Idempotency-Key": "k1"}
    assert limited.call("POST", "/v1/jobs", CRON, headers=key).status == 429
    limited.call("DELETE", "/v1/jobs/job0")

    assert limited.call("POST", "/v1/jobs", CRON, headers=key).status == 201


@pytest.mark.parametrize(
    ("fields", "field", "quota"),
    [
        ({"payload": "x" * 19}, "payload", "payloadBytes"),
        ({"schedule": "*/30 * * * *"}, "schedule", "shortestIntervalSec"),
    ],
)
def test_a_permanent_quota_violation_is_rejected_with_field_and_quota(
    limited: Deployment, fields: dict[str, Any], field: str, quota: str
) -> None:
    answer = limited.call("POST", "/v1/jobs", CRON | fields)

    assert_problem(answer, 422, field=field)
    assert answer.document["quota"] == quota


def test_the_fault_names_the_field_as_the_caller_spells_it(limited: Deployment) -> None:
    short = {"taskId": "t1", "cron": "0 3 * * *", "params": {"n": "x" * 40}}

    answer = limited.call("POST", "/v1/jobs", short)

    assert_problem(answer, 422, field="params")
    assert answer.document["quota"] == "payloadBytes"


def test_a_payload_that_is_equal_in_python_only_is_another_one(limited: Deployment) -> None:
    """`1` is `true`, and `1e300` an integer of 301 digits."""
    limited.register(jobId="job0", **CRON, payload=[1, 1e300])

    for payload in ([True, 1e300, "too long"], [True, int(1e300)]):
        answer = limited.call("PATCH", "/v1/jobs/job0", {"payload": payload})

        assert_problem(answer, 422, field="payload")
        assert answer.document["quota"] == "payloadBytes"


def test_a_runs_payload_has_the_quota_of_a_jobs(limited: Deployment) -> None:
    limited.register(jobId="job0", **CRON)

    answer = limited.call("POST", "/v1/jobs/job0/run", {"payload": "x" * 30})

    assert_problem(answer, 422, field="payload")
    assert answer.document["quota"] == "payloadBytes"


def test_a_tenant_sees_its_quotas_and_their_use(
    system: Deployment, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas = {"default": {"jobs": 5}, "tenants": {TENANT: {"jobs": 3, "runsPerMinute": 10}}}
    weights = json.dumps({TENANT: 4})
    system.configure(monkeypatch, quotas=json.dumps(quotas), tenant_weights=weights)
    fill(system)
    watchers = DynamoDbControlStore(system.database, table=system.control_table)
    watchers.take_runs(TENANT, parse_instant("2026-05-24T10:00:00Z"), 7, 10)

    answer = system.call("GET", "/v1/quotas")

    assert answer.status == 200
    assert answer.document == {
        "quotas": {"jobs": 3, "runsPerMinute": 10},
        "used": {"jobs": 2, "runsPerMinute": 7},
        "minuteEndsAt": "2026-05-24T10:01:00Z",
        "weight": 4,
        "tenant": TENANT,
        "ownEntry": True,
    }
    theirs = system.call("GET", "/v1/quotas", tenant=OTHER_TENANT).document
    assert (theirs["tenant"], theirs["ownEntry"]) == (OTHER_TENANT, False)
    assert (theirs["quotas"], theirs["used"], theirs["weight"]) == ({"jobs": 5}, {"jobs": 0}, 1)

    system.call("DELETE", "/v1/jobs/job0")
    clock.advance(timedelta(seconds=30))

    answer = system.call("GET", "/v1/quotas")
    assert answer.document["used"] == {"jobs": 1, "runsPerMinute": 0}
    assert answer.document["minuteEndsAt"] == "2026-05-24T10:02:00Z"


@pytest.mark.usefixtures("clock")
def test_a_tenant_without_quotas_gets_an_answer_without_a_read(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(system.database)
    monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
    api.own_services.cache_clear()
    system.call("GET", "/v1/health")
    api.services()
    proxy.calls.clear()

    answer = system.call("GET", "/v1/quotas")

    assert answer.document == {
        "quotas": {},
        "used": {},
        "minuteEndsAt": "2026-05-24T10:01:00Z",
        "weight": 1,
        "tenant": TENANT,
        "ownEntry": False,
    }
    assert proxy.calls == []


def test_a_count_that_does_not_decode_is_not_an_answer(limited: Deployment) -> None:
    limited.database.put_item(
        TableName=limited.jobs_table,
        Item={"tenant": {"S": f"#{TENANT}"}, "job_id": {"S": "#"}, "jobs": {"S": "two"}},
    )

    answer = limited.call("GET", "/v1/quotas")

    assert answer.status == 500
    assert "count" in answer.document["detail"]


def test_jobs_of_a_batch_wait_for_each_other(
    limited: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writes the count, and DynamoDB refuses a transaction while another one has the item: of
    100 jobs that are created ten at a time, many were refused six times in a row.
    """
    conflicts, waits = [*range(11)], list[float]()

    def refused(*given: Any) -> Any:
        if conflicts:
            conflicts.pop()
            raise TransactionConflictError("transaction cancelled. Try again.")
        return transact(*given)

    def uniform(_shortest: float, longest: float) -> float:
        waits.append(longest)
        return 0.0

    store = "nextfire.adapters.dynamodb.job_store"
    monkeypatch.setattr(f"{store}.transact", refused)
    monkeypatch.setattr(f"{store}.random.uniform", uniform)

    assert limited.call("POST", "/v1/jobs", CRON).status == 201
    assert len(waits) == 11
    assert waits == sorted(waits)
    assert sum(waits) < 12, "a batch starts no job after 15 s, and a request takes 30 s"
