"""The overview in SQLite while runs change."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.overview import SqliteRunOverview
from nextfire.adapters.sqlite.run_reads import stored_item
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.ports.overview import StepFilter
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, run_key

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
