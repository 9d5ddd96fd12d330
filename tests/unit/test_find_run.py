"""What is read to find a run that has no record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.errors import NotFoundError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.domain.target import TargetKind
from nextfire.usecases.find_run import FindRun
from tests.builders import MINUTELY
from tests.unit.calling import UNAVAILABLE, Calls, dispatched
from tests.world import World

RECORDS = 200
MANUAL: dict[str, Any] = {"type": "MANUAL", "schedule": None}


@pytest.mark.parametrize(
    ("fields", "trigger", "uid"),
    [
        pytest.param(MINUTELY, Trigger.SCHEDULE, "aaaaaaaa", id="of another creation of the job"),
        pytest.param(MANUAL, Trigger.MANUAL, "aaaaaaaa", id="of another creation, on request"),
        pytest.param(MANUAL, Trigger.MANUAL, None, id="of a job without a schedule"),
        pytest.param({}, Trigger.MANUAL, None, id="at an instant without an occurrence"),
    ],
)
def test_an_id_without_a_record_does_not_read_all_records_of_its_job(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    trigger: Trigger,
    uid: str | None,
) -> None:
    """A request of a caller with the scope `read` would take minutes, and a read unit for each."""
    job = world.register(**fields)
    for _ in range(RECORDS):
        world.advance(minutes=1)
        key = job.run_key(world.now)
        world.runs.items[key] = Run(key, RunState.SUCCEEDED, trigger=trigger)
    world.advance(seconds=1)
    between, read = world.runs.between, []

    def noting(*given: Any, **named: Any) -> Iterator[Run]:
        for run in between(*given, **named):
            read.append(run)
            yield run

    monkeypatch.setattr(world.runs, "between", noting)
    find = FindRun(world.jobs, world.runs, retention=timedelta(days=90), clock=world.clock)

    with pytest.raises(NotFoundError):
        find.find(RunKey(job.key, run_id(uid or job.uid, world.now)))
    assert len(read) <= 1


def test_a_run_that_waits_again_says_for_what(world: World) -> None:
    """Its record has the reason of its last attempt, and an instant that has passed."""
    world.call_targets[TargetKind.HTTP] = Calls([UNAVAILABLE])
    job = dispatched(world)
    world.worker("a").work_one()
    run = world.run(job, "12:00")
    assert run.not_before is not None

    world.clock.move_to(run.not_before + timedelta(seconds=59))
    assert world.find_run.explain(run) is run

    world.clock.move_to(run.not_before + timedelta(seconds=60))
    reason = world.find_run.explain(run).reason
    assert reason is not None
    assert reason.startswith(f"{run.reason}; due again 60 s ago and not taken by an executor yet")
    assert "its destination (see the endpoints)" in reason
