"""Details of AWS requests that emulators do not check: consistent reads, and retries of the
unprocessed part of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — to reject like AWS

from functions.api.request_record import RecordingJobStore, noting
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.fields import Writer, names
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.adapters.dynamodb.run_items import DEAD_SHARDS, RUNS_TABLE
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox, SqsRunQueue
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.due import BrokenEntry, Slot
from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.instants import to_ms
from nextfire.domain.retention import RETENTION
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, a_fire, a_job, a_key, a_message, a_retry, at, job_key, run_key
from tests.fakes import InlineExecutor
from tests.integration.tables import Tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1)
YEAR = timedelta(days=365)


class Adapters:
    """The stores, over one client."""

    def __init__(self, client: Any, tables: Tables) -> None:
        self.jobs = DynamoDbJobStore(client, table=tables.jobs, due_table=tables.due)
        self.due = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
        self.runs = DynamoDbRunStore(client, table=tables.runs)
        self.keys = DynamoDbKeyStore(client, table=tables.keys)
        self.control = DynamoDbControlStore(client, table=tables.control)


class FirstOnly:
    """A DynamoDB client that processes only the first item of each batch."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def batch_get_item(self, RequestItems: dict[str, Any]) -> Any:  # noqa: N803 — as AWS has it
        [(table, request)] = RequestItems.items()
        first, *rest = request["Keys"]
        answer = self._client.batch_get_item(RequestItems={table: request | {"Keys": [first]}})
        left = {table: request | {"Keys": rest}} if rest else {}
        return answer | {"UnprocessedKeys": left}

    def batch_write_item(self, RequestItems: dict[str, Any]) -> Any:  # noqa: N803 — as AWS has it
        [(table, (first, *rest))] = RequestItems.items()
        self._client.batch_write_item(RequestItems={table: [first]})
        return {"UnprocessedItems": {table: rest} if rest else {}}


