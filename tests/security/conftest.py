"""The targets of attacks: hosts with a folder each, a bucket of scripts, or a whole deployment."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from nextfire.adapters.aws.clients import s3 as s3_client
from tests.fakes import Clock
from tests.integration.api_runs import stopped_clocks
from tests.integration.conftest import (  # noqa: F401 — fixtures are found by name
    aws,
    backend,
    bucket,
    dlq_url,
    dynamodb,
    event_bus,
    outputs_bucket,
    queue_maker,
    queue_url,
    s3,
    sqs,
    system,
    tables,
)
from tests.security.hosts import Host, hosts
from tests.world import BUCKET

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the API and the authorizer. It stands at noon."""
    return stopped_clocks(monkeypatch)


@pytest.fixture(params=hosts(), ids=lambda host: host.name)
def host(request: pytest.FixtureRequest) -> Host:
    found: Host = request.param
    return found


@pytest.fixture
def folder(host: Host) -> Iterator[Path]:
    """The folder in which the host's executor works."""
    path = Path(tempfile.mkdtemp(prefix="test-security-"))
    path.chmod(0o711)
    if host.user is not None:
        shutil.chown(path, host.user)
    yield path
    shutil.rmtree(path)


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
        client = s3_client()
        client.create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
        )
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield client
