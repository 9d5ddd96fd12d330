"""The adapters of the API and of its authorizer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING

from nextfire.adapters.aws.clients import (
    dynamodb,
    dynamodb_fail_fast,
    lambda_functions,
    s3,
    s3_presigner,
)
from nextfire.adapters.aws.wakers import LambdaWaker
from nextfire.adapters.dynamodb.bucket_store import DynamoDbBucketStore
from nextfire.adapters.dynamodb.change_stamp import with_changed_by
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.endpoint_store import DynamoDbEndpointStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.join_store import DynamoDbJoinStore
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.adapters.dynamodb.overview_store import DynamoDbSegmentStore
from nextfire.adapters.dynamodb.request_store import DynamoDbRequestStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.s3.run_files import S3RunFiles
from nextfire.adapters.s3.script_shelf import S3ScriptShelf
from nextfire.dataclass import dataclass
from nextfire.domain.ports.access import KeyStore
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.endpoints import EndpointStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.joins import JoinStore
from nextfire.domain.ports.overview import RunOverview
from nextfire.domain.ports.requests import BucketStore, RequestStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import RunFiles, ScriptShelf
from nextfire.domain.ports.waker import Waker
from nextfire.settings import ApiSettings, EmbeddedSettings
from nextfire.usecases.read_overview import SegmentedOverview

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, slots=True)
class ApiPorts:
    """The ports of the API. `note_change` sends the author of a change to the audit chain, for a
    request that writes no item: id of the request, author, instant. `overview`: None if the stack
    has none.
    """

    jobs: JobStore
    runs: RunStore
    due: DueStore
    control: ControlStore
    keys: KeyStore
    requests: RequestStore
    buckets: BucketStore
    endpoints: EndpointStore
    files: RunFiles
    shelf: ScriptShelf
    note_change: Callable[[str, str, datetime], None]
    waker: Waker | None = None
    """None: watchers do not sleep."""
    overview: RunOverview | None = None
    joins: JoinStore | None = None


def api_ports(settings: ApiSettings, changed_by: Callable[[], str | None]) -> ApiPorts:
    """The adapters of the API. *changed_by*: the author of the next write, for the audit chain."""
    if (local := EmbeddedSettings.find()) is not None:
        from nextfire.wiring import embedded  # noqa: PLC0415 - functions do without SQLite

        return embedded.api_ports(settings, local)
    database = with_changed_by(
        dynamodb(),
        tables=[settings.jobs_table, settings.runs_table, settings.keys_table],
        changed_by=changed_by,
    )
    due_table, shards = settings.due_table, settings.write_shards
    requests = DynamoDbRequestStore(database, table=settings.requests_table)
    runs = DynamoDbRunStore(
        database,
        table=settings.runs_table,
        due_table=due_table,
        jobs_table=settings.jobs_table,
        shards=shards,
    )
    overview = None
    if settings.overview_table is not None:
        segments = DynamoDbSegmentStore(database, table=settings.overview_table)
        overview = SegmentedOverview(segments, runs)
    return ApiPorts(
        jobs=_job_store(settings, database),
        runs=runs,
        due=DynamoDbDueStore(
            database, table=due_table, shards=shards, executor=ThreadPoolExecutor(1)
        ),
        control=DynamoDbControlStore(database, table=settings.control_table),
        keys=DynamoDbKeyStore(database, table=settings.keys_table),
        requests=requests,
        buckets=DynamoDbBucketStore(dynamodb_fail_fast(), table=settings.requests_table),
        endpoints=DynamoDbEndpointStore(database, table=settings.endpoints_table),
        files=S3RunFiles(s3(), bucket=settings.outputs_bucket),
        shelf=S3ScriptShelf(s3(), s3_presigner, bucket=settings.scripts_bucket),
        note_change=requests.note,
        waker=(
            LambdaWaker(lambda_functions(), function=settings.watcher_function)
            if settings.watcher_function
            else None
        ),
        overview=overview,
        joins=DynamoDbJoinStore(database, table=settings.runs_table),
    )


def _job_store(settings: ApiSettings, database: DynamoDBClient) -> JobStore:
    return DynamoDbJobStore(
        database,
        table=settings.jobs_table,
        due_table=settings.due_table,
        shards=settings.write_shards,
        patient=True,
    )
