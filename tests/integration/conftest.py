"""AWS as moto plays it: tables, queues and bucket as `infra/` creates them, empty for each test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import pytest
from botocore.loaders import Loader, create_loader  # noqa: TID251 — to read its data once
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber

from nextfire.adapters import aws as clients
from tests.integration.deployment import Deployment

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

REGION: Literal["eu-central-1"] = "eu-central-1"


@dataclass(frozen=True, slots=True)
class Tables:
    """The names of the tables."""

    jobs: str = "jobs"
    due: str = "due"
    runs: str = "runs"
    control: str = "control"


@cache
def _loader(search_path: str | None = None) -> Loader:
    """The SDK's description of the services: kept, since moto begins a session for each test."""
    return create_loader(search_path)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty AWS account with fake credentials, that handles one request after the other.

    moto checks a condition and writes in two steps; DynamoDB does both in one.
    """
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    lock, answer = threading.Lock(), BotocoreStubber.__call__

    def one_at_a_time(self: BotocoreStubber, *args: Any, **kwargs: Any) -> Any:
        with lock:
            return answer(self, *args, **kwargs)

    monkeypatch.setattr(BotocoreStubber, "__call__", one_at_a_time)
    monkeypatch.setattr("botocore.session.create_loader", _loader)
    with mock_aws():
        yield


@pytest.fixture
def dynamodb(aws: None) -> DynamoDBClient:  # noqa: ARG001
    return clients.dynamodb()


@pytest.fixture
def sqs(aws: None) -> SQSClient:  # noqa: ARG001
    return clients.sqs()


@pytest.fixture
def s3(aws: None) -> S3Client:  # noqa: ARG001
    return clients.s3()


@pytest.fixture
def tables(dynamodb: DynamoDBClient) -> Tables:
    """The four tables. Their keys are those of `infra/constructs/stores.py`."""
    tables = Tables()
    _create(dynamodb, tables.jobs, "tenant", "job_id")
    _create(dynamodb, tables.due, "bucket", "entry")
    _create(dynamodb, tables.runs, "job", "run_id", index=("attention", "attention_at"))
    _create(dynamodb, tables.control, "id")
    return tables


@pytest.fixture
def dlq_url(sqs: SQSClient) -> str:
    """The dead-letter queue of the pool `default`."""
    return _fifo(sqs, "default-dead-letters.fifo")


@pytest.fixture
def queue_url(sqs: SQSClient, dlq_url: str) -> str:
    """The queue of the pool `default`, with its dead-letter queue."""
    answer = sqs.get_queue_attributes(QueueUrl=dlq_url, AttributeNames=["QueueArn"])
    redrive = {"deadLetterTargetArn": answer["Attributes"]["QueueArn"], "maxReceiveCount": 1000}
    return _fifo(sqs, "default.fifo", RedrivePolicy=json.dumps(redrive))


@pytest.fixture
def bucket(s3: S3Client) -> str:
    """The scripts bucket."""
    s3.create_bucket(Bucket="scripts", CreateBucketConfiguration={"LocationConstraint": REGION})
    return "scripts"


@pytest.fixture
def outputs_bucket(s3: S3Client) -> str:
    """The bucket of what is too large for a run's record."""
    s3.create_bucket(Bucket="outputs", CreateBucketConfiguration={"LocationConstraint": REGION})
    return "outputs"


@pytest.fixture
def event_bus(aws: None) -> str:  # noqa: ARG001 — the account it is in
    """The stack's own event bus."""
    clients.events().create_event_bus(Name="nextfire")
    return "nextfire"


@pytest.fixture
def system(
    dynamodb: DynamoDBClient,
    sqs: SQSClient,
    s3: S3Client,
    tables: Tables,
    queue_url: str,
    dlq_url: str,
    bucket: str,
    outputs_bucket: str,
    event_bus: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Deployment:
    """The functions with their environment, in a process that is new to them."""
    system = Deployment(
        dynamodb,
        sqs,
        s3,
        jobs_table=tables.jobs,
        due_table=tables.due,
        runs_table=tables.runs,
        control_table=tables.control,
        queue_url=queue_url,
        dlq_url=dlq_url,
        bucket=bucket,
        outputs_bucket=outputs_bucket,
        event_bus=event_bus,
    )
    system.configure(monkeypatch)
    return system


def _create(
    client: DynamoDBClient, table: str, *key: str, index: tuple[str, str] | None = None
) -> None:
    def schema(names: tuple[str, ...]) -> Any:
        roles = ("HASH", "RANGE")
        return [{"AttributeName": n, "KeyType": r} for n, r in zip(names, roles, strict=False)]

    request: dict[str, Any] = {}
    if index is not None:
        request["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index[0],
                "KeySchema": schema(index),
                "Projection": {"ProjectionType": "ALL"},
            }
        ]
    client.create_table(
        TableName=table,
        KeySchema=schema(key),
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in (*key, *(index or ()))
        ],
        BillingMode="PAY_PER_REQUEST",
        **request,
    )


def _fifo(client: SQSClient, name: str, **more: str) -> str:
    attributes: Any = {
        "FifoQueue": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    return client.create_queue(QueueName=name, Attributes=attributes | more)["QueueUrl"]
