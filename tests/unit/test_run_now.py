"""Manual runs: once per request, in addition to the schedule."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from nextfire.domain.audit import compare, spans
from nextfire.domain.due import DispatchEntry, FireEntry
from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState, Trigger
from tests.accounting import assert_all_accounted_for, covered, ran, settle
from tests.builders import RUN_ALL, RUN_LATEST, SKIP, at, job_key
from tests.fakes import Killed
from tests.unit.auditing import audit, delete_due_entries, purge
from tests.world import World

BEGINNING = "11:58:30"

MINUTELY: dict[str, Any] = {"schedule": "* * * * *"}
ONCE: dict[str, Any] = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
MANUAL: dict[str, Any] = {"type": "MANUAL", "schedule": None}


def run_now(world: World, job: Job, request: str = "r", **more: Any) -> Run:
    asked: dict[str, Any] = {"payload": None, "reason": None, "asked_at": world.now} | more
    return world.request_runs.run_now(job.key, request=request, **asked)


def stored(world: World, run: Run) -> Run:
    return world.runs.all[run.key]


def test_a_manual_run_starts_at_once_and_is_marked(world: World) -> None:
    job = world.register()

    asked = run_now(world, job, reason="the report was wrong")
    world.tick()
    world.worker().work()

    run = stored(world, asked)
    assert (asked.state, asked.dispatch) == (RunState.PENDING, 1)
    assert (run.state, run.trigger, run.attempt) == (RunState.SUCCEEDED, Trigger.MANUAL, 1)
    assert run.request_reason == "the report was wrong"
    assert run.dispatch_reason == "run on request"
    assert_all_accounted_for(world, job)


def test_record_and_entry_are_there_together_or_not_at_all(world: World) -> None:
    job = world.register(**MANUAL)
    world.due.refuses = lambda _: True

    world.faults.refuse("runs.request")
    with pytest.raises(UnavailableError):
        run_now(world, job)
    assert not world.runs.all

    world.due.refuses = lambda _: False
    run = run_now(world, job)
    (entry,) = world.entries
    assert isinstance(entry, DispatchEntry)
    assert (entry.run_id, entry.dispatch) == (run.key.run_id, 1)


def test_a_payload_takes_the_place_of_the_job_s_in_every_attempt(world: World) -> None:
    job = world.register(payload={"a": 1}, retryPolicy={"maxAttempts": 2, "initialDelayMs": 1000})
    world.script(exit_code=1)

    run_now(world, job, payload='{"a": 2}')
    settle(world)

    assert [call.payload for call in world.runner.calls[:2]] == ['{"a": 2}'] * 2
    world.tick_at("13:00")
    world.worker().work()
    assert world.runner.calls[-1].payload == '{"a": 1}'


def test_a_payload_that_is_too_large_is_refused(world: World) -> None:
    job = world.register()
    with pytest.raises(InvalidInputError, match="payload"):
        run_now(world, job, payload='"' + 65_535 * "x" + '"')
    assert run_now(world, job, payload='"' + 65_534 * "x" + '"').payload is not None


def test_the_same_request_makes_one_run_whatever_became_of_the_job(world: World) -> None:
    job = world.register()
    first, asked_at = run_now(world, job), world.now

    world.advance(seconds=5)
    world.change(job, **MINUTELY)
    again = run_now(world, job, asked_at=asked_at)
    world.delete(job)
    once_more = run_now(world, job, asked_at=asked_at)

    assert first.key == again.key == once_more.key
    assert len(world.runs.all) == 1


def test_different_requests_of_one_instant_make_different_runs(world: World) -> None:
    job = world.register()
    runs = [run_now(world, job, request) for request in "abc"]
    assert len({run.key for run in runs}) == 3
    again = [run_now(world, job, request) for request in "abc"]
    assert [run.key for run in again] == [run.key for run in runs]


def test_a_request_whose_answer_was_lost_finds_its_run(world: World) -> None:
    job = world.register()
    world.faults.lose_answer("runs.request")
    with pytest.raises(UnavailableError):
        run_now(world, job)
    run_now(world, job)
    assert len(world.runs.all) == 1


def test_a_caller_who_dies_anywhere_and_asks_again_has_one_run() -> None:
    for calls in range(4):
        world = World("11:58:30")
        job = world.register()
        world.faults.kill_after(calls)
        with suppress(Killed):
            run_now(world, job)
        world.faults.clear()
        run_now(world, job, asked_at=at("11:58:30"))
        assert len(world.runs.all) == 1, calls
        settle(world)
        assert [run.state for run in world.runs.all.values()] == [RunState.SUCCEEDED]


@pytest.mark.parametrize(
    "asked_at", [at("12:00"), at("12:00:07"), at("12:00:07.001"), at("12:00:07.250")]
)
@pytest.mark.parametrize(
    "when",
    [
        MINUTELY,
        {"type": "INTERVAL", "schedule": "PT1S"},
        {"type": "DATES", "schedule": ["2026-05-24T12:00:07.250Z", "2026-05-24T12:00:07.251Z"]},
        ONCE,
        MANUAL,
    ],
)
def test_it_is_never_an_occurrence(when: dict[str, Any], asked_at: datetime) -> None:
    world = World("11:58:30.250")
    job = world.register(**when)
    world.clock.move_to(asked_at)

    at_ = run_now(world, job).key.scheduled_at

    assert at_.microsecond
    assert all(found.occurrence.at != at_ for found in job.upcoming(at("11:58:30"), 100))
    assert 0 <= (at_ - asked_at).total_seconds() < 0.005


@pytest.mark.parametrize("state", ["manual", "paused", "completed"])
def test_a_job_without_an_occurrence_to_come_runs_on_request(world: World, state: str) -> None:
    job = world.register(**{"manual": MANUAL, "paused": MINUTELY, "completed": ONCE}[state])
    if state == "paused":
        world.pause(job)
    if state == "completed":
        world.tick_at("12:00")
        world.worker().work()
        assert world.job(job.key).state is JobState.COMPLETED
    before = world.job(job.key)

    run = run_now(world, job)
    settle(world)

    assert stored(world, run).state is RunState.SUCCEEDED
    assert world.job(job.key) == before


def test_jobs_that_cannot_run_now_are_rejected(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.request_runs.run_now(
            job_key("missing"), payload=None, reason=None, request="r", asked_at=world.now
        )
    gone = world.register("gone")
    world.delete(gone)
    with pytest.raises(ConflictError, match="CANCELLED"):
        run_now(world, gone)
    assert not world.runs.all


def test_a_run_of_a_job_that_is_deleted_before_it_starts_is_cancelled(world: World) -> None:
    job = world.register()
    run = run_now(world, job)
    world.delete(job)
    settle(world)
    assert stored(world, run).state is RunState.CANCELLED


def test_it_completes_no_one_off_whose_run_is_still_to_come(world: World) -> None:
    job = world.register(**ONCE)
    world.at("12:00:00.5")  # 12:00 is due, and no tick has happened

    run = run_now(world, job)
    (slot,) = [s for s, e in world.due.items.items() if isinstance(e, FireEntry)]
    kept = world.due.items.pop(slot)
    world.tick()
    world.worker().work()
    assert stored(world, run).state is RunState.SUCCEEDED
    assert world.job(job.key).state is JobState.ACTIVE

    world.due.items[slot] = kept
    settle(world)
    assert world.job(job.key).state is JobState.COMPLETED
    assert_all_accounted_for(world, job)


def test_max_runs_does_not_count_it(world: World) -> None:
    job = world.register(**MINUTELY, maxRuns=2)
    for number in range(3):
        run_now(world, job, str(number))
    world.tick()
    for minute in ("11:59", "12:00", "12:01"):
        world.tick_at(minute)
        world.worker().work()
    runs = [run for run in world.runs.all.values() if run.trigger is Trigger.SCHEDULE]
    assert len(runs) == 2
    assert_all_accounted_for(world, job)


def test_neither_misfire_nor_the_relevancy_window_applies(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP | {"relevancyWindowSec": 1})
    run = run_now(world, job)
    world.tick()
    world.at("12:30")
    settle(world)
    assert stored(world, run).state is RunState.SUCCEEDED
    assert_all_accounted_for(world, job, allow_late_starts=True)


def test_a_covering_range_does_not_affect_a_manual_run(world: World) -> None:
    """A watcher covers an outage. One manual run is requested before that, and one after."""
    job = world.register(**MINUTELY, misfire=RUN_LATEST)
    world.at("12:05:30")
    early = run_now(world, job, "early", asked_at=at("12:02:30.5"))
    world.at("12:09:30")
    world.tick()
    late = run_now(world, job, "late", asked_at=at("12:03:30.5"))
    settle(world)

    assert stored(world, early).state is stored(world, late).state is RunState.SUCCEEDED
    assert covered(world, job) == ["11:59-12:08 (10)"]
    assert "12:09" in ran(world, job)
    assert_all_accounted_for(world, job)


def test_it_hides_no_range_from_a_message_that_comes_late(world: World) -> None:
    """12:00 is sent and its watcher dies; the next watcher covers 12:00. Records of manual runs are
    between the range and the occurrence that is looked up.
    """
    job = world.register(schedule="*/2 * * * *", misfire=SKIP)
    world.at("12:11:30")
    world.tick()
    before = dict(world.runs.all)
    run_now(world, job, asked_at=at("12:03:30.5"))
    found = world.find_run.find(RunKey(job.key, run_id(job.uid, at("12:04"))))
    assert isinstance(found, Run)
    assert found.key in before


# Overlap


def test_queue_waits_for_the_run_before(world: World) -> None:
    job = world.register(overlap="QUEUE", **MINUTELY)
    world.tick_at("11:59")
    first = world.worker().receive()
    assert first is not None
    run_now(world, job, asked_at=at("11:59:05.5"))
    world.advance(seconds=6)
    world.tick()

    assert world.worker("b").receive() is None, "all runs of the job share one group"
    world.worker().handle(first)
    assert world.worker("b").work_one().run is not None


def test_skip_skips_a_manual_run(world: World) -> None:
    job = world.register(overlap="SKIP", **MINUTELY)
    world.tick_at("11:59")
    asked: list[Run] = []

    def meanwhile() -> None:
        world.advance(seconds=1)
        asked.append(run_now(world, job, payload="7", reason="why not"))
        world.advance(seconds=1)

    world.script(meanwhile=meanwhile)
    world.worker().work_one()
    world.tick()
    handled = world.worker().work_one()

    run = stored(world, asked[0])
    assert (run.state, run.attempts, handled.skipped) == (RunState.SKIPPED, (), True)
    assert "had not ended" in (run.reason or "")
    assert (run.trigger, run.payload, run.request_reason) == (Trigger.MANUAL, "7", "why not")
    settle(world)
    assert_all_accounted_for(world, job)


def test_skip_skips_an_occurrence_during_a_manual_run(world: World) -> None:
    job = world.register(overlap="SKIP", **MINUTELY)
    world.at("11:58:59.5")
    run = run_now(world, job)
    world.tick()
    world.script(meanwhile=lambda: world.tick_at("11:59:01"))
    world.worker().work_one()
    world.worker().work()

    assert stored(world, run).state is RunState.SUCCEEDED
    assert world.run(job, "11:59").state is RunState.SKIPPED
    settle(world)
    assert_all_accounted_for(world, job)


def test_replace_ends_the_run_before(world: World) -> None:
    job = world.register(overlap="REPLACE", **MINUTELY)
    world.tick_at("11:59")
    asked: list[Run] = []

    def meanwhile() -> None:
        world.advance(seconds=1)
        asked.append(run_now(world, job))
        world.tick()
        world.advance(seconds=5)  # workers check for a cancel every 4 s

    world.script(meanwhile=meanwhile)
    world.worker().work_one()
    replaced = world.run(job, "11:59")
    assert replaced.state is RunState.CANCELLED
    assert asked[0].key.execution_id in (replaced.reason or "")
    world.worker().work_one()
    assert stored(world, asked[0]).state is RunState.SUCCEEDED


def test_replace_ends_a_run_on_request_for_an_occurrence(world: World) -> None:
    job = world.register(overlap="REPLACE", **MINUTELY)
    run = run_now(world, job)
    world.tick()
    world.script(meanwhile=lambda: world.tick_at("11:59"))
    world.worker().work_one()
    world.worker().work()
    assert stored(world, run).state is RunState.CANCELLED
    assert world.run(job, "11:59").state is RunState.SUCCEEDED


def test_no_more_than_twenty_are_outstanding(world: World) -> None:
    job = world.register(overlap="QUEUE", **MANUAL)
    for number in range(22):
        run_now(world, job, str(number))
        world.advance(seconds=0.01)
    world.tick()
    assert len(world.queued) == 20
    settle(world)
    assert {run.state for run in world.runs.all.values()} == {RunState.SUCCEEDED}


def test_a_manual_run_inside_a_range_does_not_split_it(world: World) -> None:
    """Covered occurrences do not count as waiting, even if another record is inside the range."""
    job = world.register(overlap="REPLACE", misfire=SKIP, schedule="*/2 * * * *")
    world.at("12:41:30")
    world.tick()
    assert covered(world, job) == ["12:00-12:40 (21)"]
    run_now(world, job, asked_at=at("12:10:30.5"))

    world.tick()
    world.tick_at("12:42")

    assert [each.partition(" ")[2] for each in world.queued] == [
        "12:10:30",
        "12:42",
    ]


@pytest.mark.parametrize("ends", ["maxRuns", "paused", "completed"])
def test_a_manual_run_does_not_wait_for_occurrences_that_never_come(
    world: World, ends: str
) -> None:
    more: dict[str, Any] = {} if ends == "paused" else {"maxRuns": 2}
    job = world.register(overlap="QUEUE", **MINUTELY, **more)
    for minute in ("11:59", "12:00"):
        world.tick_at(minute)
        if ends == "completed":
            world.worker().work()
    if ends == "paused":
        world.pause(job)
    world.at("13:00:00.5")

    run = run_now(world, job)
    world.tick()
    world.worker().work()

    assert stored(world, run).state is RunState.SUCCEEDED


def test_runs_on_request_of_a_job_that_allows_it_go_side_by_side(world: World) -> None:
    job = world.register(**MANUAL)
    for number in range(3):
        run_now(world, job, str(number))
    world.tick()
    assert all(world.worker(name).receive() is not None for name in "abc")


# The auditor


def test_the_chain_is_restored_after_what_was_due_not_after_what_was_asked_for(
    world: World,
) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_LATEST)
    delete_due_entries(world)
    world.at("12:19:30")
    run_now(world, job)
    world.tick()
    world.worker().work()
    world.at("12:40:30")
    world.tick()

    report = audit(world)
    settle(world)

    assert report.restored == 1
    assert covered(world, job) == ["12:00-12:35 (8)"]
    assert_all_accounted_for(world, job)


def test_one_whose_message_is_lost_is_sent_again(world: World) -> None:
    job = world.register(**MANUAL)
    run = run_now(world, job, payload="7")
    world.tick()
    purge(world)
    world.advance(minutes=16)
    world.tick()

    assert audit(world).revived == 1
    settle(world)

    assert stored(world, run).state is RunState.SUCCEEDED
    assert [call.payload for call in world.runner.calls] == ["7"]


def test_a_run_on_request_that_was_taken_says_nothing_of_what_was_sent_before_it(
    world: World,
) -> None:
    """The message of 12:00 waits. A manual run that is sent later is behind it in their group, but
    a manual run with a later instant may have been sent first.
    """
    job = world.register(schedule="*/30 * * * *", overlap="QUEUE", misfire=RUN_ALL)
    world.at("12:00:10")
    run = run_now(world, job)
    (entry,) = [e for e in world.entries if isinstance(e, DispatchEntry)]
    (slot,) = [s for s, e in world.due.items.items() if e != entry]
    fire = world.due.items.pop(slot)
    world.tick()
    world.worker().work()
    assert stored(world, run).state is RunState.SUCCEEDED
    world.due.items[slot] = fire
    world.tick()
    world.at("13:01:10")

    found = compare(
        world.job(job.key),
        spans(world.job(job.key), at("11:59"), at("12:20")),
        [*world.runs.all.values()],
        now=world.now,
    )

    assert found.claimed_up_to is None
    assert [missing.first for missing in found.missing] == [at("12:00")]
