"""The contract of `JobStore`: what is stored comes back, whatever version wrote it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nextfire.adapters.dynamodb.job_items import decode_job, encode_job
from nextfire.domain.backfill import Backfill, Order
from nextfire.domain.errors import UndecodableError
from nextfire.domain.job import Job
from nextfire.domain.policies import Misfire, Overlap
from nextfire.domain.ports.jobs import JobStore
from tests.builders import NOON, a_job, at, job_key
from tests.integration.test_contract_job_store.conftest import Held

A_BACKFILL = Backfill(
    "0123456789abcdef",
    7,
    at("10:00"),
    at("11:00:00.125"),
    61,
    Order.NEWEST_FIRST,
    at("12:00:00.007"),
)


def with_a_past() -> Job:
    """A job that was changed, paused with a reason, changed again and resumed."""
    job = a_job(type="INTERVAL", schedule="PT10M").with_new_version(at("12:10"))
    return (
        job.paused(at("12:20:00.125"), "a reason")
        .resumed(at("12:30"))
        .with_new_version(at("12:40:00.007"))
    )


@pytest.mark.parametrize(
    "job",
    [
        a_job().paused(at("12:20:00.125"), "a reason — ü"),
        a_job().paused(at("12:20"), None),
        a_job().paused(at("12:20"), None, by="arn:aws:iam::123456789012:user/ü"),
        replace(a_job().paused(at("12:20"), None), drain_asked_at=at("12:20:00.005")),
        a_job().paused(at("12:20"), "a reason").resumed(at("12:30:00.001")),
        with_a_past(),
        with_a_past().paused(at("12:50"), None),
        replace(a_job(), backfill=A_BACKFILL),
        replace(a_job(), backfill=replace(A_BACKFILL, reason="a reason — ü")),
    ],
)
def test_what_a_pause_leaves_behind_comes_back(store: JobStore, job: Job) -> None:
    store.create(job, None, NOON)

    assert store.get(job.key) == job
    assert store.get_many([job.key]) == {job.key: job}


def test_a_past_that_counted_from_earlier_comes_back(store: JobStore) -> None:
    job = with_a_past()
    assert [past.counted_from for past in job.replaced] == [None, None, at("12:10")]

    store.create(job, None, NOON)

    stored = store.get(job.key)
    assert stored is not None
    assert stored.replaced == job.replaced


def test_a_job_stored_before_there_were_pauses_reads_as_it_did() -> None:
    """Its item has none of the attributes, and its definition has no policy."""
    job = a_job()
    item = encode_job(job)
    assert not {"replaced", "counted_from", "resumed_at", "pause_reason", "paused_by"} & item.keys()
    definition = json.loads(item["definition"]["S"])
    for name in ("misfire", "overlap"):
        del definition[name]

    read = decode_job(item | {"definition": {"S": json.dumps(definition)}})

    assert read == job
    assert (read.definition.misfire, read.definition.overlap) == (Misfire(), Overlap.ALLOW)


def test_a_replaced_version_stored_before_there_were_pauses_reads_as_it_did() -> None:
    job = a_job().with_new_version(at("12:30"))
    item = encode_job(job)
    (past,) = json.loads(item["replaced"]["S"])
    past.pop("counted_from", None)

    assert decode_job(item | {"replaced": {"S": json.dumps([past])}}) == job


def test_a_job_that_does_not_decode_says_so(held: Held) -> None:
    held.spoil(job_key())

    with pytest.raises(UndecodableError):
        held.store.get(job_key())


def test_there_is_no_job_that_was_never_stored(store: JobStore) -> None:
    assert store.get(job_key()) is None
