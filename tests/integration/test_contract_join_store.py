"""The contract of `JoinStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.join_store import DynamoDbJoinStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqlite.join_store import SqliteJoinStore
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.ports.joins import JoinStore
from tests.builders import NOON, job_key
from tests.fakes import MemoryJoinStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_dynamodb, on_each
from tests.integration.races import at_once

CONTRACT_OF = (JoinStore,)
RUN = RunKey(job_key("child"), run_id("uid00001", NOON))


backend = on_each(*STORES)


@pytest.fixture
def store(backend: str, request: pytest.FixtureRequest) -> JoinStore:
    if backend == MEMORY:
        return MemoryJoinStore()
    if backend == SQLITE:
        return SqliteJoinStore(request.getfixturevalue("database"))
    table = request.getfixturevalue("tables").runs
    return DynamoDbJoinStore(dynamodb(), table=table)


def test_marks_are_kept_by_run_and_group(store: JoinStore) -> None:
    other = RunKey(RUN.job, run_id("uid00002", NOON))

    assert {*store.add(RUN, 0, "a:S", NOON)} == {"a:S"}
    assert {*store.add(RUN, 0, "b:F", NOON)} == {"a:S", "b:F"}
    assert {*store.add(RUN, 1, "c:K", NOON)} == {"c:K"}
    assert {*store.add(other, 0, "d:S", NOON)} == {"d:S"}

    assert {*store.read(RUN, [0, 1, 2])} == {"a:S", "b:F", "c:K"}
    assert {*store.read(RUN, [1])} == {"c:K"}
    assert not store.read(RUN, [])


def test_jobs_and_tenants_share_neither_marks_nor_sequences(store: JoinStore) -> None:
    jobs = (RUN.job, job_key("other"), job_key("child", "globex"))
    for number, job in enumerate(jobs):
        run = RunKey(job, RUN.run_id)
        assert {*store.add(run, 0, f"p{number}:S", NOON)} == {f"p{number}:S"}
        assert store.begin_sequence(run, 1, NOON)
    store.end_sequences(jobs[0], [RUN.run_id])

    assert [len(store.begun_sequences(job)) for job in jobs] == [0, 1, 1]
    assert [{*store.read(RunKey(job, RUN.run_id), [0])} for job in jobs] == [
        {"p0:S"},
        {"p1:S"},
        {"p2:S"},
    ]


def test_a_repeated_mark_changes_nothing(store: JoinStore) -> None:
    store.add(RUN, 0, "a:S", NOON)

    assert [*store.add(RUN, 0, "a:S", NOON)] == ["a:S"]


def test_of_concurrent_callers_one_sees_the_marks_of_all(store: JoinStore) -> None:
    marks = {f"p{number}:S" for number in range(8)}

    seen = at_once(*(lambda mark=mark: store.add(RUN, 0, mark, NOON) for mark in sorted(marks)))

    assert any({*each} == marks for each in seen)
    assert {*store.read(RUN, [0])} == marks


def a_first(number: int, name: str = "root") -> RunKey:
    return RunKey(job_key(name), run_id("uid00001", NOON + timedelta(hours=number)))


def test_as_many_sequences_begin_as_may_be_under_way(store: JoinStore) -> None:
    assert [store.begin_sequence(a_first(number), 2, NOON) for number in range(3)] == [
        True,
        True,
        False,
    ]
    assert store.begin_sequence(a_first(0), 2, NOON)  # again
    assert store.begin_sequence(a_first(0), 1, NOON)  # the limit was lowered
    assert store.begin_sequence(a_first(9, "other"), 1, NOON)

    assert {*store.begun_sequences(a_first(0).job)} == {a_first(n).run_id for n in range(2)}
    store.end_sequences(a_first(0).job, [a_first(0).run_id, a_first(7).run_id])
    assert [*store.begun_sequences(a_first(0).job)] == [a_first(1).run_id]
    assert store.begin_sequence(a_first(2), 2, NOON)
    assert not store.begin_sequence(a_first(0), 2, NOON)


def test_after_the_last_one_ended_another_begins(store: JoinStore) -> None:
    assert not store.begun_sequences(a_first(0).job)
    store.end_sequences(a_first(0).job, [a_first(0).run_id])
    store.begin_sequence(a_first(0), 1, NOON)
    store.end_sequences(a_first(0).job, [a_first(0).run_id])

    assert not store.begun_sequences(a_first(0).job)
    assert store.begin_sequence(a_first(1), 1, NOON)


def test_of_concurrent_sequences_as_many_begin_as_may(store: JoinStore) -> None:
    done = at_once(
        *(lambda each=number: store.begin_sequence(a_first(each), 3, NOON) for number in range(8))
    )

    assert sum(done) == 3
    assert len(store.begun_sequences(a_first(0).job)) == 3


@on_dynamodb
def test_an_item_of_a_join_is_in_no_list_of_runs(store: JoinStore, tables: object) -> None:
    store.add(RUN, 0, "a:S", NOON)

    runs = DynamoDbRunStore(dynamodb(), table=tables.runs)  # type: ignore[attr-defined]
    assert not [*runs.between(RUN.job, "0", "9")]
    assert not runs.list(RUN.job, cursor=None, limit=10).items
