"""Runs: one record for each occurrence, and the ways it may change.

    PENDING ──▶ RUNNING ──▶ SUCCEEDED | CANCELLED | DEAD      ended: never starts again
       ▲           │
       └───────────┘  retry (attempts left) or hand-back (not counted)

A change is computed here, from the record as it was read, and written by `RunStore` only where
that record is still the one in force (its fence). So a worker that lost its lease can record
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from nextfire.domain.ids import RunKey


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
    one.
    """

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None = None
    outcome: AttemptOutcome | None = None
    exit_code: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What an attempt left behind. `permanent`: another attempt could not end otherwise, so none
    is made.
    """

    outcome: AttemptOutcome
    reason: str
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """A run record.

    `fence` grows with every claim; `claim_token` is that claim's own; `lease_until` bounds its
    worker's right. `attempt` counts attempts that matter against `maxAttempts`. `attempts` is the
    whole history. A SKIPPED record with `covered_to` is a range record: it stands for the
    `covered` occurrences from its own to that one.
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

    @property
    def covers_until(self) -> datetime:
        """The last occurrence that this record stands for."""
        return self.covered_to or self.key.scheduled_at

    def taken_over(
        self, *, dispatch: int, token: str, worker: str, now: datetime, lease_until: datetime
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
            attempts=(*lost.attempts, Attempt(number, worker, now)),
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

    def handed_back(self, reason: str, now: datetime) -> Run:
        """Given up by a worker that shuts down: free at once, the attempt not counted."""
        closed = self._closed(Result(AttemptOutcome.HANDED_BACK, reason), now)
        return replace(
            closed,
            state=RunState.PENDING,
            attempt=self.attempt - 1,
            lease_until=None,
            worker=None,
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
        )
        return replace(self, attempts=(*before, done))
