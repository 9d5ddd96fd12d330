"""Jobs that are due each minute, and the states of their runs."""

from __future__ import annotations

from typing import Any

from nextfire.domain.run import RunState
from tests.world import World

# Occurrences that must not be lost while the watcher is behind


def states(world: World, uid: str) -> dict[str, RunState]:
    return {
        f"{key.scheduled_at:%H:%M}": run.state
        for key, run in sorted(world.runs.all.items(), key=lambda each: each[0].run_id)
        if key.uid == uid
    }


RUN_ALL: dict[str, Any] = {"misfire": {"policy": "RUN_ALL"}}
EVERY_MINUTE: dict[str, Any] = {"type": "CRON", "schedule": "* * * * *", **RUN_ALL}
