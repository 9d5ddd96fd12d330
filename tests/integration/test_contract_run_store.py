"""The contract of `RunStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_items import ATTEMPT
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.run_reads import run_key as item_key
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.attempt import MAX_ATTEMPTS_KEPT, AttemptOutcome, Result, Value
from nextfire.domain.due import DispatchEntry, DueEntry, StoredEntry
from nextfire.domain.errors import InvalidInputError, UnavailableError, UndecodableError
from nextfire.domain.ids import RunKey, first_run_id
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import Claim, RunStore, Written
from nextfire.domain.replay import Replay
from nextfire.domain.run import Run, RunState, Trigger
from tests.builders import LEASE, NOON, a_job, a_message, a_retry, at, job_key, run_key
from tests.fakes import InlineExecutor, MemoryDueStore, MemoryJobStore, MemoryRunStore
from tests.integration.backends import DYNAMODB, MEMORY, SQLITE
from tests.integration.races import ROUNDS, at_once
from tests.integration.sqlite_file import put

CONTRACT_OF = (RunStore,)
FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1, "out", "err")
DONE = Result(AttemptOutcome.SUCCEEDED, "exit code 0", 0)
HANDED_BACK = Result(AttemptOutcome.HANDED_BACK, "its worker shut down")
RAGGED = NOON + timedelta(microseconds=123_456)
"""An instant of a machine's clock, with higher precision than stored instants."""


@dataclass(frozen=True, slots=True)
class Held:
    """A store, with access that no port offers: requests to cancel, and items that are not runs."""

    store: RunStore
    request_cancel: Callable[[RunKey], object]
    spoil: Callable[[RunKey], object]


@pytest.fixture(params=(MEMORY, SQLITE, *DYNAMODB))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemoryRunStore()
        return Held(memory, memory.request_cancel, memory.spoil)
    if backend == SQLITE:
        database = request.getfixturevalue("database")

        def ask(run: RunKey) -> None:
            with database.writing("test") as connection:
                item = RUNS.get(connection, *item_key(run))
                assert item is not None
                RUNS.put(connection, item | {"cancel_requested": {"BOOL": True}})

        def damage(run: RunKey) -> None:
            job, run_id = item_key(run)
            put(database, RUNS, job=job, run_id=run_id, state="ASLEEP")

        return Held(SqliteRunStore(database), ask, damage)
    table = request.getfixturevalue("tables").runs
    client = dynamodb()

    def key(run: RunKey) -> dict[str, dict[str, str]]:
        return {
            "job": {"S": f"{run.job.tenant}/{run.job.job_id}"},
            "run_id": {"S": run.run_id},
        }

    def request_cancel(run: RunKey) -> None:
        client.update_item(
            TableName=table,
            Key=key(run),
            UpdateExpression="SET cancel_requested = :yes",
            ExpressionAttributeValues={":yes": {"BOOL": True}},
        )

    def spoil(run: RunKey) -> None:
        client.put_item(TableName=table, Item=key(run) | {"state": {"S": "ASLEEP"}})

    return Held(DynamoDbRunStore(client, table=table), request_cancel, spoil)


@pytest.fixture
def store(held: Held) -> RunStore:
    return held.store