class OneAtATime:
    """A DynamoDB client that returns one item per query."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def query(self, **request: Any) -> Any:
        return self._client.query(**request | {"Limit": 1})


class Noting:
    """A client that records requests and executes them."""

    def __init__(self, client: Any) -> None:
        self.asked: list[str] = []
        self._client = client

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._client, name)


def slot(n: int) -> Slot:
    return Slot("2026-05-24T12:00Z#000", f"000000000000{n}#x")


@pytest.mark.parametrize(
    ("read", "consistent"),
    [
        (lambda a: a.jobs.get(job_key()), True),
        (lambda a: a.jobs.scan(None, limit=1), True),
        (lambda a: a.jobs.get_many([job_key()]), False),
        (lambda a: a.jobs.list("acme", cursor=None, limit=1), False),
        (lambda a: [*a.due.read(NOON, 0, before=None, consistent=True)], True),
        (lambda a: [*a.due.read(NOON, 0, before=NOON, consistent=False)], False),
        (lambda a: a.due.occupied([slot(1)]), True),
        (lambda a: a.runs.get(run_key()), True),
        (lambda a: a.runs.peek(run_key()), False),
        (lambda a: [*a.runs.between(job_key(), "0", "9")], True),
        (lambda a: a.runs.list(job_key(), cursor=None, limit=1), False),
        (lambda a: a.jobs.counted("acme"), True),
        (lambda a: a.keys.get("acme", "k"), True),
        (lambda a: a.keys.list("acme", cursor=None, limit=1), True),
        (lambda a: a.control.taken_runs("acme", NOON), True),
        (lambda a: a.control.cursors([0]), True),
        (lambda a: a.control.audit(), True),
        (lambda a: a.control.lease(0), False),
    ],
    ids=[
        *("jobs.get", "jobs.scan", "jobs.get_many", "jobs.list", "due.read", "due.read at hand"),
        *("due.occupied", "runs.get", "runs.peek", "runs.between", "runs.list"),
        *("jobs.counted", "keys.get", "keys.list", "control.taken_runs"),
        *("control.cursors", "control.audit", "control.lease"),
    ],
)
def test_a_read_is_consistent_where_its_port_says_so(
    dynamodb: DynamoDBClient,
    tables: Tables,
    read: Callable[[Adapters], object],
    consistent: bool,  # noqa: FBT001 — a case of the table
) -> None:
    adapters = Adapters(dynamodb, tables)
    asked: list[bool] = []

    def note(params: dict[str, Any], **_: object) -> None:
        requests = params.get("RequestItems", {"": params}).values()
        asked.extend(request.get("ConsistentRead", False) for request in requests)

    dynamodb.meta.events.register("provide-client-params.dynamodb", note)
    try:
        read(adapters)
    finally:
        dynamodb.meta.events.unregister("provide-client-params.dynamodb", note)

    assert asked == [consistent]


def test_the_rest_of_a_batch_that_was_not_read_is_asked_for_again(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    whole, sparing = Adapters(dynamodb, tables), Adapters(FirstOnly(dynamodb), tables)
    entries = [a_fire(a_job(uid=f"uid{n:05d}"), NOON) for n in range(3)]
    whole.due.put(entries, NOON)
    slots = {Slot("2026-05-24T12:00Z#000", entry.sort_key) for entry in entries}
    whole.control.seed_cursors(3, NOON)
    jobs = [a_job(f"job-{n}", uid=f"uid{n:05d}") for n in range(3)]
    for job in jobs:
        whole.jobs.create(job, None, NOON)

    found = sparing.jobs.get_many([*(job.key for job in jobs), job_key("absent")])
    assert found == {job.key: job for job in jobs}
    assert sparing.due.occupied([*slots, slot(1)]) == slots
    assert sparing.control.cursors([0, 1, 2, 3]) == dict.fromkeys(range(3), NOON)


def test_a_key_that_stays_throttled_is_not_absent(dynamodb: DynamoDBClient, tables: Tables) -> None:
    class Throttling(FirstOnly):
        def batch_get_item(self, RequestItems: dict[str, Any]) -> Any:  # noqa: N803 — as AWS has it
            return {"Responses": {}, "UnprocessedKeys": RequestItems}

    throttled = Adapters(Throttling(dynamodb), tables)

    found = throttled.jobs.get_many([job_key()])
    assert {key: type(each) for key, each in found.items()} == {job_key(): UnavailableError}
    with pytest.raises(UnavailableError, match="check slots: throttled"):
        throttled.due.occupied([slot(1)])
    with pytest.raises(UnavailableError, match="read cursors: throttled"):
        throttled.control.cursors([0])


def test_ids_are_read_to_the_end_though_a_page_holds_few(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    whole = Adapters(dynamodb, tables)
    sparing: Any = OneAtATime(dynamodb)
    for job_id in ("a", "b", "c"):
        whole.jobs.create(a_job(job_id), None, NOON)
    jobs = DynamoDbJobStore(sparing, table=tables.jobs, due_table=tables.due)

    assert jobs.ids("acme", after=None, limit=9) == ["a", "b", "c"]
    assert jobs.ids("acme", after=None, limit=2) == ["a", "b"]


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

    there = [*whole.due.read(NOON, 0, before=at("12:01"), consistent=True)]
    assert len(stored) == 1 == len(there)
    assert whole.due.put(entries, NOON + timedelta(seconds=1)) == set(entries)


@pytest.mark.parametrize(
    ("to", "counted_from"),
    [
        (lambda run: run.ended(RunState.SUCCEEDED, FAILED, at("12:05")), at("12:05")),
        (lambda run: run.ended(RunState.DEAD, FAILED, at("12:05")), at("12:05")),
        (lambda run: run.retrying(FAILED, at("12:05"), not_before=NOON + YEAR), NOON + YEAR),
        (lambda run: run.retrying(FAILED, at("12:05"), not_before=NOON), at("12:05")),
        (
            lambda run: replace(
                run.ended(RunState.SUCCEEDED, FAILED, at("12:02")), kept=timedelta(days=20)
            ),
            at("12:02") - timedelta(days=70),
        ),
    ],
    ids=["succeeded", "dead", "retried in a year", "retried at once", "kept for 20 days"],
)
def test_a_record_is_kept_from_its_last_change_or_next_attempt_on_and_only_the_dead_are_listed(
    dynamodb: DynamoDBClient, tables: Tables, to: Callable[[Run], Run], counted_from: datetime
) -> None:
    runs = Adapters(dynamodb, tables).runs
    run = runs.claim(
        a_message(),
        token="t",
        worker="w",
        pool="default",
        job_revision=1,
        now=NOON,
        lease_until=at("12:01"),
    ).run

    changed = runs.advance(run, to(run)).run

    [item] = dynamodb.scan(TableName=tables.runs)["Items"]
    assert int(item["expires_at"]["N"]) * 1000 == to_ms(counted_from + RETENTION)
    assert ("attention" in item) is (changed.state is RunState.DEAD)


def test_a_job_of_no_uid_does_not_decode(dynamodb: DynamoDBClient, tables: Tables) -> None:
    jobs = Adapters(dynamodb, tables).jobs
    jobs.create(replace(a_job(), uid="UID"), None, NOON)

    with pytest.raises(UndecodableError):
        jobs.get(job_key())


class Refusing:
    """A client that records requests and rejects them."""

    def __init__(self, code: str) -> None:
        self.asked: list[str] = []
        self._error = ClientError({"Error": {"Code": code, "Message": ""}}, "Operation")

    def __getattr__(self, name: str) -> Any:
        def refuse(**_: object) -> None:
            self.asked.append(name)
            raise self._error

        return refuse


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


def test_unacknowledged_messages_of_a_batch_are_reported() -> None:
    class Half:
        def delete_message_batch(self, **_: object) -> Any:
            return {"Successful": [{"Id": "0"}], "Failed": [{"Id": "1", "Code": "Expired"}]}

    client: Any = Half()
    deliveries = [SqsDelivery(client, "url", "body", "handle", f"m{n}", "group") for n in range(2)]

    assert SqsInbox(client, queue_url="url").acknowledge(deliveries) == ["m1: Expired"]


def _die(runs: DynamoDbRunStore, number: int) -> Run:
    key = run_key(NOON + timedelta(seconds=number))
    run = runs.claim(
        a_message(key),
        token="t",
        worker="w",
        pool="default",
        job_revision=1,
        now=NOON,
        lease_until=at("12:01"),
    ).run
    return runs.advance(run, run.ended(RunState.DEAD, FAILED, at("12:05"))).run


def test_runs_of_one_job_that_die_together_are_spread_over_the_shards_of_the_index(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    runs = Adapters(dynamodb, tables).runs
    died = [_die(runs, number) for number in range(60)]

    entries = dynamodb.scan(TableName=tables.runs, IndexName="dead")["Items"]

    assert len({entry["attention"]["S"] for entry in entries}) == DEAD_SHARDS
    assert {*entries[0]} == {"attention", "attention_at", "job", "run_id"}
    listed: list[Run] = []
    cursor = None
    while not listed or cursor:
        page = runs.list_dead("acme", first=NOON, last=at("13:00"), cursor=cursor, limit=7)
        listed += page.items
        cursor = page.cursor
    assert listed == sorted(died, key=lambda run: run.key.execution_id, reverse=True)


def test_a_run_that_lives_again_is_not_listed_though_the_index_still_has_it(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    runs = DynamoDbRunStore(dynamodb, table=tables.runs, due_table=tables.due, shards=1)
    [dead, redriven] = (_die(runs, number) for number in range(2))
    entries = dynamodb.scan(TableName=tables.runs, IndexName="dead")["Items"]
    to = redriven.redriven("redriven", at("12:06"))
    assert runs.redrive(to, a_retry(to.key, at("12:06"), dispatch=to.dispatch), NOON).taken

    class Lagging:
        """A client whose index has not seen the redrive."""

        def query(self, **request: Any) -> Any:
            shard = request["ExpressionAttributeValues"][":shard"]
            return {"Items": [entry for entry in entries if entry["attention"] == shard]}

        def __getattr__(self, name: str) -> Any:
            return getattr(dynamodb, name)

    lagging = DynamoDbRunStore(cast("DynamoDBClient", Lagging()), table=tables.runs)
    page = lagging.list_dead("acme", first=NOON, last=at("13:00"), cursor=None, limit=7)

    assert page.items == [dead]


def test_an_executor_redrives_a_skipped_run_with_attributes_that_it_may_write(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    sent: list[Any] = []

    class Recording:
        def transact_write_items(self, **request: Any) -> Any:
            sent.append(request)
            return dynamodb.transact_write_items(**request)

        def __getattr__(self, name: str) -> Any:
            return getattr(dynamodb, name)

    client = cast("DynamoDBClient", Recording())
    runs = DynamoDbRunStore(client, table=tables.runs, due_table=tables.due, shards=1)
    skipped = runs.skip(Run.skipped(run_key(), "its parent failed", NOON))

    to = skipped.redriven("its parent succeeded", at("12:06"))
    entry = a_retry(to.key, at("12:06"), dispatch=to.dispatch)
    assert runs.redrive(to, entry, NOON, was=RunState.SKIPPED).taken

    update = sent[0]["TransactItems"][0]["Update"]
    used = {
        update["ExpressionAttributeNames"].get(word, word)
        for word in re.findall(
            r"(?<!:)#?\b\w+\b", f"{update['UpdateExpression']} {update['ConditionExpression']}"
        )
    }
    assert used & {*names(RUNS_TABLE)} <= {*names(RUNS_TABLE, of=Writer.EXECUTORS)}
