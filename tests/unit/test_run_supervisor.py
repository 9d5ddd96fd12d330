"""A run's supervisor, beat by beat: whose the run is, and what of it is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.ids import RunFolder
from nextfire.domain.ports import Verdict
from nextfire.domain.run import Run, RunState
from nextfire.usecases.run_supervisor import CANCEL_CHECK_EVERY, Host, RunSupervisor
from tests.builders import LEASE, NOON, a_message
from tests.fakes import Clock, MemoryRunFiles, MemoryRunStore


class Log:
    """Stands in for the run's log, and the message."""

    def __init__(self) -> None:
        self.shipped = 0

    def ship(self, _: object) -> None:
        self.shipped += 1

    def hide(self, _: object) -> None:
        pass


class Bed:
    """A run under way since noon, and its supervisor."""

    def __init__(self, *, fence: int = 1) -> None:
        self.clock = Clock(NOON)
        self.runs, self.files, self.log = MemoryRunStore(), MemoryRunFiles(), Log()
        claimed = self.runs.claim(
            a_message(),
            token="t",
            worker="a",
            pool="default",
            job_revision=1,
            now=NOON,
            lease_until=NOON + LEASE,
        ).run
        self.run = self.there(replace(claimed, fence=fence))
        log: Any = self.log
        host = Host(log, lambda: False, LEASE)
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

    def there(self, run: Run) -> Run:
        return self.runs._store(run)  # noqa: SLF001 — as another writer left it

    def after(self, time: timedelta) -> Verdict:
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
        ({}, Verdict.GO_ON),
        ({"cancel_requested": True}, Verdict.CANCEL),
        ({"fence": 3}, Verdict.LEASE_LOST),
        ({"state": RunState.CANCELLED}, Verdict.LEASE_LOST),
        ({"fence": 1, "state": RunState.PENDING, "cancel_requested": True}, Verdict.GO_ON),
    ],
    ids=["ours", "to be cancelled", "taken over", "ended", "as it was before our claim"],
)
def test_what_a_look_shows(fields: dict[str, Any], verdict: Verdict) -> None:
    bed = Bed(fence=2)
    bed.there(replace(bed.run, **fields))

    assert bed.after(CANCEL_CHECK_EVERY) is verdict


def test_a_record_that_a_look_does_not_show_yet_says_nothing() -> None:
    bed = Bed()
    bed.runs.all.clear()

    assert bed.after(CANCEL_CHECK_EVERY) is Verdict.GO_ON


def test_a_beat_that_meets_another_s_claim_ends_it_and_the_log_is_shipped_before() -> None:
    bed = Bed()
    bed.there(replace(bed.run, fence=2))

    assert bed.after(LEASE / 2) is Verdict.LEASE_LOST
    assert bed.log.shipped == 1


def test_a_lease_that_is_over_is_lost_whatever_the_store_says() -> None:
    assert Bed().after(LEASE) is Verdict.LEASE_LOST


def test_no_large_checkpoint_takes_the_place_of_another_s_or_of_its_own() -> None:
    bed = Bed()

    assert len({bed.kept(), bed.kept(), Bed(fence=2).kept()}) == 3
