"""Jobs in memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.pages import Page, Scan
from nextfire.domain.quotas import too_many_jobs
from nextfire.testing.memory.due import MemoryDueStore
from nextfire.testing.memory.pages import listed


class MemoryJobStore:
    """`JobStore` that puts the first entries into *due*."""

    def __init__(self, due: MemoryDueStore) -> None:
        self._due = due
        self.items: dict[JobKey, Job] = {}
        self.counts: Counter[str] = Counter()
        """Number of counted jobs by tenant."""
        self.ever: list[Job] = []
        """All stored versions, in order."""
        self._frozen: dict[JobKey, Job] | None = None
        self._broken: set[JobKey] = set()
        self._lock = threading.Lock()

    def freeze(self) -> None:
        """From now on, eventually consistent `get_many` sees the current state."""
        self._frozen = dict(self.items)

    def spoil(self, key: JobKey) -> None:
        """Make the item of *key* undecodable; `repair` restores it."""
        self._broken.add(key)

    def repair(self, key: JobKey) -> None:
        self._broken.discard(key)

    def put(self, job: Job) -> None:
        """Store *job* unconditionally."""
        self._keep(cut_job(job))

    def forget(self, key: JobKey) -> None:
        del self.items[key]

    def create(
        self,
        job: Job,
        first: DueEntry | None,
        now: datetime,
        *,
        former: Job | None = None,
        most: int | None = None,
    ) -> Job | None:
        with self._lock:
            existing = self.get(job.key)
            gone = former is not None and existing is not None and existing.uid == former.uid
            if existing is not None and not (gone and existing.state is JobState.CANCELLED):
                return existing
            self._count(job, int(job.counted), most)
            self._write(job, first, now)
            self.counts[job.key.tenant] += int(job.counted)
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
        with self._lock:
            stored = self.items.get(job.key)
            if stored is None or (stored.uid, stored.revision) != (job.uid, job.revision - 1):
                return stored == cut_job(job)
            self._count(job, counts, most)
            self._write(job, entry, now)
            self.counts[job.key.tenant] += counts
            return True

    def counted(self, tenant: str) -> int:
        return self.counts[tenant]

    def _count(self, job: Job, counts: int, most: int | None) -> None:
        if counts > 0 and most is not None and self.counts[job.key.tenant] >= most:
            raise too_many_jobs(most)

    def get(self, key: JobKey) -> Job | None:
        if key in self._broken:
            raise UndecodableError("job does not decode")
        return self.items.get(key)

    def get_many(
        self, keys: Collection[JobKey], *, consistent: bool = False
    ) -> Mapping[JobKey, Job | Exception]:
        seen = self.items if consistent or self._frozen is None else self._frozen
        found: dict[JobKey, Job | Exception] = {
            key: _without_payload(seen[key]) for key in keys if key in seen
        }
        return found | {
            key: UndecodableError("job does not decode") for key in keys if key in self._broken
        }

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        with self._lock:
            jobs = {key.job_id: job for key, job in self.items.items() if key.tenant == tenant}
        broken = {key.job_id for key in self._broken if key.tenant == tenant}
        return listed(jobs, cursor, limit, broken=broken, problem="job does not decode")

    def ids(self, tenant: str, *, after: str | None, limit: int) -> Sequence[str]:
        with self._lock:
            ids = sorted(key.job_id for key in self.items if key.tenant == tenant)
        return [job_id for job_id in ids if after is None or job_id > after][:limit]

    def scan(self, after: JobKey | None, *, limit: int) -> Scan:
        def order(key: JobKey) -> tuple[str, str]:
            return key.tenant, key.job_id

        with self._lock:
            keys = sorted({*self.items, *self._broken}, key=order)
        keys = [key for key in keys if after is None or order(key) > order(after)]
        page = keys[:limit]
        return Scan(
            [self.items[key] for key in page if key not in self._broken],
            [(key, "job does not decode") for key in page if key in self._broken],
            page[-1] if len(keys) > limit else None,
        )

    def skip(self, after: JobKey | None, number: int) -> JobKey | None:
        scan = self.scan(after, limit=number)
        keys = [*(job.key for job in scan.jobs), *(key for key, _ in scan.unreadable)]
        keys.sort(key=lambda key: (key.tenant, key.job_id))
        return keys[-1] if len(keys) == number else None

    def pause(self, job: Job, reason: str, now: datetime) -> bool:
        with self._lock:
            stored = self.items.get(job.key)
            if stored is None or (stored.uid, stored.revision) != (job.uid, job.revision):
                return False
            if stored.state is not JobState.ACTIVE:
                return False
            self._keep(stored.paused(now, reason).revised(now))
            return True

    def complete(self, job: Job, now: datetime) -> bool:
        with self._lock:
            stored = self.items.get(job.key)
            same = stored is not None and (stored.uid, stored.schedule_version, stored.state) == (
                job.uid,
                job.schedule_version,
                JobState.ACTIVE,
            )
            if stored is None or not same:
                return False
            self.counts[job.key.tenant] -= int(stored.counted)
            self._keep(
                replace(
                    stored,
                    state=JobState.COMPLETED,
                    counted=False,
                    revision=stored.revision + 1,
                    updated_at=cut(now),
                )
            )
            return True

    def remove(self, job: Job) -> bool:
        with self._lock:
            stored = self.items.get(job.key)
            if stored is None or (stored.uid, stored.revision) != (job.uid, job.revision):
                return False
            if not stored.state.ended:
                return False
            del self.items[job.key]
            return True

    def _write(self, job: Job, entry: DueEntry | None, now: datetime) -> None:
        if entry is not None and not self._due.put([entry], now):
            raise UnavailableError("transaction cancelled. Try again.")
        self._keep(cut_job(job))

    def _keep(self, job: Job) -> None:
        self.items[job.key] = job
        self.ever.append(job)


def _without_payload(job: Job) -> Job:
    return replace(job, definition=job.definition.model_copy(update={"payload": {}}))


def cut_job(job: Job) -> Job:
    return replace(
        job,
        effective_from=cut(job.effective_from),
        created_at=cut(job.created_at),
        updated_at=cut(job.updated_at),
    )
