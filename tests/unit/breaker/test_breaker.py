"""The circuit breaker: which runs it admits, and the calls of its store."""

from __future__ import annotations

from dataclasses import replace

from nextfire.domain.endpoints import Endpoint, EndpointState, paused
from nextfire.usecases.breaker import Breaker
from tests.builders import NOON
from tests.fakes import Clock
from tests.unit.breaker.conftest import HOST, KEY, SECOND, Store, fail, starts


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


def test_a_read_does_not_undo_what_this_process_wrote(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    fail(breaker, 4)
    store.stale = replace(store.items[KEY], failures=1, version=1)
    clock.advance(seconds=2)

    fail(breaker, 1)

    assert store.items[KEY].state is EndpointState.OPEN


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
