"""What watchers publish while a table does not answer: the alarms need it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from nextfire.domain.quotas import Quotas, TenantQuotas
from nextfire.usecases.dispatch.report import TickReport
from tests.unit.sleeping.conftest import Notices, a_watcher
from tests.world import World


class Counted(Notices):
    """Counts what `tick` reports: undelivered runs by minute, and dispatched ones."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.undelivered: Counter[int] = Counter()
        self.dispatched = 0
        self.warnings: list[str] = []

    def warn(self, what: str, why: Exception | str) -> None:
        self.warnings.append(f"{what}: {why}")

    def tick(self, report: object) -> None:
        assert isinstance(report, TickReport)
        self.undelivered[self.world.now.minute] += report.undelivered
        self.dispatched += len(report.dispatched)


def test_each_minute_of_an_outage_of_the_jobs_is_counted() -> None:
    """No run is sent, so none is late, and the due table is polled: nothing else shows it."""
    world = World()
    world.register(schedule="* * * * *")
    world.faults.refuse("jobs.get_many", times=1_000_000)
    notices = Counted(world)

    a_watcher(world, shards=1, notices=notices).live(timedelta(minutes=4))

    assert notices.dispatched == 0
    assert all(notices.undelivered[minute] for minute in (0, 1, 2))
    assert notices.undelivered[59] == 0


@pytest.mark.parametrize(
    ("call", "fields"),
    [("runs.between", {"overlap": "SKIP"}), ("control.take_runs", {})],
    ids=["of earlier runs", "of quotas"],
)
def test_each_minute_in_which_a_run_cannot_be_admitted_is_counted(
    call: str, fields: dict[str, str]
) -> None:
    """The due table is polled and the jobs are read, and yet no run is sent."""
    world = World(quotas=TenantQuotas(default=Quotas(runs_per_minute=10)))
    world.register(schedule="* * * * *", **fields)
    world.faults.refuse(call, times=1_000_000)
    notices = Counted(world)

    a_watcher(world, shards=1, notices=notices).live(timedelta(minutes=4))

    assert notices.dispatched == 0
    assert all(notices.undelivered[minute] for minute in (0, 1, 2))


def test_each_minute_of_an_outage_of_the_leases_is_counted_and_logged() -> None:
    """No watcher holds the lease: none polls, and none sends."""
    world = World()
    world.faults.refuse("control.lease", times=1_000_000)
    world.faults.refuse("control.replace_lease", times=1_000_000)
    notices = Counted(world)

    a_watcher(world, shards=1, notices=notices).live(timedelta(minutes=4))

    assert all(notices.undelivered[minute] for minute in (0, 1, 2))
    assert any("the watcher retries a step" in line for line in notices.warnings)
