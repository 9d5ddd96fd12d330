"""Liveness: what a dispatcher must achieve, as invariants to check on a history of the model.

`monitor.py` says what must never happen. This module says what must happen: above capacity, as many
runs as the capacity allows; after an outage, all runs on time within a bound; and no job starves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from benchmarks.one_core import Watcher
from benchmarks.overload import MINUTE, START, with_jobs
from nextfire.domain.ids import JobKey

LEAST_GOODPUT = 0.9
MOST_OF_IDEAL = 1.5
"""Maximum duration of a recovery, as a multiple of backlog ÷ spare capacity."""
MOST_FAIR_INTERVALS = 3
LATE = timedelta(seconds=3)
"""A core that is slowed down this much takes a second or two for the entries of one second."""
MEASURED = 5 * MINUTE
"""The measured part, at the end of an overloaded history."""


@dataclass(frozen=True, slots=True)
class Case:
    """Minutely jobs whose load is *load* times the capacity, after an outage."""

    policy: str
    load: float
    outage: timedelta = timedelta()

    def count(self, capacity: float) -> int:
        return round(capacity * self.load)

    def recovered_by(self, capacity: float) -> timedelta:
        """When all runs must be on time again; only for loads below capacity."""
        missed = self.outage / MINUTE
        each = missed if self.policy == "RUN_ALL" else min(missed, 1)
        spare = capacity - self.count(capacity)
        return MOST_OF_IDEAL * (self.count(capacity) * each / spare) * MINUTE + MINUTE


def play(
    case: Case,
    capacity: float,
    *,
    scale: float,
    overloaded_for: timedelta,
    plant: Callable[[Watcher], None] = lambda _: None,
) -> list[str]:
    """Play the history of *case*. Returns the violations."""
    count = case.count(capacity)
    watcher = with_jobs(count, MINUTE, case.policy, outage=case.outage, scale=scale)
    plant(watcher)
    overloaded = case.load > 1
    end_at = START + (overloaded_for if overloaded else case.recovered_by(capacity) + 2 * MINUTE)
    watcher.watch(end_at)
    found = [*_goodput(watcher, capacity)] if overloaded else [*_recovery(watcher, case, capacity)]
    return [*found, *_left_alone(watcher, case)]


def _goodput(watcher: Watcher, capacity: float) -> Iterator[str]:
    began = watcher.kernel.clock.now() - MEASURED
    runs = sum(at >= began for at, _, _ in watcher.queue.sent)
    least = LEAST_GOODPUT * capacity * (MEASURED / MINUTE)
    if runs < least:
        yield f"overloaded, it sent {runs} runs in {MEASURED}, not {least:.0f}"


def _recovery(watcher: Watcher, case: Case, capacity: float) -> Iterator[str]:
    by = START + case.recovered_by(capacity)
    after = [(at, job, due) for at, job, due in watcher.queue.sent if at > by]
    if late := sum(at - due >= LATE for at, _, due in after):
        yield f"{late} runs were sent late after {by:%H:%M:%S}, when all had to be on time"
    served = {job for _, job, _ in after}
    if missing := case.count(capacity) - len(served):
        yield f"{missing} jobs had no run after {by:%H:%M:%S}"


def _left_alone(watcher: Watcher, case: Case) -> Iterator[str]:
    """Jobs without a run or a range record for too long."""
    now = watcher.kernel.clock.now()
    longest = MOST_FAIR_INTERVALS * MINUTE * max(case.load, 1) + case.outage
    served_at: dict[JobKey, list[datetime]] = defaultdict(lambda: [START])
    for at, job, _ in watcher.queue.sent:
        served_at[job].append(at)
    for key, run in watcher.runs.items.items():
        if run.finished_at is not None:
            served_at[key.job].append(run.finished_at)
    for job in watcher.jobs.items:
        instants = sorted([*served_at[job], now])
        gap = max(b - a for a, b in pairwise(instants))
        if gap > longest:
            yield f"{job.job_id} had neither a run nor a range record for {gap}"
