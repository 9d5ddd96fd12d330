"""Cancel and redrive runs, and start waiting ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial

from nextfire.dataclass import dataclass
from nextfire.domain.errors import ConflictError, NextfireError
from nextfire.domain.ids import MOST_WAITS, JobKey, RunKey
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Page, Unreadable
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState
from nextfire.usecases.find_run import FindRun, PendingOccurrence
from nextfire.usecases.list_runs import that_fit
from nextfire.usecases.request_runs import check_pool

CANCELLED = "cancelled on request"
REDRIVEN = "redriven on request"
HASTENED = "started now on request"
"""Default reasons."""
PAGES_AT_MOST = 10
"""Pages of dead runs that one call searches for those of a pool."""
TOGETHER = 20
"""Runs that are redriven concurrently; the time limit is checked between two such groups."""
JOB_DELETED = "Its job was deleted", "Recreate the job: a redriven run would be cancelled."
"""Problem and remedy of a redrive without a job."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """The result of a bulk redrive: the runs that start again, and the runs that do not, with the
    reason. `cursor`: where to continue; None: that was all.
    """

    redriven: Sequence[RunKey]
    skipped: Sequence[tuple[RunKey, str]]
    unreadable: Sequence[Unreadable]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class ManageRuns:
    """Operations on runs for operators of a tenant. `executor`: redrives the runs of a call
    concurrently.
    """

    jobs: JobStore
    runs: RunStore
    find: FindRun
    pools: Collection[str]
    clock: Clock
    executor: Executor

    def cancel(self, key: RunKey, reason: str | None) -> Run:
        """Cancel the run: immediately if it is not running; otherwise its worker is asked, once, to
        end it.

        Returns:
            The current record: CANCELLED, or RUNNING with `cancel_requested`.

        Raises:
            NotFoundError, UndecodableError: As for `FindRun.find`.
            ConflictError: The run has ended.
        """
        reason = reason or CANCELLED
        found = self.find.find(key)
        if isinstance(found, PendingOccurrence):
            now = self.clock.now()
            message = RunMessage(
                tenant=key.job.tenant,
                job_id=key.job.job_id,
                run_id=key.run_id,
                dispatch=1,
                dispatched_at=now,
                reason=reason,
            )
            found = self.runs.cancel(message, reason=reason, now=now)
            if found.state is RunState.CANCELLED:
                return found
        if found.state.ended:
            raise _ended(found)
        if found.state is RunState.RUNNING and found.cancel_requested:
            return found
        stopped = self.runs.stop(found, reason=reason, now=self.clock.now())
        if stopped.state.ended and stopped.state is not RunState.CANCELLED:
            raise _ended(stopped)
        return stopped

    def redrive(self, key: RunKey, reason: str | None, *, asked_at: datetime | None = None) -> Run:
        """Start a DEAD run again, with all attempts of its job's retry policy, in the current pool
        of its job. Or start a PENDING run now that waits for its next attempt; it gets no more
        attempts. Concurrent calls create a single dispatch. *asked_at*: when this request was first
        sent, if it is a repetition; a run that it has started is returned unchanged, even if it is
        DEAD again or waits again.

        Raises:
            NotFoundError, UndecodableError: As for `FindRun.find`.
            ConflictError: It is neither DEAD, nor waits for a later time; or its job, or the pool
                of its job, no longer exists.
        """
        found = self.find.find(key)
        if isinstance(found, PendingOccurrence):
            raise _not_dead(RunState.PENDING)
        if asked_at is not None and _started_since(found, cut(asked_at), self.clock.now()):
            return found
        job = self.jobs.get(key.job)
        if found.state is RunState.PENDING:
            return self._bring_forward(found, job, reason or HASTENED)
        return self._redrive(found, job, reason or REDRIVEN)

    def dead(
        self,
        tenant: str,
        *,
        first: datetime,
        last: datetime,
        pool: str | None,
        cursor: str | None,
        limit: int,
    ) -> Page[Run]:
        """*tenant*'s runs that died from *first* to *last*, the latest death first; with *pool*,
        only those that died there. A page may hold fewer than *limit* runs although more follow.

        Raises:
            InvalidInputError: *cursor* is invalid.
        """
        runs: list[Run] = []
        unreadable: list[Unreadable] = []
        for _ in range(PAGES_AT_MOST):
            find = partial(self.runs.list_dead, tenant, first=first, last=last, cursor=cursor)
            page = find(limit=limit)
            if (fit := that_fit(page.items)) < len(page.items):
                page = find(limit=fit)
            unreadable += page.unreadable
            runs = [run for run in page.items if pool is None or run.pool == pool]
            cursor = page.cursor
            if runs or cursor is None:
                break
        return Page(runs, cursor, unreadable)

    def redrive_dead(
        self,
        tenant: str,
        pool: str,
        *,
        first: datetime,
        last: datetime,
        cursor: str | None,
        limit: int,
        reason: str | None,
        until: datetime,
    ) -> Redriven:
        """Redrive up to *limit* of the runs that `dead` lists. Runs that would start after *until*
        are left to the next call. A run that cannot be redriven does not affect the others.

        Raises:
            InvalidInputError: *cursor* is invalid.
        """
        redriven: list[RunKey] = []
        skipped: list[tuple[RunKey, str]] = []
        unreadable: list[Unreadable] = []
        jobs: dict[JobKey, Job | NextfireError | None] = {}
        pages = 0
        while pages < PAGES_AT_MOST and (left := limit - len(redriven) - len(skipped)) > 0:
            page = self.runs.list_dead(
                tenant, first=first, last=last, cursor=cursor, limit=min(left, TOGETHER)
            )
            runs = [run for run in page.items if run.pool == pool]
            pages += not runs
            unreadable += page.unreadable
            for key, why in self._redrive_all(runs, jobs, reason or REDRIVEN):
                if why is None:
                    redriven.append(key)
                else:
                    skipped.append((key, why))
            cursor = page.cursor
            if cursor is None or self.clock.now() >= until:
                break
        return Redriven(redriven, skipped, unreadable, cursor)

    def _redrive_all(
        self, runs: Sequence[Run], jobs: dict[JobKey, Job | NextfireError | None], reason: str
    ) -> list[tuple[RunKey, str | None]]:
        """Redrive each of *runs*. Returns why one was not, or None. *jobs*: a cache of jobs."""
        new = [key for key in dict.fromkeys(run.key.job for run in runs) if key not in jobs]
        jobs.update(zip(new, self.executor.map(self._job, new), strict=True))

        def redrive(listed: Run) -> tuple[RunKey, str | None]:
            try:
                # The listing may be stale.
                run = self.runs.get(listed.key)
                job = jobs[listed.key.job]
                if isinstance(job, NextfireError):
                    raise job
                if run is not None:
                    self._redrive(run, job, reason)
            except ConflictError as error:
                return listed.key, f"{error.problem}."
            except NextfireError as error:
                return listed.key, str(error)
            return listed.key, None if run is not None else "Its record has expired."

        return list(self.executor.map(redrive, runs))

    def _job(self, key: JobKey) -> Job | NextfireError | None:
        try:
            return self.jobs.get(key)
        except NextfireError as error:
            return error

    def _redrive(self, run: Run, job: Job | None, reason: str) -> Run:
        if run.state is not RunState.DEAD:
            raise _not_dead(run.state)
        job = self._that_runs(job, run)
        now = cut(self.clock.now())
        to = run.redriven(reason, now)
        claim = self.runs.redrive(to, job.dispatch_entry(run.key, now, to.dispatch), now)
        if not claim.taken:
            raise _not_dead(claim.run.state)
        return claim.run

    def _bring_forward(self, run: Run, job: Job | None, reason: str) -> Run:
        now = cut(self.clock.now())
        if run.not_before is None or run.not_before <= now:
            raise _not_dead(run.state)
        job = self._that_runs(job, run)
        to = run.brought_forward(reason, now)
        claim = self.runs.bring_forward(run, to, job.dispatch_entry(run.key, now, to.dispatch), now)
        if not claim.taken:
            raise _not_dead(claim.run.state)
        return claim.run

    def _that_runs(self, job: Job | None, run: Run) -> Job:
        """*job*, if *run* can start.

        Raises:
            ConflictError: It was deleted, or its pool was.
        """
        if job is None or job.uid != run.key.uid or job.state is JobState.CANCELLED:
            raise ConflictError(*JOB_DELETED)
        check_pool(job, self.pools)
        return job


def _ended(run: Run) -> ConflictError:
    remedies: Mapping[RunState, str] = {
        RunState.CANCELLED: "There is nothing left to cancel.",
        RunState.SKIPPED: "It was skipped; there is nothing to cancel.",
    }
    remedy = remedies.get(run.state, "An execution that has ended cannot be cancelled.")
    return ConflictError(f"The execution is {run.state}", remedy)


def was_started(run: Run) -> bool:
    """Whether *run* was redriven, or its retry brought forward: its dispatch number shows it, or
    after a redrive by the version before, which added two, its attempts.
    """
    return run.dispatch > MOST_WAITS or run.attempt_base > 0


def _started_since(run: Run, since: datetime, now: datetime) -> bool:
    """Whether *run* was redriven since *since*: its first attempt after the redrive, or the start
    that it waits for, is not earlier. Or whether its retry was brought forward since then: an
    attempt, or a start that is due *now*, is not earlier.
    """
    begun = [each.started_at for each in run.since_redrive]
    first = min(begun, default=run.not_before)
    if run.attempt_base > 0 and first is not None and first >= since:
        return True
    if run.not_before is not None and run.not_before <= now:
        begun.append(run.not_before)
    return was_started(run) and any(each >= since for each in begun)


def _not_dead(state: RunState) -> ConflictError:
    if state.ended:
        remedy = (
            "Only a DEAD execution can be redriven. A sequence can start again from a job whose "
            "execution is DEAD, CANCELLED or SKIPPED: "
            "POST /v1/executions/{executionId}/chain/redrive."
        )
    else:
        remedy = "Only an execution that is DEAD, or PENDING until its `retryAt`, can be redriven."
    return ConflictError(f"The execution is {state}", remedy)
