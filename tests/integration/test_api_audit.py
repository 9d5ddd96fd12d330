"""The audit log: one event for each call that changes something, without secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from functions.api import audit
from functions.api import services as api
from functions.api.audit import MAX_DOCUMENT_CHARS
from tests.integration.deployment import Deployment, Proxy, http_event
from tests.integration.isolation import KEY, OPERATIONS, OWNER, STRANGER, Owner, caller, prepare

SECRETS = {"in the payload": "open-sesame", "in a variable": "hunter2hunter2"}
JOB = {
    "jobId": "a",
    "type": "CRON",
    "schedule": "0 3 * * *",
    "target": {
        "handler": "hello",
        "env": {"PLAIN": SECRETS["in a variable"], "REFERENCE": {"secret": "billing/key"}},
    },
    "payload": {"pin": SECRETS["in the payload"]},
    "labels": {"key": "left as it is"},
}
Events = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def events(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Events:
    """Returns the new audit events since its last call."""

    def read() -> list[dict[str, Any]]:
        lines = capsys.readouterr().out.splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        assert "no audit event" not in caplog.messages
        return [each for each in found if each.get("event") == "audit"]

    return read


@pytest.fixture
def owner(system: Deployment) -> Owner:
    return Owner(system)


def changes(name: str) -> bool:
    method, _, operation = OPERATIONS[name]
    return bool(method != "GET" and operation.get("x-nextfire-scope") != "read")


@pytest.mark.parametrize("name", [each for each in OPERATIONS if changes(each)])
def test_each_call_that_changes_something_leaves_one_event(
    owner: Owner, events: Events, name: str
) -> None:
    call, ids = caller(owner, name), owner.ids_for(name)
    prepare(owner, name)
    events()

    refused = call({**ids, "jobId": "no such job"}, STRANGER)
    strange = events()
    answer = call(ids, OWNER, headers=KEY)
    found = events()

    [stranger], [event] = strange, found
    assert (stranger["tenant"], stranger["status"]) == (STRANGER, refused.status)
    assert ("after" in stranger) == (refused.status < 300)
    assert event["tenant"] == OWNER
    assert event["principal"] == f"arn:aws:iam::{OWNER}:user/u"
    assert (event["operation"], event["status"]) == (name, answer.status)
    assert (
        event["resource"].items()
        >= {each: ids[each] for each in ids if f"{{{each}}}" in OPERATIONS[name][1]}.items()
    )
    assert event["after"]
    assert event["requestId"] == "request-1"
    assert (event["sourceIp"], event["userAgent"]) == ("192.0.2.1", "test")
    assert event.get("idempotencyKey") == KEY["Idempotency-Key"]


def test_calls_that_only_read_leave_none(owner: Owner, events: Events) -> None:
    events()

    for name in OPERATIONS:
        if not changes(name):
            assert caller(owner, name)(owner.ids_for(name), OWNER).status < 300

    assert events() == []


class TestWhatItTells:
    def test_before_and_after(self, system: Deployment, events: Events) -> None:
        system.call("POST", "/v1/jobs", JOB)
        [made] = events()
        system.call("PATCH", "/v1/jobs/a", {"schedule": "0 4 * * *"})
        [changed] = events()

        assert made["resource"] == {"jobId": "a"}
        assert "before" not in made
        assert made["after"]["schedule"] == changed["before"]["schedule"] == "0 3 * * *"
        assert changed["after"]["schedule"] == "0 4 * * *"
        assert changed["changed"] == ["nextFireAt", "revision", "schedule", "updatedAt"]

    def test_true_in_place_of_1_is_a_change(self, system: Deployment, events: Events) -> None:
        system.call("POST", "/v1/jobs", JOB | {"payload": [1]})
        system.call("PATCH", "/v1/jobs/a", {"payload": [True]})

        assert events()[1]["changed"] == ["payload", "revision", "updatedAt"]

    def test_run_now_event_has_no_changed_fields(self, system: Deployment, events: Events) -> None:
        system.call("POST", "/v1/jobs", JOB)
        events()
        answer = system.call("POST", "/v1/jobs/a/run", {})
        [asked] = events()

        assert asked["after"]["executionId"] == answer.document["executionId"]
        assert "changed" not in asked

    def test_before_of_a_cancelled_sequence(self, system: Deployment, events: Events) -> None:
        system.call("POST", "/v1/jobs", JOB)
        asked = system.call("POST", "/v1/jobs/a/run", {}).document
        events()
        system.call("POST", f"/v1/executions/{asked['executionId']}/chain/cancel", {})
        [event] = events()

        assert event["before"]["executionId"] == asked["executionId"]
        assert event["before"]["state"] == "PENDING"

    def test_before_is_the_state_of_the_latest_try(
        self, system: Deployment, events: Events, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system.call("POST", "/v1/jobs", JOB)
        proxy = Proxy(system.database)

        def meanwhile(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            proxy.instead.clear()
            system.call("PATCH", "/v1/jobs/a", {"name": "meanwhile"})
            return real(**request)

        monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
        api.own_services.cache_clear()
        events()
        proxy.instead["put_item"] = meanwhile
        system.call("POST", "/v1/jobs/a/pause", {})

        other, event = events()
        assert other["operation"] == "changeJob"
        assert event["before"]["name"] == "meanwhile"
        assert "state" in event["changed"]
        assert "name" not in event["changed"]

    def test_no_secret(self, system: Deployment, events: Events) -> None:
        system.call("POST", "/v1/jobs", JOB)
        system.call("PATCH", "/v1/jobs/a", {"payload": {"pin": "another-secret"}})
        system.call("POST", "/v1/jobs/a/run", {"payload": SECRETS})
        key = system.call("POST", "/v1/keys", {"name": "n", "scopes": ["read"]}).document
        rotated = system.call("POST", f"/v1/keys/{key['keyId']}/rotate", {}).document
        system.call("POST", "/v1/jobs", JOB | {"payloads": SECRETS})
        found = events()

        text = json.dumps(found)
        for secret in (*SECRETS.values(), "another-secret", key["key"], rotated["new"]["key"]):
            assert secret not in text
            assert secret.rpartition(".")[2] not in text
        created, changed = found[0]["after"], found[1]
        assert created["payload"] == {"hiddenBytes": len(json.dumps(JOB["payload"]))}
        assert created["target"]["env"]["REFERENCE"] == {"secret": "billing/key"}
        assert created["labels"] == JOB["labels"]
        assert "payload" in changed["changed"]
        assert len(found) == 6

    def test_of_many_jobs_which_were_made_and_no_secret_of_those_that_were_not(
        self, system: Deployment, events: Events
    ) -> None:
        jobs = [JOB, JOB | {"jobId": "b", "payloads": SECRETS}, JOB | {"jobId": "c"}, JOB]
        answer = system.call("POST", "/v1/jobs:batch", {"jobs": jobs})
        assert SECRETS["in the payload"] in json.dumps(answer.document), "the caller sees the value"

        [event] = events()
        for secret in SECRETS.values():
            assert secret not in json.dumps(event)
        assert event["jobs"] == ["a", "c"]
        results = event["after"]["results"]
        assert [each["status"] for each in results] == [201, 422, 201, 422]
        assert results[1]["problem"] == {"status": 422}

    def test_of_many_jobs_not_those_that_were_there_before(
        self, system: Deployment, events: Events
    ) -> None:
        system.call("POST", "/v1/jobs", JOB)
        events()

        system.call("POST", "/v1/jobs:batch", {"jobs": [JOB, JOB | {"jobId": "b"}]})

        [event] = events()
        assert [each["status"] for each in event["after"]["results"]] == [409, 201]
        assert event["jobs"] == ["b"]

    def test_of_all_jobs_with_some_labels_which(self, system: Deployment, events: Events) -> None:
        system.call("POST", "/v1/jobs", JOB)
        events()
        asked = json.dumps({"labels": JOB["labels"], "reason": "r"}).encode()
        system.call("POST", "/v1/jobs:pause", text=asked)
        system.call("POST", "/v1/jobs:pause", {"labels": "odd"})

        done, refused = events()
        assert (done["operation"], done["status"]) == ("pauseJobs", 200)
        assert done["request"] == {"labels": JOB["labels"], "reason": "r"}
        assert done["jobs"] == ["a"]
        assert done["after"] == {"matched": 1, "changed": 1, "failed": []}
        assert (refused["status"], refused["resource"]) == (422, {})
        assert "request" not in refused

    def test_many_jobs(self, system: Deployment, events: Events) -> None:
        wrong = JOB | {"jobId": "c", "passwrd": SECRETS["in a variable"]}
        jobs = [JOB | {"jobId": each, "labels": {"team": "x"}} for each in ("a", "b")]
        system.call("POST", "/v1/jobs:batch", {"jobs": [*jobs, wrong]})
        system.call("POST", "/v1/jobs/a/pause", {})
        system.call("POST", "/v1/jobs:pause", {"labels": {"team": "x"}, "reason": "r"})

        made, _, paused = events()
        assert made["jobs"] == ["a", "b"]
        assert [each["status"] for each in made["after"]["results"]] == [201, 201, 422]
        assert paused["request"] == {"labels": {"team": "x"}, "reason": "r"}
        assert paused["jobs"] == ["b"]
        text = json.dumps([made, paused])
        assert not [secret for secret in SECRETS.values() if secret in text]

    def test_event_names_the_problem(self, system: Deployment, events: Events) -> None:
        system.call("POST", "/v1/jobs", JOB)
        events()

        system.call("POST", "/v1/jobs", JOB)
        system.call("PATCH", "/v1/jobs/a", {"name": "n"}, headers={"If-Match": '"x-1"'})
        system.call("PATCH", "/v1/jobs/a", {"nmae": SECRETS["in the payload"]})

        conflict, changed, invalid = events()
        assert conflict["status"] == 409
        assert "already exists" in conflict["problem"]
        assert conflict["request"]["jobId"] == "a"
        assert "request" not in invalid
        assert changed["status"] == 412
        assert "problem" not in invalid
        assert not [each for each in (conflict, changed, invalid) if "after" in each]

    def test_who_lacks_the_scope(self, system: Deployment, events: Events) -> None:
        key = {"tenant": "acme", "keyId": "00000000000000ff", "scopes": "read"}
        system.answer(http_event("DELETE", "/v1/jobs/a", authorizer={"lambda": key}))

        [event] = events()
        assert (event["status"], event["principal"]) == (403, "00000000000000ff")
        assert "scope `run`" in event["problem"]

    def test_size(self, system: Deployment, events: Events) -> None:
        days = [f"2099-01-01T{n // 60:02}:{n % 60:02}:00Z" for n in range(1000)]
        system.call("POST", "/v1/jobs", JOB | {"type": "DATES", "schedule": days, "name": "big"})

        [event] = events()
        assert len(json.dumps(event)) < 5 * MAX_DOCUMENT_CHARS
        assert event["after"]["name"] == "big"
        assert event["after"]["state"] == "ACTIVE"

    def test_unknown_operations_leave_no_events(self, system: Deployment, events: Events) -> None:
        for method, path in (("POST", "/v1/nowhere"), ("BREW", "/v1/jobs"), ("DELETE", "/v1/jobs")):
            system.call(method, path)

        assert events() == []

    def test_under_either_prefix(self, system: Deployment, events: Events) -> None:
        system.call("POST", "/api/v1/jobs", JOB)

        assert [each["operation"] for each in events()] == ["createJob"]


def test_an_event_that_cannot_be_made_does_not_fail_the_request(
    system: Deployment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "audit_event", lambda *_: 1 / 0)

    assert system.call("POST", "/v1/jobs", JOB).status == 201

    assert "no audit event" in caplog.messages


def test_it_costs_no_call(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    system.call("POST", "/v1/jobs", JOB)
    proxy = Proxy(system.database)
    monkeypatch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
    api.own_services.cache_clear()
    system.call("GET", "/v1/jobs/a")

    def calls(name: str) -> list[str]:
        proxy.calls.clear()
        assert system.call("PATCH", "/v1/jobs/a", {"name": name}).status == 200
        return [operation for operation, _ in proxy.calls]

    with_event = calls("n")
    monkeypatch.setattr(audit, "audit_event", lambda *_: None)
    assert with_event == calls("m")


@pytest.mark.parametrize("text", ['["jobId"]', "{", "\ud800", json.dumps({"name": "x" * 300_000})])
def test_a_request_beyond_the_rate_leaves_an_event_whatever_its_body_is(
    system: Deployment, events: Events, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    one = {"requestsPerSecond": 1, "requestBurst": 1}
    system.configure(monkeypatch, quotas=json.dumps({"default": one}))

    answers = [system.call("POST", "/v1/jobs", text=text) for _ in range(3)]

    assert 429 in {answer.status for answer in answers}
    found = events()
    assert [each["status"] for each in found] == [answer.status for answer in answers]
    assert all("request" not in each for each in found)
