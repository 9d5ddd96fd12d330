"""Requests for backfills, and the runs that they begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nextfire.domain.job import Job
from nextfire.domain.run import Run, Trigger
from nextfire.usecases.manage_backfills import BackfillRange
from tests.accounting import format_time
from tests.builders import at
from tests.world import World


def begin(
    world: World, job: Job, first: str, to: str, *, backfill_id: str = "b", **more: Any
) -> Job:
    return world.backfills.begin(
        job.key,
        BackfillRange(at(first), at(to), **more),
        backfill_id=backfill_id,
        asked_at=world.now,
        now=world.now,
    )[0]


def backfilled(world: World, job: Job) -> list[Run]:
    """The runs of the job's backfills, in the order in which they began."""
    found = [
        run
        for key, run in world.runs.all.items()
        if (key.job, key.uid) == (job.key, job.uid) and run.trigger is Trigger.BACKFILL
    ]
    return sorted(found, key=lambda run: (run.not_before or world.now, run.key.run_id))


def times(runs: Sequence[Run]) -> list[str]:
    return sorted(format_time(run.key.scheduled_at) for run in runs)


def outstanding(world: World, job: Job) -> int:
    return sum(not run.state.ended for run in backfilled(world, job))
