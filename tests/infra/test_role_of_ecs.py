"""The service-linked role of ECS, which an account has after its first cluster."""

from __future__ import annotations

import json

import boto3
import pytest
from moto import mock_aws

from infra.aws_account import AwsAccount
from tests.infra.test_account_check import Stub, a_deployment, found


def test_without_it_the_message_has_the_command_that_creates_it() -> None:
    pools = {"etl": {"executor": "worker", "fargate": {}}, "large": {"executor": "worker"}}
    settings = a_deployment(pools=pools)

    text, prevents = found(Stub(), settings)

    assert not prevents  # it may succeed, and does when it is repeated
    assert "which ECS needs for the pools etl:" in text
    assert "aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com" in text
    assert "ECS" not in found(Stub(roles=["AWSServiceRoleForECS"]), settings)[0]
    assert "ECS" not in found(Stub())[0]


@mock_aws
def test_it_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert not AwsAccount().has_role("AWSServiceRoleForECS")

    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    boto3.client("iam").create_role(RoleName="AWSServiceRoleForECS", AssumeRolePolicyDocument=trust)

    assert AwsAccount().has_role("AWSServiceRoleForECS")
