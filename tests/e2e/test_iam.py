"""Each role is refused what it was not granted: least privilege as IAM sees it."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.e2e.conftest import Stack

_ITEM = {"tenant": {"S": "0"}, "job_id": {"S": "none"}}


def _delete_job(stack: Stack, client: Any) -> None:
    client.delete_item(TableName=stack.info.tables["jobs"], Key=_ITEM)


def _scan_jobs(stack: Stack, client: Any) -> None:
    client.scan(TableName=stack.info.tables["jobs"])


def _put_job(stack: Stack, client: Any) -> None:
    client.put_item(TableName=stack.info.tables["jobs"], Item=_ITEM)


def _read_due(stack: Stack, client: Any) -> None:
    client.query(
        TableName=stack.info.tables["due"],
        KeyConditionExpression="#bucket = :bucket",
        ExpressionAttributeNames={"#bucket": "bucket"},
        ExpressionAttributeValues={":bucket": {"S": "none"}},
    )


def _receive(stack: Stack, client: Any) -> None:
    client.receive_message(QueueUrl=stack.info.pools["default"].queue_url)


def _send(stack: Stack, client: Any) -> None:
    client.send_message(
        QueueUrl=stack.info.pools["default"].queue_url,
        MessageBody="{}",
        MessageGroupId="none",
        MessageDeduplicationId="none",
    )


def _write_script(stack: Stack, client: Any) -> None:
    client.put_object(Bucket=stack.info.scripts_bucket, Key="none.py", Body=b"")


@pytest.mark.parametrize(
    ("role", "service", "call"),
    [
        ("api", "dynamodb", _delete_job),
        ("api", "dynamodb", _scan_jobs),
        ("api", "sqs", _send),
        ("watcher", "dynamodb", _put_job),
        ("watcher", "sqs", _receive),
        ("executor-lambda", "dynamodb", _read_due),
        ("executor-lambda", "sqs", _receive),
        ("executor-lambda", "s3", _write_script),
        ("worker-default", "dynamodb", _delete_job),
        ("worker-default", "sqs", _send),
        ("worker-default", "s3", _write_script),
    ],
)
def test_ungranted_call_is_refused(
    stack: Stack, role: str, service: str, call: Callable[[Stack, Any], None]
) -> None:
    with pytest.raises(ClientError) as refusal:
        call(stack, stack.client(service, role=role))

    assert refusal.value.response["Error"]["Code"] in {"AccessDenied", "AccessDeniedException"}


def test_granted_call_is_let_through(stack: Stack) -> None:
    jobs = stack.client("dynamodb", role="api")

    assert "Item" not in jobs.get_item(TableName=stack.info.tables["jobs"], Key=_ITEM)


def test_unsigned_request_is_refused_but_for_health(stack: Stack) -> None:
    with stack.unsigned_api() as api:
        assert api.get("/v1/health").status_code == 200
        assert api.get("/v1/jobs").status_code == 403
        assert api.post("/v1/jobs", json={}).status_code == 403
