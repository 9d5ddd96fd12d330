"""Attempts that fail, and their retries by the policy of the job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.due import DispatchEntry, FireEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.message import decode_message
from nextfire.domain.run import RunState
from nextfire.usecases.handled import Disposition
from tests.builders import LEASE, at
from tests.dispatched import FAILS, NOON_ONLY, TOO_LARGE, dispatched, outcomes
from tests.world import World

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


def test_a_run_whose_attempts_are_used_up_is_dead_and_published(world: World) -> None:
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


def test_an_executor_that_lacks_a_resource_uses_up_no_attempt(world: World) -> None:
    """Otherwise a worker with a full disk, which fails its runs faster than others end theirs,
    would end most runs of its pool.
    """
    job = dispatched(world, retryPolicy={"maxAttempts": 1, "retryOn": {"exitCodes": [75]}})
    world.script(error="No space left on device", unavailable=True)

    world.worker("a").work_one()
    world.tick_at("12:00:10")
    world.worker("b").work_one()

    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.DEFERRED),
        (1, "b", AttemptOutcome.SUCCEEDED),
    ]


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
    world.advance(minutes=1)
    world.worker("b").work_one()

    assert outcomes(world.run(job, "12:00")) == [
        (1, "a", AttemptOutcome.WORKER_LOST),
        (2, "b", AttemptOutcome.SUCCEEDED),
    ]


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
