"""Dispatches to pools that were removed from the settings of the stack."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, replace
from nextfire.domain.due_decisions import Decision, Fire, Resend
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState

REMOVED_POOL_GRACE = timedelta(days=1)
"""How long after it is due a dispatch waits for its pool to exist again. Enough to notice the alarm
and to add the pool, or to move its jobs; as long as an occurrence may wait before the auditor
counts it as lost.
"""


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools that exist. `names`: empty if unknown; then every pool counts as existing. `grace`:
    see `REMOVED_POOL_GRACE`.
    """

    names: Collection[str] = ()
    grace: timedelta = REMOVED_POOL_GRACE

    def exist(self, pool: str) -> bool:
        """Whether *pool* exists."""
        return not self.names or pool in self.names

    def route(
        self, decision: Decision, job: Job | None, due_at: datetime, now: datetime
    ) -> Decision:
        """Return *decision*, on an entry of *job* that was due at *due_at*. If its pool does not
        exist, it gets another one.

        - The job was deleted: any pool, as every executor can record that.
        - The job has moved: its new pool.
        - The grace is over: any pool. Its executor ends the run.
        - An occurrence has no grace: it waits for its pool, or until another occurrence of the job
          takes its place by the misfire policy.
        """
        if not isinstance(decision, Resend | Fire) or self.exist(decision.pool):
            return decision
        any_pool = min(self.names)  # the same for all watchers, so that the queue drops duplicates
        if job is None or job.uid != decision.run.uid or job.state is JobState.CANCELLED:
            return replace(decision, pool=any_pool)
        if isinstance(decision, Fire):
            return decision  # its pool is that of the job
        pool = job.definition.target.pool
        if self.exist(pool):
            return replace(decision, pool=pool)
        if now - due_at < self.grace:
            return decision
        return replace(decision, pool=any_pool, removed_pool=pool)
