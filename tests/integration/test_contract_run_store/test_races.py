"""The contract of `RunStore`: concurrent writers of one run, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

from nextfire.domain.attempt import Value
from nextfire.domain.ids import RunKey
from nextfire.domain.ports.runs import Claim, RunStore
from nextfire.domain.run import RunState
from tests.builders import LEASE, NOON, a_message, run_key
from tests.integration.races import ROUNDS, at_once
from tests.integration.test_contract_run_store.conftest import FAILED, HANDED_BACK, claim

# Races between two different operations


def rounds() -> Iterator[RunKey]:
    """A run for each round."""
    return (run_key(NOON + timedelta(minutes=n)) for n in ROUNDS)


def test_a_run_is_claimed_or_cancelled(store: RunStore) -> None:
    for key in rounds():
        message = a_message(key)
        claimed, cancelled = at_once(
            partial(claim, store, message),
            partial(store.cancel, message, reason="", now=NOON),
        )

        assert isinstance(claimed, Claim)
        assert claimed.run == cancelled == store.get(key)
        assert claimed.run.state is (RunState.RUNNING if claimed.taken else RunState.CANCELLED)


def test_a_lease_is_extended_or_taken_over(store: RunStore) -> None:
    for key in rounds():
        run = claim(store, a_message(key)).run
        to = run.taken_over(dispatch=1, token="t2", worker="b", now=NOON, lease_until=NOON + LEASE)
        extended, saved, taken = at_once(
            partial(store.extend, run, lease_until=NOON + 3 * LEASE),
            partial(store.save, run, Value(1, text="7")),
            partial(store.advance, run, to, lapsed=True),
        )

        stored = store.get(key)
        assert stored is not None
        assert isinstance(taken, Claim)
        assert (stored.worker, stored.fence) == (("b", 2) if taken.taken else ("a", 1))
        assert (extended is None) == taken.taken
        assert (stored.checkpoint is None) == (saved is None), "a saved checkpoint is in the record"


def test_a_request_to_cancel_is_never_lost_on_the_way_to_another_try(store: RunStore) -> None:
    for key in rounds():
        run = claim(store, a_message(key)).run
        moved, asked = at_once(
            partial(store.advance, run, run.retrying(FAILED, NOON, not_before=NOON)),
            partial(store.stop, run, reason="enough", now=NOON),
        )

        stored = store.get(key)
        assert stored is not None
        assert isinstance(moved, Claim)
        assert asked == stored
        assert (stored.state, stored.cancel_requested) == (
            (RunState.CANCELLED, False) if moved.taken else (RunState.RUNNING, True)
        )


def test_of_ten_ends_of_a_run_one_counts(store: RunStore) -> None:
    for key in rounds():
        run = claim(store, a_message(key)).run
        ends = [
            run.ended(RunState.SUCCEEDED, replace(FAILED, reason=f"end {n}"), NOON)
            for n in range(5)
        ] + [run.handed_back(replace(HANDED_BACK, reason=f"end {n}"), NOON) for n in range(5)]

        claims = at_once(*(partial(store.advance, run, to) for to in ends))

        (winner,) = [each.run for each in claims if each.taken]
        assert all(each.run == winner for each in claims)
        assert store.get(key) == winner
