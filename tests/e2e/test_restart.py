"""A restart of the stack keeps its jobs. Runs last: it restarts the shared stack."""

import time
from datetime import UTC, datetime, timedelta

from tests.e2e.conftest import Stack


def test_a_job_outlives_a_restart_and_runs(stack: Stack) -> None:
    stack.put_script("default", "hello", "print('still here')")
    due = {"type": "DELAY", "schedule": "PT12S", "target": {"handler": "hello"}}
    with stack.api() as api:
        job = api.post("/v1/jobs", json=due).raise_for_status().json()

    stack.restart()

    deadline = datetime.now(UTC) + timedelta(seconds=60)
    runs: list[dict[str, str]] = []
    with stack.api() as api:
        while datetime.now(UTC) < deadline and not runs:
            path = f"/v1/jobs/{job['jobId']}/executions"
            items = api.get(path).raise_for_status().json()["items"]
            runs = [run for run in items if run["state"] == "SUCCEEDED"]
            time.sleep(0.2)
    assert [run["stdout"] for run in runs] == ["still here\n"]
