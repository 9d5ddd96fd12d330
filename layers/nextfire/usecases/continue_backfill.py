"""Continue a backfill: start its next few runs once the previous ones have ended."""

from __future__ import annotations

from datetime import datetime

from nextfire.dataclass import dataclass, replace
from nextfire.domain.audit import GRACE, claimable_since
from nextfire.domain.backfill import Backfill
from nextfire.domain.decisions import range_over
from nextfire.domain.due import BackfillEntry
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.queues import DEDUP_WINDOW, RunQueue
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.usecases.earlier_runs import earlier_runs

BACKFILLED = "backfill on request"
"""The default reason."""


@dataclass(frozen=True, slots=True)
class ContinueBackfill:
    """Continues backfills. Idempotent, also across watchers: a run is stored together with its due
    entry, and only if it has no record. Started runs are found by their entry, however old it is.
    """

    jobs: JobStore
    runs: RunStore
    due: DueStore
    queue: RunQueue
    clock: Clock

    def step(self, entry: BackfillEntry, job: Job, until: datetime) -> bool:
        """Start the occurrences of *entry*. If all of them have ended, store the next entry; after
        the last one, record that the backfill of *job* is complete.

        Args:
            entry: A BACKFILL entry.
            job: Its job, with an active backfill.
            until: Occurrences that would start after this are left to the next call.

        Returns:
            Whether *entry* is done; otherwise it must be tried again.

        Raises:
            UnavailableError: A store did not answer.
            InvalidInputError: The schedule cannot be read.
        """
        asked = job.backfilling
        if asked is None:
            return True
        if self.clock.now() > until:
            return False  # with many backfills, the occurrences are not cached
        batch = asked.batch(job.past_schedule(asked.first), entry.ordinal)
        if not batch:
            return self._complete(job)
        unended = 0
        for at in batch:
            if self.clock.now() > until:
                return False
            run = self._start(job, asked, at)
            if run is not None and run.trigger is Trigger.BACKFILL and not run.state.ended:
                unended += 1
                self._revive(job, run)
        if unended:
            return False
        following = job.backfill_entry(entry.ordinal + len(batch))
        return following is not None and bool(self.due.put([following], self.clock.now()))

    def _start(self, job: Job, asked: Backfill, at: datetime) -> Run | None:
        """The record of the run at *at*, new or existing; None if a range covers it or if it does
        not decode.
        """
        key = job.run_key(at)
        try:
            stored = self.runs.get(key)
        except UndecodableError:
            return None  # it has a record, which blocks nothing
        if stored is not None:
            return stored
        # Before the job was created nothing was due, and records may belong to a previous job.
        if at > job.created_at and range_over(key, earlier_runs(self.runs, key)) is not None:
            return None
        now = cut(self.clock.now())
        run = Run(
            key,
            RunState.PENDING,
            reason=asked.reason or BACKFILLED,
            trigger=Trigger.BACKFILL,
            request=asked.backfill_id,
            request_reason=asked.reason,
            not_before=now,  # start of its wait; its own instant is long past
        )
        entry = replace(job.dispatch_entry(key, now, 1), trigger=Trigger.BACKFILL)
        return self.runs.request(run, entry, now).run

    def _revive(self, job: Job, run: Run) -> None:
        """Send *run* again if no worker has it. The auditor does not look back this far. It may
        wait in the due table, where each time adds another dispatch that waits: so the intervals
        double.
        """
        now, since = self.clock.now(), claimable_since(run)
        if since is None or since > now - GRACE:
            return
        wait = GRACE
        while since + 2 * wait <= now:
            wait *= 2
        if now >= since + wait + DEDUP_WINDOW:
            return  # it was sent then, and the queue would not drop another message
        pool = run.pool or job.definition.target.pool
        if self.queue.backlog(pool) == 0:
            # The instant is derived, so that a repetition produces the same entry.
            entry = job.dispatch_entry(run.key, since + wait, run.dispatch + 1, pool=pool)
            self.due.put([entry], now)

    def _complete(self, job: Job) -> bool:
        now = self.clock.now()
        # If the job changed concurrently, the entry is decided again.
        return self.jobs.update(replace(job.revised(now), backfill=None), None, now)
