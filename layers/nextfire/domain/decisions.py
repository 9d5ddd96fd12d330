"""What to do, and why. Pure: the same inputs give the same answer, and every answer carries its
reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from nextfire.domain.due import DueEntry, DueKind
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job, RetryPolicy
from nextfire.domain.message import RunMessage
from nextfire.domain.run import AttemptOutcome, Result, Run, RunState

ORPHAN_AGE = timedelta(seconds=60)
"""How long an entry whose job (or version) is not seen is left, before it is taken to be an
orphan.
"""


MIN_RETRY_DELAY = timedelta(seconds=1)
"""A retry's entry is stored before its run is PENDING again. Were it dispatched in between, its
message would find the run RUNNING and wait for the lease's end."""


class DueAction(StrEnum):
    """FIRE: send it and store the successor. DROP: delete it. LEAVE: look again later."""

    FIRE = "FIRE"
    DROP = "DROP"
    LEAVE = "LEAVE"


@dataclass(frozen=True, slots=True)
class DueDecision:
    """What becomes of a due entry. `run` and `pool` are set for FIRE only; `successor` at most
    then.
    """

    action: DueAction
    reason: str
    run: RunKey | None = None
    dispatch: int = 1
    pool: str = ""
    successor: DueEntry | None = None


def decide_due(entry: DueEntry, job: Job | None, now: datetime) -> DueDecision:
    """Decide over an entry that is due, by its job as read; see the design of the tick.

    Anything but FIRE must be decided on a consistent read of the job: the caller reads again and
    asks again.
    """
    if entry.kind is DueKind.RETRY:
        key = RunKey(entry.job, entry.run_id)
        return DueDecision(DueAction.FIRE, "retry is due", key, entry.dispatch, entry.pool)
    if job is None or job.uid != entry.uid:
        return _orphan(entry, now, "its job is not there")
    if entry.version > job.schedule_version:
        return _orphan(entry, now, f"its job has no schedule version {entry.version} yet")
    key = RunKey(entry.job, run_id(entry.uid, entry.occurs_at))
    pool = job.definition.target.pool
    if entry.version == job.schedule_version:
        # A job that is not active got a version of its own when it ceased to be.
        successor = job.successor(entry)
        return DueDecision(DueAction.FIRE, "occurrence is due", key, 1, pool, successor)
    # A version owns its occurrences up to the change that ended it, however late they are seen.
    past = next((each for each in job.replaced if each.version == entry.version), None)
    until = past.until if past else job.effective_from
    if entry.occurs_at <= until:
        reason = f"due before the change of {isoformat(until)}"
        successor = job.as_of(past).successor(entry) if past else None
        if successor is not None and successor.occurs_at > until:
            successor = None
        return DueDecision(DueAction.FIRE, reason, key, 1, pool, successor)
    return DueDecision(DueAction.DROP, f"replaced by schedule version {job.schedule_version}")


def _orphan(entry: DueEntry, now: datetime, what: str) -> DueDecision:
    if now - entry.at < ORPHAN_AGE:
        return DueDecision(DueAction.LEAVE, what)
    return DueDecision(DueAction.DROP, f"{what}, {ORPHAN_AGE.seconds} s after it was due")


class ClaimAction(StrEnum):
    """What an executor does with a message whose run could not simply be taken."""

    SETTLE = "SETTLE"  # the run has ended: do what follows (again), then acknowledge
    ACKNOWLEDGE = "ACKNOWLEDGE"  # an older dispatch: a newer one carries the run
    WAIT = "WAIT"  # come again at `until`
    TAKE_OVER = "TAKE_OVER"  # its worker vanished, attempts are left
    BURY = "BURY"  # its worker vanished, attempts are used up
    CANCEL = "CANCEL"  # it was to be cancelled; it waits, or its worker vanished
    AGAIN = "AGAIN"  # it is free after all: claim again


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    """`until` is set for WAIT only."""

    action: ClaimAction
    reason: str
    until: datetime | None = None


def decide_claim(
    run: Run, message: RunMessage, policy: RetryPolicy, now: datetime
) -> ClaimDecision:
    """Decide over *message* when its run's record, *run*, did not let itself be claimed at
    *now*.
    """
    if run.state.ended:
        return ClaimDecision(ClaimAction.SETTLE, f"has ended {run.state}")
    if message.dispatch < run.dispatch:
        return ClaimDecision(
            ClaimAction.ACKNOWLEDGE, f"dispatch {message.dispatch} is older than {run.dispatch}"
        )
    if run.state is RunState.PENDING:
        if run.cancel_requested:
            return ClaimDecision(ClaimAction.CANCEL, "cancelled before its next attempt")
        if run.not_before is not None and run.not_before > now:
            return ClaimDecision(ClaimAction.WAIT, "not yet to be tried again", run.not_before)
        return ClaimDecision(ClaimAction.AGAIN, "became free meanwhile")
    if run.lease_until is not None and run.lease_until > now:
        return ClaimDecision(ClaimAction.WAIT, f"runs on {run.worker}", run.lease_until)
    if run.cancel_requested:
        return ClaimDecision(ClaimAction.CANCEL, "cancelled; its worker vanished")
    if run.attempt >= policy.max_attempts:
        return ClaimDecision(
            ClaimAction.BURY, f"worker lost on attempt {run.attempt} of {policy.max_attempts}"
        )
    return ClaimDecision(ClaimAction.TAKE_OVER, f"the lease of {run.worker} lapsed")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run goes on after an attempt: it ends in `state`, or (PENDING) is tried again at
    `retry_at`.
    """

    state: RunState
    retry_at: datetime | None = None


def decide_ending(run: Run, result: Result, policy: RetryPolicy, now: datetime) -> Ending:
    """What the outcome of an attempt makes of its run."""
    if result.outcome is AttemptOutcome.SUCCEEDED:
        return Ending(RunState.SUCCEEDED)
    if run.cancel_requested or result.outcome is AttemptOutcome.CANCELLED:
        return Ending(RunState.CANCELLED)
    if result.permanent or run.attempt >= policy.max_attempts:
        return Ending(RunState.DEAD)
    return Ending(RunState.PENDING, now + max(policy.delay(run.attempt), MIN_RETRY_DELAY))
