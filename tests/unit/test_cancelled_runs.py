"""Runs that are cancelled, or whose job is deleted, before and while an executor has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from nextfire.domain.attempt import Attempt, AttemptOutcome
from nextfire.domain.message import decode_message
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run, RunState
from nextfire.usecases import record_outcome
from nextfire.usecases.handled import Disposition
from tests.builders import LEASE, at, claim_run, run_key
from tests.dispatched import FAILS, VANISHES, dispatched, outcomes
from tests.fakes import Killed
from tests.world import World

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


def test_the_run_of_a_deleted_job_that_a_range_covers_has_no_separate_record(
    world: World,
) -> None:
    """Found by simulation seed 921: a watcher covered a run that another watcher had sent."""
    job = dispatched(world)
    key = job.run_key(at("11:00"))
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
    key = job.run_key(at("11:59"))
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
    claim_run(
        world.runs,
        decode_message(delivery.body),
        world.now,
        lease_until=at("12:00:40"),
        worker="a",
        token="a",
    )
    world.delete(job)

    handled = world.worker("b").handle(delivery)

    assert (handled.disposition, handled.reason) == (Disposition.LEAVE, "runs on a")
    assert world.run(job, "12:00").state is RunState.RUNNING
    world.at("12:00:40")
    assert world.worker("b").receive() is not None


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


def test_a_death_is_published_before_it_is_marked_as_published(world: World) -> None:
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
