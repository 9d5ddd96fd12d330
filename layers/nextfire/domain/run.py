"""Runs: one record for each occurrence, and the ways it may change.

    PENDING ──▶ RUNNING ──▶ SUCCEEDED | CANCELLED | DEAD      ended: never starts again,
       ▲           │                             │            but for a redrive
       ├───────────┘  retry (attempts left) or   │
       │              hand-back (not counted)    │
       └─────────────────────────────────────────┘  redrive

A change is computed here, from the record as it was read, and written by `RunStore` only where
that record is still the one in force (its fence). So a worker that lost its lease can record
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from nextfire.domain.ids import RunFolder, RunKey


class RunState(StrEnum):
    """Where a run stands. The public API says *execution*."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    DEAD = "DEAD"

    @property
    def ended(self) -> bool:
        return self not in (RunState.PENDING, RunState.RUNNING)


class Trigger(StrEnum):
    """What made a run. To each occurrence SCHEDULE owes a record; the others were asked for."""

    SCHEDULE = "SCHEDULE"
    MANUAL = "MANUAL"  # run now: at an instant that is no occurrence
    BACKFILL = "BACKFILL"  # of an occurrence of the past


class AttemptOutcome(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    WORKER_LOST = "WORKER_LOST"
    CANCELLED = "CANCELLED"
    HANDED_BACK = "HANDED_BACK"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a run. `number` counts from 1; a handed-back attempt gives its number to the next
    one. `log_parts`: how many parts its log has in `RunFiles`; 0: its output is on the record, if
    it is the latest. `script_sha256`: the digest of the script that was fetched for it. `pool`:
    the pool that made it and has its files; None: a version made it that did not separate pools.
    """

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None = None
    outcome: AttemptOutcome | None = None
    exit_code: int | None = None
    reason: str | None = None
    log_parts: int = 0
    script_sha256: str | None = None
    pool: str | None = None


MAX_ATTEMPTS_KEPT = 100
"""Attempts in a run's history; of a run that is redriven again and again the latest."""

MAX_INLINE_BYTES = 8 * 1024
"""Of a result or a checkpoint on the record; a larger one goes to `RunFiles`."""
MAX_VALUE_BYTES = 1024 * 1024
"""Of a result or a checkpoint."""


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value of *size* bytes that a script left: its `text`, or the `file` of `RunFiles` that
    holds it.
    """

    size: int
    text: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What an attempt left behind. `permanent`: another attempt could not end otherwise, so none
    is made. `value`: what the script gave as its result.
    """

    outcome: AttemptOutcome
    reason: str
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    permanent: bool = False
    value: Value | None = None
    log_parts: int = 0
    script_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run record.

    `fence` grows with every claim; `claim_token` is that claim's own; `lease_until` bounds its
    worker's right. `attempt` counts attempts that matter against `maxAttempts`; `attempt_base` of
    them were made before the last redrive and matter no longer. `attempts` is the history, the
    latest `MAX_ATTEMPTS_KEPT`. `buried`: the dispatch whose death has been told. `checkpoint` is
    what the script saved last, `result` what it gave. A SKIPPED record with `covered_to` is a range
    record: it stands for the `covered` occurrences from its own to that one.

    `trigger`: what made it. Of one that was asked for, or asked to be skipped: `request`, what
    tells that request from others; `request_reason`, why; `payload`, the JSON that it has in place
    of its job's.
    """

    key: RunKey
    state: RunState
    dispatch: int = 1
    attempt: int = 0
    fence: int = 0
    claim_token: str = ""
    worker: str | None = None
    lease_until: datetime | None = None
    not_before: datetime | None = None
    cancel_requested: bool = False
    cancel_reason: str | None = None
    pool: str | None = None
    job_revision: int | None = None
    dispatched_at: datetime | None = None
    dispatch_reason: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    reason: str | None = None
    attempts: tuple[Attempt, ...] = ()
    covered_to: datetime | None = None
    covered: int = 1
    attempt_base: int = 0
    buried: int = 0
    checkpoint: Value | None = None
    result: Value | None = None
    trigger: Trigger = Trigger.SCHEDULE
    request: str = ""
    request_reason: str | None = None
    payload: str | None = None

    @property
    def tries(self) -> int:
        """The attempts that count: since the first dispatch, or since the last redrive."""
        return self.attempt - self.attempt_base

    def fence_of(self, attempt: Attempt) -> int:
        """The fence under which *attempt*, one of `attempts`, was made: each claim makes one."""
        return self.fence - (len(self.attempts) - 1 - self.attempts.index(attempt))

    @property
    def skip_requested(self) -> bool:
        """Whether it is an occurrence, due or still to come, that somebody asked to skip."""
        return self.state is RunState.SKIPPED and bool(self.request) and not self.on_request

    @property
    def on_request(self) -> bool:
        """Whether somebody asked for it: it is not of the row of what the schedule has sent."""
        return self.trigger is not Trigger.SCHEDULE

    @property
    def covers_until(self) -> datetime:
        """The last occurrence that this record stands for."""
        return self.covered_to or self.key.scheduled_at

    def folder_of(self, attempt: Attempt) -> RunFolder:
        """Where the files of *attempt*, one of `attempts`, are."""
        return RunFolder(self.key, attempt.pool)

    @property
    def result_folder(self) -> RunFolder:
        """Where the file of `result` is: the last attempt left it."""
        return RunFolder(self.key, self.attempts[-1].pool if self.attempts else None)

    def taken_over(
        self,
        *,
        dispatch: int,
        token: str,
        worker: str,
        now: datetime,
        lease_until: datetime,
        pool: str | None = None,
    ) -> Run:
        """The next attempt, by the message numbered *dispatch*, after the last worker vanished."""
        lost = self._closed(
            Result(AttemptOutcome.WORKER_LOST, f"lease of {self.worker} lapsed"), now
        )
        number = self.attempt + 1
        return replace(
            lost,
            # A number that was sent is never given again: the queue would swallow its next sending.
            dispatch=max(self.dispatch, dispatch),
            attempt=number,
            fence=self.fence + 1,
            claim_token=token,
            worker=worker,
            lease_until=lease_until,
            started_at=now,
            attempts=(*lost.attempts, Attempt(number, worker, now, pool=pool))[-MAX_ATTEMPTS_KEPT:],
        )

    def ended(self, state: RunState, result: Result, now: datetime) -> Run:
        """Ended in *state* (SUCCEEDED, CANCELLED or DEAD)."""
        return replace(
            self._closed(result, now),
            state=state,
            finished_at=now,
            lease_until=None,
            exit_code=result.exit_code,
            stdout=result.stdout,
            stderr=result.stderr,
            reason=result.reason,
            result=result.value,
        )

    def retrying(self, result: Result, now: datetime, *, not_before: datetime) -> Run:
        """Waiting for the next dispatch, from *not_before* on."""
        return replace(
            self._closed(result, now),
            state=RunState.PENDING,
            dispatch=self.dispatch + 1,
            not_before=not_before,
            lease_until=None,
            worker=None,
            exit_code=result.exit_code,
            stdout=result.stdout,
            stderr=result.stderr,
            reason=result.reason,
        )

    def handed_back(self, result: Result, now: datetime) -> Run:
        """Given up by a worker that shuts down: free at once, the attempt not counted."""
        closed = self._closed(result, now)
        return replace(
            closed,
            state=RunState.PENDING,
            attempt=self.attempt - 1,
            lease_until=None,
            worker=None,
            reason=result.reason,
        )

    def redriven(self, reason: str, now: datetime) -> Run:
        """Tried again, though DEAD: with as many attempts as its job's policy gives, and the
        history going on.
        """
        return replace(
            self,
            state=RunState.PENDING,
            # A retry's message may be under way with the next number, from a worker that died
            # before it had that on record; the queue would take the redrive's for a repetition.
            dispatch=self.dispatch + 2,
            attempt_base=self.attempt,
            not_before=now,
            finished_at=None,
            cancel_requested=False,
            cancel_reason=None,
            reason=reason,
        )

    @staticmethod
    def skipped(
        key: RunKey,
        reason: str,
        now: datetime,
        *,
        covered_to: datetime | None = None,
        covered: int = 1,
        pool: str | None = None,
        dispatched_at: datetime | None = None,
    ) -> Run:
        """The record of an occurrence that does not run, or of several in a row. `pool` and
        `dispatched_at`, where an executor had it before it.
        """
        return Run(
            key,
            RunState.SKIPPED,
            finished_at=now,
            reason=reason,
            covered_to=covered_to if covered > 1 else None,
            covered=covered,
            pool=pool,
            dispatched_at=dispatched_at,
        )

    def passed_over(self, reason: str, now: datetime, *, pool: str, dispatched_at: datetime) -> Run:
        """The SKIPPED record of a run that was asked for and that nobody has started."""
        return replace(
            self,
            state=RunState.SKIPPED,
            finished_at=now,
            not_before=None,
            reason=reason,
            pool=pool,
            dispatched_at=dispatched_at,
        )

    def _closed(self, result: Result, now: datetime) -> Run:
        """With the attempt under way entered in the history."""
        if not self.attempts:
            return self
        *before, last = self.attempts
        done = replace(
            last,
            finished_at=now,
            outcome=result.outcome,
            exit_code=result.exit_code,
            reason=result.reason,
            log_parts=result.log_parts,
            script_sha256=result.script_sha256,
        )
        return replace(self, attempts=(*before, done)[-MAX_ATTEMPTS_KEPT:])


def of_creation(records: Iterable[Run], uid: str, created_at: datetime) -> Iterator[Run]:
    """Those of *records*, the latest first, that are of the job which was made as *uid* at
    *created_at*, up to the first of a job that had its id before. That one may have later
    records, too: of what was skipped or cancelled before it was due.
    """
    for run in records:
        if run.key.uid == uid:
            yield run
        elif run.key.scheduled_at <= created_at:
            return
