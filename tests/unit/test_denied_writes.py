"""Denied writes, late heartbeats and slow stores of an executor."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.run import RunState
from nextfire.usecases.handled import Disposition
from tests.builders import LEASE, at
from tests.dispatched import dispatched, log
from tests.fakes import Killed, raise_killed
from tests.world import World


def denied(*_: object, **__: object) -> None:
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


@pytest.mark.parametrize("call", ["extend", "peek"])
def test_a_run_outlives_a_permission_that_is_missing_for_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """For example while a policy or the grant of an encryption key is replaced."""
    job = dispatched(world)
    allowed = getattr(world.runs, call)

    def denied_for_now(*args: Any, **named: Any) -> Any:
        return denied() if world.now < at("12:00:30") else allowed(*args, **named)

    monkeypatch.setattr(world.runs, call, denied_for_now)
    world.script(lasts=timedelta(seconds=90))
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


def test_an_outcome_outlives_a_permission_that_is_missing_for_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = dispatched(world)
    allowed = world.runs.advance

    def denied_for_now(*args: Any, **named: Any) -> Any:
        return denied() if world.now < at("12:00:15") else allowed(*args, **named)

    monkeypatch.setattr(world.runs, "advance", denied_for_now)
    world.script(lasts=timedelta(seconds=10))
    handled = world.worker().work_one()

    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_an_outcome_that_stays_refused_keeps_its_slot_for_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatched(world)
    monkeypatch.setattr(world.runs, "advance", denied)
    world.script(lasts=timedelta(seconds=10))

    with pytest.raises(PermissionError):
        world.worker().work_one()
    assert at("12:00:15") < world.now < at("12:00:20")


def test_a_permission_that_stays_missing_ends_the_attempt_with_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1})
    monkeypatch.setattr(world.runs, "extend", denied)
    world.script(lasts=timedelta(seconds=90))
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.DEAD, 1)
    assert run.reason == "could not be run: PermissionError: AccessDenied"
    assert world.now < at("12:01"), "while the lease is still in force"


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
def test_a_lease_that_is_extended_at_the_last_moment_keeps_its_owner(
    world: World, attempts: int
) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": attempts})

    world.script(meanwhile=raise_killed)
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
    world.log_cap = 2 * 1024 * 1024
    world.script(stdout="\n" * 90_000)
    world.worker().work_one()

    kept = sum(len(data) for data in world.files.stored.values())
    assert world.log_cap < kept < world.log_cap + 1024 * 1024
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
