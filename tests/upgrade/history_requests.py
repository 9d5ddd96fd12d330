"""Random requests of the users of a history: calls of the client of either version."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from tests.upgrade.history_books import Books

Request = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of the client, with its arguments."""
_JOBS = 7
_KINDS = [
    *("run", "run", "pause", "resume", "resume", "change", "cancel", "cancel", "redrive"),
    *("skip", "delete", "backfill"),
]


def random_request(dice: Random, now: datetime, books: Books) -> Request:
    """A random request."""
    stored = {key.job_id: job for key, job in books.jobs().items()}
    gone = [job_id for job_id, job in stored.items() if job.state is JobState.CANCELLED]
    if len(stored) < _JOBS + len(gone) and (not stored or dice.random() < 0.6):
        job_id = dice.choice([f"job{len(stored)}", *gone])
        return "put_job", (job_id, _random_job(dice, now, stored)), {}
    job_id = dice.choice([*stored])
    runs = {run.key.execution_id: run.state for run in books.runs()}
    dead = [each for each, state in runs.items() if state is RunState.DEAD]
    kind = dice.choice(_KINDS)
    match kind:
        case "cancel" if runs:
            return "cancel_execution", (dice.choice([*runs][-5:]),), {}
        case "redrive" if dead:
            return "redrive_execution", (dice.choice(dead),), {}
        case "run" | "cancel" | "redrive":
            return "run_job", (job_id,), {}
        case _ if stored[job_id].definition.after:
            return "get_job", (job_id,), {}  # children stay: each runs whenever its parents ran
        case "change":
            changes = [
                {"misfire": _misfire(dice)},
                {"retryPolicy": _retries(dice)},
                {"payload": {"number": dice.randrange(9)}},
                {"schedule": dice.choice(["PT10S", "PT25S"])},
            ]
            return "change_job", (job_id, dice.choice(changes)), {}
        case "backfill":
            first = now - timedelta(seconds=dice.randint(30, 300))
            return "begin_backfill", (job_id,), {"from_": isoformat(first), "to": isoformat(now)}
    return {"skip": "skip_next"}.get(kind, f"{kind}_job"), (job_id,), {}


def _random_job(dice: Random, now: datetime, stored: Mapping[str, Job]) -> dict[str, Any]:
    """The document of a job that is due in this history."""

    def soon() -> str:
        return isoformat(now + timedelta(seconds=dice.randint(5, 90)))

    often: list[dict[str, Any]] = [
        {"type": "INTERVAL", "schedule": "PT10S"},
        {"type": "INTERVAL", "schedule": "PT15S", "overlap": "QUEUE"},
        {"type": "INTERVAL", "schedule": "PT20S", "overlap": dice.choice(["SKIP", "REPLACE"])},
        {"type": "CRON", "schedule": "* * * * *"},
    ]
    seldom: list[dict[str, Any]] = [
        {"type": "ONCE", "schedule": soon()},
        {"type": "MANUAL"},
        {"type": "DELAY", "schedule": "PT20S"},
        {"type": "DATES", "schedule": sorted({soon(), soon(), soon()})},
    ]
    job = {
        **dice.choice(often + seldom if stored else often),
        "target": {"handler": "report"},
        "payload": {"number": 1},
        "retryPolicy": _retries(dice),
    }
    if stored and dice.random() < 0.3:
        below = ["job0", *(job_id for job_id, each in stored.items() if each.definition.after)]
        parents = sorted({dice.choice(below), dice.choice(below)})
        after = {"type": "AFTER", "after": [{"job": each} for each in parents]}
        return {k: v for k, v in job.items() if k not in ("schedule", "overlap")} | after
    if job["type"] == "MANUAL":
        return job
    for odds, more in (
        (0.2, {"maxRuns": dice.choice([1, 2, 7])}),
        (0.2, {"priority": dice.choice(["LOW", "HIGH"])}),
        (0.2, {"jitterSec": 5}),
        (0.8, {"misfire": _misfire(dice)}),
    ):
        if dice.random() < odds:
            job |= more
    return job


def _misfire(dice: Random) -> dict[str, Any]:
    return {"policy": dice.choice(["RUN_ALL", "RUN_LATEST", "SKIP"])}


def _retries(dice: Random) -> dict[str, Any]:
    return {"maxAttempts": dice.choice([1, 2, 3]), "initialDelayMs": dice.choice([1_000, 5_000])}
