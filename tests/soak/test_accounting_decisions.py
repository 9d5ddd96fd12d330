"""The account of skips, pauses, redrives and cancels: each needs a request or a policy."""

from __future__ import annotations

import pytest

from tests.soak.oracle import Document, Event, Operation
from tests.soak.records import (
    ALL,
    AWAY,
    FAILS,
    LATEST,
    SKIP,
    accounted,
    at,
    attempt,
    counted,
    execution_id,
    history,
    iso,
    mark,
    marks_of,
    run,
    skipped,
)


def test_an_attempt_after_the_death_is_done_twice_unless_it_was_redriven() -> None:
    failed = (attempt(1, 21, 22, "FAILED"), attempt(2, 23, 24, "FAILED"))
    again = run(20, *failed, attempt(3, 30, 31), attemptsBeforeRedrive=2)
    job = history(FAILS)

    assert counted(accounted(job, [run(10), again])) == (0, 1, 0)
    job.redrives[execution_id(20)] = [at(29)]
    assert counted(accounted(job, [run(10), again])) == (0, 0, 0)
    job.redrives[execution_id(20)] = [at(33)]
    assert counted(accounted(job, [run(10), again])) == (0, 1, 0)


def test_an_attempt_after_a_cancel_was_answered_is_done_twice() -> None:
    job = history(FAILS)
    twice = run(20, attempt(1, 21, 22, "FAILED"), attempt(2, 24, 25, "FAILED"), state="CANCELLED")
    # its script began then, but its run was claimed earlier
    job.cancels[execution_id(20)] = at(24.7)

    assert counted(accounted(job, [run(10), twice])) == (0, 0, 0)
    job.cancels[execution_id(20)] = at(23)
    assert counted(accounted(job, [run(10), twice])) == (0, 1, 0)


def test_a_cancel_may_be_decided_before_the_last_attempt_ended() -> None:
    """The watcher decides to replace the run, the attempt fails, the run waits and becomes
    CANCELLED as of the decision.
    """
    replaced = run(20, attempt(1, 29.9, 30.6, "FAILED"), state="CANCELLED", finishedAt=iso(30.1))
    records = [run(10), replaced, run(30, attempt(1, 31, 32))]

    found = accounted({**FAILS, "overlap": "REPLACE"}, records, until=35)
    assert counted(found) == (0, 0, 0)
    later = mark(20, 1, begun=30.7, until=30.8)
    marks = [*marks_of(run(10), records[2]), later]
    found = accounted({**FAILS, "overlap": "REPLACE"}, records, marks, until=35)
    assert counted(found) == (0, 1, 0)
    # With overlap ALLOW, runs are not replaced.
    assert counted(accounted(FAILS, records, until=35)) == (1, 0, 0)


def test_what_was_due_as_the_pause_was_asked_for_may_run() -> None:
    job = history({**SKIP, "maxRuns": 2})
    job.events += [
        Event(Operation.PAUSED, at(19.9), at(20.1)),
        Event(Operation.RESUMED, at(30), at(30)),
    ]

    assert counted(accounted(job, [run(10), run(20)], until=60)) == (0, 0, 0)
    assert counted(accounted(job, [run(10), skipped(20, 20, 1, decided=31)], until=60)) == (0, 0, 0)


def test_a_cancel_that_no_one_requested_is_lost() -> None:
    gone = run(20, attempt(1, 21, 22, "CANCELLED"), state="CANCELLED")

    assert counted(accounted(ALL, [run(10), gone])) == (1, 0, 0)
    assert counted(accounted(history(ALL, (Operation.DELETED, 21.5, None)), [run(10), gone])) == (
        0,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("document", "decided", "lost"),
    [
        (ALL, 75, 2),  # RUN_ALL skips nothing
        (LATEST, 75, 0),  # the first is 65 s late, the third is due
        (LATEST, 65, 2),  # 55 s late is not missed
        (SKIP, 85, 0),
        (SKIP, 75, 1),  # the second is 55 s late
        ({**ALL, "misfire": {"policy": "RUN_ALL", "relevancyWindowSec": 50}}, 75, 0),
        ({**ALL, "overlap": "REPLACE"}, 31, 0),
    ],
)
def test_a_skip_needs_a_policy_that_permits_it(
    document: Document, decided: float, lost: int
) -> None:
    """10 and 20 are skipped, 30 is not."""
    late = attempt(1, decided + 1, decided + 2)
    third = run(30, late, dispatchedAt=iso(decided + 0.1))
    records = [skipped(10, 20, 2, decided=decided), third]
    found = accounted({**document, "maxRuns": 3}, records, until=99, stops=AWAY)

    assert counted(found) == (lost, 0, 0)


def test_the_latest_of_what_was_missed_is_not_to_be_skipped() -> None:
    records = [skipped(10, 30, 3, decided=95)]

    assert counted(accounted({**LATEST, "maxRuns": 3}, records, until=99, stops=AWAY)) == (1, 0, 0)


def test_an_overlapping_run_permits_a_skip() -> None:
    document = {**ALL, "overlap": "SKIP"}
    long = run(10, attempt(1, 11, 24))
    short = run(10, attempt(1, 11, 19))
    records = [skipped(20, 20, 1, decided=24)]

    assert counted(accounted(document, [long, *records])) == (0, 0, 0)
    assert counted(accounted(document, [short, *records])) == (1, 0, 0)


def test_a_range_that_miscounts_is_lost() -> None:
    records = [skipped(10, 20, 3, decided=95), run(30, attempt(1, 96, 97))]

    assert counted(accounted({**LATEST, "maxRuns": 3}, records, until=99, stops=AWAY)) == (1, 0, 0)


def test_what_was_due_in_a_pause_that_a_change_ended_must_not_run() -> None:
    job = history(ALL, (Operation.PAUSED, 15, None), (Operation.CHANGED, 23, {"schedule": "PT30S"}))

    assert counted(accounted(job, [run(10), skipped(20, 20, 1, decided=24)])) == (0, 0, 0)
    assert counted(accounted(job, [run(10), run(20)])) == (0, 1, 0)


@pytest.mark.parametrize(
    ("document", "ran", "anomalies"),
    [
        (ALL, (20, 30), 0),
        (LATEST, (30,), 0),
        (LATEST, (20, 30), 1),
        (SKIP, (), 0),
        (SKIP, (30,), 1),
    ],
)
def test_after_a_pause_the_misfire_policy_decides(
    document: Document, ran: tuple[int, ...], anomalies: int
) -> None:
    job = history(
        {**document, "maxRuns": 3}, (Operation.PAUSED, 15, None), (Operation.RESUMED, 33, None)
    )
    late = [run(s, attempt(1, s + 15, s + 16), dispatchedAt=iso(34)) for s in ran]
    rest = [skipped(s, s, 1, decided=34) for s in (20, 30) if s not in ran]

    assert len(accounted(job, [run(10), *late, *rest], until=60).anomalies) == anomalies


def test_a_run_that_skip_would_have_skipped_is_done_twice() -> None:
    late = run(20, attempt(1, 91, 92), dispatchedAt=iso(90))

    assert counted(accounted({**SKIP, "maxRuns": 2}, [run(10), late], until=99)) == (0, 1, 0)
