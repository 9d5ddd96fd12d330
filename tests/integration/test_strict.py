"""The stand-in for AWS in front of MiniStack, with the real adapters: what it passes on, and which
defects it detects that were fixed and are planted again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError  # noqa: TID251 — of the SDK

from functions.executor import handler as executor
from infra.concurrency import ConcurrencyShares, share
from nextfire.adapters.aws.clients import chunks
from nextfire.adapters.dynamodb import job_store, run_items
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_items import encode_run
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.targets import AttemptResult
from nextfire.domain.run import RunState
from nextfire.usecases import job_edges, message_batch
from nextfire.wiring.worker_ports import sqs_inbox
from tests.builders import NOON, a_job, a_run, run_key
from tests.integration.backends import LEAN_MINISTACK, MINISTACK, on_each
from tests.integration.deployment import Deployment, Proxy
from tests.integration.executor.conftest import hidings, send
from tests.strict.fake_upstream import bench, put
from tests.strict.in_thread import StandInThread, stand_in
from tests.strict.limits import limit

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

    from tests.integration.tables import Tables

MANY = 20
"""Jobs whose items one read asks for: more than the capacity that is left."""
_UNTIL_IT_HAS_AN_EFFECT = 10
"""Calls, of which half have an effect before their connection is closed."""
CROWD = 3
"""Callers that write the same item at the same time."""


@pytest.fixture(scope="module")
def strict(ministack_address: str) -> Iterator[StandInThread]:
    with stand_in(ministack_address) as found:
        yield found


backend = on_each(MINISTACK, LEAN_MINISTACK)


@pytest.fixture
def aws(aws: None, strict: StandInThread, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """An empty account, whose endpoint is the stand-in."""
    strict.enforce()
    strict.proxy.here.acted.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", strict.address)


boto3_only = pytest.mark.parametrize("backend", [MINISTACK], indirect=True)


def test_a_changed_request_keeps_its_signature_and_its_answer(
    dynamodb: DynamoDBClient, tables: Tables, strict: StandInThread
) -> None:
    strict.enforce("throughput", "lag", "conflicts", lag_chance=1)
    dynamodb.put_item(TableName=tables.runs, Item={"job": {"S": "é"}, "run_id": {"S": "1"}})
    found = dynamodb.get_item(
        TableName=tables.runs, Key={"job": {"S": "é"}, "run_id": {"S": "1"}}, ConsistentRead=True
    )
    assert found["Item"] == {"job": {"S": "é"}, "run_id": {"S": "1"}}
    assert "ConsumedCapacity" not in found


@boto3_only
def test_other_calls_pass_unchanged(s3: S3Client, bucket: str) -> None:
    body = bytes(range(256)) * 40
    s3.put_object(Bucket=bucket, Key="a/ä b+c", Body=body)
    assert s3.get_object(Bucket=bucket, Key="a/ä b+c")["Body"].read() == body
    assert s3.head_object(Bucket=bucket, Key="a/ä b+c")["ContentLength"] == len(body)
    with pytest.raises(ClientError) as refused:
        s3.get_object(Bucket=bucket, Key="nothing")
    assert refused.value.response["Error"]["Code"] == "NoSuchKey"


@boto3_only
def test_a_closed_connection_is_seen_as_one(
    sqs: SQSClient, s3: S3Client, bucket: str, strict: StandInThread
) -> None:
    """Without any byte of a response: half of one would have no headers of its service."""
    strict.enforce("resets", reset_chance=1)
    with pytest.raises(ConnectionClosedError):
        sqs.list_queues()
    with pytest.raises(ConnectionClosedError):
        s3.get_object(Bucket=bucket, Key="a")


def test_the_adapters_see_a_closed_connection(
    dynamodb: DynamoDBClient, tables: Tables, strict: StandInThread
) -> None:
    store = DynamoDbJobStore(dynamodb, table=tables.jobs)
    strict.enforce("resets", reset_chance=1)
    with pytest.raises(UnavailableError):
        store.get(JobKey("acme", "report"))


# Planted defects. Each test runs with the code as it is, and with the defect.

as_is = pytest.mark.parametrize("planted", [False, True], ids=["as-is", "planted"])


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's first retries come at once; capacity is measured in real time."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)


@as_is
@boto3_only
def test_items_that_a_batch_does_not_process(
    dynamodb: DynamoDBClient,
    tables: Tables,
    strict: StandInThread,
    monkeypatch: pytest.MonkeyPatch,
    *,
    planted: bool,
) -> None:
    def once(
        client: DynamoDBClient, table: str, keys: Collection[Any], request: Any, _what: str
    ) -> tuple[list[Any], list[Any]]:
        """As `read_batches` was: unprocessed keys are absent."""
        asked: list[Any] = [{table: {**request, "Keys": each}} for each in chunks([*keys], 100)]
        answers = [client.batch_get_item(RequestItems=each)["Responses"] for each in asked]
        return [item for answer in answers for item in answer[table]], []

    store = DynamoDbJobStore(dynamodb, table=tables.jobs, due_table=tables.due)
    jobs = [a_job(f"job{number}", uid=f"uid{number:05d}") for number in range(MANY)]
    for job in jobs:
        assert store.create(job, None, NOON) is None
    if planted:
        monkeypatch.setattr(job_store, "read_batches", once)
    strict.enforce("throughput", scale=2 / limit("partition-read"))

    absent = {job.key for job in jobs} - set(store.get_many([job.key for job in jobs]))

    assert strict.acted("throughput") > 0
    assert bool(absent) == planted, "a due entry of an absent job is dropped"


@as_is
@boto3_only
def test_transactions_that_conflict(
    dynamodb: DynamoDBClient,
    tables: Tables,
    strict: StandInThread,
    monkeypatch: pytest.MonkeyPatch,
    *,
    planted: bool,
) -> None:
    """Jobs of a tenant with a quota are created at the same time: they share the count."""
    if planted:
        monkeypatch.setattr(job_store, "_PATIENT_TRIES", 1)
    store = DynamoDbJobStore(dynamodb, table=tables.jobs, due_table=tables.due, patient=True)
    strict.enforce("conflicts", transaction_ms=100)

    def create(number: int) -> bool:
        job = replace(a_job(f"job{number}", uid=f"uid{number:05d}"), counted=True)
        try:
            return store.create(job, None, NOON, most=CROWD) is None
        except UnavailableError:
            return False

    with ThreadPoolExecutor(CROWD) as pool:
        created = [*pool.map(create, range(CROWD))]

    assert strict.acted("conflicts") > 0
    assert all(created) != planted


@as_is
def test_children_that_are_created_together(
    system: Deployment, strict: StandInThread, monkeypatch: pytest.MonkeyPatch, *, planted: bool
) -> None:
    """Each of a batch is added to their parent, ten at a time."""
    if planted:
        monkeypatch.setattr(job_edges, "_TRIES", 1)
        monkeypatch.setattr(job_edges, "Lock", nullcontext)
    system.register(jobId="parent")
    strict.enforce("conflicts", transaction_ms=10)
    child = {"type": "AFTER", "after": [{"job": "parent"}], "target": {"handler": "hello"}}
    jobs = [child | {"jobId": f"child{number}"} for number in range(20)]

    answer = system.call("POST", "/v1/jobs:batch", {"jobs": jobs})

    statuses = {each["status"] for each in answer.document["results"]}
    assert statuses == ({201, 503} if planted else {201})


@as_is
def test_a_receive_whose_response_is_lost(
    system: Deployment, strict: StandInThread, monkeypatch: pytest.MonkeyPatch, *, planted: bool
) -> None:
    """The next one gets the messages, which would otherwise be hidden for a lease."""
    inbox = sqs_inbox(system.queue_url)

    def receive() -> int:
        if planted:
            monkeypatch.setattr(inbox, "_unanswered", None)
        return len(inbox.receive(1, wait=timedelta(), hidden_for=timedelta(seconds=60)))

    send(system, system.register())
    strict.enforce("resets", "receive-ids", reset_chance=1)
    for _ in range(_UNTIL_IT_HAS_AN_EFFECT):
        with pytest.raises(UnavailableError):
            receive()

    strict.enforce("receive-ids")
    assert receive() == (0 if planted else 1)


@as_is
@boto3_only
def test_a_service_that_is_down(
    system: Deployment, strict: StandInThread, monkeypatch: pytest.MonkeyPatch, *, planted: bool
) -> None:
    """S3 does not answer before the script has started: that is not an attempt of the job."""

    def counted(reason: str, **_: Any) -> AttemptResult:
        return AttemptResult(Result(AttemptOutcome.FAILED, reason))

    system.upload("print('ran')")
    job = system.register(retryPolicy={"maxAttempts": 1})
    message = send(system, job)
    messages = system.receive()
    if planted:
        monkeypatch.setattr(AttemptResult, "failed", counted)
    strict.enforce("outage", outages=["s3"])

    system.execute(messages)

    strict.enforce()
    assert strict.acted("outage") > 0
    assert system.run(message).state is (RunState.DEAD if planted else RunState.PENDING)


@as_is
@boto3_only
def test_a_claim_that_is_throttled(
    system: Deployment, strict: StandInThread, monkeypatch: pytest.MonkeyPatch, *, planted: bool
) -> None:
    """The message of a run that could not be claimed returns after seconds, not after a lease."""
    lease = timedelta(seconds=30)
    queues = Proxy(system.queues)
    monkeypatch.setattr(executor, "sqs", lambda: queues)
    if planted:
        monkeypatch.setattr(message_batch, "_again_after", lambda _message: lease)
    message = send(system, system.register())
    messages = system.receive()
    strict.enforce("throughput", scale=1 / limit("partition-write"))
    _use_up_partition(system, message)

    reported = system.execute(messages)

    assert strict.acted("throughput") > 0
    assert len(reported) == 1
    assert (hidings(queues)[-1] >= lease.total_seconds()) == planted


def _use_up_partition(system: Deployment, message: RunMessage) -> None:
    """Write an item of 300 units to the partition of the run: nothing is left for minutes."""
    store = DynamoDbRunStore(system.database, table=system.runs_table)
    assert store.get(message.key) is None
    item: Any = {"job": {"S": f"{message.tenant}#{message.job_id}"}, "run_id": {"S": "0"}}
    item["text"] = {"S": "x" * 300_000}
    system.database.put_item(TableName=system.runs_table, Item=item)


@pytest.mark.parametrize(
    ("shared", "stops"),
    [
        pytest.param(lambda: share(10, groups=1, pools=1), False, id="as-is"),
        pytest.param(lambda: ConcurrencyShares(None, None, None, pool=50), True, id="planted"),
    ],
)
def test_executors_that_use_up_the_account(
    shared: Callable[[], ConcurrencyShares], *, stops: bool
) -> None:
    """In an account with 10 executions, executors leave enough for watchers, the API and a batch
    of the projector.
    """
    tested = bench("concurrency")
    executors = [("lambda", "RequestResponse", {"n": n}) for n in range(shared().pool)]
    others: list[Any] = [("lambda", "RequestResponse", {"watcher": n}) for n in range(3)]
    others += [("lambda", "RequestResponse", {"api": n}) for n in range(2)]
    others += [("lambda", "RequestResponse", {"projector": 0})]
    answers = tested.calls(*executors, *others)
    assert any(answer.status == 429 for answer in answers[len(executors) :]) == stops


@as_is
def test_a_mass_failure_of_a_tenant(monkeypatch: pytest.MonkeyPatch, *, planted: bool) -> None:
    """The index of dead runs has several partitions for each tenant: one that is throttled refuses
    the outcomes of runs.
    """
    if planted:
        monkeypatch.setattr(run_items, "DEAD_SHARDS", 1)
    tested = bench("throughput", scale=0.1)
    keys = [run_key(job_id=f"job{number}") for number in range(200)]
    died = [replace(a_run(RunState.DEAD, finished_at=NOON), key=key) for key in keys]
    outcomes: list[Any] = [
        ("dynamodb", "PutItem", put(run.key.job.job_id, attention=encode_run(run)["attention"]))
        for run in died
    ]

    answers = tested.calls(*outcomes)

    assert any(not answer.ok for answer in answers) == planted
