"""The contract of `DueStore`: items that do not decode, and their quarantine."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.domain.due import BrokenEntry, Slot, StoredEntry
from nextfire.domain.instants import to_ms
from tests.builders import NOON, a_fire, a_job, at, job_key, run_key
from tests.fakes import InlineExecutor
from tests.integration.backends import on_dynamodb
from tests.integration.races import ROUNDS, at_once
from tests.integration.tables import Tables
from tests.integration.test_contract_due_store.conftest import BROKEN, Held, entry_of, slot


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


def test_a_quarantined_item_is_kept_where_no_watcher_reads(held: Held) -> None:
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
