"""Many runs through an outage of their endpoint: probes, writes, and no burst at its end."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from nextfire.domain.endpoints import OPENS_AFTER, PROBE_AFTER
from nextfire.usecases.breaker import Breaker
from tests.builders import NOON
from tests.fakes import Clock
from tests.integration.races import at_once
from tests.unit.breaker.conftest import HOST, SECOND, Store, fail


def test_5000_concurrent_failures_of_a_process_write_five_times(
    breaker: Breaker, store: Store
) -> None:
    def some() -> None:
        fail(breaker, 250)

    at_once(*[some] * 20)

    assert store.calls == (1, 5)


@dataclass
class Outage:
    """Runs of several processes that call one endpoint. `calls`: when each was made."""

    clock: Clock
    store: Store
    breakers: list[Breaker]
    ends_at: datetime
    calls: list[datetime] = field(default_factory=list)
    holds: Counter[str] = field(default_factory=Counter)
    ended: dict[str, datetime] = field(default_factory=dict)

    def play(self, runs: int, over: timedelta, duration: timedelta = SECOND) -> None:
        """Dispatch *runs* over a period from now on, until each has succeeded. Failed runs are
        dispatched again, as held ones are.
        """
        start = self.clock.now()
        queue = [(start + over * n / runs, n, "start") for n in range(runs)]
        heapq.heapify(queue)
        while queue:
            now, number, what = heapq.heappop(queue)
            self.clock.move_to(max(now, self.clock.now()))
            breaker, run = self.breakers[number % len(self.breakers)], f"run-{number}"
            if what == "start":
                found = breaker.admit("acme", HOST, run, now)
                if found is None:
                    self.calls.append(now)
                    heapq.heappush(queue, (now + duration, number, "end"))
                else:
                    self.holds[run] += 1
                    heapq.heappush(queue, (found.until, number, "start"))
            elif now < self.ends_at:
                breaker.report("acme", HOST, "down")
                heapq.heappush(queue, (now + 10 * SECOND, number, "start"))
            else:
                breaker.report("acme", HOST, "ok")
                self.ended[run] = now


@pytest.mark.parametrize("processes", [1, 50])
@pytest.mark.parametrize("minutes", [3, 60])
def test_5000_runs_survive_an_outage(
    processes: int, minutes: int, store: Store, clock: Clock
) -> None:
    length = timedelta(minutes=minutes)
    outage = Outage(
        clock, store, [Breaker(store, "calls", clock) for _ in range(processes)], NOON + length
    )

    outage.play(5000, over=timedelta(seconds=20))

    assert len(outage.ended) == 5000
    opened_by = NOON + 10 * SECOND
    probes = [at for at in outage.calls if opened_by < at < outage.ends_at]
    gaps = [later - earlier for earlier, later in pairwise(probes)]
    assert probes
    assert all(gap >= PROBE_AFTER for gap in gaps), "at most one probe per interval"
    assert len(probes) <= 4 + length / timedelta(minutes=5)

    successes = sorted(outage.ended.values())
    assert successes[4500] - successes[1] >= 60 * SECOND, "no burst after the outage"
    busiest = Counter(at.replace(microsecond=0) for at in successes).most_common(1)[0][1]
    assert busiest <= 200
    assert successes[-1] - outage.ends_at <= timedelta(minutes=5 + 30)
    assert max(outage.holds.values()) <= 3 + length / timedelta(minutes=1)
    # 5 failures and a probe for each interval; refused writes of other processes included.
    assert store.writes <= (OPENS_AFTER + len(probes) + 3) * processes
    if processes == 1:
        assert store.writes <= OPENS_AFTER + len(probes) + 2
