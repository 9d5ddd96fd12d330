"""Due entries: their buckets, shards and sort keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from nextfire.domain.due import BackfillEntry, bucket_name, fire
from tests.builders import NOON, UID, a_fire, a_job, a_retry, at, job_key, run_key


@pytest.mark.parametrize(
    ("due_at", "now", "minute"),
    [
        ("12:00:00", "11:00:00", "12:00"),
        ("12:00:59.999", "11:00:00", "12:00"),
        ("12:00:30", "12:00:45", "12:00"),
        ("12:00:30", "12:01:00", "12:01"),
        ("09:00:00", "12:00:59", "12:00"),
    ],
)
def test_the_bucket_is_the_minute_of_the_instant_or_of_the_write_if_later(
    due_at: str, now: str, minute: str
) -> None:
    entry = a_fire(a_job(), at(due_at))

    assert entry.bucket(at(now), 1) == f"2026-05-24T{minute}Z#000"


def test_a_bucket_is_named_in_utc_with_its_shard() -> None:
    lord_howe = timezone(timedelta(hours=10, minutes=30))

    assert (
        bucket_name(datetime(2026, 5, 24, 22, 30, tzinfo=lord_howe), 7) == "2026-05-24T12:00Z#007"
    )


def test_an_entry_is_in_the_shard_of_its_job() -> None:
    entry = a_fire(a_job(), NOON)

    assert entry.bucket(NOON, 16).endswith(f"#{job_key().shard(16):03d}")


def test_sort_keys_are_written_as_they_are_stored() -> None:
    assert a_fire(a_job(), NOON, version=7).sort_key == "1779624000000#uid00001#F#7"
    assert a_retry(run_key(), at("12:00:10"), dispatch=3).sort_key == (
        "1779624010000#uid00001#R#20260524T120000000Z-uid00001#3"
    )


def test_two_occurrences_that_jitter_puts_on_one_instant_are_two_entries() -> None:
    entry = a_fire(a_job(), at("12:05"))
    keys = [replace(entry, occurrence=at(time)).sort_key for time in ("12:00", "12:01")]

    assert len({entry.sort_key, *keys}) == 3


def test_sort_keys_sort_by_instant() -> None:
    instants = [datetime(2001, 1, 1, tzinfo=NOON.tzinfo), NOON, at("12:00:00.001"), at("13:00")]
    keys = [a_fire(a_job(), instant).sort_key for instant in instants]

    assert sorted(keys) == keys


def test_an_instant_is_truncated_to_milliseconds() -> None:
    entry = fire(job_key(), UID, 1, NOON + timedelta(microseconds=1999))

    assert entry.at == at("12:00:00.001")


def test_entries_of_two_backfills_have_distinct_keys() -> None:
    entries = [
        BackfillEntry(job_key(), UID, NOON, request, ordinal)
        for ordinal in (11, 21)
        for request in "ab"
    ]

    assert len({entry.sort_key for entry in entries}) == 4
