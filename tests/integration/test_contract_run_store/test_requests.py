"""The contract of `RunStore`: runs on request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.runs import Claim, RunStore
from nextfire.domain.replay import Replay
from nextfire.domain.run import Run, RunState, Trigger
from tests.builders import NOON, a_message, a_retry, run_key
from tests.integration.test_contract_run_store.conftest import (
    HANDED_BACK,
    Dead,
    ask_for,
    asked_for,
    claim,
)

DONE = Result(AttemptOutcome.SUCCEEDED, "exit code 0", 0)


def test_a_run_on_request_is_stored_with_its_due_entry(dead: Dead) -> None:
    replay_of = Replay(run_key().run_id, 3, "0123456789abcdef" * 2)
    run = asked_for(payload='{"a":1}', request_reason="why not", replay_of=replay_of)

    claimed = ask_for(dead, run)

    assert claimed == Claim(run, taken=True)
    assert dead.store.get(run.key) == run
    assert [(e.run_id, e.dispatch) for e in dead.dispatches()] == [(run.key.run_id, 1)]


def test_a_request_that_is_repeated_finds_what_it_made_and_no_other_s(dead: Dead) -> None:
    run = ask_for(dead, asked_for()).run

    assert ask_for(dead, asked_for()) == Claim(run, taken=True)
    assert ask_for(dead, asked_for("another's")) == Claim(run, taken=False)
    assert len(dead.entries()) == 1


def test_a_request_takes_the_place_of_no_record(dead: Dead) -> None:
    key = asked_for().key
    skipped = dead.store.skip(Run.skipped(key, "noticed late", NOON))

    assert ask_for(dead, asked_for("")) == Claim(skipped, taken=False)
    assert not dead.entries()


def test_a_skipped_run_is_stored_with_an_entry_once(dead: Dead) -> None:
    run = Run.skipped(run_key(), "now at 12:30, by the time zone rules of 2026b", NOON)

    assert ask_for(dead, run) == Claim(run, taken=True)
    assert ask_for(dead, run) == Claim(run, taken=False)
    assert dead.store.get(run.key) == run
    assert len(dead.entries()) == 1


def test_of_ten_concurrent_requests_for_one_instant_one_makes_an_entry(dead: Dead) -> None:
    with ThreadPoolExecutor(10) as threads:
        claims = list(threads.map(lambda n: ask_for(dead, asked_for(str(n))), range(10)))

    assert [claim.taken for claim in claims].count(True) == 1
    assert len(dead.entries()) == 1


def test_what_was_asked_for_stays_on_record_to_the_end(dead: Dead) -> None:
    asked = ask_for(dead, asked_for(payload="7", request_reason="why not")).run

    taken = claim(dead.store, a_message(asked.key)).run
    ended = dead.store.advance(taken, taken.ended(RunState.SUCCEEDED, DONE, NOON)).run

    assert ended.state is RunState.SUCCEEDED
    for run in (taken, ended, dead.store.get(asked.key)):
        assert run is not None
        assert (run.trigger, run.request, run.payload, run.request_reason) == (
            Trigger.MANUAL,
            "r",
            "7",
            "why not",
        )


def passed_over(run: Run) -> Run:
    return run.passed_over("overlap", NOON, pool="default", dispatched_at=NOON)


def test_a_run_on_request_that_is_unclaimed_is_passed_over(dead: Dead) -> None:
    run = ask_for(dead, asked_for(payload="7")).run

    skipped = dead.store.skip(passed_over(run))

    assert skipped == passed_over(run) == dead.store.get(run.key)
    assert dead.store.skip(passed_over(run)) == skipped
    assert not claim(dead.store, a_message(run.key)).taken


def test_a_run_on_request_that_is_claimed_is_not_passed_over(dead: Dead) -> None:
    run = ask_for(dead, asked_for()).run
    taken = claim(dead.store, a_message(run.key)).run
    assert dead.store.skip(passed_over(run)) == taken

    waiting = dead.store.advance(taken, taken.handed_back(HANDED_BACK, NOON)).run
    assert dead.store.skip(passed_over(run)) == waiting


def test_a_run_on_request_that_was_cancelled_is_not_passed_over(dead: Dead) -> None:
    run = ask_for(dead, asked_for()).run
    cancelled = dead.store.stop(run, reason="not needed", now=NOON)

    assert dead.store.skip(passed_over(run)) == cancelled == dead.store.get(run.key)


def test_a_run_on_request_that_was_redriven_is_not_passed_over(dead: Dead) -> None:
    run = ask_for(dead, asked_for()).run
    cancelled = dead.store.stop(run, reason="not needed", now=NOON)
    to = cancelled.redriven("needed after all", NOON)
    entry = a_retry(run.key, NOON, dispatch=to.dispatch)
    redriven = dead.store.redrive(to, entry, NOON, was=RunState.CANCELLED).run

    assert dead.store.skip(passed_over(run)) == redriven == dead.store.get(run.key)


def test_a_run_on_request_whose_record_is_gone_is_not_passed_over(store: RunStore) -> None:
    with pytest.raises(UnavailableError):
        store.skip(passed_over(asked_for()))
    assert store.get(asked_for().key) is None
