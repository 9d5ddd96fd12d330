"""The supervisor of a run at each heartbeat: ownership, lease and checkpoints."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.ids import RunFolder
from nextfire.domain.ports.scripts import Directive
from nextfire.domain.run import Run, RunState
from nextfire.usecases.run_supervisor import CANCEL_CHECK_EVERY, Host, RunSupervisor
from tests.builders import LEASE, NOON, a_message, claim_run
from tests.fakes import Clock, MemoryRunFiles, MemoryRunStore


class Log:
    """Stands in for the log and the message of the run."""

    def __init__(self) -> None:
        self.shipped = 0

    def ship(self, _: object) -> None:
        self.shipped += 1

    def hide(self, _: object) -> None:
        pass


class Harness:
    """A run that started at noon, and its supervisor."""

    def __init__(self, *, fence: int = 1, hidden_longer: bool = False) -> None:
        self.clock = Clock(NOON)
        self.runs, self.files, self.log = MemoryRunStore(), MemoryRunFiles(), Log()
        claimed = claim_run(self.runs, a_message(), NOON, worker="a").run
        self.run = self.store(replace(claimed, fence=fence))
        log: Any = self.log
        host = Host(log, lambda: False, LEASE, hidden_longer)
        self.supervisor = RunSupervisor(
            self.runs,
            self.files,
            self.run,
            host,
            clock=self.clock,
            lease=LEASE,
            log=log,
            folder=RunFolder(self.run.key, "default"),
        )

    def store(self, run: Run) -> Run:
        return self.runs._store(run)  # noqa: SLF001 — as another writer would store it

    def after(self, time: timedelta) -> Directive:
        self.clock.move_to(self.clock.now() + time)
        return self.supervisor.ask()

    def kept(self) -> str | None:
        assert self.supervisor.save(b'"' + b"x" * 20_000 + b'"') is None
        run = self.runs.get(self.run.key)
        assert run is not None
        assert run.checkpoint is not None
        return run.checkpoint.file


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, Directive.CONTINUE),
        ({"cancel_requested": True}, Directive.CANCEL),
        ({"fence": 3}, Directive.LEASE_LOST),
        ({"state": RunState.CANCELLED}, Directive.LEASE_LOST),
        ({"fence": 1, "state": RunState.PENDING, "cancel_requested": True}, Directive.CONTINUE),
    ],
    ids=["ours", "to be cancelled", "taken over", "ended", "as it was before our claim"],
)
def test_the_verdict_of_a_cancel_check(fields: dict[str, Any], verdict: Directive) -> None:
    harness = Harness(fence=2)
    harness.store(replace(harness.run, **fields))

    assert harness.after(CANCEL_CHECK_EVERY) is verdict


def test_a_record_that_a_look_does_not_show_yet_says_nothing() -> None:
    harness = Harness()
    harness.runs.all.clear()

    assert harness.after(CANCEL_CHECK_EVERY) is Directive.CONTINUE


def test_a_heartbeat_that_finds_a_takeover_ships_the_log_and_stops() -> None:
    harness = Harness()
    harness.store(replace(harness.run, fence=2))

    assert harness.after(LEASE / 2) is Directive.LEASE_LOST
    assert harness.log.shipped == 1


def test_a_lease_that_is_over_is_lost_whatever_the_store_says() -> None:
    assert Harness().after(LEASE) is Directive.LEASE_LOST


def test_a_clock_that_is_set_back_stops_no_beat() -> None:
    harness = Harness()
    harness.after(timedelta(seconds=1))

    harness.after(timedelta(hours=-1))

    stored = harness.runs.get(harness.run.key)
    assert stored is not None
    assert stored.lease_until == harness.clock.now() + LEASE
    harness.store(replace(stored, cancel_requested=True))
    assert harness.after(CANCEL_CHECK_EVERY) is Directive.CANCEL


@pytest.mark.parametrize(
    ("since", "back", "left"),
    [
        pytest.param(LEASE / 4, timedelta(hours=1), LEASE, id="by an hour: a lease from then on"),
        pytest.param(LEASE * 0.9, LEASE / 10, LEASE / 5, id="by seconds: not longer than before"),
    ],
)
def test_a_lease_that_is_not_extended_ends_although_the_clock_is_set_back(
    since: timedelta, back: timedelta, left: timedelta
) -> None:
    harness = Harness()
    harness.runs.extend = Mock(side_effect=UnavailableError)  # type: ignore[method-assign]
    harness.after(since)

    assert harness.after(-back) is Directive.CONTINUE
    assert harness.after(left - timedelta(seconds=1)) is Directive.CONTINUE
    assert harness.after(timedelta(seconds=1)) is Directive.LEASE_LOST


def test_a_beat_that_is_not_answered_is_repeated_once_a_second() -> None:
    harness = Harness()
    asked: list[datetime] = []

    def extend(*_: object, **__: object) -> None:
        asked.append(harness.clock.now())
        raise UnavailableError

    harness.runs.extend = extend  # type: ignore[method-assign]
    harness.clock.move_to(NOON + LEASE / 2)

    verdicts = {harness.after(timedelta(milliseconds=200)) for _ in range(50)}

    assert verdicts == {Directive.CONTINUE}
    assert len(asked) == 10


def test_no_large_checkpoint_takes_the_place_of_another_s_or_of_its_own() -> None:
    harness = Harness()

    assert len({harness.kept(), harness.kept(), Harness(fence=2).kept()}) == 3


def test_a_queue_that_does_not_answer_stops_no_beat() -> None:
    harness = Harness(hidden_longer=True)
    asked: list[datetime] = []

    def hide(_: object) -> None:
        asked.append(harness.clock.now())
        raise UnavailableError

    harness.log.hide = hide  # type: ignore[method-assign]

    verdicts = {harness.after(timedelta(milliseconds=200)) for _ in range(5 * 120)}

    assert verdicts == {Directive.CONTINUE}
    assert harness.clock.now() > NOON + LEASE
    assert len(asked) <= 2 * 120, "about once a second"


def test_what_no_repetition_can_change_is_raised_at_once() -> None:
    harness = Harness()

    def read() -> None:
        raise UndecodableError("the run of a parent")

    with pytest.raises(UndecodableError):
        harness.supervisor.retry(read)
    assert harness.clock.now() == NOON
