"""The contract of `RunStore`: runs that wait for their retry and are to start earlier."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from nextfire.domain.ids import unsent_dispatch
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, a_message, a_retry, at
from tests.integration.test_contract_run_store.conftest import (
    FAILED,
    HANDED_BACK,
    Dead,
    Held,
    claim,
    redrive,
    retrying,
    stored,
)

RETRY_AT = at("12:30")
AGAIN = unsent_dispatch(2)


def bring_forward(dead: Dead, was: Run, reason: str = "now") -> Claim:
    to = was.brought_forward(reason, NOON)
    return dead.store.bring_forward(was, to, a_retry(was.key, NOON, dispatch=to.dispatch), NOON)


def test_a_run_that_waits_is_brought_forward_with_its_due_entry(dead: Dead) -> None:
    was = retrying(dead.store, not_before=RETRY_AT)

    begun = bring_forward(dead, was)

    assert begun.taken
    assert begun.run == replace(was, dispatch=AGAIN, not_before=NOON, reason="now")
    assert stored(dead, was) == begun.run
    assert [(e.run_id, e.dispatch, e.at) for e in dead.dispatches()] == [
        (was.key.run_id, AGAIN, NOON)
    ]


def test_only_its_new_dispatch_is_taken(dead: Dead) -> None:
    was = retrying(dead.store, not_before=RETRY_AT)
    bring_forward(dead, was)

    assert not claim(dead.store, a_message(dispatch=2), mark="t2", now=RETRY_AT).taken
    taken = claim(dead.store, a_message(dispatch=AGAIN), mark="t2", now=NOON)
    assert (taken.taken, taken.run.attempt, taken.run.tries) == (True, 2, 2)


def test_a_repetition_finds_what_it_did_and_another_request_finds_that_too(dead: Dead) -> None:
    was = retrying(dead.store, not_before=RETRY_AT)
    first = bring_forward(dead, was)

    assert bring_forward(dead, was) == first
    assert bring_forward(dead, was, "another") == first
    assert len(dead.entries()) == 1


def test_of_ten_at_the_same_time_one_makes_an_entry(dead: Dead) -> None:
    was = retrying(dead.store, not_before=RETRY_AT)

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(lambda _: bring_forward(dead, was), range(10)))

    assert len(dead.entries()) == 1


def _claimed(dead: Dead, _was: Run) -> None:
    claim(dead.store, a_message(dispatch=2), mark="t2", now=RETRY_AT)


def _deferred(dead: Dead, _was: Run) -> None:
    run = claim(dead.store, a_message(dispatch=2), mark="t2", now=RETRY_AT).run
    dead.store.advance(run, run.retrying(FAILED, RETRY_AT, not_before=at("13:00")))


def _handed_back(dead: Dead, _was: Run) -> None:
    run = claim(dead.store, a_message(dispatch=2), mark="t2", now=RETRY_AT).run
    dead.store.advance(run, run.handed_back(HANDED_BACK, RETRY_AT))


def _cancelled(dead: Dead, was: Run) -> None:
    dead.store.stop(was, reason="enough", now=NOON)


@pytest.mark.parametrize("meanwhile", [_claimed, _deferred, _handed_back, _cancelled])
def test_a_run_that_has_moved_on_is_left(
    dead: Dead, meanwhile: Callable[[Dead, Run], None]
) -> None:
    was = retrying(dead.store, not_before=RETRY_AT)
    meanwhile(dead, was)
    current = stored(dead, was)

    assert bring_forward(dead, was) == Claim(current, taken=False)
    assert dead.entries() == []


def test_a_dead_or_absent_run_is_not_brought_forward(dead: Dead) -> None:
    run = claim(dead.store).run
    died = dead.store.advance(run, run.ended(RunState.DEAD, FAILED, NOON)).run

    assert bring_forward(dead, died) == Claim(died, taken=False)
    absent = replace(died, key=replace(died.key, run_id="20260524T140000000Z-0123456789abcdef"))
    assert not bring_forward(dead, absent).taken
    assert dead.entries() == []


def test_it_can_be_redriven_once_it_is_dead(dead: Dead) -> None:
    begun = bring_forward(dead, retrying(dead.store, not_before=RETRY_AT)).run
    run = claim(dead.store, a_message(dispatch=AGAIN), mark="t2", now=NOON).run
    died = dead.store.advance(run, run.ended(RunState.DEAD, FAILED, NOON)).run

    again = redrive(dead, died, NOON)

    assert (again.taken, again.run.dispatch) == (True, unsent_dispatch(begun.dispatch))


def test_a_run_that_is_to_be_cancelled_is_not_brought_forward(held: Held) -> None:
    was = retrying(held.store, not_before=RETRY_AT)
    held.request_cancel(was.key)
    to = was.brought_forward("now", NOON)

    refused = held.store.bring_forward(was, to, a_retry(was.key, NOON, dispatch=to.dispatch), NOON)

    assert refused == Claim(replace(was, cancel_requested=True), taken=False)
    assert held.store.get(was.key) == refused.run
