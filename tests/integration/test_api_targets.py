"""What the API checks before it stores a job with a callback or an AWS call."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.instants import floor_minute
from nextfire.usecases import check_definition
from tests.fakes import Clock
from tests.integration.api_answers import assert_problem
from tests.integration.deployment import LIMIT, Answer, Deployment

URL = "https://api.example.com/hooks"


@pytest.fixture(autouse=True)
def pools(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of scripts, of calls, and of calls with a job role and some settings."""
    base = {"queueUrl": system.queue_url, "maxTimeout": LIMIT}
    calls = base | {"targets": "calls"}
    opened = {
        "hasJobRole": True,
        "callNetworks": ["10.0.0.0/8"],
        "callPorts": [8443],
        "callHttp": True,
        "awsActions": ["sqs:*"],
    }
    found = {"default": base, "calls": calls, "internal": calls | opened}
    system.configure(monkeypatch, pools=json.dumps(found))


def create(system: Deployment, target: dict[str, Any], **fields: Any) -> Answer:
    job = {"type": "MANUAL", "target": target, **fields}
    return system.call("POST", "/v1/jobs", job)


def http(pool: str = "calls", **call: Any) -> dict[str, Any]:
    return {"pool": pool, "http": {"url": URL, **call}}


def aws(action: str = "SendMessage", pool: str = "internal", **values: Any) -> dict[str, Any]:
    values = values or {"QueueUrl": "https://sqs", "MessageBody": "{{payload}}"}
    return {"pool": pool, "aws": {"service": "sqs", "action": action, "input": values}}


@pytest.mark.parametrize(
    "target",
    [
        http(),
        http(body={"id": "{{payload.id}}"}),
        http(auth={"type": "bearer", "token": {"secret": "token"}}, sign=[{"parameter": "a"}]),
        http("internal", url="http://10.1.2.3:8443/x"),
        http("internal", auth={"type": "oidc", "audience": "api"}),
        http("internal", auth={"type": "sigv4", "service": "sqs", "region": "eu-west-1"}),
        aws(),
    ],
)
def test_a_call_is_stored_as_it_was_given(system: Deployment, target: dict[str, Any]) -> None:
    made = create(system, target, payload={"id": 7})

    assert made.status == 201, made.document
    shown = system.call("GET", f"/v1/jobs/{made.document['jobId']}").document["target"]
    kind = "http" if "http" in target else "aws"
    assert target[kind].items() <= shown[kind].items()
    assert shown["pool"] == target["pool"]


@pytest.mark.parametrize(
    ("target", "field", "text"),
    [
        (http("default"), "target.pool", "calls, internal"),
        (aws(pool="default"), "target.pool", "Pools for AWS calls: internal."),
        ({"pool": "calls", "handler": "report"}, "target.pool", "default"),
        (http(url="https://169.254.169.254/"), "target.http.url", "callNetworks"),
        (http(url="https://10.1.2.3/"), "target.http.url", "callNetworks"),
        (http(url="http://api.example.com/"), "target.http.url", "callHttp"),
        (http(url="https://api.example.com:8443/"), "target.http.url", "callPorts"),
        (http(auth={"type": "oidc", "audience": "api"}), "target.http.auth.type", "jobRole"),
        (
            http("internal", auth={"type": "sigv4", "service": "lambda", "region": "eu-west-1"}),
            "target.http.auth.service",
            "lambda:*",
        ),
        (http(body="{{payload.idd}}"), "target.http.body", "{{payload.id}}"),
        (aws(pool="calls"), "target.aws", "The embedded stack has none"),
        (aws("SendMesage"), "target.aws.action", "SendMessage"),
        (aws(QueueURL="https://sqs"), "target.aws.input.QueueURL", "QueueUrl"),
        (aws(QueueUrl="https://sqs", MessageBody="{{run.id}}"), "target.aws.input", "run has"),
        (
            {"pool": "internal", "aws": {"service": "sns", "action": "ListTopics"}},
            "target.aws.action",
            "sqs:*",
        ),
        (
            {"pool": "internal", "aws": {"service": "iam", "action": "ListUsers"}},
            "target.aws.service",
            "identities",
        ),
    ],
)
def test_a_call_that_cannot_be_made_is_rejected(
    system: Deployment, target: dict[str, Any], field: str, text: str
) -> None:
    answer = create(system, target, payload={"id": 7})

    assert answer.status == 422, answer.document
    assert answer.fault["field"] == field
    assert text in json.dumps(answer.document)


