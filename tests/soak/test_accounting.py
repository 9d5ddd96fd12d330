"""The soak test's account must count every failure that it is given."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.soak.__main__ import exit_code, verdict
from tests.soak.account import Account, AnomalyKind, Record
from tests.soak.accounting import account, is_to_fail
from tests.soak.delays import Loss, Stops
from tests.soak.marks import Mark
from tests.soak.oracle import Document, Event, History, Operation
from tests.soak.test_oracle import TEN, at, history

TENANT = "000000000000"
ALL = {**TEN, "misfire": {"policy": "RUN_ALL"}, "retryPolicy": {"maxAttempts": 2}}
LATEST = {**ALL, "misfire": {"policy": "RUN_LATEST"}}
SKIP = {**ALL, "misfire": {"policy": "SKIP"}}
AWAY = [(at(9), at(9))]
"""A stop without duration: it delays nothing, but is the cause of what is late."""
FAILS = {**ALL, "payload": {"do": "fail", "fails": 9}}


def iso(second: float) -> str:
    return at(second).isoformat()


def execution_id(second: float) -> str:
    return f"job.{at(second):%Y%m%dT%H%M%S}000Z-abc"


def attempt(number: int, start: float, end: float, outcome: str = "SUCCEEDED") -> Record:
    times = {"startedAt": iso(start), "finishedAt": iso(end)}
    return {"number": number, "worker": "host-1", "outcome": outcome, **times}


def run(second: float, *attempts: Record, state: str = "SUCCEEDED", **fields: Any) -> Record:
    """The record of an occurrence; without *attempts*, of a run that succeeded immediately."""
    made = attempts or (attempt(1, second + 1, second + 3),)
    return {
        "executionId": execution_id(second),
        "state": state,
        "scheduledAt": iso(second),
        "dispatchedAt": iso(second + 0.5),
        "dispatch": 1,
        "attempt": made[-1]["number"],
        "attempts": [*made],
        "finishedAt": made[-1]["finishedAt"],
        **fields,
    }


def skipped(first: float, last: float, count: int, *, decided: float) -> Record:
    record = {
        "executionId": execution_id(first),
        "state": "SKIPPED",
        "scheduledAt": iso(first),
        "finishedAt": iso(decided),
        "dispatch": 1,
        "attempt": 0,
        "attempts": [],
    }
    span = {"from": iso(first), "to": iso(last), "count": count}
    return record if count == 1 else {**record, "range": span}


def mark(second: float, number: int = 1, *, begun: float, until: float, **more: Any) -> Mark:
    values = {"code": 0, **more}
    return Mark(TENANT, execution_id(second), number, at(begun), at(until), **values)


def marks_of(*records: Record) -> list[Mark]:
    """The marks of the scripts of *records*, if every attempt began a second after its claim."""
    return [
        Mark(
            TENANT,
            record["executionId"],
            each["number"],
            datetime.fromisoformat(each["startedAt"]) + timedelta(seconds=0.5),
            datetime.fromisoformat(each["finishedAt"]),
            code=0 if each["outcome"] == "SUCCEEDED" else 1,
        )
        for record in records
        for each in record["attempts"]
    ]


def accounted(
    job: History | Document,
    records: list[Record],
    marks: list[Mark] | None = None,
    *,
    until: float = 25,
    stops: Stops = (),
    losses: tuple[Loss, ...] = (),
    slots: Mapping[str, int] | None = None,
) -> Account:
    job = job if isinstance(job, History) else history(job)
    marks = marks_of(*records) if marks is None else marks
    by_job = {(TENANT, "job"): records}
    return account([job], by_job, marks, until=at(until), stops=stops, losses=losses, slots=slots)


def counted(found: Account) -> tuple[int, int, int]:
    """Lost, done twice, other."""
    return found.total.lost, found.total.double_effects, found.others


def test_successful_runs_are_not_anomalies() -> None:
    found = accounted(ALL, [run(10), run(20)])

    assert not found.anomalies
    assert (found.total.occurrences, found.total.runs, found.total.attempts) == (2, 2, 2)
    assert [late.dispatched for late in found.lateness] == [timedelta(seconds=0.5)] * 2


def test_an_occurrence_without_a_record_is_lost() -> None:
    assert counted(accounted(ALL, [run(10)])) == (1, 0, 0)


def test_a_run_that_has_not_ended_is_lost() -> None:
    assert counted(accounted(ALL, [run(10), run(20, state="PENDING")])) == (1, 0, 0)


def test_a_run_that_says_it_went_well_though_its_script_never_ended_is_lost() -> None:
    assert counted(accounted(ALL, [run(10), run(20)], marks_of(run(10)))) == (1, 0, 0)


def test_a_record_of_what_was_not_due_is_done_twice() -> None:
    assert counted(accounted(ALL, [run(10), run(20), run(15)])) == (0, 1, 0)


def test_an_effect_without_a_record_is_done_twice() -> None:
    extra = mark(15, begun=15, until=16)
    records = [run(10), run(20)]

    assert counted(accounted(ALL, records, [*marks_of(*records), extra])) == (0, 1, 0)


def test_an_effect_of_no_job_is_done_twice() -> None:
    extra = Mark("another", execution_id(10), 1, at(10), at(11))
    records = [run(10), run(20)]
    found = accounted(ALL, records, [*marks_of(*records), extra])

    assert [anomaly.wrong for anomaly in found.anomalies] == [AnomalyKind.DOUBLE]


def test_an_attempt_begun_twice_is_done_twice() -> None:
    records = [run(10), run(20)]
    again = mark(20, begun=23.5, until=23.6)
    found = accounted(ALL, records, [*marks_of(*records), again])

    # It began twice, the second time after the run had ended.
    assert {a.what.split(",")[0] for a in found.anomalies} == {
        "attempt 1 begun 2 times",
        "attempt 1 begun after attempt 1 had SUCCEEDED",
    }
    assert found.total.double_effects == 2


def test_an_attempt_that_was_handed_back_gives_its_number_to_the_next() -> None:
    back = run(20, attempt(1, 21, 22, "HANDED_BACK"), attempt(1, 23, 24))
    found = accounted(ALL, [run(10), back])

    assert counted(found) == (0, 0, 0)
    assert found.total.handed_back == 1


def test_two_attempts_alive_at_once_are_done_twice() -> None:
    lost = run(20, attempt(1, 21, 41, "WORKER_LOST"), attempt(2, 41, 43))
    alive = mark(20, 1, begun=21.5, until=42, code=None)
    marks = [*marks_of(run(10)), alive, mark(20, 2, begun=41.5, until=43)]

    assert counted(accounted(ALL, [run(10), lost], marks)) == (0, 1, 0)


@pytest.mark.parametrize(
    ("losses", "without_kill"), [((Loss(at(22), "host-1"),), 0), ((Loss(at(22), "host-2"),), 1)]
)
def test_a_run_of_a_killed_worker_is_repeated_and_not_done_twice(
    losses: tuple[Loss, ...], without_kill: int
) -> None:
    lost = run(20, attempt(1, 21, 41, "WORKER_LOST"), attempt(2, 41, 43))
    killed = mark(20, 1, begun=21.5, until=22, code=None)
    marks = [*marks_of(run(10)), killed, mark(20, 2, begun=41.5, until=43)]
    found = accounted(ALL, [run(10), lost], marks, losses=losses)

    assert counted(found) == (0, 0, 0)
    assert (found.total.repeated, found.repeated_without_kill) == (1, without_kill)
    assert found.taken_over == [f"{lost['executionId']}, attempt 1"] * without_kill


def test_a_run_of_a_stopped_stack_is_repeated_for_a_reason() -> None:
    lost = run(20, attempt(1, 21, 41, "WORKER_LOST"), attempt(2, 41, 43))
    found = accounted(ALL, [run(10), lost], stops=[(at(22), at(40))])

    assert (found.total.repeated, found.repeated_without_kill) == (1, 0)


def test_more_attempts_than_the_policy_gives_are_done_twice() -> None:
    dead = run(20, *(attempt(n, 20 + n, 20.9 + n, "FAILED") for n in (1, 2, 3)), state="DEAD")

    assert counted(accounted(FAILS, [run(10), dead])) == (0, 1, 0)


def test_a_run_that_died_before_its_attempts_were_used_up_is_lost() -> None:
    early = run(20, attempt(1, 21, 22, "FAILED"), state="DEAD")

    assert counted(accounted(FAILS, [run(10), early])) == (1, 0, 0)


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


def test_each_anomaly_is_told_with_its_record() -> None:
    early = run(20, attempt(1, 21, 22, "FAILED"), state="DEAD")
    found = accounted(FAILS, [run(10), early])

    assert [(a.wrong, a.record) for a in found.anomalies] == [(AnomalyKind.LOST, early)]
    assert (found.total.dead, found.total.cancelled, found.total.skipped) == (1, 0, 0)


def test_a_cancel_that_nobody_asked_for_is_lost() -> None:
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


def test_two_records_of_an_occurrence_are_done_twice() -> None:
    records = [
        skipped(10, 20, 2, decided=95),
        run(20, attempt(1, 94, 96)),
        run(30, attempt(1, 96, 97)),
    ]

    assert counted(accounted({**LATEST, "maxRuns": 3}, records, until=99, stops=AWAY)) == (0, 1, 0)


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


def test_runs_of_an_exclusive_job_that_are_alive_at_once_are_done_twice() -> None:
    document = {**ALL, "overlap": "QUEUE"}
    both = [run(10, attempt(1, 11, 22.5)), run(20)]

    assert counted(accounted(document, both)) == (0, 1, 0)
    assert counted(accounted(ALL, both)) == (0, 0, 0)


def test_a_checkpoint_that_was_kept_and_not_found_is_told() -> None:
    lost = run(20, attempt(1, 21, 41, "WORKER_LOST"), attempt(2, 41, 43))
    first = mark(20, 1, begun=21.5, until=22, code=None, found=0, saved=3)
    for found_again, others in ((3, 0), (2, 1)):
        second = mark(20, 2, begun=41.5, until=43, found=found_again, saved=5)
        marks = [*marks_of(run(10)), first, second]
        assert counted(accounted(ALL, [run(10), lost], marks)) == (0, 0, others)


def test_lateness_is_told_with_and_without_the_time_that_the_stack_was_stopped() -> None:
    late = run(20, attempt(1, 50, 51), dispatchedAt=iso(49))
    found = accounted(ALL, [run(10), late], stops=[(at(15), at(45))])
    [_, delays] = found.lateness

    assert delays.dispatched == timedelta(seconds=29)
    assert delays.dispatched_apart == timedelta(seconds=4)
    assert delays.started_apart == timedelta(seconds=5)


def test_a_job_that_is_over_and_not_shown_so_is_told() -> None:
    found = accounted({**ALL, "maxRuns": 2}, [run(10), run(20)])
    found.check_state(history(ALL), "COMPLETED")
    assert found.others == 0
    found.check_state(history(ALL), "ACTIVE")
    assert found.others == 1


# Ten occurrences of a minutely job, a clean environment, and failures only: each must be counted.

MINUTES = [60.0 * n for n in range(1, 11)]
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


def test_a_job_of_every_minute_that_ran_well_is_no_anomaly() -> None:
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
WORKERS = tuple(Loss(at(second), "host-1") for second in (60, 240, 420, 600))
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


GOOD = {"lost": 0, "double_effects": 0, "others": 0, "repeated_without_kill": 0, "at_rest": True}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({}, 0),
        ({"lost": 1}, 1),
        ({"double_effects": 1}, 1),
        ({"others": 1}, 1),
        ({"repeated_without_kill": 1}, 1),
        ({"at_rest": False}, 1),
        ({"repeated": 1, "late_without_cause": 1}, 0),
    ],
)
def test_the_exit_code_tells_what_is_wrong(wrong: dict[str, object], code: int) -> None:
    assert exit_code({**GOOD, **wrong}) == code


def test_the_verdict_says_in_words_what_the_exit_code_tells() -> None:
    said = verdict({**GOOD, "lost": 2, "repeated_without_kill": 1, "at_rest": False})

    assert said == "WRONG: lost 2, repeated_without_kill 1, not at rest"
    assert verdict(GOOD) == "no failures"
