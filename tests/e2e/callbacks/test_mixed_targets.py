"""A sequence whose jobs have different targets: script, HTTP callback, AWS call, script. Each is
passed the result of the one before. IAM is enforced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.call_queue import call_queue
from tests.e2e.callback_server import CallbackServer, Reply, json_of
from tests.e2e.conftest import CALLER, Stack
from tests.e2e.user import until

FIRST = """
import nextfire_job as job

job.result({"rows": 3})
"""
LAST = """
import nextfire_job as job

job.result({"seen": job.upstream()})
"""


@pytest.fixture
def queue(stack: Stack) -> Iterator[str]:
    with call_queue(stack, "mixed-orders") as url:
        yield url


def test_script_callback_aws_call_and_script_pass_their_results_on(
    stack: Stack, server: CallbackServer, path: str, queue: str
) -> None:
    for handler, source in (("mixed-first", FIRST), ("mixed-last", LAST)):
        stack.put_script("default", handler, source, tenant=CALLER)
    body = json.dumps({"total": 7}).encode()
    server.responses[path] = lambda _: Reply(
        body=body, headers={"Content-Type": "application/json"}
    )
    call = {
        "url": f"{server.url}{path}",
        "tls": {"ca": {"parameter": "ca"}},
        "body": {"rows": "{{upstream.mixed-a.result.rows}}"},
    }
    send = {
        "service": "sqs",
        "action": "SendMessage",
        "input": {"QueueUrl": queue, "MessageBody": "total {{upstream.mixed-b.result.body.total}}"},
    }
    jobs: list[dict[str, Any]] = [
        {"jobId": "mixed-a", "type": "MANUAL", "target": {"handler": "mixed-first"}},
        _after("mixed-b", "mixed-a", {"pool": "calls", "http": call}),
        _after("mixed-c", "mixed-b", {"pool": "calls", "aws": send}),
        _after("mixed-d", "mixed-c", {"handler": "mixed-last"}),
    ]

    with stack.api_with(stack.key_of(CALLER)) as api:
        for job in jobs:
            made = api.post("/v1/jobs", json=job)
            assert made.status_code == 201, made.text
        asked = api.post("/v1/jobs/mixed-a/run", json={})
        assert asked.status_code == 201, asked.text

        def last() -> dict[str, Any] | None:
            tree = api.get(f"/v1/executions/{asked.json()['executionId']}/chain").json()["items"]
            states = [each["state"] for each in tree]
            for each in tree:
                if each["state"] in {"DEAD", "SKIPPED"}:
                    pytest.fail(api.get(f"/v1/executions/{each['executionId']}").text)
            return tree[-1] if states == ["SUCCEEDED"] * 4 else None

        ended: dict[str, Any] = until(last, "the last of the four")
        seen = api.get(f"/v1/executions/{ended['executionId']}").json()["result"]["seen"]

    [received] = server.received(path)
    assert json_of(received) == {"rows": 3}
    [message] = stack.client("sqs").receive_message(QueueUrl=queue)["Messages"]
    assert message["Body"] == "total 7"
    assert seen["mixed-c"]["state"] == "SUCCEEDED"
    assert seen["mixed-c"]["result"]["MessageId"] == message["MessageId"]


def _after(name: str, parent: str, target: dict[str, Any]) -> dict[str, Any]:
    return {"jobId": name, "type": "AFTER", "after": [{"job": parent}], "target": target}
