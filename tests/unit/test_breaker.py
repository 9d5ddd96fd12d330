"""The circuit breaker: what it admits, and what it costs."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from nextfire.domain.endpoints import (
    OPENS_AFTER,
    PROBE_AFTER,
    Endpoint,
    EndpointKey,
    EndpointState,
    paused,
)
from nextfire.domain.errors import UnavailableError
from nextfire.usecases.breaker import Breaker
from tests.builders import NOON
from tests.fakes import Clock, MemoryEndpointStore
from tests.integration.races import at_once

HOST = "api.example.com:443"
KEY = EndpointKey("calls", "acme", HOST)
SECOND = timedelta(seconds=1)


class Store(MemoryEndpointStore):
    """A store that can fail, and that can return old states."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.takes = 0.0
        self.stale: Endpoint | None = None

    def get(self, key: EndpointKey, *, consistent: bool = False) -> Endpoint | None:
        time.sleep(self.takes)  # other threads continue
        found = super().get(key, consistent=consistent)
        self._fail()
        return self.stale or found

    def replace(self, was: Endpoint, to: Endpoint) -> bool:
        self._fail()
        return super().replace(was, to)

    def _fail(self) -> None:
        if self.failing:
            raise UnavailableError("no answer")

    @property
    def calls(self) -> tuple[int, int]:
        """The number of reads and of writes since the last call."""
        found = self.reads, self.writes
        self.reads = self.writes = 0
        return found


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def errors() -> list[Exception]:
    return []


@pytest.fixture
def breaker(store: Store, clock: Clock, errors: list[Exception]) -> Breaker:
    return Breaker(store, "calls", clock, on_error=errors.append)


def starts(breaker: Breaker, clock: Clock, run: str = "run") -> bool:
    return breaker.admit("acme", HOST, run, clock.now()) is None


def fail(breaker: Breaker, times: int = OPENS_AFTER) -> None:
    for _ in range(times):
        breaker.report("acme", HOST, "down")


