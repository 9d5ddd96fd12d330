"""The contract of `DueStore`: entries are put into, read from and deleted from buckets."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.domain.due import DueEntry, Slot, StoredEntry
from nextfire.domain.instants import to_ms
from tests.builders import NOON, a_fire, a_job, at
from tests.fakes import InlineExecutor
from tests.integration.backends import on_dynamodb
from tests.integration.tables import Tables
from tests.integration.test_contract_due_store.conftest import BROKEN, Held, entry_of, jobs_of_shard


def test_an_entry_is_in_the_bucket_of_its_minute_and_its_job_s_shard(held: Held) -> None:
    entry = entry_of(2, at("12:00:31"))

    assert held.store.put([entry], at("11:00")) == {entry}

    assert held.entries(NOON, 2) == [entry]
    assert [held.entries(NOON, shard) for shard in (0, 1, 3)] == [[], [], []]
    assert held.entries(at("12:01"), 2) == held.entries(at("11:00"), 2) == []


def test_an_entry_written_late_is_stored_where_it_will_be_read(held: Held) -> None:
    entry = entry_of(0, at("09:15"))

    held.store.put([entry], at("12:00:59"))

    (stored,) = held.read(NOON)
    assert isinstance(stored, StoredEntry)
    assert (stored.entry, stored.slot.bucket) == (entry, "2026-05-24T12:00Z#000")


def test_entries_are_read_by_due_instant_up_to_a_bound(held: Held) -> None:
    entries = [entry_of(0, NOON + timedelta(milliseconds=ms)) for ms in (9000, 10, 0, 2000, 1999)]
    held.store.put(entries, NOON)

    assert [to_ms(entry.at) - to_ms(NOON) for entry in held.entries()] == [0, 10, 1999, 2000, 9000]
    assert len(held.entries(before=at("12:00:02"))) == 3
    assert len(held.entries(before=at("12:00:02.001"))) == 4
    assert held.entries(before=NOON) == []


def test_entries_are_read_from_an_instant_on(held: Held) -> None:
    times = ["12:00:01", "12:00:02", "12:00:03"]
    job = a_job(jobs_of_shard(0, 1)[0])
    held.store.put([a_fire(job, at(time)) for time in times], NOON)

    found = held.store.read(NOON, 0, since=at("12:00:02"), before=at("12:00:03"), consistent=True)

    assert [stored.slot.sort_key for stored in found] == [a_fire(job, at(times[1])).sort_key]


def test_an_entry_put_twice_is_one(held: Held) -> None:
    entry = entry_of(0, NOON)

    assert held.store.put([entry, entry, replace(entry)], NOON) == {entry}
    assert held.store.put([entry], NOON) == {entry}

    assert held.entries() == [entry]


def test_nothing_is_put_for_nothing(held: Held) -> None:
    assert held.store.put([], NOON) == set()
    held.store.delete([])


def test_more_is_put_and_deleted_than_one_request_holds(held: Held) -> None:
    jobs = [a_job(job_id, uid=f"uid{n:05d}") for n, job_id in enumerate(jobs_of_shard(0, 60))]
    entries = [a_fire(job, NOON) for job in jobs]

    assert held.store.put(entries, NOON) == set(entries)
    found = held.read()
    assert len(found) == 60

    held.store.delete([stored.slot for stored in found[:55]])
    assert held.read() == found[55:]


def test_deleting_what_is_gone_is_harmless(held: Held) -> None:
    held.store.put([entry_of(0, NOON)], NOON)
    (stored,) = held.read()

    held.store.delete([stored.slot])
    held.store.delete([stored.slot])

    assert held.read() == []


@on_dynamodb
def test_a_bucket_of_more_than_a_page_is_read_to_its_end(tables: Tables) -> None:
    client = dynamodb()
    store = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
    padding = {"padding": {"S": "x" * 380_000}}  # a page ends at 1 MB
    for n in range(8):
        entry = a_fire(a_job(uid=f"uid{n:05d}"), NOON)
        item: Any = entry_item(entry, NOON, 1) | padding
        client.put_item(TableName=tables.due, Item=item)
    first_page = client.query(
        TableName=tables.due,
        KeyConditionExpression="#bucket = :bucket",
        ExpressionAttributeNames={"#bucket": "bucket"},
        ExpressionAttributeValues={":bucket": {"S": BROKEN}},
    )

    found = list(store.read(NOON, 0, before=at("12:00:01"), consistent=False))

    assert len(first_page["Items"]) < 8
    assert [stored.entry.uid for stored in found if isinstance(stored, StoredEntry)] == [
        f"uid{n:05d}" for n in range(8)
    ]


def test_slots_are_occupied_by_any_item(held: Held) -> None:
    jobs = [a_job(job_id, uid=f"uid{n:05d}") for n, job_id in enumerate(jobs_of_shard(0, 130))]
    entries = [a_fire(job, NOON) for job in jobs]
    held.store.put(entries, NOON)
    present = [Slot("2026-05-24T12:00Z#000", entry.sort_key) for entry in entries]
    broken = Slot("2026-05-24T12:00Z#001", "0000000000000#broken")
    held.spoil(broken, kind="?")
    absent = [slot._replace(bucket="2026-05-24T12:01Z#000") for slot in present[:3]]

    assert held.store.occupied([*present, broken, *absent, *present]) == {*present, broken}
    assert held.store.occupied(absent) == set()
    assert held.store.occupied([]) == set()


def test_an_entry_that_is_held_stays_where_it_was_and_says_so(held: Held) -> None:
    job, other = a_job(), a_job("other", uid="uid00002")
    entries = [a_fire(job, at("12:00:01")), a_fire(other, at("12:00:02"))]
    held.store.put(entries, NOON)
    shards = {entry.job.shard(4) for entry in entries}
    stored = [s for shard in shards for s in held.read(shard=shard) if isinstance(s, StoredEntry)]

    held.store.mark_held([each for each in stored if each.entry.job == job.key])

    again = [s for shard in shards for s in held.read(shard=shard) if isinstance(s, StoredEntry)]
    assert again == stored
    assert {s.entry.job: s.entry.held for s in again} == {job.key: True, other.key: False}


def test_an_entry_that_is_held_stays_it_when_it_is_moved(held: Held) -> None:
    entry = replace(a_fire(a_job(), at("12:00:01")), held=True)
    held.store.put([entry], at("12:07"))

    [moved] = held.entries(at("12:07"), entry.job.shard(4))

    assert moved.held


def test_entries_are_read_on_from_where_another_read_ended(held: Held) -> None:
    entries = [a_fire(a_job(uid=f"uid{n:05d}"), NOON) for n in range(7)]
    held.store.put(entries, NOON)
    shard, until = entries[0].job.shard(4), at("12:00:01")
    stored = held.read(shard=shard, before=until)
    assert len(stored) == 7

    read = partial(held.store.read, NOON, shard, before=until, consistent=True)
    assert [*read(after=stored[3].slot)] == stored[4:]
    held.store.delete([stored[3].slot])
    assert [*read(after=stored[3].slot)] == stored[4:], "whether that entry still exists or not"
    assert [*read(after=stored[6].slot)] == []


def test_nothing_is_held_of_nothing(held: Held) -> None:
    held.store.mark_held([])


@pytest.mark.parametrize("page", [None, 1, 2, 7])
@pytest.mark.parametrize("consistent", [False, True])
def test_the_size_of_a_page_changes_nothing_of_what_is_read(
    held: Held, page: int | None, *, consistent: bool
) -> None:
    entries = [a_fire(a_job(job_id), NOON) for job_id in jobs_of_shard(0, 3)]
    entries = [replace(entry, uid=f"uid{n:05d}") for n, entry in enumerate(entries)]
    entries += [entry_of(0, at(time)) for time in ("12:00:01", "12:00:02", "12:00:03")]
    held.store.put(entries, NOON)

    def read(**bounds: Any) -> list[DueEntry]:
        terms = {"before": None, "consistent": consistent, "page": page} | bounds
        found = held.store.read(NOON, 0, **terms)
        return [stored.entry for stored in found if isinstance(stored, StoredEntry)]

    assert read() == entries
    assert read(before=at("12:00:02")) == entries[:4]
    assert read(before=at("12:00:03"), since=at("12:00:01")) == entries[3:5]
    (_, second, *_) = held.read()
    assert read(before=at("12:00:03"), after=second.slot) == entries[2:5]
