"""What the soak test sends: job documents and later changes, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from tests.soak.marks import HANDLER
from tests.soak.oracle import Document

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
)
_CRONS = ("* * * * *", "* * * * *", "*/2 * * * *", "0-44 * * * *", "15-59 * * * *", "1/3 * * * *")
_TENANTS = 2


@dataclass(frozen=True, slots=True)
class Planned:
    """A job to create at the instant *at*, for tenant number `tenant`."""

    at: datetime
    tenant: int
    document: Document

    @property
    def job_id(self) -> str:
        return str(self.document["jobId"])


def jobs(
    random: Random,
    count: int,
    begins_at: datetime,
    ends_at: datetime,
    marks: Path,
    *,
    on_lambda: float,
) -> list[Planned]:
    """Plan *count* jobs, earliest first. Nothing is due after *ends_at*. *on_lambda*: share of the
    jobs in the pool that Lambda executors serve.
    """
    planned = []
    for number in range(count):
        kind = random.choices(("CRON", "INTERVAL", "ONCE", "DELAY", "DATES"), (40, 25, 12, 12, 11))[
            0
        ]
        recurs = kind in {"CRON", "INTERVAL"}
        at = begins_at
        if not recurs:
            at += random.random() * (ends_at - begins_at) * 0.7
        pool = "lambda" if random.random() < on_lambda else "default"
        document: Document = {
            "jobId": f"{kind.lower()}-{number:03}",
            "type": kind,
            "schedule": schedule(random, kind, at, ends_at),
            "target": {"pool": pool, "handler": HANDLER},
            "misfire": _misfire(random),
            "overlap": random.choices(("ALLOW", "QUEUE", "SKIP", "REPLACE"), (55, 20, 15, 10))[0],
            "retryPolicy": {
                "maxAttempts": (most := random.randint(2, 4)),
                "backoff": random.choice(("FIXED", "EXPONENTIAL")),
                "initialDelayMs": random.choice((1000, 2000, 4000)),
            },
            "payload": {"marks": str(marks), **_task(random, pool, most)},
        }
        if recurs:
            document["endAt"] = _iso(ends_at)
        if kind == "CRON":
            document["timezone"] = random.choice(ZONES)
        if kind == "INTERVAL" and random.random() < 0.5:
            document["startAt"] = _iso(begins_at + timedelta(seconds=random.randint(-60, 20)))
        if recurs and random.random() < 0.1:
            document["maxRuns"] = random.randint(3, 8)
        planned.append(Planned(at, number % _TENANTS, document))
    return sorted(planned, key=lambda each: each.at)


def schedule(random: Random, kind: str, now: datetime, ends_at: datetime) -> str | list[str]:
    """A `schedule` for a job of *kind* that is created at *now*."""
    left = (ends_at - now).total_seconds()

    def some_time() -> datetime:
        return now + timedelta(seconds=round(random.uniform(0.1, 0.9) * left, 3))

    match kind:
        case "CRON":
            return random.choice(_CRONS)
        case "INTERVAL":
            return f"PT{random.randint(15, 60)}S"
        case "DELAY":
            return f"PT{max(1, int(random.uniform(0.05, 0.8) * left))}S"
        case "DATES":
            return [_iso(some_time()) for _ in range(random.randint(2, 6))]
        case _:
            return _iso(some_time())


def change(random: Random, document: Document, now: datetime, ends_at: datetime) -> Document | None:
    """A PATCH with another schedule for the job of *document*; None if it is too late."""
    if ends_at - now < timedelta(seconds=30):
        return None
    fresh = document["schedule"]
    while fresh == document["schedule"]:
        fresh = schedule(random, document["type"], now, ends_at)
    return {"schedule": fresh}


def _misfire(random: Random) -> Document:
    policy = random.choices(("RUN_ALL", "RUN_LATEST", "SKIP"), (50, 30, 20))[0]
    if random.random() < 0.1:
        return {"policy": policy, "relevancyWindowSec": random.randint(20, 90)}
    return {"policy": policy}


def _task(random: Random, pool: str, most: int) -> Document:
    """The task of the script; a failing script fails until its attempts are used up."""
    if pool == "lambda":  # handles one run at a time
        return {"do": random.choice(("well", "flaky")), "seconds": round(random.random() / 5, 2)}
    do = random.choices(("well", "flaky", "fail", "long", "save"), (40, 20, 8, 17, 15))[0]
    longest = {"long": 8.0, "save": 3.0}.get(do, 0.5)
    shortest = 2.0 if do in {"long", "save"} else 0.0
    task: Document = {"do": do, "seconds": round(random.uniform(shortest, longest), 2)}
    return {**task, "fails": most} if do == "fail" else task


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
