"""The tables that earlier stacks have left, which the check of the account names."""

from __future__ import annotations

from datetime import UTC, datetime

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from infra.account_check import Table
from infra.aws_account import AwsAccount
from tests.infra.test_account_check import Stub, a_deployment, found


def test_tables_that_the_stack_does_not_use_are_named_and_prevent_nothing() -> None:
    left = ["Nextfire-StoresJobs1-A", "Nextfire-StoresKeys2-B"]
    runs = Table(expires_by=None, recovery=True, protected=True)
    account = Stub(tables={left[0]: runs}, left=left)

    text, prevents = found(account, a_deployment(adopt={"jobs": left[0]}))

    assert not prevents
    assert "tables that the stack does not use" in text
    assert left[1] in text
    assert left[0] not in text


def test_an_adopted_table_that_does_not_exist_prevents_the_deployment() -> None:
    text, prevents = found(Stub(), a_deployment(adopt={"keys": "old-keys"}))

    assert prevents
    assert "adopt.keys: table old-keys not found" in text


@mock_aws
@pytest.mark.parametrize("current", [None, "Nextfire-StoresKeys2-B"])
def test_tables_that_no_stack_has_are_found_by_their_names(
    monkeypatch: pytest.MonkeyPatch, current: str | None
) -> None:
    """Botocore's stub answers: moto's CloudFormation needs packages that are not installed."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    dynamodb, formation = boto3.client("dynamodb"), boto3.client("cloudformation")
    for name in ("Nextfire-StoresJobs1-A", "Nextfire-StoresKeys2-B", "Nextfire2-StoresJobs1-A"):
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "job", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "job", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    clients = {"dynamodb": dynamodb, "cloudformation": formation}
    monkeypatch.setattr(boto3.Session, "client", lambda _, name, **__: clients[name])
    with Stubber(formation) as stack:
        if current is None:
            stack.add_client_error("list_stack_resources", "ValidationError")
        else:
            stack.add_response(
                "list_stack_resources", {"StackResourceSummaries": [a_table(current)]}
            )

        left = AwsAccount().tables_left("Nextfire")

    expected = ["Nextfire-StoresJobs1-A", "Nextfire-StoresKeys2-B"]
    assert left == [name for name in expected if name != current]


def a_table(name: str) -> dict[str, object]:
    return {
        "LogicalResourceId": "StoresKeys2",
        "PhysicalResourceId": name,
        "ResourceType": "AWS::DynamoDB::Table",
        "LastUpdatedTimestamp": datetime(2026, 5, 24, tzinfo=UTC),
        "ResourceStatus": "CREATE_COMPLETE",
    }
