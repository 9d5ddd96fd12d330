"""IAM lets executors reach their own pool only: scripts, outputs, secrets, queues, job roles."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.e2e.conftest import JOB_ROLE, REFUSED, Stack

Call = tuple[str, str, dict[str, Any]]
"""A service, its operation, and the request."""


POOLS = {"worker-default": "default", "executor-lambda": "lambda"}
"""The roles of the executors, each with another pool."""


REACHES: dict[str, Callable[[Stack, str], Call]] = {
    "read a script": lambda stack, place: (
        "s3",
        "get_object",
        {"Bucket": stack.info.scripts_bucket, "Key": f"{place}none.py"},
    ),
    "list scripts": lambda stack, place: (
        "s3",
        "list_objects_v2",
        {"Bucket": stack.info.scripts_bucket, "Prefix": place},
    ),
    "list versions of a script": lambda stack, place: (
        "s3",
        "list_object_versions",
        {"Bucket": stack.info.scripts_bucket, "Prefix": f"{place}none.py"},
    ),
    "read an output": lambda stack, place: (
        "s3",
        "get_object",
        {"Bucket": stack.info.outputs_bucket, "Key": f"{place}none"},
    ),
    "list outputs": lambda stack, place: (
        "s3",
        "list_objects_v2",
        {"Bucket": stack.info.outputs_bucket, "Prefix": place},
    ),
    "write an output": lambda stack, place: (
        "s3",
        "put_object",
        {"Bucket": stack.info.outputs_bucket, "Key": f"{place}some", "Body": b""},
    ),
    "read a secret": lambda _, place: (
        "secretsmanager",
        "get_secret_value",
        {"SecretId": f"nextfire/{place}none"},
    ),
    "read a parameter": lambda _, place: (
        "ssm",
        "get_parameter",
        {"Name": f"/nextfire/{place}none", "WithDecryption": True},
    ),
}


def _refused(stack: Stack, role: str, call: Call) -> bool:
    """Whether IAM denies *call*; an error that says "absent" is not a denial."""
    service, operation, request = call
    try:
        getattr(stack.client(service, role=role), operation)(**request)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in REFUSED:
            return True
        assert code in {"NoSuchKey", "ResourceNotFoundException", "ParameterNotFound"}
    return False


@pytest.mark.parametrize("tenant", ["acme", "other"])
@pytest.mark.parametrize("does", REACHES)
@pytest.mark.parametrize("role", POOLS)
def test_an_executor_reaches_its_own_pool_only(
    stack: Stack, role: str, does: str, tenant: str
) -> None:
    own = POOLS[role]
    [other] = {*POOLS.values()} - {own}
    theirs = [
        f"pools/{other}/{tenant}/",
        f"pools/{other}/{tenant}/pools/{own}/{tenant}/",
        f"{tenant}/pools/{own}/",
        f"{tenant}/{own}/",  # location in a version that did not separate pools
        f"{own}/{tenant}/",
    ]

    assert not _refused(stack, role, REACHES[does](stack, f"pools/{own}/{tenant}/"))
    for place in theirs:
        assert _refused(stack, role, REACHES[does](stack, place)), place


@pytest.mark.parametrize("queue", ["queue_url", "dlq_url"])
@pytest.mark.parametrize("role", POOLS)
def test_an_executor_reaches_no_other_pools_queues(stack: Stack, role: str, queue: str) -> None:
    for pool in POOLS.values():
        url = getattr(stack.info.pools[pool], queue)
        attributes = ("sqs", "get_queue_attributes", {"QueueUrl": url})
        own = pool == POOLS[role] and queue == "queue_url"
        assert _refused(stack, role, attributes) is not own
        if pool != POOLS[role]:
            for operation, more in (
                ("receive_message", {}),
                ("delete_message", {"ReceiptHandle": "none"}),
                ("send_message", {"MessageBody": "{}", "MessageGroupId": "0"}),
            ):
                assert _refused(stack, role, ("sqs", operation, {"QueueUrl": url, **more}))


def test_a_session_in_a_job_role_has_the_tag_of_its_own_pool(stack: Stack) -> None:
    """The trust policy names the executors of two pools and requires no tag."""
    roles = [stack.info.roles[name] for name in ("executor-acting", "executor-lambda")]
    trusted = {"Effect": "Allow", "Principal": {"AWS": roles}}
    trusted["Action"] = ["sts:AssumeRole", "sts:TagSession"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": [trusted]})
    made = stack.client("iam").create_role(RoleName=JOB_ROLE, AssumeRolePolicyDocument=policy)

    def refused(role: str = "executor-acting", **tags: str) -> bool:
        request = {
            "RoleArn": made["Role"]["Arn"],
            "RoleSessionName": "report",
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            "TransitiveTagKeys": [*tags],
        }
        return _refused(stack, role, ("sts", "assume_role", request))

    for tenant in ("acme", "other"):
        assert not refused(pool="acting", tenant=tenant, job="report")
        assert refused(pool="lambda", tenant=tenant, job="report")
        assert refused(tenant=tenant, job="report")
        assert refused(pool="acting", tenant=tenant, job="report", admin="yes")
        # The pool of this role has no job role.
        assert refused("executor-lambda", pool="acting", tenant=tenant, job="report")
