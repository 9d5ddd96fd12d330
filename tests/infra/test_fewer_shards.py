"""A deployment that would read fewer shards than the stack does, or did, is rejected."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import UTC, datetime

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from infra.account_check import Table
from infra.aws_account import AwsAccount
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from tests.infra.test_account_check import Stub, a_deployment, found


def test_fewer_shards_than_the_stack_reads_prevent_the_deployment() -> None:
    text, prevents = found(Stub(deployed_shards=8), a_deployment(readShards=7))

    assert prevents
    assert "readShards is 7, and the stack reads 8 shards" in text
    assert "Set readShards to 8 or more" in text


@pytest.mark.parametrize("deployed", [None, 7, 8])
def test_as_many_shards_or_more_are_not_mentioned(deployed: int | None) -> None:
    text, prevents = found(Stub(deployed_shards=deployed), a_deployment(readShards=8))

    assert (text, prevents) == ("account 111122223333 in eu-central-1", False)


_ADOPT = {"due": "old-due", "control": "old-control"}
_RESTORED = Table(expires_by=None, recovery=True, protected=True)
_TABLES = {"old-due": _RESTORED, "old-control": _RESTORED}


def test_fewer_shards_than_those_of_an_adopted_table_prevent_the_deployment() -> None:
    account = Stub(tables=_TABLES, cursors=16)

    text, prevents = found(account, a_deployment(readShards=4, adopt=_ADOPT))

    assert prevents
    assert "readShards is 4, and the earlier stack of adopt.due read 16 shards" in text
    assert "Set readShards to 16 or more" in text
    assert not found(account, a_deployment(readShards=16, adopt=_ADOPT))[1]


def test_an_adopted_control_table_without_due_entries_may_have_any_cursors() -> None:
    settings = a_deployment(readShards=4, adopt={"control": "old-control"})

    assert not found(Stub(tables=_TABLES, cursors=16), settings)[1]


@mock_aws
def test_a_shard_that_was_read_has_a_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    dynamodb = boto3.client("dynamodb")
    dynamodb.create_table(
        TableName="old-control",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    watchers = DynamoDbControlStore(dynamodb, table="old-control")
    watchers.seed_cursors(2, datetime(2026, 5, 24, 10, tzinfo=UTC))

    assert AwsAccount().has_cursor("old-control", 1)
    assert not AwsAccount().has_cursor("old-control", 2)


@mock_aws
@pytest.mark.parametrize("exists", [True, False])
def test_the_shards_of_a_stack_are_those_of_its_watcher(
    monkeypatch: pytest.MonkeyPatch, *, exists: bool
) -> None:
    """Botocore's stub answers: moto's CloudFormation needs packages that are not installed."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    formation, functions = boto3.client("cloudformation"), boto3.client("lambda")
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = boto3.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument=trust)
    code = io.BytesIO()
    zipfile.ZipFile(code, "w").close()
    functions.create_function(
        FunctionName="Nextfire-Watcher-A",
        Role=role["Role"]["Arn"],
        Runtime="python3.13",
        Handler="functions.watcher.handler.handler",
        Code={"ZipFile": code.getvalue()},
        Environment={"Variables": {"NEXTFIRE_READ_SHARDS": "8"}},
    )
    clients = {"cloudformation": formation, "lambda": functions}
    monkeypatch.setattr(boto3.Session, "client", lambda _, name, **__: clients[name])
    with Stubber(formation) as stub:
        if exists:
            stub.add_response("describe_stacks", {"Stacks": [_STACK]})
        else:
            stub.add_client_error("describe_stacks", "ValidationError")

        assert AwsAccount().read_shards("Nextfire") == (8 if exists else None)


_STACK = {
    "StackName": "Nextfire",
    "CreationTime": "2026-05-24T10:00:00Z",
    "StackStatus": "UPDATE_COMPLETE",
    "Outputs": [
        {"OutputKey": "ApiUrl", "OutputValue": "https://a.example"},
        {"OutputKey": "WatcherFunction", "OutputValue": "Nextfire-Watcher-A"},
    ],
}
