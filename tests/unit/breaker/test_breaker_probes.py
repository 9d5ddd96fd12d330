"""Probes of an endpoint that is down: one at a time, across threads and processes."""

from __future__ import annotations

from nextfire.domain.endpoints import PROBE_AFTER
from nextfire.usecases.breaker import Breaker
from tests.fakes import Clock
from tests.integration.races import at_once
from tests.unit.breaker.conftest import HOST, KEY, SECOND, Store, fail, starts


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


def test_a_run_that_loses_the_probe_waits(breaker: Breaker, store: Store, clock: Clock) -> None:
    another = Breaker(store, "calls", clock)
    fail(breaker)
    store.stale = store.items[KEY]  # eventually consistent reads return it
    clock.advance(PROBE_AFTER)
    assert starts(breaker, clock)

    found = another.admit("acme", HOST, "run", clock.now())

    assert found is not None
    assert found.until - clock.now() >= 60 * SECOND


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
