"""Start runs on request; find, cancel, skip and redrive runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nextfire.domain.definition import MAX_PAYLOAD_BYTES
from nextfire.domain.due import DispatchEntry
from nextfire.domain.due_decisions import MISFIRE_AFTER
from nextfire.domain.errors import (
    ConflictError,
    InvalidInputError,
    NextfireError,
    NotFoundError,
    UnavailableError,
    UndecodableError,
)
from nextfire.domain.ids import JobKey, RunKey, first_run_id, run_id
from nextfire.domain.instants import MOMENT, cut, isoformat
from nextfire.domain.job import MAX_SKIPS, Job
from nextfire.domain.message import RunMessage
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Page, Unreadable
from nextfire.domain.ports.runs import RunStore, Written
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas, check_payload
from nextfire.domain.run import Run, RunState, Trigger, runs_of_uid
from nextfire.usecases.manage_jobs import check_version, revised

CANCELLED = "cancelled on request"
REDRIVEN = "redriven on request"
REQUESTED = "run on request"
SKIPPED = "skipped on request"
"""Default reasons."""
PAGES_AT_MOST = 10
"""Pages of dead runs that one call searches for those of a pool."""
TOGETHER = 20
"""Runs that are redriven concurrently; the time limit is checked between two such groups."""
UNSKIP_BEFORE = timedelta(seconds=60)
"""How long before it is due a skip can still be undone. No request takes that long."""
_SKIP = "skip"
_TRIES = 5  # of a change that races with other changes of the same job
_MAX_OFFSET = 100 * MOMENT
"""Maximum offset of a requested run from its request: concurrent requests move it."""
_DELETED = "Its job was deleted", "Recreate the job: a redriven run would be cancelled."


@dataclass(frozen=True, slots=True)
class PendingOccurrence:
    """An occurrence that is due and has no record yet, and the reason why it waits."""

    key: RunKey
    reason: str


@dataclass(frozen=True, slots=True)
class Redriven:
    """The result of a bulk redrive: the runs that start again, and the runs that do not, with the
    reason. `cursor`: where to continue; None: that was all.
    """

    redriven: Sequence[RunKey]
    skipped: Sequence[tuple[RunKey, str]]
    unreadable: Sequence[Unreadable]
    cursor: str | None


class ManageRuns:
    """Operations on runs for operators of a tenant."""

    def __init__(
        self,
        jobs: JobStore,
        runs: RunStore,
        *,
        pools: Collection[str],
        retention: timedelta,
        clock: Clock,
        executor: Executor,
        quotas: TenantQuotas = NO_QUOTAS,
    ) -> None:
        """*retention*: how long records are kept. *executor*: redrives the runs of a call
        concurrently. *quotas*: each tenant's maximums.
        """
        self._quotas = quotas
        self._jobs = jobs
        self._runs = runs
        self._pools = pools
        self._retention = retention
        self._clock = clock
        self._executor = executor

    def find(self, key: RunKey) -> Run | PendingOccurrence:
        """The record of the run; the range record that covers it; or, for a due occurrence without
        a record, the reason why it waits.

        Raises:
            NotFoundError: It is not an occurrence, is not due yet, or its record has expired.
            UndecodableError: The record, or its job, does not decode.
        """
        run = self._runs.get(key)
        if run is not None:
            return run
        try:
            _ = key.scheduled_at
        except ValueError as error:  # digits that are not a date
            raise NotFoundError("execution", key.execution_id) from error
        return self._explain_missing(key)

    def cancel(self, key: RunKey, reason: str | None) -> Run:
        """Cancel the run: immediately if it is not running; otherwise its worker is asked, once, to
        end it.

        Returns:
            The current record: CANCELLED, or RUNNING with `cancel_requested`.

        Raises:
            NotFoundError: As for `find`.
            ConflictError: The run has ended.
        """
        reason = reason or CANCELLED
        found = self.find(key)
        if isinstance(found, PendingOccurrence):
            now = self._clock.now()
            message = RunMessage(
                tenant=key.job.tenant,
                job_id=key.job.job_id,
                run_id=key.run_id,
                dispatch=1,
                dispatched_at=now,
                reason=reason,
            )
            found = self._runs.cancel(message, reason=reason, now=now)
            if found.state is RunState.CANCELLED:
                return found
        if found.state.ended:
            raise _ended(found)
        if found.state is RunState.RUNNING and found.cancel_requested:
            return found
        stopped = self._runs.stop(found, reason=reason, now=self._clock.now())
        if stopped.state.ended and stopped.state is not RunState.CANCELLED:
            raise _ended(stopped)
        return stopped

    def redrive(self, key: RunKey, reason: str | None, *, asked_at: datetime | None = None) -> Run:
        """Start a DEAD run again, with all attempts of its job's retry policy, in the current pool
        of its job. Concurrent calls create a single dispatch. *asked_at*: when this request was
        first sent, if it is a repetition; a run that was redriven since then is returned unchanged,
        even if it is DEAD again.

        Raises:
            NotFoundError: As for `find`.
            ConflictError: It is not DEAD; or its job, or the pool of its job, no longer exists.
        """
        found = self.find(key)
        if isinstance(found, PendingOccurrence):
            raise _not_dead(RunState.PENDING)
        if asked_at is not None and _redriven_since(found, cut(asked_at)):
            return found
        return self._redrive(found, self._jobs.get(key.job), reason or REDRIVEN)

    def run_now(
        self,
        key: JobKey,
        *,
        payload: str | None,
        reason: str | None,
        request: str,
        asked_at: datetime,
    ) -> Run:
        """Start a run of the job now, in addition to its schedule, which is not affected.

        Args:
            key: The job, in any state but CANCELLED.
            payload: JSON that replaces the payload of the job; None: the job's payload at the start
                of the run.
            reason: Why.
            request: Id of the request. A repetition finds the run that the first one created.
            asked_at: When the request was first sent. The run is scheduled for this instant or a
                few milliseconds later: never at an occurrence of the schedule.

        Returns:
            The record of the run, which may have progressed since.

        Raises:
            NotFoundError: The job does not exist.
            ConflictError: It is CANCELLED, or its pool no longer exists.
            InvalidInputError: The payload is too large.
        """
        at = cut(asked_at)
        near = self._runs.between(
            key, first_run_id(at), first_run_id(at + _MAX_OFFSET), lenient=True
        )
        for run in near:
            if run.request == request:
                return run
        size = len(payload.encode()) if payload is not None else 0
        if size > MAX_PAYLOAD_BYTES:
            raise InvalidInputError(
                "payload",
                f"{size} bytes",
                f"larger than {MAX_PAYLOAD_BYTES} bytes as JSON",
                "Store the data in S3 and put its address into the payload.",
            )
        check_payload(size, self._quotas.of(key.tenant))
        job = self._jobs.get(key)
        if job is None:
            raise NotFoundError("job", key.job_id)
        if job.state is JobState.CANCELLED:
            raise ConflictError("The job is CANCELLED", "Recreate it: it no longer runs.")
        pool = self._pool_of(job)
        while at <= cut(asked_at) + _MAX_OFFSET:
            # Not a whole second, so that it never meets an occurrence, even of a later schedule.
            if at.microsecond == 0 or _is_occurrence(_owner(job, at) or job, at):
                at += MOMENT
                continue
            run = Run(
                RunKey(key, run_id(job.uid, at)),
                RunState.PENDING,
                reason=reason or REQUESTED,
                trigger=Trigger.MANUAL,
                request=request,
                request_reason=reason,
                payload=payload,
            )
            entry = _first_dispatch(job, run, cut(asked_at), pool)
            claim = self._runs.request(run, entry, self._clock.now())
            if claim.taken:
                return claim.run
            at += MOMENT
        raise UnavailableError("Too many concurrent requests for runs of this job. Try again.")

    def skip_next(
        self,
        key: JobKey,
        reason: str | None,
        *,
        asked_at: datetime | None = None,
        expected: Collection[str] | None = None,
    ) -> Job:
        """Skip the job's next occurrence: its record says so before it is due.

        A request that is repeated before that is due skips the same occurrence. A repetition with
        *asked_at*, when the request was first sent, does so even later: if any occurrence after
        *asked_at* is skipped, by whichever request, nothing changes.

        Raises:
            NotFoundError: The job does not exist, or it is CANCELLED.
            ConflictError: It is not ACTIVE, has no next occurrence, or that has a record already.
            ChangedError: The job is not in a version of *expected*.
        """
        for _ in range(_TRIES):
            now = self._clock.now()
            job = self._living(key, None)
            # Possibly by a repetition of this request that was processed later than the first.
            if asked_at is not None and any(at > asked_at for at in job.skips):
                return job
            check_version(job, expected)
            if job.state is not JobState.ACTIVE:
                raise ConflictError(
                    f"The job is {job.state}", "Only an ACTIVE job has a next occurrence to skip."
                )
            entry = job.next_entry(now)
            if entry is None:
                raise ConflictError("The job has no next occurrence", "There is nothing to skip.")
            at = entry.occurs_at
            if at in job.skips:
                return job
            run = replace(
                Run.skipped(RunKey(key, run_id(job.uid, at)), reason or SKIPPED, cut(now)),
                request=_SKIP,
                request_reason=reason,
            )
            skips = (*job.skips, at)[-MAX_SKIPS:]
            skipping = revised(replace(job, skips=skips), now)
            written = self._runs.skip_next(run, skipping)
            if written is Written.DONE:
                return skipping
            if written is Written.REFUSED:
                raise ConflictError(
                    f"Its occurrence at {isoformat(at)} already has a record",
                    f"See {run.key.execution_id}, and cancel it if it runs.",
                )
        raise UnavailableError(f"Job {key.job_id!r} is being changed by other requests. Try again.")

    def unskip(self, key: JobKey, *, expected: Collection[str] | None = None) -> Job:
        """Undo `skip_next`, so that the occurrence runs.

        Raises:
            NotFoundError: The job does not exist, it is CANCELLED, or no future occurrence is
                skipped.
            ConflictError: The occurrence is due in less than `UNSKIP_BEFORE`.
            ChangedError: The job is not in a version of *expected*.
        """
        for _ in range(_TRIES):
            now = self._clock.now()
            job = self._living(key, expected)
            at = next((at for at in reversed(job.skips) if at > now), None)
            if at is None:
                raise NotFoundError(
                    "skipped occurrence of job", key.job_id, "There is nothing to undo."
                )
            # A due run may be sent, found SKIPPED and finished during this request.
            if job.due_at(at) < now + UNSKIP_BEFORE:
                raise ConflictError(
                    f"Its occurrence at {isoformat(at)} is due in less than"
                    f" {UNSKIP_BEFORE.seconds} s: too late",
                    "Run the job now instead: POST /v1/jobs/{jobId}/run.",
                )
            skips = tuple(each for each in job.skips if each != at)
            skipping = revised(replace(job, skips=skips), now)
            written = self._runs.unskip(RunKey(key, run_id(job.uid, at)), skipping)
            if written is Written.DONE:
                return skipping
            if written is Written.REFUSED:
                raise ConflictError(
                    f"The record of the occurrence at {isoformat(at)} is not a requested skip",
                    "See the job's executions.",
                )
        raise UnavailableError(f"Job {key.job_id!r} is being changed by other requests. Try again.")

    def _living(self, key: JobKey, expected: Collection[str] | None) -> Job:
        job = self._jobs.get(key)
        if job is None:
            raise NotFoundError("job", key.job_id)
        if job.state is JobState.CANCELLED:
            raise NotFoundError("job", key.job_id, "It was deleted.")
        check_version(job, expected)
        return job

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
            page = self._runs.list_dead(tenant, first=first, last=last, cursor=cursor, limit=limit)
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
            page = self._runs.list_dead(
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
            if cursor is None or self._clock.now() >= until:
                break
        return Redriven(redriven, skipped, unreadable, cursor)

    def _redrive_all(
        self, runs: Sequence[Run], jobs: dict[JobKey, Job | NextfireError | None], reason: str
    ) -> list[tuple[RunKey, str | None]]:
        """Redrive each of *runs*. Returns why one was not, or None. *jobs*: a cache of jobs."""
        new = [key for key in dict.fromkeys(run.key.job for run in runs) if key not in jobs]
        jobs.update(zip(new, self._executor.map(self._job, new), strict=True))

        def redrive(listed: Run) -> tuple[RunKey, str | None]:
            try:
                # The listing may be stale.
                run = self._runs.get(listed.key)
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

        return list(self._executor.map(redrive, runs))

    def _job(self, key: JobKey) -> Job | NextfireError | None:
        try:
            return self._jobs.get(key)
        except NextfireError as error:
            return error

    def _redrive(self, run: Run, job: Job | None, reason: str) -> Run:
        if run.state is not RunState.DEAD:
            raise _not_dead(run.state)
        if job is None or job.uid != run.key.uid or job.state is JobState.CANCELLED:
            raise ConflictError(*_DELETED)
        pool = self._pool_of(job)
        now = cut(self._clock.now())
        to = run.redriven(reason, now)
        entry = DispatchEntry(
            run.key.job,
            run.key.uid,
            now,
            run.key.run_id,
            to.dispatch,
            pool,
            rank=job.definition.priority.rank,
            exclusive=job.exclusive,
        )
        claim = self._runs.redrive(to, entry, now)
        if not claim.taken:
            raise _not_dead(claim.run.state)
        return claim.run

    def _pool_of(self, job: Job) -> str:
        """The pool of *job*.

        Raises:
            ConflictError: The pool no longer exists.
        """
        pool = job.definition.target.pool
        if pool not in self._pools:
            raise ConflictError(
                f"Its job names the pool {pool!r}, which no longer exists",
                f"Change target.pool. Available: {', '.join(sorted(self._pools))}.",
            )
        return pool

    def _explain_missing(self, key: RunKey) -> Run | PendingOccurrence:
        at, now = key.scheduled_at, self._clock.now()
        newest = self._runs.between(key.job, "0", key.run_id, newest_first=True, page=1)
        job: Job | None = None
        unreadable: UndecodableError | None = None
        try:
            job = self._jobs.get(key.job)
        except UndecodableError as error:
            unreadable = error
        # A job has no records from before its creation.
        made_at = at if job is None else job.created_at
        mine = runs_of_uid(newest, key.uid, made_at)
        before = next((run for run in mine if run.trigger is not Trigger.MANUAL), None)
        covered = before is not None and before.covers_until >= at
        if unreadable is not None and not covered:
            raise unreadable
        owner = _owner(job, at) if job is not None and job.uid == key.uid else None
        known = None if owner is None else _is_occurrence(owner, at)
        if before is not None and covered and known is not False:
            return before
        if job is None or owner is None or not known or at <= now - self._retention:
            raise NotFoundError("execution", key.execution_id)
        if any(past.paused and past.effective_from < at <= past.until for past in job.replaced):
            return PendingOccurrence(
                key, "due during a pause that a change of the job ended; will be SKIPPED shortly"
            )
        paused = job.state is JobState.PAUSED and owner is job
        due_at = owner.due_at(at)
        if due_at > now:
            would = (
                "It would be due at {}, but its job is paused." if paused else "It is due at {}."
            )
            raise NotFoundError("execution", key.execution_id, would.format(isoformat(due_at)))
        if paused:
            policy = job.definition.misfire.policy
            reason = f"its job is paused; misfire policy {policy} decides when it is resumed"
        else:
            reason = _why_it_waits(job, due_at, before, now)
        return PendingOccurrence(key, reason)


def _first_dispatch(job: Job, run: Run, at: datetime, pool: str) -> DispatchEntry:
    """The due entry that sends the requested *run* at *at*."""
    return DispatchEntry(
        run.key.job,
        run.key.uid,
        at,
        run.key.run_id,
        run.dispatch,
        pool,
        rank=job.definition.priority.rank,
        exclusive=job.exclusive,
        trigger=run.trigger,
    )


def _ended(run: Run) -> ConflictError:
    remedies: Mapping[RunState, str] = {
        RunState.CANCELLED: "There is nothing left to cancel.",
        RunState.SKIPPED: "It was skipped; there is nothing to cancel.",
    }
    remedy = remedies.get(run.state, "An execution that has ended cannot be cancelled.")
    return ConflictError(f"The execution is {run.state}", remedy)


def _redriven_since(run: Run, since: datetime) -> bool:
    """Whether *run* was redriven since *since*: its first attempt after the redrive, or the start
    that it waits for, is not earlier.
    """
    begun = [each.started_at for each in run.attempts if each.number > run.attempt_base]
    first = min(begun, default=run.not_before)
    return run.attempt_base > 0 and first is not None and first >= since


def _not_dead(state: RunState) -> ConflictError:
    if state.ended:
        remedy = "Only a DEAD execution can be redriven."
    else:
        remedy = "It has not ended. Only a DEAD execution can be redriven."
    return ConflictError(f"The execution is {state}", remedy)


def _owner(job: Job, at: datetime) -> Job | None:
    """*job* as of the version that an occurrence at *at* belongs to; *job* itself if that is the
    current one; None if the version is unknown.
    """
    if at > job.effective_from:
        return None if job.state is JobState.CANCELLED else job
    past = next((p for p in job.replaced if p.effective_from < at <= p.until), None)
    return None if past is None else job.as_of(past)


def _is_occurrence(owner: Job, at: datetime) -> bool | None:
    """Whether the version *owner* has an occurrence at *at*; None if that is unknown."""
    try:
        most = owner.definition.max_runs
        return owner.next_after(at - MOMENT) == at and (most is None or owner.ordinal(at) <= most)
    except InvalidInputError:
        return None  # the time zone has been removed


def _why_it_waits(job: Job, due_at: datetime, before: Run | None, now: datetime) -> str:
    """Why an occurrence that was due at *due_at* was not taken, as far as that is known. *before*:
    the latest record of an earlier occurrence.
    """
    if before is not None and job.exclusive and _blocks(before, due_at):
        overlap = job.definition.overlap
        return (
            f"waits for {before.key.execution_id}, which has not ended (overlap policy {overlap})"
        )
    late = now - due_at
    if late < MISFIRE_AFTER:
        return "dispatched or about to be; no executor has taken it yet"
    return (
        f"due {late // timedelta(seconds=1)} s ago and not taken by an executor yet: it waits in "
        "its pool's queue, or in the table for room there or for its job's earlier runs; or no "
        "watcher runs. See docs/guide/policies.md"
    )


def _blocks(run: Run, due_at: datetime) -> bool:
    """Whether *run* has not ended and its message precedes one sent at *due_at*: a run that waits
    for a retry blocks nothing.
    """
    if run.state is RunState.PENDING:
        return run.not_before is None or run.not_before <= due_at
    return run.state is RunState.RUNNING
