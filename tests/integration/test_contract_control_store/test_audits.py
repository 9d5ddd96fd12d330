"""The contract of `ControlStore`: the state of audits."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.items import to_item
from nextfire.domain.audit_pass import Audit, next_audit
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.zones import release
from tests.builders import NOON, at, job_key
from tests.integration.backends import on_dynamodb
from tests.integration.test_contract_control_store.conftest import DAY

AUDITS = [
    Audit(NOON),
    Audit(NOON, since=at("11:00"), after=job_key()),
    Audit(NOON, since=at("11:00"), done=True),
    Audit(NOON, zones="2026a", zones_since=at("10:00")),
]


def test_there_is_no_audit_at_first(store: ControlStore) -> None:
    assert store.audit() is None


def test_parts_of_an_audit_are_kept_apart_from_it(store: ControlStore) -> None:
    whole = Audit(NOON, after=job_key("job1"))
    part = Audit(NOON, NOON, after=job_key("job1"), end=job_key("job9"))
    assert store.replace_audit(None, whole)
    assert store.audit(0) is None
    assert store.replace_audit(None, part, 0)
    assert not store.replace_audit(None, whole, 0)

    assert (store.audit(), store.audit(0), store.audit(1)) == (whole, part, None)
    assert store.replace_audit(part, part.moved(None), 0)
    assert store.audit(0) == part.moved(None)


def test_an_audit_is_kept_as_it_is(store: ControlStore) -> None:
    was = None
    for audit in AUDITS:
        assert store.replace_audit(was, audit)
        assert store.audit() == audit
        was = audit


@pytest.mark.parametrize("stored", AUDITS)
def test_only_the_audit_that_is_stored_can_be_replaced(store: ControlStore, stored: Audit) -> None:
    store.replace_audit(None, stored)
    to = Audit(at("13:00"))

    for was in (None, *AUDITS):
        if was != stored:
            assert not store.replace_audit(was, to)
    assert store.audit() == stored
    assert store.replace_audit(stored, to)
    assert store.replace_audit(stored, to), "a repetition finds its own success"
    assert store.audit() == to


@pytest.mark.parametrize("was", [None, AUDITS[0]], ids=["first", "next"])
def test_of_twenty_concurrent_auditors_one_continues(
    store: ControlStore, was: Audit | None
) -> None:
    if was is not None:
        store.replace_audit(None, was)
    audits = [Audit(at("13:00"), after=job_key(f"job{n}")) for n in range(20)]

    with ThreadPoolExecutor(20) as threads:
        won = list(threads.map(lambda audit: store.replace_audit(was, audit), audits))

    assert won.count(True) == 1
    assert store.audit() == audits[won.index(True)]


@on_dynamodb
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"started_at": "noon", "done": True},
        {"started_at": "2026-05-24T12:00:00Z", "done": "yes"},
        {"started_at": "2026-05-24T12:00:00Z", "done": False, "tenant": "acme"},
        {"started_at": "2026-05-24T12:00:00Z", "done": False, "tenant": 5, "job_id": "x"},
    ],
)
def test_an_audit_that_does_not_decode_is_over_and_is_replaced_by_one_who_has_seen_it(
    tables: Any, values: Mapping[str, object]
) -> None:
    client = dynamodb()
    client.put_item(TableName=tables.control, Item=to_item({"id": "audit", **values}))
    store = DynamoDbControlStore(client, table=tables.control)

    seen = store.audit()

    assert seen is not None
    assert seen.done
    following = next_audit(seen, NOON, DAY, restart=False)
    assert following == Audit(NOON, seen.started_at, zones=release(), zones_since=NOON)
    assert not store.replace_audit(None, AUDITS[0])
    assert not store.replace_audit(AUDITS[0], AUDITS[1])
    assert store.replace_audit(seen, AUDITS[0])
    assert not store.replace_audit(seen, AUDITS[1])
    assert store.audit() == AUDITS[0]
