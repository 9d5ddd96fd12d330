"""Runs only the targets of the tenants to whom the pool is open."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.ports.targets import AttemptResult, Hold, RunControl, TargetRunner
from nextfire.domain.run import Run


class ClosedPool:
    """`TargetRunner` of a pool that is closed: attempts of other tenants than *tenants* fail. The
    API accepts no such job; these were stored before the pool was closed.
    """

    def __init__(self, runner: TargetRunner, tenants: Collection[str]) -> None:
        self._runner = runner
        self._tenants = tenants

    def admit(self, job: Job, run: RunKey, now: datetime, *, first: bool) -> Hold | None:
        if job.key.tenant not in self._tenants:
            return None
        return self._runner.admit(job, run, now, first=first)

    def release(self, job: Job, run: RunKey) -> None:
        if job.key.tenant in self._tenants:
            self._runner.release(job, run)

    def attempt(
        self, job: Job, run: Run, supervisor: RunControl, longest: timedelta
    ) -> AttemptResult:
        if job.key.tenant in self._tenants:
            return self._runner.attempt(job, run, supervisor, longest)
        reason = (
            f"the pool {job.definition.target.pool!r} is closed to tenant {job.key.tenant!r}: "
            "change target.pool of the job, or add the tenant to `tenants` of the pool; then "
            "redrive the run"
        )
        return AttemptResult.failed(reason, permanent=True)
