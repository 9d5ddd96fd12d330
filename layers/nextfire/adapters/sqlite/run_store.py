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
from nextfire.domain import run_writes
from nextfire.domain.attempt import Value
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.runs import Claim, Written
from nextfire.domain.run import Run, RunState

_Change = Callable[[Run | None], Run | None]
"""From the stored record, returns the record to store; None: a condition does not hold."""


class SqliteRunStore(RunReads):
    """`RunStore` in *database*. Due entries are stored in one of *shards* shards.
    `remove_expired` removes records that have expired.
    """

    def __init__(self, database: Database, *, shards: int = 1) -> None:
        super().__init__(database)
        self._shards = shards

    def claim(
        self,
        message: RunMessage,
        *,
        token: str,
        worker: str,
        pool: str,
        job_revision: int,
        now: datetime,
        lease_until: datetime,
    ) -> Claim:
        found, stored = self._change(
            "claim run",
            message.key,
            lambda found: run_writes.claimed(
                found,
                message,
                token=token,
                worker=worker,
                pool=pool,
                job_revision=job_revision,
                now=now,
                lease_until=lease_until,
            ),
        )
        if stored is not None:
            return Claim(stored, taken=True)
        run = _existing("claim run", found)
        return Claim(run, taken=run.state is RunState.RUNNING and run.claim_token == token)

    def advance(self, was: Run, to: Run, *, lapsed: bool = False) -> Claim:
        found, stored = self._change(
            "advance run",
            was.key,
            lambda found: found and run_writes.advanced(found, was, to, lapsed=lapsed),
        )
        if stored is not None:
            return Claim(stored, taken=True)
        run, written = _existing("advance run", found), run_writes.as_stored(to)
        # Each claim starts a new attempt, so equal attempts mean that this write succeeded.
        return Claim(run, taken=(run.state, run.attempts) == (written.state, written.attempts))

    def cancel(self, message: RunMessage, *, reason: str, now: datetime) -> Run:
        found, stored = self._change(
            "cancel run",
            message.key,
            lambda found: run_writes.cancelled(found, message, reason, now),
        )
        return stored or _existing("cancel run", found)

    def skip(self, run: Run) -> Run:
        def skipped(found: Run | None) -> Run | None:
            if found is None and run.on_request:
                return None
            return run_writes.skipped(found, run)

        found, stored = self._change("skip run", run.key, skipped)
        return stored or _existing("skip run", found)

    def await_parents(self, was: Run, to: Run) -> Claim:
        found, stored = self._change(
            "await parents",
            was.key,
            lambda found: to if found and run_writes.may_await_parents(found, was) else None,
        )
        if stored is not None:
            return Claim(stored, taken=True)
        if found is None:
            return Claim(Run(to.key, RunState.CANCELLED), taken=False)
        return Claim(found, taken=found.skipped_by_parents and found.dispatch == to.dispatch)

    def stop(self, run: Run, *, reason: str, now: datetime) -> Run:
        found, stored = self._change(
            "stop run", run.key, lambda found: found and run_writes.stopped(found, reason, now)
        )
        return stored or found or replace(run, state=RunState.CANCELLED)

    def extend(self, run: Run, *, lease_until: datetime) -> Run | None:
        return self._change_held(
            "extend lease", run, lambda held: replace(held, lease_until=lease_until)
        )

    def save(self, run: Run, checkpoint: Value) -> Run | None:
        return self._change_held(
            "save checkpoint", run, lambda held: replace(held, checkpoint=checkpoint)
        )

    def mark_death_published(self, run: Run) -> None:
        def published(stored: Run | None) -> Run | None:
            if stored is None or (stored.state, stored.dispatch) != (RunState.DEAD, run.dispatch):
                return None
            return replace(stored, buried=run.dispatch)

        self._change("mark death", run.key, published)

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        with self._database.writing("request run") as connection:
            item = RUNS.get(connection, *run_key(run.key))
            if item is not None:
                stored = decode_run(item)
                return Claim(stored, taken=stored.on_request and stored.request == run.request)
            RUNS.put(connection, stored_item(run))
            DUE.put(connection, entry_item(entry, now, self._shards))
        return Claim(run, taken=True)

    def redrive(
        self,
        run: Run,
        entry: DueEntry,
        now: datetime,
        *,
        was: RunState = RunState.DEAD,
        by_user: bool = True,  # noqa: ARG002 — *run* has it
    ) -> Claim:
        with self._database.writing("redrive run") as connection:
            item = RUNS.get(connection, *run_key(run.key))
            if item is None:
                return Claim(replace(run, state=RunState.CANCELLED), taken=False)
            stored = decode_run(item)
            if not run_writes.may_redrive(stored, run, was):
                ours = (stored.dispatch, stored.attempt_base) == (run.dispatch, run.attempt_base)
                return Claim(stored, taken=ours)
            RUNS.put(connection, unknown_attributes(item) | stored_item(run))
            DUE.put(connection, entry_item(entry, now, self._shards))
        return Claim(run, taken=True)

    def bring_forward(self, was: Run, to: Run, entry: DueEntry, now: datetime) -> Claim:
        with self._database.writing("bring run forward") as connection:
            item = RUNS.get(connection, *run_key(was.key))
            if item is None:
                return Claim(replace(was, state=RunState.CANCELLED), taken=False)
            stored = decode_run(item)
            if not run_writes.may_bring_forward(stored, was):
                return Claim(stored, taken=stored.dispatch == to.dispatch)
            RUNS.put(connection, unknown_attributes(item) | stored_item(to))
            DUE.put(connection, entry_item(entry, now, self._shards))
        return Claim(to, taken=True)

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

    def _change_held(self, what: str, run: Run, do: Callable[[Run], Run]) -> Run | None:
        def change(found: Run | None) -> Run | None:
            return do(found) if found is not None and run_writes.is_held(found, run) else None

        _, stored = self._change(what, run.key, change)
        return stored

    def _change(self, what: str, key: RunKey, change: _Change) -> tuple[Run | None, Run | None]:
        """Apply *change* to the record of *key*. Returns the record before, and the stored one, if
        any.
        """
        with self._database.writing(what) as connection:
            item = RUNS.get(connection, *run_key(key))
            found = None if item is None else decode_run(item)
            run = change(found)
            if run is not None:
                kept, run = run.kept, run_writes.as_stored(run)
                new = unknown_attributes(item) | stored_item(replace(run, kept=kept))
                if item is not None and found and found.state is run.state and run.state.ended:
                    new["expires_at"] = item["expires_at"]  # set by the writer of its end
                RUNS.put(connection, new)
            return found, run


def _existing(what: str, found: Run | None) -> Run:
    if found is None:
        raise UnavailableError(f"{what}: the record is gone. Try again.")
    return found
