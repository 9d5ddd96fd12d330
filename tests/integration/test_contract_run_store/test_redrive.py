"""The contract of `RunStore`: dead, skipped and cancelled runs that run again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ids import unsent_dispatch
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, a_message, a_retry, at, run_key
from tests.integration.test_contract_run_store.conftest import (
    FAILED,
    Dead,
    claim,
    redrive,
    reopen,
    stored,
)

AGAIN = unsent_dispatch(1)
"""The dispatch of a redrive."""


def test_a_run_that_was_skipped_because_of_a_parent_is_reopened_once(dead: Dead) -> None:
    skipped = dead.store.skip(Run.skipped(run_key(), "trigger rule ALL_SUCCEEDED: a FAILED", NOON))

    first = reopen(dead, skipped)
    again = reopen(dead, skipped)

    assert (first.taken, again.taken) == (True, True)
    assert again.run == first.run == dead.store.get(run_key())
    assert (first.run.state, first.run.dispatch) == (RunState.PENDING, AGAIN)
    assert (first.run.attempt_base, first.run.finished_at) == (0, None)
    assert len(dead.entries()) == 1
    assert claim(dead.store, a_message(dispatch=AGAIN)).taken
    assert reopen(dead, skipped).run.state is RunState.RUNNING


def test_a_run_that_a_user_redrives_as_it_is_reopened_stays_redriven(dead: Dead) -> None:
    skipped = dead.store.skip(Run.skipped(run_key(), "trigger rule ALL_SUCCEEDED: a FAILED", NOON))
    dead.store.await_parents(skipped, skipped.awaiting_parents("redriven from a"))

    reopen(dead, skipped)  # as read before

    assert (stored(dead, skipped).state, stored(dead, skipped).restarted) == (
        RunState.PENDING,
        True,
    )


def test_a_dead_run_is_redriven_with_its_due_entry(dead: Dead) -> None:
    run = dead.die(run_key())

    again = redrive(dead, run)

    assert again.taken
    found = dead.store.get(run.key)
    assert found == again.run
    assert (found.state, found.dispatch, found.tries, found.attempt) == (
        RunState.PENDING,
        AGAIN,
        0,
        1,
    )
    assert [(a.number, a.outcome) for a in found.attempts] == [(1, AttemptOutcome.FAILED)]
    assert found.fence_base == run.fence == 1
    assert [(e.run_id, e.dispatch, e.at) for e in dead.dispatches()] == [
        (run.key.run_id, AGAIN, NOON)
    ]
    taken = claim(dead.store, a_message(dispatch=AGAIN), mark="t2", worker="b")
    assert (taken.taken, taken.run.attempt, taken.run.tries) == (True, 2, 1)


def test_a_redrive_that_is_repeated_finds_what_it_did(dead: Dead) -> None:
    run = dead.die(run_key())

    assert redrive(dead, run).taken
    assert redrive(dead, run).taken
    assert len(dead.entries()) == 1


def test_a_run_that_is_not_dead_is_not_redriven(dead: Dead) -> None:
    run = dead.die(run_key())
    other = claim(dead.store, a_message(run_key(at("13:00")))).run

    refused = redrive(dead, other)
    absent = redrive(dead, replace(run, key=run_key(at("14:00"))))

    assert (refused.taken, refused.run) == (False, other)
    assert not absent.taken
    assert dead.entries() == []


def test_a_repeated_outcome_does_not_end_a_redriven_run(dead: Dead) -> None:
    run = claim(dead.store, a_message()).run
    died = run.ended(RunState.DEAD, FAILED, NOON)
    redriven = redrive(dead, dead.store.advance(run, died).run).run

    assert dead.store.advance(run, died) == Claim(redriven, taken=False)


def test_an_older_view_of_a_run_does_not_redrive_it_again(dead: Dead) -> None:
    first = dead.die(run_key())
    redrive(dead, first)
    dead.die(run_key(), dispatch=AGAIN)
    before = dead.store.get(run_key())

    assert redrive(dead, first).run == before
    assert len(dead.entries()) == 1


def test_of_ten_concurrent_redrives_one_makes_an_entry(dead: Dead) -> None:
    run = dead.die(run_key())

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(lambda _: redrive(dead, run), range(10)))

    assert len(dead.entries()) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda to: replace(to, dispatch=1),
        lambda to: replace(to, attempt_base=to.attempt_base - 1),
    ],
    ids=["the number that died", "an attempt before"],
)
def test_a_redrive_has_a_new_number_and_the_attempts_as_they_are(
    dead: Dead, other: Callable[[Run], Run]
) -> None:
    run = dead.die(run_key())
    to = other(run.redriven("redriven", NOON))

    refused = dead.store.redrive(to, a_retry(run.key, NOON, dispatch=to.dispatch), NOON)

    assert (refused.taken, refused.run) == (False, run)
    assert dead.entries() == []


@pytest.mark.parametrize(
    "other",
    [
        lambda to: replace(to, dispatch=to.dispatch + 1),
        lambda to: replace(to, attempt_base=to.attempt_base + 1),
    ],
    ids=["another number", "another attempt"],
)
def test_another_redrive_is_not_a_repetition(dead: Dead, other: Callable[[Run], Run]) -> None:
    run = dead.die(run_key())
    redriven = redrive(dead, run).run
    to = other(run.redriven("redriven", NOON))

    refused = dead.store.redrive(to, a_retry(run.key, NOON, dispatch=to.dispatch), NOON)

    assert (refused.taken, refused.run) == (False, redriven)
    assert len(dead.entries()) == 1


def test_a_redriven_run_is_free_from_its_not_before_on(dead: Dead) -> None:
    run = dead.die(run_key())
    to = run.redriven("redriven", at("12:01"))

    dead.store.redrive(to, a_retry(run.key, at("12:01"), dispatch=to.dispatch), NOON)

    message = a_message(dispatch=AGAIN)
    assert not claim(dead.store, message, mark="t2", now=at("12:00:59")).taken
    assert claim(dead.store, message, mark="t2", now=at("12:01")).taken


def test_a_run_that_was_cancelled_or_skipped_is_redriven(dead: Dead) -> None:
    early, skipped = run_key(at("13:00")), run_key(at("14:00"))
    ended = [
        dead.store.cancel(a_message(early), reason="wrong input", now=NOON),
        dead.store.skip(Run.skipped(skipped, "too late", NOON, pool="default", dispatched_at=NOON)),
    ]

    for run in ended:
        assert not redrive(dead, run).taken, "only DEAD without the other state"
        to = run.redriven("again", NOON)
        entry = a_retry(run.key, NOON, dispatch=to.dispatch)
        for _ in range(2):
            assert dead.store.redrive(to, entry, NOON, was=run.state).taken
        found = stored(dead, run)
        assert (found.state, found.dispatch) == (RunState.PENDING, to.dispatch)
        assert (found.restarted, found.finished_at) == (True, None)
        assert found.fence_base == run.fence
        assert claim(dead.store, a_message(run.key, dispatch=to.dispatch)).taken
    assert len(dead.entries()) == 2


def test_a_user_redrives_a_run_that_was_skipped_because_of_a_parent(dead: Dead) -> None:
    run = dead.store.skip(Run.skipped(run_key(), "trigger rule ALL_SUCCEEDED: a FAILED", NOON))
    to = run.redriven("again", NOON)
    entry = a_retry(run.key, NOON, dispatch=to.dispatch)

    assert dead.store.redrive(to, entry, NOON, was=RunState.SKIPPED).taken

    assert stored(dead, run) == to
    assert to.restarted


def test_a_range_record_is_not_redriven(dead: Dead) -> None:
    run = dead.store.skip(Run.skipped(run_key(), "missed", NOON, covered_to=at("14:00"), covered=3))
    to = run.redriven("again", NOON)
    entry = a_retry(run.key, NOON, dispatch=to.dispatch)

    assert not dead.store.redrive(to, entry, NOON, was=RunState.SKIPPED).taken
    assert not dead.store.await_parents(run, run.awaiting_parents("again")).taken


def test_a_dead_run_that_awaits_its_parents_can_be_reopened(dead: Dead) -> None:
    run = dead.die(run_key())
    waiting = run.awaiting_parents("runs again after a")

    for _ in range(2):
        assert dead.store.await_parents(run, waiting) == Claim(stored(dead, run), taken=True)

    later = replace(waiting, dispatch=waiting.dispatch + 1)
    assert not dead.store.await_parents(run, later).taken, "not the same write"
    found = stored(dead, run)
    assert found.skipped_by_parents
    assert (found.reason, found.attempt, found.tries) == ("runs again after a", 1, 0)
    assert found.fence_base == run.fence == 1
    other = dead.store.await_parents(run, run.awaiting_parents("runs again after b"))
    assert other == Claim(found, taken=True), "of two, the first is recorded"
    assert (
        dead.store.list_dead(run.key.job.tenant, first=NOON, last=NOON, cursor=None, limit=10).items
        == []
    )
    assert reopen(dead, found).taken
    taken = claim(dead.store, a_message(dispatch=AGAIN), mark="t2", worker="b")
    assert (taken.taken, taken.run.attempt, taken.run.tries) == (True, 2, 1)


def test_a_run_that_an_executor_skipped_can_await_its_parents(dead: Dead) -> None:
    skipped = Run.skipped(run_key(), "missing: a", NOON, pool="default", dispatched_at=NOON)
    run = dead.store.skip(skipped)

    found = dead.store.await_parents(run, run.awaiting_parents("again")).run

    assert found.skipped_by_parents
    assert reopen(dead, found).taken


def test_a_run_that_has_moved_on_does_not_await_its_parents(dead: Dead) -> None:
    run = dead.die(run_key())
    redriven = redrive(dead, run).run
    running = claim(dead.store, a_message(run_key(at("13:00")))).run

    for old, current in ((run, redriven), (running, running)):
        refused = dead.store.await_parents(old, old.awaiting_parents("again"))
        assert (refused.taken, refused.run) == (False, current)
    dead.die(run_key(), dispatch=redriven.dispatch)
    again = stored(dead, run)
    for other in (replace(again, dispatch=run.dispatch), replace(again, attempt=1)):
        refused = dead.store.await_parents(other, other.awaiting_parents("again"))
        assert (refused.taken, refused.run) == (False, again)
    absent = replace(run, key=run_key(at("14:00")))
    assert not dead.store.await_parents(absent, absent.awaiting_parents("again")).taken
