"""The audit log of the deployed API."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from nextfire.domain.key_text import parse
from tests.e2e.conftest import Stack

MANUAL = {"type": "MANUAL", "target": {"handler": "hello"}, "payload": {"pin": "open-sesame"}}
_PATIENCE = 20.0


def logged(stack: Stack, resource: str, since: datetime) -> list[dict[str, Any]]:
    """The audit events of the job *resource* in the log of the API's function."""
    lines = stack.log_lines(stack.info.functions["api"], since)
    found = [json.loads(line) for line in lines if line.startswith('{"event":"audit"')]
    return [each for each in found if each.get("resource", {}).get("jobId") == resource]


def test_who_did_what_is_in_the_log(stack: Stack) -> None:
    began = datetime.now(UTC)
    with stack.api() as api:
        made = api.post("/v1/jobs", json=MANUAL)
        job_id = made.json()["jobId"]
        changed = api.patch(f"/v1/jobs/{job_id}", json={"name": "n"})
        deleted = api.delete(f"/v1/jobs/{job_id}")

    deadline = time.monotonic() + _PATIENCE
    while len(found := logged(stack, job_id, began)) < 3 and time.monotonic() < deadline:
        time.sleep(0.5)

    found.sort(key=lambda each: str(each["at"]))
    assert [each["operation"] for each in found] == ["createJob", "changeJob", "deleteJob"]
    presented = parse(stack.info.api_key)
    assert presented is not None
    key_id = presented.key_id
    for event, answer in zip(found, (made, changed, deleted), strict=True):
        assert event["status"] == answer.status_code
        assert (event["tenant"], event["principal"]) == (stack.info.account_id, key_id)
        assert event["requestId"]
        assert event["sourceIp"]
        assert "python-httpx2" in event["userAgent"]
    assert found[1]["changed"] == ["name", "revision", "updatedAt"]
    assert "open-sesame" not in json.dumps(found)
