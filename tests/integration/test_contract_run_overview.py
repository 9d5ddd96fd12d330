"""The contract of `RunOverview`: on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.overview_store import DynamoDbSegmentStore
from nextfire.adapters.dynamodb.run_items import encode_run
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.overview import SqliteRunOverview
from nextfire.adapters.sqlite.run_reads import stored_item
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import to_ms
from nextfire.domain.overview import DeliveredStep, step_of
from nextfire.domain.ports.overview import RunOverview, SegmentStore, StepFilter
from nextfire.domain.run import Run, RunState
from nextfire.usecases.project_runs import ProjectRuns
from nextfire.usecases.read_overview import SegmentedOverview
from tests.builders import NOON, at, run_key
from tests.fakes import Clock, MemoryRunOverview, MemoryRunStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_each

CONTRACT_OF = (RunOverview,)
SECOND = timedelta(seconds=1)
NOON_MS = to_ms(NOON)
DAY = StepFilter(NOON - timedelta(days=1), NOON + timedelta(days=1))


def item_of(run: Run) -> dict[str, Any]:
    """The item of *run*, with the pool, which claims write."""
    return encode_run(run) | ({"pool": {"S": run.pool}} if run.pool else {})


@dataclass(frozen=True, slots=True)
class Held:
    """An overview. `write` stores the record of a run; the stream delivers it at once."""

    overview: RunOverview
    write: Callable[[Run], None]
    spoil: Callable[[RunKey], None]


def _segmented(store: SegmentStore, runs: Any, put: Callable[[Run], object]) -> Any:
    projector = ProjectRuns(store, runs, Clock(NOON))

    def write(run: Run) -> None:
        put(run)
        projector.apply([DeliveredStep(run.key.job.tenant, step_of(run), str(run.key), NOON_MS)])

    return SegmentedOverview(store, runs), write


backend = on_each(*STORES)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemoryRunStore()

        def put(run: Run) -> None:
            memory.items[run.key] = run

        return Held(MemoryRunOverview(memory), put, memory.spoil)
    if backend == SQLITE:
        database: Database = request.getfixturevalue("database")

        def save(item: Any) -> None:
            with database.writing("test") as connection:
                RUNS.put(connection, json.loads(json.dumps(item)))

        def spoil(key: RunKey) -> None:
            save(stored_item(Run(key, RunState.DEAD, finished_at=NOON)) | {"fence": {"S": "x"}})

        overview = SqliteRunOverview(database)
        return Held(overview, lambda run: save(stored_item(run)), spoil)
    table = request.getfixturevalue("tables")
    names = (table.runs, table.overview)
    client = dynamodb()
    runs = DynamoDbRunStore(client, table=names[0])
    store = DynamoDbSegmentStore(client, table=names[1])

    def ruin(key: RunKey) -> None:
        item = item_of(Run(key, RunState.DEAD, finished_at=NOON)) | {"fence": {"S": "x"}}
        client.put_item(TableName=names[0], Item=item)

    overview, write = _segmented(
        store, runs, lambda run: client.put_item(TableName=names[0], Item=item_of(run))
    )
    return Held(overview, write, ruin)


def a_run(number: int, state: RunState, second: float, **fields: Any) -> Run:
    """A run whose latest step was at *second* after noon."""
    key = run_key(NOON - timedelta(hours=1), job_id=f"job-{number:02d}")
    now = NOON + SECOND * second
    run = Run(key, state, fence=1, started_at=NOON, finished_at=now, pool="default")
    if not state.ended:
        run = replace(run, started_at=now, finished_at=None)
    return replace(run, **fields)


@pytest.fixture
def runs(held: Held) -> list[Run]:
    """Runs of all states, latest step first."""
    states = [*RunState] * 3
    found = [a_run(number, state, number / 2) for number, state in enumerate(states)]
    for run in found:
        held.write(run)
    held.write(replace(a_run(99, RunState.DEAD, 1), key=run_key(tenant="other")))
    return found[::-1]


def listed(held: Held, limit: int = 4, **wanted: Any) -> list[RunKey]:
    found: list[RunKey] = []
    cursor = None
    while True:
        page = held.overview.list("acme", replace(DAY, **wanted), cursor=cursor, limit=limit)
        assert len(page.items) <= limit
        found += [run.key for run in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


def test_runs_of_all_jobs_are_listed_latest_step_first(held: Held, runs: list[Run]) -> None:
    assert held.overview.covers("acme")
    for limit in (1, 4, 100):
        assert listed(held, limit) == [run.key for run in runs]
    for state in RunState:
        of_state = [run.key for run in runs if run.state is state]
        assert listed(held, states=(state,)) == of_state


def test_a_page_can_end_between_runs_of_one_instant(held: Held) -> None:
    """Of several jobs and, under one name, of several tenants."""
    runs = [a_run(number, RunState.DEAD, 1) for number in range(4)]
    for run in runs:
        held.write(run)

    assert {*listed(held, 1)} == {run.key for run in runs}
    assert len(listed(held, 1)) == 4


def test_a_span_begins_with_its_first_instant(held: Held, runs: list[Run]) -> None:
    span = listed(held, first=at("12:00:02"), before=at("12:00:03.5"))

    assert span == [run.key for run in runs if 4 <= int(run.key.job.job_id[4:]) < 7]


def test_the_ends_of_a_span_are_rounded_down_to_milliseconds(held: Held, runs: list[Run]) -> None:
    """As the instants of runs are."""
    span = listed(held, first=at("12:00:02.000900"), before=at("12:00:03.500900"))

    assert span == [run.key for run in runs if 4 <= int(run.key.job.job_id[4:]) < 7]


def test_a_listing_is_of_one_pool(held: Held, runs: list[Run]) -> None:
    held.write(a_run(50, RunState.SUCCEEDED, 3, pool="batch"))
    assert runs

    assert [key.job.job_id for key in listed(held, pool="batch")] == ["job-50"]


def test_a_run_is_where_its_latest_step_is(held: Held, runs: list[Run]) -> None:
    oldest = runs[-1]
    held.write(replace(oldest, state=RunState.SUCCEEDED, fence=2, finished_at=at("12:05")))

    assert listed(held) == [oldest.key, *(run.key for run in runs[:-1])]


def test_a_run_without_start_and_end_is_where_it_was_scheduled(held: Held) -> None:
    waiting = Run(run_key(at("12:00:01")), RunState.PENDING)
    held.write(waiting)
    held.write(a_run(1, RunState.DEAD, 1.5))
    held.write(a_run(2, RunState.DEAD, 0.5))

    assert [key.job.job_id for key in listed(held)] == ["job-01", "report", "job-02"]


def test_a_record_that_does_not_decode_is_listed_as_such(held: Held) -> None:
    run = a_run(1, RunState.DEAD, 0)
    held.write(run)
    held.spoil(run.key)
    page = held.overview.list("acme", DAY, cursor=None, limit=10)

    assert [each.identity for each in page.unreadable] == [run.key.execution_id]
    assert [*page.items] == []


def test_runs_are_counted(held: Held, runs: list[Run]) -> None:
    held.write(a_run(60, RunState.DEAD, 61))
    held.write(a_run(61, RunState.DEAD, -1))
    assert runs
    counts, _ = held.overview.counts("acme", at("12:00:30"))

    assert counts.open == {RunState.PENDING: 3, RunState.RUNNING: 3}
    ended = {state: 3 for state in RunState if state.ended}
    assert counts.minutes == {NOON: ended, at("12:01"): {RunState.DEAD: 1}}
    assert counts.first == NOON


def test_a_cursor_of_another_listing_is_refused(held: Held, runs: list[Run]) -> None:
    assert runs
    with pytest.raises(InvalidInputError):
        held.overview.list("acme", DAY, cursor="x", limit=1)
