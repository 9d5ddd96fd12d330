"""The contract of `DueStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.table import DUE
from nextfire.domain.due import (
    BackfillEntry,
    BrokenEntry,
    DispatchEntry,
    DueEntry,
    FireEntry,
    ResumeEntry,
    Slot,
    StoredEntry,
)
from nextfire.domain.instants import to_ms
from nextfire.domain.ports.due import DueStore
from nextfire.domain.run import Trigger
from tests.builders import NOON, UID, a_fire, a_job, a_retry, at, job_key, run_key
from tests.fakes import InlineExecutor, MemoryDueStore
from tests.integration.backends import DYNAMODB, MEMORY, SQLITE, on_dynamodb
from tests.integration.conftest import Tables
from tests.integration.races import ROUNDS, at_once
from tests.integration.sqlite_file import put

CONTRACT_OF = (DueStore,)
QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Held:
    """A store of four shards, with access that no port offers."""

    store: DueStore
    spoil: Callable[..., object]
    quarantined: Callable[[], list[str]]

    def read(
        self, minute: datetime = NOON, shard: int = 0, *, before: datetime | None = None
    ) -> list[StoredEntry | BrokenEntry]:
        return list(self.store.read(minute, shard, before=before, consistent=True))

    def entries(
        self, minute: datetime = NOON, shard: int = 0, *, before: datetime | None = None
    ) -> list[DueEntry]:
        found = self.read(minute, shard, before=before)
        assert all(isinstance(stored, StoredEntry) for stored in found)
        return [stored.entry for stored in found if isinstance(stored, StoredEntry)]


@pytest.fixture(params=(MEMORY, SQLITE, *DYNAMODB))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemoryDueStore(shards=4)
        return Held(
            memory,
            memory.spoil,
            lambda: [f"{e.slot.bucket}/{e.slot.sort_key}" for e in memory.quarantined],
        )
    if backend == SQLITE:
        database = request.getfixturevalue("database")

        def kept() -> list[str]:
            with database.reading("test") as connection:
                items = DUE.query(connection, QUARANTINE, limit=9)
            assert all("error" in item and "quarantined_at" in item for item in items)
            return [item["entry"]["S"] for item in items]

        return Held(
            SqliteDueStore(database, shards=4),
            lambda slot, **values: put(
                database, DUE, **{"bucket": slot.bucket, "entry": slot.sort_key} | values
            ),
            kept,
        )
    table = request.getfixturevalue("tables").due
    client = dynamodb()

    def spoil(slot: Slot, **values: str) -> None:
        item = {"bucket": slot.bucket, "entry": slot.sort_key} | values
        client.put_item(TableName=table, Item={name: {"S": text} for name, text in item.items()})

    def quarantined() -> list[str]:
        answer = client.query(
            TableName=table,
            KeyConditionExpression="#bucket = :bucket",
            ExpressionAttributeNames={"#bucket": "bucket"},
            ExpressionAttributeValues={":bucket": {"S": QUARANTINE}},
        )
        assert all("error" in item and "quarantined_at" in item for item in answer["Items"])
        return [item["entry"]["S"] for item in answer["Items"]]

    store = DynamoDbDueStore(client, table=table, shards=4, executor=InlineExecutor())
    return Held(store, spoil, quarantined)


def jobs_of_shard(shard: int, count: int) -> list[str]:
    """The ids of some jobs whose entries are in *shard* of four."""
    ids = (f"job{n}" for n in range(100_000))
    found = (job_id for job_id in ids if job_key(job_id).shard(4) == shard)
    return [next(found) for _ in range(count)]


def entry_of(shard: int, due_at: datetime) -> FireEntry:
    return a_fire(a_job(jobs_of_shard(shard, 1)[0]), due_at)


def test_an_entry_lies_in_the_bucket_of_its_minute_and_its_job_s_shard(held: Held) -> None:
    entry = entry_of(2, at("12:00:31"))

    assert held.store.put([entry], at("11:00")) == {entry}

    assert held.entries(NOON, 2) == [entry]
    assert [held.entries(NOON, shard) for shard in (0, 1, 3)] == [[], [], []]
    assert held.entries(at("12:01"), 2) == held.entries(at("11:00"), 2) == []


def test_an_entry_written_late_lies_where_it_will_be_read(held: Held) -> None:
    entry = entry_of(0, at("09:15"))

    held.store.put([entry], at("12:00:59"))

    (stored,) = held.read(NOON)
    assert isinstance(stored, StoredEntry)
    assert (stored.entry, stored.slot.bucket) == (entry, "2026-05-24T12:00Z#000")


def test_every_kind_comes_back_as_it_was_put(held: Held) -> None:
    job_id = jobs_of_shard(0, 1)[0]
    firing = a_fire(a_job(job_id), at("12:00:01.25"))
    retry = a_retry(run_key(job_id=job_id), at("12:00:02"), dispatch=3, pool="batch")

    held.store.put([retry, firing], NOON)

    assert held.entries() == [firing, retry]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_an_entry_s_rank_comes_back(held: Held, rank: int) -> None:
    entry = replace(entry_of(0, NOON), rank=rank)

    held.store.put([entry], NOON)

    assert held.entries() == [entry]


def test_the_end_of_a_pause_comes_back_as_it_was_put(held: Held) -> None:
    job = a_job(jobs_of_shard(0, 1)[0])
    entry = ResumeEntry(job.key, job.uid, NOON)

    held.store.put([entry, entry_of(0, NOON)], NOON)

    assert entry in held.entries()


def test_how_far_a_backfill_has_come_comes_back(held: Held) -> None:
    job = a_job(jobs_of_shard(0, 1)[0])
    entry = BackfillEntry(job.key, job.uid, NOON, "b", ordinal=11)

    held.store.put([entry, entry_of(0, NOON)], NOON)

    assert entry in held.entries()


@on_dynamodb
@pytest.mark.parametrize(
    ("kind", "key", "foreign"),
    [
        ("EXTRA", "1779624000000#uid00001#X#1", True),
        ("EXTRA", "1779624000000#uid00001#X", True),
        ("EXTRA", "1779624000000#uid00001#F#1", False),
        ("EXTRA", "1779624000000#uid00001#P", False),
        ("EXTRA", "x", False),
        ("FIRE", "1779624000000#uid00001#X#1", False),
    ],
)
def test_items_of_another_version_are_recognized(
    tables: Tables,
    kind: str,
    key: str,
    foreign: bool,  # noqa: FBT001
) -> None:
    item: Any = {"bucket": "2026-05-24T12:00Z#000", "entry": key, "kind": kind}
    client = dynamodb()
    client.put_item(TableName=tables.due, Item={n: {"S": v} for n, v in item.items()})
    store = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
    (found,) = store.read(NOON, 0, before=None, consistent=True)
    assert isinstance(found, BrokenEntry)
    assert found.foreign is foreign


RUN_ID = f"20260524T120000000Z-{UID}"
JOB = {"tenant": {"S": "acme"}, "job_id": {"S": "report"}, "uid": {"S": UID}}
STORED: list[tuple[DueEntry, dict[str, Any]]] = [
    (
        FireEntry(job_key(), UID, NOON, 3),
        {"kind": {"S": "FIRE"}, "entry": {"S": f"1779624000000#{UID}#F#3"}, "version": {"N": "3"}},
    ),
    (
        FireEntry(job_key(), UID, NOON, 3, at("11:59"), 7, rank=0, held=True),
        {
            "kind": {"S": "FIRE"},
            "entry": {"S": f"1779624000000#{UID}#F#3#1779623940000"},
            "version": {"N": "3"},
            "occurs_at": {"N": "1779623940000"},
            "ordinal": {"N": "7"},
            "rank": {"N": "0"},
            "held": {"BOOL": True},
        },
    ),
    (
        DispatchEntry(job_key(), UID, NOON, RUN_ID, 2, "default"),
        {
            "kind": {"S": "RETRY"},
            "entry": {"S": f"1779624000000#{UID}#R#{RUN_ID}#2"},
            "run_id": {"S": RUN_ID},
            "dispatch": {"N": "2"},
            "pool": {"S": "default"},
        },
    ),
    (
        DispatchEntry(
            job_key(), UID, NOON, RUN_ID, 1, "batch", exclusive=True, trigger=Trigger.MANUAL
        ),
        {
            "kind": {"S": "RETRY"},
            "entry": {"S": f"1779624000000#{UID}#R#{RUN_ID}#1"},
            "run_id": {"S": RUN_ID},
            "dispatch": {"N": "1"},
            "pool": {"S": "batch"},
            "exclusive": {"BOOL": True},
            "trigger": {"S": "MANUAL"},
        },
    ),
    (
        ResumeEntry(job_key(), UID, NOON),
        {"kind": {"S": "RESUME"}, "entry": {"S": f"1779624000000#{UID}#P"}},
    ),
    (
        BackfillEntry(job_key(), UID, NOON, "b", 11),
        {
            "kind": {"S": "BACKFILL"},
            "entry": {"S": f"1779624000000#{UID}#B#b#11"},
            "request": {"S": "b"},
            "ordinal": {"N": "11"},
        },
    ),
]


@on_dynamodb
@pytest.mark.parametrize(("entry", "own"), STORED)
def test_the_stored_form_of_each_type_does_not_change(
    tables: Tables, entry: DueEntry, own: dict[str, Any]
) -> None:
    """Versions that run at the same time read each other's items."""
    item: Any = {"bucket": {"S": "2026-05-24T12:00Z#000"}, **JOB, **own}

    assert entry_item(entry, NOON, 1) == item

    client = dynamodb()
    client.put_item(TableName=tables.due, Item=item)
    store = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
    [found] = store.read(NOON, 0, before=None, consistent=True)
    assert isinstance(found, StoredEntry)
    assert (found.entry, found.entry.held) == (entry, entry.held)


@pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.BACKFILL])
def test_the_first_dispatch_of_what_was_asked_for_says_so(held: Held, trigger: Trigger) -> None:
    run = run_key(job_id=jobs_of_shard(0, 1)[0])
    entry = replace(a_retry(run, NOON, dispatch=1), trigger=trigger)

    held.store.put([entry], NOON)

    assert held.entries() == [entry]
    assert "trigger" not in entry_item(a_retry(run, NOON), NOON, 4)


def test_a_retry_says_that_its_job_s_runs_are_exclusive(held: Held) -> None:
    run = run_key(job_id=jobs_of_shard(0, 1)[0])
    entry = replace(a_retry(run, NOON), rank=0, exclusive=True)

    held.store.put([entry], NOON)

    assert held.entries() == [entry]


def test_an_entry_of_normal_rank_is_as_small_as_ever() -> None:
    """An entry that was stored before there were ranks reads as it did."""
    plain, ranked = entry_of(0, NOON), replace(entry_of(0, NOON), rank=0)

    assert {*entry_item(ranked, NOON, 4)} - {*entry_item(plain, NOON, 4)} == {"rank"}
    assert "exclusive" not in entry_item(a_retry(run_key(), NOON), NOON, 4)


def test_a_retry_of_no_version_says_nothing_of_versions() -> None:
    assert "version" not in entry_item(a_retry(run_key(), NOON), NOON, 4)


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


