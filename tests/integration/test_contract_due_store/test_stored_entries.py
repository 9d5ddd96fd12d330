"""The contract of `DueStore`: the stored form of entries, which every version reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.domain.due import (
    BackfillEntry,
    BrokenEntry,
    DispatchEntry,
    DueEntry,
    FireEntry,
    ResumeEntry,
    StoredEntry,
)
from nextfire.domain.run import Trigger
from tests.builders import NOON, UID, a_fire, a_job, a_retry, at, job_key, run_key
from tests.fakes import InlineExecutor
from tests.integration.backends import on_dynamodb
from tests.integration.tables import Tables
from tests.integration.test_contract_due_store.conftest import Held, entry_of, jobs_of_shard


def test_every_kind_comes_back_as_it_was_put(held: Held) -> None:
    job_id = jobs_of_shard(0, 1)[0]
    firing = a_fire(a_job(job_id), at("12:00:01.25"))
    retry = a_retry(run_key(job_id=job_id), at("12:00:02"), dispatch=3, pool="batch")

    held.store.put([retry, firing], NOON)

    assert held.entries() == [firing, retry]


def test_of_two_forms_of_an_entry_that_are_put_together_the_last_one_stays(held: Held) -> None:
    entry = entry_of(0, NOON)

    held.store.put([replace(entry, held=True), entry], NOON)
    assert [each.held for each in held.entries()] == [False]
    held.store.put([entry, replace(entry, held=True)], NOON)
    assert [each.held for each in held.entries()] == [True]


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
        ("EXTRA", "1779624000000#uid00001#B#b#11", False),
        ("EXTRA", "1779624000000#uid00001#R#r#2", False),
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
