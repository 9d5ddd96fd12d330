"""HTTP callbacks of the deployed stack, received by a local HTTPS server."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from standardwebhooks import Webhook

from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.callback_server import (
    CallbackServer,
    Received,
    Reply,
    callback_server,
    json_of,
)
from tests.e2e.conftest import CALLER, Stack
from tests.e2e.test_path import until

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
TOKEN = "planted-token-8d1f"
OAUTH_SECRET = "planted-secret-of-the-client-52c0"
ISSUED_TOKEN = "planted-access-token-a911"
BROKEN_KEY = "-----BEGIN PRIVATE KEY-----\nplanted-key-77e3\n-----END PRIVATE KEY-----\n"


@pytest.fixture(scope="module")
def server(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CallbackServer]:
    with callback_server(tmp_path_factory.mktemp("authority")) as server:
        for name, value in {"ca": server.ca, "signing": SECRET, "token": TOKEN}.items():
            put_secret(stack, name, value)
        yield server


def put_secret(stack: Stack, name: str, value: str) -> None:
    """Store *value* where calls of `CALLER` find the parameter *name*."""
    path = f"/nextfire/pools/calls/{CALLER}/{name}"
    stack.client("ssm").put_parameter(Name=path, Value=value, Type="SecureString", Overwrite=True)


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return stack.key_of(CALLER)


@pytest.fixture
def path() -> str:
    """A path of the server that no other test uses."""
    return f"/{uuid4().hex[:8]}"


class Callbacks:
    """Creates jobs that call *server*, and reads their executions."""

    def __init__(self, api: httpx2.Client, server: CallbackServer) -> None:
        self._api, self._server = api, server

    def create(self, path: str, *, http: dict[str, Any] | None = None, **fields: Any) -> str:
        target = {
            "pool": "calls",
            "http": {
                "url": f"{self._server.url}{path}",
                "tls": {"ca": {"parameter": "ca"}},
                **(http or {}),
            },
        }
        job = {"type": "DELAY", "schedule": "PT2S", "target": target, "timeoutSec": 20, **fields}
        answer = self._api.post("/v1/jobs", json=job)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["jobId"])

    def ended(self, job_id: str, within: float = 60) -> dict[str, Any]:
        """The execution of the job, once it has ended."""
        until, items = time.monotonic() + within, []
        while time.monotonic() < until:
            items = self._api.get(f"/v1/jobs/{job_id}/executions").json()["items"]
            if items and items[0]["state"] not in {"PENDING", "RUNNING"}:
                found = self._api.get(f"/v1/executions/{items[0]['executionId']}")
                return dict(found.json())
            time.sleep(0.2)
        raise AssertionError(f"the execution did not end: {items}")

    def replayed(self, execution_id: str, within: float = 60) -> dict[str, Any]:
        """The execution that replays *execution_id*, once it has ended."""
        made = self._api.post(f"/v1/executions/{execution_id}/replay").raise_for_status().json()
        until = time.monotonic() + within
        while time.monotonic() < until:
            found = self._api.get(f"/v1/executions/{made['executionId']}").json()
            if found["state"] not in {"PENDING", "RUNNING"}:
                return dict(found)
            time.sleep(0.2)
        raise AssertionError("the replay did not end")

    def executions(self, job_id: str) -> list[dict[str, Any]]:
        """The job's executions, oldest first."""
        items: list[dict[str, Any]] = self._api.get(f"/v1/jobs/{job_id}/executions").json()["items"]
        return items[::-1]

    def cancel(self, execution_id: str) -> None:
        self._api.post(f"/v1/executions/{execution_id}/cancel").raise_for_status()

    def delete(self, job_id: str) -> None:
        self._api.delete(f"/v1/jobs/{job_id}").raise_for_status()

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self._api.get(f"/v1/jobs/{job_id}").json())


@pytest.fixture
def callbacks(stack: Stack, server: CallbackServer, key: str) -> Iterator[Callbacks]:
    with stack.api_with(key) as api:
        yield Callbacks(api, server)


