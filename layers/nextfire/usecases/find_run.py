"""Find the record of a run, or explain why it has no record yet."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, replace
from nextfire.domain.awaited import longest_wait, run_at
from nextfire.domain.errors import NotFoundError, UndecodableError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.job_versions import has_occurrence, version_at
from nextfire.domain.misfire import MISFIRE_AFTER
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.joins import JoinStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState, Trigger, runs_of_uid
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.trigger_rules import ParentState, RuleAction, decide_start, missing
from nextfire.domain.zones import FIRST, HORIZON
from nextfire.usecases.limit_parallel import why_held
from nextfire.usecases.read_parents import records_near
from nextfire.usecases.read_quotas import ReadQuotas

_PARENTS_READ = 25
"""Maximum number of parents whose runs are read to explain why a run waits."""


@dataclass(frozen=True, slots=True)
class PendingOccurrence:
    """An occurrence that is due and has no record yet, and the reason why it waits."""

    key: RunKey
    reason: str


@dataclass(frozen=True, slots=True)
class FindRun:
    """Finds runs. `retention`: the shortest time for which records are kept. `joins`: which
    sequences are under way; None: it is not explained that a run waits for them. `quotas`: as
    `joins`.
    """

    jobs: JobStore
    runs: RunStore
    retention: timedelta
    clock: Clock
    joins: JoinStore | None = None
    quotas: ReadQuotas | None = None

    def find(self, key: RunKey) -> Run | PendingOccurrence:
        """The record of the run; the range record that covers it; or, for a due occurrence without
        a record, the reason why it waits.

        Raises:
            NotFoundError: It is not an occurrence, is not due yet, or its record has expired.
            UndecodableError: The record, or its job, does not decode.
        """
        run = self.runs.get(key)
        if run is not None:
            return run
        return self._explain_missing(key, possible_instant(key))

    def explain(self, run: Run) -> Run:
        """*run*, as it is to be shown: with the reason why it waits, if that is `maxParallel` or
        may be a quota, or if it was not dispatched when it was due again.
        """
        if run.state is not RunState.PENDING:
            return run
        due_at = run.not_before or run.key.scheduled_at
        late = self.clock.now() - due_at if run.fence else timedelta()
        if run.fence and late < MISFIRE_AFTER:
            return run
        try:
            job = self.jobs.get(run.key.job)
        except UndecodableError:
            return run
        if job is None:
            return run
        reason = f"{run.reason}; due again {_not_taken(job, late)}" if run.fence else run.reason
        held = None if run.fence else self._why_held(job, run.key)
        reason = held or self._with_quotas(run.key, reason or "")
        return run if reason == (run.reason or "") else replace(run, reason=reason)

    def _with_quotas(self, key: RunKey, reason: str) -> str:
        """*reason*, and the quotas for which *key*, which is due, may wait."""
        found = self.quotas and self.quotas.delays(key.job.tenant, self.clock.now())
        return f"{reason}; {found}" if found else reason

    def _why_held(self, job: Job, key: RunKey) -> str | None:
        """Why *key*, the first run of a sequence, has to wait for others; None if it need not."""
        most = job.definition.max_parallel
        if self.joins is None or most is None or job.uid != key.uid:
            return None
        begun = self.joins.begun_sequences(job.key)
        waits = key.run_id not in begun and len(begun) >= most
        return f"waits for a place: {why_held(job, begun)}" if waits else None

    def _explain_missing(self, key: RunKey, at: datetime) -> Run | PendingOccurrence:
        now = self.clock.now()
        newest = self.runs.between(key.job, "0", key.run_id, newest_first=True, page=1)
        job: Job | None = None
        unreadable: UndecodableError | None = None
        try:
            job = self.jobs.get(key.job)
        except UndecodableError as error:
            unreadable = error
        owner = version_at(job, at) if job is not None and job.uid == key.uid else None
        known = None if owner is None else has_occurrence(owner, at)
        before = None if known is False else _latest(newest, key, job)
        if before is not None and before.covers_until >= at:
            return before
        if unreadable is not None:
            raise unreadable
        if job is None or owner is None or at <= now - self.retention:
            raise NotFoundError("execution", key.execution_id)
        if job.definition.type is ScheduleType.AFTER and (why := self._why_it_awaits(job, at)):
            return PendingOccurrence(key, why)
        if not known:
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
            reason = (
                self._why_held(job, key)
                or _why_it_waits(job, due_at, before, now)
                or self._with_quotas(key, _since(job, now - due_at))
            )
        return PendingOccurrence(key, reason)

    def _why_it_awaits(self, job: Job, at: datetime) -> str | None:
        """Why a run of an AFTER job has no record; None if no parent runs at that logical time."""
        edges = job.definition.after[:_PARENTS_READ]
        found = {
            edge.job: run_at([*records_near(self.runs, JobKey(job.key.tenant, edge.job), at)], at)
            for edge in edges
        }
        if not any(found.values()):
            return None
        if len(edges) < len(job.definition.after):
            return "waits for its parents, or for an executor"
        states = {
            name: ParentState.WAITING if run is None else ParentState.of(run.state)
            for name, run in found.items()
        }
        definition = job.definition
        decision = decide_start(definition.trigger_rule, states, definition.setups)
        if decision.action is RuleAction.WAIT:
            return f"waits for {missing(states)}"
        return f"{decision.reason}; no executor has taken it yet"


def possible_instant(key: RunKey) -> datetime:
    """The scheduled instant of *key*, an id from a request.

    Raises:
        NotFoundError: No run has it: it is not a date, or beyond those of schedules.
    """
    try:
        at = key.scheduled_at
    except ValueError as error:
        raise NotFoundError("execution", key.execution_id) from error
    if not FIRST <= at < HORIZON:
        raise NotFoundError("execution", key.execution_id)
    return at


def _latest(newest: Iterable[Run], key: RunKey, job: Job | None) -> Run | None:
    """The latest of the records *newest* of the creation of *job* that *key* names, without runs on
    request.
    """
    at = key.scheduled_at
    if job is not None and job.uid != key.uid and at > job.created_at:
        return None  # an earlier creation has none: do not read all records of *job* to see it
    # A job has no records from before its creation.
    mine = runs_of_uid(newest, key.uid, at if job is None else job.created_at)
    return next((run for run in mine if run.trigger is not Trigger.MANUAL), None)


def _why_it_waits(job: Job, due_at: datetime, before: Run | None, now: datetime) -> str | None:
    """Why an occurrence that was due at *due_at* was not taken, if that is known. *before*: the
    latest record of an earlier occurrence.
    """
    if before is not None and job.exclusive and _blocks(before, due_at):
        overlap = job.definition.overlap
        return (
            f"waits for {before.key.execution_id}, which has not ended (overlap policy {overlap})"
        )
    late = now - due_at
    if job.definition.is_timed_join and late < longest_wait(job) + MISFIRE_AFTER:
        return (
            f"due {late // timedelta(seconds=1)} s ago; waits for its parents, at most "
            f"{job.definition.join_timeout_sec} s (joinTimeoutSec), or for an executor"
        )
    return None


def _since(job: Job, late: timedelta) -> str:
    """What is known of an occurrence that was due *late* ago and has no record."""
    if late < MISFIRE_AFTER:
        return "dispatched or about to be; no executor has taken it yet"
    return f"due {_not_taken(job, late)}"


def _not_taken(job: Job, late: timedelta) -> str:
    """What a run that was due *late* ago may wait for."""
    calls = job.definition.target.http is not None
    awaited = "a quota, its destination (see the endpoints)" if calls else "a quota"
    return (
        f"{late // timedelta(seconds=1)} s ago and not taken by an executor yet: it waits in "
        f"its pool's queue, or in the table for room there, {awaited} or its job's earlier runs; "
        "or no watcher runs. See docs/guide/policies.md"
    )


def _blocks(run: Run, due_at: datetime) -> bool:
    """Whether *run* has not ended and its message precedes one sent at *due_at*: a run that waits
    for a retry blocks nothing.
    """
    if run.state is RunState.PENDING:
        return run.not_before is None or run.not_before <= due_at
    return run.state is RunState.RUNNING