BROKEN = "2026-05-24T12:00Z#000"


def slot(due_at: datetime, tail: str = "x") -> Slot:
    return Slot(BROKEN, f"{to_ms(due_at):013d}#{tail}")


def test_undecodable_items_are_reported_with_their_readable_parts(held: Held) -> None:
    good = entry_of(0, at("12:00:02"))
    held.store.put([good], NOON)
    held.spoil(slot(at("12:00:01")), tenant="acme", job_id="report", kind="FLY")
    held.spoil(slot(at("12:00:03")), tenant="acme", job_id="no/id")
    held.spoil(Slot(BROKEN, "when?"), job_id="report")

    first, second, third, fourth = held.read()

    assert isinstance(first, BrokenEntry)
    assert (first.at, first.job) == (at("12:00:01"), job_key("report"))
    assert first.error
    assert second == StoredEntry(Slot(BROKEN, good.sort_key), good)
    assert isinstance(third, BrokenEntry)
    assert (third.at, third.job) == (at("12:00:03"), None)
    assert isinstance(fourth, BrokenEntry)
    assert (fourth.at, fourth.job) == (None, None)


def test_a_quarantined_item_is_kept_where_nobody_reads(held: Held) -> None:
    held.spoil(slot(NOON), tenant="acme", job_id="report", note="precious")
    (broken,) = held.read()
    assert isinstance(broken, BrokenEntry)

    held.store.quarantine(broken, NOON)
    held.store.quarantine(broken, NOON)

    assert held.read() == []
    assert set(held.quarantined()) == {f"{BROKEN}/{broken.slot.sort_key}"}


