"""Occurrences that do not run are recorded once, as ranges that end where other records begin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

import pytest

from nextfire.domain.due_decisions import Cover
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.message import SkippedRange
from nextfire.domain.missed import Missed
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.usecases.cover_missed import CoverResult, Recorded, cover_missed, record_missed
from tests.builders import NOON, UID, a_definition, a_fire, a_job, a_message, at, claim_run, run_key
from tests.fakes import Faults, MemoryRunStore

JOB = a_job(since=at("05:30"))
FORMER = "uid00002"


def covered(runs: MemoryRunStore) -> CoverResult:
    """Cover the entry of 08:00 when no occurrence up to noon is to run."""
    decision = Cover(Missed(NOON), "late", JOB)
    return cover_missed(runs, a_fire(JOB, at("08:00")), decision, NOON)


def a_range(first: datetime, last: datetime, count: int, *, uid: str = UID) -> Run:
    key = RunKey(JOB.key, run_id(uid, first))
    return Run.skipped(key, "late", NOON, covered_to=last, covered=count)


def claim(runs: MemoryRunStore, scheduled_at: datetime, *, uid: str = UID) -> Run:
    return claim_run(runs, a_message(run_key(scheduled_at, uid=uid)), NOON).run


def test_a_range_covers_all_occurrences_if_none_has_a_record() -> None:
    runs = MemoryRunStore()

    done = covered(runs)

    assert done.written == a_range(at("08:00"), NOON, 5)
    assert done.successor == a_fire(JOB, at("13:00"))


def test_a_range_of_the_job_s_former_creation_covers_nothing_of_this_one() -> None:
    runs = MemoryRunStore()
    runs.skip(a_range(at("06:00"), at("10:00"), 5, uid=FORMER))

    assert covered(runs).written == a_range(at("08:00"), NOON, 5)


def test_a_range_ends_before_a_run_of_this_creation_and_no_other() -> None:
    runs = MemoryRunStore()
    claim(runs, at("09:00"), uid=FORMER)
    claim(runs, at("11:00"))

    done = covered(runs)

    assert done.written == a_range(at("08:00"), at("10:00"), 3)
    assert done.successor == a_fire(JOB, at("11:00"))


def test_a_covered_range_is_skipped_in_one_step() -> None:
    runs = MemoryRunStore()
    runs.skip(a_range(at("06:00"), at("10:00"), 5))

    assert covered(runs) == CoverResult(None, a_fire(JOB, at("11:00")))


def test_a_run_that_was_claimed_meanwhile_is_left_to_its_worker() -> None:
    runs, faults = MemoryRunStore(), Faults()
    faults.call_before_next("runs.skip", lambda: claim(runs, at("08:00")))

    done = covered(faults.through(runs, "runs"))

    assert done == CoverResult(None, a_fire(JOB, at("09:00")))
    assert [run.state for run in runs.all.values()] == [RunState.RUNNING]


# The ranges that a message reports


def a_row(first: str, last: str, count: int, *, job: Job = JOB, ordinal: int = 1) -> SkippedRange:
    return SkippedRange(
        first=at(first),
        last=at(last),
        count=count,
        version=job.schedule_version,
        ordinal=ordinal,
        reason="late",
    )


WHOLE = a_row("08:00", "12:00", 5)


def recorded(
    runs: MemoryRunStore, *missed: SkippedRange, job: Job | None = JOB, uid: str = UID
) -> list[str]:
    """The ranges recorded when the run of 13:00 has a message that reports *missed*."""
    message = a_message(run_key(at("13:00"), uid=uid)).model_copy(update={"missed": missed})
    done = record_missed(runs, job, message, NOON)
    assert not done.quarantined
    return ranges(done.written)


def ranges(found: Iterable[Run]) -> list[str]:
    """``08:00-12:00 (5)``: first, last, count."""
    return [
        f"{run.key.scheduled_at:%H:%M}-{run.covers_until:%H:%M} ({run.covered or 1})"
        for run in found
        if run.state is RunState.SKIPPED
    ]


def test_a_row_is_one_range_where_nothing_is_on_record() -> None:
    runs = MemoryRunStore()

    assert recorded(runs, WHOLE) == ["08:00-12:00 (5)"]
    assert list(runs.all.values()) == [a_range(at("08:00"), NOON, 5)]


def test_a_message_without_rows_records_nothing() -> None:
    assert recorded(MemoryRunStore()) == []


def test_a_run_that_was_claimed_within_a_row_keeps_its_record() -> None:
    runs = MemoryRunStore()
    claim(runs, at("10:00"))

    assert recorded(runs, WHOLE) == ["08:00-09:00 (2)", "11:00-12:00 (2)"]
    assert runs.all[run_key(at("10:00"))].state is RunState.RUNNING


def test_a_row_begins_where_an_earlier_range_ends() -> None:
    runs = MemoryRunStore()
    runs.skip(a_range(at("06:00"), at("10:00"), 5))

    assert recorded(runs, WHOLE) == ["11:00-12:00 (2)"]


def test_a_row_that_is_reported_twice_is_recorded_once() -> None:
    runs = MemoryRunStore()

    assert recorded(runs, WHOLE, WHOLE) == ["08:00-12:00 (5)"]
    assert recorded(runs, WHOLE) == []


def test_rows_that_overlap_record_each_occurrence_once() -> None:
    runs = MemoryRunStore()
    first = recorded(runs, a_row("08:00", "10:00", 3))

    assert first == ["08:00-10:00 (3)"]
    assert recorded(runs, WHOLE) == ["11:00-12:00 (2)"]
    assert recorded(runs, a_row("09:00", "11:00", 3)) == []


def test_a_row_ends_before_a_later_range_that_was_recorded_first() -> None:
    runs = MemoryRunStore()
    recorded(runs, a_row("10:00", "12:00", 3))

    assert recorded(runs, a_row("08:00", "11:00", 4)) == ["08:00-09:00 (2)"]


def test_a_row_begins_where_a_range_ends_although_a_run_was_claimed_within_it() -> None:
    """An executor had read the records before the range was written, and claimed after that."""
    runs = MemoryRunStore()
    runs.skip(a_range(at("07:00"), at("11:00"), 5))
    claim(runs, at("08:00"))

    assert recorded(runs, a_row("09:00", "11:00", 3)) == []
    assert recorded(runs, a_row("09:00", "12:00", 4)) == ["12:00-12:00 (1)"]


FORGOTTEN = replace(JOB, schedule_version=JOB.schedule_version + 1)


@pytest.mark.parametrize("job", [JOB, FORGOTTEN, None], ids=["known", "forgotten", "deleted"])
def test_a_row_within_an_earlier_range_is_not_recorded(job: Job | None) -> None:
    """Two due entries of a job are left if a watcher dies before it deletes one of them: the first
    was covered up to noon, and the message of the other one's run reports the same occurrences.
    """
    runs = MemoryRunStore()
    runs.skip(a_range(at("07:00"), NOON, 6))

    assert recorded(runs, WHOLE, job=job) == []


@pytest.mark.parametrize(
    "job", [None, replace(JOB, uid=FORMER), FORGOTTEN], ids=["gone", "another", "forgotten"]
)
def test_a_row_whose_schedule_is_not_known_is_recorded_whole(job: Job | None) -> None:
    runs = MemoryRunStore()

    assert recorded(runs, WHOLE, job=job) == ["08:00-12:00 (5)"]
    assert list(runs.all.values()) == [a_range(at("08:00"), NOON, 5)]
    assert recorded(runs, WHOLE, job=job) == []


def test_a_row_whose_schedule_is_not_known_is_left_where_something_of_it_is_on_record() -> None:
    runs = MemoryRunStore()
    claim(runs, at("10:00"))

    assert recorded(runs, WHOLE, job=None) == []


def test_a_row_whose_schedule_is_not_known_passes_over_records_of_others() -> None:
    runs = MemoryRunStore()
    claim(runs, at("10:00"), uid=FORMER)
    manual = run_key(at("10:30"))
    runs.items[manual] = Run(manual, RunState.SUCCEEDED, trigger=Trigger.MANUAL)

    assert recorded(runs, WHOLE, job=None) == ["08:00-12:00 (5)"]


def test_a_row_of_a_version_that_was_replaced_is_recorded_by_its_schedule() -> None:
    runs = MemoryRunStore()
    claim(runs, at("10:00"))
    changed = JOB.with_new_version(at("12:30"))
    changed = replace(changed, definition=a_definition("*/7 * * * *"))

    assert recorded(runs, WHOLE, job=changed) == ["08:00-09:00 (2)", "11:00-12:00 (2)"]


def test_a_row_is_recorded_by_its_occurrences_whatever_their_jitter() -> None:
    job = a_job(since=at("05:30"), jitterSec=600)
    runs = MemoryRunStore()
    claim(runs, at("10:00"))
    row = a_row("08:00", "12:00", 5, job=job)

    assert recorded(runs, row, job=job) == ["08:00-09:00 (2)", "11:00-12:00 (2)"]


def test_a_row_ends_at_max_runs() -> None:
    job = a_job(since=at("05:30"), maxRuns=7)
    runs = MemoryRunStore()
    claim(runs, at("10:00"))
    row = a_row("08:00", "12:00", 5, job=job, ordinal=3)

    assert recorded(runs, row, job=job) == ["08:00-09:00 (2)", "11:00-12:00 (2)"]


@pytest.mark.parametrize("job", [JOB, None], ids=["known", "gone"])
def test_a_record_that_does_not_decode_keeps_its_place_and_blocks_no_other(job: Job | None) -> None:
    runs, faults = MemoryRunStore(), Faults()

    def spoil() -> None:
        claim(runs, at("08:00"))
        runs.spoil(run_key(at("08:00")))

    faults.call_before_next("runs.skip", spoil)
    missed = (a_row("08:00", "10:00", 3), a_row("11:00", "12:00", 2))
    message = a_message(run_key(at("13:00"))).model_copy(update={"missed": missed})

    done = record_missed(faults.through(runs, "runs"), job, message, NOON)

    assert done.quarantined
    rest = ["09:00-10:00 (2)"] if job else []  # without a schedule, a row cannot be split
    assert ranges(done.written) == [*rest, "11:00-12:00 (2)"]


def test_a_range_of_another_job_with_the_same_id_covers_nothing_of_a_job_that_is_gone() -> None:
    runs = MemoryRunStore()
    runs.skip(a_range(at("06:00"), at("10:00"), 5, uid=FORMER))

    assert recorded(runs, WHOLE, job=None) == ["08:00-12:00 (5)"]


def test_a_row_that_another_executor_records_first_is_not_reported_again() -> None:
    runs, faults = MemoryRunStore(), Faults()
    message = a_message(run_key(at("13:00"))).model_copy(update={"missed": (WHOLE,)})
    faults.call_before_next("runs.skip", lambda: recorded(runs, WHOLE, job=None))

    done = record_missed(faults.through(runs, "runs"), None, message, at("12:00:01"))

    assert done == Recorded()


def test_a_row_is_recorded_by_the_schedule_of_its_version() -> None:
    job = replace(JOB, definition=a_definition("*/30 * * * *")).with_new_version(at("06:00"))
    job = replace(job, definition=JOB.definition).with_new_version(NOON)
    job = replace(job, definition=a_definition("15 * * * *"))
    _, hourly = job.replaced
    runs = MemoryRunStore()
    claim(runs, at("10:00"))
    row = WHOLE.model_copy(update={"version": hourly.version})

    assert recorded(runs, row, job=job) == ["08:00-09:00 (2)", "11:00-12:00 (2)"]
