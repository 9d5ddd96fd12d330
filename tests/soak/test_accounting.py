"""The soak test's account must count every failure that it is given."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.soak.__main__ import exit_code, verdict
from tests.soak.account import AnomalyKind
from tests.soak.delays import Loss
from tests.soak.marks import Mark
from tests.soak.records import (
    ALL,
    AWAY,
    FAILS,
    LATEST,
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


def test_each_anomaly_is_reported_with_its_record() -> None:
    early = run(20, attempt(1, 21, 22, "FAILED"), state="DEAD")
    found = accounted(FAILS, [run(10), early])

    assert [(a.wrong, a.record) for a in found.anomalies] == [(AnomalyKind.LOST, early)]
    assert (found.total.dead, found.total.cancelled, found.total.skipped) == (1, 0, 0)


def test_two_records_of_an_occurrence_are_done_twice() -> None:
    records = [
        skipped(10, 20, 2, decided=95),
        run(20, attempt(1, 94, 96)),
        run(30, attempt(1, 96, 97)),
    ]

    assert counted(accounted({**LATEST, "maxRuns": 3}, records, until=99, stops=AWAY)) == (0, 1, 0)


def test_runs_of_an_exclusive_job_that_are_alive_at_once_are_done_twice() -> None:
    document = {**ALL, "overlap": "QUEUE"}
    both = [run(10, attempt(1, 11, 22.5)), run(20)]

    assert counted(accounted(document, both)) == (0, 1, 0)
    assert counted(accounted(ALL, both)) == (0, 0, 0)


def test_a_checkpoint_that_was_kept_and_not_found_is_reported() -> None:
    lost = run(20, attempt(1, 21, 41, "WORKER_LOST"), attempt(2, 41, 43))
    first = mark(20, 1, begun=21.5, until=22, code=None, found=0, saved=3)
    for found_again, others in ((3, 0), (2, 1)):
        second = mark(20, 2, begun=41.5, until=43, found=found_again, saved=5)
        marks = [*marks_of(run(10)), first, second]
        assert counted(accounted(ALL, [run(10), lost], marks)) == (0, 0, others)


def test_lateness_is_reported_with_and_without_the_time_that_the_stack_was_stopped() -> None:
    late = run(20, attempt(1, 50, 51), dispatchedAt=iso(49))
    found = accounted(ALL, [run(10), late], stops=[(at(15), at(45))])
    [_, delays] = found.lateness

    assert delays.dispatched == timedelta(seconds=29)
    assert delays.dispatched_apart == timedelta(seconds=4)
    assert delays.started_apart == timedelta(seconds=5)


def test_a_job_that_is_over_and_not_shown_so_is_reported() -> None:
    found = accounted({**ALL, "maxRuns": 2}, [run(10), run(20)])
    found.check_state(history(ALL), "COMPLETED")
    assert found.others == 0
    found.check_state(history(ALL), "ACTIVE")
    assert found.others == 1


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
def test_the_exit_code_shows_what_is_wrong(wrong: dict[str, object], code: int) -> None:
    assert exit_code({**GOOD, **wrong}) == code


def test_the_verdict_says_in_words_what_the_exit_code_tells() -> None:
    said = verdict({**GOOD, "lost": 2, "repeated_without_kill": 1, "at_rest": False})

    assert said == "WRONG: lost 2, repeated_without_kill 1, not at rest"
    assert verdict(GOOD) == "no failures"
