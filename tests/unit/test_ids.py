"""Ids and hashes, asserted as literals because stored data depends on them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import (
    JobKey,
    RunKey,
    content_id,
    dedup_id,
    group_id,
    parse_execution_id,
    run_id,
)
from tests.builders import NOON, UID, at, run_key


def test_a_job_s_shard_never_changes() -> None:
    ids = ["report", "daily-invoice-gen", "job_a93f2", "x"]

    assert [JobKey("acme", job_id).shard(4) for job_id in ids] == [3, 1, 0, 3]
    assert [JobKey("acme", job_id).shard(999) for job_id in ids] == [250, 948, 627, 812]


def test_shards_are_filled_evenly() -> None:
    shards = [JobKey("acme", f"job{n}").shard(8) for n in range(8000)]

    assert all(850 < shards.count(shard) < 1150 for shard in range(8))


def test_tenants_spread_by_themselves() -> None:
    assert len({JobKey(f"tenant{n}", "report").shard(999) for n in range(20)}) > 15


def test_a_run_id_begins_with_its_instant() -> None:
    assert run_id(UID, at("12:00:01.5")) == "20260524T120001500Z-uid00001"
    assert run_id(UID, NOON + timedelta(microseconds=999)) == "20260524T120000000Z-uid00001"
    berlin = timezone(timedelta(hours=2))
    assert run_id(UID, datetime(2026, 5, 24, 14, tzinfo=berlin)) == run_id(UID, NOON)


def test_run_ids_sort_by_time() -> None:
    instants = [NOON, at("12:00:00.001"), at("12:00:01"), at("12:01"), at("13:00")]
    ids = [run_id(UID, instant) for instant in instants]

    assert sorted(ids) == ids


def test_an_execution_id_reads_back() -> None:
    key = RunKey(JobKey("acme", "daily-invoice_gen"), run_id(UID, at("12:00:01.25")))

    assert key.execution_id == "daily-invoice_gen.20260524T120001250Z-uid00001"
    assert parse_execution_id("acme", key.execution_id) == key
    assert (key.scheduled_at, key.uid) == (at("12:00:01.25"), UID)


def test_an_execution_id_is_its_reader_s_tenant_s() -> None:
    assert parse_execution_id("other", run_key().execution_id).job.tenant == "other"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "report",
        "report.",
        ".20260524T120000000Z-uid00001",
        "report.20260524T120000000Z",
        "report.20260524T120000Z-uid00001",
        "report.20260524T120000000Z-UID00001",
        "report.20260524T120000000Z-uid00001 ",
        "report.\u06620260524T120000000Z-uid00001",
        "report.20260524T120000000Z-uid00001\n",
        "re/port.20260524T120000000Z-uid00001",
        "a.b.20260524T120000000Z-uid00001",
        "j" * 65 + ".20260524T120000000Z-uid00001",
    ],
)
def test_an_invalid_execution_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_execution_id("acme", text)

    assert refused.value.field == "executionId"


def test_queue_ids_tell_runs_tenants_and_dispatches_apart() -> None:
    keys = [
        run_key(),
        run_key(at("13:00")),
        run_key(tenant="other"),
        run_key(job_id="other"),
        run_key(uid="uid00002"),
    ]
    groups = {group_id(key) for key in keys}
    dedups = {dedup_id(key, dispatch) for key in keys for dispatch in (1, 2)}

    assert (len(groups), len(dedups)) == (5, 10)
    assert all(len(name) == 64 for name in groups | dedups)


def test_queue_ids_do_not_depend_on_the_process() -> None:
    assert group_id(run_key()) == GROUP
    assert group_id(run_key(), max_concurrent=4) == SHARED
    assert dedup_id(run_key(), 1) == DEDUP
    assert content_id("garbage") == CONTENT


GROUP = "617a6cd12b8f89146a68c1609074c78691564ab12fdcb95289d232d88fe74194"
SHARED = "80bb6f3fe0f372b34fbe5db2f0a94122423fb576cb35406d112ed4a397a659aa"
DEDUP = "068fc732dade869cc34af14abe8c3350a5ca2273d89d0edf55cbe70a94dbea1a"
CONTENT = "795b6904e54f82411df4b0e27a373a55eea3f9d66dac5a9bce1dd92f7b401da5"


def test_parts_that_join_to_the_same_text_have_distinct_ids() -> None:
    one = RunKey(JobKey("a", "bc"), run_id(UID, NOON))
    two = RunKey(JobKey("ab", "c"), run_id(UID, NOON))

    assert group_id(one) != group_id(two)


def test_an_id_whose_digits_are_not_a_date_has_a_uid() -> None:
    """Users may ask for any id."""
    key = RunKey(JobKey("acme", "report"), "99999999T999999999Z-abcdefgh")

    assert key.uid == "abcdefgh"
    with pytest.raises(ValueError, match="month"):
        _ = key.scheduled_at
