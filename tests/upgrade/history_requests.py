"""Random requests of the users of a history: calls of the client of either version."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

from nextfire.domain.ids import JobKey
from nextfire.domain.instants import isoformat
from nextfire.domain.run import RunState
from tests.upgrade.history_books import TENANT, Books

_JOBS = 7


def random_request(dice: Random, now: datetime, books: Books) -> tuple[Any, ...]:
    """A method of the client, and its arguments."""
    stored = books.jobs()
    jobs = [key.job_id for key in stored]
    if not jobs or (len(jobs) < _JOBS and dice.random() < 0.6):
        return "put_job", f"job{len(jobs)}", random_job(dice, now, jobs)
    job_id = dice.choice(jobs)
    runs = {run.key.execution_id: run.state for run in books.runs()}
    dead = [each for each, state in runs.items() if state is RunState.DEAD]
    kind = dice.choice(["run", "run", "pause", "resume", "resume", "change", "cancel", "redrive"])
    match kind:
        case "cancel" if runs:
            return "cancel_execution", dice.choice([*runs][-5:])
        case "redrive" if dead:
            return "redrive_execution", dice.choice(dead)
        case "pause" | "resume" | "change" if stored[JobKey(TENANT, job_id)].definition.after:
            pass  # children stay as they are: each has a run for each run of its parent
        case "change":
            changes = [
                {"misfire": _misfire(dice)},
                {"retryPolicy": _retries(dice)},
                {"payload": {"number": dice.randrange(9)}},
                {"labels": {"team": dice.choice("ab")}},
            ]
            return "change_job", job_id, dice.choice(changes)
        case "pause" | "resume":
            return f"{kind}_job", job_id
    return "run_job", job_id


def random_job(dice: Random, now: datetime, others: list[str]) -> dict[str, Any]:
    """The document of a job that is due in this history."""

    def soon() -> str:
        return isoformat(now + timedelta(seconds=dice.randint(5, 90)))

    when: dict[str, Any] = dice.choice(
        [
            {"type": "INTERVAL", "schedule": "PT10S"},
            {"type": "INTERVAL", "schedule": "PT15S", "overlap": "QUEUE"},
            {"type": "INTERVAL", "schedule": "PT20S", "overlap": dice.choice(["SKIP", "REPLACE"])},
            {"type": "CRON", "schedule": "* * * * *"},
            {"type": "ONCE", "schedule": soon()},
            {"type": "DELAY", "schedule": "PT20S"},
            {"type": "DATES", "schedule": sorted({soon(), soon(), soon()})},
        ]
    )
    job = {
        **when,
        "target": {"handler": "report"},
        "payload": {"number": 1},
        "misfire": _misfire(dice),
        "retryPolicy": _retries(dice),
    }
    if others and dice.random() < 0.3:
        del job["schedule"], job["misfire"]
        job |= {"type": "AFTER", "after": [{"job": others[0]}]}
        job.pop("overlap", None)
    elif dice.random() < 0.2:
        job["maxRuns"] = dice.choice([1, 2, 7])
    return job


def _misfire(dice: Random) -> dict[str, Any]:
    return {"policy": dice.choice(["RUN_ALL", "RUN_LATEST", "SKIP"])}


def _retries(dice: Random) -> dict[str, Any]:
    return {"maxAttempts": dice.choice([1, 2, 3]), "initialDelayMs": dice.choice([1_000, 5_000])}
