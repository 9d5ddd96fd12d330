"""A message at its executor: claim, run, record, settle and acknowledge."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.handled import Disposition
from tests.builders import LEASE, at
from tests.dispatched import FAILS, NOON_ONLY, dispatched, outcomes, redeliver
from tests.world import World

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


def test_a_script_knows_what_it_runs_for(world: World) -> None:
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

    def hand_back() -> None:
        begun_at = world.now
        world.script(lasts=timedelta(minutes=1))
        world.worker("a").work_one(stopping=lambda: world.now > begun_at)

    for _ in range(5):
        hand_back()

    world.worker("b").work_one()

    run = world.run(job, "12:00")
    assert outcomes(run) == [
        *[(1, "a", AttemptOutcome.HANDED_BACK)] * 5,
        (1, "b", AttemptOutcome.SUCCEEDED),
    ]
    assert run.state is RunState.SUCCEEDED


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


def test_a_run_of_a_job_that_does_not_decode_waits_until_it_is_repaired(world: World) -> None:
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


def test_a_retry_that_is_stored_late_is_where_it_is_still_read(world: World) -> None:
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
