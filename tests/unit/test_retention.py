"""The record of a run is kept by its outcome, and longer in a sequence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import ValidationError

from nextfire.domain.retention import RETENTION, RunRetention
from nextfire.domain.run import Run, RunState, Trigger
from tests.accounting import settle
from tests.builders import a_job
from tests.world import World

DAY = timedelta(days=1)
SHORT = RunRetention(succeeded=15 * DAY, dead=20 * DAY)


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (RunState.SUCCEEDED, 15 * DAY),
        (RunState.DEAD, 20 * DAY),
        (RunState.CANCELLED, RETENTION),
        (RunState.SKIPPED, RETENTION),
    ],
)
def test_a_record_is_kept_by_its_outcome(state: RunState, kept: timedelta) -> None:
    assert SHORT.of(a_job(), state) == kept


def test_a_sequence_keeps_all_its_records() -> None:
    parent = replace(a_job(), children=("child",))
    child = a_job(type="AFTER", schedule=None, after=[{"job": "parent"}])
    for job in (parent, child):
        assert SHORT.of(job, RunState.SUCCEEDED) == RETENTION
        assert RunRetention(succeeded=100 * DAY).of(job, RunState.SUCCEEDED) == 100 * DAY


def test_records_that_decide_about_later_runs_are_kept() -> None:
    limited = a_job(max_parallel=1)

    assert SHORT.of(limited, RunState.SUCCEEDED) == RETENTION
    assert SHORT.of(a_job(), RunState.SUCCEEDED, Trigger.BACKFILL) == RETENTION
    assert SHORT.of(a_job(), RunState.SUCCEEDED, Trigger.MANUAL) == 15 * DAY


def test_a_missing_record_may_have_expired_after_the_shortest_time() -> None:
    assert (SHORT.shortest, SHORT.longest) == (15 * DAY, RETENTION)
    assert RunRetention(succeeded=200 * DAY, dead=300 * DAY).shortest == RETENTION


def test_a_record_outlives_its_message() -> None:
    with pytest.raises(ValidationError, match="15"):
        RunRetention(succeeded=timedelta(days=14))


def test_who_ends_a_run_says_how_long_its_record_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("11:59")
    world.tick()
    world.retention = SHORT
    for name in ("good", "bad"):
        world.register(
            name, type="ONCE", schedule="2026-05-24T12:00:00Z", retryPolicy={"maxAttempts": 1}
        )
    written: dict[RunState, timedelta | None] = {}
    advance = world.runs.advance

    def noted(was: Run, to: Run, *, lapsed: bool = False) -> object:
        written[to.state] = to.kept
        return advance(was, to, lapsed=lapsed)

    monkeypatch.setattr(world.runs, "advance", noted)
    world.script(exit_code=0)
    world.script(exit_code=1)
    world.tick_at("12:00")
    settle(world)

    assert written == {RunState.SUCCEEDED: 15 * DAY, RunState.DEAD: 20 * DAY}
