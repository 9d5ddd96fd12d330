"""IAM denies each role everything that it was not granted: least privilege."""

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.e2e.conftest import REFUSED, Stack

_ITEM = {"tenant": {"S": "0"}, "job_id": {"S": "none"}}


def _delete_job(stack: Stack, client: Any) -> None:
    client.delete_item(TableName=stack.info.tables["jobs"], Key=_ITEM)


def _scan_jobs(stack: Stack, client: Any) -> None:
    client.scan(TableName=stack.info.tables["jobs"])


def _put_job(stack: Stack, client: Any) -> None:
    client.put_item(TableName=stack.info.tables["jobs"], Item=_ITEM)


def _change_job(stack: Stack, client: Any) -> None:
    with pytest.raises(client.exceptions.ConditionalCheckFailedException):
        client.update_item(
            TableName=stack.info.tables["jobs"],
            Key=_ITEM,
            UpdateExpression="SET version = :none",
            ConditionExpression="attribute_exists(job_id)",
            ExpressionAttributeValues={":none": {"N": "0"}},
        )


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


def _send_to_others(stack: Stack, client: Any) -> None:
    client.send_message(
        QueueUrl=stack.info.pools["calls"].queue_url,
        MessageBody="{}",
        MessageGroupId="none",
        MessageDeduplicationId="none",
    )


def _write_script(stack: Stack, client: Any) -> None:
    client.put_object(Bucket=stack.info.scripts_bucket, Key="none.py", Body=b"")


def _read_script(stack: Stack, client: Any) -> None:
    client.get_object(Bucket=stack.info.scripts_bucket, Key="none.py")


def _delete_script(stack: Stack, client: Any) -> None:
    client.delete_object(Bucket=stack.info.scripts_bucket, Key="none.py")


def _list_scripts(stack: Stack, client: Any) -> None:
    client.list_objects_v2(Bucket=stack.info.scripts_bucket, Prefix="none/")
    client.list_object_versions(Bucket=stack.info.scripts_bucket, Prefix="none/")


def _delete_output(stack: Stack, client: Any) -> None:
    client.delete_object(Bucket=stack.info.outputs_bucket, Key="none")


def _write_output(stack: Stack, client: Any) -> None:
    client.put_object(Bucket=stack.info.outputs_bucket, Key="none", Body=b"")


def _read_output(stack: Stack, client: Any) -> None:
    with pytest.raises(client.exceptions.NoSuchKey):
        client.get_object(Bucket=stack.info.outputs_bucket, Key="of/no-one")


def _publish(stack: Stack, client: Any, bus: str | None = None) -> None:
    entry = {"Source": "test", "DetailType": "test", "Detail": "{}"}
    client.put_events(Entries=[entry | {"EventBusName": bus or stack.info.event_bus}])


def _publish_to_other_bus(stack: Stack, client: Any) -> None:
    _publish(stack, client, bus="default")


def _read_secret(_: Stack, client: Any) -> None:
    client.get_secret_value(SecretId="nextfire/pools/default/0/none")


def _read_secret_of_others(_: Stack, client: Any) -> None:
    client.get_secret_value(SecretId="nextfires/0/none")


def _read_parameter_of_others(_: Stack, client: Any) -> None:
    client.get_parameter(Name="/nextfires/none", WithDecryption=True)


def _redrive(stack: Stack, client: Any) -> None:
    """As the API does: change a run and put its due entry, both or neither."""
    run = {"job": {"S": "0/none"}, "run_id": {"S": "none"}}
    update = {
        "TableName": stack.info.tables["runs"],
        "Key": run,
        "UpdateExpression": "SET dispatch = :none",
        "ConditionExpression": "attribute_exists(run_id)",
        "ExpressionAttributeValues": {":none": {"N": "0"}},
    }
    put = {
        "TableName": stack.info.tables["due"],
        "Item": {"bucket": {"S": "none"}, "entry": {"S": "none"}},
    }
    with pytest.raises(client.exceptions.TransactionCanceledException):
        client.transact_write_items(TransactItems=[{"Update": update}, {"Put": put}])


_KEY = {"tenant": {"S": "0"}, "key_id": {"S": "none"}}


def _read_key(stack: Stack, client: Any) -> None:
    client.get_item(TableName=stack.info.tables["keys"], Key=_KEY)


def _list_keys(stack: Stack, client: Any) -> None:
    client.query(
        TableName=stack.info.tables["keys"],
        KeyConditionExpression="tenant = :tenant",
        ExpressionAttributeValues={":tenant": {"S": "0"}},
    )


def _put_key(stack: Stack, client: Any) -> None:
    client.put_item(TableName=stack.info.tables["keys"], Item=_KEY)


def _delete_key(stack: Stack, client: Any) -> None:
    client.delete_item(TableName=stack.info.tables["keys"], Key=_KEY)


def _read_request(stack: Stack, client: Any) -> None:
    client.get_item(TableName=stack.info.tables["requests"], Key={"request": {"S": "none"}})


