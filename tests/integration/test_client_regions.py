"""The region of each client of AWS: that of AWS_REGION too, as with the AWS CLI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nextfire.adapters.aws import clients

OF_BOTO3 = {
    make.__name__: make
    for make in (
        *(clients.s3, clients.s3_presigner, clients.events, clients.ecs, clients.lambda_functions),
        *(clients.secretsmanager, clients.ssm, clients.sts),
    )
}


@pytest.fixture(autouse=True)
def only_aws_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")


@pytest.mark.parametrize("make", OF_BOTO3.values(), ids=OF_BOTO3.keys())
def test_boto3_takes_the_region_of_aws_region(make: Callable[[], Any]) -> None:
    assert make().meta.region_name == "eu-west-3"


@pytest.mark.parametrize("make", [clients.dynamodb, clients.sqs])
def test_boto3_takes_it_instead_of_the_lean_client_too(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]
) -> None:
    monkeypatch.setenv("NEXTFIRE_AWS_CLIENT", "boto3")

    assert make().meta.region_name == "eu-west-3"


def test_the_variable_that_boto3_knows_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")

    assert clients.ssm().meta.region_name == "eu-west-1"