def claim(
    store: RunStore,
    message: RunMessage | None = None,
    *,
    mark: str = "t1",
    worker: str = "a",
    now: datetime = NOON,
) -> Claim:
    return store.claim(
        message or a_message(),
        token=mark,
        worker=worker,
        pool="default",
        job_revision=3,
        now=now,
        lease_until=now + LEASE,
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


def retrying(store: RunStore, *, not_before: datetime) -> Run:
    """The run, waiting for its second dispatch."""
    run = claim(store).run
    return store.advance(run, run.retrying(FAILED, NOON, not_before=not_before)).run


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
    there = store.advance(run, lose(run)).run

    assert store.extend(run, lease_until=NOON + 5 * LEASE) is None
    assert store.get(run.key) == there


def test_the_lease_of_a_record_that_is_gone_is_not_extended(store: RunStore) -> None:
    run = replace(claim(store).run, key=run_key(at("13:00")))

    assert store.extend(run, lease_until=NOON + LEASE) is None
    assert store.get(run.key) is None


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


def test_a_job_s_runs_are_listed_latest_first_page_by_page(store: RunStore) -> None:
    times = [at(f"{hour}:00") for hour in (13, 14, 11, 10, 12)]
    for time in times:
        claim(store, a_message(run_key(time)))
    claim(store, a_message(run_key(at("10:30"), job_id="report2")))
    claim(store, a_message(run_key(at("10:30"), tenant="other")))

    seen: list[datetime] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = store.list(job_key(), cursor=cursor, limit=2)
        assert len(page.items) <= 2
        seen += [run.key.scheduled_at for run in page.items]
        cursor, pages = page.cursor, pages + 1

    assert seen == sorted(times, reverse=True)
    assert store.list(job_key("nothing"), cursor=None, limit=2).items == []


def test_some_runs_are_found_by_their_keys(held: Held) -> None:
    other = run_key(job_id="other")
    for key in (run_key(), other):
        held.store.cancel(a_message(key), reason="enough", now=NOON)
    found = held.store.find([run_key(job_id="missing"), run_key(), other])
    assert {run.key for run in found.items} == {run_key(), other}
    assert not held.store.find([]).items

    held.spoil(other)
    found = held.store.find([run_key(), other])
    assert [run.key for run in found.items] == [run_key()]
    assert [each.identity for each in found.unreadable] == [other.execution_id]


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_runs_of_a_half_open_span_are_listed(store: RunStore, limit: int) -> None:
    times = ["10:00", "10:59:59.999", "11:00", "12:00", "12:59:59.999", "13:00", "14:00"]
    for time in times:
        claim(store, a_message(run_key(at(time))))
    first, before = at("11:00"), at("13:00")

    seen: list[datetime] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = store.list(job_key(), cursor=cursor, limit=limit, first=first, before=before)
        seen += [run.key.scheduled_at for run in page.items]
        cursor, pages = page.cursor, pages + 1

    assert seen == [at("12:59:59.999"), at("12:00"), at("11:00")]


def test_a_cursor_from_before_the_span_moved_leads_into_it(store: RunStore) -> None:
    for time in ("11:00", "12:00", "13:00"):
        claim(store, a_message(run_key(at(time))))
    cursor = store.list(job_key(), cursor=None, limit=2).cursor  # after the run of 12:00

    def listed(first: str, before: str) -> list[datetime]:
        page = store.list(job_key(), cursor=cursor, limit=9, first=at(first), before=at(before))
        assert page.cursor is None
        return [run.key.scheduled_at for run in page.items]

    assert listed("12:30", "14:00") == []
    assert listed("10:00", "12:00") == [at("11:00")]
    assert listed("10:00", "14:00") == [at("11:00")]
    assert listed("12:00", "14:00") == []


@pytest.mark.parametrize("cursor", ["", "garbage", "====", "é", "YWJj", "cmVwb3J0", "a" * 5000])
def test_an_invalid_cursor_is_rejected(store: RunStore, cursor: str) -> None:
    claim(store)

    with pytest.raises(InvalidInputError) as refused:
        store.list(job_key(), cursor=cursor, limit=2)

    assert refused.value.field == "cursor"


def test_an_item_that_reads_as_no_run_says_so(held: Held) -> None:
    held.spoil(run_key())

    with pytest.raises(UndecodableError):
        held.store.get(run_key())
    with pytest.raises(UndecodableError):
        claim(held.store)
    assert claim(held.store, a_message(run_key(at("13:00")))).taken


# Records of occurrences that do not run


def a_range(first: str = "12:00", last: str = "15:00", count: int = 4) -> Run:
    key = run_key(at(first))
    return Run.skipped(key, "noticed late", NOON, covered_to=at(last), covered=count)


@pytest.mark.parametrize(
    "record",
    [
        a_range(),
        Run.skipped(run_key(), "noticed late", NOON),
        Run.skipped(run_key(), "picked up late", NOON, pool="default", dispatched_at=at("11:59")),
    ],
    ids=["several", "one", "by an executor"],
)
def test_a_skipped_run_comes_back_as_it_was_put(store: RunStore, record: Run) -> None:
    assert store.skip(record) == record
    assert store.get(record.key) == record


def test_a_repeated_skip_finds_what_it_wrote(store: RunStore) -> None:
    assert store.skip(a_range()) == store.skip(a_range()) == a_range()


def test_the_first_of_two_skips_stays(store: RunStore) -> None:
    store.skip(a_range(last="13:00", count=2))

    there = store.skip(a_range(last="18:00", count=7))

    assert (there.covered_to, there.covered) == (at("13:00"), 2)
    assert store.get(run_key()) == there


def test_a_run_that_somebody_has_is_not_skipped(store: RunStore) -> None:
    run = claim(store).run

    assert store.skip(a_range()) == run == store.get(run.key)


def test_a_run_that_was_skipped_is_never_taken(store: RunStore) -> None:
    record = store.skip(a_range())

    refused = claim(store, a_message(dispatch=7))

    assert (refused.taken, refused.run) == (False, record)
    assert store.cancel(a_message(), reason="its job was deleted", now=NOON) == record


def test_of_twenty_skips_and_claims_one_has_the_run(store: RunStore) -> None:
    def race(n: int) -> Run:
        if n % 2:
            return claim(store, mark=f"t{n}", worker=f"w{n}").run
        return store.skip(replace(a_range(), reason=f"skip {n}"))

    with ThreadPoolExecutor(20) as threads:
        found = list(threads.map(race, range(20)))

    assert all(run == found[0] for run in found)


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


# Reading ranges


def test_a_job_s_runs_between_two_ids_come_in_both_orders(store: RunStore) -> None:
    times = [at(f"12:{n:02d}") for n in range(12)]
    for time in times:
        claim(store, a_message(run_key(time)))
    claim(store, a_message(run_key(at("12:05"), job_id="report2")))
    claim(store, a_message(run_key(at("12:05"), tenant="other")))
    first, last = first_run_id(at("12:03")), first_run_id(at("12:09"))

    def found(*, newest_first: bool, page: int) -> list[datetime]:
        runs = store.between(job_key(), first, last, newest_first=newest_first, page=page)
        return [run.key.scheduled_at for run in runs]

    # An id of 12:09 sorts after the instant itself.
    for page in (1, 2, 100):
        assert found(newest_first=False, page=page) == times[3:9]
        assert found(newest_first=True, page=page) == times[8:2:-1]


def test_both_ends_are_included(store: RunStore) -> None:
    for time in ("12:00", "13:00", "14:00"):
        claim(store, a_message(run_key(at(time))))
    first, last = run_key(at("12:00")).run_id, run_key(at("13:00")).run_id

    assert [r.key.run_id for r in store.between(job_key(), first, last)] == [first, last]
    assert list(store.between(job_key("nothing"), "0", "9")) == []


def test_of_a_record_that_reads_as_no_run_its_key_may_be_asked_for(held: Held) -> None:
    held.store.skip(Run.skipped(run_key(), "late", NOON))
    held.spoil(run_key())

    (found,) = held.store.between(job_key(), "0", "9", lenient=True)

    assert (found.key, found.state) == (run_key(), RunState.DEAD)


def test_a_record_between_that_reads_as_no_run_says_so(held: Held) -> None:
    claim(held.store, a_message(run_key(at("11:00"))))
    claim(held.store)
    held.spoil(run_key())

    runs = held.store.between(job_key(), "0", "9", page=1)

    assert next(runs).key == run_key(at("11:00"))
    with pytest.raises(UndecodableError):
        next(runs)


# Checkpoints, results and logs


@pytest.mark.parametrize("value", [Value(7, text='{"n":1}'), Value(9000, file="checkpoint/1")])
def test_a_checkpoint_is_kept_by_whoever_has_the_run(store: RunStore, value: Value) -> None:
    run = claim(store).run
    store.save(run, Value(2, text="12"))

    there = store.save(run, value)

    assert there is not None
    assert there.checkpoint == value
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
    run = claim(store).run
    for n in range(MAX_ATTEMPTS_KEPT + 2):
        to = run.taken_over(dispatch=1, token=f"x{n}", worker="b", now=NOON, lease_until=NOON)
        run = store.advance(run, to).run

    assert len(run.attempts) == MAX_ATTEMPTS_KEPT
    assert [run.attempts[0].number, run.attempts[-1].number] == [4, MAX_ATTEMPTS_KEPT + 3]
    assert [run.fence_of(a) for a in run.attempts] == [a.number for a in run.attempts]
    assert store.get(run.key) == run


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

        there = store.get(key)
        assert there is not None
        assert isinstance(taken, Claim)
        assert (there.worker, there.fence) == (("b", 2) if taken.taken else ("a", 1))
        assert (extended is None) == taken.taken
        assert (there.checkpoint is None) == (saved is None), "a saved checkpoint is in the record"


def test_a_request_to_cancel_is_never_lost_on_the_way_to_another_try(store: RunStore) -> None:
    for key in rounds():
        run = claim(store, a_message(key)).run
        moved, asked = at_once(
            partial(store.advance, run, run.retrying(FAILED, NOON, not_before=NOON)),
            partial(store.stop, run, reason="enough", now=NOON),
        )

        there = store.get(key)
        assert there is not None
        assert isinstance(moved, Claim)
        assert asked == there
        assert (there.state, there.cancel_requested) == (
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


# Dead runs


@dataclass(frozen=True, slots=True)
class Dead:
    """A store that redrives, and the due entries that it has stored."""

    store: RunStore
    entries: Callable[[], list[DueEntry]]

    def dispatches(self) -> list[DispatchEntry]:
        return [each for each in self.entries() if isinstance(each, DispatchEntry)]

    def die(self, key: RunKey, *, when: datetime = NOON, dispatch: int = 1) -> Run:
        run = claim(self.store, a_message(key, dispatch=dispatch)).run
        return self.store.advance(run, run.ended(RunState.DEAD, FAILED, when)).run


@pytest.fixture
def dead(backend: str, request: pytest.FixtureRequest) -> Dead:
    if backend == MEMORY:
        due = MemoryDueStore(shards=1)
        return Dead(MemoryRunStore(due), lambda: due.entries)
    store: RunStore
    stored: DueStore
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        store, stored = SqliteRunStore(database), SqliteDueStore(database)
    else:
        tables = request.getfixturevalue("tables")
        client = dynamodb()
        store = DynamoDbRunStore(client, table=tables.runs, due_table=tables.due, shards=1)
        stored = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())

    def entries() -> list[DueEntry]:
        found = stored.read(NOON, 0, before=None, consistent=True)
        return [each.entry for each in found if isinstance(each, StoredEntry)]

    return Dead(store, entries)


def redrive(dead: Dead, run: Run, now: datetime = NOON) -> Claim:
    to = run.redriven("redriven", now)
    return dead.store.redrive(to, a_retry(run.key, now, dispatch=to.dispatch), now)


def reopen(dead: Dead, run: Run) -> Claim:
    to = run.redriven("ALL_SUCCEEDED: a SUCCEEDED", NOON)
    entry = a_retry(run.key, NOON, dispatch=to.dispatch)
    return dead.store.redrive(to, entry, NOON, was=RunState.SKIPPED)


def test_a_run_that_was_skipped_because_of_a_parent_is_reopened_once(dead: Dead) -> None:
    skipped = dead.store.skip(Run.skipped(run_key(), "trigger rule ALL_SUCCEEDED: a FAILED", NOON))

    first = reopen(dead, skipped)
    again = reopen(dead, skipped)

    assert (first.taken, again.taken) == (True, True)
    assert again.run == first.run == dead.store.get(run_key())
    assert (first.run.state, first.run.dispatch) == (RunState.PENDING, 3)
    assert (first.run.attempt_base, first.run.finished_at) == (0, None)
    assert len(dead.entries()) == 1
    assert claim(dead.store, a_message(dispatch=3)).taken
    assert reopen(dead, skipped).run.state is RunState.RUNNING


def test_a_dead_run_is_redriven_with_its_due_entry(dead: Dead) -> None:
    run = dead.die(run_key())

    again = redrive(dead, run)

    assert again.taken
    there = dead.store.get(run.key)
    assert there == again.run
    assert (there.state, there.dispatch, there.tries, there.attempt) == (RunState.PENDING, 3, 0, 1)
    assert [(a.number, a.outcome) for a in there.attempts] == [(1, AttemptOutcome.FAILED)]
    assert [(e.run_id, e.dispatch, e.at) for e in dead.dispatches()] == [(run.key.run_id, 3, NOON)]
    taken = claim(dead.store, a_message(dispatch=3), mark="t2", worker="b")
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
    dead.die(run_key(), dispatch=3)
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
        lambda to: replace(to, dispatch=to.dispatch - 2),
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
def test_another_redrive_is_no_repetition(dead: Dead, other: Callable[[Run], Run]) -> None:
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

    third = a_message(dispatch=3)
    assert not claim(dead.store, third, mark="t2", now=at("12:00:59")).taken
    assert claim(dead.store, third, mark="t2", now=at("12:01")).taken


def test_a_published_death_is_recorded_for_its_dispatch_only(dead: Dead) -> None:
    run = dead.die(run_key())
    redrive(dead, run)
    dead.store.mark_death_published(run)  # after the redrive
    again = dead.die(run_key(), dispatch=3)
    dead.store.mark_death_published(run)  # after the next death

    assert dead.store.get(run.key) == again
    assert again.buried == 0

    dead.store.mark_death_published(again)
    stored = dead.store.get(run.key)
    assert stored is not None
    assert stored.buried == again.dispatch == 3


def test_a_live_run_has_no_published_death(store: RunStore) -> None:
    run = claim(store).run

    store.mark_death_published(run)

    assert store.get(run.key) == run
    assert run.buried == 0


def test_the_dead_of_a_tenant_are_listed_the_latest_death_first(dead: Dead) -> None:
    died = {}
    for n, time in enumerate(["12:00:00.5", "12:00", "12:10", "11:59:59.999", "12:05"]):
        died[time] = dead.die(run_key(at(f"{n:02d}:00"), job_id=f"job{n}"), when=at(time))
    dead.die(run_key(tenant="other"), when=at("12:01"))
    ended = claim(dead.store, a_message(run_key(at("20:00")))).run
    dead.store.advance(ended, ended.ended(RunState.SUCCEEDED, FAILED, NOON))

    def listed(limit: int) -> list[Run]:
        found: list[Run] = []
        cursor = None
        while True:
            page = dead.store.list_dead(
                "acme", first=NOON, last=at("12:05"), cursor=cursor, limit=limit
            )
            found += page.items
            cursor = page.cursor
            if cursor is None:
                return found

    wanted = [died["12:05"], died["12:00:00.5"], died["12:00"]]
    assert listed(1) == listed(2) == listed(50) == wanted
    redrive(dead, died["12:00:00.5"])
    assert listed(50) == [died["12:05"], died["12:00"]]


def test_a_cursor_from_before_the_span_moved_leads_into_it_of_the_dead(dead: Dead) -> None:
    for time in ("11:00", "12:00", "13:00"):
        dead.die(run_key(at(time)), when=at(time))
    span = {"first": at("10:00"), "last": at("14:00")}
    cursor = dead.store.list_dead("acme", cursor=None, limit=2, **span).cursor

    def listed(first: str, last: str) -> list[datetime]:
        page = dead.store.list_dead("acme", first=at(first), last=at(last), cursor=cursor, limit=9)
        return [run.key.scheduled_at for run in page.items]

    assert listed("12:30", "14:00") == []
    assert listed("10:00", "11:30") == [at("11:00")]
    assert listed("10:00", "14:00") == [at("11:00")]


def test_list_dead_rejects_an_invalid_cursor(dead: Dead) -> None:
    with pytest.raises(InvalidInputError):
        dead.store.list_dead("acme", first=NOON, last=NOON, cursor="none", limit=1)


# Runs on request


def asked_for(request: str = "r", **more: Any) -> Run:
    return Run(
        run_key(at("12:00:00.001")),
        RunState.PENDING,
        reason="run on request",
        trigger=Trigger.MANUAL,
        request=request,
        **more,
    )


def ask_for(dead: Dead, run: Run) -> Claim:
    return dead.store.request(run, a_retry(run.key, NOON, dispatch=1), NOON)


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
    there = dead.store.skip(Run.skipped(key, "noticed late", NOON))

    assert ask_for(dead, asked_for("")) == Claim(there, taken=False)
    assert not dead.entries()


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


def test_a_run_on_request_that_nobody_has_taken_is_passed_over(dead: Dead) -> None:
    run = ask_for(dead, asked_for(payload="7")).run

    skipped = dead.store.skip(passed_over(run))

    assert skipped == passed_over(run) == dead.store.get(run.key)
    assert dead.store.skip(passed_over(run)) == skipped
    assert not claim(dead.store, a_message(run.key)).taken


def test_a_run_on_request_that_somebody_took_is_not_passed_over(dead: Dead) -> None:
    run = ask_for(dead, asked_for()).run
    taken = claim(dead.store, a_message(run.key)).run
    assert dead.store.skip(passed_over(run)) == taken

    waiting = dead.store.advance(taken, taken.handed_back(HANDED_BACK, NOON)).run
    assert dead.store.skip(passed_over(run)) == waiting


def test_a_run_on_request_whose_record_is_gone_is_not_passed_over(store: RunStore) -> None:
    with pytest.raises(UnavailableError):
        store.skip(passed_over(asked_for()))
    assert store.get(asked_for().key) is None


# Occurrences to be skipped


@dataclass(frozen=True, slots=True)
class Both:
    """A store of runs and a store of jobs, both changed by some writes, with one job."""

    runs: RunStore
    jobs: JobStore
    job: Job

    def skip(self, job: Job | None = None, run: Run | None = None) -> Written:
        return self.runs.skip_next(run or self.skipped(), job or self.next())

    def next(self, *skips: datetime) -> Job:
        return replace(self.job, revision=self.job.revision + 1, skips=skips or (NOON,))

    @staticmethod
    def skipped() -> Run:
        return replace(Run.skipped(run_key(), "a reason", at("11:00")), request="skip")


@pytest.fixture
def both(backend: str, request: pytest.FixtureRequest) -> Both:
    job = a_job(since=at("11:00"))
    runs: RunStore
    jobs: JobStore
    if backend == MEMORY:
        due = MemoryDueStore(shards=1)
        jobs = memory = MemoryJobStore(due)
        runs = MemoryRunStore(due, memory)
    elif backend == SQLITE:
        database = request.getfixturevalue("database")
        jobs, runs = SqliteJobStore(database), SqliteRunStore(database)
    else:
        tables = request.getfixturevalue("tables")
        jobs = DynamoDbJobStore(dynamodb(), table=tables.jobs, due_table=tables.due)
        runs = DynamoDbRunStore(
            dynamodb(), table=tables.runs, due_table=tables.due, jobs_table=tables.jobs
        )
    jobs.create(job, None, at("11:00"))
    return Both(runs, jobs, job)


def test_a_skip_is_on_record_and_in_the_job(both: Both) -> None:
    assert both.skip() is Written.DONE
    assert both.skip() is Written.DONE, "a repetition finds what it wrote"
    assert both.jobs.get(both.job.key) == both.next()
    assert both.runs.get(run_key()) == both.skipped()
    assert not claim(both.runs).taken


def test_a_job_that_was_changed_meanwhile_is_not_written_over(both: Both) -> None:
    changed = replace(both.job, revision=2, updated_at=NOON)
    both.jobs.update(changed, None, NOON)

    assert both.skip() is Written.CHANGED
    assert both.runs.unskip(run_key(), both.next()) is Written.CHANGED
    assert both.jobs.get(both.job.key) == changed
    assert both.runs.get(run_key()) is None


def test_an_occurrence_that_is_on_record_is_not_skipped(both: Both) -> None:
    run = claim(both.runs).run

    assert both.skip() is Written.REFUSED
    assert both.jobs.get(both.job.key) == both.job
    assert both.runs.get(run_key()) == run


def test_a_skip_is_undone_with_the_job(both: Both) -> None:
    both.skip()
    undone = replace(both.next(), revision=3, skips=())

    assert both.runs.unskip(run_key(), undone) is Written.DONE
    assert both.runs.unskip(run_key(), undone) is Written.DONE
    assert both.jobs.get(both.job.key) == undone
    assert both.runs.get(run_key()) is None


@pytest.mark.parametrize("there", [None, Run.skipped(run_key(), "noticed late", NOON)])
def test_only_what_was_asked_to_be_skipped_is_undone(both: Both, there: Run | None) -> None:
    if there is not None:
        both.runs.skip(there)

    assert both.runs.unskip(run_key(), both.next()) is Written.REFUSED
    assert both.jobs.get(both.job.key) == both.job
    assert both.runs.get(run_key()) == there


def test_a_run_on_request_is_no_skip_that_could_be_undone(both: Both) -> None:
    run = replace(asked_for(), key=run_key())
    both.runs.request(run, a_retry(run.key, NOON, dispatch=1), NOON)

    assert both.runs.unskip(run_key(), both.next()) is Written.REFUSED
    assert both.runs.get(run_key()) == run


def test_of_a_skip_and_twenty_claims_one_has_the_run(both: Both) -> None:
    asks: list[Callable[[], Claim | Written]]
    asks = [partial(claim, both.runs, mark=f"t{n}") for n in range(20)]

    done = at_once(both.skip, *asks)

    taken = [each for each in done if isinstance(each, Claim) and each.taken]
    assert len(taken) + done.count(Written.DONE) == 1


def test_the_record_of_a_skip_outlives_its_occurrence(
    both: Both, backend: str, request: pytest.FixtureRequest
) -> None:
    far = NOON + timedelta(days=365)
    run = replace(Run.skipped(run_key(far), "a reason", NOON), request="skip")
    assert both.skip(run=run) is Written.DONE
    if backend == MEMORY:  # it never expires records
        return
    if backend == SQLITE:
        with request.getfixturevalue("database").reading("test") as connection:
            (item,) = RUNS.select(connection, "", ())
    else:
        (item,) = dynamodb().scan(TableName=request.getfixturevalue("tables").runs)["Items"]
    assert int(item["expires_at"]["N"]) > far.timestamp()


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


def stored(dead: Dead, run: Run) -> Run:
    there = dead.store.get(run.key)
    assert there is not None
    return there


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
        there = stored(dead, run)
        assert (there.state, there.dispatch, there.finished_at) == (RunState.PENDING, 3, None)
        assert claim(dead.store, a_message(run.key, dispatch=3)).taken
    assert len(dead.entries()) == 2


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

    there = stored(dead, run)
    assert there.skipped_by_parents
    assert (there.reason, there.attempt, there.tries) == ("runs again after a", 1, 0)
    assert (
        dead.store.list_dead(run.key.job.tenant, first=NOON, last=NOON, cursor=None, limit=10).items
        == []
    )
    assert reopen(dead, there).taken
    taken = claim(dead.store, a_message(dispatch=3), mark="t2", worker="b")
    assert (taken.taken, taken.run.attempt, taken.run.tries) == (True, 2, 1)


def test_a_run_that_an_executor_skipped_can_await_its_parents(dead: Dead) -> None:
    skipped = Run.skipped(run_key(), "missing: a", NOON, pool="default", dispatched_at=NOON)
    run = dead.store.skip(skipped)

    there = dead.store.await_parents(run, run.awaiting_parents("again")).run

    assert there.skipped_by_parents
    assert reopen(dead, there).taken


def test_a_run_that_has_moved_on_does_not_await_its_parents(dead: Dead) -> None:
    run = dead.die(run_key())
    redriven = redrive(dead, run).run
    running = claim(dead.store, a_message(run_key(at("13:00")))).run

    for old, there in ((run, redriven), (running, running)):
        refused = dead.store.await_parents(old, old.awaiting_parents("again"))
        assert (refused.taken, refused.run) == (False, there)
    absent = replace(run, key=run_key(at("14:00")))
    assert not dead.store.await_parents(absent, absent.awaiting_parents("again")).taken
