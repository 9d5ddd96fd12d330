"""What is read to find a run that has no record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.errors import NotFoundError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.usecases.find_run import FindRun
from tests.builders import MINUTELY
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
