"""Writes and messages that AWS rejects or processes in part: repeated, split, or reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — to reject like AWS

from functions.api.request_record import RecordingJobStore, noting
from nextfire.adapters.aws.errors import TransactionConflictError
from nextfire.adapters.dynamodb.bucket_store import DynamoDbBucketStore
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.adapters.dynamodb.overview_store import DynamoDbSegmentStore
from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox, SqsRunQueue
from nextfire.domain.due import BrokenEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.overview import Head
from nextfire.domain.request_limits import RequestLimit
from tests.builders import NOON, a_fire, a_job, a_key, a_message, at, run_key
from tests.fakes import InlineExecutor
from tests.integration.aws_requests.conftest import Adapters, FirstOnly, Refusing, slot
from tests.integration.tables import Tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class Noting:
    """A client that records requests and executes them."""

    def __init__(self, client: Any) -> None:
        self.asked: list[str] = []
        self._client = client

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._client, name)


def test_a_job_that_the_sdk_writes_twice_is_noted_as_written(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    jobs = RecordingJobStore(DynamoDbJobStore(dynamodb, table=tables.jobs, due_table=tables.due))
    jobs.create(a_job(), None, NOON)

    with noting() as seen:
        jobs.create(a_job(), None, NOON)
        jobs.create(a_job(uid="uid00002"), None, NOON)
    with noting() as others:
        jobs.create(a_job(uid="uid00002"), None, NOON)

    assert (seen.written, others.written) == ({"report"}, set())


def test_a_job_without_a_due_entry_is_written_without_a_transaction(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    """A transaction of one write takes twice the units."""
    client: Any = Noting(dynamodb)
    jobs = DynamoDbJobStore(client, table=tables.jobs, due_table=tables.due, patient=True)
    job = a_job()
    changed = replace(job, revision=job.revision + 1)

    assert jobs.create(job, None, NOON) is None
    assert jobs.create(job, None, NOON) == job
    assert jobs.update(changed, None, NOON)
    assert jobs.update(changed, None, NOON), "the SDK repeats a write whose response is lost"
    assert not jobs.update(replace(changed, updated_at=at("13:00")), None, NOON)
    assert client.asked == ["put_item"] * 5


@pytest.mark.parametrize("patient", [True, False])
def test_a_job_that_a_transaction_is_writing_is_written_after_it(
    dynamodb: DynamoDBClient, tables: Tables, monkeypatch: pytest.MonkeyPatch, *, patient: bool
) -> None:
    class Conflicting(Noting):
        def put_item(self, **request: Any) -> Any:
            self.asked.append("put_item")
            if len(self.asked) == 1:
                error: Any = {"Code": "TransactionConflictException", "Message": ""}
                raise ClientError({"Error": error}, "PutItem")
            return dynamodb.put_item(**request)

    monkeypatch.setattr("time.sleep", lambda _: None)
    client: Any = Conflicting(dynamodb)
    jobs = DynamoDbJobStore(client, table=tables.jobs, due_table=tables.due, patient=patient)

    if not patient:
        with pytest.raises(TransactionConflictError):
            jobs.create(a_job(), None, NOON)
    assert jobs.create(a_job(), None, NOON) is None
    assert client.asked == ["put_item"] * 2


def test_a_key_that_is_ended_is_not_read_as_well(dynamodb: DynamoDBClient, tables: Tables) -> None:
    key, client = a_key(), Noting(dynamodb)
    Adapters(dynamodb, tables).keys.create(key)
    noted: Any = client

    ended = DynamoDbKeyStore(noted, table=tables.keys).end(key.tenant, key.key_id, at("13:00"))

    assert ended is not None
    assert client.asked == ["update_item"]


def test_unwritten_items_of_a_batch_are_reported(dynamodb: DynamoDBClient, tables: Tables) -> None:
    whole, sparing = Adapters(dynamodb, tables), Adapters(FirstOnly(dynamodb), tables)
    entries = [a_fire(a_job(uid=f"uid{n:05d}"), NOON) for n in range(3)]

    stored = sparing.due.put(entries, NOON)

    present = [*whole.due.read(NOON, 0, before=at("12:01"), consistent=True)]
    assert len(stored) == 1 == len(present)
    assert whole.due.put(entries, NOON + timedelta(seconds=1)) == set(entries)


def test_runs_are_taken_only_if_their_count_says_so() -> None:
    """A count that cannot be written is not restarted."""
    client: Any = Refusing("NeverHeardOf")

    with pytest.raises(ClientError):
        DynamoDbControlStore(client, table="control").take_runs("acme", NOON, 1, 1)

    assert client.asked == ["update_item"]


def test_a_minute_that_cannot_be_begun_is_reported() -> None:
    class NoMinuteYet(Refusing):
        def update_item(self, **_: object) -> None:
            error: Any = {"Code": "ConditionalCheckFailedException", "Message": ""}
            raise ClientError({"Error": error}, "Operation")

    client: Any = NoMinuteYet("NeverHeardOf")

    with pytest.raises(ClientError, match="NeverHeardOf"):
        DynamoDbControlStore(client, table="control").take_runs("acme", NOON, 1, 1)

    assert client.asked == ["put_item"]


@pytest.mark.parametrize(
    ("code", "singles"), [("ThrottlingException", 0), ("ValidationException", 3)]
)
def test_a_batch_is_tried_one_by_one_unless_there_is_too_much_to_do_already(
    code: str, singles: int
) -> None:
    client: Any = Refusing(code)
    due = DynamoDbDueStore(client, table="due", shards=1, executor=InlineExecutor())
    queue = SqsRunQueue(client, queues={"default": "url"}, executor=InlineExecutor())

    due.put([a_fire(a_job(uid=f"uid{n:05d}"), NOON) for n in range(3)], NOON)
    queue.send([("default", a_message(run_key(uid=f"uid{n:05d}"))) for n in range(3)])

    assert client.asked == [
        *("batch_write_item", *["put_item"] * singles),
        *("send_message_batch", *["send_message"] * singles),
    ]


def test_an_entry_alone_is_written_as_those_may_who_write_only_one() -> None:
    """The roles of the API and of executors do not allow BatchWriteItem."""
    client: Any = Refusing("ThrottlingException")
    due = DynamoDbDueStore(client, table="due", shards=1, executor=InlineExecutor())

    due.put([a_fire(a_job(), NOON)], NOON)
    due.delete([slot(1)])

    assert client.asked == ["put_item", "delete_item"]


def test_a_broken_entry_stays_where_it_is_unless_a_copy_is_kept() -> None:
    client: Any = Refusing("ThrottlingException")
    due = DynamoDbDueStore(client, table="due", shards=1, executor=InlineExecutor())

    with pytest.raises(UnavailableError):
        due.quarantine(BrokenEntry(slot(1), {}, "for the test", None, None), NOON)

    assert client.asked == ["put_item"]


@pytest.mark.parametrize("change", [SqsInbox.acknowledge, SqsInbox.show])
def test_messages_of_a_batch_that_were_not_changed_are_reported(
    change: Callable[[SqsInbox, Sequence[SqsDelivery]], list[str]],
) -> None:
    class Half:
        def delete_message_batch(self, **_: object) -> Any:
            return {"Successful": [{"Id": "0"}], "Failed": [{"Id": "1", "Code": "Expired"}]}

        change_message_visibility_batch = delete_message_batch

    client: Any = Half()
    deliveries = [SqsDelivery(client, "url", "body", "handle", f"m{n}", "group") for n in range(2)]

    assert change(SqsInbox(client, queue_url="url"), deliveries) == ["m1: Expired"]


@pytest.mark.parametrize(
    "write",
    [
        lambda client: DynamoDbBucketStore(client, table="requests").take(
            "acme", RequestLimit(10, 20), 1, NOON
        ),
        lambda client: DynamoDbSegmentStore(client, table="overview").replace_head(
            "acme", None, Head("first", 0, 1000, 2000, 500, 900, 1000), []
        ),
    ],
    ids=["buckets.take", "segments.replace_head"],
)
def test_an_error_is_not_taken_for_a_lost_race(write: Callable[[Any], object]) -> None:
    with pytest.raises(ClientError, match="NeverHeardOf"):
        write(Refusing("NeverHeardOf"))
