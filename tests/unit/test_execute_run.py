"""A message at its executor: claim, run, record, settle and acknowledge."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from nextfire.domain.attempt import MAX_VALUE_BYTES, Attempt, AttemptOutcome, Value
from nextfire.domain.due import DispatchEntry, FireEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.events import EventKind
from nextfire.domain.ids import RunKey, dedup_id, run_id
from nextfire.domain.job import Job
from nextfire.domain.log import PART_BYTES, decode_part, part_name
from nextfire.domain.message import MAX_RECORDED_REASON, decode_message
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run, RunState
from nextfire.usecases import record_outcome
from nextfire.usecases.handled import Disposition, Handled
from tests.builders import LEASE, a_message, a_retry, at, run_key
from tests.fakes import Killed
from tests.world import World

FAILS = {"exit_code": 1}
VANISHES = {"lasts": timedelta(minutes=2), "frozen": True}
"""Script and supervisor freeze for longer than the lease."""
TOO_LARGE = b"1" * (MAX_VALUE_BYTES + 1)
NOON_ONLY = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}


@pytest.fixture
def world() -> World:
    return World("11:59")


def dispatched(world: World, **fields: object) -> Job:
    """A job whose run of 12:00 has just been sent."""
    job = world.register(**fields)  # type: ignore[arg-type] # any field of a definition
    world.tick_at("12:00")
    return job


def outcomes(run: Run) -> list[tuple[int, str, str | None]]:
    return [(a.number, a.worker, a.outcome) for a in run.attempts]


# Success


def test_a_run_that_does_well(world: World) -> None:
    job = dispatched(world, payload={"day": "ü"})
    world.script(lasts=timedelta(seconds=7), stdout="done\n")

    handled = world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (handled.disposition, handled.run, handled.started) == (
        Disposition.ACKNOWLEDGE,
        run,
        True,
    )
    assert (run.state, run.exit_code, run.stdout) == (RunState.SUCCEEDED, 0, "done\n")
    assert (run.started_at, run.finished_at) == (at("12:00"), at("12:00:07"))
    assert outcomes(run) == [(1, "a", AttemptOutcome.SUCCEEDED)]
    assert (world.queued, world.dead_letters.letters) == ([], [])
    assert world.job(job.key).state is JobState.ACTIVE


def test_a_script_is_told_what_it_runs_for(world: World) -> None:
    dispatched(world, payload={"day": "ü"}, timeoutSec=90)

    world.worker().work_one()

    (call,) = world.runner.calls
    assert call.name == "report.py"
    assert call.source == b"# s3://scripts/pools/default/acme/report.py\n"
    assert json.loads(call.payload) == {"day": "ü"}
    assert call.timeout == timedelta(seconds=90)
    assert call.environment == {
        "NEXTFIRE_EXECUTION_ID": "report.20260524T120000000Z-uid00001",
        "NEXTFIRE_SCHEDULED_AT": "2026-05-24T12:00:00Z",
        "NEXTFIRE_ATTEMPT": "1",
        "NEXTFIRE_DEADLINE": "2026-05-24T12:01:30Z",
        "NEXTFIRE_JOB_ID": "report",
        "NEXTFIRE_TENANT": "acme",
    }


def test_a_run_uses_the_definition_at_its_claim(world: World) -> None:
    job = dispatched(world)
    world.change(job, payload={"new": True})

    world.worker().work_one()

    assert world.runner.calls[0].payload == '{"new": true}'
    assert world.run(job, "12:00").job_revision == 2


def test_a_run_of_a_long_script_keeps_its_lease_and_its_message(world: World) -> None:
    job = dispatched(world)
    seen: list[object] = []
    world.script(
        lasts=5 * LEASE - timedelta(seconds=1),
        meanwhile=lambda: seen.append(world.worker("b").receive()),
    )

    world.worker("a").work_one()

    assert seen == [None]
    assert outcomes(world.run(job, "12:00")) == [(1, "a", AttemptOutcome.SUCCEEDED)]


# Failure


def test_a_failed_attempt_is_tried_again_after_its_delay(world: World) -> None:
    job = dispatched(world)
    world.script(**FAILS)

    handled = world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert (run.state, run.dispatch, run.not_before) == (RunState.PENDING, 2, at("12:00:10"))
    assert world.queued == []
    (retry,) = [entry for entry in world.entries if isinstance(entry, DispatchEntry)]
    assert (retry.at, retry.dispatch, retry.pool) == (at("12:00:10"), 2, "default")

    world.tick_at("12:00:10")
    world.worker("b").work_one()

    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.FAILED),
        (2, "b", AttemptOutcome.SUCCEEDED),
    ]


def test_a_run_whose_attempts_are_used_up_is_dead_and_told_of(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 3, "initialDelayMs": 10_000})
    for time in ("12:00:10", "12:00:30", "12:30:00"):
        world.script(**FAILS)
        world.worker().work_one()
        world.tick_at(time)

    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.reason) == (RunState.DEAD, 3, "exit code 1")
    ((body, failure),) = world.dead_letters.letters
    assert decode_message(body).key == run.key
    assert failure == "exit code 1"
    assert world.queued == []
    assert all(isinstance(entry, FireEntry) for entry in world.entries)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({"exit_code": 3}, "exit code 3"),
        ({"exit_code": 3, "stderr": "ValueError: no rows\n"}, "exit code 3: ValueError: no rows"),
        ({"exit_code": -9}, "killed by signal 9"),
        ({"error": "no interpreter"}, "no interpreter"),
        ({"lasts": timedelta(minutes=6)}, "did not end within 300 s"),
        ({"result": TOO_LARGE}, "the result has 1048577 bytes"),
        ({"exit_code": 3, "result": TOO_LARGE}, "exit code 3"),
    ],
)
def test_a_dead_run_says_why(world: World, script: dict[str, object], reason: str) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1})
    world.script(**script)

    world.worker().work_one()

    run = world.run(job, "12:00")
    assert run.state is RunState.DEAD
    assert str(run.reason).startswith(reason)
    assert run.result is None
    assert run.attempts[0].outcome is (
        AttemptOutcome.TIMED_OUT if "lasts" in script else AttemptOutcome.FAILED
    )


def test_a_missing_script_is_dead_at_once_and_says_where_it_should_be(world: World) -> None:
    job = dispatched(world)
    world.script_store.missing.add("s3://scripts/pools/default/acme/report.py")

    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.DEAD, 1)
    assert "s3://scripts/pools/default/acme/report.py" in (run.reason or "")
    assert len(world.dead_letters.letters) == 1
    assert all(isinstance(entry, FireEntry) for entry in world.entries)


def test_a_script_that_may_not_be_read_is_dead_at_once(world: World) -> None:
    job = dispatched(world)
    world.script_store.forbidden.add("s3://scripts/pools/default/acme/report.py")

    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.DEAD


@pytest.mark.parametrize("call", ["scripts.fetch", "secrets.resolve"])
def test_an_outage_before_the_script_starts_uses_up_no_attempt(world: World, call: str) -> None:
    world.secrets.values["acme/db"] = "hunter2"
    job = dispatched(
        world,
        target={"handler": "report", "env": {"PASSWORD": {"secret": "db"}}},
        retryPolicy={"maxAttempts": 1, "retryOn": {"exitCodes": [75]}},
    )
    world.faults.refuse(call)

    world.worker().work_one()
    assert world.run(job, "12:00").not_before == at("12:00:10")
    world.tick_at("12:00:10")
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert outcomes(run) == [
        (1, "a", AttemptOutcome.DEFERRED),
        (1, "a", AttemptOutcome.SUCCEEDED),
    ]
    assert (run.state, len(world.runner.calls)) == (RunState.SUCCEEDED, 1)


def test_an_outage_that_does_not_end_ends_the_run_within_a_day(world: World) -> None:
    job = dispatched(world, **NOON_ONLY)
    world.faults.refuse("scripts.fetch", times=1000)

    world.worker().work_one()
    while not (run := world.run(job, "12:00")).state.ended:
        assert run.not_before is not None
        world.clock.move_to(run.not_before)
        world.tick()
        world.worker().work_one()

    assert run.state is RunState.SKIPPED
    assert run.reason is not None
    assert "not repeated: past" in run.reason
    assert world.now <= at("12:00") + timedelta(days=1)


def test_an_outage_after_the_script_started_counts(world: World) -> None:
    def fail() -> None:
        raise UnavailableError("the store does not answer")

    job = dispatched(world)
    world.script(meanwhile=fail)

    world.worker().work_one()

    assert outcomes(world.run(job, "12:00")) == [(1, "a", AttemptOutcome.FAILED)]


def test_a_retry_that_cannot_be_stored_leaves_the_message(world: World) -> None:
    job = dispatched(world)
    world.script(**FAILS)
    world.due.refuses = lambda _: True

    with pytest.raises(UnavailableError):
        world.worker("a").work_one()
    world.due.refuses = lambda _: False
    world.at("12:01")
    world.worker("b").work_one()

    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.WORKER_LOST),
        (2, "b", AttemptOutcome.SUCCEEDED),
    ]


# Workers that vanish


def test_the_run_of_a_vanished_worker_goes_to_the_next_one(world: World) -> None:
    job = dispatched(world)
    world.script(**VANISHES, meanwhile=lambda: world.worker("b").work_one())

    late = world.worker("a").work_one()

    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.WORKER_LOST),
        (2, "b", AttemptOutcome.SUCCEEDED),
    ]
    assert late.disposition is Disposition.LEAVE
    assert "lost the lease" in late.reason
    assert world.queued == []


def test_a_worker_that_finds_itself_replaced_records_nothing(world: World) -> None:
    job = dispatched(world)

    def take_over() -> None:
        run = world.run(job, "12:00")
        world.runs.advance(
            run,
            run.taken_over(
                dispatch=1, token="b", worker="b", now=world.now, lease_until=world.now + LEASE
            ),
        )

    world.script(lasts=timedelta(seconds=30))
    world.faults.call_before_next("runs.extend", take_over)
    handled = world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert handled.disposition is Disposition.LEAVE
    assert (run.state, run.worker, run.exit_code) == (RunState.RUNNING, "b", None)


@pytest.mark.parametrize("script", [{}, FAILS], ids=["succeeds", "fails"])
def test_an_outcome_that_comes_after_a_take_over_is_not_recorded(
    world: World, script: dict[str, object]
) -> None:
    job = dispatched(world)

    def take_over() -> None:
        run = world.run(job, "12:00")
        world.runs.advance(
            run,
            run.taken_over(
                dispatch=1, token="b", worker="b", now=world.now, lease_until=world.now + LEASE
            ),
        )

    world.script(**script)
    world.faults.call_before_next("runs.advance", take_over)
    handled = world.worker("a").work_one()

    assert handled.disposition is Disposition.LEAVE
    assert "another worker" in handled.reason
    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.WORKER_LOST),
        (2, "b", None),
    ]


def test_a_store_that_does_not_answer_costs_a_worker_nothing_within_its_lease(
    world: World,
) -> None:
    job = dispatched(world)
    world.script(lasts=timedelta(minutes=2))
    world.faults.refuse("runs.extend", times=30)

    world.worker("a").work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_worker_that_cannot_extend_its_lease_stops_when_it_ends(world: World) -> None:
    job = dispatched(world)
    world.script(lasts=timedelta(minutes=5))
    world.faults.refuse("runs.extend", times=1000)

    handled = world.worker("a").work_one()

    assert world.now == at("12:01")
    assert handled.disposition is Disposition.LEAVE
    assert world.run(job, "12:00").state is RunState.RUNNING


def test_lost_workers_use_up_attempts(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1})
    ended: list[Handled] = []
    world.script(**VANISHES, meanwhile=lambda: ended.append(world.worker("b").work_one()))

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert [(each.lost, each.outcome) for each in ended] == [(True, AttemptOutcome.WORKER_LOST)]
    assert (run.state, run.attempt) == (RunState.DEAD, 1)
    assert run.reason == "worker lost on attempt 1 of 1"
    assert len(world.dead_letters.letters) == 1
    assert world.queued == []


def test_a_cancel_just_before_a_lost_run_is_taken_over_is_followed_by_no_attempt(
    world: World,
) -> None:
    job = dispatched(world)

    def cancel() -> None:
        world.runs.stop(world.run(job, "12:00"), reason="enough", now=world.now)

    def taken_over() -> None:
        world.faults.call_before_next("runs.advance", cancel)
        world.worker("b").work_one()

    world.script(**VANISHES, meanwhile=taken_over)
    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.CANCELLED, 1)
    assert len(world.runner.calls) == 1
    assert world.queued == []


def test_a_vanished_worker_s_run_that_was_to_be_cancelled_is(world: World) -> None:
    job = dispatched(world)

    def cancelled_meanwhile() -> None:
        world.runs.stop(world.run(job, "12:00"), reason="enough", now=world.now)
        world.worker("b").work_one()

    world.script(**VANISHES, meanwhile=cancelled_meanwhile)
    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.reason, run.attempt) == (RunState.CANCELLED, "enough", 1)
    assert world.dead_letters.letters == []
    assert world.queued == []


def test_a_second_delivery_waits_for_the_lease_s_end(world: World) -> None:
    job = dispatched(world)
    delivery = world.worker("a").receive()
    assert delivery is not None
    world.at("12:00:10")
    message = decode_message(delivery.body)
    world.runs.claim(
        message,
        token="a",
        worker="a",
        pool="default",
        job_revision=1,
        now=world.now,
        lease_until=at("12:01:30"),
    )

    handled = world.worker("b").handle(delivery)

    assert (handled.disposition, handled.reason) == (Disposition.LEAVE, "runs on a")
    world.at("12:01:29")
    assert world.worker("b").receive() is None
    world.at("12:01:30")
    assert world.worker("b").work_one().lost
    assert world.run(job, "12:00").attempt == 2


@pytest.mark.parametrize("script", [{}, FAILS], ids=["succeeds", "fails"])
def test_a_worker_that_dies_anywhere_loses_nothing(script: dict[str, object]) -> None:
    def dies_after(calls: int) -> bool:
        world = World("11:59")
        job = dispatched(world, **NOON_ONLY, retryPolicy={"maxAttempts": 2})
        for _ in range(3):
            world.script(**script)
        world.faults.kill_after(calls)
        try:
            world.worker("a").work_one()
        except Killed:
            died = True
        else:
            died = False
        world.faults.clear()
        for _ in range(20):
            world.advance(seconds=30)
            world.tick()
            world.worker("b").work()

        run = world.run(job, "12:00")
        assert run.state is (RunState.DEAD if script else RunState.SUCCEEDED)
        assert run.attempt <= 2
        assert bool(world.dead_letters.letters) == bool(script)
        assert world.job(job.key).state is JobState.COMPLETED
        assert (world.queued, world.entries) == ([], [])
        return died

    calls = next(calls for calls in count() if not dies_after(calls))

    assert calls == 6, "five calls, and a crash after the last one"


def test_a_retry_stored_before_a_crash_does_not_make_two_of_the_run(world: World) -> None:
    job = dispatched(world)
    world.script(**FAILS)

    def die() -> None:
        raise Killed

    world.faults.call_before_next("runs.advance", die)
    with pytest.raises(Killed):
        world.worker("a").work_one()
    assert world.run(job, "12:00").state is RunState.RUNNING

    world.tick_at("12:00:10")
    assert world.queued == ["report 12:00", "report 12:00 #2"]
    assert world.worker("b").receive() is None, "the group is blocked by its first message"
    world.at("12:01")
    world.worker("b").work()

    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.WORKER_LOST),
        (2, "b", AttemptOutcome.SUCCEEDED),
    ]
    assert world.queued == []


# Shutdown


def test_a_run_handed_back_is_free_at_once_and_the_attempt_not_counted(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1})
    world.script(lasts=timedelta(minutes=1))

    handled = world.worker("a").work_one(stopping=lambda: world.now >= at("12:00:05"))
    assert handled.disposition is Disposition.LEAVE
    assert world.run(job, "12:00").state is RunState.PENDING
    world.worker("b").work_one()

    assert world.now == at("12:00:05")
    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.HANDED_BACK),
        (1, "b", AttemptOutcome.SUCCEEDED),
    ]


def test_hand_backs_never_use_up_attempts(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1})
    for _ in range(5):
        world.script(lasts=timedelta(minutes=1))
        world.worker("a").work_one(stopping=lambda: True)

    world.worker("b").work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


# Cancelling


def test_a_running_script_is_stopped_within_seconds(world: World) -> None:
    job = dispatched(world)
    world.faults.call_before_next(
        "runs.peek", lambda: world.runs.request_cancel(world.run(job, "12:00").key)
    )
    world.script(lasts=timedelta(minutes=5))

    handled = world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert world.now == at("12:00:04")
    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert (run.state, run.reason) == (RunState.CANCELLED, "cancelled on request")


def test_a_look_that_is_refused_is_soon_repeated(world: World) -> None:
    job = dispatched(world)
    world.faults.refuse("runs.peek")

    def cancel() -> None:
        world.runs.request_cancel(world.run(job, "12:00").key)

    world.faults.call_before_next("runs.peek", cancel)
    world.script(lasts=timedelta(minutes=5))

    world.worker("a").work_one()

    assert world.run(job, "12:00").state is RunState.CANCELLED
    assert world.now == at("12:00:05")


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_cancel_between_the_last_look_and_the_failure_is_followed_by_no_retry(
    world: World, attempts: int
) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": attempts})

    def cancel() -> None:
        world.runs.stop(world.run(job, "12:00"), reason="enough", now=world.now)

    world.script(**FAILS, meanwhile=cancel)
    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.reason) == (RunState.CANCELLED, "enough")
    world.tick_at("12:00:10")
    world.worker("b").work()
    assert (world.run(job, "12:00"), world.dead_letters.letters) == (run, [])
    assert len(world.runner.calls) == 1


def test_a_cancel_of_a_run_that_is_handed_back_ends_it(world: World) -> None:
    job = dispatched(world)
    world.script(
        meanwhile=lambda: world.runs.request_cancel(world.run(job, "12:00").key),
    )

    asked = count()
    handled = world.worker("a").work_one(stopping=lambda: next(asked) > 1)  # after the start

    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert world.run(job, "12:00").state is RunState.CANCELLED
    assert len(world.runner.calls) == 1


def test_a_stopping_executor_still_sets_aside_what_does_not_decode(world: World) -> None:
    world.queue.queues["default"].send("garbage", group="g", dedup="d")

    assert world.worker("a").work_one(stopping=lambda: True).quarantined
    assert len(world.dead_letters.letters) == 1


def test_a_stopping_executor_begins_nothing(world: World) -> None:
    job = dispatched(world)

    handled = world.worker("a").work_one(stopping=lambda: True)
    assert (handled.disposition, world.runner.calls) == (Disposition.LEAVE, [])

    world.worker("b").work_one()
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


@pytest.mark.parametrize("answer", ["refuse", "lose_answer"])
@pytest.mark.parametrize(
    ("call", "behaviour"), [("runs.advance", {}), ("runs.advance", FAILS), ("due.put", FAILS)]
)
def test_an_outcome_is_written_again_until_the_store_answers(
    world: World, call: str, behaviour: dict[str, Any], answer: str
) -> None:
    job = dispatched(world)
    world.script(**behaviour)
    getattr(world.faults, answer)(call, times=5)

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert run.attempts[0].outcome is (
        AttemptOutcome.FAILED if behaviour else AttemptOutcome.SUCCEEDED
    )
    assert len(world.runner.calls) == 1


def test_a_script_gets_no_more_time_than_its_executor_has(world: World) -> None:
    dispatched(world, timeoutSec=600)
    world.faults.call_before_next("scripts.fetch", lambda: world.advance(seconds=10))

    world.worker("a").work_one(longest=timedelta(minutes=4))

    assert world.runner.calls[0].timeout == timedelta(minutes=3, seconds=50)


# Deleted jobs


def test_the_run_of_a_deleted_job_is_cancelled_and_says_why(world: World) -> None:
    job = dispatched(world)
    world.delete(job)

    handled = world.worker().work_one()

    run = world.run(job, "12:00")
    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert (run.state, run.reason) == (RunState.CANCELLED, "its job was deleted")
    assert (run.attempts, world.runner.calls) == ((), [])


def test_the_run_of_a_deleted_job_that_a_range_covers_has_no_record_of_its_own(
    world: World,
) -> None:
    """Found by simulation seed 921: a watcher covered a run that another watcher had sent."""
    job = dispatched(world)
    key = RunKey(job.key, run_id(job.uid, at("11:00")))
    world.runs.skip(Run.skipped(key, "missed", world.now, covered_to=at("12:00"), covered=2))
    world.delete(job)

    handled = world.worker().work_one()

    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert handled.reason == "missed"
    assert [each.key.run_id for each in world.runs.items.values()] == [key.run_id]


def test_the_run_of_a_former_creation_is_cancelled_the_new_one_s_runs(world: World) -> None:
    old = dispatched(world)
    world.delete(old)
    new = world.register()

    world.worker().work_one()
    world.tick_at("13:00")
    world.worker().work_one()

    assert world.run(old, "12:00").state is RunState.CANCELLED
    assert world.run(new, "13:00").state is RunState.SUCCEEDED


def test_a_run_that_was_claimed_keeps_its_message_whatever_covers_it(world: World) -> None:
    """A watcher recorded the range during the claim; then the worker died."""
    job = world.register(schedule="* * * * *", misfire={"policy": "RUN_LATEST"})
    world.tick_at("12:00")
    world.at("12:01:30")
    world.script(meanwhile=lambda: world.faults.kill_after(0))
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.faults.clear()
    assert world.run(job, "12:00").state is RunState.RUNNING
    key = RunKey(job.key, run_id(job.uid, at("11:59")))
    world.runs.skip(Run.skipped(key, "missed", world.now, covered_to=at("12:00"), covered=2))

    world.advance(seconds=LEASE.total_seconds() + 1)
    world.worker("b").work()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED
    assert world.queued == []


def test_a_run_that_waits_for_its_retry_is_cancelled_with_its_job(world: World) -> None:
    job = dispatched(world)
    world.script(**FAILS)
    world.worker().work_one()
    world.delete(job)

    world.tick_at("12:00:10")
    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.CANCELLED


def test_a_running_run_of_a_deleted_job_ends_as_it_ends(world: World) -> None:
    job = dispatched(world)
    world.script(meanwhile=lambda: world.delete(job))

    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED
    assert world.queued == []


def test_a_deleted_job_s_run_whose_worker_vanished_is_cancelled(world: World) -> None:
    job = dispatched(world)

    def meanwhile() -> None:
        world.delete(job)
        assert world.worker("b").work_one().disposition is Disposition.LEAVE
        world.advance(minutes=1)
        assert world.worker("b").work_one().disposition is Disposition.ACKNOWLEDGE

    world.script(**VANISHES, meanwhile=meanwhile)
    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert run.state is RunState.CANCELLED
    assert outcomes(run) == [(1, "a", AttemptOutcome.WORKER_LOST)]
    assert world.queued == []


def test_a_deleted_job_s_run_whose_record_has_no_lease_is_cancelled(world: World) -> None:
    job = dispatched(world)
    delivery = world.worker("a").receive()
    assert delivery is not None
    began = Attempt(1, "a", at("12:00"))
    run = Run(run_key(uid=job.uid), RunState.RUNNING, fence=1, attempt=1, attempts=(began,))
    world.runs._store(run)  # noqa: SLF001 — writers never leave such a record
    world.delete(job)

    assert world.worker("b").handle(delivery).lost
    assert world.run(job, "12:00").state is RunState.CANCELLED


def test_a_deleted_job_s_run_under_a_live_lease_is_waited_for(world: World) -> None:
    job = dispatched(world)
    delivery = world.worker("a").receive()
    assert delivery is not None
    world.runs.claim(
        decode_message(delivery.body),
        token="a",
        worker="a",
        pool="default",
        job_revision=1,
        now=world.now,
        lease_until=at("12:00:40"),
    )
    world.delete(job)

    handled = world.worker("b").handle(delivery)

    assert (handled.disposition, handled.reason) == (Disposition.LEAVE, "runs on a")
    assert world.run(job, "12:00").state is RunState.RUNNING
    world.at("12:00:40")
    assert world.worker("b").receive() is not None


# Undecodable messages and jobs


def test_a_message_that_does_not_decode_is_kept_as_a_dead_letter(world: World) -> None:
    world.queue.queues["default"].send("garbage", group="g", dedup="d")
    dispatched(world)

    first, second = world.worker().work()

    assert (first.disposition, first.quarantined) == (Disposition.ACKNOWLEDGE, True)
    assert second.outcome is AttemptOutcome.SUCCEEDED
    ((body, failure),) = world.dead_letters.letters
    assert body == "garbage"
    assert "not a run message" in failure
    assert world.queued == []


def test_a_message_is_not_acknowledged_before_its_copy_is_kept(world: World) -> None:
    world.queue.queues["default"].send("garbage", group="g", dedup="d")
    world.faults.refuse("dead_letters.put")

    with pytest.raises(UnavailableError):
        world.worker().work_one()
    assert world.events.published == []
    world.advance(minutes=1)
    world.worker().work_one()

    assert len(world.dead_letters.letters) == 1


def test_a_run_of_a_job_that_does_not_decode_waits_until_it_is_mended(world: World) -> None:
    job = dispatched(world)
    world.jobs.spoil(job.key)

    handled = world.worker().work_one()
    assert (handled.disposition, handled.quarantined) == (Disposition.LEAVE, True)

    world.jobs.repair(job.key)
    world.advance(minutes=1)
    world.worker().work_one()
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


# Settling


def test_a_one_off_job_is_completed_with_its_run(world: World) -> None:
    job = dispatched(world, **NOON_ONLY)
    world.script(**FAILS)

    world.worker().work_one()
    assert world.job(job.key).state is JobState.ACTIVE
    world.tick_at("12:00:10")
    world.worker().work_one()

    assert world.job(job.key).state is JobState.COMPLETED


def test_a_one_off_job_that_was_given_another_instant_is_not_completed(world: World) -> None:
    job = dispatched(world, **NOON_ONLY)
    world.script(meanwhile=lambda: world.change(job, schedule="2026-05-24T15:00:00Z"))

    world.worker().work_one()
    assert world.job(job.key).state is JobState.ACTIVE

    world.tick_at("15:00")
    world.worker().work_one()
    assert world.job(job.key).state is JobState.COMPLETED


@pytest.mark.parametrize("answer", ["refuse", "lose_answer"])
@pytest.mark.parametrize("call", ["jobs.complete", "dead_letters.put"])
def test_what_follows_from_an_outcome_is_done_again_by_a_redelivery(
    world: World, call: str, answer: str
) -> None:
    job = dispatched(world, **NOON_ONLY, retryPolicy={"maxAttempts": 1})
    world.script(**FAILS)
    getattr(world.faults, answer)(call, times=100)

    with pytest.raises(UnavailableError):
        world.worker("a").work_one()  # it retries until its lease ends
    assert world.run(job, "12:00").state is RunState.DEAD
    world.faults.clear()
    world.advance(minutes=1)
    handled = world.worker("b").work_one()

    assert (handled.disposition, handled.started) == (Disposition.ACKNOWLEDGE, False)
    assert world.job(job.key).state is JobState.COMPLETED
    assert len(world.dead_letters.letters) == 1
    assert len(world.runner.calls) == 1
    assert world.queued == []


# Repeated and early messages


def redeliver(world: World, dispatch: int = 1) -> None:
    """Deliver another message of the run of 12:00."""
    run = world.queue.log[0].key
    body = a_message(run, dispatch=dispatch).encode()
    world.queue.queues["default"].send(body, group="again", dedup=f"again {dispatch}")


def test_an_ended_run_never_starts_again(world: World) -> None:
    dispatched(world)
    world.worker().work_one()
    redeliver(world)

    handled = world.worker().work_one()

    assert (handled.disposition, handled.reason) == (
        Disposition.ACKNOWLEDGE,
        "has ended SUCCEEDED",
    )
    assert len(world.runner.calls) == 1


def test_a_message_of_an_older_dispatch_is_acknowledged(world: World) -> None:
    dispatched(world)
    world.script(**FAILS)
    world.worker().work_one()
    redeliver(world)
    world.at("12:00:20")

    handled = world.worker().work_one()

    assert (handled.disposition, handled.started) == (Disposition.ACKNOWLEDGE, False)
    assert "older" in handled.reason
    assert world.queued == []


def test_a_message_that_comes_too_early_waits(world: World) -> None:
    job = dispatched(world)
    world.script(**FAILS)
    world.worker().work_one()
    redeliver(world, dispatch=2)
    world.at("12:00:04")

    handled = world.worker().work_one()

    assert handled.disposition is Disposition.LEAVE
    world.at("12:00:09")
    assert world.worker().receive() is None
    world.at("12:00:10")
    world.worker().work_one()
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_claim_whose_answer_was_lost_is_found_to_be_ours(world: World) -> None:
    job = dispatched(world)
    world.faults.lose_answer("runs.claim")
    with pytest.raises(UnavailableError):
        world.worker("a").work_one()

    world.at("12:01")
    world.worker("b").work_one()

    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.WORKER_LOST),
        (2, "b", AttemptOutcome.SUCCEEDED),
    ]


def test_a_retry_that_is_stored_late_lies_where_it_is_still_read(world: World) -> None:
    dispatched(world, retryPolicy={"maxAttempts": 2, "initialDelayMs": 0})
    world.script(**FAILS)
    world.faults.refuse("due.put", times=50)
    world.at("12:00:30")

    world.worker("a").work_one()

    assert world.now == at("12:01:20")
    retries = [
        slot.minute for slot, entry in world.due.items.items() if isinstance(entry, DispatchEntry)
    ]
    assert retries == [at("12:01")]


# Retry policies


@pytest.mark.parametrize(
    ("retry_on", "script", "state"),
    [
        ({"states": ["TIMED_OUT"]}, {"exit_code": 1}, RunState.DEAD),
        ({"states": ["TIMED_OUT"]}, {"lasts": timedelta(minutes=6)}, RunState.PENDING),
        ({"exitCodes": [75]}, {"exit_code": 75}, RunState.PENDING),
        ({"exitCodes": [75]}, {"exit_code": 1}, RunState.DEAD),
        ({"exitCodes": [75]}, {"lasts": timedelta(minutes=6)}, RunState.PENDING),
        ({"exitCodes": [-9]}, {"exit_code": -9}, RunState.PENDING),
    ],
)
def test_a_run_is_tried_again_after_what_its_policy_names(
    world: World, retry_on: dict[str, object], script: dict[str, object], state: RunState
) -> None:
    job = dispatched(world, retryPolicy={"retryOn": retry_on})
    world.script(**script)

    world.worker().work_one()

    assert world.run(job, "12:00").state is state


def test_a_lost_worker_is_not_replaced_where_the_policy_does_not_say_so(world: World) -> None:
    job = dispatched(world, retryPolicy={"retryOn": {"states": ["FAILED"]}})
    world.script(lasts=LEASE * 2, frozen=True)
    world.worker("a").work_one()

    world.worker("b").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.DEAD, 1)
    assert run.reason == "worker lost; retryOn does not name WORKER_LOST"
    assert len(world.dead_letters.letters) == 1


# Dead runs


def die(world: World, **fields: object) -> Job:
    job = dispatched(world, retryPolicy={"maxAttempts": 1}, **fields)
    world.script(**FAILS)
    world.worker().work_one()
    return job


def redrive(world: World, run: Run) -> Run:
    to = run.redriven("redriven on request", world.now)
    world.runs.redrive(to, a_retry(run.key, world.now, dispatch=to.dispatch), world.now)
    return to


def test_a_death_is_told_once_however_often_its_message_comes(world: World) -> None:
    job = die(world)
    run = world.run(job, "12:00")

    redeliver(world)
    handled = world.worker().work_one()

    assert handled.reason == "has ended DEAD"
    (event,) = world.events.published
    assert event.kind is EventKind.EXECUTION_DEAD
    assert event.detail == {
        "version": 1,
        "id": dedup_id(run.key, 1),
        "tenant": "acme",
        "jobId": "report",
        "executionId": run.key.execution_id,
        "scheduledAt": "2026-05-24T12:00:00Z",
        "pool": "default",
        "attempt": 1,
        "outcome": "FAILED",
        "exitCode": 1,
        "reason": "exit code 1",
        "finishedAt": "2026-05-24T12:00:00Z",
    }
    assert len(world.dead_letters.letters) == 1


def test_a_message_that_does_not_decode_is_told_of(world: World) -> None:
    world.queue.queues["default"].send("{}", group="g", dedup="d")

    world.worker().work_one()

    (event,) = world.events.published
    assert (event.kind, event.detail["pool"]) == (EventKind.MESSAGE_UNDECODABLE, "default")
    assert "not a run message" in str(event.detail["reason"])


def test_a_redriven_run_has_its_attempts_anew_and_goes_on_with_its_numbers(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 2, "initialDelayMs": 10_000})
    for _ in range(2):
        world.script(**FAILS)
        world.worker("a").work_one()
        world.advance(seconds=10)
        world.tick()
    assert world.run(job, "12:00").state is RunState.DEAD

    redrive(world, world.run(job, "12:00"))
    world.script(**FAILS)
    world.tick()
    world.worker("b").work_one()
    waiting = world.run(job, "12:00")
    retry_at = world.now + timedelta(seconds=10)
    assert (waiting.state, waiting.not_before) == (RunState.PENDING, retry_at)
    world.advance(seconds=10)
    world.tick()
    world.worker("b").work_one()

    run = world.run(job, "12:00")
    assert outcomes(run) == [
        (1, "a", AttemptOutcome.FAILED),
        (2, "a", AttemptOutcome.FAILED),
        (3, "b", AttemptOutcome.FAILED),
        (4, "b", AttemptOutcome.SUCCEEDED),
    ]
    assert run.state is RunState.SUCCEEDED


def test_a_redrive_at_once_is_not_taken_for_a_repetition(world: World) -> None:
    """A worker stored a retry and died before it recorded that, so dispatch 2 was sent."""
    job = dispatched(world, retryPolicy={"maxAttempts": 2})
    world.script(**FAILS)

    def die() -> None:
        raise Killed

    world.faults.call_before_next("runs.advance", die)
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.at("12:02")
    world.tick()  # sends the second dispatch
    world.script(**FAILS)
    world.worker("b").work()  # dispatch 1: takeover and death; dispatch 2: the run is dead
    assert world.run(job, "12:00").state is RunState.DEAD

    redrive(world, world.run(job, "12:00"))
    world.tick()
    world.worker("b").work()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_redriven_run_cancelled_by_an_older_message_keeps_its_dispatch(world: World) -> None:
    """The message is redelivered after the redrive, when the job is deleted."""
    job = die(world)
    redriven = redrive(world, world.run(job, "12:00"))
    world.delete(job)

    redeliver(world)
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.reason) == (RunState.CANCELLED, "its job was deleted")
    assert run.dispatch == redriven.dispatch


# Checkpoints, results and environment


def test_a_checkpoint_is_given_to_the_next_attempt(world: World) -> None:
    dispatched(world, retryPolicy={"initialDelayMs": 1000})
    world.script(saves=b'{"page": 7}', **FAILS)
    world.worker("a").work_one()
    world.tick_at("12:00:01")
    world.worker("b").work_one()

    assert world.runner.found == [None, b'{"page": 7}']
    assert world.runner.refused == [None]


def test_a_large_checkpoint_outlives_its_worker(world: World) -> None:
    large = b'"' + b"x" * 20_000 + b'"'
    job = dispatched(world)
    world.script(saves=large, lasts=LEASE * 2, frozen=True)
    world.worker("a").work_one()
    world.worker("b").work_one()

    assert world.runner.found == [None, large]
    kept = world.run(job, "12:00").checkpoint
    assert kept is not None
    assert (kept.text, kept.size) == (None, len(large))


def test_a_worker_that_lost_its_run_keeps_no_checkpoint(world: World) -> None:
    job = dispatched(world)

    def take_over() -> None:
        run = world.run(job, "12:00")
        to = run.taken_over(
            dispatch=1, token="x", worker="b", now=world.now, lease_until=world.now + LEASE
        )
        world.runs.advance(run, to)

    world.faults.call_before_next("runs.save", take_over)
    world.script(saves=b"1", lasts=timedelta(seconds=30))
    handled = world.worker("a").work_one()

    assert world.now == at("12:00"), "the script is stopped at once"

    assert world.runner.refused == ["the checkpoint was not stored: this worker has lost the run"]
    assert handled.disposition is Disposition.LEAVE
    run = world.run(job, "12:00")
    assert (run.checkpoint, run.worker, run.state) == (None, "b", RunState.RUNNING)


def test_a_checkpoint_that_is_too_large_is_refused(world: World) -> None:
    dispatched(world)
    world.script(saves=b"1" * (MAX_VALUE_BYTES + 1))
    world.worker().work_one()

    (refused,) = world.runner.refused
    assert refused == (
        "the checkpoint has 1048577 bytes, more than 1048576. "
        "Store the data in S3 and put its address here."
    )


def test_a_result_is_on_the_record_a_large_one_in_a_file(world: World) -> None:
    small, large = dispatched(world), b'"' + b"y" * 9000 + b'"'
    world.script(result=b"[1, 2]")
    world.worker().work_one()
    world.tick_at("13:00")
    world.script(result=large)
    world.worker().work_one()

    assert world.run(small, "12:00").result == Value(6, text="[1, 2]")
    run = world.run(small, "13:00")
    assert run.result == Value(len(large), file="result/000001.json")
    assert world.files.get(run.result_folder, "result/000001.json") == large


def test_a_result_is_stored_again_until_the_store_answers(world: World) -> None:
    job = dispatched(world)
    world.script(result=b'"' + b"y" * 9000 + b'"')
    world.faults.refuse("files.put", times=3)
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, world.now) == (RunState.SUCCEEDED, at("12:00:03"))
    assert run.result == Value(9002, file="result/000001.json")


def test_the_environment_is_resolved_at_the_start_and_is_on_no_record(world: World) -> None:
    world.secrets.values |= {"acme/db#password": "hunter2", "acme/region": "north"}
    env = {
        "MODE": "fast",
        "PASSWORD": {"secret": "db", "key": "password"},
        "REGION": {"parameter": "region"},
    }
    job = dispatched(world, target={"handler": "report", "env": env})
    world.worker().work_one()

    (call,) = world.runner.calls
    given = {name: call.environment[name] for name in env}
    assert given == {"MODE": "fast", "PASSWORD": "hunter2", "REGION": "north"}
    assert "hunter2" not in repr(world.run(job, "12:00"))


def test_a_secret_that_is_not_there_ends_the_run_and_is_named(world: World) -> None:
    env = {"PASSWORD": {"secret": "db"}}
    job = dispatched(world, target={"handler": "report", "env": env})
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, world.runner.calls) == (RunState.DEAD, [])
    assert run.reason == "Secret 'acme/db' was not found. Create it."


def test_what_keeps_a_script_from_running_is_on_record_and_bounded(world: World) -> None:
    job = dispatched(world)

    def defect() -> None:
        raise KeyError("x" * 2000)

    world.faults.call_before_next("scripts.fetch", defect)
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert run.state is RunState.PENDING, "it will be retried"
    assert run.reason is not None
    assert run.reason.startswith("could not be run: KeyError: 'xxx")
    assert len(run.reason) == MAX_RECORDED_REASON


# Logs


def log(world: World, run: Run) -> list[str]:
    found = []
    for number, attempt in enumerate(run.attempts):
        for part in range(attempt.log_parts):
            data = world.files.get(run.folder_of(run.attempts[number]), part_name(number + 1, part))
            assert data is not None
            found += [f"{attempt.number} {line.text}" for line in decode_part(data)]
    return found


def test_a_short_run_s_output_costs_no_request(world: World) -> None:
    job = dispatched(world)
    world.script(stdout="hello\n", lasts=timedelta(seconds=2))
    world.worker().work_one()

    assert (world.run(job, "12:00").stdout, world.files.puts) == ("hello\n", 0)


def test_a_long_run_s_output_is_there_while_it_runs(world: World) -> None:
    job = dispatched(world)
    seen: list[str] = []

    def look() -> None:
        data = world.files.get(world.run(job, "12:00").result_folder, part_name(1, 0))
        seen.extend(line.text for line in decode_part(data or b""))

    world.faults.call_before_next("runs.extend", look)
    world.script(stdout="one\ntwo\nthr", lasts=timedelta(seconds=30))
    world.worker().work_one()

    assert seen == ["one", "two"]
    assert log(world, world.run(job, "12:00")) == ["1 one", "1 two", "1 thr"]


def test_much_output_goes_to_files_part_by_part(world: World) -> None:
    job = dispatched(world)
    lines = [f"{n:06d} " + "x" * 90 for n in range(6000)]
    world.script(stdout="\n".join(lines))
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert run.attempts[0].log_parts == 3
    assert log(world, run) == [f"1 {line}" for line in lines]
    sizes = [len(data) for (folder, _), data in world.files.stored.items() if folder.key == run.key]
    assert max(sizes) < PART_BYTES + 200


def test_the_output_of_an_attempt_that_another_follows_is_kept(world: World) -> None:
    job = dispatched(world, retryPolicy={"initialDelayMs": 1000})
    world.script(stdout="first\n", **FAILS)
    world.worker().work_one()
    world.tick_at("12:00:01")
    world.script(stdout="second\n")
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert log(world, run) == ["1 first"]
    assert run.stdout == "second\n"


def test_a_log_that_cannot_be_stored_holds_up_no_outcome(world: World) -> None:
    job = dispatched(world)
    world.files.broken = True
    world.script(stdout="x" * 5000 + "\n", lasts=timedelta(seconds=30))
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempts[0].log_parts) == (RunState.SUCCEEDED, 0)


# Denied writes, late heartbeats and slow stores


def denied(*_: object) -> None:
    raise PermissionError("AccessDenied")


@pytest.mark.parametrize(("printed", "puts"), [(1000, 0), (1001, 1), (5000, 1)])
def test_a_record_keeps_all_of_a_short_output_and_the_ends_of_a_longer_one(
    world: World, printed: int, puts: int
) -> None:
    job = dispatched(world)
    text = "a" * 300 + "b" * (printed - 600) + "c" * 300
    world.script(stdout=text, stderr="e" * 600)

    world.worker().work_one()

    run = world.run(job, "12:00")
    assert len(world.files.stored) == puts, "one request, and only if there is more"
    if puts:
        cut = f"\n… [{printed - 512} bytes cut: see the log] …\n"
        assert run.stdout == "a" * 256 + cut + "c" * 256
        assert run.stderr == "e" * 256 + "\n… [88 bytes cut: see the log] …\n" + "e" * 256
        assert log(world, run) == [f"1 {text}"]  # the runner of this test passes on stdout only
    else:
        assert (run.stdout, run.stderr) == (text, "e" * 600)


def test_a_log_that_could_not_be_stored_leaves_its_output_on_the_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = dispatched(world)
    monkeypatch.setattr(world.files, "put", denied)
    world.script(stdout="x" * 5000)

    world.worker().work_one()

    assert world.run(job, "12:00").stdout == "x" * 5000, "the runner of this test cuts nothing"


def test_a_log_that_is_refused_holds_up_no_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = dispatched(world)
    monkeypatch.setattr(world.files, "put", denied)
    world.script(stdout="x" * 5000 + "\n", lasts=timedelta(seconds=30))
    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_result_that_is_refused_undoes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = dispatched(world)
    monkeypatch.setattr(world.files, "put", denied)
    world.script(result=b'"' + b"y" * 9000 + b'"')
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.result) == (RunState.SUCCEEDED, None)
    assert run.reason == "exit code 0; its result could not be stored: AccessDenied"


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_lease_that_is_extended_at_the_last_moment_is_nobody_elses(
    world: World, attempts: int
) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": attempts})

    def die() -> None:
        raise Killed

    world.script(meanwhile=die)
    with pytest.raises(Killed):
        world.worker("a").work_one()
    run = world.run(job, "12:00")
    world.at("12:01:01")

    def late_heartbeat() -> None:
        world.runs.extend(run, lease_until=world.now + LEASE)

    world.faults.call_before_next("runs.advance", late_heartbeat)
    handled = world.worker("b").work_one()

    assert (handled.disposition, handled.reason) == (Disposition.LEAVE, "runs on a")
    stored = world.run(job, "12:00")
    assert (stored.state, stored.worker, stored.attempt) == (RunState.RUNNING, "a", 1)


def test_a_script_is_not_started_when_its_lease_is_over(world: World) -> None:
    job = dispatched(world)

    def takes_long() -> None:
        world.advance(seconds=61)
        world.worker("b").work_one()

    world.faults.call_before_next("scripts.fetch", takes_long)
    handled = world.worker("a").work_one()

    assert handled.disposition is Disposition.LEAVE
    assert len(world.runner.calls) == 1, "the call of worker b"
    assert world.run(job, "12:00").worker == "b"


def test_a_log_of_empty_lines_is_kept_within_its_bound(world: World) -> None:
    job = dispatched(world)
    world.script(stdout="\n" * 700_000)
    world.worker().work_one()

    kept = sum(len(data) for data in world.files.stored.values())
    assert 16 * 1024 * 1024 < kept < 17 * 1024 * 1024
    assert "bytes cut: the log is full" in log(world, world.run(job, "12:00"))[-1]


def test_a_hand_back_does_not_wait_for_its_log(world: World) -> None:
    job = dispatched(world)
    lines = "".join(f"{n} {'x' * 90}\n" for n in range(10_000))
    stopping = count()
    world.faults.call_before_each("files.put", lambda: world.advance(seconds=3))
    world.script(stdout=lines, lasts=timedelta(seconds=1))

    world.worker().work_one(stopping=lambda: next(stopping) > 1)

    run = world.run(job, "12:00")
    assert run.attempts[0].outcome is AttemptOutcome.HANDED_BACK
    assert world.now <= at("12:00:04"), "only one part is stored"


# Cancel requests and dead runs


@pytest.mark.parametrize(
    ("taken", "fields", "to_end"),
    [
        (False, {}, True),
        (True, {}, False),
        (False, {"fence": 2}, False),
        (False, {"state": RunState.SUCCEEDED}, False),
        (False, {"cancel_requested": False}, False),
    ],
)
def test_a_refusal_ends_a_run_only_if_a_cancel_was_asked_for(
    fields: dict[str, Any], *, taken: bool, to_end: bool
) -> None:
    run = Run(run_key(), RunState.RUNNING, fence=1, cancel_requested=True)

    stored = replace(run, **fields)
    assert record_outcome._refused_for_cancel(Claim(stored, taken=taken), run) is to_end  # noqa: SLF001


def test_a_death_is_told_to_people_before_it_is_marked_as_told(world: World) -> None:
    dispatched(world, retryPolicy={"maxAttempts": 1})
    world.script(**FAILS)
    world.worker().work_one()

    publishing = {"dead_letters.put", "events.put", "runs.mark_death_published"}
    assert [call for call in world.faults.calls if call in publishing] == [
        "dead_letters.put",
        "events.put",
        "runs.mark_death_published",
    ]


def test_a_waiting_run_that_was_to_be_cancelled_ends_cancelled(world: World) -> None:
    job = dispatched(world)
    began = Attempt(1, "a", at("12:00"), at("12:00"), AttemptOutcome.FAILED)
    run = Run(run_key(uid=job.uid), RunState.PENDING, fence=1, attempt=1, attempts=(began,))
    world.runs._store(replace(run, cancel_requested=True))  # noqa: SLF001

    assert world.worker().work_one().disposition is Disposition.ACKNOWLEDGE
    assert world.run(job, "12:00").state is RunState.CANCELLED


# Occurrences missed before the run


def sent_late(world: World, **fields: object) -> Job:
    """A job whose 12:02 has just been sent, with 12:00 and 12:01 reported as missed."""
    dates = [f"2026-05-24T12:0{minute}:00Z" for minute in range(3)]
    fields = {"type": "DATES", "schedule": dates, "misfire": {"policy": "RUN_LATEST"}} | fields
    job = world.register(**fields)  # type: ignore[arg-type] # any field of a definition
    world.tick_at("12:04")
    assert world.queued == ["report 12:02"]
    assert world.runs.all == {}
    return job


def recorded(world: World) -> list[str]:
    """``12:00 SUCCEEDED``, ``12:00 SKIPPED (2)``; earliest first."""
    found = sorted(world.runs.all.values(), key=lambda run: run.key.run_id)
    skipped = RunState.SKIPPED
    return [
        f"{run.key.scheduled_at:%H:%M} {run.state}"
        + (f" ({run.covered})" if run.state is skipped else "")
        for run in found
    ]


def test_what_was_missed_is_on_record_before_the_run_is_claimed(world: World) -> None:
    sent_late(world)
    world.faults.calls.clear()

    handled = world.worker().work_one()

    calls = [call for call in world.faults.calls if call in {"runs.skip", "runs.claim"}]
    assert calls == ["runs.skip", "runs.claim"]
    assert [run.covered for run in handled.missed] == [2]
    assert recorded(world) == ["12:00 SKIPPED (2)", "12:02 SUCCEEDED"]


def test_a_run_is_not_claimed_where_what_was_missed_cannot_be_recorded(world: World) -> None:
    sent_late(world)
    world.faults.refuse("runs.skip")

    with pytest.raises(UnavailableError):
        world.worker().work_one()

    assert recorded(world) == []


@pytest.mark.parametrize("script", [{}, FAILS], ids=["succeeds", "fails"])
def test_a_worker_that_dies_anywhere_loses_nothing_of_what_was_missed(
    script: dict[str, object],
) -> None:
    def dies_after(calls: int) -> bool:
        world = World("11:59")
        job = sent_late(world, retryPolicy={"maxAttempts": 2})
        for _ in range(3):
            world.script(**script)
        world.faults.kill_after(calls)
        try:
            world.worker("a").work_one()
        except Killed:
            died = True
        else:
            died = False
        claimed = any(run.state is not RunState.SKIPPED for run in world.runs.all.values())
        assert not claimed or recorded(world)[0] == "12:00 SKIPPED (2)"
        world.faults.clear()
        for _ in range(20):
            world.advance(seconds=30)
            world.tick()
            world.worker("b").work()

        last = RunState.DEAD if script else RunState.SUCCEEDED
        assert recorded(world) == ["12:00 SKIPPED (2)", f"12:02 {last}"]
        assert world.job(job.key).state is JobState.COMPLETED
        assert (world.queued, world.entries) == ([], [])
        return died

    calls = next(calls for calls in count() if not dies_after(calls))

    assert calls > 6, "the same calls, plus the calls that record missed occurrences"


def test_what_a_deleted_job_missed_is_recorded(world: World) -> None:
    job = sent_late(world)
    world.delete(job)

    handled = world.worker().work_one()

    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert recorded(world) == ["12:00 SKIPPED (2)", "12:02 CANCELLED"]


def test_a_record_that_does_not_decode_before_a_run_does_not_stop_it(world: World) -> None:
    job = sent_late(world)
    key = RunKey(job.key, run_id(job.uid, at("12:00")))

    def spoil() -> None:
        world.runs.items[key] = Run(key, RunState.RUNNING)
        world.runs.spoil(key)

    world.faults.call_before_next("runs.skip", spoil)

    handled = world.worker().work_one()

    assert (handled.disposition, handled.quarantined) == (Disposition.ACKNOWLEDGE, True)
    assert world.run(job, "12:02").state is RunState.SUCCEEDED
    assert world.run(job, "12:01").state is RunState.SKIPPED
    assert world.queued == []
