"""The tables, queues and buckets of one stack, and what tests do with them directly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.s3.run_files import S3RunFiles
from nextfire.domain.due import Slot
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import floor_minute
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.run import Run

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient


TENANT = "123456789012"
SHARDS = 2


@dataclass
class StackResources:
    """The resources of one stack, with the stores that read and write them."""

    database: DynamoDBClient
    queues: SQSClient
    objects: S3Client
    _: KW_ONLY
    jobs_table: str
    due_table: str
    runs_table: str
    control_table: str
    keys_table: str
    requests_table: str
    endpoints_table: str
    overview_table: str
    queue_url: str
    dlq_url: str
    bucket: str
    outputs_bucket: str
    event_bus: str

    def __post_init__(self) -> None:
        self.jobs = DynamoDbJobStore(
            self.database, table=self.jobs_table, due_table=self.due_table, shards=SHARDS
        )
        self.due = DynamoDbDueStore(
            self.database, table=self.due_table, shards=SHARDS, executor=ThreadPoolExecutor(2)
        )
        self.runs = DynamoDbRunStore(
            self.database, table=self.runs_table, due_table=self.due_table, shards=SHARDS
        )
        self.files = S3RunFiles(self.objects, bucket=self.outputs_bucket)

    def names(self) -> dict[str, str]:
        """The settings by which functions find the resources."""
        return {
            "jobs_table": self.jobs_table,
            "due_table": self.due_table,
            "runs_table": self.runs_table,
            "control_table": self.control_table,
            "keys_table": self.keys_table,
            "requests_table": self.requests_table,
            "endpoints_table": self.endpoints_table,
            "overview_table": self.overview_table,
            "scripts_bucket": self.bucket,
            "outputs_bucket": self.outputs_bucket,
            "event_bus": self.event_bus,
            "queue_url": self.queue_url,
            "dlq_url": self.dlq_url,
            "write_shards": str(SHARDS),
            "read_shards": str(SHARDS),
        }

    def job(self, job_id: str, tenant: str = TENANT) -> Job:
        job = self.jobs.get(JobKey(tenant, job_id))
        assert job is not None
        return job

    def run(self, message: RunMessage) -> Run:
        run = self.runs.get(message.key)
        assert run is not None
        return run

    def upload(self, source: str, handler: str = "hello", tenant: str = TENANT) -> None:
        key = f"pools/default/{tenant}/{handler}.py"
        self.objects.put_object(Bucket=self.bucket, Key=key, Body=source.encode())

    def send(self, body: str, *, group: str, dedup: str) -> None:
        self.queues.send_message(
            QueueUrl=self.queue_url,
            MessageBody=body,
            MessageGroupId=group,
            MessageDeduplicationId=dedup,
        )

    def receive(self, *, url: str | None = None, hidden_for: int = 900) -> list[dict[str, Any]]:
        """All visible messages; the receive hides them."""
        found: list[dict[str, Any]] = []
        while True:
            answer: Any = self.queues.receive_message(
                QueueUrl=url or self.queue_url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=hidden_for,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            if not answer.get("Messages"):
                return found
            found += answer["Messages"]

    def forget_due(self, now: datetime) -> None:
        """Leave everything as if watchers had sent what was due by *now*, without successors."""
        self.due.delete([Slot(i["bucket"]["S"], i["entry"]["S"]) for i in self.due_items()])
        control = DynamoDbControlStore(self.database, table=self.control_table)
        for shard in range(SHARDS):
            control.move_cursor(shard, floor_minute(now), epoch=1)

    def due_items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for page in self.database.get_paginator("scan").paginate(TableName=self.due_table):
            items += page["Items"]
        return items
