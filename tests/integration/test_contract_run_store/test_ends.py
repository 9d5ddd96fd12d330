"""The contract of `RunStore`: outcomes of attempts, checkpoints, and what is written with them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from nextfire.domain.attempt import MAX_ATTEMPTS_KEPT, AttemptOutcome, Result, Value
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState
from tests.builders import LEASE, NOON, a_message, at, run_key
from tests.integration.test_contract_run_store.conftest import FAILED, HANDED_BACK, Held, claim

RAGGED = NOON + timedelta(microseconds=123_456)
"""An instant of a machine's clock, with higher precision than stored instants."""


def test_a_worker_that_lost_the_run_changes_nothing(store: RunStore) -> None:
    first = claim(store).run
    now = at("12:02")
    second = store.advance(
        first,
        first.taken_over(dispatch=1, token="t2", worker="b", now=now, lease_until=now + LEASE),
    )

    late = store.advance(first, first.ended(RunState.SUCCEEDED, FAILED, now))

    assert store.save(first, Value(1, text="0")) is None
    assert second.taken
    assert (second.run.attempt, second.run.fence, second.run.worker) == (2, 2, "b")
    assert not late.taken
    assert late.run == second.run == store.get(first.key)


def test_a_worker_that_gave_up_the_run_changes_nothing(store: RunStore) -> None:
    run = claim(store).run
    given_up = store.advance(run, run.handed_back(HANDED_BACK, NOON)).run

    late = store.advance(run, run.ended(RunState.SUCCEEDED, FAILED, NOON))

    assert (late.taken, late.run) == (False, given_up)
    assert store.get(run.key) == given_up


@pytest.mark.parametrize(
    "to",
    [
        lambda run: run.ended(RunState.DEAD, FAILED, RAGGED),
        lambda run: run.retrying(FAILED, RAGGED, not_before=RAGGED + LEASE),
        lambda run: run.handed_back(HANDED_BACK, RAGGED),
        lambda run: run.taken_over(
            dispatch=1, token="t2", worker="b", now=RAGGED, lease_until=RAGGED
        ),
    ],
    ids=["ended", "retrying", "handed back", "taken over"],
)
def test_a_repeated_change_finds_what_it_wrote(store: RunStore, to: Callable[[Run], Run]) -> None:
    run = claim(store, now=RAGGED).run

    first = store.advance(run, to(run))
    again = store.advance(run, to(run))

    assert first.taken
    assert again == first


def test_a_handed_back_attempt_gives_its_number_to_the_next(store: RunStore) -> None:
    run = claim(store).run
    free = store.advance(run, run.handed_back(HANDED_BACK, at("12:00:05"))).run

    again = claim(store, mark="t2", worker="b", now=at("12:00:06")).run

    assert (free.state, free.attempt, free.worker, free.lease_until) == (
        RunState.PENDING,
        0,
        None,
        None,
    )
    assert again.attempt == 1
    assert [(a.number, a.outcome) for a in again.attempts] == [
        (1, AttemptOutcome.HANDED_BACK),
        (1, None),
    ]


def test_a_change_does_not_undo_a_request_to_cancel(held: Held) -> None:
    run = claim(held.store).run
    held.request_cancel(run.key)

    to = run.taken_over(dispatch=1, token="t2", worker="b", now=NOON, lease_until=NOON + LEASE)
    after = held.store.advance(run, to).run

    assert after.cancel_requested


@pytest.mark.parametrize(
    "to",
    [
        lambda run: run.retrying(FAILED, NOON, not_before=NOON),
        lambda run: run.handed_back(HANDED_BACK, NOON),
        lambda run: run.ended(RunState.DEAD, FAILED, NOON),
        lambda run: run.taken_over(
            dispatch=1, token="next", worker="b", now=NOON, lease_until=NOON + LEASE
        ),
    ],
    ids=["retrying", "handed back", "dead", "taken over"],
)
def test_a_run_that_is_to_be_cancelled_does_not_go_where_it_could_be_tried_again(
    held: Held, to: Callable[[Run], Run]
) -> None:
    run = claim(held.store).run
    asked = held.store.stop(run, reason="enough", now=NOON)

    refused = held.store.advance(run, to(run))

    assert (refused.taken, refused.run) == (False, asked)
    ended = held.store.advance(run, run.ended(RunState.CANCELLED, FAILED, NOON))
    assert (ended.taken, ended.run.state) == (True, RunState.CANCELLED)
    other = claim(held.store, a_message(run_key(at("13:00")))).run
    held.store.stop(other, reason="enough", now=NOON)
    done = held.store.advance(other, other.ended(RunState.SUCCEEDED, FAILED, NOON))
    assert done.taken, "a change that was made stays"


# Checkpoints, results and logs


@pytest.mark.parametrize("value", [Value(7, text='{"n":1}'), Value(9000, file="checkpoint/1")])
def test_a_checkpoint_is_kept_by_the_owner_of_the_run(store: RunStore, value: Value) -> None:
    run = claim(store).run
    store.save(run, Value(2, text="12"))

    saved = store.save(run, value)

    assert saved is not None
    assert saved.checkpoint == value
    after = store.advance(run, run.retrying(FAILED, NOON, not_before=NOON)).run
    assert after.checkpoint == value, "the next attempt finds it"
    assert store.save(run, Value(1, text="0")) is None, "the lease was lost"
    assert store.get(run.key) == after


def test_a_result_and_the_parts_of_a_log_are_on_record(store: RunStore) -> None:
    run = claim(store).run
    result = Result(
        AttemptOutcome.SUCCEEDED, "exit code 0", 0, value=Value(3, text="[1]"), log_parts=4
    )

    done = store.advance(run, run.ended(RunState.SUCCEEDED, result, NOON)).run

    assert done.result == Value(3, text="[1]")
    assert [attempt.log_parts for attempt in done.attempts] == [4]
    assert store.get(run.key) == store.peek(run.key) == done


def test_a_history_is_cut_and_keeps_its_numbers(store: RunStore) -> None:
    def taken_over(run: Run) -> Run:
        return run.taken_over(dispatch=1, token="x", worker="b", now=NOON, lease_until=NOON)

    run = full = claim(store).run
    for _ in range(MAX_ATTEMPTS_KEPT - 1):
        full = taken_over(full)
    run = store.advance(run, full).run
    for _ in range(3):
        run = store.advance(run, taken_over(run)).run

    assert len(run.attempts) == MAX_ATTEMPTS_KEPT
    assert [run.attempts[0].number, run.attempts[-1].number] == [4, MAX_ATTEMPTS_KEPT + 3]
    assert [run.fence_of(a) for a in run.attempts] == [a.number for a in run.attempts]
    assert store.get(run.key) == run
