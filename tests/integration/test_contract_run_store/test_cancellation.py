"""The contract of `RunStore`: requests to cancel and to stop runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, a_message, at, run_key
from tests.integration.test_contract_run_store.conftest import FAILED, claim, retrying


def test_an_absent_run_is_cancelled(store: RunStore) -> None:
    run = store.cancel(a_message(), reason="its job was deleted", now=NOON)

    assert (run.state, run.reason, run.finished_at) == (
        RunState.CANCELLED,
        "its job was deleted",
        NOON,
    )
    assert (run.attempt, run.attempts) == (0, ())
    assert store.get(run.key) == run
    assert not claim(store).taken


def test_a_waiting_run_is_cancelled(store: RunStore) -> None:
    retrying(store, not_before=at("12:30"))

    run = store.cancel(a_message(dispatch=2), reason="its job was deleted", now=NOON)

    assert (run.state, run.not_before, run.attempt) == (RunState.CANCELLED, None, 1)


@pytest.mark.parametrize("dispatch", [1, 3])
def test_a_waiting_run_that_is_cancelled_by_another_message_keeps_its_dispatch(
    store: RunStore, dispatch: int
) -> None:
    waiting = retrying(store, not_before=at("12:30"))

    run = store.cancel(a_message(dispatch=dispatch), reason="its job was deleted", now=NOON)

    assert (run.state, run.dispatch) == (RunState.CANCELLED, waiting.dispatch)
    assert store.get(run.key) == run


def test_a_running_or_ended_run_is_not_cancelled(store: RunStore) -> None:
    run = claim(store).run
    assert store.cancel(a_message(), reason="no", now=NOON) == run

    ended = store.advance(run, run.ended(RunState.DEAD, FAILED, NOON)).run
    assert store.cancel(a_message(), reason="no", now=NOON) == ended


# Stopping a run


def test_a_waiting_run_that_is_stopped_is_cancelled(store: RunStore) -> None:
    waiting = retrying(store, not_before=at("12:30"))

    stopped = store.stop(waiting, reason="replaced", now=at("12:01"))

    assert (stopped.state, stopped.reason) == (RunState.CANCELLED, "replaced")
    assert (stopped.finished_at, stopped.not_before) == (at("12:01"), None)
    assert (stopped.attempt, stopped.dispatch) == (1, 2), "the other fields are unchanged"
    assert store.get(waiting.key) == stopped
    assert store.stop(waiting, reason="again", now=at("12:02")) == stopped


def test_a_running_run_that_is_stopped_is_asked_to_end(store: RunStore) -> None:
    run = claim(store).run

    asked = store.stop(run, reason="replaced", now=at("12:01"))

    assert (asked.state, asked.cancel_requested, asked.cancel_reason) == (
        RunState.RUNNING,
        True,
        "replaced",
    )
    extended = store.extend(run, lease_until=at("12:02"))
    assert extended is not None
    assert (extended.cancel_requested, extended.cancel_reason) == (True, "replaced")


def test_an_ended_run_is_not_stopped(store: RunStore) -> None:
    run = claim(store).run
    ended = store.advance(run, run.ended(RunState.DEAD, FAILED, NOON)).run

    assert store.stop(ended, reason="replaced", now=at("12:01")) == ended
    assert store.stop(run, reason="replaced", now=at("12:01")) == ended, (
        "the run was read before it ended"
    )
    assert store.get(run.key) == ended


def test_a_run_that_moved_on_meanwhile_is_stopped_as_it_is_now(store: RunStore) -> None:
    running = claim(store).run
    waiting = store.advance(running, running.retrying(FAILED, NOON, not_before=NOON)).run

    cancelled = store.stop(running, reason="replaced", now=at("12:01"))
    assert cancelled.state is RunState.CANCELLED

    other = claim(store, a_message(run_key(at("13:00")))).run
    asked = store.stop(replace(waiting, key=other.key), reason="replaced", now=at("12:01"))
    assert (asked.state, asked.cancel_requested) == (RunState.RUNNING, True)


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.RUNNING])
def test_a_record_that_is_gone_is_not_made_again_by_stopping(
    store: RunStore, state: RunState
) -> None:
    stopped = store.stop(Run(run_key(), state), reason="replaced", now=NOON)

    assert stopped.state.ended
    assert store.get(run_key()) is None
