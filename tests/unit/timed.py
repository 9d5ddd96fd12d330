"""Jobs with a schedule and parents."""

from __future__ import annotations

from typing import Any

from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from tests.builders import at
from tests.world import World

HOURLY = "0 * * * *"


def cron(schedule: str, **edge: Any) -> dict[str, Any]:
    """A job with *schedule* after the job a."""
    return {"type": "CRON", "schedule": schedule, "after": [{"job": "a", **edge}]}


def there(world: World, job: Job, time: str) -> Run | None:
    return world.runs.get(RunKey(job.key, run_id(job.uid, at(time))))


def state(world: World, job: Job, time: str) -> RunState | None:
    run = there(world, job, time)
    return None if run is None else run.state


def go(world: World, *times: str) -> None:
    """Let watcher and worker work at *times*."""
    for time in times:
        world.tick_at(time)
        world.worker().work()