def test_a_sound_endpoint_costs_one_read_in_five_seconds(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    for _ in range(100):
        assert starts(breaker, clock)
        breaker.report("acme", HOST, "ok")
    assert store.calls == (1, 0)

    clock.advance(seconds=5)
    assert starts(breaker, clock)
    assert store.calls == (1, 0)


def test_five_failures_hold_all_later_runs(breaker: Breaker, store: Store, clock: Clock) -> None:
    fail(breaker)

    assert store.items[KEY].state is EndpointState.OPEN
    assert not starts(breaker, clock)
    assert store.calls == (1, 5)


def test_tenants_and_destinations_are_independent(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)

    assert breaker.admit("other", HOST, "run", clock.now()) is None
    assert breaker.admit("acme", "other.example.com:443", "run", clock.now()) is None


def test_another_process_learns_of_an_outage_within_five_seconds(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    another = Breaker(store, "calls", clock)
    assert starts(another, clock)
    fail(breaker)

    clock.advance(seconds=5)
    assert not starts(another, clock)


def test_one_process_is_the_probe_and_its_success_releases_all(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    others = [Breaker(store, "calls", clock) for _ in range(9)]
    fail(breaker)
    assert not any(starts(each, clock) for each in others)
    clock.advance(PROBE_AFTER)

    admitted = [each for each in [breaker, *others] if starts(each, clock)]
    assert len(admitted) == 1
    admitted[0].report("acme", HOST, "ok")
    clock.advance(seconds=5)

    assert all(starts(each, clock) for each in [breaker, *others])


def test_of_threads_one_is_the_probe(breaker: Breaker, clock: Clock, store: Store) -> None:
    fail(breaker)
    clock.advance(PROBE_AFTER)
    assert store.calls == (1, 5)
    store.takes = 0.002

    admitted = at_once(*(lambda n=n: starts(breaker, clock, f"run-{n}") for n in range(20)))

    assert admitted.count(True) == 1
    assert store.calls == (1, 1)


def test_a_probe_of_another_process_is_seen_before_a_write(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    another = Breaker(store, "calls", clock)
    fail(breaker)
    clock.advance(PROBE_AFTER - 2 * SECOND)
    assert not starts(another, clock)
    clock.advance(2 * SECOND)
    assert starts(breaker, clock)
    assert store.calls == (3, 6)

    assert not starts(another, clock)

    assert store.calls == (1, 0)


def test_an_outage_that_another_process_found_is_seen_before_a_write(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    another = Breaker(store, "calls", clock)
    assert starts(another, clock)
    fail(breaker)
    assert store.calls == (2, 5)
    clock.advance(2 * SECOND)

    fail(another, 100)

    assert store.calls == (1, 0)


def test_a_run_that_loses_the_probe_waits(breaker: Breaker, store: Store, clock: Clock) -> None:
    another = Breaker(store, "calls", clock)
    fail(breaker)
    store.stale = store.items[KEY]  # eventually consistent reads return it
    clock.advance(PROBE_AFTER)
    assert starts(breaker, clock)

    found = another.admit("acme", HOST, "run", clock.now())

    assert found is not None
    assert found.until - clock.now() >= 60 * SECOND


def test_a_read_does_not_undo_what_this_process_wrote(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    fail(breaker, 4)
    store.stale = replace(store.items[KEY], failures=1, version=1)
    clock.advance(seconds=2)

    fail(breaker, 1)

    assert store.items[KEY].state is EndpointState.OPEN


def test_a_probe_that_never_ends_delays_the_next_by_an_interval(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker)
    clock.advance(PROBE_AFTER)
    assert starts(breaker, clock)

    clock.advance(2 * PROBE_AFTER - SECOND)
    assert not starts(breaker, clock)
    clock.advance(SECOND)
    assert starts(breaker, clock)


def test_a_pause_is_known_within_five_seconds(breaker: Breaker, store: Store, clock: Clock) -> None:
    assert starts(breaker, clock)
    store.items[KEY] = paused(Endpoint(KEY), "maintenance", NOON)

    clock.advance(seconds=5)
    found = breaker.admit("acme", HOST, "run", clock.now())

    assert found is not None
    assert "maintenance" in found.reason


def test_a_retry_after_holds_the_runs_of_its_endpoint(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    end = NOON + 30 * SECOND
    for _ in range(100):
        breaker.report("acme", HOST, "throttled", end)
    assert store.calls == (1, 1)

    found = breaker.admit("acme", HOST, "run", clock.now())
    assert found is not None
    assert end <= found.until < end + 10 * SECOND
    clock.move_to(end)
    assert starts(breaker, clock)


def test_a_response_closes_an_endpoint_that_another_process_changes(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    another = Breaker(store, "calls", clock)
    fail(breaker, 2)
    another.report("acme", HOST, "down")

    breaker.report("acme", HOST, "ok")

    assert store.items[KEY].failures == 0


def test_a_failure_whose_write_is_refused_is_not_written_again(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    another = Breaker(store, "calls", clock)
    fail(breaker, 1)
    fail(another, 1)
    assert store.calls == (2, 2)

    fail(breaker, 1)

    assert store.calls == (0, 1)
    assert store.items[KEY].failures == 2


def test_an_error_of_the_store_holds_no_run(
    breaker: Breaker, store: Store, clock: Clock, errors: list[Exception]
) -> None:
    store.failing = True

    for _ in range(100):
        assert starts(breaker, clock)
        breaker.report("acme", HOST, "down")

    assert store.reads == len(errors) == 1, "it is not called again for 5 s"


def test_a_broken_item_holds_no_run(
    breaker: Breaker, store: Store, clock: Clock, errors: list[Exception]
) -> None:
    store.spoil(KEY)

    assert starts(breaker, clock)
    breaker.report("acme", HOST, "ok")
    assert len(errors) == 1


def test_without_a_store_a_process_continues_with_what_it_knows(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    fail(breaker, 3)
    store.failing = True
    fail(breaker, 2)
    assert not starts(breaker, clock)

    clock.advance(PROBE_AFTER)
    assert starts(breaker, clock, "probe")
    assert not starts(breaker, clock)
    breaker.report("acme", HOST, "ok")
    assert starts(breaker, clock)

    store.failing = False
    clock.advance(seconds=5)
    assert starts(breaker, clock)
    assert store.items[KEY].failures == 3


def test_a_clock_that_goes_back_stops_nothing(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.move_to(NOON - timedelta(days=1))

    assert starts(breaker, clock), "it is the probe"
    breaker.report("acme", HOST, "ok")
    assert starts(breaker, clock)


def test_a_state_that_was_read_later_than_now_is_read_again(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    assert starts(breaker, clock)
    store.items[KEY] = paused(Endpoint(KEY), "maintenance", NOON)

    clock.move_to(NOON - timedelta(days=1))

    assert not starts(breaker, clock)


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


def test_a_store_that_takes_long_to_fail_is_asked_once_in_five_seconds(
    breaker: Breaker, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_slowly(*_: object, **__: object) -> None:
        store.reads += 1
        clock.advance(seconds=15)
        raise UnavailableError("no answer")

    monkeypatch.setattr(store, "get", fail_slowly)
    began = clock.now()
    for _ in range(10):  # runs that waited for the first one, and their results
        breaker.admit("acme", HOST, "run", began)
        breaker.report("acme", HOST, "ok")

    assert store.reads == 1
