"""The audit log of the deployed API."""

from __future__ import annotations

import json
import time
from typing import Any

from nextfire.domain.key_text import parse
from tests.e2e.conftest import Stack

MANUAL = {"type": "MANUAL", "target": {"handler": "hello"}, "payload": {"pin": "open-sesame"}}
_PATIENCE = 20.0


def logged(stack: Stack, resource: str) -> list[dict[str, Any]]:
    """The audit events of the job *resource* in the log group of the API's function."""
    configuration = stack.client("lambda").get_function_configuration(
        FunctionName=stack.info.functions["api"]
    )
    group = configuration["LoggingConfig"]["LogGroup"]
    pages = stack.client("logs").get_paginator("filter_log_events").paginate(logGroupName=group)
    lines = [each["message"] for page in pages for each in page["events"]]
    found = [json.loads(line) for line in lines if line.startswith('{"event":"audit"')]
    return [each for each in found if each.get("resource", {}).get("jobId") == resource]


def test_who_did_what_is_in_the_log(stack: Stack) -> None:
    with stack.api() as api:
        made = api.post("/v1/jobs", json=MANUAL)
        job_id = made.json()["jobId"]
        changed = api.patch(f"/v1/jobs/{job_id}", json={"name": "n"})
        deleted = api.delete(f"/v1/jobs/{job_id}")

    deadline = time.monotonic() + _PATIENCE
    while len(found := logged(stack, job_id)) < 3 and time.monotonic() < deadline:
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
