"""What may delay runs in a soak test, other than earlier runs of their job: kills, stops and busy
pools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.soak.account import Record
from tests.soak.oracle import History, instant

LAMBDA = "lambda"
"""The pool that Lambda executors serve."""
_REACH = timedelta(minutes=3)
"""How long a kill or a stop may be a cause: up to a minute until EventBridge invokes the next
watcher, 20 s until a lease expires, and the time to work off the backlog.
"""
_HIDDEN = timedelta(minutes=15)
"""Visibility timeout of a message whose Lambda executor was killed."""
BUSY = 0.5
"""Share of a wait during which earlier runs must have been running; share of a pool's slots that
must have been in use.
"""
Stops = Sequence[tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class Loss:
    """A killed process. `worker`: a worker's name in the records. `what`: ``worker``,
    ``executor-lambda`` or ``watcher``.
    """

    at: datetime
    worker: str | None
    what: str = "worker"

    def delays(self, pool: str, since: datetime, until: datetime) -> bool:
        """Whether it may be why a run of *pool* that was due at *since* waited up to *until*."""
        reach = _REACH
        if self.what != "watcher":
            if (self.what == "worker") is (pool == LAMBDA):
                return False
            reach += _HIDDEN if pool == LAMBDA else timedelta()
        return self.at <= until and since <= self.at + reach


Work = tuple[datetime, datetime]


def works(
    jobs: Sequence[History], records: Mapping[tuple[str, str], Sequence[Record]]
) -> dict[str, list[Work]]:
    """By pool, the time of each attempt on its executors."""
    found: dict[str, list[Work]] = defaultdict(list)
    for job in jobs:
        pool = pool_of(job)
        for record in records.get((job.tenant, job.job_id), ()):
            for each in record.get("attempts", []):
                if "finishedAt" in each:
                    found[pool].append((instant(each["startedAt"]), instant(each["finishedAt"])))
    return found


def pool_of(job: History) -> str:
    return str(job.document.get("target", {}).get("pool", "default"))


@dataclass(frozen=True, slots=True)
class Outside:
    """What may have delayed a job's runs, other than the job's own runs."""

    stops: Stops
    losses: Sequence[Loss]
    works: Mapping[str, Sequence[Work]]
    slots: Mapping[str, int]

    def stopped(self, since: datetime, until: datetime) -> bool:
        """Whether a stop of the stack affects this time."""
        return any(down <= until and since <= up + _REACH for down, up in self.stops)

    def killed(self, pool: str, since: datetime, until: datetime) -> bool:
        """Whether a kill that affects *pool* affects this time."""
        return any(loss.delays(pool, since, until) for loss in self.losses)

    def watcher_killed(self, pool: str, since: datetime, until: datetime) -> bool:
        return any(
            loss.what == "watcher" and loss.delays(pool, since, until) for loss in self.losses
        )

    def busy(self, pool: str, since: datetime, until: datetime) -> bool:
        """Whether the executors of *pool* were busy during that time."""
        if pool not in self.slots:
            return False
        taken = sum(overlaps(self.works.get(pool, ()), since, until), timedelta())
        return taken >= (until - since) * self.slots[pool] * BUSY


def stopped(stops: Stops, since: datetime, until: datetime) -> timedelta:
    """How long the stack was down between *since* and *until*."""
    return sum(overlaps(stops, since, until), timedelta())


def overlaps(stops: Stops, since: datetime, until: datetime) -> Iterator[timedelta]:
    for down_at, up_at in stops:
        yield max(min(up_at, until) - max(down_at, since), timedelta())
