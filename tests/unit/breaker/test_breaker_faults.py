"""A breaker whose store fails or is slow, or whose clock goes back, holds no run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.endpoints import PROBE_AFTER, Endpoint, paused
from nextfire.domain.errors import UnavailableError
from nextfire.usecases.breaker import Breaker
from tests.builders import NOON
from tests.fakes import Clock
from tests.unit.breaker.conftest import HOST, KEY, Store, fail, starts


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
