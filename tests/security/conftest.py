"""Of the exploit tests: S3 as moto plays it, with a versioned bucket of scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from nextfire.adapters.aws import s3
from tests.world import BUCKET

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def scripts_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        client = s3()
        client.create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
        )
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield client
