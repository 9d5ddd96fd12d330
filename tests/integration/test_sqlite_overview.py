"""The overview in SQLite while runs change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.overview import SqliteRunOverview
from nextfire.adapters.sqlite.run_reads import stored_item
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.ports.overview import StepFilter
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, run_key
from tests.integration.sqlite_file import another_process

DAY = StepFilter(NOON - timedelta(days=1), NOON + timedelta(days=1))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_run_that_changes_during_a_read_is_found_once(database: Database, number: int) -> None:
    """It changes before statement *number* of the read."""
    overview = SqliteRunOverview(database)

    def write(state: RunState) -> None:
        run = Run(run_key(), state, started_at=NOON, finished_at=NOON if state.ended else None)
        with database.writing("test") as connection:
            RUNS.put(connection, stored_item(run))

    for was, to in [
        (RunState.RUNNING, RunState.SUCCEEDED),
        (RunState.RUNNING, RunState.PENDING),
        (RunState.DEAD, RunState.PENDING),
    ]:
        for read in ("list", "counts"):
            write(was)
            statements = 0

            def changed(statement: str, to: RunState = to) -> None:
                nonlocal statements
                statements += statement.startswith("SELECT")
                if statements == number:
                    statements += 1
                    write(to)

            with database.reading("test") as connection:
                connection.set_trace_callback(changed)
                try:
                    if read == "list":
                        page = overview.list("acme", DAY, cursor=None, limit=10)
                        found = len(page.items)
                    else:
                        counts, _ = overview.counts("acme", NOON)
                        ended = sum(sum(each.values()) for each in counts.minutes.values())
                        found = sum(counts.open.values()) + ended
                finally:
                    connection.set_trace_callback(None)
            assert found == 1, (was, to, read)


def test_a_list_of_a_pool_decodes_no_run_of_another_pool(database: Database) -> None:
    """Among a million runs, it took seconds to find those of a pool with few."""
    traced: list[str] = []
    wanted = replace(DAY, states=(RunState.SUCCEEDED,), pool="rare")
    with database.reading("test") as connection:
        connection.set_trace_callback(traced.append)
        SqliteRunOverview(database).list("acme", wanted, cursor=None, limit=10)
        connection.set_trace_callback(None)
        operations = [row[1] for row in connection.execute(f"EXPLAIN {traced[-1]}")]

    assert "DeferredSeek" in operations, "the row is read after the index has decided"
    assert not {"Function", "PureFunc"} & {*operations}, "nothing is extracted from its JSON"


def test_the_index_of_an_earlier_version_is_replaced(database: Database) -> None:
    with database.writing("test") as connection:
        connection.execute("DROP INDEX runs_list")
        connection.execute("CREATE INDEX runs_steps ON runs (tenant, state, step_at, job, run_id)")

    with another_process(database).reading("test") as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")
        assert {name for (name,) in found} & {"runs_list", "runs_steps"} == {"runs_list"}
        version = connection.execute("PRAGMA user_version").fetchone()
    assert version == (2,), "that version may continue to use the file"
