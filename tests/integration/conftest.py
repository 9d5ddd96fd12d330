"""AWS emulated by moto, and for the contract suites also by servers: tables, queues and buckets as
in `infra/`, empty for each test.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import boto3  # noqa: TID251 — creates what the lean client cannot
import pytest
from botocore.retries.standard import ExponentialBackoff  # noqa: TID251 - to skip its waits
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.lean import json_client
from nextfire.adapters.sqlite.database import Database
from nextfire.domain.job import Job
from tests.crons import LONG
from tests.fakes import Clock
from tests.integration import emulators, resources, shared_clients
from tests.integration.api_runs import due_each_minute, stopped_clock
from tests.integration.backends import (
    COLLECTED,
    DYNAMODB_LOCAL,
    LEAN,
    MINISTACK,
    MOTO,
    REAL_TIME,
    parameters_of,
    server_of,
)
from tests.integration.deployment import Deployment
from tests.integration.faulty_server import FaultyServer, faulty_server
from tests.integration.pace import answered, quicken
from tests.integration.tables import Tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

REGION: Literal["eu-central-1"] = shared_clients.REGION


_accounts = (f"{number:012d}" for number in count(1))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = [item for item in items if isinstance(item, pytest.Function)]
    lean = {_without_parameters(i) for i in items if parameters_of(i).get("backend") in LEAN}
    for item in items:
        backend = parameters_of(item).get("backend")
        for mark in item.iter_markers("deviates"):
            (deviation,) = mark.args
            if deviation.backend == server_of(str(backend)):
                reason = f"{deviation.name}: {deviation.here}"
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        called_lean = backend == DYNAMODB_LOCAL or (
            backend == MINISTACK and _without_parameters(item) in lean
        )
        if called_lean and not LONG:
            reason = "the lean client sends the same requests; run with NEXTFIRE_LONG=1"
            item.add_marker(pytest.mark.skip(reason=reason))
        if backend in REAL_TIME and not LONG and item.get_closest_marker("takes_minutes"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; run with NEXTFIRE_LONG=1"))


def _without_parameters(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


@pytest.fixture(scope="session")
def ministack_address() -> Iterator[str]:
    with emulators.ministack() as address:
        yield address


@pytest.fixture(scope="session")
def dynamodb_local_address() -> Iterator[str]:
    with ExitStack() as stack:
        try:
            address = stack.enter_context(emulators.dynamodb_local())
        except emulators.EmulatorUnavailableError as lack:
            pytest.skip(f"NOT RUN on DynamoDB Local: {lack}.")
        yield address


@pytest.fixture
def backend() -> str:
    """The emulator of AWS. A contract suite has several."""
    return MOTO


@pytest.fixture
def aws(
    backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """An empty AWS account with fake credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NEXTFIRE_AWS_CLIENT", "lean" if backend in LEAN else "boto3")
    if backend == MOTO:
        with _moto(monkeypatch):
            yield
        return
    servers = {MINISTACK: "ministack_address", DYNAMODB_LOCAL: "dynamodb_local_address"}
    address, account = request.getfixturevalue(servers[server_of(backend)]), next(_accounts)
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", account)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it holds the previous account
    monkeypatch.setattr("boto3.client", shared_clients.of_server(address, account))
    yield


@contextmanager
def _moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """moto, handling one request at a time.

    moto checks a condition and writes in two steps; DynamoDB does both atomically.
    """
    lock, process = threading.Lock(), BotocoreStubber.process_request

    def one_at_a_time(self: BotocoreStubber, request: Any) -> Any:
        with lock:
            return answered(partial(process, self), request, REGION)

    monkeypatch.setattr(BotocoreStubber, "process_request", one_at_a_time)
    monkeypatch.setattr("boto3.client", shared_clients.of_moto)
    quicken(monkeypatch)
    # With the library that it patches, apart from the SDK, tests only PUT to signed URLs.
    monkeypatch.setattr("moto.core.models.RESPONSES_METHODS", ["PUT"])
    with mock_aws(config={"core": {"reset_boto3_session": False}}):
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
def tables(dynamodb: DynamoDBClient, backend: str) -> Tables:
    # DynamoDB Local has one account for all tests.
    suffix = f"-{next(_accounts)}" if server_of(backend) == DYNAMODB_LOCAL else ""
    client = boto3.client("dynamodb") if backend in LEAN else dynamodb
    return Tables(client, suffix, on_moto=backend == MOTO)


