"""The overview of the deployed stack: the stream of the runs feeds the projector."""

from __future__ import annotations

import json
import time

from tests.e2e.conftest import Stack

_PATIENCE = 60.0


def test_runs_of_all_jobs_are_listed_and_rebuilt(stack: Stack) -> None:
    name = stack.outputs()["ProjectorFunction"]
    with stack.api() as api:
        job = api.post("/v1/jobs", json={"type": "MANUAL", "target": {"handler": "missing"}})
        job_id = job.raise_for_status().json()["jobId"]
        ids = []
        for _ in range(2):
            run = api.post(f"/v1/jobs/{job_id}/run", json={}).raise_for_status().json()
            api.post(f"/v1/executions/{run['executionId']}/cancel", json={}).raise_for_status()
            ids.append(run["executionId"])

        def listed() -> list[str]:
            """Those of the overview, once it has all runs of the stack."""
            page = api.get("/v1/executions", params={"limit": 100}).raise_for_status().json()
            found = [each["executionId"] for each in page["items"] if each["jobId"] == job_id]
            return found if "overview" in page and "beginsAt" not in page["overview"] else []

        deadline = time.monotonic() + _PATIENCE
        while len(found := listed()) < len(ids) and time.monotonic() < deadline:
            time.sleep(1)
        assert {*found} == {*ids}
        counts = api.get("/v1/overview").raise_for_status().json()
        assert sum(minute["cancelled"] for minute in counts["minutes"]) >= len(ids)

        answer = stack.client("lambda").invoke(
            FunctionName=name, Payload=json.dumps({"rebuild": {}}).encode()
        )
        rebuilt = json.loads(answer["Payload"].read())
        assert rebuilt["undecodable"] == 0
        assert rebuilt["runs"] >= len(ids)
        assert listed() == found