@pytest.mark.parametrize("target", [http(), aws()])
def test_exit_codes_of_a_call_are_rejected(system: Deployment, target: dict[str, Any]) -> None:
    answer = create(system, target, retryPolicy={"retryOn": {"exitCodes": [75]}})

    assert answer.status == 422, answer.document
    assert answer.fault["field"] == "retryPolicy.retryOn.exitCodes"
    assert "retryPolicy.retryOn.states" in json.dumps(answer.document)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"auth": {"type": "bearer", "token": "hunter2-inline"}}, "nextfire/pools/"),
        ({"headers": {"Authorization": "hunter2-inline"}}, "auth"),
        ({"auth": {"type": "bearer"}}, "token"),
        ({"auth": {"type": "magic"}}, "oauth2"),
        ({"auth": {"type": "basic", "username": "me", "password": {"secrets": "a"}}}, "secret"),
        ({"method": "TRACE"}, "POST"),
        ({"success": ["2x"]}, "2xx"),
        ({"timeout": 3}, "timeout"),
    ],
)
def test_an_invalid_document_is_rejected_without_its_secret(
    system: Deployment, call: dict[str, Any], text: str
) -> None:
    answer = create(system, http(**call))

    assert answer.status == 422, answer.document
    assert text in json.dumps(answer.document)
    assert "hunter2" not in json.dumps(answer.document)
    assert all(each["field"].startswith("target.http") for each in answer.document["errors"])


@pytest.mark.parametrize(
    ("tenant", "target", "field"),
    [
        ("auth0|abc", {"handler": "h", "env": {"A": {"secret": "a"}}}, "target.env.A"),
        ("a:b", http(auth={"type": "bearer", "token": {"secret": "a"}}), "target.http.auth.token"),
        ("a+b", {"handler": "h", "env": {"A": {"parameter": "a"}}}, "target.env.A"),
        ("a@b", http(sign=[{"secret": "a"}, {"parameter": "b"}]), "target.http.sign.1"),
        ("a|b", http(tls={"ca": {"parameter": "ca"}}), "target.http.tls.ca"),
    ],
)
def test_a_reference_that_aws_cannot_resolve_for_the_tenant_is_rejected(
    system: Deployment, tenant: str, target: dict[str, Any], field: str
) -> None:
    refused = system.call("POST", "/v1/jobs", {"type": "MANUAL", "target": target}, tenant=tenant)

    assert_problem(refused, 422, field=field)
    assert tenant in refused.document["detail"]
    plain = target | {"env": {"A": "a"}} if "handler" in target else http()
    stored = system.call("POST", "/v1/jobs", {"type": "MANUAL", "target": plain}, tenant=tenant)
    assert stored.status == 201, stored.document


@pytest.mark.parametrize("tenant", ["a_b.c-d", "a+b@c"])
def test_a_tenant_may_have_what_aws_allows_in_names(system: Deployment, tenant: str) -> None:
    kind = "secret" if "+" in tenant else "parameter"
    target = {"handler": "h", "env": {"A": {kind: "a/b"}}}

    created = system.call("POST", "/v1/jobs", {"type": "MANUAL", "target": target}, tenant=tenant)

    assert created.status == 201, created.document


def test_a_change_to_another_pool_is_checked(system: Deployment) -> None:
    job = create(system, http("internal", url="http://10.1.2.3:8443/x")).document["jobId"]

    answer = system.call("PATCH", f"/v1/jobs/{job}", {"target": {"pool": "calls"}})

    assert answer.status == 422
    assert answer.fault["field"] == "target.http.url"


def test_a_kind_is_changed_by_a_patch(system: Deployment) -> None:
    job = create(system, http()).document["jobId"]
    change = {"target": {"pool": "default", "http": None, "handler": "report"}}

    answer = system.call("PATCH", f"/v1/jobs/{job}", change)

    assert answer.status == 200, answer.document
    assert answer.document["target"] == {"pool": "default", "handler": "report", "env": {}}


def test_a_job_that_patches_made_too_large_is_rejected(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_definition, "MAX_DOCUMENT_BYTES", 100_000)
    path = f"/v1/jobs/{create(system, http(body='x' * 60_000)).document['jobId']}"

    answer = system.call("PATCH", path, {"payload": "y" * 60_000})

    assert_problem(answer, 422, field="body")
    assert "larger than 100000 bytes" in answer.document["detail"]
    smaller = {"payload": "y" * 60_000, "target": {"http": {"body": None}}}
    assert system.call("PATCH", path, smaller).status == 200


