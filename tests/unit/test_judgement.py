"""The accounting detects falsified records in otherwise correct histories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.attempt import Attempt, AttemptOutcome
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState, Trigger
from tests.accounting import assert_all_accounted_for, covered, evidence_of, settle
from tests.builders import RUN_ALL, RUN_LATEST, SKIP, at
from tests.evidence import Evidence
from tests.world import World

BEGINNING = "11:59:30"

SECOND = timedelta(seconds=1)


def job_with_history(world: World, *, until: str = "15:00:30", **fields: Any) -> Job:
    """Register an hourly job and run it until *until*."""
    job = world.register(**fields)
    for hour in range(12, at(until).hour + 1):
        world.at(f"{hour}:00")
        settle(world)
    world.at(until)
    settle(world)
    assert_all_accounted_for(world, job)
    return job


def job_with_outage(world: World, **fields: Any) -> Job:
    """Like `job_with_history`, with an outage from 12:30 to 15:00:30."""
    job = job_with_history(world, until="12:30", **fields)
    world.at("15:00:30")
    world.new_watcher()
    settle(world)
    assert_all_accounted_for(world, job)
    return job


def key(job: Job, time: str) -> RunKey:
    return job.run_key(at(time))


def put(world: World, run: Run) -> None:
    world.runs.items[run.key] = run


def skipped(job: Job, time: str, *, by: str, **fields: Any) -> Run:
    return Run.skipped(key(job, time), "because", at(by), **fields)


def succeeded(job: Job, time: str) -> Run:
    begun = at(time) + SECOND
    done = Attempt(1, "a", begun, begun, AttemptOutcome.SUCCEEDED, 0)
    return Run(key(job, time), RunState.SUCCEEDED, attempt=1, attempts=(done,), finished_at=begun)


@pytest.mark.parametrize("overlap", ["ALLOW", "QUEUE", "SKIP", "REPLACE"])
def test_a_skip_by_an_executor_needs_a_reason(world: World, overlap: str) -> None:
    job = job_with_history(world, overlap=overlap)
    put(world, skipped(job, "14:00", by="14:00:01", pool="default"))
    with pytest.raises(AssertionError, match="no policy permits an executor to skip it"):
        assert_all_accounted_for(world, job)


def test_an_executor_may_skip_for_an_earlier_run_that_had_begun(world: World) -> None:
    job = job_with_history(world, overlap="SKIP")
    put(world, skipped(job, "14:00", by="14:00:01", pool="default"))
    put(world, replace(world.run(job, "13:00"), finished_at=at("14:00:00.5")))
    assert_all_accounted_for(world, job)


def test_an_executor_may_skip_for_a_request_that_waits(world: World) -> None:
    job = job_with_history(world, overlap="SKIP")
    put(world, skipped(job, "14:00", by="14:00:01", pool="default"))
    begun = replace(world.run(job, "13:00").attempts[0], started_at=at("14:00:30"))
    late = replace(world.run(job, "13:00"), attempts=(begun,), finished_at=at("14:00:31"))
    asked = replace(late, key=key(job, "13:59:50.005"), trigger=Trigger.MANUAL)
    put(world, asked)
    assert_all_accounted_for(world, job)

    put(world, replace(asked, finished_at=at("13:59:59")))
    with pytest.raises(AssertionError, match="no policy permits an executor to skip it"):
        assert_all_accounted_for(world, job)
    put(world, late)  # an occurrence has no record before it began
    with pytest.raises(AssertionError, match="no policy permits an executor to skip it"):
        assert_all_accounted_for(world, job)


def test_an_occurrence_is_replaced_by_the_next_that_is_to_run(world: World) -> None:
    fields: dict[str, Any] = {"schedule": "4,5,6 14 * * *", "jitterSec": 600}
    job = world.register(overlap="REPLACE", uid="uid00039", **fields)
    due_at = [f"{job.due_at(at(f'14:0{minute}')):%H:%M:%S}" for minute in (4, 5, 6)]
    assert due_at == ["14:05:07", "14:13:15", "14:08:08"]
    world.at("14:04:30")
    assert world.skips.skip_next(job.key, None).skips == (at("14:05"),)
    world.at("14:05:10")
    settle(world)
    evidence = replace(evidence_of(world, job), sent={})
    world.at("14:20")
    settle(world)

    for by in ("14:08:09", "14:13:15"):
        put(world, skipped(job, "14:04", by=by, pool="default"))
        assert_all_accounted_for(world, job, evidence=evidence)
    put(world, skipped(job, "14:04", by="14:08:08", pool="default"))
    with pytest.raises(AssertionError, match="no policy permits an executor to skip it"):
        assert_all_accounted_for(world, job, evidence=evidence)

    both = [
        replace(each, job=replace(each.job, skips=(at("14:05"), at("14:06"))))
        for each in evidence.ever
    ]
    put(world, skipped(job, "14:04", by="14:13:16", pool="default"))
    with pytest.raises(AssertionError, match="no policy permits an executor to skip it"):
        assert_all_accounted_for(world, job, evidence=replace(evidence, ever=both))


def test_what_misfire_skips_replaces_nothing(world: World) -> None:
    ends: dict[str, Any] = {"startAt": "2026-05-24T14:04:00Z", "endAt": "2026-05-24T14:04:25Z"}
    fields: dict[str, Any] = {"type": "INTERVAL", "schedule": "PT10S", "jitterSec": 50, **ends}
    job = world.register(overlap="REPLACE", uid="uid00063", misfire=SKIP, **fields)
    due_at = [f"{job.due_at(at(f'14:04:{second}')):%H:%M:%S}" for second in ("00", "10", "20")]
    assert due_at == ["14:04:03", "14:04:59", "14:04:22"]
    for when in ("14:04:04", "14:05"):
        world.at(when)
        settle(world)
    as_it_was = replace(evidence_of(world, job), sent={})
    resumed_at = [replace(s, job=replace(s.job, resumed_at=at("14:04:15"))) for s in as_it_was.ever]
    resumed = replace(as_it_was, ever=resumed_at)

    put(world, skipped(job, "14:04", by="14:04:23", pool="default"))
    assert_all_accounted_for(world, job, evidence=resumed)  # 14:04:10 was due in the pause
    with pytest.raises(AssertionError, match="no policy permits an executor to skip it"):
        assert_all_accounted_for(world, job, evidence=as_it_was)  # it is the next, and not due yet
    put(world, skipped(job, "14:04", by="14:05:19", pool="default"))
    assert_all_accounted_for(world, job, evidence=as_it_was)
    put(world, skipped(job, "14:04", by="14:05:21", pool="default"))
    with pytest.raises(AssertionError, match="no policy permits an executor to skip it"):
        assert_all_accounted_for(world, job, evidence=as_it_was)  # all of it was missed


@pytest.mark.parametrize("misfire", [RUN_ALL, RUN_LATEST, SKIP], ids=["all", "latest", "skip"])
def test_what_a_watcher_skips_was_late(world: World, misfire: dict[str, Any]) -> None:
    job = job_with_history(world, misfire=misfire)
    put(world, skipped(job, "14:00", by="14:00:59"))
    with pytest.raises(
        AssertionError, match="no policy permits skipping it 0:00:59 after it was due"
    ):
        assert_all_accounted_for(world, job)


def test_the_latest_that_was_missed_is_not_skipped(world: World) -> None:
    job = job_with_outage(world, misfire=RUN_LATEST)
    put(world, skipped(job, "15:00", by="15:05"))
    with pytest.raises(AssertionError, match="no policy permits skipping it"):
        assert_all_accounted_for(world, job)


def test_run_all_skips_nothing(world: World) -> None:
    job = job_with_outage(world, misfire=RUN_ALL)
    put(world, skipped(job, "13:00", by="15:00:30", covered_to=at("14:00"), covered=2))
    world.runs.forget(key(job, "14:00"))
    with pytest.raises(AssertionError, match="no policy permits skipping it"):
        assert_all_accounted_for(world, job)


def test_what_skip_is_to_skip_does_not_run(world: World) -> None:
    job = job_with_outage(world, misfire=SKIP)
    put(world, replace(world.run(job, "15:00"), key=key(job, "13:00")))
    put(world, skipped(job, "14:00", by="15:00:31"))
    log = world.queue.log
    log.append(log[-1].model_copy(update={"run_id": run_id(job.uid, at("13:00"))}))
    with pytest.raises(AssertionError, match=r"13.*ran, but no policy permits sending it at"):
        assert_all_accounted_for(world, job)


@pytest.mark.parametrize("late", [{"seconds": 75.999}, {"seconds": 90}, {"minutes": 5}], ids=str)
def test_what_was_decided_in_time_may_be_sent_later(world: World, late: dict[str, float]) -> None:
    job = job_with_history(world, misfire=SKIP | {"relevancyWindowSec": 1_800})
    of, sent_at = key(job, "14:00"), at("14:00") + timedelta(**late)
    evidence = evidence_of(world, job)

    def decided(when: str) -> Evidence:
        return replace(evidence, sent={of: sent_at}, decided={of: at(when)})

    assert_all_accounted_for(world, job, evidence=decided("14:01"))
    with pytest.raises(AssertionError, match=r"14.*ran, but no policy permits sending it at"):
        assert_all_accounted_for(world, job, evidence=decided("14:01:00.001"))


def test_where_the_decision_is_not_known_the_sending_has_its_bound(world: World) -> None:
    job = job_with_history(world, misfire=SKIP)
    evidence = evidence_of(world, job)

    def sent(when: str) -> Evidence:
        return replace(evidence, sent={key(job, "14:00"): at(when)})

    assert_all_accounted_for(world, job, evidence=sent("14:01:15"))
    with pytest.raises(AssertionError, match=r"14.*ran, but no policy permits sending it at"):
        assert_all_accounted_for(world, job, evidence=sent("14:01:15.001"))


def test_a_decision_after_a_pause_sees_the_pause(world: World) -> None:
    job = job_with_history(world, until="12:59:50", misfire=SKIP)
    paused_at = world.now
    world.pause(job)
    world.at("13:00:05")
    world.resume(job)
    settle(world)
    put(world, succeeded(job, "13:00"))
    evidence = replace(evidence_of(world, job), sent={key(job, "13:00"): at("13:00:30")})

    def decided(after: timedelta) -> Evidence:
        return replace(evidence, decided={key(job, "13:00"): paused_at + after})

    assert_all_accounted_for(world, job, evidence=decided(4 * SECOND))
    with pytest.raises(AssertionError, match=r"13.*ran, but no policy permits sending it at"):
        assert_all_accounted_for(world, job, evidence=decided(4.001 * SECOND))


@pytest.mark.parametrize("ends", ["resumed", "changed"])
def test_what_was_due_in_a_pause_does_not_run(world: World, ends: str) -> None:
    job = job_with_history(world, until="12:30", misfire=SKIP)
    world.pause(job)
    world.at("13:00:30")
    if ends == "resumed":
        world.resume(job)
    else:
        world.change(job, schedule="30 * * * *")
    settle(world)
    assert_all_accounted_for(world, job)
    put(world, succeeded(job, "13:00"))
    log = world.queue.log
    sent = {"run_id": run_id(job.uid, at("13:00")), "dispatched_at": at("13:00:31")}
    log.append(log[-1].model_copy(update=sent))
    with pytest.raises(AssertionError, match=r"due during a pause|no policy permits sending it"):
        assert_all_accounted_for(world, job)


@pytest.mark.parametrize("tried", [1, 2])
def test_nothing_dies_with_attempts_left(world: World, tried: int) -> None:
    retries = {"maxAttempts": 3, "initialDelayMs": 1_000, "retryOn": {"exitCodes": [1]}}
    for _ in range(3):
        world.script(exit_code=1)
    job = job_with_history(world, until="12:30", retryPolicy=retries)
    run = world.run(job, "12:00")
    assert run.state is RunState.DEAD
    put(world, replace(run, attempt=tried, attempts=run.attempts[:tried]))
    with pytest.raises(AssertionError, match=f"DEAD by FAILED after {tried} attempts"):
        assert_all_accounted_for(world, job)
    *_, last = run.attempts[:tried]
    final = replace(last, exit_code=2)  # an exit code that retryOn does not list
    put(world, replace(run, attempts=(*run.attempts[: tried - 1], final)))
    assert_all_accounted_for(world, job)


def test_a_cancelled_run_needs_a_cancel_request(world: World) -> None:
    job = job_with_history(world)
    run = replace(world.run(job, "14:00"), state=RunState.CANCELLED)
    put(world, run)
    asked = replace(evidence_of(world, job), asked_to_cancel=lambda _: True)
    assert_all_accounted_for(world, job, evidence=asked)
    unasked = replace(asked, asked_to_cancel=lambda _: False)
    with pytest.raises(AssertionError, match="cancelled without a request"):
        assert_all_accounted_for(world, job, evidence=unasked)
    # Its job may have been removed after its retention.
    assert_all_accounted_for(world, job, evidence=replace(unasked, removed_at=run.finished_at))


def early(run: Run) -> Run:
    first = replace(run.attempts[0], started_at=run.key.scheduled_at - 3 * SECOND)
    return replace(run, attempts=(first, *run.attempts[1:]))


def sent_early(run: Run) -> Run:
    return replace(run, dispatched_at=run.key.scheduled_at - 3 * SECOND)


@pytest.mark.parametrize("falsify", [early, sent_early])
def test_nothing_begins_before_it_is_due(world: World, falsify: Callable[[Run], Run]) -> None:
    job = job_with_history(world)
    put(world, falsify(world.run(job, "14:00")))
    with pytest.raises(AssertionError, match="before it was due at"):
        assert_all_accounted_for(world, job)


def test_what_has_no_occurrence_left_is_completed(world: World) -> None:
    job = job_with_history(world, type="ONCE", schedule="2026-05-24T12:00:00Z")
    done = world.job(job.key)
    assert done.state is JobState.COMPLETED
    world.jobs.put(replace(done, state=JobState.ACTIVE))
    with pytest.raises(AssertionError, match="no occurrence is left"):
        assert_all_accounted_for(world, job)
    assert_all_accounted_for(world, job, purged=True)


def test_a_late_run_does_not_excuse_a_second_run_in_its_range(world: World) -> None:
    job = job_with_outage(world, misfire=RUN_LATEST)
    late = succeeded(job, "14:00")
    begun = replace(late.attempts[0], started_at=at("15:00:31"))
    put(world, replace(late, attempts=(begun,)))
    assert_all_accounted_for(world, job, allow_late_starts=True)
    put(world, succeeded(job, "14:00"))
    with pytest.raises(
        AssertionError, match=r"1 occurrences accounted for more than once: .'14:00'"
    ):
        assert_all_accounted_for(world, job, allow_late_starts=True)


def test_what_was_cancelled_on_request_may_stand_for_no_occurrence_any_more(world: World) -> None:
    job = job_with_history(world, until="12:30")
    put(world, replace(skipped(job, "13:00", by="12:30:01"), state=RunState.CANCELLED))
    world.at("12:30:02")
    job = world.change(job, schedule="15 * * * *")
    assert_all_accounted_for(world, job)
    nobody_asked = replace(evidence_of(world, job), asked_to_cancel=lambda _: False)
    with pytest.raises(AssertionError, match="does not match an occurrence"):
        assert_all_accounted_for(world, job, evidence=nobody_asked)


def test_a_record_inside_a_missed_range_splits_it(world: World) -> None:
    job = world.register(type="INTERVAL", schedule="PT20S", misfire=RUN_LATEST)
    world.at("12:03:00")
    put(world, succeeded(job, "12:02:10"))
    settle(world)
    assert covered(world, job) == ["11:59:50-12:01:50 (7)", "12:02:30-12:02:30 (1)"]
    evidence = evidence_of(world, job)
    assert_all_accounted_for(world, job, evidence=evidence)

    with pytest.raises(
        AssertionError, match="no policy permits skipping it 0:00:30 after it was due"
    ):
        assert_all_accounted_for(world, job, evidence=replace(evidence, missed=()))
    [(row, _)] = evidence.missed
    sooner = [(row, at("12:00:30"))]
    with pytest.raises(AssertionError, match="no policy permits skipping it"):
        assert_all_accounted_for(world, job, evidence=replace(evidence, missed=sooner))