def _note_use(stack: Stack, client: Any) -> None:
    with pytest.raises(client.exceptions.ConditionalCheckFailedException):
        client.update_item(
            TableName=stack.info.tables["keys"],
            Key=_KEY,
            UpdateExpression="SET last_used_on = :day",
            ConditionExpression="attribute_exists(key_id)",
            ExpressionAttributeValues={":day": {"S": "2026-05-24"}},
        )


def _list_dead(stack: Stack, client: Any) -> None:
    client.query(
        TableName=stack.info.tables["runs"],
        IndexName="dead",
        KeyConditionExpression="attention = :tenant",
        ExpressionAttributeValues={":tenant": {"S": "0"}},
    )


@pytest.mark.parametrize(
    ("role", "service", "call"),
    [
        ("api", "dynamodb", _delete_job),
        ("api", "dynamodb", _scan_jobs),
        ("api", "sqs", _send),
        ("api", "dynamodb", _delete_key),
        ("api", "dynamodb", _read_request),
        ("authorizer", "dynamodb", _put_key),
        ("authorizer", "dynamodb", _list_keys),
        ("authorizer", "dynamodb", _delete_key),
        ("authorizer", "dynamodb", _scan_jobs),
        ("auditor", "dynamodb", _read_key),
        ("auditor", "dynamodb", _read_request),
        ("auditor", "sqs", _send),
        ("watcher", "dynamodb", _read_key),
        ("executor-lambda", "dynamodb", _read_key),
        ("worker-default", "dynamodb", _read_key),
        ("worker-default", "dynamodb", _list_keys),
        ("watcher", "dynamodb", _delete_job),
        ("watcher", "dynamodb", _read_request),
        ("watcher", "sqs", _receive),
        ("executor-lambda", "dynamodb", _read_due),
        ("executor-lambda", "sqs", _receive),
        ("executor-lambda", "s3", _write_script),
        ("worker-default", "dynamodb", _put_job),
        ("worker-default", "dynamodb", _delete_job),
        ("worker-default", "dynamodb", _read_request),
        ("worker-default", "sqs", _send_to_others),
        ("worker-default", "s3", _write_script),
        ("api", "s3", _write_output),
        ("api", "s3", _read_script),
        ("api", "s3", _delete_script),
        ("api", "events", _publish),
        ("api", "secretsmanager", _read_secret),
        ("watcher", "s3", _read_output),
        ("executor-lambda", "s3", _delete_output),
        ("executor-lambda", "events", _publish_to_other_bus),
        ("executor-lambda", "secretsmanager", _read_secret_of_others),
        ("executor-lambda", "ssm", _read_parameter_of_others),
        ("worker-default", "events", _publish_to_other_bus),
        ("worker-default", "secretsmanager", _read_secret_of_others),
        ("worker-default", "ssm", _read_parameter_of_others),
        ("worker-default", "dynamodb", _list_dead),
    ],
)
def test_ungranted_call_is_refused(
    stack: Stack, role: str, service: str, call: Callable[[Stack, Any], None]
) -> None:
    with pytest.raises(ClientError) as refusal:
        call(stack, stack.client(service, role=role))

    assert refusal.value.response["Error"]["Code"] in REFUSED


@pytest.mark.parametrize(
    ("role", "service", "call"),
    [
        ("api", "s3", _read_output),
        ("api", "s3", _write_script),
        ("api", "s3", _list_scripts),
        ("api", "dynamodb", _redrive),
        ("api", "dynamodb", _list_dead),
        ("api", "dynamodb", _list_keys),
        ("authorizer", "dynamodb", _read_key),
        ("authorizer", "dynamodb", _note_use),
        ("auditor", "dynamodb", _change_job),
        ("executor-lambda", "events", _publish),
        ("worker-default", "events", _publish),
    ],
)
def test_granted_call_is_let_through_to_the_service(
    stack: Stack, role: str, service: str, call: Callable[[Stack, Any], None]
) -> None:
    call(stack, stack.client(service, role=role))


def test_worker_role_is_closed_to_other_principals_of_the_account(stack: Stack) -> None:
    """The intruder's own policy allows it to assume any role; the worker role does not trust it."""
    iam = stack.client("iam")
    user = iam.create_user(UserName="intruder")["User"]["UserName"]
    anything = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [anything]})
    iam.put_user_policy(UserName=user, PolicyName="all-roles", PolicyDocument=policy)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    intruder = boto3.client(
        "sts",
        endpoint_url=stack.info.aws_endpoint,
        region_name=stack.info.region,
        aws_access_key_id=key["AccessKeyId"],
        aws_secret_access_key=key["SecretAccessKey"],
    )

    with pytest.raises(ClientError) as refusal:
        intruder.assume_role(RoleArn=stack.info.roles["worker-default"], RoleSessionName="intruder")

    assert refusal.value.response["Error"]["Code"] == "AccessDenied"


def test_granted_call_is_let_through(stack: Stack) -> None:
    jobs = stack.client("dynamodb", role="api")

    assert "Item" not in jobs.get_item(TableName=stack.info.tables["jobs"], Key=_ITEM)
