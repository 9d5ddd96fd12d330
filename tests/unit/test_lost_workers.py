"""Executors that vanish: another one takes the run over."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.job import Job
from nextfire.domain.message import decode_message
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.handled import Disposition, Handled
from tests.builders import LEASE, MINUTELY, a_message, at, claim_run
from tests.dispatched import FAILS, NOON_ONLY, VANISHES, dispatched, outcomes
from tests.fakes import Killed, raise_killed
from tests.world import World


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


def take_over(world: World, job: Job) -> None:
    """Worker b takes the run over."""
    run = world.run(job, "12:00")
    until = world.now + LEASE
    taken = run.taken_over(dispatch=1, token="b", worker="b", now=world.now, lease_until=until)
    world.runs.advance(run, taken)


def test_a_worker_that_finds_itself_replaced_records_nothing(world: World) -> None:
    job = dispatched(world)

    world.script(lasts=timedelta(seconds=30))
    world.faults.call_before_next("runs.extend", lambda: take_over(world, job))
    handled = world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert handled.disposition is Disposition.LEAVE
    assert (run.state, run.worker, run.exit_code) == (RunState.RUNNING, "b", None)


@pytest.mark.parametrize("script", [{}, FAILS], ids=["succeeds", "fails"])
def test_an_outcome_that_comes_after_a_take_over_is_not_recorded(
    world: World, script: dict[str, object]
) -> None:
    job = dispatched(world)

    world.script(**script)
    world.faults.call_before_next("runs.advance", lambda: take_over(world, job))
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
    claim_run(world.runs, message, world.now, lease_until=at("12:01:30"), worker="a", token="a")

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
        died = world.dies(calls, world.worker("a").work_one)
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

    world.faults.call_before_next("runs.advance", raise_killed)
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


def test_a_worker_that_continues_as_its_deleted_job_ends_its_run_is_not_lost(world: World) -> None:
    job = world.register(**MINUTELY)
    world.tick_at("12:00")
    run = claim_run(world.runs, a_message(job.run_key(at("12:00"))), world.now).run
    world.delete(job)
    world.advance(minutes=2)
    later = world.now + LEASE
    world.faults.call_before_next("runs.advance", lambda: world.runs.extend(run, lease_until=later))

    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.RUNNING