def test_a_copy_of_an_item_is_kept_while_it_stays_where_it_is(held: Held) -> None:
    held.spoil(slot(NOON), tenant="acme", job_id="report", note="precious")
    (broken,) = held.read()
    assert isinstance(broken, BrokenEntry)

    held.store.keep(broken, NOON)

    assert held.read() == [broken]
    assert held.quarantined() == [f"{BROKEN}/{broken.slot.sort_key}"]
    held.store.quarantine(broken, NOON)
    assert held.read() == []
    assert held.quarantined() == [f"{BROKEN}/{broken.slot.sort_key}"]


def test_a_sound_entry_in_the_slot_of_a_quarantined_one_stays(held: Held) -> None:
    entry = entry_of(0, NOON)
    held.store.put([entry], NOON)
    (stored,) = held.read()
    held.spoil(stored.slot, tenant="acme", job_id="report")
    (broken,) = held.read()
    assert isinstance(broken, BrokenEntry)
    held.store.put([entry], NOON)

    held.store.quarantine(broken, NOON)

    assert held.entries() == [entry]
    assert len(held.quarantined()) == 1


def test_an_entry_that_has_what_the_broken_one_lacks_stays(held: Held) -> None:
    """It differs from the broken entry only in additional attributes."""
    entry = entry_of(0, NOON)
    where = Slot(BROKEN, entry.sort_key)
    fields = {"kind": "FIRE", "tenant": "acme", "job_id": entry.job.job_id, "uid": entry.uid}
    held.spoil(where, **fields)
    (broken,) = held.read()
    assert isinstance(broken, BrokenEntry)
    held.store.put([entry], NOON)

    held.store.quarantine(broken, NOON)

    assert held.entries() == [entry]


def test_an_item_whose_key_is_as_long_as_may_be_is_kept_too(held: Held) -> None:
    long = [Slot(BROKEN, f"{to_ms(NOON):013d}#{mark * 1000}") for mark in "xy"]
    other = Slot("2026-05-24T12:01Z#000", long[0].sort_key)
    for where in (*long, other):
        held.spoil(where, tenant="acme", job_id="report")
    found = [*held.read(), *held.read(at("12:01"))]

    for broken in found:
        assert isinstance(broken, BrokenEntry)
        held.store.quarantine(broken, NOON)

    kept = held.quarantined()
    assert len(set(kept)) == len(kept) == 3
    assert sorted(each.partition("/")[0] for each in kept) == [BROKEN, BROKEN, other.bucket]


