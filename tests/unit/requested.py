"""Requests to run a job now."""

from __future__ import annotations

from typing import Any

from nextfire.domain.job import Job
from nextfire.domain.run import Run
from tests.world import World

MANUAL: dict[str, Any] = {"type": "MANUAL", "schedule": None}


def run_now(world: World, job: Job, request: str = "r", **more: Any) -> Run:
    asked: dict[str, Any] = {"payload": None, "reason": None, "asked_at": world.now} | more
    return world.request_runs.run_now(job.key, request=request, **asked)


def stored(world: World, run: Run) -> Run:
    return world.runs.all[run.key]