def in_turn(*statuses: int, **headers: str) -> Callable[[Any], Reply]:
    """Respond with each of *statuses* in turn, and then with the last one."""
    return lambda one: Reply(statuses[min(one.number, len(statuses)) - 1], headers=headers)


SOON = {"maxAttempts": 3, "initialDelayMs": 1000}


def test_a_callback_arrives_with_its_headers_body_and_signature(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    http = {
        "body": {"customer": "{{payload.customer}}", "due": "{{run.scheduledAt}}"},
        "headers": {"X-Source": "tests"},
        "sign": [{"parameter": "signing"}],
        "auth": {"type": "bearer", "token": {"parameter": "token"}},
    }
    job = callbacks.create(path, http=http, payload={"customer": {"id": 7}})

    run = callbacks.ended(job)

    [one] = server.received(path)
    headers = {name.lower(): value for name, value in one.headers.items()}
    assert run["state"] == "SUCCEEDED", run
    assert json_of(one) == {"customer": {"id": 7}, "due": run["scheduledAt"]}
    assert one.at - datetime.fromisoformat(run["scheduledAt"]) < timedelta(seconds=30)
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["x-source"] == "tests"
    assert headers["idempotency-key"] == run["executionId"] == headers["webhook-id"]
    assert headers["nextfire-attempt"] == "1"
    assert headers["nextfire-scheduled-at"] == run["scheduledAt"]
    assert headers["traceparent"].startswith("00-")
    Webhook(SECRET).verify(one.body, one.headers)
    [attempt] = run["attempts"]
    assert attempt["call"]["status"] == 200
    assert attempt["call"]["address"].startswith("127.0.0.1")
    assert run["result"]["body"] == {"received": True}
    assert TOKEN not in json.dumps(run)


def test_a_replay_sends_the_same_bytes(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    run = callbacks.ended(callbacks.create(path, http={"sign": [{"parameter": "signing"}]}))

    again = callbacks.replayed(run["executionId"])

    assert (again["state"], again["replayOf"]) == ("SUCCEEDED", run["executionId"])
    first, second = server.received(path)
    changing = {"traceparent", "webhook-timestamp", "webhook-signature"}
    assert second.body == first.body
    assert {name: first.headers[name] for name in first.headers if name not in changing} == {
        name: second.headers[name] for name in second.headers if name not in changing
    }
    Webhook(SECRET).verify(second.body, second.headers)


def test_a_callback_is_retried_until_it_succeeds(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    server.responses[path] = in_turn(500, 500, 200)

    run = callbacks.ended(callbacks.create(path, retryPolicy=SOON))

    assert (run["state"], run["attempt"]) == ("SUCCEEDED", 3)
    calls = [one.headers for one in server.received(path)]
    assert [each["Nextfire-Attempt"] for each in calls] == ["1", "2", "3"]
    assert len({each["Idempotency-Key"] for each in calls}) == 1


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_honoured_and_the_attempt_does_not_count(
    callbacks: Callbacks, server: CallbackServer, path: str, *, as_date: bool
) -> None:
    def respond(one: Any) -> Reply:
        if one.number > 1:
            return Reply()
        later = datetime.now(UTC) + timedelta(seconds=5)
        after = format_datetime(later, usegmt=True) if as_date else "5"
        return Reply(429, headers={"Retry-After": after})

    server.responses[path] = respond
    run = callbacks.ended(callbacks.create(path, retryPolicy=SOON | {"maxAttempts": 1}))

    first, second = server.received(path)
    assert (run["state"], run["attempt"]) == ("SUCCEEDED", 1)
    assert [each["outcome"] for each in run["attempts"]] == ["DEFERRED", "SUCCEEDED"]
    assert second.at - first.at >= timedelta(seconds=4)


def test_a_server_that_hangs_times_out(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    server.responses[path] = lambda _: Reply(wait=8)

    job = callbacks.create(path, timeoutSec=2, retryPolicy={"maxAttempts": 1})
    run = callbacks.ended(job)

    assert (run["state"], run["attempts"][0]["outcome"]) == ("DEAD", "TIMED_OUT")


def test_a_huge_response_is_cut(callbacks: Callbacks, server: CallbackServer, path: str) -> None:
    server.responses[path] = lambda _: Reply(stream=200 * 1024 * 1024)

    run = callbacks.ended(callbacks.create(path))

    assert run["state"] == "SUCCEEDED"
    assert run["resultBytes"] < 200_000


def test_a_status_can_be_declared_a_success(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    server.responses[path] = in_turn(409)

    run = callbacks.ended(callbacks.create(path, http={"success": ["2xx", "409"]}))

    assert (run["state"], run["attempts"][0]["call"]["status"]) == ("SUCCEEDED", 409)


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        ("QUEUE", {"SUCCEEDED"}),
        ("SKIP", {"SUCCEEDED", "SKIPPED"}),
        ("REPLACE", {"CANCELLED"}),
    ],
)
def test_calls_that_overlap_follow_the_policy(
    callbacks: Callbacks, server: CallbackServer, path: str, overlap: str, states: set[str]
) -> None:
    took = timedelta(seconds=10 if overlap == "REPLACE" else 3)
    server.responses[path] = lambda _: Reply(wait=took.total_seconds())
    job = callbacks.create(path, type="INTERVAL", schedule="PT2S", overlap=overlap)

    def ended() -> list[dict[str, Any]]:
        runs = [each for each in callbacks.executions(job) if "finishedAt" in each]
        return runs if len(runs) >= 3 and {each["state"] for each in runs} >= states else []

    runs = until(ended, "three executions that ended")
    callbacks.delete(job)

    found = {each["state"] for each in runs}
    assert found - {"SKIPPED"} == states - {"SKIPPED"}  # a busy machine is late, and skips some
    calls = [one.at for one in server.received(path)]
    if overlap != "REPLACE":
        assert all(later - one >= took for one, later in itertools.pairwise(calls))


def test_a_call_is_cancelled_and_not_retried(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    server.responses[path] = lambda _: Reply(wait=15)
    job = callbacks.create(path)
    [one] = until(lambda: server.received(path), "the call")

    callbacks.cancel(one.headers["Idempotency-Key"])
    run = callbacks.ended(job, within=12)

    assert (run["state"], run["attempt"]) == ("CANCELLED", 1)
    assert len(server.received(path)) == 1


def test_gone_pauses_the_job(callbacks: Callbacks, server: CallbackServer, path: str) -> None:
    server.responses[path] = in_turn(410)
    job = callbacks.create(path, type="INTERVAL", schedule="PT1H", retryPolicy={"maxAttempts": 1})
    started = callbacks._api.post(f"/v1/jobs/{job}/run")  # noqa: SLF001
    assert started.status_code in {200, 201, 202}, started.text

    run = callbacks.ended(job)

    assert run["state"] == "DEAD"
    there = callbacks.job(job)
    assert there["state"] == "PAUSED"
    assert "410" in there["pauseReason"]


@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_is_not_followed(
    callbacks: Callbacks, server: CallbackServer, path: str, status: int
) -> None:
    location = f"{server.url}{path}/elsewhere"
    server.responses[path] = in_turn(status, Location=location)

    run = callbacks.ended(callbacks.create(path, retryPolicy={"maxAttempts": 1}))

    assert run["state"] == "DEAD"
    assert server.received(f"{path}/elsewhere") == []


def test_a_forbidden_destination_gets_no_connection(stack: Stack) -> None:
    with stack.api() as api:
        target = {"pool": "calls", "http": {"url": "https://169.254.169.254/latest/meta-data"}}
        answer = api.post("/v1/jobs", json={"type": "DELAY", "schedule": "PT1S", "target": target})

    assert answer.status_code == 422
    assert "target.http.url" in answer.text


def test_a_callback_needs_a_pool_of_calls(stack: Stack) -> None:
    with stack.api() as api:
        target = {"http": {"url": "https://example.com"}}
        answer = api.post("/v1/jobs", json={"type": "DELAY", "schedule": "PT1S", "target": target})

    assert answer.status_code == 422
    assert "target.pool" in answer.text


def echo(one: Received) -> Reply:
    """A rejection that quotes what the request had."""
    sent = one.headers["Authorization"]
    body = json.dumps({"got": sent, "body": one.body.decode()}).encode()
    return Reply(400, body, {"Location": f"/{sent}"})


def test_secrets_that_servers_echo_are_stored_nowhere(
    callbacks: Callbacks, server: CallbackServer, stack: Stack, path: str, tmp_path: Path
) -> None:
    """Searched for in logs, tables, objects and dead letters, after all tests above. Echoed: a
    bearer token; the secret of an OAuth client, by the token server; the token that it issued, by
    the receiver. Not sent: the keys of the signature and of the client certificate.
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


def test_calls_at_the_same_time_are_limited(stack: Stack, key: str, tmp_path: Path) -> None:
    took = 0.5
    with callback_server(tmp_path) as server, stack.api_with(key) as api:
        put_secret(stack, "ca-limit", server.ca)
        server.responses["/limited"] = lambda _: Reply(wait=took)
        destination = server.url.removeprefix("https://")
        limit = f"/v1/endpoints/calls/{destination}/limit"
        api.post(limit, json={"parallel": 2}).raise_for_status()
        callbacks = Callbacks(api, server)
        tls = {"tls": {"ca": {"parameter": "ca-limit"}}}
        jobs = [callbacks.create("/limited", http=tls) for _ in range(12)]

        runs = [callbacks.ended(job, within=120) for job in jobs]
        calls = sorted(one.at for one in server.received("/limited"))

    assert [(run["state"], run["attempt"]) for run in runs] == [("SUCCEEDED", 1)] * 12
    assert len(calls) == 12
    # The third call from here on starts after this one has ended.
    assert all(
        later - one >= timedelta(seconds=took) for one, later in zip(calls, calls[2:], strict=False)
    )


def output_of_test(
    stack: Stack, key: str, folder: Path, *args: str
) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run `nextfire endpoints test --json`."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from nextfire_cli.main import app; app()", "--json"),
            *("endpoints", "test", *args),
        ],
        env={
            **inherited_environment(),
            "HOME": str(folder),
            "NEXTFIRE_ENDPOINT": stack.info.endpoint,
            "NEXTFIRE_API_KEY": key,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, json.loads(done.stdout) if done.stdout else None


def job_file(folder: Path, server: CallbackServer, path: str, **http: Any) -> str:
    call = {"url": f"{server.url}{path}", "tls": {"ca": {"parameter": "ca"}}, **http}
    file = folder / "job.json"
    file.write_text(json.dumps({"target": {"pool": "calls", "http": call}, "payload": {"id": 7}}))
    return str(file)


def test_a_user_sees_what_the_receiver_gets(
    stack: Stack, server: CallbackServer, key: str, path: str, tmp_path: Path
) -> None:
    auth = {"type": "bearer", "token": {"parameter": "token"}}
    file = job_file(tmp_path, server, path, auth=auth, sign=[{"parameter": "signing"}])

    done, run = output_of_test(stack, key, tmp_path, "-f", file)

    assert done.returncode == 0, done.stderr
    [one] = server.received(path)
    [attempt] = run["attempts"]
    shown = attempt["call"]["request"]
    added = {"Host", "Accept-Encoding", "Connection", "Content-Length"}
    got = {name: value for name, value in one.headers.items() if name not in added}
    assert shown["headers"] == {**got, "Authorization": "Bearer ***"}
    assert shown["body"].encode() == one.body
    assert TOKEN not in done.stdout
    with stack.api_with(key) as api:
        assert api.get(f"/v1/jobs/{run['jobId']}").json()["state"] == "CANCELLED"


def test_a_test_of_an_endpoint_that_is_down_ends(
    stack: Stack, server: CallbackServer, key: str, path: str, tmp_path: Path
) -> None:
    server.responses[path] = in_turn(503)

    done, run = output_of_test(stack, key, tmp_path, "-f", job_file(tmp_path, server, path))

    assert done.returncode == 1, done.stderr
    assert run["attempts"][0]["outcome"] == "DEFERRED"
    with stack.api_with(key) as api:
        ended = api.get(f"/v1/executions/{run['executionId']}").json()
    assert ended["state"] == "CANCELLED"
    assert len(server.received(path)) == 1
