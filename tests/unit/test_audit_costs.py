"""What an audit costs while very many runs wait in the due table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.ports.targets import Hold
from nextfire.domain.target import TargetKind
from nextfire.usecases import audit as audit_jobs
from nextfire.usecases.audit import RECHECK_AFTER
from tests.builders import at
from tests.unit.auditing import DAY, audit, auditor
from tests.unit.calling import HTTP
from tests.unit.test_audit_runs import HeldCalls
from tests.world import World

BEGINNING = "11:59"
JOBS = 10


@pytest.fixture
def waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Jobs whose runs wait for their endpoint, and are therefore suspects; a page for each."""
    monkeypatch.setattr(audit_jobs, "PAGE", 1)
    world.call_targets[TargetKind.HTTP] = HeldCalls(Hold(at("12:58:30"), "its endpoint is down"))
    for number in range(JOBS):
        world.register(f"job{number}", target=HTTP, type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.due.freeze()
    world.worker().work()
    world.tick_at("12:17")
    return world


def slow_reads(world: World, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let each read of a bucket that holds entries take that long."""
    whole = world.due.read

    def read(*args: Any, **options: Any) -> Iterator[Any]:
        found = [*whole(*args, **options)]
        if found:
            world.advance(seconds=seconds)
        return iter(found)

    monkeypatch.setattr(world.due, "read", read)


def test_a_shard_that_takes_long_to_read_is_not_read_again_for_each_page(
    waiting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the audit takes longer the more runs wait, and becomes overdue."""
    slow_reads(waiting, monkeypatch, seconds=10)
    began = waiting.now

    report = audit(waiting)

    assert (report.jobs, report.behind, report.repaired) == (JOBS, JOBS - 1, 0)
    assert waiting.now - began == RECHECK_AFTER + timedelta(seconds=10), "of one page"


def test_a_shard_is_read_again_after_ten_times_as_long(
    waiting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_reads(waiting, monkeypatch, seconds=10)
    pages = auditor(waiting).continue_audit(waiting.now + DAY, restart=True)
    assert [next(pages).behind for _ in range(2)] == [0, 1]

    waiting.advance(seconds=100)

    assert next(pages).behind == 0


def test_a_reading_ends_after_half_a_minute(
    waiting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invocation reserves a minute for its last page."""
    waiting.register("other", type="ONCE", schedule="2026-05-24T12:30:00Z")
    slow_reads(waiting, monkeypatch, seconds=31)

    report = next(auditor(waiting).continue_audit(waiting.now + DAY, restart=True))

    assert (report.behind, report.repaired) == (1, 0)


def test_a_shard_that_is_read_quickly_is_read_for_each_page(
    waiting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_reads(waiting, monkeypatch, seconds=4)

    report = audit(waiting)

    assert (report.jobs, report.behind, report.repaired) == (JOBS, 0, 0)
