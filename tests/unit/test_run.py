"""State changes of run records."""

from __future__ import annotations

from dataclasses import replace

from nextfire.domain.attempt import Attempt, AttemptOutcome, Result
from nextfire.domain.run import Run, RunState, runs_of_uid
from tests.builders import LEASE, NOON, UID, a_run, at, run_key

FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1, "out", "err")


def running() -> Run:
    return a_run(
        attempt=1,
        fence=4,
        claim_token="t1",
        worker="a",
        lease_until=NOON + LEASE,
        started_at=NOON,
        attempts=(Attempt(1, "a", NOON),),
    )


def test_which_states_are_ended() -> None:
    assert [state.value for state in RunState if not state.ended] == ["PENDING", "RUNNING"]


def test_a_run_that_ends_keeps_what_its_last_attempt_left() -> None:
    run = running().ended(RunState.DEAD, FAILED, at("12:00:09"))

    assert (run.state, run.finished_at, run.lease_until) == (RunState.DEAD, at("12:00:09"), None)
    assert (run.exit_code, run.stdout, run.stderr, run.reason) == (1, "out", "err", "exit code 1")
    assert run.attempts == (
        Attempt(1, "a", NOON, at("12:00:09"), AttemptOutcome.FAILED, 1, "exit code 1"),
    )
    assert (run.fence, run.attempt, run.claim_token) == (4, 1, "t1")


def test_a_run_that_is_tried_again_waits_for_its_next_dispatch() -> None:
    run = running().retrying(FAILED, at("12:00:09"), not_before=at("12:00:19"))

    assert (run.state, run.dispatch, run.not_before) == (RunState.PENDING, 2, at("12:00:19"))
    assert (run.worker, run.lease_until, run.finished_at) == (None, None, None)
    assert (run.attempt, run.attempts[-1].outcome) == (1, AttemptOutcome.FAILED)
    assert run.reason == "exit code 1"


def test_a_run_that_is_handed_back_gives_its_attempt_back() -> None:
    run = running().handed_back(
        Result(AttemptOutcome.HANDED_BACK, "its worker shut down"), at("12:00:09")
    )

    assert (run.state, run.dispatch, run.attempt) == (RunState.PENDING, 1, 0)
    assert (run.worker, run.lease_until, run.not_before) == (None, None, None)
    assert (run.attempts[-1].outcome, run.attempts[-1].number) == (AttemptOutcome.HANDED_BACK, 1)


def test_a_deferred_run_gives_its_attempt_back_and_waits() -> None:
    deferred = Result(AttemptOutcome.DEFERRED, "503 Service Unavailable", call='{"status": 503}')
    run = running().retrying(deferred, at("12:00:09"), not_before=at("12:00:19"))

    assert (run.state, run.dispatch, run.attempt) == (RunState.PENDING, 2, 0)
    assert run.not_before == at("12:00:19")
    assert (run.attempts[-1].outcome, run.attempts[-1].number) == (AttemptOutcome.DEFERRED, 1)
    assert run.attempts[-1].call == '{"status": 503}'


def test_only_the_latest_attempts_keep_their_call() -> None:
    run = running()
    deferred = Result(AttemptOutcome.DEFERRED, "503", call="{}")
    for _ in range(14):
        run = run.retrying(deferred, NOON, not_before=NOON)
        run = replace(run, attempts=(*run.attempts, Attempt(1, "a", NOON)))

    kept = [each.call for each in run.attempts[:-1]]

    assert kept == [None] * 4 + ["{}"] * 10


def test_a_run_that_is_taken_over_says_what_became_of_the_attempt_before() -> None:
    now = at("12:02")
    run = running().taken_over(dispatch=1, token="t2", worker="b", now=now, lease_until=now + LEASE)

    assert (run.state, run.attempt, run.fence, run.dispatch) == (RunState.RUNNING, 2, 5, 1)
    assert (run.claim_token, run.worker, run.lease_until) == ("t2", "b", now + LEASE)
    assert run.attempts == (
        Attempt(1, "a", NOON, now, AttemptOutcome.WORKER_LOST, None, "lease of a lapsed"),
        Attempt(2, "b", now),
    )


def test_a_run_that_is_taken_over_by_a_newer_message_is_of_its_dispatch() -> None:
    def take(dispatch: int) -> Run:
        was = replace(running(), dispatch=2)
        return was.taken_over(
            dispatch=dispatch, token="t2", worker="b", now=NOON, lease_until=NOON + LEASE
        )

    assert [take(dispatch).dispatch for dispatch in (1, 2, 3)] == [2, 2, 3]


def test_a_change_leaves_the_record_it_was_made_from_as_it_was() -> None:
    run = running()
    run.ended(RunState.DEAD, FAILED, NOON)
    run.retrying(FAILED, NOON, not_before=NOON)

    assert run == running()


def test_records_are_read_down_to_the_first_of_a_former_job() -> None:
    def record(time: str, uid: str = UID) -> Run:
        return Run(run_key(at(time), uid=uid), RunState.SKIPPED)

    before = iter(
        [
            record("12:30", "former00"),  # a skip that was requested of the former job
            record("12:00"),
            record("11:30", "former00"),
            record("11:00", "former00"),
        ]
    )

    assert [*runs_of_uid(before, UID, at("11:30"))] == [record("12:00")]
    assert [*before] == [record("11:00", "former00")], "the rest of the history is not read"
