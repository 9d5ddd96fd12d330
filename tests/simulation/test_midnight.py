"""One tenant has 10,000 jobs due at midnight; another has a job due each second.

The real watcher runs on fakes; each call advances the tests' clock by its duration.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import cache, partial
from hashlib import blake2s

import pytest

from nextfire.domain.definition import JobDefinition
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.report import Dispatched
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.watch import Watch
from tests.builders import a_definition, a_job, at
from tests.crons import LONG
from tests.world import World

MANY = 10_000
AT_MOST = timedelta(seconds=2)
TAKES = {  # per hundred entries, in ms
    "jobs.get_many": 40,
    "queue.send": 60,
    "due.read": 20,
    "due.put": 50,
    "due.delete": 50,
    "due.mark_held": 50,
    "control.replace_lease": 10,
    "control.take_runs": 10,
    "queue.backlog": 10,
}
SECONDS = 25
"""For this number of seconds, the other tenant has a job due each second."""


@cache
def _once(schedule: str) -> JobDefinition:
    return a_definition(schedule, "ONCE")


class Midnight:
    """10,000 jobs of the tenant `whale`, all due at 12:00, and jobs of the tenant `minnow`, one due
    each second.
    """

    def __init__(
        self,
        *,
        shards: int,
        backlog: int | None = None,
        quotas: TenantQuotas = NO_QUOTAS,
        seconds: int = SECONDS,
        many: int = MANY,
    ) -> None:
        self.world = world = World("11:59:50", shards=shards, quotas=quotas)
        world.due.page = MANY
        backlogs = {} if backlog is None else {"default": backlog}
        world.shares = Shares(backlogs=backlogs, quotas=quotas)
        for number in range(many):
            self._store("whale", number, "2026-05-24T12:00:00Z")
        for second in range(seconds):
            minute, rest = divmod(second, 60)
            self._store("minnow", second, f"2026-05-24T12:{minute:02d}:{rest:02d}Z")
        for call, milliseconds in TAKES.items():
            takes = timedelta(milliseconds=milliseconds)
            world.faults.call_before_each(call, partial(world.clock.advance, takes))
        self.sent: dict[str, list[Dispatched]] = defaultdict(list)

    def _store(self, tenant: str, number: int, schedule: str) -> None:
        world = self.world
        job = a_job(
            f"{tenant}{number}",
            tenant=tenant,
            # The order of keys must not depend on the tenant.
            uid=blake2s(f"{tenant}{number}".encode(), digest_size=8).hexdigest(),
            since=world.now,
            definition=_once(schedule),
        )
        world.jobs.put(job)
        first = job.first()
        assert first is not None
        world.due.put([first], world.now)

    def play(self, until: str) -> None:
        """Run watchers until *until*, each for a minute as in production."""
        world = self.world
        control = world.faults.through(world.control, "control")
        number = 0
        while world.now < at(until):
            number += 1
            lease = HoldLease(control, group=0, holder=f"watcher-{number}")
            watch = Watch(lease, lambda lease: world.dispatcher(lease.epoch))
            end_at = min(world.now + timedelta(minutes=1), at(until))
            while world.now < end_at:
                report, again_at = watch.step(world.now)
                for each in report.dispatched if report else []:
                    self.sent[each.run.job.tenant].append(each)
                world.clock.move_to(max(world.now, min(again_at, end_at)))
            watch.end()

    @property
    def worst(self) -> timedelta:
        """The greatest lateness of the minnow's runs."""
        return max(each.lateness for each in self.sent["minnow"])


@pytest.mark.parametrize("shards", [1, 4] if LONG else [4])
def test_ten_thousand_jobs_at_midnight_delay_another_tenants_by_two_seconds_at_most(
    shards: int,
) -> None:
    midnight = Midnight(shards=shards)

    midnight.play("12:01")

    assert len(midnight.sent["whale"]) == MANY
    assert len(midnight.sent["minnow"]) == SECONDS
    assert max(each.lateness for each in midnight.sent["whale"]) > 5 * AT_MOST, "no backlog"
    assert midnight.worst <= AT_MOST


def test_a_full_shared_queue_delays_another_tenant_by_two_seconds_at_most() -> None:
    """No worker empties the queue until the minnow's last job is due."""
    midnight = Midnight(shards=4, backlog=500, seconds=45, many=4_000)

    midnight.play("12:01:15")

    assert len(midnight.sent["whale"]) <= 500
    assert len(midnight.sent["minnow"]) == 45
    assert midnight.worst <= AT_MOST
    assert not any(each.held_back for each in midnight.sent["minnow"])


def test_held_back_jobs_delay_another_tenant_by_two_seconds_at_most() -> None:
    quotas = TenantQuotas.model_validate({"tenants": {"whale": {"runsPerMinute": 500}}})
    midnight = Midnight(shards=2, quotas=quotas, seconds=110)

    midnight.play("12:02")

    assert len(midnight.sent["whale"]) == 2 * 500
    assert len(midnight.sent["minnow"]) == 110
    assert midnight.worst <= AT_MOST
    assert sum(each.held_back for each in midnight.sent["whale"]) == 500
    punctual = [each.lateness for each in midnight.sent["whale"] if not each.held_back]
    assert max(punctual) <= AT_MOST
