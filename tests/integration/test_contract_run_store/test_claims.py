"""The contract of `RunStore`: claims, takeovers and leases of runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from nextfire.adapters.dynamodb.run_items import ATTEMPT
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ports.runs import Claim, RunStore
from nextfire.domain.run import Run, RunState
from tests.builders import LEASE, NOON, a_message, at, run_key
from tests.integration.test_contract_run_store.conftest import (
    FAILED,
    HANDED_BACK,
    Held,
    claim,
    retrying,
)


def test_a_claim_of_an_absent_run_makes_its_record(store: RunStore) -> None:
    taken = claim(store)

    assert taken.taken
    run = taken.run
    assert (run.key, run.state, run.worker) == (run_key(), RunState.RUNNING, "a")
    assert (run.dispatch, run.attempt, run.fence, run.claim_token) == (1, 1, 1, "t1")
    assert (run.pool, run.job_revision, run.lease_until) == ("default", 3, NOON + LEASE)
    assert [(a.number, a.worker, a.started_at, a.outcome) for a in run.attempts] == [
        (1, "a", NOON, None)
    ]
    assert store.get(run.key) == run


def test_of_twenty_concurrent_claims_one_takes_the_run(store: RunStore) -> None:
    with ThreadPoolExecutor(20) as threads:
        claims = list(threads.map(lambda n: claim(store, mark=f"t{n}", worker=f"w{n}"), range(20)))

    (winner,) = [c.run for c in claims if c.taken]
    assert {c.run.worker for c in claims} == {winner.worker}
    assert store.get(run_key()) == winner
    assert winner.attempt == 1


def test_a_repeated_claim_finds_what_it_took(store: RunStore) -> None:
    first = claim(store, mark="t1")
    again = claim(store, mark="t1")

    assert again == first
    assert not claim(store, mark="t2").taken


def test_a_run_under_an_expired_lease_is_not_free(store: RunStore) -> None:
    claim(store)

    late = claim(store, mark="t2", worker="b", now=NOON + 10 * LEASE)

    assert not late.taken
    assert late.run.worker == "a"


def test_a_waiting_run_is_free_from_its_not_before_on(store: RunStore) -> None:
    retrying(store, not_before=at("12:00:10"))
    second = a_message(dispatch=2)

    early = claim(store, second, mark="t2", now=at("12:00:09.999"))
    due = claim(store, second, mark="t2", now=at("12:00:10"))

    assert (early.taken, early.run.not_before) == (False, at("12:00:10"))
    assert due.taken
    assert (due.run.attempt, due.run.fence, due.run.dispatch) == (2, 2, 2)
    assert due.run.not_before is None
    assert [a.number for a in due.run.attempts] == [1, 2]


def test_a_message_of_an_older_dispatch_takes_nothing(store: RunStore) -> None:
    retrying(store, not_before=NOON)

    assert not claim(store, a_message(dispatch=1), mark="t2", now=at("12:01")).taken


def test_a_message_of_a_newer_dispatch_takes_a_waiting_run(store: RunStore) -> None:
    retrying(store, not_before=NOON)

    taken = claim(store, a_message(dispatch=3), mark="t2", now=at("12:01"))

    assert (taken.taken, taken.run.dispatch) == (True, 3)


def test_a_waiting_run_that_was_to_be_cancelled_is_not_free(held: Held) -> None:
    retrying(held.store, not_before=NOON)
    held.request_cancel(run_key())

    refused = claim(held.store, a_message(dispatch=2), mark="t2")

    assert (refused.taken, refused.run.cancel_requested) == (False, True)


def test_an_ended_run_is_never_taken_again(store: RunStore) -> None:
    run = claim(store).run
    done = Result(AttemptOutcome.SUCCEEDED, "exit code 0", 0, "out", "")
    ended = store.advance(run, run.ended(RunState.SUCCEEDED, done, at("12:00:05")))

    again = claim(store, a_message(dispatch=9), mark="t2", now=at("12:10"))

    assert ended.taken
    assert not again.taken
    assert again.run == ended.run
    assert (again.run.finished_at, again.run.exit_code) == (at("12:00:05"), 0)
    assert (again.run.stdout, again.run.stderr) == ("out", None)


def test_a_claim_that_is_repeated_after_its_run_ended_takes_nothing(store: RunStore) -> None:
    run = claim(store, mark="t1").run
    ended = store.advance(run, run.ended(RunState.DEAD, FAILED, NOON)).run

    again = claim(store, mark="t1")

    assert (again.taken, again.run) == (False, ended)


def test_a_run_whose_record_has_no_lease_is_taken_over(store: RunStore) -> None:
    run = claim(store).run
    was = store.advance(run, replace(run, lease_until=None)).run
    to = was.taken_over(dispatch=1, token="t2", worker="b", now=NOON, lease_until=NOON + LEASE)

    assert store.advance(was, to, lapsed=True).taken


def test_of_twenty_concurrent_take_overs_one_has_the_run(store: RunStore) -> None:
    lost = claim(store).run
    now = at("12:02")

    def take_over(n: int) -> Claim:
        to = lost.taken_over(
            dispatch=1, token=f"n{n}", worker=f"w{n}", now=now, lease_until=now + LEASE
        )
        return store.advance(lost, to)

    with ThreadPoolExecutor(20) as threads:
        claims = list(threads.map(take_over, range(20)))

    (winner,) = [c.run for c in claims if c.taken]
    assert store.get(lost.key) == winner
    assert (winner.attempt, [a.number for a in winner.attempts]) == (2, [1, 2])


def test_a_lease_is_extended_while_it_is_held(held: Held) -> None:
    run = claim(held.store).run
    held.request_cancel(run.key)

    extended = held.store.extend(run, lease_until=NOON + 2 * LEASE)

    assert extended is not None
    assert (extended.lease_until, extended.cancel_requested) == (NOON + 2 * LEASE, True)
    assert held.store.get(run.key) == extended


def test_a_lease_that_was_extended_has_not_lapsed(store: RunStore) -> None:
    seen = claim(store).run
    extended = store.extend(seen, lease_until=NOON + 2 * LEASE)
    to = seen.taken_over(dispatch=1, token="t2", worker="b", now=NOON, lease_until=NOON + LEASE)

    refused = store.advance(seen, to, lapsed=True)

    assert (refused.taken, refused.run) == (False, extended)
    assert extended is not None
    again = replace(to, lease_until=NOON + 3 * LEASE)
    assert store.advance(extended, again, lapsed=True).taken
    assert store.advance(extended, again, lapsed=True).taken, "a repetition finds what it wrote"


@pytest.mark.parametrize(
    "lose",
    [
        lambda run: run.taken_over(
            dispatch=1, token="t2", worker="b", now=NOON, lease_until=NOON + LEASE
        ),
        lambda run: run.ended(RunState.DEAD, FAILED, NOON),
        lambda run: run.handed_back(HANDED_BACK, NOON),
    ],
    ids=["taken over", "ended", "handed back"],
)
def test_a_lost_lease_is_not_extended(store: RunStore, lose: Callable[[Run], Run]) -> None:
    run = claim(store).run
    stored = store.advance(run, lose(run)).run

    assert store.extend(run, lease_until=NOON + 5 * LEASE) is None
    assert store.get(run.key) == stored


def test_the_lease_of_a_record_that_is_gone_is_not_extended(store: RunStore) -> None:
    run = replace(claim(store).run, key=run_key(at("13:00")))

    assert store.extend(run, lease_until=NOON + LEASE) is None
    assert store.get(run.key) is None


def test_each_attempt_names_the_pool_that_made_it(store: RunStore) -> None:
    first = claim(store, a_message()).run
    to = first.taken_over(
        dispatch=1,
        token="t2",
        worker="b",
        pool="batch",
        now=NOON + LEASE,
        lease_until=NOON + 2 * LEASE,
    )

    second = store.advance(first, to, lapsed=True).run

    assert [attempt.pool for attempt in second.attempts] == ["default", "batch"]
    assert store.get(first.key) == second


def test_an_attempts_pool_does_not_lead_to_the_files_of_another_tenant() -> None:
    [pool] = [field for field in ATTEMPT if field.name == "pool"]

    with pytest.raises(ValueError, match="has no slash"):
        pool.codec.decode("default/other")
