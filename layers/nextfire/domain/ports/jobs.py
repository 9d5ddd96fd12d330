"""The store of jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from nextfire.domain.due import DueEntry
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.ports.pages import Page, Scan


class JobStore(Protocol):
    """Stores jobs. A job and its due entry are written in one transaction."""

    def create(
        self,
        job: Job,
        first: DueEntry | None,
        now: datetime,
        *,
        former: Job | None = None,
        most: int | None = None,
    ) -> Job | None:
        """Store *job* and its due entry *first*, if the id is free or belongs to *former*, which
        is CANCELLED. If a job with the same `uid` is already stored, nothing is written. If *job*
        is `counted`, it counts toward *most*, the tenant's quota.

        Returns:
            None if stored; else the job that has the id, in any state. Its `uid` is that of *job*
            if this call repeats an earlier one.

        Raises:
            QuotaUsedUpError: The tenant already has *most* counted jobs.
        """

    def update(
        self,
        job: Job,
        entry: DueEntry | None,
        now: datetime,
        *,
        counts: int = 0,
        most: int | None = None,
    ) -> bool:
        """Replace revision `job.revision - 1` with *job* and store *entry*. Returns False if the
        job has another revision. *counts*: 1 if *job* starts to count toward the quota *most*, -1
        if it stops counting.

        Raises:
            QuotaUsedUpError: The tenant already has *most* counted jobs.
        """

    def get(self, key: JobKey) -> Job | None:
        """Return the job, by a consistent read; None if it does not exist.

        Raises:
            UndecodableError: The stored item is not a valid job.
        """

    def get_many(
        self, keys: Collection[JobKey], *, consistent: bool = False
    ) -> Mapping[JobKey, Job | Exception]:
        """Return the jobs among *keys*, without payloads. A job that does not decode maps to its
        error; one that the store did not return this time, to an UnavailableError.

        A job that was just created can be missing, unless *consistent*; `get` distinguishes this.
        """

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        """Return *tenant*'s jobs by id, including cancelled ones. *limit*: page size, ≥ 1.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def ids(self, tenant: str, *, after: str | None, limit: int) -> Sequence[str]:
        """Return up to *limit* (≥ 1) ids of *tenant*'s jobs after *after*, in order, including
        cancelled and undecodable jobs. Fewer than *limit* ids: the end is reached.
        """

    def pause(self, job: Job, reason: str, now: datetime) -> bool:
        """Pause *job* for an executor, because its target asked for it: as `Job.paused`. Returns
        False if the job is not ACTIVE any longer, or its schedule has changed.
        """

    def complete(self, job: Job, now: datetime) -> bool:
        """Make an ACTIVE job COMPLETED, if its `uid` and `schedule_version` are unchanged. It no
        longer counts toward the quota.
        """

    def remove(self, job: Job) -> bool:
        """Remove *job*, which is in a final state, if its `uid` and `revision` are unchanged.
        Returns False otherwise. The records of its runs stay.
        """

    def counted(self, tenant: str) -> int:
        """Return the number of *tenant*'s counted jobs, by a consistent read.

        Raises:
            UndecodableError: The stored value is not a count.
        """

    def scan(self, after: JobKey | None, *, limit: int) -> Scan:
        """Return up to *limit* (≥ 1) jobs of all tenants after the job *after*, by consistent
        reads, in an order that the store defines. *after* need not exist any longer.
        """

    def skip(self, after: JobKey | None, number: int) -> JobKey | None:
        """Return the *number*-th (≥ 1) job after *after* in the order of `scan`; None if there are
        fewer.
        """
