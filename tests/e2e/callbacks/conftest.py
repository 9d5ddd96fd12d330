"""A local HTTPS server that receives callbacks, and jobs that call it."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.e2e.callback_server import CallbackServer, Reply, callback_server
from tests.e2e.conftest import CALLER, Stack

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
TOKEN = "planted-token-8d1f"


@pytest.fixture(scope="session")
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
