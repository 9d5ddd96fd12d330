"""What does not run is put on record up to what is there already, and nothing twice."""

from __future__ import annotations

from datetime import datetime

from nextfire.domain.decisions import DueAction, DueDecision, Missed
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.run import Run, RunState
from nextfire.usecases.cover_missed import Covered, cover_missed
from tests.builders import LEASE, NOON, UID, a_fire, a_job, a_message, at, run_key
from tests.fakes import Faults, MemoryRunStore

JOB = a_job(since=at("05:30"))
FORMER = "uid00002"


def covered(runs: MemoryRunStore) -> Covered:
    """What becomes of the entry of 08:00, if nothing up to noon is to run."""
    decision = DueDecision(DueAction.COVER, "late", owner=JOB, missed=Missed(NOON))
    return cover_missed(runs, a_fire(JOB, at("08:00")), decision, NOON)


def a_range(first: datetime, last: datetime, count: int, *, uid: str = UID) -> Run:
    key = RunKey(JOB.key, run_id(uid, first))
    return Run.skipped(key, "late", NOON, covered_to=last, covered=count)


def claim(runs: MemoryRunStore, scheduled_at: datetime, *, uid: str = UID) -> Run:
    return runs.claim(
        a_message(run_key(scheduled_at, uid=uid)),
        token="t",
        worker="w",
        pool="default",
        job_revision=1,
        now=NOON,
        lease_until=NOON + LEASE,
    ).run


def test_all_is_covered_where_nothing_is_on_record() -> None:
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


def test_what_a_range_covers_is_passed_over_at_once() -> None:
    runs = MemoryRunStore()
    runs.skip(a_range(at("06:00"), at("10:00"), 5))

    assert covered(runs) == Covered(None, a_fire(JOB, at("11:00")))


def test_a_run_that_was_claimed_meanwhile_is_left_to_its_worker() -> None:
    runs, faults = MemoryRunStore(), Faults()
    faults.once_before("runs.skip", lambda: claim(runs, at("08:00")))

    done = covered(faults.through(runs, "runs"))

    assert done == Covered(None, a_fire(JOB, at("09:00")))
    assert [run.state for run in runs.all.values()] == [RunState.RUNNING]
