"""Reads as their ports promise: consistent ones, and those that AWS leaves half done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.domain.due import Slot
from nextfire.domain.errors import UnavailableError, UndecodableError
from tests.builders import NOON, a_fire, a_job, a_message, job_key, run_key
from tests.integration.aws_requests.conftest import Adapters, FirstOnly, slot
from tests.integration.tables import Tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class OneAtATime:
    """A DynamoDB client that returns one item per query."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def query(self, **request: Any) -> Any:
        return self._client.query(**request | {"Limit": 1})


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
        (lambda a: a.runs.find([run_key()]), False),
        (lambda a: a.runs.find([run_key()], consistent=True), True),
        (lambda a: a.runs.list(job_key(), cursor=None, limit=1), False),
        (lambda a: a.joins.read(run_key(), [0]), True),
        (lambda a: a.joins.begun_sequences(job_key()), True),
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
        *("due.occupied", "runs.get", "runs.peek", "runs.between"),
        *("runs.find", "runs.find consistent", "runs.list"),
        *(
            "joins.read",
            "joins.begun_sequences",
            "jobs.counted",
            "keys.get",
            "keys.list",
            "control.taken_runs",
        ),
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
    keys = [run_key(job_id=f"job-{n}") for n in range(3)]
    for key in keys:
        whole.runs.cancel(a_message(key), reason="enough", now=NOON)

    found = sparing.jobs.get_many([*(job.key for job in jobs), job_key("absent")])
    assert found == {job.key: job for job in jobs}
    assert sparing.due.occupied([*slots, slot(1)]) == slots
    assert {run.key for run in sparing.runs.find(keys).items} == {*keys}
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
    with pytest.raises(UnavailableError, match="find runs: throttled"):
        throttled.runs.find([run_key()])


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


def test_a_job_of_no_uid_does_not_decode(dynamodb: DynamoDBClient, tables: Tables) -> None:
    jobs = Adapters(dynamodb, tables).jobs
    jobs.create(replace(a_job(), uid="UID"), None, NOON)

    with pytest.raises(UndecodableError):
        jobs.get(job_key())
