"""The request of a callback: headers, body, authentication and signatures."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.request import traceparent
from nextfire.targets.http.runner import HttpTarget
from tests.builders import NOON, run_key
from tests.callbacks import a_callback, a_running_run
from tests.fakes import Clock
from tests.unit.http_runner.conftest import REFERENCE, TOKEN, Callbacks, Role


def test_a_request_says_what_it_is_for(callbacks: Callbacks) -> None:
    headers = callbacks.headers(headers={"X-Source": "tests", "content-type": "text/x"})

    [request] = callbacks.transport.sent
    execution_id = run_key().execution_id
    assert (request.method, request.url) == ("POST", "https://api.example.com/hooks")
    assert request.body == b'{"id":7}'
    assert headers.pop("user-agent") == f"nextfire/{version('nextfire')}"
    assert headers == {
        "x-source": "tests",
        "content-type": "text/x",
        "idempotency-key": execution_id,
        "nextfire-execution-id": execution_id,
        "nextfire-attempt": "1",
        "nextfire-scheduled-at": "2026-05-24T12:00:00Z",
        "nextfire-job-id": "report",
        "traceparent": traceparent(a_running_run()),
    }


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_some_methods_have_no_body(callbacks: Callbacks, method: str) -> None:
    assert "content-type" not in callbacks.headers(method=method)
    assert callbacks.transport.sent[0].body == b""


def test_a_body_is_rendered(callbacks: Callbacks) -> None:
    callbacks.headers(body={"n": "{{payload.id}}", "run": "{{run.attempt}} of {{job.id}}"})

    assert json.loads(callbacks.transport.sent[0].body) == {"n": 7, "run": "1 of report"}


def test_a_traceparent_has_a_trace_of_its_run_and_a_span_of_its_attempt() -> None:
    run = a_running_run()
    runs = (run, replace(run, fence=2), replace(run, key=run_key(NOON + timedelta(hours=1))))
    parts = [traceparent(each).split("-") for each in runs]

    (_, trace, span, _), second, other = parts
    assert (len(trace), len(span)) == (32, 16)
    assert second[1] == trace != other[1]
    assert len({each[2] for each in parts}) == 3


@pytest.mark.parametrize(
    ("auth", "name", "value"),
    [
        ({"type": "bearer", "token": REFERENCE}, "authorization", f"Bearer {TOKEN}"),
        (
            {"type": "basic", "username": "me", "password": REFERENCE},
            "authorization",
            "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode(),
        ),
        ({"type": "apiKey", "header": "X-Key", "value": REFERENCE}, "x-key", TOKEN),
        ({"type": "oidc", "audience": "api"}, "authorization", f"Bearer jwt-{TOKEN}"),
    ],
)
def test_authentication(callbacks: Callbacks, auth: dict[str, Any], name: str, value: str) -> None:
    assert callbacks.headers(auth=auth)[name] == value


def test_a_header_of_authentication_replaces_one_in_another_case(callbacks: Callbacks) -> None:
    auth = {"type": "apiKey", "header": "x-receiver", "value": REFERENCE}

    callbacks.attempt(a_callback(auth=auth, headers={"X-Receiver": "a", "X-Other": "b"}))

    sent = callbacks.transport.sent[0].headers
    assert [name for name in sent if name.lower() == "x-receiver"] == ["x-receiver"]
    assert (sent["x-receiver"], sent["X-Other"]) == (TOKEN, "b")


@pytest.mark.parametrize(
    ("actions", "signed"),
    [
        (("*",), True),
        (("sqs:*", "execute-api:*"), True),
        (("execute-api:Invoke*",), False),
        (("execute-ap*", "sqs:*"), False),
        ((), False),
    ],
)
def test_a_signature_is_made_if_all_actions_of_its_service_are_allowed(
    callbacks: Callbacks, actions: tuple[str, ...], *, signed: bool
) -> None:
    callbacks.target = HttpTarget(
        transport=callbacks.transport,  # type: ignore[arg-type] # the part that is used
        secrets=callbacks.secrets,
        authentication=Authentication(callbacks.secrets, Role(), None, aws_actions=actions),
        clock=Clock(NOON),
    )
    auth = {"type": "sigv4", "service": "execute-api", "region": "eu-central-1"}

    found = callbacks.attempt(a_callback(auth=auth)).result

    assert (found.outcome is AttemptOutcome.SUCCEEDED) is signed
    assert len(callbacks.transport.sent) == signed
    assert found.permanent is not signed
    assert signed or "Add execute-api:* to awsActions" in found.reason


def test_an_aws_signature_covers_the_request(callbacks: Callbacks) -> None:
    auth = {"type": "sigv4", "service": "execute-api", "region": "eu-central-1"}

    headers = callbacks.headers(auth=auth)

    assert "Credential=AKIDEXAMPLE/" in headers["authorization"]
    assert "/eu-central-1/execute-api/aws4_request" in headers["authorization"]
    assert "idempotency-key" in headers["authorization"]
    assert headers["x-amz-security-token"] == f"session-{TOKEN}"


def test_a_signature_for_s3_has_the_digest_of_the_body(callbacks: Callbacks) -> None:
    auth = {"type": "sigv4", "service": "s3", "region": "eu-central-1"}

    headers = callbacks.headers(auth=auth)

    assert len(headers["x-amz-content-sha256"]) == 64
    assert "x-amz-content-sha256" in headers["authorization"]


def test_a_call_is_signed_by_each_secret(callbacks: Callbacks) -> None:
    headers = callbacks.headers(sign=[{"secret": "signing"}, {"secret": "signing"}])

    assert headers["webhook-id"] == run_key().execution_id
    assert [each.split(",")[0] for each in headers["webhook-signature"].split()] == ["v1", "v1"]


def test_tls_settings_are_resolved(callbacks: Callbacks) -> None:
    callbacks.headers(tls={"ca": REFERENCE})

    [tls] = callbacks.transport.tls
    assert tls is not None
    assert (tls.ca, tls.certificate, tls.key) == (TOKEN, None, None)
