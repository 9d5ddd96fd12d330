"""Endpoints of HTTP callbacks: shown, listed, paused, limited and resumed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.dynamodb.endpoint_store import DynamoDbEndpointStore
from nextfire.domain.endpoints import Endpoint, EndpointKey, EndpointState
from nextfire.usecases.breaker import Breaker
from nextfire.usecases.endpoint_gate import EndpointGate
from tests.builders import NOON
from tests.fakes import Clock
from tests.integration.api_endpoints import CLOSED, HOST, PATH, done, fail
from tests.integration.deployment import (
    CALLS,
    LIMIT,
    OTHER_TENANT,
    TENANT,
    Deployment,
    labelled_key,
)

NOW = NOON
"""See the fixture `clock`."""


@pytest.fixture
def store(system: Deployment) -> DynamoDbEndpointStore:
    return DynamoDbEndpointStore(system.database, table=system.endpoints_table)


@pytest.fixture
def breaker(store: DynamoDbEndpointStore, clock: Clock) -> Breaker:
    """The breaker of an executor."""
    return Breaker(store, CALLS, clock)


def listed(system: Deployment, **query: str) -> list[str]:
    found: list[str] = []
    while True:
        page = done(system.call("GET", "/v1/endpoints", query=query))
        found += [f"{each['pool']}/{each['destination']}" for each in page["items"]]
        if "cursor" not in page:
            return found
        query["cursor"] = page["cursor"]


def test_a_destination_that_no_one_called_is_closed(system: Deployment) -> None:
    assert done(system.call("GET", PATH)) == CLOSED
    assert done(system.call("GET", "/v1/endpoints")) == {"items": []}


def test_an_outage_is_shown(system: Deployment, breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.advance(seconds=30)
    assert breaker.admit(TENANT, HOST, "run", clock.now()) is None

    shown = done(system.call("GET", PATH))

    assert shown == CLOSED | {
        "state": "OPEN",
        "failures": 5,
        "openedAt": "2026-05-24T12:00:00Z",
        "probeAt": "2026-05-24T12:01:30Z",
        "failedProbes": 1,
        "changedAt": "2026-05-24T12:00:30Z",
    }
    assert done(system.call("GET", "/v1/endpoints")) == {"items": [shown]}


def test_a_retry_after_is_shown_until_it_ends(
    system: Deployment, breaker: Breaker, clock: Clock
) -> None:
    breaker.report(TENANT, HOST, "throttled", NOON + timedelta(seconds=30))

    assert done(system.call("GET", PATH))["notBefore"] == "2026-05-24T12:00:30Z"
    clock.advance(seconds=30)
    assert "notBefore" not in done(system.call("GET", PATH))


def test_a_pause_holds_the_runs_of_executors_until_it_is_resumed(
    system: Deployment, breaker: Breaker, clock: Clock
) -> None:
    assert breaker.admit(TENANT, HOST, "run", clock.now()) is None

    answer = done(system.call("POST", f"{PATH}/pause", {"reason": "maintenance"}))
    assert answer == CLOSED | {
        "state": "PAUSED",
        "pauseReason": "maintenance",
        "pausedAt": "2026-05-24T12:00:00Z",
        "changedAt": "2026-05-24T12:00:00Z",
    }
    clock.advance(seconds=5)
    hold = breaker.admit(TENANT, HOST, "run", clock.now())
    assert hold is not None
    assert "maintenance" in hold.reason
    assert breaker.admit(OTHER_TENANT, HOST, "run", clock.now()) is None

    resumed = done(system.call("POST", f"{PATH}/resume"))
    assert resumed == CLOSED | {"changedAt": "2026-05-24T12:00:05Z"}
    clock.advance(seconds=5)
    assert breaker.admit(TENANT, HOST, "run", clock.now()) is None


def test_a_limit_holds_runs_of_executors_until_it_is_removed(
    system: Deployment, store: DynamoDbEndpointStore, clock: Clock
) -> None:
    gate = EndpointGate(store, CALLS, clock)

    def admitted(run: str) -> bool:
        return not gate.admit(
            TENANT, HOST, run, clock.now(), first=True, timeout=timedelta(seconds=60)
        )

    shown = done(system.call("POST", f"{PATH}/limit", {"perMinute": 60, "parallel": 1}))
    assert shown == CLOSED | {"perMinute": 60, "parallel": 1, "changedAt": "2026-05-24T12:00:00Z"}
    assert done(system.call("GET", "/v1/endpoints")) == {"items": [shown]}, "without its flow"
    assert admitted("a")
    assert not admitted("b")
    gate.leave(TENANT, HOST, "a")
    clock.advance(seconds=10)
    assert admitted("c")

    for change in ("pause", "resume"):
        assert done(system.call("POST", f"{PATH}/{change}"))["parallel"] == 1
    removed = done(system.call("POST", f"{PATH}/limit", {}))
    assert removed == CLOSED | {"changedAt": "2026-05-24T12:00:10Z"}
    clock.advance(seconds=5)
    assert admitted("d")
    assert admitted("e")


def test_resume_ends_an_outage(system: Deployment, breaker: Breaker) -> None:
    fail(breaker)

    assert done(system.call("POST", f"{PATH}/resume"))["state"] == "CLOSED"


def test_repeated_changes_write_nothing(system: Deployment, clock: Clock) -> None:
    first = done(system.call("POST", f"{PATH}/pause", {"reason": "r"}))
    clock.advance(seconds=1)

    assert done(system.call("POST", f"{PATH}/pause", {"reason": "r"})) == first
    resumed = done(system.call("POST", f"{PATH}/resume"))
    clock.advance(seconds=1)
    assert done(system.call("POST", f"{PATH}/resume")) == resumed


def test_an_idempotency_key_answers_twice_and_pauses_once(system: Deployment) -> None:
    key = {"Idempotency-Key": "k"}
    first = system.call("POST", f"{PATH}/pause", {"reason": "r"}, headers=key)
    done(system.call("POST", f"{PATH}/resume"))

    again = system.call("POST", f"{PATH}/pause", {"reason": "r"}, headers=key)

    assert done(again) == done(first)
    assert done(system.call("GET", PATH))["state"] == "CLOSED"


def test_endpoints_are_listed_by_pool_and_destination_page_by_page(
    system: Deployment, store: DynamoDbEndpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["batch", "calls", "default"]
    pool = {"queueUrl": system.queue_url, "maxTimeout": LIMIT}
    system.configure(monkeypatch, pools=json.dumps(dict.fromkeys(names, pool)))
    expected = []
    for name in ("batch", "default"):  # `calls` has none
        for host in ("a.example.com:443", "b.example.com:443", "c.example.com:443"):
            key = EndpointKey(name, TENANT, host)
            store.replace(Endpoint(key), Endpoint(key, failures=1, changed_at=NOON, version=1))
            expected.append(f"{name}/{host}")

    assert listed(system) == expected
    assert listed(system, limit="2") == expected
    assert listed(system, pool="default", limit="1") == expected[3:]
    assert listed(system, pool="calls") == []


def test_an_unreadable_endpoint_is_shown_among_the_others(
    system: Deployment, breaker: Breaker
) -> None:
    fail(breaker)
    broken = {"owner": f"{CALLS}/{TENANT}", "destination": "broken.example.com:443", "state": "?"}
    system.database.put_item(
        TableName=system.endpoints_table, Item={name: {"S": text} for name, text in broken.items()}
    )

    first, second = done(system.call("GET", "/v1/endpoints"))["items"]

    assert (first["destination"], second["destination"]) == (HOST, "broken.example.com:443")
    assert (second["pool"], second["state"]) == (CALLS, "UNREADABLE")
    answer = system.call("GET", f"/v1/endpoints/{CALLS}/broken.example.com")
    assert answer.status == 500


def test_a_key_restricted_by_labels_may_not_use_endpoints(
    system: Deployment, breaker: Breaker
) -> None:
    fail(breaker)
    key = labelled_key(TENANT, {"team": "etl"})

    for method, path in (
        ("GET", "/v1/endpoints"),
        ("GET", PATH),
        ("POST", f"{PATH}/pause"),
        ("POST", f"{PATH}/resume"),
    ):
        answer = system.call(method, path, authorizer=key)
        assert answer.status == 403
        assert "Use a key without labels for endpoints." in answer.document["detail"]
    assert done(system.call("GET", PATH))["state"] == "OPEN"


@pytest.mark.parametrize(
    ("scopes", "reads", "pauses"), [("read", 200, 403), ("read run", 200, 200), ("", 403, 403)]
)
def test_reading_needs_read_and_a_change_needs_run(
    system: Deployment, scopes: str, reads: int, pauses: int
) -> None:
    who = {"tenant": TENANT, "keyId": "00000000000000ff", "scopes": scopes}
    key: dict[str, Any] = {"authorizer": {"lambda": who}}

    assert system.call("GET", PATH, **key).status == reads
    assert system.call("GET", "/v1/endpoints", **key).status == reads
    assert system.call("POST", f"{PATH}/pause", **key).status == pauses
    assert system.call("POST", f"{PATH}/resume", **key).status == pauses


def test_a_change_is_in_the_audit_chain_and_in_the_log(
    system: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    system.call("POST", f"{PATH}/pause", {"reason": "maintenance"})
    system.call("POST", f"{PATH}/resume")

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"audit"' in line]
    kept = system.database.scan(TableName=system.requests_table)["Items"]
    noted = [json.loads(item["changed_by"]["S"]) for item in kept if "changed_by" in item]

    resource = {"pool": CALLS, "destination": HOST}
    for events in (lines, noted):
        assert sorted(each["operation"] for each in events) == ["pauseEndpoint", "resumeEndpoint"]
        assert all(each["resource"] == resource for each in events)
        assert all(each["tenant"] == TENANT for each in events)
    assert lines[0]["request"] == {"reason": "maintenance"}


def test_a_pause_prevails_over_failures_at_the_same_time(
    system: Deployment, store: DynamoDbEndpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, failures = EndpointKey(CALLS, TENANT, HOST), iter(range(1, 6))
    real = DynamoDbEndpointStore.replace

    def replace_late(self: DynamoDbEndpointStore, was: Endpoint, to: Endpoint) -> bool:
        if (number := next(failures, None)) is not None:
            stored = store.get(key, consistent=True) or Endpoint(key)
            state = EndpointState.OPEN if number == 5 else EndpointState.CLOSED
            failed = replace(stored, state=state, failures=number, version=number, changed_at=NOON)
            assert real(store, stored, failed)
        return real(self, was, to)

    monkeypatch.setattr(DynamoDbEndpointStore, "replace", replace_late)

    assert done(system.call("POST", f"{PATH}/pause"))["state"] == "PAUSED"


def test_a_pause_that_always_comes_second_can_be_tried_again(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DynamoDbEndpointStore, "replace", lambda *_: False)

    answer = system.call("POST", f"{PATH}/pause")

    assert answer.status == 503
    assert "Try again" in answer.document["detail"]
