"""The account needs a cause for what was skipped, late or lost."""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any

import pytest

from tests.soak.account import Record
from tests.soak.accounting import is_to_fail
from tests.soak.delays import Loss, Stops
from tests.soak.oracle import Event, History, Operation
from tests.soak.records import (
    ALL,
    MINUTES,
    WORKERS,
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

EVERY_MINUTE = {
    **ALL,
    "type": "CRON",
    "schedule": "* * * * *",
    "endAt": iso(630),
    "retryPolicy": {"maxAttempts": 3},
    "payload": {"do": "well"},
}


def minutely(**more: Any) -> History:
    return history({**EVERY_MINUTE, **more})


def late_run(second: float, late: float) -> Record:
    ran = attempt(1, second + late, second + late + 1)
    return run(second, ran, dispatchedAt=iso(second + late))


def skips(seconds: list[float], late: float) -> list[Record]:
    return [skipped(second, second, 1, decided=second + late) for second in seconds]


def failed_three_times(second: float, outcome: str, takes: float) -> Record:
    """A run that used up its attempts."""
    ends = [second + takes * n for n in (1, 2, 3, 4)]
    attempts = [attempt(n, start, end, outcome) for n, (start, end) in enumerate(pairwise(ends), 1)]
    return run(second, *attempts, state="DEAD")


def test_a_job_of_every_minute_that_ran_well_is_not_an_anomaly() -> None:
    found = accounted(minutely(), [late_run(second, 1) for second in MINUTES], until=3600)

    assert not found.anomalies
    assert not found.late_without_cause


@pytest.mark.parametrize(("early", "doubles"), [(30, 10), (2.5, 10), (1.5, 0)])
def test_what_begins_before_it_is_due_is_done_twice(early: float, doubles: int) -> None:
    records = [late_run(second, -early) for second in MINUTES]

    assert counted(accounted(minutely(), records, until=3600)) == (0, doubles, 0)


def test_what_is_sent_before_it_is_due_or_whose_script_begins_then_is_done_twice() -> None:
    [sent, ran] = [late_run(60, 1), late_run(60, 1)]
    sent["dispatchedAt"] = iso(55)
    job = minutely(maxRuns=1)
    before = [mark(60, begun=55, until=62)]

    assert counted(accounted(job, [sent], until=3600)) == (0, 1, 0)
    assert counted(accounted(job, [ran], before, until=3600)) == (0, 1, 0)


WATCHERS = tuple(Loss(at(second), None, "watcher") for second in (60, 240, 420, 600))
LAMBDAS = (Loss(at(60), None, "executor-lambda"),)


@pytest.mark.parametrize(
    ("losses", "stops", "lost"),
    [
        ((), [], 10),
        (WATCHERS, [], 0),
        ((), [(at(60), at(610))], 0),
        # Workers and Lambda executors do not dispatch.
        (WORKERS, [], 10),
        (LAMBDAS, [], 10),
        # Too long ago for the last six: the fourth was due within three minutes.
        (WATCHERS[:1], [], 6),
    ],
)
def test_what_misfire_skips_was_late_for_a_cause(
    losses: tuple[Loss, ...], stops: Stops, lost: int
) -> None:
    job = minutely(misfire={"policy": "SKIP"})
    found = accounted(job, skips(MINUTES, 61), until=3600, stops=stops, losses=losses)

    assert counted(found) == (lost, 0, 0)


@pytest.mark.parametrize(("losses", "lost"), [((), 9), (WATCHERS, 0)])
def test_what_run_latest_skips_was_late_for_a_cause(losses: tuple[Loss, ...], lost: int) -> None:
    job = minutely(misfire={"policy": "RUN_LATEST"})
    records = [*skips(MINUTES[:-1], 61), late_run(600, 1)]

    assert counted(accounted(job, records, until=3600, losses=losses)) == (lost, 0, 0)


@pytest.mark.parametrize(
    ("late", "losses", "lost"),
    [(61, (), 10), (59, (), 0), (61, WORKERS, 0), (61, WATCHERS, 0), (61, LAMBDAS, 10)],
)
def test_what_the_relevancy_window_skips_a_minute_late_was_so_for_a_cause(
    late: float, losses: tuple[Loss, ...], lost: int
) -> None:
    job = minutely(misfire={"policy": "RUN_ALL", "relevancyWindowSec": 50})

    found = accounted(job, skips(MINUTES, late), until=3600, losses=losses)
    assert counted(found) == (lost, 0, 0)


def test_a_killed_lambda_hides_a_message_for_a_quarter_of_an_hour() -> None:
    job = minutely(
        misfire={"policy": "RUN_ALL", "relevancyWindowSec": 50},
        target={"pool": "lambda"},
    )

    found = accounted(job, skips(MINUTES, 61), until=3600, losses=LAMBDAS)
    assert counted(found) == (0, 0, 0)


@pytest.mark.parametrize(("losses", "lost"), [((), 7), (WORKERS, 0)])
def test_a_long_chain_of_replacements_needs_a_cause(losses: tuple[Loss, ...], lost: int) -> None:
    """All but the last are skipped. Two in a row are plausible without a cause: a run was due, and
    then another before the first was picked up.
    """
    records = [*skips(MINUTES[:-1], 60), late_run(600, 1)]
    found = accounted(minutely(overlap="REPLACE"), records, until=3600, losses=losses)

    assert counted(found) == (lost, 0, 0)


def test_a_replacing_run_must_begin() -> None:
    """A chain of replacements is invalid if the last run did not begin without its own reason."""
    cancelled = run(600, state="CANCELLED", attempts=[], attempt=0, finishedAt=iso(601))
    job = minutely(overlap="REPLACE")
    records = [*skips(MINUTES[:-1], 60), cancelled]

    assert counted(accounted(job, records, until=3600)) == (10, 0, 0)
    job.cancels[execution_id(600)] = at(600.5)
    assert counted(accounted(job, records, until=3600)) == (7, 0, 0)


def test_an_unexpected_failure_of_a_script_is_lost() -> None:
    records = [failed_three_times(second, "FAILED", 1) for second in MINUTES]
    found = accounted(minutely(), records, until=3600)
    assert counted(found) == (30, 0, 0)

    stopped = [(at(second), at(second + 5)) for second in MINUTES]
    found = accounted(minutely(), records, [], until=3600, stops=stopped)
    assert counted(found) == (0, 0, 0)


@pytest.mark.parametrize(("begun", "lost"), [(True, 0), (False, 30)])
def test_a_script_that_was_to_fail_has_begun(begun: bool, lost: int) -> None:  # noqa: FBT001
    job = minutely(payload={"do": "fail", "fails": 3})
    records = [failed_three_times(second, "FAILED", 1) for second in MINUTES]
    marks = marks_of(*records) if begun else []

    assert counted(accounted(job, records, marks, until=3600)) == (lost, 0, 0)


def test_which_attempts_are_to_fail_is_known_as_the_script_knows_it() -> None:
    odd, even = execution_id(20), execution_id(10)
    assert (zlib.crc32(odd.encode()) % 2, zlib.crc32(even.encode()) % 2) == (1, 0)
    twice = {"do": "fail", "fails": 2}

    assert [is_to_fail(twice, odd, n) for n in (1, 2, 3)] == [True, True, False]
    assert [is_to_fail({"do": "flaky"}, even, n) for n in (1, 2)] == [True, False]
    assert not is_to_fail({"do": "flaky"}, odd, 1)
    assert not any(is_to_fail({"do": do}, even, 1) for do in ("well", "long", "save"))


def test_a_run_that_dies_of_lost_workers_had_them_killed() -> None:
    records = [failed_three_times(second, "WORKER_LOST", 60) for second in MINUTES]
    found = accounted(minutely(), records, [], until=3600)
    assert (counted(found), found.repeated_without_kill) == ((10, 0, 0), 20)

    kills = tuple(Loss(at(second + 1), "host-1") for second in map(float, range(60, 1200, 60)))
    found = accounted(minutely(), records, [], until=3600, losses=kills)
    assert (counted(found), found.repeated_without_kill) == ((0, 0, 0), 0)


def test_a_watcher_that_is_killed_is_not_why_a_worker_was_lost() -> None:
    lost = run(60, attempt(1, 61, 81, "WORKER_LOST"), attempt(2, 81, 82))
    lost["attempts"][0]["worker"] = "lambda-1"
    job = minutely(maxRuns=1)
    for what, without_kill in (("watcher", 1), ("executor-lambda", 0)):
        found = accounted(job, [lost], until=3600, losses=(Loss(at(70), None, what),))
        assert found.repeated_without_kill == without_kill


@pytest.mark.parametrize(
    ("losses", "lost"), [((), 9), (WORKERS, 0), (WATCHERS, 0), (WORKERS[:1], 5)]
)
def test_what_was_due_long_before_the_deletion_has_run(losses: tuple[Loss, ...], lost: int) -> None:
    job = minutely()
    job.events.append(Event(Operation.DELETED, at(610), at(610)))
    gone: Record = {"state": "CANCELLED", "attempts": [], "attempt": 0, "finishedAt": iso(611)}
    records = [run(second, **gone) for second in MINUTES]

    assert counted(accounted(job, records, until=3600, losses=losses)) == (lost, 0, 0)


def test_a_run_that_had_begun_is_cancelled_by_the_deletion_however_old_it_is() -> None:
    job = minutely(maxRuns=1, payload={"do": "fail", "fails": 3})
    job.events.append(Event(Operation.DELETED, at(610), at(610)))
    failed = run(60, attempt(1, 61, 62, "FAILED"), state="CANCELLED", finishedAt=iso(611))

    assert counted(accounted(job, [failed], until=3600)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("late", "losses", "without_cause"), [(540, (), 10), (540, WORKERS, 0), (59, (), 0)]
)
def test_lateness_without_a_cause_is_reported_but_not_an_anomaly(
    late: float, losses: tuple[Loss, ...], without_cause: int
) -> None:
    records = [late_run(second, late) for second in MINUTES]
    found = accounted(minutely(), records, until=3600, losses=losses)

    assert not found.anomalies
    assert len(found.late_without_cause) == without_cause


def test_a_pool_whose_slots_are_taken_is_a_cause() -> None:
    """A run of every minute takes ten minutes: nine others are running while the last waits."""
    records = [run(s, attempt(1, s + 1, s + 600)) for s in MINUTES[:-1]] + [late_run(600, 61)]
    for slots, without_cause in (({"default": 10}, 0), ({"default": 30}, 1), ({}, 1)):
        found = accounted(minutely(), records, until=3600, slots=slots)
        assert len(found.late_without_cause) == without_cause


@pytest.mark.parametrize(
    ("overlap", "ended", "without_cause"),
    [("QUEUE", 195, 0), ("QUEUE", 150, 1), ("ALLOW", 195, 1)],
)
def test_an_earlier_run_is_a_cause_where_runs_wait_for_each_other(
    overlap: str, ended: float, without_cause: int
) -> None:
    records = [run(60, attempt(1, 61, ended)), late_run(120, 80)]
    found = accounted(minutely(overlap=overlap, maxRuns=2), records, until=3600)

    assert len(found.late_without_cause) == without_cause