def test_an_entry_that_is_put_while_its_slot_is_quarantined_stays(held: Held) -> None:
    for n in ROUNDS:
        entry = entry_of(0, NOON + timedelta(milliseconds=n))
        where = Slot(BROKEN, entry.sort_key)
        held.spoil(where, tenant="acme", job_id="report")
        (broken,) = [each for each in held.read() if each.slot == where]
        assert isinstance(broken, BrokenEntry)

        at_once(
            partial(held.store.put, [entry], NOON),
            partial(held.store.quarantine, broken, NOON),
        )

        assert StoredEntry(where, entry) in held.read()


POISON = {
    "tenant": {"tenant": ""},
    "slash": {"tenant": "ac/me"},
    "job": {"job_id": ""},
    "uid": {"uid": "UID"},
    "run of another job": {"run_id": "20260524T120000000Z-uid00002"},
    "run": {"run_id": "yesterday"},
    "run of no date": {"run_id": "99999999T999999999Z-uid00001"},
    "dispatch": {"dispatch": "0"},
    "pool": {"pool": ""},
}


@on_dynamodb
@pytest.mark.parametrize("values", POISON.values(), ids=POISON)
def test_an_entry_that_no_message_could_be_made_of_does_not_decode(
    tables: Tables, values: dict[str, str]
) -> None:
    client = dynamodb()
    store = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
    fields = {"kind": "RETRY", "tenant": "acme", "job_id": "report", "uid": "uid00001"}
    fields |= {"run_id": run_key().run_id, "pool": "default", "dispatch": "2"} | values
    sort_key = f"{to_ms(NOON):013d}#{fields['uid']}#R#{fields['run_id']}#{fields['dispatch']}"
    item: Any = {name: {"S": text} for name, text in fields.items()}
    item["dispatch"] = {"N": fields["dispatch"]}
    client.put_item(
        TableName=tables.due, Item=item | {"bucket": {"S": BROKEN}, "entry": {"S": sort_key}}
    )

    (found,) = store.read(NOON, 0, before=None, consistent=True)

    assert isinstance(found, BrokenEntry)


@on_dynamodb
def test_an_entry_of_no_uid_does_not_decode(tables: Tables) -> None:
    client = dynamodb()
    store = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
    store.put([replace(a_fire(a_job(), NOON), uid="UID")], NOON)

    (found,) = store.read(NOON, 0, before=None, consistent=True)

    assert isinstance(found, BrokenEntry)


@on_dynamodb
def test_an_entry_that_differs_from_the_broken_one_in_its_ordinal_only_stays(
    tables: Tables,
) -> None:
    client = dynamodb()
    store = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
    entry = replace(a_fire(a_job(), NOON), ordinal=3)
    item: Any = entry_item(entry, NOON, 1) | {"ordinal": {"N": "0"}}
    client.put_item(TableName=tables.due, Item=item)
    (broken,) = store.read(NOON, 0, before=None, consistent=True)
    assert isinstance(broken, BrokenEntry)
    store.put([entry], NOON)

    store.quarantine(broken, NOON)

    (found,) = store.read(NOON, 0, before=None, consistent=True)
    assert isinstance(found, StoredEntry)
    assert found.entry == entry


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


def test_slots_are_occupied_by_whatever_lies_there(held: Held) -> None:
    jobs = [a_job(job_id, uid=f"uid{n:05d}") for n, job_id in enumerate(jobs_of_shard(0, 130))]
    entries = [a_fire(job, NOON) for job in jobs]
    held.store.put(entries, NOON)
    there = [Slot("2026-05-24T12:00Z#000", entry.sort_key) for entry in entries]
    broken = Slot("2026-05-24T12:00Z#001", "0000000000000#broken")
    held.spoil(broken, kind="?")
    absent = [slot._replace(bucket="2026-05-24T12:01Z#000") for slot in there[:3]]

    assert held.store.occupied([*there, broken, *absent, *there]) == {*there, broken}
    assert held.store.occupied(absent) == set()
    assert held.store.occupied([]) == set()


def test_an_entry_that_is_held_lies_where_it_lay_and_says_so(held: Held) -> None:
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
