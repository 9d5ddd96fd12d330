"""A queue to which AWS calls may send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nextfire_cli.local.emulator import ACCOUNT
from tests.e2e.conftest import CALL_ROLE, Stack


@contextmanager
def call_queue(stack: Stack, name: str, **attributes: str) -> Iterator[str]:
    """The URL of a new queue. Meanwhile the pool `calls` has a job role that may send to it."""
    iam, policy = stack.client("iam"), "sends"
    made = stack.client("sqs").create_queue(QueueName=name, Attributes=attributes)
    allowed = {
        "Effect": "Allow",
        "Action": "sqs:SendMessage",
        "Resource": f"arn:aws:sqs:*:{ACCOUNT}:{name}",
    }
    trusted = {
        "Effect": "Allow",
        "Principal": {"AWS": stack.info.roles["worker-calls"]},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
    }
    iam.create_role(RoleName=CALL_ROLE, AssumeRolePolicyDocument=_policy(trusted))
    iam.put_role_policy(RoleName=CALL_ROLE, PolicyName=policy, PolicyDocument=_policy(allowed))
    try:
        yield made["QueueUrl"]
    finally:
        iam.delete_role_policy(RoleName=CALL_ROLE, PolicyName=policy)
        iam.delete_role(RoleName=CALL_ROLE)


def _policy(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
