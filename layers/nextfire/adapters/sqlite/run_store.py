"""Run records in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.job_items import encode_job
from nextfire.adapters.dynamodb.run_items import decode_run
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.job_store import is_revision_before
from nextfire.adapters.sqlite.run_reads import RunReads, run_key, stored_item, unknown_attributes
from nextfire.adapters.sqlite.table import DUE, JOBS, RUNS
from nextfire.domain.due import DueEntry
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.ports.runs import Written
from nextfire.domain.run import Run
from nextfire.domain.run_writes import Change, TransactionalRuns, as_stored


class SqliteRunStore(RunReads, TransactionalRuns):
    """`RunStore` in *database*. Due entries are stored in one of *shards* shards.
    `remove_expired` removes records that have expired.
    """

    def __init__(self, database: Database, *, shards: int = 1) -> None:
        super().__init__(database)
        self._shards = shards

    def skip_next(self, run: Run, job: Job) -> Written:
        def skip(connection: sqlite3.Connection) -> bool:
            if RUNS.get(connection, *run_key(run.key)) is not None:
                return False
            RUNS.put(connection, stored_item(run))
            return True

        return self._write_with(job, skip, "skip occurrence")

    def unskip(self, run: RunKey, job: Job) -> Written:
        def unskip(connection: sqlite3.Connection) -> bool:
            item = RUNS.get(connection, *run_key(run))
            if item is None or not decode_run(item).skip_requested:
                return False
            RUNS.delete(connection, run_key(run))
            return True

        return self._write_with(job, unskip, "unskip occurrence")

    def _write_with(
        self, job: Job, write: Callable[[sqlite3.Connection], bool], what: str
    ) -> Written:
        """Replace the previous revision by *job*, if *write* returns True, in one transaction."""
        new = encode_job(job)
        with self._database.writing(what) as connection:
            stored = JOBS.get(connection, job.key.tenant, job.key.job_id)
            if not is_revision_before(stored, job):
                return Written.DONE if stored == new else Written.CHANGED
            if not write(connection):
                return Written.REFUSED
            JOBS.put(connection, new)
        return Written.DONE

    def _change(
        self, what: str, key: RunKey, change: Change, due: tuple[DueEntry, datetime] | None = None
    ) -> tuple[Run | None, Run | None]:
        with self._database.writing(what) as connection:
            item = RUNS.get(connection, *run_key(key))
            found = None if item is None else decode_run(item)
            run = change(found)
            if run is not None:
                kept, run = run.kept, as_stored(run)
                new = unknown_attributes(item) | stored_item(replace(run, kept=kept))
                if item is not None and found and found.state is run.state and run.state.ended:
                    new["expires_at"] = item["expires_at"]  # set by the writer of its end
                RUNS.put(connection, new)
                if due is not None:
                    DUE.put(connection, entry_item(*due, self._shards))
            return found, run
