"""What the audit compares: the chain, the records and the messages of one job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.audit import (
    GRACE,
    OVERTAKEN_AFTER,
    claimable_since,
    compare,
    is_done,
    owes_records,
    spans,
)
from nextfire.domain.audit_repairs import next_entry
from nextfire.domain.ids import run_id
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases.audit import RECHECK_AFTER
from tests.builders import NOON, a_fire, a_job, at, run_key
from tests.unit.auditing import DAY, MINUTE

# Pure functions


@given(
    schedule=st.sampled_from(["* * * * *", "*/7 * * * *", "3 */2 * * *", "30 2 * * *"]),
    width=st.sampled_from([0, 30, 400, 3_600]),
    most=st.sampled_from([None, 1, 5, 100]),
    minutes=st.integers(0, 60 * 30),
)
def test_the_next_entry_is_where_the_chain_comes_to(
    schedule: str, width: int, most: int | None, minutes: int
) -> None:
    bounds: dict[str, Any] = {"maxRuns": most} if most else {}
    job = a_job(schedule=schedule, jitterSec=width, **bounds)
    now = NOON + timedelta(minutes=minutes, seconds=13)
    entry = job.first()
    while entry is not None and entry.at <= now:
        entry = job.successor(entry)

    assert next_entry(job, now) == entry


def a_record(job: Job, occurrence: datetime, **fields: Any) -> Run:
    key = job.run_key(occurrence)
    return Run(key, RunState.SUCCEEDED, pool="default", **fields)


@given(st.data())
def test_missing_occurrences_are_those_without_a_record(data: st.DataObject) -> None:
    """Compared with a set-based model that looks at one occurrence at a time."""
    width = data.draw(st.sampled_from([0, 600]))
    job = a_job(schedule="*/5 * * * *", jitterSec=width)
    now = NOON + timedelta(minutes=data.draw(st.integers(0, 400)))
    if data.draw(st.booleans()):
        job = job.with_new_version(NOON + timedelta(minutes=data.draw(st.integers(1, 200))))
    every = [NOON + 5 * n * MINUTE for n in range(1, 90)]
    have = {o for o in every if data.draw(st.booleans())}
    reach = {o: o + 5 * data.draw(st.integers(0, 3)) * MINUTE for o in sorted(have)[::4]}
    runs = [
        a_record(job, o, covered_to=reach.get(o), covered=2 if o in reach else 1)
        for o in sorted(have)
    ]
    waits = {o for o in every if data.draw(st.integers(0, 9)) == 0}

    found = compare(
        job,
        spans(job, NOON, now - GRACE),
        runs,
        now=now,
        waiting={run_id(job.uid, o) for o in waits},
    )

    stood = {o for o in every if any(r.key.scheduled_at <= o <= r.covers_until for r in runs)}
    owed = {o for o in every if job.due_at(o) <= now - GRACE and o <= now - GRACE}
    missing = {o for m in found.missing for o in every if m.first <= o <= m.last}
    assert missing == owed - stood - waits
    assert sum(m.count for m in found.missing) == len(missing)


def test_what_is_of_another_creation_of_the_job_counts_for_nothing() -> None:
    job, former = a_job(schedule="0 * * * *"), a_job(schedule="0 * * * *", uid="former01")
    now = at("15:30")
    owed = spans(job, NOON, now, [a_fire(former, at("13:00"))])

    found = compare(job, owed, [a_record(former, at("13:00"))], now=now)

    assert [(m.first, m.last, m.count) for m in found.missing] == [(at("13:00"), at("15:00"), 3)]


def test_what_a_range_covers_is_no_longer_owed_whatever_runs_within_it() -> None:
    job = a_job(schedule="0 * * * *")
    owed = spans(job, NOON, at("15:00"))
    covering = a_record(job, at("13:00"), covered_to=at("15:00"), covered=3)
    within = a_record(job, at("14:00"))

    assert not owes_records(job.uid, owed, [covering, within])
    assert owes_records(job.uid, owed, [within])


def test_a_run_older_than_the_read_range_does_not_wait_for_a_message() -> None:
    job = a_job(type="ONCE", schedule="2026-05-24T12:01:00Z")
    now = NOON + 3 * DAY

    found = compare(job, (), [a_record(job, NOON + MINUTE)], now=now)

    assert is_done(job, found, queue_is_empty=False)


def test_when_a_run_is_idle() -> None:
    key = run_key()
    assert claimable_since(Run(key, RunState.SUCCEEDED)) is None
    assert claimable_since(Run(key, RunState.RUNNING, lease_until=at("12:09"))) == at("12:09")
    assert claimable_since(Run(key, RunState.PENDING, not_before=at("12:08"))) == at("12:08")
    assert claimable_since(Run(key, RunState.PENDING)) == key.scheduled_at


def test_the_margins_keep_their_distances() -> None:
    assert timedelta(minutes=5) < GRACE < OVERTAKEN_AFTER
    assert RECHECK_AFTER < MINUTE
