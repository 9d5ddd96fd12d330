"""One tenant's ten thousand jobs are due at midnight, and another's now and then.

The watcher as it is, on fakes; each of its calls takes as long as the tests' clock is moved by it.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import cache, partial
from hashlib import blake2s

import pytest

from nextfire.domain.job import JobDefinition
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.usecases.dispatch_due import Dispatched, Shares
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.watch import Watch
from tests.builders import a_definition, a_job, at
from tests.world import World

MANY = 10_000
AT_MOST = timedelta(seconds=2)
TAKES = {  # of a hundred entries, in ms
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
"""For so long the other tenant has a job due at each second."""


@cache
def _once(schedule: str) -> JobDefinition:
    return a_definition(schedule, "ONCE")


class Midnight:
    """A whale's jobs, all due at 12:00, and a minnow's, of which one is due each second."""

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
            world.faults.before_each(call, partial(world.clock.advance, takes))
        self.sent: dict[str, list[Dispatched]] = defaultdict(list)

    def _store(self, tenant: str, number: int, schedule: str) -> None:
        world = self.world
        job = a_job(
            f"{tenant}{number}",
            tenant=tenant,
            # Whose key comes first is not for the tenants to say.
            uid=blake2s(f"{tenant}{number}".encode(), digest_size=8).hexdigest(),
            since=world.now,
            definition=_once(schedule),
        )
        world.jobs.put(job)
        first = job.first()
        assert first is not None
        world.due.put([first], world.now)

    def play(self, until: str) -> None:
        """Have watchers at work until then, each for a minute as in life."""
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
        """By how much the minnow's latest was late."""
        return max(each.lateness for each in self.sent["minnow"])


@pytest.mark.parametrize("shards", [1, 4])
def test_ten_thousand_jobs_at_midnight_delay_another_tenants_by_two_seconds_at_most(
    shards: int,
) -> None:
    midnight = Midnight(shards=shards)

    midnight.play("12:01")

    assert len(midnight.sent["whale"]) == MANY
    assert len(midnight.sent["minnow"]) == SECONDS
    assert max(each.lateness for each in midnight.sent["whale"]) > 5 * AT_MOST, "no backlog at all"
    assert midnight.worst <= AT_MOST


def test_nor_do_they_where_they_fill_the_queue_that_both_use() -> None:
    """Nobody is there who would empty it, until the minnow's last is due."""
    midnight = Midnight(shards=4, backlog=500, seconds=45, many=4_000)

    midnight.play("12:01:15")

    assert len(midnight.sent["whale"]) <= 500
    assert len(midnight.sent["minnow"]) == 45
    assert midnight.worst <= AT_MOST
    assert not any(each.held_back for each in midnight.sent["minnow"])


def test_nor_where_a_quota_holds_most_of_them_back_for_long() -> None:
    quotas = TenantQuotas.model_validate({"tenants": {"whale": {"runsPerMinute": 500}}})
    midnight = Midnight(shards=2, quotas=quotas, seconds=110)

    midnight.play("12:02")

    assert len(midnight.sent["whale"]) == 2 * 500
    assert len(midnight.sent["minnow"]) == 110
    assert midnight.worst <= AT_MOST
    assert sum(each.held_back for each in midnight.sent["whale"]) == 500
    punctual = [each.lateness for each in midnight.sent["whale"] if not each.held_back]
    assert max(punctual) <= AT_MOST
