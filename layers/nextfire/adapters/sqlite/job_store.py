"""Jobs in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from nextfire.adapters.dynamodb.cursors import decode_cursor
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.fields import encoder, names
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.job_items import (
    PAUSED_FIELDS,
    decode_job,
    decode_jobs,
    decode_key,
    encode_job,
    scanned,
)
from nextfire.adapters.dynamodb.pages import limited
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import DUE, JOBS
from nextfire.adapters.sqlite.table import after as least_after
from nextfire.domain.change import CHANGED_BY
from nextfire.domain.due import DueEntry
from nextfire.domain.ids import JOB_ID, JobKey
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.pages import Page, Scan
from nextfire.domain.quotas import too_many_jobs

_encode_pause = encoder(PAUSED_FIELDS)


class SqliteJobStore:
    """`JobStore` in *database*. First due entries are stored in one of *shards* shards."""

    def __init__(self, database: Database, *, shards: int = 1) -> None:
        self._database = database
        self._shards = shards

    def create(
        self,
        job: Job,
        first: DueEntry | None,
        now: datetime,
        *,
        former: Job | None = None,
        most: int | None = None,
    ) -> Job | None:
        with self._database.writing("create job") as connection:
            existing = _get(connection, job.key)
            gone = former is not None and _has(existing, uid=former.uid, state=JobState.CANCELLED)
            if existing is not None and not gone:
                return decode_job(existing)
            _count(connection, job.key.tenant, int(job.counted), most)
            self._write(connection, job, first, now)
            return None

    def update(
        self,
        job: Job,
        entry: DueEntry | None,
        now: datetime,
        *,
        counts: int = 0,
        most: int | None = None,
    ) -> bool:
        with self._database.writing("update job") as connection:
            stored = _get(connection, job.key)
            if not is_revision_before(stored, job):
                return stored == encode_job(job)
            _count(connection, job.key.tenant, counts, most)
            self._write(connection, job, entry, now)
            return True

    def get(self, key: JobKey) -> Job | None:
        with self._database.reading("get job") as connection:
            item = _get(connection, key)
        return None if item is None else decode_job(item)

    def get_many(
        self,
        keys: Collection[JobKey],
        *,
        consistent: bool = False,  # noqa: ARG002 — all reads are
    ) -> Mapping[JobKey, Job | Exception]:
        with self._database.reading("get jobs") as connection:
            items = [_get(connection, key) for key in {*keys}]
        # Watchers do not need payloads.
        return decode_jobs(_without(item, "payload") for item in items if item is not None)

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        low = "" if cursor is None else least_after(decode_cursor(cursor, JOB_ID))
        with self._database.reading("list jobs") as connection:
            items = JOBS.query(connection, tenant, low, limit=limit + 1)
        return limited(items, limit, decode_job, "job_id")

    def ids(self, tenant: str, *, after: str | None, limit: int) -> Sequence[str]:
        with self._database.reading("list job ids") as connection:
            rows = connection.execute(
                "SELECT job_id FROM jobs WHERE tenant = ? AND job_id > ? ORDER BY job_id LIMIT ?",
                (tenant, after or "", limit),
            )
            return [job_id for (job_id,) in rows]

    def scan(self, after: JobKey | None, *, limit: int) -> Scan:
        position = after or JobKey("", "")
        with self._database.reading("scan jobs") as connection:
            items = JOBS.select(
                connection,
                "WHERE (tenant, job_id) > (?, ?) ORDER BY tenant, job_id LIMIT ?",
                (*position, limit + 1),
            )
        last = decode_key(items[limit - 1]) if len(items) > limit else None
        return scanned(items[:limit], last)

    def skip(self, after: JobKey | None, number: int) -> JobKey | None:
        position = after or JobKey("", "")
        with self._database.reading("skip jobs") as connection:
            row = connection.execute(
                "SELECT tenant, job_id FROM jobs WHERE (tenant, job_id) > (?, ?) "
                "ORDER BY tenant, job_id LIMIT 1 OFFSET ?",
                (*position, number - 1),
            ).fetchone()
        return None if row is None else JobKey(*row)

    def pause(self, job: Job, reason: str, now: datetime) -> bool:
        with self._database.writing("pause job") as connection:
            stored = _get(connection, job.key)
            if stored is None or not _has(
                stored, uid=job.uid, revision=job.revision, state=JobState.ACTIVE
            ):
                return False
            kept = _without(stored, *names(PAUSED_FIELDS), CHANGED_BY)
            JOBS.put(connection, kept | _encode_pause(job.paused(now, reason).revised(now)))
            return True

    def complete(self, job: Job, now: datetime) -> bool:
        with self._database.writing("complete job") as connection:
            stored = _get(connection, job.key)
            if stored is None or not _has(
                stored,
                uid=job.uid,
                schedule_version=job.schedule_version,
                state=JobState.ACTIVE,
            ):
                return False
            _count(connection, job.key.tenant, -int("counted" in stored), None)
            completed = {
                "state": JobState.COMPLETED.value,
                "updated_at": isoformat(now),
                "revision": int(stored["revision"]["N"]) + 1,
            }
            JOBS.put(connection, _without(stored, "counted", CHANGED_BY) | to_item(completed))
            return True

    def remove(self, job: Job) -> bool:
        with self._database.writing("remove job") as connection:
            stored = _get(connection, job.key)
            if not (
                job.state.ended
                and _has(stored, uid=job.uid, revision=job.revision, state=job.state)
            ):
                return False
            JOBS.delete(connection, job.key)
            return True

    def counted(self, tenant: str) -> int:
        with self._database.reading("read count") as connection:
            return _counted(connection, tenant)

    def _write(
        self, connection: sqlite3.Connection, job: Job, entry: DueEntry | None, now: datetime
    ) -> None:
        JOBS.put(connection, encode_job(job))
        if entry is not None:
            DUE.put(connection, entry_item(entry, now, self._shards))


def is_revision_before(item: Item | None, job: Job) -> bool:
    """Whether *item* is the previous revision of *job*."""
    return _has(item, uid=job.uid, revision=job.revision - 1)


def _get(connection: sqlite3.Connection, key: JobKey) -> Item | None:
    return JOBS.get(connection, key.tenant, key.job_id)


def _has(item: Item | None, **values: str | int | JobState) -> bool:
    """Whether *item* has these attributes."""
    if item is None:
        return False
    wanted = {n: v.value if isinstance(v, JobState) else v for n, v in values.items()}
    return all(item.get(name) == value for name, value in to_item(wanted).items())


def _without(item: Item, *attributes: str) -> Item:
    return {name: value for name, value in item.items() if name not in attributes}


def _count(connection: sqlite3.Connection, tenant: str, counts: int, most: int | None) -> None:
    """Add *counts* to *tenant*'s job count.

    Raises:
        QuotaUsedUpError: The count is at *most*.
    """
    if not counts:
        return
    if counts > 0 and most is not None and _counted(connection, tenant) >= most:
        raise too_many_jobs(most)
    connection.execute(
        "INSERT INTO job_counts (tenant, jobs) VALUES (?, ?) "
        "ON CONFLICT (tenant) DO UPDATE SET jobs = jobs + excluded.jobs",
        (tenant, counts),
    )


def _counted(connection: sqlite3.Connection, tenant: str) -> int:
    row = connection.execute("SELECT jobs FROM job_counts WHERE tenant = ?", (tenant,)).fetchone()
    return 0 if row is None else int(row[0])
