"""The soak test's expected occurrences, against values computed by hand."""

from __future__ import annotations

import pytest

from tests.soak.oracle import Document, Event, History, Operation, never_fires, occurrences
from tests.soak.records import NOON, TEN, at, history


def due(job: History, until: float, *, required: bool = True) -> list[int]:
    """The seconds after noon of the occurrences that must be (or may be) on record."""
    found = occurrences(job, at(until))
    return [int((one - NOON).total_seconds()) for one, o in found.items() if o.required is required]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (TEN, [10, 20, 30, 40, 50, 60]),
        ({**TEN, "startAt": at(-3).isoformat()}, [7, 17, 27, 37, 47, 57]),
        ({**TEN, "endAt": at(30).isoformat()}, [10, 20, 30]),
        ({**TEN, "maxRuns": 2}, [10, 20]),
        ({"type": "CRON", "schedule": "* * * * *", "timezone": "Asia/Kolkata"}, [60]),
        ({"type": "CRON", "schedule": "31 * * * *", "timezone": "Asia/Kolkata"}, [60]),
        ({"type": "CRON", "schedule": "31 * * * *", "timezone": "UTC"}, []),
        ({"type": "DELAY", "schedule": "PT5S"}, [5]),
        ({"type": "ONCE", "schedule": at(20).isoformat()}, [20]),
        ({"type": "DATES", "schedule": [at(s).isoformat() for s in (40, 9, 40, -5)]}, [9, 40]),
    ],
)
def test_a_schedule_is_due(document: Document, expected: list[int]) -> None:
    assert due(history(document), 60) == expected


def test_what_the_old_schedule_had_due_before_the_change_stays_its_own() -> None:
    job = history(TEN, (Operation.CHANGED, 25, {"schedule": "PT7S"}))

    assert due(job, 50) == [10, 20, 32, 39, 46]


def test_a_resumed_job_keeps_its_phase_and_owes_what_was_due_in_the_pause() -> None:
    job = history(TEN, (Operation.PAUSED, 15, None), (Operation.RESUMED, 33, None))
    found = occurrences(job, at(50))

    assert due(job, 50) == [10, 20, 30, 40, 50]
    assert [o.in_pause for o in found.values()] == [False, True, True, False, False]


def test_a_job_that_is_still_paused_owes_nothing_of_its_pause() -> None:
    job = history(TEN, (Operation.PAUSED, 15, None))

    assert due(job, 50) == [10]
    assert due(job, 50, required=False) == [20, 30, 40, 50]


def test_what_a_change_ends_in_a_pause_is_on_record_and_does_not_run() -> None:
    job = history(TEN, (Operation.PAUSED, 15, None), (Operation.CHANGED, 33, {"schedule": "PT30S"}))
    job.events.append(Event(Operation.RESUMED, at(40), at(40)))
    found = occurrences(job, at(70))

    assert due(job, 70) == [10, 20, 30, 63]
    assert [o.span.paused for o in found.values()] == [False, True, True, False]


def test_a_deleted_job_owes_what_was_due_before() -> None:
    assert due(history(TEN, (Operation.DELETED, 25, None)), 50) == [10, 20]


def test_what_was_due_between_a_request_and_its_answer_may_still_have_run() -> None:
    job = history(TEN)
    changed = {**TEN, "schedule": "PT15S"}
    job.events.append(Event(Operation.CHANGED, at(19), at(21), changed))

    assert due(job, 50) == [10, 34, 49]
    assert due(job, 50, required=False) == [20]


@pytest.mark.parametrize(("end", "never"), [(59, True), (60, False)])
def test_a_job_that_ends_before_its_first_occurrence_never_fires(end: float, never: bool) -> None:  # noqa: FBT001
    cron = {"type": "CRON", "schedule": "* * * * *", "endAt": at(end).isoformat()}

    assert never_fires(cron, NOON) is never


def test_a_change_of_the_payload_does_not_change_the_schedule() -> None:
    job = history(TEN, (Operation.CHANGED, 25, {"payload": {"a": 1}}))

    assert due(job, 40) == [10, 20, 30, 40]
