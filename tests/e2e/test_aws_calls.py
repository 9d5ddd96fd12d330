"""AWS calls of the deployed stack, with the pool's job role, under enforced IAM policies."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from nextfire_cli.local.emulator import ACCOUNT
from tests.e2e.conftest import CALL_ROLE, CALLER, Stack

MACHINE = {"StartAt": "Done", "States": {"Done": {"Type": "Pass", "End": True}}}
FUNCTION = """
def handler(event, context):
    if event.get("fails"):
        raise ValueError("the ledger is closed")
    return {"echo": event}
"""


class Resources:
    """What the calls use: `queue` and `fifo`, `machine` and `function`, with a role that may use
    them, and `denied`, a queue that it may not use.
    """

    def __init__(self, stack: Stack) -> None:
        sqs, iam = stack.client("sqs"), stack.client("iam")
        self.sqs = sqs
        self.states = stack.client("stepfunctions")
        self.queue = sqs.create_queue(QueueName="calls-orders")["QueueUrl"]
        self.denied = sqs.create_queue(QueueName="calls-denied")["QueueUrl"]
        self.fifo = sqs.create_queue(
            QueueName="calls-orders.fifo", Attributes={"FifoQueue": "true"}
        )["QueueUrl"]
        statements = [
            ("sqs:SendMessage", [f"arn:aws:sqs:*:{ACCOUNT}:calls-orders*"]),
            ("states:StartExecution", ["*"]),
            ("lambda:InvokeFunction", ["*"]),
        ]
        allowed = [{"Effect": "Allow", "Action": a, "Resource": r} for a, r in statements]
        trusted = {
            "Effect": "Allow",
            "Principal": {"AWS": stack.info.roles["worker-calls"]},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }
        iam.create_role(RoleName=CALL_ROLE, AssumeRolePolicyDocument=_policy([trusted]))
        iam.put_role_policy(RoleName=CALL_ROLE, PolicyName="calls", PolicyDocument=_policy(allowed))
        service = {"Service": ["states.amazonaws.com", "lambda.amazonaws.com"]}
        assume = {"Effect": "Allow", "Principal": service, "Action": "sts:AssumeRole"}
        role = iam.create_role(
            RoleName="calls-service", AssumeRolePolicyDocument=_policy([assume])
        )["Role"]["Arn"]
        self.machine = self.states.create_state_machine(
            name="calls", definition=json.dumps(MACHINE), roleArn=role
        )["stateMachineArn"]
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("main.py", FUNCTION)
        self.function = stack.client("lambda").create_function(
            FunctionName="calls-echo",
            Runtime="python3.13",
            Handler="main.handler",
            Role=role,
            Code={"ZipFile": code.getvalue()},
        )["FunctionName"]


def _policy(statements: list[dict[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


@pytest.fixture(scope="module")
def resources(stack: Stack) -> Iterator[Resources]:
    yield Resources(stack)
    stack.client("iam").delete_role_policy(RoleName=CALL_ROLE, PolicyName="calls")
    stack.client("iam").delete_role(RoleName=CALL_ROLE)


def run(
    stack: Stack, service: str, action: str, values: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    """Create a job that makes the call in a second, and return its ended execution."""
    aws = {"service": service, "action": action, "input": values}
    job = {
        "type": "DELAY",
        "schedule": "PT1S",
        "target": {"pool": "calls", "aws": aws},
        "payload": {"order": 7},
        "retryPolicy": {"maxAttempts": 1},
        **fields,
    }
    with stack.api_with(stack.key_of(CALLER)) as api:
        made = api.post("/v1/jobs", json=job)
        assert made.status_code == 201, made.text
        until, items = time.monotonic() + 60, []
        while time.monotonic() < until:
            items = api.get(f"/v1/jobs/{made.json()['jobId']}/executions").json()["items"]
            if items and items[0]["state"] not in {"PENDING", "RUNNING"}:
                return dict(api.get(f"/v1/executions/{items[0]['executionId']}").json())
            time.sleep(0.2)
    raise AssertionError(f"the execution did not end: {items}")


def test_a_message_is_sent(stack: Stack, resources: Resources) -> None:
    values = {"QueueUrl": resources.queue, "MessageBody": "{{payload}}"}

    ended = run(stack, "sqs", "SendMessage", values)

    assert ended["state"] == "SUCCEEDED", ended
    [message] = resources.sqs.receive_message(QueueUrl=resources.queue)["Messages"]
    assert json.loads(message["Body"]) == {"order": 7}
    assert ended["result"]["MessageId"] == message["MessageId"]
    assert ended["attempts"][0]["call"]["action"] == "SendMessage"


def test_a_message_to_a_fifo_queue_has_a_deduplication_id(
    stack: Stack, resources: Resources
) -> None:
    values = {"QueueUrl": resources.fifo, "MessageBody": "hello", "MessageGroupId": "orders"}

    ended = run(stack, "sqs", "SendMessage", values)

    assert ended["state"] == "SUCCEEDED", ended
    [message] = resources.sqs.receive_message(
        QueueUrl=resources.fifo, AttributeNames=["MessageDeduplicationId"]
    )["Messages"]
    deduplication_id = message["Attributes"]["MessageDeduplicationId"]
    assert deduplication_id == str(UUID(deduplication_id))


def test_a_state_machine_is_started(stack: Stack, resources: Resources) -> None:
    values = {"stateMachineArn": resources.machine, "input": "{{payload}}"}

    ended = run(stack, "stepfunctions", "StartExecution", values)

    assert ended["state"] == "SUCCEEDED", ended
    started = resources.states.describe_execution(executionArn=ended["result"]["executionArn"])
    assert json.loads(started["input"]) == {"order": 7}


@pytest.mark.parametrize("fails", [False, True])
def test_a_function_is_invoked(stack: Stack, resources: Resources, *, fails: bool) -> None:
    values = {"FunctionName": resources.function, "Payload": {"id": "{{payload.order}}"}}
    values["Payload"]["fails"] = fails

    ended = run(stack, "lambda", "Invoke", values)

    if fails:
        assert ended["state"] == "DEAD", ended
        assert "the ledger is closed" in ended["reason"]
    else:
        assert ended["state"] == "SUCCEEDED", ended
        assert ended["result"]["Payload"] == {"echo": {"id": 7, "fails": False}}


def test_a_call_without_permission_fails_with_the_reason_on_record(
    stack: Stack, resources: Resources
) -> None:
    ended = run(stack, "sqs", "SendMessage", {"QueueUrl": resources.denied, "MessageBody": "hello"})

    assert ended["state"] == "DEAD", ended
    assert "AccessDenied" in ended["reason"]
    assert ended["attempts"][0]["call"]["error"].startswith("AccessDenied")
    assert "Messages" not in resources.sqs.receive_message(QueueUrl=resources.denied)
