"""Runs: one record per occurrence, and its state transitions.

    PENDING ──▶ RUNNING ──▶ SUCCEEDED | CANCELLED | DEAD      ended: final, except for
       ▲           │                             │            a redrive of DEAD
       ├───────────┘  retry (attempts left),     │
       │              which a user can hasten;   │
       │              hand-back or deferral,     │
       │              which are not counted      │
       └─────────────────────────────────────────┘  redrive

A run that is not to start is SKIPPED instead. The redrive of a sequence also returns CANCELLED and
SKIPPED runs to PENDING.

Transitions are computed here from the record that was read. `RunStore` writes them only if the
stored record still has the same fence, so a worker that lost its lease cannot write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from nextfire.dataclass import dataclass, replace
from nextfire.domain.attempt import (
    MAX_ATTEMPTS_KEPT,
    Attempt,
    AttemptOutcome,
    Result,
    Value,
    last_closed,
)
from nextfire.domain.ids import RunFolder, RunKey, unsent_dispatch
from nextfire.domain.replay import Replay


class RunState(StrEnum):
    """State of a run. The public API calls runs *executions*."""

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
    """What created a run. SCHEDULE: an occurrence, each of which has a record. Others: a user."""

    SCHEDULE = "SCHEDULE"
    MANUAL = "MANUAL"  # run now: its instant is not an occurrence
    BACKFILL = "BACKFILL"  # a past occurrence


@dataclass(frozen=True, slots=True)
class Run:
    """A run record.

    - `fence`: grows with every claim. `claim_token`, `worker`, `lease_until`: of the latest claim.
    - `dispatch`: number of the latest dispatch. `buried`: number of the dispatch whose DEAD event
      was published.
    - `attempt`: number of attempts that count; `attempt_base` of them were made before the last
      redrive and do not count toward `maxAttempts`. `restarted`: a user has redriven it, maybe
      before an attempt counted; `fence_base`: its fence then. `attempts`: the latest
      `MAX_ATTEMPTS_KEPT`.
    - `checkpoint`: the latest one that the script saved. `result`: the script's result.
    - `covered_to`: makes a SKIPPED record a range record, which stands for the `covered`
      occurrences from its own to that one.
    - `trigger`: what created the run. If a user requested the run, or its skip: `request`, an id of
      the request; `request_reason`; `payload`, JSON that replaces the job's; `replay_of`, the
      request of an earlier run that it sends again.
    - `upstream`: JSON about the runs of its parents, for its target. Not stored.
    - `kept`: how long the record is kept after its last change; None: for `RETENTION`. Not stored.
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
    restarted: bool = False
    fence_base: int = 0
    buried: int = 0
    checkpoint: Value | None = None
    result: Value | None = None
    trigger: Trigger = Trigger.SCHEDULE
    request: str = ""
    request_reason: str | None = None
    payload: str | None = None
    replay_of: Replay | None = None
    upstream: str | None = None
    kept: timedelta | None = None

    @property
    def shown(self) -> Run:
        """The run as its target sees it: a replay has the identity of the run that it repeats."""
        of = self.replay_of
        if of is None:
            return self
        return replace(self, key=RunKey(self.key.job, of.run_id), attempt=of.attempt)

    @property
    def tries(self) -> int:
        """Number of attempts that count toward `maxAttempts`: since the last redrive, if any."""
        return self.attempt - self.attempt_base

    def fence_of(self, attempt: Attempt) -> int:
        """The fence of *attempt*, one of `attempts`. Each claim makes one attempt."""
        return self.fence - (len(self.attempts) - 1 - self.attempts.index(attempt))

    @property
    def since_redrive(self) -> list[Attempt]:
        """Its attempts since its last redrive, as far as the record shows which these are."""
        before = len(self.attempts) - self.fence + self.fence_base if self.fence_base else 0
        return [each for each in self.attempts[max(before, 0) :] if each.number > self.attempt_base]

    @property
    def skip_requested(self) -> bool:
        """Whether a user asked to skip this occurrence, which may still be in the future."""
        return self.state is RunState.SKIPPED and bool(self.request) and not self.on_request

    @property
    def skipped_by_parents(self) -> bool:
        """Whether it was SKIPPED because of its parents, not by an executor or a user: it starts
        after all if they end again.
        """
        by_parents = self.state is RunState.SKIPPED and self.pool is None and self.covered == 1
        return by_parents and not self.request

    @property
    def ended_without_executor(self) -> bool:
        """Whether it was SKIPPED, or CANCELLED before its dispatch: then no message hands it over
        to its children.
        """
        cancelled = self.state is RunState.CANCELLED and not self.attempts
        return (self.state is RunState.SKIPPED or cancelled) and not self.request

    @property
    def on_request(self) -> bool:
        """Whether a user requested this run; it is not part of the order of scheduled runs."""
        return self.trigger is not Trigger.SCHEDULE

    @property
    def covers_until(self) -> datetime:
        """The last occurrence that this record covers."""
        return self.covered_to or self.key.scheduled_at

    def folder_of(self, attempt: Attempt) -> RunFolder:
        """The folder with the files of *attempt*, one of `attempts`."""
        return RunFolder(self.key, attempt.pool)

    @property
    def result_folder(self) -> RunFolder:
        """The folder with the file of `result`: that of the last attempt."""
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
        """Return the run with its next attempt, after its worker was lost. *dispatch*: the number
        of the received dispatch.
        """
        lost = self._closed(
            Result(AttemptOutcome.WORKER_LOST, f"lease of {self.worker} lapsed"), now
        )
        number = self.attempt + 1
        return replace(
            lost,
            # Dispatch numbers are never reused: the queue would drop the message as a duplicate.
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
        """Return the run ended in *state*: SUCCEEDED, CANCELLED, DEAD, or SKIPPED if all its
        attempts were deferred until it was too late.
        """
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
        """Return the run waiting for its next dispatch, which may start at *not_before*: after a
        failure or a deferral.
        """
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
        """Return the run handed back by its worker: free immediately, the attempt not counted."""
        closed = self._closed(result, now)
        return replace(
            closed, state=RunState.PENDING, lease_until=None, worker=None, reason=result.reason
        )

    def redriven(self, reason: str, now: datetime, *, by_user: bool = True) -> Run:
        """Return the run, which has ended without success, redriven, by a user or because a parent
        ended again: with all attempts of its job's policy, keeping its history.
        """
        return replace(
            self,
            state=RunState.PENDING,
            dispatch=unsent_dispatch(self.dispatch),
            attempt_base=self.attempt,
            fence_base=self.fence,
            restarted=self.restarted or by_user,
            not_before=now,
            finished_at=None,
            cancel_requested=False,
            cancel_reason=None,
            reason=reason,
        )

    def brought_forward(self, reason: str, now: datetime) -> Run:
        """Return the run, which waits for its next attempt, due *now*."""
        return replace(self, dispatch=unsent_dispatch(self.dispatch), not_before=now, reason=reason)

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
        """Return the record of a skipped occurrence, or of several consecutive ones. `pool` and
        `dispatched_at`: set if an executor skips it.
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

    def awaiting_parents(self, reason: str) -> Run:
        """Return the DEAD or SKIPPED run as if it had been SKIPPED because of its parents: it
        starts again, with all attempts of its job's policy, if they end again and its rule allows
        it.
        """
        return replace(
            self,
            state=RunState.SKIPPED,
            attempt_base=self.attempt,
            fence_base=self.fence,
            restarted=True,
            # Without a claim, and without an executor that decided to skip it.
            claim_token="",
            worker=None,
            pool=None,
            dispatched_at=None,
            not_before=None,
            cancel_requested=False,
            cancel_reason=None,
            # `finished_at` stays: each end of a parent after it counts, whatever the clocks show.
            reason=reason,
        )

    def passed_over(self, reason: str, now: datetime, *, pool: str, dispatched_at: datetime) -> Run:
        """Return the SKIPPED record of a requested run that was never claimed."""
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
        """Return the run with the current attempt closed in its history."""
        attempt = self.attempt if result.outcome.counts else self.attempt - 1
        return replace(self, attempt=attempt, attempts=last_closed(self.attempts, result, now))


def runs_of_uid(records: Iterable[Run], uid: str, created_at: datetime) -> Iterator[Run]:
    """Iterate over those of *records*, latest first, that belong to the job created as *uid* at
    *created_at*. Stops at the first older record of a deleted job with the same id. The deleted job
    can also have newer records, of occurrences skipped or cancelled in advance; these are left out.
    """
    for run in records:
        if run.key.uid == uid:
            yield run
        elif run.key.scheduled_at <= created_at:
            return
