"""Which occurrences a version of a job owns, before, in and after a pause."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from tests.builders import NOON, a_job, at

# Versions of a job


def test_a_pause_owns_no_occurrences_and_keeps_former_versions() -> None:
    job = a_job(since=at("11:30"))

    paused = job.paused(at("12:10:00.5"), "maintenance", by="ada")

    assert (paused.state, paused.pause_reason) == (JobState.PAUSED, "maintenance")
    assert paused.paused_by == "ada"
    assert paused.schedule_version > job.schedule_version
    assert paused.effective_from == at("12:10:00.5")
    (past,) = paused.replaced
    assert (past.version, past.effective_from, past.until) == (
        job.schedule_version,
        at("11:30"),
        at("12:10:00.5"),
    )


def test_a_resumed_version_owns_what_was_due_since_the_pause() -> None:
    job = a_job(since=at("11:30")).paused(at("12:10"), "maintenance", by="ada")

    resumed = job.resumed(at("15:10"))

    assert resumed.paused_by is None
    assert (resumed.state, resumed.pause_reason) == (JobState.ACTIVE, None)
    assert resumed.schedule_version > job.schedule_version
    assert (resumed.effective_from, resumed.resumed_at) == (at("12:10"), at("15:10"))
    assert resumed.replaced == job.replaced, "the pause itself owned no occurrences"
    assert resumed.first() == resumed.fire_entry(at("13:00"), 1)


@pytest.mark.parametrize("behind", [timedelta(seconds=1), timedelta(days=1)])
def test_a_writer_whose_clock_is_behind_moves_nothing_back(behind: timedelta) -> None:
    job = a_job(since=at("12:00"))

    paused = job.paused(at("12:00") - behind, None)
    resumed = paused.resumed(at("12:00") - behind)

    assert (paused.effective_from, resumed.effective_from, resumed.resumed_at) == (NOON,) * 3
    assert job.schedule_version < paused.schedule_version < resumed.schedule_version


def test_an_interval_keeps_its_phase() -> None:
    job = a_job(since=at("11:53"), type="INTERVAL", schedule="PT10M")
    assert job.next_after(at("12:00")) == at("12:03")

    for minute in (11, 29, 48):
        job = job.paused(at(f"12:{minute}"), None).resumed(at(f"12:{minute + 7}"))

    assert (job.effective_from, job.counted_from) == (at("12:48"), at("11:53"))
    assert job.next_after(at("13:00")) == at("13:03")


def test_a_pause_does_not_restart_a_delay() -> None:
    job = a_job(since=NOON, type="DELAY", schedule="PT30M")

    early = job.paused(at("12:10"), None).resumed(at("12:20"))
    late = job.paused(at("12:10"), None).resumed(at("12:50"))
    over = job.paused(at("12:40"), None).resumed(at("12:50"))

    assert early.first() == early.fire_entry(at("12:30"), 1)
    assert late.first() == late.fire_entry(at("12:30"), 1)
    assert over.first() is None


def test_a_change_restarts_the_count() -> None:
    job = a_job(since=at("11:53"), type="INTERVAL", schedule="PT10M", maxRuns=3)
    job = job.paused(at("12:11"), None).resumed(at("12:15"))

    changed = job.with_new_version(at("12:20"))

    assert (changed.counted_from, changed.effective_from) == (None, at("12:20"))
    assert changed.next_after(at("12:20")) == at("12:30")
    assert changed.replaced[-1].counted_from == at("11:53")
    was = changed.as_of(changed.replaced[-1])
    assert (was.schedule_version, was.next_after(at("12:12"))) == (
        job.schedule_version,
        at("12:13"),
    )


@pytest.mark.parametrize(
    ("paused_at", "first"),
    [
        ("11:59", (NOON, 1)),
        ("12:00", (at("13:00"), 2)),
        ("13:30", (at("14:00"), 3)),
        ("14:00", None),
    ],
)
def test_max_runs_counts_on_over_a_pause(paused_at: str, first: tuple[Any, int] | None) -> None:
    job = a_job(since=at("11:30"), maxRuns=3)

    resumed = job.paused(at(paused_at), None).resumed(at("18:00"))

    assert resumed.first() == (resumed.fire_entry(*first) if first else None)


def test_ordinals_are_those_of_the_whole_schedule() -> None:
    job = a_job(since=at("11:30"), maxRuns=4).paused(at("12:30"), None).resumed(at("12:40"))

    assert [job.ordinal(at(time)) for time in ("12:00", "13:00", "15:00", "20:00")] == [1, 2, 4, 5]
    assert [job.is_last(at(time)) for time in ("14:00", "15:00")] == [False, True]


SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "*/7 * * * *"},
    {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"},
    {"type": "INTERVAL", "schedule": "PT11M"},
    {"type": "INTERVAL", "schedule": "PT11M", "startAt": "2026-05-24T12:01:00Z"},
    {"type": "DELAY", "schedule": "PT3H"},
    {"schedule": "*/7 * * * *", "maxRuns": 9},
    {"type": "INTERVAL", "schedule": "PT50S", "maxRuns": 200, "jitterSec": 30},
]


@given(
    st.sampled_from(SCHEDULES),
    st.lists(st.integers(1, 7_200), min_size=1, max_size=8),
)
def test_pauses_move_no_occurrence(fields: dict[str, Any], seconds: list[int]) -> None:
    """The entries of all versions together equal those of a job that was never paused."""
    job = never = a_job(since=at("10:00"), **fields)
    now, owned = at("10:00"), []
    for number, each in enumerate(seconds):
        now += timedelta(seconds=each)
        if number % 2:
            job = job.resumed(now)
        else:
            owned += walked(job, now)
            job = job.paused(now, None)
    if job.state is JobState.PAUSED:
        job = job.resumed(now)
    until = now + timedelta(hours=1)

    assert owned + walked(job, until) == walked(never, until)


def walked(job: Job, until: Any) -> list[tuple[Any, int]]:
    """The occurrences of the chain that starts with *job*'s first entry, with their ordinals."""
    entry, found = job.first(), []
    while entry is not None and entry.occurs_at <= until:
        found.append((entry.occurs_at, entry.ordinal))
        entry = job.successor(entry)
    return found
