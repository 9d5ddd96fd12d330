"""A destination that is down while many runs are due: probes, deferrals, and a spread recovery.

Takes about five minutes, so it runs in `make test-long`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from tests.crons import LONG
from tests.e2e.callback_server import CallbackServer, Received, Reply, callback_server
from tests.e2e.conftest import CALLER, Stack

RUNS = int(os.environ.get("NEXTFIRE_RUNS", "5000"))
DOWN_FOR = timedelta(seconds=100)
LATE = timedelta(seconds=60)
"""The relevancy window of some of the runs."""
INTERVAL = timedelta(seconds=30)
"""The first interval between two probes."""
_BATCH = 100
_ENDED_WITHIN = 900  # seconds

pytestmark = [
    pytest.mark.skipif(not LONG, reason="long: make test-long"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def server(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CallbackServer]:
    with callback_server(tmp_path_factory.mktemp("authority")) as server:
        name = f"/nextfire/pools/calls/{CALLER}/ca-down"
        stack.client("ssm").put_parameter(Name=name, Value=server.ca, Type="String", Overwrite=True)
        yield server


def create(api: httpx2.Client, url: str, at: datetime, number: int, **fields: Any) -> list[str]:
    http = {"url": url, "tls": {"ca": {"parameter": "ca-down"}}}
    job = {
        "type": "ONCE",
        "schedule": at.isoformat(),
        "target": {"pool": "calls", "http": http},
        "retryPolicy": {"maxAttempts": 1},
        **fields,
    }
    made: list[str] = []
    for first in range(0, number, _BATCH):
        jobs = [job] * min(_BATCH, number - first)
        answer = api.post("/v1/jobs:batch", json={"jobs": jobs}).raise_for_status().json()
        failed = [each for each in answer["results"] if "job" not in each]
        assert failed == []
        made += [each["job"]["jobId"] for each in answer["results"]]
    return made


def ended(api: httpx2.Client, jobs: list[str]) -> list[dict[str, Any]]:
    """The executions of *jobs*, once all have ended."""
    found: dict[str, dict[str, Any]] = {}
    until = time.monotonic() + _ENDED_WITHIN
    while len(found) < len(jobs) and time.monotonic() < until:
        for job in jobs:
            if job in found:
                continue
            items = api.get(f"/v1/jobs/{job}/executions").json()["items"]
            if not items or items[0]["state"] in {"PENDING", "RUNNING"}:
                time.sleep(0.05)
                continue
            found[job] = api.get(f"/v1/executions/{items[0]['executionId']}").json()
    assert len(found) == len(jobs), f"{len(jobs) - len(found)} executions did not end"
    return list(found.values())


def test_a_destination_that_is_down_uses_up_no_attempts(
    stack: Stack, server: CallbackServer
) -> None:
    due_at = datetime.now(UTC) + timedelta(seconds=max(20, RUNS / 40))
    back_at = due_at + DOWN_FOR
    server.responses["/down"] = lambda one: Reply(503 if one.at < back_at else 200)
    with stack.api_with(stack.key_of(CALLER)) as api:
        jobs = create(api, f"{server.url}/down", due_at, RUNS)
        window = {"misfire": {"relevancyWindowSec": int(LATE.total_seconds())}}
        late = create(api, f"{server.url}/down", due_at, 5, **window)
        time.sleep(max((back_at - datetime.now(UTC)).total_seconds(), 0))

        runs, skipped = ended(api, jobs), ended(api, late)

    calls = server.received("/down")
    while_down = [one for one in calls if one.at < back_at]
    print(  # noqa: T201 - a figure of the long tests
        f"{RUNS} runs, {len(while_down)} calls while down, {spread(calls, back_at)} of recovery"
    )
    assert {(each["state"], each["attempt"]) for each in runs} == {("SUCCEEDED", 1)}
    assert {each["state"] for each in skipped} <= {"SKIPPED"}
    assert all("relevancyWindowSec" in each["reason"] for each in skipped)
    # The calls that opened the breaker, of all slots at once; then probes.
    waits = [b - a for a, b in pairwise(sorted(one.at for one in while_down))]
    first = next(n for n, wait in enumerate(waits) if wait >= INTERVAL / 2)
    assert all(wait >= INTERVAL / 2 for wait in waits[first:])
    assert spread(calls, back_at) >= timedelta(seconds=60)


def spread(calls: list[Received], since: datetime) -> timedelta:
    """The time over which the calls after *since* arrived."""
    after = [one.at for one in calls if one.at >= since]
    return max(after) - min(after) if after else timedelta()
