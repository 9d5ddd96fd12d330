"""Secrets that servers echo are masked: the stack keeps none of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.callback_server import CallbackServer, Received, Reply, callback_server
from tests.e2e.callbacks.conftest import SECRET, TOKEN, Callbacks, put_secret
from tests.e2e.conftest import Stack

OAUTH_SECRET = "planted-secret-of-the-client-52c0"
ISSUED_TOKEN = "planted-access-token-a911"
BROKEN_KEY = "-----BEGIN PRIVATE KEY-----\nplanted-key-77e3\n-----END PRIVATE KEY-----\n"


def echo(one: Received) -> Reply:
    """A rejection that quotes what the request had."""
    sent = one.headers["Authorization"]
    body = json.dumps({"got": sent, "body": one.body.decode()}).encode()
    return Reply(400, body, {"Location": f"/{sent}"})


def test_secrets_that_servers_echo_are_stored_nowhere(
    callbacks: Callbacks, server: CallbackServer, stack: Stack, path: str, tmp_path: Path
) -> None:
    """Searched for in logs, tables, objects and dead letters. Echoed: a bearer token; the secret of
    an OAuth client, by the token server; the token that it issued, by the receiver. Not sent: the
    keys of the signature and of the client certificate.
    """
    with (
        callback_server(tmp_path, mutual=True) as mutual,
        callback_server(tmp_path, "http") as tokens,
    ):
        certificate, private = mutual.client
        planted = {
            "client": OAUTH_SECRET,
            "mutual-ca": mutual.ca,
            "certificate": certificate,
            "key": private,
            "broken-key": BROKEN_KEY,
        }
        for name, value in planted.items():
            put_secret(stack, name, value)
        issued = json.dumps({"access_token": ISSUED_TOKEN, "expires_in": 600}).encode()
        server.responses[path] = tokens.responses["/none"] = echo
        tokens.responses["/token"] = lambda _: Reply(body=issued)
        pair = {"ca": {"parameter": "mutual-ca"}, "certificate": {"parameter": "certificate"}}
        shown = pair | {"key": {"parameter": "key"}}
        broken = pair | {"key": {"parameter": "broken-key"}}
        calls: dict[str, dict[str, Any]] = {
            "bearer": {"auth": {"type": "bearer", "token": {"parameter": "token"}}},
            "signed": {"auth": oauth2(f"{tokens.url}/token"), "sign": [{"parameter": "signing"}]},
            "no token": {"auth": oauth2(f"{tokens.url}/none")},
            "mutual": {"url": f"{mutual.url}{path}", "tls": shown},
            "broken": {"url": f"{mutual.url}{path}", "tls": broken},
        }
        once = {"maxAttempts": 1}
        jobs = {
            name: callbacks.create(path, http=http, retryPolicy=once)
            for name, http in calls.items()
        }
        runs = {name: callbacks.ended(job) for name, job in jobs.items()}
        assert len(mutual.received(path)) == len(tokens.received("/none")) == 1

    states = {name: run["state"] for name, run in runs.items()}
    assert states == {**dict.fromkeys(calls, "DEAD"), "mutual": "SUCCEEDED"}, runs
    for name in ("bearer", "signed"):
        assert "***" in json.dumps(runs[name])
    assert server.received(path)[-1].headers["Authorization"] in {
        f"Bearer {TOKEN}",
        f"Bearer {ISSUED_TOKEN}",
    }
    basic = base64.b64encode(f"me:{OAUTH_SECRET}".encode()).decode()
    secrets = [TOKEN, SECRET, SECRET.removeprefix("whsec_"), OAUTH_SECRET, basic, ISSUED_TOKEN]
    secrets += [private.splitlines()[1], BROKEN_KEY.splitlines()[1]]
    places = dict(stored(stack))
    assert len(places) > 20
    found = {name for name, text in places.items() for secret in secrets if secret in text}
    assert found == set()


def oauth2(token_url: str) -> dict[str, Any]:
    return {
        "type": "oauth2",
        "tokenUrl": token_url,
        "clientId": "me",
        "clientSecret": {"parameter": "client"},
    }


def stored(stack: Stack) -> Iterator[tuple[str, str]]:
    """All that the stack keeps, by place."""
    for log in Path(stack.state, "logs").glob("*"):
        if log.is_file():
            yield log.name, log.read_text(errors="replace")
    database, s3, sqs = (stack.client(name) for name in ("dynamodb", "s3", "sqs"))
    for table in database.list_tables()["TableNames"]:
        for page in database.get_paginator("scan").paginate(TableName=table):
            yield f"{table} {len(page['Items'])}", str(page["Items"])
    for bucket in s3.list_buckets()["Buckets"]:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket["Name"]):
            for each in page.get("Contents", []):
                found = s3.get_object(Bucket=bucket["Name"], Key=each["Key"])
                yield each["Key"], found["Body"].read().decode(errors="replace")
    for name, pool in stack.info.pools.items():
        for queue in (pool.queue_url, pool.dlq_url):
            answer = sqs.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=0
            )
            yield f"{name} {queue}", str(answer.get("Messages"))