@pytest.fixture
def queue_maker(sqs: SQSClient, backend: str) -> SQSClient:
    """A client that can create queues; the lean client cannot."""
    return boto3.client("sqs") if backend in LEAN else sqs


@pytest.fixture
def dlq_url(queue_maker: SQSClient, backend: str) -> str:
    """The dead-letter queue of the pool `default`."""
    return _fifo(queue_maker, "default-dead-letters.fifo", backend)


@pytest.fixture
def queue_url(queue_maker: SQSClient, dlq_url: str, backend: str) -> str:
    """The queue of the pool `default`, with its dead-letter queue."""
    account, name = dlq_url.rsplit("/", 2)[1:]
    arn = f"arn:aws:sqs:{REGION}:{account}:{name}"
    redrive = {"deadLetterTargetArn": arn, "maxReceiveCount": 1000}
    return _fifo(queue_maker, "default.fifo", backend, RedrivePolicy=json.dumps(redrive))


@pytest.fixture
def bucket(s3: S3Client, backend: str) -> str:
    """The scripts bucket."""
    return _bucket(s3, "scripts", backend)


@pytest.fixture
def outputs_bucket(s3: S3Client, backend: str) -> str:
    """The bucket for data that is too large for a run record."""
    return _bucket(s3, "outputs", backend)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """A new SQLite database."""
    return Database(tmp_path / "nextfire.db")


@pytest.fixture
def event_bus(aws: None) -> str:  # noqa: ARG001 — its account
    """The stack's event bus."""
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
    """The functions with their environment, as in a new process."""
    system = Deployment(
        dynamodb,
        sqs,
        s3,
        jobs_table=tables.jobs,
        due_table=tables.due,
        runs_table=tables.runs,
        control_table=tables.control,
        keys_table=tables.keys,
        requests_table=tables.requests,
        endpoints_table=tables.endpoints,
        overview_table=tables.overview,
        queue_url=queue_url,
        dlq_url=dlq_url,
        bucket=bucket,
        outputs_bucket=outputs_bucket,
        event_bus=event_bus,
    )
    system.configure(monkeypatch)
    return system


@pytest.fixture
def clock(
    monkeypatch: pytest.MonkeyPatch,
    system: Deployment,  # noqa: ARG001 — comes first
    request: pytest.FixtureRequest,
) -> Clock:
    """The API's clock, stopped within this minute; or at `NOW` of the test's file."""
    return stopped_clock(monkeypatch, getattr(request.module, "NOW", None))


@pytest.fixture
def job(system: Deployment, clock: Clock) -> Job:
    """The job `a` behind the API, due each minute since an hour ago."""
    return due_each_minute(system, clock)


def _bucket(client: S3Client, name: str, backend: str) -> str:
    if backend in REAL_TIME:  # all accounts share bucket names
        name = f"{name}-{next(_accounts)}"
    place: Any = {"LocationConstraint": REGION}
    create = partial(client.create_bucket, Bucket=name, CreateBucketConfiguration=place)
    if backend == MOTO:
        resources.bucket(name, REGION, create)
    else:
        create()
    return name


def _fifo(client: SQSClient, name: str, backend: str, **more: str) -> str:
    attributes: Any = {
        "FifoQueue": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    attributes |= more

    def create() -> str:
        return client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    return resources.queue(name, REGION, attributes, create) if backend == MOTO else create()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setattr(json_client, "backoff", lambda *_: 0.0)
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    with faulty_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        yield server


@pytest.fixture(params=["lean", "boto3"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NEXTFIRE_AWS_CLIENT", request.param)
    return str(request.param)


@pytest.fixture
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTFIRE_AWS_CLIENT", "lean")
