"""A deployment with a new release of the time zone database: processes with either run at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from greenlet import getcurrent

from nextfire.domain.audit_pass import Audit
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.recurrence import occurrences
from nextfire.domain.run import Run
from nextfire.testing.kernel import SECOND, Actor, Task
from tests.accounting import assert_chained, settle
from tests.builders import at
from tests.simulation.flow import TENANTS
from tests.simulation.flows import FLOWS
from tests.simulation.history import History
from tests.world import World
from tests.zone_releases import EARLIER, LATER, MOVED, OLD, disagree

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
OFFSETS = {OLD: 3.5 * HOUR, LATER: 3 * HOUR, EARLIER: 4 * HOUR}
_HOURS = range(15, 19)
_ALL: dict[str, Any] = {"timezone": MOVED, "misfire": {"policy": "RUN_ALL"}}
_WHEN: list[dict[str, Any]] = [
    # The instants of the releases differ for all of them, by half an hour.
    {"type": "CRON", "schedule": "10,50 0-23 * * *"},
    {"type": "CRON", "schedule": "10 0-23 * * *", "jitterSec": 5},
    {"type": "CRON", "schedule": "10,50 0-23 * * *", "overlap": "QUEUE"},
    {"type": "DATES", "schedule": [f"2026-05-24T{h}:{m}" for h in _HOURS for m in (10, 50)]},
]
_HAPPENS = {
    "kill",
    "kill soon",
    "terminate a worker",
    "clock step",
    "invoke a watcher twice",
    "skip minutes",
    "outage of watchers",
    "outage of workers",
    "storm",
    "calm",
    "doubled message",
    "audit",
}


class ZoneHistory(History):
    """Jobs of a zone whose rules change, and a deployment around the instant of a run."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch, *, logs: bool = False) -> None:
        super().__init__(seed, logs=logs)
        dice = self.kernel.dice
        self.vandalised, self.sequences = False, None
        self.to = dice.choice([LATER, EARLIER])
        self.odds = 0.0
        """The probability that a new process has the new release."""
        self._releases: dict[Actor, str] = {}
        start = self.system.process

        def process(kind: str) -> Actor:
            actor = start(kind)
            self._releases[actor] = self.to if dice.random() < self.odds else OLD
            return actor

        self.system.process = process  # type: ignore[method-assign]
        disagree(patch, self._release)

    def _release(self) -> str:
        task = getcurrent()
        return self._releases.get(task.actor, self.to) if isinstance(task, Task) else self.to

    def _begin_flows(self) -> None:
        dice, aws = self.kernel.dice, self.system.aws
        for number in range(dice.choice([1, 2])):
            key = JobKey(TENANTS[number % 2], f"job{number}")
            self.register(key, _ALL | dice.choice(_WHEN))
        # 16:10 in the zone is at 12:40 with the old rules.
        aws.sleep(at("12:38:30") - self.kernel.clock.now() + self._any(90))
        if self.stores.control.audit() is None:
            # The first audit takes its release for that of all runs before it.
            first = Audit(self.kernel.clock.now(), done=True, zones=OLD)
            assert self.stores.control.replace_audit(None, first)
        self.odds = 0.5
        flows = [flow for flow in FLOWS if flow.name in _HAPPENS]
        for _ in range(dice.choice([4, 10, 20])):
            (flow,) = dice.choices(flows, [flow.weight for flow in flows])
            self.kernel.log("dice", flow.name)
            flow.begin(self)
            aws.sleep(self._any(20) + self.patience)
            self.patience = timedelta()
        self.odds = 1.0
        self.system.timers = True
        aws.sleep(timedelta(minutes=3) + self._any(60))

    def _any(self, seconds: int) -> timedelta:
        return timedelta(microseconds=self.kernel.dice.randrange(seconds * SECOND))

    def _come_to_rest(self) -> int:
        world = World(
            stores=self.stores,
            clock=self.kernel.clock,
            shards=self.setting.shards,
            first_epoch=10**15,
        )
        for _ in range(3):  # until the entries of the old release have come due
            settle(world, at_most=3_000)
            world.advance(minutes=41)
        settle(world, at_most=3_000)
        for stored in self.ever.values():
            job = world.job(stored[-1].job.key)
            self._judge(job, world)
            assert_chained(world, job)
        assert not self.monitor.violations, self.monitor.violations[0]
        return len(self.stores.runs.items)

    def _judge(self, job: Job, world: World) -> None:
        """Check that each wall-clock time ran once, where it was or where it is now."""
        moved_by = OFFSETS[OLD] - OFFSETS[self.to]
        begun = job.effective_from
        for each in occurrences(job.schedule, begun - HOUR):
            if each.at - moved_by > world.now - HOUR or each.at > world.now - HOUR:
                return
            was = each.at - moved_by
            found = {ran_at: self._run(job, ran_at) for ran_at in {was, each.at}}
            ran = [f"{when:%H:%M}" for when, run in found.items() if run and run.attempts]
            if each.at > begun and was > begun:
                text = f"{was:%H:%M} or {each.at:%H:%M}"
                assert len(ran) == 1, f"{job.key.job_id}: of {text}, {ran} ran"

    def _run(self, job: Job, scheduled_at: Any) -> Run | None:
        return self.stores.runs.items.get(job.run_key(scheduled_at))
