"""Quotas on the deployed stack: rejections, delayed runs, and what a tenant sees of its quotas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nextfire import Client, Invalid, RateLimited
from nextfire.domain.instants import floor_minute
from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.conftest import FEW, QUOTAS, SMALL, HeldBack, Stack
from tests.e2e.user import until

WITHIN = 240.0
"""Seconds: two minutes, plus the life of a watcher, which writes its log at the end."""
YEARLY: dict[str, Any] = {"type": "CRON", "schedule": "0 3 1 1 *", "target": {"handler": "h"}}


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return stack.key_of(SMALL)


@pytest.fixture
def small(stack: Stack, key: str) -> Iterator[Client]:
    """A client of the tenant `SMALL`."""
    with Client(stack.info.endpoint, key) as client:
        yield client


def nextfire(stack: Stack, key: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the CLI with *key*."""
    api_environment = {"NEXTFIRE_ENDPOINT": stack.info.endpoint, "NEXTFIRE_API_KEY": key}
    return subprocess.run(
        [sys.executable, "-c", "from nextfire_cli.main import app; app()", *args],
        env={**inherited_environment(), **api_environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=stack.state,
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_job_too_many_is_refused_until_one_is_deleted(
    stack: Stack, small: Client, key: str, tmp_path: Path
) -> None:
    small.put_job("one", YEARLY)
    try:
        with stack.api_with(key) as api:
            refused = api.post("/v1/jobs", json=YEARLY)
        assert (refused.status_code, refused.json()["quota"]) == (429, "jobs")
        assert int(refused.headers["retry-after"]) > 0
        with pytest.raises(RateLimited) as refusal:
            small.create_job(YEARLY)
        assert (refusal.value.quota, refusal.value.retry_after) == ("jobs", 60)
        file = tmp_path / "job.json"
        file.write_text(json.dumps(YEARLY))
        ran = nextfire(stack, key, "jobs", "create", "-f", str(file))
        assert ran.returncode == 6
        assert "quota" in ran.stderr
        assert json.loads(nextfire(stack, key, "quotas", "--json").stdout)["used"] == {"jobs": 1}
    finally:
        small.delete_job("one")
    assert small.get_quotas().used.jobs == 0
    assert small.put_job("one", YEARLY).state == "ACTIVE"
    small.delete_job("one")


@pytest.mark.parametrize(
    ("fields", "quota"),
    [
        ({"payload": "x" * 19}, "payloadBytes"),
        ({"schedule": "*/30 * * * *"}, "shortestIntervalSec"),
    ],
)
def test_a_permanent_quota_violation_is_rejected(
    small: Client, fields: dict[str, Any], quota: str
) -> None:
    with pytest.raises(Invalid) as refused:
        small.create_job(YEARLY | fields)

    assert (refused.value.status, refused.value.quota) == (422, quota)
    assert [*small.jobs(state="ACTIVE")] == []


def test_more_runs_than_a_minute_may_have_wait_and_none_is_lost(
    stack: Stack, held_back: HeldBack
) -> None:
    most = QUOTAS[FEW]["runsPerMinute"]
    with Client(stack.info.endpoint, held_back.key) as client:

        def ended() -> list[Any] | None:
            runs = [run for job in held_back.jobs for run in client.executions(job)]
            over = [run for run in runs if run.state == "SUCCEEDED"]
            return runs if len(over) == len(held_back.jobs) else None

        runs = until(ended, "the end of all runs", within=WITHIN)

        assert client.get_quotas().quotas.runs_per_minute == most
    assert sorted(run.job_id for run in runs) == sorted(held_back.jobs), "each ran once"
    assert {(run.scheduled_at, run.stdout, run.attempt) for run in runs} == {
        (held_back.at, "it ran\n", 1)
    }
    sent = Counter(floor_minute(run.dispatched_at) for run in runs)
    assert max(sent.values()) <= most, sent
    assert min(sent) == floor_minute(held_back.at)

    def lines(part: str) -> list[str]:
        found = stack.log_lines(stack.info.functions["watcher"], held_back.at)
        return [line for line in found if part in line]

    until(
        lambda: lines("wait for their tenants' quotas"),
        "a watcher's log line about waiting runs",
        within=WITHIN,
    )
    counted = [json.loads(line) for line in lines('"HeldBack"')]
    assert sum(each["HeldBack"][0] for each in counted if "HeldBack" in each) >= 2