@pytest.mark.parametrize(
    ("target", "field"),
    [
        (lambda text: http(body=text), "target.http.body"),
        (lambda text: aws(QueueUrl="https://sqs", MessageBody=text), "target.aws.input"),
    ],
)
def test_a_body_or_input_is_at_most_as_large_as_a_payload(
    system: Deployment, target: Callable[[str], dict[str, Any]], field: str
) -> None:
    text = "ü" * ((65_536 - len(json.dumps(_sent(target("")), separators=(",", ":")))) // 2)
    assert create(system, target(text), jobId="fits").status == 201

    too_large = create(system, target(text + "üü"))
    patched = system.call("PATCH", "/v1/jobs/fits", {"target": target(text + "üü")})

    for answer in (too_large, patched):
        assert_problem(answer, 422, field=field)
        assert "larger than 65536 bytes as JSON" in answer.fault["problem"]
        assert answer.fault["value"] in {"'65539 bytes'", "'65540 bytes'"}
        assert "payload" in answer.fault["remedy"]


@pytest.mark.parametrize(
    ("was", "change", "field"),
    [
        (http(body=[1e300] * 700), {"http": {"body": [int(1e300)] * 700}}, "target.http.body"),
        (
            aws("ReceiveMessage", QueueUrl="https://sqs", MaxNumberOfMessages=1),
            {"aws": {"input": {"MaxNumberOfMessages": True}}},
            "target.aws.input.MaxNumberOfMessages",
        ),
    ],
)
def test_a_value_that_is_equal_in_python_only_is_checked(
    system: Deployment, was: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    path = f"/v1/jobs/{create(system, was).document['jobId']}"

    assert_problem(system.call("PATCH", path, {"target": change}), 422, field=field)


def _sent(target: dict[str, Any]) -> Any:
    return target["http"]["body"] if "http" in target else target["aws"]["input"]


@pytest.mark.parametrize(
    ("target", "change"),
    [
        (http(body={"a": "x" * 100_000}), {"http": {"url": f"{URL}/other"}}),
        (aws(QueueUrl="https://sqs", MessageBody="x" * 100_000), {"aws": {"region": "eu-west-1"}}),
    ],
)
def test_a_job_of_an_earlier_version_with_a_larger_body_is_read_run_and_changed(
    system: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    target: dict[str, Any],
    change: dict[str, Any],
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(check_definition, "MAX_PAYLOAD_BYTES", 200_000)
        path = f"/v1/jobs/{create(system, target).document['jobId']}"

    for document in ({"name": "n"}, {"payload": {"a": 1}}, {"target": change}):
        assert system.call("PATCH", path, document).status == 200
    shown = system.call("GET", path).document
    replaced = system.call("PUT", path, {"type": "MANUAL", "target": shown["target"]})
    assert (replaced.status, _sent(replaced.document["target"])) == (200, _sent(target))
    assert system.call("POST", f"{path}/run").status == 201
    larger = http(body={"a": "y" * 100_000}) if "http" in target else http(body="x" * 100_000)
    assert_problem(
        system.call("PATCH", path, {"target": larger | {"aws": None}}),
        422,
        field="target.http.body",
    )


@pytest.mark.parametrize(
    ("target", "field"),
    [
        (http(body={"id": "{{payload.id}}"}), "target.http.body"),
        (aws(QueueUrl="https://sqs", MessageBody="{{payload.id}}"), "target.aws.input"),
    ],
)
def test_a_run_whose_payload_lacks_what_the_template_names_is_rejected(
    system: Deployment, target: dict[str, Any], field: str
) -> None:
    job = create(system, target, payload={"id": "1"}).document["jobId"]

    answer = system.call("POST", f"/v1/jobs/{job}/run", {"payload": {"ids": "2"}})

    assert_problem(answer, 422, field="payload")
    assert field in answer.fault["problem"]
    assert "did you mean {{payload.ids}}?" in answer.fault["problem"]
    assert system.call("GET", f"/v1/jobs/{job}/executions").document["items"] == []
    assert system.call("POST", f"/v1/jobs/{job}/run", {"payload": {"id": "2"}}).status == 201


def test_a_job_that_was_stored_too_large_can_be_changed_and_deleted(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/v1/jobs/{create(system, http(body='x' * 2000)).document['jobId']}"
    monkeypatch.setattr(check_definition, "MAX_DOCUMENT_BYTES", 1000)

    smaller = {"name": "n", "target": {"http": {"body": "x" * 1900}}}
    assert system.call("PATCH", path, smaller).status == 200
    assert system.call("DELETE", path).status == 200


def test_a_late_callback_may_wait_for_its_destination(system: Deployment, clock: Clock) -> None:
    job = system.register(target=http())
    run = job.run_key(floor_minute(clock.now()) + timedelta(minutes=1))
    clock.advance(minutes=3)

    reason = system.call("GET", f"/v1/executions/{run.execution_id}").document["reason"]

    assert "in the table for room there, a quota, its destination (see the endpoints)" in reason
