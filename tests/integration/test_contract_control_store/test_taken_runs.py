"""The contract of `ControlStore`: runs of a tenant's minute."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import pytest

from nextfire.domain.ports.control import ControlStore
from tests.builders import NOON, at
from tests.integration.races import ROUNDS, at_once
from tests.integration.test_contract_control_store.conftest import Table

# Runs per minute


BROKEN_TAKEN: Mapping[str, Mapping[str, object]] = {
    "nothing but its id": {},
    "no count": {"minute": "2026-05-24T12:00:00Z"},
    "no minute": {"taken": 3},
    "count a text": {"minute": "2026-05-24T12:00:00Z", "taken": "3"},
    "count below zero": {"minute": "2026-05-24T12:00:00Z", "taken": -1},
    "minute no instant": {"minute": "2026-05-24T12:00:30 or so", "taken": 5},
    "minute a number": {"minute": 1779624000, "taken": 5},
    "minute after our time": {"minute": "9999-12-31T23:59:00Z", "taken": 5},
}


def test_runs_are_taken_until_none_is_left(store: ControlStore) -> None:
    taken = [store.take_runs("acme", NOON, wanted, 10) for wanted in (4, 5, 3, 1)]

    assert taken == [4, 5, 1, 0]
    assert store.taken_runs("acme", NOON) == 10
    assert store.taken_runs("other", NOON) == 0
    assert store.take_runs("other", NOON, 20, 10) == 10, "each tenant has its own count"


def test_each_minute_has_its_own_runs(store: ControlStore) -> None:
    taken = [
        store.take_runs("acme", NOON + minute * timedelta(minutes=1), 3, 4) for minute in (0, 0, 1)
    ]

    assert taken == [3, 1, 3]
    assert [store.taken_runs("acme", at(minute)) for minute in ("12:01", "12:02")] == [3, 0]


def test_a_clock_that_is_behind_takes_of_the_later_minute(store: ControlStore) -> None:
    store.take_runs("acme", at("12:01"), 3, 4)

    assert store.taken_runs("acme", NOON) == 3
    assert store.take_runs("acme", NOON, 3, 4) == 1
    assert store.take_runs("acme", at("12:01"), 3, 4) == 0


def test_what_a_clock_far_ahead_took_is_forgotten(store: ControlStore) -> None:
    store.take_runs("acme", at("18:00"), 4, 4)

    assert store.taken_runs("acme", NOON) == 0
    assert store.take_runs("acme", NOON, 3, 4) == 3


def test_a_quota_that_is_lower_now_holds_at_once(store: ControlStore) -> None:
    store.take_runs("acme", NOON, 8, 10)

    assert store.take_runs("acme", NOON, 1, 5) == 0
    assert store.take_runs("acme", NOON, 5, 10) == 2


@pytest.mark.parametrize("round_", ROUNDS)
def test_of_many_that_take_at_once_all_together_have_no_more(
    store: ControlStore, round_: int
) -> None:
    minute = NOON + round_ * timedelta(minutes=2)

    taken = at_once(*(partial(store.take_runs, "acme", minute, 3, 7) for _ in range(4)))

    assert sum(taken) == 7


@pytest.mark.parametrize("form", BROKEN_TAKEN)
def test_a_count_that_does_not_decode_starts_again(table: Table, form: str) -> None:
    table.store.take_runs("acme", NOON, 5, 5)
    table.spoil_taken("acme", BROKEN_TAKEN[form])

    assert table.store.taken_runs("acme", NOON) == 0
    assert table.store.take_runs("acme", NOON, 3, 5) == 3
    assert table.store.take_runs("acme", NOON, 3, 5) == 2
